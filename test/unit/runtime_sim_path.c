/* runtime_sim_path: cycles of a block's slowest warp, instructions by unit, loads by width, and samples of blocks: on
 * kernels of which all of that is known. */
#include "runtime_sim.h"

enum { L1 = 40, SHARED = 30, MEMORY = 500, WORDS = 4096 };
static const SimTiming timing = {L1, SHARED, MEMORY, 1024, 512, 64};

static SimCounts run_blocks(SimMachine *machine, const char *body, int threads, int blocks, int sample, char *x) {
  Text ptx = {0};
  SimModule *module = NULL;
  SimCounts counts = {0};
  text_printf(&ptx,
              ".version 8.0\n.target sm_90a\n.address_size 64\n"
              ".visible .entry k(.param .u64 p)\n{\n.reg .pred %%p<9>; .reg .b32 %%r<40>; .reg .b64 %%rd<40>;\n"
              ".reg .f32 %%f<20>; .shared .align 128 .b8 s[4096];\n"
              "ld.param.u64 %%rd1, [p]; mov.u32 %%r1, %%tid.x; mul.wide.u32 %%rd2, %%r1, 16;\n"
              "add.s64 %%rd3, %%rd1, %%rd2; mov.u32 %%r2, %%ctaid.x;\n%s\nret;\n}\n",
              body);
  if (sim_module_load("t.ptx", text_cstr(&ptx), ptx.count, &module) != STATUS_OK) fail_msg("%s", status_message());
  uint64_t params[1] = {(uint64_t)(uintptr_t)x};
  SimLaunch launch = {.grid = {blocks, 1, 1}, .block = {threads, 1, 1}, .params = params, .param_bytes = 8,
                      .counts = &counts, .timing = &timing, .sample = sample};
  if (sim_launch(machine, sim_module_kernel(module, "k"), &launch) != STATUS_OK) fail_msg("%s", status_message());
  sim_module_free(module);
  text_free(&ptx);
  return counts;
}

static SimCounts run(SimMachine *machine, const char *body, int threads) {
  char *x;
  assert_int_equal(sim_alloc(machine, 4 * WORDS, &x), STATUS_OK);
  sim_mark(machine, x, 4 * WORDS, true);
  SimCounts counts = run_blocks(machine, body, threads, 1, 0, x);
  assert_true(sim_free(machine, x));
  assert_int_equal(counts.blocks, 1);
  assert_int_equal(counts.path, counts.longest_path);
  return counts;
}

static void takes(SimMachine *machine, const char *what, const char *body, int threads, int64_t cycles) {
  int64_t path = run(machine, body, threads).path;
  if (path < cycles || path > cycles + 60) /* a few instructions around it */
    fail_msg("%s: %lld cycles, and it should be %lld or a few more", what, (long long)path, (long long)cycles);
}

/* Loads of one thread from places far apart, as the block's cache has none of them. */
static void test_loads(void **state) {
  takes(*state, "one load", "ld.global.u32 %r3, [%rd3]; st.global.u32 [%rd3], %r3;", 32, MEMORY);
  takes(*state, "a load that nobody waits for", "ld.global.u32 %r3, [%rd3];", 32, 0);
  takes(*state, "three side by side",
        "ld.global.u32 %r3, [%rd3]; ld.global.u32 %r4, [%rd3+1024]; ld.global.u32 %r5, [%rd3+2048];\n"
        "add.u32 %r3, %r3, %r4; add.u32 %r3, %r3, %r5; st.global.u32 [%rd3], %r3;", 32, MEMORY);
  const char *chain =
      "ld.global.u32 %r3, [%rd3]; and.b32 %r3, %r3, 1; mul.wide.u32 %rd4, %r3, 4; add.s64 %rd4, %rd4, %rd3;\n"
      "ld.global.u32 %r4, [%rd4+1024]; and.b32 %r4, %r4, 1; mul.wide.u32 %rd5, %r4, 4; add.s64 %rd5, %rd5, %rd3;\n"
      "ld.global.u32 %r5, [%rd5+2048]; st.global.u32 [%rd3], %r5;";
  takes(*state, "three of which each needs the one before", chain, 32, 3 * MEMORY);
  takes(*state, "again from the cache", "ld.global.u32 %r3, [%rd3]; bar.sync 0; ld.global.u32 %r4, [%rd3];\n"
        "add.u32 %r3, %r3, %r4; st.global.u32 [%rd3], %r3;", 32, MEMORY);
  takes(*state, "the second behind a store that waits for the first",
        "ld.global.u32 %r3, [%rd3]; st.global.u32 [%rd3+4], %r3; ld.global.u32 %r4, [%rd3+1024];\n"
        "st.global.u32 [%rd3+8], %r4;", 32, 2 * MEMORY);
  takes(*state, "a load that begins before what stands before it",
        "ld.global.u32 %r3, [%rd3]; add.u32 %r3, %r3, 1; add.u32 %r3, %r3, 1; ld.global.u32 %r4, [%rd3+1024];\n"
        "add.u32 %r3, %r3, %r4; st.global.u32 [%rd3+4], %r3;", 32, MEMORY);
}

static void test_waits(void **state) {
  const char *slow = /* warp 1 waits for memory before the barrier, warp 0 behind it */
      "setp.lt.u32 %p1, %r1, 32; @%p1 bra A;\n ld.global.u32 %r3, [%rd3]; add.u32 %r3, %r3, 1;\n"
      "st.global.u32 [%rd3], %r3;\nA: bar.sync 0; @!%p1 bra B; ld.global.u32 %r4, [%rd3+1024];\n"
      "add.u32 %r4, %r4, 1; st.global.u32 [%rd3+2048], %r4;\nB:";
  takes(*state, "two warps and a barrier", slow, 64, 2 * MEMORY);
  takes(*state, "shared memory", "mov.u32 %r5, s; mad.lo.u32 %r5, %r1, 4, %r5; st.shared.u32 [%r5], %r1; bar.sync 0;\n"
        "ld.shared.u32 %r3, [%r5]; st.global.u32 [%rd3], %r3;", 32, SHARED);
  /* four copies in two groups: behind the first wait all of the first, behind the last all */
  takes(*state, "cp.async",
        "mov.u32 %r5, s; mad.lo.u32 %r5, %r1, 16, %r5; cp.async.cg.shared.global [%r5], [%rd3], 16;\n"
        "cp.async.commit_group; cp.async.cg.shared.global [%r5+512], [%rd3+512], 16; cp.async.commit_group;\n"
        "cp.async.wait_group 1; cp.async.wait_group 0; ld.shared.u32 %r3, [%r5]; st.global.u32 [%rd3+1024], %r3;",
        32, MEMORY + 2 * SHARED);
  takes(*state, "a bulk copy",
        "mov.u32 %r5, s; setp.ne.u32 %p1, %r1, 0; @%p1 bra A; mbarrier.init.shared.b64 [%r5+2048], 1;\n"
        "fence.mbarrier_init.release.cluster; fence.proxy.async;\n"
        "mbarrier.arrive.expect_tx.shared.b64 %rd9, [%r5+2048], 640;\n"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%rd1], 640, [%r5+2048];\n"
        "A: bar.sync 0;\nW: mbarrier.try_wait.parity.shared.b64 %p2, [%r5+2048], 0; @!%p2 bra W;\n"
        "ld.shared.u32 %r3, [%r5]; st.global.u32 [%rd3+1024], %r3;",
        32, MEMORY + 640 / 64 + SHARED);
}

static void test_tensor_cores(void **state) {
  /* eight products of 4096 operations, of which each needs the sums of the one before, or not */
  Text chain = {0}, beside = {0};
  for (int i = 0; i < 8; i++) {
    const char *product = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%%f%d,%%f%d,%%f%d,%%f%d}, "
                          "{%%r1,%%r1,%%r1,%%r1}, {%%r1,%%r1}, {%%f%d,%%f%d,%%f%d,%%f%d};\n";
    text_printf(&chain, product, 1, 2, 3, 4, 1, 2, 3, 4);
    text_printf(&beside, product, i, i + 1, i + 2, i + 3, 16, 17, 18, 19);
  }
  const char *zero = "mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;\n"
                     "mov.f32 %f16, %f1; mov.f32 %f17, %f1; mov.f32 %f18, %f1; mov.f32 %f19, %f1;\n";
  Text one = {0}, two = {0};
  text_printf(&one, "%s%s", zero, text_cstr(&chain));
  text_printf(&two, "%s%s", zero, text_cstr(&beside));
  SimCounts apart = run(*state, text_cstr(&one), 32), together = run(*state, text_cstr(&two), 32);
  assert_int_equal(apart.mma, 8 * 4096);
  assert_int_equal(together.mma, 8 * 4096);
  assert_in_range(apart.path, 7 * (8 + 10), 8 * (8 + 30)); /* eight cycles each, and until the sums are there */
  assert_in_range(together.path, 7 * 8, 8 * 8 + 30);
  text_free(&chain), text_free(&beside), text_free(&one), text_free(&two);
}

static void test_units(void **state) {
  SimCounts none = run(*state, "", 64);
  SimCounts some = run(*state, "mov.f32 %f1, 0f3f800000; fma.rn.f32 %f2, %f1, %f1, %f1; add.f32 %f3, %f1, %f2;\n"
                       "ex2.approx.ftz.f32 %f4, %f3; mad.lo.s32 %r3, %r1, %r1, %r1; xor.b32 %r4, %r3, %r1;\n"
                       "add.s64 %rd4, %rd3, %rd3; shfl.sync.bfly.b32 %r5, %r4, 1, 31, -1;", 64);
  assert_int_equal(some.f32 - none.f32, 2 * 2); /* two warps */
  assert_int_equal(some.special - none.special, 2);
  assert_int_equal(some.multiply - none.multiply, 2);
  assert_int_equal(some.integer - none.integer, 2 * 3); /* 64 bits are two instructions */
  assert_int_equal(some.issued - none.issued, 2 * 8);
  assert_int_equal(some.wavefronts - none.wavefronts, 2);
  /* 8 lanes of a row of shared memory with all in one bank, and one of 32 banks */
  SimCounts bank = run(*state, "mov.u32 %r5, s; mad.lo.u32 %r5, %r1, 128, %r5; st.shared.u32 [%r5], %r1;", 32);
  assert_int_equal(bank.wavefronts - none.wavefronts / 2, 32);
}

static void test_widths(void **state) {
  SimCounts counts = run(*state, "ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%rd3];", 64);
  assert_int_equal(counts.wide_loads, 2);
  assert_int_equal(counts.narrow_loads, 0);
  counts = run(*state, "mul.wide.u32 %rd4, %r1, 4; add.s64 %rd4, %rd4, %rd1; ld.global.u32 %r3, [%rd4];", 64);
  assert_int_equal(counts.wide_loads, 0);
  assert_int_equal(counts.narrow_loads, 2);
  counts = run(*state, "ld.global.u32 %r3, [%rd3]; ld.global.u32 %r4, [%rd1];", 64); /* gaps, and all the same */
  assert_int_equal(counts.wide_loads + counts.narrow_loads, 0);
}

/* Of 700 blocks seven: one of each hundred, not at equal distances, and the same ones each time. */
static void test_sample(void **state) {
  const char *body = "mul.wide.u32 %rd4, %r2, 4; add.s64 %rd4, %rd4, %rd1; mov.u32 %r3, 1; st.global.u32 [%rd4], %r3;";
  uint32_t first[700];
  for (int round = 0; round < 2; round++) {
    char *x;
    assert_int_equal(sim_alloc(*state, 4 * 700, &x), STATUS_OK);
    SimCounts counts = run_blocks(*state, body, 1, 700, 7, x);
    assert_int_equal(counts.blocks, 7);
    assert_int_equal(counts.store_requests, 7);
    const uint32_t *words = (const uint32_t *)(const void *)x;
    int last = -1, distance = 0, differ = 0;
    for (int i = 0; i < 7; i++) {
      int at = -1;
      for (int k = 0; k < 100; k++)
        if (words[100 * i + k]) {
          assert_int_equal(at, -1);
          at = 100 * i + k;
        }
      assert_true(at >= 0);
      differ += i > 1 && at - last != distance;
      distance = at - last;
      last = at;
    }
    assert_true(differ > 0);
    if (round) assert_memory_equal(first, x, sizeof first);
    memcpy(first, x, sizeof first);
    assert_true(sim_free(*state, x));
  }
}

/* A sample reads what other blocks would have written: nobody minds. */
static void test_unchecked(void **state) {
  (void)state;
  SimMachine *machine;
  char *x;
  assert_int_equal(sim_machine_new(1, &machine), STATUS_OK);
  sim_machine_unchecked(machine);
  assert_int_equal(sim_alloc(machine, 4 * WORDS, &x), STATUS_OK);
  SimCounts counts = run_blocks(machine, "ld.global.u32 %r3, [%rd3]; st.global.u32 [%rd3+4], %r3;", 32, 4, 2, x);
  assert_int_equal(counts.blocks, 2);
  sim_machine_free(machine);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_loads),  cmocka_unit_test(test_waits),  cmocka_unit_test(test_tensor_cores),
      cmocka_unit_test(test_units),  cmocka_unit_test(test_widths), cmocka_unit_test(test_sample),
      cmocka_unit_test(test_unchecked),
  };
  return SIM_TEST_LANES(tests);
}
