/* nvptx_contract: matrix products, convolutions and scatter_add: kernels/gemm_ptx.h and
 * scatter_ptx.h, specialised: this file defines their constants and callbacks, the epilogue from
 * the fused body, and the entries that call them. */
#include "codegen/nvptx_private.h"
#include <stdio.h>
#include <string.h>

enum {
  GEMM_THREADS = 256,
  GEMM_STEPS = 16,
  FEW_BLOCKS = 128,
  MAX_SPLITS = 32,
  MAX_GRID_YZ = 65535
};

typedef enum { KIND_DOT, KIND_CONV, KIND_GRAD_INPUT, KIND_GRAD_WEIGHT } ContractKind;
typedef struct {
  Job *job;
  const Node *node; /* the contraction */
  char suffix[224];
  ContractKind kind;
  DType dtype; /* of the operands and the product */
  int a, b;    /* operand numbers */
  int64_t batches, m, n, k, splits;
  int micro;
  int64_t images, groups, in, out, in_height, in_width, out_height, out_width;
} Contract;

/* ── functions for the C body ── */

static void suffixed(char *out, size_t size, const char *name, const char *suffix) {
  snprintf(out, size, "%s%s", name, suffix);
}

static LLVMTypeRef word_type(Module *module) { return LLVMInt32TypeInContext(module->context); }

static LLVMBuilderRef begin_function(Module *module, LLVMValueRef function) {
  LLVMBuilderRef b = LLVMCreateBuilderInContext(module->context);
  LLVMPositionBuilderAtEnd(b, LLVMAppendBasicBlockInContext(module->context, function, "entry"));
  return b;
}

static void define_constant(Module *module, const char *suffix, const char *name, int64_t value) {
  char full[256];
  suffixed(full, sizeof full, name, suffix);
  LLVMTypeRef type = LLVMFunctionType(word_type(module), NULL, 0, false);
  LLVMBuilderRef b = begin_function(module, module_helper(module, full, type));
  LLVMBuildRet(b, LLVMConstInt(word_type(module), (uint64_t)value, true));
  LLVMDisposeBuilder(b);
}

/* An Emitter inside a callback whose first parameter is the array of pointers. */
static void open_callback(Job *job, Emitter *emitter, const char *suffix, const char *name,
                          LLVMTypeRef result, LLVMTypeRef *parameters, int count,
                          const Graph *body) {
  Module *module = job->module;
  char full[256];
  suffixed(full, sizeof full, name, suffix);
  LLVMTypeRef type = LLVMFunctionType(result, parameters, (unsigned)count, false);
  LLVMValueRef function = module_helper(module, full, type);
  LLVMBuilderRef b = begin_function(module, function);
  emitter_init(emitter, module, job->scratch, body, b, word_type(module));
  emitter->function = function;
  emitter->input_count = job->operand_count;
  emitter->result_count = job->result_count;
  int pointers = job->operand_count + job->result_count + 1;
  emitter->pointer = ARENA_ARRAY(job->scratch, LLVMValueRef, pointers);
  LLVMTypeRef pointer = LLVMPointerTypeInContext(module->context, 0);
  for (int i = 0; i < pointers; i++) {
    LLVMValueRef place = LLVMConstInt(word_type(module), (unsigned)i, false);
    LLVMValueRef address =
        LLVMBuildInBoundsGEP2(b, pointer, LLVMGetParam(function, 0), &place, 1, "");
    emitter->pointer[i] = LLVMBuildLoad2(b, pointer, address, "");
  }
}

static void close_callback(Emitter *emitter, LLVMValueRef value) {
  if (value)
    LLVMBuildRet(emitter->builder, value);
  else
    LLVMBuildRetVoid(emitter->builder);
  LLVMDisposeBuilder(emitter->builder);
}

static void define_element(Job *job, const char *suffix, const char *name, int operand,
                           LLVMTypeRef index) {
  DType dtype = job->node->input[operand]->type.dtype;
  LLVMTypeRef parameters[2] = {LLVMPointerTypeInContext(job->module->context, 0), index};
  Emitter emitter = {.module = job->module};
  open_callback(job, &emitter, suffix, name, emit_register_type(&emitter, dtype), parameters, 2,
                NULL);
  close_callback(&emitter, emit_load_at(&emitter, emitter.pointer[operand], dtype,
                                        LLVMGetParam(emitter.function, 1)));
}

/* Calls `name`(args, extra...) at the builder's position of an entry. */
static void call_body(Entry *entry, const char *suffix, const char *name, LLVMValueRef *extra,
                      int count) {
  Job *job = entry->job;
  Module *module = job->module;
  LLVMTypeRef pointer = LLVMPointerTypeInContext(module->context, 0), types[8] = {pointer};
  int pointers = job->operand_count + job->result_count + 1;
  LLVMValueRef arguments[8];
  LLVMTypeRef array = LLVMArrayType2(pointer, (uint64_t)pointers);
  arguments[0] = LLVMBuildAlloca(entry->b, array, "");
  for (int i = 0; i < pointers; i++) {
    bool is_there = i < pointers - 1 || entry->workspace;
    LLVMValueRef place = LLVMConstInt(entry->i32, (unsigned)i, false);
    LLVMValueRef address = LLVMBuildInBoundsGEP2(entry->b, pointer, arguments[0], &place, 1, "");
    LLVMBuildStore(entry->b, is_there ? entry->emitter.pointer[i] : LLVMConstNull(pointer),
                   address);
  }
  for (int i = 0; i < count; i++) {
    types[i + 1] = entry->i32;
    arguments[i + 1] = LLVMBuildIntCast2(entry->b, extra[i], entry->i32, false, "");
  }
  char full[256];
  suffixed(full, sizeof full, name, suffix);
  LLVMTypeRef type =
      LLVMFunctionType(LLVMVoidTypeInContext(module->context), types, (unsigned)count + 1, false);
  LLVMBuildCall2(entry->b, type, LLVMGetNamedFunction(module->llvm, full), arguments,
                 (unsigned)count + 1, "");
}

static bool is_small(Job *job) {
  if (entry_index_type(job, job->module->context) == word_type(job->module)) return true;
  diag_error(
      job->module->diag, job->node->loc,
      "a tensor of this operation has 2^30 elements or more, which its GPU kernel cannot index");
  return false;
}

/* ── contractions ── */

static void describe_dot(Contract *c) {
  const Shape *a = &c->node->input[0]->type.shape, *result = &c->node->type.shape;
  int rank = result->rank;
  bool ta = node_int(c->node, ATTR_TRANS_A, 0);
  c->m = result->dim[rank - 2];
  c->n = result->dim[rank - 1];
  c->k = a->dim[ta ? rank - 2 : rank - 1];
  c->batches = 1;
  for (int d = 0; d + 2 < rank; d++) c->batches *= result->dim[d];
}

static void describe_conv(Contract *c) {
  const Node *node = c->node;
  bool is_nhwc = node_str(node, ATTR_LAYOUT)[1] == 'h';
  const Shape *x = c->kind == KIND_CONV         ? &node->input[0]->type.shape
                   : c->kind == KIND_GRAD_INPUT ? &node->type.shape
                                                : &node->input[1]->type.shape;
  const Shape *y = c->kind == KIND_CONV ? &node->type.shape : &node->input[0]->type.shape;
  const Shape *w = c->kind == KIND_GRAD_WEIGHT ? &node->type.shape : &node->input[1]->type.shape;
  int height = is_nhwc ? 1 : 2;
  c->images = x->dim[0];
  c->groups = node_int(node, ATTR_GROUPS, 1);
  c->in = w->dim[1];
  c->out = w->dim[0] / c->groups;
  c->in_height = x->dim[height];
  c->in_width = x->dim[height + 1];
  c->out_height = y->dim[height];
  c->out_width = y->dim[height + 1];
  int64_t windows = w->dim[2] * w->dim[3];
  c->batches = c->groups;
  int64_t in_rows = c->images * c->in_height * c->in_width;
  int64_t out_rows = c->images * c->out_height * c->out_width;
  c->m = c->kind == KIND_CONV ? out_rows : c->kind == KIND_GRAD_INPUT ? in_rows : c->out;
  c->n = c->kind == KIND_CONV ? c->out : c->kind == KIND_GRAD_INPUT ? c->in : c->in * windows;
  c->k = c->kind == KIND_CONV         ? c->in * windows
         : c->kind == KIND_GRAD_INPUT ? c->out * windows
                                      : out_rows;
  const char *suffix = c->suffix;
  Module *module = c->job->module;
  const int64_t *stride = node_attr(node, ATTR_STRIDE)->ints;
  const int64_t *pad = node_attr(node, ATTR_PADDING)->ints;
  const int64_t *dilation = node_attr(node, ATTR_DILATION)->ints;
  const struct {
    const char *name;
    int64_t value;
  } constants[] = {
      {"gemm_images", c->images},
      {"gemm_groups", c->groups},
      {"gemm_nhwc", is_nhwc},
      {"gemm_in_channels", c->in},
      {"gemm_in_height", c->in_height},
      {"gemm_in_width", c->in_width},
      {"gemm_out_channels", c->out},
      {"gemm_out_height", c->out_height},
      {"gemm_out_width", c->out_width},
      {"gemm_kernel_height", w->dim[2]},
      {"gemm_kernel_width", w->dim[3]},
      {"gemm_stride_height", stride[0]},
      {"gemm_stride_width", stride[1]},
      {"gemm_pad_top", pad[0]},
      {"gemm_pad_left", pad[1]},
      {"gemm_dilation_height", dilation[0]},
      {"gemm_dilation_width", dilation[1]},
  };
  for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
    define_constant(module, suffix, constants[i].name, constants[i].value);
}

static void define_no_conv(Contract *c) {
  static const char *const names[] = {
      "gemm_images",        "gemm_groups",        "gemm_nhwc",         "gemm_in_channels",
      "gemm_in_height",     "gemm_in_width",      "gemm_out_channels", "gemm_out_height",
      "gemm_out_width",     "gemm_kernel_height", "gemm_kernel_width", "gemm_stride_height",
      "gemm_stride_width",  "gemm_pad_top",       "gemm_pad_left",     "gemm_dilation_height",
      "gemm_dilation_width"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    define_constant(c->job->module, c->suffix, names[i], 1);
}

static void choose_tiles(Contract *c) {
  int64_t big = ((c->m + 127) / 128) * ((c->n + 127) / 128) * c->batches;
  int64_t small = ((c->m + 63) / 64) * ((c->n + 63) / 64) * c->batches;
  c->micro = c->dtype != DT_F64 && big >= FEW_BLOCKS ? 8 : 4;
  c->splits = 1;
  int64_t wanted = 2 * FEW_BLOCKS / (small ? small : 1), most = c->k / (8 * GEMM_STEPS);
  if (c->micro == 8 || small >= FEW_BLOCKS) return;
  if (wanted > most) wanted = most;
  if (wanted > MAX_SPLITS) wanted = MAX_SPLITS;
  if (wanted < 2) return;
  int64_t part = ((c->k + wanted - 1) / wanted + GEMM_STEPS - 1) / GEMM_STEPS * GEMM_STEPS;
  c->splits = (c->k + part - 1) / part;
  c->job->out->workspace = c->batches * c->splits * c->m * c->n * (c->dtype == DT_F64 ? 8 : 4);
}

static void define_constants(Contract *c) {
  bool is_nhwc = c->kind != KIND_DOT && node_str(c->node, ATTR_LAYOUT)[1] == 'h';
  bool ta = node_int(c->node, ATTR_TRANS_A, 0), tb = node_int(c->node, ATTR_TRANS_B, 0);
  bool a_deep = c->kind == KIND_DOT ? !ta : (c->kind == KIND_GRAD_WEIGHT) != is_nhwc;
  bool b_deep = c->kind == KIND_DOT ? tb : c->kind == KIND_GRAD_WEIGHT && !is_nhwc;
  const struct {
    const char *name;
    int64_t value;
  } constants[] = {
      {"gemm_kind", c->kind},     {"gemm_m", c->m},         {"gemm_n", c->n}, {"gemm_k", c->k},
      {"gemm_splits", c->splits}, {"gemm_micro", c->micro}, {"gemm_ta", ta},  {"gemm_tb", tb},
      {"gemm_a_deep", a_deep},    {"gemm_b_deep", b_deep},
  };
  for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
    define_constant(c->job->module, c->suffix, constants[i].name, constants[i].value);
}

/* The place (batch, row, column) of the product as an index into the result. */
static Index result_index(Contract *c, Emitter *emitter, LLVMValueRef batch, LLVMValueRef row,
                          LLVMValueRef column) {
  Index index = {0};
  if (c->kind == KIND_DOT) {
    index_push(&index, c->batches, batch, true);
    index_push(&index, c->m, row, true);
    index_push(&index, c->n, column, true);
    return index;
  }
  int64_t across = c->kind == KIND_GRAD_WEIGHT ? c->m : c->n;
  LLVMValueRef channel = c->kind == KIND_GRAD_WEIGHT ? row : column;
  if (c->groups > 1)
    channel = emit_index_op(
        emitter, LLVMAdd, emit_index_op(emitter, LLVMMul, batch, emit_index_const(emitter, across)),
        channel);
  if (c->kind == KIND_GRAD_WEIGHT) {
    index_push(&index, c->groups * c->out, channel, true);
    index_push(&index, c->n, column, true);
    return index;
  }
  if (node_str(c->node, ATTR_LAYOUT)[1] == 'h') {
    index_push(&index, c->m, row, true);
    index_push(&index, c->groups * across, channel, true);
    return index;
  }
  int64_t places = c->m / c->images;
  LLVMValueRef size = emit_index_const(emitter, places);
  index_push(&index, c->images, emit_index_op(emitter, LLVMUDiv, row, size), true);
  index_push(&index, c->groups * across, channel, true);
  index_push(&index, places, emit_index_op(emitter, LLVMURem, row, size), true);
  return index;
}

static void define_epilogue(Contract *c) {
  Job *job = c->job;
  Emitter emitter = {.module = job->module};
  LLVMTypeRef word = word_type(job->module);
  LLVMTypeRef parameters[5] = {LLVMPointerTypeInContext(job->module->context, 0), word, word, word,
                               emit_register_type(&emitter, c->dtype)};
  open_callback(job, &emitter, c->suffix, "gemm_epilogue",
                LLVMVoidTypeInContext(job->module->context), parameters, 5, job->node->body);
  LLVMValueRef p[5];
  for (unsigned i = 0; i < 5; i++) p[i] = LLVMGetParam(emitter.function, i);
  Index index = result_index(c, &emitter, p[1], p[2], p[3]);
  LLVMValueRef value = p[4];
  if (c->dtype == DT_F16 || c->dtype == DT_BF16)
    value = emit_cast(&emitter, DT_F32, c->dtype, value);
  LLVMValueRef *result = &emitter.pointer[job->operand_count];
  LLVMValueRef place = index_linear(&emitter, &index);
  if (!job->node->body) {
    emit_store_at(&emitter, result[0], c->dtype, place, value);
  } else {
    emit_bind_value(&emitter, c->node, value);
    const Graph *body = job->node->body;
    for (int i = 0; i < job->result_count; i++)
      emit_value(&emitter, body->roots.at[i].node, &index);
    for (int i = 0; i < job->result_count; i++)
      emit_store_at(&emitter, result[i], body->roots.at[i].node->type.dtype, place,
                    emit_value(&emitter, body->roots.at[i].node, &index));
  }
  close_callback(&emitter, NULL);
}

static void define_workspace(Contract *c) {
  Job *job = c->job;
  Emitter emitter = {.module = job->module};
  LLVMTypeRef pointer = LLVMPointerTypeInContext(job->module->context, 0);
  open_callback(job, &emitter, c->suffix, "gemm_workspace", pointer, &pointer, 1, NULL);
  close_callback(&emitter, emitter.pointer[job->operand_count + job->result_count]);
}

static int operand_of(const Job *job, const Node *contraction, int input) {
  return job->node->body ? (int)node_int(contraction->input[input], ATTR_INDEX, 0) : input;
}

static void emit_entries(Contract *c) {
  Job *job = c->job;
  Entry entry;
  bool has_workspace = c->splits > 1;
  int64_t tile = 16 * c->micro;
  entry_open(&entry, job, job->name, GEMM_THREADS, has_workspace);
  LLVMValueRef extra[4] = {entry_special(&entry, "ctaid.x"), entry_special(&entry, "ctaid.y"),
                           entry_special(&entry, "ctaid.z"), entry_special(&entry, "tid.x")};
  call_body(&entry, c->suffix, "gemm_tile", extra, 4);
  entry_close(&entry, job->name, (c->m + tile - 1) / tile, (c->n + tile - 1) / tile,
              c->batches * c->splits);
  if (!has_workspace) return;
  char name[256];
  snprintf(name, sizeof name, "%s_combine", job->name);
  int64_t elements = c->batches * c->m * c->n;
  entry_open(&entry, job, name, GEMM_THREADS, true);
  LLVMValueRef element = entry_op(&entry, LLVMAdd,
                                  entry_op(&entry, LLVMMul, entry_special(&entry, "ctaid.x"),
                                           entry_const(&entry, GEMM_THREADS)),
                                  entry_special(&entry, "tid.x"));
  LLVMBasicBlockRef after = entry_begin_if(
      &entry,
      elements % GEMM_THREADS ? entry_less(&entry, element, entry_const(&entry, elements)) : NULL);
  call_body(&entry, c->suffix, "gemm_combine", &element, 1);
  entry_end_if(&entry, after);
  entry_close(&entry, name, (elements + GEMM_THREADS - 1) / GEMM_THREADS, 1, 1);
}

bool nvptx_contract(Job *job, const Node *contraction) {
  Contract *c = ARENA_NEW(job->scratch, Contract);
  c->job = job;
  c->node = contraction;
  c->kind = contraction->op == OP_DOT               ? KIND_DOT
            : contraction->op == OP_CONV            ? KIND_CONV
            : contraction->op == OP_CONV_GRAD_INPUT ? KIND_GRAD_INPUT
                                                    : KIND_GRAD_WEIGHT;
  c->dtype = contraction->type.dtype;
  c->a = operand_of(job, contraction, 0);
  c->b = operand_of(job, contraction, 1);
  snprintf(c->suffix, sizeof c->suffix, "__%s", job->name);
  if (!is_small(job)) return false;
  if (!module_specialise(job->module, c->dtype == DT_F64 ? "gemm64_ptx" : "gemm_ptx", "gemm_",
                         c->suffix))
    return false;
  if (c->kind == KIND_DOT) {
    describe_dot(c);
    define_no_conv(c);
  } else {
    describe_conv(c);
  }
  choose_tiles(c);
  if ((c->n + 16 * c->micro - 1) / (16 * c->micro) > MAX_GRID_YZ ||
      c->batches * c->splits > MAX_GRID_YZ) {
    diag_error(job->module->diag, contraction->loc, "this product is too large for one GPU grid");
    return false;
  }
  define_constants(c);
  LLVMTypeRef word = word_type(job->module);
  define_element(job, c->suffix, "gemm_element_a", c->a, word);
  define_element(job, c->suffix, "gemm_element_b", c->b, word);
  define_workspace(c);
  define_epilogue(c);
  emit_entries(c);
  return true;
}

/* ── scatter_add ── */

static void define_scatter_store(Job *job, const char *suffix) {
  DType dtype = job->node->type.dtype;
  Emitter emitter = {.module = job->module};
  LLVMTypeRef parameters[3] = {LLVMPointerTypeInContext(job->module->context, 0),
                               LLVMInt64TypeInContext(job->module->context),
                               emit_register_type(&emitter, dtype)};
  open_callback(job, &emitter, suffix, "scatter_store", LLVMVoidTypeInContext(job->module->context),
                parameters, 3, NULL);
  emit_store_at(&emitter, emitter.pointer[job->operand_count], dtype,
                LLVMGetParam(emitter.function, 1), LLVMGetParam(emitter.function, 2));
  close_callback(&emitter, NULL);
}

static void define_scatter_index(Job *job, const char *suffix) {
  LLVMTypeRef i64 = LLVMInt64TypeInContext(job->module->context);
  LLVMTypeRef parameters[2] = {LLVMPointerTypeInContext(job->module->context, 0),
                               word_type(job->module)};
  Emitter emitter = {.module = job->module};
  open_callback(job, &emitter, suffix, "scatter_index", i64, parameters, 2, NULL);
  LLVMValueRef index = emit_load_at(&emitter, emitter.pointer[1], job->node->input[1]->type.dtype,
                                    LLVMGetParam(emitter.function, 1));
  close_callback(&emitter, LLVMBuildIntCast2(emitter.builder, index, i64, true, ""));
}

bool nvptx_scatter(Job *job) {
  const Shape *out = &job->node->type.shape;
  DType dtype = job->node->type.dtype;
  char suffix[224];
  snprintf(suffix, sizeof suffix, "__%s", job->name);
  if (!is_small(job)) return false;
  if (!dtype_is_float(dtype)) {
    diag_error(job->module->diag, job->node->loc, "scatter_add of %s has no GPU kernel",
               dtype_text(dtype));
    return false;
  }
  if (!module_specialise(job->module, dtype == DT_F64 ? "scatter64_ptx" : "scatter_ptx", "scatter_",
                         suffix))
    return false;
  int64_t columns = shape_elements(out) / out->dim[0];
  define_constant(job->module, suffix, "scatter_updates",
                  shape_elements(&job->node->input[1]->type.shape));
  define_constant(job->module, suffix, "scatter_columns", columns);
  define_element(job, suffix, "scatter_load", 0, LLVMInt64TypeInContext(job->module->context));
  define_scatter_index(job, suffix);
  define_scatter_store(job, suffix);
  Entry entry;
  entry_open(&entry, job, job->name, GEMM_THREADS, false);
  LLVMValueRef extra[3] = {entry_special(&entry, "ctaid.x"), entry_special(&entry, "ctaid.y"),
                           entry_special(&entry, "tid.x")};
  call_body(&entry, suffix, "scatter_row", extra, 3);
  entry_close(&entry, job->name, out->dim[0], (columns + GEMM_THREADS - 1) / GEMM_THREADS, 1);
  return true;
}
