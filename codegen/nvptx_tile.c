/* nvptx_tile: how a product is cut. A small model of an H100's cycles decides: its 132
 * multiprocessors should all be busy and their arithmetic units fed, and a second launch that adds
 * the parts of split sums has a price. The result depends on shapes only, so an artifact is the
 * same everywhere. Sources of the figures: docs/kernels.md. */
#include "codegen/nvptx_region.h"
#include "codegen/nvptx_rounded.h"
#include "codegen/nvptx_sparse.h"
#include "codegen/nvptx_rows.h"
#include "codegen/nvptx_sums.h"
#include <string.h>

enum {
  SHARED_BYTES_PER_CYCLE = 128,
  LOAD_BYTES_PER_CYCLE = 32, /* of one multiprocessor from L2 when all load */
  BLOCK_CYCLES = 1400,       /* first panel from memory, epilogue */
  PANEL_CYCLES = 80,         /* barrier, waiting, addresses; */
  MAPPED_PANEL_CYCLES = 30,  /* by tensor maps only waiting, */
  MIXED_PANEL_CYCLES = 60,   /* and of one operand by them */
  LAUNCH_CYCLES = 2600,      /* a second launch, in a graph; */
  CHAINED_CYCLES = 600,      /* or one that goes by rows, in a launch with those behind it */
  SHARED_MMA = 100 << 10,    /* two such blocks fit a multiprocessor */
  SHARED_WGMMA = 200 << 10,  /* one */
  MBARRIERS = 16,            /* bytes a stage */
  REGION_WORD = 4,
  MOST_STAGES = 4,
  MOST_REGION_STAGES = 6,    /* of weights alone, which a region leaves behind in time */
  LEAST_STAGES = 3,          /* of wgmma: one is read while one is filled */
  MAX_SPLITS = MULTIPROCESSORS,
  MOST_TWICE = 128 * 128, /* results of a block of wgmma that shares a multiprocessor with another one */
  PAIR_CYCLES = 600, /* barriers of a cluster at both ends of a kernel */
  PART_CYCLES = 90,  /* adding one part of a split sum, some in flight */
  MANY_OPERANDS = 9,
  AHEAD = 4,       /* groups of columns whose operands a thread's epilogue awaits at once; */
  AHEAD_ALONE = 2, /* and where it reads none, in a block that has a multiprocessor to itself */
  EVERY_SPLIT = 16, /* up to here any number of parts is tried, of wgmma all, then powers of two */
};

/* tile m, n, micro m, n, slices, steps. All but some of wgmma have 256 threads. */
static const Tile tiles_f32[] = {
    {128, 128, 8, 8, 1, 16}, {128, 64, 8, 8, 2, 16}, {64, 128, 8, 8, 2, 16}, {64, 64, 8, 8, 4, 32},
    {128, 32, 8, 8, 4, 32},  {32, 128, 8, 8, 4, 32}, {64, 64, 8, 4, 2, 16},  {64, 32, 8, 4, 4, 32},
    {32, 64, 4, 8, 4, 32},   {32, 32, 4, 4, 4, 32},  {32, 16, 4, 4, 8, 64},  {16, 32, 4, 4, 8, 64},
    {16, 16, 2, 4, 8, 64},   {16, 8, 2, 2, 8, 64},   {8, 16, 2, 2, 8, 64},   {8, 8, 2, 2, 16, 64},
    {128, 32, 8, 4, 2, 16},  {64, 32, 4, 4, 2, 16},  {32, 32, 4, 2, 2, 16},  {128, 32, 4, 4, 1, 8},
};
static const Tile tiles_f64[] = {
    {64, 64, 4, 4, 1, 16},
    {32, 32, 4, 4, 4, 16},
    {16, 16, 2, 4, 8, 32},
};
/* Of tensor cores: micro is what a warp makes. */
static const Tile tiles_mma16[] = {
    {128, 128, 64, 32, 1, 32}, {128, 64, 32, 32, 1, 32}, {64, 128, 32, 32, 1, 32},
    {64, 64, 32, 32, 2, 64},   {64, 32, 32, 16, 2, 64},  {32, 64, 16, 32, 2, 64},
    {32, 32, 16, 16, 2, 64},   {16, 32, 16, 16, 4, 128}, {32, 16, 16, 16, 4, 128},
    {16, 16, 16, 16, 8, 128},
};
static const Tile tiles_mma32[] = {
    {128, 128, 64, 32, 1, 16}, {128, 64, 32, 32, 1, 16}, {64, 128, 32, 32, 1, 16},
    {64, 64, 32, 32, 2, 32},   {64, 32, 32, 16, 2, 32},  {32, 64, 16, 32, 2, 32},
    {32, 32, 16, 16, 2, 32},   {16, 32, 16, 16, 4, 64},  {32, 16, 16, 16, 4, 64},
    {16, 16, 16, 16, 8, 64},
};
/* Of 8-bit floats: twice as many steps. A thread has a panel's sums beside those of all panels. */
static const Tile tiles_mma8[] = {
    {128, 128, 64, 32, 1, 64}, {128, 64, 32, 32, 1, 64}, {64, 128, 32, 32, 1, 64},
    {64, 64, 32, 32, 2, 128},  {64, 32, 32, 16, 2, 128}, {32, 64, 16, 32, 2, 128},
    {32, 32, 16, 16, 2, 128},  {16, 32, 16, 16, 4, 256}, {32, 16, 16, 16, 4, 256},
    {16, 16, 16, 16, 8, 256},
};
/* Micro is what a warpgroup makes: one to three of them, of 32 to 128 sums a thread. */
static const Tile tiles_wgmma[] = {
    {128, 256, 64, 256, 1, 64}, {256, 128, 128, 128, 1, 64}, {128, 192, 64, 192, 1, 64},
    {128, 128, 64, 128, 1, 64}, {256, 64, 128, 64, 1, 64},   {64, 256, 64, 128, 1, 64},
    {192, 128, 64, 128, 1, 64}, {64, 192, 64, 192, 1, 64},
    {128, 64, 64, 64, 1, 64},   {64, 128, 64, 64, 1, 64},    {64, 64, 64, 64, 1, 64},
};
/* Of 8-bit floats: a row of 128 bytes is 128 steps, and a thread has a panel's sums beside those of all panels. */
static const Tile tiles_wgmma8[] = {
    {128, 192, 64, 192, 1, 128}, {128, 128, 64, 128, 1, 128}, {256, 64, 128, 64, 1, 128}, {64, 256, 64, 128, 1, 128},
    {128, 64, 64, 64, 1, 128},   {64, 128, 64, 64, 1, 128},  {64, 64, 64, 64, 1, 128},
};
typedef struct {
  const Tile *tiles;
  size_t count;
  int fma_per_cycle; /* of a multiprocessor, in practice at best */
} Unit;
#define TILES(array) array, sizeof(array) / sizeof *(array)
static const Unit unit_f64 = {TILES(tiles_f64), 58}, unit_wgmma8 = {TILES(tiles_wgmma8), 3600};
static const Unit units[] = {
    [UNIT_SIMT] = {TILES(tiles_f32), 116},     [UNIT_MMA16] = {TILES(tiles_mma16), 1200},
    [UNIT_MMA32] = {TILES(tiles_mma32), 600},  [UNIT_MMA8] = {TILES(tiles_mma8), 2400},
    [UNIT_WHOLE] = {TILES(tiles_mma8), 2400},  [UNIT_WGMMA] = {TILES(tiles_wgmma), 2000},
};

static const Unit *tile_unit(const Contract *c) {
  return c->dtype == DT_F64                        ? &unit_f64
         : c->unit == UNIT_WGMMA && c->bytes == 1 ? &unit_wgmma8
                                                  : &units[c->unit];
}

static bool is_hopper(const Contract *c) { return !strcmp(c->job->module->cpu, "sm_90a"); }

/* Those that multiply; with tensor maps there are more. */
static int multiplying_threads(const Tile *tile, ContractUnit unit) {
  int lanes = unit == UNIT_SIMT ? 1 : unit == UNIT_WGMMA ? 4 * WARP : WARP;
  return lanes * tile->slices * (tile->tile_m / tile->micro_m) * (tile->tile_n / tile->micro_n);
}

int nvptx_tile_threads(const Contract *c) {
  const Tile *tile = &c->tile;
  if (c->unit == UNIT_ROWS) return CHAIN_THREADS;
  return multiplying_threads(tile, c->unit) + (tile->stays ? 4 * WARP : c->has_maps ? WARP : 0);
}

/* Does the epilogue read tensors of the result's size? They come from memory, while little else is
 * going on: several groups' reads should be under way at once. */
static bool reads_more(const Contract *c) {
  const Graph *body = c->job->node->body;
  for (int i = 0; body && i < body->nodes.count; i++) {
    const Node *node = body->nodes.at[i];
    bool is_operand = node == c->a.node || node == c->b.node;
    if (node->op == OP_ARG && !is_operand && shape_equal(&node->type.shape, &c->node->type.shape))
      return true;
  }
  return false;
}

int nvptx_tile_ahead(const Contract *c) {
  const Tile *tile = &c->tile;
  if (!tile->stays) return reads_more(c) ? AHEAD : 1;
  int groups = tile->tile_m / tile->passes * (tile->tile_n / 4);
  return reads_more(c) ? groups / multiplying_threads(tile, c->unit) : AHEAD_ALONE;
}

/* Sums that a thread keeps: with more than 64 of them a second block finds no registers. */
static int nvptx_tile_sums_of(const Tile *tile, const Contract *c) {
  int lanes = c->unit == UNIT_SIMT ? 1 : c->unit == UNIT_WGMMA ? 4 * WARP : WARP;
  bool has_parts = c->unit == UNIT_WGMMA && c->bytes == 1;
  return (has_parts ? 2 : 1) * tile->micro_m * tile->micro_n / lanes;
}

/* Of wgmma: registers for the sums of two blocks on a multiprocessor. */
static bool may_be_two(const Tile *tile, const Contract *c) {
  int sums = nvptx_tile_sums_of(tile, c);
  return sums <= 64 && sums * multiplying_threads(tile, c->unit) <= MOST_TWICE;
}

/* With tensor maps a producer's registers are those that two warpgroups leave. */
static bool may_have_maps(const Tile *tile, const Contract *c) {
  int threads = multiplying_threads(tile, c->unit), two = 2 * 4 * WARP;
  return threads == two || (threads < two && nvptx_tile_sums_of(tile, c) <= 64);
}

int nvptx_tile_resident(const Contract *c) {
  const Tile *tile = &c->tile;
  if (c->unit == UNIT_WGMMA)
    return may_be_two(tile, c) && tile->shared <= SHARED_MMA ? 2 : 1;
  if (c->unit == UNIT_MMA8) return nvptx_tile_sums_of(tile, c) < 64 ? 2 : 1;
  if (c->unit == UNIT_SPARSE) return nvptx_tile_sums_of(tile, c) <= 16 ? 2 : 1;
  if (c->unit == UNIT_ROUNDED) return tile->stages > 1 || nvptx_tile_sums_of(tile, c) <= 8 ? 2 : 1;
  return tile->micro_m * tile->micro_n >= 32 ? 2 : 1;
}

/* The rows of panels lie some bytes apart, as pitch() in the kernels says. */
static int64_t panel_of(const Tile *tile, const Contract *c, int side, bool is_deep) {
  int width = (is_deep ? tile->steps : side) * c->bytes, pad = 0;
  if (c->unit == UNIT_SIMT) pad = is_deep ? 16 : 0;
  if (c->unit == UNIT_MMA16 || c->unit == UNIT_MMA32 || c->unit == UNIT_MMA8 || c->unit == UNIT_WHOLE)
    pad = width < 128 ? 0 : c->unit == UNIT_MMA32 && !is_deep ? 32 : 16;
  return (int64_t)(is_deep ? side : tile->steps) * (width + pad);
}

/* How many tiles there are down and across: of clusters, whole ones. */
static void count_tiles(const Tile *tile, const Contract *c, int64_t count[2]) {
  count[0] = (c->m + tile->tile_m - 1) / tile->tile_m;
  count[1] = (c->n + tile->tile_n - 1) / tile->tile_n;
  if (tile->pair) count[tile->pair - 1] += count[tile->pair - 1] % 2;
}

/* With tensor maps the grid has one dimension, and a block that has a multiprocessor to itself
 * computes several tiles. */
void nvptx_tile_grid(const Contract *c, int64_t grid[3]) {
  const Tile *tile = &c->tile;
  count_tiles(tile, c, grid);
  grid[2] = c->batches * c->classes * tile->splits;
  if (!c->has_maps) return;
  grid[0] *= grid[1] * grid[2];
  grid[1] = grid[2] = 1;
  int64_t most = c->job->module->only_tile ? 2 : MULTIPROCESSORS; /* tests have few tiles */
  if (tile->stays && grid[0] > most) grid[0] = most;
}

static int64_t panel_bytes(const Tile *tile, const Contract *c) {
  return panel_of(tile, c, tile->tile_m, c->a.is_deep) +
         panel_of(tile, c, tile->tile_n, c->b.is_deep);
}

/* A block that computes several tiles stores a finished one in four parts, through memory of its
 * own beside the panels, which the next tile uses already. Where two blocks share a multiprocessor
 * they hide each other's epilogues, and a tile is stored through the panels' memory. */
static void fit_mapped(Tile *tile, const Contract *c, int64_t panel, int64_t leaving) {
  tile->stays = c->has_maps && nvptx_tile_sums_of(tile, c) > 64;
  if (tile->stays) {
    tile->passes = 4;
    tile->sums = tile->stages * panel;
    tile->shared = tile->sums + leaving / tile->passes;
  }
  tile->barriers = tile->shared;
  tile->shared += MBARRIERS * tile->stages;
}

/* Regions, and a word for each row of one. */
static int64_t region_bytes(const Tile *tile) { return tile->region * (tile->regions * NVPTX_WGMMA_ROW + REGION_WORD); }

/* Chooses the number of stages, and the parts in which the finished tile is stored through the same
 * memory. Tensor cores read a panel faster than memory fills one, so they get more stages, in more
 * shared memory than a block has by default. */
static void fit_memory(Tile *tile, const Contract *c) {
  int64_t panel = panel_bytes(tile, c), sum = c->dtype == DT_F64 ? 8 : 4;
  int64_t most = c->unit == UNIT_SIMT ? SHARED_STATIC * 7 / 8 : SHARED_MMA;
  int64_t regions = region_bytes(tile);
  if (regions) panel = panel_of(tile, c, tile->tile_n, c->b.is_deep);
  tile->stages = 2;
  if (c->unit == UNIT_WGMMA) { /* one stage is read while one is filled, so three at least */
    tile->stages = LEAST_STAGES;
    if (regions + tile->stages * panel > most || !may_be_two(tile, c)) most = SHARED_WGMMA;
  }
  int most_stages = !regions ? MOST_STAGES : c->windows < MOST_REGION_STAGES ? (int)c->windows : MOST_REGION_STAGES;
  while (tile->stages < most_stages && regions + (tile->stages + 1) * panel <= most) tile->stages++;
  tile->shared = regions + tile->stages * panel;
  tile->lines = tile->shared - tile->region * REGION_WORD;
  int sum_pad = c->unit == UNIT_SIMT ? 4 : 8;
  int64_t leaving = tile->slices * tile->tile_m * (tile->tile_n + sum_pad) * sum;
  int64_t room = tile->shared > SHARED_STATIC / 2 ? tile->shared : SHARED_STATIC / 2;
  int most_passes = c->unit == UNIT_SIMT    ? tile->micro_m
                    : c->unit == UNIT_WGMMA ? 1
                                            : tile->micro_m / 16;
  tile->passes = 1;
  while (leaving / tile->passes > room && tile->passes < most_passes) tile->passes *= 2;
  if (leaving / tile->passes > tile->shared) tile->shared = leaving / tile->passes;
  /* each warp leaves numbers of all columns, or half of them those of 256 */
  int64_t numbers = nvptx_sums_numbers(c) * (multiplying_threads(tile, c->unit) / WARP) * tile->tile_n * sum;
  if (numbers > tile->shared) tile->shared = numbers;
  if (c->a.is_mapped || c->b.is_mapped) fit_mapped(tile, c, panel, leaving);
}

/* The share of the arithmetic rate that registers of this shape reach: what a thread reads from
 * shared memory for each step of k against what it multiplies. */
static double efficiency(const Tile *tile, const Contract *c) {
  if (c->unit == UNIT_WGMMA) { /* 64 x n at a time, both operands read from shared memory */
    double multiply = 64.0 * tile->micro_n / 2, read = 64 + tile->micro_n;
    return multiply / (multiply + 4 * read);
  }
  if (c->unit != UNIT_SIMT) { /* in fragments of 16 x 8, read 16 x 16 at a time */
    double multiply = tile->micro_m * tile->micro_n, read = 16.0 * (tile->micro_m + tile->micro_n);
    return multiply / (multiply + 0.5 * read);
  }
  double multiply = tile->micro_m * tile->micro_n / 4.0;
  double read = (tile->micro_m + tile->micro_n) / 2.0;
  return multiply / (multiply + 0.35 * read);
}

/* Hopper has mma.sync of 8-bit floats by those of f16 only. */
static double fma_per_cycle(const Contract *c) {
  return c->unit == UNIT_MMA8 && is_hopper(c) ? units[UNIT_MMA16].fma_per_cycle : tile_unit(c)->fma_per_cycle;
}

/* Cycles of shared memory, 128 bytes each, of a tile of wgmma: fragments and descriptors that instructions read, and what
 * fills regions, or panels of a, and panels of b, by cp.async through the first-level cache. */
static double through_shared(const Tile *tile, const Contract *c, double depth, double of_a, double of_b) {
  double instructions = (double)(tile->tile_m / 64) * (tile->tile_n / tile->micro_n);
  double read = instructions * (64 + tile->micro_n) * depth * c->bytes;
  double filled = (c->a.is_mapped ? 1 : 2) * of_a + (c->b.is_mapped ? 1 : 2) * of_b;
  return (read + filled) / SHARED_BYTES_PER_CYCLE;
}

/* What is loaded of panels, or of regions and panels, takes at least: from L2, and through shared memory. */
static double loading(const Tile *tile, const Contract *c, double depth) {
  double of_a = tile->tile_m * depth * c->bytes, of_b = tile->tile_n * depth * c->bytes;
  if (tile->region) of_a = tile->region_mean * depth / (double)c->windows * c->bytes;
  double load = (of_a + of_b) / LOAD_BYTES_PER_CYCLE, shared = through_shared(tile, c, depth, of_a, of_b);
  return shared > load ? shared : load;
}

static double estimate(const Tile *tile, const Contract *c) {
  int64_t count[2];
  count_tiles(tile, c, count);
  double across = (double)count[0] * (double)count[1];
  double blocks = across * (double)(c->batches * c->classes) * (double)tile->splits;
  double panels = (double)((tile->part + tile->steps - 1) / tile->steps);
  double depth = panels * tile->steps, sum = c->dtype == DT_F64 ? 8 : 4;
  double multiply =
      tile->tile_m * tile->tile_n * depth / fma_per_cycle(c) / efficiency(tile, c);
  double sides = tile->pair == 1   ? tile->tile_m + tile->tile_n / 2.0
                 : tile->pair == 2 ? tile->tile_m / 2.0 + tile->tile_n
                                   : tile->tile_m + tile->tile_n;
  double load = sides * depth * c->bytes / LOAD_BYTES_PER_CYCLE;
  if (c->unit == UNIT_WGMMA && !c->has_maps) load = loading(tile, c, depth);
  double rounds = (double)(((int64_t)blocks + MULTIPROCESSORS - 1) / MULTIPROCESSORS);
  double waiting = c->has_maps                           ? MAPPED_PANEL_CYCLES
                   : c->a.is_mapped || c->b.is_mapped ? MIXED_PANEL_CYCLES
                                                      : PANEL_CYCLES;
  double latency = BLOCK_CYCLES + panels * waiting;
  int64_t panel = tile->region ? panel_of(tile, c, tile->tile_n, c->b.is_deep) : panel_bytes(tile, c);
  bool is_alone = !may_be_two(tile, c) || (!c->has_maps && region_bytes(tile) + LEAST_STAGES * panel > SHARED_MMA);
  double resident = c->unit == UNIT_WGMMA ? (is_alone ? 1 : 2)
                    : c->unit != UNIT_SIMT || tile->micro_m * tile->micro_n >= 32 ? 2
                                                                                  : 4;
  double waits = rounds / resident < 1 ? 1 : rounds / resident;
  if (c->has_maps && resident < 2) { /* only the first panel of all is waited for */
    waits = rounds;
    latency -= BLOCK_CYCLES * (1 - 1 / rounds);
  }
  double cycles = rounds * (multiply > load ? multiply : load) + waits * latency;
  if (tile->pair) cycles += PAIR_CYCLES;
  if (tile->splits > 1)
    cycles += (c->job->rows ? CHAINED_CYCLES : LAUNCH_CYCLES) + PART_CYCLES * (double)(tile->splits + 7) / 8 +
              2 * sum * (double)(c->m * c->n * c->batches * c->classes * tile->splits) /
                  (MULTIPROCESSORS * LOAD_BYTES_PER_CYCLE / 2);
  return cycles;
}

/* 64 sums a thread leave few other registers: not enough for the addresses of single elements, for
 * operands that are loaded through registers, or for an epilogue of many operands. */
static bool is_too_large(const Tile *tile, const Contract *c) {
  bool is_simple = c->a.is_async && c->b.is_async && c->a.wide == 4 && c->b.wide == 4;
  if (c->unit == UNIT_WGMMA || nvptx_tile_sums_of(tile, c) < 64) return false;
  return c->job->operand_count > MANY_OPERANDS || (c->unit == UNIT_SIMT && !is_simple);
}

/* Of columns: each thread adds up the same four of them in all of its rows. */
static bool has_room_for_sums(const Tile *tile, const Contract *c) {
  return !c->sums.count || multiplying_threads(tile, c->unit) % (tile->tile_n / 4) == 0;
}

/* With this tile and number of splits, unless k is too short for it, or sums of columns want whole
 * elements or another tile. */
static bool tile_cut(Contract *c, Tile tile, int64_t splits) {
  if (!has_room_for_sums(&tile, c) || (c->sums.count && splits > 1)) return false;
  int64_t depth = (c->k + c->classes - 1) / c->classes; /* of a class, on the average */
  int64_t panels = (depth + tile.steps - 1) / tile.steps;
  if (splits > 1 && splits > panels) return false;
  tile.part = (panels + splits - 1) / splits * tile.steps;
  if (!tile.part) tile.part = tile.steps;
  tile.splits = depth ? (depth + tile.part - 1) / tile.part : 1;
  tile.cycles = estimate(&tile, c);
  if (c->tile.steps && tile.cycles >= c->tile.cycles) return true;
  fit_memory(&tile, c);
  c->tile = tile;
  return true;
}

/* wgmma reads rows of 16 bytes from shared memory, of 8-bit floats with neighbours in k. */
static bool may_wgmma(const Contract *c) {
  bool is_unit = c->unit == UNIT_MMA16 || (c->unit == UNIT_MMA8 && c->a.is_deep && c->b.is_deep);
  return is_unit && is_hopper(c) && c->a.wide * c->bytes == 16 && c->b.wide * c->bytes == 16 &&
         !module_leaves_out(c->job->module, "wgmma");
}

/* Which operands lie in memory as their panels do? Those of products; weights, for the gradient of the input by panels of
 * one place of the window; and the gradient of the result, for that of the weights. */
static bool may_map(const Contract *c, bool is_a) {
  const Operand *operand = is_a ? &c->a : &c->b;
  bool has_rows = c->form.is_nhwc || c->windows == 1;
  bool lies = c->kind == KIND_DOT          ? true
              : c->kind == KIND_CONV       ? !is_a
              : c->kind == KIND_GRAD_INPUT ? !is_a && has_rows && c->form.out % (NVPTX_WGMMA_ROW / c->bytes) == 0
                                           : is_a && c->form.is_nhwc;
  return lies && operand->is_async && c->k > 0 && nvptx_may_map(c->job, operand->argument) &&
         !module_leaves_out(c->job->module, "tma");
}
static void map_what_may(Contract *c) {
  c->a.is_mapped = may_map(c, true);
  c->b.is_mapped = may_map(c, false);
  c->has_maps = c->a.is_mapped && c->b.is_mapped;
}

/* Lays the regions of a tile's rows out; false if they do not fit into shared memory. */
static bool takes_region(const Contract *c, Tile *tile) {
  nvptx_lay_region(c, tile);
  return region_bytes(tile) + LEAST_STAGES * panel_of(tile, c, tile->tile_n, c->b.is_deep) <= SHARED_WGMMA;
}

/* For tests: only one tile, counted from 1 through those of the unit, of wgmma, of wgmma with
 * tensor maps of what may have one, and of clusters of both kinds, or with regions of images. */
static void take_only(Contract *c, int number, int splits) {
  Contract hopper = *c;
  hopper.unit = UNIT_WGMMA;
  size_t own = tile_unit(c)->count, more = may_wgmma(c) ? tile_unit(&hopper)->count : 0;
  map_what_may(&hopper);
  bool has_regions = more && nvptx_may_region(c);
  size_t ways = hopper.has_maps ? 4 : (hopper.a.is_mapped || hopper.b.is_mapped ? 2 : 1) + has_regions;
  size_t only = (size_t)(number - 1) % (own + more * ways);
  if (only >= own) c->unit = UNIT_WGMMA;
  if (only >= own + more) map_what_may(c);
  Tile tile = tile_unit(c)->tiles[only >= own ? (only - own) % more : only];
  if (!has_room_for_sums(&tile, c) || (c->has_maps && !may_have_maps(&tile, c)))
    tile = tile_unit(c)->tiles[tile_unit(c)->count - 1];
  bool may_pair = c->has_maps && !module_leaves_out(c->job->module, "clusters");
  tile.pair = may_pair ? (int)((only - own) / more) - 1 : 0;
  if (has_regions && only >= own + more * (ways - 1)) { /* some do not fit */
    Tile with = tile;
    if (takes_region(c, &with)) tile = with, splits = 1;
  }
  if (!tile_cut(c, tile, splits)) tile_cut(c, tile, 1);
}

static void try_splits(Contract *c, Tile tile, int pair) {
  tile.pair = pair;
  int64_t every = c->unit == UNIT_WGMMA ? MAX_SPLITS : EVERY_SPLIT;
  for (int64_t splits = 1; splits <= MAX_SPLITS; splits += splits < every ? 1 : splits)
    if (!tile_cut(c, tile, splits)) break;
}

static void try_regions(Contract *c) {
  const Unit *unit = tile_unit(c);
  for (size_t i = 0; i < unit->count; i++) {
    Tile tile = unit->tiles[i];
    if (takes_region(c, &tile)) tile_cut(c, tile, 1);
  }
}

static void try_all(Contract *c) {
  const Unit *unit = tile_unit(c);
  int pairs = c->has_maps && !module_leaves_out(c->job->module, "clusters") ? 2 : 0;
  /* boxes come from afar: where two blocks share a multiprocessor, panels are too few to wait for them */
  bool is_mixed = c->a.is_mapped != c->b.is_mapped;
  for (size_t i = 0; i < unit->count; i++) {
    if (is_too_large(&unit->tiles[i], c) || (is_mixed && may_be_two(&unit->tiles[i], c))) continue;
    if (c->has_maps && !may_have_maps(&unit->tiles[i], c)) continue;
    for (int pair = 0; pair <= pairs; pair++) try_splits(c, unit->tiles[i], pair);
  }
  if (c->unit == UNIT_WGMMA && nvptx_may_region(c)) try_regions(c);
}

void nvptx_choose_tile(Contract *c) {
  const Module *module = c->job->module;
  if (c->unit == UNIT_ROUNDED) {
    nvptx_rounded_choose(c);
    return;
  }
  if (c->unit == UNIT_SPARSE) {
    nvptx_sparse_choose(c);
    return;
  }
  if (c->unit == UNIT_ROWS) {
    nvptx_rows_choose(c);
    return;
  }
  if (module->only_tile) {
    take_only(c, module->only_tile, module->only_splits);
    return;
  }
  try_all(c);
  if (!may_wgmma(c)) return;
  Contract hopper = *c;
  hopper.unit = UNIT_WGMMA;
  Contract mapped = hopper;
  map_what_may(&mapped);
  if (!mapped.has_maps) try_all(&hopper);
  if (mapped.a.is_mapped || mapped.b.is_mapped) try_all(&mapped);
  if (hopper.tile.cycles < c->tile.cycles) *c = hopper;
  if (mapped.tile.cycles < c->tile.cycles) *c = mapped;
}
