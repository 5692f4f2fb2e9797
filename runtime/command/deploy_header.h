/* deploy_header: the C header of a deployed model. */
#ifndef FT_RUNTIME_DEPLOY_HEADER_H
#define FT_RUNTIME_DEPLOY_HEADER_H
#include "plan/plan_inference.h"
#include "runtime/common/status.h"

/* The rows of a header's text for inputs and outputs; how many outputs there are. */
int deploy_header_ports(const Plan *plan, const PlanGraph *graph, Text *out);
/* A name in capital letters. */
void deploy_header_upper(const char *name, Text *out);
/* Can the name stand between the quotes of an #include? If not, the failure says so of `what`. */
STATUS_CHECKED Status deploy_header_name(const char *what, const char *name);
/* file: its name, without its folder; is_c: it is C, not a library. */
void deploy_header(const Plan *plan, const Inference *inference, const char *file, bool is_c, Text *out);
#endif
