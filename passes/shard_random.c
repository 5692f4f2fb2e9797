/* shard_random: see shard_random.h. Within a param, or a run of it that a rank of the axis tensor
 * has, the two numbers differ by a constant, by the rank's place along the axis data times the
 * part's length, and by that along the axis tensor times the run's. Parts and runs are multiples of
 * some number of elements, so the sum is computed once for each such block: a comparison for each
 * param there costs each element little. */
#include "passes/shard_random.h"
#include "passes/autodiff.h"
#include "passes/tensor_cut.h"
#include <stdlib.h>

/* A param: its elements on this rank of the axis tensor, where its part begins, and where one rank by
 * itself has it; and of a param that is cut, the elements of a run, and of all ranks' runs. */
typedef struct {
  int64_t begin, elements, alone, run, runs;
} Placed;

typedef struct {
  Graph *fresh;
  const Graph *old;
  const SettingValue *settings;
  int64_t ranks, tensor; /* that have parts of each param, and runs */
  VEC(Placed) params;    /* in the order of their parts */
  int64_t block;
  Node *index, *data, *run; /* i64[blocks]; i64[], the ranks' numbers */
} Places;

static int random_by_begin(const void *a, const void *b) {
  const Placed *x = a, *y = b;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

static int random_alone(const void *a, const void *b) {
  return autodiff_compare_alone(*(Node *const *)a, *(Node *const *)b);
}

/* In the order of memory, elements of a param that belong to one run; 0: it is not cut. */
static int64_t run_elements(const Node *param) {
  Cut cut = tensor_cut_of_param(param);
  Shape file = node_file_shape(param);
  Storage storage = node_storage(param);
  if (!cut.run || !storage.view.rank) return cut.run ? tensor_inner(&file, cut) : 0;
  cut = tensor_reshaped(&file, cut, &storage.view, 1);
  int64_t elements = cut.run;
  for (int i = storage.view.rank - 1; cut.run && storage.perm[i] != cut.dim; i--)
    elements *= storage.view.dim[storage.perm[i]];
  return elements;
}

static void place_params_alone(Places *p, Arena *scratch) {
  VEC(const Node *) all = {0};
  int64_t alone = 0;
  for (int i = 0; i < p->old->nodes.count; i++)
    if (p->old->nodes.at[i]->op == OP_PARAM && !node_is_frozen(p->old->nodes.at[i]))
      VEC_PUSH(scratch, all, p->old->nodes.at[i]);
  if (all.count) qsort(all.at, (size_t)all.count, sizeof *all.at, random_alone);
  for (int i = 0; i < all.count; i++) {
    const Node *param = all.at[i];
    int64_t elements = shape_elements(&param->type.shape), run = run_elements(param);
    int64_t begin = node_int(param, ATTR_OFFSET, 0) / p->ranks, runs = run * p->tensor;
    const Attr *cut = node_attr(param, ATTR_CUT);
    if (cut && cut->count > 2) runs = run / cut->ints[1] * cut->ints[2]; /* the last is shorter */
    VEC_PUSH(scratch, p->params, ((Placed){begin, elements, alone, run, runs}));
    alone += autodiff_param_alone(p->settings, run ? elements / run * runs : elements);
  }
  if (all.count) qsort(p->params.at, (size_t)p->params.count, sizeof(Placed), random_by_begin);
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

static void find_block(Places *p, int64_t all) {
  p->block = all;
  for (int i = 0; i < p->params.count; i++) {
    const Placed *param = &p->params.at[i];
    p->block = random_divisor(p->block, param->begin);
    if (!param->run) continue;
    p->block = random_divisor(p->block, param->run);
    if (p->ranks > 1) p->block = random_divisor(p->block, part_elements(param->elements, p->ranks));
  }
}

/* What goes to the numbers of this param's elements: i64[], or one for each block. */
static Node *shard_number_of_param(Places *p, const Placed *param) {
  Graph *fresh = p->fresh;
  Node *own = number(fresh, (double)(param->alone - param->begin));
  if (p->ranks > 1) {
    int64_t part = part_elements(param->elements, p->ranks);
    Node *before = make_binary(fresh, OP_MUL, p->data, number(fresh, (double)part));
    own = make_binary(fresh, OP_ADD, before, own);
  }
  if (!param->run) return own;
  /* the index in what this rank has of the param, and the runs of other ranks before it */
  Node *at = make_binary(fresh, OP_MUL, p->index, number(fresh, (double)p->block));
  Node *within = make_binary(fresh, OP_ADD, own, number(fresh, (double)-param->alone));
  Node *group = make_binary(fresh, OP_ADD, at, within);
  group = make_binary(fresh, OP_DIV, group, number(fresh, (double)param->run));
  double others = (double)(param->runs - param->run);
  group = make_binary(fresh, OP_MUL, group, number(fresh, others));
  Node *runs = make_binary(fresh, OP_MUL, p->run, number(fresh, (double)param->run));
  return make_binary(fresh, OP_ADD, group, make_binary(fresh, OP_ADD, own, runs));
}

Node *shard_random_first(Graph *fresh, const Graph *old, const SettingValue *settings,
                         int64_t ranks, int64_t elements, Arena *scratch) {
  Places p = {.fresh = fresh,
              .old = old,
              .settings = settings,
              .ranks = ranks,
              .tensor = setting_tensor(settings)};
  int64_t all = elements / ranks;
  place_params_alone(&p, scratch);
  find_block(&p, all);
  if (ranks > 1) p.data = make_cast(fresh, make_rank(fresh, MESH_DATA), DT_I64);
  if (p.tensor > 1) p.run = make_cast(fresh, make_rank(fresh, MESH_TENSOR), DT_I64);
  Shape blocks = shape_of(1, (int64_t[]){all / p.block});
  p.index = make_iota(fresh, DT_I64, blocks, 0);
  Node *first = NULL;
  for (int i = 0; i < p.params.count; i++) {
    const Placed *param = &p.params.at[i];
    Node *own = shard_number_of_param(&p, param);
    Node *is_behind =
        make_binary(fresh, OP_GE, p.index, number(fresh, (double)(param->begin / p.block)));
    bool is_each = own->type.shape.rank > 0;
    first = first     ? make_select(fresh, is_behind, own, first)
            : is_each ? own
                      : make_broadcast(fresh, own, blocks);
  }
  first = make_reshape(fresh, first, shape_of(2, (int64_t[]){all / p.block, 1}));
  first = make_broadcast(fresh, first, shape_of(2, (int64_t[]){all / p.block, p.block}));
  return make_reshape(fresh, first, shape_of(1, &all));
}

typedef struct {
  const Graph *old;
  const SettingValue *settings;
  Arena *scratch;
} Whole;

static Node *draw_parts(Graph *fresh, const Node *old, Node **inputs, void *context) {
  const Whole *w = context;
  if (old->op != OP_RANDOM || node_int(old, ATTR_STREAM, 0) != ROUNDING_STREAM) return NULL;
  int64_t elements = shape_elements(&old->type.shape);
  Node *operands[] = {inputs[0], inputs[1],
                      shard_random_first(fresh, w->old, w->settings, 1, elements, w->scratch)};
  fresh->origin = old->origin;
  return graph_node(fresh, OP_RANDOM, operands, 3, old->attr, old->attr_count, &old->type);
}

Graph *shard_random_of_tensor(Graph *graph, const SettingValue *settings, Arena *scratch) {
  Whole whole = {graph, settings, scratch};
  return graph_rewrite(graph, draw_parts, &whole);
}
