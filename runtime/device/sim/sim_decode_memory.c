/* sim_decode_memory: ld, st, atom, red, cp.async and what only hints or orders: modifiers that
 * change nothing in a machine without caches are read and forgotten. */
#include "runtime/device/sim/sim_text.h"
#include <string.h>

/* Words after the stem; what is not one of these is looked at by the caller. */
static bool is_hint(const char *word) {
  static const char *const hints[] = {"weak",    "volatile", "relaxed", "acquire", "release",
                                      "acq_rel", "cta",      "gpu",     "sys",     "cluster",
                                      "nc",      "ca",       "cg",      "cs",      "lu",
                                      "cv",      "wb",       "wt",      "noftz"};
  for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
    if (!strcmp(word, hints[i])) return true;
  return !strncmp(word, "L1::", 4) || !strncmp(word, "L2::", 4);
}

static bool decode_find_space(const char *word, SimSpace *space) {
  static const struct {
    const char *word;
    SimSpace space;
  } spaces[] = {{"global", SPACE_GLOBAL},      {"shared", SPACE_SHARED}, {"local", SPACE_LOCAL},
                {"shared::cta", SPACE_SHARED}, {"param", SPACE_PARAM},   {"const", SPACE_CONST}};
  for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
    if (!strcmp(word, spaces[i].word)) {
      *space = spaces[i].space;
      return true;
    }
  return false;
}

typedef enum { KIND_UNSIGNED, KIND_SIGNED, KIND_FLOAT } Kind;
static bool find_type(const char *word, int *bytes, Kind *kind) {
  static const struct {
    const char *word;
    int bytes;
    Kind kind;
  } types[] = {{"u8", 1, KIND_UNSIGNED},    {"b8", 1, KIND_UNSIGNED},     {"s8", 1, KIND_SIGNED},
               {"u16", 2, KIND_UNSIGNED},   {"b16", 2, KIND_UNSIGNED},    {"s16", 2, KIND_SIGNED},
               {"f16", 2, KIND_UNSIGNED},   {"bf16", 2, KIND_UNSIGNED},   {"u32", 4, KIND_UNSIGNED},
               {"b32", 4, KIND_UNSIGNED},   {"s32", 4, KIND_SIGNED},      {"f32", 4, KIND_FLOAT},
               {"f16x2", 4, KIND_UNSIGNED}, {"bf16x2", 4, KIND_UNSIGNED}, {"u64", 8, KIND_UNSIGNED},
               {"b64", 8, KIND_UNSIGNED},   {"s64", 8, KIND_SIGNED},      {"f64", 8, KIND_FLOAT}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (!strcmp(word, types[i].word)) {
      *bytes = types[i].bytes;
      *kind = types[i].kind;
      return true;
    }
  return false;
}

static SimType decode_type(int bytes) {
  return bytes == 8 ? SIM_TYPE_u64 : bytes == 2 ? SIM_TYPE_u16 : SIM_TYPE_u32;
}

Status decode_address(Decoder *decoder, const PtxOperand *operand, SimSpace space, int32_t *arg,
                      bool *is_narrow, int64_t *offset) {
  const PtxValue *value = &operand->at[0];
  *offset = operand->offset;
  *is_narrow = false;
  if (operand->kind != OPERAND_ADDRESS || (operand->coordinates && space != SPACE_PARAM))
    return decode_fail(decoder, "an address in brackets belongs here");
  if (value->kind == VALUE_REGISTER || value->kind == VALUE_DYNAMIC) {
    SimClass class = decoder->kernel->classes.at[value->index];
    *is_narrow = class == CLASS_32;
    *arg = value->index;
    if (class == CLASS_64 || (*is_narrow && (space == SPACE_SHARED || space == SPACE_LOCAL)))
      return STATUS_OK;
    return decode_fail(decoder, "an address needs a 64-bit register");
  }
  bool fits = value->kind == VALUE_INT || (value->kind == VALUE_SHARED && space == SPACE_SHARED) ||
              (value->kind == VALUE_LOCAL && space == SPACE_LOCAL) ||
              (value->kind == VALUE_GLOBAL && space != SPACE_SHARED && space != SPACE_LOCAL &&
               space != SPACE_PARAM);
  if (!fits) return decode_fail(decoder, "what stands in the brackets is not of this space");
  *arg = decode_constant(decoder, value->bits, true);
  return STATUS_OK;
}

/* ── ld and st ────────────────────────────────────────────────────────────────────────────── */
/* A register that holds an element of `bytes`; it may be wider. */
static Status element_class(Decoder *decoder, const PtxValue *value, int bytes, SimClass *class) {
  *class = bytes == 8 ? CLASS_64 : bytes == 4 ? CLASS_32 : CLASS_16;
  if (value->kind != VALUE_REGISTER) return STATUS_OK;
  SimClass has = decoder->kernel->classes.at[value->index];
  if (has == CLASS_PRED || has < *class)
    return decode_fail(decoder, "a register too small for %d bytes", bytes);
  *class = has;
  return STATUS_OK;
}

static Status load_results(Decoder *decoder, const PtxOperand *to, SimInst *made) {
  bool is_wide = false;
  for (int i = 0; i < to->count; i++) {
    SimClass class;
    STATUS_TRY(element_class(decoder, &to->at[i], made->size, &class));
    if (to->at[i].kind == VALUE_SINK && is_wide) class = CLASS_64;
    STATUS_TRY(decode_result(decoder, &to->at[i], class, &made->arg[i]));
    if (i > 0 && to->at[i].kind != VALUE_SINK && (class == CLASS_64) != is_wide)
      return decode_fail(decoder, "registers of several sizes in one vector");
    is_wide = class == CLASS_64;
    made->defs |= (uint8_t)(1 << i);
  }
  made->is_wide = is_wide;
  return STATUS_OK;
}

static Status store_sources(Decoder *decoder, const PtxOperand *from, SimInst *made) {
  for (int i = 0; i < from->count; i++) {
    const PtxValue *value = &from->at[i];
    SimClass class;
    STATUS_TRY(element_class(decoder, value, made->size, &class));
    if (value->kind == VALUE_REGISTER && class == CLASS_64 && made->size < 8) {
      made->arg[i] = decode_register(decoder, CLASS_32);
      decode_unary(decoder, SIM_cvt_u32_u64, made->arg[i], value->index);
    } else if (value->kind == VALUE_REGISTER) {
      made->arg[i] = value->index;
    } else {
      STATUS_TRY(decode_value(decoder, value, decode_type(made->size), &made->arg[i]));
    }
    made->uses |= (uint8_t)(1 << i);
  }
  made->is_wide = made->size == 8;
  return STATUS_OK;
}

static Status decode_param(Decoder *decoder, const PtxStatement *s, SimInst *made) {
  const PtxOperand *from = &s->operand[1];
  if (from->kind == OPERAND_ADDRESS && from->at[0].kind == VALUE_REGISTER && !from->coordinates) { /* which holds a parameter's place */
    made->sub = 1;
    made->code = SIM_ld_param;
    made->imm = from->offset;
    made->uses = 1 << 4;
    STATUS_TRY(decode_value(decoder, &from->at[0], SIM_TYPE_u64, &made->arg[4]));
    STATUS_TRY(load_results(decoder, &s->operand[0], made));
    *decode_push(decoder, SIM_ld_param) = *made;
    return STATUS_OK;
  }
  if (from->kind != OPERAND_ADDRESS || from->at[0].kind != VALUE_PARAM)
    return decode_fail(decoder, "%s needs the name of a parameter", s->op);
  int64_t at = (int64_t)from->at[0].bits, bytes = made->size * made->count;
  if (from->offset < 0 || from->offset > decoder->kernel->param_bytes ||
      at + from->offset + bytes > decoder->kernel->param_bytes || (at + from->offset) % made->size)
    return decode_fail(decoder, "%s reads outside of the parameters", s->op);
  made->imm = at + from->offset;
  made->code = SIM_ld_param;
  STATUS_TRY(load_results(decoder, &s->operand[0], made));
  *decode_push(decoder, SIM_ld_param) = *made;
  return STATUS_OK;
}

static Status decode_load_store(Decoder *decoder, const PtxStatement *s, const char *words,
                                bool is_store, bool *is_known) {
  SimSpace space = SPACE_GENERIC;
  SimInst made = {.line = s->line, .count = 1, .is_store = is_store};
  int bytes = 0;
  Kind kind = KIND_UNSIGNED;
  char word[24];
  bool is_narrow;
  while (decode_word(&words, word)) {
    if (!strcmp(word, "nc")) made.mode = 1;
    if (!strcmp(word, "v2") || !strcmp(word, "v4"))
      made.count = (uint8_t)(word[1] - '0');
    else if (!decode_find_space(word, &space) && !find_type(word, &bytes, &kind) && !is_hint(word))
      return STATUS_OK;
  }
  if (!bytes || (is_store && (space == SPACE_PARAM || space == SPACE_CONST))) return STATUS_OK;
  *is_known = true;
  made.size = (uint8_t)bytes;
  made.is_signed = kind == KIND_SIGNED;
  made.space = (uint8_t)space;
  const PtxOperand *data = &s->operand[is_store];
  bool is_vector = data->kind == OPERAND_VECTOR, fits = is_vector || (data->kind == OPERAND_PLAIN && made.count == 1);
  if (s->count != 2 || !fits ||
      data->count != made.count || data->is_negated || data->has_second || bytes * made.count > 16)
    return decode_fail(decoder, "%s: operands that it does not take", s->op);
  if (space == SPACE_PARAM) return decode_param(decoder, s, &made);
  STATUS_TRY(
      decode_address(decoder, &s->operand[!is_store], space, &made.arg[4], &is_narrow, &made.imm));
  made.sub = is_narrow;
  made.uses = 1 << 4;
  if (is_store)
    STATUS_TRY(store_sources(decoder, data, &made));
  else
    STATUS_TRY(load_results(decoder, data, &made));
  SimCode code = space == SPACE_LOCAL     ? (is_store ? SIM_st_local : SIM_ld_local)
                 : space == SPACE_GENERIC ? (is_store ? SIM_st_generic : SIM_ld_generic)
                                          : (is_store ? SIM_st : SIM_ld);
  made.code = (uint16_t)code;
  *decode_push(decoder, code) = made;
  return STATUS_OK;
}

/* ── atom and red ─────────────────────────────────────────────────────────────────────────── */
static bool find_atom(const char *word, SimAtom *out) {
  static const char *const words[] = {"add", "min", "max", "inc",  "dec",
                                      "and", "or",  "xor", "exch", "cas"};
  for (int i = 0; i < (int)(sizeof words / sizeof *words); i++)
    if (!strcmp(word, words[i])) {
      *out = (SimAtom)i;
      return true;
    }
  return false;
}

static Status decode_atom(Decoder *decoder, const PtxStatement *s, const char *words, bool is_red,
                          bool *is_known) {
  SimSpace space = SPACE_GENERIC;
  SimAtom atom = ATOM_ADD;
  int bytes = 0, found = 0;
  Kind kind = KIND_UNSIGNED;
  char word[24];
  while (decode_word(&words, word)) {
    if (find_atom(word, &atom))
      found++;
    else if (!decode_find_space(word, &space) && !find_type(word, &bytes, &kind) && !is_hint(word))
      return STATUS_OK;
  }
  bool is_float_op = atom == ATOM_ADD || atom == ATOM_EXCH;
  if (found != 1 || bytes < 4 || (kind == KIND_FLOAT && !is_float_op) || space == SPACE_LOCAL ||
      strstr(s->op, "x2") || space == SPACE_CONST || space == SPACE_PARAM)
    return STATUS_OK;
  *is_known = true;
  SimInst made = {.code = SIM_atom,
                  .line = s->line,
                  .size = (uint8_t)bytes,
                  .count = (uint8_t)kind,
                  .space = (uint8_t)space,
                  .mode = (uint8_t)atom,
                  .is_wide = bytes == 8};
  SimType type =
      kind == KIND_FLOAT ? (bytes == 8 ? SIM_TYPE_f64 : SIM_TYPE_f32) : decode_type(bytes);
  int first = is_red ? 0 : 1, operands = first + 2 + (atom == ATOM_CAS);
  bool is_narrow;
  if (s->count != operands) return decode_fail(decoder, "%s takes %d operands", s->op, operands);
  const PtxValue sink = {.kind = VALUE_SINK};
  for (int i = 0; i < operands; i++)
    if (i != first && (s->operand[i].kind != OPERAND_PLAIN || s->operand[i].is_negated))
      return decode_fail(decoder, "%s: operand %d has a form that it does not take", s->op, i + 1);
  STATUS_TRY(decode_result(decoder, is_red ? &sink : &s->operand[0].at[0], decode_class(type),
                           &made.arg[0]));
  STATUS_TRY(
      decode_address(decoder, &s->operand[first], space, &made.arg[1], &is_narrow, &made.imm));
  made.arg[3] = 0;
  for (int i = 0; i < operands - first - 1; i++)
    STATUS_TRY(decode_value(decoder, &s->operand[first + 1 + i].at[0], type, &made.arg[2 + i]));
  made.sub = is_narrow;
  made.defs = 1;
  made.uses = atom == ATOM_CAS ? 14 : 6;
  *decode_push(decoder, SIM_atom) = made;
  return STATUS_OK;
}

Status decode_memory(Decoder *decoder, const PtxStatement *s, bool *is_known) {
  if (!strncmp(s->op, "ld.", 3)) return decode_load_store(decoder, s, s->op + 3, false, is_known);
  if (!strncmp(s->op, "st.", 3)) return decode_load_store(decoder, s, s->op + 3, true, is_known);
  if (!strncmp(s->op, "atom.", 5)) return decode_atom(decoder, s, s->op + 5, false, is_known);
  if (!strncmp(s->op, "red.", 4)) return decode_atom(decoder, s, s->op + 4, true, is_known);
  if (!strncmp(s->op, "membar.", 7) || !strncmp(s->op, "prefetch.", 9) ||
      (!strncmp(s->op, "fence.", 6) && !strstr(s->op, "proxy.async") &&
       !strstr(s->op, "mbarrier_init"))) {
    *is_known = true;
    decode_push(decoder, SIM_nothing);
  }
  return STATUS_OK;
}

/* ── cp.async ─────────────────────────────────────────────────────────────────────────────── */
static Status decode_copy(Decoder *decoder, const PtxStatement *s, const char *words) {
  char word[24];
  SimInst made = {.code = SIM_cp_async, .line = s->line, .uses = 7};
  bool is_narrow, is_from_narrow;
  int64_t from_offset;
  bool ok = decode_word(&words, word) && (!strcmp(word, "ca") || !strcmp(word, "cg"));
  bool is_cg = ok && word[1] == 'g';
  ok = ok && decode_word(&words, word) && (!strcmp(word, "shared") || !strcmp(word, "shared::cta"));
  ok = ok && decode_word(&words, word) && !strcmp(word, "global");
  while (ok && decode_word(&words, word)) ok = is_hint(word);
  if (!ok) return decode_fail(decoder, "unsupported instruction %s", s->op);
  if (s->count < 3 || s->count > 4 || s->operand[2].at[0].kind != VALUE_INT ||
      s->operand[2].kind != OPERAND_PLAIN)
    return decode_fail(decoder, "%s takes two addresses and a number of bytes", s->op);
  uint64_t bytes = s->operand[2].at[0].bits;
  if (!(bytes == 16 || (!is_cg && (bytes == 4 || bytes == 8))))
    return decode_fail(decoder, "%s cannot copy %llu bytes", s->op, (unsigned long long)bytes);
  made.size = (uint8_t)bytes;
  STATUS_TRY(
      decode_address(decoder, &s->operand[0], SPACE_SHARED, &made.arg[0], &is_narrow, &made.imm));
  made.sub = is_narrow;
  STATUS_TRY(decode_address(decoder, &s->operand[1], SPACE_GLOBAL, &made.arg[1], &is_from_narrow,
                            &from_offset));
  if (from_offset) {
    int32_t sum = decode_register(decoder, CLASS_64), base = made.arg[1];
    SimInst *add = decode_unary(decoder, SIM_add_b64, sum, base);
    add->arg[2] = decode_constant(decoder, (uint64_t)from_offset, true);
    add->uses = 6;
    made.arg[1] = sum;
  }
  if (s->count == 4) {
    if (s->operand[3].kind != OPERAND_PLAIN || s->operand[3].is_negated)
      return decode_fail(decoder, "%s: operand 4 has a form that it does not take", s->op);
    STATUS_TRY(decode_value(decoder, &s->operand[3].at[0], SIM_TYPE_u32, &made.arg[2]));
  } else {
    made.arg[2] = decode_constant(decoder, bytes, false);
  }
  *decode_push(decoder, SIM_cp_async) = made;
  return STATUS_OK;
}

Status decode_async(Decoder *decoder, const PtxStatement *s, bool *is_known) {
  if (strncmp(s->op, "cp.async.", 9) != 0) return STATUS_OK;
  const char *what = s->op + 9;
  bool is_wait = !strcmp(what, "wait_group"), is_all = !strcmp(what, "wait_all");
  bool is_commit = !strcmp(what, "commit_group");
  if (!is_wait && !is_all && !is_commit && strncmp(what, "ca.", 3) && strncmp(what, "cg.", 3))
    return STATUS_OK;
  *is_known = true;
  if (!is_wait && !is_all && !is_commit) return decode_copy(decoder, s, what);
  if (s->count != is_wait ||
      (is_wait && (s->operand[0].kind != OPERAND_PLAIN || s->operand[0].at[0].kind != VALUE_INT ||
                   s->operand[0].at[0].bits > 1000)))
    return decode_fail(decoder, "%s: operands that it does not take", s->op);
  /* wait_all is a commit and a wait for every group */
  SimInst *inst = decode_push(decoder, is_commit ? SIM_cp_commit : SIM_cp_wait);
  inst->imm = is_wait ? (int64_t)s->operand[0].at[0].bits : 0;
  inst->mode = is_all;
  return STATUS_OK;
}
