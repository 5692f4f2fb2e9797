/* replay_words: the sentence of --check=nan, and the lines with what the operands are (replay_private.h). */
#include "plan/plan_window.h"
#include "runtime/execute/replay_private.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool replay_covers(const PlanBuffer *buffer, const ReplaySpot *spot) {
  return buffer->place == spot->place && spot->at >= buffer->offset &&
         spot->at - buffer->offset < type_bytes(&buffer->type);
}

int64_t replay_element(const PlanBuffer *buffer, const ReplaySpot *spot) {
  return type_element(&buffer->type, (spot->at - buffer->offset) / dtype_bytes(buffer->type.dtype));
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

static void say_range(Text *out, const BodyStats *stats) {
  if (stats->looked_at > stats->nan + stats->infinite)
    text_printf(out, ", min %.7g, max %.7g, mean %.7g", stats->least, stats->most, stats->mean);
  text_printf(out, ", %lld NaN, %lld Inf", (long long)stats->nan, (long long)stats->infinite);
}

static void say_scores(Text *out, const BodyStats *stats) {
  text_printf(out, "scores of that row: of %lld keys %lld are not hidden",
              (long long)stats->elements, (long long)stats->looked_at);
  if (stats->looked_at) say_range(out, stats);
  text_printf(out, "\n");
}

/* Without the pitch of its rows, which is nobody's business. */
static void say_type(Text *out, const Type *type) {
  char text[TYPE_TEXT];
  Type plain = {type->dtype, type->shape, 0};
  text_printf(out, "%s", type_text(&plain, text));
}

static void say_stats(Text *out, const Type *type, const BodyStats *stats) {
  say_type(out, type);
  if (!stats->is_known || !stats->looked_at) return;
  say_range(out, stats);
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

static void say_where(Text *out, const Kernel *kernel, const PlanOp *op) {
  const Plan *plan = exec_plan(replay_exec(kernel->replay));
  uint32_t line = op && op->line ? op->line : kernel->step->line;
  text_printf(out, "%s", op && op->file ? op->file : plan->source);
  if (line) text_printf(out, ":%u", line); /* the update has none if --set chose the optimizer */
  text_printf(out, ": the first value that is not finite comes from ");
}

/* The parameter that has element `flat` of all parameters one behind the other; false: none has. */
static bool say_parameter_at(Text *out, const Kernel *kernel, int64_t flat) {
  const Plan *plan = exec_plan(replay_exec(kernel->replay));
  for (int i = 0; i < plan->params.count; i++) {
    const PlanTensor *t = &plan->params.at[i];
    Type held = plan_held(t), whole = plan_whole(t);
    int64_t at = flat - t->offset / dtype_bytes(t->type.dtype);
    if (at < 0 || at >= shape_elements(&held.shape)) continue;
    text_printf(out, ", parameter %s at ", t->name);
    say_index(out, &whole.shape, exec_element_of(replay_exec(kernel->replay), t, at));
    return true;
  }
  return false;
}

/* The first element of a buffer in a place with the parameters' elements in their order; -1: it is in
 * none. */
static int64_t flat_start(const Plan *plan, const PlanBuffer *buffer) {
  for (int p = 0; p < plan->places.count; p++) {
    const PlanPlace *place = &plan->places.at[p];
    int64_t start = 0;
    if (place->elements != ELEMENTS_NONE && plan_whole_place(plan, p, &start) == buffer->place &&
        buffer->offset >= start && buffer->offset < start + place->bytes)
      return (buffer->offset - start) / dtype_bytes(place->dtype);
  }
  return -1;
}

/* Of the update: the parameter that an element of so many belongs to. What a kernel reads or writes of
 * all parameters says where theirs begin; a value between kernels that is as large as all of them has
 * their order. */
static void say_parameter(Text *out, const Kernel *kernel, int64_t elements, int64_t element) {
  const Plan *plan = exec_plan(replay_exec(kernel->replay));
  for (int i = 0; kernel->of && i < kernel->of->arg_count; i++) {
    const PlanBuffer *buffer = replay_buffer(kernel, i);
    int64_t start = flat_start(plan, buffer);
    if (start >= 0 && shape_elements(&buffer->type.shape) == elements) {
      say_parameter_at(out, kernel, start + element);
      return;
    }
  }
  if (!plan->params.count) return;
  const PlanPlace *all = &plan->places.at[plan->params.at[0].place];
  if (all->elements != ELEMENTS_NONE && all->bytes / dtype_bytes(all->dtype) == elements)
    say_parameter_at(out, kernel, element);
}

/* ── names of operands ────────────────────────────────────────────────────────────────────── */
/* "adam.v", "train.lr", "the gradients"; NULL: something between kernels. */
static const char *name_of_operand(const Kernel *kernel, int arg) {
  const Plan *plan = exec_plan(replay_exec(kernel->replay));
  const PlanBuffer *buffer = replay_buffer(kernel, arg);
  const struct {
    const PlanTensor *at;
    int count;
  } lists[] = {{plan->inputs.at, plan->inputs.count},
               {plan->params.at, plan->params.count},
               {plan->states.at, plan->states.count},
               {plan->scalars.at, plan->scalars.count}};
  for (int l = 0; l < 4; l++)
    for (int i = 0; i < lists[l].count; i++) {
      const PlanTensor *t = &lists[l].at[i];
      int64_t offset = t->offset;
      Type held = plan_held(t);
      if (plan_whole_place(plan, t->place, &offset) == buffer->place && offset == buffer->offset &&
          type_bytes(&held) == type_bytes(&buffer->type))
        return t->name[0] == '@' ? t->name + 1 : t->name;
    }
  const PlanPlace *place = &plan->places.at[buffer->place];
  if (place->elements == ELEMENTS_NONE) return NULL;
  return place->elements == ELEMENTS_LIKE ? "the gradients" : "the parameters";
}

/* Which of the kernel's operands a value is made of. */
static void mark_made_of(const Kernel *kernel, int value, bool *seen, bool *is_operand) {
  if (value < kernel->input_count) {
    is_operand[value] = true;
    return;
  }
  const PlanOp *op = &kernel->of->ops.at[value - kernel->input_count];
  if (seen[value - kernel->input_count]) return;
  seen[value - kernel->input_count] = true;
  for (int i = 0; i < op->input_count; i++) mark_made_of(kernel, op->inputs[i], seen, is_operand);
}

/* ", of adam.v, train.adam.eps" */
static void say_operands_of(Text *out, const Kernel *kernel, int value) {
  enum { MOST = 6 };
  bool *seen = calloc((size_t)kernel->of->ops.count + 1, sizeof *seen);
  bool *is_operand = calloc((size_t)kernel->input_count + 1, sizeof *is_operand);
  const char *told[MOST];
  int count = 0;
  if (seen && is_operand) mark_made_of(kernel, value, seen, is_operand);
  for (int i = 0; seen && is_operand && i < kernel->input_count && count < MOST; i++) {
    const char *name = is_operand[i] ? name_of_operand(kernel, i) : NULL;
    for (int k = 0; k < count && name; k++)
      if (!strcmp(told[k], name)) name = NULL;
    if (!name) continue;
    text_printf(out, count ? ", %s" : ", of %s", name);
    told[count++] = name;
  }
  free(seen);
  free(is_operand);
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
  Op op;
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
  Op op = sources->op;
  const char *between = op == OP_DIV   ? " divided by "
                        : op == OP_SUB ? " minus "
                        : op == OP_MUL ? " times "
                        : op == OP_ADD ? " plus "
                                       : ", ";
  text_printf(sources->out, "%s", sources->count++ ? between : "");
  say_number(sources->out, type->dtype, x);
  return true;
}

/* Of a sum of products the largest one. */
static void say_sources(const Kernel *kernel, int value, int64_t element, Text *out) {
  BodyProducts products;
  if (body_products(kernel->body, value, element, &products)) {
    text_printf(out, ", the sum of %lld product%s, the largest %.7g * %.7g",
                (long long)products.count, products.count == 1 ? "" : "s", products.factor[0],
                products.factor[1]);
    return;
  }
  Op op = kernel->of->ops.at[value - kernel->input_count].op;
  if (op_is_attention(op)) return;
  Text list = {0};
  Sources sources = {kernel, &list, 0, op};
  body_sources(kernel->body, value, element, say_source, &sources);
  if (sources.count) text_printf(out, ", made of %s", text_cstr(&list));
  text_free(&list);
}

/* A number that there is, but not in this type. */
static void say_overflow(const Kernel *kernel, int value, int64_t element, double made, Text *out) {
  DType dtype = body_type_meant(kernel->body, value).dtype;
  double exact, most = dtype_largest(dtype);
  if (!isinf(made) || !body_unrounded(kernel->body, value, element, &exact) || !isfinite(exact))
    return;
  if (kernel->of->ops.at[value - kernel->input_count].op != OP_CAST)
    text_printf(out, ", which is %.7g", exact);
  text_printf(out, ", and the largest %s is %.7g", dtype_text(dtype), most);
}

void replay_say_operation(const Kernel *kernel, int value, int64_t element, ReplayCause *out) {
  const PlanOp *op = &kernel->of->ops.at[value - kernel->input_count];
  char type[TYPE_TEXT];
  Scalar x = {.f = 0};
  BodyStats scores;
  say_where(&out->sentence, kernel, op);
  text_printf(&out->sentence, "%s", op_info[op->op].text);
  if (op->op == OP_CAST) text_printf(&out->sentence, " to %s", dtype_text(op->type.dtype));
  if (op->function && strcmp(op->function, op_info[op->op].text) != 0)
    text_printf(&out->sentence, " (%s)", op->function);
  say_phase(&out->sentence, op->layer, op->phase);
  if (op->phase == PHASE_UPDATE)
    say_parameter(&out->sentence, kernel, shape_elements(&op->type.shape), element);
  Type made = body_type_meant(kernel->body, value);
  text_printf(&out->sentence, ": ");
  if (body_value(kernel->body, value, element, &x)) say_number(&out->sentence, made.dtype, x);
  text_printf(&out->sentence, " at ");
  say_index(&out->sentence, &made.shape, element);
  text_printf(&out->sentence, " of %s", type_text(&made, type));
  say_sources(kernel, value, element, &out->sentence);
  say_overflow(kernel, value, element, x.f, &out->sentence);
  if (body_scores(kernel->body, value, element, &scores)) {
    if (scores.nan + scores.infinite)
      text_printf(&out->sentence, ", as %lld of its %lld scores are not finite",
                  (long long)(scores.nan + scores.infinite), (long long)scores.looked_at);
    say_scores(&out->details, &scores);
  }
  for (int i = 0; i < op->input_count; i++) {
    const Type *in = body_type(kernel->graph, kernel->of, op->inputs[i]);
    BodyStats stats;
    body_stats(kernel->body, op->inputs[i], &stats);
    text_printf(&out->details, "operand %d of %s", i, op_info[op->op].text);
    say_operands_of(&out->details, kernel, op->inputs[i]);
    text_printf(&out->details, ": ");
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
void replay_say_kernel(const Kernel *kernel, const ReplaySpot *spot, ReplayCause *out) {
  const PlanOp *op = kernel->of && kernel->of->ops.count == 1 ? &kernel->of->ops.at[0] : NULL;
  say_where(&out->sentence, kernel, op);
  if (op)
    text_printf(&out->sentence, "%s", op_info[op->op].text);
  else
    text_printf(&out->sentence, "kernel %d, %s", kernel->index, kernel->step->label);
  say_phase(&out->sentence, op ? op->layer : kernel->step->layer,
            op ? op->phase : kernel->step->phase);
  for (int i = kernel->step->input_count; i < kernel->step->arg_count; i++) {
    const PlanBuffer *buffer = &kernel->graph->buffers.at[kernel->step->args[i]];
    if (!replay_covers(buffer, spot)) continue;
    text_printf(&out->sentence, ": at ");
    say_index(&out->sentence, &buffer->type.shape, replay_element(buffer, spot));
    text_printf(&out->sentence, " of ");
    say_type(&out->sentence, &buffer->type);
    break;
  }
  for (int i = 0; i < kernel->input_count; i++) {
    BodyStats stats;
    body_stats_of(&replay_buffer(kernel, i)->type, kernel->at[i], &stats);
    text_printf(&out->details, "operand %d: ", i);
    say_stats(&out->details, &replay_buffer(kernel, i)->type, &stats);
    text_printf(&out->details, "\n");
  }
  say_kernel(&out->details, kernel);
  text_printf(&out->details, "\n");
}

/* What was there before the step; a batch's row says where it is from. */
Status replay_say_given(Replay *replay, const ReplaySpot *spot, ReplayCause *out) {
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
      STATUS_TRY(replay_tell_again(replay));
      STATUS_TRY(replay_to(replay, 0, 0));
      STATUS_TRY(
          replay_bytes(replay, spot->run, spot->place, offset, type_bytes(&held), &at, &copy));
      STATUS_TRY(replay_rest(replay, 0, 0));
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

/* What ranks gave together. */
void replay_say_sum(Replay *replay, int run, int index, const double *values, int count,
                    ReplayCause *out) {
  const PlanGraph *graph = replay_graph(replay, run);
  const PlanStep *step = &graph->steps.at[index];
  const Plan *plan = exec_plan(replay_exec(replay));
  DType dtype = graph->buffers.at[step->args[0]].type.dtype;
  text_printf(&out->sentence, "%s", plan->source);
  if (step->line) text_printf(&out->sentence, ":%u", step->line);
  text_printf(&out->sentence, ": the first value that is not finite comes from %s (%s) of %d ranks",
              step->name, step->label, count);
  for (int i = 0; i < count && i < 4; i++) {
    text_printf(&out->sentence, i ? ", " : ": made of ");
    say_number(&out->sentence, dtype, (Scalar){.f = values[i]});
  }
  text_printf(&out->sentence, "%s, and the largest %s is %.7g", count > 4 ? ", ..." : "",
              dtype_text(dtype), dtype_largest(dtype));
}
