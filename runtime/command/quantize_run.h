/* quantize_run: an artifact with taps, its weights loaded, run on batches of calibration samples. */
#ifndef FT_RUNTIME_QUANTIZE_RUN_H
#define FT_RUNTIME_QUANTIZE_RUN_H
#include "runtime/command/log.h"
#include "runtime/command/train.h"

typedef struct {
  Artifact *artifact;
  Exec *exec;
  ExecGraph graph;
  Source *source; /* calibration samples */
  SourceWorker *worker;
  void *slot;
  int64_t batch, batches, *sample;
  float *values; /* of the tap that was read last */
  int64_t room;
} TapModel;

/* samples: about so many, spread over the split. */
STATUS_CHECKED Status tap_open(const RunOptions *run, const char *weights, const char *split, int64_t samples, TapModel *out);
void tap_close(TapModel *model); /* also after a failed open */
STATUS_CHECKED Status tap_run(TapModel *model, int64_t batch);
/* Of the last run: output "what.NUMBER.PATH". *values: the model's own, until the next read. *type: its. */
STATUS_CHECKED Status tap_read(TapModel *model, const char *path, int number, const char *what, const float **values, const Type **type);
/* Loss and metrics over a whole split. */
STATUS_CHECKED Status tap_evaluate(TapModel *model, const RunOptions *run, const char *split, LogStep *out);
#endif
