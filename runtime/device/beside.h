/* beside: what a plan BEGINs, as a work of the ranks. */
#ifndef FT_RUNTIME_BESIDE_H
#define FT_RUNTIME_BESIDE_H
#include "runtime/device/dev.h"

/* All of the work but its addresses: x is the step's first argument if it has an input, out the
 * next one. Refused if these ranks cannot do it. The label is the plan's. comm NULL: this process is
 * alone. */
STATUS_CHECKED Status beside_work(const Comm *comm, const Artifact *artifact,
                                  const PlanGraph *graph, const PlanStep *step, CommWork *out);
#endif
