/* shrink_zero: where values are 0 whatever the inputs are, along one dimension at a time, given where the weights are. As long as
 * all numbers are finite: an infinity times 0 is not looked for. */
#include "passes/shrink.h"
#include "ir/scalar.h"
#include <string.h>

typedef struct {
  const Node *node;
  ShrinkValue **values, *out;
} Zeros;

static const ShrinkValue *zeros_in(const Zeros *z, int input) { return z->values[z->node->input[input]->id]; }

static bool is_zero_at(const ShrinkValue *value, int dim, int64_t at) { return value->is_zero || value->zero[dim][at]; }

static void zeros_copy(const Zeros *z, int input, int from, int to) {
  for (int64_t i = 0; i < z->node->type.shape.dim[to]; i++)
    if (is_zero_at(zeros_in(z, input), from, i)) z->out->zero[to][i] = true;
}

/* Is f(0, …) = 0? */
static bool is_zero_of_zeros(const Node *node) {
  Scalar in[3];
  memset(in, 0, sizeof in);
  Scalar out = scalar_eval(node->op, node->input[node->input_count - 1]->type.dtype, node->type.dtype, in);
  return dtype_is_float(node->type.dtype) ? out.f == 0 : out.i == 0;
}

static void zeros_pointwise(const Zeros *z) {
  const Node *node = z->node;
  bool is_product = node->op == OP_MUL || node->op == OP_AND, keeps = is_product || is_zero_of_zeros(node);
  bool is_quotient = node->op == OP_DIV, is_choice = node->op == OP_SELECT;
  if (!keeps && !is_quotient && !is_choice) return;
  int first = is_choice; /* whatever the condition is */
  for (int d = -1; d < node->type.shape.rank; d++) {
    int64_t count = d < 0 ? 1 : node->type.shape.dim[d];
    for (int64_t i = 0; i < count; i++) {
      int zeros = 0;
      for (int k = first; k < node->input_count; k++) {
        const ShrinkValue *in = zeros_in(z, k);
        bool is = d < 0 ? in->is_zero : is_zero_at(in, d, i);
        zeros += is && is_quotient ? (k ? -1 : 1) : is;
      }
      bool is = is_product || is_quotient ? zeros > 0 : zeros == node->input_count - first;
      if (is && d < 0) z->out->is_zero = true;
      if (is && d >= 0) z->out->zero[d][i] = true;
    }
  }
}

static void zeros_contract(const Zeros *z) {
  const Node *node = z->node;
  int last = node->type.shape.rank - 1;
  if (node->op == OP_DOT) {
    for (int d = 0; d < last - 1; d++) zeros_copy(z, 0, d, d), zeros_copy(z, 1, d, d);
    zeros_copy(z, 0, node_int(node, ATTR_TRANS_A, 0) ? last : last - 1, last - 1);
    zeros_copy(z, 1, node_int(node, ATTR_TRANS_B, 0) ? last - 1 : last, last);
  } else if (node->op == OP_CONV) {
    zeros_copy(z, 0, 0, 0);
    zeros_copy(z, 1, 0, 1);
  } else if (node->op == OP_CONV_GRAD_INPUT && node_int(node, ATTR_GROUPS, 1) == 1) {
    zeros_copy(z, 0, 0, 0);
    zeros_copy(z, 1, 1, 1);
  } else if (node->op == OP_ATTENTION && !node_attr(node, ATTR_HEADS)) {
    if (node->input[0]->type.shape.dim[1] == node->input[2]->type.shape.dim[1]) zeros_copy(z, 2, 1, 1);
    zeros_copy(z, 2, 3, 3);
  }
}

/* An element of the result's dimension is 0 where all that it has is. */
static void zeros_reshape(const Zeros *z) {
  const Shape *a = &z->node->input[0]->type.shape, *b = &z->node->type.shape;
  const ShrinkValue *in = zeros_in(z, 0);
  bool has_any = false;
  for (int d = 0; d < a->rank; d++)
    for (int64_t i = 0; i < a->dim[d]; i++) has_any = has_any || in->zero[d][i];
  int64_t count = shape_elements(b);
  if (!has_any || count > 1 << 26) return;
  for (int d = 0; d < b->rank; d++)
    for (int64_t i = 0; i < b->dim[d]; i++) z->out->zero[d][i] = true;
  for (int64_t i = 0; i < count; i++) {
    bool is_zero = false;
    int64_t at = i;
    for (int d = a->rank - 1; d >= 0; at /= a->dim[d--]) is_zero = is_zero || in->zero[d][at % a->dim[d]];
    at = i;
    for (int d = b->rank - 1; d >= 0 && !is_zero; at /= b->dim[d--]) z->out->zero[d][at % b->dim[d]] = false;
  }
}

static void zeros_slice(const Zeros *z) {
  const Attr *start = node_attr(z->node, ATTR_START), *step = node_attr(z->node, ATTR_STEP);
  for (int d = 0; d < z->node->type.shape.rank; d++)
    for (int64_t i = 0; i < z->node->type.shape.dim[d]; i++)
      z->out->zero[d][i] = zeros_in(z, 0)->zero[d][(start ? start->ints[d] : 0) + i * (step ? step->ints[d] : 1)];
}

static void zeros_pad(const Zeros *z) {
  const int64_t *low = node_attr(z->node, ATTR_LOW)->ints;
  if (node_float(z->node, ATTR_VALUE, 0) != 0) return;
  for (int d = 0; d < z->node->type.shape.rank; d++)
    for (int64_t i = 0; i < z->node->type.shape.dim[d]; i++) {
      int64_t at = i - low[d];
      bool is_inside = at >= 0 && at < z->node->input[0]->type.shape.dim[d];
      z->out->zero[d][i] = !is_inside || zeros_in(z, 0)->zero[d][at];
    }
}

static void zeros_concat(const Zeros *z) {
  int axis = (int)node_int(z->node, ATTR_AXIS, 0), count = z->node->input_count;
  for (int d = 0; d < z->node->type.shape.rank; d++) {
    int64_t at = 0;
    for (int64_t i = 0; d != axis && i < z->node->type.shape.dim[d]; i++) {
      int zeros = 0;
      for (int k = 0; k < count; k++) zeros += is_zero_at(zeros_in(z, k), d, i);
      z->out->zero[d][i] = zeros == count;
    }
    for (int k = 0; d == axis && k < count; at += z->node->input[k++]->type.shape.dim[d])
      for (int64_t i = 0; i < z->node->input[k]->type.shape.dim[d]; i++)
        z->out->zero[d][at + i] = is_zero_at(zeros_in(z, k), d, i);
  }
}

static void zeros_move(const Zeros *z) {
  const Node *node = z->node;
  const Attr *perm = node_attr(node, ATTR_PERM);
  if (node->op == OP_RESHAPE) zeros_reshape(z);
  if (node->op == OP_SLICE) zeros_slice(z);
  if (node->op == OP_PAD) zeros_pad(z);
  if (node->op == OP_CONCAT) zeros_concat(z);
  for (int d = 0; d < node->type.shape.rank; d++) {
    if (node->op == OP_TRANSPOSE) zeros_copy(z, 0, (int)perm->ints[d], d);
    if (node->op == OP_BROADCAST && node->input[0]->type.shape.dim[d] == node->type.shape.dim[d]) zeros_copy(z, 0, d, d);
  }
  int ahead = node->op == OP_GATHER ? node->input[1]->type.shape.rank : 0;
  for (int d = ahead; node->op == OP_GATHER && d < node->type.shape.rank; d++) zeros_copy(z, 0, d - ahead + 1, d);
  bool is_one_input = node->op != OP_GATHER && node->op != OP_CONCAT && node->op != OP_SCATTER_ADD && node->op != OP_PUT;
  if (is_one_input && (node->op != OP_PAD || node_float(node, ATTR_VALUE, 0) == 0)) z->out->is_zero = zeros_in(z, 0)->is_zero;
}

static void zeros_same(const Zeros *z) {
  z->out->is_zero = zeros_in(z, 0)->is_zero;
  for (int d = 0; d < z->node->type.shape.rank; d++)
    if (z->node->input[0]->type.shape.dim[d] == z->node->type.shape.dim[d]) zeros_copy(z, 0, d, d);
}

static void zeros_of(const Zeros *z) {
  const Node *node = z->node;
  switch (op_info[node->op].op_class) {
  case CLASS_LEAF:
    z->out->is_zero |= node->op == OP_CONST && node_float(node, ATTR_VALUE, 1) == 0;
    break;
  case CLASS_POINTWISE:
    zeros_pointwise(z);
    break;
  case CLASS_REDUCE: /* a dimension of 1 is 0 where the whole is: see below */
    if (node->op == OP_SUM || node->op == OP_RMAX || node->op == OP_RMIN) {
      const Attr *axes = node_attr(node, ATTR_AXES);
      z->out->is_zero = zeros_in(z, 0)->is_zero;
      for (int d = 0; d < node->type.shape.rank; d++) {
        bool is_reduced = false;
        for (int i = 0; i < axes->count; i++) is_reduced = is_reduced || axes->ints[i] == d;
        if (!is_reduced) zeros_copy(z, 0, d, d);
      }
    }
    break;
  case CLASS_CONTRACT:
    zeros_contract(z);
    break;
  case CLASS_WINDOW:
    if (node->op == OP_POOL_MAX || node->op == OP_POOL_AVG) zeros_copy(z, 0, 0, 0), zeros_copy(z, 0, 1, 1);
    break;
  case CLASS_MOVE:
    zeros_move(z);
    break;
  default:
    if (node->op == OP_STOP_GRADIENT || (node->op == OP_RESULT && node_int(node, ATTR_INDEX, 0) == 0)) zeros_same(z);
  }
}

void shrink_spread_zeros(Shrink *s) {
  for (int g = 0; g < s->graphs.count; g++)
    for (int i = 0; i < s->graphs.at[g]->nodes.count; i++) {
      const Node *node = s->graphs.at[g]->nodes.at[i];
      ShrinkValue *value = s->values.at[g][i];
      zeros_of(&(Zeros){node, s->values.at[g], value});
      for (int d = 0; d < node->type.shape.rank; d++) {
        int64_t zeros = 0;
        for (int64_t k = 0; k < node->type.shape.dim[d]; k++) zeros += value->zero[d][k];
        value->is_zero |= zeros == node->type.shape.dim[d];
      }
    }
}
