/* graph: the making of nodes. Invariant: every node made
 * here has a type that infer_type gave, attributes sorted by id, and defaults spelled out (conv,
 * pooling, slice, pad) or left out (a dot's false flags), so that equal nodes look equal. */
#include "ir/graph.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Graph *graph_new(Arena *arena, const char *name) {
  Graph *graph = ARENA_NEW(arena, Graph);
  graph->arena = arena;
  graph->name = arena_strdup(arena, name ? name : "");
  for (int op = 0; op < LEAF_OPS; op++) graph->leaves[op].arena = arena;
  return graph;
}

void graph_add_root(Graph *graph, RootKind kind, const char *name, Node *node) {
  Root root = {kind, arena_strdup(graph->arena, name ? name : ""), node};
  VEC_PUSH(graph->arena, graph->roots, root);
}

Node *graph_find_root(const Graph *graph, RootKind kind, const char *name) {
  for (int i = 0; i < graph->roots.count; i++) {
    const Root *root = &graph->roots.at[i];
    if (root->kind == kind && (!name || !strcmp(root->name, name))) return root->node;
  }
  return NULL;
}

Node *graph_take_root(Graph *graph, RootKind kind) {
  for (int i = 0; i < graph->roots.count; i++) {
    Root *root = &graph->roots.at[i];
    Node *node = root->node;
    if (root->kind != kind) continue;
    memmove(root, root + 1, sizeof *root * (size_t)(graph->roots.count - i - 1));
    graph->roots.count--;
    return node;
  }
  return NULL;
}

Node *graph_find_leaf(const Graph *graph, Op op, const char *name) {
  int id = lookup_find_text(&graph->leaves[op], name);
  return id < 0 ? NULL : graph->nodes.at[id];
}

Node *graph_find_state(const Graph *graph, const char *name) {
  return graph_find_leaf(graph, OP_STATE, name);
}

Node *graph_find_role(const Graph *graph, LeafRole role) {
  const Lookup *states = &graph->leaves[OP_STATE];
  for (int i = 0; i < states->entries.count; i++) {
    Node *node = graph->nodes.at[states->entries.at[i].value];
    if (node->role == role) return node;
  }
  return NULL;
}

Node *graph_find_op(const Graph *graph, Op op) {
  for (int i = 0; i < graph->nodes.count; i++)
    if (graph->nodes.at[i]->op == op) return graph->nodes.at[i];
  return NULL;
}

Node *graph_find_gradients(const Graph *graph) {
  for (int i = 0; i < graph->nodes.count; i++) /* the update may have packs of its own */
    if (graph->nodes.at[i]->op == OP_PACK && !graph->nodes.at[i]->origin.is_update) return graph->nodes.at[i];
  return graph_find_op(graph, OP_PACK);
}

Node *graph_find_class(const Graph *graph, OpClass op_class) {
  for (int i = 0; i < graph->nodes.count; i++)
    if (op_info[graph->nodes.at[i]->op].op_class == op_class) return graph->nodes.at[i];
  return NULL;
}

bool *graph_find_live(const Graph *graph, Arena *arena) {
  bool *live = ARENA_ARRAY(arena, bool, graph->nodes.count);
  for (int i = 0; i < graph->roots.count; i++) live[graph->roots.at[i].node->id] = true;
  for (int i = 0; i < graph->nodes.count; i++) live[i] |= node_is_agreed(graph->nodes.at[i]);
  graph_mark_inputs(graph, live);
  return live;
}

bool *graph_find_early(const Graph *graph, const bool *live, Arena *arena) {
  bool *early = ARENA_ARRAY(arena, bool, graph->nodes.count);
  for (int i = graph->nodes.count - 1; i >= 0; i--) {
    const Node *node = graph->nodes.at[i];
    bool passes_on = live[i] && !node->origin.is_backward &&
                     (early[i] || op_info[node->op].op_class == CLASS_CONTRACT);
    for (int k = 0; passes_on && k < node->input_count; k++) early[node->input[k]->id] = true;
  }
  return early;
}

void graph_mark_inputs(const Graph *graph, bool *marked) {
  for (int i = graph->nodes.count - 1; i >= 0; i--)
    for (int k = 0; marked[i] && k < graph->nodes.at[i]->input_count; k++)
      marked[graph->nodes.at[i]->input[k]->id] = true;
}

bool node_is_agreed(const Node *node) {
  return op_is_message(node->op) || node_attr(node, ATTR_MESSAGE);
}

/* ── attributes ─────────────────────────────────────────────────────────────────────────────── */
Attr attr_int(AttrId id, int64_t value) { return (Attr){.id = id, .i = value}; }
Attr attr_bool(AttrId id, bool value) { return (Attr){.id = id, .i = value}; }
Attr attr_float(AttrId id, double value) { return (Attr){.id = id, .f = value}; }
Attr attr_str(AttrId id, const char *value) { return (Attr){.id = id, .s = value}; }
Attr attr_ints(AttrId id, const int64_t *values, int count) {
  return (Attr){.id = id, .count = count, .ints = values};
}
Attr attr_floats(AttrId id, const double *values, int count) {
  return (Attr){.id = id, .count = count, .floats = values};
}

static void *copy_bytes(Arena *arena, const void *from, size_t bytes) {
  void *copy = arena_alloc(arena, bytes);
  if (bytes) memcpy(copy, from, bytes);
  return copy;
}

static Attr copy_attr(Arena *arena, Attr attr) {
  switch (attr_info[attr.id].kind) {
  case ATTR_KIND_STR:
    attr.s = arena_strdup(arena, attr.s ? attr.s : "");
    break;
  case ATTR_KIND_INTS:
    attr.ints = copy_bytes(arena, attr.ints, sizeof *attr.ints * (size_t)attr.count);
    break;
  case ATTR_KIND_FLOATS:
    attr.floats = copy_bytes(arena, attr.floats, sizeof *attr.floats * (size_t)attr.count);
    break;
  default:
    break;
  }
  return attr;
}

const Attr *node_attr(const Node *node, AttrId id) {
  for (int i = 0; i < node->attr_count; i++)
    if (node->attr[i].id == id) return &node->attr[i];
  return NULL;
}

int64_t node_int(const Node *node, AttrId id, int64_t otherwise) {
  const Attr *attr = node_attr(node, id);
  return attr ? attr->i : otherwise;
}

double node_float(const Node *node, AttrId id, double otherwise) {
  const Attr *attr = node_attr(node, id);
  return attr ? attr->f : otherwise;
}

const char *node_str(const Node *node, AttrId id) {
  const Attr *attr = node_attr(node, id);
  return attr ? attr->s : NULL;
}

const char *node_called(const Node *node) {
  if (node->origin.function) return node->origin.function;
  return node->op == OP_DOT ? "matmul" : op_info[node->op].text;
}

void node_set_attr(Graph *graph, Node *node, Attr attr) {
  attr = copy_attr(graph->arena, attr);
  int at = 0;
  while (at < node->attr_count && node->attr[at].id < attr.id) at++;
  if (at < node->attr_count && node->attr[at].id == attr.id) {
    node->attr[at] = attr;
    return;
  }
  Attr *grown = ARENA_ARRAY(graph->arena, Attr, node->attr_count + 1);
  for (int i = 0; i < node->attr_count; i++) grown[i + (i >= at)] = node->attr[i];
  grown[at] = attr;
  node->attr = grown;
  node->attr_count++;
}

static bool same_bits(const void *a, const void *b, size_t bytes) {
  return bytes == 0 || memcmp(a, b, bytes) == 0;
}

bool attr_equal(const Attr *a, const Attr *b) {
  if (a->id != b->id || a->count != b->count) return false;
  switch (attr_info[a->id].kind) {
  case ATTR_KIND_FLOAT:
    return same_bits(&a->f, &b->f, sizeof a->f);
  case ATTR_KIND_STR:
    return strcmp(a->s, b->s) == 0;
  case ATTR_KIND_INTS:
    return same_bits(a->ints, b->ints, sizeof *a->ints * (size_t)a->count);
  case ATTR_KIND_FLOATS:
    return same_bits(a->floats, b->floats, sizeof *a->floats * (size_t)a->count);
  default:
    return a->i == b->i;
  }
}

static int skip_attrs(const Node *node, int at, bool (*skips)(AttrId)) {
  while (skips && at < node->attr_count && skips(node->attr[at].id)) at++;
  return at;
}

bool node_attrs_equal(const Node *a, const Node *b, bool (*skips)(AttrId)) {
  int i = skip_attrs(a, 0, skips), k = skip_attrs(b, 0, skips);
  while (i < a->attr_count && k < b->attr_count) {
    if (!attr_equal(&a->attr[i], &b->attr[k])) return false;
    i = skip_attrs(a, i + 1, skips);
    k = skip_attrs(b, k + 1, skips);
  }
  return i == a->attr_count && k == b->attr_count;
}

/* ── hashes ─────────────────────────────────────────────────────────────────────────────────── */
uint64_t hash_mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}

/* Integers, or floats by their bits: 0 is not -0, and NaN is itself. */
static uint64_t hash_numbers(uint64_t hash, const void *numbers, int count) {
  for (int i = 0; i < count; i++) {
    uint64_t bits;
    memcpy(&bits, (const char *)numbers + sizeof bits * (size_t)i, sizeof bits);
    hash = hash_mix(hash, bits);
  }
  return hash;
}

uint64_t hash_type(uint64_t hash, const Type *type) {
  hash = hash_mix(hash, (uint64_t)type->dtype);
  return hash_numbers(hash, type->shape.dim, type->shape.rank);
}

static uint64_t hash_attr(uint64_t hash, const Attr *attr) {
  hash = hash_mix(hash, (uint64_t)attr->id);
  switch (attr_info[attr->id].kind) {
  case ATTR_KIND_STR:
    for (const char *at = attr->s; *at; at++) hash = hash_mix(hash, (unsigned char)*at);
    return hash;
  case ATTR_KIND_INTS:
    return hash_numbers(hash, attr->ints, attr->count);
  case ATTR_KIND_FLOATS:
    return hash_numbers(hash, attr->floats, attr->count);
  default:
    return hash_numbers(hash, &attr->i, 1); /* of a float its bits: they share the place */
  }
}

uint64_t node_hash(const Node *node, bool (*skips)(AttrId)) {
  uint64_t hash = hash_type((uint64_t)node->op, &node->type);
  for (int i = 0; i < node->attr_count; i++)
    if (!skips || !skips(node->attr[i].id)) hash = hash_attr(hash, &node->attr[i]);
  return hash;
}

/* ── what a node is ─────────────────────────────────────────────────────────────────────────── */
const Node *node_base(const Node *node) {
  while (node->op == OP_RESHAPE) node = node->input[0];
  return node;
}

DotForm dot_form(const Node *dot) {
  const Shape *a = &dot->input[0]->type.shape, *c = &dot->type.shape;
  DotForm f = {.batch = 1, .m = c->dim[c->rank - 2], .n = c->dim[c->rank - 1]};
  f.ta = node_int(dot, ATTR_TRANS_A, 0);
  f.tb = node_int(dot, ATTR_TRANS_B, 0);
  f.k = a->dim[a->rank - (f.ta ? 2 : 1)];
  for (int d = 0; d + 2 < c->rank; d++) f.batch *= c->dim[d];
  return f;
}

int64_t contraction_flops(const Node *node) {
  if (node->op == OP_DOT) {
    DotForm f = dot_form(node);
    return 2 * f.batch * f.m * f.n * f.k;
  }
  if (node->op == OP_ATTENTION || node->op == OP_ATTENTION_GRAD) {
    /* Two products forward, five backward, of which the causal order hides half. */
    AttentionForm f = attention_form(node);
    int64_t flops = f.batch * f.heads * f.rows * f.keys * f.features;
    return flops * (node->op == OP_ATTENTION ? 4 : 10) / (node_int(node, ATTR_CAUSAL, 0) ? 2 : 1);
  }
  if (op_info[node->op].op_class != CLASS_CONTRACT) return 0;
  ConvForm f = conv_form(node);
  return 2 * f.images * f.groups * f.out * f.out_height * f.out_width * f.in * f.kernel_height *
         f.kernel_width;
}

void node_drop_attr(Node *node, AttrId id) {
  int kept = 0;
  for (int i = 0; i < node->attr_count; i++)
    if (node->attr[i].id != id) node->attr[kept++] = node->attr[i];
  node->attr_count = kept;
}

static Shape shape_attr(const Node *node, AttrId id) {
  const Attr *attr = node_attr(node, id);
  return attr && attr->count <= MAX_RANK ? shape_of(attr->count, attr->ints) : shape_scalar();
}

Storage node_storage(const Node *param) {
  const Attr *perm = node_attr(param, ATTR_PERM);
  Storage storage = {.view = shape_attr(param, ATTR_VIEW)};
  if (!perm || perm->count != storage.view.rank) return (Storage){0};
  memcpy(storage.perm, perm->ints, sizeof(int64_t) * (size_t)perm->count);
  return storage;
}

Shape node_file_shape(const Node *param) {
  return node_attr(param, ATTR_SHAPE) ? shape_attr(param, ATTR_SHAPE) : param->type.shape;
}

bool node_is_frozen(const Node *node) {
  return node->op == OP_PARAM && node_float(node, ATTR_LR_FACTOR, 1) == 0;
}

MeshAxis node_axis(const Node *node) {
  const char *over = node_str(node, ATTR_OVER);
  MeshAxis axis = MESH_ALL;
  return over && mesh_axis_parse(over, &axis) ? axis : MESH_ALL;
}

bool node_has_results(const Node *node) { return op_has(node->op, TRAIT_RESULTS); }

int node_result_count(const Node *node) {
  if (node->op == OP_FUSED) return node->body->roots.count;
  if (node->op == OP_ALL_REDUCE) return node->input_count;
  if (node->op == OP_ATTENTION) return 2;
  return node->op == OP_ATTENTION_GRAD && !node_int(node, ATTR_JOINED, 0) ? 3 : 1;
}

Type node_result_type(const Node *node, int64_t index) {
  if (node->op == OP_FUSED) return node->body->roots.at[index].node->type;
  if (node->op == OP_ALL_REDUCE) return node->input[index]->type;
  Type type = node->type;
  if (node->op != OP_ATTENTION && node->op != OP_ATTENTION_GRAD) return type;
  AttentionForm form = attention_form(node);
  if (node->op == OP_ATTENTION && index == 1) {
    type.shape = (Shape){4, {form.batch, form.heads, form.rows, 1}};
    if (dtype_bytes(type.dtype) < 4) type.dtype = DT_F32;
  }
  if (node->op == OP_ATTENTION_GRAD && !form.is_beside) type = node->input[1 + index]->type;
  if (node->op == OP_ATTENTION_GRAD && form.is_beside && index > 0)
    type.shape = (Shape){3, {form.batch, form.keys, form.groups * form.features}};
  return type;
}

/* One spelling for every meaning: cse and the readers of attributes rely on it. */
static void normalize(Graph *graph, Node *node) {
  static const int64_t ones[MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1}, zeros[4] = {0};
  static const AttrId flags[] = {ATTR_TRANS_A, ATTR_TRANS_B, ATTR_CAUSAL, ATTR_JOINED};
  AttrSet legal = op_info[node->op].attrs;
  if (!legal) return;
  const Attr *kernel = node_attr(node, ATTR_KERNEL);
  int rank = node->type.shape.rank;
  const Attr defaults[] = {attr_ints(ATTR_STRIDE, kernel ? kernel->ints : ones, 2),
                           attr_ints(ATTR_PADDING, zeros, 4),
                           attr_str(ATTR_LAYOUT, "nchw"),
                           attr_ints(ATTR_DILATION, ones, 2),
                           attr_int(ATTR_GROUPS, 1),
                           attr_bool(ATTR_COUNT_PAD, false),
                           attr_ints(ATTR_STEP, ones, rank),
                           attr_float(ATTR_VALUE, 0)};
  for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
    if (legal >> defaults[i].id & 1 && !node_attr(node, defaults[i].id))
      node_set_attr(graph, node, defaults[i]);
  const char *over = node_str(node, ATTR_OVER);
  if (over && !strcmp(over, mesh_axis_text(MESH_ALL))) node_drop_attr(node, ATTR_OVER);
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
    if (legal >> flags[i] & 1 && !node_int(node, flags[i], 0)) node_drop_attr(node, flags[i]);
}

/* ── nodes ──────────────────────────────────────────────────────────────────────────────────── */
Node *graph_try_node(Graph *graph, Op op, Node *const *inputs, int input_count, const Attr *attrs,
                     int attr_count, const Type *given, const char **why) {
  Type type;
  if (!infer_type(graph->arena, op, NULL, inputs, input_count, attrs, attr_count, given, &type, why))
    return NULL;
  Node *node = ARENA_NEW(graph->arena, Node);
  node->id = graph->nodes.count;
  node->op = op;
  node->type = type;
  node->origin = graph->origin;
  node->role = op == OP_PARAM ? ROLE_PARAMS : op == OP_STATE ? ROLE_MODEL : ROLE_NONE;
  node->input_count = input_count;
  node->input = ARENA_ARRAY(graph->arena, Node *, input_count);
  for (int i = 0; i < input_count; i++) node->input[i] = inputs[i];
  for (int i = 0; i < attr_count; i++) node_set_attr(graph, node, attrs[i]);
  normalize(graph, node);
  VEC_PUSH(graph->arena, graph->nodes, node);
  if (node_is_leaf(node)) lookup_add_text(&graph->leaves[op], node_str(node, ATTR_NAME), node->id);
  return node;
}

Node *graph_node(Graph *graph, Op op, Node *const *inputs, int input_count, const Attr *attrs,
                 int attr_count, const Type *given) {
  const char *why = NULL;
  Node *node = graph_try_node(graph, op, inputs, input_count, attrs, attr_count, given, &why);
  if (node) return node;
  fprintf(stderr, "internal error: ft made an illegal %s node (source line %u): %s\n",
          (unsigned)op < OP_COUNT ? op_info[op].text : "?", graph->origin.loc.line, why);
  abort();
}
