/* runtime_sim_warp: instructions in which the lanes of a warp or the threads of a block work
 * together, against their definitions: shuffles, votes, atomics, matrices, asynchronous copies,
 * loops that take lanes different ways, local memory and generic addresses. */
#include "runtime_sim.h"

/* k(in, out): %r1 the thread, %r2 the word in[thread], %rd2 the address of out[thread], %rd1 and
 * %rd3 where in and out begin; s: 4096 bytes of shared memory. The body leaves its result in %r3.
 */
#define BEGIN                                                                                      \
  SIM_HEAD ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n"                               \
           ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>;\n"             \
           ".reg .f32 %f<16>; .reg .f64 %fd<8>; .shared .align 16 .b8 s[4096];\n"                  \
           ".local .align 8 .b8 depot[32];\n"                                                      \
           "ld.param.u64 %rd1, [in]; ld.param.u64 %rd3, [out]; mov.u32 %r1, %tid.x;\n"             \
           "mad.wide.u32 %rd2, %r1, 4, %rd3; mad.wide.u32 %rd4, %r1, 4, %rd1;\n"                   \
           "ld.global.u32 %r2, [%rd4];\n"
#define END "\nst.global.u32 [%rd2], %r3;\nret;\n}\n"
enum { THREADS = 64, WORDS = 1024 };

static uint32_t in[WORDS], out[WORDS];

static void run(SimMachine *machine, const char *body, const char *end) {
  Text ptx = {0};
  SimModule *module;
  char *from, *to;
  text_printf(&ptx, "%s%s%s", BEGIN, body, end);
  if (sim_module_load("t.ptx", text_cstr(&ptx), ptx.count, &module) != STATUS_OK)
    fail_msg("%s\n%s", status_message(), body);
  text_free(&ptx);
  assert_int_equal(sim_alloc(machine, sizeof in, &from), STATUS_OK);
  assert_int_equal(sim_alloc(machine, sizeof out, &to), STATUS_OK);
  memcpy(from, in, sizeof in);
  sim_mark(machine, from, sizeof in, true);
  sim_mark(machine, to, sizeof out, true);
  uint64_t params[] = {(uint64_t)(uintptr_t)from, (uint64_t)(uintptr_t)to};
  SimLaunch launch = {
      .grid = {1, 1, 1}, .block = {THREADS, 1, 1}, .params = params, .param_bytes = sizeof params};
  if (sim_launch(machine, sim_module_kernel(module, "k"), &launch) != STATUS_OK)
    fail_msg("%s\n%s", status_message(), body);
  memcpy(out, to, sizeof out);
  sim_free(machine, from);
  sim_free(machine, to);
  sim_module_free(module);
}

static void fill(void) {
  for (uint32_t i = 0; i < WORDS; i++) in[i] = i * 2654435761u >> 7;
}

#define EXPECT(body, expression)                                                                   \
  do {                                                                                             \
    fill();                                                                                        \
    run(*state, body, END);                                                                        \
    for (uint32_t t = 0; t < THREADS; t++) {                                                       \
      uint32_t lane = t & 31, warp = t & ~31u;                                                     \
      (void)lane, (void)warp;                                                                      \
      if (out[t] != (uint32_t)(expression))                                                        \
        fail_msg("thread %u: have %u, want %u\n%s", t, out[t], (uint32_t)(expression), body);      \
    }                                                                                              \
  } while (0)

static void shuffles(void **state) {
  EXPECT("shfl.sync.bfly.b32 %r3, %r2, 5, 31, -1;", in[t ^ 5]);
  EXPECT("shfl.sync.up.b32 %r3, %r2, 3, 0, -1;", lane < 3 ? in[t] : in[t - 3]);
  EXPECT("shfl.sync.down.b32 %r3, %r2, 4, 31, -1;", lane + 4 > 31 ? in[t] : in[t + 4]);
  EXPECT("shfl.sync.idx.b32 %r3, %r2, 7, 31, -1;", in[warp + 7]);
  /* segments of 8 lanes: the mask 0x18 in bits 8 to 12 */
  EXPECT("shfl.sync.down.b32 %r3, %r2, 3, 0x181f, -1;", (lane & 7) + 3 > 7 ? in[t] : in[t + 3]);
  EXPECT("shfl.sync.idx.b32 %r3, %r2, 2, 0x181f, -1;", in[(t & ~7u) + 2]);
  EXPECT("shfl.sync.up.b32 %r3|%p1, %r2, 1, 0, -1;\nselp.u32 %r3, 1, 0, %p1;", lane != 0);
  /* half of a warp among itself */
  EXPECT("and.b32 %r4, %r1, 16;\nsetp.eq.u32 %p1, %r4, 0;\nmov.u32 %r3, %r2;\n@!%p1 bra $L;\n"
         "shfl.sync.bfly.b32 %r3, %r2, 1, 31, 0xffff;\n$L:",
         lane < 16 ? in[t ^ 1] : in[t]);
}

static void votes(void **state) {
  EXPECT("and.b32 %r4, %r1, 3;\nsetp.eq.u32 %p1, %r4, 1;\nvote.sync.ballot.b32 %r3, %p1, -1;",
         0x22222222);
  EXPECT("setp.lt.u32 %p1, %r1, 33;\nvote.sync.all.pred %p2, %p1, -1;\nselp.u32 %r3, 1, 0, %p2;",
         t < 32);
  EXPECT("setp.lt.u32 %p1, %r1, 33;\nvote.sync.any.pred %p2, !%p1, -1;\nselp.u32 %r3, 1, 0, %p2;",
         t >= 32);
  EXPECT("setp.lt.u32 %p1, %r1, 33;\nvote.sync.uni.pred %p2, %p1, -1;\nselp.u32 %r3, 1, 0, %p2;",
         t < 32);
  EXPECT("redux.sync.add.u32 %r3, %r1, -1;", t < 32 ? 496 : 496 + 1024);
  EXPECT("sub.s32 %r4, %r1, 5;\nredux.sync.min.s32 %r3, %r4, -1;", t < 32 ? -5 : 27);
  EXPECT("setp.lt.u32 %p1, %r1, 8;\nmov.u32 %r3, 0;\n@!%p1 bra $L;\nactivemask.b32 %r3;\n$L:",
         t < 8 ? 0xff : 0);
}

static void atomics(void **state) {
  /* in shared memory, begun by thread 0 */
#define SHARED_BEGIN                                                                               \
  "mov.u32 %r3, 0;\nmov.u32 %r5, 7;\nsetp.ne.u32 %p1, %r1, 0;\n"                                   \
  "@!%p1 st.shared.u32 [s], %r5;\nbar.sync 0;\n"
#define SHARED_END "\nbar.sync 0;\nld.shared.u32 %r3, [s];"
  EXPECT(SHARED_BEGIN "red.shared.add.u32 [s], %r1;" SHARED_END, 7 + 2016);
  EXPECT(SHARED_BEGIN "red.shared.max.u32 [s], %r1;" SHARED_END, 63);
  EXPECT(SHARED_BEGIN "sub.s32 %r4, 3, %r1; red.shared.min.s32 [s], %r4;" SHARED_END, -60);
  EXPECT(SHARED_BEGIN "shl.b32 %r4, 1, %r1; atom.shared.or.b32 %r6, [s], %r4;" SHARED_END, ~0u);
  EXPECT(SHARED_BEGIN "atom.shared.inc.u32 %r6, [s], 9;" SHARED_END, (7 + 64) % 10);
  EXPECT(SHARED_BEGIN
         "atom.shared.cas.b32 %r6, [s], 7, 5; atom.shared.cas.b32 %r6, [s], 5, 4;" SHARED_END,
         4);
  EXPECT(SHARED_BEGIN "atom.shared.exch.b32 %r6, [s], 12;" SHARED_END, 12);
  EXPECT("st.global.u32 [%rd2], %r1;\nred.global.add.u32 [%rd2], %r2;\nld.global.u32 %r3, [%rd2];",
         in[t] + t);
  EXPECT("mov.f32 %f1, 0f40200000;\nst.global.f32 [%rd2], %f1;\n"
         "atom.global.add.f32 %f2, [%rd2], 0f3F800000;\nld.global.f32 %f3, [%rd2];\n"
         "add.f32 %f3, %f3, %f2;\ncvt.rzi.u32.f32 %r3, %f3;",
         6); /* 3.5 + 2.5 */
  EXPECT("mov.u64 %rd5, 5;\nmul.wide.u32 %rd6, %r1, 8;\nadd.s64 %rd6, %rd6, %rd3;\n"
         "add.s64 %rd6, %rd6, 1024;\nst.global.u64 [%rd6], %rd5;\n"
         "atom.global.add.u64 %rd7, [%rd6], 8;\nld.global.u64 %rd8, [%rd6];\n"
         "add.s64 %rd8, %rd8, %rd7;\ncvt.u32.u64 %r3, %rd8;",
         18);
}

static void control(void **state) {
  /* lanes leave a loop one after the other and meet behind it */
  EXPECT("mov.u32 %r3, 0;\nmov.u32 %r4, 0;\n$A:\nadd.s32 %r3, %r3, %r4;\nadd.s32 %r4, %r4, 1;\n"
         "setp.le.u32 %p1, %r4, %r1;\n@%p1 bra $A;\nshfl.sync.bfly.b32 %r5, %r3, 1, 31, -1;\n"
         "add.s32 %r3, %r3, %r5;",
         t * (t + 1) / 2 + (t ^ 1) * ((t ^ 1) + 1) / 2);
  /* both sides of a branch, one of them with a branch inside */
  EXPECT("setp.lt.u32 %p1, %r1, 20;\n@%p1 bra $A;\nmul.lo.s32 %r3, %r1, 3;\nbra.uni $B;\n$A:\n"
         "and.b32 %r4, %r1, 1;\nsetp.eq.u32 %p2, %r4, 0;\nmov.u32 %r3, 7;\n@%p2 bra $B;\n"
         "mov.u32 %r3, 9;\n$B:\nbar.sync 0;\nadd.s32 %r3, %r3, 1;",
         t >= 20 ? 3 * t + 1
         : t & 1 ? 10
                 : 8);
  EXPECT("mov.u32 %r3, 1;\nsetp.gt.u32 %p1, %r1, 40;\n@%p1 st.global.u32 [%rd2], %r1;\n@%p1 ret;",
         t > 40 ? t : 1);
  EXPECT("cvt.u16.u32 %h1, %r1;\nmov.b32 %r4, {%h1, %h1};\nst.local.u32 [depot+4], %r4;\n"
         "mov.u64 %rd5, depot;\ncvta.local.u64 %rd6, %rd5;\nld.u32 %r3, [%rd6+4];",
         t << 16 | t);
  EXPECT(
      "mov.u64 %rd5, s;\ncvta.shared.u64 %rd6, %rd5;\nmul.wide.u32 %rd7, %r1, 4;\n"
      "add.s64 %rd6, %rd6, %rd7;\nst.u32 [%rd6], %r1;\nbar.sync 0;\nshl.b32 %r4, %r1, 2;\n"
      "mov.u32 %r5, s;\nadd.s32 %r5, %r5, %r4;\nxor.b32 %r5, %r5, 252;\nld.shared.u32 %r3, [%r5];",
      63 - t);
}

static void copies(void **state) {
  /* 16 bytes a thread, of which the last threads ask for fewer: the rest is zero */
  EXPECT(
      "shl.b32 %r4, %r1, 4;\ncvt.u64.u32 %rd5, %r4;\nadd.s64 %rd5, %rd5, %rd1;\nmov.u32 %r5, s;\n"
      "add.s32 %r5, %r5, %r4;\nsetp.lt.u32 %p1, %r1, 32;\nselp.u32 %r6, 16, 4, %p1;\n"
      "cp.async.cg.shared.global [%r5], [%rd5], 16, %r6;\ncp.async.commit_group;\n"
      "cp.async.wait_group 0;\nbar.sync 0;\nxor.b32 %r5, %r5, 16;\nld.shared.v2.u32 {%r7, %r8}, "
      "[%r5];\n"
      "add.s32 %r3, %r7, %r8;",
      in[4 * (t ^ 1)] + (t < 32 ? in[4 * (t ^ 1) + 1] : 0));
  EXPECT(
      "shl.b32 %r4, %r1, 2;\nmov.u32 %r5, s;\nadd.s32 %r5, %r5, %r4;\n"
      "cp.async.ca.shared.global [%r5], [%rd4], 4;\ncp.async.wait_all;\nld.shared.u32 %r3, [%r5];",
      in[t]);
}

static void vectors(void **state) {
  EXPECT("mul.wide.u32 %rd5, %r1, 16;\nadd.s64 %rd5, %rd5, %rd1;\n"
         "ld.global.nc.v4.u32 {%r4, %r5, %r6, %r7}, [%rd5];\nadd.s32 %r3, %r4, %r5;\n"
         "xor.b32 %r3, %r3, %r6;\nsub.s32 %r3, %r3, %r7;",
         ((in[4 * t] + in[4 * t + 1]) ^ in[4 * t + 2]) - in[4 * t + 3]);
  EXPECT("mul.wide.u32 %rd5, %r1, 16;\nadd.s64 %rd5, %rd5, %rd1;\n"
         "ld.global.v2.u64 {%rd6, %rd7}, [%rd5];\nshr.u64 %rd6, %rd6, 32;\ncvt.u32.u64 %r3, %rd6;",
         in[4 * t + 1]);
  EXPECT("cvt.u64.u32 %rd5, %r1;\nadd.s64 %rd5, %rd5, %rd1;\nld.global.u8 %h1, [%rd5];\n"
         "ld.global.s8 %r4, [%rd5];\ncvt.u32.u16 %r3, %h1;\nshl.b32 %r4, %r4, 8;\nor.b32 %r3, %r3, "
         "%r4;",
         ((uint8_t *)in)[t] | (uint32_t)((int8_t *)in)[t] << 8);
}

/* ── matrices ─────────────────────────────────────────────────────────────────────────────── */
/* ldmatrix: the definition says where element (row, column) of matrix m goes. */
static void matrices(void **state) {
  for (int transposed = 0; transposed < 2; transposed++) {
    char body[1024];
    fill();
    snprintf(body, sizeof body,
             "shl.b32 %%r4, %%r1, 4;\nmov.u32 %%r5, s;\nadd.s32 %%r5, %%r5, %%r4;\n"
             "mul.wide.u32 %%rd5, %%r1, 16;\nadd.s64 %%rd5, %%rd5, %%rd1;\n"
             "ld.global.v4.u32 {%%r6, %%r7, %%r8, %%r9}, [%%rd5];\n"
             "st.shared.v4.u32 [%%r5], {%%r6, %%r7, %%r8, %%r9};\nbar.sync 0;\n"
             "ldmatrix.sync.aligned.m8n8.x4%s.shared.b16 {%%r6, %%r7, %%r8, %%r9}, [%%r5];\n"
             "mul.wide.u32 %%rd5, %%r1, 16;\nadd.s64 %%rd5, %%rd5, %%rd3;\n"
             "st.global.v4.u32 [%%rd5], {%%r6, %%r7, %%r8, %%r9};",
             transposed ? ".trans" : "");
    run(*state, body, "ret;\n}\n");
    const uint16_t *source = (const uint16_t *)in;
    for (uint32_t t = 0; t < THREADS; t++)
      for (uint32_t m = 0; m < 4; m++) {
        uint32_t first = ((t & ~31u) + 8 * m) * 8, lane = t & 31, want;
        if (transposed)
          want = source[first + (lane % 4 * 2) * 8 + lane / 4] |
                 (uint32_t)source[first + (lane % 4 * 2 + 1) * 8 + lane / 4] << 16;
        else
          want = source[first + lane / 4 * 8 + lane % 4 * 2] |
                 (uint32_t)source[first + lane / 4 * 8 + lane % 4 * 2 + 1] << 16;
        assert_int_equal(out[4 * t + m], want);
      }
  }
}

/* Small whole numbers are exact in every type: the bits of x as bf16, f16, tf32, or as e4m3 (4) or e5m2 (5), which has
 * those up to 4, and 5 to 8 in twos. */
static uint32_t number_bits(char type, int x) {
  float f = (float)x;
  uint32_t bits;
  memcpy(&bits, &f, 4);
  if (type == 't') return bits;
  if (type == 'b') return bits >> 16;
  if (x && type == '4') return (bits >> 24 & 0x80) | (((bits >> 23 & 255) - 120) << 3) | (bits >> 20 & 7);
  if (x && type == '5') return (bits >> 24 & 0x80) | (((bits >> 23 & 255) - 112) << 2) | (bits >> 21 & 3);
  if (!x) return 0;
  return (bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) | (bits >> 13 & 1023);
}

typedef struct {
  const char *op;
  char type;
  int depth, a_registers, b_registers;
  char b_type; /* 0: as a */
} Product;

/* a (16 x depth), b (depth x 8) and c (16 x 8) of small numbers, laid out as PTX says. */
static void check_product(SimMachine *machine, const Product *p) {
  bool is_byte = p->type == '4' || p->type == '5';
  int a[16][32], b[32][8], c[16][8], per = p->type == 't' ? 1 : is_byte ? 4 : 2, bits = 32 / per;
  char b_type = p->b_type ? p->b_type : p->type;
  char body[2048];
  for (int i = 0; i < 16; i++)
    for (int k = 0; k < 32; k++)
      a[i][k] = (i * 7 + k * 3) % (is_byte ? 9 : 11) - (is_byte ? 4 : 5), b[k][i % 8] = (k * 5 + i % 8) % 9 - 4;
  for (int i = 0; i < 16; i++)
    for (int n = 0; n < 8; n++) c[i][n] = i - n;
  memset(in, 0, sizeof in);
  for (int lane = 0; lane < 32; lane++) {
    int group = lane / 4, in_group = lane % 4;
    uint32_t *word = in + lane * 16;
    for (int r = 0; r < p->a_registers; r++)
      for (int h = 0; h < per; h++) {
        int row = group + (r % 2) * 8, k = in_group * per + h + (r / 2) * 4 * per;
        word[r] |= number_bits(p->type, a[row][k]) << (bits % 32 * h);
      }
    for (int r = 0; r < p->b_registers; r++)
      for (int h = 0; h < per; h++)
        word[4 + r] |= number_bits(b_type, b[in_group * per + h + r * 4 * per][group]) << (bits % 32 * h);
    for (int r = 0; r < 4; r++)
      word[8 + r] = number_bits('t', c[group + r / 2 * 8][in_group * 2 + r % 2]);
  }
  const char *a_text = p->a_registers == 4 ? "{%r4, %r5, %r6, %r7}" : "{%r4, %r5}";
  const char *b_text = p->b_registers == 2 ? "{%r8, %r9}" : "{%r8}";
  snprintf(body, sizeof body,
           "setp.gt.u32 %%p1, %%r1, 31;\n@%%p1 ret;\nmul.wide.u32 %%rd5, %%r1, 64;\n"
           "add.s64 %%rd5, %%rd5, %%rd1;\nld.global.v4.u32 {%%r4, %%r5, %%r6, %%r7}, [%%rd5];\n"
           "ld.global.v2.u32 {%%r8, %%r9}, [%%rd5+16];\n"
           "ld.global.v4.f32 {%%f1, %%f2, %%f3, %%f4}, [%%rd5+32];\n"
           "%s {%%f1, %%f2, %%f3, %%f4}, %s, %s, {%%f1, %%f2, %%f3, %%f4};\n"
           "mul.wide.u32 %%rd5, %%r1, 16;\nadd.s64 %%rd5, %%rd5, %%rd3;\n"
           "st.global.v4.f32 [%%rd5], {%%f1, %%f2, %%f3, %%f4};\n",
           p->op, a_text, b_text);
  run(machine, body, "ret;\n}\n");
  for (int lane = 0; lane < 32; lane++)
    for (int r = 0; r < 4; r++) {
      int row = lane / 4 + r / 2 * 8, column = lane % 4 * 2 + r % 2, want = c[row][column];
      float have;
      for (int k = 0; k < p->depth; k++) want += a[row][k] * b[k][column];
      memcpy(&have, &out[lane * 4 + r], 4);
      if (have != (float)want)
        fail_msg("%s: (%d,%d) is %g, not %d", p->op, row, column, (double)have, want);
    }
}

/* Of each four neighbours of a row of a, two, at places of the row's own: mma.sp. The lanes that the selector names have the places. */
static void check_sparse(SimMachine *machine, bool is_half, int selector) {
  int a[16][32] = {{0}}, b[32][8], c[16][8];
  char body[2048], type = is_half ? 'h' : 'b';
  memset(in, 0, sizeof in);
  for (int k = 0; k < 32; k++)
    for (int n = 0; n < 8; n++) b[k][n] = (k * 5 + n * 3) % 9 - 4, c[k % 16][n] = k % 16 - n;
  for (int row = 0; row < 16; row++)
    for (int four = 0; four < 8; four++) {
      int first = (row + four) % 3, second = first + 1 + (row * 5 + four) % (3 - first);
      int lane = row % 8 * 4 + four % 4, value[2] = {(row + four * 3) % 7 - 3, (row * 3 + four) % 5 - 2};
      for (int h = 0; h < 2; h++) {
        a[row][four * 4 + (h ? second : first)] = value[h];
        in[lane * 16 + row / 8 + four / 4 * 2] |= number_bits(type, value[h]) << 16 * h;
      }
      in[(row % 8 * 4 + selector * 2 + four / 4) * 16 + 12] |= (uint32_t)(first | second << 2) << (four % 4 * 4 + row / 8 * 16);
    }
  for (int lane = 0; lane < 32; lane++)
    for (int r = 0; r < 4; r++) {
      for (int h = 0; h < 2; h++) in[lane * 16 + 4 + r] |= number_bits(type, b[lane % 4 * 2 + h + r * 8][lane / 4]) << 16 * h;
      in[lane * 16 + 8 + r] = number_bits('t', c[lane / 4 + r / 2 * 8][lane % 4 * 2 + r % 2]);
    }
  const char *name = is_half ? "f16" : "bf16";
  snprintf(body, sizeof body,
           "setp.gt.u32 %%p1, %%r1, 31;\n@%%p1 ret;\nmul.wide.u32 %%rd5, %%r1, 64;\nadd.s64 %%rd5, %%rd5, %%rd1;\n"
           "ld.global.v4.u32 {%%r4, %%r5, %%r6, %%r7}, [%%rd5];\nld.global.v4.u32 {%%r8, %%r9, %%r10, %%r11}, [%%rd5+16];\n"
           "ld.global.v4.f32 {%%f1, %%f2, %%f3, %%f4}, [%%rd5+32];\nld.global.u32 %%r12, [%%rd5+48];\n"
           "mma.sp%s.sync.aligned.m16n8k32.row.col.f32.%s.%s.f32 {%%f1, %%f2, %%f3, %%f4}, {%%r4, %%r5, %%r6, %%r7}, "
           "{%%r8, %%r9, %%r10, %%r11}, {%%f1, %%f2, %%f3, %%f4}, %%r12, 0x%d;\n"
           "mul.wide.u32 %%rd5, %%r1, 16;\nadd.s64 %%rd5, %%rd5, %%rd3;\nst.global.v4.f32 [%%rd5], {%%f1, %%f2, %%f3, %%f4};\n",
           selector ? "::ordered_metadata" : "", name, name, selector);
  run(machine, body, "ret;\n}\n");
  for (int lane = 0; lane < 32; lane++)
    for (int r = 0; r < 4; r++) {
      int row = lane / 4 + r / 2 * 8, column = lane % 4 * 2 + r % 2, want = c[row][column];
      float have;
      for (int k = 0; k < 32; k++) want += a[row][k] * b[k][column];
      memcpy(&have, &out[lane * 4 + r], 4);
      if (have != (float)want) fail_msg("mma.sp, %s: (%d,%d) is %g, not %d", name, row, column, (double)have, want);
    }
}

static void sparse_products(void **state) {
  for (int i = 0; i < 4; i++) check_sparse(*state, i % 2, i / 2);
  static const char *const texts[][2] = {
      {"m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f1, %f1, %f1}, {%r1, %r1}, {%r1, %r1}, {%f1, %f1, %f1, %f1}, %r1, 0;", "unsupported instruction"},
      {"m16n8k32.row.col.f32.f16.f16.f32 {%f1, %f1, %f1, %f1}, {%r1, %r1, %r1, %r1}, {%r1, %r1}, {%f1, %f1, %f1, %f1}, %r1, 0;", "four times four registers"},
      {"m16n8k32.row.col.f32.f16.f16.f32 {%f1, %f1, %f1, %f1}, {%r1, %r1, %r1, %r1}, {%r1, %r1, %r1, %r1}, {%f1, %f1, %f1, %f1}, %r1, 2;", "and 0 or 1"},
      {"m16n8k32.row.col.f32.f16.f16.f32 {%f1, %f1, %f1, %f1}, {%r1, %r1, %r1, %r1}, {%r1, %r1, %r1, %r1}, {%f1, %f1, %f1, %f1}, %r1;", "and 0 or 1"},
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    char text[256];
    snprintf(text, sizeof text, "mma.sp.sync.aligned.%s", texts[i][0]);
    sim_test_refuses(".reg .b32 %r<4>; .reg .f32 %f<4>;", text, texts[i][1]);
  }
}

/* Bytes of all values, signed or not, and sums that wrap around. */
static void check_whole(SimMachine *machine, bool is_a_signed, bool is_b_signed) {
  uint8_t a[16][32], b[32][8];
  char body[2048];
  for (int i = 0; i < 16; i++)
    for (int k = 0; k < 32; k++) a[i][k] = (uint8_t)(i * 37 + k * 91), b[k][i % 8] = (uint8_t)(k * 59 + i % 8 * 17 + 128);
  memset(in, 0, sizeof in);
  for (int lane = 0; lane < 32; lane++)
    for (int r = 0; r < 4; r++) {
      uint32_t *word = in + lane * 16;
      for (int h = 0; h < 4; h++) {
        word[r] |= (uint32_t)a[lane / 4 + r % 2 * 8][lane % 4 * 4 + h + r / 2 * 16] << 8 * h;
        if (r < 2) word[4 + r] |= (uint32_t)b[lane % 4 * 4 + h + r * 16][lane / 4] << 8 * h;
      }
      word[8 + r] = r ? 0x7fffffffu : 0x80000000u;
    }
  snprintf(body, sizeof body,
           "setp.gt.u32 %%p1, %%r1, 31;\n@%%p1 ret;\nmul.wide.u32 %%rd5, %%r1, 64;\n"
           "add.s64 %%rd5, %%rd5, %%rd1;\nld.global.v4.u32 {%%r4, %%r5, %%r6, %%r7}, [%%rd5];\n"
           "ld.global.v2.u32 {%%r8, %%r9}, [%%rd5+16];\nld.global.v4.u32 {%%r10, %%r11, %%r12, %%r13}, [%%rd5+32];\n"
           "mma.sync.aligned.m16n8k32.row.col.s32.%s.%s.s32 {%%r10, %%r11, %%r12, %%r13}, {%%r4, %%r5, %%r6, %%r7}, "
           "{%%r8, %%r9}, {%%r10, %%r11, %%r12, %%r13};\nmul.wide.u32 %%rd5, %%r1, 16;\nadd.s64 %%rd5, %%rd5, %%rd3;\n"
           "st.global.v4.u32 [%%rd5], {%%r10, %%r11, %%r12, %%r13};\n",
           is_a_signed ? "s8" : "u8", is_b_signed ? "s8" : "u8");
  run(machine, body, "ret;\n}\n");
  for (int lane = 0; lane < 32; lane++)
    for (int r = 0; r < 4; r++) {
      int row = lane / 4 + r / 2 * 8, column = lane % 4 * 2 + r % 2;
      uint32_t want = r ? 0x7fffffffu : 0x80000000u;
      for (int k = 0; k < 32; k++) {
        int x = is_a_signed ? (int8_t)a[row][k] : a[row][k], y = is_b_signed ? (int8_t)b[k][column] : b[k][column];
        want += (uint32_t)(x * y);
      }
      assert_int_equal(out[lane * 4 + r], want);
    }
}

static void whole_products(void **state) {
  for (int i = 0; i < 4; i++) check_whole(*state, i & 1, i & 2);
}

static void products(void **state) {
  static const Product all[] = {
      {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 'h', 16, 4, 2},
      {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 'b', 16, 4, 2},
      {"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 't', 8, 4, 2},
      {"mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", 't', 4, 2, 1},
      {"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", 'h', 8, 2, 1},
      {"mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", 'b', 8, 2, 1},
      {"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", '4', 32, 4, 2},
      {"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", '4', 32, 4, 2, '5'},
      {"mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32", '5', 32, 4, 2, '4'},
      {"mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32", '5', 32, 4, 2},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) check_product(*state, &all[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(shuffles), cmocka_unit_test(votes),
                                     cmocka_unit_test(atomics),  cmocka_unit_test(control),
                                     cmocka_unit_test(copies),   cmocka_unit_test(vectors),
                                     cmocka_unit_test(matrices), cmocka_unit_test(products),
                                     cmocka_unit_test(whole_products), cmocka_unit_test(sparse_products)};
  return SIM_TEST_LANES(tests);
}
