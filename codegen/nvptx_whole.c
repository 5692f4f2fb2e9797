/* nvptx_whole: see nvptx_whole.h. */
#include "codegen/nvptx_whole.h"
#include "codegen/nvptx_callback.h"
#include "codegen/nvptx_mma.h"
#include "passes/integers.h"
#include <stdio.h>
#include <string.h>

enum { PIECE = 16, ALIGN = 256, PACK_WARPS = 8, MANY_ROWS = 4096, FEW_BYTES = 512 };

static int64_t rounded_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

static void lay_dot(Contract *c) {
  const Operand *operands[2] = {&c->a, &c->b};
  c->run = c->k;
  c->packed_run = rounded_up(c->k, PIECE);
  for (int i = 0; i < 2; i++)
    c->whole[i] = (WholeOperand){.pitch = operands[i]->pitch,
                                 .is_deep = operands[i]->is_deep,
                                 .rows = c->batches * (i ? c->n : c->m),
                                 .row_bytes = c->packed_run};
}

/* Of few channels several places are a piece of 16 bytes; from here on the convolution has pieces for channels. */
static void join_places(Contract *c) {
  ConvForm *f = &c->form;
  int64_t *numbers = ARENA_ARRAY(c->job->scratch, int64_t, 6), *padding = numbers, *dilation = numbers + 4;
  while (2 * c->joined * f->in <= PIECE && c->joined < f->kernel_width) c->joined *= 2;
  f->in = rounded_up(f->in, PIECE);
  if (c->joined == 1) return;
  memcpy(padding, f->padding, 4 * sizeof *padding);
  padding[1] = 0;
  dilation[0] = f->dilation[0];
  dilation[1] = f->dilation[1] * c->joined;
  f->in_width += f->padding[1];
  f->kernel_width = (f->kernel_width + c->joined - 1) / c->joined;
  f->padding = padding;
  f->dilation = dilation;
}

/* Lines of images, and windows of output channels. */
static void lay_places(Contract *c) {
  ConvForm *f = &c->form;
  c->source = *f;
  join_places(c);
  c->run = c->source.in;
  c->packed_run = f->in;
  c->windows = f->kernel_height * f->kernel_width;
  c->k = c->windows * f->in;
  c->whole[0] = (WholeOperand){.pitch = c->source.in_width * f->groups * c->run,
                               .is_deep = true,
                               .rows = f->images * f->in_height,
                               .row_bytes = f->in_width * f->groups * f->in};
  c->whole[1] = (WholeOperand){.pitch = c->source.kernel_height * c->source.kernel_width * c->run,
                               .is_deep = true,
                               .rows = f->out * f->groups,
                               .row_bytes = c->k};
}

void nvptx_whole_lay(Contract *c) {
  Operand *operands[2] = {&c->a, &c->b};
  c->joined = 1;
  if (c->kind == KIND_DOT)
    lay_dot(c);
  else
    lay_places(c);
  for (int i = 0; i < 2; i++) {
    WholeOperand *whole = &c->whole[i];
    whole->faults = rounded_up(whole->rows * whole->row_bytes, ALIGN);
    whole->bytes = whole->faults + rounded_up(whole->rows * 4, ALIGN);
    operands[i]->pitch = whole->row_bytes;
    operands[i]->is_deep = operands[i]->is_async = true;
    operands[i]->wide = PIECE;
  }
  c->job->has_packed = true;
  for (int i = 0; i < 2; i++) c->job->out->packed[i] = c->whole[i].bytes;
}

/* Warps that share a row: all of a block's where rows are few and long. */
static int pack_team(const Contract *c, int i) {
  return c->whole[i].rows <= MANY_ROWS && c->whole[i].row_bytes >= FEW_BYTES ? PACK_WARPS : 1;
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
  const ConvForm *source = c->kind == KIND_DOT ? &c->form : &c->source;
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
      {"gemm_a_pack_rows", c->whole[0].rows},
      {"gemm_b_pack_rows", c->whole[1].rows},
      {"gemm_run", c->run},
      {"gemm_packed_run", c->packed_run},
      {"gemm_joined", c->joined},
      {"gemm_source_width", source->in_width},
      {"gemm_source_kernel", source->kernel_width},
      {"gemm_source_pad", source->padding[1]},
      {"gemm_source_dilation", source->dilation[1]},
      {"gemm_a_row_bytes", c->whole[0].row_bytes},
      {"gemm_b_row_bytes", c->whole[1].row_bytes},
  };
  module_define_constants(c->job->module, c->suffix, constants, sizeof constants / sizeof *constants);
  define_whole_pointers(c);
  nvptx_define_mma_whole(c->job, c->suffix, "gemm", range[0] < 0, range[2] < 0);
}

/* One operand's launch. */
static KernelLaunch *whole_pack_operand(Contract *c, int i) {
  Job *job = c->job;
  const char *which = i ? "b" : "a";
  int64_t along = i ? c->n : c->m, lanes = WARP;
  int64_t blocks = c->whole[i].is_deep ? (c->whole[i].rows * pack_team(c, i) + PACK_WARPS - 1) / PACK_WARPS
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
  return !is_sure || (c->job->node->op == OP_FUSED && integers_packed_operand(c->job->node, true) < 0);
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
