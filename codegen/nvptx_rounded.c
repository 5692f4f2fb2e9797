/* nvptx_rounded: see nvptx_rounded.h. */
#include "codegen/nvptx_rounded.h"
#include "codegen/nvptx_across.h"
#include "codegen/nvptx_callback.h"
#include "codegen/nvptx_mma.h"
#include "passes/integers.h"

enum {
  COLUMNS = ACROSS_COLUMNS, ROWS = ACROSS_ROWS, WARPS = ACROSS_WARPS,
  STEP = 16,          /* of k, of an instruction */
  BLOCK_BYTES = 512,  /* of a tile and some steps of k */
  MOST_SPLITS = 32
};
/* For the estimate, of an H100: cycles of a scheduler, which has two of a block's warps, and of all. */
enum {
  SPLIT_CYCLES = 30,   /* of 8 rows and 16 steps of k: read and split; */
  STAGE_CYCLES = 38,   /* the same, through shared memory, … */
  STAGED_CYCLES = 2,   /* … from where a term's fragment is read */
  UNPACK_CYCLES = 14,  /* of 16 columns and 16 steps of k, and their scales' share */
  MMA_CYCLES = 7,
  LOAD_BYTES = 32,     /* in a cycle of a multiprocessor, from L2 */
  BEGIN_CYCLES = 2200, /* first blocks from memory, sums, epilogue */
  COMBINE_CYCLES = 2900,
  MEMORY_BYTES = 1900  /* in a cycle, all multiprocessors together */
};
static const double PAIRED = 1.9; /* rounds that two blocks on each multiprocessor take */

/* How weights lie, packed: see kernels/rounded_ptx.c. */
typedef struct {
  int64_t low, high, bits, group, groups, room, unit, steps, blocks, tiles;
} Packing;

static Packing packing_of(const Contract *c) {
  const int64_t *rounded = node_attr(c->node, ATTR_ROUNDED)->ints;
  Packing p = {.low = rounded[ROUNDED_LOW], .high = rounded[ROUNDED_HIGH], .group = rounded[ROUNDED_GROUP]};
  p.bits = p.low >= -8 && p.high <= 7 ? 4 : 8;
  p.groups = c->k / p.group;
  p.room = (p.group + STEP - 1) / STEP * STEP;
  p.steps = BLOCK_BYTES / COLUMNS * 8 / p.bits;
  p.unit = p.steps;
  while (p.room % p.unit) p.unit /= 2;
  p.blocks = (p.groups * p.room + p.steps - 1) / p.steps;
  p.tiles = (c->n + COLUMNS - 1) / COLUMNS;
  return p;
}

bool nvptx_rounded_suits(const Node *step, const Node *product) {
  return rounded_has_kernel(product) && integers_packed_operand(step, true) >= 0;
}

static int64_t rounded_number_bytes(const Contract *c, const Packing *p) { return c->batches * p->tiles * p->blocks * BLOCK_BYTES; }

/* That a number of a is the sum of; a whole number of 8 bits is bf16 as it is. */
static int terms(const Contract *c) {
  int64_t first = node_attr(c->node, ATTR_ROUNDED)->ints[ROUNDED_FIRST];
  if (first == ROUNDED_WHOLE || first == ROUNDED_BYTE) return 1;
  return c->job->module->allows_tf32 || node_int(c->node, ATTR_TF32, 0) ? 2 : 3;
}

/* ── how it is cut ──────────────────────────────────────────────────────────────────────────── */

/* Of one block's warps for one block of k: that of a slice, or that of all. */
static double block_cycles(const Contract *c, const Packing *p, const Tile *tile) {
  double rows = tile->micro_m / ROWS, columns = tile->micro_n / COLUMNS, steps = (double)(p->steps / STEP);
  double split = tile->stages > 1 ? (double)tile->tile_m / ROWS / WARPS * STAGE_CYCLES + rows * terms(c) * STAGED_CYCLES
                                  : rows * SPLIT_CYCLES;
  double busy = steps * (split + columns * UNPACK_CYCLES + rows * columns * terms(c) * MMA_CYCLES) * WARPS / 4;
  int64_t readers = tile->stages > 1 ? 1 : WARPS; /* of rows of a */
  double bytes = (double)(readers * tile->micro_m * p->steps * 4 + WARPS * tile->micro_n / COLUMNS * BLOCK_BYTES);
  return busy > bytes / LOAD_BYTES ? busy : bytes / LOAD_BYTES;
}

static double rounded_cycles(const Contract *c, const Packing *p, const Tile *tile) {
  double across = (double)((c->m + tile->tile_m - 1) / tile->tile_m) * (double)((c->n + tile->tile_n - 1) / tile->tile_n);
  double blocks = across * (double)(c->batches * tile->splits);
  double busy = (double)((tile->part + tile->slices - 1) / tile->slices) * block_cycles(c, p, tile);
  double rounds = blocks <= MULTIPROCESSORS ? 1 : blocks / MULTIPROCESSORS;
  if (tile->stages > 1 && rounds < PAIRED) rounds = PAIRED; /* a block alone waits half of its time */
  double bytes = (double)rounded_number_bytes(c, p) / MEMORY_BYTES;
  double cycles = (rounds * busy > bytes ? rounds * busy : bytes) + BEGIN_CYCLES * (rounds > 2 ? rounds / 2 : 1);
  double parts = 8.0 * (double)(c->batches * c->m * c->n * tile->splits) / (MULTIPROCESSORS * LOAD_BYTES / 2);
  return tile->splits > 1 ? cycles + COMBINE_CYCLES + parts : cycles;
}

static const AcrossForm rounded_forms[] = {
    {1, 1, 1, false}, {1, 1, 2, false}, {1, 1, 4, false}, {1, 1, 8, false}, {1, 2, 1, false}, {1, 2, 2, false},
    {1, 2, 4, false}, {1, 2, 8, false}, {2, 1, 1, false}, {2, 1, 8, false}, {2, 2, 1, false}, {2, 2, 2, false},
    {2, 2, 4, false}, {2, 2, 8, false}, {2, 2, 8, true},  {2, 2, 2, true},  {4, 2, 8, true},  {4, 2, 4, true},
};
enum { FORMS = sizeof rounded_forms / sizeof *rounded_forms };

/* Those that share rows read these through shared memory, in two stages. */
static void rounded_try(Contract *c, const Packing *p, const AcrossForm *form, int64_t splits) {
  Tile tile = nvptx_across_tile(form, p->blocks, p->steps, splits);
  int64_t fragments = 2 * tile.tile_m * p->steps * terms(c) * 2;
  if (form->shares_rows) tile.stages = 2;
  if (form->shares_rows && fragments > tile.shared) tile.shared = fragments;
  tile.cycles = rounded_cycles(c, p, &tile);
  if (!c->tile.steps || tile.cycles < c->tile.cycles) c->tile = tile;
}

void nvptx_rounded_choose(Contract *c) {
  Packing p = packing_of(c);
  const Module *module = c->job->module;
  if (module->only_tile) rounded_try(c, &p, &rounded_forms[(module->only_tile - 1) % FORMS], module->only_splits);
  for (int i = 0; i < FORMS && !module->only_tile; i++)
    for (int64_t splits = 1; splits <= MOST_SPLITS; splits *= 2) rounded_try(c, &p, &rounded_forms[i], splits);
  c->job->has_packed = true;
  c->job->out->packed[1] = rounded_number_bytes(c, &p) + c->batches * p.tiles * p.groups * COLUMNS * 4;
}

/* ── constants and callbacks ────────────────────────────────────────────────────────────────── */

void nvptx_rounded_define(Contract *c) {
  Packing p = packing_of(c);
  const Constant constants[] = {
      {"gemm_bits", p.bits},
      {"gemm_low", p.low},
      {"gemm_high", p.high},
      {"gemm_group", p.group},
      {"gemm_scale_groups", p.groups},
      {"gemm_room", p.room},
      {"gemm_unit", p.unit},
      {"gemm_terms", terms(c)},
  };
  module_define_constants(c->job->module, c->suffix, constants, sizeof constants / sizeof *constants);
  nvptx_across_define(c, p.blocks, "gemm_scales", rounded_number_bytes(c, &p));
  nvptx_define_mma(c->job, c->suffix, "gemm", DT_BF16, false);
}

void nvptx_rounded_pack(Contract *c) {
  Packing p = packing_of(c);
  nvptx_across_pack(c, c->batches * p.tiles * COLUMNS * p.groups);
}
