/* builtin_move: functions that choose, turn around and repeat elements along dimensions. */
#include "frontend/builder.h"

/* take(x, index, axis=0): table[index] along any dimension; outside of it there are zeros. */
static Value run_take(Call *call) {
  Node *x = builtin_tensor(call, 0), *index = builtin_tensor(call, 1);
  int axis;
  if (!x || !index || !builtin_axis(call, 2, x, 0, &axis)) return value_error();
  return value_tensor(tensor_take(call->b, x, index, axis, call->loc));
}

/* flip(x, axis): the other way round along a dimension, several, or all of them. */
static Value run_flip(Call *call) {
  Node *x = builtin_tensor(call, 0);
  int64_t axes[MAX_RANK];
  int count;
  if (!x || !builtin_axes(call, 1, x, axes, &count)) return value_error();
  for (int i = 0; i < count; i++)
    if (x && x->type.shape.dim[axes[i]] > 1) x = tensor_flip(call->b, x, (int)axes[i], call->loc);
  return value_tensor(x);
}

/* expand(x, 4, -1): broadcast_to, in which -1 stands for a dimension that stays. */
static Value run_expand(Call *call) {
  Node *x = builtin_tensor(call, 0);
  Shape shape;
  if (!x || !builtin_shape_arg(call, 1, &shape)) return value_error();
  int new_ones = shape.rank - x->type.shape.rank;
  for (int i = 0; i < shape.rank; i++) {
    if (shape.dim[i] != -1) continue;
    if (i < new_ones) {
      builder_fail(call->b, call->at[1],
                   "dimension %d is new, so that it cannot stay as it is: give its size", i);
      return value_error();
    }
    if (i - new_ones < x->type.shape.rank) shape.dim[i] = x->type.shape.dim[i - new_ones];
  }
  if (!tensor_shape_fits(call->b, &shape, call->at[1])) return value_error();
  return value_tensor(tensor_broadcast(call->b, x, shape, call->loc));
}

const Builtin builtin_move[] = {
    {"take", "x index axis=", run_take, 0},
    {"flip", "x axis=", run_flip, 0},
    {"expand", "x *shape", run_expand, 0},
    {0},
};
