/* http_serve: answers HTTP/1.1 requests of several clients in turns, on one thread, whoever they are
 * and however slowly they ask or read. A request is bounded in bytes and time. When all places are
 * taken, a new client gets the place of the one that has been asking for longest. */
#ifndef FT_RUNTIME_HTTP_SERVE_H
#define FT_RUNTIME_HTTP_SERVE_H
#include "base/text.h"
#include "runtime/common/status.h"
#include <stdbool.h>

typedef struct {
  int status; /* 200, 304, 404 */
  const char *type, *bytes;
  size_t count;
  char tag[64]; /* ETag, "": none */
} HttpAnswer;
/* The answer to GET of `path`; `known`: the tag that the asker has, or "". The bytes are copied. */
typedef void HttpAnswerer(void *user, const char *path, const char *known, HttpAnswer *out);

typedef struct HttpServer HttpServer;
/* address: a numeric one. port 0: any. STATUS_USER: it is taken, or none of this machine's. */
STATUS_CHECKED Status http_open(const char *address, int port, HttpServer **out);
int http_port(const HttpServer *server);
/* Waits for at most so many milliseconds and answers who asks. */
STATUS_CHECKED Status http_turn(HttpServer *server, int milliseconds, HttpAnswerer *answer,
                                void *user);
void http_close(HttpServer *server); /* NULL is fine */

/* The request in text[0 .. count), which ends with an empty line. Returns the status of the answer:
 * 200 go on, else an error. path and known get at most so many bytes with their end. */
typedef struct {
  bool is_head;
  char path[64], known[64];
} HttpRequest;
int http_read_request(const char *text, size_t count, const char *address, HttpRequest *out);
#endif
