/* nvptx_map: see nvptx_map.h. */
#include "codegen/nvptx_map.h"

/* Of a convolution's flat operand: [output channels of all groups][window][input channels], or
 * [images and places][group][output channels]. */
static PlanMap flat_map_of(const Contract *c, const Operand *operand) {
  bool is_weight = c->kind == KIND_GRAD_INPUT;
  int64_t row = c->bytes * (is_weight ? c->n : c->m), middle = is_weight ? c->windows : c->batches;
  return (PlanMap){.arg = operand->argument,
                   .dtype = c->dtype,
                   .rank = 3,
                   .dim = {is_weight ? c->n : c->m, middle, is_weight ? c->form.out * c->batches : c->k},
                   .stride = {c->bytes, row, row * middle},
                   .box = {NVPTX_WGMMA_ROW / c->bytes, 1, c->tile.steps},
                   .swizzle = NVPTX_WGMMA_ROW};
}

/* Of an operand [batch][along][k], or [batch][k][along] where it is flat: boxes are a panel (half of
 * one that two blocks share), or 64 neighbours of one. */
static PlanMap panel_map_of(const Contract *c, const Operand *operand, int64_t along, int tile) {
  if (c->kind == KIND_GRAD_INPUT || c->kind == KIND_GRAD_WEIGHT) return flat_map_of(c, operand);
  int64_t row = operand->is_deep ? c->k : along, rows = operand->is_deep ? along : c->k;
  int64_t pitch = (c->kind == KIND_DOT ? operand->pitch : c->k) * c->bytes;
  return (PlanMap){.arg = operand->argument,
                   .dtype = c->bytes == 1 ? DT_U8 : c->dtype, /* bytes that are copied */
                   .rank = 3,
                   .dim = {row, rows, c->batches},
                   .stride = {c->bytes, pitch, pitch * rows},
                   .box = {NVPTX_WGMMA_ROW / c->bytes, operand->is_deep ? tile : c->tile.steps, 1},
                   .swizzle = NVPTX_WGMMA_ROW};
}

void nvptx_make_maps(Contract *c) {
  PlanMap *maps = ARENA_ARRAY(c->job->module->arena, PlanMap, 2);
  const Tile *t = &c->tile;
  int count = 0;
  if (c->a.is_mapped)
    maps[count++] = panel_map_of(c, &c->a, c->m, t->pair == 2 ? t->tile_m / 2 : t->tile_m);
  if (c->b.is_mapped)
    maps[count++] = panel_map_of(c, &c->b, c->n, t->pair == 1 ? t->tile_n / 2 : t->tile_n);
  c->job->maps = maps;
  c->job->map_count = count;
}
