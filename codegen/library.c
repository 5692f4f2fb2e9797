/* library: see library.h. Here: one kernel, one call. What a kernel computes is told by values
 * (codegen/recognise.h), so it does not matter how the expression is written. Roundings to bf16 or
 * f16 within a kernel may be left out by the call. */
#include "codegen/library.h"
#include "codegen/nvptx_rounded.h"
#include "codegen/nvptx_sparse.h"
#include "codegen/recognise.h"
#include "passes/fuse.h"
#include "plan/plan_calls.h"

enum { MAX_INTS = 20 };

typedef struct {
  Arena *arena;
  const Node *node;
  const Graph *body; /* NULL: the product is not fused */
  const Node *product;
  int operand[2]; /* positions among the node's inputs */
  CallAct act;
  int bias, added; /* positions, or -1 */
  int d, aux;      /* results, or -1 */
} Product;

/* ── what comes behind the product ────────────────────────────────────────────────────────── */
typedef enum { ADDEND_NONE, ADDEND_BIAS, ADDEND_FULL, ADDEND_OTHER } Addend;

static Addend addend_of(const Product *p, const Node *leaf) {
  const Shape *out = &p->product->type.shape, *in = &leaf->type.shape;
  int64_t columns = out->dim[out->rank - 1];
  int64_t last = shape_last(in);
  if (shape_elements(in) == shape_elements(out)) return ADDEND_FULL;
  return shape_elements(in) == columns && last == columns ? ADDEND_BIAS : ADDEND_OTHER;
}

/* Every broadcast is of a constant, or of one value for each column. */
static bool broadcasts_are_plain(const Product *p) {
  for (int i = 0; i < p->body->nodes.count; i++) {
    const Node *node = p->body->nodes.at[i];
    if (node->op != OP_BROADCAST) continue;
    const Shape *in = &node->input[0]->type.shape, *out = &node->type.shape;
    const Node *leaf = node->input[0];
    while (leaf->op == OP_RESHAPE || leaf->op == OP_CAST) leaf = leaf->input[0];
    if (leaf->op == OP_CONST) continue;
    if (leaf->op != OP_ARG || shape_elements(out) != shape_elements(&p->product->type.shape))
      return false;
    for (int d = 0; d < out->rank; d++)
      if (in->dim[d] != (d == out->rank - 1 ? out->dim[d] : 1)) return false;
  }
  return true;
}

/* The operand besides the product's two that is a bias or a whole tensor; -1: none. */
static bool find_extra(const Product *p, int *extra, Addend *addend) {
  *extra = -1;
  *addend = ADDEND_NONE;
  for (int i = 0; i < p->body->nodes.count; i++) {
    const Node *leaf = p->body->nodes.at[i];
    if (leaf->op != OP_ARG) continue;
    int index = (int)node_int(leaf, ATTR_INDEX, 0);
    if (index == p->operand[0] || index == p->operand[1]) continue;
    if (*extra >= 0 && *extra != index) return false;
    *extra = index;
    *addend = addend_of(p, leaf);
  }
  return true;
}

/* Fills act, bias, added, d and aux; false if the kernel does something else. */
static bool recognise_epilogue(Product *p) {
  const Graph *body = p->body;
  int extra;
  Addend addend;
  Points base;
  if (body->roots.count > 2 || !find_extra(p, &extra, &addend) || addend == ADDEND_OTHER ||
      !broadcasts_are_plain(p))
    return false;
  Recogniser *r = recogniser_new(p->arena, body, p->product);
  for (int i = 0; i < RECOGNISE_POINTS; i++)
    base[i] = recognise_variable(r, -1)[i] + (extra >= 0 ? recognise_variable(r, extra)[i] : 0);
  const double *root[2] = {recognise_values(r, body->roots.at[0].node)};
  if (body->roots.count == 2) root[1] = recognise_values(r, body->roots.at[1].node);
  if (addend == ADDEND_BIAS) p->bias = extra;
  if (addend == ADDEND_FULL) p->added = extra;
  for (int i = 0; i < body->roots.count; i++)
    if (shape_elements(&body->roots.at[i].node->type.shape) !=
        shape_elements(&p->product->type.shape))
      return false;
  if (body->roots.count == 2) {
    p->aux = recognise_form(root[0], FORM_SAME, base) ? 0 : 1;
    p->d = 1 - p->aux;
    p->act = ACT_GELU;
    return recognise_form(root[p->aux], FORM_SAME, base) &&
           recognise_form(root[p->d], FORM_GELU, base);
  }
  static const struct {
    Form form;
    CallAct act;
  } forms[] = {{FORM_SAME, ACT_NONE}, {FORM_RELU, ACT_RELU}, {FORM_GELU, ACT_GELU}};
  for (int i = 0; i < 3; i++) {
    p->act = forms[i].act;
    if (recognise_form(root[0], forms[i].form, base)) return true;
  }
  return false;
}

/* ── what the library can do ──────────────────────────────────────────────────────────────── */
static const Type *library_result_type(const Product *p, int which) {
  return p->body ? &p->body->roots.at[which].node->type : &p->product->type;
}

static bool is_possible(const Product *p, const int *alias) {
  const DotForm f = dot_form(p->product);
  DType operands = p->node->input[p->operand[0]]->type.dtype,
        d = library_result_type(p, p->d)->dtype;
  if (d != operands && d != DT_F32) return false;
  if (p->bias >= 0 && p->node->input[p->bias]->type.dtype != d) return false;
  if (p->added >= 0 && (p->act != ACT_NONE || p->node->input[p->added]->type.dtype != d))
    return false;
  for (int i = 0; i < (p->aux >= 0 ? 2 : 1); i++) /* only over what is added */
    if (alias[i] != -1 && (p->added < 0 || alias[i] != p->added)) return false;
  if (p->aux < 0) return true;
  /* gelu's auxiliary rows are padded to 8 elements, and ours are not padded */
  return f.batch == 1 && library_result_type(p, p->aux)->dtype == d && f.n % 8 == 0;
}

static int library_compute(const Product *p) {
  DType operands = p->node->input[p->operand[0]]->type.dtype;
  if (operands == DT_F32) return node_int(p->product, ATTR_TF32, 0) ? COMPUTE_TF32 : COMPUTE_F32;
  return operands == DT_BF16 ? COMPUTE_BF16 : COMPUTE_F16;
}

static void fill_call(const Product *p, KernelLaunch *out) {
  const DotForm f = dot_form(p->product);
  const PlanInt ints[] = {{"batch", f.batch},
                          {"m", f.m},
                          {"n", f.n},
                          {"k", f.k},
                          {"ta", f.ta},
                          {"tb", f.tb},
                          {"compute", library_compute(p)},
                          {"bias", p->bias >= 0},
                          {"act", p->act},
                          {"aux", p->aux >= 0},
                          {"sums", 0},
                          {"accumulate", p->added >= 0}};
  *out = (KernelLaunch){.name = "matmul", .is_call = true};
  out->ints = ARENA_ARRAY(p->arena, PlanInt, MAX_INTS);
  for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) out->ints[out->int_count++] = ints[i];
  out->args = ARENA_ARRAY(p->arena, int, CALL_MAX_ARGS);
  out->args[out->arg_count++] = p->operand[0];
  out->args[out->arg_count++] = p->operand[1];
  if (p->bias >= 0) out->args[out->arg_count++] = p->bias;
  if (p->added >= 0) out->args[out->arg_count++] = p->added;
  out->input_count = out->arg_count;
  out->args[out->arg_count++] = p->node->input_count + p->d;
  if (p->aux >= 0) out->args[out->arg_count++] = p->node->input_count + p->aux;
}

/* A product that the library has: of two operands of one type, which is not f64 nor one of 8 bits. */
static bool open_product_of(Arena *arena, const Node *node, Product *p) {
  *p = (Product){.arena = arena,
                 .node = node,
                 .body = node->op == OP_FUSED ? node->body : NULL,
                 .product = kernel_contraction(node),
                 .bias = -1,
                 .added = -1,
                 .aux = -1};
  if (!p->product || p->product->op != OP_DOT || !shape_elements(&p->product->type.shape) ||
      node_attr(p->product, ATTR_INTEGERS) || /* whose sums f32 does not have exactly */
      nvptx_rounded_suits(node, p->product) || nvptx_sparse_suits(node, p->product) || /* which read packed weights */
      !dot_form(p->product).k)
    return false;
  for (int i = 0; i < 2; i++) p->operand[i] = kernel_operand(node, i);
  DType operands = node->input[p->operand[0]]->type.dtype;
  return operands != DT_F64 && !dtype_is_float8(operands) &&
         operands == node->input[p->operand[1]]->type.dtype;
}

bool library_call(Arena *arena, const Node *node, const int *alias, KernelLaunch *out) {
  Product p;
  if (!open_product_of(arena, node, &p)) return false;
  if (p.body && !recognise_epilogue(&p)) return false;
  if (!is_possible(&p, alias)) return false;
  fill_call(&p, out);
  return true;
}

bool library_product(Arena *arena, const Node *node, KernelLaunch *out) {
  Product p;
  if (!open_product_of(arena, node, &p)) return false;
  fill_call(&p, out);
  return true;
}
