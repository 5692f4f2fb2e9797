/* build: statements, and a model as a whole. */
#include "frontend/builder.h"
#include "frontend/watch.h"
#include <string.h>

static void statement(Builder *b, const Ast *ast);

void build_body(Builder *b, const Ast *body) {
  for (int i = 0; body && i < body->count && !b->frame->has_returned && !b->exhausted; i++)
    statement(b, body->kid[i]);
}

static bool in_model(const Builder *b) {
  return b->frame->definition && b->frame->definition->kind == AST_MODEL;
}

/* ── roots ────────────────────────────────────────────────────────────────────────────────── */
static bool is_new_root(Builder *b, RootKind kind, const char *name, Loc loc) {
  if (!in_model(b))
    return builder_fail(b, loc, "loss, metrics and outputs belong in a model, not in a %s",
                        b->frame->definition->kind == AST_FN ? "function" : "block");
  Node *old = graph_find_root(b->graph, kind, name);
  if (!old) return true;
  builder_fail(b, loc, "'%s' is declared twice", name);
  builder_note(b, old->origin.loc, "its first value is computed here");
  return false;
}

/* A loss or metric is one number for the batch. */
static Node *build_scalar(Builder *b, const Value *v, const char *what, DType dtype, Loc loc) {
  if (v->kind == VALUE_ERROR) return NULL;
  if (v->kind != VALUE_TENSOR) {
    builder_fail(b, loc, "%s must be a tensor, not %s", what, value_describe(b->arena, v));
    return NULL;
  }
  if (v->node->type.shape.rank != 0) {
    char text[TYPE_TEXT];
    builder_fail(b, loc, "%s must be one number, not %s; take its mean(...)", what,
                 type_text(&v->node->type, text));
    return NULL;
  }
  if (weight_of(b, v->node)) {
    builder_fail(b, loc, "%s has a weight that nothing has counted with; take its mean(...)", what);
    return NULL;
  }
  return tensor_cast(b, v->node, dtype, loc);
}

static void add_loss(Builder *b, const Value *v, Loc loc) {
  if (value_is_number(v) && !graph_find_root(b->graph, ROOT_LOSS, NULL)) {
    b->number_loss = loc; /* `loss = 0`, that terms are added to */
    return;
  }
  if (v->kind == VALUE_TENSOR && !dtype_is_float(v->node->type.dtype)) {
    char text[TYPE_TEXT];
    builder_fail(b, loc, "loss must be a float, not %s: it has no gradient",
                 type_text(&v->node->type, text));
    return;
  }
  Node *node = build_scalar(b, v, "loss", DT_F32, loc);
  for (int i = 0; node && i < b->graph->roots.count; i++)
    if (b->graph->roots.at[i].kind == ROOT_LOSS) { /* `loss += ...`: the last value counts */
      b->graph->roots.at[i].node = node;
      return;
    }
  if (node) graph_add_root(b->graph, ROOT_LOSS, "loss", node);
}

static Node *find_metric(const Builder *b, const char *name) {
  Node *found = graph_find_root(b->graph, ROOT_METRIC, name);
  return found ? found : graph_find_root(b->graph, ROOT_AUC, name);
}

/* The metric that an evaluation of averaged weights would call `name`, "ema_…"; NULL: none. */
static const char *average_named(Builder *b, const char *name) {
  if (strncmp(name, "ema_", 4) != 0) return NULL;
  bool is_there = !strcmp(name + 4, "loss") || find_metric(b, name + 4) != NULL;
  return is_there ? name + 4 : NULL;
}

/* A line of the log has one value for a key, and some keys are ft's own. */
static bool is_free_key(Builder *b, const char *name, Loc loc) {
  static const char *const taken[] = {OWN_LOG_KEYS};
  for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
    if (strcmp(name, taken[i]) == 0)
      return builder_fail(b, loc,
                          "the log's own '%s' has this name; call the metric something else, such "
                          "as 'my_%s'",
                          name, name);
  const char *average = arena_printf(b->arena, "ema_%s", name), *of = average_named(b, name);
  if (!of && find_metric(b, average)) of = name;
  if (!of) return true;
  return builder_fail(b, loc,
                      "'ema_%s' is what the log calls '%s' of averaged weights; name the metric "
                      "otherwise",
                      of, of);
}

static bool is_room(Builder *b, Loc loc) {
  int count = 0;
  for (int i = 0; i < b->graph->roots.count; i++)
    count += b->graph->roots.at[i].kind == ROOT_METRIC || b->graph->roots.at[i].kind == ROOT_AUC;
  return count < LIMIT_METRICS ||
         builder_fail(b, loc, "a model has at most %d metrics; many numbers are an output",
                      LIMIT_METRICS);
}

/* Numbers that an evaluation shows as a table. */
static Node *build_metric_table(Builder *b, Node *node, const char *what, Loc loc) {
  char text[TYPE_TEXT];
  DType dtype = node->type.dtype;
  if (!type_is_metric(&node->type)) {
    builder_fail(b, loc,
                 "%s is %s: a metric is a number, or a row or table of at most %d; more "
                 "is an output, or take its mean(...)",
                 what, type_text(&node->type, text), METRIC_MOST_ELEMENTS);
    return NULL;
  }
  if (weight_of(b, node)) {
    builder_fail(b, loc, "%s has a weight that nothing has counted with; take its mean(...)", what);
    return NULL;
  }
  return tensor_cast(b, node, dtype_is_float(dtype) ? DT_F64 : DT_I64, loc);
}

/* A count of more than 2^24 is no f32. */
static DType metric_type(const Value *v) {
  DType dtype = v->kind == VALUE_TENSOR ? v->node->type.dtype : DT_F32;
  return dtype == DT_F64 || dtype_is_integer(dtype) ? DT_F64 : DT_F32;
}

/* Tables and rankings are made of all samples of a split: a training step has none. */
static void metric(Builder *b, const Ast *ast) {
  b->result = ast->name;
  Value v = eval(b, ast->kid[0]);
  b->result = NULL;
  bool is_ranking = v.kind == VALUE_RANKING;
  bool is_table = v.kind == VALUE_TENSOR && v.node->type.shape.rank > 0;
  const char *what = arena_printf(b->arena, "metric '%s'", ast->name);
  Node *node = is_ranking ? v.node
               : is_table ? build_metric_table(b, v.node, what, ast->loc)
                          : build_scalar(b, &v, what, metric_type(&v), ast->loc);
  if (!node || !is_free_key(b, ast->name, ast->loc) || !is_room(b, ast->loc)) return;
  bool is_new = is_new_root(b, ROOT_METRIC, ast->name, ast->loc) &&
                is_new_root(b, ROOT_AUC, ast->name, ast->loc);
  if (b->training && (is_table || is_ranking))
    VEC_PUSH(b->arena, b->evaluated, ast);
  else if (is_new)
    graph_add_root(b->graph, is_ranking ? ROOT_AUC : ROOT_METRIC, ast->name, node);
  builder_bind(b, ast->name, v, ast->loc, false);
}

static void output(Builder *b, const Ast *ast) {
  Value v;
  if (ast->kid[0]) {
    v = eval(b, ast->kid[0]);
  } else {
    Variable *found = builder_find(b, ast->name);
    if (!found) {
      builder_fail(b, ast->loc, "unknown name '%s'%s", ast->name, builder_hint_name(b, ast->name));
      return;
    }
    v = found->value;
    watch_mention(b, ast->name, found, ast->loc);
  }
  if (v.kind == VALUE_ERROR) return;
  if (v.kind != VALUE_TENSOR) {
    builder_fail(b, ast->loc, "an output must be a tensor, not %s", value_describe(b->arena, &v));
    return;
  }
  if (is_new_root(b, ROOT_OUTPUT, ast->name, ast->loc))
    graph_add_root(b->graph, ROOT_OUTPUT, ast->name, v.node);
  if (ast->kid[0]) builder_bind(b, ast->name, v, ast->loc, false);
}

/* Of a layer that is applied again the update of the last application counts, which has read those before: their
 * assigns are values like others. */
static void root_update(Builder *b, Node *assign, const char *name) {
  Node *before = graph_find_root(b->graph, ROOT_ASSIGN, name);
  for (int i = 0; before && i < b->graph->roots.count; i++)
    if (b->graph->roots.at[i].node == before) b->graph->roots.at[i].node = assign;
  if (before) {
    before->op = OP_STOP_GRADIENT;
    before->attr_count = 0;
  } else {
    graph_add_root(b->graph, ROOT_ASSIGN, name, assign);
  }
}

/* `update running_mean = ...`: in the train graph only. */
static void update(Builder *b, const Ast *ast) {
  Variable *found = builder_local(b->frame, ast->name);
  if (found && found->value.kind == VALUE_ERROR) return;
  Node *target = found ? found->state : NULL;
  if (!target) {
    builder_fail(b, ast->loc,
                 "'%s' is not a state of this block; `state %s: [...] = zeros` "
                 "declares one",
                 ast->name, ast->name);
    return;
  }
  if (!builder_trains(b)) return;
  const char *name = node_str(target, ATTR_NAME);
  if (found->is_updated) {
    builder_fail(b, ast->loc, "state '%s' is updated twice in one step", name);
    return;
  }
  Value v = eval(b, ast->kid[0]);
  if (!statistics_takes(b, &v)) return;
  Node *node = tensor_of(b, &v, target->type.dtype, ast->kid[0]->loc);
  if (node && v.kind != VALUE_TENSOR)
    node = tensor_broadcast(b, node, target->type.shape, ast->kid[0]->loc);
  if (!node) return;
  char is[TYPE_TEXT], was[TYPE_TEXT];
  if (!type_equal(&node->type, &target->type)) {
    builder_fail(b, ast->loc, "state '%s' is %s and cannot be updated with %s", ast->name,
                 type_text(&target->type, was), type_text(&node->type, is));
    return;
  }
  Attr attr = attr_str(ATTR_TARGET, name);
  Node *assign = tensor_node(b, OP_ASSIGN, &node, 1, &attr, 1, NULL, ast->loc);
  if (assign) root_update(b, assign, name);
  builder_local(b->frame, ast->name)->is_updated = true;
}

/* ── statements ───────────────────────────────────────────────────────────────────────────── */
static void bind_target(Builder *b, const Ast *target, Value v) {
  builder_bind(b, target->name, v, target->loc, false);
  if (strcmp(target->name, "loss") == 0 && in_model(b)) add_loss(b, &v, target->loc);
}

/* A layer made in a list gets its place as name: layers.0, layers.1 ... */
static void name_items(Builder *b, const char *name, Value *v) {
  for (int i = 0; i < v->count; i++) {
    Value *item = &v->items[i];
    if (item->kind == VALUE_LAYER && !item->layer->component && !item->layer->applications)
      item->layer->component = arena_printf(b->arena, "%s.%d", name, i);
  }
}

static void assign(Builder *b, const Ast *ast) {
  const Ast *expression = ast->kid[0];
  int targets = ast->count - 1;
  const char *bound_to = targets == 1 ? ast->kid[1]->name : NULL;
  if (bound_to && !strcmp(bound_to, "loss") && in_model(b)) b->result = bound_to;
  Value v = expression->kind == AST_CALL ? call_eval(b, expression, bound_to) : eval(b, expression);
  if (in_model(b)) b->result = NULL;
  if (targets == 1) {
    if (v.kind == VALUE_LIST) name_items(b, ast->kid[1]->name, &v);
    bind_target(b, ast->kid[1], v);
    return;
  }
  bool is_sequence = v.kind == VALUE_TUPLE || v.kind == VALUE_LIST;
  if (v.kind != VALUE_ERROR && (!is_sequence || v.count != targets)) {
    builder_fail(b, ast->loc, "%d names on the left, but %s on the right", targets,
                 is_sequence ? arena_printf(b->arena, "%d values", v.count)
                             : value_describe(b->arena, &v));
    v = value_error();
  }
  for (int i = 0; i < targets; i++)
    bind_target(b, ast->kid[i + 1], v.kind == VALUE_ERROR ? v : v.items[i]);
}

static void repeat(Builder *b, const Ast *ast) {
  int64_t from, to;
  if (!eval_int(b, ast->kid[0], "the first number of a repeat", &from) ||
      !eval_int(b, ast->kid[1], "the end of a repeat", &to))
    return;
  if (to > from && (uint64_t)to - (uint64_t)from > LIMIT_REPEAT) {
    builder_fail(b, ast->loc, "a repeat of more than %d rounds", LIMIT_REPEAT);
    return;
  }
  const char *outer = b->frame->prefix;
  int errors = b->diag->errors; /* a round that fails is enough: the others would fail alike */
  for (int64_t i = from; i < to && !b->frame->has_returned && !b->exhausted; i++) {
    if (b->diag->errors > errors) break;
    if (ast->text)
      b->frame->prefix =
          arena_printf(b->arena, "%s%s%s.%lld", outer, *outer ? "." : "", ast->text, (long long)i);
    if (ast->text && widths_leave_out(b)) continue;
    builder_bind(b, ast->name, value_int(i), ast->loc, false);
    Region region = builder_open_region(b, REGION_SETTING);
    int begin = b->graph->nodes.count;
    build_body(b, ast->kid[2]);
    b->region = region;
    b->evaluations++;
    if (ast->text) VEC_PUSH(b->arena, b->program->rounds, ((RepeatRound){block_layer(b), b->graph, begin, b->graph->nodes.count}));
  }
  b->frame->prefix = outer;
}

static void build_return(Builder *b, const Ast *ast) {
  if (in_model(b)) {
    builder_fail(b, ast->loc, "a model returns nothing; `output name` marks what predict gives");
    return;
  }
  Value v = eval(b, ast->kid[0]);
  if (v.kind == VALUE_LAYER) {
    builder_fail(b, ast->loc, "this returns %s", value_describe(b->arena, &v));
    v = value_error();
  }
  b->frame->result = v;
  b->frame->has_returned = true;
  b->frame->returned_at = ast->loc;
}

/* What a check is most often about: the first two tensors that the function or block was given. */
static void check_about(Builder *b) {
  const Node *given[2] = {NULL, NULL};
  int count = 0;
  for (int i = 0; i < b->frame->variables.count && count < 2; i++) {
    const Value *v = &b->frame->variables.at[i].value;
    if (v->kind == VALUE_TENSOR) given[count++] = v->node;
  }
  builder_about(b, given[0], given[1]);
}

static void check_model(Builder *b, const Ast *ast) {
  bool holds;
  if (!eval_condition(b, ast->kid[0], &holds) || holds) return;
  Value message = eval(b, ast->kid[1]);
  if (message.kind != VALUE_ERROR) check_about(b);
  if (message.kind != VALUE_ERROR) builder_fail(b, ast->loc, "%s", value_text(b->arena, &message));
  b->frame->result = value_error();
  b->frame->has_returned = true;
}

static void statement(Builder *b, const Ast *ast) {
  bool holds;
  if (b->depth >= LIMIT_DEPTH) {
    b->exhausted = true;
    builder_fail(b, ast->loc, "this nests too deep to be evaluated");
    return;
  }
  b->depth++;
  b->evaluations++;
  switch (ast->kind) {
  case AST_ASSIGN:
    assign(b, ast);
    break;
  case AST_PARAM:
  case AST_STATE:
    block_param(b, ast);
    break;
  case AST_UPDATE:
    update(b, ast);
    break;
  case AST_METRIC:
    metric(b, ast);
    break;
  case AST_OUTPUT:
    output(b, ast);
    break;
  case AST_IF:
    if (eval_condition(b, ast->kid[0], &holds)) build_body(b, ast->kid[holds ? 1 : 2]);
    break;
  case AST_REPEAT:
    repeat(b, ast);
    break;
  case AST_RETURN:
    build_return(b, ast);
    break;
  case AST_CHECK:
    check_model(b, ast);
    break;
  default:
    builder_fail(b, ast->loc, "this is not a statement");
  }
  b->depth--;
}

/* ── a model ──────────────────────────────────────────────────────────────────────────────── */
static bool fail_batch(Builder *b, const Ast *written, int64_t size, int64_t batch) {
  builder_fail(b, written->loc,
               "the leading dimension of an input is the batch: it is %lld here, but "
               "train.batch is %lld%s",
               (long long)size, (long long)batch,
               written->kind == AST_INT ? "; a name, as in f32[B, 8], stands for any batch" : "");
  Variable *bound = written->kind == AST_NAME ? builder_find(b, written->name) : NULL;
  if (bound)
    builder_note(b, bound->loc, "%s = %lld comes from here", written->name, (long long)size);
  return false;
}

/* A model's inputs have the sizes that are written; the leading dimension is the batch. *axes: the mask of
 * those whose size is that of a variant. */
static bool input_shape(Builder *b, const Ast *input, Shape *shape, int64_t batch, unsigned *axes) {
  const Ast *type = input->kid[0], *written = type->kid[0];
  shape->rank = 0;
  if (written->count == 0 || written->count > MAX_RANK)
    return builder_fail(b, written->loc, "an input has a batch dimension and at most %d in all",
                        MAX_RANK);
  for (int i = 0; i < written->count; i++) {
    const Ast *dimension = written->kid[i];
    const Ast *size_ast = dimension->kind == AST_DIMENSION ? dimension->kid[0] : dimension;
    int64_t size;
    bool is_named = dimension->kind == AST_NAME || dimension->kind == AST_DIMENSION;
    bool is_variant = is_named && b->variant.name && !strcmp(dimension->name, b->variant.name);
    if (dimension->kind == AST_ELLIPSIS)
      return builder_fail(b, dimension->loc, "an input's dimensions must all be known");
    if (dimension->kind == AST_NAME && !builder_find_size(b, dimension->name)) {
      if (i > 0)
        return builder_fail(b, dimension->loc,
                            "dimension '%s' has no size; write %s=28 here, or "
                            "declare `hyper %s: int = 28`",
                            dimension->name, dimension->name, dimension->name);
      builder_bind(b, dimension->name, value_int(batch), dimension->loc, true);
    }
    if (!eval_int(b, size_ast, "a dimension", &size)) return false;
    if (i == 0 && b->is_again) size = batch;
    if (is_variant) size = b->variant.size, *axes |= 1u << i;
    if (size < 0)
      return builder_fail(b, size_ast->loc, "a dimension cannot be negative: %lld",
                          (long long)size);
    if (dimension->kind == AST_DIMENSION)
      builder_bind(b, dimension->name, value_int(size), dimension->loc, true);
    if (i == 0 && size != batch) return fail_batch(b, size_ast, size, batch);
    shape->dim[shape->rank++] = size;
  }
  return tensor_shape_fits(b, shape, written->loc);
}

static bool declare_input(Builder *b, const Ast *input, int index, int64_t batch) {
  const Ast *type_ast = input->kid[0];
  Type type = {.dtype = DT_F32};
  if (!type_ast || !type_ast->kid[0])
    return builder_fail(b, input->loc,
                        "input '%s' needs a type, its elements' and its shape: %s: f32[B, 10]",
                        input->name, input->name);
  if (input->kid[1]) return builder_fail(b, input->kid[1]->loc, "an input has no default");
  if (type_ast->name && !dtype_parse_named(type_ast->name, &type.dtype))
    return builder_fail(b, type_ast->loc, "unknown element type '%s'%s", type_ast->name,
                        builder_hint_type(b, type_ast->name));
  unsigned axes = 0;
  if (!input_shape(b, input, &type.shape, batch, &axes)) return false;
  if (builder_local(b->frame, input->name))
    return builder_fail(b, input->loc, "there is already an input or dimension '%s'", input->name);
  Type held, whole = type; /* as it lies in memory, whatever a variant takes of it */
  for (int i = 1; i < type.shape.rank; i++)
    if (axes >> i & 1) whole.shape.dim[i] = b->variant.whole;
  if (!input_check(b, input, index, &whole, &held)) return false;
  Attr name = attr_str(ATTR_NAME, input->name);
  Node *node = tensor_node(b, OP_INPUT, NULL, 0, &name, 1, &held, input->loc);
  if (node && b->variant.name) node = variant_input(b, node, index, axes, input->loc);
  node = input_value(b, node, index, &type, input->loc);
  builder_bind(b, input->name, value_tensor(node), input->loc, false);
  return node != NULL;
}

bool build_model(Builder *b, const Ast *model) {
  int errors = b->diag->errors;
  Instance root = {
      .block = model, .scope = &b->user, .loc = model->loc, .prefix = "", .applications = 1};
  Frame frame = {.definition = model,
                 .scope = &b->user,
                 .call = model->loc,
                 .site = model->loc,
                 .prefix = "",
                 .instance = &root,
                 .result = {.kind = VALUE_ABSENT}};
  frame.up = NULL;
  b->frame = &frame;
  b->number_loss = (Loc){0};
  int layer = -1;
  if (b->training) {
    Layer whole = {.path = "", .block = model->name, .loc = model->loc};
    VEC_PUSH(b->arena, b->program->layers, whole);
    layer = b->program->layers.count - 1;
  }
  bool fine = true;
  int64_t batch = (int64_t)setting_number(b->program->settings, "train.batch");
  for (int i = 0; i < model->kid[0]->count; i++)
    fine = fine && declare_input(b, model->kid[0]->kid[i], i, batch);
  if (fine && !model->kid[0]->count)
    fine = builder_fail(b, model->loc, "model '%s' has no inputs", model->name);
  if (fine) build_body(b, model->kid[1]);
  if (layer >= 0) {
    Layer *whole = &b->program->layers.at[layer];
    whole->flops = frame.flops;
    for (int i = 0; i < root.owned.count; i++)
      if (root.owned.at[i].node->op == OP_PARAM)
        whole->parameters += shape_elements(&root.owned.at[i].node->type.shape);
  }
  bool has_loss = graph_find_root(b->graph, ROOT_LOSS, NULL) != NULL;
  if (fine && b->diag->errors == errors && !has_loss && b->number_loss.file)
    builder_fail(b, b->number_loss, "loss is a number here and never becomes a tensor");
  else if (fine && b->diag->errors == errors && !has_loss)
    builder_fail(b, model->loc, "model '%s' has no loss; `loss = ...` says what training lowers",
                 model->name);
  if (fine && b->diag->errors == errors) mix_check_loss(b);
  if (fine && b->diag->errors == errors) copies_end(b);
  b->frame = NULL;
  return b->diag->errors == errors;
}
