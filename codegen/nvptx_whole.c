/* nvptx_whole: see nvptx_whole.h. */
#include "codegen/nvptx_whole.h"
#include "codegen/nvptx_callback.h"
#include "codegen/nvptx_mma.h"
#include "passes/integers.h"
#include <stdio.h>

enum { PIECE = 16, ALIGN = 256, PACK_WARPS = 8, MANY_ROWS = 4096, FEW_BYTES = 512 };

static int64_t rounded_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

static int64_t rows_to_pack(const Contract *c, int i) { return c->batches * (i ? c->n : c->m); }

void nvptx_whole_lay(Contract *c) {
  Operand *operands[2] = {&c->a, &c->b};
  int64_t pitch = rounded_up(c->k, PIECE);
  for (int i = 0; i < 2; i++) {
    WholeOperand *whole = &c->whole[i];
    whole->pitch = operands[i]->pitch;
    whole->is_deep = operands[i]->is_deep;
    whole->faults = rounded_up(rows_to_pack(c, i) * pitch, ALIGN);
    whole->bytes = whole->faults + rounded_up(rows_to_pack(c, i) * 4, ALIGN);
    operands[i]->pitch = pitch;
    operands[i]->is_deep = operands[i]->is_async = true;
    operands[i]->wide = PIECE;
  }
  c->job->has_packed = true;
  for (int i = 0; i < 2; i++) c->job->out->packed[i] = c->whole[i].bytes;
}

/* Warps that share a row: all of a block's where rows are few and long. */
static int pack_team(const Contract *c, int i) {
  return rows_to_pack(c, i) <= MANY_ROWS && c->a.pitch >= FEW_BYTES ? PACK_WARPS : 1;
}

/* The packed operands' positions: this one, and the next. */
static int first_packed(const Contract *c) { return c->job->operand_count + c->job->result_count + 1; }

static void define_whole_pointers(Contract *c) {
  Job *job = c->job;
  int packed = first_packed(c);
  callback_pointer(job, c->suffix, "gemm_source_a", c->a.argument, 0);
  callback_pointer(job, c->suffix, "gemm_source_b", c->b.argument, 0);
  callback_pointer(job, c->suffix, "gemm_packed_a", packed, 0);
  callback_pointer(job, c->suffix, "gemm_packed_b", packed + 1, 0);
  callback_pointer(job, c->suffix, "gemm_faults_a", packed, c->whole[0].faults);
  callback_pointer(job, c->suffix, "gemm_faults_b", packed + 1, c->whole[1].faults);
}

void nvptx_whole_define(Contract *c) {
  const int64_t *range = node_attr(c->node, ATTR_INTEGERS)->ints;
  const Constant constants[] = {
      {"gemm_a_low", range[0]},
      {"gemm_a_high", range[1]},
      {"gemm_b_low", range[2]},
      {"gemm_b_high", range[3]},
      {"gemm_b_is_sure", range[INTEGERS_SURE]},
      {"gemm_a_source_pitch", c->whole[0].pitch},
      {"gemm_b_source_pitch", c->whole[1].pitch},
      {"gemm_a_source_deep", c->whole[0].is_deep},
      {"gemm_b_source_deep", c->whole[1].is_deep},
      {"gemm_a_pack_team", pack_team(c, 0)},
      {"gemm_b_pack_team", pack_team(c, 1)},
  };
  callback_constants(c->job->module, c->suffix, constants, sizeof constants / sizeof *constants);
  define_whole_pointers(c);
  nvptx_define_mma_whole(c->job, c->suffix, "gemm", range[0] < 0, range[2] < 0);
}

/* One operand's launch. */
static KernelLaunch *whole_pack_operand(Contract *c, int i) {
  Job *job = c->job;
  const char *which = i ? "b" : "a";
  int64_t along = i ? c->n : c->m, lanes = WARP;
  int64_t blocks = c->whole[i].is_deep ? (rows_to_pack(c, i) * pack_team(c, i) + PACK_WARPS - 1) / PACK_WARPS
                                       : c->batches * ((along + lanes - 1) / lanes);
  char name[256], function[16];
  Entry entry;
  snprintf(name, sizeof name, "%s_pack_%s", job->name, which);
  snprintf(function, sizeof function, "gemm_pack_%s", which);
  entry_only(job, (const int[]){i ? c->b.argument : c->a.argument, first_packed(c) + i}, 2, 1);
  entry_open(&entry, job, name, PACK_WARPS * WARP, true);
  char memory[300];
  snprintf(memory, sizeof memory, "%s_faults", name);
  LLVMValueRef extra[3] = {entry_shared(&entry, memory, job->module->i32, PACK_WARPS * WARP),
                           entry_special(&entry, "ctaid.x"), entry_special(&entry, "tid.x")};
  callback_call(&entry, c->suffix, function, extra, 3);
  entry_close(&entry, name, blocks, 1, 1);
  return &job->out->launch[job->out->launch_count - 1];
}

/* Does the product read the second operand itself? Where its numbers are certain, or rounded, only what is fused behind might. */
static bool reads_second(const Contract *c) {
  if (c->unit == UNIT_ROUNDED || c->unit == UNIT_SPARSE) return false;
  bool is_sure = node_attr(c->node, ATTR_INTEGERS)->ints[INTEGERS_SURE];
  return !is_sure || (c->job->node->op == OP_FUSED && integers_packed_operand(c->job->node) < 0);
}

void nvptx_whole_parameters(Contract *c, bool is_second) {
  Job *job = c->job;
  int packed = first_packed(c), count = 0;
  bool has_parts = job->out->workspace > 0, is_epilogue = is_second || !has_parts, is_whole = c->unit == UNIT_WHOLE;
  int *list = ARENA_ARRAY(job->scratch, int, packed + 2);
  for (int i = 0; i < job->operand_count; i++)
    if (is_epilogue ? i != c->b.argument || reads_second(c) : !is_whole && i == c->a.argument) list[count++] = i;
  if (is_whole) list[count++] = packed;
  if (is_whole || !is_second) list[count++] = packed + 1;
  if (is_second) list[count++] = packed - 1;
  int inputs = count;
  for (int i = 0; i < job->result_count && is_epilogue; i++) list[count++] = job->operand_count + i;
  if (has_parts && !is_second) list[count++] = packed - 1;
  entry_only(job, list, count, inputs);
}

void nvptx_whole_pack(Contract *c) {
  whole_pack_operand(c, 1)->packs = true;
  whole_pack_operand(c, 0)->is_before = true;
  nvptx_whole_parameters(c, false);
}
