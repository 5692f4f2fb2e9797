/* evaluate: loss and metrics over every sample of a split, exactly. The last, partial batch of r
 * samples is padded with copies of its last one; one more batch holds only that sample, and the
 * sum over the r real samples is B M1 - (B - r) M2 (M1, M2: the two batches' means). Exact for
 * every loss and metric that is a mean over samples, or over a number of elements that the plan
 * gives the output "weight" of (targets that are not ignored): then B is that number. */
#ifndef FT_RUNTIME_EVALUATE_H
#define FT_RUNTIME_EVALUATE_H
#include "runtime/exec.h"
#include "runtime/log.h"
#include "runtime/source.h"

typedef struct Evaluator Evaluator;

/* Takes memory for a few batches; exec and source must outlive it. */
STATUS_CHECKED Status evaluate_new(Exec *exec, const Source *source, Evaluator **out);
void evaluate_free(Evaluator *evaluator); /* NULL is fine */
/* Fills loss and metrics of *out (not its step). graph: EXEC_EVAL or EXEC_EVAL_EMA. A pending
 * signal ends it early: *is_whole false.
 */
STATUS_CHECKED Status evaluate_run(Evaluator *evaluator, ExecGraph graph, LogStep *out,
                                   bool *is_whole);

/* Sorts a step's scalars into loss, lr and metrics; out->step is left alone. */
void evaluate_take(const Exec *exec, const ExecScalars *scalars, LogStep *out);
#endif
