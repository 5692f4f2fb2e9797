/* runtime_sim_rounding: what PTX leaves open in arithmetic, under seeds: approximate functions stay
 * within the errors that PTX ISA states and do not all lie where they are without a seed; matrix
 * products are still right to f32's rounding; and a kernel that trusts the last bit shows. */
#include "runtime_sim.h"
#include <math.h>

enum { COUNT = 4096, SEEDS = 6 };

/* out[i] = op(in[i]), by blocks of 256. */
static void write_kernel(Text *text, const char *op) {
  text_printf(text,
              ".version 8.0\n.target sm_90a\n.address_size 64\n"
              ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n"
              ".reg .b32 %%r<4>; .reg .b64 %%rd<8>; .reg .f32 %%f<8>; .reg .b16 %%h<4>;\n"
              "ld.param.u64 %%rd1, [in]; ld.param.u64 %%rd2, [out]; mov.u32 %%r1, %%tid.x;\n"
              "mov.u32 %%r2, %%ctaid.x; mad.lo.u32 %%r1, %%r2, 256, %%r1;\n"
              "mul.wide.u32 %%rd3, %%r1, 4; add.s64 %%rd4, %%rd1, %%rd3; add.s64 %%rd5, %%rd2, "
              "%%rd3;\nld.global.f32 %%f1, [%%rd4];\n%s\nst.global.f32 [%%rd5], %%f2;\nret;\n}\n",
              op);
}

static void run(SimMachine *machine, const char *op, uint64_t seed, const float *from, float *to) {
  Text ptx = {0};
  SimModule *module;
  char *in, *out;
  write_kernel(&ptx, op);
  if (sim_module_load("t.ptx", text_cstr(&ptx), ptx.count, &module) != STATUS_OK)
    fail_msg("%s", status_message());
  text_free(&ptx);
  assert_int_equal(sim_alloc(machine, COUNT * 4, &in), STATUS_OK);
  assert_int_equal(sim_alloc(machine, COUNT * 4, &out), STATUS_OK);
  memcpy(in, from, COUNT * 4);
  sim_mark(machine, in, COUNT * 4, true);
  uint64_t params[] = {(uint64_t)(uintptr_t)in, (uint64_t)(uintptr_t)out};
  SimLaunch launch = {.grid = {COUNT / 256, 1, 1},
                      .block = {256, 1, 1},
                      .params = params,
                      .param_bytes = sizeof params};
  sim_machine_rounding(machine, seed);
  if (sim_launch(machine, sim_module_kernel(module, "k"), &launch) != STATUS_OK)
    fail_msg("%s: %s", op, status_message());
  sim_machine_rounding(machine, 0);
  memcpy(to, out, COUNT * 4);
  sim_free(machine, in);
  sim_free(machine, out);
  sim_module_free(module);
}

static double reciprocal(double x) { return 1 / x; }
static double reciprocal_root(double x) { return 1 / sqrt(x); }
static double third(double x) { return x / 3; }

static double ulp_of(double x) {
  int exponent;
  frexp(x, &exponent);
  return ldexp(1, exponent - 24);
}

static void functions(void **state) {
  static const struct {
    const char *op;
    double (*exact)(double);
    double low, high, ulps, relative, absolute; /* the most of the three */
  } cases[] = {
      {"ex2.approx.f32 %f2, %f1;", exp2, -20, 20, 2, 0, 0},
      {"rcp.approx.f32 %f2, %f1;", reciprocal, 0.01, 90, 1, 0, 0},
      {"rsqrt.approx.f32 %f2, %f1;", reciprocal_root, 0.01, 90, 0, 0x1.125p-23, 0},
      {"sqrt.approx.f32 %f2, %f1;", sqrt, 0.01, 90, 1, 0, 0},
      {"lg2.approx.f32 %f2, %f1;", log2, 0.51, 1.99, 0, 0, 0x1p-22},
      {"lg2.approx.f32 %f2, %f1;", log2, 2, 900, 0, 0x1p-22, 0},
      {"sin.approx.f32 %f2, %f1;", sin, -3.1, 3.1, 0, 0, 0x1p-20},
      {"cos.approx.f32 %f2, %f1;", cos, -3.1, 3.1, 0, 0, 0x1p-20},
      {"tanh.approx.f32 %f2, %f1;", tanh, -5, 5, 0, 0x1p-11, 0},
      {"mov.f32 %f3, 0f40400000; div.full.f32 %f2, %f1, %f3;", third, -5, 5, 2, 0, 0},
      {"mov.f32 %f3, 0f40400000; div.approx.f32 %f2, %f1, %f3;", third, -5, 5, 2, 0, 0},
  };
  static float in[COUNT], plain[COUNT], out[COUNT], again[COUNT];
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    int moved = 0;
    for (int i = 0; i < COUNT; i++)
      in[i] = (float)(cases[c].low + (cases[c].high - cases[c].low) * (i + 0.5) / COUNT);
    run(*state, cases[c].op, 0, in, plain);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
      run(*state, cases[c].op, seed, in, out);
      run(*state, cases[c].op, seed, in, again);
      assert_memory_equal(out, again, sizeof out); /* of one operand always the same */
      for (int i = 0; i < COUNT; i++) {
        double exact = cases[c].exact(in[i]), error = fabs(out[i] - exact);
        double most = fmax(cases[c].ulps * ulp_of(exact),
                           fmax(cases[c].relative * fabs(exact), cases[c].absolute));
        if (!(error <= most))
          fail_msg("%s of %a, seed %d: %a, which is wrong by %g and not %g", cases[c].op, in[i],
                   (int)seed, out[i], error, most);
        moved += out[i] != plain[i];
      }
    }
    if (moved < COUNT) fail_msg("%s: only %d results moved", cases[c].op, moved);
  }
}

/* What PTX's tables say of single operands holds with every seed. */
static void special_values(void **state) {
  static const struct {
    const char *op;
    float from, to;
  } cases[] = {
      {"ex2.approx.f32 %f2, %f1;", 0, 1},
      {"ex2.approx.f32 %f2, %f1;", -INFINITY, 0},
      {"ex2.approx.f32 %f2, %f1;", INFINITY, INFINITY},
      {"rcp.approx.f32 %f2, %f1;", 0, INFINITY},
      {"rcp.approx.f32 %f2, %f1;", INFINITY, 0},
      {"rsqrt.approx.f32 %f2, %f1;", 0, INFINITY},
      {"rsqrt.approx.f32 %f2, %f1;", INFINITY, 0},
      {"sqrt.approx.f32 %f2, %f1;", 0, 0},
      {"lg2.approx.f32 %f2, %f1;", 0, -INFINITY},
      {"lg2.approx.f32 %f2, %f1;", INFINITY, INFINITY},
      {"sin.approx.f32 %f2, %f1;", 0, 0},
      {"cos.approx.f32 %f2, %f1;", 0, 1},
      {"tanh.approx.f32 %f2, %f1;", 0, 0},
      {"tanh.approx.f32 %f2, %f1;", INFINITY, 1},
  };
  static float in[COUNT], out[COUNT];
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    for (uint64_t seed = 0; seed <= SEEDS; seed++) {
      for (int i = 0; i < COUNT; i++) in[i] = cases[c].from;
      run(*state, cases[c].op, seed, in, out);
      bool is_near_one = cases[c].to == 1 && isinf(cases[c].from); /* tanh: within its error */
      if (is_near_one ? fabsf(out[0] - 1) > 0x1p-11f : out[0] != cases[c].to)
        fail_msg("%s of %g, seed %d: %g", cases[c].op, cases[c].from, (int)seed, out[0]);
    }
}

/* 1 where a power of two comes out exactly: a kernel may not count on it. */
static void a_kernel_that_trusts_the_last_bit(void **state) {
  static const char trusting[] = "cvt.rni.f32.f32 %f1, %f1;\nex2.approx.f32 %f2, %f1;\n"
                                 "lg2.approx.f32 %f2, %f2;\ncvt.rmi.f32.f32 %f2, %f2;";
  static const char careful[] = "cvt.rni.f32.f32 %f1, %f1;\nex2.approx.f32 %f2, %f1;\n"
                                "lg2.approx.f32 %f2, %f2;\ncvt.rni.f32.f32 %f2, %f2;";
  static float in[COUNT], plain[COUNT], out[COUNT];
  for (int i = 0; i < COUNT; i++) in[i] = (float)(i % 40 + 2);
  for (int is_bad = 0; is_bad < 2; is_bad++) {
    const char *op = is_bad ? trusting : careful;
    int found = 0;
    run(*state, op, 0, in, plain);
    assert_memory_equal(plain, in, sizeof in);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
      run(*state, op, seed, in, out);
      found += memcmp(out, plain, sizeof out) != 0;
    }
    assert_int_equal(found, is_bad ? SEEDS : 0);
  }
}

/* 1 + 16 products of 2^-24 each: lost one by one, or not, but never more than 16 roundings. And
 * sums of whole numbers are exact in any order. */
static void products(void **state) {
  /* bf16 2^-12, 2^-12; then 3 and 2 with 5 and -2 */
  static float in[COUNT], out[COUNT];
  float least = 2, most = 0;
  for (uint64_t seed = 0; seed <= SEEDS; seed++) {
    run(*state,
        "mov.b32 %r1, 0x39803980; mov.b32 %r2, 0x39803980; mov.f32 %f3, 0f3F800000;\n"
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f2, %f4, %f5, %f6}, {%r1, %r1, %r1, "
        "%r1}, {%r2, %r2}, {%f3, %f3, %f3, %f3};",
        seed, in, out);
    least = fminf(least, out[0]);
    most = fmaxf(most, out[0]);
    run(*state,
        "mov.b32 %r1, 0x40404000; mov.b32 %r2, 0x40A0C000; mov.f32 %f3, 0f3F800000;\n"
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f2, %f4, %f5, %f6}, {%r1, %r1, %r1, "
        "%r1}, {%r2, %r2}, {%f3, %f3, %f3, %f3};",
        seed, in, out);
    assert_true(out[0] == 1 + 8 * (3 * 5 - 2 * 2));
  }
  assert_true(least == 1);
  assert_true(most == 1 + 16 * 0x1p-24f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(functions), cmocka_unit_test(special_values),
                                     cmocka_unit_test(a_kernel_that_trusts_the_last_bit),
                                     cmocka_unit_test(products)};
  return SIM_TEST_LANES(tests);
}
