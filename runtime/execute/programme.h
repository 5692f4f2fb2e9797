/* programme: goes through a programme of the plan (plan/plan.h), run by run. Code that trains,
 * evaluates or measures asks it what comes next and brings the batches.
 *
 *   Programme step;
 *   programme_start(exec, PROGRAMME_STEP, &step);
 *   do {
 *     exec_run(exec, programme_graph(&step), batch);   // the next batch each time
 *   } while (!programme_advance(&step, 1));            // one step is done
 */
#ifndef FT_RUNTIME_PROGRAMME_H
#define FT_RUNTIME_PROGRAMME_H
#include "runtime/execute/exec.h"

typedef struct {
  const Plan *plan;
  const PlanProgramme *of;
  int run;      /* of its runs: the one that comes next, */
  int64_t done; /* … after so many times of it */
} Programme;

/* The same of a form of the step. STATUS_USER if the plan has none. */
STATUS_CHECKED Status programme_start_form(const Exec *exec, const char *name, StepForm form,
                                           Programme *out);
/* STATUS_USER if the plan has no such programme. */
STATUS_CHECKED Status programme_start(const Exec *exec, const char *name, Programme *out);
/* What comes next, and how many times in a row, each on a batch of its own. */
ExecGraph programme_graph(const Programme *programme);
int64_t programme_left(const Programme *programme);
/* The graph whose results are the programme's. */
ExecGraph programme_result(const Programme *programme);
/* So many runs of it are done, from 1 to programme_left: true at the end, and it begins anew. */
bool programme_advance(Programme *programme, int64_t runs);
int64_t programme_done(const Programme *programme); /* batches since its beginning */
void programme_again(Programme *programme);         /* from its beginning */
/* One batch each time: several goes through it may be one launch. */
bool programme_is_one_run(const Programme *programme);
#endif
