/* shard_random: see shard_random.h. Within a param the two numbers differ by a constant and by the
 * rank times the part's length. Parts are multiples of some number of elements, so the sum is
 * computed once for each such block: a comparison for each param there costs each element little. */
#include "passes/shard_random.h"
#include "passes/autodiff.h"
#include <stdlib.h>

/* A param: its elements, and where its part begins. */
typedef struct {
  int64_t begin, elements;
} Placed;
typedef VEC(Placed) Places;

static int random_by_begin(const void *a, const void *b) {
  const Placed *x = a, *y = b;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

static Places placed_params(const Graph *old, int64_t ranks, Arena *scratch) {
  Places all = {0};
  for (int i = 0; i < old->nodes.count; i++) {
    const Node *param = old->nodes.at[i];
    if (param->op != OP_PARAM) continue;
    int64_t elements = shape_elements(&param->type.shape);
    VEC_PUSH(scratch, all, ((Placed){node_int(param, ATTR_OFFSET, 0) / ranks, elements}));
  }
  if (all.count) qsort(all.at, (size_t)all.count, sizeof *all.at, random_by_begin);
  return all;
}

static int64_t random_divisor(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b, b = rest;
  }
  return a;
}

static Node *number(Graph *fresh, double value) {
  return make_const(fresh, DT_I64, shape_scalar(), value);
}

Node *shard_random_first(Graph *fresh, const Graph *old, const SettingValue *settings,
                         int64_t ranks, int64_t elements, Arena *scratch) {
  Places params = placed_params(old, ranks, scratch);
  int64_t all = elements / ranks, block = all, alone = 0;
  for (int i = 0; i < params.count; i++) block = random_divisor(block, params.at[i].begin);
  Node *rank = make_cast(fresh, make_rank(fresh, MESH_DATA), DT_I64);
  Shape blocks = shape_of(1, (int64_t[]){all / block});
  Node *index = make_iota(fresh, DT_I64, blocks, 0), *first = NULL;
  for (int i = 0; i < params.count; i++) {
    const Placed *param = &params.at[i];
    Node *before = make_binary(fresh, OP_MUL, rank,
                               number(fresh, (double)part_elements(param->elements, ranks)));
    Node *own = make_binary(fresh, OP_ADD, before, number(fresh, (double)(alone - param->begin)));
    Node *is_behind =
        make_binary(fresh, OP_GE, index, number(fresh, (double)(param->begin / block)));
    first = first ? make_select(fresh, is_behind, own, first) : make_broadcast(fresh, own, blocks);
    alone += autodiff_param_alone(settings, param->elements);
  }
  first = make_reshape(fresh, first, shape_of(2, (int64_t[]){all / block, 1}));
  first = make_broadcast(fresh, first, shape_of(2, (int64_t[]){all / block, block}));
  return make_reshape(fresh, first, shape_of(1, &all));
}
