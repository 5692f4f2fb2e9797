/* programme: see programme.h. */
#include "runtime/execute/programme.h"
#include "plan/step_form.h"

Status programme_start_form(const Exec *exec, const char *name, StepForm form, Programme *out) {
  const Plan *plan = exec_plan(exec);
  *out = (Programme){.plan = plan, .of = plan_find_form(plan, name, form)};
  if (out->of) return STATUS_OK;
  Text text = {0};
  step_form_append(plan->settings, form, &text);
  Status status = status_fail(STATUS_USER, "model %s has no programme \"%s\"%s%s", plan->model, name,
                              text.count ? " of " : "", text_cstr(&text));
  text_free(&text);
  return status;
}

Status programme_start(const Exec *exec, const char *name, Programme *out) {
  return programme_start_form(exec, name, (StepForm){0}, out);
}

ExecGraph programme_result(const Programme *programme) {
  return exec_graph_of(programme->plan, &programme->of->runs.at[programme->of->runs.count - 1]);
}

ExecGraph programme_graph(const Programme *programme) {
  return exec_graph_of(programme->plan, &programme->of->runs.at[programme->run]);
}

int64_t programme_left(const Programme *programme) {
  return programme->of->runs.at[programme->run].times - programme->done;
}

bool programme_advance(Programme *programme, int64_t runs) {
  programme->done += runs;
  if (programme_left(programme) > 0) return false;
  programme->done = 0;
  programme->run = (programme->run + 1) % programme->of->runs.count;
  return programme->run == 0;
}

bool programme_is_one_run(const Programme *programme) {
  return programme->of->runs.count == 1 && programme->of->runs.at[0].times == 1;
}

int64_t programme_done(const Programme *programme) {
  int64_t batches = programme->done;
  for (int i = 0; i < programme->run; i++) batches += programme->of->runs.at[i].times;
  return batches;
}

void programme_again(Programme *programme) { programme->run = 0, programme->done = 0; }
