/* sim_decode: PTX statements -> instructions with virtual registers: what all of them share, jumps,
 * guards, and moves of halves. What no decoder knows is refused by name. */
#include "runtime/device/sim/sim_text.h"
#include <stdio.h>
#include <string.h>

static const uint8_t type_bytes_of[] = {
#define X(name, bytes, lane) bytes,
    SIM_TYPES(X)
#undef X
};

Status sim_fail_at(const SimModule *module, int line, const char *format, va_list args) {
  char text[512];
  vsnprintf(text, sizeof text, format, args);
  return status_fail(STATUS_USER, "%s:%d: %s", module->path, line, text);
}

Status decode_fail(const Decoder *decoder, const char *format, ...) {
  va_list args;
  va_start(args, format);
  Status status = sim_fail_at(decoder->module, decoder->line, format, args);
  va_end(args);
  return status;
}

void decode_begin(Decoder *decoder, SimModule *module, Arena *scratch) {
  *decoder = (Decoder){.module = module, .scratch = scratch};
  decode_point_begin(decoder);
}

void decode_kernel(Decoder *decoder, SimKernel *kernel, int line) {
  decoder->line = line;
  decoder->kernel = kernel;
  for (int i = 0; i < CLASS_COUNT; i++) decoder->sink[i] = -1;
  decoder->constant_table.count = 0;
  decode_block(decoder);
}

/* ── pieces of a kernel ───────────────────────────────────────────────────────────────────── */
int decode_register(Decoder *decoder, SimClass class) {
  SimKernel *kernel = decoder->kernel;
  VEC_PUSH(decoder->module->arena, kernel->classes, (uint8_t)class);
  return kernel->classes.count - 1;
}

static int *constant_slot(Decoder *decoder, uint64_t bits, bool is_wide) {
  uint64_t hash = (bits ^ bits >> 29) * UINT64_C(0x9e3779b97f4a7c15) + is_wide;
  uint32_t mask = (uint32_t)decoder->constant_table.count - 1;
  for (uint32_t i = (uint32_t)(hash >> 33);; i++) {
    int *slot = &decoder->constant_table.at[i & mask];
    const SimConstant *found = *slot < 0 ? NULL : &decoder->kernel->constants.at[*slot];
    if (!found || (found->bits == bits && found->is_wide == is_wide)) return slot;
  }
}

/* The table is a power of two, at most half full. */
static void grow_constants(Decoder *decoder) {
  int count = decoder->constant_table.count ? decoder->constant_table.count * 2 : 64;
  decoder->constant_table.count = 0;
  for (int i = 0; i < count; i++) VEC_PUSH(decoder->scratch, decoder->constant_table, -1);
  for (int i = 0; i < decoder->kernel->constants.count; i++) {
    const SimConstant *constant = &decoder->kernel->constants.at[i];
    *constant_slot(decoder, constant->bits, constant->is_wide) = i;
  }
}

int decode_constant(Decoder *decoder, uint64_t bits, bool is_wide) {
  SimKernel *kernel = decoder->kernel;
  if (kernel->constants.count * 2 >= decoder->constant_table.count) grow_constants(decoder);
  int *slot = constant_slot(decoder, bits, is_wide);
  if (*slot < 0) {
    VEC_PUSH(decoder->module->arena, kernel->constants, ((SimConstant){bits, is_wide}));
    *slot = kernel->constants.count - 1;
  }
  return -1 - *slot;
}

SimInst *decode_push(Decoder *decoder, SimCode code) {
  SimKernel *kernel = decoder->kernel;
  VEC_PUSH(decoder->module->arena, kernel->code,
           ((SimInst){.code = (uint16_t)code, .line = decoder->line}));
  return &kernel->code.at[kernel->code.count - 1];
}

void decode_block(Decoder *decoder) {
  SimKernel *kernel = decoder->kernel;
  if (kernel->code.count && kernel->code.at[kernel->code.count - 1].code == SIM_block) return;
  decode_push(decoder, SIM_block);
}

void decode_end(Decoder *decoder) {
  decode_block(decoder);
  decode_push(decoder, SIM_end);
}

/* ── operands ─────────────────────────────────────────────────────────────────────────────── */
SimClass decode_class(SimType type) {
  if (type == SIM_TYPE_pred) return CLASS_PRED;
  int bytes = type_bytes_of[type];
  return bytes == 8 ? CLASS_64 : bytes == 2 ? CLASS_16 : CLASS_32;
}

SimInst *decode_unary(Decoder *decoder, SimCode code, int32_t to, int32_t from) {
  SimInst *inst = decode_push(decoder, code);
  inst->arg[0] = to;
  inst->arg[1] = from;
  inst->defs = 1;
  inst->uses = 2;
  return inst;
}

SimInst *decode_binary(Decoder *decoder, SimCode code, int32_t to, int32_t a, int32_t b) {
  SimInst *inst = decode_unary(decoder, code, to, a);
  inst->arg[2] = b;
  inst->uses = 6;
  return inst;
}

static Status dynamic_address(Decoder *decoder, const PtxValue *value, SimType type, int32_t *arg) {
  *arg = value->index;
  if (type_bytes_of[type] == 8) {
    *arg = decode_register(decoder, CLASS_64);
    decode_unary(decoder, SIM_cvt_u64_u32, *arg, value->index);
  }
  return STATUS_OK;
}

static const char *class_text(int class) {
  static const char *const texts[] = {"predicate", "16-bit", "32-bit", "64-bit", "8-bit"};
  return texts[class];
}

Status decode_value(Decoder *decoder, const PtxValue *value, SimType type, int32_t *arg) {
  SimClass class = decode_class(type);
  int bytes = type_bytes_of[type];
  bool is_wide = bytes == 8;
  switch (value->kind) {
  case VALUE_REGISTER:
    if (decoder->kernel->classes.at[value->index] != class)
      return decode_fail(decoder, "a %s register where a %s one belongs",
                         class_text(decoder->kernel->classes.at[value->index]), class_text(class));
    *arg = value->index;
    return STATUS_OK;
  case VALUE_INT:
    if (class == CLASS_PRED) {
      *arg = decode_constant(decoder, value->bits ? 0xffffffff : 0, false);
      return STATUS_OK;
    }
    if (type == SIM_TYPE_f32 || type == SIM_TYPE_f64)
      return decode_fail(decoder, "a whole number where 0f or 0d and bits belong");
    *arg = decode_constant(
        decoder, is_wide ? value->bits : value->bits & (bytes == 2 ? 0xffff : 0xffffffff), is_wide);
    return STATUS_OK;
  case VALUE_F32:
  case VALUE_F64:
    if (class != (value->kind == VALUE_F32 ? CLASS_32 : CLASS_64))
      return decode_fail(decoder, "a floating-point number of the wrong size");
    *arg = decode_constant(decoder, value->bits, is_wide);
    return STATUS_OK;
  case VALUE_SHARED:
  case VALUE_LOCAL:
  case VALUE_PARAM:
  case VALUE_GLOBAL:
    if (class != CLASS_64 && (class != CLASS_32 || value->kind == VALUE_GLOBAL))
      return decode_fail(decoder, "an address does not fit here");
    *arg = decode_constant(decoder, value->bits, is_wide);
    return STATUS_OK;
  case VALUE_DYNAMIC:
    if (class != CLASS_64 && class != CLASS_32)
      return decode_fail(decoder, "an address does not fit here");
    return dynamic_address(decoder, value, type, arg);
  default:
    return decode_fail(decoder, "a register or a number belongs here");
  }
}

/* Where a result goes. */
Status decode_result(Decoder *decoder, const PtxValue *value, SimClass class, int32_t *arg) {
  if (value->kind == VALUE_SINK) {
    if (decoder->sink[class] < 0) decoder->sink[class] = decode_register(decoder, class);
    *arg = decoder->sink[class];
    return STATUS_OK;
  }
  if (value->kind != VALUE_REGISTER) return decode_fail(decoder, "the result needs a register");
  if (decoder->kernel->classes.at[value->index] != class)
    return decode_fail(decoder, "a %s register where a %s one belongs",
                       class_text(decoder->kernel->classes.at[value->index]), class_text(class));
  *arg = value->index;
  return STATUS_OK;
}
bool decode_word(const char **at, char word[24]) {
  size_t length = strcspn(*at, ".");
  if (!**at) return false;
  snprintf(word, 24, "%.*s", (int)length, *at);
  *at += length + ((*at)[length] == '.');
  return true;
}
/* ── moves that are no pointwise ones ─────────────────────────────────────────────────────── */
/* mov.b64 %rd1, {%r1, %r2} and its kin: the low half comes first. */
static Status decode_halves(Decoder *decoder, const PtxStatement *s, bool *is_known) {
  if (strncmp(s->op, "mov.b", 5) != 0 || s->count != 2) return STATUS_OK;
  bool joins = s->operand[1].kind == OPERAND_VECTOR, splits = s->operand[0].kind == OPERAND_VECTOR;
  int bits = !strcmp(s->op, "mov.b64") ? 64 : !strcmp(s->op, "mov.b32") ? 32 : 0;
  if (joins == splits || !bits) return STATUS_OK;
  *is_known = true;
  const PtxOperand *vector = &s->operand[joins], *whole = &s->operand[!joins];
  if (vector->count != 2 || whole->kind != OPERAND_PLAIN || whole->is_negated || whole->has_second)
    return decode_fail(decoder, "%s: two halves and a whole belong here", s->op);
  SimType half = bits == 64 ? SIM_TYPE_u32 : SIM_TYPE_u16;
  SimType full = bits == 64 ? SIM_TYPE_u64 : SIM_TYPE_u32;
  SimInst made = {.line = s->line};
  if (joins) {
    made.code = bits == 64 ? SIM_join64 : SIM_join32;
    STATUS_TRY(decode_result(decoder, &whole->at[0], decode_class(full), &made.arg[0]));
    for (int i = 0; i < 2; i++)
      STATUS_TRY(decode_value(decoder, &vector->at[i], half, &made.arg[1 + i]));
    made.defs = 1, made.uses = 6;
  } else {
    made.code = bits == 64 ? SIM_split64 : SIM_split32;
    for (int i = 0; i < 2; i++)
      STATUS_TRY(decode_result(decoder, &vector->at[i], decode_class(half), &made.arg[i]));
    STATUS_TRY(decode_value(decoder, &whole->at[0], full, &made.arg[2]));
    made.defs = 3, made.uses = 4;
  }
  *decode_push(decoder, made.code) = made;
  return STATUS_OK;
}

/* Global addresses are generic ones as they are; the others get their window. */
static Status decode_cvta(Decoder *decoder, const PtxStatement *s, bool *is_known) {
  if (strncmp(s->op, "cvta.", 5) != 0) return STATUS_OK;
  bool to = !strncmp(s->op + 5, "to.", 3);
  char space[24];
  const char *at = s->op + (to ? 8 : 5);
  int32_t result, source;
  if (!decode_word(&at, space) || strcmp(at, "u64") != 0) return STATUS_OK;
  bool is_global = !strcmp(space, "global") || !strcmp(space, "const");
  bool is_shared = !strcmp(space, "shared"), is_local = !strcmp(space, "local");
  bool is_param = !strcmp(space, "param") && !to;
  if (!is_global && !is_shared && !is_local && !is_param) return STATUS_OK;
  *is_known = true;
  if (s->count != 2 || s->operand[0].kind != OPERAND_PLAIN || s->operand[1].kind != OPERAND_PLAIN)
    return decode_fail(decoder, "%s takes 2 operands", s->op);
  STATUS_TRY(decode_result(decoder, &s->operand[0].at[0], CLASS_64, &result));
  STATUS_TRY(decode_value(decoder, &s->operand[1].at[0], SIM_TYPE_u64, &source));
  uint64_t window = is_shared ? SIM_SHARED_WINDOW : is_param ? SIM_PARAM_WINDOW : SIM_LOCAL_WINDOW;
  if (is_global)
    decode_unary(decoder, SIM_mov_b64, result, source);
  else
    decode_binary(decoder, to ? SIM_sub_b64 : SIM_add_b64, result, source,
                  decode_constant(decoder, window, true));
  return STATUS_OK;
}

/* ── jumps and guards ─────────────────────────────────────────────────────────────────────── */
/* Jumps inside of the decoder: -1 is the end, -2 - index an instruction; others are numbers of the
 * parser. */
static Status decode_jump(Decoder *decoder, const PtxStatement *s, bool *is_known) {
  bool is_end = !strcmp(s->op, "ret") || !strcmp(s->op, "exit") || !strcmp(s->op, "ret.uni");
  if (!is_end && strcmp(s->op, "bra") != 0 && strcmp(s->op, "bra.uni") != 0) return STATUS_OK;
  *is_known = true;
  if (s->count != !is_end ||
      (!is_end && (s->operand[0].kind != OPERAND_PLAIN || s->operand[0].at[0].kind != VALUE_LABEL)))
    return decode_fail(decoder, "%s needs a label", s->op);
  SimInst *inst = decode_push(decoder, s->guard >= 0 ? SIM_bra_if : SIM_bra);
  inst->imm = is_end ? -1 : s->operand[0].at[0].index;
  if (s->guard >= 0) {
    inst->arg[0] = s->guard;
    inst->sub = s->guard_negated;
    inst->uses = 1;
  }
  decode_block(decoder);
  return STATUS_OK;
}

/* One pointwise or memory instruction gets a guard before it; several, or one that wants the whole
 * warp, are jumped over. */
static void decode_guard(Decoder *decoder, const PtxStatement *s, int first) {
  SimKernel *kernel = decoder->kernel;
  int count = kernel->code.count - first;
  bool is_single = count == 1;
  for (int i = first; i < kernel->code.count; i++) {
    int code = kernel->code.at[i].code;
    is_single &= code == SIM_ld || code == SIM_st || code == SIM_ld_param || code == SIM_atom ||
                 code == SIM_cp_async || code > SIM_mma;
  }
  if (!count) return;
  if (!is_single) decode_push(decoder, SIM_nothing);
  decode_push(decoder, SIM_nothing);
  int moved = is_single ? 1 : 2;
  SimInst *code = kernel->code.at;
  for (int i = kernel->code.count - 1; i >= first + moved; i--) code[i] = code[i - moved];
  code[first] = (SimInst){.code = is_single ? SIM_guard : SIM_bra_if, .line = s->line, .uses = 1};
  code[first].arg[0] = s->guard;
  code[first].sub = is_single ? s->guard_negated : !s->guard_negated;
  if (is_single) return;
  code[first + 1] = (SimInst){.code = SIM_block, .line = s->line};
  for (int i = first + 2; i < kernel->code.count; i++)
    if (code[i].code == SIM_bra_if && code[i].imm <= -2) code[i].imm -= moved;
  decode_block(decoder);
  kernel->code.at[first].imm = -2 - (kernel->code.count - 1);
}

bool decode_knows(const char *op) {
  static const char *const others[] = {
      "bra",    "ret",   "exit",     "trap",       "bar",   "barrier",    "ld",
      "st",     "atom",  "red",      "cp",         "shfl",  "vote",       "redux",
      "mma",    "cvta",  "wgmma",    "mbarrier",   "elect", "setmaxnreg", "griddepcontrol", "ldmatrix",
      "membar", "fence", "prefetch", "activemask", "mad",   NULL};
  size_t length = strcspn(op, ".");
  if (decode_point_knows(op, length)) return true;
  for (int i = 0; others[i]; i++)
    if (!strncmp(others[i], op, length) && !others[i][length]) return true;
  return false;
}

Status decode_statement(Decoder *decoder, const PtxStatement *s) {
  static Status (*const decoders[])(Decoder *, const PtxStatement *, bool *) = {
      decode_pointwise, decode_memory, decode_async,  decode_hopper,
      decode_warp,      decode_setp,   decode_halves, decode_cvta};
  bool is_known = false;
  decoder->line = s->line;
  int first = decoder->kernel->code.count;
  STATUS_TRY(decode_jump(decoder, s, &is_known));
  if (is_known) return STATUS_OK;
  for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++) {
    bool is_vector_move =
        i == 0 && (s->operand[0].kind == OPERAND_VECTOR || s->operand[1].kind == OPERAND_VECTOR);
    if (is_vector_move) continue;
    STATUS_TRY(decoders[i](decoder, s, &is_known));
    if (!is_known) continue;
    if (s->guard >= 0) decode_guard(decoder, s, first);
    return STATUS_OK;
  }
  return decode_fail(decoder, "unsupported instruction %s", s->op);
}
