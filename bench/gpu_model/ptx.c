/* Kernels of others in the simulator, reckoned as ft's are: PTX that nvcc or Triton made.
 *
 *   ptx GPU BLOCKS FILE.ptx KERNEL GX,GY,GZ BX,BY,BZ SHARED REGISTERS BYTES FLOPS ARGUMENT…
 *
 * BLOCKS: at most so many of the grid are run (0: all); SHARED: dynamic bytes; REGISTERS: of a thread, as ptxas says; BYTES
 * and FLOPS: the least that the kernel must move and do. An argument is p:BYTES[:IN[:OUT]] (memory of that size: zeros or
 * what the file IN has, and written to OUT behind the launch), i:N (32 bits), l:N (64 bits), f:X, z:0 (zeros, whatever its
 * size) or t:ELEMENT:WIDTHxHEIGHT:BOXWIDTHxBOXHEIGHT:SWIZZLE[:IN[:OUT]], a tensor map of a matrix. Sizes are in bytes but for
 * a map's, which are in elements. Prints a line: microseconds, floor, bound, and the parts as in ftrun bench. */
#include "base/text.h"
#include "runtime/device/sim/sim_gpu.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what, const char *of) {
  fprintf(stderr, "ptx: %s %s\n", what, of);
  exit(1);
}
static void must(Status status) {
  if (status != STATUS_OK) fail(status_message(), "");
}

static void read_three(const char *text, int64_t *out) {
  long long a, b, c;
  if (sscanf(text, "%lld,%lld,%lld", &a, &b, &c) != 3) fail("three numbers belong here:", text);
  out[0] = a, out[1] = b, out[2] = c;
}

typedef struct {
  char *at, out[512];
  int64_t bytes;
} Result; /* memory that goes to a file behind the launch; bytes 0: none */

/* Memory for an argument; `files` is what follows its size: "", or ":IN" with or without ":OUT". */
static char *argument_memory(SimMachine *machine, int64_t bytes, const char *files, Result *result) {
  char *memory, in[512] = "";
  must(sim_alloc(machine, bytes, &memory));
  if (*files && sscanf(files, ":%511[^:]:%511s", in, result->out) < 1) fail("no name of a file:", files);
  if (*in && strcmp(in, "-") != 0) {
    FILE *file = fopen(in, "rb");
    if (!file || (int64_t)fread(memory, 1, (size_t)bytes, file) != bytes) fail("too short:", in);
    fclose(file);
  }
  if (*result->out) result->at = memory, result->bytes = bytes;
  return memory;
}

static void write_result(const Result *result) {
  if (!result->bytes) return;
  FILE *file = fopen(result->out, "wb");
  if (!file || (int64_t)fwrite(result->at, 1, (size_t)result->bytes, file) != result->bytes || fclose(file)) fail("cannot write", result->out);
}

static void put_argument(SimMachine *machine, const char *text, char *at, int64_t bytes, Result *result) {
  int32_t small;
  int64_t large;
  float real;
  char *memory, *rest;
  if (strlen(text) < 3 || text[1] != ':') fail("no argument:", text);
  const char *value = text + 2;
  if (text[0] == 't') {
    long long element, width, height, swizzle;
    unsigned box[2];
    int read = 0;
    if (sscanf(value, "%lld:%lldx%lld:%ux%u:%lld%n", &element, &width, &height, &box[0], &box[1], &swizzle, &read) != 6) fail("no tensor map:", text);
    SimTensorMap map = {.magic = SIM_TENSOR_MAP, .rank = 2, .swizzle = (uint16_t)swizzle};
    map.address = (uint64_t)(uintptr_t)argument_memory(machine, element * width * height, value + read, result);
    map.dim[0] = (uint64_t)width, map.dim[1] = (uint64_t)height;
    map.stride[0] = (uint64_t)element, map.stride[1] = (uint64_t)(element * width);
    map.box[0] = box[0], map.box[1] = box[1];
    if (bytes != 128) fail("a parameter of another size:", text);
    memcpy(at, &map, sizeof map);
    return;
  }
  switch (text[0]) {
  case 'p':
    large = strtoll(value, &rest, 10);
    memory = argument_memory(machine, large, rest, result);
    if (bytes == 8) memcpy(at, &memory, 8);
    break;
  case 'i':
    small = (int32_t)atoll(value);
    if (bytes == 4) memcpy(at, &small, 4);
    break;
  case 'l':
    large = atoll(value);
    if (bytes == 8) memcpy(at, &large, 8);
    break;
  case 'f':
    real = strtof(value, NULL);
    if (bytes == 4) memcpy(at, &real, 4);
    break;
  case 'z': return;
  default: fail("no argument:", text);
  }
  if (bytes != (text[0] == 'p' || text[0] == 'l' ? 8 : 4)) fail("a parameter of another size:", text);
}

int main(int count, char **word) {
  enum { FIXED = 11 };
  if (count < FIXED) fail("GPU BLOCKS FILE.ptx KERNEL GRID BLOCK SHARED REGISTERS BYTES FLOPS ARGUMENT…", "");
  const Gpu *gpu = gpu_find(word[1]);
  if (!gpu) fail("no such GPU:", word[1]);
  Text ptx = {0};
  if (text_read_file(&ptx, word[3])) fail("cannot read", word[3]);
  SimModule *module;
  SimMachine *machine;
  must(sim_machine_new(0, &machine));
  sim_machine_unchecked(machine);
  must(sim_module_load(word[3], text_cstr(&ptx), ptx.count, &module));
  const SimKernel *kernel = sim_module_kernel(module, word[4]);
  if (!kernel) fail("no such kernel:", word[4]);
  SimKernelInfo info = sim_kernel_info(kernel);
  double bytes = atof(word[9]), flops = atof(word[10]);
  SimTiming timing = sim_gpu_timing(gpu, bytes);
  SimCounts counts = {0};
  SimLaunch launch = {.shared = atoll(word[7]), .counts = &counts, .timing = &timing,
                      .sample = atoll(word[2]), .param_bytes = info.param_bytes, .step_limit = 1 << 28};
  read_three(word[5], launch.grid);
  read_three(word[6], launch.block);
  char *params = calloc(1, (size_t)info.param_bytes + 8);
  Result *results = calloc((size_t)info.params + 1, sizeof *results);
  if (!params || !results || count - FIXED != info.params) fail("another number of arguments than the kernel has:", word[4]);
  for (int i = 0; i < info.params; i++) {
    int64_t offset, size;
    sim_kernel_param(kernel, i, &offset, &size);
    put_argument(machine, word[FIXED + i], params + offset, size, &results[i]);
  }
  launch.params = params;
  must(sim_launch(machine, kernel, &launch));
  for (int i = 0; i < info.params; i++) write_result(&results[i]);
  sim_gpu_scale(&counts, launch.grid[0] * launch.grid[1] * launch.grid[2]);
  int64_t threads = launch.block[0] * launch.block[1] * launch.block[2];
  GpuWork work = sim_gpu_work(&counts, threads, atoi(word[8]), info.shared_bytes + launch.shared, flops, bytes, 0);
  work.is_half = work.wgmma + work.mma > 0;
  GpuTime time;
  gpu_time(gpu, &work, &time);
  printf("%.3f %.3f %s", time.seconds * 1e6, time.floor * 1e6, gpu_bound_text(time.bound));
  for (int i = 0; i < GPU_LAUNCH; i++) printf(" %s=%.3f", gpu_bound_text((GpuBound)i), time.part[i] * 1e6);
  printf(" fit=%d rounds=%.2f instructions=%lld sectors=%lld\n", time.resident, time.rounds,
         (long long)counts.instructions, (long long)(counts.load_sectors + counts.store_sectors));
  sim_machine_free(machine);
  sim_module_free(module);
  text_free(&ptx);
  free(results);
  free(params);
  return 0;
}
