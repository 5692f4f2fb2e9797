/* nvptx_rounded: see nvptx_rounded.h. */
#include "codegen/nvptx_rounded.h"
#include "codegen/nvptx_callback.h"
#include "codegen/nvptx_mma.h"
#include "codegen/nvptx_whole.h"
#include "passes/integers.h"
#include <stdio.h>

enum {
  COLUMNS = 16,       /* of a tile of packed weights, */
  ROWS = 8,           /* rows of a, */
  STEP = 16,          /* and steps of k that an instruction takes */
  BLOCK_BYTES = 512,  /* of a tile and some steps of k */
  WARPS = 8,          /* of a block */
  THREADS = 256,
  SUMS_PAD = 4,
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
  return rounded_has_kernel(product) && integers_packed_operand(step) >= 0;
}

static int64_t rounded_number_bytes(const Contract *c, const Packing *p) { return c->batches * p->tiles * p->blocks * BLOCK_BYTES; }

static int terms(const Contract *c) {
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

static int64_t rounded_shared(const Contract *c, const Packing *p, const Tile *tile) {
  int64_t sums = (int64_t)tile->slices * tile->tile_m * (tile->tile_n + SUMS_PAD) * 4;
  int64_t fragments = tile->stages * tile->tile_m * p->steps * terms(c) * 2;
  return tile->stages > 1 && fragments > sums ? fragments : sums;
}

/* What the block's warps do beside each other. */
typedef struct {
  int rows, columns; /* tiles of a warp */
  int across;        /* warps; the others share k, */
  bool is_staged;    /* or the rows */
} RoundedForm;
static const RoundedForm rounded_forms[] = {
    {1, 1, 1, false}, {1, 1, 2, false}, {1, 1, 4, false}, {1, 1, 8, false}, {1, 2, 1, false}, {1, 2, 2, false},
    {1, 2, 4, false}, {1, 2, 8, false}, {2, 1, 1, false}, {2, 1, 8, false}, {2, 2, 1, false}, {2, 2, 2, false},
    {2, 2, 4, false}, {2, 2, 8, false}, {2, 2, 8, true},  {2, 2, 2, true},  {4, 2, 8, true},  {4, 2, 4, true},
};
enum { FORMS = sizeof rounded_forms / sizeof *rounded_forms };

static void rounded_try(Contract *c, const Packing *p, const RoundedForm *form, int64_t splits) {
  int rest = WARPS / form->across;
  Tile tile = {.micro_m = form->rows * ROWS, .micro_n = form->columns * COLUMNS, .passes = 1, .stages = form->is_staged ? 2 : 1};
  tile.slices = form->is_staged ? 1 : rest;
  tile.tile_m = form->is_staged ? tile.micro_m * rest : tile.micro_m;
  tile.tile_n = tile.micro_n * form->across;
  tile.steps = (int)p->steps;
  tile.part = (p->blocks + splits - 1) / splits;
  tile.splits = (p->blocks + tile.part - 1) / tile.part;
  tile.shared = rounded_shared(c, p, &tile);
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

/* The packed weights' position, behind that of a packed first operand. */
static int packed_weights(const Contract *c) { return c->job->operand_count + c->job->result_count + 2; }

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
      {"gemm_blocks", p.blocks},
      {"gemm_terms", terms(c)},
      {"gemm_row_tiles", c->tile.micro_m / ROWS},
      {"gemm_column_tiles", c->tile.micro_n / COLUMNS},
      {"gemm_warps_across", c->tile.tile_n / c->tile.micro_n},
      {"gemm_b_source_pitch", c->b.pitch},
      {"gemm_b_source_deep", c->b.is_deep},
  };
  callback_constants(c->job->module, c->suffix, constants, sizeof constants / sizeof *constants);
  callback_pointer(c->job, c->suffix, "gemm_source_b", c->b.argument, 0);
  callback_pointer(c->job, c->suffix, "gemm_packed_b", packed_weights(c), 0);
  callback_pointer(c->job, c->suffix, "gemm_scales", packed_weights(c), rounded_number_bytes(c, &p));
  nvptx_define_mma(c->job, c->suffix, "gemm", DT_BF16, false);
}

void nvptx_rounded_pack(Contract *c) {
  Job *job = c->job;
  Packing p = packing_of(c);
  int64_t work = c->batches * p.tiles * COLUMNS * p.groups;
  char name[256];
  Entry entry;
  snprintf(name, sizeof name, "%s_pack", job->name);
  entry_only(job, (const int[]){c->b.argument, packed_weights(c)}, 2, 1);
  entry_open(&entry, job, name, THREADS, true);
  LLVMValueRef extra[2] = {entry_special(&entry, "ctaid.x"), entry_special(&entry, "tid.x")};
  callback_call(&entry, c->suffix, "gemm_pack_b", extra, 2);
  entry_close(&entry, name, (work + THREADS - 1) / THREADS, 1, 1);
  job->out->launch[job->out->launch_count - 1].packs = true;
  nvptx_whole_parameters(c, false);
}
