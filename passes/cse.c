/* cse: hash-consing. Two nodes with the same op, type, attributes and inputs are one; leaves that
 * have a name are one if the names agree. The first one stays, with its location. Draws of random
 * numbers differ in their attribute `stream`, so they are merged only if they are the same draw. */
#include "passes/pass.h"
#include <string.h>

typedef struct {
  Node **slot; /* open addressing; NULL: empty */
  int capacity;
} Table;

static uint64_t cse_mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}
static uint64_t mix_text(uint64_t hash, const char *text) {
  for (; *text; text++) hash = cse_mix(hash, (unsigned char)*text);
  return hash;
}

/* Consts are told apart by bits: 0 is not -0, and NaN is itself. */
static uint64_t bits_of(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static uint64_t cse_mix_attr(uint64_t hash, const Attr *attr) {
  hash = cse_mix(hash, (uint64_t)attr->id);
  switch (attr_info[attr->id].kind) {
  case ATTR_KIND_STR:
    return mix_text(hash, attr->s);
  case ATTR_KIND_FLOAT:
    return cse_mix(hash, bits_of(attr->f));
  case ATTR_KIND_INTS:
    for (int i = 0; i < attr->count; i++) hash = cse_mix(hash, (uint64_t)attr->ints[i]);
    return hash;
  case ATTR_KIND_FLOATS:
    for (int i = 0; i < attr->count; i++) hash = cse_mix(hash, bits_of(attr->floats[i]));
    return hash;
  default:
    return cse_mix(hash, (uint64_t)attr->i);
  }
}

/* What a pass has left for readers does not tell nodes apart. */
static bool is_note(AttrId id) { return id == ATTR_WHY; }

/* What a node would be, before it is made. */
typedef struct {
  const Node *old;
  Node **inputs;
  const char *name; /* a leaf with a name is known by it alone */
} Key;

static uint64_t key_hash(const Key *key) {
  const Node *old = key->old;
  uint64_t hash = cse_mix(cse_mix(1, (uint64_t)old->op), (uint64_t)old->type.dtype);
  if (key->name) return mix_text(hash, key->name);
  for (int i = 0; i < old->type.shape.rank; i++)
    hash = cse_mix(hash, (uint64_t)old->type.shape.dim[i]);
  for (int i = 0; i < old->attr_count; i++)
    if (old->attr[i].id != ATTR_WHY) hash = cse_mix_attr(hash, &old->attr[i]);
  if (op_has(old->op, TRAIT_COMMUTES)) /* the same for both orders */
    return cse_mix(cse_mix(hash, (uint64_t)(key->inputs[0]->id + key->inputs[1]->id)),
                   (uint64_t)key->inputs[0]->id ^ (uint64_t)key->inputs[1]->id);
  for (int i = 0; i < old->input_count; i++) hash = cse_mix(hash, (uint64_t)key->inputs[i]->id);
  return hash;
}

static bool key_matches(const Key *key, const Node *node) {
  const Node *old = key->old;
  if (old->op != node->op || !type_equal(&old->type, &node->type)) return false;
  if (old->origin.is_recomputed != node->origin.is_recomputed) return false; /* see recompute.c */
  if (key->name) return strcmp(key->name, node_str(node, ATTR_NAME)) == 0;
  if (!node_attrs_equal(old, node, is_note) || old->input_count != node->input_count) return false;
  if (op_has(old->op, TRAIT_COMMUTES) && key->inputs[0] == node->input[1] &&
      key->inputs[1] == node->input[0])
    return true;
  for (int i = 0; i < old->input_count; i++)
    if (key->inputs[i] != node->input[i]) return false;
  return true;
}

/* The table is twice as large as the graph, so it never fills. */
static Node *cse_visit(Graph *fresh, const Node *old, Node **inputs, void *context) {
  Table *table = context;
  if (old->op == OP_FUSED || old->op == OP_ASSIGN) return NULL;
  bool is_named = op_has(old->op, TRAIT_NAMED);
  Key key = {old, inputs, is_named ? node_str(old, ATTR_NAME) : NULL};
  uint64_t at = key_hash(&key) % (uint64_t)table->capacity;
  while (table->slot[at]) {
    if (key_matches(&key, table->slot[at])) return table->slot[at];
    at = (at + 1) % (uint64_t)table->capacity;
  }
  return table->slot[at] = graph_copy_node(fresh, old, inputs);
}

Graph *pass_cse(PassContext *context, Graph *graph) {
  Table table = {.capacity = 2 * graph->nodes.count + 1};
  table.slot = ARENA_ARRAY(context->scratch, Node *, table.capacity);
  return graph_rewrite(graph, cse_visit, &table);
}
