/* emit_memory: the form that elements of each type have in memory and in registers, and loads and
 * stores between the two. */
#include "codegen/emit_private.h"

LLVMTypeRef emit_register_type(Emitter *emitter, DType dtype) {
  switch (dtype) {
  case DT_BOOL:
    return emitter->module->i1;
  case DT_U8:
    return emitter->module->i8;
  case DT_I32:
  case DT_U32:
    return emitter->module->i32;
  case DT_I64:
    return emitter->module->i64;
  case DT_F64:
    return emitter->module->f64;
  default:
    return emitter->module->f32;
  }
}

/* x86-64-v3 has F16C; LLVM would call a library that an artifact does not have. */
static bool converts_f16(const Emitter *emitter) {
  return emitter->module->target == TARGET_CPU && emitter->module->vector_bytes >= 32;
}

/* By a function of kernels/math.h. */
static LLVMValueRef convert_f16(Emitter *emitter, const char *symbol, LLVMTypeRef to, LLVMValueRef value) {
  LLVMTypeRef from = LLVMTypeOf(value), type = LLVMFunctionType(to, &from, 1, false);
  LLVMValueRef function = module_function(emitter->module, symbol, type);
  return LLVMBuildCall2(emitter->builder, type, function, &value, 1, "");
}

LLVMTypeRef emit_memory_type(Emitter *emitter, DType dtype) {
  switch (dtype) {
  case DT_BOOL:
    return emitter->module->i8;
  case DT_F16: /* on a GPU an integer: LLVM would make packed f16 comparisons of widened values */
    return converts_f16(emitter) ? emitter->module->half : emitter->module->i16;
  case DT_BF16:
    return emitter->module->i16;
  case DT_E4M3:
  case DT_E5M2:
    return emitter->module->i8;
  default:
    return emit_register_type(emitter, dtype);
  }
}

/* bf16 is the upper half of an f32. */
static const uint32_t BF16_HIGH = 0xffff0000;
static LLVMValueRef widen_bf16(Emitter *emitter, LLVMValueRef raw) {
  LLVMTypeRef word = emitter->module->i32;
  LLVMValueRef bits = LLVMBuildZExt(emitter->builder, raw, word, "");
  bits = LLVMBuildShl(emitter->builder, bits, LLVMConstInt(word, 16, false), "");
  return LLVMBuildBitCast(emitter->builder, bits, emitter->module->f32, "");
}

/* Is the f32 value one that bf16 has, as it was widened or rounded just now? */
static bool is_bf16(LLVMValueRef value) {
  if (!LLVMIsABitCastInst(value)) return false;
  LLVMValueRef bits = LLVMGetOperand(value, 0);
  if (LLVMGetTypeKind(LLVMTypeOf(bits)) == LLVMVectorTypeKind) return true;
  if (!LLVMIsAInstruction(bits)) return false;
  LLVMOpcode op = LLVMGetInstructionOpcode(bits);
  if (op != LLVMShl && op != LLVMAnd) return false;
  LLVMValueRef by = LLVMGetOperand(bits, 1);
  return LLVMIsAConstantInt(by) && LLVMConstIntGetZExtValue(by) == (op == LLVMShl ? 16 : BF16_HIGH);
}

/* What round_bf16_ptx rounded to this, or the value. */
static LLVMValueRef before_rounding(LLVMValueRef value) {
  if (!LLVMIsABitCastInst(value)) return value;
  LLVMValueRef pair = LLVMGetOperand(value, 0);
  bool is_pair = LLVMIsACallInst(pair) && LLVMGetTypeKind(LLVMTypeOf(pair)) == LLVMVectorTypeKind;
  return is_pair ? LLVMGetOperand(pair, 0) : value;
}

/* Rounds an f32 to bf16, as an f32. A GPU's instruction rounds to a pair of bf16, one of which is
 * zero here, so that the bits of the pair are those of the f32. */
static LLVMValueRef round_bf16_ptx(Emitter *emitter, LLVMValueRef value) {
  LLVMTypeRef real = emitter->module->f32;
  LLVMValueRef pair[2] = {value, LLVMConstNull(real)};
  LLVMValueRef rounded = emit_intrinsic(emitter, "llvm.nvvm.ff2bf16x2.rn", NULL, pair, 2);
  return LLVMBuildBitCast(emitter->builder, rounded, real, "");
}

/* To nearest even. */
static LLVMValueRef narrow_bf16(Emitter *emitter, LLVMValueRef value) {
  LLVMBuilderRef builder = emitter->builder;
  LLVMTypeRef word = emitter->module->i32;
  bool is_rounded = is_bf16(value);
  if (!is_rounded && emitter->module->target == TARGET_PTX && !LLVMIsConstant(value)) {
    value = round_bf16_ptx(emitter, value);
    is_rounded = true;
  }
  LLVMValueRef bits = LLVMBuildBitCast(builder, value, word, "");
  LLVMValueRef high = LLVMBuildLShr(builder, bits, LLVMConstInt(word, 16, false), "");
  LLVMTypeRef half = emitter->module->i16;
  if (is_rounded) return LLVMBuildTrunc(builder, high, half, "");
  LLVMValueRef odd = LLVMBuildAnd(builder, high, LLVMConstInt(word, 1, false), "");
  LLVMValueRef bias = LLVMBuildAdd(builder, odd, LLVMConstInt(word, 0x7fff, false), "");
  LLVMValueRef rounded = LLVMBuildAdd(builder, bits, bias, "");
  rounded = LLVMBuildLShr(builder, rounded, LLVMConstInt(word, 16, false), "");
  LLVMValueRef quiet = LLVMBuildOr(builder, high, LLVMConstInt(word, 0x40, false), "");
  LLVMValueRef is_nan = LLVMBuildFCmp(builder, LLVMRealUNO, value, value, "");
  bits = LLVMBuildSelect(builder, is_nan, quiet, rounded, "");
  return LLVMBuildTrunc(builder, bits, half, "");
}

/* ── 8-bit floats, on a GPU: sm_89 or later ── */
static const char *narrow_text(DType dtype) {
  return dtype == DT_E4M3 ? "cvt.rn.satfinite.e4m3x2.f32 $0, $1, $2;" : "cvt.rn.satfinite.e5m2x2.f32 $0, $1, $2;";
}
static const char *widen_text(DType dtype) {
  return dtype == DT_E4M3 ? "cvt.rn.f16x2.e4m3x2 $0, $1;" : "cvt.rn.f16x2.e5m2x2 $0, $1;";
}

/* What the instruction with this text was given, if the value is its result; else NULL. */
static LLVMValueRef argument_of(LLVMValueRef value, const char *text, unsigned index) {
  size_t length;
  if (!value || !LLVMIsACallInst(value) || !LLVMIsAInlineAsm(LLVMGetCalledValue(value))) return NULL;
  const char *own = LLVMGetInlineAsmAsmString(LLVMGetCalledValue(value), &length);
  bool is_it = length == strlen(text) && !memcmp(own, text, length);
  return is_it ? LLVMGetOperand(value, index) : NULL;
}

/* What the conversion was given, or NULL. */
static LLVMValueRef converted(LLVMValueRef value, LLVMOpcode opcode) {
  bool is_it = value && LLVMIsAInstruction(value) && LLVMGetInstructionOpcode(value) == opcode;
  return is_it ? LLVMGetOperand(value, 0) : NULL;
}

/* The code that widen_float8 made this f32 of; else NULL. Narrowing it again gives that code. */
static LLVMValueRef float8_code_of(DType dtype, LLVMValueRef value) {
  if (!LLVMIsACallInst(value) || LLVMIsAInlineAsm(LLVMGetCalledValue(value)) || LLVMGetNumArgOperands(value) != 1) return NULL;
  LLVMValueRef pair = converted(LLVMGetOperand(value, 0), LLVMTrunc);
  return converted(argument_of(pair, widen_text(dtype), 0), LLVMZExt);
}

static LLVMValueRef narrow_two(Emitter *emitter, DType dtype, LLVMValueRef low, LLVMValueRef high) {
  LLVMTypeRef real = emitter->module->f32, parameters[2] = {real, real};
  LLVMValueRef arguments[2] = {high, low};
  return emit_assembly(emitter, narrow_text(dtype), "=h,f,f", LLVMFunctionType(emitter->module->i16, parameters, 2, false), arguments, 2);
}

/* Two f32 as the codes of two 8-bit floats, the first in the low byte. */
static LLVMValueRef join_float8(Emitter *emitter, DType dtype, LLVMValueRef low, LLVMValueRef high) {
  LLVMValueRef code[2] = {float8_code_of(dtype, low), float8_code_of(dtype, high)};
  if (!code[0] || !code[1]) return narrow_two(emitter, dtype, low, high);
  LLVMValueRef before[2];
  for (int i = 0; i < 2; i++) before[i] = argument_of(converted(code[i], LLVMTrunc), narrow_text(dtype), 1);
  if (before[0] && before[1]) return narrow_two(emitter, dtype, before[0], before[1]);
  LLVMBuilderRef b = emitter->builder;
  LLVMTypeRef both = emitter->module->i16;
  LLVMValueRef up = LLVMBuildShl(b, LLVMBuildZExt(b, code[1], both, ""), LLVMConstInt(both, 8, false), "");
  return LLVMBuildOr(b, up, LLVMBuildZExt(b, code[0], both, ""), "");
}

/* The f32 of a code. */
static LLVMValueRef widen_float8(Emitter *emitter, DType dtype, LLVMValueRef raw) {
  LLVMTypeRef half = emitter->module->i16, word = emitter->module->i32;
  LLVMValueRef pair = LLVMBuildZExt(emitter->builder, raw, half, "");
  pair = emit_assembly(emitter, widen_text(dtype), "=r,h", LLVMFunctionType(word, &half, 1, false), &pair, 1);
  LLVMValueRef low = LLVMBuildTrunc(emitter->builder, pair, half, "");
  return emit_intrinsic(emitter, "llvm.convert.from.fp16", emitter->module->f32, &low, 1);
}

static LLVMValueRef narrow_float8(Emitter *emitter, DType dtype, LLVMValueRef value) {
  LLVMValueRef code = float8_code_of(dtype, value);
  if (code) return code;
  LLVMValueRef pair = narrow_two(emitter, dtype, value, LLVMConstNull(emitter->module->f32));
  return LLVMBuildTrunc(emitter->builder, pair, emitter->module->i8, "");
}

LLVMValueRef emit_round(Emitter *emitter, DType dtype, LLVMValueRef value) {
  if (!dtype_is_narrow(dtype) && !dtype_is_float8(dtype)) return value;
  bool is_ptx = emitter->module->target == TARGET_PTX && !LLVMIsConstant(value);
  if (dtype == DT_BF16 && is_ptx) return is_bf16(value) ? value : round_bf16_ptx(emitter, value);
  return emit_from_memory(emitter, dtype, emit_to_memory(emitter, dtype, value));
}

LLVMValueRef emit_from_memory(Emitter *emitter, DType dtype, LLVMValueRef raw) {
  switch (dtype) {
  case DT_BOOL:
    return LLVMBuildICmp(emitter->builder, LLVMIntNE, raw, LLVMConstNull(LLVMTypeOf(raw)), "");
  case DT_F16:
    if (emitter->module->target == TARGET_PTX)
      return emit_intrinsic(emitter, "llvm.convert.from.fp16", emit_register_type(emitter, dtype),
                            &raw, 1);
    if (!converts_f16(emitter)) return convert_f16(emitter, "ft_f32_from_f16", emitter->module->f32, raw);
    return LLVMBuildFPExt(emitter->builder, raw, emit_register_type(emitter, dtype), "");
  case DT_BF16:
    return widen_bf16(emitter, raw);
  case DT_E4M3:
  case DT_E5M2:
    return widen_float8(emitter, dtype, raw);
  default:
    return raw;
  }
}

LLVMValueRef emit_to_memory(Emitter *emitter, DType dtype, LLVMValueRef value) {
  switch (dtype) {
  case DT_BOOL:
    return LLVMBuildZExt(emitter->builder, value, emit_memory_type(emitter, dtype), "");
  case DT_F16:
    if (emitter->module->target == TARGET_PTX)
      return emit_intrinsic(emitter, "llvm.convert.to.fp16", LLVMTypeOf(value), &value, 1);
    if (!converts_f16(emitter)) return convert_f16(emitter, "ft_f16_from_f32", emitter->module->i16, value);
    return LLVMBuildFPTrunc(emitter->builder, value, emit_memory_type(emitter, dtype), "");
  case DT_BF16:
    return narrow_bf16(emitter, value);
  case DT_E4M3:
  case DT_E5M2:
    return narrow_float8(emitter, dtype, value);
  default:
    return value;
  }
}

bool emit_is_one_number(DType dtype, unsigned width) {
  return width == 8 && dtype_bytes(dtype) == 1;
}

LLVMValueRef emit_at(Emitter *emitter, LLVMTypeRef type, LLVMValueRef base, LLVMValueRef index) {
  LLVMValueRef offset = LLVMBuildIntCast2(emitter->builder, index, emitter->module->i64, true, "");
  return LLVMBuildInBoundsGEP2(emitter->builder, type, base, &offset, 1, "");
}

LLVMValueRef emit_at_number(Emitter *emitter, LLVMTypeRef type, LLVMValueRef base, int64_t number) {
  LLVMValueRef offset = LLVMConstInt(emitter->module->i64, (uint64_t)number, false);
  return LLVMBuildInBoundsGEP2(emitter->builder, type, base, &offset, 1, "");
}

LLVMValueRef emit_load_at(Emitter *emitter, LLVMValueRef pointer, DType dtype,
                          LLVMValueRef element) {
  emit_check(emitter, pointer, element, false);
  LLVMTypeRef type = emit_memory_type(emitter, dtype);
  LLVMValueRef address = emit_at(emitter, type, pointer, element);
  LLVMValueRef raw = LLVMBuildLoad2(emitter->builder, type, address, "");
  LLVMSetAlignment(raw, (unsigned)dtype_bytes(dtype));
  return emit_from_memory(emitter, dtype, raw);
}

static LLVMValueRef join_bytes(Emitter *emitter, DType dtype, LLVMValueRef *value) {
  LLVMTypeRef type = emitter->module->i64;
  LLVMValueRef all = LLVMConstInt(type, 0, false);
  for (unsigned e = 0; e < 8; e++) {
    LLVMValueRef raw = emit_to_memory(emitter, dtype, value[e]);
    raw = LLVMBuildZExt(emitter->builder, raw, type, "");
    raw = LLVMBuildShl(emitter->builder, raw, LLVMConstInt(type, 8 * e, false), "");
    all = LLVMBuildOr(emitter->builder, all, raw, "");
  }
  return all;
}

/* On a GPU an even number of bf16 is words of two. */
static bool is_words(const Emitter *emitter, DType dtype, int width) {
  return emitter->module->target == TARGET_PTX && dtype == DT_BF16 && width % 2 == 0;
}

/* Two as a word, rounded by one instruction. */
static LLVMValueRef join_bf16(Emitter *emitter, LLVMValueRef *value) {
  LLVMValueRef pair[2] = {before_rounding(value[1]), before_rounding(value[0])};
  LLVMValueRef word = emit_intrinsic(emitter, "llvm.nvvm.ff2bf16x2.rn", NULL, pair, 2);
  return LLVMBuildBitCast(emitter->builder, word, emitter->module->i32, "");
}

LLVMTypeRef emit_group_type(Emitter *emitter, DType dtype, int width) {
  if (emit_is_one_number(dtype, (unsigned)width)) return emitter->module->i64;
  if (is_words(emitter, dtype, width))
    return LLVMVectorType(emitter->module->i32, (unsigned)width / 2);
  return LLVMVectorType(emit_memory_type(emitter, dtype), (unsigned)width);
}

LLVMValueRef emit_load_group(Emitter *emitter, LLVMValueRef pointer, DType dtype, LLVMValueRef at,
                             int width) {
  LLVMValueRef address = emit_at(emitter, emit_memory_type(emitter, dtype), pointer, at);
  LLVMTypeRef type = emit_group_type(emitter, dtype, width);
  LLVMValueRef group = LLVMBuildLoad2(emitter->builder, type, address, "");
  LLVMSetAlignment(group, (unsigned)(width * dtype_bytes(dtype)));
  return group;
}

LLVMValueRef emit_group_element(Emitter *emitter, DType dtype, LLVMValueRef group, int lane) {
  LLVMBuilderRef b = emitter->builder;
  LLVMValueRef raw;
  if (dtype == DT_BF16 && LLVMGetElementType(LLVMTypeOf(group)) == emitter->module->i32) {
    LLVMTypeRef word = emitter->module->i32;
    raw = LLVMBuildExtractElement(b, group, LLVMConstInt(word, (unsigned)lane / 2, false), "");
    raw = lane % 2 ? LLVMBuildAnd(b, raw, LLVMConstInt(word, BF16_HIGH, false), "")
                   : LLVMBuildShl(b, raw, LLVMConstInt(word, 16, false), "");
    return LLVMBuildBitCast(b, raw, emitter->module->f32, "");
  }
  if (LLVMGetTypeKind(LLVMTypeOf(group)) == LLVMVectorTypeKind) {
    LLVMValueRef place = LLVMConstInt(emitter->module->i32, (unsigned)lane, false);
    raw = LLVMBuildExtractElement(b, group, place, "");
  } else {
    LLVMValueRef shift = LLVMConstInt(LLVMTypeOf(group), 8 * (unsigned)lane, false);
    raw = LLVMBuildTrunc(b, LLVMBuildLShr(b, group, shift, ""), emitter->module->i8, "");
  }
  return emit_from_memory(emitter, dtype, raw);
}

/* Codes, two by one instruction, as one number of 16 bits or as several. */
static LLVMValueRef join_all_float8(Emitter *emitter, DType dtype, int width, LLVMValueRef *value) {
  LLVMValueRef group = LLVMGetUndef(LLVMVectorType(emitter->module->i16, (unsigned)width / 2));
  for (int e = 0; e < width; e += 2)
    group = LLVMBuildInsertElement(emitter->builder, group, join_float8(emitter, dtype, value[e], value[e + 1]),
                                   LLVMConstInt(emitter->module->i32, (unsigned)e / 2, false), "");
  return group;
}

void emit_store_group(Emitter *emitter, LLVMValueRef pointer, DType dtype, LLVMValueRef at,
                      int width, LLVMValueRef *value) {
  LLVMTypeRef type = emit_memory_type(emitter, dtype);
  LLVMValueRef group = LLVMGetUndef(emit_group_type(emitter, dtype, width));
  bool is_number = emit_is_one_number(dtype, (unsigned)width), are_codes = dtype_is_float8(dtype) && width % 2 == 0;
  int step = is_words(emitter, dtype, width) ? 2 : 1;
  if (are_codes)
    group = join_all_float8(emitter, dtype, width, value);
  else if (is_number)
    group = join_bytes(emitter, dtype, value);
  for (int e = 0; e < width && !is_number && !are_codes; e += step)
    group = LLVMBuildInsertElement(
        emitter->builder, group,
        step == 2 ? join_bf16(emitter, value + e) : emit_to_memory(emitter, dtype, value[e]),
        LLVMConstInt(emitter->module->i32, (unsigned)(e / step), false), "");
  LLVMValueRef address = emit_at(emitter, type, pointer, at);
  LLVMSetAlignment(LLVMBuildStore(emitter->builder, group, address),
                   (unsigned)(width * dtype_bytes(dtype)));
}

void emit_store_at(Emitter *emitter, LLVMValueRef pointer, DType dtype, LLVMValueRef element,
                   LLVMValueRef value) {
  emit_check(emitter, pointer, element, true);
  LLVMValueRef address = emit_at(emitter, emit_memory_type(emitter, dtype), pointer, element);
  LLVMValueRef store =
      LLVMBuildStore(emitter->builder, emit_to_memory(emitter, dtype, value), address);
  LLVMSetAlignment(store, (unsigned)dtype_bytes(dtype));
}
