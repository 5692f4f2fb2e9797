/* ftrun_shrink: `ftrun shrink MODEL.ft --weights W -o SMALL.ft`: a smaller network, where weights are 0. */
#ifndef FT_TOOLS_FTRUN_SHRINK_H
#define FT_TOOLS_FTRUN_SHRINK_H
#include "runtime/data/source.h"

typedef struct {
  const char *source, *weights, *output;
  const SourcePlaces *places;
  const char *const *pass; /* the compiler's flags */
  int pass_count;
  const char *const *stay; /* layers that keep their widths */
  int stay_count;
} ShrinkOptions;
/* The exit code; a failure has been told. */
int shrink_run(const ShrinkOptions *options);
#endif
