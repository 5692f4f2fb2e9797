/* server: `ftc --lsp`: the Language Server Protocol 3.17 over two streams. One thread: messages are read as long
 * as there are any, then answered in order; when there are none left, what has changed is analysed, and an
 * analysis ends as soon as its file changes again. */
#ifndef FT_LSP_SERVER_H
#define FT_LSP_SERVER_H
#include "lsp/desk.h"
#include "lsp/wire.h"
#include <stdio.h>

enum { SERVER_MOST_WAITING = 64 };

typedef struct {
  json_t *message;
  bool is_cancelled;
} Waiting;

typedef struct {
  Desk desk;
  Wire wire;
  FILE *out;
  int in; /* -1: bytes come by server_give alone */
  bool is_initialized, is_shut_down, is_over,
      has_ended; /* over: exit was said; ended: the stream did */
  Waiting waiting[SERVER_MOST_WAITING];
  int waiting_count;
  const char *analysed; /* the uri of the file that is being analysed */
} Server;

void server_init(Server *server, int in, FILE *out);
void server_give(Server *server, const char *bytes, size_t count);
/* Does one thing: answers a message, or analyses a file. False: there is nothing to do. */
bool server_step(Server *server);
void server_free(Server *server);
/* All of it. The exit code: 0 behind a shutdown, else 1. */
int server_run(int in, FILE *out);
#endif
