/* variant: the step once more with another size of a dimension: rows of other lengths, `pad(buckets=[64, 128, 256])`, or what the first steps have
 * less of, `grow = truncate(T, 64, 128)`. Shapes are static, so each size has a graph of its own, with kernels and a plan of memory; parameters and
 * states are one set, and inputs lie in memory as ever: a variant takes the front of each row, or makes a smaller image of each. The dimension has a
 * name, `i32[B, T=256]` or a hyper T, and the model is built again with another value for it, so what follows from the name follows. Of a smaller
 * batch a variant's inputs are its first rows. */
#include "frontend/builder.h"
#include "plan/step_form.h"
#include "plan/text_form.h"
#include <string.h>

typedef struct {
  Loc loc;          /* where the sizes are asked for */
  const char *what; /* "pad(buckets=...)" */
  GrowKind kind;    /* GROW_NONE: buckets */
  int64_t sizes[PLAN_MOST_SIZES], whole;
  int count;        /* without the whole one */
  int input, axis;  /* a dimension that has them */
  const char *name; /* its name */
} Wanted;

/* ── what a variant takes of an input ─────────────────────────────────────────────────────── */
static int find_train(const Builder *b) {
  for (int i = 0; i < b->program->sources.count; i++)
    if (!strcmp(b->program->sources.at[i].split, "train")) return i;
  return -1;
}

/* How the training's text becomes rows; false: it is none. */
static bool train_text_form(const Builder *b, int inputs, TextForm *form) {
  int train = find_train(b);
  Text why = {0};
  bool is_text = train >= 0 && text_form(&b->program->sources.at[train], inputs, form, &why);
  text_free(&why);
  return is_text;
}

static Node *variant_front(Builder *b, Node *input, unsigned axes, Loc loc) {
  Type type = input->type;
  int64_t starts[MAX_RANK] = {0}, steps[MAX_RANK];
  for (int i = 0; i < type.shape.rank; i++) {
    steps[i] = 1;
    if (axes >> i & 1) type.shape.dim[i] = b->variant.size;
  }
  Attr attrs[] = {attr_ints(ATTR_START, starts, type.shape.rank),
                  attr_ints(ATTR_STEP, steps, type.shape.rank)};
  return tensor_node(b, OP_SLICE, &input, 1, attrs, 2, &type, loc);
}

/* Along one axis, between the two nearest of the source: PyTorch's interpolate(mode="bilinear"), as Composer's
 * progressive resizing has it. */
static Node *variant_resized(Builder *b, Node *x, int axis, Loc loc) {
  int64_t had = x->type.shape.dim[axis], size = b->variant.size;
  double step = (double)had / (double)size;
  Type type = {DT_I32, shape_of(1, &size)};
  Attr attr = attr_int(ATTR_AXIS, 0);
  Node *zero = tensor_const(b, DT_F32, 0, loc), *half = tensor_const(b, DT_F32, 0.5, loc);
  Node *place = tensor_cast(b, tensor_node(b, OP_IOTA, NULL, 0, &attr, 1, &type, loc), DT_F32, loc);
  place = tensor_binary(b, OP_ADD, "+", place, half, loc);
  place = tensor_binary(b, OP_MUL, "*", place, tensor_const(b, DT_F32, step, loc), loc);
  place = tensor_binary(b, OP_MAX, "max", tensor_binary(b, OP_SUB, "-", place, half, loc), zero, loc);
  Node *last = tensor_const(b, DT_I32, (double)had - 1, loc);
  Node *low = tensor_binary(b, OP_MIN, "min", tensor_cast(b, place, DT_I32, loc), last, loc);
  Node *high = tensor_binary(b, OP_ADD, "+", low, tensor_const(b, DT_I32, 1, loc), loc);
  high = tensor_binary(b, OP_MIN, "min", high, last, loc);
  Node *share = tensor_binary(b, OP_SUB, "-", place, tensor_cast(b, low, DT_F32, loc), loc);
  Shape shape = {.rank = x->type.shape.rank - axis};
  for (int i = 0; i < shape.rank; i++) shape.dim[i] = i ? 1 : size;
  share = tensor_reshape(b, share, shape, loc);
  Node *near = tensor_take(b, x, low, axis, loc), *far = tensor_take(b, x, high, axis, loc);
  Node *rest = tensor_binary(b, OP_SUB, "-", tensor_const(b, DT_F32, 1, loc), share, loc);
  near = tensor_binary(b, OP_MUL, "*", near, rest, loc);
  return tensor_binary(b, OP_ADD, "+", near, tensor_binary(b, OP_MUL, "*", far, share, loc), loc);
}

/* Pixels of 8 bits stay that. */
static Node *variant_image(Builder *b, Node *input, int index, unsigned axes, Loc loc) {
  DType dtype = input->type.dtype;
  if (index || (dtype != DT_U8 && dtype != DT_F32)) {
    builder_fail(b, loc,
                 "grow = resize(%s, ...) is for images, a model's first input, of u8 or f32: input '%s' has %s, too",
                 b->variant.name, node_str(input, ATTR_NAME), b->variant.name);
    return NULL;
  }
  Node *x = tensor_cast(b, input, DT_F32, loc);
  for (int i = 1; i < input->type.shape.rank && x; i++)
    if (axes >> i & 1) x = variant_resized(b, x, i, loc);
  return dtype == DT_U8 ? tensor_cast(b, tensor_unary(b, OP_ROUND, x, loc), dtype, loc) : x;
}

Node *variant_input(Builder *b, Node *input, int index, unsigned axes, Loc loc) {
  TextForm form;
  if (axes && b->variant.is_resized) return variant_image(b, input, index, axes, loc);
  if (axes) return variant_front(b, input, axes, loc);
  bool has_lengths = b->variant.is_cut && train_text_form(b, b->frame->definition->kid[0]->count, &form) &&
                     form.part[index] == TEXT_LENGTHS;
  if (!has_lengths) return input;
  Node *most = tensor_const(b, input->type.dtype, (double)b->variant.size, loc);
  return tensor_binary(b, OP_MIN, "min", input, most, loc);
}

/* ── what is asked for ────────────────────────────────────────────────────────────────────── */
/* Rows of a text as long as the documents in them. False: there are none. */
static bool wants_buckets(const Builder *b, const Ast *model, Wanted *out) {
  TextForm form;
  bool is_text = train_text_form(b, model->kid[0]->count, &form);
  const TransformArgument *buckets = is_text ? text_form_buckets(&form) : NULL;
  if (!buckets) return false;
  *out = (Wanted){.loc = b->source_locs.at[find_train(b)], .what = "pad(buckets=...)", .axis = 1};
  out->count = buckets->count - 1;
  for (int i = 0; i < buckets->count; i++) out->sizes[i] = (int64_t)buckets->number[i];
  out->whole = out->sizes[out->count];
  while (form.part[out->input] != TEXT_TOKENS) out->input++;
  return true;
}

/* False after an error; *out: with a count of 0, nothing grows. */
static bool find_growth(Builder *b, Wanted *out) {
  const SettingValue *setting = &b->program->settings[setting_find(grow_key)];
  GrowRule rule;
  *out = (Wanted){0};
  if (!grow_read(setting->text, &rule))
    return builder_fail(b, setting->loc, "%s = %s: grow is %s", grow_key, setting->text, grow_usage);
  if (!rule.kind) return true;
  *out = (Wanted){.loc = setting->loc, .kind = rule.kind, .count = rule.count, .input = -1};
  out->what = arena_printf(b->arena, "grow = %s", setting->text);
  memcpy(out->sizes, rule.size, sizeof rule.size);
  out->name = arena_strdup(b->arena, rule.name);
  return true;
}

/* The name of a dimension as it is written, or NULL. */
static const char *variant_dimension(const Ast *model, int input, int axis) {
  const Ast *type = model->kid[0]->kid[input]->kid[0];
  const Ast *shape = type ? type->kid[0] : NULL;
  const Ast *dimension = shape && axis < shape->count ? shape->kid[axis] : NULL;
  bool is_named = dimension && (dimension->kind == AST_NAME || dimension->kind == AST_DIMENSION);
  return is_named ? dimension->name : NULL;
}

/* The input that has the dimension, and how long it is. */
static bool find_grown(Builder *b, const Ast *model, Wanted *wanted) {
  if (wanted->kind == GROW_BATCH) {
    wanted->whole = (int64_t)setting_number(b->program->settings, "train.batch");
    return true;
  }
  for (int i = 0; i < model->kid[0]->count && wanted->input < 0; i++)
    for (int k = 1; k < MAX_RANK && wanted->input < 0; k++) {
      const char *name = variant_dimension(model, i, k);
      if (name && !strcmp(name, wanted->name)) wanted->input = i, wanted->axis = k;
    }
  if (wanted->input < 0)
    return builder_fail(b, wanted->loc, "%s: no input has a dimension '%s' behind its batch, such as i32[B, %s=128]",
                        wanted->what, wanted->name, wanted->name);
  const Ast *input = model->kid[0]->kid[wanted->input];
  wanted->whole = graph_find_leaf(b->program->train, OP_INPUT, input->name)->type.shape.dim[wanted->axis];
  return true;
}

static bool check_bucket_input(Builder *b, const Wanted *wanted, const Node *input) {
  if (input->type.shape.rank <= wanted->axis)
    return builder_fail(b, wanted->loc, "%s: input '%s' has no rows: i32[B, T=%lld]", wanted->what,
                        node_str(input, ATTR_NAME), (long long)wanted->whole);
  int64_t whole = input->type.shape.dim[wanted->axis];
  return wanted->whole == whole ||
         builder_fail(b, wanted->loc,
                      "%s: the last length is that of the model's rows, which is %lld in input '%s', not %lld",
                      wanted->what, (long long)whole, node_str(input, ATTR_NAME), (long long)wanted->whole);
}

static bool check_wanted(Builder *b, const Wanted *wanted) {
  const SettingValue *settings = b->program->settings;
  if (wanted->sizes[wanted->count - 1] >= wanted->whole && wanted->kind)
    return builder_fail(b, wanted->loc, "%s: sizes are below the whole, which is %s = %lld; the last steps have that",
                        wanted->what, wanted->kind == GROW_BATCH ? "batch" : wanted->name, (long long)wanted->whole);
  if (setting_pipeline(settings) > 1)
    return builder_fail(b, wanted->loc,
                        "%s and distributed.pipeline do not go together: stages exchange rows of one length",
                        wanted->what);
  if (!wanted->kind && *setting_text(settings, "data.order"))
    return builder_fail(b, wanted->loc, "%s is an order of its own, and data.order says another one",
                        wanted->what);
  return true;
}

/* False after an error; *out: with a count of 0, nothing is asked for. */
static bool find_wanted(Builder *b, const Ast *model, Wanted *out) {
  Wanted grown;
  *out = (Wanted){0};
  if (!find_growth(b, &grown)) return false;
  bool has_buckets = wants_buckets(b, model, out), grows = grown.count > 0;
  if (has_buckets && grows)
    return builder_fail(b, grown.loc, "%s and %s do not go together: both say how long the rows of a step are",
                        grown.what, out->what);
  if (grows) *out = grown;
  if (!grows && !has_buckets) return true;
  const Ast *input = has_buckets ? model->kid[0]->kid[out->input] : NULL;
  if (grows ? !find_grown(b, model, out)
            : !check_bucket_input(b, out, graph_find_leaf(b->program->train, OP_INPUT, input->name)))
    return false;
  if (!check_wanted(b, out)) return false;
  if (out->kind == GROW_BATCH || out->name) return true;
  out->name = variant_dimension(model, out->input, out->axis);
  return out->name || builder_fail(b, input->kid[0]->kid[0]->kid[out->axis]->loc,
               "%s builds the model for several lengths of this, so it needs a name that the model goes by: "
               "T=%lld, or a hyper T",
               out->what, (long long)out->whole);
}

/* ── building ─────────────────────────────────────────────────────────────────────────────── */
static const char *type_in(const Builder *b, const Node *node) {
  char *text = ARENA_ARRAY(b->arena, char, TYPE_TEXT);
  return type_text(&node->type, text);
}

/* What the sizes are of, for people. */
static const char *variant_what(const Builder *again) {
  return again->variant.name ? again->variant.name : "batch";
}

static bool check_declarations(Builder *again, const Declared *train, int count) {
  for (int i = 0; i < count || i < again->declared.count; i++) {
    const Declared *t = i < count ? &train[i] : NULL;
    const Declared *v = i < again->declared.count ? &again->declared.at[i] : NULL;
    if (t && v && !strcmp(t->name, v->name) && t->node->op == v->node->op &&
        type_equal(&t->node->type, &v->node->type))
      continue;
    const Declared *odd = t ? t : v;
    const char *name = variant_what(again);
    long long whole = (long long)again->variant.whole, size = (long long)again->variant.size;
    if (t && v && !strcmp(t->name, v->name))
      return builder_fail(again, odd->loc,
                          "'%s' is %s with %s = %lld and %s with %s = %lld, but all sizes share parameters and "
                          "states: give it a size that does not follow from %s, and take the part that is needed "
                          "where it is read (x[:%s])",
                          odd->name, type_in(again, t->node), name, whole, type_in(again, v->node), name, size,
                          name, name);
    return builder_fail(again, odd->loc,
                        "'%s' is there with %s = %lld only, but all sizes share parameters and states",
                        odd->name, name, t ? whole : size);
  }
  return true;
}

/* Inputs lie in memory once. */
static bool check_inputs(Builder *again, const Ast *model, const Graph *whole, const Graph *graph) {
  for (int i = 0; i < model->kid[0]->count; i++) {
    const Ast *input = model->kid[0]->kid[i];
    const Node *there = graph_find_leaf(whole, OP_INPUT, input->name);
    const Node *here = graph_find_leaf(graph, OP_INPUT, input->name);
    if (!there || !here) continue;
    Type lying = here->type;
    if (!again->variant.name && lying.shape.rank) lying.shape.dim[0] = there->type.shape.dim[0];
    if (type_equal(&there->type, &lying)) continue;
    return builder_fail(again, input->loc,
                        "input '%s' is %s with %s = %lld and %s with %lld: an input's size may be %s itself, but "
                        "not follow from it",
                        input->name, type_in(again, there), variant_what(again), (long long)again->variant.whole,
                        type_in(again, here), (long long)again->variant.size, variant_what(again));
  }
  return true;
}

static bool variant_build(Builder *b, const Ast *model, const Wanted *wanted, int64_t size,
                          const Declared *train, int count) {
  Builder *again = builder_again(b, b->diag);
  Program *program = b->program;
  again->watch = NULL;
  again->variant.name = wanted->kind == GROW_BATCH ? NULL : wanted->name;
  again->variant.size = size;
  again->variant.whole = wanted->whole;
  again->variant.is_resized = wanted->kind == GROW_RESIZE;
  again->variant.is_cut = wanted->kind == GROW_TRUNCATE;
  if (wanted->kind == GROW_BATCH) {
    again->program->settings[setting_find("train.batch")].number = (double)size;
    again->is_again = true;
  }
  Graph *graph = build_graph(again, model, true);
  if (!graph) {
    builder_note(b, wanted->loc, "with %s = %lld, for %s", variant_what(again), (long long)size, wanted->what);
    return false;
  }
  graph->name = arena_printf(b->arena, "train.%lld", (long long)size);
  if (!check_declarations(again, train, count) || !check_inputs(again, model, program->train, graph))
    return false;
  if (!b->watch) sizes_note(again, model, graph, true);
  program->variants[program->variant_count++] = (Variant){.form = {.size = size}, .train = graph};
  return true;
}

/* While the model is built for another size, a hyper that names it has that value. */
static Variable *find_hyper(Builder *b, const char *name) {
  for (int i = 0; name && i < b->user.names.count; i++)
    if (!strcmp(b->user.names.at[i].name, name) && b->user.names.at[i].value.kind == VALUE_INT)
      return &b->user.names.at[i];
  return NULL;
}

/* ── forms that differ in what is trained ─────────────────────────────────────────────────── */
static Variant variant_form(Builder *b, const Graph *of, StepForm form) {
  Text name = {0};
  text_printf(&name, "train");
  step_form_append_name(form, &name);
  Variant variant = {.form = form, .train = graph_rewrite(of, NULL, NULL)};
  variant.train->name = arena_strdup(b->arena, text_cstr(&name));
  text_free(&name);
  return variant;
}

/* Forward of each is that of the step of its size; the passes make the difference. */
static bool variants_add_forms(Builder *b) {
  Program *program = b->program;
  StepRule rule = step_rule_of(program->settings);
  int sizes = program->variant_count, rests = rule.rest.count + 1, ways = rests * (rule.every > 1 ? 2 : 1);
  if ((sizes + 1) * ways > PLAN_MOST_FORMS)
    return builder_fail(b, program->train_loc,
                        "the step would have %d forms, %d of sizes, %d of what is frozen, %d of sharpness, and an artifact has at "
                        "most %d: leave out some", (sizes + 1) * ways, sizes + 1, rests, ways / rests, PLAN_MOST_FORMS);
  for (int s = -1; s < sizes; s++)
    for (int way = 1; way < ways; way++) {
      StepForm form = {s < 0 ? 0 : program->variants[s].form.size, way % rests, way / rests};
      const Graph *of = s < 0 ? program->train : program->variants[s].train;
      program->variants[program->variant_count++] = variant_form(b, of, form);
    }
  return true;
}

bool variants_build(Builder *b, const Ast *model, const Declared *train, int train_count) {
  Wanted wanted;
  if (!find_wanted(b, model, &wanted)) return false;
  Variable *hyper = find_hyper(b, wanted.name);
  Value value = hyper ? hyper->value : value_none();
  bool fine = true;
  for (int i = 0; i < wanted.count && fine; i++) {
    if (hyper) hyper->value = value_int(wanted.sizes[i]);
    fine = variant_build(b, model, &wanted, wanted.sizes[i], train, train_count);
  }
  if (hyper) hyper->value = value;
  return fine && (b->watch || variants_add_forms(b));
}
