/* csource_value: types, constants and addresses in C. Vectors are structs of an array; f16 is its bits. */
#include "codegen/csource_private.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

bool csource_is_vector(LLVMTypeRef type) { return LLVMGetTypeKind(type) == LLVMVectorTypeKind; }
LLVMTypeRef csource_element(LLVMTypeRef type) {
  return csource_is_vector(type) ? LLVMGetElementType(type) : type;
}
unsigned csource_lanes(LLVMTypeRef type) { return csource_is_vector(type) ? LLVMGetVectorSize(type) : 1; }
unsigned csource_width(LLVMTypeRef type) {
  type = csource_element(type);
  return LLVMGetTypeKind(type) == LLVMIntegerTypeKind ? LLVMGetIntTypeWidth(type) : 0;
}

static const char *type_words(CSource *c, LLVMTypeRef type) {
  char *printed = LLVMPrintTypeToString(type);
  const char *kept = arena_strdup(c->arena, printed ? printed : "?");
  LLVMDisposeMessage(printed);
  return kept;
}

const char *csource_short(CSource *c, LLVMTypeRef type) {
  switch (LLVMGetTypeKind(type)) {
  case LLVMFloatTypeKind:
    return "f32";
  case LLVMDoubleTypeKind:
    return "f64";
  case LLVMHalfTypeKind:
    return "u16";
  case LLVMPointerTypeKind:
    return "ptr";
  case LLVMIntegerTypeKind: {
    unsigned width = LLVMGetIntTypeWidth(type);
    if (width == 1 || width == 8) return "u8";
    if (width == 16) return "u16";
    if (width == 32) return "u32";
    if (width == 64) return "u64";
  } /* fall through */
  default:
    return csource_refuse(c, "the type", type_words(c, type));
  }
}

static const char *vector_type(CSource *c, LLVMTypeRef type) {
  unsigned lanes = csource_lanes(type);
  const char *name = arena_printf(c->arena, "ft_%sx%u", csource_short(c, LLVMGetElementType(type)), lanes);
  if (csource_make(c, name))
    text_printf(&c->types, "typedef struct {\n  %s v[%u];\n} %s;\n", csource_type(c, LLVMGetElementType(type)),
                lanes, name);
  return name;
}

/* Of up to two numbers: how C functions give back small structures. */
static const char *structure_type(CSource *c, LLVMTypeRef type) {
  const char *name = "ft_group", *fields = "";
  for (unsigned i = 0; i < LLVMCountStructElementTypes(type); i++) {
    LLVMTypeRef field = LLVMStructGetTypeAtIndex(type, i);
    name = arena_printf(c->arena, "%s_%s", name, csource_short(c, field));
    fields = arena_printf(c->arena, "%s  %s m%u;\n", fields, csource_type(c, field), i);
  }
  if (csource_make(c, name)) text_printf(&c->types, "typedef struct {\n%s} %s;\n", fields, name);
  return name;
}

const char *csource_type(CSource *c, LLVMTypeRef type) {
  switch (LLVMGetTypeKind(type)) {
  case LLVMVoidTypeKind:
    return "void";
  case LLVMFloatTypeKind:
    return "float";
  case LLVMDoubleTypeKind:
    return "double";
  case LLVMHalfTypeKind:
    return "uint16_t";
  case LLVMPointerTypeKind:
    return "char *";
  case LLVMVectorTypeKind:
    return vector_type(c, type);
  case LLVMStructTypeKind:
    return structure_type(c, type);
  case LLVMIntegerTypeKind:
    return arena_printf(c->arena, "uint%s_t", csource_short(c, type) + 1);
  default:
    return csource_refuse(c, "the type", type_words(c, type));
  }
}

const char *csource_signed(CSource *c, LLVMTypeRef type) {
  return arena_printf(c->arena, "int%s_t", csource_short(c, csource_element(type)) + 1);
}

const char *csource_computed(CSource *c, LLVMTypeRef type) {
  (void)c;
  return csource_width(type) > 32 ? "uint64_t" : "uint32_t";
}

const char *csource_name(LLVMValueRef value) {
  size_t length;
  return LLVMGetValueName2(value, &length);
}

/* ── constants ──────────────────────────────────────────────────────────────────────────────── */
static const char *float_constant(CSource *c, LLVMValueRef value) {
  LLVMBool loses;
  bool is_float = LLVMGetTypeKind(LLVMTypeOf(value)) == LLVMFloatTypeKind;
  double number = LLVMConstRealGetDouble(value, &loses);
  if (isfinite(number)) return arena_printf(c->arena, is_float ? "%af" : "%a", number);
  LLVMValueRef bits = LLVMConstBitCast(value, is_float ? c->module->i32 : c->module->i64);
  return arena_printf(c->arena, "%s(0x%" PRIx64 "u)", csource_helper(c, is_float ? "ft_bits_f32" : "ft_bits_f64"),
                      (uint64_t)LLVMConstIntGetZExtValue(bits));
}

static const char *integer_constant(CSource *c, uint64_t value, unsigned width) {
  return width > 32 ? arena_printf(c->arena, "%" PRIu64 "ull", value)
                    : arena_printf(c->arena, "%" PRIu64 "u", value);
}

static bool is_vector_constant(LLVMValueRef value) {
  return LLVMIsAConstant(value) && csource_is_vector(LLVMTypeOf(value));
}

static const char *vector_text(CSource *c, LLVMValueRef value, bool by_lane) {
  LLVMTypeRef type = LLVMTypeOf(value);
  const char *list = "", *first = NULL;
  bool is_splat = true;
  for (unsigned i = 0; i < csource_lanes(type); i++) {
    const char *one = csource_text(c, LLVMGetAggregateElement(value, i), false);
    if (!first) first = one;
    is_splat &= !strcmp(first, one);
    list = arena_printf(c->arena, "%s%s%s", list, i ? ", " : "", one);
  }
  if (by_lane && is_splat) return first;
  if (by_lane)
    return arena_printf(c->arena, "((const %s[]){%s})[i]", csource_type(c, csource_element(type)), list);
  return arena_printf(c->arena, "((%s){{%s}})", csource_type(c, type), list);
}

static const char *constant_expression(CSource *c, LLVMValueRef value) {
  LLVMOpcode opcode = LLVMGetConstOpcode(value);
  if (opcode == LLVMGetElementPtr) return arena_printf(c->arena, "(%s)", csource_address(c, value));
  if (opcode == LLVMPtrToInt)
    return arena_printf(c->arena, "((uint64_t)(uintptr_t)%s)", csource_text(c, LLVMGetOperand(value, 0), false));
  return csource_refuse(c, "a constant expression of", "this kind");
}

const char *csource_text(CSource *c, LLVMValueRef value, bool by_lane) {
  LLVMTypeRef type = LLVMTypeOf(value);
  if (is_vector_constant(value)) return vector_text(c, value, by_lane);
  if (LLVMIsUndef(value) || LLVMIsPoison(value) || LLVMIsNull(value)) {
    if (LLVMGetTypeKind(type) == LLVMPointerTypeKind) return "((char *)0)";
    if (LLVMGetTypeKind(type) == LLVMStructTypeKind) return arena_printf(c->arena, "((%s){0})", csource_type(c, type));
    return csource_width(type) ? integer_constant(c, 0, csource_width(type)) : LLVMIsUndef(value) ? "0.0f" : float_constant(c, value);
  }
  if (LLVMIsAConstantInt(value))
    return integer_constant(c, LLVMConstIntGetZExtValue(value), csource_width(type));
  if (LLVMIsAConstantFP(value)) {
    if (LLVMGetTypeKind(type) != LLVMHalfTypeKind) return float_constant(c, value);
    return integer_constant(c, LLVMConstIntGetZExtValue(LLVMConstBitCast(value, c->module->i16)), 16);
  }
  if (LLVMIsAFunction(value))
    return arena_printf(c->arena, "((char *)(uintptr_t)%s)", csource_symbol(c, value));
  if (LLVMIsAGlobalVariable(value))
    return arena_printf(c->arena, "((char *)(uintptr_t)%s)", csource_constant(c, value));
  if (LLVMIsAConstantExpr(value)) return constant_expression(c, value);
  if (LLVMIsAArgument(value) || LLVMIsAInstruction(value))
    return by_lane && csource_is_vector(type) ? arena_printf(c->arena, "%s.v[i]", csource_name(value))
                                              : csource_name(value);
  return csource_refuse(c, "a value of", "this kind");
}

/* ── addresses ──────────────────────────────────────────────────────────────────────────────── */
static const char *index_term(CSource *c, LLVMValueRef index, uint64_t size) {
  const char *text = csource_text(c, index, false);
  if (csource_width(LLVMTypeOf(index)) < 64) text = arena_printf(c->arena, "(uint64_t)(int64_t)(%s)%s", csource_signed(c, LLVMTypeOf(index)), text);
  return size == 1 ? text : arena_printf(c->arena, "%s * %" PRIu64 "u", text, size);
}

const char *csource_address(CSource *c, LLVMValueRef gep) {
  LLVMTypeRef type = LLVMGetGEPSourceElementType(gep);
  const char *variable = NULL;
  int64_t offset = 0;
  if (csource_is_vector(LLVMTypeOf(gep))) return csource_refuse(c, "a vector of", "addresses");
  for (unsigned i = 1; i < (unsigned)LLVMGetNumOperands(gep); i++) {
    LLVMValueRef index = LLVMGetOperand(gep, i);
    if (i > 1 && LLVMGetTypeKind(type) == LLVMStructTypeKind) {
      unsigned field = (unsigned)LLVMConstIntGetZExtValue(index);
      offset += (int64_t)LLVMOffsetOfElement(c->layout, type, field);
      type = LLVMStructGetTypeAtIndex(type, field);
      continue;
    }
    if (i > 1) type = LLVMGetElementType(type);
    uint64_t size = LLVMABISizeOfType(c->layout, type);
    if (LLVMIsAConstantInt(index)) {
      offset += LLVMConstIntGetSExtValue(index) * (int64_t)size;
      continue;
    }
    const char *term = index_term(c, index, size);
    variable = variable ? arena_printf(c->arena, "%s + %s", variable, term) : term;
  }
  const char *base = csource_text(c, LLVMGetOperand(gep, 0), false);
  if (!variable) return offset ? arena_printf(c->arena, "%s + %" PRId64, base, offset) : base;
  const char *constant = offset ? arena_printf(c->arena, " + %" PRIu64 "ull", (uint64_t)offset) : "";
  return arena_printf(c->arena, "%s + (ptrdiff_t)(int64_t)(%s%s)", base, variable, constant);
}

/* ── constant data ──────────────────────────────────────────────────────────────────────────── */
typedef struct {
  unsigned char *bytes;
  const char **pointer; /* for each cell of 8 bytes: what its union holds, or NULL */
} Image;

static void image_number(Image *image, uint64_t at, uint64_t value, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i++) image->bytes[at + i] = (unsigned char)(value >> (8 * i));
}

static void image_pointer(CSource *c, Image *image, uint64_t at, LLVMValueRef value) {
  if (at % 8) {
    csource_refuse(c, "a pointer in", "a packed structure");
    return;
  }
  image->pointer[at / 8] =
      LLVMIsAFunction(value)
          ? arena_printf(c->arena, ".f = (ft_function *)%s", csource_symbol(c, value))
          : arena_printf(c->arena, ".p = %s", LLVMIsAGlobalVariable(value) ? csource_constant(c, value) : csource_text(c, value, false));
}

static void image_fill(CSource *c, Image *image, uint64_t at, LLVMValueRef value) {
  LLVMTypeRef type = LLVMTypeOf(value);
  LLVMTypeKind kind = LLVMGetTypeKind(type);
  if (LLVMIsUndef(value) || LLVMIsPoison(value) || LLVMIsNull(value)) return; /* zeros */
  if (kind == LLVMStructTypeKind) {
    for (unsigned i = 0; i < LLVMCountStructElementTypes(type); i++)
      image_fill(c, image, at + LLVMOffsetOfElement(c->layout, type, i), LLVMGetAggregateElement(value, i));
  } else if (kind == LLVMArrayTypeKind || kind == LLVMVectorTypeKind) {
    uint64_t count = kind == LLVMArrayTypeKind ? LLVMGetArrayLength2(type) : LLVMGetVectorSize(type);
    uint64_t size = LLVMABISizeOfType(c->layout, LLVMGetElementType(type));
    for (uint64_t i = 0; i < count; i++)
      image_fill(c, image, at + i * size, LLVMGetAggregateElement(value, (unsigned)i));
  } else if (kind == LLVMPointerTypeKind) {
    image_pointer(c, image, at, value);
  } else if (LLVMIsAConstantInt(value)) {
    image_number(image, at, LLVMConstIntGetZExtValue(value), LLVMABISizeOfType(c->layout, type));
  } else if (LLVMIsAConstantFP(value)) {
    uint64_t bytes = LLVMABISizeOfType(c->layout, type);
    LLVMTypeRef integer = LLVMIntTypeInContext(c->module->context, (unsigned)bytes * 8);
    image_number(image, at, LLVMConstIntGetZExtValue(LLVMConstBitCast(value, integer)), bytes);
  } else {
    csource_refuse(c, "constant data of", type_words(c, type));
  }
}

static void print_image(CSource *c, const Image *image, uint64_t cells, const char *name, unsigned alignment) {
  text_printf(&c->body, "FT_ALIGN(%u) static const ft_cell %s[%" PRIu64 "] = {", alignment < 8 ? 8 : alignment, name, cells);
  for (uint64_t i = 0; i < cells; i++) {
    uint64_t word = 0;
    for (int k = 7; k >= 0; k--) word = word << 8 | image->bytes[i * 8 + (uint64_t)k];
    const char *end = i + 1 < cells ? "," : "";
    if (image->pointer[i])
      text_printf(&c->body, "%s{%s}%s", i % 4 ? " " : "\n  ", image->pointer[i], end);
    else
      text_printf(&c->body, "%s{%" PRIu64 "u}%s", i % 4 ? " " : "\n  ", word, end);
  }
  text_printf(&c->body, "\n};\n\n");
}

const char *csource_constant(CSource *c, LLVMValueRef global) {
  for (int i = 0; i < c->symbols.count; i++)
    if (c->symbols.at[i].value == global) return c->symbols.at[i].name;
  LLVMValueRef value = LLVMGetInitializer(global);
  if (!value || !LLVMIsGlobalConstant(global)) return csource_refuse(c, "the variable", csource_name(global));
  uint64_t cells = (LLVMABISizeOfType(c->layout, LLVMTypeOf(value)) + 7) / 8;
  const char *name = arena_printf(c->arena, "ft_data%d", c->symbols.count);
  VEC_PUSH(c->arena, c->symbols, ((CSourceSymbol){global, name}));
  Image image = {ARENA_ARRAY(c->arena, unsigned char, cells * 8), ARENA_ARRAY(c->arena, const char *, cells)};
  image_fill(c, &image, 0, value);
  print_image(c, &image, cells, name, LLVMGetAlignment(global));
  return name;
}
