/* nvptx_attention: attention and its gradient: kernels/attention_ptx.h, or on Hopper
 * attention_wgmma_..._ptx.c, specialised. This file says where the tensors lie, how the work is cut
 * (docs/kernels.md has the reasons), defines constants and callbacks, and the entries: one forward,
 * two backward. */
#include "codegen/nvptx_callback.h"
#include "codegen/nvptx_mma.h"
#include "codegen/nvptx_waits.h"
#include "codegen/nvptx_wgmma.h"
#include "passes/attention.h"
#include <stdio.h>
#include <string.h>

enum {
  MAX_GRID_YZ = 65535,
  MOST_SHARED = 99 << 10,
  SCRATCH_PAD = 8,
  GROUP_WARPS = 4, /* of wgmma */
  LINE = 64,       /* elements of its rows in shared memory */
  STEP = 16,       /* features that an instruction takes, and that its results have a multiple of */
  LINE_ALIGN = 1024,
  SECTION_BYTES = 32 << 20 /* of the 50 MiB of an H100's L2, as in FlashAttention-3 */
};

typedef enum { UNIT_FMA, UNIT_BF16, UNIT_F16, UNIT_TF32, UNIT_WGMMA, UNITS } AttentionUnit;
typedef enum { PART_FORWARD, PART_BACKWARD, PART_BACKWARD_KEYS, PARTS } AttentionPart;

/* A way to cut the work, for rows of up to `width` features. */
typedef struct {
  int width, warps, micro, tile;
  bool keeps;
  /* wgmma: pairs of tiles that there is room for, items whose rows there is room for, warpgroups that have the same rows */
  int stages, places, split;
} Cut;

enum { MAX_CUTS = 5 };
/* The first that fits is taken, see choose_cut; registers: docs/kernels.md. */
static const Cut cuts[UNITS][PARTS][MAX_CUTS] = {
    [UNIT_FMA] = {{{64, 4, 16, 32, 0}, {128, 4, 16, 16, 0}},
                  {{64, 4, 16, 32, 0}, {128, 2, 16, 16, 0}},
                  {{64, 4, 16, 32, 0}, {128, 2, 16, 16, 0}}},
    [UNIT_BF16] = {{{64, 4, 32, 64, 1}, {128, 4, 32, 32, 0}},
                   {{64, 4, 32, 32, 0}, {128, 4, 16, 32, 0}},
                   {{32, 4, 32, 32, 0}, {64, 4, 16, 64, 0}, {128, 4, 16, 32, 0}}},
    [UNIT_F16] = {{{64, 4, 32, 64, 1}, {128, 4, 32, 32, 0}},
                  {{64, 4, 32, 32, 0}, {128, 4, 16, 32, 0}},
                  {{32, 4, 32, 32, 0}, {64, 4, 16, 64, 0}, {128, 4, 16, 32, 0}}},
    [UNIT_TF32] = {{{64, 4, 32, 32, 0}, {128, 4, 16, 32, 0}},
                   {{64, 4, 16, 32, 0}, {128, 2, 16, 32, 0}},
                   {{64, 4, 16, 32, 0}, {128, 2, 16, 32, 0}}},
    [UNIT_WGMMA] = {{{64, 12, 16, 128, 0, 4, 2, 1},
                     {64, 8, 16, 128, 0, 4, 2, 1},
                     {128, 8, 16, 128, 0, 2, 2, 1},
                     {192, 8, 16, 112, 0, 2, 1, 1},
                     {256, 8, 16, 80, 0, 2, 1, 1}},
                    {{64, 12, 16, 64, 0, 3, 2, 1},
                     {64, 8, 16, 64, 0, 3, 2, 1},
                     {128, 8, 16, 64, 0, 3, 2, 1},
                     {192, 8, 16, 64, 0, 2, 1, 1},
                     {256, 8, 16, 48, 0, 2, 1, 1}},
                    {{64, 12, 16, 64, 0, 3, 2, 1},
                     {64, 8, 16, 64, 0, 3, 2, 1},
                     {128, 8, 16, 64, 0, 3, 2, 1},
                     {192, 8, 16, 64, 0, 2, 1, 2},
                     {256, 8, 16, 64, 0, 2, 1, 2}}},
};

/* Forward by wgmma with a mask of bools, and with one that is added, whose bytes or numbers take registers. */
static const Cut cuts_masked[2][MAX_CUTS] = {
    {{64, 8, 16, 128, 0, 4, 2, 1}, {128, 8, 16, 128, 0, 2, 2, 1}, {192, 8, 16, 96, 0, 2, 1, 1}, {256, 8, 16, 64, 0, 2, 1, 1}},
    {{64, 8, 16, 64, 0, 4, 2, 1}, {128, 8, 16, 64, 0, 4, 2, 1}, {192, 8, 16, 64, 0, 3, 1, 1}, {256, 8, 16, 48, 0, 3, 1, 1}}};

static const char *const tensor_names[TENSORS] = {"query", "key",        "value",    "out",
                                                  "slope", "query_grad", "key_grad", "value_grad"};

typedef struct {
  Job *job;
  const Node *node;
  char suffix[224];
  AttentionUnit plain_unit, unit; /* on any GPU; of this part on this one */
  AttentionPart part;
  DType dtype;
  int first, mask; /* positions of q and the mask among the operands */
  int mask_kind;   /* 0: none, 1: bool, 2: added */
  AttentionForm form;
  HeadPlace place[TENSORS];
  int width, bytes, wide;
  Cut cut;
  int64_t shared;
  int64_t lists; /* where in the workspace the part's lists of tiles begin (kernels/attention_tiles.h) */
} Attention;

/* ── what is asked for ──────────────────────────────────────────────────────────────────────── */

/* How many elements may be moved at once: 16 or 4 bytes of them, or one. */
static int find_wide(const Attention *a) {
  int64_t odd = a->form.features; /* the `or` of all offsets and distances */
  for (int i = 0; i < TENSORS; i++)
    odd |= a->place[i].start | a->place[i].batch | a->place[i].head | a->place[i].row;
  return odd * a->bytes % 16 == 0 ? 16 / a->bytes : odd * a->bytes % 4 == 0 ? 4 / a->bytes : 1;
}

static void describe_attention(Attention *a) {
  const Node *node = a->node;
  a->first = node->op == OP_ATTENTION_GRAD;
  a->dtype = node->input[a->first]->type.dtype;
  a->form = attention_form(node);
  a->mask = a->form.mask;
  if (a->mask >= 0)
    a->mask_kind = node->input[a->mask]->type.dtype == DT_BOOL ? 1 : 2;
  bool allows_tf32 = a->job->module->allows_tf32 || node_int(node, ATTR_TF32, 0);
  a->plain_unit = a->dtype == DT_BF16  ? UNIT_BF16
                  : a->dtype == DT_F16 ? UNIT_F16
                  : allows_tf32        ? UNIT_TF32
                                       : UNIT_FMA;
  a->bytes = dtype_bytes(a->dtype);
  attention_places(node, a->place);
  a->wide = find_wide(a);
}

static int split(const Cut *cut) { return cut->split > 1 ? cut->split : 1; }
static int row_panels(const Attention *a) {
  return a->part == PART_FORWARD ? 1 : split(&a->cut) > 1 ? 3 : 2;
}
static int64_t cut_rows(const Cut *cut) { return cut->warps * cut->micro / split(cut); }
static int64_t block_rows(const Attention *a) { return cut_rows(&a->cut); }

static int64_t shared_bytes(const Attention *a) {
  if (a->unit == UNIT_WGMMA) {
    int64_t tiles = 2 * a->cut.stages; /* each with numbers and two mbarriers */
    return (a->cut.places * row_panels(a) * block_rows(a) + tiles * a->cut.tile) * a->width * a->bytes +
           tiles * (4 * a->cut.tile + 2 * 8) + a->cut.warps / GROUP_WARPS * 8;
  }
  int64_t panels = (row_panels(a) * block_rows(a) + 4 * a->cut.tile) * (a->width * a->bytes + 16);
  int64_t numbers = (int64_t)4 * 4 * a->cut.tile;
  int64_t scratch = a->unit == UNIT_FMA ? 4 * block_rows(a) * (a->cut.tile + SCRATCH_PAD) : 0;
  return panels + numbers + scratch;
}

/* Hopper's products take operands in pieces of 16 bytes. They do not pay for a few rows, nor for a few
 * features. */
static bool is_for_wgmma(const Attention *a) {
  enum { LEAST_FEATURES = 48 };
  const Module *module = a->job->module;
  if (strcmp(module->cpu, "sm_90a") || a->form.draws >= 0) return false;
  if (a->bytes != 2 || a->wide != 8 || module_leaves_out(module, "attention_wgmma")) return false;
  return module->only_tile || (a->form.features >= LEAST_FEATURES && attention_is_long(&a->form));
}

static void nvptx_attention_choose_unit(Attention *a) {
  a->unit = is_for_wgmma(a) ? UNIT_WGMMA : a->plain_unit;
  int multiple = a->unit == UNIT_WGMMA ? LINE : a->unit == UNIT_FMA ? 32 : 16;
  a->width = (int)(a->form.features + multiple - 1) / multiple * multiple;
}

static int64_t part_rows(const Attention *a) {
  return a->part == PART_BACKWARD_KEYS ? a->form.keys : a->form.rows;
}
/* The rows of all blocks, including those beyond the end. */
static int64_t padded_rows(const Attention *a, const Cut *cut) {
  int64_t block = cut_rows(cut);
  return (part_rows(a) + block - 1) / block * block;
}

static void choose_cut(Attention *a) {
  enum { ROOMY_WARPS = 8 }; /* more would have no registers for a mask's numbers */
  const Cut *list = cuts[a->unit][a->part];
  bool needs_room = a->unit == UNIT_WGMMA && a->mask_kind == 2;
  if (a->unit == UNIT_WGMMA && a->part == PART_FORWARD && a->mask_kind) list = cuts_masked[a->mask_kind - 1];
  for (int i = 0; i < MAX_CUTS; i++) {
    if (list[i].width < a->width || (needs_room && list[i].warps > ROOMY_WARPS)) continue;
    a->cut = list[i];
    a->shared = shared_bytes(a);
    if (a->unit != UNIT_WGMMA && a->shared > MOST_SHARED) continue;
    bool has_other = i + 1 < MAX_CUTS && list[i + 1].width == list[i].width;
    if (a->unit != UNIT_WGMMA || !has_other) return;
    /* smaller blocks load keys more often, but have fewer rows beyond the end */
    if (8 * padded_rows(a, &list[i]) <= 9 * padded_rows(a, &list[i + 1])) return;
  }
}

/* Of wgmma: a block for each multiprocessor, which computes several items, that is, blocks of rows. */
static int64_t part_planes(const Attention *a) {
  return a->form.batch * (a->part == PART_BACKWARD_KEYS ? a->form.groups : a->form.heads);
}
static int64_t part_items(const Attention *a) {
  return padded_rows(a, &a->cut) / block_rows(a) * part_planes(a);
}
static int64_t persistent_blocks(const Attention *a) {
  int64_t most = a->job->module->only_tile ? 3 : MULTIPROCESSORS; /* tests have few items */
  return part_items(a) < most ? part_items(a) : most;
}
/* How many heads, of all samples, have what their items stream in a part of L2. */
static int64_t section_heads(const Attention *a) {
  int64_t streamed = a->part == PART_BACKWARD_KEYS
                         ? a->form.rows * (a->form.heads / a->form.groups)
                         : a->form.keys;
  int64_t bytes = 2 * streamed * a->width * a->bytes;
  int64_t heads = bytes ? SECTION_BYTES / bytes : part_planes(a);
  if (a->job->module->only_tile) heads = 2;
  return heads < 1 ? 1 : heads < part_planes(a) ? heads : part_planes(a);
}

/* Masks of bools that differ from query to query leave tiles out, which a launch of its own lists. */
static bool has_lists(const Attention *a) {
  return a->unit == UNIT_WGMMA && a->mask_kind == 1 && a->form.mask_row && !module_leaves_out(a->job->module, "attention_tiles");
}
static int64_t list_batches(const Attention *a) { return a->form.mask_batch ? a->form.batch : 1; }
static int64_t list_heads(const Attention *a) {
  return !a->form.mask_head ? 1 : a->part == PART_BACKWARD_KEYS ? a->form.groups : a->form.heads;
}
static int64_t list_blocks(const Attention *a) { return padded_rows(a, &a->cut) / block_rows(a); }
/* A number for each tile and one for how many there are, for each block of rows. */
static int64_t list_bytes(const Attention *a) {
  int64_t streamed = a->part == PART_BACKWARD_KEYS ? a->form.rows : a->form.keys;
  int64_t most = (streamed + a->cut.tile - 1) / a->cut.tile + 1;
  return has_lists(a) ? list_batches(a) * list_heads(a) * list_blocks(a) * most * 4 : 0;
}

static int threads(const Attention *a) {
  return (a->cut.warps + (a->unit == UNIT_WGMMA ? GROUP_WARPS : 0)) * WARP;
}

/* ── tensor maps ────────────────────────────────────────────────────────────────────────────── */

/* Planes of rows: those of a batch's rows with heads side by side, or those of each head alone. */
static PlanMap nvptx_attention_map_of(const Attention *a, AttentionTensor tensor, int64_t rows) {
  const HeadPlace *place = &a->place[tensor];
  const int64_t *dim = a->node->input[place->argument]->type.shape.dim;
  bool is_beside = a->form.is_beside;
  return (PlanMap){
      .arg = place->argument,
      .offset = place->start * a->bytes,
      .dtype = a->dtype,
      .rank = 3,
      .dim = {is_beside ? dim[2] - place->start : a->form.features, rows,
              is_beside ? a->form.batch : a->form.batch * dim[1]},
      .stride = {a->bytes, place->row * a->bytes,
                 (is_beside ? place->batch : place->head) * a->bytes},
      .box = {LINE, a->cut.tile, 1},
      .swizzle = LINE * a->bytes,
  };
}

/* Of keys and values, or of queries and dy, where these are streamed. Where heads lie side by side a
 * box holds features of the next head too, which are multiplied by zeros: that is zero unless they
 * are infinite, so only whole steps of the product may have maps. The numbers that come with
 * queries are copied for whole tiles. */
static void nvptx_attention_make_maps(Attention *a) {
  enum { MAPS = 2 };
  bool has_numbers = a->part == PART_BACKWARD_KEYS;
  const AttentionTensor tensor[MAPS] = {has_numbers ? TENSOR_QUERY : TENSOR_KEY,
                                        has_numbers ? TENSOR_SLOPE : TENSOR_VALUE};
  Job *job = a->job;
  job->map_count = 0;
  if (a->unit != UNIT_WGMMA || (has_numbers && a->form.rows % a->cut.tile)) return;
  if (module_leaves_out(job->module, "tma") || (a->form.is_beside && a->form.features % STEP))
    return;
  PlanMap *maps = arena_alloc(job->module->arena, MAPS * sizeof *maps);
  for (int i = 0; i < MAPS; i++) {
    if (!nvptx_may_map(job, a->place[tensor[i]].argument)) return;
    maps[i] = nvptx_attention_map_of(a, tensor[i], has_numbers ? a->form.rows : a->form.keys);
  }
  job->maps = maps;
  job->map_count = MAPS;
}

/* ── constants and callbacks ────────────────────────────────────────────────────────────────── */

static int32_t float_bits(double number) {
  float narrow = (float)number;
  int32_t bits;
  memcpy(&bits, &narrow, sizeof bits);
  return bits;
}

/* A score is wrong by the cap times what the tanh is wrong by, and weights are as much: to 2^-15. */
static bool bends_fast(const Attention *a) {
  enum { MOST_CAP = 64 };
  return node_attr(a->node, ATTR_KIND) && node_float(a->node, ATTR_SOFTCAP, 0) <= MOST_CAP;
}

/* When numbers that are added are loaded (kernels/attention_added.h); they take a register for each score. */
static int kind_of_adding(const Attention *a) {
  enum { NEVER, EARLY, LATE };
  int most = a->part == PART_FORWARD ? 256 : a->part == PART_BACKWARD ? 128 : 64;
  return a->mask_kind != 2 || a->unit != UNIT_WGMMA ? NEVER : a->width <= most ? EARLY : LATE;
}

static void nvptx_attention_define_constants(Attention *a) {
  double share = node_float(a->node, ATTR_DROPOUT, 0);
  const Constant constants[] = {
      {"attention_heads", a->form.heads},
      {"attention_groups", a->form.groups},
      {"attention_queries", a->form.rows},
      {"attention_keys", a->form.keys},
      {"attention_features", a->form.features},
      {"attention_width", a->width},
      {"attention_wide", a->wide},
      {"attention_causal", node_int(a->node, ATTR_CAUSAL, 0)},
      {"attention_scale", float_bits(node_float(a->node, ATTR_SCALE, 1))},
      {"attention_softcap", float_bits(node_float(a->node, ATTR_SOFTCAP, 0))},
      {"attention_bends_fast", bends_fast(a)},
      {"attention_mask", a->mask_kind},
      {"attention_has_bits", a->mask_kind == 1 && a->unit == UNIT_WGMMA},
      {"attention_adds", kind_of_adding(a)},
      {"attention_has_lists", has_lists(a)},
      {"attention_rows_are_keys", a->part == PART_BACKWARD_KEYS},
      {"attention_mask_batch", a->form.mask_batch},
      {"attention_mask_head", a->form.mask_head},
      {"attention_mask_row", a->form.mask_row},
      {"attention_warps", a->cut.warps},
      {"attention_micro", a->cut.micro},
      {"attention_tile", a->cut.tile},
      {"attention_split", split(&a->cut)},
      {"attention_row_panels", row_panels(a)},
      {"attention_keeps", a->cut.keeps && !a->mask_kind && a->form.draws < 0}, /* a mask needs registers */
      {"attention_drop_below", attention_least_kept(a->node)},
      {"attention_drop_gain", float_bits(1 / (1 - share))},
      {"attention_stages", a->cut.stages},
      {"attention_places", a->cut.places},
      {"attention_items", part_items(a)},
      {"attention_blocks", persistent_blocks(a)},
      {"attention_section", section_heads(a)},
      {"attention_maps", a->job->map_count > 0},
      {"attention_map_head", a->form.is_beside ? a->form.features : 0},
      {"attention_map_planes", a->form.is_beside                  ? 1
                               : a->part == PART_BACKWARD_KEYS ? a->form.heads
                                                               : a->form.groups},
  };
  module_define_constants(a->job->module, a->suffix, constants, sizeof constants / sizeof *constants);
}

/* Of one f32 for each query of each head. */
static int64_t number_bytes(const Attention *a) {
  return a->form.batch * a->form.heads * a->form.rows * 4;
}

static void define_tensors(Attention *a) {
  static const char *const endings[3] = {"_batch", "_head", "_row"};
  int results = a->job->operand_count, count = a->job->result_count;
  for (int t = 0; t < TENSORS; t++) {
    const HeadPlace *place = &a->place[t];
    int64_t steps[3] = {place->batch, place->head, place->row};
    char name[64];
    snprintf(name, sizeof name, "attention_%s", tensor_names[t]);
    callback_pointer(a->job, a->suffix, name, place->argument, place->start * a->bytes);
    for (int i = 0; i < 3; i++) {
      snprintf(name, sizeof name, "attention_%s%s", tensor_names[t], endings[i]);
      module_define_constants(a->job->module, a->suffix, &(Constant){name, steps[i]}, 1);
    }
  }
  int behind = results + count, first_map = a->job->map_count ? behind + 1 : 0;
  callback_pointer(a->job, a->suffix, "attention_logarithms", a->first ? 5 : results + 1, 0);
  callback_pointer(a->job, a->suffix, "attention_deltas", a->first ? behind : 0, 0);
  callback_pointer(a->job, a->suffix, "attention_bases", a->first ? behind : 0,
                   a->first ? number_bytes(a) : 0);
  callback_pointer(a->job, a->suffix, "attention_mask_bytes", a->mask_kind ? a->mask : 0, 0);
  static const char *const drawn_from[] = {"attention_seed", "attention_step", "attention_first", "attention_stream"};
  for (int i = 0; i < 4; i++) callback_pointer(a->job, a->suffix, drawn_from[i], a->form.draws < 0 ? 0 : a->form.draws + i, 0);
  callback_pointer(a->job, a->suffix, "attention_lists", has_lists(a) ? behind : 0, a->lists);
  callback_pointer(a->job, a->suffix, "attention_first_map", first_map, 0);
  callback_pointer(a->job, a->suffix, "attention_second_map", first_map ? first_map + 1 : 0, 0);
}

/* attention_mask_element: of bool 1 or 0. */
static void define_mask(Attention *a) {
  Job *job = a->job;
  Emitter emitter;
  LLVMTypeRef real = job->module->f32;
  LLVMTypeRef parameters[2] = {job->module->pointer, job->module->i32};
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

/* attention_tanh */
static void define_tanh(Attention *a) {
  LLVMTypeRef real = a->job->module->f32, type = LLVMFunctionType(real, &real, 1, false);
  Emitter emitter = {.module = a->job->module};
  callback_open_plain(a->job, &emitter, a->suffix, "attention_tanh", real, &real, 1);
  LLVMValueRef x = LLVMGetParam(emitter.function, 0);
  if (node_attr(a->node, ATTR_SOFTCAP)) {
    const char *name = node_attr(a->node, ATTR_KIND) ? "ft_tanh_approximate_f32" : "ft_tanh_f32";
    LLVMValueRef function = module_function(a->job->module, name, type);
    x = LLVMBuildCall2(emitter.builder, type, function, &x, 1, "");
  }
  callback_close(&emitter, x);
}

/* attention_number: 16 bits as f32; attention_pair: two f32 rounded to 16 bits each. */
static void define_conversions(Attention *a) {
  Job *job = a->job;
  LLVMTypeRef word = job->module->i32, real = job->module->f32;
  LLVMTypeRef both[2] = {real, real};
  DType dtype = a->dtype == DT_F32 ? DT_BF16 : a->dtype; /* of words: not called */
  Emitter emitter = {.module = job->module};
  callback_open_plain(job, &emitter, a->suffix, "attention_number", real, &word, 1);
  LLVMValueRef bits =
      LLVMBuildTrunc(emitter.builder, LLVMGetParam(emitter.function, 0), job->module->i16, "");
  if (dtype == DT_F16) {
    bits = LLVMBuildBitCast(emitter.builder, bits, job->module->half, "");
    bits = LLVMBuildFPExt(emitter.builder, bits, real, "");
  } else {
    bits = LLVMBuildShl(emitter.builder, LLVMBuildZExt(emitter.builder, bits, word, ""),
                        LLVMConstInt(word, 16, false), "");
    bits = LLVMBuildBitCast(emitter.builder, bits, real, "");
  }
  callback_close(&emitter, bits);
  callback_open_plain(job, &emitter, a->suffix, "attention_pair", word, both, 2);
  LLVMValueRef halves[2] = {LLVMGetParam(emitter.function, 1), LLVMGetParam(emitter.function, 0)};
  LLVMValueRef pair =
      emit_intrinsic(&emitter, dtype == DT_F16 ? "llvm.nvvm.ff2f16x2.rn" : "llvm.nvvm.ff2bf16x2.rn",
                     NULL, halves, 2);
  callback_close(&emitter, LLVMBuildBitCast(emitter.builder, pair, word, ""));
}

/* The products of the unit. */
static void define_products(Attention *a) {
  if (a->unit == UNIT_FMA) return;
  if (a->unit != UNIT_WGMMA) {
    nvptx_define_mma(a->job, a->suffix, "attention", a->dtype, a->unit == UNIT_TF32);
    return;
  }
  int features = (int)(a->form.features + STEP - 1) / STEP;
  const Wgmma scores = {.name = "attention_multiply",
                        .dtype = a->dtype,
                        .columns = a->cut.tile,
                        .depths = features,
                        .high = 1,
                        .most_high = 1};
  const Wgmma sums = {.name = "attention_accumulate",
                      .dtype = a->dtype,
                      .columns = features * STEP,
                      .depths = a->cut.tile / STEP,
                      .high = 1,
                      .most_high = 1,
                      .is_a_kept = true,
                      .is_b_flat = true};
  nvptx_define_wgmma(a->job, a->suffix, &scores);
  nvptx_define_wgmma(a->job, a->suffix, &sums);
}

/* ── entries ────────────────────────────────────────────────────────────────────────────────── */

static const char *const endings[PARTS] = {"", "", "_keys"};

/* The launch that lists tiles for a part. */
static bool emit_lists(Attention *a) {
  enum { LIST_THREADS = 256, LIST_SHARED = 32 };
  Job *job = a->job;
  char name[200];
  job->map_count = 0;
  snprintf(name, sizeof name, "%s%s_tiles", job->name, endings[a->part]);
  snprintf(a->suffix, sizeof a->suffix, "__%s", name);
  module_specialise(job->module, "attention_tiles_ptx", "attention_", a->suffix);
  nvptx_attention_define_constants(a);
  define_tensors(a);
  Entry entry;
  entry_open(&entry, job, name, LIST_THREADS, true);
  entry_annotate(&entry, "minctasm", 1);
  callback_call_block(&entry, a->suffix, "attention_list_tiles", entry_panels(&entry, LIST_SHARED));
  entry_close(&entry, name, list_blocks(a), list_heads(a), list_batches(a));
  return true;
}

static bool nvptx_attention_emit_part(Attention *a, AttentionPart part) {
  static const char *const functions[PARTS] = {"attention_forward", "attention_backward",
                                               "attention_backward_keys"};
  static const char *const bodies[UNIT_WGMMA] = {"attentionf_ptx", "attention16_ptx",
                                                 "attention16_ptx", "attention32_ptx"};
  static const char *const bodies_wgmma[PARTS] = {"attention_wgmma_forward_ptx",
                                                  "attention_wgmma_backward_ptx",
                                                  "attention_wgmma_backward_keys_ptx"};
  Job *job = a->job;
  bool rows_are_keys = part == PART_BACKWARD_KEYS;
  char name[200];
  a->part = part;
  if (!part_rows(a)) return true;
  nvptx_attention_choose_unit(a);
  choose_cut(a);
  a->lists = job->out->workspace;
  job->out->workspace += list_bytes(a);
  if (has_lists(a) && !emit_lists(a)) return false;
  snprintf(name, sizeof name, "%s%s", job->name, endings[part]);
  snprintf(a->suffix, sizeof a->suffix, "__%s", name);
  nvptx_attention_make_maps(a);
  const char *body = a->unit == UNIT_WGMMA ? bodies_wgmma[part] : bodies[a->unit];
  module_specialise(job->module, body, "attention_", a->suffix);
  nvptx_attention_define_constants(a);
  if (a->unit == UNIT_WGMMA) nvptx_define_waits(job, a->suffix, "attention", name);
  define_tensors(a);
  define_mask(a);
  define_tanh(a);
  define_conversions(a);
  define_products(a);
  Entry entry;
  entry_open_mapped(&entry, job, name, threads(a), job->out->workspace > 0);
  entry_annotate(&entry, "minctasm", 1); /* ptxas: no spills for the sake of one block more */
  LLVMValueRef panels = entry_panels(&entry, a->shared);
  if (a->unit == UNIT_WGMMA) LLVMSetAlignment(panels, LINE_ALIGN);
  callback_call_block(&entry, a->suffix, functions[part], panels);
  if (a->unit == UNIT_WGMMA)
    entry_close(&entry, name, persistent_blocks(a), 1, 1);
  else
    entry_close(&entry, name, padded_rows(a, &a->cut) / block_rows(a),
                rows_are_keys ? a->form.groups : a->form.heads, a->form.batch);
  if (a->shared > SHARED_STATIC) job->out->launch[job->out->launch_count - 1].shared = a->shared;
  return true;
}

bool nvptx_attention(Job *job) {
  Attention *a = ARENA_NEW(job->scratch, Attention);
  a->job = job;
  a->node = job->node;
  if (!callback_fits(job)) return false;
  describe_attention(a);
  if (a->form.features > ATTENTION_MOST_GPU && !is_for_wgmma(a)) {
    diag_error(job->module->diag, job->node->origin.loc,
               "internal: attention of %lld features has no kernel", (long long)a->form.features);
    return false;
  }
  if (a->form.heads > MAX_GRID_YZ || a->form.batch > MAX_GRID_YZ) {
    diag_error(job->module->diag, job->node->origin.loc,
               "this attention is too large for one GPU grid");
    return false;
  }
  if (job->node->op == OP_ATTENTION) return nvptx_attention_emit_part(a, PART_FORWARD);
  /* deltas and bases: the first launch writes them, and the second one reads them */
  job->out->workspace = 2 * number_bytes(a);
  return nvptx_attention_emit_part(a, PART_BACKWARD) &&
         nvptx_attention_emit_part(a, PART_BACKWARD_KEYS);
}
