/* runtime_sim_early: launches that are begun before the one that they wait for has ended: each thread waits
 * (griddepcontrol.wait) before it touches global memory, and before it ends; each finding about that,
 * provoked by one planted defect, and the same kernel without it. */
#include "runtime_sim.h"

/* The kernel k(in, out, map): in is 64 words that hold their index, out 64 words, the map one of 64 words of in. */
#define BEGIN                                                                                      \
  ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 " \
  "out, .param .align 64 .b8 map[128])\n{\n"                                                       \
  ".reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<16>;\n"                                       \
  ".shared .align 128 .b8 s[256]; .shared .align 8 .b8 bar[8];\n"                                  \
  "ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out]; mov.u32 %r1, %tid.x;\n"                      \
  "mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;\n"               \
  "cvt.u32.u64 %r2, %rd3; mov.u32 %r3, s; add.s32 %r2, %r2, %r3; setp.lt.u32 %p1, %r1, 40;\n"      \
  "mov.b64 %rd6, map; cvta.param.u64 %rd7, %rd6; mov.u32 %r5, 0; setp.eq.u32 %p2, %r1, 0;\n"
#define END "\nret;\n}\n"
#define WAIT "griddepcontrol.wait;\n"
/* The body begins at line 12. */

typedef struct {
  const char *name, *body;
  const char *message; /* after "t.ptx:", of an early launch; NULL: there is nothing to find */
} Case;

#define BOX                                                                                        \
  "@%p2 cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], "  \
  "[%rd7, {%r5}], [%r6];\n"
#define BOX_READY                                                                                  \
  "mov.u32 %r6, bar; @%p2 mbarrier.init.shared::cta.b64 [%r6], 1; "                                \
  "fence.mbarrier_init.release.cluster; @%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], " \
  "256;\n"
#define BOX_WAIT                                                                                   \
  "bar.sync 0;\n$L1: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r6], 0; @!%p3 bra $L1;\n"

static const Case cases[] = {
    {"load and store", WAIT "ld.global.u32 %r4, [%rd4]; st.global.u32 [%rd5], %r4;", NULL},
    {"what is not memory may come before",
     "st.shared.u32 [%r2], %r1; bar.sync 0; ld.shared.u32 %r4, [%r2];\n" WAIT "griddepcontrol.launch_dependents;\n"
     "st.global.u32 [%rd5], %r4;",
     NULL},
    {"a load before", "ld.global.u32 %r4, [%rd4];\n" WAIT "st.global.u32 [%rd5], %r4;",
     "12: too early: a load of 4 bytes at byte 0 of input, by thread (0,0,0) of block (0,0,0), before "
     "griddepcontrol.wait: the kernel before may still be at work there"},
    {"a load that others may do", "ld.global.nc.u32 %r4, [%rd4];\n" WAIT "st.global.u32 [%rd5], %r4;",
     "12: too early: a load of 4 bytes"},
    {"a store before", "st.global.u32 [%rd5], %r1;\n" WAIT,
     "12: too early: a store of 4 bytes at byte 0 of output, by thread (0,0,0)"},
    {"some lanes", "@%p1 griddepcontrol.wait;\nst.global.u32 [%rd5], %r1;\n@!%p1 griddepcontrol.wait;",
     "13: too early: a store of 4 bytes at byte 160 of output, by thread (40,0,0)"},
    {"those that have waited", "@%p1 griddepcontrol.wait;\n@%p1 st.global.u32 [%rd5], %r1;\n@!%p1 griddepcontrol.wait;",
     NULL},
    {"an atomic update", "red.global.add.u32 [%rd5], 1;\n" WAIT,
     "12: too early: an atomic update of 4 bytes at byte 0 of output"},
    {"an asynchronous copy",
     "mov.u32 %r7, s; @%p2 cp.async.ca.shared.global [%r7], [%rd4], 16; cp.async.wait_all;\n" WAIT,
     "12: too early: an asynchronous copy of 16 bytes at byte 0 of input"},
    {"a bulk copy", BOX_READY BOX WAIT BOX_WAIT, "13: too early: a bulk copy of 16 bytes at byte 0 of input"},
    {"a bulk copy behind", BOX_READY WAIT BOX BOX_WAIT, NULL},
    {"through a generic address", "ld.u32 %r4, [%rd4];\n" WAIT, "12: too early: a load of 4 bytes"},
    {"no wait", "griddepcontrol.launch_dependents;",
     "13: too early: thread (0,0,0) of block (0,0,0) ends without griddepcontrol.wait: this kernel may "
     "end before the one before it, and the next would wait for this one only"},
    {"some end without", "@!%p1 ret;\n" WAIT "st.global.u32 [%rd5], %r1;",
     "15: too early: thread (40,0,0) of block (0,0,0) ends without griddepcontrol.wait"},
};

static Status run_case(SimMachine *machine, const Case *c, bool is_early) {
  Text ptx = {0};
  SimModule *module;
  char *in, *out;
  text_printf(&ptx, "%s%s%s", BEGIN, c->body, END);
  if (sim_module_load("t.ptx", text_cstr(&ptx), ptx.count, &module) != STATUS_OK)
    fail_msg("%s\n%s", status_message(), text_cstr(&ptx));
  text_free(&ptx);
  assert_int_equal(sim_alloc(machine, 256, &in), STATUS_OK);
  assert_int_equal(sim_alloc(machine, 256, &out), STATUS_OK);
  for (uint32_t i = 0; i < 64; i++) memcpy(in + i * 4, &i, 4);
  sim_mark(machine, in, 256, true);
  sim_mark(machine, out, 256, true);
  struct {
    uint64_t in, out, none[6];
    SimTensorMap map;
    char rest[128 - sizeof(SimTensorMap)];
  } params = {(uint64_t)(uintptr_t)in, (uint64_t)(uintptr_t)out, {0}, {0}, ""};
  params.map = (SimTensorMap){.magic = SIM_TENSOR_MAP, .address = params.in, .rank = 1, .dim = {64},
                              .stride = {4}, .box = {64}};
  SimRegion regions[] = {{"input", in, 256, false}, {"output", out, 256, true}};
  SimLaunch launch = {.grid = {1, 1, 1},
                      .block = {64, 1, 1},
                      .params = &params,
                      .param_bytes = sizeof params,
                      .regions = regions,
                      .region_count = 2,
                      .is_early = is_early,
                      .step_limit = 100000};
  Status status = sim_launch(machine, sim_module_kernel(module, "k"), &launch);
  sim_free(machine, in);
  sim_free(machine, out);
  sim_module_free(module);
  return status;
}

static void findings(void **state) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const Case *c = &cases[i];
    if (run_case(*state, c, false) != STATUS_OK) fail_msg("%s, launched behind: %s", c->name, status_message());
    Status status = run_case(*state, c, true);
    if ((status == STATUS_OK) != !c->message) fail_msg("%s: %s", c->name, status ? status_message() : "nothing");
    if (c->message && !strstr(status_message(), c->message))
      fail_msg("%s: \"%s\" in place of \"%s\"", c->name, status_message(), c->message);
  }
}

static void refused_words(void **state) {
  (void)state;
  sim_test_refuses("", "griddepcontrol.launch;", "unsupported instruction griddepcontrol.launch");
  sim_test_refuses(".reg .b32 %r<2>;", "griddepcontrol.wait %r1;", "griddepcontrol.wait takes no operands");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(findings),
      cmocka_unit_test(refused_words),
  };
  return SIM_TEST_LANES(tests);
}
