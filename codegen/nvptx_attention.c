/* nvptx_attention: attention and its gradient: kernels/attention_ptx.h, specialised. This file says
 * where the tensors lie, how the work is cut (docs/kernels.md has the reasons), defines constants
 * and callbacks, and the entries: one forward, two backward. */
#include "codegen/nvptx_callback.h"
#include "codegen/nvptx_mma.h"
#include "passes/attention.h"
#include <stdio.h>
#include <string.h>

enum { MAX_GRID_YZ = 65535, MOST_SHARED = 99 << 10, SCRATCH_PAD = 8 };

typedef enum { UNIT_FMA, UNIT_BF16, UNIT_F16, UNIT_TF32, UNITS } AttentionUnit;
typedef enum { PART_FORWARD, PART_BACKWARD, PART_SIDEWAYS, PARTS } AttentionPart;

/* A way to cut the work, for rows of up to `width` features. */
typedef struct {
  int width, warps, micro, tile;
  bool keeps;
} Cut;

enum { MAX_CUTS = 3 };
/* The first that fits in shared memory is taken; registers: docs/kernels.md. */
static const Cut cuts[UNITS][PARTS][MAX_CUTS] = {
    [UNIT_FMA] = {{{64, 4, 16, 32, 0}, {128, 4, 16, 16, 0}},
                  {{64, 4, 16, 32, 0}, {128, 2, 16, 16, 0}},
                  {{64, 4, 16, 32, 0}, {128, 2, 16, 16, 0}}},
    [UNIT_BF16] = {{{64, 4, 32, 64, 1}, {128, 4, 32, 32, 0}},
                   {{64, 4, 32, 32, 0}, {128, 4, 16, 32, 0}},
                   {{64, 4, 32, 32, 0}, {128, 4, 16, 32, 0}}},
    [UNIT_F16] = {{{64, 4, 32, 64, 1}, {128, 4, 32, 32, 0}},
                  {{64, 4, 32, 32, 0}, {128, 4, 16, 32, 0}},
                  {{32, 4, 32, 32, 0}, {128, 4, 16, 32, 0}}},
    [UNIT_TF32] = {{{64, 4, 32, 32, 0}, {128, 4, 16, 32, 0}},
                   {{64, 4, 16, 32, 0}, {128, 2, 16, 32, 0}},
                   {{64, 4, 16, 32, 0}, {128, 2, 16, 32, 0}}},
};

typedef struct {
  Job *job;
  const Node *node;
  char suffix[224];
  AttentionUnit unit;
  AttentionPart part;
  DType dtype;
  int first, mask; /* positions of q and the mask among the operands */
  int mask_kind;   /* 0: none, 1: bool, 2: added */
  int64_t batch, heads, groups, queries, keys, features;
  int width, bytes, wide;
  Cut cut;
  int64_t shared;
} Attention;

/* ── what is asked for ──────────────────────────────────────────────────────────────────────── */

static void describe(Attention *a) {
  const Node *node = a->node;
  bool is_grad = node->op == OP_ATTENTION_GRAD;
  a->first = is_grad;
  a->mask = is_grad ? 6 : 3;
  const Shape *q = &node->input[a->first]->type.shape, *k = &node->input[a->first + 1]->type.shape;
  a->dtype = node->input[a->first]->type.dtype;
  a->batch = q->dim[0];
  a->heads = q->dim[1];
  a->groups = k->dim[1];
  a->queries = q->dim[2];
  a->keys = k->dim[2];
  a->features = q->dim[3];
  if (node->input_count > a->mask)
    a->mask_kind = node->input[a->mask]->type.dtype == DT_BOOL ? 1 : 2;
  bool allows_tf32 = a->job->module->allows_tf32 || node_int(node, ATTR_TF32, 0);
  a->unit = a->dtype == DT_BF16  ? UNIT_BF16
            : a->dtype == DT_F16 ? UNIT_F16
            : allows_tf32        ? UNIT_TF32
                                 : UNIT_FMA;
  a->bytes = dtype_bytes(a->dtype);
  int multiple = a->unit == UNIT_FMA ? 32 : 16;
  a->width = (int)(a->features + multiple - 1) / multiple * multiple;
  a->wide = a->features * a->bytes % 16 == 0  ? 16 / a->bytes
            : a->features * a->bytes % 4 == 0 ? 4 / a->bytes
                                              : 1;
}

static int row_panels(const Attention *a) { return a->part == PART_FORWARD ? 1 : 2; }
static int64_t block_rows(const Attention *a) { return a->cut.warps * a->cut.micro; }

static int64_t shared_bytes(const Attention *a) {
  int64_t panels = (row_panels(a) * block_rows(a) + 4 * a->cut.tile) * (a->width * a->bytes + 16);
  int64_t numbers = (int64_t)4 * 4 * a->cut.tile;
  int64_t scratch = a->unit == UNIT_FMA ? 4 * block_rows(a) * (a->cut.tile + SCRATCH_PAD) : 0;
  return panels + numbers + scratch;
}

static void choose_cut(Attention *a) {
  const Cut *list = cuts[a->unit][a->part];
  for (int i = 0; i < MAX_CUTS; i++) {
    if (list[i].width < a->width) continue;
    a->cut = list[i];
    a->shared = shared_bytes(a);
    if (a->shared <= MOST_SHARED) return;
  }
}

/* ── constants and callbacks ────────────────────────────────────────────────────────────────── */

static void define_constants(Attention *a) {
  int64_t plane = 0, row = 0, head = 0;
  if (a->mask_kind) {
    const int64_t *dim = a->node->input[a->mask]->type.shape.dim;
    row = dim[2] > 1 ? a->keys : 0;
    head = dim[1] > 1 ? dim[2] * a->keys : 0;
    plane = dim[0] > 1 ? dim[1] * dim[2] * a->keys : 0;
  }
  float scale = (float)node_float(a->node, ATTR_SCALE, 1);
  int32_t scale_bits;
  memcpy(&scale_bits, &scale, sizeof scale_bits);
  const Constant constants[] = {
      {"attention_heads", a->heads},
      {"attention_groups", a->groups},
      {"attention_queries", a->queries},
      {"attention_keys", a->keys},
      {"attention_features", a->features},
      {"attention_width", a->width},
      {"attention_wide", a->wide},
      {"attention_causal", node_int(a->node, ATTR_CAUSAL, 0)},
      {"attention_scale", scale_bits},
      {"attention_mask", a->mask_kind},
      {"attention_mask_batch", plane},
      {"attention_mask_head", head},
      {"attention_mask_row", row},
      {"attention_warps", a->cut.warps},
      {"attention_micro", a->cut.micro},
      {"attention_tile", a->cut.tile},
      {"attention_row_panels", row_panels(a)},
      {"attention_keeps", a->cut.keeps},
  };
  callback_constants(a->job->module, a->suffix, constants, sizeof constants / sizeof *constants);
}

static void define_pointer(Attention *a, const char *name, int argument) {
  Emitter emitter = {.module = a->job->module};
  LLVMTypeRef pointer = LLVMPointerTypeInContext(a->job->module->context, 0);
  callback_open(a->job, &emitter, a->suffix, name, pointer, &pointer, 1, NULL);
  callback_close(&emitter, emitter.pointer[argument]);
}

/* Tensor `name`, argument number `argument` of the kernel, [batch][heads][positions][features]. */
static void define_tensor(Attention *a, const char *name, int argument, int64_t heads,
                          int64_t positions) {
  char full[4][64];
  static const char *const suffixes[4] = {"", "_batch", "_head", "_row"};
  for (int i = 0; i < 4; i++)
    snprintf(full[i], sizeof full[i], "attention_%s%s", name, suffixes[i]);
  define_pointer(a, full[0], argument < 0 ? 0 : argument);
  const Constant constants[] = {{full[1], heads * positions * a->features},
                                {full[2], positions * a->features},
                                {full[3], a->features}};
  callback_constants(a->job->module, a->suffix, constants, 3);
}

static void define_tensors(Attention *a) {
  bool is_grad = a->first;
  int results = a->job->operand_count;
  define_tensor(a, "query", a->first, a->heads, a->queries);
  define_tensor(a, "key", a->first + 1, a->groups, a->keys);
  define_tensor(a, "value", a->first + 2, a->groups, a->keys);
  define_tensor(a, "out", is_grad ? 4 : results, a->heads, a->queries);
  define_tensor(a, "slope", is_grad ? 0 : -1, a->heads, a->queries);
  define_tensor(a, "query_grad", is_grad ? results : -1, a->heads, a->queries);
  define_tensor(a, "key_grad", is_grad ? results + 1 : -1, a->groups, a->keys);
  define_tensor(a, "value_grad", is_grad ? results + 2 : -1, a->groups, a->keys);
  define_pointer(a, "attention_logarithms", is_grad ? 5 : results + 1);
  define_pointer(a, "attention_deltas", is_grad ? results + 3 : 0);
}

/* attention_mask_element: of bool 1 or 0. */
static void define_mask(Attention *a) {
  Job *job = a->job;
  Emitter emitter = {.module = job->module};
  LLVMTypeRef real = LLVMFloatTypeInContext(job->module->context);
  LLVMTypeRef parameters[2] = {LLVMPointerTypeInContext(job->module->context, 0),
                               callback_word(job->module)};
  callback_open(job, &emitter, a->suffix, "attention_mask_element", real, parameters, 2, NULL);
  LLVMValueRef value = LLVMConstReal(real, 0);
  if (a->mask_kind) {
    DType dtype = a->node->input[a->mask]->type.dtype;
    value =
        emit_load_at(&emitter, emitter.pointer[a->mask], dtype, LLVMGetParam(emitter.function, 1));
    value = emit_cast(&emitter, dtype, DT_F32, value);
  }
  callback_close(&emitter, value);
}

/* attention_number: 16 bits as f32; attention_pair: two f32 rounded to 16 bits each. */
static void define_conversions(Attention *a) {
  Job *job = a->job;
  LLVMContextRef context = job->module->context;
  LLVMTypeRef word = callback_word(job->module), real = LLVMFloatTypeInContext(context);
  LLVMTypeRef both[2] = {real, real};
  DType dtype = a->dtype == DT_F32 ? DT_BF16 : a->dtype; /* of words: not called */
  Emitter emitter = {.module = job->module};
  callback_open_plain(job, &emitter, a->suffix, "attention_number", real, &word, 1);
  LLVMValueRef bits = LLVMBuildTrunc(emitter.builder, LLVMGetParam(emitter.function, 0),
                                     LLVMInt16TypeInContext(context), "");
  if (dtype == DT_F16) {
    bits = LLVMBuildBitCast(emitter.builder, bits, LLVMHalfTypeInContext(context), "");
    bits = LLVMBuildFPExt(emitter.builder, bits, real, "");
  } else {
    bits = LLVMBuildShl(emitter.builder, LLVMBuildZExt(emitter.builder, bits, word, ""),
                        LLVMConstInt(word, 16, false), "");
    bits = LLVMBuildBitCast(emitter.builder, bits, real, "");
  }
  callback_close(&emitter, bits);
  callback_open_plain(job, &emitter, a->suffix, "attention_pair", word, both, 2);
  LLVMValueRef halves[2] = {LLVMGetParam(emitter.function, 1), LLVMGetParam(emitter.function, 0)};
  LLVMValueRef pair = mma_intrinsic(
      &emitter, dtype == DT_F16 ? "llvm.nvvm.ff2f16x2.rn" : "llvm.nvvm.ff2bf16x2.rn", NULL, 0,
      halves, 2);
  callback_close(&emitter, LLVMBuildBitCast(emitter.builder, pair, word, ""));
}

/* ── entries ────────────────────────────────────────────────────────────────────────────────── */

static bool emit_part(Attention *a, AttentionPart part) {
  static const char *const functions[PARTS] = {"attention_forward", "attention_backward",
                                               "attention_sideways"};
  static const char *const bodies[UNITS] = {"attentionf_ptx", "attention16_ptx", "attention16_ptx",
                                            "attention32_ptx"};
  static const char *const endings[PARTS] = {"", "", "_sideways"};
  Job *job = a->job;
  bool is_sideways = part == PART_SIDEWAYS;
  int64_t rows = is_sideways ? a->keys : a->queries;
  char name[200];
  if (!rows) return true;
  snprintf(name, sizeof name, "%s%s", job->name, endings[part]);
  snprintf(a->suffix, sizeof a->suffix, "__%s", name);
  a->part = part;
  choose_cut(a);
  if (!module_specialise(job->module, bodies[a->unit], "attention_", a->suffix)) return false;
  define_constants(a);
  define_tensors(a);
  define_mask(a);
  define_conversions(a);
  if (a->unit != UNIT_FMA)
    nvptx_define_mma(job, a->suffix, "attention", a->dtype, a->unit == UNIT_TF32);
  Entry entry;
  entry_open(&entry, job, name, a->cut.warps * WARP, job->out->workspace > 0);
  entry_annotate(&entry, "minctasm", 1); /* ptxas: no spills for the sake of one block more */
  LLVMValueRef extra[5] = {entry_panels(&entry, a->shared), entry_special(&entry, "ctaid.x"),
                           entry_special(&entry, "ctaid.y"), entry_special(&entry, "ctaid.z"),
                           entry_special(&entry, "tid.x")};
  callback_call(&entry, a->suffix, functions[part], extra, 5);
  entry_close(&entry, name, (rows + block_rows(a) - 1) / block_rows(a),
              is_sideways ? a->groups : a->heads, a->batch);
  if (a->shared > SHARED_STATIC)
    job->out->launch[job->out->launch_count - 1].shared = a->shared;
  return true;
}

bool nvptx_attention(Job *job) {
  Attention *a = ARENA_NEW(job->scratch, Attention);
  a->job = job;
  a->node = job->node;
  if (!callback_fits(job)) return false;
  describe(a);
  if (a->heads > MAX_GRID_YZ || a->batch > MAX_GRID_YZ) {
    diag_error(job->module->diag, job->node->loc, "this attention is too large for one GPU grid");
    return false;
  }
  if (job->node->op == OP_ATTENTION) return emit_part(a, PART_FORWARD);
  job->out->workspace = a->batch * a->heads * a->queries * 4; /* deltas: backward, then sideways */
  return emit_part(a, PART_BACKWARD) && emit_part(a, PART_SIDEWAYS);
}
