/* block: layers and their parameters. A layer belongs to the block or model that made it; its path
 * is made of the names of its makers. Applying a layer again, or applying again the block that made
 * it, uses the same parameters: children are found again by the call that made them. */
#include "frontend/builder.h"
#include "frontend/watch.h"
#include <ctype.h>
#include <math.h>
#include <string.h>

static const char *join_names(Builder *b, const char *x, const char *y) {
  if (!x || !*x) return y ? y : "";
  if (!y || !*y) return x;
  return arena_printf(b->arena, "%s.%s", x, y);
}

const char *block_path(Builder *b, const Instance *instance) {
  if (!instance->parent) return "";
  const char *outer = join_names(b, block_path(b, instance->parent), instance->prefix);
  return join_names(b, outer, instance->component);
}

const char *block_layer(Builder *b) {
  const Frame *frame = b->frame;
  while (frame && !frame->instance) frame = frame->up;
  if (!frame) return "";
  bool is_known = b->here.instance == frame->instance && b->here.prefix == frame->prefix &&
                  b->here.renamed == b->instances;
  if (is_known) return b->here.path;
  b->here.instance = frame->instance;
  b->here.prefix = frame->prefix;
  b->here.renamed = b->instances;
  b->here.path = join_names(b, block_path(b, frame->instance), frame->prefix);
  return b->here.path;
}

/* ── making ───────────────────────────────────────────────────────────────────────────────── */
/* In a second application of the parent: the layer that this call made in the first one. */
static Instance *made_before(Instance *parent, const Ast *call) {
  for (int k = 0; k < parent->children.count; k++) {
    int i = (parent->cursor + k) % parent->children.count;
    if (parent->children.at[i].call != call) continue;
    parent->cursor = i + 1;
    return parent->children.at[i].instance;
  }
  return NULL;
}

static bool block_check_name(Builder *b, const char *name, Loc loc) {
  for (const char *c = name; *c; c++)
    if (!isalnum((unsigned char)*c) && !strchr("_.-", *c))
      return builder_fail(b, loc,
                          "a layer's name consists of letters, digits, '_', '-' and '.'; "
                          "not \"%s\"",
                          name);
  return *name || builder_fail(b, loc, "a layer's name cannot be empty");
}

/* Takes `name=` out of the arguments. */
static bool take_name(Builder *b, const Arguments *arguments, Arguments *rest, const char **name) {
  for (int i = 0; i < arguments->count; i++) {
    const Argument *argument = &arguments->at[i];
    if (!argument->name || strcmp(argument->name, "name") != 0) {
      VEC_PUSH(b->arena, *rest, *argument);
      continue;
    }
    if (argument->value.kind == VALUE_NONE) continue;
    if (argument->value.kind != VALUE_STRING)
      return builder_fail(b, argument->loc, "'name' must be a string, not %s",
                          value_describe(b->arena, &argument->value));
    if (!block_check_name(b, argument->value.s, argument->loc)) return false;
    *name = argument->value.s;
  }
  return true;
}

static bool configure(Builder *b, Instance *instance, const Ast *call, const Arguments *arguments) {
  const Ast *list = instance->block->kid[0];
  Value *values = ARENA_ARRAY(b->arena, Value, list->count);
  Loc *locs = ARENA_ARRAY(b->arena, Loc, list->count);
  const char *name = instance->block->name;
  if (!call_match(b, name, call->loc, call_parameters(b, list), list->count, arguments, values,
                  locs))
    return false;
  Frame frame;
  if (!call_enter(b, &frame, instance->block, instance->scope, call->loc)) return false;
  int errors = b->diag->errors;
  bool fine = call_bind(b, list, values, locs);
  const char *hint = b->diag->errors > errors ? hint_call(b, name) : "";
  if (*hint) builder_note(b, (Loc){0}, "%s", hint + 2);
  for (int i = 0; i < frame.variables.count; i++)
    VEC_PUSH(b->arena, instance->config, frame.variables.at[i]);
  call_leave(b);
  return fine;
}

/* Takes an argument that every layer has out of the others, unless the block has a parameter of
 * this name. *out stays as it is if it was not given or is none; else the index of its word. */
static bool block_take_word(Builder *b, const Ast *block, Arguments *arguments, const char *name,
                            const char *const *words, const char *listed, int *out) {
  for (int i = 0; i < block->kid[0]->count; i++)
    if (block->kid[0]->kid[i]->name && strcmp(block->kid[0]->kid[i]->name, name) == 0) return true;
  for (int i = 0; i < arguments->count; i++) {
    Argument argument = arguments->at[i];
    if (!argument.name || strcmp(argument.name, name) != 0) continue;
    for (int k = i + 1; k < arguments->count; k++) arguments->at[k - 1] = arguments->at[k];
    arguments->count--;
    const char *text = argument.value.kind == VALUE_STRING ? argument.value.s
                       : argument.value.kind == VALUE_NONE ? "none"
                                                           : "";
    for (int k = 0; words[k]; k++)
      if (strcmp(text, words[k]) == 0) return (*out = k, true);
    return builder_fail(b, argument.loc, "a layer's %s is %s, not %s", name, listed,
                        value_describe(b->arena, &argument.value));
  }
  return true;
}

static bool take_precision(Builder *b, const Ast *block, Arguments *arguments, Instance *out) {
  static const char *const words[] = {"none", "f32", "tf32", "bf16", "fp16", "fp8", NULL};
  int word = 0;
  if (!block_take_word(b, block, arguments, "precision", words, "f32, tf32, bf16, fp16 or fp8", &word))
    return false;
  if (word > 0) out->precision = words[word];
  return true;
}

static bool take_recompute(Builder *b, const Ast *block, Arguments *arguments, Instance *out) {
  static const char *const words[] = {"none", "pointwise", "gelu", "block", NULL};
  static const RegionPolicy policy[] = {REGION_NONE, REGION_POINTWISE, REGION_POINTWISE,
                                        REGION_BLOCK};
  int word = -1;
  if (!block_take_word(b, block, arguments, "recompute", words, "none, pointwise or block", &word))
    return false;
  if (word >= 0) out->recompute = policy[word];
  return true;
}

/* A tensor in the first brackets is the usual slip: Linear(x) for Linear(10)(x). */
static bool refuse_tensors(Builder *b, const Ast *block, const Arguments *arguments) {
  for (int i = 0; i < arguments->count; i++)
    if (arguments->at[i].value.kind == VALUE_TENSOR)
      return builder_fail(b, arguments->at[i].loc,
                          "%s(...) makes a layer from settings and takes no tensor; apply the "
                          "layer to it: %s(...)(x)",
                          block->name, block->name);
  return true;
}

/* Conv2d(3, 16, 3) is one more than it needs, and so is PyTorch's order of them. */
static bool block_takes_more(const Ast *block, const Arguments *arguments) {
  int needed = 0, given = 0;
  for (int i = 0; i < block->kid[0]->count; i++) needed += !block->kid[0]->kid[i]->kid[1];
  for (int i = 0; i < arguments->count; i++) given += !arguments->at[i].name;
  return given > needed;
}

Value block_instance(Builder *b, const Ast *block, const Scope *scope, const Ast *call,
                     const Arguments *arguments, const char *bound_to) {
  if (!b->frame->instance) {
    builder_fail(b, call->loc,
                 "a layer can only be made in a block or model, not in a function: "
                 "functions have no parameters");
    return value_error();
  }
  if (!refuse_tensors(b, block, arguments)) return value_error();
  Instance *parent = b->frame->instance;
  if (parent->applications > 1) {
    Instance *again = made_before(parent, call);
    if (again) return (Value){.kind = VALUE_LAYER, .layer = again};
  }
  Instance *instance = ARENA_NEW(b->arena, Instance);
  instance->scope = scope;
  instance->parent = parent;
  instance->prefix = b->frame->prefix;
  instance->component = bound_to;
  instance->loc = builder_site(b, call->loc);
  Arguments rest = {0};
  if (!take_name(b, arguments, &rest, &instance->component) || !quantize_apply(b, instance, &block, &rest)) return value_error();
  instance->block = block;
  instance->precision = parent->precision;
  if (!take_precision(b, block, &rest, instance) || !take_recompute(b, block, &rest, instance))
    return value_error();
  if (!configure(b, instance, call, &rest)) return value_error();
  widths_apply(b, instance);
  instance->has_more = block_takes_more(block, &rest);
  VEC_PUSH(b->arena, parent->children, ((Child){call, instance}));
  if (parent->applications > 1) parent->cursor = parent->children.count;
  return (Value){.kind = VALUE_LAYER, .layer = instance};
}

/* ── applying ─────────────────────────────────────────────────────────────────────────────── */
static void record_layer(Builder *b, int index, Instance *instance, const Frame *frame) {
  if (index < 0) return;
  Layer *layer = &b->program->layers.at[index];
  const Value *result = &frame->result;
  if (result->kind == VALUE_TUPLE && result->count) result = &result->items[0];
  if (result->kind == VALUE_TENSOR) layer->output = result->node->type;
  layer->path = block_path(b, instance);
  const Value *width = block_width(instance, "out");
  layer->width = width ? width->i : 0;
  const Value *heads = block_width(instance, "head_size") ? block_width(instance, "heads") : NULL;
  layer->heads = heads ? heads->i : 0;
  layer->flops = frame->flops;
  if (instance->applications == 1)
    for (int i = 0; i < instance->owned.count; i++)
      if (instance->owned.at[i].node->op == OP_PARAM)
        layer->parameters += shape_elements(&instance->owned.at[i].node->type.shape);
}

/* The summary is written from the train graph's build. Layers inside standard blocks are shown. */
static int open_layer(Builder *b, Instance *instance) {
  if (!b->training) return -1;
  Layer layer = {.block = instance->block->name, .loc = instance->loc};
  for (Instance *p = instance->parent; p; p = p->parent) layer.depth++;
  VEC_PUSH(b->arena, b->program->layers, layer);
  return b->program->layers.count - 1;
}

static bool block_run(Builder *b, Instance *instance, Value *values, Loc *locs) {
  Frame *frame = b->frame;
  const Ast *block = instance->block;
  for (int i = 0; i < instance->config.count; i++) {
    Variable v = instance->config.at[i];
    VEC_PUSH(b->arena, frame->variables, v);
  }
  int errors = b->diag->errors;
  if (!call_bind(b, block->kid[1], values, locs)) return false;
  build_body(b, block->kid[3]);
  if (frame->result.kind == VALUE_ABSENT) {
    if (!b->exhausted && b->diag->errors == errors)
      builder_fail(b, block->loc, "block '%s' ends without return", block->name);
    return false;
  }
  return call_check_returns(b, block->kid[2], &frame->result);
}

Value block_apply(Builder *b, Instance *instance, Loc loc, const Arguments *arguments) {
  const Ast *list = instance->block->kid[1];
  Value *values = ARENA_ARRAY(b->arena, Value, list->count);
  Loc *locs = ARENA_ARRAY(b->arena, Loc, list->count);
  const char *name = arena_printf(b->arena, "%s(...)", instance->block->name);
  if (!call_match(b, name, loc, call_parameters(b, list), list->count, arguments, values, locs))
    return value_error();
  Frame frame;
  if (!call_enter(b, &frame, instance->block, instance->scope, loc)) return value_error();
  frame.instance = instance;
  instance->applications++;
  instance->cursor = 0;
  int layer = open_layer(b, instance);
  Region region = b->region;
  if (instance->scope != &b->std || instance->recompute != REGION_SETTING)
    builder_open_region(b, instance->recompute);
  const char *function = b->function, *block = b->std_block;
  Written written = b->written;
  b->written = (Written){0};
  b->function = NULL;
  b->std_block = instance->scope == &b->std ? instance->block->name : NULL;
  int errors = b->diag->errors;
  bool fine = block_run(b, instance, values, locs);
  bool is_suspect = b->diag->errors > errors && instance->has_more && instance->scope == &b->std;
  const char *hint = is_suspect ? hint_call(b, instance->block->name) : "";
  if (*hint) builder_note(b, (Loc){0}, "%s", hint + 2);
  b->function = function;
  b->written = written;
  b->std_block = block;
  b->region = region;
  call_leave(b);
  record_layer(b, layer, instance, &frame);
  if (fine && list->count) tap_layer(b, instance, &values[0], &frame.result);
  return fine ? frame.result : value_error();
}

/* ── parameters ───────────────────────────────────────────────────────────────────────────── */
static const Declared *find_declared(const Builder *b, const char *name) {
  for (int i = 0; i < b->declared.count; i++)
    if (strcmp(b->declared.at[i].name, name) == 0) return &b->declared.at[i];
  return NULL;
}

/* Two unnamed layers claim one path: the later one, at the outermost level that owns nothing yet,
 * takes its block's name with a number. NULL if every layer on the way has a name. */
static Instance *rename_unnamed(Builder *b, Instance *instance) {
  Instance *chosen = NULL;
  for (Instance *i = instance; i->parent; i = i->parent)
    if (!i->component && (!i->declared || !chosen)) chosen = i;
  if (!chosen) return NULL;
  char *name = arena_strdup(b->arena, chosen->block->name);
  for (char *c = name; *c; c++) *c = (char)tolower((unsigned char)*c);
  chosen->component = arena_printf(b->arena, "%s_%d", name, ++b->instances);
  if (b->training && !diag_is_again(b->diag, chosen->loc)) {
    diag_warning(b->diag, chosen->loc, "this %s has no name; its parameters are called '%s.…'",
                 chosen->block->name, block_path(b, chosen));
    diag_note(b->diag, chosen->loc, "name it: %s(..., name=\"...\")", chosen->block->name);
  }
  return chosen;
}

static const char *unique_path(Builder *b, Instance *instance, const char *local, Loc loc) {
  const char *path = join_names(b, block_path(b, instance), local);
  for (int tries = 0; find_declared(b, path) && tries < 1000; tries++) {
    if (!rename_unnamed(b, instance)) {
      Loc first = find_declared(b, path)->loc;
      builder_fail(b, loc, "there is already a parameter '%s'", path);
      builder_note(b, first, "declared here first; `repeat ... as h` numbers what is inside it");
      return NULL;
    }
    path = join_names(b, block_path(b, instance), local);
  }
  return path;
}

/* *copied: a state begins as this parameter. */
static bool initial_value(Builder *b, const Ast *ast, const Shape *shape, const char **kind,
                          double arg[2], int *count, Node **copied) {
  const Ast *init = ast->kid[1];
  if (!init)
    return ast->kind == AST_STATE
               ? (*kind = "zeros", *count = 0, true)
               : builder_fail(b, ast->loc,
                              "parameter '%s' needs an initialiser, e.g. %s: %s = "
                              "normal(0.02)",
                              ast->name, ast->name, ast_to_text(b->arena, ast->kid[0]));
  Value v = eval(b, init);
  if (v.kind == VALUE_TENSOR && ast->kind == AST_STATE)
    return (*copied = v.node, *kind = "zeros", *count = 0, true);
  return v.kind != VALUE_ERROR && init_reduce(b, &v, shape, init->loc, kind, arg, count);
}

/* Together they are one flat tensor, which has a limit as any other. */
static bool count_parameters(Builder *b, const Node *param) {
  b->parameters += (shape_elements(&param->type.shape) + 63) / 64 * 64;
  return b->parameters <= LIMIT_ELEMENTS ||
         builder_fail(b, param->origin.loc, "the model has more than 2^40 parameters");
}

static Node *declare(Builder *b, const Ast *ast, const char *local) {
  const Ast *type_ast = ast->kid[0];
  bool is_param = ast->kind == AST_PARAM;
  Type type = {.dtype = DT_F32};
  if (type_ast->name && !dtype_parse_named(type_ast->name, &type.dtype)) {
    builder_fail(b, type_ast->loc, "unknown element type '%s'%s", type_ast->name,
                 builder_hint_type(b, type_ast->name));
    return NULL;
  }
  if (is_param && type.dtype != DT_F32) {
    builder_fail(b, type_ast->loc, "parameters are f32; '%s' is not supported", type_ast->name);
    return NULL;
  }
  if (type_ast->kid[0] && !block_shape(b, type_ast->kid[0], &type.shape)) return NULL;
  const char *kind = NULL;
  double arg[2] = {0};
  int count = 0;
  Node *copied = NULL;
  bool is_given = b->frozen.file != NULL;
  if (!is_given && !initial_value(b, ast, &type.shape, &kind, arg, &count, &copied)) return NULL;
  Instance *instance = b->frame->instance;
  const char *path = unique_path(b, instance, local, ast->loc);
  if (!path) return NULL;
  if (strcmp(path, "__metadata__") == 0) {
    builder_fail(b, ast->loc,
                 "safetensors files keep their own notes under '__metadata__'; name "
                 "the parameter otherwise");
    return NULL;
  }
  Attr attrs[3] = {attr_str(ATTR_NAME, path), attr_str(ATTR_INIT, kind),
                   attr_floats(ATTR_INIT_ARGS, arg, count)};
  Node *node = is_given ? frozen_leaf(b, path, type, ast->loc)
                        : tensor_node(b, is_param ? OP_PARAM : OP_STATE, NULL, 0, attrs,
                                      count ? 3 : 2, &type, ast->loc);
  if (!node) return NULL;
  if (is_param && !count_parameters(b, node)) return NULL;
  if (is_param && !is_given) recipe_apply_groups(b, node);
  VEC_PUSH(b->arena, b->declared, ((Declared){path, node, builder_site(b, ast->loc)}));
  for (Instance *i = instance; i; i = i->parent) i->declared = true;
  return copied && !copy_declare(b, node, copied, ast->kid[1]->loc) ? NULL : node;
}

Node *block_state(Builder *b, const char *path, const Type *type, Loc loc) {
  const Declared *other = find_declared(b, path);
  Attr attrs[2] = {attr_str(ATTR_NAME, path), attr_str(ATTR_INIT, "zeros")};
  if (other) {
    builder_fail(b, loc, "there is already a parameter '%s'", path);
    builder_note(b, other->loc, "declared here");
    return NULL;
  }
  Node *node = tensor_node(b, OP_STATE, NULL, 0, attrs, 2, type, loc);
  if (node) VEC_PUSH(b->arena, b->declared, ((Declared){path, node, builder_site(b, loc)}));
  return node;
}

/* What is declared must not take the place of what the block or model was given: everything behind
 * would silently read the parameter. */
static bool hides_input(Builder *b, const Ast *ast) {
  const Ast *definition = b->frame->definition;
  const Variable *old = builder_local(b->frame, ast->name);
  if (!old || old->value.kind != VALUE_TENSOR || !old->value.node ||
      old->value.node->op == OP_PARAM || old->value.node->op == OP_STATE)
    return false;
  int lists = definition->kind == AST_BLOCK ? 2 : 1;
  for (int l = 0; l < lists; l++)
    for (int i = 0; i < definition->kid[l]->count; i++) {
      const Ast *input = definition->kid[l]->kid[i];
      if (strcmp(input->name, ast->name) != 0) continue;
      builder_fail(b, ast->loc,
                   "there is already an input '%s'; %s '%s' would hide it: name it "
                   "otherwise",
                   ast->name, ast->kind == AST_STATE ? "state" : "param", ast->name);
      builder_note(b, input->loc, "the input is declared here");
      return true;
    }
  return false;
}

/* What files call a parameter: its own name, or what stands behind `as`; NULL after an error. */
static const char *file_name(Builder *b, const Ast *ast) {
  const Ast *given = ast->kid[2];
  if (!given) return ast->name;
  Value v = eval(b, given);
  if (v.kind == VALUE_ERROR) return NULL;
  if (v.kind != VALUE_STRING) {
    builder_fail(b, given->loc, "the name of '%s' in files must be a string, not %s", ast->name,
                 value_describe(b->arena, &v));
    return NULL;
  }
  return block_check_name(b, v.s, given->loc) ? v.s : NULL;
}

/* What an application before this one has made of the state; NULL: nothing. */
static Node *updated_state(Builder *b, const Node *state, Loc loc) {
  Node *assign = graph_find_root(b->graph, ROOT_ASSIGN, node_str(state, ATTR_NAME));
  Node *now = assign ? weight_drop(b, assign->input[0], loc) : NULL;
  return now ? tensor_unary(b, OP_STOP_GRADIENT, now, loc) : NULL;
}

/* What the application at work reads of a parameter or state. */
static Node *block_read(Builder *b, Node *leaf, const Ast *ast) {
  if (b->frozen.file || leaf->role == ROLE_GIVEN) return frozen_value(b, leaf, ast->loc);
  if (ast->kind == AST_STATE) {
    bool is_again = b->frame->instance->applications > 1;
    Node *updated = is_again ? updated_state(b, leaf, ast->loc) : NULL;
    return updated ? updated : copy_value(b, leaf);
  }
  if (b->average.is_on) return average_of(b, leaf, ast->loc);
  return b->stops ? tensor_unary(b, OP_STOP_GRADIENT, leaf, ast->loc) : leaf;
}

void block_param(Builder *b, const Ast *ast) {
  Instance *instance = b->frame->instance;
  if (!instance) {
    builder_fail(b, ast->loc, "a function has no parameters; make it a block");
    builder_bind(b, ast->name, value_error(), ast->loc, false);
    return;
  }
  if (hides_input(b, ast)) return;
  const char *name = file_name(b, ast);
  const char *local = name ? join_names(b, b->frame->prefix, name) : NULL;
  Node *node = NULL;
  if (local && ast->kind == AST_STATE && !b->frozen.file) local = average_local(b, local);
  for (int i = 0; local && i < instance->owned.count && instance->applications > 1; i++)
    if (strcmp(instance->owned.at[i].name, local) == 0) node = instance->owned.at[i].node;
  if (!node && local) {
    node = declare(b, ast, local);
    if (node) VEC_PUSH(b->arena, instance->owned, ((Owned){local, node}));
  }
  Node *leaf = node;
  if (node) node = block_read(b, node, ast);
  builder_bind(b, ast->name, value_tensor(node), ast->loc, false);
  Variable *bound = builder_local(b->frame, ast->name);
  if (bound && leaf && leaf->op == OP_STATE) bound->state = leaf;
}

/* ── types ────────────────────────────────────────────────────────────────────────────────── */
bool block_shape(Builder *b, const Ast *shape, Shape *out) {
  out->rank = 0;
  if (shape->count > MAX_RANK)
    return builder_fail(b, shape->loc, "a tensor has at most %d dimensions", MAX_RANK);
  for (int i = 0; i < shape->count; i++) {
    const Ast *dimension = shape->kid[i];
    int64_t size;
    if (dimension->kind == AST_ELLIPSIS)
      return builder_fail(b, dimension->loc, "... is for signatures; here all sizes are needed");
    bool named = dimension->kind == AST_DIMENSION;
    if (!eval_int(b, named ? dimension->kid[0] : dimension, "a dimension", &size)) return false;
    if (size < 0)
      return builder_fail(b, dimension->loc, "a dimension cannot be negative: %lld",
                          (long long)size);
    if (named) builder_bind(b, dimension->name, value_int(size), dimension->loc, true);
    out->dim[out->rank++] = size;
  }
  return tensor_shape_fits(b, out, shape->loc);
}

/* What a written dimension stands for: a size, or (false) a name that is still free. */
static bool known_size(Builder *b, const Ast *dimension, int64_t *size, bool *failed) {
  const Ast *written = dimension->kind == AST_DIMENSION ? dimension->kid[0] : dimension;
  *failed = false;
  if (written->kind == AST_NAME && !builder_find_size(b, written->name)) return false;
  *failed = !eval_int(b, written, "a dimension", size);
  return !*failed;
}

static bool fail_dimension(Builder *b, const Ast *type, const Ast *dimension, const Node *node,
                           int axis, int64_t size, Loc loc, const char *what) {
  char text[TYPE_TEXT];
  const char *written = ast_to_text(b->arena, dimension);
  builder_about(b, node, NULL);
  builder_fail(b, loc, "%s is %s, but its type is %s: dimension %d is %lld, not %s%s", what,
               type_text(&node->type, text), ast_to_text(b->arena, type), axis,
               (long long)node->type.shape.dim[axis], written,
               dimension->kind == AST_INT || dimension->kind == AST_DIMENSION
                   ? ""
                   : arena_printf(b->arena, " = %lld", (long long)size));
  Variable *bound = dimension->kind == AST_NAME ? builder_find(b, dimension->name) : NULL;
  if (bound && bound->loc.file)
    builder_note(b, bound->loc, "%s = %lld was bound here", dimension->name, (long long)size);
  return false;
}

/* One dimension of a tensor against its written form; a free name is bound to it. */
static bool check_dimension(Builder *b, const Ast *type, const Ast *dimension, Node *node, int axis,
                            Loc loc, const char *what) {
  int64_t size, have = node->type.shape.dim[axis];
  bool failed;
  bool is_known = known_size(b, dimension, &size, &failed);
  if (dimension->kind == AST_NAME || dimension->kind == AST_DIMENSION)
    watch_mention(b, dimension->name,
                  &(Variable){dimension->name, value_int(have), dimension->loc, true},
                  dimension->loc);
  if (!is_known) {
    if (failed) return false;
    builder_bind(b, dimension->name, value_int(have), loc, true);
    return true;
  }
  if (size != have) return fail_dimension(b, type, dimension, node, axis, size, loc, what);
  if (dimension->kind == AST_DIMENSION)
    builder_bind(b, dimension->name, value_int(size), loc, true);
  return true;
}

static bool fail_type(Builder *b, const Ast *type, const Node *node, Loc loc, const char *what) {
  char text[TYPE_TEXT];
  builder_about(b, node, NULL);
  return builder_fail(b, loc, "%s is %s, but its type is %s", what, type_text(&node->type, text),
                      ast_to_text(b->arena, type));
}

bool block_check_type(Builder *b, const Ast *type, Node *node, Loc loc, const char *what) {
  DType dtype;
  if (type->name && dtype_parse_named(type->name, &dtype)) {
    if (node->type.dtype != dtype) return fail_type(b, type, node, loc, what);
  } else if (type->name) {
    return builder_fail(b, type->loc, "unknown element type '%s'%s", type->name,
                        builder_hint_type(b, type->name));
  }
  const Ast *shape = type->kid[0];
  if (!shape) return true;
  int rank = node->type.shape.rank, ellipsis = -1;
  for (int i = 0; i < shape->count; i++)
    if (shape->kid[i]->kind == AST_ELLIPSIS) {
      if (ellipsis >= 0) return builder_fail(b, shape->kid[i]->loc, "only one ... in a shape");
      ellipsis = i;
    }
  int named = shape->count - (ellipsis >= 0);
  if (ellipsis >= 0 ? rank < named : rank != named) return fail_type(b, type, node, loc, what);
  for (int i = 0; i < shape->count; i++) {
    if (i == ellipsis) continue;
    int axis = ellipsis >= 0 && i > ellipsis ? i + rank - shape->count : i;
    if (!check_dimension(b, type, shape->kid[i], node, axis, loc, what)) return false;
  }
  return true;
}
