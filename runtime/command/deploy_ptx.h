/* deploy_ptx: a model for an NVIDIA GPU: the PTX of ftc --inference, the weights beside it, and a C header that loads
 * both and runs them by the driver alone (its text: deploy_ptx.part). Weights as initialised arrays of the PTX
 * would take ptxas a second and 30 bytes of memory for each megabyte, hence the file beside. */
#ifndef FT_RUNTIME_DEPLOY_PTX_H
#define FT_RUNTIME_DEPLOY_PTX_H
#include "plan/plan_inference.h"
#include "runtime/artifact/artifact.h"

/* weights: inference->weights bytes, which become those of the file. name: of the PTX, without its folder. */
STATUS_CHECKED Status deploy_ptx(const Artifact *artifact, const Inference *inference, const char *name, Text *weights, Text *header);
#endif
