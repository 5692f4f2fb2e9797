/* sim_decode_hopper: instructions of sm_90 and sm_90a that work beside the threads: wgmma, bulk
 * copies, the mbarriers that tell when these have arrived, and the fences between threads and them.
 */
#include "runtime/device/sim/sim_text.h"
#include <stdio.h>
#include <string.h>

static Status push_hopper(Decoder *decoder, SimInst made) {
  decode_block(decoder);
  *decode_push(decoder, (SimCode)made.code) = made;
  decoder->kernel->is_hopper = true;
  return STATUS_OK;
}

/* ── wgmma.mma_async ──────────────────────────────────────────────────────────────────────── */
typedef struct {
  int columns, kind;
} Shape;

/* wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 */
static bool read_shape(const char *op, Shape *out) {
  static const struct {
    const char *text;
    int kind;
  } kinds[] = {{"k16.f32.f16.f16", WGMMA_F16},
               {"k16.f32.bf16.bf16", WGMMA_BF16},
               {"k8.f32.tf32.tf32", WGMMA_TF32},
               {"k32.f32.e4m3.e4m3", WGMMA_FLOAT8},
               {"k32.f32.e4m3.e5m2", WGMMA_FLOAT8 + 1},
               {"k32.f32.e5m2.e4m3", WGMMA_FLOAT8 + 2},
               {"k32.f32.e5m2.e5m2", WGMMA_FLOAT8 + 3}};
  const char *at = op + strlen("wgmma.mma_async.sync.aligned.");
  if (!decode_begins(at, "m64n")) return false;
  at += 4;
  out->columns = 0;
  for (; *at >= '0' && *at <= '9' && out->columns < 1000; at++)
    out->columns = out->columns * 10 + (*at - '0');
  if (out->columns < 8 || out->columns > 256 || out->columns % 8) return false;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (!strcmp(at, kinds[i].text)) {
      out->kind = kinds[i].kind;
      return true;
    }
  return false;
}

static Status immediate(Decoder *decoder, const PtxStatement *s, int index, int64_t *out) {
  const PtxOperand *operand = &s->operand[index];
  if (operand->kind != OPERAND_PLAIN || operand->is_negated || operand->has_second ||
      operand->at[0].kind != VALUE_INT)
    return decode_fail(decoder, "%s: operand %d must be a number", s->op, index + 1);
  *out = (int64_t)operand->at[0].bits;
  return STATUS_OK;
}

/* Whether to add, whether to negate, and of 16-bit operands whether they lie across: after b. */
static Status decode_modes(Decoder *decoder, const PtxStatement *s, const Shape *shape,
                           bool is_a_shared, SimInst *made) {
  int64_t value[4] = {1, 1, 0, 0};
  int across = shape->kind >= WGMMA_TF32 ? 0 : 1 + is_a_shared;
  const PtxOperand *adds = &s->operand[3];
  if (s->count != 6 + across || adds->kind != OPERAND_PLAIN || adds->is_negated || adds->has_second)
    return decode_fail(decoder, "%s takes %d operands", s->op, 6 + across);
  STATUS_TRY(decode_value(decoder, &adds->at[0], SIM_TYPE_pred, &made->arg[2]));
  made->uses |= 1 << 2;
  for (int i = 0; i < 2 + across; i++) {
    int which = i == 2 && !is_a_shared ? 3 : i;
    STATUS_TRY(immediate(decoder, s, 4 + i, &value[which]));
  }
  for (int i = 0; i < 4; i++)
    if (i < 2 ? value[i] != 1 && value[i] != -1 : value[i] != 0 && value[i] != 1)
      return decode_fail(decoder, "%s: %lld is no %s", s->op, (long long)value[i],
                         i < 2 ? "sign (1 or -1)" : "order (0 or 1)");
  made->space = (uint8_t)((value[0] < 0) | (value[1] < 0) << 1);
  made->sub = (uint8_t)(value[2] | value[3] << 1);
  return STATUS_OK;
}

/* {sums}, a (a descriptor, or {4 registers}), b, adds, signs, orders. The sums follow in
 * instructions of their own, eight in each. */
static Status decode_multiply(Decoder *decoder, const PtxStatement *s) {
  Shape shape;
  if (!read_shape(s->op, &shape)) return decode_fail(decoder, "unsupported instruction %s", s->op);
  SimInst made = {.code = SIM_wgmma,
                  .line = s->line,
                  .mode = (uint8_t)shape.kind,
                  .count = (uint8_t)(shape.columns / 8),
                  .uses = 1 << 1};
  const PtxOperand *sums = &s->operand[0], *a = &s->operand[1], *b = &s->operand[2];
  int sum_count = shape.columns / 2;
  if (s->count < 4 || sums->kind != OPERAND_VECTOR || sums->count != sum_count)
    return decode_fail(decoder, "%s takes a vector of %d sums first", s->op, sum_count);
  bool is_a_shared = a->kind == OPERAND_PLAIN;
  made.is_wide = !is_a_shared; /* a lies in registers */
  if (!is_a_shared && (a->kind != OPERAND_VECTOR || a->count != 4))
    return decode_fail(decoder, "%s: a is a descriptor or four registers", s->op);
  if (b->kind != OPERAND_PLAIN || b->is_negated || b->has_second)
    return decode_fail(decoder, "%s: b is a descriptor", s->op);
  if (is_a_shared) {
    STATUS_TRY(decode_value(decoder, &a->at[0], SIM_TYPE_u64, &made.arg[0]));
    made.uses |= 1;
  }
  for (int i = 0; i < 4 && !is_a_shared; i++) {
    STATUS_TRY(decode_value(decoder, &a->at[i], SIM_TYPE_u32, &made.arg[4 + i]));
    made.uses |= (uint8_t)(16 << i);
  }
  STATUS_TRY(decode_value(decoder, &b->at[0], SIM_TYPE_u64, &made.arg[1]));
  STATUS_TRY(decode_modes(decoder, s, &shape, is_a_shared, &made));
  STATUS_TRY(push_hopper(decoder, made));
  const PtxValue *sum = sums->many ? sums->many : sums->at;
  for (int i = 0; i < sum_count; i += SIM_ARGS) {
    SimInst more = {.code = SIM_data, .line = s->line};
    for (int k = 0; k < SIM_ARGS && i + k < sum_count; k++) {
      STATUS_TRY(decode_result(decoder, &sum[i + k], CLASS_32, &more.arg[k]));
      more.defs |= (uint8_t)(1 << k);
    }
    more.uses = more.defs;
    *decode_push(decoder, SIM_data) = more;
  }
  return STATUS_OK;
}

static Status decode_wgmma(Decoder *decoder, const PtxStatement *s) {
  static const struct {
    const char *text;
    SimCode code;
  } others[] = {{"wgmma.fence.sync.aligned", SIM_wgmma_fence},
                {"wgmma.commit_group.sync.aligned", SIM_wgmma_commit},
                {"wgmma.wait_group.sync.aligned", SIM_wgmma_wait}};
  if (decode_begins(s->op, "wgmma.mma_async.sync.aligned.")) return decode_multiply(decoder, s);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    if (strcmp(s->op, others[i].text) != 0) continue;
    SimInst made = {.code = (uint16_t)others[i].code, .line = s->line};
    bool is_wait = others[i].code == SIM_wgmma_wait;
    if (s->count != is_wait) return decode_fail(decoder, "%s takes %d operands", s->op, is_wait);
    if (is_wait) STATUS_TRY(immediate(decoder, s, 0, &made.imm));
    if (made.imm < 0 || made.imm > 7)
      return decode_fail(decoder, "%s leaves 0 to 7 groups open", s->op);
    return push_hopper(decoder, made);
  }
  return decode_fail(decoder, "unsupported instruction %s", s->op);
}

/* ── mbarrier and bulk copies ─────────────────────────────────────────────────────────────── */
/* The address as one 64-bit register. */
static Status whole_address(Decoder *decoder, const PtxOperand *operand, SimSpace space,
                            int32_t *arg) {
  bool is_narrow;
  int64_t offset;
  STATUS_TRY(decode_address(decoder, operand, space, arg, &is_narrow, &offset));
  if (is_narrow) {
    int32_t wide = decode_register(decoder, CLASS_64);
    decode_unary(decoder, SIM_cvt_u64_u32, wide, *arg);
    *arg = wide;
  }
  if (!offset) return STATUS_OK;
  int32_t sum = decode_register(decoder, CLASS_64);
  SimInst *add = decode_unary(decoder, SIM_add_b64, sum, *arg);
  add->arg[2] = decode_constant(decoder, (uint64_t)offset, true);
  add->uses = 6;
  *arg = sum;
  return STATUS_OK;
}

static Status decode_plain(Decoder *decoder, const PtxStatement *s, int index, SimType type,
                           int32_t *arg) {
  const PtxOperand *operand = &s->operand[index];
  if (operand->kind != OPERAND_PLAIN || operand->is_negated || operand->has_second)
    return decode_fail(decoder, "%s: operand %d has a form that it does not take", s->op,
                       index + 1);
  return decode_value(decoder, &operand->at[0], type, arg);
}

/* mbarrier.try_wait.parity.shared::cta.b64: what it does; false: not known. An arrival may be at an
 * mbarrier of another block of the cluster. */
static bool read_mbarrier(const char *words, int *what, SimInst *made) {
  static const struct {
    const char *text;
    int what;
  } kinds[] = {{"init", MBAR_INIT},
               {"inval", MBAR_INVAL},
               {"arrive.expect_tx", MBAR_ARRIVE_EXPECT},
               {"arrive", MBAR_ARRIVE},
               {"expect_tx", MBAR_EXPECT},
               {"test_wait.parity", MBAR_WAIT_PARITY},
               {"try_wait.parity", MBAR_WAIT_PARITY},
               {"test_wait", MBAR_WAIT},
               {"try_wait", MBAR_WAIT}};
  size_t i = 0, count = sizeof kinds / sizeof *kinds, length = 0;
  for (; i < count; i++) {
    length = strlen(kinds[i].text);
    if (decode_begins(words, kinds[i].text) && words[length] == '.') break;
  }
  if (i == count) return false;
  *what = kinds[i].what;
  words += length + 1;
  char word[24];
  bool is_shared = false, is_64 = false;
  while (decode_word(&words, word)) {
    bool is_far = !strcmp(word, "shared::cluster"), is_cluster = !strcmp(word, "cluster");
    is_shared |= is_far || !strcmp(word, "shared") || !strcmp(word, "shared::cta");
    is_64 |= !strcmp(word, "b64");
    if (is_far && *what != MBAR_ARRIVE && *what != MBAR_ARRIVE_EXPECT) return false;
    made->is_wide |= is_far;
    made->space |= is_cluster;
    if (strcmp(word, "shared") && strcmp(word, "shared::cta") && strcmp(word, "b64") &&
        strcmp(word, "release") && strcmp(word, "acquire") && strcmp(word, "relaxed") &&
        strcmp(word, "cta") && !is_far && !is_cluster)
      return false;
  }
  return is_shared && is_64;
}

static Status decode_mbarrier(Decoder *decoder, const PtxStatement *s) {
  int what = 0;
  SimInst made = {.code = SIM_mbar, .line = s->line, .uses = 2};
  if (!read_mbarrier(s->op + strlen("mbarrier."), &what, &made))
    return decode_fail(decoder, "unsupported instruction %s", s->op);
  bool has_result = what == MBAR_ARRIVE || what == MBAR_ARRIVE_EXPECT || what >= MBAR_WAIT;
  bool has_value = what != MBAR_INVAL && (what != MBAR_ARRIVE || s->count == 3);
  bool has_limit = decode_begins(s->op, "mbarrier.try_wait.") && s->count == 2 + has_result + has_value;
  if (s->count != 1 + has_result + has_value + has_limit)
    return decode_fail(decoder, "%s takes %d operands", s->op, 1 + has_result + has_value);
  int32_t limit; /* of the time that it may wait, in nanoseconds: changes nothing here */
  if (has_limit) STATUS_TRY(decode_plain(decoder, s, s->count - 1, SIM_TYPE_u32, &limit));
  made.mode = (uint8_t)what;
  made.sub = strstr(s->op, ".relaxed") != NULL;
  decoder->kernel->is_partly_ordered = true;
  if (has_result) {
    if (s->operand[0].kind != OPERAND_PLAIN ||
        (made.is_wide && s->operand[0].at[0].kind != VALUE_SINK))
      return decode_fail(
          decoder, made.is_wide ? "%s has no result: _" : "%s: the result needs a register", s->op);
    STATUS_TRY(decode_result(decoder, &s->operand[0].at[0],
                             what >= MBAR_WAIT ? CLASS_PRED : CLASS_64, &made.arg[0]));
    made.defs = 1;
  }
  STATUS_TRY(whole_address(decoder, &s->operand[has_result], SPACE_SHARED, &made.arg[1]));
  if (has_value)
    STATUS_TRY(decode_plain(decoder, s, 1 + has_result,
                            what == MBAR_WAIT ? SIM_TYPE_u64 : SIM_TYPE_u32, &made.arg[2]));
  else
    made.arg[2] = decode_constant(decoder, 1, false);
  made.uses |= 4;
  return push_hopper(decoder, made);
}

/* [to], [from], bytes, [mbarrier] */
static Status decode_bulk(Decoder *decoder, const PtxStatement *s) {
  const char *what = s->op + strlen("cp.async.bulk.");
  if (strcmp(what, "shared::cluster.global.mbarrier::complete_tx::bytes") != 0 &&
      strcmp(what, "shared::cta.global.mbarrier::complete_tx::bytes") != 0)
    return decode_fail(decoder, "unsupported instruction %s", s->op);
  if (s->count != 4) return decode_fail(decoder, "%s takes 4 operands", s->op);
  SimInst made = {.code = SIM_bulk, .line = s->line, .uses = 15};
  decoder->kernel->has_bulk = decoder->kernel->is_partly_ordered = true;
  STATUS_TRY(whole_address(decoder, &s->operand[0], SPACE_SHARED, &made.arg[0]));
  STATUS_TRY(whole_address(decoder, &s->operand[1], SPACE_GLOBAL, &made.arg[1]));
  STATUS_TRY(decode_plain(decoder, s, 2, SIM_TYPE_u32, &made.arg[2]));
  STATUS_TRY(whole_address(decoder, &s->operand[3], SPACE_SHARED, &made.arg[3]));
  return push_hopper(decoder, made);
}

/* Where a box lies in its tensor: the map, and the coordinates. */
static Status decode_box(Decoder *decoder, const PtxOperand *operand, SimInst *made) {
  STATUS_TRY(whole_address(decoder, operand, SPACE_PARAM, &made->arg[1]));
  for (int i = 0; i < operand->coordinates; i++) {
    STATUS_TRY(decode_value(decoder, &operand->many[i], SIM_TYPE_s32, &made->arg[3 + i]));
    made->uses |= (uint8_t)(8 << i);
  }
  return STATUS_OK;
}

/* cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [map, {coordinates}], [from] */
static Status decode_tensor_store(Decoder *decoder, const PtxStatement *s) {
  const char *at = s->op + strlen("cp.async.bulk.tensor.");
  int rank = *at - '0';
  if (rank < 1 || rank > SIM_MAP_RANK || (strcmp(at + 1, "d.global.shared::cta.bulk_group") != 0 && strcmp(at + 1, "d.global.shared::cta.tile.bulk_group") != 0))
    return decode_fail(decoder, "unsupported instruction %s", s->op);
  if (s->count != 2 || s->operand[0].coordinates != rank)
    return decode_fail(decoder, "%s takes [map, {%d coordinates}], [from]", s->op, rank);
  SimInst made = {.code = SIM_tensor_store, .line = s->line, .count = (uint8_t)rank, .uses = 3};
  decoder->kernel->has_bulk = decoder->kernel->is_partly_ordered = true;
  STATUS_TRY(whole_address(decoder, &s->operand[1], SPACE_SHARED, &made.arg[0]));
  STATUS_TRY(decode_box(decoder, &s->operand[0], &made));
  return push_hopper(decoder, made);
}

/* cp.async.bulk.global.shared::cta.bulk_group [to], [from], bytes; cp.reduce adds: mode 1. */
static Status decode_bulk_store(Decoder *decoder, const PtxStatement *s) {
  bool is_sum = !strcmp(s->op, "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32");
  if (!is_sum && strcmp(s->op, "cp.async.bulk.global.shared::cta.bulk_group") != 0) return decode_fail(decoder, "unsupported instruction %s", s->op);
  if (s->count != 3) return decode_fail(decoder, "%s takes 3 operands", s->op);
  SimInst made = {.code = SIM_bulk_store, .line = s->line, .mode = is_sum, .uses = 7};
  decoder->kernel->has_bulk = decoder->kernel->is_partly_ordered = true;
  STATUS_TRY(whole_address(decoder, &s->operand[1], SPACE_SHARED, &made.arg[0]));
  STATUS_TRY(whole_address(decoder, &s->operand[0], SPACE_GLOBAL, &made.arg[1]));
  STATUS_TRY(decode_plain(decoder, s, 2, SIM_TYPE_u32, &made.arg[2]));
  return push_hopper(decoder, made);
}

/* Groups of bulk stores: commit_group, and wait_group or wait_group.read, which are the same to a machine where
 * what is read has been written. */
static Status decode_bulk_group(Decoder *decoder, const PtxStatement *s) {
  bool is_commit = !strcmp(s->op, "cp.async.bulk.commit_group");
  SimInst made = {.code = is_commit ? SIM_bulk_commit : SIM_bulk_wait, .line = s->line};
  if (s->count != !is_commit) return decode_fail(decoder, "%s takes %d operands", s->op, !is_commit);
  if (!is_commit) STATUS_TRY(immediate(decoder, s, 0, &made.imm));
  if (made.imm < 0) return decode_fail(decoder, "%s leaves no negative number of groups open", s->op);
  return push_hopper(decoder, made);
}

/* cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
 * [to], [map, {coordinates}], [mbarrier], with .multicast::cluster also the blocks that get it */
static Status decode_tensor(Decoder *decoder, const PtxStatement *s) {
  const char *at = s->op + strlen("cp.async.bulk.tensor.");
  int rank = *at - '0';
  bool is_good = rank >= 1 && rank <= SIM_MAP_RANK && decode_begins(at + 1, "d.shared::");
  if (is_good) at += strlen("1d.shared::");
  is_good = is_good && (decode_begins(at, "cluster.global.") || decode_begins(at, "cta.global."));
  if (is_good) at = strstr(at, "global.") + strlen("global.");
  if (is_good && decode_begins(at, "tile.")) at += strlen("tile.");
  bool is_cast = is_good && !strcmp(at, "mbarrier::complete_tx::bytes.multicast::cluster") &&
                 strstr(s->op, "shared::cluster");
  if (!is_good || (!is_cast && strcmp(at, "mbarrier::complete_tx::bytes") != 0))
    return decode_fail(decoder, "unsupported instruction %s", s->op);
  const PtxOperand *from = &s->operand[1];
  if (s->count != 3 + is_cast || from->coordinates != rank || rank + is_cast > SIM_MAP_RANK)
    return decode_fail(decoder, "%s takes [to], [map, {%d coordinates}], [mbarrier]%s", s->op, rank,
                       is_cast ? ", blocks, and in this simulator at most 4 dimensions" : "");
  SimInst made = {
      .code = SIM_tensor, .line = s->line, .count = (uint8_t)rank, .uses = 7, .is_wide = is_cast};
  decoder->kernel->has_bulk = decoder->kernel->is_partly_ordered = true;
  STATUS_TRY(whole_address(decoder, &s->operand[0], SPACE_SHARED, &made.arg[0]));
  STATUS_TRY(decode_box(decoder, from, &made));
  STATUS_TRY(whole_address(decoder, &s->operand[2], SPACE_SHARED, &made.arg[2]));
  if (is_cast) {
    STATUS_TRY(decode_plain(decoder, s, 3, SIM_TYPE_u16, &made.arg[SIM_ARGS - 1]));
    made.uses |= 1 << (SIM_ARGS - 1);
  }
  return push_hopper(decoder, made);
}

/* ── clusters ─────────────────────────────────────────────────────────────────────────────── */
/* mapa.shared::cluster.u32 d, address, rank */
static Status decode_mapa(Decoder *decoder, const PtxStatement *s) {
  if (strcmp(s->op, "mapa.shared::cluster.u32") != 0 || s->count != 3 ||
      s->operand[0].kind != OPERAND_PLAIN)
    return decode_fail(decoder, "unsupported instruction %s", s->op);
  SimInst made = {.code = SIM_mapa, .line = s->line, .defs = 1, .uses = 6};
  STATUS_TRY(decode_result(decoder, &s->operand[0].at[0], CLASS_32, &made.arg[0]));
  STATUS_TRY(decode_plain(decoder, s, 1, SIM_TYPE_u32, &made.arg[1]));
  STATUS_TRY(decode_plain(decoder, s, 2, SIM_TYPE_u32, &made.arg[2]));
  return push_hopper(decoder, made);
}

/* barrier.cluster: mode: is it a wait; sub: is it relaxed. Arrivals are releases and waits acquires
 * if they do not say otherwise. */
static Status decode_cluster(Decoder *decoder, const PtxStatement *s) {
  static const struct {
    const char *text;
    uint8_t waits, is_relaxed;
  } forms[] = {{"barrier.cluster.arrive.aligned", 0, 0},
               {"barrier.cluster.arrive.release.aligned", 0, 0},
               {"barrier.cluster.arrive.relaxed.aligned", 0, 1},
               {"barrier.cluster.wait.aligned", 1, 0},
               {"barrier.cluster.wait.acquire.aligned", 1, 0}};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    if (strcmp(s->op, forms[i].text) != 0 || s->count) continue;
    decoder->kernel->is_partly_ordered = true;
    return push_hopper(decoder, (SimInst){.code = SIM_cluster,
                                          .line = s->line,
                                          .mode = forms[i].waits,
                                          .sub = forms[i].is_relaxed});
  }
  return decode_fail(decoder, "unsupported instruction %s", s->op);
}

/* elect.sync leader|p, members */
static Status decode_elect(Decoder *decoder, const PtxStatement *s) {
  SimInst made = {.code = SIM_elect, .line = s->line, .defs = 3, .uses = 4};
  if (s->count != 2 || s->operand[0].kind != OPERAND_PLAIN || !s->operand[0].has_second)
    return decode_fail(decoder, "%s takes leader|p and a mask of members", s->op);
  STATUS_TRY(decode_result(decoder, &s->operand[0].at[0], CLASS_32, &made.arg[0]));
  STATUS_TRY(decode_result(decoder, &s->operand[0].second, CLASS_PRED, &made.arg[1]));
  STATUS_TRY(decode_plain(decoder, s, 1, SIM_TYPE_u32, &made.arg[2]));
  return push_hopper(decoder, made);
}

/* setmaxnreg: imm registers a thread, mode: more than before. */
static Status decode_registers(Decoder *decoder, const PtxStatement *s) {
  int64_t count = 0;
  STATUS_TRY(immediate(decoder, s, 0, &count));
  if (s->count != 1 || count < 24 || count > 256 || count % 8)
    return decode_fail(decoder, "%s takes a number from 24 to 256, in eights", s->op);
  decoder->kernel->sets_registers = true;
  bool is_more = decode_begins(s->op, "setmaxnreg.inc.");
  return push_hopper(
      decoder, (SimInst){.code = SIM_registers, .line = s->line, .imm = count, .mode = is_more});
}

static Status decode_grid_wait(Decoder *decoder, const PtxStatement *s) {
  bool is_wait = !strcmp(s->op, "griddepcontrol.wait");
  if (!is_wait && strcmp(s->op, "griddepcontrol.launch_dependents") != 0)
    return decode_fail(decoder, "unsupported instruction %s", s->op);
  if (s->count) return decode_fail(decoder, "%s takes no operands", s->op);
  SimInst *made = decode_push(decoder, SIM_grid_wait);
  made->line = s->line;
  made->mode = is_wait;
  return STATUS_OK;
}

/* cp.async.bulk.prefetch.tensor.2d.L2.global [map, {coordinates}] and ….prefetch.L2.global [from], bytes: hints. */
static Status decode_prefetch(Decoder *decoder, const PtxStatement *s) {
  const char *at = s->op + strlen("cp.async.bulk.prefetch.");
  SimInst box = {0};
  int32_t bytes;
  int rank = decode_begins(at, "tensor.") ? at[strlen("tensor.")] - '0' : 0;
  bool is_box = rank >= 1 && rank <= SIM_MAP_RANK && (!strcmp(at + strlen("tensor.1"), "d.L2.global") || !strcmp(at + strlen("tensor.1"), "d.L2.global.tile"));
  if (!is_box && strcmp(at, "L2.global") != 0) return decode_fail(decoder, "unsupported instruction %s", s->op);
  if (s->count != 2 - is_box || (is_box && s->operand[0].coordinates != rank)) return decode_fail(decoder, "%s takes other operands", s->op);
  if (is_box)
    STATUS_TRY(decode_box(decoder, &s->operand[0], &box));
  else
    STATUS_TRY(whole_address(decoder, &s->operand[0], SPACE_GLOBAL, &box.arg[1]));
  if (!is_box) STATUS_TRY(decode_plain(decoder, s, 1, SIM_TYPE_u32, &bytes));
  decode_push(decoder, SIM_nothing);
  return STATUS_OK;
}

/* cp.async.bulk.… with .L2::cache_hint: the last operand is a policy of 64 bits, which changes nothing here. */
static Status decode_copy_of(Decoder *decoder, const PtxStatement *given) {
  static const char hint[] = ".L2::cache_hint";
  PtxStatement s = *given;
  char *at = strstr(s.op, hint);
  int32_t policy;
  if (at) {
    memmove(at, at + sizeof hint - 1, strlen(at + sizeof hint - 1) + 1);
    if (!s.count) return decode_fail(decoder, "%s takes a policy last", given->op);
    STATUS_TRY(decode_plain(decoder, &s, s.count - 1, SIM_TYPE_u64, &policy));
    s.count--;
  }
  if (decode_begins(s.op, "cp.async.bulk.prefetch.")) return decode_prefetch(decoder, &s);
  if (decode_begins(s.op, "cp.async.bulk.tensor."))
    return strstr(s.op, "d.global.") ? decode_tensor_store(decoder, &s) : decode_tensor(decoder, &s);
  return strstr(s.op, "bulk.global.") ? decode_bulk_store(decoder, &s) : decode_bulk(decoder, &s);
}

/* ── all of them ──────────────────────────────────────────────────────────────────────────── */
Status decode_hopper(Decoder *decoder, const PtxStatement *s, bool *is_known) {
  static const struct {
    const char *text;
    uint8_t shows;
  } fences[] = {{"fence.proxy.async", PROXY_SHARED | PROXY_MBARRIER | PROXY_GLOBAL},
                {"fence.proxy.async.shared::cta", PROXY_SHARED | PROXY_MBARRIER},
                {"fence.proxy.async.global", PROXY_GLOBAL},
                {"fence.mbarrier_init.release.cluster", PROXY_MBARRIER}};
  *is_known = true;
  if (decode_begins(s->op, "wgmma.")) return decode_wgmma(decoder, s);
  if (decode_begins(s->op, "mbarrier.")) return decode_mbarrier(decoder, s);
  if (decode_begins(s->op, "mapa.")) return decode_mapa(decoder, s);
  if (decode_begins(s->op, "barrier.cluster.")) return decode_cluster(decoder, s);
  if (!strcmp(s->op, "cp.async.bulk.commit_group") || !strcmp(s->op, "cp.async.bulk.wait_group") || !strcmp(s->op, "cp.async.bulk.wait_group.read"))
    return decode_bulk_group(decoder, s);
  if (decode_begins(s->op, "cp.async.bulk.") || decode_begins(s->op, "cp.reduce.async.bulk.")) return decode_copy_of(decoder, s);
  if (!strcmp(s->op, "elect.sync")) return decode_elect(decoder, s);
  if (decode_begins(s->op, "griddepcontrol.")) return decode_grid_wait(decoder, s);
  if (!strcmp(s->op, "setmaxnreg.inc.sync.aligned.u32") ||
      !strcmp(s->op, "setmaxnreg.dec.sync.aligned.u32"))
    return decode_registers(decoder, s);
  for (size_t i = 0; i < sizeof fences / sizeof *fences; i++) {
    if (strcmp(s->op, fences[i].text) != 0) continue;
    if (s->count) return decode_fail(decoder, "%s takes no operands", s->op);
    return push_hopper(decoder,
                       (SimInst){.code = SIM_proxy, .line = s->line, .mode = fences[i].shows});
  }
  *is_known = false;
  return STATUS_OK;
}
