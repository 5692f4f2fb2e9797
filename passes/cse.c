/* cse: hash-consing. Two nodes with the same op, type, attributes and inputs are one; leaves that
 * have a name are one if the names agree. The first one stays, with its location. Draws of random
 * numbers differ in their attribute `stream`, so they are merged only if they are the same draw. */
#include "passes/pass.h"
#include <string.h>

typedef struct {
  Node **slot; /* open addressing; NULL: empty */
  int capacity;
} Table;

/* Attributes that are only for readers do not tell nodes apart; leaves are told apart by name. */
static bool is_note(AttrId id) { return id == ATTR_WHY; }
static bool is_no_name(AttrId id) { return id != ATTR_NAME; }

/* What a node would be, before it is made. */
typedef struct {
  const Node *old;
  Node **inputs;
  const char *name; /* a leaf with a name is known by it alone */
} Key;

static uint64_t key_hash(const Key *key) {
  const Node *old = key->old;
  if (key->name) return node_hash(old, is_no_name);
  uint64_t hash = node_hash(old, is_note);
  if (op_has(old->op, TRAIT_COMMUTES)) /* the same for both orders */
    return hash_mix(hash_mix(hash, (uint64_t)(key->inputs[0]->id + key->inputs[1]->id)),
                    (uint64_t)key->inputs[0]->id ^ (uint64_t)key->inputs[1]->id);
  for (int i = 0; i < old->input_count; i++) hash = hash_mix(hash, (uint64_t)key->inputs[i]->id);
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
