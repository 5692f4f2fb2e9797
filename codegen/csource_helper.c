/* csource_helper: what the C file says at its head, and the small functions that expressions use, each of which
 * is in the file only if something uses it. */
#include "codegen/csource_private.h"
#include <stdlib.h>
#include <string.h>

const char csource_head[] =
    "#include <math.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n\n"
    "#if defined __FAST_MATH__\n"
    "#error compile without -ffast-math: results would be wrong\n#endif\n"
    "#if defined __BYTE_ORDER__ && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__\n"
    "#error the weights are written for processors whose numbers are little-endian\n#endif\n"
    "#if defined __GNUC__\n"
    "#define FT_ALIGN(n) __attribute__((aligned(n)))\n"
    "/* memory holds numbers of several types, one after another */\n"
    "#define FT_LOAD(type, at) { typedef type __attribute__((may_alias)) cell; return *(const cell *)(const void *)(at); }\n"
    "#define FT_STORE(type, at, value) { typedef type __attribute__((may_alias)) cell; *(cell *)(void *)(at) = (value); }\n"
    "#else\n"
    "#define FT_ALIGN(n) _Alignas(n)\n"
    "#define FT_LOAD(type, at) { type number; memcpy(&number, at, sizeof number); return number; }\n"
    "#define FT_STORE(type, at, value) { memcpy(at, &(value), sizeof(type)); }\n"
    "#endif\n"
    "#define FT_LOAD_LOOSE(type, at) { type number; memcpy(&number, at, sizeof number); return number; }\n"
    "#define FT_STORE_LOOSE(type, at, value) { memcpy(at, &(value), sizeof(type)); }\n\n"
    "typedef void ft_function(void);\n"
    "typedef char *ft_pointer;\n"
    "typedef union {\n  uint64_t n;\n  const void *p;\n  ft_function *f;\n} ft_cell; /* as kernels have numbers and addresses in memory */\n\n";

typedef struct {
  const char *name, *text;
} HelperRow;
#define HELPER_FUNCTION "static inline "
static const HelperRow helper_rows[] = {
    {"ft_bits_f32", "float ft_bits_f32(uint32_t bits) { float x; memcpy(&x, &bits, sizeof x); return x; }"},
    {"ft_f32_bits", "uint32_t ft_f32_bits(float x) { uint32_t bits; memcpy(&bits, &x, sizeof x); return bits; }"},
    {"ft_bits_f64", "double ft_bits_f64(uint64_t bits) { double x; memcpy(&x, &bits, sizeof x); return x; }"},
    {"ft_f64_bits", "uint64_t ft_f64_bits(double x) { uint64_t bits; memcpy(&bits, &x, sizeof x); return bits; }"},
    /* an exponent's bias by a product, which subnormal numbers want too; the largest exponent means inf, NaN */
    {"ft_f16_f32",
     "float ft_f16_f32(uint16_t half) {\n"
     "  uint32_t bits = half, special = (bits & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;\n"
     "  return ft_bits_f32(ft_f32_bits(ft_bits_f32((bits & 0x7fffu) << 13) * 0x1p112f) | special | (bits & 0x8000u) << 16);\n}"},
    /* from 2^-14 on a new exponent's bias; below, a sum whose last bit is the smallest f16's */
    {"ft_f32_f16",
     "uint16_t ft_f32_f16(float x) {\n"
     "  uint32_t bits = ft_f32_bits(x), size = bits & 0x7fffffffu, half;\n"
     "  if (size > 0x7f800000u) half = 0x7e00u;\n"
     "  else if (size >= 0x47800000u) half = 0x7c00u;\n"
     "  else if (size >= 0x38800000u) half = (size + 0xc8000fffu + (size >> 13 & 1u)) >> 13;\n"
     "  else half = ft_f32_bits(ft_bits_f32(size) + 0.5f) - 0x3f000000u;\n"
     "  return (uint16_t)(half | (bits >> 16 & 0x8000u));\n}"},
    /* outside of the range, and of NaN, the value is not used */
    {"ft_f32_to_s32", "uint32_t ft_f32_to_s32(float x) { return x >= -0x1p31f && x < 0x1p31f ? (uint32_t)(int32_t)x : 0u; }"},
    {"ft_f32_to_u32", "uint32_t ft_f32_to_u32(float x) { return x > -1.0f && x < 0x1p32f ? (uint32_t)x : 0u; }"},
    {"ft_f32_to_s64", "uint64_t ft_f32_to_s64(float x) { return x >= -0x1p63f && x < 0x1p63f ? (uint64_t)(int64_t)x : 0u; }"},
    {"ft_f32_to_u64", "uint64_t ft_f32_to_u64(float x) { return x > -1.0f && x < 0x1p64f ? (uint64_t)x : 0u; }"},
    {"ft_f64_to_s32", "uint32_t ft_f64_to_s32(double x) { return x > -0x1.00000002p31 && x < 0x1p31 ? (uint32_t)(int32_t)x : 0u; }"},
    {"ft_f64_to_u32", "uint32_t ft_f64_to_u32(double x) { return x > -1.0 && x < 0x1p32 ? (uint32_t)x : 0u; }"},
    {"ft_f64_to_s64", "uint64_t ft_f64_to_s64(double x) { return x >= -0x1p63 && x < 0x1p63 ? (uint64_t)(int64_t)x : 0u; }"},
    {"ft_f64_to_u64", "uint64_t ft_f64_to_u64(double x) { return x > -1.0 && x < 0x1p64 ? (uint64_t)x : 0u; }"},
    {"ft_ctlz_u32", "uint32_t ft_ctlz_u32(uint32_t x) { uint32_t n = 32; for (; x; x >>= 1) n--; return n; }"},
    {"ft_ctlz_u64", "uint64_t ft_ctlz_u64(uint64_t x) { uint64_t n = 64; for (; x; x >>= 1) n--; return n; }"},
    {"ft_cttz_u32", "uint32_t ft_cttz_u32(uint32_t x) { uint32_t n = 32; for (; x; x <<= 1) n--; return n; }"},
    {"ft_cttz_u64", "uint64_t ft_cttz_u64(uint64_t x) { uint64_t n = 64; for (; x; x <<= 1) n--; return n; }"},
    {"ft_ctpop_u32", "uint32_t ft_ctpop_u32(uint32_t x) { uint32_t n = 0; for (; x; x &= x - 1) n++; return n; }"},
    {"ft_ctpop_u64", "uint64_t ft_ctpop_u64(uint64_t x) { uint64_t n = 0; for (; x; x &= x - 1) n++; return n; }"},
    {"ft_fshl_u32", "uint32_t ft_fshl_u32(uint32_t x, uint32_t y, uint32_t n) { n &= 31u; return n ? x << n | y >> (32u - n) : x; }"},
    {"ft_fshl_u64", "uint64_t ft_fshl_u64(uint64_t x, uint64_t y, uint64_t n) { n &= 63u; return n ? x << n | y >> (64u - n) : x; }"},
};
enum { HELPERS = sizeof helper_rows / sizeof *helper_rows };

bool csource_make(CSource *c, const char *name) {
  for (int i = 0; i < c->made.count; i++)
    if (!strcmp(c->made.at[i], name)) return false;
  VEC_PUSH(c->arena, c->made, name);
  return true;
}

static const char *c_type_of(const char *kind) {
  static const char *const types[][2] = {{"u8", "uint8_t"}, {"u16", "uint16_t"}, {"u32", "uint32_t"}, {"u64", "uint64_t"},
                                         {"f32", "float"},  {"f64", "double"},   {"ptr", "ft_pointer"}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (!strncmp(kind, types[i][0], strlen(types[i][0]))) return types[i][1];
  return "?";
}

/* ft_load_f32, ft_store_u64_loose, ... */
static void memory_helper(CSource *c, const char *name) {
  bool is_load = !strncmp(name, "ft_load_", 8);
  const char *type = c_type_of(name + (is_load ? 8 : 9)), *loose = strstr(name, "_loose") ? "_LOOSE" : "";
  if (is_load)
    text_printf(&c->helpers, HELPER_FUNCTION "%s %s(const char *at) FT_LOAD%s(%s, at)\n", type, name, loose, type);
  else
    text_printf(&c->helpers, HELPER_FUNCTION "void %s(char *at, %s value) FT_STORE%s(%s, at, value)\n", name, type, loose, type);
}

/* ft_maximum_f32, ...: NaN if one is, and -0 is less than 0. */
static void extreme_helper(CSource *c, const char *name) {
  bool is_most = !strncmp(name, "ft_maximum", 10), is_float = strstr(name, "f32") != NULL;
  const char *type = is_float ? "float" : "double";
  text_printf(&c->helpers,
              HELPER_FUNCTION "%s %s(%s x, %s y) {\n  if (x != x) return x;\n  if (y != y) return y;\n"
                              "  return x == y ? (signbit(x) ? %s) : x %c y ? x : y;\n}\n",
              type, name, type, type, is_most ? "y : x" : "x : y", is_most ? '>' : '<');
}

/* ft_f32_sat_s8, ...: the nearest number that there is; 0 for NaN. */
static void saturating_helper(CSource *c, const char *name) {
  const char *to = strstr(name, "_sat_") + 5, *from = strncmp(name, "ft_f32", 6) ? "double" : "float";
  bool is_signed = *to == 's';
  int width = atoi(to + 1), bits = is_signed ? width - 1 : width;
  const char *mark = *from == 'f' ? "f" : "";
  const char *plain = is_signed ? "INT" : "UINT";
  text_printf(&c->helpers,
              HELPER_FUNCTION "uint%d_t %s(%s x) {\n  if (x != x) return 0u;\n  if (x >= 0x1p%d%s) return (uint%d_t)%s%d_MAX;\n",
              width, name, from, bits, mark, width, plain, width);
  if (is_signed)
    text_printf(&c->helpers, "  if (x <= -0x1p%d%s) return (uint%d_t)INT%d_MIN;\n  return (uint%d_t)(int%d_t)x;\n}\n", bits, mark, width, width, width, width);
  else
    text_printf(&c->helpers, "  if (x <= 0) return 0u;\n  return (uint%d_t)x;\n}\n", width);
}

const char *csource_helper(CSource *c, const char *name) {
  if (!csource_make(c, name)) return name;
  if (!strcmp(name, "ft_f16_f32") || !strcmp(name, "ft_f32_f16")) {
    csource_helper(c, "ft_bits_f32");
    csource_helper(c, "ft_f32_bits");
  }
  if (!strncmp(name, "ft_load_", 8) || !strncmp(name, "ft_store_", 9)) {
    memory_helper(c, name);
  } else if (!strncmp(name, "ft_maximum_", 11) || !strncmp(name, "ft_minimum_", 11)) {
    extreme_helper(c, name);
  } else if (strstr(name, "_sat_")) {
    saturating_helper(c, name);
  } else {
    int i = 0;
    while (i < HELPERS && strcmp(helper_rows[i].name, name) != 0) i++;
    if (i == HELPERS) return csource_refuse(c, "the operation", name);
    text_printf(&c->helpers, HELPER_FUNCTION "%s\n", helper_rows[i].text);
  }
  return name;
}
