/* board: see board.h. A message is its kind and its length, four bytes each, and its bytes. */
#define _GNU_SOURCE /* accept4 */
#include "runtime/communicate/board.h"
#include "base/clock.h"
#include <errno.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* Of the first message: who it is. */
typedef struct {
  uint8_t token[16];
  int32_t rank;
} Hello;
enum { HELLO = 'H', WELCOME = 'W' };

/* ── messages ─────────────────────────────────────────────────────────────────────────────── */
void board_drop(BoardLink *link) {
  if (link->socket >= 0) close(link->socket);
  link->socket = -1;
}

static void set_up_socket(int socket) {
  int one = 1;
  struct timeval most = {.tv_sec = 1};
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
}

bool board_send(BoardLink *link, int kind, const void *bytes, size_t count) {
  char message[8 + BOARD_BYTES];
  uint32_t head[2] = {(uint32_t)kind, (uint32_t)count};
  memcpy(message, head, sizeof head);
  if (count) memcpy(message + sizeof head, bytes, count);
  for (size_t at = 0, all = sizeof head + count; at < all;) {
    ssize_t sent = send(link->socket, message + at, all - at, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += (size_t)sent;
  }
  return true;
}

bool board_send_if_read(BoardLink *link, int kind, const void *bytes, size_t count) {
  enum { UNREAD = 8192 };
  int unread = 0;
  if (ioctl(link->socket, SIOCOUTQ, &unread) == 0 && unread > UNREAD) return true;
  return board_send(link, kind, bytes, count);
}

/* A socket that can be written to has room for a third of its buffer, which is more than a message: so
 * it goes as a whole, and at once. */
bool board_send_if_room(BoardLink *link, int kind, const void *bytes, size_t count) {
  struct pollfd room = {.fd = link->socket, .events = POLLOUT};
  if (poll(&room, 1, 0) == 0) return true;
  return board_send(link, kind, bytes, count);
}

bool board_receive(BoardLink *link, int *kind, void *bytes, size_t *count) {
  uint32_t head[2] = {0, 0};
  for (;;) {
    if (link->count >= sizeof head) memcpy(head, link->bytes, sizeof head);
    if (head[1] > BOARD_BYTES) return false;
    size_t all = sizeof head + head[1];
    if (link->count == all) break;
    ssize_t got = recv(link->socket, link->bytes + link->count, all - link->count, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    *kind = 0;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (got <= 0) return false;
    link->count += (size_t)got;
  }
  *kind = (int)head[0];
  *count = head[1];
  memcpy(bytes, link->bytes + sizeof head, head[1]);
  link->count = 0;
  return true;
}

/* Waits for the next message. */
static bool await(BoardLink *link, int64_t end, int wanted, void *bytes, size_t size) {
  int kind = 0;
  char message[BOARD_BYTES];
  size_t count = 0;
  while (!kind) {
    int64_t left = end - clock_nanoseconds();
    struct pollfd poll_for = {.fd = link->socket, .events = POLLIN};
    if (left <= 0 || poll(&poll_for, 1, (int)(left / 1000000) + 1) < 0) return false;
    if (!board_receive(link, &kind, message, &count)) return false;
  }
  if (kind != wanted || count != size) return false;
  memcpy(bytes, message, size);
  return true;
}

/* ── rank 0 ───────────────────────────────────────────────────────────────────────────────── */
static void add_address(BoardAddress *address, const struct sockaddr *found) {
  if (!found || address->count == BOARD_ADDRESSES) return;
  uint8_t *to = address->host[address->count];
  if (found->sa_family == AF_INET) {
    memset(to, 0, 10);
    memset(to + 10, 0xff, 2);
    memcpy(to + 12, &((const struct sockaddr_in *)(const void *)found)->sin_addr, 4);
  } else if (found->sa_family == AF_INET6) {
    const struct sockaddr_in6 *six = (const void *)found;
    if (IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)) return; /* of an interface, each machine its own */
    memcpy(to, &six->sin6_addr, 16);
  } else {
    return;
  }
  address->count++;
}

/* This machine's name for itself comes last: on another machine it is somebody else. */
static void find_addresses(BoardAddress *address) {
  struct ifaddrs *all = NULL;
  if (getifaddrs(&all) != 0) all = NULL;
  for (int is_own = 0; is_own <= 1; is_own++)
    for (const struct ifaddrs *at = all; at; at = at->ifa_next)
      if ((at->ifa_flags & IFF_UP) && !(at->ifa_flags & IFF_LOOPBACK) == !is_own)
        add_address(address, at->ifa_addr);
  freeifaddrs(all);
}

Status board_listen(Board *board) {
  enum { WAITING = 1024 };
  struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
  struct sockaddr_in any4 = {.sin_family = AF_INET};
  struct sockaddr *address = (struct sockaddr *)&any;
  socklen_t size = sizeof any;
  int off = 0;
  board->address = (BoardAddress){0};
  board->listening = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (board->listening >= 0)
    setsockopt(board->listening, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (board->listening < 0 || bind(board->listening, address, size) != 0) { /* no IPv6 here */
    board_close(board);
    address = (struct sockaddr *)&any4;
    size = sizeof any4;
    board->listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (board->listening < 0 || bind(board->listening, address, size) != 0)
      return status_fail(STATUS_FAULT, "rank 0 cannot open a port: %s", strerror(errno));
  }
  if (listen(board->listening, WAITING) != 0 ||
      getsockname(board->listening, address, &size) != 0 ||
      getrandom(board->address.token, sizeof board->address.token, 0) !=
          sizeof board->address.token)
    return status_fail(STATUS_FAULT, "rank 0 cannot open a port: %s", strerror(errno));
  board->address.port = address == (struct sockaddr *)&any ? any.sin6_port : any4.sin_port;
  find_addresses(&board->address);
  return STATUS_OK;
}

void board_close(Board *board) {
  if (board->listening >= 0) close(board->listening);
  board->listening = -1;
}

void board_accept(const Board *board, BoardLink *out, int *rank) {
  static const int64_t patience = 1000000000; /* who connects says at once who he is */
  Hello hello;
  *rank = -1;
  *out = (BoardLink){.socket = accept4(board->listening, NULL, NULL, SOCK_CLOEXEC)};
  if (out->socket < 0) return;
  set_up_socket(out->socket);
  if (await(out, clock_nanoseconds() + patience, HELLO, &hello, sizeof hello) &&
      !memcmp(hello.token, board->address.token, sizeof hello.token) &&
      board_send(out, WELCOME, hello.token, sizeof hello.token)) {
    *rank = hello.rank;
    return;
  }
  board_drop(out);
}

/* ── the others ───────────────────────────────────────────────────────────────────────────── */
static int connect_to(const BoardAddress *address, int which, int milliseconds) {
  struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = address->port};
  struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = address->port};
  memcpy(&six.sin6_addr, address->host[which], 16);
  memcpy(&four.sin_addr, address->host[which] + 12, 4);
  bool is_four = IN6_IS_ADDR_V4MAPPED(&six.sin6_addr);
  int made = socket(is_four ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) return -1;
  int error = 0;
  socklen_t size = sizeof error;
  struct pollfd poll_for = {.fd = made, .events = POLLOUT};
  int got = is_four ? connect(made, (struct sockaddr *)&four, sizeof four)
                    : connect(made, (struct sockaddr *)&six, sizeof six);
  if (got == 0 || (errno == EINPROGRESS && poll(&poll_for, 1, milliseconds) == 1 &&
                   getsockopt(made, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0)) {
    int flags = 0;
    if (ioctl(made, FIONBIO, &flags) == 0) return made;
  }
  close(made);
  return -1;
}

Status board_connect(const Board *board, int rank, const char *host, double seconds,
                     BoardLink *out) {
  const BoardAddress *address = &board->address;
  int64_t end = clock_nanoseconds() + (int64_t)(seconds * 1e9);
  Hello hello = {.rank = rank};
  uint8_t token[16];
  memcpy(hello.token, address->token, sizeof hello.token);
  do {
    for (int i = 0; i < address->count; i++) {
      *out = (BoardLink){.socket = connect_to(address, i, 1000)};
      if (out->socket < 0) continue;
      set_up_socket(out->socket);
      if (board_send(out, HELLO, &hello, sizeof hello) &&
          await(out, clock_nanoseconds() + 3000000000, WELCOME, token, sizeof token) &&
          !memcmp(token, address->token, sizeof token))
        return STATUS_OK;
      board_drop(out);
    }
    usleep(50000);
  } while (clock_nanoseconds() < end);
  return status_fail(STATUS_FAULT,
                     "rank %d (host %s) reaches rank 0 at none of its %d addresses, port %d, "
                     "within %g s: is there a firewall between them?",
                     rank, host, address->count, ntohs(address->port), seconds);
}
