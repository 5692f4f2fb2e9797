/* nvptx_tile: how a product is cut. A small model of an H100's cycles decides: its 132
 * multiprocessors should all be busy and their arithmetic units fed, and a second launch that adds
 * the parts of split sums has a price. The result depends on shapes only, so an artifact is the
 * same everywhere. Sources of the figures: docs/kernels.md. */
#include "codegen/nvptx_contract.h"

enum {
  MULTIPROCESSORS = 132,
  FMA_PER_CYCLE = 128,       /* f32, per multiprocessor; f64: half */
  LOAD_BYTES_PER_CYCLE = 32, /* of one multiprocessor from L2 when all load */
  BLOCK_CYCLES = 1400,       /* first panel from memory, epilogue */
  PANEL_CYCLES = 80,         /* barrier, waiting, addresses */
  LAUNCH_CYCLES = 2600,      /* a second launch, in a graph */
  SHARED_MOST = 48 << 10,    /* of a block without asking for more */
  MAX_SPLITS = 32,
};

/* tile m, n, micro m, n, slices, steps. All have 256 threads. */
static const Tile tiles_f32[] = {
    {128, 128, 8, 8, 1, 16}, {128, 64, 8, 8, 2, 16}, {64, 128, 8, 8, 2, 16}, {64, 64, 8, 8, 4, 32},
    {128, 32, 8, 8, 4, 32},  {32, 128, 8, 8, 4, 32}, {64, 64, 8, 4, 2, 16},  {64, 32, 8, 4, 4, 32},
    {32, 64, 4, 8, 4, 32},   {32, 32, 4, 4, 4, 32},  {32, 16, 4, 4, 8, 64},  {16, 32, 4, 4, 8, 64},
    {16, 16, 2, 4, 8, 64},   {16, 8, 2, 2, 8, 64},   {8, 16, 2, 2, 8, 64},   {8, 8, 2, 2, 16, 64},
};
static const Tile tiles_f64[] = {
    {64, 64, 4, 4, 1, 16},
    {32, 32, 4, 4, 4, 16},
    {16, 16, 2, 4, 8, 32},
};

static int64_t panel_elements(const Tile *tile, const Contract *c) {
  int a = c->a.is_deep ? tile->tile_m * (tile->steps + 4) : tile->tile_m * tile->steps;
  int b = c->b.is_deep ? tile->tile_n * (tile->steps + 4) : tile->tile_n * tile->steps;
  return a + b;
}

/* Stages while they fit, and the parts in which the finished tile leaves through the same memory.
 */
static void fit_memory(Tile *tile, const Contract *c) {
  int64_t size = c->dtype == DT_F64 ? 8 : 4, panel = panel_elements(tile, c) * size;
  tile->stages = 2;
  while (tile->stages < 4 && (tile->stages + 1) * panel <= SHARED_MOST * 7 / 8) tile->stages++;
  tile->shared = tile->stages * panel;
  int64_t leaving = tile->slices * tile->tile_m * (tile->tile_n + 4) * size;
  int64_t room = tile->shared > SHARED_MOST / 2 ? tile->shared : SHARED_MOST / 2;
  tile->passes = 1;
  while (leaving / tile->passes > room && tile->passes < tile->micro_m) tile->passes *= 2;
  if (leaving / tile->passes > tile->shared) tile->shared = leaving / tile->passes;
}

/* The share of the arithmetic rate that registers of this shape reach: what a thread reads from
 * shared memory for each step of k against what it multiplies. */
static double efficiency(const Tile *tile) {
  double multiply = tile->micro_m * tile->micro_n / 4.0;
  double read = (tile->micro_m + tile->micro_n) / 2.0;
  return 0.9 * multiply / (multiply + 0.35 * read);
}

static double estimate(const Tile *tile, const Contract *c) {
  double across = (double)((c->m + tile->tile_m - 1) / tile->tile_m) *
                  (double)((c->n + tile->tile_n - 1) / tile->tile_n);
  double blocks = across * (double)c->batches * (double)tile->splits;
  double panels = (double)((tile->part + tile->steps - 1) / tile->steps);
  double depth = panels * tile->steps, size = c->dtype == DT_F64 ? 8 : 4;
  double multiply = tile->tile_m * tile->tile_n * depth / FMA_PER_CYCLE / efficiency(tile);
  double load = (tile->tile_m + tile->tile_n) * depth * size / LOAD_BYTES_PER_CYCLE;
  double rounds = (double)(((int64_t)blocks + MULTIPROCESSORS - 1) / MULTIPROCESSORS);
  double latency = BLOCK_CYCLES + panels * PANEL_CYCLES;
  double resident = tile->micro_m * tile->micro_n >= 32 ? 2 : 4;
  double waits = rounds / resident < 1 ? 1 : rounds / resident;
  double cycles = rounds * (multiply > load ? multiply : load) + waits * latency;
  if (tile->splits > 1)
    cycles += LAUNCH_CYCLES + 2 * size * (double)(c->m * c->n * c->batches * tile->splits) /
                                  (MULTIPROCESSORS * LOAD_BYTES_PER_CYCLE / 2);
  return cycles;
}

/* 64 sums a thread leave registers for little else: not for the addresses of single elements, nor
 * for operands on their way through registers. */
static bool is_too_large(const Tile *tile, const Contract *c) {
  bool is_simple = c->a.is_async && c->b.is_async && c->a.wide == 4 && c->b.wide == 4;
  return tile->micro_m * tile->micro_n >= 64 && !is_simple;
}

void nvptx_choose_tile(Contract *c) {
  bool is_f64 = c->dtype == DT_F64;
  const Tile *tiles = is_f64 ? tiles_f64 : tiles_f32;
  size_t count =
      is_f64 ? sizeof tiles_f64 / sizeof *tiles_f64 : sizeof tiles_f32 / sizeof *tiles_f32;
  c->tile.cycles = -1;
  for (size_t i = 0; i < count; i++)
    for (int64_t splits = 1; splits <= MAX_SPLITS; splits *= 2) {
      Tile tile = tiles[i];
      if (is_too_large(&tile, c)) break;
      int64_t panels = (c->k + tile.steps - 1) / tile.steps;
      if (splits > 1 && splits > panels) break;
      tile.part = (panels + splits - 1) / splits * tile.steps;
      if (!tile.part) tile.part = tile.steps;
      tile.splits = c->k ? (c->k + tile.part - 1) / tile.part : 1;
      tile.cycles = estimate(&tile, c);
      if (c->tile.cycles >= 0 && tile.cycles >= c->tile.cycles) continue;
      fit_memory(&tile, c);
      if (tile.shared <= SHARED_MOST) c->tile = tile;
    }
}
