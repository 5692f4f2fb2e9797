/* verify: is this graph what its stage promises? Checks structure first (so that later checks may
 * follow pointers), then types by inferring them again, then what the stage allows. A message names
 * the graph and the node: it is for people who write passes or .ftir files. */
#include "ir/verify.h"
#include "base/lookup.h"
#include <limits.h>
#include <string.h>

typedef struct {
  const Graph *graph;
  const Node *fused; /* whose body this is, or NULL */
  Stage stage;
  Diag *diag;
  bool good;
  Lookup leaves, roots; /* the first of each name; not of bodies, which have none */
  int *root_uses;       /* by node */
} Verify;

static void verify_wrong(Verify *v, const Node *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void verify_wrong(Verify *v, const Node *node, const char *format, ...) {
  char place[160];
  v->good = false;
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(v->diag->arena, format, args);
  va_end(args);
  if (v->fused)
    snprintf(place, sizeof place, "the body of %%%d", v->fused->id);
  else
    snprintf(place, sizeof place, "graph '%.100s'", v->graph->name);
  if (node)
    diag_error(v->diag, node->origin.loc, "%s%s: node %%%d = %s: %s",
               node->origin.is_backward ? "in the gradient of this: " : "", place, node->id,
               (unsigned)node->op < OP_COUNT ? op_info[node->op].text : "?", text);
  else
    diag_error(v->diag, (Loc){0}, "%s: %s", place, text);
}

/* ── structure ──────────────────────────────────────────────────────────────────────────────── */
static bool check_structure(Verify *v) {
  const Graph *graph = v->graph;
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    if (!node || (unsigned)node->op >= OP_COUNT) {
      verify_wrong(v, NULL, "there is no node %%%d", i);
      return false;
    }
    if (node->id != i) {
      verify_wrong(v, node, "stands at place %d", i);
      return false;
    }
    for (int k = 0; k < node->input_count; k++) {
      const Node *input = node->input[k];
      if (!input || input->id < 0 || input->id >= i || graph->nodes.at[input->id] != input) {
        verify_wrong(v, node, "input %d is not a node before it in this graph", k);
        return false;
      }
    }
    for (int k = 0; k < node->attr_count; k++)
      if ((unsigned)node->attr[k].id >= ATTR_COUNT ||
          (k && node->attr[k].id <= node->attr[k - 1].id)) {
        verify_wrong(v, node, "its attributes are not in order");
        return false;
      }
  }
  for (int i = 0; i < graph->roots.count; i++) {
    const Node *node = graph->roots.at[i].node;
    if (!node || node->id < 0 || node->id >= graph->nodes.count ||
        graph->nodes.at[node->id] != node) {
      verify_wrong(v, NULL, "root '%s' is not a node of this graph", graph->roots.at[i].name);
      return false;
    }
  }
  return true;
}

/* ── attributes ─────────────────────────────────────────────────────────────────────────────── */
#define BIT(ID) ((AttrSet)1 << ATTR_##ID)

static void check_attrs(Verify *v, const Node *node) {
  AttrSet allowed = op_info[node->op].attrs | BIT(NAME) | BIT(WHY) | BIT(PLACE) | BIT(AT);
  for (int i = 0; i < node->attr_count; i++)
    if (!(allowed >> node->attr[i].id & 1))
      verify_wrong(v, node, "it has no attribute '%s'", attr_info[node->attr[i].id].text);
}

static void check_init(Verify *v, const Node *node) {
  static const struct {
    const char *text;
    int args;
  } kinds[] = {{"zeros", 0},        {"const", 1},      {"uniform", 2}, {"normal", 2},
               {"trunc_normal", 2}, {"orthogonal", 1}, {"identity", 0}};
  const char *init = node_str(node, ATTR_INIT);
  const Attr *args = node_attr(node, ATTR_INIT_ARGS);
  if (!init) return;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (!strcmp(kinds[i].text, init)) {
      int count = args ? args->count : 0;
      if (count != kinds[i].args)
        verify_wrong(v, node, "init '%s' takes %d arguments, not %d", init, kinds[i].args, count);
      return;
    }
  verify_wrong(v, node, "there is no initialiser '%s'", init);
}

/* ── stages ─────────────────────────────────────────────────────────────────────────────────── */
static void check_stage(Verify *v, const Node *node) {
  const OpInfo *info = &op_info[node->op];
  if (v->fused) {
    if (!op_has(node->op, TRAIT_BODY))
      verify_wrong(v, node, "may not stand in the body of a fused node");
    return;
  }
  bool of_fused = node->op == OP_RESULT && node->input[0]->op == OP_FUSED;
  Stage first = of_fused ? STAGE_FUSED : info->first;
  if (first == STAGE_NOWHERE)
    verify_wrong(v, node, "stands outside of a fused node's body");
  else if (v->stage < first)
    verify_wrong(v, node, "comes only with stage %s, and this is %s", stage_text[first],
                 stage_text[v->stage]);
  else if (v->stage > info->last && op_has(node->op, TRAIT_BODY))
    verify_wrong(v, node, "should be in the body of a fused node at this stage");
  else if (v->stage > info->last)
    verify_wrong(v, node, "goes with stage %s, and this is %s", stage_text[info->last],
                 stage_text[v->stage]);
  for (int k = 0; k < node->input_count && node->op != OP_RESULT; k++)
    if (node_has_results(node->input[k]))
      verify_wrong(v, node, "reads %%%d, which has several results, without `result`",
                   node->input[k]->id);
}

/* ── names ──────────────────────────────────────────────────────────────────────────────────── */
/* What a leaf is found by; a param beside its rounded form has another role. */
static const char *leaf_key(const Verify *v, Op op, LeafRole role, const char *name) {
  _Static_assert(OP_COUNT < UCHAR_MAX, "an op is a letter of a key");
  size_t length = strlen(name) + 1;
  char *key = arena_alloc(v->leaves.arena, 2 + length);
  key[0] = (char)(1 + op);
  key[1] = (char)(1 + (op == OP_PARAM ? role : 0));
  memcpy(key + 2, name, length);
  return key;
}

static void find_names(Verify *v) {
  const Graph *graph = v->graph;
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    const char *name = op_has(node->op, TRAIT_NAMED) ? node_str(node, ATTR_NAME) : NULL;
    if (name) lookup_add_text(&v->leaves, leaf_key(v, node->op, node->role, name), i);
  }
  v->root_uses = ARENA_ARRAY(v->leaves.arena, int, graph->nodes.count);
  for (int i = 0; i < graph->roots.count; i++) v->root_uses[graph->roots.at[i].node->id]++;
}

/* The first leaf of this kind and name; NULL: there is none. */
static const Node *first_of_name(const Verify *v, Op op, LeafRole role, const char *name) {
  int found = lookup_find_text(&v->leaves, leaf_key(v, op, role, name));
  return found < 0 ? NULL : v->graph->nodes.at[found];
}

/* A role goes with the kind of leaf and its type, and with the compiler's names: what has one of
 * them has not lost its role on the way. */
static void check_role(Verify *v, const Node *node) {
  const char *role = role_text(node->role), *name = node_str(node, ATTR_NAME);
  bool is_scalar = !node->type.shape.rank;
  DType number = role_has(node->role, ROLE_COUNTER) ? DT_I64 : DT_F64;
  if (!role_has(node->role, node->op == OP_PARAM ? ROLE_OF_PARAM : ROLE_OF_STATE))
    verify_wrong(v, node, "a %s cannot have the role %s", op_info[node->op].text, role);
  else if (node->op == OP_PARAM)
    return;
  else if (own_is(name) != (node->role != ROLE_MODEL && node->role != ROLE_GIVEN))
    verify_wrong(v, node, "the role %s does not go with the name '%s'", role, name);
  else if (role_has(node->role, (RoleTrait)(ROLE_COUNTER | ROLE_NUMBER)) &&
           !(is_scalar && node->type.dtype == number))
    verify_wrong(v, node, "a state with the role %s is %s[]", role, dtype_text(number));
  else if (role_has(node->role, ROLE_SLICED) &&
           (node->type.dtype != DT_F32 || node->type.shape.rank != 1))
    verify_wrong(v, node, "a state with the role %s is flat and f32", role);
  else if ((node->role == ROLE_GRADIENT_SUM) != (node_attr(node, ATTR_OFFSET) != NULL))
    verify_wrong(v, node, "a sum of gradients, and no other state, has an offset");
  else if ((node->role == ROLE_GIVEN) != (node_str(node, ATTR_FILE) != NULL) ||
           (node->role == ROLE_GIVEN) != (node_str(node, ATTR_TENSOR_NAME) != NULL))
    verify_wrong(v, node, "a state that is given, and no other, has a file and a name there");
  if (!role_has(node->role, ROLE_ONE)) return;
  const Node *first = graph_find_role(v->graph, node->role);
  const char *other = node_str(first, ATTR_NAME);
  if (other && strcmp(other, name) != 0)
    verify_wrong(v, node, "'%s' and '%s' have the role %s, which only one state can have", other,
                 name, role);
}

/* Boxes of elements lie within the input. */
static void check_parts(Verify *v, const Node *node) {
  const Attr *parts = node_attr(node, ATTR_PARTS);
  const Shape *shape = &node->type.shape;
  int width = PARTS_HEAD + 3 * shape->rank;
  bool fine = !parts || (parts->count % width == 0 && !dtype_is_float(node->type.dtype));
  for (int i = 0; fine && parts && i < parts->count; i += width) {
    fine = parts->ints[i] >= 0 && (parts->ints[i + 1] & ~INT64_C(1)) == 0;
    for (int k = 0; fine && k < shape->rank; k++) {
      const int64_t *at = &parts->ints[i + PARTS_HEAD + 3 * k];
      fine = shape_has_steps(shape->dim[k], at[0], at[1], at[2]);
    }
  }
  if (!fine) verify_wrong(v, node, "parts are no boxes of the input's elements");
}

static void check_leaf(Verify *v, const Node *node) {
  const Node *first = first_of_name(v, node->op, node->role, node_str(node, ATTR_NAME));
  if (first->role != node->role)
    verify_wrong(v, node, "'%s' has the role %s here and %s at %%%d", node_str(node, ATTR_NAME),
                 role_text(node->role), role_text(first->role), first->id);
  if (!type_equal(&first->type, &node->type)) {
    char a[TYPE_TEXT], b[TYPE_TEXT];
    verify_wrong(v, node, "'%s' is %s here and %s at %%%d", node_str(node, ATTR_NAME),
                 type_text(&node->type, a), type_text(&first->type, b), first->id);
  }
  if ((node_attr(node, ATTR_BELOW) || node_attr(node, ATTR_IGNORE)) &&
      (dtype_is_float(node->type.dtype) || node_int(node, ATTR_BELOW, -1) < 0))
    verify_wrong(v, node, "only integers are below something, which is no less than 0");
  check_parts(v, node);
}

/* The part of a param that a rank has. */
static void check_shared(Verify *v, const Node *node, const Shape *files) {
  int64_t ranks = node_int(node, ATTR_RANKS, 0);
  int64_t part = ranks < 2 ? -1 : part_elements(shape_elements(files), ranks);
  if (part < 0)
    verify_wrong(v, node, "no part is shared out over %lld ranks", (long long)ranks);
  else if (node->type.shape.rank != 1 || node->type.shape.dim[0] != part)
    verify_wrong(v, node, "a part has %lld elements", (long long)part);
}

/* The part of a param that ranks have which share each layer's work. */
static void check_cut(Verify *v, const Node *node) {
  const Attr *cut = node_attr(node, ATTR_CUT);
  if (!cut) return;
  Shape local = node_file_shape(node);
  int64_t ranks = node_int(node, ATTR_TENSOR, 0);
  bool is_legal = cut->count >= 2 && ranks > 1 && cut->ints[0] >= 0 && cut->ints[0] < local.rank &&
                  cut->ints[1] > 0 && local.dim[cut->ints[0]] % cut->ints[1] == 0;
  if (is_legal && cut->count > 2) /* the last of the ranks has less of it, but some */
    is_legal = cut->count == 3 && local.dim[cut->ints[0]] == cut->ints[1] &&
               cut->ints[2] < ranks * cut->ints[1] && cut->ints[2] > (ranks - 1) * cut->ints[1];
  if (!is_legal) verify_wrong(v, node, "cut and tensor tell no part of it");
}

/* A param in another order: the type is that of what lies in memory. */
static void check_storage(Verify *v, const Node *node) {
  if (!node_attr(node, ATTR_SHAPE) && !node_attr(node, ATTR_VIEW) && !node_attr(node, ATTR_PERM) &&
      !node_attr(node, ATTR_RANKS))
    return;
  Storage storage = node_storage(node);
  Shape files = node_file_shape(node), memory = storage_shape(&storage);
  bool is_part = node_attr(node, ATTR_RANKS) != NULL;
  if (!node_attr(node, ATTR_SHAPE) || !shape_is_legal(&files) ||
      ((storage.view.rank || !is_part) && !storage_is_legal(&storage, &files)))
    verify_wrong(v, node, "shape, view and perm tell no order of its elements");
  else if (is_part)
    check_shared(v, node, &files);
  else if (!shape_equal(&memory, &node->type.shape))
    verify_wrong(v, node, "its type is not view, transposed by perm");
}

static void check_assign(Verify *v, const Node *node) {
  const char *target = node_str(node, ATTR_TARGET);
  const Node *state = first_of_name(v, OP_STATE, ROLE_NONE, target);
  int roots = v->root_uses[node->id];
  if (roots != 1) verify_wrong(v, node, "an assign must be exactly one root, not %d", roots);
  if (v->stage < STAGE_STEP && state && state->role == ROLE_PARAMS)
    verify_wrong(v, node, "parameters are assigned only from stage %s on", stage_text[STAGE_STEP]);
  if (!state)
    verify_wrong(v, node, "there is no state '%s'", target);
  else if (!type_equal(&state->type, &node->type))
    verify_wrong(v, node, "the state '%s', %%%d, has another type", target, state->id);
}

static void verify_graph(Verify *v);

static void check_body(Verify *v, const Node *node) {
  if (!node->body) {
    verify_wrong(v, node, "it has no body");
    return;
  }
  Verify inner = {
      .graph = node->body, .fused = node, .stage = v->stage, .diag = v->diag, .good = true};
  if (v->fused) return; /* said already: not in a body */
  const Graph *body = node->body;
  if (!body->roots.count) verify_wrong(v, node, "its body has no results");
  if (body->roots.count && body->roots.at[0].node &&
      !type_equal(&body->roots.at[0].node->type, &node->type))
    verify_wrong(v, node, "its type is not that of its first result");
  verify_graph(&inner);
  v->good &= inner.good;
  if (!inner.good) return;
  const Node *where;
  const char *why = verify_kernel(node, &where);
  if (why) verify_wrong(where ? &inner : v, where ? where : node, "%s", why);
  v->good &= inner.good;
}

static void check_arg(Verify *v, const Node *node) {
  int64_t index = node_int(node, ATTR_INDEX, -1);
  if (!v->fused) return;
  if (index < 0 || index >= v->fused->input_count)
    verify_wrong(v, node, "the fused node has no operand %lld", (long long)index);
  else if (!type_equal(&v->fused->input[index]->type, &node->type))
    verify_wrong(v, node, "operand %lld of the fused node has another type", (long long)index);
}

/* ── pitches ────────────────────────────────────────────────────────────────────────────────── */
static bool may_have_pitch(const Node *node) {
  if (node->op == OP_DOT || node->op == OP_RESHAPE) return true;
  return node->op == OP_RESULT && node->input[0]->op == OP_FUSED;
}

static bool may_read_pitch(const Node *node) {
  const char *kind = node->op == OP_FUSED ? node_str(node, ATTR_KIND) : NULL;
  return node->op == OP_DOT || node->op == OP_RESHAPE || (kind && strcmp(kind, "conv") != 0);
}

/* Rows have a pitch in values of kernels that know it, and a view has the same rows. */
static void check_pitch(Verify *v, const Node *node) {
  const Type *type = &node->type;
  if (type->pitch && (v->fused || v->stage < STAGE_FUSED || !may_have_pitch(node)))
    verify_wrong(v, node, "its rows may have no pitch");
  else if (!type_has_legal_pitch(type))
    verify_wrong(v, node, "its pitch is no multiple of %d bytes between a row and two", PITCH_UNIT);
  for (int k = 0; k < node->input_count; k++) {
    int64_t pitch = node->input[k]->type.pitch;
    bool is_view = node->op == OP_RESHAPE && !v->fused;
    if (pitch && !may_read_pitch(node))
      verify_wrong(v, node, "it reads rows with a pitch, which it does not know");
    if (is_view && pitch != type->pitch)
      verify_wrong(v, node, "is a view with another pitch than what it views");
    else if (is_view && pitch && shape_last(&type->shape) != shape_last(&node->input[k]->type.shape))
      verify_wrong(v, node, "is a view of other rows than those with the pitch");
  }
}

static void check_node(Verify *v, const Node *node) {
  Type type;
  const char *why = NULL;
  char a[TYPE_TEXT], b[TYPE_TEXT];
  if (!infer_type(v->diag->arena, node->op, NULL, node->input, node->input_count, node->attr,
                  node->attr_count, &node->type, &type, &why)) {
    verify_wrong(v, node, "%s", why);
    return;
  }
  if (!type_equal(&type, &node->type))
    verify_wrong(v, node, "its type should be %s, not %s", type_text(&type, a),
                 type_text(&node->type, b));
  check_attrs(v, node);
  check_stage(v, node);
  check_pitch(v, node);
  if (node->op == OP_PARAM || node->op == OP_STATE) check_init(v, node);
  if (op_has(node->op, TRAIT_NAMED) && node->op != OP_SETTING && !v->fused) check_leaf(v, node);
  if (node->op == OP_PARAM || node->op == OP_STATE) check_role(v, node);
  if (node->op == OP_PARAM) check_storage(v, node);
  if (node->op == OP_PARAM) check_cut(v, node);
  if (node->op == OP_ASSIGN && !v->fused) check_assign(v, node);
  if (node->op == OP_ARG) check_arg(v, node);
  if (node->op == OP_FUSED)
    check_body(v, node);
  else if (node->body)
    verify_wrong(v, node, "only a fused node has a body");
}

/* ── roots ──────────────────────────────────────────────────────────────────────────────────── */
/* Until which stage a kind of root may be there. */
static Stage last_stage(RootKind kind) {
  return kind == ROOT_OBJECTIVE || kind == ROOT_ASCENT ? STAGE_FORWARD
         : kind == ROOT_FACTOR || kind == ROOT_DIRECTION || kind == ROOT_STAYS ? STAGE_BACKWARD
                                                         : STAGE_PLANNED;
}

static void check_root(Verify *v, int at) {
  const Root *root = &v->graph->roots.at[at];
  const Node *node = root->node;
  if (node->type.pitch) verify_wrong(v, node, "is a root, whose rows may have no pitch");
  if (v->fused) {
    if (root->kind != ROOT_RESULT) verify_wrong(v, node, "a body's roots are results");
    return;
  }
  if (root->kind == ROOT_RESULT) verify_wrong(v, node, "a result is a root only in a body");
  if (v->stage > last_stage(root->kind))
    verify_wrong(v, node, "the root '%s' goes with stage %s, and this is %s", root->name,
                 stage_text[last_stage(root->kind)], stage_text[v->stage]);
  const char *key = arena_printf(v->roots.arena, "%d %s", root->kind,
                                 root->kind == ROOT_LOSS ? "" : root->name);
  if (lookup_add_text(&v->roots, key, at) != at)
    verify_wrong(v, node, "there are two roots of this kind named '%s'", root->name);
  bool is_packed = root->kind == ROOT_GRADIENTS || root->kind == ROOT_DIRECTION;
  if (is_packed && node->op != OP_PACK && v->stage < STAGE_FUSED)
    verify_wrong(v, node, "the root %s must be a pack", root_kind_text[root->kind]);
  bool scalar = node->type.shape.rank == 0;
  if (root->kind == ROOT_LOSS && !(scalar && dtype_is_float(node->type.dtype)))
    verify_wrong(v, node, "the loss must be a floating-point scalar");
  if (root->kind >= ROOT_PASSES && !scalar)
    verify_wrong(v, node, "the root '%s' must be a scalar", root->name);
  if (root->kind == ROOT_METRIC && !type_is_metric(&node->type))
    verify_wrong(v, node,
                 "the metric '%s' must be a scalar, or a row or table of at most %d numbers",
                 root->name, METRIC_MOST_ELEMENTS);
  if (root->kind == ROOT_AUC && !type_is_auc(&node->type))
    verify_wrong(v, node, "the auc '%s' must be f32[n, 1 + classes]", root->name);
  if (root->kind == ROOT_ASSIGN &&
      (node->op != OP_ASSIGN || strcmp(root->name, node_str(node, ATTR_TARGET))))
    verify_wrong(v, node, "the root assign '%s' must be the assign of that state", root->name);
}

/* Leaves first, assigns last: a state is written when all that reads it is done. */
static void verify_order(Verify *v) {
  enum { LEAVES, STEPS, ASSIGNS } part = LEAVES;
  for (int i = 0; i < v->graph->nodes.count; i++) {
    const Node *node = v->graph->nodes.at[i];
    bool is_leaf = op_info[node->op].op_class == CLASS_LEAF;
    int wanted = node->op == OP_ASSIGN ? ASSIGNS : is_leaf ? LEAVES : STEPS;
    if (wanted < (int)part && node->op != OP_RESHAPE)
      verify_wrong(v, node, "stands behind %s: leaves come first, assigns last",
                   part == STEPS ? "a step" : "an assign");
    if (wanted > (int)part) part = wanted;
  }
}

static void verify_graph(Verify *v) {
  if (!check_structure(v)) return;
  if (!v->fused) find_names(v);
  for (int i = 0; i < v->graph->nodes.count; i++) check_node(v, v->graph->nodes.at[i]);
  if (!v->good) return; /* roots may rest on attributes that are missing */
  for (int i = 0; i < v->graph->roots.count; i++) check_root(v, i);
  if (!v->fused && v->stage >= STAGE_SCHEDULED) verify_order(v);
  if (!v->good || v->fused || v->stage != STAGE_PLANNED) return;
  const Node *where;
  const char *why = verify_places(v->graph, v->leaves.arena, &where);
  if (why) verify_wrong(v, where, "%s", why);
}

bool graph_verify(const Graph *graph, Stage stage, Diag *diag) {
  Arena *scratch = arena_new();
  Verify verify = {.graph = graph, .stage = stage, .diag = diag, .good = true};
  verify.leaves.arena = verify.roots.arena = scratch;
  verify_graph(&verify);
  arena_free(scratch);
  return verify.good;
}
