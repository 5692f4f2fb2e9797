/* sparse: see sparse.h. In evaluation, prediction and generation a product a bᵀ of 16-bit operands, whose second one is a parameter
 * that PassContext.sparse names, rounded, gets the attribute. What is summed up must be the parameter's last dimension, along which `prune` of
 * structure "2:4" leaves two of four, and a multiple of 8; the first operand's rows lie in that order. Nothing else may read the rounded weights: they
 * are there only while they are packed. */
#include "passes/sparse.h"
#include "ir/match.h"
#include "passes/pass.h"
#include <string.h>

const char *sparse_unknown(const Program *program, const char *list, Arena *arena) {
  for (const char *end; *list; list = *end ? end + 1 : end) {
    end = list + strcspn(list, ",");
    const char *name = arena_strndup(arena, list, (size_t)(end - list));
    if (!graph_find_leaf(program->eval, OP_PARAM, name)) return name;
  }
  return NULL;
}

bool sparse_has_kernel(const Node *contraction) { return node_int(contraction, ATTR_SPARSE, 0) != 0; }

/* Rows from which on a GPU that multiplies dense matrices from shared memory (wgmma) is faster by these: by the model of an H100, 4096 × 4096. */
enum { MOST_ROWS_OF_HOPPER = 128 };

typedef struct {
  const char *names;
  bool is_hopper;
  const bool *is_read; /* by node: by something else than such products */
} SparsePass;

/* Is it a step on the way from a parameter, in f32, to a product? */
static bool is_on_the_way(const Node *node) {
  return match_swap_of_last_two(node) || (node->op == OP_CAST && node->input[0]->op == OP_PARAM);
}

const Node *sparse_cast(const Node *operand) {
  while (operand->op != OP_CAST && is_on_the_way(operand)) operand = operand->input[0];
  return is_on_the_way(operand) ? operand : NULL;
}

/* Is it such a product, whoever else reads the weights? */
static bool sparse_suits(const Node *dot, const char *names, bool is_hopper) {
  if (dot->op != OP_DOT || !dtype_is_narrow(dot->input[0]->type.dtype) || dot->input[0]->type.dtype != dot->input[1]->type.dtype) return false;
  const DotForm form = dot_form(dot);
  if (is_hopper && form.batch * form.m > MOST_ROWS_OF_HOPPER) return false;
  const Node *cast = sparse_cast(dot->input[1]);
  bool is_across = false;
  for (const Node *node = dot->input[1]; cast && node != cast; node = node->input[0]) is_across = !is_across;
  return cast && cast->type.shape.rank == 2 && text_has_word(names, node_str(cast->input[0], ATTR_NAME)) && is_across != form.tb && !form.ta &&
         form.k % 8 == 0 && shape_elements(&dot->type.shape) > 0 && dot->input[0] != dot->input[1];
}

static Node *sparse_visit(Graph *fresh, const Node *old, Node **inputs, void *context) {
  const SparsePass *pass = context;
  if (!sparse_suits(old, pass->names, pass->is_hopper)) return NULL;
  for (const Node *node = old->input[1]; node->op != OP_PARAM; node = node->input[0])
    if (pass->is_read[node->id]) return NULL;
  Attr sparse = attr_int(ATTR_SPARSE, 1);
  return graph_copy_with(fresh, old, inputs, &old->type, &sparse, 1);
}

static bool *mark_read(const Graph *graph, const PassContext *context, bool is_hopper) {
  bool *is_read = ARENA_ARRAY(context->scratch, bool, graph->nodes.count + 1);
  for (int i = 0; i < graph->roots.count; i++) is_read[graph->roots.at[i].node->id] = true;
  for (int i = graph->nodes.count - 1; i >= 0; i--) {
    const Node *node = graph->nodes.at[i];
    bool is_product = sparse_suits(node, context->sparse, is_hopper), passes_on = is_on_the_way(node) && !is_read[i];
    for (int k = 0; k < node->input_count; k++)
      if (!passes_on && !(is_product && k == 1)) is_read[node->input[k]->id] = true;
  }
  return is_read;
}

Graph *pass_sparse(PassContext *context, Graph *graph) {
  if (!context->sparse) return graph;
  bool is_hopper = context->multiplies_float8 == FLOAT8_ALONG_K;
  SparsePass pass = {context->sparse, is_hopper, mark_read(graph, context, is_hopper)};
  return graph_rewrite(graph, sparse_visit, &pass);
}
