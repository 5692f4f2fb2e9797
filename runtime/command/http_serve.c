/* http_serve: see http_serve.h. */
#define _GNU_SOURCE /* accept4 */
#include "runtime/command/http_serve.h"
#include "base/clock.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_CLIENTS = 32, MOST_REQUEST = 8192, REQUEST_SECONDS = 10, ANSWER_SECONDS = 60 };

typedef struct {
  int fd; /* -1: a free place */
  char in[MOST_REQUEST];
  size_t in_count;
  Text out; /* of an answer under way */
  size_t sent;
  bool is_answered;
  int64_t started, deadline;
} HttpClient;

struct HttpServer {
  int fd, port;
  char address[INET6_ADDRSTRLEN];
  HttpClient client[MOST_CLIENTS];
};

/* ── requests ─────────────────────────────────────────────────────────────────────────────── */

static bool is_this_machine(const char *host, const char *address) {
  unsigned char bytes[16];
  char own[256] = "";
  if (!strcasecmp(host, "localhost") || !strcasecmp(host, address)) return true;
  if (inet_pton(AF_INET, host, bytes) == 1)
    return bytes[0] == 127 || strncmp(address, "127.", 4) != 0;
  if (inet_pton(AF_INET6, host, bytes) == 1) return true;
  /* served to other machines: under its own name too */
  bool is_local = !strncmp(address, "127.", 4) || !strcmp(address, "::1");
  return !is_local && gethostname(own, sizeof own - 1) == 0 && !strcasecmp(host, own);
}

/* "127.0.0.1:8011", "[::1]:8011", "localhost" */
static bool is_host_good(const char *value, size_t count, const char *address) {
  char host[256];
  if (count == 0 || count >= sizeof host) return false;
  memcpy(host, value, count);
  host[count] = 0;
  char *port = host[0] == '[' ? strchr(host, ']') : strchr(host, ':'), *name = host;
  if (host[0] == '[') {
    if (!port) return false;
    *port++ = 0;
    name++;
  }
  if (port && *port == ':') {
    *port++ = 0;
    if (!*port || strlen(port) > 5 || port[strspn(port, "0123456789")]) return false;
  } else if (port && *port) {
    return false;
  }
  return is_this_machine(name, address);
}

static bool is_field(const char *line, size_t count, const char *name, const char **value,
                     size_t *value_count) {
  size_t length = strlen(name);
  if (count <= length || strncasecmp(line, name, length) != 0 || line[length] != ':') return false;
  const char *at = line + length + 1, *end = line + count;
  while (at < end && (*at == ' ' || *at == '\t')) at++;
  while (end > at && (end[-1] == ' ' || end[-1] == '\t')) end--;
  *value = at;
  *value_count = (size_t)(end - at);
  return true;
}

/* "GET /data.json HTTP/1.1" */
static int read_first_line(const char *line, size_t count, HttpRequest *out) {
  const char *space = memchr(line, ' ', count), *path = space ? space + 1 : NULL;
  const char *end = path ? memchr(path, ' ', (size_t)(line + count - path)) : NULL;
  if (!end || line + count - end != 9 || strncmp(end + 1, "HTTP/1.", 7) != 0 || *path != '/')
    return 400;
  size_t method = (size_t)(space - line), length = (size_t)(end - path);
  out->is_head = method == 4 && !memcmp(line, "HEAD", 4);
  if (!out->is_head && !(method == 3 && !memcmp(line, "GET", 3))) return 405;
  if (length >= sizeof out->path) return 404;
  memcpy(out->path, path, length);
  out->path[length] = 0;
  return 200;
}

int http_read_request(const char *text, size_t count, const char *address, HttpRequest *out) {
  const char *end = text + count, *line = text;
  int hosts = 0, status = 400;
  *out = (HttpRequest){0};
  if (memchr(text, 0, count)) return 400;
  for (int i = 0; line < end; i++) {
    const char *newline = memchr(line, '\n', (size_t)(end - line)), *value;
    if (!newline) return 400;
    size_t length = (size_t)(newline - line), value_count;
    if (length && line[length - 1] == '\r') length--;
    if (i == 0) {
      status = read_first_line(line, length, out);
    } else if (is_field(line, length, "Host", &value, &value_count)) {
      hosts++;
      if (!is_host_good(value, value_count, address)) return 421;
    } else if (is_field(line, length, "If-None-Match", &value, &value_count)) {
      if (value_count < sizeof out->known) memcpy(out->known, value, value_count);
    }
    line = newline + 1;
  }
  return hosts == 1 ? status : 400;
}

/* ── answers ──────────────────────────────────────────────────────────────────────────────── */

static const char *status_text(int status) {
  switch (status) {
  case 200:
    return "200 OK";
  case 304:
    return "304 Not Modified";
  case 404:
    return "404 Not Found";
  case 405:
    return "405 Method Not Allowed";
  case 421:
    return "421 Misdirected Request";
  case 431:
    return "431 Request Header Fields Too Large";
  default:
    return "400 Bad Request";
  }
}

static void write_answer(HttpClient *client, const HttpAnswer *answer, bool is_head) {
  static const char fields[] =
      "Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
      "Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n"
      "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
      "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n";
  bool has_body = answer->status != 304;
  text_printf(&client->out, "HTTP/1.1 %s\r\n%s", status_text(answer->status), fields);
  if (answer->tag[0]) text_printf(&client->out, "ETag: %s\r\n", answer->tag);
  if (answer->status == 405) text_printf(&client->out, "Allow: GET, HEAD\r\n");
  if (has_body)
    text_printf(&client->out, "Content-Type: %s\r\nContent-Length: %zu\r\n", answer->type,
                answer->count);
  text_printf(&client->out, "\r\n");
  if (has_body && !is_head) text_append(&client->out, answer->bytes, answer->count);
  client->is_answered = true;
  client->deadline = clock_nanoseconds() + ANSWER_SECONDS * (int64_t)1000000000;
}

static void answer_error(HttpClient *client, int status) {
  const char *text = status_text(status);
  write_answer(client, &(HttpAnswer){status, "text/plain; charset=utf-8", text, strlen(text), ""},
               false);
}

static void answer_request(HttpServer *server, HttpClient *client, size_t count,
                           HttpAnswerer *answer, void *user) {
  HttpRequest request;
  int status = http_read_request(client->in, count, server->address, &request);
  if (status != 200) {
    answer_error(client, status);
    return;
  }
  HttpAnswer out = {.status = 404, .type = "text/plain; charset=utf-8", .bytes = "", .count = 0};
  answer(user, request.path, request.known, &out);
  if (out.status == 404)
    answer_error(client, 404);
  else
    write_answer(client, &out, request.is_head);
}

/* ── who asks ─────────────────────────────────────────────────────────────────────────────── */

static void drop_client(HttpClient *client) {
  close(client->fd);
  text_free(&client->out);
  client->fd = -1;
}

static void accept_client(HttpServer *server) {
  int fd = accept4(server->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return;
  HttpClient *place = &server->client[0];
  for (int i = 0; i < MOST_CLIENTS && place->fd >= 0; i++) {
    HttpClient *client = &server->client[i];
    if (client->fd < 0 || client->started < place->started) place = client;
  }
  if (place->fd >= 0) drop_client(place);
  place->fd = fd;
  place->in_count = place->sent = 0;
  place->is_answered = false;
  place->started = clock_nanoseconds();
  place->deadline = place->started + REQUEST_SECONDS * (int64_t)1000000000;
}

/* The bytes of the head of a request with the empty line that ends it; 0: there is no end yet. */
static size_t head_count(const HttpClient *client) {
  for (size_t i = 1; i < client->in_count; i++)
    if (client->in[i] == '\n' &&
        (client->in[i - 1] == '\n' || (i > 2 && !memcmp(client->in + i - 3, "\r\n\r", 3))))
      return i + 1;
  return 0;
}

static void read_client(HttpServer *server, HttpClient *client, HttpAnswerer *answer, void *user) {
  ssize_t count =
      recv(client->fd, client->in + client->in_count, MOST_REQUEST - client->in_count, 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    drop_client(client);
    return;
  }
  client->in_count += (size_t)count;
  size_t head = head_count(client);
  if (head)
    answer_request(server, client, head, answer, user);
  else if (client->in_count == MOST_REQUEST)
    answer_error(client, 431);
}

/* What was sent and not read would take the answer away with it when the connection is closed. */
static void end_answer(HttpClient *client) {
  shutdown(client->fd, SHUT_WR);
  for (int i = 0; i < 16 && recv(client->fd, client->in, MOST_REQUEST, MSG_DONTWAIT) > 0; i++) {
  }
  drop_client(client);
}

static void send_client(HttpClient *client) {
  size_t left = client->out.count - client->sent;
  ssize_t count = send(client->fd, client->out.at + client->sent, left, MSG_NOSIGNAL);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count < 0) {
    drop_client(client);
    return;
  }
  client->sent += (size_t)count;
  if (client->sent == client->out.count) end_answer(client);
}

Status http_turn(HttpServer *server, int milliseconds, HttpAnswerer *answer, void *user) {
  struct pollfd polled[MOST_CLIENTS + 1];
  polled[MOST_CLIENTS] = (struct pollfd){server->fd, POLLIN, 0};
  for (int i = 0; i < MOST_CLIENTS; i++) {
    HttpClient *client = &server->client[i];
    polled[i] = (struct pollfd){client->fd, client->is_answered ? POLLOUT : POLLIN, 0};
  }
  if (poll(polled, MOST_CLIENTS + 1, milliseconds) < 0 && errno != EINTR)
    return status_errno(errno, "waiting for who asks");
  for (int i = 0; i < MOST_CLIENTS; i++) {
    HttpClient *client = &server->client[i];
    if (client->fd < 0) continue;
    if (polled[i].revents && client->is_answered)
      send_client(client);
    else if (polled[i].revents)
      read_client(server, client, answer, user);
    if (client->fd >= 0 && clock_nanoseconds() > client->deadline) drop_client(client);
  }
  if (polled[MOST_CLIENTS].revents) accept_client(server);
  return STATUS_OK;
}

/* ── the port ─────────────────────────────────────────────────────────────────────────────── */

static Status listen_at(HttpServer *server, const char *address, int port) {
  struct sockaddr_storage place = {0};
  struct sockaddr_in *four = (struct sockaddr_in *)&place;
  struct sockaddr_in6 *six = (struct sockaddr_in6 *)&place;
  bool is_four = inet_pton(AF_INET, address, &four->sin_addr) == 1;
  if (!is_four && inet_pton(AF_INET6, address, &six->sin6_addr) != 1)
    return status_fail(STATUS_USER, "--address %s: expected a numeric one, such as 127.0.0.1",
                       address);
  place.ss_family = is_four ? AF_INET : AF_INET6;
  *(is_four ? &four->sin_port : &six->sin6_port) = htons((uint16_t)port);
  socklen_t size = is_four ? sizeof *four : sizeof *six;
  int yes = 1;
  server->fd = socket(place.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (server->fd < 0) return status_errno(errno, "a socket");
  setsockopt(server->fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(server->fd, (struct sockaddr *)&place, size) != 0 || listen(server->fd, 64) != 0 ||
      getsockname(server->fd, (struct sockaddr *)&place, &size) != 0)
    return status_errno(errno, "port %d of %s", port, address);
  server->port = ntohs(is_four ? four->sin_port : six->sin6_port);
  return STATUS_OK;
}

Status http_open(const char *address, int port, HttpServer **out) {
  HttpServer *server = calloc(1, sizeof *server);
  *out = NULL;
  if (!server) return status_errno(ENOMEM, "port %d", port);
  server->fd = -1;
  for (int i = 0; i < MOST_CLIENTS; i++) server->client[i].fd = -1;
  Status status = listen_at(server, address, port);
  if (status == STATUS_OK) {
    memcpy(server->address, address, strlen(address) + 1); /* inet_pton has bounded it */
    *out = server;
  } else {
    http_close(server);
  }
  return status;
}

int http_port(const HttpServer *server) { return server->port; }

void http_close(HttpServer *server) {
  if (!server) return;
  for (int i = 0; i < MOST_CLIENTS; i++)
    if (server->client[i].fd >= 0) drop_client(&server->client[i]);
  if (server->fd >= 0) close(server->fd);
  free(server);
}
