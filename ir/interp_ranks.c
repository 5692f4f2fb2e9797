/* interp_ranks: collectives. Ranks are evaluated in turns, node by node, so that the operands of all
 * of them are there. */
#include "ir/interp.h"
#include "ir/scalar.h"

static Scalar scalar_at(const Tensor *tensor, int64_t i) {
  return tensor->f ? (Scalar){.f = tensor->f[i]} : (Scalar){.i = tensor->i[i]};
}

static void scalar_put(Tensor *tensor, int64_t i, Scalar value) {
  if (tensor->f)
    tensor->f[i] = value.f;
  else
    tensor->i[i] = value.i;
}

/* Elements [from, from + count) of operand k of all ranks, joined, to `out`. */
static bool join_operands(const Eval *eval, int k, int64_t from, int64_t count, Tensor *out) {
  Op op;
  if (!op_parse(node_str(eval->node, ATTR_REDUCTION), &op)) return false;
  for (int r = 0; r < interp_ranks(eval); r++) {
    const Tensor *x = interp_operand(eval, r, k);
    for (int64_t i = 0; i < count; i++) {
      Scalar both[2] = {scalar_at(out, i), scalar_at(x, from + i)};
      bool is_first = r == 0;
      scalar_put(out, i,
                 is_first ? both[1]
                          : scalar_eval(op_joining(op), x->type.dtype, x->type.dtype, both));
    }
  }
  return true;
}

bool interp_all_reduce(const Eval *eval) {
  Tensor **results = interp_results(eval);
  bool is_good = results;
  for (int k = 0; is_good && k < eval->node->input_count; k++)
    is_good = join_operands(eval, k, 0, shape_elements(&results[k]->type.shape), results[k]);
  return is_good;
}

static bool has_its_ranks(const Eval *eval) {
  if (node_int(eval->node, ATTR_RANKS, 1) == interp_ranks(eval)) return true;
  return interp_refuse(eval, "it is for another number of ranks");
}

bool interp_all_gather(const Eval *eval) {
  if (!has_its_ranks(eval)) return false;
  int64_t count = shape_elements(&eval->in[0]->type.shape);
  for (int r = 0; r < interp_ranks(eval); r++)
    for (int64_t i = 0; i < count; i++)
      scalar_put(eval->out, r * count + i, scalar_at(interp_operand(eval, r, 0), i));
  return true;
}

bool interp_reduce_scatter(const Eval *eval) {
  int64_t count = shape_elements(&eval->out->type.shape);
  return has_its_ranks(eval) && join_operands(eval, 0, interp_rank(eval) * count, count, eval->out);
}

bool interp_all_to_all(const Eval *eval) {
  if (!has_its_ranks(eval)) return false;
  int64_t count = shape_elements(&eval->out->type.shape) / interp_ranks(eval);
  int64_t from = interp_rank(eval) * count;
  for (int r = 0; r < interp_ranks(eval); r++)
    for (int64_t i = 0; i < count; i++)
      scalar_put(eval->out, r * count + i, scalar_at(interp_operand(eval, r, 0), from + i));
  return true;
}

static bool copy_of_rank(const Eval *eval, int64_t rank) {
  if (rank >= interp_ranks(eval)) return interp_refuse(eval, "there is no such rank");
  const Tensor *x = interp_operand(eval, (int)rank, 0);
  for (int64_t i = 0; i < shape_elements(&x->type.shape); i++)
    scalar_put(eval->out, i, scalar_at(x, i));
  return true;
}

bool interp_broadcast_from(const Eval *eval) {
  return copy_of_rank(eval, node_int(eval->node, ATTR_ROOT, 0));
}

bool interp_transfer(const Eval *eval) {
  int64_t from = node_int(eval->node, ATTR_FROM, 0), to = node_int(eval->node, ATTR_TO, 0);
  if (from >= interp_ranks(eval) || to >= interp_ranks(eval))
    return interp_refuse(eval, "there is no such rank");
  return interp_rank(eval) != to || copy_of_rank(eval, from); /* the output is zeros */
}

/* Where it goes is the matter of the rank that receives it. */
bool interp_send(const Eval *eval) {
  (void)eval;
  return true;
}

bool interp_receive(const Eval *eval) {
  const Tensor *x = interp_message(eval);
  if (!x) return interp_refuse(eval, "no rank sends it");
  for (int64_t i = 0; i < shape_elements(&x->type.shape); i++)
    scalar_put(eval->out, i, scalar_at(x, i));
  return true;
}
