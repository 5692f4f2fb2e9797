/* deploy_header: the C header of a deployed model. */
#ifndef FT_RUNTIME_DEPLOY_HEADER_H
#define FT_RUNTIME_DEPLOY_HEADER_H
#include "plan/plan_inference.h"

/* file: its name, without its folder; is_c: it is C, not a library. */
void deploy_header(const Plan *plan, const Inference *inference, const char *file, bool is_c, Text *out);
#endif
