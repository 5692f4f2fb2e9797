/* plan_body: see plan_body.h. */
#include "plan/plan_body.h"
#include "plan/plan_same.h"
#include "plan/plan_text.h"
#include "plan/plan_window.h"
#include <inttypes.h>
#include <string.h>

bool body_is_told(Op op) {
  switch (op) {
  case OP_CONST:
  case OP_IOTA:
  case OP_RANDOM:
  case OP_DOT:
  case OP_RESHAPE:
  case OP_TRANSPOSE:
  case OP_BROADCAST:
  case OP_SLICE:
  case OP_PAD:
  case OP_CONCAT:
  case OP_GATHER:
  case OP_SCATTER_ADD:
  case OP_PUT:
    return true;
  default:
    return op_info[op].op_class == CLASS_POINTWISE || op_info[op].op_class == CLASS_REDUCE ||
           op_is_conv(op) || op_is_pool(op) || op_is_attention(op);
  }
}

const Type *body_type(const PlanGraph *graph, const PlanBody *body, int value) {
  if (value < body->input_count) return &graph->buffers.at[body->args[value]].type;
  return &body->ops.at[value - body->input_count].type;
}

static bool gives_buffer(const PlanBody *body, int buffer) {
  for (int i = body->input_count; i < body->arg_count; i++)
    if (body->args[i] == buffer) return true;
  return false;
}

const PlanBody *body_of_step(const PlanGraph *graph, int index, int buffer) {
  const PlanBody *found = NULL;
  for (int i = 0; i < graph->bodies.count && graph->bodies.at[i].first <= index; i++) {
    const PlanBody *body = &graph->bodies.at[i];
    if (index >= body->end || !body->results) continue;
    if (gives_buffer(body, buffer)) return body;
    found = body;
  }
  return found;
}

/* ── printing ─────────────────────────────────────────────────────────────────────────────── */
/* What an op says only where it differs from the one before. */
typedef struct {
  uint32_t line;
  const char *file, *layer, *function;
  StepPhase phase;
  const Type *type; /* NULL: there is none before */
} Belonging;

static Belonging belonging_at_first(const PlanGraph *graph, const PlanBody *body) {
  const PlanStep *step = &graph->steps.at[body->first];
  return (Belonging){step->line, NULL, step->layer, NULL, step->phase, NULL};
}

bool body_is_same_name(const char *a, const char *b) { return a && b ? !strcmp(a, b) : a == b; }

static void print_op(Text *out, const PlanOp *op, Belonging *last) {
  char type[TYPE_TEXT];
  bool is_as_before = last->type && type_equal(last->type, &op->type);
  text_printf(out, "  op %s %s", op_info[op->op].text,
              is_as_before ? "=" : type_text(&op->type, type));
  for (int i = 0; i < op->input_count; i++)
    text_printf(out, "%s%d", i ? " " : " of ", op->inputs[i]);
  for (int i = 0; i < op->int_count; i++)
    text_printf(out, "%s%" PRId64, i ? " " : " with ", op->ints[i]);
  if (op->value != 0) {
    text_printf(out, " value ");
    plan_print_value(out, op->value);
  }
  if (!body_is_same_name(op->file, last->file)) {
    text_printf(out, " file ");
    plan_print_text(out, op->file ? op->file : "");
  }
  if (op->line != last->line) text_printf(out, " line %" PRIu32, op->line);
  if (!body_is_same_name(op->layer, last->layer))
    text_printf(out, op->layer ? " layer \"%s\"" : " layer none", op->layer);
  if (op->phase != last->phase) text_printf(out, " phase %s", phase_text(op->phase));
  if (!body_is_same_name(op->function, last->function))
    text_printf(out, op->function ? " function \"%s\"" : " function none", op->function);
  text_printf(out, "\n");
  *last = (Belonging){op->line, op->file, op->layer, op->function, op->phase, &op->type};
}

void body_print(Text *out, const PlanGraph *graph, const PlanBody *body, int64_t *copied) {
  Belonging last = belonging_at_first(graph, body);
  text_printf(out, "  does %d %d (", body->first, body->end);
  for (int i = 0; i < body->arg_count; i++) {
    if (i == body->input_count) text_printf(out, ") -> (");
    text_printf(out, "%s%d", i == 0 || i == body->input_count ? "" : " ", body->args[i]);
  }
  text_printf(out, ")");
  bool is_same = same_print(out, graph, body, copied);
  text_printf(out, "\n");
  if (is_same) return;
  for (int i = 0; i < body->ops.count; i++) print_op(out, &body->ops.at[i], &last);
  text_printf(out, "  gives");
  for (int i = 0; i < body->arg_count - body->input_count; i++)
    text_printf(out, " %d", body->results[i]);
  text_printf(out, "\n");
}

/* ── reading ──────────────────────────────────────────────────────────────────────────────── */
typedef VEC(int) Numbers;

/* Numbers of values, as long as digits follow. */
static bool body_read_numbers(Words *words, int below, Numbers *out) {
  for (words_skip(words); *words->at >= '0' && *words->at <= '9'; words_skip(words)) {
    int64_t number;
    if (!words_integer(words, "a number", 0, (int64_t)below - 1, &number)) return false;
    VEC_PUSH(words->arena, *out, (int)number);
  }
  return true;
}

bool body_read(Words *words, PlanGraph *graph) {
  if (!graph) return words_fail(words, "a step outside of a graph");
  int before = graph->bodies.count ? graph->bodies.at[graph->bodies.count - 1].first : 0;
  int64_t first, end, most = graph->steps.count;
  Numbers args = {0};
  PlanBody body = {0};
  if (!bodies_are_whole(graph))
    return words_fail(words, "what the kernel before this one gives has no line");
  if (before >= most) return words_fail(words, "there is no step that it could tell of");
  if (!words_integer(words, "the first step", before, most - 1, &first) ||
      !words_integer(words, "the end of the steps", first + 1, most, &end) ||
      !words_expect(words, "(") || !body_read_numbers(words, graph->buffers.count, &args))
    return false;
  body.input_count = args.count;
  if (!words_expect(words, ")") || !words_expect(words, "->") || !words_expect(words, "(") ||
      !body_read_numbers(words, graph->buffers.count, &args) || !words_expect(words, ")"))
    return false;
  if (args.count == body.input_count) return words_fail(words, "a kernel without a result");
  body.first = (int)first, body.end = (int)end;
  body.args = args.at, body.arg_count = args.count;
  if (words_take(words, "same") && !same_read(words, graph, &body)) return false;
  VEC_PUSH(words->arena, graph->bodies, body);
  return true;
}

bool bodies_are_whole(const PlanGraph *graph) {
  return !graph->bodies.count || graph->bodies.at[graph->bodies.count - 1].results;
}

/* The one whose lines are being read. */
static PlanBody *open_body(Words *words, PlanGraph *graph) {
  int count = graph ? graph->bodies.count : 0;
  if (count && !graph->bodies.at[count - 1].results) return &graph->bodies.at[count - 1];
  words_fail(words, "there is no kernel that it could belong to");
  return NULL;
}

/* ── checks ───────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  const PlanOp *op;
  const Type *in[MOST_INPUTS]; /* those of concat, which takes any number, are not here */
} Checked;

static bool are_axes(const Checked *c) {
  Shape want = c->in[0]->shape;
  for (int i = 0; i < c->op->int_count; i++) {
    int64_t axis = c->op->ints[i];
    if (axis < 0 || axis >= want.rank || (i && axis <= c->op->ints[i - 1])) return false;
    want.dim[axis] = 1;
  }
  return shape_equal(&want, &c->op->type.shape) && (!op_is_arg(c->op->op) || c->op->int_count == 1);
}

static bool is_pointwise_right(const Checked *c) {
  for (int i = 0; i < c->op->input_count; i++) {
    bool is_condition = c->op->op == OP_SELECT && i == 0;
    const Type *other = c->op->op == OP_SELECT ? c->in[1] : c->in[0];
    if (!shape_equal(&c->in[i]->shape, &c->op->type.shape)) return false;
    if (is_condition ? dtype_is_float(c->in[i]->dtype) : c->in[i]->dtype != other->dtype)
      return false;
  }
  return true;
}

static bool are_dot_types(DType a, DType b) { return a == b || (dtype_is_float8(a) && dtype_is_float8(b)); }

static bool is_dot_right(const Checked *c) {
  const Shape *a = &c->in[0]->shape, *b = &c->in[1]->shape, *to = &c->op->type.shape;
  int r = to->rank;
  if (r < 2 || a->rank != r || b->rank != r || c->op->int_count != 2) return false;
  for (int i = 0; i < r - 2; i++)
    if (a->dim[i] != to->dim[i] || b->dim[i] != to->dim[i]) return false;
  int ta = c->op->ints[0] != 0, tb = c->op->ints[1] != 0;
  return a->dim[r - 2 + ta] == to->dim[r - 2] && b->dim[r - 1 - tb] == to->dim[r - 1] &&
         a->dim[r - 1 - ta] == b->dim[r - 2 + tb] && dtype_is_float(c->in[0]->dtype) &&
         are_dot_types(c->in[0]->dtype, c->in[1]->dtype) && dtype_is_float(c->op->type.dtype);
}

static bool is_order_right(const Checked *c) {
  const Shape *from = &c->in[0]->shape, *to = &c->op->type.shape;
  bool seen[MAX_RANK] = {false};
  if (from->rank != to->rank || c->op->int_count != to->rank) return false;
  for (int i = 0; i < to->rank; i++) {
    int64_t at = c->op->ints[i];
    if (at < 0 || at >= from->rank || seen[at] || to->dim[i] != from->dim[at]) return false;
    seen[at] = true;
  }
  return true;
}

static bool is_slice_right(const Checked *c) {
  const Shape *from = &c->in[0]->shape, *to = &c->op->type.shape;
  int r = to->rank;
  if (from->rank != r || c->op->int_count != 2 * r) return false;
  for (int i = 0; i < r; i++)
    if (to->dim[i] &&
        !shape_has_steps(from->dim[i], c->op->ints[i], c->op->ints[r + i], to->dim[i]))
      return false;
  return true;
}

/* Only where it begins counts: what does not lie in the operand is filled. */
static bool is_pad_right(const Checked *c) {
  int r = c->op->type.shape.rank;
  if (c->in[0]->shape.rank != r || c->op->int_count != r) return false;
  for (int i = 0; i < r; i++)
    if (c->op->ints[i] < 0 || c->op->ints[i] > MAX_ELEMENTS) return false;
  return true;
}

static bool is_gather_right(const Checked *c) {
  bool adds = c->op->op == OP_SCATTER_ADD; /* to a table, in place of reading from it */
  const Shape *table = adds ? &c->op->type.shape : &c->in[0]->shape;
  const Shape *rows = adds ? &c->in[0]->shape : &c->op->type.shape, *index = &c->in[1]->shape;
  if (table->rank < 1 || rows->rank != index->rank + table->rank - 1) return false;
  for (int i = 0; i < rows->rank; i++)
    if (rows->dim[i] != (i < index->rank ? index->dim[i] : table->dim[i - index->rank + 1]))
      return false;
  return !dtype_is_float(c->in[1]->dtype) && c->in[0]->dtype == c->op->type.dtype;
}

static bool grows_right(const Checked *c) {
  const Shape *from = &c->in[0]->shape, *to = &c->op->type.shape;
  bool is_right = from->rank == to->rank;
  for (int i = 0; is_right && i < to->rank; i++)
    is_right = from->dim[i] == to->dim[i] || from->dim[i] == 1;
  return is_right;
}

static bool is_concat_right(const PlanGraph *graph, const PlanBody *body, const PlanOp *op) {
  int64_t sum = 0, axis = op->int_count == 1 ? op->ints[0] : -1;
  if (axis < 0 || axis >= op->type.shape.rank) return false;
  for (int k = 0; k < op->input_count; k++) {
    const Type *in = body_type(graph, body, op->inputs[k]);
    if (in->dtype != op->type.dtype || in->shape.rank != op->type.shape.rank) return false;
    for (int i = 0; i < in->shape.rank; i++)
      if (i != axis && in->shape.dim[i] != op->type.shape.dim[i]) return false;
    if (__builtin_add_overflow(sum, in->shape.dim[axis], &sum)) return false;
  }
  return sum == op->type.shape.dim[axis];
}

static bool is_iota_right(const PlanOp *op) {
  return op->int_count == 1 && op->ints[0] >= 0 && op->ints[0] < op->type.shape.rank &&
         !dtype_is_float(op->type.dtype);
}

static bool is_random_right(const Checked *c) {
  for (int i = 0; i < c->op->input_count; i++)
    if (c->in[i]->dtype != DT_I64) return false;
  return c->op->int_count == 1 && shape_elements(&c->in[0]->shape) == 1 &&
         shape_elements(&c->in[1]->shape) == 1 && c->op->type.dtype == DT_F32 &&
         (c->op->input_count < 3 || shape_elements(&c->in[2]->shape) == 1 ||
          shape_equal(&c->in[2]->shape, &c->op->type.shape));
}

static bool is_pool_right(const Checked *c) {
  PlanWindow window;
  bool picks = c->op->op == OP_POOL_MAX_GRAD;
  return plan_pool_form(c->op, c->in[0], &window) &&
         (!picks ||
          (shape_equal(&c->in[0]->shape, &c->in[1]->shape) && !dtype_is_float(c->in[1]->dtype)));
}

static bool is_put_right(const Checked *c) {
  const Shape *base = &c->in[0]->shape, *part = &c->in[1]->shape;
  int64_t axis = c->op->int_count == 1 ? c->op->ints[0] : -1;
  if (axis < 0 || axis >= base->rank || part->rank != base->rank) return false;
  for (int i = 0; i < base->rank; i++)
    if (i != axis && part->dim[i] != base->dim[i]) return false;
  return type_equal(c->in[0], &c->op->type) && c->in[1]->dtype == c->in[0]->dtype &&
         !dtype_is_float(c->in[2]->dtype) && shape_elements(&c->in[2]->shape) == 1;
}

/* Those that go through windows, heads or places of a tensor. */
static bool is_window_right(const Checked *c) {
  PlanWindow window;
  PlanAttention attention;
  if (op_is_pool(c->op->op)) return is_pool_right(c);
  if (op_is_conv(c->op->op)) return plan_conv_form(c->op, c->in[0], c->in[1], &window);
  return plan_attention_form(c->op, c->in, &attention);
}

static bool check_op(const PlanGraph *graph, const PlanBody *body, const PlanOp *op) {
  const OpInfo *info = &op_info[op->op];
  if (op->op == OP_CONCAT) return is_concat_right(graph, body, op);
  if (!body_is_told(op->op)) return true;
  Checked c = {.op = op};
  if (op->input_count < info->min_inputs || op->input_count > info->max_inputs) return false;
  for (int i = 0; i < op->input_count; i++) c.in[i] = body_type(graph, body, op->inputs[i]);
  if (info->op_class == CLASS_POINTWISE) return is_pointwise_right(&c);
  bool keeps = info->min_inputs == 0 || c.in[0]->dtype == op->type.dtype;
  if (info->op_class == CLASS_REDUCE)
    return are_axes(&c) && (keeps || (op_is_arg(op->op) && !dtype_is_float(op->type.dtype)));
  if (op_is_conv(op->op) || op_is_pool(op->op) || op_is_attention(op->op))
    return is_window_right(&c);
  switch (op->op) {
  case OP_PUT:
    return is_put_right(&c);
  case OP_IOTA:
    return is_iota_right(op);
  case OP_RANDOM:
    return is_random_right(&c);
  case OP_DOT:
    return is_dot_right(&c);
  case OP_TRANSPOSE:
    return keeps && is_order_right(&c);
  case OP_SLICE:
    return keeps && is_slice_right(&c);
  case OP_PAD:
    return keeps && is_pad_right(&c);
  case OP_GATHER:
  case OP_SCATTER_ADD:
    return is_gather_right(&c);
  case OP_BROADCAST:
    return keeps && grows_right(&c);
  case OP_RESHAPE:
    return keeps && shape_elements(&c.in[0]->shape) == shape_elements(&op->type.shape);
  default: /* const */
    return true;
  }
}

/* ── an op ────────────────────────────────────────────────────────────────────────────────── */
static bool read_ints(Words *words, PlanOp *op) {
  int64_t ints[2 * MAX_RANK];
  for (words_skip(words); *words->at == '-' || (*words->at >= '0' && *words->at <= '9');
       words_skip(words)) {
    if (op->int_count == 2 * MAX_RANK) return words_fail(words, "an op has too many numbers");
    if (!words_integer(words, "a number", INT64_MIN, INT64_MAX, &ints[op->int_count++]))
      return false;
  }
  int64_t *kept = ARENA_ARRAY(words->arena, int64_t, op->int_count + 1);
  memcpy(kept, ints, sizeof *kept * (size_t)op->int_count);
  op->ints = kept;
  return true;
}

static bool read_name_or_none(Words *words, const char **out) {
  *out = NULL;
  return words_take(words, "none") || (*out = words_name(words, "the name")) != NULL;
}

static bool read_op_belonging(Words *words, PlanOp *op) {
  int64_t line;
  if (words_take(words, "file")) {
    const char *file = words_string(words, "the file");
    if (!file) return false;
    op->file = file[0] ? file : NULL;
  }
  if (words_take(words, "line")) {
    if (!words_integer(words, "line", 0, UINT32_MAX, &line)) return false;
    op->line = (uint32_t)line;
  }
  if (words_take(words, "layer") && !read_name_or_none(words, &op->layer)) return false;
  if (words_take(words, "phase")) {
    int phase = 0;
    while (phase < PHASE_COUNT && !words_take(words, phase_text((StepPhase)phase))) phase++;
    if (phase == PHASE_COUNT) return words_fail(words, "there is no phase '%.40s'", words->at);
    op->phase = (StepPhase)phase;
  }
  return !words_take(words, "function") || read_name_or_none(words, &op->function);
}

bool body_read_op(Words *words, PlanGraph *graph) {
  PlanBody *body = open_body(words, graph);
  if (!body) return false;
  if (body->ops.count == BODY_MOST_OPS)
    return words_fail(words, "a kernel has at most %d operations", BODY_MOST_OPS);
  Belonging last = belonging_at_first(graph, body);
  if (body->ops.count) {
    const PlanOp *before = &body->ops.at[body->ops.count - 1];
    last = (Belonging){before->line,     before->file,  before->layer,
                       before->function, before->phase, &before->type};
  }
  PlanOp op = {.line = last.line,
               .file = last.file,
               .layer = last.layer,
               .function = last.function,
               .phase = last.phase};
  Numbers inputs = {0};
  const char *word = words_word(words, "an operation");
  if (!word) return false;
  if (!op_parse(word, &op.op)) return words_fail(words, "there is no operation '%.40s'", word);
  bool is_as_before = words_take(words, "=");
  if (is_as_before && !last.type) return words_fail(words, "there is no type before this one");
  if (is_as_before) op.type = *last.type;
  if (!is_as_before && !words_type_in_memory(words, &op.type, false)) return false;
  int values = body->input_count + body->ops.count;
  if (words_take(words, "of") && !body_read_numbers(words, values, &inputs)) return false;
  op.inputs = inputs.at, op.input_count = inputs.count;
  if (words_take(words, "with") && !read_ints(words, &op)) return false;
  if (words_take(words, "value") && !words_value(words, "the value", &op.value)) return false;
  if (!read_op_belonging(words, &op)) return false;
  if (!check_op(graph, body, &op))
    return words_fail(words, "%s cannot be of these operands", op_info[op.op].text);
  VEC_PUSH(words->arena, body->ops, op);
  return true;
}

/* The type of value `value` as result `result` of its kernel. */
static Type body_result_type(const PlanGraph *graph, const PlanBody *body, int value, int result) {
  const PlanOp *op = value < body->input_count ? NULL : &body->ops.at[value - body->input_count];
  if (!op || !op_is_attention(op->op)) return *body_type(graph, body, value);
  const Type *in[MOST_INPUTS];
  PlanAttention form;
  for (int i = 0; i < op->input_count; i++) in[i] = body_type(graph, body, op->inputs[i]);
  if (!plan_attention_form(op, in, &form) || result >= form.result_count) return (Type){0};
  return plan_attention_result(op, in, &form, result);
}

bool body_read_results(Words *words, PlanGraph *graph) {
  PlanBody *body = open_body(words, graph);
  Numbers results = {0};
  if (!body || !body_read_numbers(words, body->input_count + body->ops.count, &results))
    return false;
  if (results.count != body->arg_count - body->input_count)
    return words_fail(words, "%d results, and there are %d buffers for them", results.count,
                      body->arg_count - body->input_count);
  for (int i = 0; i < results.count; i++) {
    Type made = body_result_type(graph, body, results.at[i], i);
    const Type *kept = &graph->buffers.at[body->args[body->input_count + i]].type;
    if (body->ops.count == 1 && op_has(body->ops.at[0].op, TRAIT_RESULTS) &&
        !body_is_told(body->ops.at[0].op))
      continue;
    if (!type_equal(&made, kept)) return words_fail(words, "a result is not of its buffer's type");
  }
  body->results = results.at;
  return true;
}
