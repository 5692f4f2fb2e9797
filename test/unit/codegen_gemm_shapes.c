/* codegen_gemm_shapes: kernels/gemm_x86.c and its like on shapes drawn at random, around the sizes at which they cut: all orders
 * and types, each way to multiply bf16, any split of the work. Operands are small whole numbers, so that sums are exact in any
 * order and compared bit by bit, of large results some elements drawn at random; and they end where memory ends, so that nothing
 * behind them is read or written. Built with AddressSanitizer, what the kernels have on the stack is asked about, too. */
#define _GNU_SOURCE
#include "codegen/host.h"
#include "codegen/target.h"
#include "codegen_gpu.h"
#include "kernels/gemm_host.h"
#include "passes_help.h"
#include <sys/mman.h>

enum { PAGE = 4096, SHAPES = 250, MOST_CHECKED = 12000000 /* products of two numbers */ };

/* ── memory that ends at a page which nobody may touch ──────────────────────────────────────────── */
typedef struct {
  char *pages;
  size_t length;
  void *at;
} Guarded;

static Guarded guarded(size_t bytes, size_t align) {
  size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
  Guarded g = {.length = whole + (size_t)2 * PAGE};
  g.pages = mmap(NULL, g.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(g.pages != MAP_FAILED);
  assert_int_equal(mprotect(g.pages, PAGE, PROT_NONE), 0);
  assert_int_equal(mprotect(g.pages + PAGE + whole, PAGE, PROT_NONE), 0);
  g.at = g.pages + PAGE + (whole - bytes) / align * align;
  return g;
}
static void unguard(Guarded g) { munmap(g.pages, g.length); }

/* ── a case ─────────────────────────────────────────────────────────────────────────────────────── */
static uint64_t state;
static int64_t below(int64_t end) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (int64_t)(state % (uint64_t)end);
}
static int64_t size_up_to(int64_t most) {
  static const int64_t edges[] = {1, 2, 15, 16, 17, 31, 32, 33, 48, 127, 128, 129, 255, 256, 257, 384, 512, 513, 1024, 1025};
  int64_t size = below(3) ? edges[below(sizeof edges / sizeof *edges)] : 1 + below(most);
  return size < most ? size : most;
}

/* `count` whole numbers from -8 to 8, and the same as integers. */
static Guarded whole_numbers(int64_t count, int64_t type, int8_t *numbers) {
  Guarded g = guarded((size_t)(count * operand_bytes(type)), (size_t)operand_bytes(type));
  for (int64_t i = 0; i < count; i++) {
    float value = (float)(numbers[i] = (int8_t)(below(17) - 8));
    uint32_t word;
    memcpy(&word, &value, 4);
    if (type == OPERAND_F32) ((float *)g.at)[i] = value;
    if (type == OPERAND_BF16) ((uint16_t *)g.at)[i] = (uint16_t)(word >> 16);
    if (type == OPERAND_F16) ((_Float16 *)g.at)[i] = (_Float16)value;
  }
  return g;
}

typedef void Run(const GemmProduct *product, void *const *args, int64_t begin, int64_t end);
typedef struct {
  LLVMOrcLLJITRef jit;
  int vector_bytes;
  Run *run, *pack;
  int packed; /* cases */
} Machine;

static void find_tiles(const Machine *machine, GemmProduct *p) {
  int64_t width = p->vectors * GEMM_LANES, right = gemm_width(p->n % width) / GEMM_LANES;
  for (int i = 0; i < 4; i++) {
    int rows = (int)(i & 1 ? p->m % p->rows : p->m >= p->rows ? p->rows : 0);
    int vectors = (int)(i >> 1 ? right : p->n >= width ? p->vectors : 0);
    char name[32];
    snprintf(name, sizeof name, "gemm_tile_%c%dx%d", p->depth ? 'p' : p->ta ? 't' : 'n', rows, vectors);
    if (rows && vectors) p->tile[i] = (GemmTileKernel *)gpu_kernel(machine->jit, name);
  }
}

/* What an epilogue does with a tile of sums: here twice the sum and 1, without one the sum. */
static void twice_and_one(void *const *args, int64_t batch, int64_t row, int64_t column, int64_t rows, int64_t columns,
                          const float *tile, int64_t stride) {
  const GemmProduct *p = args[3];
  float *c = (float *)args[2] + (batch * p->m + row) * p->n + column;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) c[i * p->n + j] = 2 * tile[i * stride + j] + 1;
}

static const int64_t ways[] = {0, GEMM_DPBF16, GEMM_AMX | GEMM_DPBF16 | GEMM_WIDENED};
static GemmProduct draw(void) {
  GemmProduct p = {.batch = 1 + !below(4), .m = size_up_to(600), .n = size_up_to(below(8) ? 300 : 3300), .k = size_up_to(below(4) ? 600 : 2300)};
  p.ta = below(2), p.tb = below(2), p.type = below(3), p.may_use = ways[below(3)];
  return p;
}

/* As ftc describes it. */
static void describe_shape(const Machine *machine, GemmProduct *product) {
  GemmProduct p = *product;
  bool is_few = gemm_is_few(p.m, p.n, p.k, p.ta, p.tb, p.type);
  GemmTile tile = is_few ? gemm_choose_few(p.batch, p.m, p.n, p.k, machine->vector_bytes)
                         : gemm_choose(p.batch, p.m, p.n, p.k, p.ta, p.type, machine->vector_bytes);
  p.rows = tile.rows, p.vectors = tile.vectors, p.depth = tile.depth, p.down = tile.down, p.across = tile.across;
  p.in_place = gemm_in_place(p.n, p.k, p.tb), p.is_packed = tile.is_packed;
  p.arg_a = tile.is_packed, p.arg_b = p.arg_a + 1, p.arg_c = p.arg_a + 2;
  p.near[0] = gemm_near(p.arg_c, p.batch * p.m * p.n, 4);
  p.epilogue = below(2) ? twice_and_one : NULL;
  if (!is_few && p.rows) find_tiles(machine, &p);
  *product = p;
}

/* In pieces, the last first. */
static void run_in_pieces(Run *run, const GemmProduct *p, void **args, int64_t work) {
  int64_t pieces = 1 + below(4);
  for (int64_t i = pieces - 1; i >= 0; i--) run(p, args, work * i / pieces, work * (i + 1) / pieces);
}

static int64_t work_of(const GemmProduct *p) {
  int64_t width = p->vectors * GEMM_LANES, down = (p->m + p->rows - 1) / p->rows, across = (p->n + width - 1) / width;
  if (!p->depth) return p->batch * down * across;
  return p->batch * ((down + p->down - 1) / p->down) * ((across + p->across - 1) / p->across);
}

static void check(const GemmProduct *p, const int8_t *a, const int8_t *b, const float *c) {
  int64_t row = p->ta ? 1 : p->k, a_k = p->ta ? p->m : 1, column = p->tb ? p->k : 1, b_k = p->tb ? 1 : p->n;
  int64_t count = p->batch * p->m * p->n, step = 1 + count * p->k / MOST_CHECKED;
  for (int64_t at = below(step); at < count; at += 1 + below(2 * step - 1)) {
    int64_t j = at % p->n, i = at / p->n % p->m, batch = at / p->n / p->m, sum = 0;
    for (int64_t k = 0; k < p->k; k++)
      sum += a[batch * p->m * p->k + i * row + k * a_k] * b[batch * p->k * p->n + j * column + k * b_k];
    if (p->epilogue) sum = 2 * sum + 1;
    if (c[at] != (float)sum)
      fail_msg("%d products of %d x %d x %d, ta %d tb %d type %d ways %d packed %d: (%d, %d, %d) is %g, not %d", (int)p->batch,
               (int)p->m, (int)p->n, (int)p->k, (int)p->ta, (int)p->tb, (int)p->type, (int)p->may_use, (int)p->is_packed,
               (int)batch, (int)i, (int)j, (double)c[at], (int)sum);
  }
}

static void one_shape(Machine *machine, GemmProduct p) {
  describe_shape(machine, &p);
  if (!p.rows) return; /* no registers for it */
  int64_t a_count = p.batch * p.m * p.k, b_count = p.batch * p.k * p.n, c_count = p.batch * p.m * p.n;
  int8_t *a = malloc((size_t)a_count), *b = malloc((size_t)b_count);
  Guarded left = whole_numbers(a_count, p.type, a), right = whole_numbers(b_count, p.type, b);
  Guarded result = guarded((size_t)c_count * 4, 4), packed = guarded((size_t)gemm_packed_bytes(&p), 64);
  memset(result.at, 0x7f, (size_t)c_count * 4);
  memset(packed.at, 0xff, (size_t)gemm_packed_bytes(&p)); /* NaN, which times 0 is NaN */
  void *all[] = {packed.at, left.at, right.at, result.at, &p}, *pack[] = {right.at, packed.at};
  if (p.is_packed) run_in_pieces(machine->pack, &p, pack, gemm_pack_items(&p));
  run_in_pieces(machine->run, &p, p.is_packed ? all : all + 1, work_of(&p));
  check(&p, a, b, result.at);
  machine->packed += (int)p.is_packed;
  Guarded parts[] = {left, right, result, packed};
  for (int i = 0; i < 4; i++) unguard(parts[i]);
  free(a), free(b);
}

static void shapes(const char *cpu, int vector_bytes) {
  Arena *arena = arena_new();
  Diag diag;
  help_context(arena, &diag, 0);
  CodegenOptions options = {.target = TARGET_CPU, .cpu = cpu};
  Module module;
  assert_true(target_open(&module, arena, &diag, &options));
  module_library(&module, "gemm_run", NULL);
  Machine machine = {.jit = gpu_load(module.llvm), .vector_bytes = vector_bytes};
  size_t bytes;
  const char *object = module_library_object(&module, &bytes);
  LLVMErrorRef error = LLVMOrcLLJITAddObjectFile(machine.jit, LLVMOrcLLJITGetMainJITDylib(machine.jit),
                                                 LLVMCreateMemoryBufferWithMemoryRangeCopy(object, bytes, "gemm"));
  if (error) fail_msg("%s", LLVMGetErrorMessage(error));
  machine.run = (Run *)gpu_kernel(machine.jit, "gemm_run");
  machine.pack = (Run *)gpu_kernel(machine.jit, "gemm_pack_run");
  for (int i = 0; i < SHAPES; i++) one_shape(&machine, draw());
  static const int64_t deep[][4] = {{1, 48, 33, 2048}, {1, 272, 40, 1088}, {2, 260, 65, 270},
                                   {1, 16, 1040, 2050}}; /* k has parts, or m blocks, or columns wait in the result */
  enum { DEEP = sizeof deep / sizeof *deep };
  for (int i = 0; i < DEEP * 4 * 3 * 3; i++) {
    const int64_t *size = deep[i % DEEP];
    int form = i / DEEP;
    one_shape(&machine, (GemmProduct){.batch = size[0], .m = size[1], .n = size[2], .k = size[3], .ta = form & 1,
                                      .tb = form >> 1 & 1, .type = form / 4 % 3, .may_use = ways[form / 12]});
  }
  for (int i = 0; i < 8; i++) /* neighbours, of which there is room for the sums of fewer than all */
    one_shape(&machine, (GemmProduct){.batch = 1, .m = 200, .n = 672, .k = 264, .ta = 1, .may_use = ways[0]});
  for (int i = 0; i < 24; i++) /* in the result, but for those of the last columns, which are no whole vector */
    one_shape(&machine, (GemmProduct){.batch = 1, .m = 200, .n = 670, .k = 264, .ta = 1, .type = i % 2, .may_use = ways[0]});
  for (int i = 0; i < 24; i++) /* the same of pairs, which wait in the result if all tiles are whole */
    one_shape(&machine, (GemmProduct){.batch = 1, .m = 20, .n = 840, .k = 2050, .type = OPERAND_BF16, .may_use = ways[2]});
  assert_true(machine.packed >= SHAPES / 20);
  LLVMOrcDisposeLLJIT(machine.jit);
  target_close(&module);
  arena_free(arena);
}

static void avx2(void **unused) {
  (void)unused;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) skip();
  state = 2611;
  shapes("x86-64-v3", 32);
}
static void avx512(void **unused) {
  (void)unused;
  if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl")) skip();
  state = 2612;
  shapes("x86-64-v4", 64);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(avx2), cmocka_unit_test(avx512)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
