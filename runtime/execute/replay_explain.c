/* replay_explain: from a number that is not finite back to what made it. Each kernel on the way gives
 * the element that it was made of; before that one is looked at, the step is run again up to its
 * kernel, so nothing has been overwritten. Told is an operation whose operands are finite, or where
 * the number was there before the step: in the data, a parameter, a setting. */
#include "runtime/execute/body.h"
#include "runtime/execute/replay.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HOPS = 20000 };

/* A kernel with its operands, as they are before it. */
typedef struct {
  Replay *replay;
  const PlanGraph *graph;
  const PlanStep *step;
  const PlanBody *of; /* NULL: the plan does not tell what it does */
  int run, index;
  const int *args; /* buffers */
  int input_count;
  const char **at;
  char **copy;
  Body *body;
} Kernel;

/* An operation that made a NaN of infinities, to be told of where these were meant to be. */
typedef struct {
  ReplaySpot spot; /* of its kernel's result */
  bool is_there;
} Made;

static const PlanBuffer *buffer_of(const Kernel *kernel, int arg) {
  return &kernel->graph->buffers.at[kernel->args[arg]];
}

static void kernel_close(Kernel *kernel) {
  body_free(kernel->body);
  for (int i = 0; kernel->copy && i < kernel->input_count; i++) free(kernel->copy[i]);
  free(kernel->copy);
  free(kernel->at);
  *kernel = (Kernel){0};
}

/* Runs the step again up to it. */
static Status kernel_open(Replay *replay, int run, int index, Kernel *out) {
  const PlanGraph *graph = replay_graph(replay, run);
  const PlanBody *of = body_of_step(graph, index);
  int first = of ? of->first : index;
  *out = (Kernel){replay, graph, &graph->steps.at[index], of, run, first};
  out->args = of ? of->args : out->step->args;
  out->input_count = of ? of->input_count : out->step->input_count;
  STATUS_TRY(replay_to(replay, run, first));
  out->at = calloc((size_t)out->input_count + 1, sizeof *out->at);
  out->copy = calloc((size_t)out->input_count + 1, sizeof *out->copy);
  if (!out->at || !out->copy) return status_errno(ENOMEM, "--check=nan");
  for (int i = 0; i < out->input_count; i++) {
    const PlanBuffer *buffer = buffer_of(out, i);
    STATUS_TRY(replay_bytes(replay, run, buffer->place, buffer->offset, type_bytes(&buffer->type),
                            &out->at[i], &out->copy[i]));
  }
  return of ? body_new(graph, of, out->at, &out->body) : STATUS_OK;
}

static bool covers(const PlanBuffer *buffer, const ReplaySpot *spot) {
  return buffer->place == spot->place && spot->at >= buffer->offset &&
         spot->at - buffer->offset < type_bytes(&buffer->type);
}

/* What has written there last; false: it was there before the step. */
static bool find_writer(Replay *replay, const ReplaySpot *spot, int *run, int *index, int *arg) {
  for (*run = spot->run; *run >= 0; --*run) {
    const PlanGraph *graph = replay_graph(replay, *run);
    for (*index = (*run == spot->run ? spot->step : graph->steps.count) - 1; *index >= 0;
         --*index) {
      const PlanStep *step = &graph->steps.at[*index];
      for (*arg = step->input_count; *arg < step->arg_count; ++*arg)
        if (covers(&graph->buffers.at[step->args[*arg]], spot)) return true;
    }
  }
  return false;
}

/* ── words ────────────────────────────────────────────────────────────────────────────────── */
static void say_number(Text *out, DType dtype, Scalar x) {
  if (!dtype_is_float(dtype))
    text_printf(out, "%lld", (long long)x.i);
  else if (isnan(x.f))
    text_printf(out, "NaN");
  else if (isinf(x.f))
    text_printf(out, x.f < 0 ? "-Inf" : "Inf");
  else
    text_printf(out, "%.7g", x.f);
}

static void say_index(Text *out, const Shape *shape, int64_t element) {
  int64_t index[MAX_RANK];
  for (int i = shape->rank - 1; i >= 0; i--) {
    index[i] = element % shape->dim[i];
    element /= shape->dim[i];
  }
  text_printf(out, "[");
  for (int i = 0; i < shape->rank; i++)
    text_printf(out, "%s%lld", i ? "," : "", (long long)index[i]);
  text_printf(out, "]");
}

static void say_stats(Text *out, const Type *type, const BodyStats *stats) {
  char text[TYPE_TEXT];
  text_printf(out, "%s", type_text(type, text));
  if (!stats->is_known || !stats->looked_at) return;
  if (stats->looked_at > stats->nan + stats->infinite)
    text_printf(out, ", min %.7g, max %.7g, mean %.7g", stats->least, stats->most, stats->mean);
  text_printf(out, ", %lld NaN, %lld Inf", (long long)stats->nan, (long long)stats->infinite);
  if (stats->looked_at < stats->elements)
    text_printf(out, " (of %lld elements that were looked at)", (long long)stats->looked_at);
}

static void say_phase(Text *out, const char *layer, StepPhase phase) {
  if (layer) text_printf(out, " of layer %s", layer);
  if (phase == PHASE_BACKWARD)
    text_printf(out, ", backward, in the gradient of that line");
  else if (phase == PHASE_RECOMPUTED)
    text_printf(out, ", forward work that backward repeats");
  else if (phase == PHASE_UPDATE)
    text_printf(out, ", in the update of the parameters");
  else if (phase == PHASE_FORWARD)
    text_printf(out, ", forward");
}

static void say_where(Text *out, const Kernel *kernel, uint32_t line) {
  const Plan *plan = exec_plan(replay_exec(kernel->replay));
  if (!line) line = kernel->step->line;
  text_printf(out, "%s", plan->source);
  if (line) text_printf(out, ":%u", line); /* the update has none */
  text_printf(out, ": the first value that is not finite comes from ");
}

/* The parameter that element `element` of a place in the parameters' order belongs to. */
static void say_parameter(Text *out, const Kernel *kernel, int64_t elements, int64_t element) {
  const Plan *plan = exec_plan(replay_exec(kernel->replay));
  for (int r = 0; kernel->of && r < kernel->of->arg_count - kernel->input_count; r++) {
    const PlanBuffer *buffer = buffer_of(kernel, kernel->input_count + r);
    for (int p = 0; p < plan->places.count; p++) {
      const PlanPlace *place = &plan->places.at[p];
      int64_t start = 0, size = place->elements ? dtype_bytes(place->dtype) : 1;
      if (place->elements == ELEMENTS_NONE || plan_whole_place(plan, p, &start) != buffer->place ||
          buffer->offset < start || buffer->offset >= start + place->bytes ||
          shape_elements(&buffer->type.shape) != elements)
        continue;
      int64_t flat = (buffer->offset - start) / size + element;
      for (int i = 0; i < plan->params.count; i++) {
        const PlanTensor *t = &plan->params.at[i];
        Type held = plan_held(t);
        int64_t at = flat - t->offset / dtype_bytes(t->type.dtype);
        if (at < 0 || at >= shape_elements(&held.shape)) continue;
        Type whole = plan_whole(t);
        text_printf(out, ", parameter %s at ", t->name);
        say_index(out, &whole.shape, exec_element_of(replay_exec(kernel->replay), t, at));
        return;
      }
    }
  }
}

static void say_kernel(Text *out, const Kernel *kernel) {
  text_printf(out, "in kernel %d of graph %s, \"%s\"", kernel->index, kernel->graph->name,
              kernel->step->label);
}

/* ── causes ───────────────────────────────────────────────────────────────────────────────── */
/* Which of the operation's operands made the element, the first few. */
typedef struct {
  const Kernel *kernel;
  Text *out;
  int count;
} Sources;

static bool say_source(void *context, int value, int64_t element) {
  enum { MOST = 4 };
  Sources *sources = context;
  const Type *type = body_type(sources->kernel->graph, sources->kernel->of, value);
  Scalar x;
  if (!body_value(sources->kernel->body, value, element, &x)) return true;
  if (sources->count == MOST) {
    text_printf(sources->out, ", ...");
    return false;
  }
  text_printf(sources->out, sources->count++ ? ", " : "");
  say_number(sources->out, type->dtype, x);
  return true;
}

static void explain_say_operation(const Kernel *kernel, int value, int64_t element,
                                  ReplayCause *out) {
  const PlanOp *op = &kernel->of->ops.at[value - kernel->input_count];
  char type[TYPE_TEXT];
  Scalar x;
  say_where(&out->sentence, kernel, op->line);
  text_printf(&out->sentence, "%s", op_info[op->op].text);
  if (op->function && strcmp(op->function, op_info[op->op].text) != 0)
    text_printf(&out->sentence, " (%s)", op->function);
  say_phase(&out->sentence, op->layer ? op->layer : kernel->step->layer, op->phase);
  if (op->phase == PHASE_UPDATE)
    say_parameter(&out->sentence, kernel, shape_elements(&op->type.shape), element);
  text_printf(&out->sentence, ": ");
  if (body_value(kernel->body, value, element, &x)) say_number(&out->sentence, op->type.dtype, x);
  text_printf(&out->sentence, " at ");
  say_index(&out->sentence, &op->type.shape, element);
  text_printf(&out->sentence, " of %s", type_text(&op->type, type));
  Text list = {0};
  Sources sources = {kernel, &list, 0};
  body_sources(kernel->body, value, element, say_source, &sources);
  if (sources.count) text_printf(&out->sentence, ", made of %s", text_cstr(&list));
  text_free(&list);
  for (int i = 0; i < op->input_count; i++) {
    const Type *in = body_type(kernel->graph, kernel->of, op->inputs[i]);
    BodyStats stats;
    body_stats(kernel->body, op->inputs[i], &stats);
    text_printf(&out->details, "operand %d of %s: ", i, op_info[op->op].text);
    if (shape_equal(&in->shape, &op->type.shape) &&
        body_value(kernel->body, op->inputs[i], element, &x)) {
      say_number(&out->details, in->dtype, x);
      text_printf(&out->details, " there; ");
    }
    say_stats(&out->details, in, &stats);
    text_printf(&out->details, "\n");
  }
  say_kernel(&out->details, kernel);
  text_printf(&out->details, "\n");
}

/* A kernel whose operations are not told one by one, or that rounds in another way. */
static void say_whole_kernel(const Kernel *kernel, const ReplaySpot *spot, ReplayCause *out) {
  const PlanOp *op = kernel->of && kernel->of->ops.count == 1 ? &kernel->of->ops.at[0] : NULL;
  say_where(&out->sentence, kernel, op ? op->line : 0);
  if (op)
    text_printf(&out->sentence, "%s", op_info[op->op].text);
  else
    text_printf(&out->sentence, "kernel %d, %s", kernel->index, kernel->step->label);
  say_phase(&out->sentence, op && op->layer ? op->layer : kernel->step->layer,
            op ? op->phase : kernel->step->phase);
  for (int i = kernel->step->input_count; i < kernel->step->arg_count; i++) {
    const PlanBuffer *buffer = &kernel->graph->buffers.at[kernel->step->args[i]];
    char type[TYPE_TEXT];
    if (!covers(buffer, spot)) continue;
    text_printf(&out->sentence, ": at ");
    say_index(&out->sentence, &buffer->type.shape,
              (spot->at - buffer->offset) / dtype_bytes(buffer->type.dtype));
    text_printf(&out->sentence, " of %s", type_text(&buffer->type, type));
    break;
  }
  for (int i = 0; i < kernel->input_count; i++) {
    BodyStats stats;
    body_stats_of(&buffer_of(kernel, i)->type, kernel->at[i], &stats);
    text_printf(&out->details, "operand %d: ", i);
    say_stats(&out->details, &buffer_of(kernel, i)->type, &stats);
    text_printf(&out->details, "\n");
  }
  say_kernel(&out->details, kernel);
  text_printf(&out->details, "\n");
}

/* What was there before the step; a batch's row says where it is from. */
static Status say_given(Replay *replay, const ReplaySpot *spot, ReplayCause *out) {
  const Plan *plan = exec_plan(replay_exec(replay));
  const struct {
    const PlanTensor *at;
    int count;
    const char *what;
  } lists[] = {{plan->inputs.at, plan->inputs.count, "the data: input"},
               {plan->params.at, plan->params.count, "parameter"},
               {plan->states.at, plan->states.count, "state"},
               {plan->scalars.at, plan->scalars.count, "setting"}};
  for (int l = 0; l < 4; l++)
    for (int i = 0; i < lists[l].count; i++) {
      const PlanTensor *t = &lists[l].at[i];
      int64_t offset = t->offset, size = dtype_bytes(t->type.dtype);
      Type held = plan_held(t);
      char type[TYPE_TEXT];
      BodyStats stats;
      const char *at;
      char *copy;
      if (plan_whole_place(plan, t->place, &offset) != spot->place || spot->at < offset ||
          spot->at - offset >= type_bytes(&held))
        continue;
      int64_t element = (spot->at - offset) / size;
      STATUS_TRY(replay_to(replay, 0, 0));
      STATUS_TRY(
          replay_bytes(replay, spot->run, spot->place, offset, type_bytes(&held), &at, &copy));
      text_printf(&out->sentence,
                  "%s %s is not finite before anything is computed: ", lists[l].what, t->name);
      say_number(&out->sentence, t->type.dtype, body_read_element(t->type.dtype, at, element));
      if (t->type.shape.rank) {
        text_printf(&out->sentence, " at ");
        say_index(&out->sentence, &t->type.shape,
                  l ? exec_element_of(replay_exec(replay), t, element) : element);
        text_printf(&out->sentence, " of %s", type_text(&t->type, type));
      }
      body_stats_of(&held, at, &stats);
      text_printf(&out->details, "%s: ", t->name);
      say_stats(&out->details, &held, &stats);
      text_printf(&out->details, "\n");
      free(copy);
      out->is_input = l == 0;
      out->input = i, out->run = spot->run;
      if (l == 0 && t->type.shape.rank)
        out->row = element / shape_elements_between(&t->type.shape, 1, t->type.shape.rank);
      return STATUS_OK;
    }
  text_printf(&out->sentence,
              "a value of place %s that no kernel of this step has written is not "
              "finite",
              plan->places.at[spot->place].name);
  return STATUS_OK;
}

/* ── the way back ─────────────────────────────────────────────────────────────────────────── */
static void spot_of_operand(const Kernel *kernel, int arg, int64_t element, ReplaySpot *spot) {
  const PlanBuffer *buffer = buffer_of(kernel, arg);
  spot->run = kernel->run;
  spot->step = kernel->index;
  spot->place = buffer->place;
  spot->at = buffer->offset + element * dtype_bytes(buffer->type.dtype);
}

/* The first operand that is not finite; false: there is none. */
static bool scan_operands(const Kernel *kernel, ReplaySpot *spot) {
  int found = -1;
  int64_t element = 0;
  for (int i = 0; i < kernel->input_count; i++) {
    const Type *type = &buffer_of(kernel, i)->type;
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
    if (covers(buffer_of(kernel, kernel->input_count + r), spot)) return r;
  return -1;
}

static bool is_written_by_program(const Kernel *kernel, const BodyTrace *trace) {
  Op op = kernel->of->ops.at[trace->value - kernel->input_count].op;
  return op == OP_SELECT || op == OP_PAD || op == OP_CONST || op == OP_BROADCAST;
}

/* One kernel back; *is_done: `out` tells the cause. */
static Status look_through(Kernel *kernel, ReplaySpot *spot, Made *made, ReplayCause *out,
                           bool *is_done) {
  int result = explain_result_at(kernel, spot);
  BodyTrace trace = {.cause = BODY_UNKNOWN};
  *is_done = false;
  if (result >= 0) {
    const PlanBuffer *buffer = buffer_of(kernel, kernel->input_count + result);
    body_trace(kernel->body, kernel->of->results[result],
               (spot->at - buffer->offset) / dtype_bytes(buffer->type.dtype), &trace);
  }
  bool keeps = made->is_there && spot->run == made->spot.run && spot->step == made->spot.step &&
               spot->place == made->spot.place && spot->at == made->spot.at;
  if (keeps && trace.made_nan >= 0) { /* looked at again, for that */
    explain_say_operation(kernel, trace.made_nan, trace.made_nan_element, out);
    *is_done = true;
    return STATUS_OK;
  }
  if (trace.made_nan >= 0 && !made->is_there) *made = (Made){*spot, true};
  if (trace.cause == BODY_OPERAND) {
    spot_of_operand(kernel, trace.value, trace.element, spot);
    return STATUS_OK;
  }
  if (trace.cause == BODY_OP) {
    if (is_written_by_program(kernel, &trace) && made->is_there) {
      *spot = made->spot; /* an infinity that was meant to be; told is what made a NaN of it */
      return STATUS_OK;
    }
    explain_say_operation(kernel, trace.value, trace.element, out);
    *is_done = true;
    return STATUS_OK;
  }
  if (scan_operands(kernel, spot)) return STATUS_OK;
  say_whole_kernel(kernel, spot, out);
  *is_done = true;
  return STATUS_OK;
}

/* Bytes that were only moved: by a copy, or a collective of one rank. */
static bool is_moved(const PlanGraph *graph, const PlanStep *step, int arg, ReplaySpot *spot) {
  int from = arg - step->input_count;
  if ((step->kind != STEP_COPY && step->kind != STEP_BEGIN) || from >= step->input_count)
    return false;
  const PlanBuffer *source = &graph->buffers.at[step->args[from]];
  const PlanBuffer *target = &graph->buffers.at[step->args[arg]];
  if (type_bytes(&source->type) != type_bytes(&target->type)) return false;
  spot->at = source->offset + spot->at - target->offset;
  spot->place = source->place;
  return true;
}

Status replay_explain(Replay *replay, const ReplaySpot *from, ReplayCause *out) {
  ReplaySpot spot = *from;
  Made made = {.is_there = false};
  bool is_done = false;
  Status status = STATUS_OK;
  *out = (ReplayCause){.input = -1};
  for (int hop = 0; hop < MOST_HOPS && !is_done && status == STATUS_OK; hop++) {
    int run, index, arg;
    if (!find_writer(replay, &spot, &run, &index, &arg)) {
      status = say_given(replay, &spot, out);
      is_done = true;
      break;
    }
    const PlanGraph *graph = replay_graph(replay, run);
    if (is_moved(graph, &graph->steps.at[index], arg, &spot)) {
      spot.run = run, spot.step = index;
      continue;
    }
    Kernel kernel;
    status = kernel_open(replay, run, index, &kernel);
    if (status == STATUS_OK) status = look_through(&kernel, &spot, &made, out, &is_done);
    kernel_close(&kernel);
  }
  if (status != STATUS_OK) replay_cause_free(out);
  if (status == STATUS_OK && !is_done) text_printf(&out->sentence, "%s is not finite", from->what);
  return status;
}

void replay_cause_free(ReplayCause *cause) {
  text_free(&cause->sentence);
  text_free(&cause->details);
}
