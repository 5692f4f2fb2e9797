/* variant: the step once more for rows of other lengths, `pad(buckets=[64, 128, 256])`. Shapes are static, so each
 * length has a graph of its own, with kernels and a plan of memory; parameters and states are one set, and inputs
 * lie in memory as ever: a variant takes the front of each row. The length has a name, `i32[B, T=256]` or a hyper T,
 * and the model is built again with another value for it, so what follows from the name follows. */
#include "frontend/builder.h"
#include "plan/text_form.h"
#include <string.h>

typedef struct {
  Loc loc;          /* where the lengths are asked for */
  const char *what; /* "pad(buckets=...)" */
  int64_t sizes[PLAN_MOST_SIZES];
  int count;
  int input, axis; /* the dimension that has them */
} Wanted;

Node *variant_front(Builder *b, Node *input, int axis, Loc loc) {
  Type type = input->type;
  int64_t starts[MAX_RANK] = {0}, steps[MAX_RANK];
  for (int i = 0; i < type.shape.rank; i++) steps[i] = 1;
  type.shape.dim[axis] = b->variant.size;
  Attr attrs[] = {attr_ints(ATTR_START, starts, type.shape.rank),
                  attr_ints(ATTR_STEP, steps, type.shape.rank)};
  return tensor_node(b, OP_SLICE, &input, 1, attrs, 2, &type, loc);
}

/* ── what is asked for ────────────────────────────────────────────────────────────────────── */
static int find_train(const Builder *b) {
  for (int i = 0; i < b->program->sources.count; i++)
    if (!strcmp(b->program->sources.at[i].split, "train")) return i;
  return -1;
}

/* Rows of a text as long as the documents in them. False: there are none. */
static bool wants_buckets(const Builder *b, const Ast *model, Wanted *out) {
  int train = find_train(b);
  TextForm form;
  Text why = {0};
  bool is_text = train >= 0 && text_form(&b->program->sources.at[train], model->kid[0]->count, &form, &why);
  text_free(&why);
  const TransformArgument *buckets = is_text ? text_form_buckets(&form) : NULL;
  if (!buckets) return false;
  *out = (Wanted){b->source_locs.at[train], "pad(buckets=...)", {0}, buckets->count, 0, 1};
  for (int i = 0; i < buckets->count; i++) out->sizes[i] = (int64_t)buckets->number[i];
  while (form.part[out->input] != TEXT_TOKENS) out->input++;
  return true;
}

static bool check_wanted(Builder *b, const Wanted *wanted, const Node *input) {
  const SettingValue *settings = b->program->settings;
  if (input->type.shape.rank <= wanted->axis)
    return builder_fail(b, wanted->loc, "%s: input '%s' has no rows: i32[B, T=%lld]", wanted->what,
                        node_str(input, ATTR_NAME), (long long)wanted->sizes[wanted->count - 1]);
  int64_t whole = input->type.shape.dim[wanted->axis];
  if (wanted->sizes[wanted->count - 1] != whole)
    return builder_fail(b, wanted->loc,
                        "%s: the last length is that of the model's rows, which is %lld in input '%s', not %lld",
                        wanted->what, (long long)whole, node_str(input, ATTR_NAME),
                        (long long)wanted->sizes[wanted->count - 1]);
  if (setting_pipeline(settings) > 1)
    return builder_fail(b, wanted->loc,
                        "%s and distributed.pipeline do not go together: stages exchange rows of one length",
                        wanted->what);
  if (*setting_text(settings, "data.order"))
    return builder_fail(b, wanted->loc, "%s is an order of its own, and data.order says another one",
                        wanted->what);
  return true;
}

/* ── building ─────────────────────────────────────────────────────────────────────────────── */
/* The name of the dimension; NULL after an error. */
static const char *variant_name_of(Builder *b, const Wanted *wanted, const Ast *model) {
  const Ast *input = model->kid[0]->kid[wanted->input], *shape = input->kid[0]->kid[0];
  const Ast *dimension = shape->kid[wanted->axis];
  if (dimension->kind == AST_NAME || dimension->kind == AST_DIMENSION) return dimension->name;
  builder_fail(b, dimension->loc,
               "%s builds the model for several lengths of this, so it needs a name that the model goes by: "
               "T=%lld, or a hyper T",
               wanted->what, (long long)wanted->sizes[wanted->count - 1]);
  return NULL;
}

static const char *type_in(const Builder *b, const Node *node) {
  char *text = ARENA_ARRAY(b->arena, char, TYPE_TEXT);
  return type_text(&node->type, text);
}

static bool check_declarations(Builder *again, const Declared *train, int count) {
  for (int i = 0; i < count || i < again->declared.count; i++) {
    const Declared *t = i < count ? &train[i] : NULL;
    const Declared *v = i < again->declared.count ? &again->declared.at[i] : NULL;
    if (t && v && !strcmp(t->name, v->name) && t->node->op == v->node->op &&
        type_equal(&t->node->type, &v->node->type))
      continue;
    const Declared *odd = t ? t : v;
    const char *name = again->variant.name;
    long long whole = (long long)again->variant.whole, size = (long long)again->variant.size;
    if (t && v && !strcmp(t->name, v->name))
      return builder_fail(again, odd->loc,
                          "'%s' is %s with %s = %lld and %s with %s = %lld, but all lengths share parameters and "
                          "states: give it a size that does not follow from %s, and take the part that is needed "
                          "where it is read (x[:%s])",
                          odd->name, type_in(again, t->node), name, whole, type_in(again, v->node), name, size,
                          name, name);
    return builder_fail(again, odd->loc,
                        "'%s' is there with %s = %lld only, but all lengths share parameters and states",
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
    if (!there || !here || type_equal(&there->type, &here->type)) continue;
    return builder_fail(again, input->loc,
                        "input '%s' is %s with %s = %lld and %s with %lld: an input's size may be %s itself, but "
                        "not follow from it",
                        input->name, type_in(again, there), again->variant.name, (long long)again->variant.whole,
                        type_in(again, here), (long long)again->variant.size, again->variant.name);
  }
  return true;
}

static bool variant_build(Builder *b, const Ast *model, const Wanted *wanted, const char *name, int64_t size,
                          const Declared *train, int count) {
  Builder *again = builder_again(b, b->diag);
  Program *program = b->program;
  again->watch = NULL;
  again->variant.name = name;
  again->variant.size = size;
  again->variant.whole = wanted->sizes[wanted->count - 1];
  Graph *graph = build_graph(again, model, true);
  if (!graph) {
    builder_note(b, wanted->loc, "with %s = %lld, for %s", name, (long long)size, wanted->what);
    return false;
  }
  graph->name = arena_printf(b->arena, "train.%lld", (long long)size);
  if (!check_declarations(again, train, count) || !check_inputs(again, model, program->train, graph))
    return false;
  if (!b->watch) sizes_note(again, model, graph, true);
  program->variants[program->variant_count++] = (Variant){.size = size, .train = graph};
  return true;
}

/* While the model is built for another length, a hyper that names it has that value. */
static Variable *find_hyper(Builder *b, const char *name) {
  for (int i = 0; i < b->user.names.count; i++)
    if (!strcmp(b->user.names.at[i].name, name) && b->user.names.at[i].value.kind == VALUE_INT)
      return &b->user.names.at[i];
  return NULL;
}

bool variants_build(Builder *b, const Ast *model, const Declared *train, int train_count) {
  Wanted wanted;
  if (!wants_buckets(b, model, &wanted)) return true;
  const Ast *input = model->kid[0]->kid[wanted.input];
  if (!check_wanted(b, &wanted, graph_find_leaf(b->program->train, OP_INPUT, input->name))) return false;
  const char *name = variant_name_of(b, &wanted, model);
  if (!name) return false;
  Variable *hyper = find_hyper(b, name);
  Value value = hyper ? hyper->value : value_none();
  bool fine = true;
  for (int i = 0; i + 1 < wanted.count && fine; i++) {
    if (hyper) hyper->value = value_int(wanted.sizes[i]);
    fine = variant_build(b, model, &wanted, name, wanted.sizes[i], train, train_count);
  }
  if (hyper) hyper->value = value;
  return fine;
}
