/* ftrun_elastic: `ftrun --elastic 2:8 model.ft`: a training on 8 ranks that goes on with fewer where
 * one is lost, from its newest checkpoint, and with all of them again after the next one.
 * The batch of all ranks stays the same: R ranks accumulate 8 / R times as many parts, so every
 * number of ranks is an artifact of its own, and those that do not divide the parts are left out.
 * Losses and weights are those of one rank with that batch, and each sample is taken once. */
#ifndef FT_TOOLS_FTRUN_ELASTIC_H
#define FT_TOOLS_FTRUN_ELASTIC_H
#include "runtime/command/train.h"
#include "tools/ftrun_compile.h"

typedef struct {
  const char *range;       /* "2:8" */
  Compilation compilation; /* of the model */
  const RunOptions *run;   /* settings of the run */
  char *const *arguments;  /* of the first run, behind the artifact; NULL behind the last */
  int gpus; /* of this machine, a rank on each, started as --gpus does; 0: as --ranks does */
} Elastic;

/* The exit code; a failure has been told. */
int elastic_run(const Elastic *elastic);
/* clock_nanoseconds when this run began: now, or for ranks of an elastic one as that did. */
int64_t elastic_started(void);
#endif
