/* csource_instruction: LLVM's instructions as statements of C. What works on vectors is a loop over the lanes of
 * the same expression. */
#include "codegen/csource_private.h"
#include <string.h>

bool csource_is_local(LLVMValueRef instruction) {
  LLVMBasicBlockRef block = LLVMGetInstructionParent(instruction);
  for (LLVMUseRef use = LLVMGetFirstUse(instruction); use; use = LLVMGetNextUse(use)) {
    LLVMValueRef user = LLVMGetUser(use);
    if (!LLVMIsAPHINode(user)) {
      if (LLVMGetInstructionParent(user) != block) return false;
      continue;
    }
    for (unsigned i = 0; i < LLVMCountIncoming(user); i++) /* a phi reads at the end of where its value comes from */
      if (LLVMGetIncomingValue(user, i) == instruction && LLVMGetIncomingBlock(user, i) != block) return false;
  }
  return true;
}

void csource_target(CSource *c, LLVMValueRef instruction, bool without_value) {
  bool is_local = csource_is_local(instruction);
  const char *name = csource_name(instruction), *type = csource_type(c, LLVMTypeOf(instruction));
  const char *space = type[strlen(type) - 1] == '*' ? "" : " ";
  if (!is_local) text_printf(c->declared, "  %s%s%s;\n", type, space, name);
  if (is_local)
    text_printf(c->code, without_value ? "    %s%s%s;\n" : "    %s%s%s = ", type, space, name);
  else if (!without_value)
    text_printf(c->code, "    %s = ", name);
}

void csource_set(CSource *c, LLVMValueRef instruction, const char *expression) {
  LLVMTypeRef type = LLVMTypeOf(instruction);
  bool is_vector = csource_is_vector(type);
  csource_target(c, instruction, is_vector);
  if (is_vector)
    text_printf(c->code, "    for (int i = 0; i < %u; i++) %s.v[i] = ", csource_lanes(type), csource_name(instruction));
  text_printf(c->code, "%s;\n", expression);
}

/* The number of bits to shift by, which C must not see beyond the width. */
static const char *shift_count(CSource *c, LLVMValueRef instruction, const char *b, unsigned width) {
  LLVMValueRef count = LLVMGetOperand(instruction, 1);
  if (LLVMIsAConstantInt(count) && LLVMConstIntGetZExtValue(count) < width) return b;
  return arena_printf(c->arena, "(%s & %uu)", b, width - 1);
}

/* ── arithmetic ─────────────────────────────────────────────────────────────────────────────── */
static const char *float_arithmetic(CSource *c, LLVMValueRef instruction, const char *a, const char *b) {
  LLVMTypeKind kind = LLVMGetTypeKind(csource_element(LLVMTypeOf(instruction)));
  if (kind != LLVMFloatTypeKind && kind != LLVMDoubleTypeKind) return csource_refuse(c, "arithmetic of", "half");
  switch (LLVMGetInstructionOpcode(instruction)) {
  case LLVMFAdd:
    return arena_printf(c->arena, "%s + %s", a, b);
  case LLVMFSub:
    return arena_printf(c->arena, "%s - %s", a, b);
  case LLVMFMul:
    return arena_printf(c->arena, "%s * %s", a, b);
  case LLVMFDiv:
    return arena_printf(c->arena, "%s / %s", a, b);
  default:
    return arena_printf(c->arena, "%s(%s, %s)", kind == LLVMFloatTypeKind ? "fmodf" : "fmod", a, b);
  }
}

/* Computed without a sign in at least 32 bits, then cut: C's int never overflows. */
static const char *integer_arithmetic(CSource *c, LLVMValueRef instruction, const char *a, const char *b) {
  LLVMTypeRef type = csource_element(LLVMTypeOf(instruction));
  unsigned width = csource_width(type);
  const char *to = csource_type(c, type), *in = csource_computed(c, type), *sign = csource_signed(c, type);
  const char *mask = width == 1 ? " & 1u" : "", *op;
  switch (LLVMGetInstructionOpcode(instruction)) {
  case LLVMAdd:
    op = "+";
    break;
  case LLVMSub:
    op = "-";
    break;
  case LLVMMul:
    op = "*";
    break;
  case LLVMAnd:
    op = "&";
    break;
  case LLVMOr: /* of bits that do not meet: compilers know addresses by their sums */
    op = LLVMGetIsDisjoint(instruction) ? "+" : "|";
    break;
  case LLVMXor:
    op = "^";
    break;
  case LLVMUDiv:
    op = "/";
    break;
  case LLVMURem:
    op = "%";
    break;
  case LLVMShl:
    return arena_printf(c->arena, "(%s)((%s)%s << %s%s)", to, in, a, shift_count(c, instruction, b, width), mask);
  case LLVMLShr:
    return arena_printf(c->arena, "(%s)(%s >> %s)", to, a, shift_count(c, instruction, b, width));
  case LLVMAShr:
    if (width == 1) return a;
    return arena_printf(c->arena, "(%s)((%s)%s >> %s)", to, sign, a, shift_count(c, instruction, b, width));
  case LLVMSDiv:
  case LLVMSRem:
    if (width == 1) return csource_refuse(c, "a signed division of", "one bit");
    return arena_printf(c->arena, "(%s)((%s)%s %s (%s)%s)", to, sign, a,
                        LLVMGetInstructionOpcode(instruction) == LLVMSDiv ? "/" : "%", sign, b);
  default:
    return csource_refuse(c, "the operation", "of this number");
  }
  if (width >= 32) return arena_printf(c->arena, "%s %s %s", a, op, b);
  return arena_printf(c->arena, "(%s)(((%s)%s %s %s)%s)", to, in, a, op, b, mask);
}

static const char *integer_comparison(CSource *c, LLVMValueRef instruction, const char *a, const char *b) {
  LLVMTypeRef type = csource_element(LLVMTypeOf(LLVMGetOperand(instruction, 0)));
  bool is_pointer = LLVMGetTypeKind(type) == LLVMPointerTypeKind;
  const char *sign = is_pointer ? "intptr_t" : csource_signed(c, type), *plain = is_pointer ? "(uintptr_t)" : "";
  static const char *const op[] = {"==", "!=", ">", ">=", "<", "<=", ">", ">=", "<", "<="};
  LLVMIntPredicate predicate = LLVMGetICmpPredicate(instruction);
  const char *text = op[predicate - LLVMIntEQ];
  if (predicate <= LLVMIntNE) return arena_printf(c->arena, "%s %s %s", a, text, b);
  if (predicate <= LLVMIntULE) return arena_printf(c->arena, "%s%s %s %s%s", plain, a, text, plain, b);
  if (csource_width(type) == 1) return csource_refuse(c, "a signed comparison of", "one bit");
  return arena_printf(c->arena, "(%s)%s %s (%s)%s", sign, a, text, sign, b);
}

static const char *float_comparison(CSource *c, LLVMValueRef instruction, const char *a, const char *b) {
  static const struct {
    const char *op;
    bool is_not; /* of the ordered opposite: true where one is NaN */
  } rows[] = {[LLVMRealOEQ] = {"==", false}, [LLVMRealOGT] = {">", false},  [LLVMRealOGE] = {">=", false},
              [LLVMRealOLT] = {"<", false},  [LLVMRealOLE] = {"<=", false}, [LLVMRealUNE] = {"!=", false},
              [LLVMRealUGT] = {"<=", true},  [LLVMRealUGE] = {"<", true},   [LLVMRealULT] = {">=", true},
              [LLVMRealULE] = {">", true}};
  LLVMRealPredicate predicate = LLVMGetFCmpPredicate(instruction);
  if (LLVMGetTypeKind(csource_element(LLVMTypeOf(LLVMGetOperand(instruction, 0)))) == LLVMHalfTypeKind)
    return csource_refuse(c, "a comparison of", "half");
  switch (predicate) {
  case LLVMRealPredicateFalse:
    return "0";
  case LLVMRealPredicateTrue:
    return "1";
  case LLVMRealORD:
    return arena_printf(c->arena, "%s == %s && %s == %s", a, a, b, b);
  case LLVMRealUNO:
    return arena_printf(c->arena, "%s != %s || %s != %s", a, a, b, b);
  case LLVMRealONE:
    return arena_printf(c->arena, "%s < %s || %s > %s", a, b, a, b);
  case LLVMRealUEQ:
    return arena_printf(c->arena, "!(%s < %s || %s > %s)", a, b, a, b);
  default:
    return arena_printf(c->arena, rows[predicate].is_not ? "!(%s %s %s)" : "%s %s %s", a, rows[predicate].op, b);
  }
}

/* ── conversions ────────────────────────────────────────────────────────────────────────────── */
static const char *to_integer(CSource *c, LLVMTypeRef from, LLVMTypeRef to, bool is_signed, const char *a) {
  const char *name = arena_printf(c->arena, "ft_%s_to_%c%d", csource_short(c, from), is_signed ? 's' : 'u',
                                  csource_width(to) > 32 ? 64 : 32);
  return arena_printf(c->arena, "(%s)%s(%s)", csource_type(c, to), csource_helper(c, name), a);
}

static const char *extended(CSource *c, LLVMTypeRef from, LLVMTypeRef to, const char *a) {
  const char *type = csource_type(c, to), *in = csource_computed(c, to);
  if (csource_width(from) == 1) return arena_printf(c->arena, "(%s)((%s)0 - (%s)%s)", type, in, in, a);
  return arena_printf(c->arena, "(%s)(%s)(%s)%s", type, csource_signed(c, to), csource_signed(c, from), a);
}

static const char *float_cast(CSource *c, LLVMTypeRef from, LLVMTypeRef to, const char *a) {
  LLVMTypeKind source = LLVMGetTypeKind(from), target = LLVMGetTypeKind(to);
  if (source == LLVMHalfTypeKind) return arena_printf(c->arena, "%s(%s)", csource_helper(c, "ft_f16_f32"), a);
  if (target == LLVMHalfTypeKind && source == LLVMFloatTypeKind)
    return arena_printf(c->arena, "%s(%s)", csource_helper(c, "ft_f32_f16"), a);
  if (target == LLVMHalfTypeKind) return csource_refuse(c, "a conversion of double to", "half");
  return arena_printf(c->arena, "(%s)%s", csource_type(c, to), a);
}

static const char *bit_cast(CSource *c, LLVMTypeRef from, LLVMTypeRef to, const char *a) {
  const char *source = csource_short(c, from), *target = csource_short(c, to);
  if (!strcmp(source, target)) return a;
  const char *name = *source == 'u' ? arena_printf(c->arena, "ft_bits_%s", target)
                                    : arena_printf(c->arena, "ft_%s_bits", source);
  return arena_printf(c->arena, "%s(%s)", csource_helper(c, name), a);
}

static const char *conversion(CSource *c, LLVMValueRef instruction, const char *a) {
  LLVMTypeRef to = csource_element(LLVMTypeOf(instruction));
  LLVMTypeRef from = csource_element(LLVMTypeOf(LLVMGetOperand(instruction, 0)));
  const char *type = csource_type(c, to);
  switch (LLVMGetInstructionOpcode(instruction)) {
  case LLVMTrunc:
    return arena_printf(c->arena, csource_width(to) == 1 ? "(%s)(%s & 1u)" : "(%s)%s", type, a);
  case LLVMZExt:
  case LLVMUIToFP:
    return arena_printf(c->arena, "(%s)%s", type, a);
  case LLVMSExt:
    return extended(c, from, to, a);
  case LLVMSIToFP:
    if (csource_width(from) == 1) return arena_printf(c->arena, "-(%s)%s", type, a);
    return arena_printf(c->arena, "(%s)(%s)%s", type, csource_signed(c, from), a);
  case LLVMFPToSI:
  case LLVMFPToUI:
    return to_integer(c, from, to, LLVMGetInstructionOpcode(instruction) == LLVMFPToSI, a);
  case LLVMFPExt:
  case LLVMFPTrunc:
    return float_cast(c, from, to, a);
  case LLVMPtrToInt:
    return arena_printf(c->arena, "(%s)(uintptr_t)%s", type, a);
  case LLVMIntToPtr:
    return arena_printf(c->arena, "(char *)(uintptr_t)%s", a);
  default:
    return bit_cast(c, from, to, a);
  }
}

/* ── memory ─────────────────────────────────────────────────────────────────────────────────── */
static bool is_plain_access(CSource *c, LLVMValueRef instruction) {
  if (!LLVMGetVolatile(instruction) && LLVMGetOrdering(instruction) == LLVMAtomicOrderingNotAtomic) return true;
  csource_refuse(c, "an access that is", "atomic or volatile");
  return false;
}

/* The end of a helper's name: memory may be aligned to less than the value is. */
static const char *access_kind(CSource *c, LLVMValueRef instruction, LLVMTypeRef type) {
  bool is_near = LLVMGetAlignment(instruction) < LLVMABISizeOfType(c->layout, type);
  return arena_printf(c->arena, "%s%s", csource_short(c, type), is_near ? "_loose" : "");
}

static void csource_load(CSource *c, LLVMValueRef instruction) {
  LLVMTypeRef type = LLVMTypeOf(instruction);
  const char *from = csource_text(c, LLVMGetOperand(instruction, 0), false);
  if (!is_plain_access(c, instruction)) return;
  if (csource_is_vector(type)) {
    if (csource_width(type) == 1) csource_refuse(c, "in memory, vectors of", "one bit");
    csource_target(c, instruction, true);
    text_printf(c->code, "    memcpy(&%s, %s, sizeof %s);\n", csource_name(instruction), from, csource_name(instruction));
    return;
  }
  const char *helper = csource_helper(c, arena_printf(c->arena, "ft_load_%s", access_kind(c, instruction, type)));
  csource_set(c, instruction, arena_printf(c->arena, "%s(%s)", helper, from));
}

static void csource_store(CSource *c, LLVMValueRef instruction) {
  LLVMValueRef value = LLVMGetOperand(instruction, 0);
  LLVMTypeRef type = LLVMTypeOf(value);
  const char *text = csource_text(c, value, false), *to = csource_text(c, LLVMGetOperand(instruction, 1), false);
  if (!is_plain_access(c, instruction)) return;
  if (!csource_is_vector(type)) {
    const char *helper = csource_helper(c, arena_printf(c->arena, "ft_store_%s", access_kind(c, instruction, type)));
    text_printf(c->code, "    %s(%s, %s);\n", helper, to, text);
    return;
  }
  if (csource_width(type) == 1) csource_refuse(c, "in memory, vectors of", "one bit");
  text_printf(c->code, "    memcpy(%s, &%s, sizeof(%s));\n", to, text, csource_type(c, type));
}

static void csource_alloca(CSource *c, LLVMValueRef instruction) {
  const char *name = csource_name(instruction);
  LLVMValueRef count = LLVMGetOperand(instruction, 0);
  bool is_fixed = LLVMIsAConstantInt(count) && LLVMGetInstructionParent(instruction) == LLVMGetEntryBasicBlock(LLVMGetBasicBlockParent(LLVMGetInstructionParent(instruction)));
  if (!is_fixed) {
    csource_refuse(c, "memory on the stack of", "a size that is not known");
    return;
  }
  uint64_t bytes = LLVMABISizeOfType(c->layout, LLVMGetAllocatedType(instruction)) * LLVMConstIntGetZExtValue(count);
  unsigned alignment = LLVMGetAlignment(instruction);
  text_printf(c->declared, "  FT_ALIGN(%u) char %s_room[%llu];\n  char *const %s = %s_room;\n", alignment < 8 ? 8 : alignment,
              name, (unsigned long long)(bytes ? bytes : 1), name, name);
}

/* ── lanes ──────────────────────────────────────────────────────────────────────────────────── */
static void csource_extract(CSource *c, LLVMValueRef instruction) {
  LLVMValueRef vector = LLVMGetOperand(instruction, 0), index = LLVMGetOperand(instruction, 1);
  unsigned lanes = csource_lanes(LLVMTypeOf(vector));
  const char *from = csource_text(c, vector, false), *at = csource_text(c, index, false);
  csource_set(c, instruction, arena_printf(c->arena, LLVMIsAConstantInt(index) ? "%s.v[%s]" : "%s.v[%s %% %uu]", from, at, lanes));
}

static void csource_insert(CSource *c, LLVMValueRef instruction) {
  LLVMValueRef index = LLVMGetOperand(instruction, 2);
  const char *at = csource_text(c, index, false), *value = csource_text(c, LLVMGetOperand(instruction, 1), false);
  csource_target(c, instruction, false);
  text_printf(c->code, "%s;\n    %s.v[%s", csource_text(c, LLVMGetOperand(instruction, 0), false), csource_name(instruction), at);
  if (!LLVMIsAConstantInt(index)) text_printf(c->code, " %% %uu", csource_lanes(LLVMTypeOf(instruction)));
  text_printf(c->code, "] = %s;\n", value);
}

static void csource_shuffle(CSource *c, LLVMValueRef instruction) {
  LLVMValueRef from[2] = {LLVMGetOperand(instruction, 0), LLVMGetOperand(instruction, 1)};
  int lanes = (int)csource_lanes(LLVMTypeOf(from[0])), count = (int)LLVMGetNumMaskElements(instruction);
  const char *name = csource_name(instruction);
  bool is_splat = true;
  for (int i = 1; i < count; i++) is_splat &= LLVMGetMaskValue(instruction, (unsigned)i) == LLVMGetMaskValue(instruction, 0);
  csource_target(c, instruction, true);
  for (int i = 0; i < (is_splat ? 1 : count); i++) {
    int from_lane = LLVMGetMaskValue(instruction, (unsigned)i);
    if (from_lane < 0) from_lane = 0; /* any value will do */
    const char *vector = csource_text(c, from[from_lane >= lanes], false);
    if (is_splat)
      text_printf(c->code, "    for (int i = 0; i < %d; i++) %s.v[i] = %s.v[%d];\n", count, name, vector, from_lane % lanes);
    else
      text_printf(c->code, "    %s.v[%d] = %s.v[%d];\n", name, i, vector, from_lane % lanes);
  }
}

static void csource_member(CSource *c, LLVMValueRef instruction) {
  bool is_set = LLVMGetInstructionOpcode(instruction) == LLVMInsertValue;
  const char *group = csource_text(c, LLVMGetOperand(instruction, 0), false);
  if (LLVMGetNumIndices(instruction) != 1) csource_refuse(c, "a member of", "a member");
  unsigned at = *LLVMGetIndices(instruction);
  if (!is_set) {
    csource_set(c, instruction, arena_printf(c->arena, "%s.m%u", group, at));
    return;
  }
  const char *value = csource_text(c, LLVMGetOperand(instruction, 1), false);
  csource_set(c, instruction, group);
  text_printf(c->code, "    %s.m%u = %s;\n", csource_name(instruction), at, value);
}

/* Bits that become lanes of another width, or a number. */
static void cast_vector(CSource *c, LLVMValueRef instruction) {
  LLVMValueRef from = LLVMGetOperand(instruction, 0);
  const char *name = csource_name(instruction);
  if (csource_width(LLVMTypeOf(from)) == 1 || csource_width(LLVMTypeOf(instruction)) == 1)
    csource_refuse(c, "in memory, vectors of", "one bit");
  csource_target(c, instruction, true);
  text_printf(c->code, "    memcpy(&%s, &%s, sizeof %s);\n", name, csource_text(c, from, false), name);
}

/* ── the instruction ────────────────────────────────────────────────────────────────────────── */
static const char *selected(CSource *c, LLVMValueRef instruction) {
  LLVMValueRef chosen = LLVMGetOperand(instruction, 0);
  return arena_printf(c->arena, "%s ? %s : %s", csource_text(c, chosen, csource_is_vector(LLVMTypeOf(chosen))),
                      csource_text(c, LLVMGetOperand(instruction, 1), true),
                      csource_text(c, LLVMGetOperand(instruction, 2), true));
}

/* As LLVM prints it. */
static const char *instruction_words(CSource *c, LLVMValueRef instruction) {
  char *printed = LLVMPrintValueToString(instruction);
  const char *kept = arena_strdup(c->arena, printed ? printed : "?");
  LLVMDisposeMessage(printed);
  return kept;
}

static void csource_plain(CSource *c, LLVMValueRef instruction) {
  const char *a = csource_text(c, LLVMGetOperand(instruction, 0), true);
  const char *b = LLVMGetNumOperands(instruction) > 1 ? csource_text(c, LLVMGetOperand(instruction, 1), true) : NULL;
  LLVMOpcode opcode = LLVMGetInstructionOpcode(instruction);
  bool is_float = LLVMIsABinaryOperator(instruction) && !csource_width(LLVMTypeOf(instruction));
  csource_set(c, instruction,
              LLVMIsABinaryOperator(instruction) ? (is_float ? float_arithmetic : integer_arithmetic)(c, instruction, a, b)
              : opcode == LLVMFNeg               ? arena_printf(c->arena, "-%s", a)
              : opcode == LLVMFreeze             ? a
              : opcode == LLVMICmp               ? integer_comparison(c, instruction, a, b)
              : opcode == LLVMFCmp               ? float_comparison(c, instruction, a, b)
              : opcode == LLVMSelect             ? selected(c, instruction)
              : LLVMIsACastInst(instruction)     ? conversion(c, instruction, a)
                                                 : csource_refuse(c, "the instruction", instruction_words(c, instruction)));
}

void csource_statement(CSource *c, LLVMValueRef instruction) {
  LLVMOpcode opcode = LLVMGetInstructionOpcode(instruction);
  bool has_effect = opcode == LLVMStore || opcode == LLVMCall;
  if (!has_effect && !LLVMGetFirstUse(instruction)) return;
  LLVMTypeRef type = LLVMTypeOf(instruction);
  switch (opcode) {
  case LLVMLoad:
    csource_load(c, instruction);
    break;
  case LLVMStore:
    csource_store(c, instruction);
    break;
  case LLVMAlloca:
    csource_alloca(c, instruction);
    break;
  case LLVMCall:
    csource_call(c, instruction);
    break;
  case LLVMGetElementPtr:
    csource_set(c, instruction, csource_address(c, instruction));
    break;
  case LLVMExtractElement:
    csource_extract(c, instruction);
    break;
  case LLVMInsertElement:
    csource_insert(c, instruction);
    break;
  case LLVMShuffleVector:
    csource_shuffle(c, instruction);
    break;
  case LLVMExtractValue:
  case LLVMInsertValue:
    csource_member(c, instruction);
    break;
  case LLVMBitCast:
    if (csource_lanes(type) != csource_lanes(LLVMTypeOf(LLVMGetOperand(instruction, 0)))) {
      cast_vector(c, instruction);
      break;
    } /* fall through */
  default:
    csource_plain(c, instruction);
  }
}
