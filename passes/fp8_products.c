/* fp8_products: matrix products whose operands were rounded to 8-bit floats (float8.h) read them as such, where the GPU
 * multiplies these (PassContext.multiplies_float8). What was rounded by arithmetic of f32 and then cast to bf16 is cast to
 * e4m3 or e5m2 in their place, which is half the memory. The values are the same: a cast to these types rounds as
 * round_e4m3 and round_e5m2 do. The sums of a product are f32, as before, and are multiplied by the inverse scales
 * behind it.
 *
 * FLOAT8_ALONG_K (Hopper): an operand whose neighbours in memory are not neighbours in k is transposed in 8 bits, and
 * simplify and fuse leave that so. What forward and backward multiply lies in memory twice, a byte an element each time.
 * All dimensions must be whole pieces of 16 bytes, or so long that the pass pitch may pad them: rows of both orders then are.
 *
 * A product stays as it is where one operand is not such, or where its result is not f32. Then what both kinds of
 * products read is made twice. */
#include "passes/pass.h"
#include "passes/pitch.h"

typedef struct {
  const Graph *old;
  bool *is_wanted; /* by old node: a cast to bf16 whose 8-bit form a product takes */
  Node **made;     /* … that form, in the new graph */
  bool is_along_k, may_pad;
} Fp8Products;

static const Node *behind_moves(const Node *node) {
  while (node->op == OP_RESHAPE || node->op == OP_TRANSPOSE) node = node->input[0];
  return node;
}

static bool is_rounded_cast(const Node *node) {
  if (node->op != OP_CAST || node->type.dtype != DT_BF16) return false;
  const Node *rounded = node->input[0];
  return rounded->type.dtype == DT_F32 && (rounded->op == OP_ROUND_E4M3 || rounded->op == OP_ROUND_E5M2);
}

enum { PIECE = 16 };

static bool is_whole_row(const Fp8Products *p, int64_t length) {
  Type row = {DT_E4M3, {1, {length}}};
  return length % PIECE == 0 || (p->may_pad && pitch_for(&row));
}

static bool has_whole_rows(const Fp8Products *p, const Node *dot) {
  const DotForm form = dot_form(dot);
  return is_whole_row(p, form.m) && is_whole_row(p, form.n) && is_whole_row(p, form.k);
}

static bool is_fp8_product(const Fp8Products *p, const Node *node) {
  return node->op == OP_DOT && node->type.dtype == DT_F32 && shape_elements(&node->type.shape) &&
         shape_elements(&node->input[0]->type.shape) && is_rounded_cast(behind_moves(node->input[0])) &&
         is_rounded_cast(behind_moves(node->input[1])) && (!p->is_along_k || has_whole_rows(p, node));
}

/* The operand in its 8-bit form, behind the same views. */
static Node *fp8_operand(const Fp8Products *p, Graph *fresh, const Node *old) {
  if (is_rounded_cast(old)) return p->made[old->id];
  Node *input = fp8_operand(p, fresh, old->input[0]);
  fresh->origin = old->origin;
  return graph_copy_as(fresh, old, &input, &(Type){input->type.dtype, old->type.shape});
}

static Node *turned_float8(Graph *graph, Node *x) {
  int64_t perm[MAX_RANK];
  perm_of_matrices(x->type.shape.rank, perm);
  return make_transpose(graph, x, perm);
}

/* Operand k of the product, with neighbours in k. */
static Node *operand_along_k(const Fp8Products *p, Graph *fresh, const Node *old, int k) {
  Node *operand = fp8_operand(p, fresh, old->input[k]);
  bool is_turned = node_int(old, k ? ATTR_TRANS_B : ATTR_TRANS_A, 0) != k;
  return is_turned ? turned_float8(fresh, operand) : operand;
}

static Node *fp8_visit(Graph *fresh, const Node *old, Node **inputs, void *context) {
  Fp8Products *p = context;
  if (p->is_wanted[old->id]) {
    DType dtype = old->input[0]->op == OP_ROUND_E4M3 ? DT_E4M3 : DT_E5M2;
    Node *made = make_cast(fresh, inputs[0]->input[0], dtype);
    node_set_attr(fresh, made, attr_str(ATTR_WHY, "operand of a product of 8-bit floats"));
    p->made[old->id] = made;
  }
  if (!is_fp8_product(p, old)) return NULL;
  Node *operands[2];
  for (int k = 0; k < 2; k++)
    operands[k] = p->is_along_k ? operand_along_k(p, fresh, old, k) : fp8_operand(p, fresh, old->input[k]);
  fresh->origin = old->origin;
  if (p->is_along_k) return make_dot_like(fresh, old, operands[0], operands[1], false, true);
  return graph_copy_node(fresh, old, operands);
}

Graph *pass_fp8_products(PassContext *context, Graph *graph) {
  if (!context->multiplies_float8) return graph;
  int count = graph->nodes.count;
  Fp8Products p = {.old = graph,
                   .is_wanted = ARENA_ARRAY(context->scratch, bool, count),
                   .made = ARENA_ARRAY(context->scratch, Node *, count),
                   .is_along_k = context->multiplies_float8 == FLOAT8_ALONG_K,
                   .may_pad = !text_has_word(context->left_out, "pitch")};
  bool found = false;
  for (int i = 0; i < count; i++) {
    const Node *node = graph->nodes.at[i];
    if (!is_fp8_product(&p, node)) continue;
    found = true;
    for (int k = 0; k < 2; k++) p.is_wanted[behind_moves(node->input[k])->id] = true;
  }
  return found ? pass_dce(context, graph_rewrite(graph, fp8_visit, &p)) : graph;
}
