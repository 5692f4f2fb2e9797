/* runtime_sim_tensor: cp.async.bulk.tensor in the simulator: boxes of tensors of one to five
 * dimensions, in every swizzle, over their edges, against places computed here; and each finding
 * about them, provoked by one planted defect. */
#include "runtime_sim.h"
#include <stdlib.h>

enum { THREADS = 64, MOST_BYTES = 1 << 15 };

typedef struct {
  int rank, size, swizzle; /* size: bytes of an element */
  int dim[5], padding[5];  /* elements after each dimension's end, in units of the one before */
  int box[5], start[5];
} Box;

/* Pieces of the kernel, which a planted defect replaces. */
typedef struct {
  const char *before, *to, *map, *expect, *wait, *after;
} Parts;
static const Parts whole = {"", "0", "map", NULL, NULL, ""};

static int64_t stride_of(const Box *box, int i) {
  int64_t stride = box->size;
  for (int k = 0; k < i; k++) stride *= box->dim[k] + box->padding[k];
  return stride;
}

static int box_bytes(const Box *box) {
  int bytes = box->size;
  for (int i = 0; i < box->rank; i++) bytes *= box->box[i];
  return bytes;
}

static void write_kernel(const Box *box, const Parts *parts, Text *text) {
  int bytes = box_bytes(box);
  text_printf(text,
              ".version 8.0\n.target sm_90a\n.address_size 64\n"
              ".visible .entry k(.param .u64 in, .param .u64 out, .param .align 64 .b8 map[128])\n"
              "{\n.reg .pred %%p<4>; .reg .b32 %%r<8>; .reg .b64 %%rd<8>;\n"
              ".shared .align 1024 .b8 s[%d]; .shared .align 8 .b8 full[8];\n"
              "ld.param.u64 %%rd2, [out]; mov.u32 %%r1, %%tid.x;\nmov.b64 %%rd4, %s; "
              "cvta.param.u64 %%rd5, %%rd4; prefetch.tensormap [%%rd5];\n"
              "setp.ne.u32 %%p1, %%r1, 0; @%%p1 bra $L1;\n"
              "mbarrier.init.shared.b64 [full], 1; fence.mbarrier_init.release.cluster;\n%s",
              bytes + 1024, parts->map, parts->before);
  if (parts->expect)
    text_printf(text, "%s", parts->expect);
  else
    text_printf(text, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], %d;\n", bytes);
  text_printf(text,
              "cp.async.bulk.tensor.%dd.shared::cluster.global%s.mbarrier::complete_tx::bytes "
              "[s+%s], [%%rd5, {",
              box->rank, box->rank % 2 ? ".tile" : "", parts->to);
  for (int i = 0; i < box->rank; i++) text_printf(text, "%s%d", i ? ", " : "", box->start[i]);
  text_printf(text, "}], [full];\n%s$L1:\nbar.sync 0;\n", parts->after);
  text_printf(text, "%s",
              parts->wait ? parts->wait
                          : "$L2:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [full], 0; "
                            "@!%p2 bra $L2;\n");
  text_printf(text,
              "shl.b32 %%r2, %%r1, 2;\n$L3:\nsetp.ge.u32 %%p3, %%r2, %d; @%%p3 bra $L4;\n"
              "ld.shared.u32 %%r3, [%%r2]; cvt.u64.u32 %%rd3, %%r2; add.s64 %%rd3, %%rd2, %%rd3;\n"
              "st.global.u32 [%%rd3], %%r3; add.s32 %%r2, %%r2, %d; bra.uni $L3;\n$L4:\nret;\n}\n",
              bytes, THREADS * 4);
}

/* The status; result: the box as it lies in shared memory. */
static Status run(SimMachine *machine, const Box *box, const Parts *parts, int64_t unwritten,
                  char *result) {
  Text ptx = {0};
  SimModule *module;
  char *in, *out;
  int64_t bytes = stride_of(box, box->rank);
  write_kernel(box, parts, &ptx);
  if (sim_module_load("t.ptx", text_cstr(&ptx), ptx.count, &module) != STATUS_OK)
    fail_msg("%s\n%s", status_message(), text_cstr(&ptx));
  if (getenv("FT_PTX")) text_write_file(getenv("FT_PTX"), ptx.at, ptx.count);
  text_free(&ptx);
  assert_int_equal(sim_alloc(machine, bytes, &in), STATUS_OK);
  assert_int_equal(sim_alloc(machine, MOST_BYTES, &out), STATUS_OK);
  for (int64_t i = 0; i < bytes; i++) in[i] = (char)(i * 7 + i / 256 * 13 + 1);
  sim_mark(machine, in, bytes - unwritten, true);
  struct {
    uint64_t in, out, none[6];
    SimTensorMap map;
    char rest[128 - sizeof(SimTensorMap)];
  } params = {(uint64_t)(uintptr_t)in, (uint64_t)(uintptr_t)out, {0}, {0}, ""};
  params.map = (SimTensorMap){.magic = SIM_TENSOR_MAP,
                              .address = params.in,
                              .rank = (uint16_t)box->rank,
                              .swizzle = (uint16_t)box->swizzle};
  for (int i = 0; i < box->rank; i++) {
    params.map.dim[i] = (uint64_t)box->dim[i];
    params.map.stride[i] = (uint64_t)stride_of(box, i);
    params.map.box[i] = (uint32_t)box->box[i];
  }
  SimLaunch launch = {.grid = {1, 1, 1},
                      .block = {THREADS, 1, 1},
                      .params = &params,
                      .param_bytes = sizeof params,
                      .step_limit = 100000};
  Status status = sim_launch(machine, sim_module_kernel(module, "k"), &launch);
  memcpy(result, out, MOST_BYTES);
  sim_free(machine, in);
  sim_free(machine, out);
  sim_module_free(module);
  return status;
}

/* Byte `b` of element `at` of the box, as the tensor has it. */
static char value_of(const Box *box, const int *at, int b) {
  int64_t place = b;
  for (int i = 0; i < box->rank; i++) {
    int where = box->start[i] + at[i];
    if (where < 0 || where >= box->dim[i]) return 0;
    place += where * stride_of(box, i);
  }
  return (char)(place * 7 + place / 256 * 13 + 1);
}

static void check(SimMachine *machine, const Box *box) {
  static char result[MOST_BYTES];
  int at[5] = {0}, count = box_bytes(box) / box->size;
  if (run(machine, box, &whole, 0, result) != STATUS_OK) fail_msg("%s", status_message());
  for (int n = 0; n < count; n++) {
    for (int b = 0; b < box->size; b++) {
      int place = n * box->size + b, line = place / 128 % 8;
      int piece = place / 16 ^ (box->swizzle == 128  ? line
                                : box->swizzle == 64 ? line % 4
                                : box->swizzle == 32 ? line % 2
                                                     : 0);
      if (result[piece * 16 + place % 16] != value_of(box, at, b))
        fail_msg("%d dimensions, swizzle %d: byte %d of element %d is %d, not %d", box->rank,
                 box->swizzle, b, n, result[piece * 16 + place % 16], value_of(box, at, b));
    }
    for (int i = 0; i < box->rank && ++at[i] == box->box[i]; i++) at[i] = 0;
  }
}

static void boxes(void **state) {
  static const Box cases[] = {
      {1, 4, 0, {100}, {0}, {32}, {24}},
      {1, 2, 0, {100}, {0}, {64}, {72}}, /* over the end */
      {2, 2, 128, {128, 20}, {0}, {64, 16}, {64, 4}},
      {2, 2, 128, {72, 20}, {8}, {64, 16}, {64, 12}}, /* over both */
      {2, 2, 128, {64, 20}, {0}, {64, 16}, {-3, -2}}, /* before the beginning */
      {2, 4, 128, {32, 9}, {0}, {32, 9}, {0, 0}},
      {2, 2, 64, {64, 16}, {0}, {32, 13}, {16, 2}},
      {2, 1, 32, {64, 16}, {0}, {32, 16}, {32, 0}},
      {2, 2, 0, {24, 7}, {0}, {8, 5}, {16, 5}},
      {2, 2, 128, {64, 8}, {0}, {64, 8}, {64, 0}}, /* nothing of it is there */
      {3, 2, 128, {64, 5, 3}, {0, 1}, {64, 4, 2}, {0, 3, 1}},
      {4, 2, 128, {64, 2, 6, 2}, {0, 1}, {64, 1, 4, 1}, {0, 1, 3, 1}},
      {5, 8, 64, {8, 2, 3, 2, 3}, {0}, {8, 2, 2, 1, 2}, {0, 0, 1, 1, 2}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(*state, &cases[i]);
}

static void findings(void **state) {
  static const Box box = {2, 2, 128, {64, 16}, {0}, {64, 16}, {0, 0}};
  static const struct {
    const char *name, *finding;
    Parts parts;
    int64_t unwritten;
  } cases[] = {
      {"read before the wait", "unfinished copy: a load", {.wait = "\n"}, 0},
      {"more bytes expected than come",
       "endless wait",
       {.expect = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 2064;\n"},
       0},
      {"fewer bytes expected than come",
       "endless wait",
       {.expect = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 2032;\n"},
       0},
      {"a place that is not aligned",
       "misaligned: a box of a tensor goes to byte 64",
       {.to = "64"},
       0},
      {"a place outside of shared memory", "out of bounds", {.to = "1152"}, 0},
      {"no map at the address", "bad tensor map: there is none", {.map = "out"}, 0},
      {"a map of other dimensions",
       "bad tensor map: the instruction is for 1 dimensions, the map has 2",
       {.before = "cp.async.bulk.tensor.1d.shared::cta.global.mbarrier::complete_tx::bytes [s], "
                  "[%rd5, {0}], [full];\n"},
       0},
      {"shared memory written before, without a fence",
       "no proxy fence: a bulk copy fills byte 4",
       {.before = "st.shared.u32 [s+4], %r1;\n"},
       0},
      {"a tensor that nobody wrote", "read of memory that nobody wrote", {0}, 8},
      {"no mbarrier",
       "nobody has initialised",
       {.before = "mbarrier.inval.shared.b64 [full];\n"},
       0},
      {"a second box before the first has come",
       "unfinished copy",
       {.after = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[s+1024], [%rd5, {0, 0}], [full];\n"},
       0},
  };
  static char result[MOST_BYTES];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Parts parts = cases[i].parts;
    const char *const *from = (const char *const *)(const void *)&whole;
    const char **to = (const char **)(void *)&parts;
    for (size_t k = 0; k < sizeof parts / sizeof *to; k++)
      if (!to[k]) to[k] = from[k];
    if (run(*state, &box, &parts, cases[i].unwritten, result) == STATUS_OK)
      fail_msg("%s: nothing was found", cases[i].name);
    if (!strstr(status_message(), cases[i].finding))
      fail_msg("%s: found \"%s\" in place of \"%s\"", cases[i].name, status_message(),
               cases[i].finding);
  }
}

/* With a fence the second of these is right. */
static void fenced(void **state) {
  static const Box box = {2, 2, 128, {64, 16}, {0}, {64, 16}, {0, 0}};
  static char result[MOST_BYTES];
  Parts parts = whole;
  parts.before = "st.shared.u32 [s+4], %r1;\nfence.proxy.async.shared::cta;\n";
  if (run(*state, &box, &parts, 0, result) != STATUS_OK) fail_msg("%s", status_message());
}

static void refused(void **state) {
  (void)state;
  static const char *const texts[][2] = {
      {"6d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r1}], [%r1];",
       "unsupported instruction"},
      {"2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r1}], [%r1];",
       "2 coordinates"},
      {"2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], [%r1];",
       "2 coordinates"},
      {"1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, %r1], [%r1];",
       "coordinates of a tensor"},
      {"1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1, {%r1}], [%rd1, {%r1}], [%r1];",
       "an address in brackets"},
      {"1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r1, %r1, %r1, %r1, "
       "%r1, %r1, %r1, %r1, %r1}], [%r1];",
       "1 to 5 coordinates"},
      {"1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {}], [%r1];",
       "1 to 5 coordinates"},
      {"1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%rd1}], [%r1];",
       "64-bit register where a 32-bit"},
      {"3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r1, %r1, "
       "%r1}], [%r1];",
       "unsupported instruction"},
  };
  const char *registers = ".reg .b32 %r<4>; .reg .b64 %rd<2>; .reg .b16 %rs<2>;";
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    Text text = {0};
    text_printf(&text, "cp.async.bulk.tensor.%s", texts[i][0]);
    sim_test_refuses(registers, text_cstr(&text), texts[i][1]);
    text_free(&text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(boxes, sim_test_begin, sim_test_end),
      cmocka_unit_test_setup_teardown(findings, sim_test_begin, sim_test_end),
      cmocka_unit_test_setup_teardown(fenced, sim_test_begin, sim_test_end),
      cmocka_unit_test(refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
