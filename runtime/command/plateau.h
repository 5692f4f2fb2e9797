/* plateau: the schedule that follows evaluations, as PyTorch's ReduceLROnPlateau with a relative
 * threshold. What it remembers is the state of role plateau, f64[5], which the step's graph reads
 * (the number of reductions so far) and checkpoints hold. */
#ifndef FT_RUNTIME_PLATEAU_H
#define FT_RUNTIME_PLATEAU_H
#include "runtime/execute/exec.h"
#include "runtime/command/log.h"

/* Does the plan have this schedule? */
bool plateau_is_used(const Exec *exec);
/* From here on another metric counts: what was best is forgotten, and the reductions stay. */
STATUS_CHECKED Status plateau_begin(Exec *exec);
/* After an evaluation; *is_reduced: the learning rate has been reduced. */
STATUS_CHECKED Status plateau_note(Exec *exec, const LogStep *result, bool *is_reduced);
#endif
