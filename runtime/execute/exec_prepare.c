/* exec_prepare: weights that a graph has prepared (plan/plan_prepare.h) are made before the graph runs,
 * unless they are there already. They are there from the run that made them on, until
 * - bytes that were read for them are written from outside (exec_write, by which all do it: initial
 *   values, files, checkpoints, ft.h, settings),
 * - a graph runs that writes any of these bytes (a training step, for one),
 * - a place of rounded elements is rounded anew, or
 * - the same graph of the plan has weights prepared from another place, the parameters' average.
 * Everyone who runs steps of a graph asks exec_ready first, and everyone who writes to a place does it
 * by exec_write; nothing else can change what is kept. When in doubt they are made again. */
#include "runtime/execute/exec_fetch.h"

static const PlanRun *substitution(const Exec *exec, ExecGraph graph) {
  return plan_run_at(exec->plan, graph - exec->plan->graphs.count);
}

static bool has_prepared(const Exec *exec, ExecGraph graph) {
  return exec->prepare[graph].graph != NULL;
}

/* Has it been made of any of these bytes? Where it reads another place in place of one, it may have been
 * of either. */
static bool is_made_of(const Exec *exec, ExecGraph graph, int place, int64_t offset,
                       int64_t bytes) {
  const PlanSources *sources = &exec->prepare[graph].sources;
  const PlanRun *run = substitution(exec, graph);
  if (plan_sources_have(sources, exec->plan, place, offset, bytes)) return true;
  int64_t at = offset, from = 0;
  if (!run || plan_whole_place(exec->plan, place, &at) !=
                  plan_whole_place(exec->plan, run->reads, &from))
    return false;
  return at + bytes > from && at < from + exec->bytes[run->reads];
}

/* Does a step of a graph write what that was made of? */
static bool may_change(const Exec *exec, const PlanGraph *running, ExecGraph graph) {
  if (plan_sources_are_written(&exec->prepare[graph].sources, exec->plan, running)) return true;
  for (int i = 0; substitution(exec, graph) && i < running->steps.count; i++) {
    const PlanStep *step = &running->steps.at[i];
    for (int k = step->input_count; k < step->arg_count; k++) {
      const PlanBuffer *buffer = &running->buffers.at[step->args[k]];
      if (is_made_of(exec, graph, buffer->place, buffer->offset, type_bytes(&buffer->type)))
        return true;
    }
  }
  return false;
}

Status exec_prepare_bind(Exec *exec, ExecGraph graph, char *const *base) {
  ExecPrepare *prepare = &exec->prepare[graph];
  int which = plan_prepare_of(exec->plan, exec_graph_plan(exec, graph));
  if (which < 0) return STATUS_OK;
  prepare->sources = plan_sources_of(exec->arena, exec->plan, &exec->plan->graphs.at[which]);
  prepare->is_changed_by = ARENA_ARRAY(exec->arena, bool, exec->graph_count);
  for (ExecGraph g = 0; g < exec->graph_count; g++)
    prepare->is_changed_by[g] = may_change(exec, exec_graph_plan(exec, g), graph);
  return exec->type->bind(exec->device, exec->artifact, which, base, &prepare->graph);
}

void exec_written(Exec *exec, int place, int64_t offset, int64_t bytes) {
  exec_round_written(exec, place);
  bool is_prepared = exec->plan->places.at[place].life == FOR_WEIGHTS;
  for (ExecGraph g = 0; g < exec->graph_count; g++)
    if (has_prepared(exec, g) && (is_prepared || is_made_of(exec, g, place, offset, bytes)))
      exec->prepare[g].is_done = false;
}

Status exec_ready(Exec *exec, ExecGraph graph) {
  ExecPrepare *own = &exec->prepare[graph];
  bool has_rounded = false;
  Status status = exec_round_ready(exec, graph, &has_rounded);
  for (ExecGraph g = 0; g < exec->graph_count; g++)
    if (has_prepared(exec, g) && (has_rounded || exec->prepare[g].is_changed_by[graph]))
      exec->prepare[g].is_done = false;
  if (status != STATUS_OK || !has_prepared(exec, graph) || own->is_done) return status;
  for (ExecGraph g = 0; g < exec->graph_count; g++) /* of the same bytes */
    if (exec_graph_plan(exec, g) == exec_graph_plan(exec, graph)) exec->prepare[g].is_done = false;
  STATUS_TRY(exec->type->run(own->graph, NULL));
  own->is_done = true;
  return STATUS_OK;
}
