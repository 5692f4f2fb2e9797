/* evaluate: loss and metrics over every sample of a split, as if it were one batch. The graph adds
 * up what they are made of over the batches (passes/totals.c) and leaves out the samples that only
 * fill the last one; a metric such as a variance needs another pass over the samples. */
#ifndef FT_RUNTIME_EVALUATE_H
#define FT_RUNTIME_EVALUATE_H
#include "runtime/execute/exec.h"
#include "runtime/command/log.h"
#include "runtime/command/ranks.h"
#include "runtime/data/source.h"

typedef struct Evaluator Evaluator;

/* Takes memory for a few batches; exec, source and ranks must outlive it. All ranks evaluate. */
STATUS_CHECKED Status evaluate_new(Exec *exec, const Source *source, Ranks *ranks, Evaluator **out);
void evaluate_free(Evaluator *evaluator); /* NULL is fine */
/* Fills loss and metrics of *out (not its step), by PROGRAMME_EVALUATE or, where exec_has_ema,
 * PROGRAMME_EVALUATE_AVERAGE. A pending signal ends it early: *is_whole false. */
STATUS_CHECKED Status evaluate_run(Evaluator *evaluator, const char *programme, LogStep *out,
                                   bool *is_whole);

/* Sorts a step's scalars into loss, lr and metrics; out->step is left alone. */
void evaluate_take(const Exec *exec, const ExecScalars *scalars, LogStep *out);
#endif
