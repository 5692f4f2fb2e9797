/* precision: gives every value of a step the type that train.precision, or the layer's own
 * `precision=`, asks for. It runs between autodiff, whose rules then see plain f32 and whose
 * gradients are treated by the same policy, and the optimizer, which stays in f32 as it is:
 *
 * - contractions: operands of bf16 (f16), sums in f32; the result is rounded once, with its bias if
 *   one is added; a bias that is a parameter is rounded too, as autocast does and as libraries want
 *   it; a parameter's gradient keeps the f32 sums
 * - tf32: contractions keep f32 operands and are marked; only the GPU's products differ
 * - exact ops: moves, max, relu and the like follow narrow operands: no value changes
 * - everything else (pointwise, reductions, norms, softmax, losses) is computed in f32, and rounded
 *   once where a contraction or a pooling reads it. If it was computed from rounded values only, as
 *   an activation is, all its consumers read the rounded value, so that memory holds it in the
 *   narrow type only. Pointwise work on it, forward and backward, begins at the same rounded value;
 *   widening it is exact, and the f32 form is never stored (fuse_unit.c), as in PyTorch's autocast
 * - a contraction of which ranks make a share each (distributed.tensor) keeps its f32 sums, and is
 *   rounded when they are joined
 * - a sum of a contraction's gradient and others is rounded as its terms are, so that the gradient
 *   of a narrow value is narrow too (the shortcuts of a residual network)
 * - fp8: as bf16, and operands of matrix products are rounded to 8-bit floats before (float8.h). These
 *   products keep their f32 sums, and are rounded when they are divided by the scales
 * - attention: kept whole, in f32 inside; its operands and its result are rounded
 * - parameters: f32, with a narrow copy for their contractions; or bf16 only (train.parameters)
 *
 * Every rounding is a cast in the graph, so the interpreter rounds where compiled code does. The
 * attribute `why` tells a reader the reason of each type. */
#include "ir/scalar.h"
#include "ir/match.h"
#include "passes/float8.h"
#include "passes/forms.h"
#include <string.h>

typedef struct {
  const PassContext *context;
  const Graph *old;
  Graph *fresh;
  DType narrow; /* of the setting; F32: none */
  DType params; /* how parameters are kept */
  bool is_tf32;
  bool *reaches; /* by old node: a contraction takes it, or what is made of it */
  int *uses;
  DType *wanted;       /* a narrow contraction takes the value itself; F32: none */
  bool *in_window;     /* a pooling takes it */
  bool *in_sum;        /* backward adds something to it */
  const Node **share;  /* of a sum over ranks: the contraction whose shares it joins */
  bool *is_share;      /* such a contraction */
  bool *is_pending;    /* a contraction's result whose bias is yet to be added */
  DType *kept, *may;   /* the narrow type that all readers see, or could; F32: none */
  Forms values;        /* a form is a narrow type, or F32: as the graph before had it */
} Precision;

static bool is_rounded_contraction(const Node *node) {
  return op_info[node->op].op_class == CLASS_CONTRACT && node->type.dtype == DT_F32 &&
         (node->op == OP_DOT || node->op == OP_CONV || node->op == OP_CONV_GRAD_INPUT ||
          node->op == OP_CONV_GRAD_WEIGHT);
}

/* ── the policy ─────────────────────────────────────────────────────────────────────────────── */
static bool parse_precision(const char *text, DType *narrow, bool *is_tf32) {
  *is_tf32 = strcmp(text, "tf32") == 0;
  bool is_wide_range = strcmp(text, "bf16") == 0 || strcmp(text, "fp8") == 0;
  *narrow = is_wide_range ? DT_BF16 : strcmp(text, "fp16") == 0 ? DT_F16 : DT_F32;
  return *is_tf32 || *narrow != DT_F32 || strcmp(text, "f32") == 0;
}

static DType policy(const Precision *p, const Node *contraction, bool *is_tf32) {
  const char *own = node_str(contraction, ATTR_PRECISION);
  DType narrow = p->narrow;
  *is_tf32 = p->is_tf32;
  if (own) parse_precision(own, &narrow, is_tf32);
  return narrow;
}

static bool is_attention(const Node *node) {
  return node->op == OP_ATTENTION || node->op == OP_ATTENTION_GRAD;
}

/* The type that attention rounds operand `k` to; F32 of its mask and its logarithms of sums. */
static DType attention_policy(const Precision *p, const Node *node, int k) {
  bool is_tf32, is_grad = node->op == OP_ATTENTION_GRAD;
  return k < (is_grad ? 5 : 3) ? policy(p, node, &is_tf32) : DT_F32;
}

/* ── what lies ahead of a value ─────────────────────────────────────────────────────────────── */
static const Node *strip_moves(const Node *node) {
  while (node->op == OP_RESHAPE || node->op == OP_TRANSPOSE) node = node->input[0];
  return node;
}

static void look_ahead(Precision *p) {
  for (int i = p->old->nodes.count - 1; i >= 0; i--) {
    const Node *node = p->old->nodes.at[i];
    bool is_tf32, takes = is_rounded_contraction(node);
    bool pools = node->op == OP_POOL_MAX || node->op == OP_POOL_INDEX || node->op == OP_POOL_AVG;
    for (int k = 0; k < node->input_count; k++) {
      const Node *base = strip_moves(node->input[k]);
      p->reaches[node->input[k]->id] |= takes || p->reaches[i];
      if (takes && policy(p, node, &is_tf32) != DT_F32)
        p->wanted[base->id] = policy(p, node, &is_tf32);
      if (is_attention(node)) p->reaches[node->input[k]->id] = true;
      if (is_attention(node) && attention_policy(p, node, k) != DT_F32)
        p->wanted[base->id] = attention_policy(p, node, k);
      p->in_window[base->id] |= pools;
      p->in_sum[node->input[k]->id] |= node->origin.is_backward && node->op == OP_ADD;
    }
  }
}

/* x + a vector along some dimension: the bias of the contraction that made x. */
static bool is_bias_of(const Node *add, const Node *x) {
  if (add->op != OP_ADD) return false;
  const Node *other = add->input[add->input[0] == x];
  return other != x && other->op == OP_BROADCAST &&
         shape_elements(&other->input[0]->type.shape) < shape_elements(&other->type.shape);
}

/* x, or what it is a view of that nothing else reads. */
static const Node *behind_views(const Precision *p, const Node *x) {
  while (x->op == OP_RESHAPE && p->uses[x->id] == 1) x = x->input[0];
  return x;
}

/* The contraction whose shares this is the sum of over ranks, or whose scales this takes out again; NULL: of none. */
static const Node *joined_contraction(const Precision *p, const Node *node) {
  if (node->op == OP_MUL && float8_is_product(p->context, node->input[0])) return node->input[0];
  const Node *join = node->op == OP_RESULT ? node->input[0] : node;
  if (join->op != OP_ALL_REDUCE && join->op != OP_REDUCE_SCATTER) return NULL;
  const char *reduction = node_str(join, ATTR_REDUCTION);
  if (node_axis(join) != MESH_TENSOR || strcmp(reduction, op_info[OP_SUM].text) != 0) return NULL;
  const Node *share = join->input[0];
  bool is_value = join->op == OP_REDUCE_SCATTER || node != join;
  while ((share->op == OP_RESHAPE || share->op == OP_TRANSPOSE) && p->uses[share->id] == 1)
    share = share->input[0];
  bool is_one = is_value && is_rounded_contraction(share) && p->uses[share->id] == 1;
  return is_one ? share : NULL;
}

static bool is_last_gradient(const Precision *p, const Node *node) {
  return node->origin.is_backward && !p->reaches[node->id];
}

static void find_joined(Precision *p) {
  for (int i = 0; i < p->old->nodes.count; i++) {
    const Node *node = p->old->nodes.at[i], *share = joined_contraction(p, node);
    if (!share) continue;
    p->is_share[share->id] = true;
    bool is_gradient = node->op == OP_MUL && is_last_gradient(p, node);
    p->share[i] = is_gradient ? NULL : share;
  }
}

static void find_pending(Precision *p) {
  for (int i = 0; i < p->old->nodes.count; i++) {
    const Node *node = p->old->nodes.at[i];
    for (int k = 0; k < node->input_count; k++) {
      const Node *x = behind_views(p, node->input[k]);
      bool is_product = is_rounded_contraction(x) || p->share[x->id];
      if (is_product && !x->origin.is_backward && p->uses[x->id] == 1 &&
          is_bias_of(node, node->input[k]))
        p->is_pending[x->id] = true;
    }
  }
}

/* ── forms of a value ───────────────────────────────────────────────────────────────────────── */
static Node *explain(Precision *p, Node *node, const char *why) {
  node_set_attr(p->fresh, node, attr_str(ATTR_WHY, why));
  return node;
}

static Node *precision_cast(Precision *p, Node *x, DType dtype, const Node *old, const char *why) {
  p->fresh->origin = old->origin;
  Node *made = make_cast(p->fresh, x, dtype);
  return made == x ? x : explain(p, made, why);
}

static const char *precision_name(DType dtype) {
  return dtype == DT_F16 ? "fp16" : dtype_text(dtype);
}

static const char *say(Precision *p, DType dtype, const char *reason) {
  return arena_printf(p->fresh->arena, "%s: %s", precision_name(dtype), reason);
}

static Node *in_wide(Precision *p, const Node *old) { return forms_get(&p->values, old, DT_F32); }

static Node *copy_with_type(Precision *p, const Node *old, Node *const *inputs, DType dtype) {
  return graph_copy_as(p->fresh, old, inputs, &(Type){dtype, old->type.shape});
}

/* ── ops of which nothing is rounded ────────────────────────────────────────────────────────── */
static bool windows_overlap(const Node *node) {
  const Attr *kernel = node_attr(node, ATTR_KERNEL), *stride = node_attr(node, ATTR_STRIDE);
  if (!stride) return false;
  return kernel->ints[0] > stride->ints[0] || kernel->ints[1] > stride->ints[1];
}

static bool moves_exactly(const Node *node) {
  if (node->op == OP_PAD) return node_float(node, ATTR_VALUE, 0) == 0;
  if (node->op == OP_POOL_MAX_GRAD) return !windows_overlap(node);
  return op_has(node->op, TRAIT_EXACT);
}

/* The type in which all operands are narrow or constants that exist in it; F32: there is none. */
static DType common_narrow(const Precision *p, const Node *node) {
  DType common = DT_F32;
  for (int k = 0; k < node->input_count; k++) {
    const Node *x = node->input[k];
    if (x->type.dtype != DT_F32 || x->op == OP_CONST) continue;
    if (p->kept[x->id] == DT_F32 || (common != DT_F32 && p->kept[x->id] != common)) return DT_F32;
    common = p->kept[x->id];
  }
  for (int k = 0; common != DT_F32 && k < node->input_count; k++) {
    const Node *x = node->input[k];
    double value = x->op == OP_CONST ? node_float(x, ATTR_VALUE, 0) : 0;
    if (x->type.dtype == DT_F32 && dtype_round(common, value) != value) return DT_F32;
  }
  return common;
}

static Node **operands(Precision *p, const Node *node, DType narrow) {
  Node **inputs = ARENA_ARRAY(p->fresh->arena, Node *, node->input_count);
  for (int k = 0; k < node->input_count; k++) {
    Node *x = node->input[k];
    bool is_narrow = narrow != DT_F32 && x->type.dtype == DT_F32;
    p->fresh->origin = x->origin;
    if (is_narrow && x->op == OP_CONST)
      inputs[k] = make_const(p->fresh, narrow, x->type.shape, node_float(x, ATTR_VALUE, 0));
    else
      inputs[k] = forms_get(&p->values, x, is_narrow ? narrow : DT_F32);
  }
  return inputs;
}

static DType exact_type(const Precision *p, const Node *node) {
  return moves_exactly(node) ? common_narrow(p, node) : DT_F32;
}

static Node *exact(Precision *p, const Node *node, DType narrow) {
  DType dtype = node->type.dtype == DT_F32 ? narrow : node->type.dtype;
  Node *made = copy_with_type(p, node, operands(p, node, narrow), dtype);
  return explain(p, made, say(p, narrow, "exact"));
}

/* ── contractions ───────────────────────────────────────────────────────────────────────────── */
/* Does the setting or the layer say anything of its type? */
static bool has_policy(const Precision *p, const Node *node) {
  bool is_tf32;
  return policy(p, node, &is_tf32) != DT_F32 || is_tf32 || p->narrow != DT_F32 || p->is_tf32;
}

static bool keeps_sums(const Precision *p, const Node *node) {
  return is_last_gradient(p, node) || p->is_pending[node->id] || p->is_share[node->id];
}

static Node *contraction(Precision *p, const Node *node) {
  bool is_tf32, has_own = node_str(node, ATTR_PRECISION) != NULL;
  DType narrow = policy(p, node, &is_tf32);
  Node **inputs = operands(p, node, narrow);
  const char *cause = has_own ? "contraction, as the layer says" : "contraction";
  if (narrow == DT_F32) {
    Node *made = copy_with_type(p, node, inputs, DT_F32);
    if (is_tf32) node_set_attr(p->fresh, made, attr_bool(ATTR_TF32, true));
    const char *type = is_tf32 ? "tf32" : "f32";
    return explain(p, made, arena_printf(p->fresh->arena, "%s: %s", type, cause));
  }
  bool is_summed = keeps_sums(p, node);
  Attr result = attr_int(ATTR_RESULT, DT_F32);
  Type type = {is_summed ? DT_F32 : narrow, node->type.shape};
  Node *made = graph_copy_with(p->fresh, node, inputs, &type, &result, is_summed);
  node_drop_attr(made, ATTR_STREAM); /* it has its scales */
  const char *rest = float8_is_product(p->context, node)
                         ? " of 8-bit floats, its f32 sums are divided by the scales"
                     : is_last_gradient(p, node) ? ", its f32 sums are a gradient"
                     : p->is_share[node->id]   ? ", its f32 sums meet those of other ranks"
                     : is_summed               ? ", its f32 sums meet a bias"
                                               : "";
  return explain(p, made, say(p, narrow, arena_printf(p->fresh->arena, "%s%s", cause, rest)));
}

/* Its operands, rounded; not its mask and its logarithms of sums. */
static Node *precision_attention(Precision *p, const Node *node) {
  bool is_tf32;
  DType narrow = policy(p, node, &is_tf32);
  Node **inputs = ARENA_ARRAY(p->fresh->arena, Node *, node->input_count);
  for (int k = 0; k < node->input_count; k++)
    inputs[k] = forms_get(&p->values, node->input[k], attention_policy(p, node, k));
  Node *made = copy_with_type(p, node, inputs, narrow);
  bool is_marked = is_tf32 && narrow == DT_F32;
  if (is_marked) node_set_attr(p->fresh, made, attr_bool(ATTR_TF32, true));
  const char *type = is_marked ? "tf32" : precision_name(narrow);
  return explain(p, made, arena_printf(p->fresh->arena, "%s: attention, f32 within", type));
}

static bool is_result_of_attention(const Node *node) {
  return node->op == OP_RESULT && is_attention(node->input[0]) && node->type.dtype == DT_F32;
}

/* What attention gives is rounded as a contraction's result is, but for the logarithms. */
static DType precision_result_type(const Precision *p, const Node *node) {
  bool is_tf32, is_logarithm = node->input[0]->op == OP_ATTENTION && node_int(node, ATTR_INDEX, 0);
  return is_logarithm ? DT_F32 : policy(p, node->input[0], &is_tf32);
}

static Node *attention_result(Precision *p, const Node *node) {
  Node *of = in_wide(p, node->input[0]);
  p->fresh->origin = node->origin;
  Node *made = make_result(p->fresh, of, node_int(node, ATTR_INDEX, 0));
  DType dtype = made->type.dtype;
  return dtype == DT_F32 ? made : explain(p, made, say(p, dtype, "result of attention"));
}

/* ── all others ─────────────────────────────────────────────────────────────────────────────── */
/* Is the value made of rounded ones only, but for what is small beside it? */
static DType may_keep(const Precision *p, const Node *node) {
  OpClass op_class = op_info[node->op].op_class;
  if (node->type.dtype != DT_F32 ||
      (op_class != CLASS_POINTWISE && op_class != CLASS_MOVE && op_class != CLASS_WINDOW))
    return DT_F32;
  DType common = DT_F32;
  int64_t elements = shape_elements(&node->type.shape);
  for (int k = 0; k < node->input_count; k++) {
    const Node *x = node->input[k];
    while (x->op == OP_BROADCAST) x = x->input[0];
    if (x->type.dtype != DT_F32 || x->op == OP_CONST || x->op == OP_RANDOM) continue;
    if (p->may[x->id] == DT_F32) {
      if (shape_elements(&x->type.shape) * 2 > elements) return DT_F32;
      continue;
    }
    if (common != DT_F32 && p->may[x->id] != common) return DT_F32;
    common = p->may[x->id];
  }
  return common;
}

static const char *precision_reason(const Node *node) {
  switch (op_info[node->op].op_class) {
  case CLASS_REDUCE:
    return "f32: reduction";
  case CLASS_WINDOW:
    return "f32: sums of a window";
  case CLASS_LEAF:
    return node->op == OP_PARAM ? "f32: master weights" : NULL;
  case CLASS_STRUCT:
    return NULL;
  default:
    return node->op == OP_SCATTER_ADD ? "f32: sums" : "f32: arithmetic";
  }
}

/* Which operand is the bias that a narrow contraction has waited for; -1: none. */
static int find_bias(const Precision *p, const Node *node) {
  for (int k = 0; k < node->input_count && node->op == OP_ADD; k++) {
    const Node *x = behind_views(p, node->input[k]);
    if (p->is_pending[x->id] && p->may[x->id] != DT_F32) return 1 - k;
  }
  return -1;
}

/* A bias that is a parameter is rounded, as its weight is. */
static Node *round_bias(Precision *p, const Node *bias, DType dtype) {
  const Node *base = bias;
  while (base->op == OP_RESHAPE || base->op == OP_BROADCAST) base = base->input[0];
  if (base->op != OP_PARAM) return in_wide(p, bias);
  Node *rounded = forms_get(&p->values, bias, dtype);
  return precision_cast(p, rounded, DT_F32, bias, "f32: arithmetic");
}

/* A sum over all dimensions but the last: a bias's gradient. */
static bool is_bias_gradient(const Node *node) {
  return node->origin.is_backward && node->type.shape.rank > 1 && match_column_sum(node);
}

/* The operand of a bias's gradient: the narrow form of the values, which the weight's gradient
 * reads too, and which is half as much to read. */
static Node *summed_operand(Precision *p, const Node *values) {
  DType narrow = p->wanted[strip_moves(values)->id];
  if (narrow == DT_F32) return in_wide(p, values);
  Node *rounded = forms_get(&p->values, values, narrow);
  return precision_cast(p, rounded, DT_F32, values, "f32: reduction");
}

/* A value with several readers, one of which is a contraction, has a gradient that is a sum. The
 * sum is rounded as its terms are, and once, however many terms there are. Is this the node of that
 * sum? */
static bool is_sum_of_gradients(const Precision *p, const Node *node) {
  if (!node->origin.is_backward || node->op != OP_ADD) return false;
  if (p->in_sum[node->id] && p->uses[node->id] == 1) return false;
  const Node *a = node->input[0], *b = node->input[1];
  return (p->kept[a->id] != DT_F32 && b->op != OP_BROADCAST) ||
         (p->kept[b->id] != DT_F32 && a->op != OP_BROADCAST);
}

/* The value is computed in f32. Why do all its readers see it rounded to may[]? NULL: they do
 * not. */
static const char *why_rounded(const Precision *p, const Node *node) {
  int id = node->id;
  if (p->may[id] == DT_F32) return NULL;
  if (p->share[id]) return p->is_pending[id] ? NULL : "result of a contraction, joined";
  if (find_bias(p, node) >= 0) return "result of a contraction and its bias";
  if (is_sum_of_gradients(p, node)) return "sum of gradients";
  return p->wanted[id] == p->may[id] || p->in_window[id] ? "kept for a contraction" : NULL;
}

static Node *in_f32(Precision *p, const Node *node) {
  int bias = find_bias(p, node);
  DType may = p->may[node->id];
  Node **inputs = operands(p, node, DT_F32);
  if (is_bias_gradient(node)) inputs[0] = summed_operand(p, node->input[0]);
  if (bias >= 0 && may != DT_F32) inputs[bias] = round_bias(p, node->input[bias], may);
  Node *made = graph_copy_node(p->fresh, node, inputs);
  bool is_single = node->type.dtype == DT_F32;
  if (is_single && precision_reason(node)) explain(p, made, precision_reason(node));
  const char *why = why_rounded(p, node);
  return why ? precision_cast(p, made, may, node, say(p, may, why)) : made;
}

/* ── one node ───────────────────────────────────────────────────────────────────────────────── */
typedef enum { BY_SUMS, BY_ATTENTION, BY_RESULT, BY_PARAM, BY_MOVE, BY_ARITHMETIC } Treatment;

static Treatment treatment(const Precision *p, const Node *node) {
  bool is_single = node->type.dtype == DT_F32;
  if (is_rounded_contraction(node) && has_policy(p, node)) return BY_SUMS;
  if (is_attention(node) && is_single && has_policy(p, node)) return BY_ATTENTION;
  if (is_result_of_attention(node)) return BY_RESULT;
  if (node->op == OP_PARAM && p->params != DT_F32) return BY_PARAM;
  return exact_type(p, node) != DT_F32 ? BY_MOVE : BY_ARITHMETIC;
}

/* The types that its readers see and could see, when those of its operands are decided. */
static void decide(Precision *p, const Node *node) {
  DType *kept = &p->kept[node->id], *may = &p->may[node->id];
  bool is_tf32;
  switch (treatment(p, node)) {
  case BY_SUMS:
    *may = policy(p, node, &is_tf32);
    *kept = keeps_sums(p, node) ? DT_F32 : *may;
    return;
  case BY_ATTENTION:
    return;
  case BY_RESULT:
    *kept = *may = precision_result_type(p, node);
    return;
  case BY_PARAM: /* without an f32 copy: what is not a contraction widens it */
    *kept = *may = p->params;
    return;
  case BY_MOVE:
    if (node->type.dtype == DT_F32) *kept = *may = exact_type(p, node);
    return;
  case BY_ARITHMETIC:
    *may = p->share[node->id] ? policy(p, p->share[node->id], &is_tf32) : may_keep(p, node);
    if (why_rounded(p, node)) *kept = *may;
    return;
  }
}

static Node *precision_computed(Precision *p, const Node *node) {
  switch (treatment(p, node)) {
  case BY_SUMS:
    return contraction(p, node);
  case BY_ATTENTION:
    return precision_attention(p, node);
  case BY_RESULT:
    return attention_result(p, node);
  case BY_PARAM:
    return explain(p, copy_with_type(p, node, NULL, p->params), say(p, p->params, "parameter"));
  case BY_MOVE:
    return exact(p, node, exact_type(p, node));
  case BY_ARITHMETIC:
    break;
  }
  return in_f32(p, node);
}

/* A value as it is computed; or widened; or in a narrow type that only one reader wants: a view of
 * what is narrow already, or a rounded copy. */
static Node *precision_make(void *pass, const Node *old, int form) {
  Precision *p = pass;
  DType dtype = (DType)form, kept = p->kept[old->id];
  if (dtype == kept) return precision_computed(p, old);
  if (dtype == DT_F32)
    return precision_cast(p, forms_get(&p->values, old, kept), dtype, old, "f32: arithmetic");
  if (old->op == OP_RESHAPE || old->op == OP_TRANSPOSE || old->op == OP_BROADCAST) {
    Node *input = forms_get(&p->values, old->input[0], dtype);
    return explain(p, copy_with_type(p, old, &input, dtype), say(p, dtype, "exact"));
  }
  if (old->op == OP_ALL_GATHER) { /* half the bytes */
    Node *input = forms_get(&p->values, old->input[0], dtype);
    p->fresh->origin = old->origin;
    return copy_with_type(p, old, &input, dtype);
  }
  return precision_cast(p, in_wide(p, old), dtype, old, say(p, dtype, "operand of a contraction"));
}

static bool has_own_precision(const Graph *graph) {
  for (int i = 0; i < graph->nodes.count; i++)
    if (node_str(graph->nodes.at[i], ATTR_PRECISION)) return true;
  return false;
}

Graph *pass_precision(PassContext *context, Graph *graph) {
  graph = float8_scale(context, graph);
  if (!graph) return NULL;
  Precision p = {.context = context, .old = graph, .narrow = DT_F32, .params = DT_F32};
  if (context->settings) {
    parse_precision(setting_text(context->settings, "train.precision"), &p.narrow, &p.is_tf32);
    if (!strcmp(setting_text(context->settings, "train.parameters"), "bf16")) p.params = DT_BF16;
  }
  if (p.narrow == DT_F32 && !p.is_tf32 && p.params == DT_F32 && !has_own_precision(graph))
    return graph;
  int count = graph->nodes.count;
  Arena *arena = context->scratch;
  p.fresh = graph_new(graph->arena, graph->name);
  p.uses = graph_use_counts(graph, arena);
  p.reaches = ARENA_ARRAY(arena, bool, count);
  p.in_window = ARENA_ARRAY(arena, bool, count);
  p.in_sum = ARENA_ARRAY(arena, bool, count);
  p.is_pending = ARENA_ARRAY(arena, bool, count);
  p.share = ARENA_ARRAY(arena, const Node *, count);
  p.is_share = ARENA_ARRAY(arena, bool, count);
  p.wanted = ARENA_ARRAY(arena, DType, count);
  p.kept = ARENA_ARRAY(arena, DType, count);
  p.may = ARENA_ARRAY(arena, DType, count);
  p.values = (Forms){graph, p.fresh, precision_make, &p, {.arena = arena}};
  for (int i = 0; i < count; i++) p.wanted[i] = p.kept[i] = p.may[i] = DT_F32;
  look_ahead(&p);
  find_joined(&p);
  find_pending(&p);
  for (int i = 0; i < count; i++) decide(&p, graph->nodes.at[i]);
  for (int i = 0; i < count; i++) forms_get(&p.values, graph->nodes.at[i], p.kept[i]);
  return forms_end(&p.values, DT_F32);
}
