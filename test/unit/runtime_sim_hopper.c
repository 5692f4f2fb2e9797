/* runtime_sim_hopper: wgmma in the simulator against a product computed here, for every type,
 * layout and order of its operands; bulk copies through a ring of places with mbarriers; and each
 * finding about them, provoked by one planted defect. */
#include "runtime_sim.h"
#include <math.h>
#include <stdlib.h>

enum { THREADS = 128, ROWS = 64, B_AT = 8192, SHARED = B_AT + 32768, MOST_SUMS = 128 };
typedef enum { F16, BF16, TF32, BYTE /* the first of four: 1 if b is of e5m2, 2 if a is */, END = BYTE + 4 } Element;
/* swizzle: as in a descriptor: 0 none, 1 128 bytes, 2 64, 3 32. */
typedef struct {
  Element element;
  int columns, swizzle;
  bool a_across, b_across, a_in_registers, keeps; /* keeps: adds to sums of 1 */
  bool negates_a, negates_b;
  char codes; /* of bytes: 'a' or 'b' has all finite ones, the other is a unit matrix */
} Way;

static double value_a(int row, int k) { return (row * 7 + k * 3) % 13 - 6; }
static double value_b(int column, int k) { return (column * 5 + k * 11) % 9 - 4; }
static int size_of(const Way *way) { return way->element == TF32 ? 4 : way->element >= BYTE ? 1 : 2; }
static int depth_of(const Way *way) { return 32 / size_of(way); }

static bool is_e5m2(const Way *way, bool is_b) { return (way->element - BYTE) & (is_b ? 1 : 2); }

/* Of a byte, by the definition of the formats (OCP 8-bit Floating Point Specification); one that is not finite is 0 here. */
static int code_at(const Way *way, bool is_b, int row, int k) {
  int code = (row * 32 + k) % 256;
  bool is_finite = is_e5m2(way, is_b) ? code / 4 % 32 != 31 : code % 128 != 127;
  return is_finite ? code : 0;
}
static double number_of(int code, bool is_wide) {
  int ones = is_wide ? 4 : 8, bias = is_wide ? 15 : 7, exponent = code % 128 / ones;
  double part = code % ones / (double)ones;
  double size = exponent ? (1 + part) * pow(2, exponent - bias) : part * pow(2, 1 - bias);
  return code < 128 ? size : -size;
}

static double value_of(const Way *way, bool is_b, int row, int k) {
  if (way->codes == (is_b ? 'b' : 'a')) return number_of(code_at(way, is_b, row, k), is_e5m2(way, is_b));
  if (way->codes) return row == k;
  return is_b ? value_b(row, k) : value_a(row, k);
}

/* The bits of a small whole number, or a code. */
static uint32_t bits_of(const Way *way, bool is_b, int row, int k) {
  if (way->codes == (is_b ? 'b' : 'a')) return (uint32_t)code_at(way, is_b, row, k);
  Element element = way->element;
  float x = (float)value_of(way, is_b, row, k);
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if (element >= BYTE && bits) {
    uint32_t ones = is_e5m2(way, is_b) ? 2 : 3, bias = is_e5m2(way, is_b) ? 15 : 7;
    return (bits >> 24 & 0x80) | ((bits >> 23 & 255) - 127 + bias) << ones | (bits >> (23 - ones) & ((1u << ones) - 1));
  }
  if (element == TF32) return bits | 0x1234 * (bits != 0); /* what lies below is not looked at */
  if (element == BF16) return bits >> 16;
  return bits ? (bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) | (bits >> 13 & 0x3ff)
              : 0;
}

/* Strides of the layout: see PTX ISA, "Strides" and "Canonical Layouts" of wgmma. */
static int row_bytes(const Way *way) {
  static const int bytes[] = {16, 128, 64, 32};
  return bytes[way->swizzle];
}
static int leading(const Way *way, bool is_across) {
  return !way->swizzle ? 128 : is_across ? 16 * row_bytes(way) : 16;
}
static int stride(const Way *way) { return way->swizzle ? 8 * row_bytes(way) : 256; }

static int place(const Way *way, bool is_across, int row, int k) {
  int size = size_of(way), wide = row_bytes(way), side = wide / size, at;
  if (!is_across && !way->swizzle)
    at = row / 8 * stride(way) + k / side * leading(way, false) + row % 8 * 16 + k % side * size;
  else if (!is_across)
    at = row / 8 * stride(way) + row % 8 * wide + k * size;
  else if (!way->swizzle)
    at = row / 8 * stride(way) + k / 8 * leading(way, true) + k % 8 * 16 + row % 8 * size;
  else
    at = row / side * leading(way, true) + k / 8 * stride(way) + k % 8 * wide + row % side * size;
  int pieces = way->swizzle ? wide / 16 : 1;
  return at ^ (at / 128 % pieces * 16);
}

static void fill(const Way *way, char *image) {
  int size = size_of(way);
  for (int k = 0; k < depth_of(way); k++) {
    for (int row = 0; row < ROWS; row++) {
      uint32_t bits = bits_of(way, false, row, k);
      memcpy(image + place(way, way->a_across, row, k), &bits, (size_t)size);
    }
    for (int column = 0; column < way->columns; column++) {
      uint32_t bits = bits_of(way, true, column, k);
      memcpy(image + B_AT + place(way, way->b_across, column, k), &bits, (size_t)size);
    }
  }
}

/* Pieces of the kernel, which a planted defect replaces. */
typedef struct {
  const char *proxy, *barrier, *fence, *before_commit, *commit, *wait, *after;
} Parts;
static const Parts whole = {"fence.proxy.async;\n",
                            "bar.sync 0;\n",
                            "wgmma.fence.sync.aligned;\n",
                            "",
                            "wgmma.commit_group.sync.aligned;\n",
                            "wgmma.wait_group.sync.aligned 0;\n",
                            ""};

static uint64_t descriptor(const Way *way, bool is_b) {
  bool is_across = is_b ? way->b_across : way->a_across;
  return (uint64_t)(is_b ? B_AT : 0) >> 4 | (uint64_t)(leading(way, is_across) >> 4) << 16 |
         (uint64_t)(stride(way) >> 4) << 32 | (uint64_t)way->swizzle << 62;
}

/* a of a thread: registers %r10 to %r13, as for mma.sync: rows g and g + 8, steps 2t and 2t + 8 (of
 * 32 bits t and t + 4). They are read from where the image has them. */
static void write_registers(const Way *way, Text *text) {
  int size = size_of(way), pair = 4 / size, half = 16 / size;
  text_printf(text,
              "shr.u32 %%r20, %%r1, 5; shl.b32 %%r20, %%r20, 4; and.b32 %%r21, %%r1, 31;\n"
              "shr.u32 %%r22, %%r21, 2; add.s32 %%r20, %%r20, %%r22; and.b32 %%r21, %%r21, 3;\n");
  for (int i = 0; i < 4; i++) /* rows of 32 bytes, not swizzled, from 40960 on */
    text_printf(text,
                "add.s32 %%r22, %%r20, %d; shl.b32 %%r22, %%r22, 5; mad.lo.s32 %%r22, %%r21, %d, "
                "%%r22; ld.shared.u32 %%r%d, [%%r22+%d];\n",
                i % 2 * 8, pair * size, 10 + i, SHARED + i / 2 * half * size);
}

static void write_kernel(const Way *way, const Parts *parts, Text *text) {
  static const char *const shapes[] = {"k16.f32.f16.f16",   "k16.f32.bf16.bf16", "k8.f32.tf32.tf32",  "k32.f32.e4m3.e4m3",
                                       "k32.f32.e4m3.e5m2", "k32.f32.e5m2.e4m3", "k32.f32.e5m2.e5m2"};
  int sums = way->columns / 2;
  text_printf(text,
              ".version 8.0\n.target sm_90a\n.address_size 64\n"
              ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n"
              ".reg .pred %%p<4>; .reg .b32 %%r<32>; .reg .b64 %%rd<8>; .reg .f32 %%f<%d>;\n"
              ".shared .align 1024 .b8 s[%d];\n"
              "ld.param.u64 %%rd1, [in]; ld.param.u64 %%rd2, [out]; mov.u32 %%r1, %%tid.x;\n"
              "mov.u32 %%r2, %%r1;\n$L1:\nmul.wide.u32 %%rd3, %%r2, 4; add.s64 %%rd3, %%rd1, "
              "%%rd3;\nld.global.u32 %%r3, [%%rd3]; shl.b32 %%r4, %%r2, 2; st.shared.u32 [%%r4], "
              "%%r3;\nadd.s32 %%r2, %%r2, %d; setp.lt.u32 %%p1, %%r2, %d; @%%p1 bra $L1;\n",
              MOST_SUMS + 1, SHARED + 2048, THREADS, (SHARED + 2048) / 4);
  text_printf(text, "%s%s", parts->proxy, parts->barrier);
  if (way->a_in_registers) write_registers(way, text);
  for (int i = 0; i < sums; i++) text_printf(text, "mov.f32 %%f%d, 0f3F800000;\n", i);
  text_printf(text, "setp.%s.u32 %%p2, 1, 1;\n", way->keeps ? "eq" : "ne");
  text_printf(text, "mov.u64 %%rd4, 0x%llx; mov.u64 %%rd5, 0x%llx;\n%s",
              (unsigned long long)descriptor(way, false), (unsigned long long)descriptor(way, true),
              parts->fence);
  text_printf(text, "wgmma.mma_async.sync.aligned.m64n%d%s {", way->columns, shapes[way->element]);
  for (int i = 0; i < sums; i++) text_printf(text, "%s%%f%d", i ? ", " : "", i);
  text_printf(text, "}, %s, %%rd5, %%p2, %d, %d",
              way->a_in_registers ? "{%r10, %r11, %r12, %r13}" : "%rd4", way->negates_a ? -1 : 1,
              way->negates_b ? -1 : 1);
  if (way->element < TF32 && !way->a_in_registers) text_printf(text, ", %d", way->a_across);
  if (way->element < TF32) text_printf(text, ", %d", way->b_across);
  text_printf(text, ";\n%s%s%s%s", parts->before_commit, parts->commit, parts->wait, parts->after);
  text_printf(text, "mul.wide.u32 %%rd6, %%r1, %d; add.s64 %%rd6, %%rd2, %%rd6;\n", sums * 4);
  for (int i = 0; i < sums; i++) text_printf(text, "st.global.f32 [%%rd6+%d], %%f%d;\n", i * 4, i);
  text_printf(text, "ret;\n}\n");
}

/* The status; out: [thread][sum]. */
static Status run(SimMachine *machine, const Way *way, const Parts *parts, int threads,
                  float *result) {
  Text ptx = {0};
  SimModule *module;
  char *in, *out;
  size_t out_bytes = (size_t)way->columns / 2 * THREADS * 4;
  write_kernel(way, parts, &ptx);
  if (sim_module_load("t.ptx", text_cstr(&ptx), ptx.count, &module) != STATUS_OK)
    fail_msg("%s\n%s", status_message(), text_cstr(&ptx));
  if (getenv("FT_PTX")) text_write_file(getenv("FT_PTX"), ptx.at, ptx.count);
  text_free(&ptx);
  assert_int_equal(sim_alloc(machine, SHARED + 2048, &in), STATUS_OK);
  assert_int_equal(sim_alloc(machine, (int64_t)out_bytes, &out), STATUS_OK);
  fill(way, in);
  for (int row = 0; row < ROWS; row++)
    for (int k = 0; k < depth_of(way); k++) {
      uint32_t bits = bits_of(way, false, row, k);
      int size = size_of(way);
      memcpy(in + SHARED + row * 32 + k * size, &bits, (size_t)size);
    }
  sim_mark(machine, in, SHARED + 2048, true);
  uint64_t params[] = {(uint64_t)(uintptr_t)in, (uint64_t)(uintptr_t)out};
  SimLaunch launch = {
      .grid = {1, 1, 1}, .block = {threads, 1, 1}, .params = params, .param_bytes = sizeof params};
  Status status = sim_launch(machine, sim_module_kernel(module, "k"), &launch);
  memcpy(result, out, out_bytes);
  sim_free(machine, in);
  sim_free(machine, out);
  sim_module_free(module);
  return status;
}

static void check(SimMachine *machine, const Way *way) {
  static float result[THREADS * MOST_SUMS];
  if (run(machine, way, &whole, THREADS, result) != STATUS_OK) fail_msg("%s", status_message());
  for (int row = 0; row < ROWS; row++)
    for (int column = 0; column < way->columns; column++) {
      double sum = 0;
      for (int k = 0; k < depth_of(way); k++) sum += value_of(way, false, row, k) * value_of(way, true, column, k);
      if (way->negates_a != way->negates_b) sum = -sum;
      if (way->keeps) sum += 1;
      int thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
      int i = column / 8 * 4 + row % 16 / 8 * 2 + column % 2;
      float have = result[thread * (way->columns / 2) + i];
      if (have != (float)sum)
        fail_msg("type %d, %d columns, swizzle %d, across %d %d, registers %d: element %d, %d is "
                 "%g, not %g",
                 way->element, way->columns, way->swizzle, way->a_across, way->b_across,
                 way->a_in_registers, row, column, have, sum);
    }
}

static void products(void **state) {
  static const int columns[] = {8, 64, 120, 256};
  for (int element = F16; element < END; element++)
    for (int swizzle = 0; swizzle < 4; swizzle++)
      for (int order = 0; order < (element >= TF32 ? 1 : 4); order++)
        for (int kind = 0; kind < 2; kind++) {
          Way way = {.element = (Element)element,
                     .columns = columns[(order + swizzle) % 4],
                     .swizzle = swizzle,
                     .a_across = order & 1 && !kind,
                     .b_across = order >> 1 & 1,
                     .a_in_registers = kind,
                     .keeps = swizzle % 2,
                     .negates_a = order == 1,
                     .negates_b = swizzle == 2};
          check(*state, &way);
        }
}

/* Every number of the 8-bit formats, as either operand, in shared memory and in registers. */
static void numbers(void **state) {
  for (int element = BYTE; element < END; element++)
    for (int kind = 0; kind < 3; kind++) {
      Way way = {.element = (Element)element, .columns = 32, .swizzle = 1, .a_in_registers = kind == 2, .codes = kind == 1 ? 'b' : 'a'};
      check(*state, &way);
    }
}

static const struct {
  const char *name, *finding;
  Parts parts;
  int threads;
} product_findings[] = {
    {"no proxy fence",
     "no proxy fence: wgmma reads byte 0 of shared memory, which thread (0,0,0) wrote", {.proxy = "bar.warp.sync -1;\n"}, 0},
    {"a fence by one lane of each warp",
     "no proxy fence: wgmma reads byte 4 of shared memory, which thread (1,0,0) wrote", {.proxy = "and.b32 %r20, %r1, 31; setp.eq.u32 %p3, %r20, 0;\n@%p3 fence.proxy.async;\n"}, 0},
    {"a fence by all lanes but one",
     "no proxy fence: wgmma reads byte 12 of shared memory, which thread (3,0,0) wrote", {.proxy = "setp.ne.u32 %p3, %r1, 3;\n@%p3 fence.proxy.async.shared::cta;\n"}, 0},
    {"a fence for global memory",
     "no proxy fence: wgmma reads byte 0 of shared memory, which thread (0,0,0) wrote", {.proxy = "fence.proxy.async.global;\n"}, 0},
    {"a fence before the writes only",
     "no proxy fence", {.proxy = "fence.proxy.async;\nst.shared.u32 [%r4+-42496], %r3;\n"}, 0},
    {"no barrier",
     "read of shared memory that nobody wrote", {.barrier = "bar.warp.sync -1;\n"}, 0},
    {"no wgmma.fence",
     "no wgmma.fence since the sums were touched last", {.fence = "bar.warp.sync -1;\n"}, 0},
    {"sums read before the wait",
     "unfinished wgmma: a register that it sums into is read before wgmma.wait_group", {.wait = "bar.warp.sync -1;\n"}, 0},
    {"a wait that leaves the group open",
     "unfinished wgmma: a register that it sums into is read before wgmma.wait_group", {.wait = "wgmma.wait_group.sync.aligned 1;\n"}, 0},
    {"no commit",
     "unfinished wgmma: a register that it sums into is read", {.commit = "bar.warp.sync -1;\n"}, 0},
    {"sums written meanwhile",
     "unfinished wgmma: a register that it sums into is written before wgmma.wait_group", {.before_commit = "mov.f32 %f1, 0f00000000;\n"}, 0},
    {"overwritten by another warp before the wait",
     "race: byte", {.before_commit = "st.shared.u32 [%r4+-41984], %r1;\n"}, 0},
    {"overwritten after a barrier, before the wait",
     "race: shared memory that the wgmma of line", {.before_commit = "bar.sync 0;\nst.shared.u32 [%r4+-42496], %r1;\n"}, 0},
    {"two warps", "wgmma wants four warps", {0}, 64},
    {"a part of a warp",
     "divergent wgmma",
     {.fence = "wgmma.fence.sync.aligned;\nsetp.lt.u32 "
               "%p3, %r1, 7;\n@%p3 ret;\n"},
     0},
};

static void findings(void **state) {
  static float result[THREADS * MOST_SUMS];
  for (size_t i = 0; i < sizeof product_findings / sizeof *product_findings; i++) {
    const Way way = {.element = i % 2 ? BYTE : BF16, .columns = 64, .swizzle = 1};
    Parts parts = product_findings[i].parts;
    const char *const *from = (const char *const *)(const void *)&whole;
    const char **to = (const char **)(void *)&parts;
    for (size_t k = 0; k < sizeof parts / sizeof *to; k++)
      if (!to[k]) to[k] = from[k];
    int threads = product_findings[i].threads ? product_findings[i].threads : THREADS;
    if (run(*state, &way, &parts, threads, result) == STATUS_OK)
      fail_msg("%s: nothing was found", product_findings[i].name);
    if (!strstr(status_message(), product_findings[i].finding))
      fail_msg("%s: found \"%s\" in place of \"%s\"", product_findings[i].name, status_message(),
               product_findings[i].finding);
    for (uint64_t seed = 1; seed <= 8; seed++) {
      sim_machine_seed(*state, seed);
      if (run(*state, &way, &parts, threads, result) == STATUS_OK)
        fail_msg("%s: nothing was found with seed %d", product_findings[i].name, (int)seed);
    }
    sim_machine_seed(*state, 0);
  }
}

/* ── bulk copies and mbarriers ────────────────────────────────────────────────────────────── */
/* Warp 0's first lane brings four panels of 512 bytes through two places; warp 1 adds the panels'
 * words, lane by lane. Full: one arrival and 512 bytes; empty: 32 arrivals. */
typedef struct {
  const char *init, *barrier, *wait_empty, *expect, *copy, *wait_full, *after_full, *arrive, *end;
} Ring;
static const Ring ring = {
    "mbarrier.init.shared::cta.b64 [full], 1; mbarrier.init.shared::cta.b64 [full+8], 1;\n"
    "mbarrier.init.shared.b64 [empty], 32; mbarrier.init.shared.b64 [empty+8], 32;\n"
    "fence.mbarrier_init.release.cluster;\n",
    "bar.sync 0;\n",
    "xor.b32 %r9, %r8, 1;\n$L3:\n"
    "mbarrier.try_wait.parity.shared.b64 %p3, [%r6+16], %r9; @!%p3 bra $L3;\n",
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], 512;\n",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r7], [%rd1], 512, "
    "[%r6];\n",
    "$L5:\nmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p3, [%r6], %r8; @!%p3 bra $L5;\n",
    "add.s32 %r10, %r7, %r20;\n",
    "mbarrier.arrive.release.cta.shared::cta.b64 %rd5, [%r6+16];\n",
    "",
};

static void write_ring(const Ring *r, Text *text) {
  text_printf(text,
              ".version 8.0\n.target sm_90a\n.address_size 64\n"
              ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n.reg .pred %%p<8>; .reg .b32 "
              "%%r<32>; .reg .b64 %%rd<8>;\n.shared .align 128 .b8 s[1152]; .shared .align 8 .b8 "
              "full[16]; .shared .align 8 .b8 empty[16];\n"
              "ld.param.u64 %%rd1, [in]; ld.param.u64 %%rd2, [out]; mov.u32 %%r1, %%tid.x;\n"
              "and.b32 %%r20, %%r1, 31; shl.b32 %%r20, %%r20, 2; mov.u32 %%r11, 0;\n"
              "setp.ne.u32 %%p1, %%r1, 0; @%%p1 bra $L1;\n%s$L1:\n%s"
              "mov.u32 %%r2, 0; setp.ge.u32 %%p1, %%r1, 32; @%%p1 bra $L4;\n"
              "elect.sync %%r3|%%p2, -1; @!%%p2 bra $L9;\n",
              r->init, r->barrier);
  const char *stage =
      "and.b32 %r5, %r2, 1; shl.b32 %r6, %r5, 3; mov.u32 %r12, full; add.s32 %r6, "
      "%r6, %r12;\nshl.b32 %r7, %r5, 9; shr.u32 %r8, %r2, 1; and.b32 %r8, %r8, 1;\n";
  text_printf(text,
              "$L2:\n%s%s%s%sadd.s64 %%rd1, %%rd1, 512; add.s32 %%r2, %%r2, 1; setp.lt.u32 %%p4, "
              "%%r2, 4; @%%p4 bra $L2;\nbra.uni $L9;\n",
              stage, r->wait_empty, r->expect, r->copy);
  text_printf(
      text,
      "$L4:\n$L6:\n%s%s%sld.shared.u32 %%r4, [%%r10]; add.s32 %%r11, %%r11, %%r4;\n"
      "ld.shared.u32 %%r4, [%%r10+384]; add.s32 %%r11, %%r11, %%r4;\n%s"
      "add.s32 %%r2, %%r2, 1; setp.lt.u32 %%p4, %%r2, 4; @%%p4 bra $L6;\n"
      "cvt.u64.u32 %%rd3, %%r20; add.s64 %%rd4, %%rd2, %%rd3; st.global.u32 [%%rd4], %%r11;\n"
      "$L9:\n%sret;\n}\n",
      stage, r->wait_full, r->after_full, r->arrive, r->end);
}

static Status run_ring(SimMachine *machine, const Ring *r, uint32_t *result) {
  Text ptx = {0};
  SimModule *module;
  char *in, *out;
  write_ring(r, &ptx);
  if (sim_module_load("t.ptx", text_cstr(&ptx), ptx.count, &module) != STATUS_OK)
    fail_msg("%s\n%s", status_message(), text_cstr(&ptx));
  text_free(&ptx);
  assert_int_equal(sim_alloc(machine, 2048, &in), STATUS_OK);
  assert_int_equal(sim_alloc(machine, 128, &out), STATUS_OK);
  for (uint32_t i = 0; i < 512; i++) memcpy(in + i * 4, &i, 4);
  sim_mark(machine, in, 2048, true);
  uint64_t params[] = {(uint64_t)(uintptr_t)in, (uint64_t)(uintptr_t)out};
  SimLaunch launch = {.grid = {1, 1, 1},
                      .block = {64, 1, 1},
                      .params = params,
                      .param_bytes = sizeof params,
                      .step_limit = 100000};
  Status status = sim_launch(machine, sim_module_kernel(module, "k"), &launch);
  memcpy(result, out, 128);
  sim_free(machine, in);
  sim_free(machine, out);
  sim_module_free(module);
  return status;
}

/* The pieces that are given, and the others from the whole. */
static Ring ring_with(const Ring *pieces) {
  Ring one = *pieces;
  const char *const *from = (const char *const *)(const void *)&ring;
  const char **to = (const char **)(void *)&one;
  for (size_t k = 0; k < sizeof one / sizeof *to; k++)
    if (!to[k]) to[k] = from[k];
  return one;
}

static void copies(void **state) {
  uint32_t result[32];
  for (uint64_t seed = 0; seed < 50; seed++) {
    sim_machine_seed(*state, seed);
    if (run_ring(*state, &ring, result) != STATUS_OK) fail_msg("%s", status_message());
    for (uint32_t lane = 0; lane < 32; lane++) {
      uint32_t sum = 0;
      for (uint32_t panel = 0; panel < 4; panel++) sum += 2 * (panel * 128 + lane) + 96;
      assert_int_equal(result[lane], sum);
    }
  }
}

#define ONE_ARRIVAL                                                                                \
  "mbarrier.init.shared::cta.b64 [full], 1; mbarrier.init.shared::cta.b64 [full+8], 1;\n"          \
  "mbarrier.init.shared.b64 [empty], 1; mbarrier.init.shared.b64 [empty+8], 1;\n"                  \
  "fence.mbarrier_init.release.cluster;\n"
#define LANE_0_ARRIVES "setp.eq.u32 %p6, %r20, 0;\n@%p6 mbarrier.arrive.shared.b64 _, [%r6+16];\n"
#define LANE_0_WAITS                                                                               \
  "setp.ne.u32 %p6, %r20, 0; @%p6 bra $L8;\n$L5:\n"                                                \
  "mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r6], %r8; @!%p3 bra $L5;\n$L8:\n"

/* Near the findings, and right. */
static void right_copies(void **state) {
  static const Ring good[] = {
      {.init = ONE_ARRIVAL, .arrive = "bar.warp.sync -1;\n" LANE_0_ARRIVES},
      {.wait_full = LANE_0_WAITS "bar.warp.sync -1;\n"},
      {.init = "mbarrier.init.shared::cta.b64 [full], 1; mbarrier.init.shared::cta.b64 [full+8], "
               "1;\nmbarrier.init.shared.b64 [empty], 32; mbarrier.init.shared.b64 [empty+8], 32;\n"
               "fence.proxy.async.shared::cta;\n"},
      {.expect = "ld.global.u32 %r21, [%rd1]; st.global.u32 [%rd1], %r21;\n"
                 "fence.proxy.async.global;\n"
                 "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], 512;\n"},
  };
  uint32_t result[32];
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    Ring one = ring_with(&good[i]);
    if (run_ring(*state, &one, result) != STATUS_OK) fail_msg("%zu: %s", i, status_message());
    assert_int_equal(result[1], 2 * 4 * 1 + 96 * 4 + 2 * 128 * 6);
  }
}

static const struct {
  const char *name, *finding;
  Ring ring;
} ring_findings[] = {
    {"read before the wait", "unfinished copy: a load", {.wait_full = ""}},
    {"the wrong phase",
     "endless wait: warp 1 waits for a phase of an mbarrier",
     {.wait_full = "xor.b32 %r9, %r8, 1;\n$L5:\nmbarrier.try_wait.parity.shared::cta.b64 %p3, "
                   "[%r6], %r9; @!%p3 bra $L5;\nxor.b32 %r8, %r9, 1;\n$L7:\n"
                   "mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r6], %r8; @!%p3 bra $L7;\n"}},
    {"more bytes expected than come",
     "endless wait",
     {.expect = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], 528;\n"}},
    {"nobody tells that a place is empty", "endless wait", {.arrive = ""}},
    {"a second copy before the first was waited for",
     "one arrival more than the 1 of this phase",
     {.wait_empty = ""}},
    {"a place told empty before it is read",
     "race: byte",
     {.after_full = "mbarrier.arrive.shared.b64 _, [%r6+16]; add.s32 %r10, %r7, %r20;\n",
      .arrive = ""}},
    {"no initialisation", "nobody wrote", {.init = ""}},
    {"an mbarrier taken back",
     "no mbarrier: nobody has initialised",
     {.barrier = "setp.ne.u32 %p5, %r1, 0; @%p5 bra $L8;\nmbarrier.inval.shared.b64 [full];\n"
                 "$L8:\nbar.sync 0;\n"}},
    {"no fence after the initialisation",
     "no proxy fence: a bulk copy tells the mbarrier at byte 1152 of shared memory, which lane 0 "
     "of warp 0 initialised",
     {.init = "mbarrier.init.shared::cta.b64 [full], 1; mbarrier.init.shared::cta.b64 [full+8], "
              "1;\nmbarrier.init.shared.b64 [empty], 32; mbarrier.init.shared.b64 [empty+8], "
              "32;\n"}},
    {"a copy of what a thread has just written",
     "no proxy fence: a bulk copy reads byte 16 of an allocation, which thread (0,0,0) wrote",
     {.expect = "st.global.u32 [%rd1+16], %r2;\n"
                "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], 512;\n"}},
    {"a copy of what a thread has just written, after a fence for shared memory",
     "no proxy fence: a bulk copy reads byte 16 of an allocation, which thread (0,0,0) wrote",
     {.expect = "st.global.u32 [%rd1+16], %r2; fence.proxy.async.shared::cta;\n"
                "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], 512;\n"}},
    {"one lane tells that a place is empty, before the others have read it",
     "race: byte 4 of shared memory is written by thread (0,0,0) of block (0,0,0) and read by "
     "thread (33,0,0) of the same block",
     {.init = ONE_ARRIVAL, .arrive = LANE_0_ARRIVES}},
    {"one lane waits, and all read",
     "race: byte 4 of shared memory is read by thread (33,0,0) of block (0,0,0) and written by a "
     "bulk copy of the same block",
     {.wait_full = LANE_0_WAITS}},
    {"arrivals that order nothing",
     "race: byte 0 of shared memory is written by thread (0,0,0) of block (0,0,0) and written by "
     "a bulk copy of the same block",
     {.arrive = "mbarrier.arrive.relaxed.cta.shared::cta.b64 %rd5, [%r6+16];\n"}},
    {"a wait that orders nothing",
     "race: byte 0 of shared memory is read by thread (32,0,0) of block (0,0,0) and written by a "
     "bulk copy of the same block",
     {.wait_full = "$L5:\nmbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 %p3, [%r6], %r8; "
                   "@!%p3 bra $L5;\n"}},
    {"an arrival too many",
     "one arrival more than the 1 of this phase",
     {.expect = "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r6], 512;\n"
                "mbarrier.arrive.shared.b64 _, [%r6], 2;\n"}},
    {"no arrivals", "0 arrivals", {.init = "mbarrier.init.shared.b64 [full], 0;\n"}},
    {"a copy of a part of 16 bytes",
     "copies multiples of 16 bytes, not 24",
     {.copy = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r7], [%rd1], 24, "
              "[%r6];\n"}},
    {"a copy beyond shared memory",
     "out of bounds",
     {.copy = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r7+2048], [%rd1], "
              "512, [%r6];\n"}},
    {"a copy from beyond the input",
     "out of bounds",
     {.copy = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r7], [%rd1+1600], "
              "512, [%r6];\n"}},
    {"a copy that nobody waits for",
     "unfinished copy: the block ends",
     {.end = "setp.ne.u32 %p5, %r1, 32; @%p5 ret;\nmov.u32 %r6, full;\n"
             "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [s+1024], [%rd1], 16, "
             "[%r6];\n"}},
};

static void copy_findings(void **state) {
  uint32_t result[32];
  for (size_t i = 0; i < sizeof ring_findings / sizeof *ring_findings; i++) {
    Ring one = ring_with(&ring_findings[i].ring);
    if (run_ring(*state, &one, result) == STATUS_OK)
      fail_msg("%s: nothing was found", ring_findings[i].name);
    if (!strstr(status_message(), ring_findings[i].finding))
      fail_msg("%s: found \"%s\" in place of \"%s\"", ring_findings[i].name, status_message(),
               ring_findings[i].finding);
    for (uint64_t seed = 1; seed <= 8; seed++) { /* in another order perhaps by other words */
      sim_machine_seed(*state, seed);
      if (run_ring(*state, &one, result) == STATUS_OK)
        fail_msg("%s: nothing was found with seed %d", ring_findings[i].name, (int)seed);
    }
    sim_machine_seed(*state, 0);
  }
}

static void refused(void **state) {
  (void)state;
  static const char *const texts[][2] = {
      {"wgmma.mma_async.sync.aligned.m64n12k16.f32.bf16.bf16 {%f1}, %rd1, %rd1, %p1, 1, 1, 0, 0;", "unsupported instruction wgmma.mma_async"},
      {"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2}, %rd1, %rd1, %p1, 1, 1, 0, 0;", "takes a vector of 4 sums"},
      {"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %rd1, %rd1, %p1, 1, 2, 0, 0;", "2 is no sign"},
      {"wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f1, %f2, %f3, %f4}, %rd1, %rd1, %p1, 1, 1, 0, 0;", "takes 6 operands"},
      {"wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f1, %f2, %f3, %f4}, %rd1, %rd1, %p1, 1, 1, 0, 0;", "takes 6 operands"},
      {"wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f1, %f2}, %rd1, %rd1, %p1, 1, 1;", "takes a vector of 4 sums"},
      {"wgmma.mma_async.sync.aligned.m64n8k16.f32.e4m3.e4m3 {%f1, %f2, %f3, %f4}, %rd1, %rd1, %p1, 1, 1;", "unsupported instruction"},
      {"wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.bf16 {%f1, %f2, %f3, %f4}, %rd1, %rd1, %p1, 1, 1;", "unsupported instruction"},
      {"setmaxnreg.inc.sync.aligned.u32 20;", "takes a number from 24 to 256"},
      {"mbarrier.arrive.b64 %rd1, [%rd1];", "unsupported instruction mbarrier.arrive.b64"},
      {"mbarrier.init.shared.b64 [%r1];", "takes 2 operands"},
      {"elect.sync %r1, -1;", "takes leader|p"},
      {"cp.reduce.async.bulk.global.shared::cta.bulk_group.max.f32 [%rd1], [%r1], 16;", "unsupported instruction cp.reduce.async.bulk"},
      {"wgmma.wait_group.sync.aligned %r1;", "operand 1 must be a number"},
      {"wgmma.wait_group.sync.aligned 9;", "leaves 0 to 7 groups open"},
      {"wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%r1, %r2}, %rd1, %rd1, %p1, 1, 1, 0, 0;", "unsupported instruction"},
  };
  const char *registers = ".reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<2>; .reg .f32 %f<8>;";
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    sim_test_refuses(registers, texts[i][0], texts[i][1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(products, sim_test_begin, sim_test_end),
      cmocka_unit_test_setup_teardown(numbers, sim_test_begin, sim_test_end),
      cmocka_unit_test_setup_teardown(findings, sim_test_begin, sim_test_end),
      cmocka_unit_test_setup_teardown(copies, sim_test_begin, sim_test_end),
      cmocka_unit_test_setup_teardown(right_copies, sim_test_begin, sim_test_end),
      cmocka_unit_test_setup_teardown(copy_findings, sim_test_begin, sim_test_end),
      cmocka_unit_test(refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
