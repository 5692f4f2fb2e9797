/* deploy: `ftrun deploy`: weights into a .so of ftc --inference, which then predicts alone; and its C header. */
#ifndef FT_RUNTIME_DEPLOY_H
#define FT_RUNTIME_DEPLOY_H
#include "runtime/command/train.h"

typedef struct {
  RunOptions run;
  const char *weights, *output; /* output: a .so or .c, beside which the header lies; or an .onnx */
  bool dry_run;
} DeployOptions;
/* Each file appears whole or not at all, and replaces what was there. */
STATUS_CHECKED Status deploy_run(const DeployOptions *options);
#endif
