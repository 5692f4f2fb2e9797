/* nvptx_sums: reductions over the columns of a convolution's result that its own kernel makes
 * (kernels/gemm_columns.h): what an element contributes to the partial sums of a thread, and how a
 * second launch combines those of all rows. Invariant: a partial sum has the same number in
 * both. */
#include "codegen/nvptx_sums.h"
#include "codegen/nvptx_callback.h"
#include <stdio.h>

enum { MANY_TILES = 1024, FEW_THREADS = 256, MANY_THREADS = 1024, COLUMNS_OF_A_BLOCK = 8 };

void nvptx_sums_collect(Contract *c) {
  const Graph *body = c->job->node->body;
  if (body && graph_find_class(body, CLASS_REDUCE))
    reductions_find(c->job->scratch, c->job->node, &c->sums);
  for (int i = 0; i < c->sums.count; i++) {
    c->totals += !c->sums.at[i].moment;
    c->maxima += c->sums.at[i].op == OP_RMAX;
    c->moments += c->sums.at[i].moment == MOMENT_SUM;
  }
}

int nvptx_sums_numbers(const Contract *c) { return c->totals + 3 * c->moments; }

static int64_t tiles_of(const Contract *c) {
  return c->classes * ((c->m + c->tile.tile_m - 1) / c->tile.tile_m);
}

int64_t nvptx_sums_workspace(const Contract *c) {
  return nvptx_sums_numbers(c) * tiles_of(c) * c->batches * c->n * 4;
}

/* The number of a reduction: sums first, then maxima, then shift, sum and squares of each pair. */
static int sum_number(const Contract *c, int reduction) {
  int totals = 0, maxima = 0, moments = 0;
  for (int i = 0; i < reduction; i++) {
    bool is_maximum = c->sums.at[i].op == OP_RMAX;
    maxima += is_maximum;
    totals += !c->sums.at[i].moment && !is_maximum;
    moments += c->sums.at[i].moment == MOMENT_SQUARES;
  }
  Moment moment = c->sums.at[reduction].moment;
  if (moment) return c->totals + 3 * moments + (int)moment;
  return c->sums.at[reduction].op == OP_RMAX ? c->totals - c->maxima + maxima : totals;
}

static int shift_of(const Contract *c, int reduction) {
  return sum_number(c, reduction) - (int)c->sums.at[reduction].moment;
}

static LLVMValueRef place(Emitter *emitter, LLVMValueRef numbers, int at) {
  return emit_at_number(emitter, emitter->module->f32, numbers, at);
}

static LLVMValueRef read(Emitter *emitter, LLVMValueRef numbers, int at) {
  return LLVMBuildLoad2(emitter->builder, emitter->module->f32, place(emitter, numbers, at), "");
}

void nvptx_sums_add(Contract *c, Emitter *emitter, LLVMValueRef columns, const Index *index,
                    int lane) {
  for (int i = 0; i < c->sums.count; i++) {
    Reduction *one = &c->sums.at[i];
    int at = sum_number(c, i) * 4 + lane;
    LLVMValueRef shift = one->moment ? read(emitter, columns, shift_of(c, i) * 4 + lane) : NULL;
    LLVMValueRef element = reduction_element(emitter, &c->sums, one, index, shift, NULL);
    LLVMValueRef sum =
        emit_reduce_step(emitter, one->op, DT_F32, read(emitter, columns, at), element);
    LLVMBuildStore(emitter->builder, sum, place(emitter, columns, at));
  }
}

void nvptx_sums_shift(Contract *c, Emitter *emitter, LLVMValueRef columns, const Index *index,
                      int lane) {
  for (int i = 0; i < c->sums.count; i++)
    if (c->sums.at[i].moment == MOMENT_SUM)
      LLVMBuildStore(emitter->builder, emit_value(emitter, c->sums.at[i].node->input[0], index),
                     place(emitter, columns, shift_of(c, i) * 4 + lane));
}

/* gemm_finish_column: all values first, then all stores. */
static void nvptx_sums_define_finish(Contract *c) {
  Job *job = c->job;
  const Graph *body = job->node->body;
  Emitter emitter = {.module = job->module};
  LLVMTypeRef pointer = job->module->pointer;
  LLVMTypeRef parameters[3] = {pointer, pointer, job->module->i32};
  callback_open(job, &emitter, c->suffix, "gemm_finish_column", job->module->nothing, parameters, 3,
                body);
  LLVMValueRef numbers = LLVMGetParam(emitter.function, 1);
  for (int i = 0; i < c->sums.count; i++) {
    bool is_moment = c->sums.at[i].moment != MOMENT_NONE;
    reduction_finish(&emitter, &c->sums.at[i],
                     is_moment ? read(&emitter, numbers, shift_of(c, i)) : NULL,
                     read(&emitter, numbers, sum_number(c, i)));
  }
  Index index = index_flat(c->batches * c->n, LLVMGetParam(emitter.function, 2), true);
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; c->sums.count && i < job->result_count; i++) {
      const Node *root = body->roots.at[i].node;
      if (job->is_whole[i]) continue;
      LLVMValueRef value = emit_value(&emitter, root, &index);
      if (pass)
        emit_store_at(&emitter, emitter.pointer[job->operand_count + i], root->type.dtype,
                      index_linear(&emitter, &index), value);
    }
  callback_close(&emitter, NULL);
}

static int threads_of(const Contract *c) {
  return tiles_of(c) > MANY_TILES ? MANY_THREADS : FEW_THREADS;
}

void nvptx_sums_define(Contract *c) {
  const Constant constants[] = {{"gemm_totals", c->totals},
                                {"gemm_maxima", c->maxima},
                                {"gemm_moments", c->moments},
                                {"gemm_column_threads", threads_of(c)}};
  module_define_constants(c->job->module, c->suffix, constants, sizeof constants / sizeof *constants);
  nvptx_sums_define_finish(c);
}

void nvptx_sums_entry(Contract *c) {
  if (!c->sums.count) return;
  Job *job = c->job;
  Entry entry;
  char name[256];
  int threads = threads_of(c);
  snprintf(name, sizeof name, "%s_columns", job->name);
  entry_leave_out(job, SECOND_MAKES_COLUMN_SUMS, true);
  entry_open(&entry, job, name, threads, true);
  LLVMValueRef memory = entry_shared(&entry, "column_part", job->module->f32,
                                     threads / WARP * nvptx_sums_numbers(c) * COLUMNS_OF_A_BLOCK);
  LLVMValueRef extra[3] = {memory, entry_special(&entry, "ctaid.x"),
                           entry_special(&entry, "tid.x")};
  callback_call(&entry, c->suffix, "gemm_column", extra, 3);
  int64_t columns = c->batches * c->n;
  entry_close(&entry, name, (columns + COLUMNS_OF_A_BLOCK - 1) / COLUMNS_OF_A_BLOCK, 1, 1);
}
