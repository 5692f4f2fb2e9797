/* sim_decode_hopper: instructions of sm_90 and sm_90a that work beside the threads: wgmma, and the
 * fences that let them see what threads wrote. */
#include "runtime/sim_text.h"
#include <stdio.h>
#include <string.h>

static bool begins(const char *text, const char *with) {
  return !strncmp(text, with, strlen(with));
}

static Status push(Decoder *decoder, SimInst made) {
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
               {"k8.f32.tf32.tf32", WGMMA_TF32}};
  const char *at = op + strlen("wgmma.mma_async.sync.aligned.");
  if (!begins(at, "m64n")) return false;
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
  int across = shape->kind == WGMMA_TF32 ? 0 : 1 + is_a_shared;
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
  STATUS_TRY(push(decoder, made));
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
  if (begins(s->op, "wgmma.mma_async.sync.aligned.")) return decode_multiply(decoder, s);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    if (strcmp(s->op, others[i].text) != 0) continue;
    SimInst made = {.code = (uint16_t)others[i].code, .line = s->line};
    bool is_wait = others[i].code == SIM_wgmma_wait;
    if (s->count != is_wait) return decode_fail(decoder, "%s takes %d operands", s->op, is_wait);
    if (is_wait) STATUS_TRY(immediate(decoder, s, 0, &made.imm));
    if (made.imm < 0 || made.imm > 7)
      return decode_fail(decoder, "%s leaves 0 to 7 groups open", s->op);
    return push(decoder, made);
  }
  return decode_fail(decoder, "unsupported instruction %s", s->op);
}

/* ── all of them ──────────────────────────────────────────────────────────────────────────── */
Status decode_hopper(Decoder *decoder, const PtxStatement *s, bool *is_known) {
  *is_known = true;
  if (begins(s->op, "wgmma.")) return decode_wgmma(decoder, s);
  if (!strcmp(s->op, "fence.proxy.async") || !strcmp(s->op, "fence.proxy.async.shared::cta") ||
      !strcmp(s->op, "fence.proxy.async.global")) {
    if (s->count) return decode_fail(decoder, "%s takes no operands", s->op);
    bool is_shared = !strstr(s->op, ".global");
    return push(decoder, (SimInst){.code = is_shared ? SIM_proxy : SIM_nothing, .line = s->line});
  }
  *is_known = false;
  return STATUS_OK;
}
