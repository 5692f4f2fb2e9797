/* nvptx_sparse: see nvptx_sparse.h. */
#include "codegen/nvptx_sparse.h"
#include "codegen/nvptx_across.h"
#include "codegen/nvptx_callback.h"
#include "passes/integers.h"
#include "passes/sparse.h"

enum {
  COLUMNS = ACROSS_COLUMNS, ROWS = ACROSS_ROWS, WARPS = ACROSS_WARPS,
  STEP = 32,                      /* of k, of an instruction */
  BLOCK = 64,                     /* steps of k that are read together */
  FRAGMENTS = 1024, PLACES = 128, /* bytes of a tile's block */
  MOST_SPLITS = 32
};
/* For the estimate, of an H100: cycles of a scheduler, which has two of a block's warps, and of all. */
enum {
  ROW_CYCLES = 14,     /* of 8 rows and 32 steps of k: read, and halves exchanged */
  MMA_CYCLES = 9,
  READ_CYCLES = 6,     /* of a tile's 64 steps */
  LOAD_BYTES = 32,     /* in a cycle of a multiprocessor, from L2 */
  BEGIN_CYCLES = 2200, /* first blocks from memory, sums, epilogue */
  COMBINE_CYCLES = 2900,
  MEMORY_BYTES = 1900  /* in a cycle, all multiprocessors together */
};

/* How weights lie, packed: see kernels/sparse_ptx.c. */
typedef struct {
  int64_t blocks, tiles;
} SparsePacking;

static SparsePacking sparse_packing(const Contract *c) {
  return (SparsePacking){(c->k + BLOCK - 1) / BLOCK, (c->n + COLUMNS - 1) / COLUMNS};
}
static int64_t sparse_fragments(const SparsePacking *p) { return p->tiles * p->blocks * FRAGMENTS; }

bool nvptx_sparse_suits(const Node *step, const Node *product) {
  return sparse_has_kernel(product) && integers_packed_operand(step, true) >= 0;
}

/* ── how it is cut ──────────────────────────────────────────────────────────────────────────── */
static double sparse_cycles(const Contract *c, const SparsePacking *p, const Tile *tile) {
  double rows = tile->micro_m / ROWS, columns = tile->micro_n / COLUMNS, steps = BLOCK / STEP;
  double busy = (steps * (rows * ROW_CYCLES + rows * columns * MMA_CYCLES) + columns * READ_CYCLES) * WARPS / 4;
  /* what several warps of a block read comes from L2 once, as a rule */
  int64_t across = tile->tile_n / tile->micro_n, slices = tile->slices;
  double read = (double)slices * (double)(tile->tile_m * BLOCK * 2 + across * tile->micro_n / COLUMNS * (FRAGMENTS + PLACES));
  if (busy < read / LOAD_BYTES) busy = read / LOAD_BYTES;
  double blocks = (double)((c->m + tile->tile_m - 1) / tile->tile_m) * (double)((c->n + tile->tile_n - 1) / tile->tile_n) * tile->splits;
  double rounds = blocks <= MULTIPROCESSORS ? 1 : blocks / MULTIPROCESSORS;
  busy *= rounds * (double)((tile->part + tile->slices - 1) / tile->slices);
  double bytes = (double)(sparse_fragments(p) / FRAGMENTS * (FRAGMENTS + PLACES)) / MEMORY_BYTES;
  double cycles = (busy > bytes ? busy : bytes) + BEGIN_CYCLES * (rounds > 2 ? rounds / 2 : 1);
  double parts = 8.0 * (double)(c->m * c->n * tile->splits) / (MULTIPROCESSORS * LOAD_BYTES / 2);
  return tile->splits > 1 ? cycles + COMBINE_CYCLES + parts : cycles;
}

static const AcrossForm sparse_forms[] = {
    {1, 1, 1, false}, {1, 1, 2, false}, {1, 1, 4, false}, {1, 1, 8, false}, {1, 2, 1, false}, {1, 2, 2, false}, {1, 2, 4, false}, {1, 2, 8, false},
    {2, 1, 1, false}, {2, 2, 2, false}, {2, 2, 8, false}, {2, 2, 4, true},  {4, 2, 8, false}, {4, 2, 4, true},  {4, 2, 2, true},  {4, 2, 2, false},
    {4, 4, 2, true},  {4, 4, 4, true},  {2, 4, 4, true},  {2, 4, 8, false}, {1, 4, 8, false},
};
enum { SPARSE_FORMS = sizeof sparse_forms / sizeof *sparse_forms };

static void sparse_try(Contract *c, const SparsePacking *p, const AcrossForm *form, int64_t splits) {
  Tile tile = nvptx_across_tile(form, p->blocks, BLOCK, splits);
  tile.cycles = sparse_cycles(c, p, &tile);
  if (!c->tile.steps || tile.cycles < c->tile.cycles) c->tile = tile;
}

void nvptx_sparse_choose(Contract *c) {
  SparsePacking p = sparse_packing(c);
  const Module *module = c->job->module;
  if (module->only_tile) sparse_try(c, &p, &sparse_forms[(module->only_tile - 1) % SPARSE_FORMS], module->only_splits);
  for (int i = 0; i < SPARSE_FORMS && !module->only_tile; i++)
    for (int64_t splits = 1; splits <= MOST_SPLITS; splits *= 2) sparse_try(c, &p, &sparse_forms[i], splits);
  c->job->has_packed = true;
  c->job->out->packed[1] = sparse_fragments(&p) / FRAGMENTS * (FRAGMENTS + PLACES);
}

/* ── constants and callbacks ────────────────────────────────────────────────────────────────── */
void nvptx_sparse_define(Contract *c) {
  SparsePacking p = sparse_packing(c);
  const Constant constants[] = {{"gemm_is_brain", c->dtype == DT_BF16}};
  module_define_constants(c->job->module, c->suffix, constants, 1);
  nvptx_across_define(c, p.blocks, "gemm_places", sparse_fragments(&p));
}

void nvptx_sparse_pack(Contract *c) {
  SparsePacking p = sparse_packing(c);
  nvptx_across_pack(c, p.tiles * COLUMNS * p.blocks * (BLOCK / STEP));
}
