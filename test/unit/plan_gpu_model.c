/* plan_gpu_model: the table of GPUs stands on that of machines; each bound by itself; rounds of blocks; and published
 * points, by what is known of the kernels behind them. docs/sim.md has their errors: a change of the model shows here. */
#include "plan/gpu_model.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void near(double value, double wanted, double part) {
  if (!(fabs(value - wanted) <= part * fabs(wanted))) fail_msg("%g, and it should be %g", value, wanted);
}

static void test_rows(void **state) {
  (void)state;
  int count = 0;
  for (const Gpu *gpu; (gpu = gpu_at(count)) != NULL; count++) {
    assert_ptr_equal(gpu->machine, machine_find(gpu->name));
    assert_ptr_equal(gpu_find(gpu->name), gpu);
    assert_true(gpu->busy_clock <= gpu->machine->clock && gpu->busy_clock > 0.5 * gpu->machine->clock);
    assert_true(gpu->l2_rate > gpu->machine->memory_rate && gpu->memory_share <= 1 && gpu->mma_share <= 1);
    assert_true(gpu->shared_cycles < gpu->l1_cycles && gpu->l1_cycles < gpu->l2_cycles &&
                gpu->l2_cycles < gpu->memory_cycles);
    /* the f32 rate is what those lanes do */
    near(gpu->machine->multiprocessors * gpu->machine->clock * gpu->f32_lanes * 2, gpu->machine->f32, 0.1);
  }
  for (int i = 0; i < machine_count; i++) /* every GPU of the table has a row */
    if (machine_table[i].half > 0) assert_non_null(gpu_find(machine_table[i].name));
  assert_null(gpu_find("cpu"));
  assert_null(gpu_at(count));
  assert_string_equal(gpu_nearest("h10O"), "h100");
  near(gpu_tensor_rate(gpu_find("h100")), 4096, 0.01);
  near(gpu_tensor_rate(gpu_find("a100")), 2048, 0.01);
}

static void test_resident(void **state) {
  (void)state;
  const Gpu *h100 = gpu_find("h100");
  assert_int_equal(gpu_resident(h100, 8, 32, 0), 8);             /* 64 warps */
  assert_int_equal(gpu_resident(h100, 1, 32, 0), 32);            /* 32 blocks */
  assert_int_equal(gpu_resident(h100, 8, 128, 0), 2);            /* 65536 registers */
  assert_int_equal(gpu_resident(h100, 8, 129, 0), 1);            /* by 256 a warp */
  assert_int_equal(gpu_resident(h100, 4, 32, 100 * 1024), 2);    /* 228 KiB, one of each block's own */
  assert_int_equal(gpu_resident(h100, 4, 32, 227 * 1024), 1);
  assert_int_equal(gpu_resident(h100, 4, 32, 228 * 1024), 0);
  assert_int_equal(gpu_resident(gpu_find("rtx4090"), 8, 32, 0), 6); /* 48 warps */
  assert_int_equal(gpu_resident(h100, 0, 32, 0), 0);
}

/* A launch of 1320 blocks, ten on each multiprocessor of an H100, two at once. */
static GpuWork launch(void) {
  return (GpuWork){.blocks = 1320, .warps = 8, .registers = 128};
}

static void test_each_bound(void **state) {
  (void)state;
  const Gpu *h100 = gpu_find("h100");
  double clock = h100->machine->clock;
  const struct {
    GpuBound bound;
    size_t at;
    double work, cycles; /* of all blocks; that a multiprocessor needs for its ten */
  } cases[] = {
      {GPU_ISSUE, offsetof(GpuWork, issued), 1320 * 4e4, 1e5},
      {GPU_F32, offsetof(GpuWork, f32), 1320 * 4e4, 1e5},
      {GPU_F32, offsetof(GpuWork, multiply), 1320 * 2e4, 1e5},
      {GPU_INTEGER, offsetof(GpuWork, integer), 1320 * 2e4, 1e5},
      {GPU_SPECIAL, offsetof(GpuWork, special), 1320 * 5e3, 1e5},
      {GPU_SHARED, offsetof(GpuWork, wavefronts), 1320 * 1e4, 1e5},
      {GPU_PATH, offsetof(GpuWork, path), 2e4, 1e5}, /* five rounds */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    GpuWork work = launch();
    GpuTime time;
    *(double *)(void *)((char *)&work + cases[i].at) = cases[i].work;
    gpu_time(h100, &work, &time);
    assert_int_equal(time.bound, cases[i].bound);
    near(time.seconds - h100->launch, cases[i].cycles / clock, 1e-6);
    near(time.part[cases[i].bound], cases[i].cycles / clock, 1e-6);
  }
  GpuWork work = launch();
  GpuTime time;
  work.l2 = 1e-5 * h100->l2_rate;
  gpu_time(h100, &work, &time);
  assert_int_equal(time.bound, GPU_L2);
  near(time.seconds - h100->launch, 1e-5, 1e-6);
  work.memory = 1e9;
  gpu_time(h100, &work, &time);
  assert_int_equal(time.bound, GPU_MEMORY);
  near(time.seconds - h100->launch, 1e9 / 3.35e12 / h100->memory_share, 1e-6);
  work = launch(); /* nothing to do */
  gpu_time(h100, &work, &time);
  assert_int_equal(time.bound, GPU_LAUNCH);
  near(time.seconds, h100->launch, 1e-9);
  work.blocks = 0; /* no kernel */
  gpu_time(h100, &work, &time);
  assert_true(time.seconds == 0 && time.floor == 0);
}

/* What tensor cores do slows the clock to that under load. */
static void test_clock(void **state) {
  (void)state;
  const Gpu *h100 = gpu_find("h100");
  GpuWork work = launch();
  GpuTime time;
  work.wgmma = 1320 * 4096e4;
  gpu_time(h100, &work, &time);
  assert_int_equal(time.bound, GPU_TENSOR);
  near(time.seconds - h100->launch, 1e5 / h100->busy_clock, 0.001);
  work.mma = work.wgmma;
  work.wgmma = 0;
  gpu_time(h100, &work, &time);
  near(time.seconds - h100->launch, 1e5 / h100->mma_share / h100->busy_clock, 0.001);
  work.path = 1e5; /* five rounds of it, in which tensor cores mostly idle: the clock is nearly the highest */
  gpu_time(h100, &work, &time);
  assert_int_equal(time.bound, GPU_PATH);
  double mma = 1e5 / h100->mma_share, cycles = sqrt(25e10 + mma * mma);
  assert_true(time.seconds < cycles / h100->busy_clock && time.seconds > cycles / h100->machine->clock);
}

static void test_rounds(void **state) {
  (void)state;
  const Gpu *h100 = gpu_find("h100");
  GpuWork work = launch();
  GpuTime one, more;
  work.path = work.longest_path = 1e4;
  work.blocks = 264; /* as many as fit at once */
  gpu_time(h100, &work, &one);
  near(one.rounds, 1, 1e-9);
  work.blocks = 265;
  gpu_time(h100, &work, &more);
  near((more.seconds - h100->launch) / (one.seconds - h100->launch), 2, 1e-6);
  work.blocks = 1; /* a block alone takes as long as all of a round */
  gpu_time(h100, &work, &more);
  near(more.seconds, one.seconds, 1e-6);
  /* the last round waits for the longest block, the full ones for the mean */
  work.blocks = 264 * 3 + 1;
  work.longest_path = 3e4;
  gpu_time(h100, &work, &more);
  near(more.seconds - h100->launch, 6e4 / h100->machine->clock, 1e-6);
  work.blocks = 264 * 3; /* also if it is full */
  gpu_time(h100, &work, &more);
  near(more.seconds - h100->launch, 5e4 / h100->machine->clock, 1e-6);
  /* two blocks on one multiprocessor share its units, where one would have them alone */
  work = launch();
  work.blocks = 132;
  work.issued = 132 * 4e4;
  gpu_time(h100, &work, &one);
  work.blocks = 264;
  work.issued = 264 * 4e4;
  gpu_time(h100, &work, &more);
  near((more.seconds - h100->launch) / (one.seconds - h100->launch), 2, 1e-6);
}

/* ── published points ───────────────────────────────────────────────────────────────────────── */
static int changed;

static void says(const char *what, double got, double documented, double published) {
  printf("%-52s %8.1f, published %6.0f: %+.1f %%\n", what, got, published, 100 * (got / published - 1));
  if (fabs(got / documented - 1) <= 0.005) return;
  printf("    and docs/sim.md says %.1f\n", documented);
  changed++;
}

/* A product as cuBLAS makes it: tiles of 128 x 256, one block with 1 + 2 warpgroups on each multiprocessor, two of them
 * a cluster that reads b once. A warpgroup alone is through its half of a tile in half of the time, and 3,500 cycles
 * for the first loads and the stores. TFLOP/s. */
static double product(const Gpu *gpu, double n) {
  double tiles = ceil(n / 128) * ceil(n / 256), flops = 2 * n * n * n;
  GpuWork work = {.blocks = (int64_t)tiles, .warps = 12, .registers = 168, .shared_bytes = 200 * 1024,
                  .wgmma = tiles * 2 * 128 * 256 * n, .l2 = tiles * (128 + 128) * n * 2, .memory = 6 * n * n};
  work.wavefronts = work.wgmma / 524288 * (64 + 16); /* of m64n256k16: b, and a */
  work.path = work.longest_path = 64 * n * 256 * 2 / gpu_tensor_rate(gpu) + 3500;
  GpuTime time;
  gpu_time(gpu, &work, &time);
  return flops / time.seconds * 1e-12;
}

/* Bytes read and written, 16 a lane, eight loads of a thread in flight; GB/s. */
static double stream(const Gpu *gpu, double bytes, double special) {
  GpuWork work = {.blocks = (int64_t)(bytes / 2 / 32768), .warps = 8, .registers = 40, .issued = bytes / 512 * 4,
                  .special = special, .l2 = bytes, .memory = bytes, .path = 900, .longest_path = 900};
  GpuTime time;
  gpu_time(gpu, &work, &time);
  return bytes / time.seconds * 1e-9;
}

/* Attention forward without a mask, 16384 tokens in all, 2048 features, blocks of 128 queries with 1 + 2 warpgroups
 * (FlashAttention-3). For each score one exponential, a multiply-add, an addition, a maximum, half a conversion. A
 * warpgroup alone does its products, its exponentials and the rest one after the other. TFLOP/s. */
static double attention(const Gpu *gpu, double length, double head) {
  double heads = 2048 / head, batch = 16384 / length, queries = 128;
  double scores = batch * heads * length * length, flops = 4 * scores * head, own = queries / 2 * length;
  GpuWork work = {.blocks = (int64_t)(batch * heads * length / queries), .warps = 12, .registers = 168,
                  .shared_bytes = 160 * 1024, .wgmma = flops, .special = scores / 32, .f32 = scores * 2 / 32,
                  .integer = scores * 1.5 / 32, .issued = scores * 4.5 / 32, .l2 = flops / queries,
                  .memory = 4.0 * 16384 * 2048 * 2};
  work.path = work.longest_path = own * (4 * head / gpu_tensor_rate(gpu) + 1.0 / 16 + 3.5 / 128) + 2500;
  GpuTime time;
  gpu_time(gpu, &work, &time);
  return flops / time.seconds * 1e-12;
}

static void test_published(void **state) {
  (void)state;
  const Gpu *h100 = gpu_find("h100");
  says("cuBLAS, bf16 8192^3, TFLOP/s", product(h100, 8192), 795, 795);
  says("cuBLAS, bf16 4096^3, TFLOP/s", product(h100, 4096), 780.6, 716);
  says("copy of 1 GiB, GB/s", stream(h100, 0x1p31, 0), 3007.4, 3000);
  says("softmax (Quack), f32, GB/s", stream(h100, 0x1p31, 0x1p31 / 8 / 32), 3007.4, 3010);
  says("FlashAttention-3, head 128, length 512, TFLOP/s", attention(h100, 512, 128), 544.1, 467);
  says("FlashAttention-3, head 128, length 4096, TFLOP/s", attention(h100, 4096, 128), 675.0, 638);
  says("FlashAttention-3, head 64, length 512, TFLOP/s", attention(h100, 512, 64), 419.7, 333);
  says("FlashAttention-3, head 64, length 4096, TFLOP/s", attention(h100, 4096, 64), 560.1, 476);
  assert_int_equal(changed, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rows),  cmocka_unit_test(test_resident), cmocka_unit_test(test_each_bound),
      cmocka_unit_test(test_clock), cmocka_unit_test(test_rounds),   cmocka_unit_test(test_published),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
