/* emit_point: the arithmetic of single elements: constants, casts, the pointwise ops, and the steps
 * of reductions. Invariant: what comes back is a legal register value of the node's dtype; f16 and
 * bf16 results are rounded to their type. Nothing here is undefined for any input: integer division
 * by zero gives 0, casts saturate, shifts do not occur. */
#include "codegen/emit_private.h"
#include "ir/scalar.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

LLVMValueRef emit_flagged(Emitter *emitter, LLVMValueRef instruction, LLVMFastMathFlags more) {
  if (LLVMIsAInstruction(instruction) && LLVMCanValueUseFastMathFlags(instruction)) {
    /* never contract: a product and a sum in one basic block would become an fma, and whether they
     * are in one differs between a loop's vector body and its scalar rest, so the bits would depend
     * on how the work is split */
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

LLVMValueRef emit_assembly(Emitter *emitter, const char *text, const char *constraints, LLVMTypeRef type,
                           LLVMValueRef *arguments, int count) {
  LLVMValueRef words = LLVMGetInlineAsm(type, text, strlen(text), constraints, strlen(constraints), false, false,
                                        LLVMInlineAsmDialectATT, false);
  return LLVMBuildCall2(emitter->builder, type, words, arguments, (unsigned)count, "");
}

LLVMValueRef emit_constant(Emitter *emitter, DType dtype, double value) {
  LLVMTypeRef type = emit_register_type(emitter, dtype);
  if (dtype_is_float(dtype)) {
    value = dtype_round(dtype, value);
    LLVMValueRef constant = LLVMConstReal(type, value);
    if (dtype_is_narrow(dtype) || dtype_is_float8(dtype)) return emit_cast(emitter, DT_F32, dtype, constant);
    return constant;
  }
  if (dtype == DT_BOOL) return LLVMConstInt(type, value != 0, false);
  if (!(value > -0x1p63)) return LLVMConstInt(type, 1ull << 63, true);
  return LLVMConstInt(type, value >= 0x1p63 ? INT64_MAX : (uint64_t)(int64_t)value, true);
}

/* ── casts ──────────────────────────────────────────────────────────────────────────────────── */
static bool emit_is_signed(DType dtype) { return dtype == DT_I32 || dtype == DT_I64; }

static LLVMValueRef emit_float_to_integer(Emitter *emitter, DType to, LLVMValueRef value) {
  LLVMTypeRef types[2] = {emit_register_type(emitter, to), LLVMTypeOf(value)};
  const char *name = emit_is_signed(to) ? "llvm.fptosi.sat" : "llvm.fptoui.sat";
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  LLVMValueRef function = LLVMGetIntrinsicDeclaration(emitter->module->llvm, id, types, 2);
  return LLVMBuildCall2(emitter->builder, LLVMGlobalGetValueType(function), function, &value, 1,
                        "");
}

/* f64 to f32, before a rounding to a narrower type that must be as one of the f64 itself: of the
 * two neighbours of what f32 does not hold, the one whose last bit is 1 (Boldo and Melquiond,
 * Emulation of FMA and correctly rounded sums, 2008). */
static LLVMValueRef emit_round_to_odd(Emitter *emitter, LLVMValueRef wide) {
  LLVMBuilderRef builder = emitter->builder;
  LLVMTypeRef word = emitter->module->i32, narrow = emitter->module->f32, real = LLVMTypeOf(wide);
  LLVMValueRef one = LLVMConstInt(word, 1, false), less = LLVMConstInt(word, UINT32_MAX, false);
  LLVMValueRef nearest = LLVMBuildFPTrunc(builder, wide, narrow, "");
  LLVMValueRef back = LLVMBuildFPExt(builder, nearest, real, "");
  LLVMValueRef bits = LLVMBuildBitCast(builder, nearest, word, "");
  LLVMValueRef odd = LLVMBuildTrunc(builder, bits, emitter->module->i1, "");
  LLVMValueRef differs = LLVMBuildFCmp(builder, LLVMRealONE, back, wide, "");
  LLVMValueRef is_beyond =
      LLVMBuildFCmp(builder, LLVMRealOGT, emit_intrinsic(emitter, "llvm.fabs", real, &back, 1),
                    emit_intrinsic(emitter, "llvm.fabs", real, &wide, 1), "");
  LLVMValueRef step = LLVMBuildSelect(builder, is_beyond, less, one, "");
  LLVMValueRef moves = LLVMBuildAnd(builder, differs, LLVMBuildNot(builder, odd, ""), "");
  LLVMValueRef moved = LLVMBuildAdd(builder, bits, step, "");
  bits = LLVMBuildSelect(builder, moves, moved, bits, "");
  return LLVMBuildBitCast(builder, bits, narrow, "");
}

/* Rounds an integer of more than `kept` bits to odd: its last `low` bits are cleared, and if any of
 * them was set, so is bit `low`. A second rounding then goes the right way. */
static LLVMValueRef without_last_bits(Emitter *emitter, DType from, LLVMValueRef value, int kept,
                                      int low) {
  LLVMBuilderRef builder = emitter->builder;
  LLVMTypeRef type = LLVMTypeOf(value);
  LLVMValueRef most = LLVMConstInt(type, 1ull << kept, false), size = value, limit = most;
  LLVMValueRef rest =
      LLVMBuildAnd(builder, value, LLVMConstInt(type, (1ull << low) - 1, false), "");
  LLVMValueRef high = LLVMBuildSub(builder, value, rest, "");
  LLVMValueRef is_exact = LLVMBuildICmp(builder, LLVMIntEQ, rest, LLVMConstNull(type), "");
  LLVMValueRef odd = LLVMBuildOr(builder, high, LLVMConstInt(type, 1ull << low, false), "");
  if (emit_is_signed(from)) { /* -most … most */
    size = LLVMBuildAdd(builder, value, most, "");
    limit = LLVMConstInt(type, 2ull << kept, false);
  }
  LLVMValueRef is_small = LLVMBuildICmp(builder, LLVMIntULE, size, limit, "");
  LLVMValueRef is_kept = LLVMBuildOr(builder, is_exact, is_small, "");
  return LLVMBuildSelect(builder, is_kept, value, odd, "");
}

/* Integer to float in one rounding, though bf16 values are f32 in registers. f16 needs no care:
 * every integer in its range is exact in f32. */
static LLVMValueRef emit_integer_to_float(Emitter *emitter, DType from, DType to,
                                          LLVMValueRef value) {
  LLVMBuilderRef builder = emitter->builder;
  LLVMTypeRef type = emit_register_type(emitter, to);
  bool by_f64 = to == DT_BF16 && from == DT_I64;
  if (by_f64)
    value = without_last_bits(emitter, from, value, 53, 11), type = emitter->module->f64;
  else if (to == DT_BF16 && dtype_bytes(from) == 4)
    value = without_last_bits(emitter, from, value, 24, 8);
  value = emit_is_signed(from) ? LLVMBuildSIToFP(builder, value, type, "")
                               : LLVMBuildUIToFP(builder, value, type, "");
  return emit_round(emitter, to, by_f64 ? emit_round_to_odd(emitter, value) : value);
}

LLVMValueRef emit_cast(Emitter *emitter, DType from, DType to, LLVMValueRef value) {
  LLVMBuilderRef builder = emitter->builder;
  LLVMTypeRef type = emit_register_type(emitter, to);
  if (to == DT_BOOL) {
    LLVMValueRef zero = LLVMConstNull(LLVMTypeOf(value));
    if (dtype_is_float(from)) return LLVMBuildFCmp(builder, LLVMRealUNE, value, zero, "");
    return from == DT_BOOL ? value : LLVMBuildICmp(builder, LLVMIntNE, value, zero, "");
  }
  if (dtype_is_float(from) && dtype_is_float(to)) {
    if (from == DT_F64 && to == DT_F32) return LLVMBuildFPTrunc(builder, value, type, "");
    if (from == DT_F64 && to != DT_F64) value = emit_round_to_odd(emitter, value);
    if (from != DT_F64 && to == DT_F64) value = LLVMBuildFPExt(builder, value, type, "");
    return from == to ? value : emit_round(emitter, to, value);
  }
  if (dtype_is_float(from)) return emit_float_to_integer(emitter, to, value);
  if (dtype_is_float(to)) return emit_integer_to_float(emitter, from, to, value);
  return LLVMBuildIntCast2(builder, value, type, emit_is_signed(from), "");
}

/* ── floats ─────────────────────────────────────────────────────────────────────────────────── */
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

/* For any type but bool. */
static LLVMValueRef emit_extreme(Emitter *emitter, bool is_max, DType dtype, LLVMValueRef a,
                                 LLVMValueRef b) {
  LLVMValueRef both[2] = {a, b};
  if (dtype_is_float(dtype)) return emit_float_extreme(emitter, is_max, dtype, a, b);
  const char *name = emit_is_signed(dtype) ? (is_max ? "llvm.smax" : "llvm.smin")
                                           : (is_max ? "llvm.umax" : "llvm.umin");
  return emit_intrinsic(emitter, name, LLVMTypeOf(a), both, 2);
}

/* ── division ───────────────────────────────────────────────────────────────────────────────── */
/* A CPU divides a vector in the time of ten multiplications, a GPU in that of ten instructions. */
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

/* Is the division of such a node by a constant exact as a product with the reciprocal? All 256
 * bytes are tried. 0: no; 1: yes; 2: with one step of correction (Markstein, IBM J. Res. Dev. 34
 * (1990)). */
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

/* A division by one number for a whole kernel is a multiplication by its reciprocal, which LLVM
 * takes out of the loop. */
static LLVMFastMathFlags division_flags(const Emitter *emitter, const Node *node) {
  if (emitter->module->target != TARGET_CPU) return 0;
  const Node *divisor = skip_moves(node->input[1]);
  bool is_scalar = shape_elements(&divisor->type.shape) == 1 && divisor->op != OP_CONST;
  return is_scalar ? LLVMFastMathAllowReciprocal : 0;
}

static LLVMValueRef float_divide(Emitter *emitter, const Node *node, LLVMValueRef *in) {
  LLVMBuilderRef builder = emitter->builder;
  bool has_fma = emitter->module->target == TARGET_PTX || emitter->module->vector_bytes >= 32;
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

/* ── the pointwise ops ──────────────────────────────────────────────────────────────────────────
 * point_<name> for the rows of ir/ops.def. The shape rules have refused what an op does not take:
 * bool is only compared, chosen, cast and met by not, and, or, xor. */
typedef struct {
  Emitter *emitter;
  LLVMBuilderRef builder;
  const Node *node;
  LLVMValueRef *in;
  LLVMTypeRef type; /* of in[0] */
  DType dtype;      /* of operand 0 */
  bool is_float, is_signed;
} Point;
#define POINT(name) static LLVMValueRef point_##name(const Point *p)
/* The LLVM builder of floats, of integers. */
#define POINT1(name, of_float, of_integer)                                                         \
  POINT(name) {                                                                                    \
    return p->is_float ? LLVMBuild##of_float(p->builder, p->in[0], "")                             \
                       : LLVMBuild##of_integer(p->builder, p->in[0], "");                          \
  }
#define POINT2(name, of_float, of_integer)                                                         \
  POINT(name) {                                                                                    \
    return p->is_float ? LLVMBuild##of_float(p->builder, p->in[0], p->in[1], "")                   \
                       : LLVMBuild##of_integer(p->builder, p->in[0], p->in[1], "");                \
  }
#define POINT_BITS(name, builder_of)                                                               \
  POINT(name) { return LLVMBuild##builder_of(p->builder, p->in[0], p->in[1], ""); }
#define POINT_INTRINSIC(name, intrinsic)                                                           \
  POINT(name) { return emit_intrinsic(p->emitter, intrinsic, p->type, p->in, 1); }
/* Predicates: of floats, of integers with and without sign. */
#define POINT_COMPARE(name, of_float, with_sign, without)                                          \
  POINT(name) {                                                                                    \
    return p->is_float                                                                             \
               ? LLVMBuildFCmp(p->builder, LLVMReal##of_float, p->in[0], p->in[1], "")             \
               : LLVMBuildICmp(p->builder, p->is_signed ? LLVMInt##with_sign : LLVMInt##without,   \
                               p->in[0], p->in[1], "");                                            \
  }

POINT1(neg, FNeg, Neg)
POINT2(add, FAdd, Add)
POINT2(sub, FSub, Sub)
POINT2(mul, FMul, Mul)
POINT_BITS(and, And)
POINT_BITS(or, Or)
POINT_BITS(xor, Xor)
POINT_INTRINSIC(sqrt, "llvm.sqrt")
POINT_INTRINSIC(floor, "llvm.floor")
POINT_INTRINSIC(ceil, "llvm.ceil")
POINT_INTRINSIC(round, "llvm.rint")
POINT_COMPARE(eq, OEQ, EQ, EQ)
POINT_COMPARE(ne, UNE, NE, NE)
POINT_COMPARE(lt, OLT, SLT, ULT)
POINT_COMPARE(le, OLE, SLE, ULE)
POINT_COMPARE(gt, OGT, SGT, UGT)
POINT_COMPARE(ge, OGE, SGE, UGE)

POINT(not) { return LLVMBuildNot(p->builder, p->in[0], ""); }
POINT(select) { return LLVMBuildSelect(p->builder, p->in[0], p->in[1], p->in[2], ""); }
POINT(cast) { return emit_cast(p->emitter, p->dtype, p->node->type.dtype, p->in[0]); }

/* kernels/math.c: float ft_<op>_f32(float...), double ft_<op>_f64(double...). */
POINT(math) {
  Module *module = p->emitter->module;
  const Node *node = p->node;
  LLVMTypeRef type = emit_register_type(p->emitter, node->type.dtype), types[2] = {type, type};
  unsigned count = (unsigned)node->input_count;
  char name[64];
  bool is_approximate = node_attr(node, ATTR_KIND) != NULL;
  snprintf(name, sizeof name, "ft_%s%s_%s", op_info[node->op].text,
           is_approximate ? "_approximate" : "", node->type.dtype == DT_F64 ? "f64" : "f32");
  LLVMTypeRef signature = LLVMFunctionType(type, types, count, false);
  return LLVMBuildCall2(p->builder, signature, module_function(module, name, signature), p->in,
                        count, "");
}

POINT(rsqrt) {
  LLVMValueRef root = emit_intrinsic(p->emitter, "llvm.sqrt", p->type, p->in, 1);
  return LLVMBuildFDiv(p->builder, LLVMConstReal(p->type, 1), root, "");
}

POINT(abs) {
  if (p->is_float) return emit_intrinsic(p->emitter, "llvm.fabs", p->type, p->in, 1);
  if (!p->is_signed) return p->in[0];
  LLVMValueRef is_less =
      LLVMBuildICmp(p->builder, LLVMIntSLT, p->in[0], LLVMConstNull(p->type), "");
  return LLVMBuildSelect(p->builder, is_less, LLVMBuildNeg(p->builder, p->in[0], ""), p->in[0], "");
}

static LLVMValueRef float_sign(const Point *p) {
  LLVMBuilderRef builder = p->builder;
  LLVMValueRef x = p->in[0], zero = LLVMConstNull(p->type), one = LLVMConstReal(p->type, 1);
  LLVMValueRef up = LLVMBuildFCmp(builder, LLVMRealOGT, x, zero, "");
  LLVMValueRef down = LLVMBuildFCmp(builder, LLVMRealOLT, x, zero, "");
  LLVMValueRef rest = LLVMBuildSelect(builder, down, LLVMConstReal(p->type, -1), x, "");
  return LLVMBuildSelect(builder, up, one, rest, ""); /* zero and NaN stay */
}

POINT(sign) {
  LLVMValueRef x = p->in[0], zero = LLVMConstNull(p->type);
  if (p->is_float) return float_sign(p);
  LLVMIntPredicate more = p->is_signed ? LLVMIntSGT : LLVMIntUGT;
  LLVMValueRef up =
      LLVMBuildZExt(p->builder, LLVMBuildICmp(p->builder, more, x, zero, ""), p->type, "");
  if (!p->is_signed) return up;
  LLVMValueRef down = LLVMBuildICmp(p->builder, LLVMIntSLT, x, zero, "");
  return LLVMBuildSelect(p->builder, down, LLVMConstAllOnes(p->type), up, "");
}

POINT(isfinite) {
  LLVMValueRef size = emit_intrinsic(p->emitter, "llvm.fabs", p->type, p->in, 1);
  return LLVMBuildFCmp(p->builder, LLVMRealOLT, size, LLVMConstReal(p->type, (double)INFINITY), "");
}

POINT(div) {
  if (!p->is_float) return integer_divide(p->emitter, true, p->is_signed, p->in[0], p->in[1]);
  LLVMValueRef value = float_divide(p->emitter, p->node, p->in);
  return emit_flagged(p->emitter, value, division_flags(p->emitter, p->node));
}

POINT(rem) { return integer_divide(p->emitter, false, p->is_signed, p->in[0], p->in[1]); }

POINT(max) { return emit_extreme(p->emitter, true, p->dtype, p->in[0], p->in[1]); }
POINT(min) { return emit_extreme(p->emitter, false, p->dtype, p->in[0], p->in[1]); }

static LLVMValueRef (*const point[OP_COUNT])(const Point *p) = {
#define OP(ID, text, min, max, class, first, last, traits, attrs, rule, gradient, eval, emitter)   \
  [OP_##ID] = IF_POINTWISE_##class(point_##emitter, NULL),
#include "ir/ops.def"
#undef OP
};

LLVMValueRef emit_pointwise(Emitter *emitter, const Node *node, LLVMValueRef *inputs) {
  DType dtype = node->input[0]->type.dtype;
  const Point p = {.emitter = emitter,
                   .builder = emitter->builder,
                   .node = node,
                   .in = inputs,
                   .type = LLVMTypeOf(inputs[0]),
                   .dtype = dtype,
                   .is_float = dtype_is_float(dtype),
                   .is_signed = emit_is_signed(dtype)};
  LLVMValueRef value = point[node->op](&p);
  bool is_rounded =
      op_has(node->op, TRAIT_EXACT) || node->op == OP_CAST || !dtype_is_float(node->type.dtype);
  return is_rounded ? value : emit_round(emitter, node->type.dtype, value);
}

/* ── reductions ─────────────────────────────────────────────────────────────────────────────── */
LLVMValueRef emit_reduce_identity(Emitter *emitter, Op op, DType dtype) {
  LLVMTypeRef type = emit_register_type(emitter, dtype);
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
  if (!emit_is_signed(dtype)) return LLVMConstInt(type, is_max ? 0 : ones, false);
  return LLVMConstInt(type, is_max ? (ones >> 1) + 1 : ones >> 1, false);
}

LLVMValueRef emit_reduce_step(Emitter *emitter, Op op, DType dtype, LLVMValueRef accumulator,
                              LLVMValueRef value) {
  LLVMBuilderRef builder = emitter->builder;
  LLVMValueRef result;
  bool is_float = dtype_is_float(dtype), was = emitter->is_reassociating;
  emitter->is_reassociating = !emitter->is_ordered;
  if (op == OP_SUM)
    result = is_float ? LLVMBuildFAdd(builder, accumulator, value, "")
                      : LLVMBuildAdd(builder, accumulator, value, "");
  else if (op == OP_PROD)
    result = is_float ? LLVMBuildFMul(builder, accumulator, value, "")
                      : LLVMBuildMul(builder, accumulator, value, "");
  else
    result = emit_extreme(emitter, op == OP_RMAX || op == OP_ARGMAX, dtype, accumulator, value);
  if (is_float && (op == OP_SUM || op == OP_PROD)) result = emit_flagged(emitter, result, 0);
  emitter->is_reassociating = was;
  return result;
}

LLVMValueRef emit_arg_candidate(Emitter *emitter, DType dtype, LLVMValueRef value,
                                LLVMValueRef extreme, LLVMValueRef position) {
  LLVMBuilderRef builder = emitter->builder;
  LLVMTypeRef type = emitter->module->i32;
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
