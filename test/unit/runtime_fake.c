/* The fake CUDA driver (test/fake) is as strict as the real one: what may not be called while a
 * stream is captured fails and spoils the capture; launches that no GPU takes are refused. */
#include "base/text.h"
#include "runtime/device/cuda/cuda_driver.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { INVALID = 1, RESOURCES = 701, UNSUPPORTED = 900, SPOILED = 901, LIVE = 100 };
static const CudaDriver *driver;
static CudaStream stream, other;
static CudaEvent event;
static CudaAddress memory;
static void *pinned;

/* Until nothing is left in it. */
static CudaResult finish(CudaStream which) {
  CudaResult result;
  do result = driver->stream_query(which);
  while (result == CUDA_ERROR_NOT_READY);
  return result;
}

/* ── while a stream is captured ───────────────────────────────────────────────────────────── */
static CudaResult allocates(void) {
  CudaAddress more;
  return driver->memory_alloc(&more, 64);
}
static CudaResult frees(void) { return driver->memory_free(memory); }
static CudaResult pins(void) {
  void *more;
  return driver->host_alloc(&more, 64, 0);
}
static CudaResult unpins(void) { return driver->host_free(pinned); }
static CudaResult asks_it(void) { return driver->stream_query(stream); }
static CudaResult asks_another(void) { return driver->stream_query(other); }
static CudaResult asks_event(void) { return driver->event_query(event); }
static CudaResult loads(void) {
  CudaModule module;
  return driver->module_load(&module, ".version 7.0\n.target sm_80\n.address_size 64\n", 0, NULL,
                             NULL);
}

static void capture(void **state) {
  (void)state;
  static CudaResult (*const forbidden[])(void) = {
      allocates, frees, pins, unpins, asks_it, asks_another, asks_event, loads};
  CudaGraph graph;
  for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++) {
    assert_int_equal(driver->capture_begin(stream, CUDA_CAPTURE_THREAD_LOCAL), 0);
    assert_int_equal(driver->fill(memory, 1, 64, stream), 0);
    assert_int_equal(forbidden[i](), UNSUPPORTED);
    assert_int_equal(driver->fill(memory, 1, 64, stream), SPOILED);
    assert_int_equal(driver->capture_end(stream, &graph), SPOILED);
    assert_null(graph);
  }
  assert_int_equal(driver->capture_begin(NULL, CUDA_CAPTURE_THREAD_LOCAL), UNSUPPORTED);
  assert_int_equal(driver->capture_begin(stream, CUDA_CAPTURE_THREAD_LOCAL), 0);
  assert_int_equal(driver->fill(memory, 7, 64, stream), 0);
  assert_int_equal(driver->fill(memory, 8, 64, other), 0); /* not captured, and not forbidden */
  assert_int_equal(driver->capture_end(stream, &graph), 0);
  assert_int_equal(finish(other), 0);
  CudaGraphExec exec;
  assert_int_equal(driver->graph_instantiate(&exec, graph, 0), 0);
  assert_int_equal(driver->graph_launch(exec, stream), 0);
  assert_int_equal(driver->to_host(pinned, memory, 64, stream), 0);
  assert_int_equal(finish(stream), 0);
  assert_int_equal(*(char *)pinned, 7);
  assert_int_equal(driver->graph_exec_destroy(exec), 0);
  assert_int_equal(driver->graph_destroy(graph), 0);
}

/* ── launches ─────────────────────────────────────────────────────────────────────────────── */
/* A kernel with LIVE registers alive at once. */
static void write_kernel(Text *text, const char *name, const char *limits) {
  text_printf(text,
              ".visible .entry %s(.param .u64 out)\n%s\n{\n.reg .b32 %%r<%d>; .reg .b64 %%rd<2>;\n"
              "ld.param.u64 %%rd1, [out];\nmov.u32 %%r0, %%tid.x;\n",
              name, limits, LIVE + 1);
  for (int i = 1; i <= LIVE; i++) text_printf(text, "add.s32 %%r%d, %%r0, %d;\n", i, i);
  for (int i = 1; i < LIVE; i++)
    text_printf(text, "xor.b32 %%r%d, %%r%d, %%r%d;\n", i + 1, i, i + 1);
  text_printf(text, "shl.b32 %%r0, %%r0, 2;\nret;\n}\n");
}

static void launches(void **state) {
  (void)state;
  static const struct {
    const char *name;
    unsigned grid[3], block[3], shared;
    CudaResult result;
  } cases[] = {
      {"plain", {1, 1, 1}, {512, 1, 1}, 0, 0},
      {"plain", {1, 1, 1}, {1024, 1, 1}, 0, RESOURCES}, /* 112 registers for each of 1024 threads */
      {"plain", {1, 1, 1}, {577, 1, 1}, 0, RESOURCES},  /* a part of a warp counts as a warp */
      {"limited", {1, 1, 1}, {1024, 1, 1}, 0, 0},       /* ptxas kept to 64 of them */
      {"many", {1, 1, 1}, {608, 1, 1}, 0, RESOURCES},   /* .maxnreg is no promise of threads */
      {"many", {1, 1, 1}, {512, 1, 1}, 0, 0},
      {"plain", {1, 1, 1}, {512, 2, 2}, 0, INVALID},
      {"plain", {1, 1, 1}, {1, 1, 65}, 0, INVALID},
      {"plain", {1, 65536, 1}, {32, 1, 1}, 0, INVALID},
      {"plain", {1, 1, 65536}, {32, 1, 1}, 0, INVALID},
      {"plain", {1u << 31, 1, 1}, {32, 1, 1}, 0, INVALID},
      {"plain", {0, 1, 1}, {32, 1, 1}, 0, INVALID},
      {"plain", {1, 1, 1}, {32, 1, 1}, 48 << 10, 0},
      {"plain", {1, 1, 1}, {32, 1, 1}, (48 << 10) + 1, INVALID}, /* nobody asked for more */
  };
  Text text = {0};
  CudaModule module;
  text_printf(&text, "\n.version 8.0\n.target sm_90a\n.address_size 64\n");
  write_kernel(&text, "plain", "");
  write_kernel(&text, "limited", ".maxntid 1024");
  write_kernel(&text, "many", ".maxnreg 120");
  assert_int_equal(driver->module_load(&module, text_cstr(&text), 0, NULL, NULL), 0);
  void *arguments[] = {&memory};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    CudaFunction function;
    const unsigned *grid = cases[i].grid, *block = cases[i].block;
    assert_int_equal(driver->module_function(&function, module, cases[i].name), 0);
    CudaResult result =
        driver->launch(function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                       cases[i].shared, stream, arguments, NULL);
    if (result != cases[i].result)
      fail_msg("case %zu: %d in place of %d", i, result, cases[i].result);
  }
  assert_int_equal(finish(stream), 0);
  assert_int_equal(driver->module_unload(module), 0);
  text_free(&text);
}

static int begin(void **state) {
  (void)state;
  char here[1024], path[1100];
  ssize_t length = readlink("/proc/self/exe", here, sizeof here - 1);
  here[length < 0 ? 0 : length] = 0;
  *strrchr(here, '/') = 0;
  snprintf(path, sizeof path, "%s/../fake/libfake_cuda.so", here);
  setenv("FT_CUDA_LIBRARY", path, 1);
  CudaContext context;
  CudaDevice device;
  if (cuda_driver_open(&driver) != STATUS_OK) {
    print_error("%s\n", status_message());
    return -1;
  }
  return driver->device_get(&device, 0) || driver->context_retain(&context, device) ||
         driver->context_set(context) || driver->stream_create(&stream, CUDA_STREAM_NON_BLOCKING) ||
         driver->stream_create(&other, CUDA_STREAM_NON_BLOCKING) ||
         driver->event_create(&event, CUDA_EVENT_NO_TIMING) || driver->memory_alloc(&memory, 64) ||
         driver->host_alloc(&pinned, 64, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(capture), cmocka_unit_test(launches)};
  return cmocka_run_group_tests(tests, begin, NULL);
}
