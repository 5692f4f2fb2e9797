/* ftrun_compile: `ftrun model.ft` has ftc compile it. */
#ifndef FT_TOOLS_FTRUN_COMPILE_H
#define FT_TOOLS_FTRUN_COMPILE_H
#include "base/text.h"
#include "runtime/data/source.h"
#include <stdbool.h>

typedef struct {
  const char *source, *artifact, *gpu; /* gpu: NULL: none */
  const SourcePlaces *places;
  bool opens_data;         /* meanwhile */
  const char *const *pass; /* more arguments */
  int pass_count;
  bool find_batch; /* print its table (ftc --find-batch), compile nothing */
  bool is_again; /* what it warns of has been told: only an error is, now */
  /* Of several ranks, which all compile it: ranks_begin has been called. What ftc says is told by rank
   * 0, or by the one that fails alone. */
  bool is_rank;
} Compilation;
/* The exit code; a failure has been told. */
int compile_source(const Compilation *compilation);
/* The same, with what ftc prints. */
int compile_and_read(const Compilation *compilation, Text *out);
#endif
