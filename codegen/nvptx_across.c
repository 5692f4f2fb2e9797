/* nvptx_across: see nvptx_across.h. */
#include "codegen/nvptx_across.h"
#include "codegen/nvptx_callback.h"
#include "codegen/nvptx_whole.h"
#include <stdio.h>

enum { SUMS_PAD = 4 };

Tile nvptx_across_tile(const AcrossForm *form, int64_t blocks, int64_t steps, int64_t splits) {
  int rest = ACROSS_WARPS / form->across;
  Tile tile = {.micro_m = form->rows * ACROSS_ROWS, .micro_n = form->columns * ACROSS_COLUMNS, .passes = 1, .stages = 1, .steps = (int)steps};
  tile.slices = form->shares_rows ? 1 : rest;
  tile.tile_m = form->shares_rows ? tile.micro_m * rest : tile.micro_m;
  tile.tile_n = tile.micro_n * form->across;
  tile.part = (blocks + splits - 1) / splits;
  tile.splits = (blocks + tile.part - 1) / tile.part;
  tile.shared = (int64_t)tile.slices * tile.tile_m * (tile.tile_n + SUMS_PAD) * 4;
  return tile;
}

int nvptx_across_weights(const Contract *c) { return c->job->operand_count + c->job->result_count + 2; }

void nvptx_across_define(Contract *c, int64_t blocks, const char *behind_name, int64_t behind) {
  const Constant constants[] = {
      {"gemm_blocks", blocks},
      {"gemm_row_tiles", c->tile.micro_m / ACROSS_ROWS},
      {"gemm_column_tiles", c->tile.micro_n / ACROSS_COLUMNS},
      {"gemm_warps_across", c->tile.tile_n / c->tile.micro_n},
      {"gemm_b_source_pitch", c->b.pitch},
      {"gemm_b_source_deep", c->b.is_deep},
  };
  module_define_constants(c->job->module, c->suffix, constants, sizeof constants / sizeof *constants);
  callback_pointer(c->job, c->suffix, "gemm_source_b", c->b.argument, 0);
  callback_pointer(c->job, c->suffix, "gemm_packed_b", nvptx_across_weights(c), 0);
  callback_pointer(c->job, c->suffix, behind_name, nvptx_across_weights(c), behind);
}

void nvptx_across_pack(Contract *c, int64_t threads) {
  Job *job = c->job;
  char name[256];
  Entry entry;
  snprintf(name, sizeof name, "%s_pack", job->name);
  entry_only(job, (const int[]){c->b.argument, nvptx_across_weights(c)}, 2, 1);
  entry_open(&entry, job, name, ACROSS_THREADS, true);
  LLVMValueRef extra[2] = {entry_special(&entry, "ctaid.x"), entry_special(&entry, "tid.x")};
  callback_call(&entry, c->suffix, "gemm_pack_b", extra, 2);
  entry_close(&entry, name, (threads + ACROSS_THREADS - 1) / ACROSS_THREADS, 1, 1);
  job->out->launch[job->out->launch_count - 1].packs = true;
  nvptx_whole_parameters(c, false);
}
