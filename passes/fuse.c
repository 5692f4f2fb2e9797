/* fuse: groups the nodes of a step into kernels, as fuse.h promises them to code generation.
 *
 *   fuse_prepare  reductions become rows or columns
 *   fuse_unit     which values are computed once, and which in every kernel that reads them
 *   fuse_group    which of the former share a kernel
 *   fuse_body     the kernels' bodies and the new graph
 *
 * Invariant: nothing but a body, a contraction, scatter_add, pack, assign and views is left, and
 * the kernels form no cycle. */
#include "passes/fuse_plan.h"
#include "passes/tasks.h"

Graph *pass_fuse(PassContext *context, Graph *graph) {
  Arena *arena = context->scratch;
  Graph whole = *graph; /* the prepared one is not for long either */
  whole.arena = arena;
  bool has_column_sums = context->for_gpu && !text_has_word(context->left_out, "column_sums");
  const FusePreparation preparation = {.for_gpu = context->for_gpu,
                                       .keeps_orders = context->multiplies_float8 == FLOAT8_ALONG_K,
                                       .has_column_sums = has_column_sums && !context->is_plain};
  Graph *prepared = fuse_prepare(&whole, &preparation);
  int count = prepared->nodes.count;
  FusePlan plan = {
      .arena = arena,
      .graph = prepared,
      .is_plain = context->is_plain,
      .for_gpu = context->for_gpu,
      .has_column_sums = has_column_sums,
      .has_slope_epilogues =
          context->for_gpu && !text_has_word(context->left_out, "slope_epilogues"),
      .has_row_sums = context->for_gpu && !text_has_word(context->left_out, "row_sums"),
      .has_integer_pools = !context->for_gpu && !context->is_plain &&
                           !text_has_word(context->left_out, "integer_pools"),
      .count = count,
      .is_unit = ARENA_ARRAY(arena, bool, count),
      .is_pooled = ARENA_ARRAY(arena, bool, count),
      .is_materialized = ARENA_ARRAY(arena, bool, count),
      .is_assigned = ARENA_ARRAY(arena, bool, count),
      .group = ARENA_ARRAY(arena, int, count),
      .unit = ARENA_ARRAY(arena, FuseUnit, count),
      .readers = ARENA_ARRAY(arena, FuseReaders, count)};
  Tasks tasks = {0};
  if (tasks_find(context, prepared, arena, &tasks)) plan.task = tasks.task;
  fuse_choose_units(&plan);
  fuse_group_units(&plan);
  return fuse_emit(&plan, graph->arena);
}
