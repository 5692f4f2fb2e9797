/* runtime_sim_arrive: barriers at which some warps arrive and go on (bar.arrive), clusters that the launch asks for, and
 * samples of blocks that draw their work from a counter; and each finding about them, provoked by one planted defect. */
#include "runtime_sim.h"

enum { WORDS = 256, SEEDS = 20 };

static Status run(SimMachine *machine, const char *ptx, SimLaunch launch, uint32_t *result) {
  SimModule *module;
  char *out;
  if (sim_module_load("t.ptx", ptx, strlen(ptx), &module) != STATUS_OK) fail_msg("%s\n%s", status_message(), ptx);
  assert_int_equal(sim_alloc(machine, WORDS * 4, &out), STATUS_OK);
  sim_mark(machine, out, WORDS * 4, true);
  uint64_t params[] = {(uint64_t)(uintptr_t)out};
  launch.params = params;
  launch.param_bytes = sizeof params;
  launch.step_limit = 100000;
  if (launch.counter) launch.counter = out + 4 * (WORDS - 1);
  Status status = sim_launch(machine, sim_module_kernel(module, "k"), &launch);
  memcpy(result, out, WORDS * 4);
  sim_free(machine, out);
  sim_module_free(module);
  return status;
}

#define BEGIN(limits)                                                                                                                    \
  ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 out)\n" limits                                          \
  "\n{\n.reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<8>;\n.shared .align 16 .b8 s[256];\nld.param.u64 %rd1, [out];\n"                \
  "mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31; shl.b32 %r3, %r2, 2; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;\n"                \
  "mov.u32 %r4, 0; mov.u32 %r5, 0; setp.ge.u32 %p1, %r1, 32;\n"
#define END "\n$END:\nret;\n}\n"

/* Warp 1 gives warp 0 four rows through one place: barrier 1 says that it is full, 2 that it is empty. */
#define RING(empty, wait_empty, write, full, wait_full, read, again)                                                                     \
  BEGIN("")                                                                                                                              \
  "@%p1 bra $GIVE;\n" empty "$TAKE:\n" wait_full read again "add.s32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 4; @%p2 bra $TAKE;\n"             \
  "st.global.u32 [%rd3], %r4;\nbra.uni $END;\n$GIVE:\n" wait_empty write full                                                            \
  "add.s32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 4; @%p2 bra $GIVE;" END
#define EMPTY "bar.arrive 2, 64;\n"
#define WAIT_EMPTY "barrier.cta.sync.aligned 2, 64;\n"
#define WRITE "mad.lo.s32 %r6, %r5, 100, %r2; st.shared.u32 [%r3], %r6;\n"
#define FULL "barrier.cta.arrive.aligned 1, 64;\n"
#define WAIT_FULL "bar.sync 1, 64;\n"
#define READ "ld.shared.u32 %r7, [%r3]; add.s32 %r4, %r4, %r7;\n"
/* The last "empty" is one that nobody waits for. */

static void arrivals(void **state) {
  static const struct {
    const char *ptx, *finding; /* NULL: right */
  } cases[] = {
      {RING(EMPTY, WAIT_EMPTY, WRITE, FULL, WAIT_FULL, READ, EMPTY), NULL},
      {RING(EMPTY, WAIT_EMPTY, "", FULL WRITE, WAIT_FULL, READ, EMPTY), "race"},
      {RING(EMPTY, WAIT_EMPTY, WRITE, FULL, WAIT_FULL EMPTY, READ, ""), "race"},
      {RING(EMPTY, "", WRITE, FULL, WAIT_FULL, READ, ""), "race"},
      {RING(EMPTY, WAIT_EMPTY, WRITE, FULL "st.shared.u32 [%r3+128], %r6;\n", WAIT_FULL, READ "bar.sync 3, 32; ld.shared.u32 %r8, [%r3+128];\n", EMPTY), "byte 1"},
      {RING(EMPTY, WAIT_EMPTY, WRITE, FULL, "", READ, EMPTY), ""},
      {RING("", WAIT_EMPTY, WRITE, FULL, WAIT_FULL, READ, EMPTY), "wait at different barriers"},
      {RING(EMPTY, WAIT_EMPTY, WRITE, "", WAIT_FULL, READ, EMPTY), "wait at different barriers"},
      {RING(EMPTY, WAIT_EMPTY, WRITE, "bar.arrive 1, 96;\n", WAIT_FULL, READ, EMPTY), "barrier 1 is for"},
      {RING(EMPTY, "bar.sync 2, 96;\n", WRITE, FULL, WAIT_FULL, READ, EMPTY), "barrier 2 is for 96 threads here, and for 64 where others came to it"},
      {RING("bar.arrive 2, 48;\n", WAIT_EMPTY, WRITE, FULL, WAIT_FULL, READ, EMPTY), "bar.arrive at a barrier for 48 threads, which are no whole warps"},
      {RING("bar.arrive 16, 64;\n", WAIT_EMPTY, WRITE, FULL, WAIT_FULL, READ, EMPTY), "there is no barrier 16"},
      {RING("setp.lt.u32 %p3, %r1, 8; @%p3 bra $L1;\n" EMPTY "$L1:\n", WAIT_EMPTY, WRITE, FULL, WAIT_FULL, READ, EMPTY), "divergent barrier"},
  };
  uint32_t result[WORDS];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int found = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
      sim_machine_seed(*state, seed);
      Status status = run(*state, cases[i].ptx, (SimLaunch){.grid = {1, 1, 1}, .block = {64, 1, 1}}, result);
      if (!cases[i].finding && status != STATUS_OK) fail_msg("case %zu, seed %d: %s", i, (int)seed, status_message());
      for (uint32_t l = 0; l < 32 && !cases[i].finding; l++) assert_int_equal(result[l], 4 * l + 600);
      found += status != STATUS_OK && cases[i].finding && strstr(status_message(), cases[i].finding);
    }
    if (cases[i].finding && found < SEEDS / 2) fail_msg("case %zu: %d seeds find \"%s\"; last: %s", i, found, cases[i].finding, status_message());
  }
  sim_machine_seed(*state, 0);
  sim_test_refuses("", "bar.arrive 1;", "takes 2 operands");
}

/* ── clusters by the launch ───────────────────────────────────────────────────────────────── */
/* Eight words for each block. */
#define PLACES(limits)                                                                                                                   \
  BEGIN(limits)                                                                                                                          \
  "mov.u32 %r10, %ctaid.x; mov.u32 %r11, %nctaid.x; mov.u32 %r12, %ctaid.y; mad.lo.s32 %r10, %r12, %r11, %r10;\n"                         \
  "mul.wide.u32 %rd4, %r10, 32; add.s64 %rd4, %rd1, %rd4;\n"                                                                             \
  "mov.u32 %r13, %cluster_ctaid.x; mov.u32 %r14, %clusterid.x; mov.u32 %r15, %nclusterid.x; mov.u32 %r16, %cluster_nctaid.x;\n"           \
  "st.global.v4.u32 [%rd4], {%r13, %r14, %r15, %r16};\n"                                                                                 \
  "mov.u32 %r13, %clusterid.y; mov.u32 %r14, %nclusterid.y; mov.u32 %r15, %cluster_nctaid.y; mov.u32 %r16, %cluster_ctarank;\n"           \
  "mov.u32 %r17, %cluster_ctaid.y; mov.u32 %r18, %cluster_ctaid.z; add.s32 %r15, %r15, %r17; add.s32 %r15, %r15, %r18;\n"                 \
  "mov.u32 %r17, %clusterid.z; add.s32 %r15, %r15, %r17; mov.u32 %r17, %nclusterid.z; mov.u32 %r18, %cluster_nctaid.z;\n"                 \
  "mul.lo.s32 %r15, %r15, %r17; mul.lo.s32 %r15, %r15, %r18;\n"                                                                          \
  "st.global.v4.u32 [%rd4+16], {%r13, %r14, %r15, %r16};" END

static void clusters(void **state) {
  uint32_t got[WORDS];
  SimLaunch launch = {.grid = {4, 3, 1}, .block = {1, 1, 1}, .cluster = 2};
  if (run(*state, PLACES(""), launch, got) != STATUS_OK) fail_msg("%s", status_message());
  for (uint32_t y = 0; y < 3; y++)
    for (uint32_t x = 0; x < 4; x++) {
      const uint32_t want[] = {x % 2, x / 2, 2, 2, y, 3, 1, x % 2}, *at = got + 8 * (4 * y + x);
      assert_memory_equal(at, want, sizeof want);
    }
  static const struct {
    const char *ptx, *finding;
    int grid, cluster;
  } cases[] = {
      {PLACES(""), "a grid of 4 blocks is no multiple of its clusters' 3", 4, 3},
      {PLACES(""), "clusters of 16 blocks, where 8 are possible", 16, 16},
      {PLACES(".reqnctapercluster 2, 1, 1"), "clusters of 4 blocks, where 2 are compiled in", 4, 4},
      {PLACES(".reqnctapercluster 2, 1, 1"), NULL, 4, 2},
      {PLACES(".reqnctapercluster 2, 1, 1"), NULL, 4, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    launch = (SimLaunch){.grid = {cases[i].grid, 1, 1}, .block = {1, 1, 1}, .cluster = cases[i].cluster};
    Status status = run(*state, cases[i].ptx, launch, got);
    if (!cases[i].finding && (status != STATUS_OK || got[3] != 2)) fail_msg("case %zu: %s", i, status_message());
    if (cases[i].finding && (status == STATUS_OK || !strstr(status_message(), cases[i].finding)))
      fail_msg("case %zu: \"%s\" in place of \"%s\"", i, status_message(), cases[i].finding);
  }
}

/* ── samples that draw ────────────────────────────────────────────────────────────────────── */
/* Each block draws numbers below 20, and leaves how many there were and their sum. */
#define DRAW(step)                                                                                                                       \
  BEGIN("")                                                                                                                              \
  "mov.u32 %r10, %ctaid.x; mul.wide.u32 %rd4, %r10, 8; add.s64 %rd4, %rd1, %rd4;\n$L1:\n"                                                 \
  "atom.global.add.u32 %r6, [%rd1+1020], " step ";\nsetp.ge.u32 %p2, %r6, 20; @%p2 bra $L2;\n"                                            \
  "add.s32 %r5, %r5, 1; add.s32 %r4, %r4, %r6; bra $L1;\n$L2:\nst.global.v2.u32 [%rd4], {%r5, %r4};" END

static void draws(void **state) {
  static const char any;
  uint32_t got[WORDS];
  SimLaunch launch = {.grid = {8, 1, 1}, .block = {1, 1, 1}, .counter = &any, .sample = 3};
  if (run(*state, DRAW("1"), launch, got) != STATUS_OK) fail_msg("%s", status_message());
  int blocks = 0;
  for (uint32_t b = 0; b < 8; b++) { /* b, b + 8, b + 16 */
    uint32_t count = b + 16 < 20 ? 3 : 2, sum = count * b + (count == 3 ? 24 : 8);
    if (!got[2 * b]) continue;
    blocks++;
    assert_int_equal(got[2 * b], count);
    assert_int_equal(got[2 * b + 1], sum);
  }
  assert_int_equal(blocks, 3);
  for (int i = 0; i < 3; i++) { /* all blocks; no counter; not by ones: as it stands in memory */
    launch = (SimLaunch){.grid = {8, 1, 1}, .block = {1, 1, 1}, .counter = i == 1 ? NULL : &any, .sample = i == 0 ? 0 : 3};
    if (run(*state, i == 2 ? DRAW("2") : DRAW("1"), launch, got) != STATUS_OK) fail_msg("%s", status_message());
    uint32_t count = 0, sum = 0;
    for (int b = 0; b < 8; b++) count += got[2 * b], sum += got[2 * b + 1];
    assert_int_equal(count, i == 2 ? 10 : 20);
    assert_int_equal(sum, i == 2 ? 90 : 190);
  }
}

/* ── parameters by a register ─────────────────────────────────────────────────────────────── */
/* Lane l loads at byte 8 (l % 4) + `offset` of the second parameter, whose words are 100, 101, … */
#define PARAMETERS(load)                                                                                                                 \
  ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 out, .param .align 8 .b8 p[40])\n{\n"                    \
  ".reg .b32 %r<32>; .reg .b64 %rd<8>; .reg .b16 %rs<4>;\nld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 8;\n"     \
  "add.s64 %rd3, %rd1, %rd2; and.b32 %r2, %r1, 3; mul.wide.u32 %rd4, %r2, 8; mov.b64 %rd5, p; add.s64 %rd6, %rd5, %rd4;\n" load            \
  "st.global.v2.u32 [%rd3], {%r4, %r5};\nret;\n}\n"

static void parameters(void **state) {
  static const struct {
    const char *ptx, *finding;
    uint32_t first, second, first_step, second_step; /* of lanes 0 to 3 */
  } cases[] = {
      {PARAMETERS("ld.param.v2.u32 {%r4, %r5}, [%rd6];\n"), NULL, 100, 101, 2, 2},
      {PARAMETERS("ld.param.u32 %r4, [%rd6+8]; ld.param.u32 %r5, [%rd6+4];\n"), NULL, 102, 101, 2, 2},
      {PARAMETERS("add.s64 %rd6, %rd6, 8; ld.param.u32 %r4, [%rd6+-8]; ld.param.u16 %rs1, [%rd6+4]; cvt.u32.u16 %r5, %rs1;\n"), NULL, 100, 103, 2, 2},
      {PARAMETERS("ld.param.u64 %rd6, [%rd6]; mov.b64 {%r4, %r5}, %rd6;\n"), NULL, 100, 101, 2, 2},
      {PARAMETERS("ld.param.u32 %rd7, [%rd6+12]; mov.b64 {%r4, %r5}, %rd7;\n"), NULL, 103, 0, 2, 0},
      {PARAMETERS("ld.param.v2.u32 {%r4, %r5}, [%rd6+16];\n"), "out of bounds: a load of 8 bytes at byte 48 of the parameters, which have 48", 0, 0, 0, 0},
      {PARAMETERS("ld.param.v2.u32 {%r4, %r5}, [%rd6+-16];\n"), "out of bounds: a load of 8 bytes at byte -8 of the parameters", 0, 0, 0, 0},
      {PARAMETERS("ld.param.v2.u32 {%r4, %r5}, [%rd6+4];\n"), "out of bounds: a load of 8 bytes at byte 12 of the parameters", 0, 0, 0, 0},
  };
  uint32_t got[WORDS];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    SimModule *module;
    char *out;
    if (sim_module_load("t.ptx", cases[i].ptx, strlen(cases[i].ptx), &module) != STATUS_OK) fail_msg("%s\n%s", status_message(), cases[i].ptx);
    assert_int_equal(sim_alloc(*state, 256, &out), STATUS_OK);
    struct {
      char *out;
      uint32_t word[10];
    } params = {out, {100, 101, 102, 103, 104, 105, 106, 107, 108, 109}};
    SimLaunch launch = {.grid = {1, 1, 1}, .block = {32, 1, 1}, .params = &params, .param_bytes = sizeof params, .step_limit = 1000};
    Status status = sim_launch(*state, sim_module_kernel(module, "k"), &launch);
    memcpy(got, out, 256);
    sim_free(*state, out);
    sim_module_free(module);
    if (cases[i].finding && (status == STATUS_OK || !strstr(status_message(), cases[i].finding)))
      fail_msg("case %zu: \"%s\" in place of \"%s\"", i, status_message(), cases[i].finding);
    if (!cases[i].finding && status != STATUS_OK) fail_msg("case %zu: %s", i, status_message());
    for (uint32_t l = 0; l < 32 && !cases[i].finding; l++) {
      assert_int_equal(got[2 * l], cases[i].first + l % 4 * cases[i].first_step);
      assert_int_equal(got[2 * l + 1], cases[i].second + l % 4 * cases[i].second_step);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(arrivals),
      cmocka_unit_test(clusters),
      cmocka_unit_test(draws),
      cmocka_unit_test(parameters),
  };
  return SIM_TEST_LANES(tests);
}
