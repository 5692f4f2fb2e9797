/* nvptx_rows: see nvptx_rows.h. */
#include "codegen/nvptx_rows.h"
#include "codegen/nvptx_callback.h"
#include "codegen/nvptx_sums.h"

enum { QUAD = 4, SUM_BYTES = 4, SUMS_PAD = 4 };

static int power_from(int64_t least) {
  int power = 1;
  while (power < least) power *= 2;
  return power;
}

/* Columns in groups of four, of which there is a power of two, so that a thread has the same ones of all its rows. Slices: the
 * threads that are left, as many as there are groups of four steps. */
void nvptx_rows_choose(Contract *c) {
  int across = power_from((c->n + QUAD - 1) / QUAD), steps = power_from((c->k + QUAD - 1) / QUAD);
  int slices = CHAIN_THREADS / across < steps ? CHAIN_THREADS / across : steps;
  Tile tile = {.tile_m = c->job->block_rows, .tile_n = across * QUAD, .micro_m = 1, .micro_n = 1, .passes = 1, .stages = 1, .splits = 1};
  tile.slices = c->b.is_deep ? 1 : slices;
  tile.steps = (int)c->k;
  tile.part = c->k;
  int64_t sums = (int64_t)tile.slices * tile.tile_m * (tile.tile_n + SUMS_PAD);
  int64_t rows = tile.tile_m * ((c->k + QUAD - 1) / QUAD + 1) * QUAD;
  int64_t numbers = (int64_t)nvptx_sums_numbers(c) * (CHAIN_THREADS / WARP) * tile.tile_n;
  tile.shared = (sums + rows > numbers ? sums + rows : numbers) * SUM_BYTES;
  c->tile = tile;
}

/* gemm_widen: an element of 16 bits as f32. */
static void define_widen(Contract *c) {
  Job *job = c->job;
  Emitter emitter = {.module = job->module};
  LLVMTypeRef word = job->module->i16;
  callback_open_plain(job, &emitter, c->suffix, "gemm_widen", job->module->f32, &word, 1);
  LLVMValueRef raw = LLVMGetParam(emitter.function, 0), value = LLVMConstNull(job->module->f32);
  if (dtype_is_narrow(c->dtype)) value = emit_from_memory(&emitter, c->dtype, raw);
  callback_close(&emitter, value);
}

void nvptx_rows_define(Contract *c) {
  const Constant constants[] = {
      {"gemm_bytes", c->bytes},
      {"gemm_a_quads", c->k % QUAD == 0},
      {"gemm_b_quads", (c->b.is_deep ? c->k : c->n) % QUAD == 0},
  };
  module_define_constants(c->job->module, c->suffix, constants, sizeof constants / sizeof *constants);
  define_widen(c);
}

void nvptx_rows_combine(Contract *c, Entry *entry, const char *name, int64_t groups) {
  int64_t own = c->job->block_rows * groups / c->m, blocks = (groups + own - 1) / own;
  LLVMValueRef first = entry_mul(entry, entry_special(entry, "ctaid.x"), own);
  LLVMValueRef end = entry_min(entry, entry_add(entry, first, entry_const(entry, own)), entry_const(entry, groups));
  LLVMValueRef extra[4] = {first, end, entry_const(entry, CHAIN_THREADS), entry_special(entry, "tid.x")};
  callback_call(entry, c->suffix, "gemm_combine_rows", extra, 4);
  entry_close(entry, name, blocks, 1, 1);
  c->job->out->launch[c->job->out->launch_count - 1].goes_by_rows = true;
}
