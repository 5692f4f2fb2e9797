/* csource_call: calls, and LLVM's intrinsic functions as expressions of C. */
#include "codegen/csource_private.h"
#include <string.h>

enum { CALL_MOST = 16 };

/* Hints, and ends of lifetimes: they compute nothing. */
static const char *const hints[] = {"llvm.assume",         "llvm.lifetime.start", "llvm.lifetime.end",
                                    "llvm.experimental.noalias.scope.decl", "llvm.donothing", NULL};

/* %s: the operands in order. Those with a row for floats have the C function's name, of the double's. */
static const struct {
  const char *name, *function;
  int count;
} of_floats[] = {{"llvm.fabs", "fabs", 1},      {"llvm.sqrt", "sqrt", 1},          {"llvm.floor", "floor", 1},
                 {"llvm.ceil", "ceil", 1},      {"llvm.trunc", "trunc", 1},        {"llvm.rint", "rint", 1},
                 {"llvm.nearbyint", "nearbyint", 1}, {"llvm.round", "round", 1},   {"llvm.roundeven", "nearbyint", 1},
                 {"llvm.copysign", "copysign", 2}, {"llvm.minnum", "fmin", 2},     {"llvm.maxnum", "fmax", 2},
                 {"llvm.fma", "fma", 3}};
enum { FLOATS = sizeof of_floats / sizeof *of_floats };

static const char *float_call(CSource *c, const char *name, LLVMTypeRef type, const char *const *a) {
  bool is_float = LLVMGetTypeKind(type) == LLVMFloatTypeKind;
  if (!is_float && LLVMGetTypeKind(type) != LLVMDoubleTypeKind) return NULL;
  for (int i = 0; i < FLOATS; i++) {
    if (strcmp(name, of_floats[i].name) != 0) continue;
    const char *list = a[0];
    for (int k = 1; k < of_floats[i].count; k++) list = arena_printf(c->arena, "%s, %s", list, a[k]);
    return arena_printf(c->arena, "%s%s(%s)", of_floats[i].function, is_float ? "f" : "", list);
  }
  if (!strcmp(name, "llvm.fmuladd")) return arena_printf(c->arena, "%s * %s + %s", a[0], a[1], a[2]);
  bool is_least = !strcmp(name, "llvm.minimum");
  if (!is_least && strcmp(name, "llvm.maximum") != 0) return NULL;
  const char *helper = arena_printf(c->arena, "ft_%s_%s", name + 5, csource_short(c, type));
  return arena_printf(c->arena, "%s(%s, %s)", csource_helper(c, helper), a[0], a[1]);
}

static const char *integer_call(CSource *c, const char *name, LLVMTypeRef type, const char *const *a) {
  const char *sign = csource_signed(c, type), *to = csource_type(c, type), *in = csource_computed(c, type);
  unsigned width = csource_width(type);
  if (width < 8) return NULL;
  bool is_most = strstr(name, "max") != NULL;
  if (!strcmp(name, "llvm.smax") || !strcmp(name, "llvm.smin"))
    return arena_printf(c->arena, "(%s)%s %c (%s)%s ? %s : %s", sign, a[0], is_most ? '>' : '<', sign, a[1], a[0], a[1]);
  if (!strcmp(name, "llvm.umax") || !strcmp(name, "llvm.umin"))
    return arena_printf(c->arena, "%s %c %s ? %s : %s", a[0], is_most ? '>' : '<', a[1], a[0], a[1]);
  if (!strcmp(name, "llvm.abs"))
    return arena_printf(c->arena, "(%s)((%s)%s < 0 ? (%s)0 - %s : %s)", to, sign, a[0], in, a[0], a[0]);
  if (!strcmp(name, "llvm.usub.sat")) return arena_printf(c->arena, "(%s)(%s > %s ? %s - %s : 0u)", to, a[0], a[1], a[0], a[1]);
  if (width < 32) return NULL;
  bool is_count = !strcmp(name, "llvm.ctlz") || !strcmp(name, "llvm.cttz") || !strcmp(name, "llvm.ctpop");
  if (is_count)
    return arena_printf(c->arena, "%s(%s)", csource_helper(c, arena_printf(c->arena, "ft_%s_%s", name + 5, csource_short(c, type))), a[0]);
  if (!strcmp(name, "llvm.fshl"))
    return arena_printf(c->arena, "%s(%s, %s, %s)", csource_helper(c, arena_printf(c->arena, "ft_fshl_%s", csource_short(c, type))), a[0], a[1], a[2]);
  return NULL;
}

/* Conversions whose operand has another type. */
static const char *conversion_call(CSource *c, const char *name, LLVMValueRef call, const char *const *a) {
  LLVMTypeRef to = csource_element(LLVMTypeOf(call)), from = csource_element(LLVMTypeOf(LLVMGetOperand(call, 0)));
  bool is_signed = !strcmp(name, "llvm.fptosi.sat");
  if (is_signed || !strcmp(name, "llvm.fptoui.sat")) {
    if (csource_width(to) < 8) return NULL;
    const char *helper = arena_printf(c->arena, "ft_%s_sat_%c%s", csource_short(c, from), is_signed ? 's' : 'u', csource_short(c, to) + 1);
    return arena_printf(c->arena, "%s(%s)", csource_helper(c, helper), a[0]);
  }
  if (!strcmp(name, "llvm.convert.from.fp16") && LLVMGetTypeKind(to) == LLVMFloatTypeKind)
    return arena_printf(c->arena, "%s(%s)", csource_helper(c, "ft_f16_f32"), a[0]);
  if (!strcmp(name, "llvm.convert.to.fp16") && LLVMGetTypeKind(from) == LLVMFloatTypeKind)
    return arena_printf(c->arena, "%s(%s)", csource_helper(c, "ft_f32_f16"), a[0]);
  return NULL;
}

/* Sums of lanes and the like; floats from the first lane on. False: it is none. */
static bool reduction(CSource *c, const char *name, LLVMValueRef call) {
  static const char prefix[] = "llvm.vector.reduce.";
  static const char *const op[][2] = {{"add", "+"}, {"mul", "*"}, {"and", "&"}, {"or", "|"}, {"xor", "^"}, {"fadd", "+"}, {"fmul", "*"}};
  if (strncmp(name, prefix, sizeof prefix - 1) != 0) return false;
  const char *kind = name + sizeof prefix - 1, *to = csource_name(call);
  bool has_start = !strcmp(kind, "fadd") || !strcmp(kind, "fmul"), is_most = strstr(kind, "max") != NULL;
  LLVMValueRef vector = LLVMGetOperand(call, has_start);
  LLVMTypeRef type = LLVMTypeOf(call);
  const char *lane = csource_text(c, vector, true), *first = csource_text(c, vector, false);
  const char *start = has_start ? csource_text(c, LLVMGetOperand(call, 0), false) : arena_printf(c->arena, "%s.v[0]", first), *next = NULL;
  for (size_t i = 0; i < sizeof op / sizeof *op; i++)
    if (!strcmp(kind, op[i][0]))
      next = has_start ? arena_printf(c->arena, "%s %s %s", to, op[i][1], lane)
                       : arena_printf(c->arena, "(%s)((%s)%s %s %s)", csource_type(c, type), csource_computed(c, type), to, op[i][1], lane);
  if (csource_width(type) == 1 && !strcmp(kind, "add")) next = NULL;
  if (!strcmp(kind, "smax") || !strcmp(kind, "smin"))
    next = arena_printf(c->arena, "(%s)%s %c (%s)%s ? %s : %s", csource_signed(c, type), to, is_most ? '>' : '<', csource_signed(c, type), lane, to, lane);
  if (!strcmp(kind, "umax") || !strcmp(kind, "umin"))
    next = arena_printf(c->arena, "%s %c %s ? %s : %s", to, is_most ? '>' : '<', lane, to, lane);
  if (!next) return false;
  csource_set(c, call, start);
  text_printf(c->code, "    for (int i = %d; i < %u; i++) %s = %s;\n", !has_start, csource_lanes(LLVMTypeOf(vector)), to, next);
  return true;
}

static bool memory_call(CSource *c, const char *name, LLVMValueRef call) {
  bool is_set = !strncmp(name, "llvm.memset", 11), is_copy = !strncmp(name, "llvm.memcpy", 11);
  if (!is_set && !is_copy && strcmp(name, "llvm.memmove") != 0) return false;
  if (!LLVMIsNull(LLVMGetOperand(call, 3))) return false; /* volatile */
  text_printf(c->code, "    %s(%s, %s, (size_t)%s);\n", is_set ? "memset" : is_copy ? "memcpy" : "memmove",
              csource_text(c, LLVMGetOperand(call, 0), false), csource_text(c, LLVMGetOperand(call, 1), false),
              csource_text(c, LLVMGetOperand(call, 2), false));
  return true;
}

static void intrinsic(CSource *c, LLVMValueRef call, LLVMValueRef callee) {
  size_t length;
  const char *name = arena_strdup(c->arena, LLVMIntrinsicGetName(LLVMGetIntrinsicID(callee), &length)), *operand[CALL_MOST] = {NULL}, *expression;
  if (text_is_one_of(name, hints) || memory_call(c, name, call)) return;
  unsigned count = LLVMGetNumArgOperands(call);
  if (count > CALL_MOST || LLVMGetTypeKind(LLVMTypeOf(call)) == LLVMVoidTypeKind) {
    csource_refuse(c, "the intrinsic", name);
    return;
  }
  if (!LLVMGetFirstUse(call) || reduction(c, name, call)) return;
  for (unsigned i = 0; i < count; i++) operand[i] = csource_text(c, LLVMGetOperand(call, i), true);
  LLVMTypeRef type = csource_element(LLVMTypeOf(call));
  expression = conversion_call(c, name, call, operand);
  if (!expression) expression = csource_width(type) ? integer_call(c, name, type, operand) : float_call(c, name, type, operand);
  csource_set(c, call, expression ? expression : csource_refuse(c, "the intrinsic", name));
}

/* "(uint32_t (*)(char *, uint64_t))", for a call through a pointer. */
static const char *pointer_type(CSource *c, LLVMTypeRef type) {
  LLVMTypeRef parameter[CALL_MOST];
  const char *list = "";
  unsigned count = LLVMCountParamTypes(type);
  if (count > CALL_MOST) return csource_refuse(c, "a call with", "more than 16 arguments");
  LLVMGetParamTypes(type, parameter);
  for (unsigned i = 0; i < count; i++)
    list = arena_printf(c->arena, "%s%s%s", list, i ? ", " : "", csource_type(c, parameter[i]));
  return arena_printf(c->arena, "(%s (*)(%s))", csource_type(c, LLVMGetReturnType(type)), count ? list : "void");
}

void csource_call(CSource *c, LLVMValueRef call) {
  LLVMValueRef callee = LLVMGetCalledValue(call);
  if (LLVMIsAInlineAsm(callee)) {
    csource_refuse(c, "an instruction of", "assembly");
    return;
  }
  if (LLVMIsAFunction(callee) && LLVMGetIntrinsicID(callee)) {
    intrinsic(c, call, callee);
    return;
  }
  const char *list = "", *called;
  for (unsigned i = 0; i < LLVMGetNumArgOperands(call); i++)
    list = arena_printf(c->arena, "%s%s%s", list, i ? ", " : "", csource_text(c, LLVMGetOperand(call, i), false));
  called = LLVMIsAFunction(callee) ? csource_symbol(c, callee)
                                   : arena_printf(c->arena, "(%s(uintptr_t)%s)", pointer_type(c, LLVMGetCalledFunctionType(call)), csource_text(c, callee, false));
  if (LLVMGetFirstUse(call))
    csource_target(c, call, false);
  else
    text_printf(c->code, "    ");
  text_printf(c->code, "%s(%s);\n", called, list);
}
