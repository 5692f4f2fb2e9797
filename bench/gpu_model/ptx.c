/* Kernels of others in the simulator, reckoned as ft's are: PTX that nvcc or Triton made.
 *
 *   ptx GPU BLOCKS FILE.ptx KERNEL GX,GY,GZ BX,BY,BZ SHARED REGISTERS BYTES FLOPS ARGUMENT…
 *
 * BLOCKS: at most so many of the grid are run (0: all); SHARED: dynamic bytes; REGISTERS: of a thread, as ptxas says; BYTES
 * and FLOPS: the least that the kernel must move and do. An argument is p:BYTES[:IN[:OUT]] (memory of that size: zeros or
 * what the file IN has, and written to OUT behind the launch), i:N (32 bits), l:N (64 bits), f:X, z:0 (zeros, whatever its
 * size) or t:ELEMENT:WIDTHxHEIGHT:BOXWIDTHxBOXHEIGHT:SWIZZLE[:IN[:OUT]], a tensor map of a matrix. Sizes are in bytes but for
 * a map's, which are in elements. Prints a line: microseconds, floor, bound, and the parts as in ftrun bench. */
#include "bench/gpu_model/reckon.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void read_three(const char *text, int64_t *out) {
  long long a, b, c;
  if (sscanf(text, "%lld,%lld,%lld", &a, &b, &c) != 3) reckon_fail("three numbers belong here:", text);
  out[0] = a, out[1] = b, out[2] = c;
}

typedef struct {
  char *at, out[512];
  int64_t bytes;
} Result; /* memory that goes to a file behind the launch; bytes 0: none */

/* Memory for an argument; `files` is what follows its size: "", or ":IN" with or without ":OUT". */
static char *argument_memory(SimMachine *machine, int64_t bytes, const char *files, Result *result) {
  char *memory, in[512] = "";
  reckon_must(sim_alloc(machine, bytes, &memory));
  if (*files && sscanf(files, ":%511[^:]:%511s", in, result->out) < 1) reckon_fail("no name of a file:", files);
  if (*in && strcmp(in, "-") != 0) {
    FILE *file = fopen(in, "rb");
    if (!file || (int64_t)fread(memory, 1, (size_t)bytes, file) != bytes) reckon_fail("too short:", in);
    fclose(file);
  }
  if (*result->out) result->at = memory, result->bytes = bytes;
  return memory;
}

static void write_result(const Result *result) {
  if (!result->bytes) return;
  FILE *file = fopen(result->out, "wb");
  if (!file || (int64_t)fwrite(result->at, 1, (size_t)result->bytes, file) != result->bytes || fclose(file)) reckon_fail("cannot write", result->out);
}

static void put_argument(SimMachine *machine, const char *text, char *at, int64_t bytes, Result *result) {
  int32_t small;
  int64_t large;
  float real;
  char *memory, *rest;
  if (strlen(text) < 3 || text[1] != ':') reckon_fail("no argument:", text);
  const char *value = text + 2;
  if (text[0] == 't') {
    long long element, width, height, swizzle;
    unsigned box[2];
    int read = 0;
    if (sscanf(value, "%lld:%lldx%lld:%ux%u:%lld%n", &element, &width, &height, &box[0], &box[1], &swizzle, &read) != 6) reckon_fail("no tensor map:", text);
    SimTensorMap map = {.magic = SIM_TENSOR_MAP, .rank = 2, .swizzle = (uint16_t)swizzle};
    map.address = (uint64_t)(uintptr_t)argument_memory(machine, element * width * height, value + read, result);
    map.dim[0] = (uint64_t)width, map.dim[1] = (uint64_t)height;
    map.stride[0] = (uint64_t)element, map.stride[1] = (uint64_t)(element * width);
    map.box[0] = box[0], map.box[1] = box[1];
    if (bytes != 128) reckon_fail("a parameter of another size:", text);
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
  default: reckon_fail("no argument:", text);
  }
  if (bytes != (text[0] == 'p' || text[0] == 'l' ? 8 : 4)) reckon_fail("a parameter of another size:", text);
}

int main(int count, char **word) {
  enum { FIXED = 11 };
  if (count < FIXED) reckon_fail("ptx: GPU BLOCKS FILE.ptx KERNEL GRID BLOCK SHARED REGISTERS BYTES FLOPS ARGUMENT…", "");
  SimMachine *machine;
  reckon_must(sim_machine_new(0, &machine));
  sim_machine_unchecked(machine);
  SimModule *module = reckon_module(word[3]);
  const SimKernel *kernel = sim_module_kernel(module, word[4]);
  if (!kernel) reckon_fail("no such kernel:", word[4]);
  SimKernelInfo info = sim_kernel_info(kernel);
  SimLaunch launch = {.shared = atoll(word[7]), .sample = atoll(word[2]), .param_bytes = info.param_bytes};
  read_three(word[5], launch.grid);
  read_three(word[6], launch.block);
  char *params = calloc(1, (size_t)info.param_bytes + 8);
  Result *results = calloc((size_t)info.params + 1, sizeof *results);
  if (!params || !results || count - FIXED != info.params) reckon_fail("another number of arguments than the kernel has:", word[4]);
  for (int i = 0; i < info.params; i++) {
    int64_t offset, size;
    sim_kernel_param(kernel, i, &offset, &size);
    put_argument(machine, word[FIXED + i], params + offset, size, &results[i]);
  }
  launch.params = params;
  reckon_launch(machine, kernel, &launch, &(Reckoning){word[1], atoi(word[8]), atof(word[9]), atof(word[10]), NULL});
  for (int i = 0; i < info.params; i++) write_result(&results[i]);
  sim_machine_free(machine);
  sim_module_free(module);
  free(results);
  free(params);
  return 0;
}
