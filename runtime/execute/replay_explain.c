/* replay_explain: from a number that is not finite back to what made it. Each kernel on the way gives
 * the element that it was made of; before that one is looked at, the step is run again up to its
 * kernel, so nothing has been overwritten. Told is an operation whose operands are finite, or where
 * the number was there before the step: in the data, a parameter, a setting. */
#include "plan/plan_order.h"
#include "runtime/execute/replay_private.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HOPS = 20000 };

static void kernel_close(Kernel *kernel) {
  body_free(kernel->body);
  for (int i = 0; kernel->copy && i < kernel->input_count; i++) free(kernel->copy[i]);
  free(kernel->copy);
  free(kernel->at);
  *kernel = (Kernel){0};
}

/* Operands are looked at with their rows side by side. */
static Status pack_operand(Kernel *kernel, int operand) {
  const Type *type = &replay_buffer(kernel, operand)->type;
  if (!type->pitch) return STATUS_OK;
  char *packed = malloc((size_t)type_bytes(type));
  if (!packed) return status_errno(ENOMEM, "--check=nan");
  type_pack_rows(type, kernel->at[operand], packed);
  free(kernel->copy[operand]);
  kernel->at[operand] = kernel->copy[operand] = packed;
  return STATUS_OK;
}

/* Before which step the kernel's operand is there: before its own; or behind it where the same launch does what makes the operand,
 * too (kernels that go by rows: codegen/chain.h). Nothing in that launch writes it a second time. */
static int operand_step(const Kernel *kernel, int operand) {
  int step = kernel->index;
  for (int b = 0; kernel->of && b < kernel->graph->bodies.count; b++) {
    const PlanBody *body = &kernel->graph->bodies.at[b];
    int end = body->end < kernel->of->end ? body->end : kernel->of->end;
    if (body == kernel->of || body->first >= end || kernel->of->first >= end || end <= step) continue;
    for (int i = body->input_count; i < body->arg_count; i++)
      if (plan_buffers_overlap(&kernel->graph->buffers.at[body->args[i]], replay_buffer(kernel, operand))) step = end;
  }
  return step;
}

/* Reads the operands that are there before a step, up to which all is done again. */
static Status read_operands(Kernel *kernel, int step) {
  STATUS_TRY(replay_tell_again(kernel->replay));
  STATUS_TRY(replay_to(kernel->replay, kernel->run, step));
  for (int i = 0; i < kernel->input_count; i++) {
    const PlanBuffer *buffer = replay_buffer(kernel, i);
    int64_t bytes = type_bytes(&buffer->type);
    if ((operand_step(kernel, i) > kernel->index) != (step > kernel->index)) continue;
    STATUS_TRY(replay_bytes(kernel->replay, kernel->run, buffer->place, buffer->offset, bytes, &kernel->at[i], &kernel->copy[i]));
    if (!kernel->copy[i]) { /* what is done again for others may write there */
      kernel->copy[i] = malloc((size_t)bytes + 1);
      if (!kernel->copy[i]) return status_errno(ENOMEM, "--check=nan");
      memcpy(kernel->copy[i], kernel->at[i], (size_t)bytes);
      kernel->at[i] = kernel->copy[i];
    }
    STATUS_TRY(pack_operand(kernel, i));
  }
  return replay_rest(kernel->replay, kernel->run, step);
}

/* Runs the step again up to the kernel that gives its argument `arg`. */
static Status kernel_open(Replay *replay, int run, int index, int arg, Kernel *out) {
  const PlanGraph *graph = replay_graph(replay, run);
  const PlanBody *of = body_of_step(graph, index, graph->steps.at[index].args[arg]);
  int first = of ? of->first : index;
  *out = (Kernel){replay, graph, &graph->steps.at[index], of, run, first};
  out->args = of ? of->args : out->step->args;
  out->input_count = of ? of->input_count : out->step->input_count;
  out->at = calloc((size_t)out->input_count + 1, sizeof *out->at);
  out->copy = calloc((size_t)out->input_count + 1, sizeof *out->copy);
  if (!out->at || !out->copy) return status_errno(ENOMEM, "--check=nan");
  int last = first;
  for (int i = 0; i < out->input_count; i++)
    if (operand_step(out, i) > last) last = operand_step(out, i);
  STATUS_TRY(read_operands(out, first));
  if (last > first) STATUS_TRY(read_operands(out, last));
  return of ? body_new(graph, of, out->at, &out->body) : STATUS_OK;
}

/* What has written there last; false: it was there before the step. */
static bool find_writer(Replay *replay, const ReplaySpot *spot, int *run, int *index, int *arg) {
  for (*run = spot->run; *run >= 0; --*run) {
    const PlanGraph *graph = replay_graph(replay, *run);
    for (*index = (*run == spot->run ? spot->step : graph->steps.count) - 1; *index >= 0;
         --*index) {
      const PlanStep *step = &graph->steps.at[*index];
      for (*arg = step->input_count; *arg < step->arg_count; ++*arg)
        if (replay_covers(&graph->buffers.at[step->args[*arg]], spot)) return true;
    }
  }
  return false;
}

/* ── the way back ─────────────────────────────────────────────────────────────────────────── */
static void spot_of_operand(const Kernel *kernel, int arg, int64_t element, ReplaySpot *spot) {
  const PlanBuffer *buffer = replay_buffer(kernel, arg);
  spot->run = kernel->run;
  spot->step = operand_step(kernel, arg);
  spot->place = buffer->place;
  spot->at = buffer->offset + type_place(&buffer->type, element) * dtype_bytes(buffer->type.dtype);
}

/* The first operand that is not finite; false: there is none. */
static bool scan_operands(const Kernel *kernel, ReplaySpot *spot) {
  int found = -1;
  int64_t element = 0;
  for (int i = 0; i < kernel->input_count; i++) {
    const Type *type = &replay_buffer(kernel, i)->type;
    int64_t bad = replay_first_bad(type, kernel->at[i], true);
    if (bad < 0) continue;
    bool is_nan = isnan(body_read_element(type->dtype, kernel->at[i], bad).f);
    if (found < 0 || is_nan) found = i, element = bad;
    if (is_nan) break;
  }
  if (found >= 0) spot_of_operand(kernel, found, element, spot);
  return found >= 0;
}

/* Which of the kernel's results it is. -1: none, but what it works with. */
static int explain_result_at(const Kernel *kernel, const ReplaySpot *spot) {
  for (int r = 0; kernel->of && r < kernel->of->arg_count - kernel->input_count; r++)
    if (replay_covers(replay_buffer(kernel, kernel->input_count + r), spot)) return r;
  return -1;
}

static bool is_written_by_program(const Kernel *kernel, const BodyTrace *trace) {
  Op op = kernel->of->ops.at[trace->value - kernel->input_count].op;
  return op == OP_SELECT || op == OP_PAD || op == OP_CONST || op == OP_BROADCAST;
}

/* One kernel back; *is_done: `out` tells the cause. */
static Status look_through(Kernel *kernel, ReplayTrail *trail, ReplayCause *out, bool *is_done) {
  ReplaySpot *spot = &trail->spot;
  ReplayMade *made = &trail->made;
  int rank = replay_rank(kernel->replay);
  int result = explain_result_at(kernel, spot);
  BodyTrace trace = {.cause = BODY_UNKNOWN};
  *is_done = false;
  if (result >= 0) {
    const PlanBuffer *buffer = replay_buffer(kernel, kernel->input_count + result);
    body_set_result(kernel->body, result);
    body_trace(kernel->body, kernel->of->results[result],
               replay_element(buffer, spot), &trace);
  }
  bool keeps = made->is_there && made->rank == rank && spot->run == made->spot.run &&
               spot->step == made->spot.step && spot->place == made->spot.place &&
               spot->at == made->spot.at;
  if (keeps && trace.made_nan >= 0) { /* looked at again, for that */
    replay_say_operation(kernel, trace.made_nan, trace.made_nan_element, out);
    *is_done = true;
    return STATUS_OK;
  }
  if (trace.made_nan >= 0 && !made->is_there) *made = (ReplayMade){*spot, rank, true};
  if (trace.cause == BODY_OPERAND) {
    spot_of_operand(kernel, trace.value, trace.element, spot);
    return STATUS_OK;
  }
  if (trace.cause == BODY_OP) {
    if (is_written_by_program(kernel, &trace) && made->is_there) {
      *spot = made->spot; /* an infinity that was meant to be; told is what made a NaN of it */
      return made->rank == rank ? STATUS_OK : replay_tell_lead(kernel->replay, made->rank, trail);
    }
    replay_say_operation(kernel, trace.value, trace.element, out);
    *is_done = true;
    return STATUS_OK;
  }
  if (scan_operands(kernel, spot)) return STATUS_OK;
  replay_say_kernel(kernel, spot, out);
  *is_done = true;
  return STATUS_OK;
}

/* Bytes that were only moved: by a copy, or a collective of one rank. */
static bool is_moved(Replay *replay, const PlanGraph *graph, const PlanStep *step, int arg,
                     ReplaySpot *spot) {
  int from = arg - step->input_count;
  bool is_own = step->kind == STEP_COPY || (step->kind == STEP_BEGIN && !replay_comm(replay));
  if (!is_own || from >= step->input_count) return false;
  const PlanBuffer *source = &graph->buffers.at[step->args[from]];
  const PlanBuffer *target = &graph->buffers.at[step->args[arg]];
  if (type_bytes(&source->type) != type_bytes(&target->type)) return false;
  spot->at = source->offset + spot->at - target->offset;
  spot->place = source->place;
  return true;
}

/* From other ranks: one of them goes on, or the sum of theirs is the cause. */
static Status look_over(Replay *replay, int run, int index, int arg, ReplayTrail *trail,
                        ReplayCause *out, bool *is_done) {
  double *values;
  int count;
  STATUS_TRY(replay_ask(replay, run, index, arg, trail, &values, &count));
  if (!values) return STATUS_OK;
  replay_say_sum(replay, run, index, values, count, out);
  free(values);
  *is_done = true;
  return STATUS_OK;
}

/* One step back. */
static Status look_back(Replay *replay, ReplayTrail *trail, ReplayCause *out, bool *is_done) {
  int run, index, arg;
  ReplaySpot *spot = &trail->spot;
  if (!find_writer(replay, spot, &run, &index, &arg)) {
    *is_done = true;
    return replay_say_given(replay, spot, out);
  }
  const PlanGraph *graph = replay_graph(replay, run);
  const PlanStep *step = &graph->steps.at[index];
  if (is_moved(replay, graph, step, arg, spot)) {
    spot->run = run, spot->step = index;
    return STATUS_OK;
  }
  if (step->kind == STEP_BEGIN && replay_comm(replay))
    return look_over(replay, run, index, arg, trail, out, is_done);
  Kernel kernel;
  Status status = kernel_open(replay, run, index, arg, &kernel);
  if (status == STATUS_OK) status = look_through(&kernel, trail, out, is_done);
  kernel_close(&kernel);
  return status;
}

Status replay_explain(Replay *replay, const ReplaySpot *from, ReplayCause *out) {
  ReplayTrail trail = {.spot = *from};
  bool is_done = false;
  Status status = STATUS_OK;
  *out = (ReplayCause){.input = -1};
  for (int hop = 0; !is_done && status == STATUS_OK; hop++) {
    if (!replay_leads(replay)) {
      status = replay_follow(replay, &trail, &is_done);
      continue;
    }
    if (hop < MOST_HOPS) {
      status = look_back(replay, &trail, out, &is_done);
    } else {
      text_printf(&out->sentence, "%s is not finite", from->what);
      is_done = true;
    }
    if (is_done && status == STATUS_OK) status = replay_tell_end(replay);
  }
  out->is_own = replay_leads(replay);
  if (status != STATUS_OK) replay_cause_free(out);
  if (status == STATUS_OK && out->is_own && replay_comm(replay))
    text_printf(&out->sentence, ", on rank %d", replay_rank(replay));
  return status;
}

void replay_cause_free(ReplayCause *cause) {
  text_free(&cause->sentence);
  text_free(&cause->details);
}
