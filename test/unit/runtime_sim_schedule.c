/* runtime_sim_schedule: in which order the simulator runs what may run in several: seeds give other
 * orders, the same seed the same; kernels whose result depends on it show. And setmaxnreg, which
 * makes warps wait for each other's registers. */
#include "runtime_sim.h"

enum { WORDS = 1024, SEEDS = 24 };

/* k(in, out), with 0, 1, 2, … in `in`: %rd1 and %rd2 the addresses, %r1 the thread, %r2 its warp,
 * %rd4 and %rd5 its own words. */
#define BEGIN(limits)                                                                              \
  ".version 8.0\n.target sm_90a\n.address_size 64\n"                                               \
  ".visible .entry k(.param .u64 in, .param .u64 out)\n" limits "\n{\n"                            \
  ".reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<16>;\n"                                       \
  ".shared .align 16 .b8 s[2048];\n"                                                               \
  "ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out]; mov.u32 %r1, %tid.x;\n"                      \
  "shr.u32 %r2, %r1, 5; mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3;\n"                    \
  "add.s64 %rd5, %rd2, %rd3; shl.b32 %r3, %r1, 2;\n"
#define END "\nst.global.u32 [%rd5], %r4;\nret;\n}\n"

static Status run(SimMachine *machine, const char *ptx, int threads, uint32_t *result) {
  SimModule *module;
  char *in, *out;
  if (sim_module_load("t.ptx", ptx, strlen(ptx), &module) != STATUS_OK)
    fail_msg("%s\n%s", status_message(), ptx);
  assert_int_equal(sim_alloc(machine, WORDS * 4, &in), STATUS_OK);
  assert_int_equal(sim_alloc(machine, WORDS * 4, &out), STATUS_OK);
  for (uint32_t i = 0; i < WORDS; i++) memcpy(in + i * 4, &i, 4);
  sim_mark(machine, in, WORDS * 4, true);
  uint64_t params[] = {(uint64_t)(uintptr_t)in, (uint64_t)(uintptr_t)out};
  SimLaunch launch = {.grid = {1, 1, 1},
                      .block = {threads, 1, 1},
                      .params = params,
                      .param_bytes = sizeof params,
                      .step_limit = 100000};
  Status status = sim_launch(machine, sim_module_kernel(module, "k"), &launch);
  memcpy(result, out, WORDS * 4);
  sim_free(machine, in);
  sim_free(machine, out);
  sim_module_free(module);
  return status;
}

/* How many of the seeds give other results than no seed; every run is made twice. */
static int different(SimMachine *machine, const char *ptx, int threads) {
  static uint32_t plain[WORDS], once[WORDS], again[WORDS];
  int count = 0;
  sim_machine_seed(machine, 0);
  if (run(machine, ptx, threads, plain) != STATUS_OK) fail_msg("%s", status_message());
  for (int seed = 1; seed <= SEEDS; seed++) {
    sim_machine_seed(machine, (uint64_t)seed);
    if (run(machine, ptx, threads, once) != STATUS_OK) fail_msg("%s", status_message());
    sim_machine_seed(machine, (uint64_t)seed);
    if (run(machine, ptx, threads, again) != STATUS_OK) fail_msg("%s", status_message());
    assert_memory_equal(once, again, sizeof once);
    count += memcmp(once, plain, (size_t)threads * 4) != 0;
  }
  sim_machine_seed(machine, 0);
  return count;
}

static void orders(void **state) {
  static const struct {
    const char *name, *bad, *good; /* of which one depends on the order */
  } cases[] = {
      {"which warp comes first", /* a number drawn by an atomic */
       BEGIN("") "setp.ne.u32 %p1, %r1, 0;\nmov.u32 %r5, 0;\n@!%p1 st.shared.u32 [s], %r5;\n"
                 "bar.sync 0;\natom.shared.add.u32 %r4, [s], 1;" END,
       BEGIN("") "setp.ne.u32 %p1, %r1, 0;\nmov.u32 %r5, 0;\n@!%p1 st.shared.u32 [s], %r5;\n"
                 "bar.sync 0;\natom.shared.add.u32 %r4, [s], 1;\nbar.sync 0;\n"
                 "ld.shared.u32 %r4, [s];" END},
      {"a source overwritten before its copy is waited for",
       BEGIN("") "cp.async.ca.shared.global [%r3], [%rd4], 4;\ncp.async.commit_group;\n"
                 "st.global.u32 [%rd4], 7;\ncp.async.wait_group 0;\nld.shared.u32 %r4, [%r3];" END,
       BEGIN("") "cp.async.ca.shared.global [%r3], [%rd4], 4;\ncp.async.commit_group;\n"
                 "cp.async.wait_group 0;\nst.global.u32 [%rd4], 7;\nld.shared.u32 %r4, [%r3];" END},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (different(*state, cases[i].good, 256))
      fail_msg("%s: the kernel without the defect depends on the order", cases[i].name);
    if (different(*state, cases[i].bad, 256) < SEEDS / 2)
      fail_msg("%s: too few seeds show it", cases[i].name);
  }
}

/* ── registers ────────────────────────────────────────────────────────────────────────────── */
/* Two warpgroups of 64 registers a thread; the second gives what the first takes. */
#define REGISTERS(first, second)                                                                   \
  BEGIN(".maxnreg 64")                                                                             \
  "setp.ge.u32 %p1, %r1, 128;\nmov.u32 %r4, 1;\n@%p1 bra $L1;\n" first "\nbra.uni $L2;\n$L1:\n"    \
  second "\n$L2:" END
#define MORE "setmaxnreg.inc.sync.aligned.u32 "
#define LESS "setmaxnreg.dec.sync.aligned.u32 "

static void registers(void **state) {
  static const struct {
    const char *ptx, *finding; /* NULL: right */
    int threads;
  } cases[] = {
      {REGISTERS(MORE "104;", LESS "24;"), NULL, 256},
      {REGISTERS(LESS "24;", MORE "104;"), NULL, 256},
      {REGISTERS(LESS "24;\nbar.sync 1, 128;\n" MORE "64;", ""), NULL, 256},
      {REGISTERS(MORE "112;", LESS "24;"),
       "waits at setmaxnreg.inc for 112 registers a thread, and the others leave it", 256},
      {REGISTERS(MORE "104;", ""), "waits at setmaxnreg.inc for 104", 256},
      {REGISTERS(LESS "72;", ""), "setmaxnreg.dec to more registers than the warp has", 256},
      {REGISTERS(MORE "56;", ""), "setmaxnreg.inc to fewer registers than the warp has", 256},
      {REGISTERS("setp.ge.u32 %p2, %r1, 96;\n@%p2 bra $L3;\n" LESS "40;\n$L3:", ""),
       "setmaxnreg by warp 0 and not by warp 3 of the same warpgroup", 256},
      {REGISTERS("setp.ge.u32 %p2, %r1, 96;\n@%p2 bra $L3;\n" LESS "40;\nbra.uni $L2;\n$L3:\n" LESS
                 "48;",
                 ""),
       "the warps of a warpgroup ask setmaxnreg for different numbers of registers", 256},
      {REGISTERS(LESS "40;\n" LESS "32;", ""),
       "setmaxnreg for the second time before all warps of the warpgroup did the first", 256},
      {REGISTERS("and.b32 %r5, %r1, 1;\nsetp.eq.u32 %p2, %r5, 0;\n@%p2 bra $L3;\n" LESS "40;\n$L3:",
                 ""),
       "divergent setmaxnreg: lanes aaaaaaaa of the warp's ffffffff come here", 256},
      {REGISTERS("", LESS "40;"), "setmaxnreg is for warpgroups", 224},
      {BEGIN(".maxnreg 168") END, "512 threads of 168 registers (.maxnreg) are 86016", 512},
      {BEGIN(".maxnreg 128") "mov.u32 %r4, 1;" END, NULL, 512},
  };
  static uint32_t result[WORDS];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (uint64_t seed = 0; seed < 3; seed++) {
      sim_machine_seed(*state, seed);
      Status status = run(*state, cases[i].ptx, cases[i].threads, result);
      if (!cases[i].finding && status != STATUS_OK) fail_msg("case %zu: %s", i, status_message());
      if (cases[i].finding && status == STATUS_OK)
        fail_msg("case %zu: nothing was found in place of %s", i, cases[i].finding);
      /* with another order another warp may be the one that is named */
      if (cases[i].finding && !seed && !strstr(status_message(), cases[i].finding))
        fail_msg("case %zu: found \"%s\" in place of \"%s\"", i, status_message(),
                 cases[i].finding);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(orders, sim_test_begin, sim_test_end),
      cmocka_unit_test_setup_teardown(registers, sim_test_begin, sim_test_end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
