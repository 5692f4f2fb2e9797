/* runtime_sim: every pointwise instruction of the simulator against arithmetic of the host, on
 * values that include zeros, infinities, NaN, subnormals and the ends of the integers; then the
 * instructions in which lanes work together. A case is PTX, its types, and what the host says. */
#include "runtime_sim.h"
#include <float.h>
#include <math.h>

/* ── values ───────────────────────────────────────────────────────────────────────────────── */
typedef union {
  uint64_t u64;
  int64_t s64;
  double f64;
  uint32_t u32;
  int32_t s32;
  float f32;
  uint16_t u16;
  int16_t s16;
  uint8_t u8;
  int8_t s8;
} Value;

enum { VALUES = 1024, OPERANDS = 4 };

static uint64_t next_random(void) {
  static uint64_t state = 88172645463325252u;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

static uint16_t half_of(long double x);

/* An interesting value of a type: 'f' f32, 'F' f64, 'h' f16, 'b' bf16, else bits. */
static uint64_t make_value(char type) {
  static const double floats[] = {
      0,         -0.0,  1,     -1,           0.5,           1.5,          2.5,   -2.5,
      1e-3,      -7.25, 1e30,  -1e30,        3.4e38,        1e-38,        1e-40, -1e-44,
      255,       65504, 65520, 2147483648.0, -2147483648.0, 4294967295.0, 1e19,  INFINITY,
      -INFINITY, NAN,   6e-8,  6.1e-5,       100.75};
  static const uint64_t integers[] = {0,
                                      1,
                                      2,
                                      3,
                                      31,
                                      32,
                                      33,
                                      63,
                                      64,
                                      127,
                                      128,
                                      255,
                                      256,
                                      0x7fff,
                                      0x8000,
                                      0xffff,
                                      0x7fffffff,
                                      0x80000000,
                                      0xffffffff,
                                      INT64_MAX,
                                      (uint64_t)INT64_MIN,
                                      UINT64_MAX,
                                      UINT64_MAX - 1};
  uint64_t r = next_random();
  Value v = {.u64 = 0};
  double x = floats[r % (sizeof floats / sizeof *floats)];
  if (r >> 60 > 6) x = ldexp((double)(int64_t)next_random(), (int)(r >> 20 & 63) - 95);
  switch (type) {
  case 'f':
    v.f32 = (float)x;
    return v.u64;
  case 'F':
    v.f64 = x;
    return v.u64;
  case 'h':
    return r >> 62 ? half_of(x) : (r >> 30 & 0xffff);
  case 'b':
    v.f32 = (float)x;
    return v.u32 >> 16;
  default:
    return r >> 62 ? integers[(r >> 8) % (sizeof integers / sizeof *integers)] : next_random();
  }
}

/* f16 by the definition, not by bits: the nearest of all. */
static double half_to(uint16_t h) {
  int exponent = h >> 10 & 31, mantissa = h & 1023;
  double x = exponent == 31
                 ? (mantissa ? NAN : INFINITY)
                 : ldexp(exponent ? mantissa + 1024 : mantissa, (exponent ? exponent : 1) - 25);
  return h >> 15 ? -x : x;
}
static uint16_t half_of(long double x) {
  uint16_t sign = signbit(x) ? 0x8000 : 0;
  long double y = fabsl(x);
  if (isnan(x)) return 0x7fff;
  if (y >= 65520) return sign | 0x7c00;
  int exponent;
  frexpl(y, &exponent);
  if (y == 0 || exponent < -13) exponent = -13;
  long double unit = ldexpl(1, exponent - 11), steps = nearbyintl(y / unit); /* exact division */
  int bits = exponent == -13 ? (int)steps : (int)steps + ((exponent + 13) << 10);
  return sign | (uint16_t)bits;
}
static float brain_to(uint16_t b) {
  Value v = {.u32 = (uint32_t)b << 16};
  return v.f32;
}
static uint16_t brain_of(long double x) {
  uint16_t sign = signbit(x) ? 0x8000 : 0;
  long double y = fabsl(x);
  if (isnan(x)) return 0x7fff;
  if (isinf(x)) return sign | 0x7f80;
  int exponent;
  frexpl(y, &exponent);
  if (y == 0 || exponent < -125) exponent = -125;
  long double unit = ldexpl(1, exponent - 8), steps = nearbyintl(y / unit);
  int bits = exponent == -125 ? (int)steps : (int)steps + ((exponent + 125) << 7);
  return sign | (bits > 0x7f80 ? 0x7f80 : (uint16_t)bits);
}
/* The code whose number is nearest, of two the even one; saturated. */
static uint8_t float8_of(float x, int bits, int bias, double largest) {
  double size = fabs((double)x), least = INFINITY;
  uint8_t best = 0;
  if (isnan(x)) return 0x7f;
  for (int code = 0; code < 0x80; code++) {
    int exponent = code >> bits, part = code & ((1 << bits) - 1);
    double value = ldexp(part + (exponent ? 1 << bits : 0), (exponent ? exponent : 1) - bias - bits);
    double off = fabs(value - fmin(size, largest));
    if (value > largest || off > least || (off == least && code % 2)) continue;
    least = off;
    best = (uint8_t)code;
  }
  return best | (signbit(x) ? 0x80 : 0);
}

/* The exact sum, rounded to odd, so that rounding it again is right. */
static long double sum_of(double x, double y) {
  long double near = (long double)x + y, part = near - x;
  long double rest = (x - (near - part)) + (y - part); /* exact: Knuth's two-sum */
  if (rest == 0 || isnan(near) || isinf(near)) return near;
  uint64_t mantissa;
  memcpy(&mantissa, &near, sizeof mantissa);
  return mantissa & 1 ? near : nextafterl(near, rest > 0 ? INFINITY : -INFINITY);
}

/* ── cases ────────────────────────────────────────────────────────────────────────────────── */
/* Types: u s (32 bits) U S (64) w t (16, unsigned and signed) c (8 bits in a 16-bit register)
 * f F h b p (predicate). a, b, c are the operands, all as Value; r is the result. */
#define A(m) (a.m)
#define CASE(text, types, ...)                                                                     \
  static Value JOIN_NAME(host_, __LINE__)(Value a, Value b, Value c) {                             \
    Value r = {.u64 = 0};                                                                          \
    (void)a, (void)b, (void)c;                                                                     \
    __VA_ARGS__;                                                                                   \
    return r;                                                                                      \
  }
#define JOIN_NAME2(x, y) x##y
#define JOIN_NAME(x, y) JOIN_NAME2(x, y)
#include "runtime_sim.inc"
#undef CASE

typedef struct {
  const char *text, *types;
  Value (*host)(Value a, Value b, Value c);
} Case;
#define CASE(text, types, ...) {text, types, JOIN_NAME(host_, __LINE__)},
static const Case cases[] = {
#include "runtime_sim.inc"
};

static const struct {
  char letter;
  const char *load, *reg;
  int bytes;
} kinds[] = {{'u', "u32", ".b32", 4}, {'s', "u32", ".b32", 4}, {'U', "u64", ".b64", 8},
             {'S', "u64", ".b64", 8}, {'w', "u16", ".b16", 2}, {'t', "u16", ".b16", 2},
             {'c', "u16", ".b16", 2}, {'f', "f32", ".f32", 4}, {'F', "f64", ".f64", 8},
             {'h', "b16", ".b16", 2}, {'b', "b16", ".b16", 2}, {'p', "u32", ".b32", 4}};

static int kind_of(char letter) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (kinds[i].letter == letter) return (int)i;
  fail_msg("no type %c", letter);
  return 0;
}

/* A kernel that does the instruction on element tid of each operand; guarded ones leave alone the
 * odd elements, so that partial masks are tested too. */
static void write_kernel(Text *ptx, const Case *one, bool is_guarded) {
  int count = (int)strlen(one->types);
  text_printf(ptx, SIM_HEAD ".visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, "
                            ".param .u64 p3)\n{\n"
                            "  .reg .pred %%q<5>, %%odd;\n  .reg .b32 %%i<4>;\n"
                            "  .reg .b64 %%a<5>, %%o;\n");
  for (int i = 0; i < count; i++)
    text_printf(ptx, "  .reg %s %%v%d;\n", kinds[kind_of(one->types[i])].reg, i);
  text_printf(ptx, "  mov.u32 %%i0, %%tid.x;\n  mov.u32 %%i1, %%ctaid.x;\n"
                   "  mad.lo.s32 %%i0, %%i1, 64, %%i0;\n  and.b32 %%i2, %%i0, 1;\n"
                   "  setp.eq.u32 %%odd, %%i2, 1;\n");
  for (int i = 0; i < count; i++) {
    int kind = kind_of(one->types[i]);
    text_printf(ptx,
                "  ld.param.u64 %%a%d, [p%d];\n  mul.wide.u32 %%o, %%i0, %d;\n"
                "  add.s64 %%a%d, %%a%d, %%o;\n",
                i, i, kinds[kind].bytes, i, i);
    if (i == 0 && one->types[0] == 'p') text_printf(ptx, "  setp.eq.u32 %%q0, %%i0, %%i0;\n");
    text_printf(ptx, "  ld.global.%s %%v%d, [%%a%d];\n", kinds[kind].load, i, i);
    if (one->types[i] == 'p') text_printf(ptx, "  setp.ne.u32 %%q%d, %%v%d, 0;\n", i, i);
  }
  text_printf(ptx, "%s%s", is_guarded ? "  @!%odd " : "  ", "");
  for (const char *at = one->text; *at; at++) {
    if (*at == '$')
      text_printf(ptx, one->types[at[1] - '0'] == 'p' ? "%%q%c" : "%%v%c", at[1]), at++;
    else
      text_append(ptx, at, 1);
  }
  text_printf(ptx, ";\n");
  if (one->types[0] == 'p') text_printf(ptx, "  selp.u32 %%v0, 1, 0, %%q0;\n");
  text_printf(ptx, "  st.global.%s [%%a0], %%v0;\n  ret;\n}\n", kinds[kind_of(one->types[0])].load);
}

static uint64_t mask_of(int bytes) {
  return bytes == 8 ? UINT64_MAX : (UINT64_C(1) << bytes * 8) - 1;
}

static bool is_nan(char type, uint64_t bits) {
  Value v = {.u64 = bits};
  return (type == 'f' && isnan(v.f32)) || (type == 'F' && isnan(v.f64)) ||
         (type == 'h' && (bits & 0x7fff) > 0x7c00) || (type == 'b' && (bits & 0x7fff) > 0x7f80);
}

static void run_case(SimMachine *machine, const Case *one, bool is_guarded) {
  Text ptx = {0};
  SimModule *module;
  int count = (int)strlen(one->types);
  char *memory[OPERANDS];
  uint64_t params[OPERANDS], value[OPERANDS][VALUES];
  write_kernel(&ptx, one, is_guarded);
  if (sim_module_load("case.ptx", text_cstr(&ptx), ptx.count, &module) != STATUS_OK)
    fail_msg("%s: %s\n%s", one->text, status_message(), text_cstr(&ptx));
  for (int i = 0; i < OPERANDS; i++) {
    char type = i < count ? one->types[i] : 'u';
    int bytes = kinds[kind_of(type)].bytes;
    assert_int_equal(sim_alloc(machine, VALUES * 8, &memory[i]), STATUS_OK);
    sim_mark(machine, memory[i], VALUES * 8, true);
    params[i] = (uint64_t)(uintptr_t)memory[i];
    for (int k = 0; k < VALUES; k++) {
      value[i][k] = make_value(type) & mask_of(bytes);
      if (type == 'p') value[i][k] &= 1;
      memcpy(memory[i] + k * bytes, &value[i][k], (size_t)bytes);
    }
  }
  SimLaunch launch = {.grid = {VALUES / 64, 1, 1},
                      .block = {64, 1, 1},
                      .params = params,
                      .param_bytes = sizeof params};
  if (sim_launch(machine, sim_module_kernel(module, "k"), &launch) != STATUS_OK)
    fail_msg("%s: %s", one->text, status_message());
  int bytes = kinds[kind_of(one->types[0])].bytes;
  for (int k = 0; k < VALUES; k++) {
    Value v[3] = {{.u64 = value[1][k]}, {.u64 = value[2][k]}, {.u64 = value[3][k]}};
    uint64_t want = one->host(v[0], v[1], v[2]).u64 & mask_of(bytes), have = 0;
    if (is_guarded && k & 1) want = value[0][k];
    memcpy(&have, memory[0] + k * bytes, (size_t)bytes);
    if (is_guarded && k & 1 && one->types[0] == 'p') continue;
    if (have != want && !(is_nan(one->types[0], have) && is_nan(one->types[0], want)))
      fail_msg("%s%s: of %llx, %llx, %llx it makes %llx, the host %llx", is_guarded ? "@p " : "",
               one->text, (unsigned long long)value[1][k], (unsigned long long)value[2][k],
               (unsigned long long)value[3][k], (unsigned long long)have, (unsigned long long)want);
  }
  for (int i = 0; i < OPERANDS; i++) sim_free(machine, memory[i]);
  sim_module_free(module);
  text_free(&ptx);
}

static void pointwise(void **state) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int guarded = 0; guarded < 2; guarded++) run_case(*state, &cases[i], guarded);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(pointwise)};
  return SIM_TEST_LANES(tests);
}
