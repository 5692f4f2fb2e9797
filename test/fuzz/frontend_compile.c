/* frontend_compile: any bytes as a source file must give a program or messages, never a crash. What
 * compiles must pass the verifier. The first byte chooses the options. */
#include "frontend/program.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static FILE *nowhere;
  if (!nowhere) nowhere = fopen("/dev/null", "w");
  if (size == 0 || size > 1 << 16) return 0;
  static const char *const defines[] = {"hidden=3"}, *const sets[] = {"train.batch=2"};
  FrontendOptions options = {
      .defines = defines, .sets = sets, .set_count = data[0] & 1, .define_count = data[0] >> 1 & 1};
  Arena *arena = arena_new();
  Diag diag;
  Program program;
  diag_init(&diag, arena, nowhere);
  bool fine = frontend_compile_bytes(arena, &diag, "/nonexistent/fuzz.ft", (const char *)data + 1,
                                     size - 1, &options, &program);
  if (!fine && diag.errors == 0) abort(); /* refused without a word */
  if (fine && (!graph_verify(program.train, STAGE_FORWARD, &diag) ||
               !graph_verify(program.eval, STAGE_FORWARD, &diag)))
    abort();
  arena_free(arena);
  return 0;
}
