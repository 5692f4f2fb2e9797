/* nvptx_contract: matrix products and convolutions: kernels/gemm_ptx.h, specialised. This file
 * says what is multiplied and how it lies, defines the constants and the callbacks (operands with
 * what is fused into them, the epilogue from the fused body), and the entries that call them. */
#include "codegen/nvptx_contract.h"
#include "codegen/nvptx_callback.h"
#include "codegen/nvptx_map.h"
#include "codegen/nvptx_mma.h"
#include "codegen/nvptx_rounded.h"
#include "codegen/nvptx_sparse.h"
#include "codegen/nvptx_rows.h"
#include "codegen/nvptx_sums.h"
#include "codegen/nvptx_waits.h"
#include "codegen/nvptx_wgmma.h"
#include "codegen/nvptx_whole.h"
#include "passes/integers.h"
#include <stdio.h>

enum {
  COMBINE_THREADS = 256,
  SWIZZLE_ALIGN = 1024,
  MAX_GRID_YZ = 65535,
  LANES_OF_A_SUM = 8
};

/* ── what is multiplied ─────────────────────────────────────────────────────────────────────── */

/* The kernels' bodies hold the arithmetic of places for products too, where nothing uses it. */
static const ConvForm no_conv = {.images = 1,
                                 .groups = 1,
                                 .in = 1,
                                 .out = 1,
                                 .in_height = 1,
                                 .in_width = 1,
                                 .out_height = 1,
                                 .out_width = 1,
                                 .kernel_height = 1,
                                 .kernel_width = 1,
                                 .stride = (const int64_t[]){1, 1},
                                 .padding = (const int64_t[]){0, 0},
                                 .dilation = (const int64_t[]){1, 1}};

static void describe_dot(Contract *c) {
  c->form = no_conv;
  const DotForm f = dot_form(c->node);
  c->m = c->rows = f.m;
  c->n = f.n;
  c->k = f.k;
  c->batches = f.batch;
  c->classes = 1;
  c->a.pitch = c->job->pitch[c->a.argument] ? c->job->pitch[c->a.argument] : f.ta ? f.m : f.k;
  c->b.pitch = c->job->pitch[c->b.argument] ? c->job->pitch[c->b.argument] : f.tb ? f.k : f.n;
}

static void describe_conv(Contract *c) {
  c->form = conv_form(c->node);
  const ConvForm *f = &c->form;
  c->windows = f->kernel_height * f->kernel_width;
  c->batches = f->groups;
  int64_t class_places = ((f->in_height + f->stride[0] - 1) / f->stride[0]) *
                         ((f->in_width + f->stride[1] - 1) / f->stride[1]);
  int64_t out_rows = f->images * f->out_height * f->out_width;
  bool is_grad_input = c->kind == KIND_GRAD_INPUT;
  c->classes = is_grad_input ? f->stride[0] * f->stride[1] : 1;
  c->m = c->kind == KIND_CONV ? out_rows : is_grad_input ? f->images * class_places : f->out;
  c->rows = is_grad_input ? f->images * f->in_height * f->in_width : c->m;
  c->n = c->kind == KIND_CONV ? f->out : is_grad_input ? f->in : f->in * c->windows;
  c->k = c->kind == KIND_CONV ? f->in * c->windows : is_grad_input ? f->out * c->windows : out_rows;
}

/* `run`: everywhere in the operand, this many elements from a multiple of it on are contiguous. A
 * copy moves 16 bytes, or 4. */
static void lay(Contract *c, Operand *operand, bool is_deep, int64_t run) {
  int most = 16 / c->bytes, least = c->bytes < 4 ? 4 / c->bytes : 1;
  operand->is_deep = is_deep;
  operand->wide = run % most == 0 ? most : run % least == 0 ? least : 1;
  operand->is_async = c->bytes <= 4 && operand->wide * c->bytes >= 4;
}

static void lay_operands(Contract *c) {
  const ConvForm *f = &c->form;
  bool ta = node_int(c->node, ATTR_TRANS_A, 0), tb = node_int(c->node, ATTR_TRANS_B, 0);
  bool is_nhwc = f->is_nhwc;
  switch (c->kind) {
  case KIND_DOT:
    lay(c, &c->a, !ta, c->a.pitch);
    lay(c, &c->b, tb, c->b.pitch);
    break;
  case KIND_CONV:
    lay(c, &c->a, is_nhwc, is_nhwc ? f->in : 1);
    lay(c, &c->b, true, is_nhwc || c->windows == 1 || f->in == 1 ? c->k : 1);
    break;
  case KIND_GRAD_INPUT:
    lay(c, &c->a, is_nhwc, is_nhwc ? f->out : 1);
    lay(c, &c->b, false, is_nhwc || c->windows == 1 ? c->n : 1);
    break;
  case KIND_GRAD_WEIGHT:
    lay(c, &c->a, !is_nhwc, is_nhwc ? f->out : 1);
    lay(c, &c->b, !is_nhwc, is_nhwc ? f->in : 1);
    break;
  }
}

/* Columns that the epilogue is asked for: whole groups of four, if it takes four. */
static int64_t nvptx_contract_columns(const Contract *c) { return c->is_by_four ? (c->n + 3) / 4 * 4 : c->n; }

/* May the epilogue store four columns by one instruction, everywhere? Rows that are no multiple of four
 * have room for the last of them where they have a pitch. */
static bool takes_four(const Contract *c) {
  const Job *job = c->job;
  bool is_row_major = c->kind == KIND_DOT || c->form.is_nhwc, has_room = c->kind == KIND_DOT;
  for (int i = 0; i < job->result_count; i++) has_room &= job->pitch[job->operand_count + i] > 0;
  return is_row_major && (c->n % 4 == 0 || has_room);
}

static void size_workspace(Contract *c) {
  int64_t sum = c->dtype == DT_F64 ? 8 : 4;
  c->job->out->workspace = nvptx_sums_workspace(c);
  if (c->tile.splits > 1)
    c->job->out->workspace = c->batches * c->classes * c->tile.splits * c->m * nvptx_contract_columns(c) * sum;
}

/* ── constants ──────────────────────────────────────────────────────────────────────────────── */

static int64_t period(int64_t stride, int64_t dilation) {
  int64_t a = stride, b = dilation;
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return stride / a;
}

static void define_conv(Contract *c) {
  const ConvForm *f = &c->form;
  const Constant constants[] = {
      {"gemm_groups", f->groups},
      {"gemm_nhwc", f->is_nhwc},
      {"gemm_in_channels", f->in},
      {"gemm_in_height", f->in_height},
      {"gemm_in_width", f->in_width},
      {"gemm_out_channels", f->out},
      {"gemm_out_height", f->out_height},
      {"gemm_out_width", f->out_width},
      {"gemm_kernel_height", f->kernel_height},
      {"gemm_kernel_width", f->kernel_width},
      {"gemm_stride_height", f->stride[0]},
      {"gemm_stride_width", f->stride[1]},
      {"gemm_pad_top", f->padding[0]},
      {"gemm_pad_left", f->padding[1]},
      {"gemm_dilation_height", f->dilation[0]},
      {"gemm_dilation_width", f->dilation[1]},
      {"gemm_period_height", period(f->stride[0], f->dilation[0])},
      {"gemm_period_width", period(f->stride[1], f->dilation[1])},
  };
  module_define_constants(c->job->module, c->suffix, constants, sizeof constants / sizeof *constants);
}

static void nvptx_contract_define_constants(Contract *c) {
  const Tile *tile = &c->tile;
  const Constant constants[] = {
      {"gemm_kind", c->kind},
      {"gemm_m", c->m},
      {"gemm_n", c->n},
      {"gemm_k", c->k},
      {"gemm_batches", c->batches},
      {"gemm_ta", c->unit == UNIT_WHOLE ? 0 : node_int(c->node, ATTR_TRANS_A, 0)},
      {"gemm_tb", c->unit == UNIT_WHOLE ? 1 : node_int(c->node, ATTR_TRANS_B, 0)},
      {"gemm_a_pitch", c->a.pitch},
      {"gemm_b_pitch", c->b.pitch},
      {"gemm_wide_n", nvptx_contract_columns(c)},
      {"gemm_a_deep", c->a.is_deep},
      {"gemm_b_deep", c->b.is_deep},
      {"gemm_a_wide", c->a.wide},
      {"gemm_b_wide", c->b.wide},
      {"gemm_a_async", c->a.is_async},
      {"gemm_b_async", c->b.is_async},
      {"gemm_by_four", c->is_by_four},
      {"gemm_splits", tile->splits},
      {"gemm_tile_m", tile->tile_m},
      {"gemm_tile_n", tile->tile_n},
      {"gemm_micro_m", tile->micro_m},
      {"gemm_micro_n", tile->micro_n},
      {"gemm_slices", tile->slices},
      {"gemm_steps", tile->steps},
      {"gemm_stages", tile->stages},
      {"gemm_passes", tile->passes},
      {"gemm_ahead", nvptx_tile_ahead(c)},
      {"gemm_a_mapped", c->a.is_mapped},
      {"gemm_b_mapped", c->b.is_mapped},
      {"gemm_stays", tile->stays},
      {"gemm_pair", tile->pair},
      {"gemm_region", tile->region},
      {"gemm_regions", tile->regions},
      {"gemm_lines", tile->lines},
      {"gemm_sums", tile->sums},
      {"gemm_barriers", tile->barriers},
  };
  module_define_constants(c->job->module, c->suffix, constants, sizeof constants / sizeof *constants);
}

/* ── operands ───────────────────────────────────────────────────────────────────────────────── */

/* An element as it lies in a panel: of the arithmetic's type, or for tensor cores its bits. */
static LLVMTypeRef element_type(Contract *c, Emitter *emitter) {
  return c->unit == UNIT_SIMT || c->unit == UNIT_ROWS
             ? emit_register_type(emitter, c->dtype)
             : LLVMIntTypeInContext(c->job->module->context, (unsigned)c->bytes * 8);
}

static void define_element(Contract *c, const char *name, const Operand *operand) {
  Job *job = c->job;
  Emitter emitter = {.module = job->module};
  LLVMTypeRef parameters[2] = {job->module->pointer, job->module->i32};
  LLVMTypeRef type = element_type(c, &emitter);
  callback_open(job, &emitter, c->suffix, name, type, parameters, 2, NULL);
  LLVMValueRef value = emit_load_at(&emitter, emitter.pointer[operand->argument],
                                    c->bytes == 1 ? DT_U8 : c->dtype,
                                    LLVMGetParam(emitter.function, 1));
  if (c->unit != UNIT_SIMT && c->unit != UNIT_ROWS && c->bytes > 1)
    value = LLVMBuildBitCast(emitter.builder, emit_to_memory(&emitter, c->dtype, value), type, "");
  callback_close(&emitter, value);
}

static void define_wgmma(Contract *c) {
  enum { PANEL_DEPTHS = 4, MOST_HIGH = 2 }; /* kernels/wgmma_ptx.h */
  Wgmma form = {.name = "gemm_wgmma",
                .dtype = c->dtype,
                .of_b = c->node->input[1]->type.dtype,
                .columns = c->tile.micro_n,
                .depths = PANEL_DEPTHS,
                .high = c->tile.micro_m / 64,
                .most_high = MOST_HIGH,
                .is_a_flat = !c->a.is_deep,
                .is_b_flat = !c->b.is_deep};
  nvptx_define_wgmma(c->job, c->suffix, &form);
  form.name = "gemm_wgmma_kept";
  form.depths /= 2;
  form.is_a_kept = true;
  nvptx_define_wgmma(c->job, c->suffix, &form);
}

static void define_operands(Contract *c) {
  define_element(c, "gemm_element_a", &c->a);
  define_element(c, "gemm_element_b", &c->b);
  int workspace = c->job->operand_count + c->job->result_count, behind = workspace + 1;
  bool is_whole = c->unit == UNIT_WHOLE; /* multiplied as they are packed */
  callback_pointer(c->job, c->suffix, "gemm_pointer_a", is_whole ? behind : c->a.argument, 0);
  callback_pointer(c->job, c->suffix, "gemm_pointer_b", is_whole ? behind + 1 : c->b.argument, 0);
  callback_pointer(c->job, c->suffix, "gemm_workspace", workspace, 0);
  callback_pointer(c->job, c->suffix, "gemm_map_a", c->a.is_mapped ? behind : 0, 0);
  callback_pointer(c->job, c->suffix, "gemm_map_b", c->b.is_mapped ? behind + c->a.is_mapped : 0, 0);
  if (c->unit == UNIT_WGMMA)
    define_wgmma(c);
  else if (is_whole)
    nvptx_whole_define(c);
  else if (c->unit == UNIT_ROUNDED)
    nvptx_rounded_define(c);
  else if (c->unit == UNIT_SPARSE)
    nvptx_sparse_define(c);
  else if (c->unit == UNIT_ROWS)
    nvptx_rows_define(c);
  else if (c->unit == UNIT_MMA8)
    nvptx_define_mma8(c->job, c->suffix, "gemm", c->dtype, c->node->input[1]->type.dtype);
  else if (c->unit != UNIT_SIMT)
    nvptx_define_mma(c->job, c->suffix, "gemm", c->dtype, c->unit == UNIT_MMA32);
}

/* gemm_sum_lanes: over LANES_OF_A_SUM neighbouring lanes. */
static void define_sum(Contract *c) {
  Job *job = c->job;
  Entry entry = {.job = job};
  Emitter *emitter = &entry.emitter;
  emitter->module = job->module;
  bool is_whole = c->unit == UNIT_WHOLE;
  LLVMTypeRef real = is_whole ? job->module->i32 : emit_register_type(emitter, c->dtype);
  callback_open_plain(job, emitter, c->suffix, "gemm_sum_lanes", real, &real, 1);
  entry.b = emitter->builder;
  LLVMValueRef value = LLVMGetParam(emitter->function, 0);
  for (int mask = 1; mask < LANES_OF_A_SUM; mask *= 2)
    value = LLVMBuildBinOp(entry.b, is_whole ? LLVMAdd : LLVMFAdd, value, entry_shuffle(&entry, value, mask), "");
  callback_close(emitter, value);
}

/* ── epilogue ───────────────────────────────────────────────────────────────────────────────── */

/* Pushes a digit of `count` places with the value `value`. With lane >= 0, for the fastest digit
 * where the epilogue takes four columns: `value` is the group, and `lane` the place in it. */
static void push_digit(Emitter *emitter, Index *index, int64_t count, LLVMValueRef value,
                       int lane) {
  if (lane < 0) {
    index_push(index, count, value, true);
    return;
  }
  index_push(index, count / 4, value, true);
  index_push(index, 4, emit_index_const(emitter, lane), true);
}

/* The place (batch, row, column) of the product as an index into the result; by four: column
 * counts groups, lane < 0: single columns. */
static Index result_index(Contract *c, Emitter *emitter, LLVMValueRef batch, LLVMValueRef row,
                          LLVMValueRef column, int lane) {
  Index index = {0};
  const ConvForm *f = &c->form;
  bool is_grad_weight = c->kind == KIND_GRAD_WEIGHT;
  if (c->kind == KIND_DOT || (is_grad_weight && f->is_nhwc)) {
    index_push(&index, c->batches, batch, true);
    index_push(&index, c->m, row, true);
    push_digit(emitter, &index, c->n, column, lane);
    return index;
  }
  int64_t across = is_grad_weight ? c->m : c->n;
  LLVMValueRef channel = is_grad_weight ? row : column;
  LLVMValueRef first = emit_mul(emitter, batch, lane < 0 ? across : across / 4);
  if (f->groups > 1) channel = emit_add(emitter, first, channel);
  if (is_grad_weight) { /* the product's columns are windows, then channels */
    index_push(&index, f->groups * f->out, channel, true);
    index_push(&index, f->in, emit_rem(emitter, column, f->in), true);
    index_push(&index, c->windows, emit_div(emitter, column, f->in), true);
    return index;
  }
  if (f->is_nhwc) {
    index_push(&index, c->rows, row, true);
    push_digit(emitter, &index, f->groups * across, channel, lane);
    return index;
  }
  int64_t places = c->rows / f->images;
  index_push(&index, f->images, emit_div(emitter, row, places), true);
  index_push(&index, f->groups * across, channel, true);
  index_push(&index, places, emit_rem(emitter, row, places), true);
  return index;
}

static LLVMValueRef product_value(Contract *c, Emitter *emitter, LLVMValueRef sum) {
  bool is_narrow = dtype_is_narrow(c->result);
  return is_narrow ? emit_cast(emitter, DT_F32, c->result, sum) : sum;
}

/* Opens the callback `name` of the epilogue, whose parameters from `first` on are three places. These become indices as wide as the kernel's
 * tensors need: where one is large, so is the number of an element, but not of a row or column. */
static void open_finish(Contract *c, Emitter *emitter, const char *name, LLVMTypeRef *parameters,
                        int count, int first, LLVMValueRef *p) {
  Job *job = c->job;
  callback_open(job, emitter, c->suffix, name, job->module->nothing, parameters, count,
                job->node->body);
  emitter->index_type = entry_index_type(job);
  for (int i = 0; i < count; i++) {
    p[i] = LLVMGetParam(emitter->function, (unsigned)i);
    if (i >= first && i < first + 3)
      p[i] = LLVMBuildIntCast2(emitter->builder, p[i], emitter->index_type, true, "");
  }
}

/* A callback for four columns: (args, columns, batch, row, group, four sums). */
static void open_four(Contract *c, Emitter *emitter, const char *name, Index index[4],
                      LLVMValueRef value[4]) {
  Job *job = c->job;
  LLVMTypeRef pointer = job->module->pointer;
  LLVMTypeRef word = job->module->i32, real = emit_register_type(emitter, c->dtype);
  LLVMTypeRef parameters[9] = {pointer, pointer, word, word, word, real, real, real, real};
  LLVMValueRef p[9];
  open_finish(c, emitter, name, parameters, 9, 2, p);
  LLVMValueRef first = emit_mul(emitter, p[4], 4);
  for (int e = 0; e < 4; e++) {
    if (c->n % 4 == 0)
      index[e] = result_index(c, emitter, p[2], p[3], p[4], e);
    else { /* what lies behind a row gets the value of its last column, or any */
      LLVMValueRef column = emit_add(emitter, first, emit_index_const(emitter, e));
      if (e) column = emit_min(emitter, column, emit_index_const(emitter, c->n - 1));
      index[e] = result_index(c, emitter, p[2], p[3], column, -1);
    }
    value[e] = product_value(c, emitter, p[5 + e]);
  }
}

/* gemm_finish: (args, batch, row, column, sum). */
static void open_one(Contract *c, Emitter *emitter, Index *index, LLVMValueRef *value) {
  Job *job = c->job;
  LLVMTypeRef word = job->module->i32, real = emit_register_type(emitter, c->dtype);
  LLVMTypeRef parameters[5] = {job->module->pointer, word, word, word, real};
  LLVMValueRef p[5];
  open_finish(c, emitter, "gemm_finish", parameters, 5, 1, p);
  *index = result_index(c, emitter, p[1], p[2], p[3], -1);
  *value = product_value(c, emitter, p[4]);
}

/* Stores what result `i` is at one index, or at four neighbouring ones, by one instruction. */
static void store_lanes(Contract *c, Emitter *emitter, int i, const Index index[4],
                        const LLVMValueRef sum[4], int lanes) {
  const Graph *body = c->job->node->body;
  const Node *node = body ? body->roots.at[i].node : NULL;
  DType dtype = node ? node->type.dtype : c->result;
  LLVMValueRef pointer = emitter->pointer[c->job->operand_count + i], value[4];
  for (int e = 0; e < lanes; e++) {
    if (body) emit_bind_value(emitter, c->node, sum[e]);
    value[e] = body ? emit_value(emitter, node, &index[e]) : sum[e];
  }
  int which = c->job->operand_count + i;
  const Shape *shape = body ? &node->type.shape : &c->node->type.shape;
  bool is_group = emit_lane_of(emitter, &index[0]) == 0 &&
                  index[0].digit[index[0].count - 1].extent == 4;
  if (lanes == 4 && (is_group || c->n % 4))
    emit_store_group(emitter, pointer, dtype, emit_place(emitter, which, shape, &index[0]), 4, value);
  else
    for (int e = 0; e < lanes; e++)
      emit_store_at(emitter, pointer, dtype, emit_place(emitter, which, shape, &index[e]), value[e]);
}

/* gemm_finish or gemm_finish4: all values first, then all stores, so that loads stay together. */
static void nvptx_contract_define_finish(Contract *c) {
  Job *job = c->job;
  const Graph *body = job->node->body;
  Emitter emitter = {.module = job->module};
  Index index[4];
  LLVMValueRef value[4];
  int lanes = c->is_by_four ? 4 : 1;
  if (c->is_by_four)
    open_four(c, &emitter, "gemm_finish4", index, value);
  else
    open_one(c, &emitter, index, value);
  for (int e = 0; body && e < lanes; e++) {
    emit_bind_value(&emitter, c->node, value[e]);
    for (int i = 0; i < job->result_count; i++)
      if (job->is_whole[i]) emit_value(&emitter, body->roots.at[i].node, &index[e]);
    if (c->sums.count) nvptx_sums_add(c, &emitter, LLVMGetParam(emitter.function, 1), &index[e], e);
  }
  for (int i = 0; i < job->result_count; i++)
    if (job->is_whole[i]) store_lanes(c, &emitter, i, index, value, lanes);
  callback_close(&emitter, NULL);
}

/* gemm_shift4 */
static void define_shift(Contract *c) {
  Emitter emitter = {.module = c->job->module};
  Index index[4];
  LLVMValueRef value[4];
  open_four(c, &emitter, "gemm_shift4", index, value);
  for (int e = 0; c->sums.count && e < 4; e++) {
    emit_bind_value(&emitter, c->node, value[e]);
    nvptx_sums_shift(c, &emitter, LLVMGetParam(emitter.function, 1), &index[e], e);
  }
  callback_close(&emitter, NULL);
}

/* ── entries ────────────────────────────────────────────────────────────────────────────────── */

/* A second launch adds the parts of split sums; the kernel handles threads beyond the last sum. */
static void nvptx_contract_emit_combine(Contract *c, int64_t results) {
  Job *job = c->job;
  int64_t count = LANES_OF_A_SUM * (c->is_by_four ? results / 4 : results);
  Entry entry;
  char name[256];
  snprintf(name, sizeof name, "%s_combine", job->name);
  entry_leave_out(job, SECOND_MAKES_ALL, true);
  if (c->job->has_packed) nvptx_whole_parameters(c, true);
  entry_open(&entry, job, name, COMBINE_THREADS, true);
  if (job->rows) nvptx_rows_combine(c, &entry, name, count / LANES_OF_A_SUM);
  if (job->rows) return;
  LLVMValueRef block = entry_mul(&entry, entry_special(&entry, "ctaid.x"), COMBINE_THREADS);
  LLVMValueRef number = entry_add(&entry, block, entry_special(&entry, "tid.x"));
  callback_call(&entry, c->suffix, "gemm_combine", &number, 1);
  entry_close(&entry, name, (count + COMBINE_THREADS - 1) / COMBINE_THREADS, 1, 1);
}

/* Does the epilogue of wgmma's tiles read as many elements as it writes? These loads stand behind stores of the same
 * thread, and ptxas moves them up only if they are ld.global.nc. */
static bool reads_between_stores(const Contract *c, int64_t results) {
  bool reads = false;
  for (int i = 0; i < c->job->operand_count; i++)
    reads |= shape_elements(&c->job->node->input[i]->type.shape) == results;
  return c->unit == UNIT_WGMMA && c->job->operand_count > 2 && reads;
}

static void emit_entries(Contract *c) {
  Job *job = c->job;
  const Tile *tile = &c->tile;
  Entry entry;
  int64_t results = c->batches * c->classes * c->m * nvptx_contract_columns(c);
  if (c->sums.count) entry_leave_out(job, SECOND_MAKES_COLUMN_SUMS, false);
  if (tile->splits > 1) entry_leave_out(job, SECOND_MAKES_ALL, false);
  if (c->unit == UNIT_WHOLE) nvptx_whole_pack(c);
  if (c->unit == UNIT_ROUNDED) nvptx_rounded_pack(c);
  if (c->unit == UNIT_SPARSE) nvptx_sparse_pack(c);
  entry_open_mapped(&entry, job, job->name, nvptx_tile_threads(c), job->out->workspace > 0);
  int resident = nvptx_tile_resident(c);
  if (resident > 1 || tile->stays) entry_annotate(&entry, "minctasm", (unsigned)resident);
  if (tile->pair)
    VEC_PUSH(job->module->arena, job->module->paired,
             arena_strdup(job->module->arena, job->name));
  bool is_ordinary = reads_between_stores(c, results);
  if (is_ordinary)
    VEC_PUSH(job->module->arena, job->module->ordinary,
             arena_strdup(job->module->arena, job->name));
  LLVMValueRef panels = entry_panels(&entry, tile->shared);
  if (c->unit == UNIT_WGMMA) LLVMSetAlignment(panels, SWIZZLE_ALIGN);
  callback_call_block(&entry, c->suffix, "gemm_tile", panels);
  int64_t grid[3];
  nvptx_tile_grid(c, grid);
  entry_close(&entry, job->name, grid[0], grid[1], grid[2]);
  KernelLaunch *launch = &job->out->launch[job->out->launch_count - 1];
  launch->stays = tile->stays;
  launch->cluster = tile->pair ? 2 : 0;
  launch->is_ordinary = is_ordinary;
  launch->goes_by_rows = c->unit == UNIT_ROWS;
  if (tile->shared > SHARED_STATIC) launch->shared = tile->shared;
  nvptx_sums_entry(c);
  if (tile->splits > 1) nvptx_contract_emit_combine(c, results);
}

static ContractKind contract_kind(Op op) {
  return op == OP_DOT               ? KIND_DOT
         : op == OP_CONV            ? KIND_CONV
         : op == OP_CONV_GRAD_INPUT ? KIND_GRAD_INPUT
                                    : KIND_GRAD_WEIGHT;
}

/* f32 stays f32 unless the program's precision allows tf32. nvptx_choose_tile may choose wgmma. */
static void nvptx_contract_choose_unit(Contract *c) {
  bool is_half = dtype_is_narrow(c->dtype);
  bool allows_tf32 = c->job->module->allows_tf32 || node_int(c->node, ATTR_TF32, 0);
  c->unit = c->job->rows && chain_is_small(c->node, c->job->rows) ? UNIT_ROWS : integers_have_kernel(c->node, true) ? UNIT_WHOLE : nvptx_rounded_suits(c->job->node, c->node) ? UNIT_ROUNDED : nvptx_sparse_suits(c->job->node, c->node) ? UNIT_SPARSE : is_half ? UNIT_MMA16 : dtype_is_float8(c->dtype) ? UNIT_MMA8 : c->dtype == DT_F32 && allows_tf32 ? UNIT_MMA32 : UNIT_SIMT;
  c->bytes = c->unit == UNIT_WHOLE ? 1 : dtype_bytes(c->dtype);
}

static const char *body_of(const Contract *c) {
  return c->unit == UNIT_WGMMA   ? c->bytes == 1 ? "wgmma8_ptx" : "wgmma16_ptx"
         : c->unit == UNIT_MMA16 ? "mma16_ptx"
         : c->unit == UNIT_MMA32 ? "mma32_ptx"
         : c->unit == UNIT_MMA8  ? "mma8_ptx"
         : c->unit == UNIT_WHOLE ? "mma_whole_ptx"
         : c->unit == UNIT_ROUNDED ? "rounded_ptx" : c->unit == UNIT_SPARSE ? "sparse_ptx" : c->unit == UNIT_ROWS ? "rows_ptx"
         : c->dtype == DT_F64    ? "gemm64_ptx"
                                 : "gemm_ptx";
}

/* Kernels number elements of operands, and of the parts of split sums, by 32 bits; boxes of tensor maps and the epilogue have no such limit. */
static bool fits_numbers(const Contract *c) {
  int64_t most = (int64_t)INT32_MAX - 16;
  int64_t sums = c->batches * c->classes * c->m * nvptx_contract_columns(c) * c->tile.splits;
  bool fits = c->tile.splits == 1 || sums <= most;
  const Operand *operands[2] = {&c->a, &c->b};
  for (int i = 0; i < 2; i++) {
    int64_t bytes = type_bytes(&c->job->node->input[operands[i]->argument]->type);
    int64_t numbers = c->unit == UNIT_WHOLE ? c->whole[i].faults : bytes / c->bytes;
    fits &= operands[i]->is_mapped || numbers <= most;
  }
  if (!fits)
    diag_error(c->job->module->diag, c->node->origin.loc,
               "an operand of this product has 2^31 elements or more, which its GPU kernel cannot "
               "number: a smaller batch with `accumulate` has fewer");
  return fits;
}

bool nvptx_contract(Job *job, const Node *contraction) {
  Contract *c = ARENA_NEW(job->scratch, Contract);
  c->job = job;
  c->node = contraction;
  c->kind = contract_kind(contraction->op);
  c->dtype = contraction->input[0]->type.dtype;
  c->result = contraction->type.dtype;
  snprintf(c->suffix, sizeof c->suffix, "__%s", job->name);
  nvptx_contract_choose_unit(c);
  c->a = (Operand){contraction->input[0], kernel_operand(job->node, 0), .wide = 1};
  c->b = (Operand){contraction->input[1], kernel_operand(job->node, 1), .wide = 1};
  if (c->kind == KIND_DOT)
    describe_dot(c);
  else
    describe_conv(c);
  lay_operands(c);
  if (c->unit == UNIT_WHOLE) nvptx_whole_lay(c);
  c->is_by_four = takes_four(c);
  nvptx_sums_collect(c);
  nvptx_choose_tile(c);
  module_specialise(job->module, body_of(c), "gemm_", c->suffix);
  size_workspace(c);
  nvptx_make_maps(c);
  if (!fits_numbers(c)) return false;
  int64_t grid[3];
  nvptx_tile_grid(c, grid);
  if (grid[1] > MAX_GRID_YZ || grid[2] > MAX_GRID_YZ) {
    diag_error(job->module->diag, contraction->origin.loc,
               "this product is too large for one GPU grid");
    return false;
  }
  nvptx_contract_define_constants(c);
  define_conv(c);
  define_operands(c);
  if (c->unit == UNIT_WGMMA) nvptx_define_waits(job, c->suffix, "gemm", job->name);
  nvptx_contract_define_finish(c);
  define_shift(c);
  nvptx_sums_define(c);
  if (c->tile.splits > 1) define_sum(c);
  emit_entries(c);
  return true;
}
