/* emit_point: the arithmetic of single elements: constants, casts, the pointwise ops, and the steps
 * of reductions. Invariant: what comes back is a legal register value of the node's dtype; f16 and
 * bf16 results are rounded to their type. Nothing here is undefined for any input: integer division
 * by zero gives 0, casts saturate, shifts do not occur. */
#include "codegen/emit_private.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static LLVMTypeRef register_type(Emitter *emitter, DType dtype) {
  return emit_register_type(emitter, dtype);
}

LLVMValueRef emit_flagged(Emitter *emitter, LLVMValueRef instruction, LLVMFastMathFlags more) {
  if (LLVMIsAInstruction(instruction) && LLVMCanValueUseFastMathFlags(instruction)) {
    /* never contract: whether a product and a sum meet in one block, and so become one fma, differs
     * between the vector body of a loop and its scalar rest, and the bits would hang on the split
     */
    if (emitter->is_reassociating) more |= LLVMFastMathAllowReassoc;
    LLVMSetFastMathFlags(instruction, more);
  }
  return instruction;
}

LLVMValueRef emit_intrinsic(Emitter *emitter, const char *name, LLVMTypeRef type,
                            LLVMValueRef *arguments, int count) {
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  LLVMValueRef function =
      LLVMGetIntrinsicDeclaration(emitter->module->llvm, id, &type, type != NULL);
  LLVMTypeRef signature = LLVMGlobalGetValueType(function);
  return LLVMBuildCall2(emitter->builder, signature, function, arguments, (unsigned)count, "");
}

LLVMValueRef emit_constant(Emitter *emitter, DType dtype, double value) {
  LLVMTypeRef type = register_type(emitter, dtype);
  if (dtype_is_float(dtype)) {
    if (dtype == DT_F32) value = (float)value;
    LLVMValueRef constant = LLVMConstReal(type, value);
    if (dtype == DT_F16 || dtype == DT_BF16) return emit_cast(emitter, DT_F32, dtype, constant);
    return constant;
  }
  if (dtype == DT_BOOL) return LLVMConstInt(type, value != 0, false);
  if (!(value > -0x1p63)) return LLVMConstInt(type, 1ull << 63, true);
  return LLVMConstInt(type, value >= 0x1p63 ? INT64_MAX : (uint64_t)(int64_t)value, true);
}

/* ── casts ──────────────────────────────────────────────────────────────────────────────────── */
static bool is_signed(DType dtype) { return dtype == DT_I32 || dtype == DT_I64; }

static LLVMValueRef float_to_integer(Emitter *emitter, DType to, LLVMValueRef value) {
  LLVMTypeRef types[2] = {register_type(emitter, to), LLVMTypeOf(value)};
  const char *name = is_signed(to) ? "llvm.fptosi.sat" : "llvm.fptoui.sat";
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  LLVMValueRef function = LLVMGetIntrinsicDeclaration(emitter->module->llvm, id, types, 2);
  return LLVMBuildCall2(emitter->builder, LLVMGlobalGetValueType(function), function, &value, 1,
                        "");
}

LLVMValueRef emit_cast(Emitter *emitter, DType from, DType to, LLVMValueRef value) {
  LLVMBuilderRef builder = emitter->builder;
  LLVMTypeRef type = register_type(emitter, to);
  if (to == DT_BOOL) {
    LLVMValueRef zero = LLVMConstNull(LLVMTypeOf(value));
    if (dtype_is_float(from)) return LLVMBuildFCmp(builder, LLVMRealUNE, value, zero, "");
    return from == DT_BOOL ? value : LLVMBuildICmp(builder, LLVMIntNE, value, zero, "");
  }
  if (dtype_is_float(from) && dtype_is_float(to)) {
    if (from == DT_F64 && to != DT_F64) value = LLVMBuildFPTrunc(builder, value, type, "");
    if (from != DT_F64 && to == DT_F64) value = LLVMBuildFPExt(builder, value, type, "");
    return from == to ? value : emit_round(emitter, to, value);
  }
  if (dtype_is_float(from)) return float_to_integer(emitter, to, value);
  if (dtype_is_float(to)) {
    value = is_signed(from) ? LLVMBuildSIToFP(builder, value, type, "")
                            : LLVMBuildUIToFP(builder, value, type, "");
    return emit_round(emitter, to, value);
  }
  return LLVMBuildIntCast2(builder, value, type, is_signed(from), "");
}

/* ── floats ─────────────────────────────────────────────────────────────────────────────────── */
/* kernels/math.c: float ft_<op>_f32(float...), double ft_<op>_f64(double...). */
static LLVMValueRef call_math(Emitter *emitter, const Node *node, LLVMValueRef *inputs) {
  LLVMTypeRef type = register_type(emitter, node->type.dtype), types[2] = {type, type};
  char name[64];
  snprintf(name, sizeof name, "ft_%s_%s", op_info[node->op].text,
           node->type.dtype == DT_F64 ? "f64" : "f32");
  LLVMTypeRef signature = LLVMFunctionType(type, types, (unsigned)node->input_count, false);
  LLVMValueRef function = module_function(emitter->module, name, signature);
  return LLVMBuildCall2(emitter->builder, signature, function, inputs, (unsigned)node->input_count,
                        "");
}

/* NaN if either is NaN. The sign of a zero is not promised: x86 and PTX have it in one instruction.
 */
LLVMValueRef emit_float_extreme(Emitter *emitter, bool is_max, DType dtype, LLVMValueRef a,
                                LLVMValueRef b) {
  LLVMTypeRef type = LLVMTypeOf(a);
  LLVMValueRef both[2] = {a, b};
  if (emitter->module->target == TARGET_PTX && dtype == DT_F64) { /* PTX has no max.NaN.f64 */
    LLVMBuilderRef builder = emitter->builder;
    LLVMValueRef number = LLVMBuildFCmp(builder, is_max ? LLVMRealOGT : LLVMRealOLT, a, b, "");
    LLVMValueRef first = LLVMBuildFCmp(builder, LLVMRealUNO, a, a, "");
    LLVMValueRef either = LLVMBuildOr(builder, number, first, "");
    return LLVMBuildSelect(builder, either, a, b, "");
  }
  LLVMValueRef value =
      emit_intrinsic(emitter, is_max ? "llvm.maximum" : "llvm.minimum", type, both, 2);
  return emit_flagged(emitter, value, LLVMFastMathNoSignedZeros);
}

static LLVMValueRef float_sign(Emitter *emitter, LLVMValueRef x) {
  LLVMBuilderRef builder = emitter->builder;
  LLVMValueRef zero = LLVMConstNull(LLVMTypeOf(x)), one = LLVMConstReal(LLVMTypeOf(x), 1);
  LLVMValueRef up = LLVMBuildFCmp(builder, LLVMRealOGT, x, zero, "");
  LLVMValueRef down = LLVMBuildFCmp(builder, LLVMRealOLT, x, zero, "");
  LLVMValueRef rest = LLVMBuildSelect(builder, down, LLVMConstReal(LLVMTypeOf(x), -1), x, "");
  return LLVMBuildSelect(builder, up, one, rest, ""); /* zero and NaN stay */
}

static LLVMValueRef float_finite(Emitter *emitter, LLVMValueRef x) {
  LLVMValueRef size = emit_intrinsic(emitter, "llvm.fabs", LLVMTypeOf(x), &x, 1);
  return LLVMBuildFCmp(emitter->builder, LLVMRealOLT, size,
                       LLVMConstReal(LLVMTypeOf(x), (double)INFINITY), "");
}

/* ── division ───────────────────────────────────────────────────────────────────────────────── */
/* A CPU divides a vector in the time of ten multiplications. */
static const Node *skip_moves(const Node *node) {
  while (node->op == OP_RESHAPE || node->op == OP_BROADCAST || node->op == OP_TRANSPOSE)
    node = node->input[0];
  return node;
}

/* The value of an f32 node that is arithmetic on one byte and constants, where the byte is `byte`:
 * false if it is not. */
static bool byte_value(const Node *node, int byte, float *out) {
  node = skip_moves(node);
  float a, b;
  if (node->type.dtype != DT_F32) return false;
  if (node->op == OP_CONST) *out = (float)node_float(node, ATTR_VALUE, 0);
  if (node->op == OP_CAST) *out = (float)byte;
  if (node->op == OP_CONST) return true;
  if (node->op == OP_CAST) return node->input[0]->type.dtype == DT_U8;
  if (node->op != OP_ADD && node->op != OP_SUB && node->op != OP_MUL && node->op != OP_DIV)
    return false;
  if (skip_moves(node->input[1])->op != OP_CONST || !byte_value(node->input[0], byte, &a) ||
      !byte_value(node->input[1], byte, &b))
    return false;
  *out = node->op == OP_ADD   ? a + b
         : node->op == OP_SUB ? a - b
         : node->op == OP_MUL ? a * b
                              : a / b;
  return true;
}

/* Division of such a node. 0: not to be had by multiplying with the reciprocal; 1: just so; 2: with
 * one step of correction (Markstein, IBM J. Res. Dev. 34 (1990)). All 256 are tried. */
static int byte_division(const Node *dividend, float divisor) {
  float reciprocal = 1.0f / divisor, x;
  bool is_simple = true, is_corrected = isfinite(reciprocal) && reciprocal != 0;
  for (int i = 0; i < 256; i++) {
    if (!byte_value(dividend, i, &x)) return 0;
    float wanted = x / divisor, quotient = x * reciprocal;
    is_simple &= quotient == wanted;
    is_corrected &= fmaf(fmaf(-quotient, divisor, x), reciprocal, quotient) == wanted;
  }
  return !is_corrected ? 0 : is_simple ? 1 : 2;
}

static LLVMValueRef float_divide(Emitter *emitter, const Node *node, LLVMValueRef *in) {
  LLVMBuilderRef builder = emitter->builder;
  bool has_fma = emitter->module->target == TARGET_CPU && emitter->module->vector_bytes >= 32;
  LLVMBool loses;
  if (node->type.dtype != DT_F32 || !has_fma || !LLVMIsAConstantFP(in[1]))
    return LLVMBuildFDiv(builder, in[0], in[1], "");
  float divisor = (float)LLVMConstRealGetDouble(in[1], &loses);
  int steps = byte_division(node->input[0], divisor);
  if (!steps) return LLVMBuildFDiv(builder, in[0], in[1], "");
  LLVMTypeRef type = LLVMTypeOf(in[0]);
  LLVMValueRef reciprocal = LLVMConstReal(type, (double)(1.0f / divisor));
  LLVMValueRef quotient = LLVMBuildFMul(builder, in[0], reciprocal, "");
  if (steps == 1) return quotient;
  LLVMValueRef rest[3] = {quotient, LLVMConstReal(type, -(double)divisor), in[0]};
  LLVMValueRef last[3] = {emit_intrinsic(emitter, "llvm.fma", type, rest, 3), reciprocal, quotient};
  return emit_intrinsic(emitter, "llvm.fma", type, last, 3);
}

/* A division by one number for a whole kernel is a multiplication by its reciprocal, which LLVM
 * takes out of the loop. */
static LLVMFastMathFlags division_flags(const Emitter *emitter, const Node *node) {
  if (node->op != OP_DIV || emitter->module->target != TARGET_CPU) return 0;
  const Node *divisor = skip_moves(node->input[1]);
  bool is_scalar = shape_elements(&divisor->type.shape) == 1 && divisor->op != OP_CONST;
  return is_scalar ? LLVMFastMathAllowReciprocal : 0;
}

static LLVMValueRef float_op(Emitter *emitter, const Node *node, LLVMValueRef *in) {
  LLVMBuilderRef builder = emitter->builder;
  LLVMTypeRef type = LLVMTypeOf(in[0]);
  DType dtype = node->input[0]->type.dtype;
  switch (node->op) {
  case OP_NEG:
    return LLVMBuildFNeg(builder, in[0], "");
  case OP_ABS:
    return emit_intrinsic(emitter, "llvm.fabs", type, in, 1);
  case OP_SIGN:
    return float_sign(emitter, in[0]);
  case OP_SQRT:
    return emit_intrinsic(emitter, "llvm.sqrt", type, in, 1);
  case OP_RSQRT:
    return LLVMBuildFDiv(builder, LLVMConstReal(type, 1),
                         emit_intrinsic(emitter, "llvm.sqrt", type, in, 1), "");
  case OP_FLOOR:
    return emit_intrinsic(emitter, "llvm.floor", type, in, 1);
  case OP_CEIL:
    return emit_intrinsic(emitter, "llvm.ceil", type, in, 1);
  case OP_ROUND:
    return emit_intrinsic(emitter, "llvm.rint", type, in, 1);
  case OP_ISFINITE:
    return float_finite(emitter, in[0]);
  case OP_ADD:
    return LLVMBuildFAdd(builder, in[0], in[1], "");
  case OP_SUB:
    return LLVMBuildFSub(builder, in[0], in[1], "");
  case OP_MUL:
    return LLVMBuildFMul(builder, in[0], in[1], "");
  case OP_DIV:
    return float_divide(emitter, node, in);
  case OP_MAX:
    return emit_float_extreme(emitter, true, dtype, in[0], in[1]);
  case OP_MIN:
    return emit_float_extreme(emitter, false, dtype, in[0], in[1]);
  case OP_EQ:
    return LLVMBuildFCmp(builder, LLVMRealOEQ, in[0], in[1], "");
  case OP_NE:
    return LLVMBuildFCmp(builder, LLVMRealUNE, in[0], in[1], "");
  case OP_LT:
    return LLVMBuildFCmp(builder, LLVMRealOLT, in[0], in[1], "");
  case OP_LE:
    return LLVMBuildFCmp(builder, LLVMRealOLE, in[0], in[1], "");
  case OP_GT:
    return LLVMBuildFCmp(builder, LLVMRealOGT, in[0], in[1], "");
  case OP_GE:
    return LLVMBuildFCmp(builder, LLVMRealOGE, in[0], in[1], "");
  default:
    return op_is_elementary(node->op) ? call_math(emitter, node, in) : NULL;
  }
}

/* ── integers and bool ──────────────────────────────────────────────────────────────────────── */
/* C's / and %, but 0 for a divisor of 0; INT_MIN / -1 wraps. */
static LLVMValueRef integer_divide(Emitter *emitter, bool is_division, bool with_sign,
                                   LLVMValueRef a, LLVMValueRef b) {
  LLVMBuilderRef builder = emitter->builder;
  LLVMTypeRef type = LLVMTypeOf(a);
  LLVMValueRef zero = LLVMConstNull(type), one = LLVMConstInt(type, 1, false);
  LLVMValueRef is_zero = LLVMBuildICmp(builder, LLVMIntEQ, b, zero, "");
  LLVMValueRef special = is_zero, otherwise = zero;
  if (with_sign) {
    LLVMValueRef minus = LLVMBuildICmp(builder, LLVMIntEQ, b, LLVMConstAllOnes(type), "");
    special = LLVMBuildOr(builder, is_zero, minus, "");
    if (is_division)
      otherwise = LLVMBuildSelect(builder, minus, LLVMBuildNeg(builder, a, ""), zero, "");
  }
  LLVMValueRef safe = LLVMBuildSelect(builder, special, one, b, "");
  LLVMOpcode op =
      is_division ? (with_sign ? LLVMSDiv : LLVMUDiv) : (with_sign ? LLVMSRem : LLVMURem);
  return LLVMBuildSelect(builder, special, otherwise, LLVMBuildBinOp(builder, op, a, safe, ""), "");
}

static LLVMValueRef integer_compare(Emitter *emitter, Op op, bool with_sign, LLVMValueRef *in) {
  LLVMIntPredicate predicate = LLVMIntEQ;
  switch (op) {
  case OP_NE:
    predicate = LLVMIntNE;
    break;
  case OP_LT:
    predicate = with_sign ? LLVMIntSLT : LLVMIntULT;
    break;
  case OP_LE:
    predicate = with_sign ? LLVMIntSLE : LLVMIntULE;
    break;
  case OP_GT:
    predicate = with_sign ? LLVMIntSGT : LLVMIntUGT;
    break;
  case OP_GE:
    predicate = with_sign ? LLVMIntSGE : LLVMIntUGE;
    break;
  default:
    break;
  }
  return LLVMBuildICmp(emitter->builder, predicate, in[0], in[1], "");
}

static LLVMValueRef integer_op(Emitter *emitter, const Node *node, LLVMValueRef *in) {
  LLVMBuilderRef builder = emitter->builder;
  LLVMTypeRef type = LLVMTypeOf(in[0]);
  bool with_sign = is_signed(node->input[0]->type.dtype);
  LLVMValueRef zero = LLVMConstNull(type), compared;
  switch (node->op) {
  case OP_NEG:
    return LLVMBuildNeg(builder, in[0], "");
  case OP_NOT:
    return LLVMBuildNot(builder, in[0], "");
  case OP_ABS:
    if (!with_sign) return in[0];
    compared = LLVMBuildICmp(builder, LLVMIntSLT, in[0], zero, "");
    return LLVMBuildSelect(builder, compared, LLVMBuildNeg(builder, in[0], ""), in[0], "");
  case OP_SIGN:
    compared = LLVMBuildZExt(
        builder, LLVMBuildICmp(builder, with_sign ? LLVMIntSGT : LLVMIntUGT, in[0], zero, ""), type,
        "");
    if (!with_sign) return LLVMTypeOf(compared) == type ? compared : in[0];
    return LLVMBuildSelect(builder, LLVMBuildICmp(builder, LLVMIntSLT, in[0], zero, ""),
                           LLVMConstAllOnes(type), compared, "");
  case OP_ADD:
    return LLVMBuildAdd(builder, in[0], in[1], "");
  case OP_SUB:
    return LLVMBuildSub(builder, in[0], in[1], "");
  case OP_MUL:
    return LLVMBuildMul(builder, in[0], in[1], "");
  case OP_DIV:
    return integer_divide(emitter, true, with_sign, in[0], in[1]);
  case OP_REM:
    return integer_divide(emitter, false, with_sign, in[0], in[1]);
  case OP_MAX:
    return emit_intrinsic(emitter, with_sign ? "llvm.smax" : "llvm.umax", type, in, 2);
  case OP_MIN:
    return emit_intrinsic(emitter, with_sign ? "llvm.smin" : "llvm.umin", type, in, 2);
  case OP_AND:
    return LLVMBuildAnd(builder, in[0], in[1], "");
  case OP_OR:
    return LLVMBuildOr(builder, in[0], in[1], "");
  case OP_XOR:
    return LLVMBuildXor(builder, in[0], in[1], "");
  case OP_EQ:
  case OP_NE:
  case OP_LT:
  case OP_LE:
  case OP_GT:
  case OP_GE:
    return integer_compare(emitter, node->op, with_sign, in);
  default:
    return NULL;
  }
}

/* bool arithmetic: add is or, mul is and, as for numbers clamped to 0 and 1. */
static LLVMValueRef bool_op(Emitter *emitter, const Node *node, LLVMValueRef *in) {
  LLVMBuilderRef builder = emitter->builder;
  switch (node->op) {
  case OP_ADD:
  case OP_MAX:
    return LLVMBuildOr(builder, in[0], in[1], "");
  case OP_MUL:
  case OP_MIN:
    return LLVMBuildAnd(builder, in[0], in[1], "");
  case OP_SUB:
    return LLVMBuildXor(builder, in[0], in[1], "");
  case OP_ABS:
  case OP_SIGN:
  case OP_NEG:
    return in[0];
  default:
    return integer_op(emitter, node, in);
  }
}

/* Of values of a narrow type it gives one: there is nothing to round. */
static bool is_exact(Op op) {
  return op == OP_NEG || op == OP_ABS || op == OP_SIGN || op == OP_MAX || op == OP_MIN ||
         op == OP_FLOOR || op == OP_CEIL || op == OP_ROUND;
}

LLVMValueRef emit_pointwise(Emitter *emitter, const Node *node, LLVMValueRef *inputs) {
  if (node->op == OP_CAST)
    return emit_cast(emitter, node->input[0]->type.dtype, node->type.dtype, inputs[0]);
  if (node->op == OP_SELECT)
    return LLVMBuildSelect(emitter->builder, inputs[0], inputs[1], inputs[2], "");
  DType dtype = node->input[0]->type.dtype;
  LLVMValueRef value = dtype_is_float(dtype) ? float_op(emitter, node, inputs)
                       : dtype == DT_BOOL    ? bool_op(emitter, node, inputs)
                                             : integer_op(emitter, node, inputs);
  if (!value) {
    diag_error(emitter->module->diag, node->loc, "internal error: no code for '%s' on %s",
               op_info[node->op].text, dtype_text(dtype));
    return LLVMGetUndef(register_type(emitter, node->type.dtype));
  }
  value = emit_flagged(emitter, value, division_flags(emitter, node));
  return is_exact(node->op) || !dtype_is_float(node->type.dtype)
             ? value
             : emit_round(emitter, node->type.dtype, value);
}

/* ── reductions ─────────────────────────────────────────────────────────────────────────────── */
LLVMValueRef emit_reduce_identity(Emitter *emitter, Op op, DType dtype) {
  LLVMTypeRef type = register_type(emitter, dtype);
  switch (op) {
  case OP_SUM:
    return LLVMConstNull(type);
  case OP_PROD:
    return emit_constant(emitter, dtype, 1);
  default:
    break;
  }
  bool is_max = op == OP_RMAX || op == OP_ARGMAX;
  if (dtype_is_float(dtype)) return LLVMConstReal(type, (double)(is_max ? -INFINITY : INFINITY));
  unsigned bits = LLVMGetIntTypeWidth(type);
  uint64_t ones = bits == 64 ? UINT64_MAX : (1ull << bits) - 1;
  if (!is_signed(dtype)) return LLVMConstInt(type, is_max ? 0 : ones, false);
  return LLVMConstInt(type, is_max ? (ones >> 1) + 1 : ones >> 1, false);
}

LLVMValueRef emit_reduce_step(Emitter *emitter, Op op, DType dtype, LLVMValueRef accumulator,
                              LLVMValueRef value) {
  LLVMBuilderRef builder = emitter->builder;
  LLVMValueRef both[2] = {accumulator, value}, result;
  bool is_max = op == OP_RMAX || op == OP_ARGMAX;
  bool was = emitter->is_reassociating;
  emitter->is_reassociating = !emitter->is_ordered;
  if (dtype_is_float(dtype)) {
    result = op == OP_SUM    ? LLVMBuildFAdd(builder, accumulator, value, "")
             : op == OP_PROD ? LLVMBuildFMul(builder, accumulator, value, "")
                             : emit_float_extreme(emitter, is_max, dtype, accumulator, value);
    if (op == OP_SUM || op == OP_PROD) result = emit_flagged(emitter, result, 0);
  } else if (dtype == DT_BOOL) {
    result = op == OP_SUM || is_max ? LLVMBuildOr(builder, accumulator, value, "")
                                    : LLVMBuildAnd(builder, accumulator, value, "");
  } else if (op == OP_SUM || op == OP_PROD) {
    result = op == OP_SUM ? LLVMBuildAdd(builder, accumulator, value, "")
                          : LLVMBuildMul(builder, accumulator, value, "");
  } else {
    const char *name = is_signed(dtype) ? (is_max ? "llvm.smax" : "llvm.smin")
                                        : (is_max ? "llvm.umax" : "llvm.umin");
    result = emit_intrinsic(emitter, name, LLVMTypeOf(value), both, 2);
  }
  emitter->is_reassociating = was;
  return result;
}

LLVMValueRef emit_arg_candidate(Emitter *emitter, DType dtype, LLVMValueRef value,
                                LLVMValueRef extreme, LLVMValueRef position) {
  LLVMBuilderRef builder = emitter->builder;
  LLVMTypeRef type = LLVMInt32TypeInContext(emitter->module->context);
  LLVMValueRef hit;
  if (dtype_is_float(dtype)) /* NaN counts as the extreme: true for equal or unordered */
    hit = LLVMBuildFCmp(builder, LLVMRealOEQ, value, extreme, "");
  else
    hit = LLVMBuildICmp(builder, LLVMIntEQ, value, extreme, "");
  if (dtype_is_float(dtype))
    hit = LLVMBuildOr(builder, hit, LLVMBuildFCmp(builder, LLVMRealUNO, value, value, ""), "");
  position = LLVMBuildIntCast2(builder, position, type, true, "");
  return LLVMBuildSelect(builder, hit, position, LLVMConstInt(type, INT32_MAX, false), "");
}
