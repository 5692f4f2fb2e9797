/* runtime_sim_store: what only other compilers' PTX uses: stmatrix; cp.async.bulk.tensor from shared memory to tensors, with
 * boxes over their edges, in every swizzle, against places computed here; each finding about these, provoked by one planted
 * defect; labels of inner blocks, .ptr, .section, and vectors of one element. */
#include "runtime_sim.h"

enum { THREADS = 32, MOST_BYTES = 1 << 14 };

/* ── boxes ────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  int rank, size, swizzle; /* size: bytes of an element */
  int dim[3], box[3], start[3];
} Box;

/* Pieces of the kernel, which a planted defect replaces. */
typedef struct {
  const char *fence, *from, *map, *wait, *after;
} Parts;
static const Parts whole = {"fence.proxy.async.shared::cta;", "0", "map", "cp.async.bulk.wait_group.read 0;", ""};

static int box_bytes(const Box *box) {
  int bytes = box->size;
  for (int i = 0; i < box->rank; i++) bytes *= box->box[i];
  return bytes;
}

static int64_t stride_of(const Box *box, int i) {
  int64_t stride = box->size;
  for (int k = 0; k < i; k++) stride *= box->dim[k];
  return stride;
}

/* Thread t writes words t, t + 32, … of shared memory: 5 times the word's number. Thread 0 stores the box, and waits. */
static void write_kernel(const Box *box, const Parts *parts, Text *text) {
  text_printf(text,
              ".version 8.0\n.target sm_90a\n.address_size 64\n"
              ".visible .entry k(.param .u64 .ptr .global .align 16 out, .param .align 64 .b8 map[128])\n"
              "{\n.reg .pred %%p<4>; .reg .b32 %%r<8>; .reg .b64 %%rd<8>;\n"
              ".shared .align 1024 .b8 s[%d];\nmov.u32 %%r1, %%tid.x;\nmov.b64 %%rd4, %s; cvta.param.u64 %%rd5, %%rd4;\n"
              "shl.b32 %%r2, %%r1, 2;\n$L1:\nsetp.ge.u32 %%p1, %%r2, %d; @%%p1 bra $L2;\n"
              "mul.lo.u32 %%r3, %%r2, 5; shr.u32 %%r3, %%r3, 2; st.shared.u32 [%%r2], {%%r3};\n"
              "add.s32 %%r2, %%r2, 128; bra.uni $L1;\n$L2:\n%s\nbar.sync 0;\n"
              "setp.ne.u32 %%p2, %%r1, 0; @%%p2 bra $L3;\ncp.async.bulk.tensor.%dd.global.shared::cta%s.bulk_group [%%rd5, {",
              box_bytes(box), parts->map, box_bytes(box), parts->fence, box->rank, box->rank == 2 ? ".tile" : "");
  for (int i = 0; i < box->rank; i++) text_printf(text, "%s%d", i ? ", " : "", box->start[i]);
  text_printf(text, "}], [s+%s];\ncp.async.bulk.commit_group;\n%s\n$L3:\n%s\nret;\n}\n", parts->from, parts->wait, parts->after);
}

/* The status; result: the tensor, which was all ones. */
static Status run(SimMachine *machine, const Box *box, const Parts *parts, char *result) {
  Text ptx = {0};
  SimModule *module;
  char *out;
  int64_t bytes = stride_of(box, box->rank);
  write_kernel(box, parts, &ptx);
  if (sim_module_load("t.ptx", text_cstr(&ptx), ptx.count, &module) != STATUS_OK)
    fail_msg("%s\n%s", status_message(), text_cstr(&ptx));
  text_free(&ptx);
  assert_int_equal(sim_alloc(machine, bytes, &out), STATUS_OK);
  memset(out, 0xff, (size_t)bytes);
  struct {
    uint64_t out, none[7];
    SimTensorMap map;
    char rest[128 - sizeof(SimTensorMap)];
  } params = {(uint64_t)(uintptr_t)out, {0}, {0}, ""};
  params.map = (SimTensorMap){.magic = SIM_TENSOR_MAP, .address = params.out, .rank = (uint16_t)box->rank, .swizzle = (uint16_t)box->swizzle};
  for (int i = 0; i < box->rank; i++) {
    params.map.dim[i] = (uint64_t)box->dim[i];
    params.map.stride[i] = (uint64_t)stride_of(box, i);
    params.map.box[i] = (uint32_t)box->box[i];
  }
  SimLaunch launch = {.grid = {1, 1, 1}, .block = {THREADS, 1, 1}, .params = &params, .param_bytes = sizeof params, .step_limit = 100000};
  Status status = sim_launch(machine, sim_module_kernel(module, "k"), &launch);
  memcpy(result, out, (size_t)bytes);
  sim_free(machine, out);
  sim_module_free(module);
  return status;
}

/* Byte `place` of the box, with neighbours of a row together, from shared memory. */
static char byte_of(const Box *box, int place) {
  int line = place / 128 % 8, mask = box->swizzle == 128 ? 7 : box->swizzle == 64 ? 3 : box->swizzle == 32 ? 1 : 0;
  int at = (place / 16 ^ (line & mask)) * 16 + place % 16;
  return (char)((uint32_t)(at / 4 * 5) >> 8 * (at % 4));
}

static void check(SimMachine *machine, const Box *box) {
  static char result[MOST_BYTES];
  if (run(machine, box, &whole, result) != STATUS_OK) fail_msg("%s", status_message());
  int64_t bytes = stride_of(box, box->rank);
  for (int64_t i = 0; i < bytes; i++) {
    int64_t rest = i / box->size, place = 0, step = box->size;
    bool is_inside = true;
    for (int d = 0; d < box->rank; d++) {
      int64_t at = rest % box->dim[d] - box->start[d];
      rest /= box->dim[d];
      is_inside &= at >= 0 && at < box->box[d];
      place += at * step;
      step *= box->box[d];
    }
    char want = is_inside ? byte_of(box, (int)place + (int)(i % box->size)) : (char)0xff;
    if (result[i] != want)
      fail_msg("%d dimensions, swizzle %d: byte %d of the tensor is %d, not %d", box->rank, box->swizzle, (int)i, result[i], want);
  }
}

static void boxes(void **state) {
  static const Box cases[] = {
      {1, 4, 0, {100}, {32}, {24}},
      {1, 2, 0, {100}, {64}, {72}}, /* over the end */
      {2, 2, 128, {128, 20}, {64, 16}, {64, 4}},
      {2, 2, 128, {72, 20}, {64, 16}, {64, 12}}, /* over both */
      {2, 2, 128, {64, 20}, {64, 16}, {-3, -2}}, /* before the beginning */
      {2, 2, 64, {64, 16}, {32, 12}, {16, 2}},
      {2, 1, 32, {64, 16}, {32, 16}, {32, 0}},
      {2, 4, 0, {24, 7}, {8, 5}, {16, 5}},
      {2, 2, 128, {64, 8}, {64, 8}, {64, 0}}, /* nothing of it is there */
      {3, 2, 128, {64, 5, 3}, {64, 4, 2}, {0, 3, 1}},
  };
  SimMachine *machine = *state;
  for (uint64_t seed = 0; seed < 4; seed++) {
    sim_machine_seed(machine, seed);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(machine, &cases[i]);
  }
}

static void findings(void **state) {
  static const Box box = {2, 2, 128, {64, 16}, {64, 16}, {0, 0}};
  static const struct {
    const char *name, *finding;
    Parts parts;
  } cases[] = {
      {"no fence before it", "no proxy fence: a bulk store reads byte 0", {.fence = " "}},
      {"its place is written before the wait", "which a bulk store still reads", {.wait = "st.shared.u32 [s+8], %r1; cp.async.bulk.wait_group.read 0;"}},
      {"its place is written behind a barrier, and before the wait", "which a bulk store still reads",
       {.wait = " ", .after = "bar.sync 0; setp.ne.u32 %p3, %r1, 1; @%p3 bra $L4; st.shared.u32 [s+8], %r1;\n$L4:\ncp.async.bulk.wait_group 0;"}},
      {"by a whole warp", "which a bulk store still reads",
       {.wait = " ", .after = "bar.sync 0; shl.b32 %r2, %r1, 2; st.shared.u32 [%r2], %r1; cp.async.bulk.wait_group 0;"}},
      {"another thread writes, and no barrier lies between", "race: byte 8", {.after = "setp.ne.u32 %p3, %r1, 1; @%p3 bra $L4; st.shared.u32 [s+8], %r1;\n$L4:"}},
      {"nobody waits", "unfinished copy: the block ends", {.wait = " "}},
      {"a wait that leaves the group open", "unfinished copy: the block ends", {.wait = "cp.async.bulk.wait_group 1;"}},
      {"a place that is not aligned", "misaligned: a box of a tensor lies at byte 64", {.from = "64"}},
      {"a place outside of shared memory", "out of bounds", {.from = "1024"}},
      {"no map at the address", "bad tensor map: there is none", {.map = "out"}},
      {"a second store to the tensor by another thread", "race", {.after = "ld.param.u64 %rd2, [out]; setp.ne.u32 %p3, %r1, 1; @%p3 bra $L4; st.global.u32 [%rd2], %r1;\n$L4:"}},
  };
  static char result[MOST_BYTES];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Parts parts = cases[i].parts;
    const char *const *from = (const char *const *)(const void *)&whole;
    const char **to = (const char **)(void *)&parts;
    for (size_t k = 0; k < sizeof parts / sizeof *to; k++)
      if (!to[k]) to[k] = from[k];
    if (run(*state, &box, &parts, result) == STATUS_OK) fail_msg("%s: nothing was found", cases[i].name);
    if (!strstr(status_message(), cases[i].finding))
      fail_msg("%s: found \"%s\" in place of \"%s\"", cases[i].name, status_message(), cases[i].finding);
  }
  /* behind the wait and a barrier the place is free */
  Parts right = whole;
  right.after = "bar.sync 0; setp.ne.u32 %p3, %r1, 1; @%p3 bra $L4; st.shared.u32 [s+8], %r1;\n$L4:";
  if (run(*state, &box, &right, result) != STATUS_OK) fail_msg("%s", status_message());
#define ALL_STORE(row)                                                                                                                    \
  "fence.proxy.async.shared::cta; bar.sync 0; and.b32 %r6, %r1, 1; mov.u32 %r5, 0; cp.async.bulk.tensor.2d.global.shared::cta.bulk_group " \
  "[%rd5, {0, " row "}], [s]; cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;"
  right = whole; /* all lanes make the same store: it is one */
  right.fence = ALL_STORE("%r5");
  if (run(*state, &box, &right, result) != STATUS_OK) fail_msg("%s", status_message());
  right.fence = ALL_STORE("%r6"); /* these are not the same */
  assert_int_not_equal(run(*state, &box, &right, result), STATUS_OK);
  assert_non_null(strstr(status_message(), "race"));
}

/* ── rows ─────────────────────────────────────────────────────────────────────────────────── */
enum { ROW = 64 /* words */, ROW_OUT = 96 };
typedef struct {
  const char *fence, *store, *wait, *after;
} RowParts;
#define ROW_STORE "cp.async.bulk.global.shared::cta.bulk_group "
#define ROW_SUM "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 "
#define ROW_HINT "cp.reduce.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.add.f32 "
static const RowParts right_row = {"fence.proxy.async.shared::cta;", ROW_SUM "[%rd1], [%r9], 256;", "cp.async.bulk.wait_group.read 0;", ""};

/* In block b thread t makes 1000 b + t and 1000 b + t + 32 of f32 in shared memory; thread 0 sends the row to word 4 on. */
static Status run_rows(SimMachine *machine, const RowParts *given, int blocks, float *result) {
  RowParts parts = *given;
  const char *const *from = (const char *const *)(const void *)&right_row;
  const char **to = (const char **)(void *)&parts;
  for (size_t k = 0; k < sizeof parts / sizeof *to; k++)
    if (!to[k]) to[k] = from[k];
  Text ptx = {0};
  SimModule *module;
  char *out;
  text_printf(&ptx,
              ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 out)\n{\n"
              ".reg .pred %%p<4>; .reg .b32 %%r<16>; .reg .b64 %%rd<8>; .reg .f32 %%f<4>;\n.shared .align 16 .b8 s[512];\n"
              "ld.param.u64 %%rd2, [out]; add.s64 %%rd1, %%rd2, 16; mov.u32 %%r1, %%tid.x; mov.u32 %%r2, %%ctaid.x; mov.u32 %%r9, s;\n"
              "mad.lo.s32 %%r3, %%r2, 1000, %%r1; add.s32 %%r4, %%r3, 32; shl.b32 %%r5, %%r1, 2; add.s32 %%r5, %%r5, %%r9;\n"
              "cvt.rn.f32.s32 %%f1, %%r3; cvt.rn.f32.s32 %%f2, %%r4; st.shared.f32 [%%r5], %%f1; st.shared.f32 [%%r5+128], %%f2;\n"
              "%s\nbar.sync 0;\nsetp.ne.u32 %%p1, %%r1, 0; @%%p1 bra $L1;\n%s\ncp.async.bulk.commit_group;\n%s\n$L1:\n%s\nret;\n}\n",
              parts.fence, parts.store, parts.wait, parts.after);
  if (sim_module_load("t.ptx", text_cstr(&ptx), ptx.count, &module) != STATUS_OK) fail_msg("%s\n%s", status_message(), text_cstr(&ptx));
  text_free(&ptx);
  assert_int_equal(sim_alloc(machine, ROW_OUT * 4, &out), STATUS_OK);
  for (int i = 0; i < ROW_OUT; i++) memcpy(out + 4 * i, &(float){0.5f}, 4);
  sim_mark(machine, out, ROW_OUT * 4, true);
  SimLaunch launch = {.grid = {blocks, 1, 1}, .block = {THREADS, 1, 1}, .params = &out, .param_bytes = 8, .step_limit = 10000};
  Status status = sim_launch(machine, sim_module_kernel(module, "k"), &launch);
  memcpy(result, out, ROW_OUT * 4);
  sim_free(machine, out);
  sim_module_free(module);
  return status;
}

static void rows(void **state) {
  static const struct {
    RowParts parts;
    int blocks;
    float factor, kept; /* what is there then: factor times the sum of the blocks' values, and kept */
  } good[] = {
      {{.fence = NULL}, 1, 1, 0.5f},
      {{.fence = NULL}, 5, 1, 0.5f},
      {{.store = ROW_HINT "[%rd1], [%r9], 256, 0x14F0000000000000;"}, 3, 1, 0.5f},
      {{.store = ROW_SUM "[%rd1], [%r9], 256; " ROW_SUM "[%rd1], [%r9], 256;"}, 2, 2, 0.5f},
      {{.store = ROW_STORE "[%rd1], [%r9], 256;"}, 1, 1, 0},
  };
  float result[ROW_OUT];
  for (uint64_t seed = 0; seed < 4; seed++)
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
      sim_machine_seed(*state, seed);
      if (run_rows(*state, &good[i].parts, good[i].blocks, result) != STATUS_OK) fail_msg("case %zu: %s", i, status_message());
      for (int k = 0; k < ROW_OUT; k++) {
        float sum = 0;
        for (int b = 0; b < good[i].blocks; b++) sum += (float)(1000 * b + k - 4);
        float want = k >= 4 && k < 4 + ROW ? good[i].factor * sum + good[i].kept : 0.5f;
        if (result[k] != want) fail_msg("case %zu: word %d is %g, not %g", i, k, (double)result[k], (double)want);
      }
    }
  sim_machine_seed(*state, 0);
  static const struct {
    const char *finding;
    RowParts parts;
    int blocks;
  } bad[] = {
      {"no proxy fence: a bulk store reads byte 0", {.fence = " "}, 1},
      {"which a bulk store still reads", {.wait = "st.shared.u32 [s+8], %r1; cp.async.bulk.wait_group.read 0;"}, 1},
      {"unfinished copy: the block ends", {.wait = " "}, 1},
      {"a bulk store is of multiples of 16 bytes, not 40", {.store = ROW_SUM "[%rd1], [%r9], 40;"}, 1},
      {"misaligned", {.store = "add.s64 %rd1, %rd1, 8; " ROW_SUM "[%rd1], [%r9], 256;"}, 1},
      {"misaligned", {.store = "add.s32 %r9, %r9, 8; " ROW_SUM "[%rd1], [%r9], 128;"}, 1},
      {"out of bounds", {.store = "add.s64 %rd1, %rd1, 128; " ROW_SUM "[%rd1], [%r9], 256;"}, 1},
      {"out of bounds", {.store = "add.s64 %rd1, %rd1, 128; " ROW_STORE "[%rd1], [%r9], 256;"}, 1},
      {"out of bounds", {.store = "add.s32 %r9, %r9, 384; " ROW_SUM "[%rd1], [%r9], 256;"}, 1},
      {"race", {.store = ROW_STORE "[%rd1], [%r9], 256;"}, 2},
      {"race", {.after = "st.global.u32 [%rd1], %r1;"}, 2},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    if (run_rows(*state, &bad[i].parts, bad[i].blocks, result) == STATUS_OK) fail_msg("case %zu: nothing was found in place of %s", i, bad[i].finding);
    if (!strstr(status_message(), bad[i].finding)) fail_msg("case %zu: \"%s\" in place of \"%s\"", i, status_message(), bad[i].finding);
  }
}

/* ── stmatrix ─────────────────────────────────────────────────────────────────────────────── */
/* One warp: lane l of matrix m holds 100 m + l in both halves, the upper one with 1000 more. */
static const char matrix_kernel[] =
    ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 out)\n"
    "{\n.reg .pred %%p<4>; .reg .b32 %%r<16>; .reg .b64 %%rd<8>;\n.shared .align 16 .b8 s[512];\n"
    "mov.u32 %%r1, %%tid.x; mul.lo.u32 %%r2, %%r1, 65537; add.u32 %%r2, %%r2, 65536000; add.u32 %%r3, %%r2, 6553700; "
    "add.u32 %%r4, %%r3, 6553700; add.u32 %%r5, %%r4, 6553700;\n"
    "shl.b32 %%r6, %%r1, 4; mov.u32 %%r7, s; add.u32 %%r7, %%r7, %%r6;\n%s\n"
    "stmatrix.sync.aligned.%s.shared.b16 [%%r7], {%%r2%s};\n%s\n"
    "ld.param.u64 %%rd1, [out]; mul.wide.u32 %%rd2, %%r1, 16; add.s64 %%rd1, %%rd1, %%rd2;\n"
    "ld.shared.v4.u32 {%%r8, %%r9, %%r10, %%r11}, [%%r7]; st.global.v4.u32 [%%rd1], {%%r8, %%r9, %%r10, %%r11};\nret;\n}\n";

/* PTX ISA has the shape first; nvcc writes the others. */
enum { ALONG, ACROSS, ACROSS_SHAPE_LAST, MATRIX_ORDERS };
static const char *const matrix_orders[MATRIX_ORDERS] = {"x%d.m8n8", "m8n8.x%d.trans", "x%d.trans.m8n8"};

static Status run_matrices(SimMachine *machine, int count, int order, const char *before, const char *barrier, uint16_t result[256]) {
  Text ptx = {0};
  SimModule *module;
  char *out, form[32];
  snprintf(form, sizeof form, matrix_orders[order], count);
  text_printf(&ptx, matrix_kernel, before, form, count == 4 ? ", %r3, %r4, %r5" : count == 2 ? ", %r3" : "", barrier);
  if (sim_module_load("t.ptx", text_cstr(&ptx), ptx.count, &module) != STATUS_OK) fail_msg("%s\n%s", status_message(), text_cstr(&ptx));
  text_free(&ptx);
  assert_int_equal(sim_alloc(machine, 512, &out), STATUS_OK);
  SimLaunch launch = {.grid = {1, 1, 1}, .block = {THREADS, 1, 1}, .params = &out, .param_bytes = 8, .step_limit = 10000};
  Status status = sim_launch(machine, sim_module_kernel(module, "k"), &launch);
  memcpy(result, out, 512);
  sim_free(machine, out);
  sim_module_free(module);
  return status;
}

/* PTX ISA, "stmatrix": lane l has elements 2 (l % 4) and the next of row l / 4; with .trans, of column l / 4. */
static void matrices(void **state) {
  uint16_t result[256];
  for (int order = 0; order < MATRIX_ORDERS; order++) {
    bool across = order != ALONG;
    if (run_matrices(*state, 4, order, "", "bar.warp.sync -1;", result) != STATUS_OK) fail_msg("%s", status_message());
    for (int m = 0; m < 4; m++)
      for (int row = 0; row < 8; row++)
        for (int column = 0; column < 8; column++) {
          int i = across ? column : row, k = across ? row : column;
          int want = 100 * m + (k % 2 ? 1000 : 0) + i * 4 + k / 2;
          assert_int_equal(result[m * 64 + row * 8 + column], want);
        }
  }
  assert_int_not_equal(run_matrices(*state, 4, ALONG, "", "", result), STATUS_OK); /* other lanes' rows, and no barrier */
  if (!strstr(status_message(), "race")) fail_msg("%s", status_message());
  assert_int_not_equal(run_matrices(*state, 4, ALONG, "add.u32 %r7, %r7, 8;", "bar.warp.sync -1;", result), STATUS_OK);
  if (!strstr(status_message(), "misaligned")) fail_msg("%s", status_message());
  assert_int_not_equal(run_matrices(*state, 1, ALONG, "", "bar.warp.sync -1;", result), STATUS_OK); /* only lanes 0 to 7 say where */
  if (!strstr(status_message(), "that nobody wrote")) fail_msg("%s", status_message());
  assert_int_not_equal(run_matrices(*state, 4, ALONG, "setp.gt.u32 %p1, %r1, 15; @%p1 bra $L9;", "bar.warp.sync 65535;\n$L9:", result), STATUS_OK);
  if (!strstr(status_message(), "divergent stmatrix")) fail_msg("%s", status_message());
}

/* ── text ─────────────────────────────────────────────────────────────────────────────────── */
/* A label is known in its block and in those within it; the innermost one of a name counts. */
static void labels(void **state) {
  static const char text[] =
      ".version 8.0\n.target sm_90a\n.address_size 64\n"
      ".visible .entry k(.param .u64 .ptr .global .align 4 out, .param .u64 .ptr q, .param .u64 .ptr .shared r)\n"
      "{\n.reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<8>;\nmov.u32 %r1, 0; mov.u32 %r2, 0;\n"
      "again:\n{\nagain:\nadd.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 3; @%p1 bra again;\n}\n"
      "{\n.reg .pred %p9;\nagain:\nadd.u32 %r1, %r1, 10; setp.lt.u32 %p9, %r1, 50; @%p9 bra again; @!%p9 bra done;\n}\n"
      "done:\nadd.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 2; @%p2 bra again;\n"
      "ld.param.u64 %rd1, [out]; st.global.u32 [%rd1], {%r1};\nret;\n}\n"
      ".section .debug_str\n{\n.b8 1, 2\n$name:\n.b8 3\n}\n";
  SimModule *module;
  char *out;
  assert_int_equal(sim_alloc(*state, 4, &out), STATUS_OK);
  if (sim_module_load("t.ptx", text, sizeof text - 1, &module) != STATUS_OK) fail_msg("%s", status_message());
  const void *params[] = {out, NULL, NULL};
  SimLaunch launch = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .params = params, .param_bytes = sizeof params, .step_limit = 10000};
  if (sim_launch(*state, sim_module_kernel(module, "k"), &launch) != STATUS_OK) fail_msg("%s", status_message());
  assert_int_equal(*(int *)(void *)out, 53 + 1 + 10); /* 3, 13 … 53; and once more: 54, 64 */
  sim_module_free(module);
  sim_free(*state, out);
}

static void refused(void **state) {
  (void)state;
  static const char *const texts[][2] = {
      {"{\ninner:\nmov.u32 %r1, 0;\n}\nbra inner;", "there is nothing named inner"},
      {"{\nx:\nmov.u32 %r1, 0;\nx:\n}", "the label x stands here for the second time"},
      {"cp.async.bulk.tensor.6d.global.shared::cta.bulk_group [%rd1, {%r1}], [%r1];", "unsupported instruction"},
      {"cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1}], [%r1];", "2 coordinates"},
      {"cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd1, {%r1}];", "1 coordinates"},
      {"cp.async.bulk.tensor.1d.global.shared::cta.im2col.bulk_group [%rd1, {%r1}], [%r1];", "unsupported instruction"},
      {"cp.async.bulk.commit_group 1;", "takes 0 operands"},
      {"cp.async.bulk.wait_group;", "takes 1 operands"},
      {"cp.async.bulk.wait_group.read %r1;", "must be a number"},
      {"cp.async.bulk.wait_group -1;", "no negative number"},
      {"st.shared.u32 [%r1], {%r1, %r2};", "operands that it does not take"},
      {"stmatrix.sync.aligned.m8n8.x3.shared.b16 [%r1], {%r1, %r2, %r3};", "unsupported instruction"},
      {"stmatrix.sync.aligned.x3.m8n8.shared.b16 [%r1], {%r1, %r2, %r3};", "unsupported instruction"},
      {"stmatrix.sync.aligned.x2.m8n16.shared.b16 [%r1], {%r1, %r2};", "unsupported instruction"},
      {"stmatrix.sync.aligned.x2;", "unsupported instruction"},
      {"stmatrix.sync.aligned.x2.trans.m8n8.trans.shared.b16 [%r1], {%r1, %r2};", "unsupported instruction"},
      {"stmatrix.sync.aligned.trans.m8n8.shared.b16 [%r1], {%r1};", "unsupported instruction"},
      {"cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1];", "takes 3 operands"},
      {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f16 [%rd1], [%r1], 16;", "unsupported instruction"},
      {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%r1], [%r1], 16;", "64-bit register"},
      {"cp.async.bulk.prefetch.tensor.2d.L2.global [%rd1, {%r1}];", "takes other operands"},
      {"cp.async.bulk.prefetch.tensor.6d.L2.global [%rd1, {%r1}];", "unsupported instruction"},
      {"cp.async.bulk.prefetch.tensor.1d.L2.global.im2col [%rd1, {%r1}];", "unsupported instruction"},
      {"cp.async.bulk.prefetch.L2.global [%rd1];", "takes other operands"},
      {"cp.async.bulk.prefetch.L2.global [%r1], 16;", "64-bit register"},
      {"mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1], 0, 1000;", "takes 3 operands"},
      {"mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0, %rd1;", "a 64-bit register where a 32-bit one belongs"},
  };
  const char *registers = ".reg .b32 %r<4>; .reg .b64 %rd<2>; .reg .pred %p<2>;";
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) sim_test_refuses(registers, texts[i][0], texts[i][1]);
}

/* A machine that does not look at who writes what takes races, and gives values. */
static void unchecked(void **state) {
  static const Box box = {2, 2, 128, {64, 16}, {64, 16}, {0, 0}};
  static char result[MOST_BYTES];
  Parts parts = whole;
  SimMachine *machine;
  (void)state;
  parts.fence = " ";
  assert_int_equal(sim_machine_new(1, &machine), STATUS_OK);
  sim_machine_unchecked(machine);
  if (run(machine, &box, &parts, result) != STATUS_OK) fail_msg("%s", status_message());
  for (int i = 0; i < box_bytes(&box); i++) assert_int_equal(result[i], byte_of(&box, i));
  sim_machine_free(machine);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(boxes, sim_test_begin, sim_test_end),
      cmocka_unit_test_setup_teardown(findings, sim_test_begin, sim_test_end),
      cmocka_unit_test_setup_teardown(rows, sim_test_begin, sim_test_end),
      cmocka_unit_test_setup_teardown(matrices, sim_test_begin, sim_test_end),
      cmocka_unit_test_setup_teardown(labels, sim_test_begin, sim_test_end),
      cmocka_unit_test(refused),
      cmocka_unit_test(unchecked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
