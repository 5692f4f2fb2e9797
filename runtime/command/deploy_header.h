/* deploy_header: the C header of a deployed model. */
#ifndef FT_RUNTIME_DEPLOY_HEADER_H
#define FT_RUNTIME_DEPLOY_HEADER_H
#include "plan/plan_inference.h"

/* library: the file's name, without its folder. */
void deploy_header(const Plan *plan, const Inference *inference, const char *library, Text *out);
#endif
