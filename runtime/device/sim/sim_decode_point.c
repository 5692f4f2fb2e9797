/* sim_decode_point: pointwise instructions, by their canonical text in sim_ops.def; .ftz, .sat,
 * conditions in setp and operands that are wider than their type become instructions of their own.
 */
#include "runtime/device/sim/sim_text.h"
#include "base/text.h"
#include <stdio.h>
#include <string.h>

typedef struct {
  const char *text;
  uint8_t type[5]; /* result, then operands */
  SimCode code;
} OpInfo;

static const OpInfo ops[] = {
#define OP(id, text, D, A, B, C, E, expression)                                                    \
  {text, {SIM_TYPE_##D, SIM_TYPE_##A, SIM_TYPE_##B, SIM_TYPE_##C, SIM_TYPE_##E}, SIM_##id},
#include "runtime/device/sim/sim_ops.def"
};
enum { OP_COUNT = sizeof ops / sizeof *ops };
_Static_assert(OP_COUNT * 2 < DECODE_TABLE, "the table of texts is half empty");

static uint32_t hash_text(const char *text) {
  uint32_t hash = 2166136261u;
  for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 16777619u;
  return hash ^ hash >> 15;
}

static const OpInfo *decode_find_op(const Decoder *decoder, const char *text) {
  for (uint32_t i = hash_text(text);; i++) {
    int16_t found = decoder->table[i % DECODE_TABLE];
    if (found < 0) return NULL;
    if (!strcmp(ops[found].text, text)) return &ops[found];
  }
}

void decode_point_begin(Decoder *decoder) {
  memset(decoder->table, 0xff, sizeof decoder->table);
  for (int i = 0; i < OP_COUNT; i++) {
    uint32_t at = hash_text(ops[i].text);
    while (decoder->table[at % DECODE_TABLE] >= 0) at++;
    decoder->table[at % DECODE_TABLE] = (int16_t)i;
  }
}

bool decode_point_knows(const char *op, size_t length) {
  for (int i = 0; i < OP_COUNT; i++)
    if (!strncmp(ops[i].text, op, length) && ops[i].text[length] == '.') return true;
  return false;
}

/* ── words ────────────────────────────────────────────────────────────────────────────────── */
enum { MOST_WORDS = 10 };
typedef struct {
  char word[MOST_WORDS][24];
  int count;
  bool flushes, saturates;
} Words;

static bool split_words(const char *op, Words *out) {
  *out = (Words){.count = 0};
  char word[24];
  while (decode_word(&op, word)) {
    if (!strcmp(word, "ftz")) {
      out->flushes = true;
    } else if (!strcmp(word, "sat")) {
      out->saturates = true;
    } else {
      if (out->count == MOST_WORDS) return false;
      strcpy(out->word[out->count++], word);
    }
  }
  return out->count > 0;
}

/* The text that sim_ops.def has for it. */
static void canonical(Words *w, char out[128]) {
  static const char *const by_width[] = {"mov",  "selp", "and", "or",  "xor", "not",
                                         "cnot", "shl",  "add", "sub", "neg", NULL};
  static const char *const any_type[] = {"mov", "selp", NULL};
  static const char *const rounded[] = {"add", "sub", "mul", "fma", NULL};
  static const char *const roundings[] = {"rn", "rz", "rm", "rp", NULL};
  char *stem = w->word[0], *type = w->word[w->count - 1];
  bool is_float = type[0] == 'f' || !strncmp(type, "bf", 2);
  bool is_low = w->count > 2 && !strcmp(w->word[1], "lo");
  bool is_equality = w->count > 2 && !strcmp(stem, "setp") &&
                     (!strcmp(w->word[1], "eq") || !strcmp(w->word[1], "ne"));
  if (!strcmp(stem, "mad") && is_float) strcpy(stem, "fma");
  if ((text_is_one_of(stem, by_width) || is_low || is_equality) &&
      (type[0] == 'u' || type[0] == 's'))
    type[0] = 'b';
  if (text_is_one_of(stem, any_type) && type[0] == 'f') type[0] = 'b';
  if (!strcmp(stem, "setp") && type[0] == 'u') {
    static const char *const names[4][2] = {{"lo", "lt"}, {"ls", "le"}, {"hi", "gt"}, {"hs", "ge"}};
    for (int i = 0; i < 4; i++)
      if (!strcmp(w->word[1], names[i][0])) strcpy(w->word[1], names[i][1]);
  }
  bool needs_rounding = text_is_one_of(stem, rounded) && is_float &&
                        !(w->count > 2 && text_is_one_of(w->word[1], roundings));
  int length = snprintf(out, 128, "%s", stem);
  if (needs_rounding) length += snprintf(out + length, 128 - (size_t)length, ".rn");
  for (int i = 1; i < w->count && length < 100; i++)
    length += snprintf(out + length, 128 - (size_t)length, ".%s", w->word[i]);
}

/* ── pointwise instructions ───────────────────────────────────────────────────────────────── */
/* Operands of cvt may be wider than their type. */
static Status narrow_source(Decoder *decoder, PtxValue *value, SimType type) {
  if (value->kind != VALUE_REGISTER) return STATUS_OK;
  SimClass has = decoder->kernel->classes.at[value->index], wants = decode_class(type);
  if (has == wants || has == CLASS_PRED || (has == CLASS_16 && wants == CLASS_32)) return STATUS_OK;
  int32_t from = value->index;
  if (has == CLASS_64 && wants != CLASS_64) {
    int32_t to = decode_register(decoder, wants);
    decode_unary(decoder, wants == CLASS_32 ? SIM_cvt_u32_u64 : SIM_cvt_u16_u64, to, from);
    value->index = to;
  } else if (has == CLASS_32 && wants == CLASS_16) {
    int32_t to = decode_register(decoder, wants);
    decode_unary(decoder, SIM_cvt_u16_u32, to, from);
    value->index = to;
  }
  return STATUS_OK;
}

static Status decode_sources(Decoder *decoder, const OpInfo *op, const PtxStatement *s, bool is_cvt,
                             bool flushes, int32_t arg[SIM_ARGS], int *count) {
  int last = 4;
  while (last > 0 && op->type[last] == SIM_TYPE_none) last--;
  if (s->count - 1 != last) return decode_fail(decoder, "%s takes %d operands", s->op, last + 1);
  for (int i = 1; i <= last; i++) {
    const PtxOperand *operand = &s->operand[i];
    SimType type = op->type[i];
    if (operand->kind != OPERAND_PLAIN || operand->is_negated || operand->has_second)
      return decode_fail(decoder, "%s: operand %d has a form that it does not take", s->op, i + 1);
    PtxValue value = operand->at[0];
    if (is_cvt) STATUS_TRY(narrow_source(decoder, &value, type));
    bool is_small = is_cvt && value.kind == VALUE_REGISTER &&
                    decoder->kernel->classes.at[value.index] == CLASS_16 && type == SIM_TYPE_u32;
    if (is_small)
      arg[i] = value.index; /* .u8 of a 16-bit register */
    else
      STATUS_TRY(decode_value(decoder, &value, type, &arg[i]));
    bool is_f32 = op->type[i] == SIM_TYPE_f32 || (strstr(op->text, ".f32") && type == SIM_TYPE_u32);
    if (flushes && is_f32) {
      int32_t flushed = decode_register(decoder, CLASS_32);
      decode_unary(decoder, SIM_flush_f32, flushed, arg[i]);
      arg[i] = flushed;
    }
  }
  *count = last;
  return STATUS_OK;
}

/* What .ftz and .sat do to a result. */
static void finish_result(Decoder *decoder, bool flushes, bool saturates, SimType type, int32_t to,
                          int32_t made) {
  if (flushes) {
    int32_t flushed = saturates ? decode_register(decoder, CLASS_32) : to;
    decode_unary(decoder, SIM_flush_f32, flushed, made);
    made = flushed;
  }
  if (saturates)
    decode_unary(decoder, type == SIM_TYPE_f64 ? SIM_saturate_f64 : SIM_saturate_f32, to, made);
}

/* cvt.s8.s32 %rs1, %r1 is cvt.s16.s8: the low byte of the source fills the result's register. */
static void narrow_result(const Decoder *decoder, const PtxStatement *s, Words *w) {
  if (w->count != 3 || strcmp(w->word[0], "cvt") != 0 || w->word[1][1] != '8' ||
      !strchr("us", w->word[2][0]) || s->operand[0].at[0].kind != VALUE_REGISTER)
    return;
  static const int bits[] = {[CLASS_16] = 16, [CLASS_32] = 32, [CLASS_64] = 64};
  SimClass class = decoder->kernel->classes.at[s->operand[0].at[0].index];
  if (class == CLASS_PRED) return;
  strcpy(w->word[2], w->word[1]);
  snprintf(w->word[1], sizeof w->word[1], "%c%d", w->word[2][0], bits[class]);
}

Status decode_pointwise(Decoder *decoder, const PtxStatement *statement, bool *is_known) {
  Words w;
  char text[128];
  PtxStatement s = *statement;
  if (!split_words(s.op, &w)) return STATUS_OK;
  narrow_result(decoder, &s, &w);
  canonical(&w, text);
  const OpInfo *op = decode_find_op(decoder, text);
  if (!op) return STATUS_OK;
  bool is_cvt = !strcmp(w.word[0], "cvt"), is_setp = op->type[0] == SIM_TYPE_pred;
  const char *result_word = is_cvt ? w.word[w.count - 2] : w.word[w.count - 1];
  bool result_is_f32 = !strcmp(result_word, "f32") && !is_setp;
  if (w.saturates && strcmp(result_word, "f32") != 0 && strcmp(result_word, "f64") != 0)
    return STATUS_OK;
  *is_known = true;
  if (s.count < 2) return decode_fail(decoder, "%s has too few operands", s.op);
  SimInst made = {.code = (uint16_t)op->code, .line = s.line, .defs = 1};
  if (op->code == SIM_lop3_b32 && s.count == 5 && s.operand[4].at[0].kind == VALUE_INT) {
    made.imm = (int64_t)(s.operand[4].at[0].bits & 255);
    s.count = 4;
  }
  const PtxOperand *to = &s.operand[0];
  if (to->kind != OPERAND_PLAIN || to->is_negated)
    return decode_fail(decoder, "%s: the result needs a register", s.op);
  int count = 0;
  int32_t result;
  STATUS_TRY(decode_result(decoder, &to->at[0], decode_class(op->type[0]), &result));
  STATUS_TRY(decode_sources(decoder, op, &s, is_cvt, w.flushes, made.arg, &count));
  bool flushes = w.flushes && result_is_f32, has_more = flushes || w.saturates;
  made.arg[0] = has_more ? decode_register(decoder, decode_class(op->type[0])) : result;
  made.uses = (uint8_t)((2u << count) - 2);
  *decode_push(decoder, op->code) = made;
  if (has_more) finish_result(decoder, flushes, w.saturates, op->type[0], result, made.arg[0]);
  if (to->has_second) {
    int32_t second;
    if (!is_setp) return decode_fail(decoder, "%s has one result", s.op);
    STATUS_TRY(decode_result(decoder, &to->second, CLASS_PRED, &second));
    decode_unary(decoder, SIM_not_pred, second, result);
  }
  return STATUS_OK;
}

/* setp.lt.and.f32 %p1|%p2, a, b, !%p3: p1 = (a < b) and c, p2 = not (a < b) and c */
Status decode_setp(Decoder *decoder, const PtxStatement *s, bool *is_known) {
  static const struct {
    const char *word;
    SimCode code;
  } joins[] = {{".and.", SIM_and_pred}, {".or.", SIM_or_pred}, {".xor.", SIM_xor_pred}};
  const char *at = NULL;
  int which = 0;
  if (strncmp(s->op, "setp.", 5) != 0) return STATUS_OK;
  for (which = 0; which < 3 && !(at = strstr(s->op, joins[which].word)); which++) {
  }
  if (!at || s->count != 4) return STATUS_OK;
  PtxStatement plain = *s;
  snprintf(plain.op, sizeof plain.op, "%.*s%s", (int)(at - s->op), s->op,
           at + strlen(joins[which].word) - 1);
  plain.count = 3;
  int32_t compared = decode_register(decoder, CLASS_PRED), condition, result;
  const PtxOperand *to = &s->operand[0], *last = &s->operand[3];
  plain.operand[0] = (PtxOperand){.count = 1, .at[0] = {VALUE_REGISTER, compared, 0}};
  STATUS_TRY(decode_pointwise(decoder, &plain, is_known));
  if (!*is_known) return STATUS_OK;
  if (last->kind != OPERAND_PLAIN || to->kind != OPERAND_PLAIN || to->is_negated)
    return decode_fail(decoder, "%s: a predicate belongs here", s->op);
  STATUS_TRY(decode_value(decoder, &last->at[0], SIM_TYPE_pred, &condition));
  if (last->is_negated) {
    int32_t negated = decode_register(decoder, CLASS_PRED);
    decode_unary(decoder, SIM_not_pred, negated, condition);
    condition = negated;
  }
  int32_t kept = condition;
  if (to->has_second) { /* the first result may overwrite the condition */
    kept = decode_register(decoder, CLASS_PRED);
    decode_unary(decoder, SIM_mov_pred, kept, condition);
  }
  STATUS_TRY(decode_result(decoder, &to->at[0], CLASS_PRED, &result));
  decode_binary(decoder, joins[which].code, result, compared, condition);
  if (!to->has_second) return STATUS_OK;
  int32_t opposite = decode_register(decoder, CLASS_PRED);
  STATUS_TRY(decode_result(decoder, &to->second, CLASS_PRED, &result));
  decode_unary(decoder, SIM_not_pred, opposite, compared);
  decode_binary(decoder, joins[which].code, result, opposite, kept);
  return STATUS_OK;
}
