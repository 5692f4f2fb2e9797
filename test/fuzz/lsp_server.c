/* lsp_server: any bytes that an editor could send, in pieces of any size, must be answered or skipped, never a
 * crash. The first two bytes choose the size of the pieces and what stands in front: a beginning in order, with an
 * open file, after which bodies may be anything. Texts are cut short by the fuzzer's limit, so that analyses are. */
#include "lsp/server.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void say(Server *server, const char *body, size_t count) {
  char head[64];
  int length = snprintf(head, sizeof head, "Content-Length: %zu\r\n\r\n", count);
  server_give(server, head, (size_t)length);
  server_give(server, body, count);
}

static void greet(Server *server) {
  static const char *const messages[] = {
      "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"capabilities\":{}}}",
      "{\"jsonrpc\":\"2.0\",\"method\":\"textDocument/"
      "didOpen\",\"params\":{\"textDocument\":{\"uri\":\"a:b\","
      "\"version\":1,\"text\":\"hyper h: int = 4\\nmodel M(x: f32[B, 4]) {\\n  loss = "
      "mean(Linear(h)(x))\\n}\\n\"}}}"};
  for (size_t i = 0; i < 2; i++) say(server, messages[i], strlen(messages[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static FILE *nowhere;
  static Server server;
  if (!nowhere) nowhere = fopen("/dev/null", "w");
  if (size < 2 || size > 1 << 13) return 0;
  size_t piece = data[0] ? data[0] : size;
  server_init(&server, -1, nowhere);
  if (data[1] & 1) greet(&server);
  if (data[1] & 2) { /* the rest is one body */
    say(&server, (const char *)data + 2, size - 2);
    while (server_step(&server)) {
    }
  }
  for (size_t at = 2; at < size && !(data[1] & 2); at += piece) {
    server_give(&server, (const char *)data + at, size - at < piece ? size - at : piece);
    while (server_step(&server)) {
    }
  }
  while (server_step(&server)) {
  }
  server_free(&server);
  return 0;
}
