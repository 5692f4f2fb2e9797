/* predict: outputs of the eval graph for any number of samples, from .npy (or IDX) files or a split
 * of the model's own data, in its order, to .npy. */
#ifndef FT_RUNTIME_PREDICT_H
#define FT_RUNTIME_PREDICT_H
#include "runtime/command/train.h"

typedef struct {
  RunOptions run;
  const char *weights;
  const char *const *inputs; /* "image=x.npy" */
  int input_count;
  const char *const *outputs; /* "y.npy" (a model with one output) or "logits=y.npy" */
  int output_count;
  const char *split; /* in place of inputs; NULL: none */
} PredictOptions;
STATUS_CHECKED Status predict_run(const PredictOptions *options);
#endif
