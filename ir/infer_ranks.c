/* infer_ranks: the shape rules of collectives: what the ranks of a training do together. */
#include "ir/infer.h"

static bool infer_ranks_has_axis(Infer *in) {
  const Attr *over = infer_attr(in, ATTR_OVER);
  MeshAxis axis;
  if (!over || mesh_axis_parse(over->s, &axis)) return true;
  return infer_fail(in, "%s over '%s', which is none of data, pipeline, tensor and all", in->name,
                    over->s);
}

static bool need_reduction(Infer *in) {
  const Attr *reduction = infer_need_attr(in, ATTR_REDUCTION);
  Op op;
  if (!reduction) return false;
  if (op_parse(reduction->s, &op) && op_joins_ranks(op)) return true;
  return infer_fail(in, "%s by '%s', which is none of sum, prod, rmax and rmin", in->name,
                    reduction->s);
}

bool infer_all_reduce(Infer *in) {
  if (!need_reduction(in) || !infer_ranks_has_axis(in)) return false;
  for (int i = 0; i < in->input_count; i++) {
    const Type *x = infer_operand(in, i);
    if (x->dtype == DT_BOOL || x->dtype != infer_operand(in, 0)->dtype)
      return infer_fail(in, "all_reduce of numbers of one type, not of %s and %s",
                        infer_show(in, infer_operand(in, 0)), infer_show(in, x));
  }
  *in->out = *infer_operand(in, 0);
  return true;
}

/* 0, and a reason: there is no such number. */
static int64_t need_ranks(Infer *in) {
  const Attr *ranks = infer_need_attr(in, ATTR_RANKS);
  if (!ranks || !infer_ranks_has_axis(in)) return 0;
  if (infer_operand(in, 0)->shape.rank == 0) {
    infer_fail(in, "%s goes along the first dimension, and %s has none", in->name,
               infer_show(in, infer_operand(in, 0)));
    return 0;
  }
  if (ranks->i > 0 && ranks->i <= MAX_RANKS) return ranks->i;
  infer_fail(in, "%s of %lld ranks; there may be 1 to %d", in->name, (long long)ranks->i,
             MAX_RANKS);
  return 0;
}

bool infer_all_gather(Infer *in) {
  int64_t ranks = need_ranks(in);
  if (!ranks) return false;
  *in->out = *infer_operand(in, 0);
  in->out->shape.dim[0] *= ranks; /* no overflow: 2^40 elements at most, 2^20 ranks */
  return true;
}

static bool has_parts(Infer *in, int64_t ranks) {
  const Type *x = infer_operand(in, 0);
  return x->shape.dim[0] % ranks == 0 ||
         infer_fail(in, "the first dimension of %s has no %lld equal parts", infer_show(in, x),
                    (long long)ranks);
}

bool infer_reduce_scatter(Infer *in) {
  if (!need_reduction(in)) return false;
  int64_t ranks = need_ranks(in);
  const Type *x = infer_operand(in, 0);
  if (!ranks) return false;
  if (x->dtype == DT_BOOL)
    return infer_fail(in, "reduce_scatter of numbers, not of %s", infer_show(in, x));
  if (!has_parts(in, ranks)) return false;
  *in->out = *x;
  in->out->shape.dim[0] /= ranks;
  return true;
}

bool infer_all_to_all(Infer *in) {
  int64_t ranks = need_ranks(in);
  *in->out = *infer_operand(in, 0);
  return ranks && has_parts(in, ranks);
}

static bool need_rank(Infer *in, AttrId id) {
  const Attr *rank = infer_need_attr(in, id);
  if (!rank) return false;
  return (rank->i >= 0 && rank->i < MAX_RANKS) ||
         infer_fail(in, "'%s' of %s is rank %lld; there may be 0 to %d", attr_info[id].text,
                    in->name, (long long)rank->i, MAX_RANKS - 1);
}

bool infer_broadcast_from(Infer *in) {
  *in->out = *infer_operand(in, 0);
  return need_rank(in, ATTR_ROOT) && infer_ranks_has_axis(in);
}

bool infer_transfer(Infer *in) {
  *in->out = *infer_operand(in, 0);
  if (!need_rank(in, ATTR_FROM) || !need_rank(in, ATTR_TO) || !infer_ranks_has_axis(in))
    return false;
  int64_t from = infer_attr(in, ATTR_FROM)->i;
  return from != infer_attr(in, ATTR_TO)->i ||
         infer_fail(in, "transfer from rank %lld to itself", (long long)from);
}

bool infer_send(Infer *in) {
  *in->out = (Type){DT_F32, shape_scalar()};
  return need_rank(in, ATTR_TO) && infer_ranks_has_axis(in);
}

bool infer_receive(Infer *in) {
  return need_rank(in, ATTR_FROM) && infer_ranks_has_axis(in) && infer_take_given(in);
}
