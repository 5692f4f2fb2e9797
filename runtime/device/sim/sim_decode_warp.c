/* sim_decode_warp: instructions in which the lanes of a warp work together: barriers, shuffles,
 * votes, matrices. A block of code begins before each, so that lanes can wait for each other. */
#include "runtime/device/sim/sim_text.h"
#include <stdio.h>
#include <string.h>

static Status need_operands(const Decoder *decoder, const PtxStatement *s, int least, int most) {
  if (s->count < least || s->count > most)
    return decode_fail(decoder, "%s takes %d operands", s->op, least);
  for (int i = 0; i < s->count; i++)
    if (s->operand[i].kind != OPERAND_PLAIN)
      return decode_fail(decoder, "%s: operand %d has a form that it does not take", s->op, i + 1);
  return STATUS_OK;
}

static Status decode_operand(Decoder *decoder, const PtxStatement *s, int index, SimType type,
                             int32_t *arg) {
  const PtxOperand *operand = &s->operand[index];
  if (operand->has_second || (operand->is_negated && type != SIM_TYPE_pred))
    return decode_fail(decoder, "%s: operand %d has a form that it does not take", s->op,
                       index + 1);
  STATUS_TRY(decode_value(decoder, &operand->at[0], type, arg));
  if (operand->is_negated) {
    int32_t negated = decode_register(decoder, CLASS_PRED);
    decode_unary(decoder, SIM_not_pred, negated, *arg);
    *arg = negated;
  }
  return STATUS_OK;
}

static void push_block(Decoder *decoder, SimInst made) {
  decode_block(decoder);
  *decode_push(decoder, (SimCode)made.code) = made;
}

static Status decode_shuffle(Decoder *decoder, const PtxStatement *s) {
  static const char *const modes[] = {"up", "down", "bfly", "idx"};
  SimInst made = {.code = SIM_shfl, .line = s->line, .defs = 3, .uses = 0x3c};
  char text[32];
  int mode = 0;
  for (; mode < 4; mode++) {
    snprintf(text, sizeof text, "shfl.sync.%s.b32", modes[mode]);
    if (!strcmp(s->op, text)) break;
  }
  if (mode == 4) return decode_fail(decoder, "unsupported instruction %s", s->op);
  STATUS_TRY(need_operands(decoder, s, 5, 5));
  const PtxValue sink = {.kind = VALUE_SINK};
  const PtxOperand *to = &s->operand[0];
  made.mode = (uint8_t)mode;
  STATUS_TRY(decode_result(decoder, &to->at[0], CLASS_32, &made.arg[0]));
  STATUS_TRY(
      decode_result(decoder, to->has_second ? &to->second : &sink, CLASS_PRED, &made.arg[1]));
  for (int i = 0; i < 4; i++)
    STATUS_TRY(decode_operand(decoder, s, 1 + i, SIM_TYPE_u32, &made.arg[2 + i]));
  push_block(decoder, made);
  return STATUS_OK;
}

static Status decode_vote(Decoder *decoder, const PtxStatement *s) {
  static const char *const texts[] = {"vote.sync.all.pred", "vote.sync.any.pred",
                                      "vote.sync.uni.pred", "vote.sync.ballot.b32"};
  SimInst made = {.code = SIM_vote, .line = s->line, .defs = 1, .uses = 6};
  int mode = 0;
  while (mode < 4 && strcmp(s->op, texts[mode]) != 0) mode++;
  if (mode == 4) return decode_fail(decoder, "unsupported instruction %s", s->op);
  STATUS_TRY(need_operands(decoder, s, 3, 3));
  made.mode = (uint8_t)mode;
  SimClass class = mode == VOTE_BALLOT ? CLASS_32 : CLASS_PRED;
  STATUS_TRY(decode_result(decoder, &s->operand[0].at[0], class, &made.arg[0]));
  STATUS_TRY(decode_operand(decoder, s, 1, SIM_TYPE_pred, &made.arg[1]));
  STATUS_TRY(decode_operand(decoder, s, 2, SIM_TYPE_u32, &made.arg[2]));
  push_block(decoder, made);
  return STATUS_OK;
}

static Status decode_redux(Decoder *decoder, const PtxStatement *s) {
  static const struct {
    const char *text;
    SimAtom atom;
    bool is_signed;
  } kinds[] = {
      {"add.s32", ATOM_ADD, true},  {"add.u32", ATOM_ADD, false}, {"min.s32", ATOM_MIN, true},
      {"min.u32", ATOM_MIN, false}, {"max.s32", ATOM_MAX, true},  {"max.u32", ATOM_MAX, false},
      {"and.b32", ATOM_AND, false}, {"or.b32", ATOM_OR, false},   {"xor.b32", ATOM_XOR, false}};
  SimInst made = {.code = SIM_redux, .line = s->line, .defs = 1, .uses = 6};
  size_t i = 0, count = sizeof kinds / sizeof *kinds;
  while (i < count && strcmp(s->op + 11, kinds[i].text) != 0) i++;
  if (i == count) return decode_fail(decoder, "unsupported instruction %s", s->op);
  STATUS_TRY(need_operands(decoder, s, 3, 3));
  made.mode = (uint8_t)kinds[i].atom;
  made.is_signed = kinds[i].is_signed;
  STATUS_TRY(decode_result(decoder, &s->operand[0].at[0], CLASS_32, &made.arg[0]));
  STATUS_TRY(decode_operand(decoder, s, 1, SIM_TYPE_u32, &made.arg[1]));
  STATUS_TRY(decode_operand(decoder, s, 2, SIM_TYPE_u32, &made.arg[2]));
  push_block(decoder, made);
  return STATUS_OK;
}

static Status decode_barrier(Decoder *decoder, const PtxStatement *s) {
  bool is_aligned = !strncmp(s->op, "bar.", 4) || strstr(s->op, ".aligned"), is_arrival = strstr(s->op, ".arrive");
  SimInst made = {.code = is_arrival ? SIM_bar_arrive : SIM_bar, .line = s->line, .uses = 3, .mode = is_aligned};
  STATUS_TRY(need_operands(decoder, s, 1 + is_arrival, 2));
  STATUS_TRY(decode_operand(decoder, s, 0, SIM_TYPE_u32, &made.arg[0]));
  made.arg[1] = decode_constant(decoder, 0, false);
  if (s->count == 2) STATUS_TRY(decode_operand(decoder, s, 1, SIM_TYPE_u32, &made.arg[1]));
  const PtxValue *id = &s->operand[0].at[0];
  decoder->kernel->is_partly_ordered |= s->count == 2 || id->kind != VALUE_INT || id->bits != 0;
  push_block(decoder, made);
  return STATUS_OK;
}

/* ── matrices ─────────────────────────────────────────────────────────────────────────────── */
/* Reads .m8n8, .x4 and perhaps .trans, in any order: PTX ISA has the shape first, nvcc writes stmatrix with it last, and
 * ptxas takes both. What is behind them; NULL: there is no such matrix. */
static const char *decode_matrix_form(const char *at, int *count, bool *is_turned) {
  bool has_shape = false;
  for (;;)
    if (!has_shape && decode_begins(at, ".m8n8."))
      has_shape = true, at += strlen(".m8n8");
    else if (!*count && decode_begins(at, ".x") && strchr("124", at[2]) && at[3] == '.')
      *count = at[2] - '0', at += strlen(".x4");
    else if (!*is_turned && decode_begins(at, ".trans."))
      *is_turned = true, at += strlen(".trans");
    else
      return has_shape && *count ? at : NULL;
}

/* ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {…}, [a]; stmatrix the other way round. */
static Status decode_ldmatrix(Decoder *decoder, const PtxStatement *s) {
  bool is_store = s->op[0] == 's', is_turned = false, is_narrow;
  SimInst made = {.code = is_store ? SIM_stmatrix : SIM_ldmatrix, .line = s->line};
  int count = 0;
  const char *at = decode_matrix_form(s->op + strlen("ldmatrix.sync.aligned"), &count, &is_turned);
  if (at && decode_begins(at, ".shared")) at += strlen(decode_begins(at, ".shared::cta") ? ".shared::cta" : ".shared");
  if (!at || strcmp(at, ".b16") != 0) return decode_fail(decoder, "unsupported instruction %s", s->op);
  made.mode = is_turned;
  const PtxOperand *vector = &s->operand[is_store];
  if (s->count != 2 || vector->count != count ||
      (vector->kind != OPERAND_VECTOR && !(vector->kind == OPERAND_PLAIN && count == 1)))
    return decode_fail(decoder, "%s takes %d registers and an address", s->op, count);
  made.count = (uint8_t)count;
  STATUS_TRY(decode_address(decoder, &s->operand[!is_store], SPACE_SHARED, &made.arg[4], &is_narrow,
                            &made.imm));
  made.sub = is_narrow;
  made.uses = 1 << 4;
  for (int i = 0; i < count; i++) {
    if (is_store)
      STATUS_TRY(decode_value(decoder, &vector->at[i], SIM_TYPE_u32, &made.arg[i]));
    else
      STATUS_TRY(decode_result(decoder, &vector->at[i], CLASS_32, &made.arg[i]));
    if (is_store)
      made.uses |= (uint8_t)(1 << i);
    else
      made.defs |= (uint8_t)(1 << i);
  }
  push_block(decoder, made);
  return STATUS_OK;
}

/* In the second instruction: b in args 0 and 1, c in 2 to 5; half results are two registers. */
static Status decode_mma(Decoder *decoder, const PtxStatement *s) {
  static const struct {
    const char *text;
    int kind, d, a, b;
  } kinds[] = {
      {"m16n8k16.row.col.f32.f16.f16.f32", MMA_F16_16816, 4, 4, 2},
      {"m16n8k16.row.col.f16.f16.f16.f16", MMA_F16_16816, 2, 4, 2},
      {"m16n8k16.row.col.f32.bf16.bf16.f32", MMA_BF16_16816, 4, 4, 2},
      {"m16n8k8.row.col.f32.tf32.tf32.f32", MMA_TF32_1688, 4, 4, 2},
      {"m16n8k4.row.col.f32.tf32.tf32.f32", MMA_TF32_1684, 4, 2, 1},
      {"m16n8k8.row.col.f32.f16.f16.f32", MMA_F16_1688, 4, 2, 1},
      {"m16n8k8.row.col.f16.f16.f16.f16", MMA_F16_1688, 2, 2, 1},
      {"m16n8k8.row.col.f32.bf16.bf16.f32", MMA_BF16_1688, 4, 2, 1},
      {"m16n8k32.row.col.f32.e4m3.e4m3.f32", MMA_FLOAT8, 4, 4, 2},
      {"m16n8k32.row.col.f32.e4m3.e5m2.f32", MMA_FLOAT8 + 1, 4, 4, 2},
      {"m16n8k32.row.col.f32.e5m2.e4m3.f32", MMA_FLOAT8 + 2, 4, 4, 2},
      {"m16n8k32.row.col.f32.e5m2.e5m2.f32", MMA_FLOAT8 + 3, 4, 4, 2},
      {"m16n8k32.row.col.s32.s8.s8.s32", MMA_INTEGER, 4, 4, 2},
      {"m16n8k32.row.col.s32.s8.u8.s32", MMA_INTEGER + 1, 4, 4, 2},
      {"m16n8k32.row.col.s32.u8.s8.s32", MMA_INTEGER + 2, 4, 4, 2},
      {"m16n8k32.row.col.s32.u8.u8.s32", MMA_INTEGER + 3, 4, 4, 2},
  };
  const char *shape = s->op + strlen("mma.sync.aligned.");
  size_t k = 0, count = sizeof kinds / sizeof *kinds;
  while (k < count && strcmp(shape, kinds[k].text) != 0) k++;
  if (k == count) return decode_fail(decoder, "unsupported instruction %s", s->op);
  int wanted[4] = {kinds[k].d, kinds[k].a, kinds[k].b, kinds[k].d};
  if (s->count != 4) return decode_fail(decoder, "%s takes 4 operands", s->op);
  for (int i = 0; i < 4; i++)
    if (s->operand[i].count != wanted[i] || s->operand[i].kind == OPERAND_ADDRESS)
      return decode_fail(decoder, "%s: operand %d has %d registers, not %d", s->op, i + 1,
                         wanted[i], s->operand[i].count);
  SimInst made = {.code = SIM_mma,
                  .line = s->line,
                  .mode = (uint8_t)kinds[k].kind,
                  .count = (uint8_t)kinds[k].d};
  SimInst more = {.code = SIM_data, .line = s->line};
  for (int i = 0; i < wanted[0]; i++) {
    STATUS_TRY(decode_result(decoder, &s->operand[0].at[i], CLASS_32, &made.arg[i]));
    made.defs |= (uint8_t)(1 << i);
  }
  for (int i = 0; i < wanted[1]; i++) {
    STATUS_TRY(decode_value(decoder, &s->operand[1].at[i], SIM_TYPE_u32, &made.arg[4 + i]));
    made.uses |= (uint8_t)(16 << i);
  }
  for (int i = 0; i < wanted[2]; i++) {
    STATUS_TRY(decode_value(decoder, &s->operand[2].at[i], SIM_TYPE_u32, &more.arg[i]));
    more.uses |= (uint8_t)(1 << i);
  }
  for (int i = 0; i < wanted[3]; i++) {
    STATUS_TRY(decode_value(decoder, &s->operand[3].at[i], SIM_TYPE_u32, &more.arg[2 + i]));
    more.uses |= (uint8_t)(4 << i);
  }
  push_block(decoder, made);
  *decode_push(decoder, SIM_data) = more;
  return STATUS_OK;
}

/* mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 {d}, {a}, {b}, {c}, metadata, selector. b and c stand in the
 * second instruction, the metadata in the third; mode: is it f16, sub: the selector. */
static Status decode_mma_sparse(Decoder *decoder, const PtxStatement *s) {
  const char *shape = strstr(s->op, ".sync.aligned.") + strlen(".sync.aligned.");
  bool is_half = !strcmp(shape, "m16n8k32.row.col.f32.f16.f16.f32"), fits = s->count == 6;
  if (!is_half && strcmp(shape, "m16n8k32.row.col.f32.bf16.bf16.f32") != 0) return decode_fail(decoder, "unsupported instruction %s", s->op);
  for (int i = 0; i < 4 && fits; i++) fits = s->operand[i].kind == OPERAND_VECTOR && s->operand[i].count == 4;
  for (int i = 4; i < 6 && fits; i++) fits = s->operand[i].kind == OPERAND_PLAIN && !s->operand[i].is_negated && !s->operand[i].has_second;
  if (!fits || s->operand[5].at[0].kind != VALUE_INT || s->operand[5].at[0].bits > 1)
    return decode_fail(decoder, "%s takes four times four registers, the metadata, and 0 or 1", s->op);
  SimInst made = {.code = SIM_mma_sparse, .line = s->line, .mode = is_half, .sub = (uint8_t)s->operand[5].at[0].bits, .count = 4};
  SimInst more = {.code = SIM_data, .line = s->line, .uses = 255}, last = {.code = SIM_data, .line = s->line, .uses = 1};
  for (int i = 0; i < 4; i++) {
    STATUS_TRY(decode_result(decoder, &s->operand[0].at[i], CLASS_32, &made.arg[i]));
    STATUS_TRY(decode_value(decoder, &s->operand[1].at[i], SIM_TYPE_u32, &made.arg[4 + i]));
    STATUS_TRY(decode_value(decoder, &s->operand[2].at[i], SIM_TYPE_u32, &more.arg[i]));
    STATUS_TRY(decode_value(decoder, &s->operand[3].at[i], SIM_TYPE_u32, &more.arg[4 + i]));
  }
  STATUS_TRY(decode_value(decoder, &s->operand[4].at[0], SIM_TYPE_u32, &last.arg[0]));
  made.defs = 15, made.uses = 255 - 15;
  push_block(decoder, made);
  *decode_push(decoder, SIM_data) = more;
  *decode_push(decoder, SIM_data) = last;
  return STATUS_OK;
}

/* ── all of them ──────────────────────────────────────────────────────────────────────────── */
static bool is_barrier(const char *op) {
  static const char *const texts[] = {"bar.sync",         "bar.cta.sync",
                                      "barrier.sync",     "barrier.sync.aligned",
                                      "barrier.cta.sync", "barrier.cta.sync.aligned",
                                      "bar.arrive",       "bar.cta.arrive",
                                      "barrier.arrive",   "barrier.arrive.aligned",
                                      "barrier.cta.arrive", "barrier.cta.arrive.aligned"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (!strcmp(op, texts[i])) return true;
  return false;
}

Status decode_warp(Decoder *decoder, const PtxStatement *s, bool *is_known) {
  *is_known = true;
  if (decode_begins(s->op, "shfl.sync.")) return decode_shuffle(decoder, s);
  if (decode_begins(s->op, "vote.sync.")) return decode_vote(decoder, s);
  if (decode_begins(s->op, "redux.sync.")) return decode_redux(decoder, s);
  if (decode_begins(s->op, "mma.sync.aligned.")) return decode_mma(decoder, s);
  if (decode_begins(s->op, "mma.sp.sync.aligned.") || decode_begins(s->op, "mma.sp::ordered_metadata.sync.aligned."))
    return decode_mma_sparse(decoder, s);
  if (decode_begins(s->op, "ldmatrix.sync.aligned.") || decode_begins(s->op, "stmatrix.sync.aligned."))
    return decode_ldmatrix(decoder, s);
  if (is_barrier(s->op)) return decode_barrier(decoder, s);
  if (!strcmp(s->op, "bar.warp.sync")) {
    SimInst made = {.code = SIM_bar_warp, .line = s->line, .uses = 1};
    STATUS_TRY(need_operands(decoder, s, 1, 1));
    STATUS_TRY(decode_operand(decoder, s, 0, SIM_TYPE_u32, &made.arg[0]));
    push_block(decoder, made);
    return STATUS_OK;
  }
  if (!strcmp(s->op, "activemask.b32")) {
    SimInst made = {.code = SIM_activemask, .line = s->line, .defs = 1};
    STATUS_TRY(need_operands(decoder, s, 1, 1));
    STATUS_TRY(decode_result(decoder, &s->operand[0].at[0], CLASS_32, &made.arg[0]));
    *decode_push(decoder, SIM_activemask) = made;
    return STATUS_OK;
  }
  if (!strcmp(s->op, "trap")) {
    decode_push(decoder, SIM_trap);
    return STATUS_OK;
  }
  *is_known = false;
  return STATUS_OK;
}
