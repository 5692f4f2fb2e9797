/* fuse_group: which units share a kernel. Every unit begins as a group of its own; then pairs of
 * groups are merged, the pair that saves most bytes first, in rounds: what costs nothing in a
 * contraction's epilogue (bias, activation); rows; column reductions with the pointwise work that
 * feeds them; those with rows that see the same; other epilogues; the rest.
 *
 * A merge is legal if the union has one domain, if every read inside of it is one that its kind of
 * kernel can do (the same element; in rows also the row's value), if no path leads from the union
 * through another group back into it, if all of it belongs to one task of a pipeline and to one piece of the
 * batch, and if it stays within bounds. */
#include "passes/fuse_order.h"
#include <stdlib.h>
#include <string.h>

typedef enum {
  ROUND_BIAS,
  ROUND_ROW,
  ROUND_COLUMN,
  ROUND_BESIDE,
  ROUND_EPILOGUE,
  ROUND_REST,
  ROUNDS
} Round;

enum {
  SIBLING_READERS = 12,
  TINY_BEFORE = 32,
  SMALL_BYTES = 32,
  FEW_ROWS = 16,
  FEW_ELEMENTS = 4096,
  SUMMED_ROWS = 512, /* from here on a kernel over rows has enough of them to sum columns, */
  SUMMED_ELEMENTS = 1 << 18,
  SHORTEST_SUMMED = 128, /* and threads have as many elements of a row as they keep sums */
  LONGEST_SUMMED = 4096
};

typedef struct {
  int a, b;      /* units; their groups are to be merged */
  int64_t saved; /* bytes not moved */
} Pair;

typedef struct {
  FusePlan *plan;
  FuseOrder *order;
  VEC(Pair) pairs;
} Merge;

static const Node *fuse_group_node_at(const FusePlan *plan, int id) {
  return plan->graph->nodes.at[id];
}
static bool is_reduce(const Node *node) { return op_info[node->op].op_class == CLASS_REDUCE; }

/* ── groups of one ──────────────────────────────────────────────────────────────────────────── */
static FuseGroup first_group(FusePlan *plan, int id) {
  const Node *node = fuse_group_node_at(plan, id);
  FuseGroup group = {.shape = SHAPE_LOOP,
                     .elements = fuse_elements(node),
                     .contract = -1,
                     .reduce = -1,
                     .columns = -1};
  if (is_reduce(node)) {
    group.shape = fuse_is_row(node) ? SHAPE_ROW : SHAPE_COLUMN;
    group.reduced = group.elements;
    group.elements = fuse_elements(node->input[0]);
    group.reduce = id;
  } else if (node->op == OP_DOT || node->op == OP_CONV || plan->is_pooled[id] ||
             (node->op == OP_CONV_GRAD_INPUT && plan->has_slope_epilogues)) {
    group.shape = SHAPE_CONTRACT;
    group.contract = id;
  } else if (op_has(node->op, TRAIT_ALONE)) {
    group.shape = SHAPE_ALONE;
  }
  bool is_backward =
      node->origin.is_backward && node->op != OP_POOL_INDEX; /* which is small, and made early */
  group.has_backward = is_backward;
  group.task = plan->task ? plan->task[id] : 0;
  group.piece = node->origin.piece;
  group.has_early = !is_backward && plan->is_early[id];
  VEC_PUSH(plan->arena, group.members, id);
  return group;
}

static void fuse_group_make_groups(FusePlan *plan) {
  for (int i = 0; i < plan->count; i++) {
    plan->group[i] = -1;
    if (!plan->is_unit[i]) continue;
    FuseGroup group = first_group(plan, i);
    plan->group[i] = plan->groups.count;
    VEC_PUSH(plan->arena, plan->groups, group);
    for (int k = 0; k < plan->unit[i].reads.count; k++)
      VEC_PUSH(plan->arena, plan->readers[plan->unit[i].reads.at[k].node], i);
  }
}

bool fuse_is_result(const FusePlan *plan, int unit) {
  if (plan->is_materialized[unit]) return true;
  const FuseReaders *readers = &plan->readers[unit];
  for (int i = 0; i < readers->count; i++)
    if (plan->group[readers->at[i]] != plan->group[unit]) return true;
  return false;
}

/* ── is a merge legal? ──────────────────────────────────────────────────────────────────────── */
/* The reduction as runs of kept and reduced elements: signed lengths, reduced ones negative. */
static int column_pattern(const Node *reduce, int64_t pattern[MAX_RANK]) {
  int64_t axes[MAX_RANK];
  int axis_count, count = 0, next = 0;
  Shape domain = fuse_reduce_domain(reduce, axes, &axis_count);
  for (int i = 0; i < domain.rank; i++) {
    bool reduced = next < axis_count && axes[next] == i;
    if (reduced) next++;
    if (count && (pattern[count - 1] < 0) == reduced)
      pattern[count - 1] *= domain.dim[i];
    else
      pattern[count++] = reduced ? -domain.dim[i] : domain.dim[i];
  }
  return count;
}

static bool same_columns(const Node *a, const Node *b) {
  int64_t x[MAX_RANK], y[MAX_RANK];
  int count = column_pattern(a, x);
  if (column_pattern(b, y) != count) return false;
  for (int i = 0; i < count; i++)
    if (x[i] != y[i]) return false;
  return true;
}

/* May the unit be computed element by element of a contraction's result? */
static bool fits_epilogue(const FusePlan *plan, int id, const Shape *result) {
  const Shape *own = &fuse_group_node_at(plan, id)->type.shape;
  if (!plan->unit[id].is_simple) return false;
  if (shape_equal(own, result)) return true;
  return plan->unit[id].is_flat && own->rank > 0 && result->rank == 2 &&
         own->dim[own->rank - 1] == result->dim[1];
}

/* Does the loop read in another order what the reduction reads, so that it shares nothing with it, and a kernel of both
 * would store its results element by element? */
static bool reads_in_another_order(const FusePlan *plan, const FuseGroup *reduction, const FuseGroup *loop) {
  for (int i = 0; i < loop->members.count; i++) {
    const FuseUnit *unit = &plan->unit[loop->members.at[i]];
    for (int k = 0; k < unit->reads.count; k++) {
      const FuseRead *read = &unit->reads.at[k];
      if (read->divisor != SCATTERED || fuse_elements(fuse_group_node_at(plan, read->node)) != reduction->elements) continue;
      for (int r = 0; r < reduction->members.count; r++) {
        const FuseUnit *other = &plan->unit[reduction->members.at[r]];
        for (int j = 0; j < other->reads.count; j++)
          if (other->reads.at[j].node == read->node && other->reads.at[j].divisor == 1) return true;
      }
    }
  }
  return false;
}

/* May the loop's work be done by a row or column kernel? Not if few long rows would give too little
 * to do at a time, nor if it updates a state: only loops may write states in place. Nor, on the CPU, if it joins many parts, which a
 * loop alone makes part by part: in another kernel each element would ask which part it is of. */
static bool may_run_beside(const FusePlan *plan, const FuseGroup *reduction,
                           const FuseGroup *loop) {
  if (loop->elements == reduction->reduced) return true;
  if (loop->elements != reduction->elements) return false;
  if (reduction->shape == SHAPE_ROW && reduction->reduced < FEW_ROWS &&
      loop->elements > FEW_ELEMENTS)
    return false;
  if (plan->for_gpu && loop->elements > FEW_ELEMENTS && reads_in_another_order(plan, reduction, loop))
    return false;
  for (int i = 0; i < loop->members.count; i++) {
    int id = loop->members.at[i];
    if (plan->is_assigned[id] || (!plan->for_gpu && fuse_is_long_concat(fuse_group_node_at(plan, id)))) return false;
  }
  return true;
}

/* Is it a sum of columns in a kernel over rows? */
static bool group_is_beside(const FuseGroup *group, const Node *node) {
  return group->shape == SHAPE_ROW && is_reduce(node) && !fuse_is_row(node);
}

static int count_beside(const FusePlan *plan, const FuseGroup *rows) {
  int count = 0;
  for (int i = 0; i < rows->members.count; i++)
    count += group_is_beside(rows, fuse_group_node_at(plan, rows->members.at[i]));
  return count;
}

/* May the kernel over rows sum these columns, too? Each of its threads has the same columns of many
 * rows: not so where rows of odd length begin anywhere in a sector. What is made of the sums is not
 * its work, nor may it write a state. */
static bool may_sum_beside(const FusePlan *plan, const FuseGroup *rows, const FuseGroup *columns) {
  int64_t length = rows->elements / rows->reduced, pattern[MAX_RANK];
  int count = count_beside(plan, rows);
  if (!plan->has_row_sums || rows->elements != columns->elements || rows->reduced < SUMMED_ROWS ||
      rows->elements < SUMMED_ELEMENTS || length < SHORTEST_SUMMED || length > LONGEST_SUMMED ||
      length % 2)
    return false;
  if (column_pattern(fuse_group_node_at(plan, rows->reduce), pattern) != 2 ||
      pattern[0] != rows->reduced || pattern[1] != -length)
    return false;
  for (int i = 0; i < columns->members.count; i++) {
    int id = columns->members.at[i];
    const Node *node = fuse_group_node_at(plan, id);
    if (!is_reduce(node)) {
      if (fuse_elements(node) != columns->elements || plan->is_assigned[id]) return false;
    } else if (node->op != OP_SUM || node->type.dtype != DT_F32 || ++count > FUSE_COLUMN_SUMS ||
               column_pattern(node, pattern) != 2 || pattern[0] != -rows->reduced ||
               pattern[1] != length) {
      return false;
    }
  }
  return true;
}

/* May the contraction's kernel reduce its columns like this: over all but the last dimension of its
 * result, four columns at a time, in f32? Moments need every row's place known. Of a product also the largest size in
 * each column. */
static bool group_is_column_sum(const FusePlan *plan, int id, const Node *contract) {
  const Node *node = fuse_group_node_at(plan, id);
  const Shape *result = &contract->type.shape;
  int64_t pattern[MAX_RANK], columns = result->dim[result->rank - 1];
  bool is_moment = op_has(node->op, TRAIT_MOMENT), is_dot = contract->op == OP_DOT;
  bool may_sum = is_dot ? fuse_dot_may_sum(contract) && plan->unit[id].is_flat
                        : columns / node_int(contract, ATTR_GROUPS, 1) % 4 == 0 &&
                              !strcmp(node_str(contract, ATTR_LAYOUT), "nhwc");
  return may_sum && !node_attr(contract, ATTR_INTEGERS) && plan->unit[id].is_simple && node->type.dtype == DT_F32 &&
         (node->op == OP_SUM || (is_moment && contract->op != OP_CONV_GRAD_INPUT) ||
          (is_dot && fuse_is_largest_size(node))) &&
         column_pattern(node, pattern) == 2 && pattern[0] < 0 && pattern[1] == columns;
}

/* May these come behind the contraction: its epilogue, reductions of its columns, and what is made
 * of those? */
static bool may_come_behind(const FusePlan *plan, const FuseGroup *contract,
                            const FuseGroup *more) {
  const Node *product = fuse_group_node_at(plan, contract->contract);
  int sums = 0;
  for (int i = 0; i < contract->members.count; i++)
    sums += is_reduce(fuse_group_node_at(plan, contract->members.at[i]));
  for (int i = 0; i < more->members.count; i++) {
    int id = more->members.at[i];
    const Node *node = fuse_group_node_at(plan, id);
    if (is_reduce(node)) {
      if (!group_is_column_sum(plan, id, product) || ++sums > FUSE_COLUMN_SUMS) return false;
    } else if (fuse_elements(node) == contract->elements) {
      if (!fits_epilogue(plan, id, &product->type.shape)) return false;
    }
  }
  return true;
}

static bool reads_from(const FusePlan *plan, const FuseGroup *reader, int group) {
  for (int i = 0; i < reader->members.count; i++) {
    const FuseUnit *unit = &plan->unit[reader->members.at[i]];
    for (int k = 0; k < unit->reads.count; k++)
      if (plan->group[unit->reads.at[k].node] == group) return true;
  }
  return false;
}

/* What the union of two groups would be; false if their domains do not agree, or if one belongs to
 * the beginning and one to the end of the step: what backward computes from forward values alone
 * would then be kept in between. Cross entropy is at the turning point, and may have both. */
static bool combine(const FusePlan *plan, const FuseGroup *a, const FuseGroup *b, FuseGroup *out) {
  if (a->shape < b->shape) {
    const FuseGroup *swap = a;
    a = b;
    b = swap;
  }
  *out = *a;
  out->has_early |= b->has_early;
  out->has_backward |= b->has_backward;
  if (out->has_early && out->has_backward) return false;
  if (b->shape == SHAPE_ALONE || a->elements == 0) return false;
  switch (a->shape) {
  case SHAPE_LOOP:
    return a->elements == b->elements;
  case SHAPE_ROW:
    if (b->shape == SHAPE_LOOP) return may_run_beside(plan, a, b);
    if (out->columns < 0) out->columns = b->columns;
    return a->elements == b->elements && a->reduced == b->reduced &&
           count_beside(plan, a) + count_beside(plan, b) <= FUSE_COLUMN_SUMS;
  case SHAPE_COLUMN:
    if (b->shape == SHAPE_ROW) {
      bool has_early = out->has_early, has_backward = out->has_backward;
      *out = *b;
      out->has_early = has_early;
      out->has_backward = has_backward;
      out->columns = a->reduce;
      return may_sum_beside(plan, b, a);
    }
    return b->shape == SHAPE_LOOP
               ? may_run_beside(plan, a, b)
               : b->shape == SHAPE_COLUMN && same_columns(fuse_group_node_at(plan, a->reduce),
                                                          fuse_group_node_at(plan, b->reduce));
  case SHAPE_CONTRACT:
    if (b->shape == SHAPE_COLUMN) {
      if (!plan->has_column_sums || !reads_from(plan, b, plan->group[a->contract])) return false;
      out->reduce = a->reduce >= 0 ? a->reduce : b->reduce;
      out->reduced = b->reduced;
    } else if (b->shape != SHAPE_LOOP) {
      return false;
    }
    if (a->elements != b->elements && (a->reduce < 0 || a->reduced != b->elements)) return false;
    return may_come_behind(plan, a, b);
  case SHAPE_ALONE:
    break;
  }
  return false;
}

/* Does the unit have one value per element of the domain (or else one per row or column)? */
static bool is_full(const FuseGroup *group, const Node *node) {
  return !is_reduce(node) && fuse_elements(node) == group->elements;
}

static bool read_is_legal(const FuseGroup *group, const Node *reader, const Node *used,
                          int64_t divisor) {
  if (reader->id == group->contract || group_is_beside(group, used)) return false;
  bool runs_over_domain = is_reduce(reader) || is_full(group, reader);
  if (runs_over_domain && is_full(group, used)) return divisor == 1;
  if (runs_over_domain)
    return group->shape == SHAPE_ROW && divisor == group->elements / group->reduced;
  return !is_full(group, used) && divisor == 1;
}

static bool reads_are_legal(const FusePlan *plan, const FuseGroup *joined, const FuseGroup *part,
                            int a, int b) {
  for (int i = 0; i < part->members.count; i++) {
    const FuseUnit *unit = &plan->unit[part->members.at[i]];
    for (int k = 0; k < unit->reads.count; k++) {
      int used = unit->reads.at[k].node, group = plan->group[used];
      if (group >= 0 && (group == a || group == b) &&
          !read_is_legal(joined, fuse_group_node_at(plan, part->members.at[i]),
                         fuse_group_node_at(plan, used), unit->reads.at[k].divisor))
        return false;
    }
  }
  return true;
}

/* Counts what the union needs of what a kernel may hold; a rough upper bound is enough. */
static bool is_within_bounds(const FusePlan *plan, const FuseGroup *x, const FuseGroup *y, int a,
                             int b) {
  int nodes = 0, pointers = 0, accumulators = 0;
  const FuseGroup *part[] = {x, y};
  for (int p = 0; p < 2; p++)
    for (int i = 0; i < part[p]->members.count; i++) {
      int id = part[p]->members.at[i];
      const FuseUnit *unit = &plan->unit[id];
      nodes += unit->nodes;
      pointers += fuse_is_result(plan, id);
      if (is_reduce(fuse_group_node_at(plan, id)))
        accumulators += kernel_accumulators(fuse_group_node_at(plan, id));
      for (int k = 0; k < unit->reads.count; k++) {
        int group = plan->group[unit->reads.at[k].node];
        pointers += group < 0 || (group != a && group != b);
      }
    }
  return nodes <= KERNEL_MOST_NODES && pointers <= KERNEL_MOST_POINTERS &&
         accumulators <= KERNEL_MOST_ACCUMULATORS;
}

/* ── which merges come when ─────────────────────────────────────────────────────────────────── */
/* Sums and relus that read nothing of the contraction's size but the contraction: libraries do
 * these on the way. */
static bool is_bias_epilogue(const FusePlan *plan, const FuseGroup *loop, int contract_group) {
  for (int i = 0; i < loop->members.count; i++) {
    Op op = fuse_group_node_at(plan, loop->members.at[i])->op;
    if (op != OP_ADD && op != OP_SELECT && op != OP_MAX && op != OP_CAST) return false;
    const FuseUnit *unit = &plan->unit[loop->members.at[i]];
    for (int k = 0; k < unit->reads.count; k++) {
      int used = unit->reads.at[k].node;
      if (plan->group[used] == contract_group ||
          plan->group[used] == plan->group[loop->members.at[i]])
        continue;
      if (fuse_elements(fuse_group_node_at(plan, used)) * 2 > loop->elements) return false;
    }
  }
  return true;
}

static bool is_turn(const FusePlan *plan, Round round, GroupShape shape, int a, int b) {
  const FuseGroup *x = &plan->groups.at[a], *y = &plan->groups.at[b];
  bool is_mixed = shape == SHAPE_ROW && (x->shape == SHAPE_COLUMN || y->shape == SHAPE_COLUMN);
  switch (round) {
  case ROUND_BIAS:
    if (shape != SHAPE_CONTRACT) return false;
    return x->shape == SHAPE_LOOP ? is_bias_epilogue(plan, x, b) : is_bias_epilogue(plan, y, a);
  case ROUND_COLUMN:
    return shape == SHAPE_COLUMN;
  case ROUND_EPILOGUE:
    return shape == SHAPE_CONTRACT;
  case ROUND_ROW:
    return shape == SHAPE_ROW && !is_mixed;
  case ROUND_BESIDE:
    return is_mixed;
  default:
    return true;
  }
}

static bool try_merge(Merge *merge, Round round, const Pair *pair) {
  FusePlan *plan = merge->plan;
  int a = plan->group[pair->a], b = plan->group[pair->b];
  FuseGroup *x = &plan->groups.at[a], *y = &plan->groups.at[b], joined;
  bool pieces_differ = x->piece && y->piece && x->piece != y->piece;
  if (a == b || x->task != y->task || pieces_differ || !combine(plan, x, y, &joined) ||
      !is_turn(plan, round, joined.shape, a, b))
    return false;
  if (!reads_are_legal(plan, &joined, x, a, b) || !reads_are_legal(plan, &joined, y, a, b))
    return false;
  if (!is_within_bounds(plan, x, y, a, b) || fuse_order_makes_cycle(merge->order, a, b))
    return false;
  fuse_order_merge(merge->order, a, b);
  joined.members = x->members;
  joined.piece = x->piece ? x->piece : y->piece;
  for (int i = 0; i < y->members.count; i++) {
    VEC_PUSH(plan->arena, joined.members, y->members.at[i]);
    plan->group[y->members.at[i]] = a;
  }
  *x = joined;
  y->is_dead = true;
  y->members.count = 0;
  return true;
}

static int compare_pairs(const void *left, const void *right) {
  const Pair *x = left, *y = right;
  if (x->saved != y->saved) return x->saved < y->saved ? 1 : -1;
  if (x->a != y->a) return x->a < y->a ? -1 : 1;
  return (x->b > y->b) - (x->b < y->b);
}

/* A unit with what it reads, and units that read the same. */
static void find_pairs(Merge *merge) {
  FusePlan *plan = merge->plan;
  for (int i = 0; i < plan->count; i++) {
    const FuseReaders *readers = &plan->readers[i];
    int64_t bytes = type_bytes(&fuse_group_node_at(plan, i)->type);
    for (int k = 0; plan->is_unit[i] && k < readers->count; k++)
      VEC_PUSH(plan->arena, merge->pairs, ((Pair){i, readers->at[k], bytes}));
    for (int k = 0; bytes >= SMALL_BYTES && k < readers->count; k++)
      for (int m = k + 1; m < readers->count && m < k + SIBLING_READERS; m++)
        VEC_PUSH(plan->arena, merge->pairs, ((Pair){readers->at[k], readers->at[m], bytes}));
  }
  if (merge->pairs.count)
    qsort(merge->pairs.at, (size_t)merge->pairs.count, sizeof(Pair), compare_pairs);
}

/* Groups of tiny results (the step counter, means of the loss and of metrics) save a launch each. A
 * model may have one for each layer and position, so each is tried with those that come closely
 * before it. */
static void find_tiny_pairs(Merge *merge) {
  FusePlan *plan = merge->plan;
  int before[TINY_BEFORE], count = 0;
  for (int i = 0; i < plan->count; i++) {
    if (!plan->is_unit[i] || fuse_elements(fuse_group_node_at(plan, i)) != 1) continue;
    if (plan->groups.at[plan->group[i]].shape == SHAPE_ALONE) continue;
    for (int k = count - 1; k >= 0 && k >= count - TINY_BEFORE; k--)
      VEC_PUSH(plan->arena, merge->pairs, ((Pair){before[k % TINY_BEFORE], i, 0}));
    before[count++ % TINY_BEFORE] = i;
  }
}

static int compare_ids(const void *left, const void *right) {
  return *(const int *)left - *(const int *)right;
}

void fuse_group_units(FusePlan *plan) {
  fuse_group_make_groups(plan);
  if (plan->is_plain) return;
  Merge merge = {.plan = plan, .order = fuse_order_new(plan)};
  find_pairs(&merge);
  for (int round = 0; round < ROUNDS; round++) {
    if (round == ROUND_REST) find_tiny_pairs(&merge);
    for (bool changed = true; changed;) {
      changed = false;
      for (int i = 0; i < merge.pairs.count; i++)
        changed |= try_merge(&merge, round, &merge.pairs.at[i]);
    }
  }
  for (int i = 0; i < plan->groups.count; i++) {
    FuseGroup *group = &plan->groups.at[i];
    if (group->members.count)
      qsort(group->members.at, (size_t)group->members.count, sizeof(int), compare_ids);
  }
}
