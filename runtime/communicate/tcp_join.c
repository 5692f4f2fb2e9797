/* tcp_join: how ranks without MPI find each other, see tcp_engine.h. Rank 0 listens; the others
 * come, say who they are and where they listen themselves, get the list of all when all have come,
 * and then connect with each other, the higher rank to the lower. */
#define _GNU_SOURCE /* accept4 */
#include "base/clock.h"
#include "runtime/communicate/tcp_engine.h"
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

static const char hello_word[8] = "ft-rank1";
static const int64_t greeting_time = 1000000000, list_time = 3600ll * 1000000000; /* ns */

/* Rank 0 speaks first: what else listens on a port waits to be spoken to. */
typedef struct {
  char word[8];
  uint64_t job;
} Hello;
/* From who comes. */
typedef struct {
  char word[8];
  uint64_t job;
  int32_t rank, ranks;
  uint32_t port; /* where it listens */
} Who;
enum { TAKEN = 1, DUPLICATE, OTHER_NUMBER };
typedef struct {
  int32_t result, ranks;
} Answer;
/* One a rank, when all have come. */
typedef struct {
  uint8_t host[16]; /* as rank 0 sees it; zeros: on rank 0's machine */
  uint32_t scope, port;
  uint8_t token[16]; /* the same for all */
} Entry;
typedef struct {
  uint8_t token[16];
  int32_t from, to;
} Visit;

typedef struct {
  const CommPlace *place;
  const char *host;
  int port, listening;
  uint64_t job;
  Entry *entry;
  int *link;
  struct sockaddr_in6 master; /* where rank 0 was found */
  char *why;
  bool has_list;
} Join;

/* What joins now, for tcp_find_missing: with the lock its links are set, and it is looked at. */
static pthread_mutex_t joining_lock = PTHREAD_MUTEX_INITIALIZER;
static const Join *joining;

static void set_link(Join *join, int rank, int socket) {
  pthread_mutex_lock(&joining_lock);
  join->link[rank] = socket;
  pthread_mutex_unlock(&joining_lock);
}

static bool tcp_fail(Join *join, const char *what) {
  if (!join->why[0]) snprintf(join->why, ENGINE_WHY, "%s: %s", what, strerror(errno));
  return false;
}

/* ── sockets ──────────────────────────────────────────────────────────────────────────────── */
static void tcp_prepare(int made) {
  int one = 1;
  setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(made, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
}

/* Whole messages, within so much time. */
static bool tcp_get(int from, void *bytes, size_t count, int64_t nanoseconds) {
  int64_t end = clock_nanoseconds() + nanoseconds;
  for (size_t at = 0; at < count;) {
    struct pollfd wanted = {.fd = from, .events = POLLIN};
    int64_t left = end - clock_nanoseconds();
    if (left <= 0 || poll(&wanted, 1, (int)(left / 1000000) + 1) < 0) return false;
    if (!wanted.revents) continue;
    ssize_t got = recv(from, (char *)bytes + at, count - at, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return false;
    at += (size_t)got;
  }
  return true;
}

static bool tcp_put(int to, const void *bytes, size_t count) {
  for (size_t at = 0; at < count;) {
    ssize_t sent = send(to, (const char *)bytes + at, count - at, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += (size_t)sent;
  }
  return true;
}

/* port 0: any. Returns the socket, or -1. */
static int tcp_listen(int port) {
  int made = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), off = 0, on = 1;
  struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
  struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  bool is_bound = false;
  if (made >= 0) {
    setsockopt(made, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    is_bound = bind(made, (struct sockaddr *)&six, sizeof six) == 0;
  }
  if (!is_bound && errno != EADDRINUSE) { /* no IPv6 here */
    if (made >= 0) close(made);
    made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    is_bound = made >= 0 && bind(made, (struct sockaddr *)&four, sizeof four) == 0;
  }
  if (is_bound && listen(made, 1024) == 0) return made;
  int error = errno;
  if (made >= 0) close(made);
  errno = error;
  return -1;
}

static int port_of(int listening) {
  struct sockaddr_storage name;
  socklen_t size = sizeof name;
  if (getsockname(listening, (struct sockaddr *)&name, &size) != 0) return 0;
  return ntohs(name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&name)->sin6_port
                                          : ((struct sockaddr_in *)(void *)&name)->sin_port);
}

static void as_six(const struct sockaddr *from, struct sockaddr_in6 *out) {
  *out = (struct sockaddr_in6){.sin6_family = AF_INET6};
  if (from->sa_family == AF_INET6) {
    *out = *(const struct sockaddr_in6 *)(const void *)from;
  } else {
    const struct sockaddr_in *four = (const void *)from;
    out->sin6_port = four->sin_port;
    out->sin6_addr.s6_addr[10] = out->sin6_addr.s6_addr[11] = 0xff;
    memcpy(&out->sin6_addr.s6_addr[12], &four->sin_addr, 4);
  }
}

/* Within a second. Returns the socket, or -1. */
static int tcp_connect(const struct sockaddr_in6 *to) {
  struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = to->sin6_port};
  bool is_four = IN6_IS_ADDR_V4MAPPED(&to->sin6_addr);
  memcpy(&four.sin_addr, &to->sin6_addr.s6_addr[12], 4);
  int made = socket(is_four ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), error = 0;
  struct timeval most = {.tv_sec = 1};
  if (made < 0) return -1;
  setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most); /* of connect, too */
  error = is_four ? connect(made, (struct sockaddr *)&four, sizeof four)
                  : connect(made, (const struct sockaddr *)to, sizeof *to);
  tcp_prepare(made);
  if (error == 0) return made;
  close(made);
  return -1;
}

static bool is_loopback(const struct in6_addr *address) {
  return IN6_IS_ADDR_LOOPBACK(address) ||
         (IN6_IS_ADDR_V4MAPPED(address) && address->s6_addr[12] == 127);
}

/* ── rank 0 ───────────────────────────────────────────────────────────────────────────────── */
static int greet(Join *join, int visitor, Who *who) {
  Hello hello = {.job = join->job};
  memcpy(hello.word, hello_word, sizeof hello.word);
  if (!tcp_put(visitor, &hello, sizeof hello) ||
      !tcp_get(visitor, who, sizeof *who, greeting_time) ||
      memcmp(who->word, hello_word, sizeof hello_word) != 0 || who->job != join->job)
    return 0;
  if (who->ranks != join->place->ranks) return OTHER_NUMBER;
  if (who->rank < 1 || who->rank >= who->ranks || who->port > 65535) return 0;
  return join->link[who->rank] < 0 ? TAKEN : DUPLICATE;
}

static bool take_visitor(Join *join) {
  struct sockaddr_storage name;
  struct sockaddr_in6 six;
  socklen_t size = sizeof name;
  Who who;
  int visitor = accept4(join->listening, (struct sockaddr *)&name, &size, SOCK_CLOEXEC);
  if (visitor < 0) return false;
  tcp_prepare(visitor);
  int result = greet(join, visitor, &who);
  Answer answer = {result, join->place->ranks};
  if (!result || !tcp_put(visitor, &answer, sizeof answer) || result != TAKEN) {
    close(visitor);
    return false;
  }
  set_link(join, who.rank, visitor);
  Entry *entry = &join->entry[who.rank];
  as_six((struct sockaddr *)&name, &six);
  if (!is_loopback(&six.sin6_addr)) memcpy(entry->host, &six.sin6_addr, sizeof entry->host);
  entry->port = who.port;
  entry->scope = six.sin6_scope_id;
  return true;
}

static bool join_as_first(Join *join) {
  bool has_store = getenv("TORCHELASTIC_USE_AGENT_STORE") &&
                   !strcmp(getenv("TORCHELASTIC_USE_AGENT_STORE"), "True");
  for (int i = has_store; i < TCP_PORTS && join->listening < 0; i++)
    join->listening = tcp_listen(join->port + i);
  if (join->listening < 0) {
    snprintf(join->why, ENGINE_WHY,
             "none of the ports %d to %d can be listened on (MASTER_PORT): %s", join->port,
             join->port + TCP_PORTS - 1, strerror(errno));
    return false;
  }
  for (int missing = join->place->ranks - 1; missing > 0;) missing -= take_visitor(join);
  uint8_t token[16];
  if (getrandom(token, sizeof token, 0) != sizeof token) return tcp_fail(join, "no randomness");
  size_t bytes = (size_t)join->place->ranks * sizeof *join->entry;
  for (int r = 0; r < join->place->ranks; r++) memcpy(join->entry[r].token, token, sizeof token);
  for (int r = 1; r < join->place->ranks; r++)
    if (!tcp_put(join->link[r], join->entry, bytes))
      return tcp_fail(join, "a rank has come and is gone");
  return true;
}

/* ── the others ───────────────────────────────────────────────────────────────────────────── */
/* 0: it is not rank 0 that listens there. */
static int introduce(Join *join, int made, int own_port, Answer *answer) {
  Hello hello;
  Who who = {.job = join->job,
             .rank = join->place->rank,
             .ranks = join->place->ranks,
             .port = (uint32_t)own_port};
  memcpy(who.word, hello_word, sizeof who.word);
  if (!tcp_get(made, &hello, sizeof hello, greeting_time) ||
      memcmp(hello.word, hello_word, sizeof hello_word) != 0 || hello.job != join->job ||
      !tcp_put(made, &who, sizeof who) || !tcp_get(made, answer, sizeof *answer, greeting_time))
    return 0;
  return answer->result;
}

/* True: it is over, well or not. */
static bool try_port(Join *join, const struct addrinfo *at, int port) {
  Answer answer = {0, 0};
  as_six(at->ai_addr, &join->master);
  join->master.sin6_port = htons((uint16_t)port);
  int made = tcp_connect(&join->master);
  if (made < 0) return false;
  int result = introduce(join, made, port_of(join->listening), &answer);
  if (result == TAKEN) {
    set_link(join, 0, made);
    return true;
  }
  close(made);
  if (result == OTHER_NUMBER)
    snprintf(join->why, ENGINE_WHY,
             "rank 0 at %.200s:%d is one of %d ranks, and WORLD_SIZE here is %d", join->host, port,
             answer.ranks, join->place->ranks);
  if (result == DUPLICATE)
    snprintf(join->why, ENGINE_WHY, "rank 0 at %.200s:%d has another rank %d (RANK)", join->host,
             port, join->place->rank);
  return result == OTHER_NUMBER || result == DUPLICATE;
}

static bool find_first(Join *join) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
  int error = getaddrinfo(join->host, NULL, &hints, &found);
  if (error != 0) {
    snprintf(join->why, ENGINE_WHY, "MASTER_ADDR=%.200s is not found: %s", join->host,
             gai_strerror(error));
    return false;
  }
  bool is_over = false;
  while (!is_over) {
    for (int i = 0; i < TCP_PORTS && !is_over; i++)
      for (const struct addrinfo *at = found; at && !is_over; at = at->ai_next)
        if (at->ai_family == AF_INET || at->ai_family == AF_INET6)
          is_over = try_port(join, at, join->port + i);
    if (!is_over) usleep(50000);
  }
  freeaddrinfo(found);
  return join->link[0] >= 0;
}

static bool tcp_reach(Join *join, int rank) {
  const Entry *entry = &join->entry[rank];
  static const uint8_t none[16];
  struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_scope_id = entry->scope};
  if (memcmp(entry->host, none, sizeof none) != 0)
    memcpy(&to.sin6_addr, entry->host, sizeof entry->host);
  else
    to.sin6_addr = join->master.sin6_addr;
  to.sin6_port = htons((uint16_t)entry->port);
  Visit visit = {.from = join->place->rank, .to = rank};
  memcpy(visit.token, entry->token, sizeof visit.token);
  set_link(join, rank, tcp_connect(&to));
  if (join->link[rank] >= 0 && tcp_put(join->link[rank], &visit, sizeof visit)) return true;
  snprintf(join->why, ENGINE_WHY, "rank %d cannot reach rank %d: %s; is there a firewall?",
           join->place->rank, rank, strerror(errno));
  return false;
}

static bool take_higher(Join *join) {
  Visit visit;
  int visitor = accept4(join->listening, NULL, NULL, SOCK_CLOEXEC);
  if (visitor < 0) return false;
  tcp_prepare(visitor);
  if (tcp_get(visitor, &visit, sizeof visit, greeting_time) &&
      !memcmp(visit.token, join->entry[0].token, sizeof visit.token) &&
      visit.to == join->place->rank && visit.from > visit.to && visit.from < join->place->ranks &&
      join->link[visit.from] < 0) {
    set_link(join, visit.from, visitor);
    return true;
  }
  close(visitor);
  return false;
}

static bool join_as_other(Join *join) {
  int rank = join->place->rank, ranks = join->place->ranks;
  join->listening = tcp_listen(0);
  if (join->listening < 0) return tcp_fail(join, "no port to listen on");
  if (!find_first(join)) return false;
  if (!tcp_get(join->link[0], join->entry, (size_t)ranks * sizeof *join->entry, list_time)) {
    snprintf(join->why, ENGINE_WHY, "rank 0 at %.200s has gone", join->host);
    return false;
  }
  pthread_mutex_lock(&joining_lock);
  join->has_list = true;
  pthread_mutex_unlock(&joining_lock);
  for (int r = 1; r < rank; r++)
    if (!tcp_reach(join, r)) return false;
  for (int missing = ranks - 1 - rank; missing > 0;) missing -= take_higher(join);
  return true;
}

/* ── all ──────────────────────────────────────────────────────────────────────────────────── */
static uint64_t job_hash(void) {
  const char *at = getenv("TORCHELASTIC_RUN_ID");
  uint64_t hash = 0xcbf29ce484222325u;
  for (; at && *at; at++) hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
  return hash;
}

static void set_joining(const Join *join) {
  pthread_mutex_lock(&joining_lock);
  joining = join;
  pthread_mutex_unlock(&joining_lock);
}

/* Of at most so many ranks: "ranks 2, 3". */
static int name_missing(const Join *join, char *out, size_t size) {
  enum { MOST_NAMED = 16 };
  int count = 0;
  size_t at = 0;
  out[0] = 0;
  for (int r = 0; r < join->place->ranks; r++) {
    if (r == join->place->rank || join->link[r] >= 0 || ++count > MOST_NAMED + 1) continue;
    at += count > MOST_NAMED ? (size_t)snprintf(out + at, size - at, ", …")
                             : (size_t)snprintf(out + at, size - at, "%s%d", at ? ", " : "", r);
  }
  return count;
}

bool tcp_find_missing(const CommPlace *place, double seconds, char *sentence, size_t size) {
  char names[256], host[64] = "";
  gethostname(host, sizeof host - 1);
  pthread_mutex_lock(&joining_lock);
  const Join *join = joining && joining->place == place ? joining : NULL;
  int missing = join ? name_missing(join, names, sizeof names) : 0;
  const char *several = missing == 1 ? "" : "s", *have = missing == 1 ? "has" : "have";
  if (missing && place->rank == 0)
    snprintf(sentence, size,
             "rank%s %s of %d %s not come to rank 0 (host %s, port %d) within %g s (not started, "
             "stopped, or cut off)",
             several, names, place->ranks, have, host, port_of(join->listening), seconds);
  else if (missing && join->link[0] < 0)
    snprintf(
        sentence, size,
        "rank %d (host %s) has not found rank 0 at MASTER_ADDR=%.200s, MASTER_PORT=%d within %g "
        "s: has it been started there, and does the network between them work?",
        place->rank, host, join->host, join->port, seconds);
  else if (missing && join->has_list)
    snprintf(
        sentence, size,
        "rank %d (host %s) and rank%s %s have not found each other within %g s (stopped, or cut "
        "off)",
        place->rank, host, several, names, seconds);
  else
    missing = 0;
  pthread_mutex_unlock(&joining_lock);
  return missing > 0;
}

bool tcp_join(const CommPlace *place, int *link, char *why) {
  const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
  char *end = NULL;
  long number = port ? strtol(port, &end, 10) : 0;
  why[0] = 0;
  if (!host || !host[0] || !port || !port[0]) {
    snprintf(why, ENGINE_WHY,
             "RANK and WORLD_SIZE are set, and %s is not: it says where rank 0 is; or start the "
             "ranks by mpirun or srun",
             host && host[0] ? "MASTER_PORT" : "MASTER_ADDR");
    return false;
  }
  if (*end || number < 1 || number > 65535 - TCP_PORTS) {
    snprintf(why, ENGINE_WHY, "MASTER_PORT=%.40s: expected a number from 1 to %d", port,
             65535 - TCP_PORTS);
    return false;
  }
  Join join = {place, host, (int)number, -1, job_hash(), .link = link, .why = why};
  join.entry = calloc((size_t)place->ranks, sizeof *join.entry);
  for (int r = 0; r < place->ranks; r++) link[r] = -1;
  if (!join.entry) return tcp_fail(&join, "ranks");
  set_joining(&join);
  bool is_good = place->rank == 0 ? join_as_first(&join) : join_as_other(&join);
  set_joining(NULL);
  if (join.listening >= 0) close(join.listening);
  free(join.entry);
  return is_good;
}
