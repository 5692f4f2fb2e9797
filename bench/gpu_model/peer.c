/* peer: see peer.h. The declarations are our own, after NVIDIA's documentation of the CUDA runtime and driver API. */
#include "bench/gpu_model/peer.h"
#include "bench/gpu_model/reckon.h"
#include "base/text.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  unsigned x, y, z;
} Dim3;
typedef struct {
  unsigned id;
  char none[4];
  union {
    char most[64];
    Dim3 cluster;
  };
} LaunchAttribute;
typedef struct {
  Dim3 grid, block;
  size_t shared;
  void *stream;
  const LaunchAttribute *attributes;
  unsigned attribute_count;
} LaunchConfig;
enum { CUDA_SUCCESS = 0, CUDA_INVALID_VALUE = 1, CUDA_UNKNOWN = 999, ATTRIBUTE_CLUSTER = 4 };

enum { MOST_FUNCTIONS = 64 };
static struct {
  const void *host;
  const char *name;
} functions[MOST_FUNCTIONS]; /* before main: constructors of the program register them */
static int function_count;

enum { MOST_WORK = 4 };
typedef struct {
  double bytes, flops;
  const char *label;
} Work;

static struct {
  SimMachine *machine;
  SimModule *module;
  SimLaunch launch; /* what its calls have in common */
  Reckoning about;
  Work work[MOST_WORK]; /* of the next launches, the last also of all behind them */
  int work_count, work_done;
  Text registers;
  LaunchConfig pushed;
} peer;

/* ── what programs of ours call ───────────────────────────────────────────────────────────── */
void peer_begin(const char *gpu, long blocks, const char *ptx, const char *registers) {
  reckon_must(sim_machine_new(0, &peer.machine));
  if (blocks) sim_machine_unchecked(peer.machine);
  if (blocks < 0) blocks = 0;
  peer.module = reckon_module(ptx);
  if (text_read_file(&peer.registers, registers)) reckon_fail("cannot read", registers);
  peer.launch.sample = blocks;
  peer.about.gpu = gpu;
}

void *peer_memory(int64_t bytes, const char *file) {
  char *memory;
  reckon_must(sim_alloc(peer.machine, bytes, &memory));
  sim_mark(peer.machine, memory, bytes, true);
  if (!file) return memory;
  FILE *in = fopen(file, "rb");
  if (!in || (int64_t)fread(memory, 1, (size_t)bytes, in) != bytes) reckon_fail("too short:", file);
  fclose(in);
  return memory;
}

void peer_work(double bytes, double flops, const char *label) {
  if (peer.work_count == MOST_WORK) reckon_fail("too many launches are announced:", label);
  peer.work[peer.work_count++] = (Work){bytes, flops, label};
}

void peer_counter(const void *counter) { peer.launch.counter = counter; }

void peer_write(const char *file, const void *at, int64_t bytes) {
  FILE *out = fopen(file, "wb");
  if (!out || (int64_t)fwrite(at, 1, (size_t)bytes, out) != bytes || fclose(out)) reckon_fail("cannot write", file);
}

/* ── launches ─────────────────────────────────────────────────────────────────────────────── */
static int registers_of(const char *name) {
  size_t length = strlen(name);
  for (const char *at = text_cstr(&peer.registers); at && *at; at = strchr(at, '\n')) {
    at += *at == '\n';
    if (!strncmp(at, name, length) && at[length] == ' ') return atoi(at + length);
  }
  reckon_fail("no registers are known of", name);
}

static int launch(const void *function, const LaunchConfig *config, void **arguments) {
  const char *name = NULL;
  for (int i = 0; i < function_count; i++)
    if (functions[i].host == function) name = functions[i].name;
  const SimKernel *kernel = name ? sim_module_kernel(peer.module, name) : NULL;
  if (!kernel) reckon_fail("no kernel of this name in the PTX:", name ? name : "(not registered)");
  SimKernelInfo info = sim_kernel_info(kernel);
  SimLaunch made = peer.launch;
  char *params = calloc(1, (size_t)info.param_bytes + 8);
  if (!params) reckon_fail("out of memory", "");
  for (int i = 0; i < info.params; i++) {
    int64_t offset, size;
    sim_kernel_param(kernel, i, &offset, &size);
    memcpy(params + offset, arguments[i], (size_t)size);
  }
  made.grid[0] = config->grid.x, made.grid[1] = config->grid.y, made.grid[2] = config->grid.z;
  made.block[0] = config->block.x, made.block[1] = config->block.y, made.block[2] = config->block.z;
  made.shared = (int64_t)config->shared;
  made.params = params;
  made.param_bytes = info.param_bytes;
  for (unsigned i = 0; i < config->attribute_count; i++) {
    if (config->attributes[i].id != ATTRIBUTE_CLUSTER) continue;
    Dim3 cluster = config->attributes[i].cluster;
    if (cluster.y != 1 || cluster.z != 1) reckon_fail("a cluster along y or z in", name);
    made.cluster = (int)cluster.x;
  }
  Work work = peer.work[peer.work_done];
  peer.work_done += peer.work_done + 1 < peer.work_count;
  peer.about.bytes = work.bytes;
  peer.about.flops = work.flops;
  peer.about.label = work.label;
  peer.about.registers = registers_of(name);
  if (made.sample)
    reckon_launch(peer.machine, kernel, &made, &peer.about);
  else
    reckon_must(sim_launch(peer.machine, kernel, &made));
  free(params);
  return CUDA_SUCCESS;
}

/* ── the CUDA runtime ─────────────────────────────────────────────────────────────────────── */
void **__cudaRegisterFatBinary(void *binary);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
char __cudaInitModule(void **handle);
void __cudaRegisterFunction(void **handle, const void *host, char *device, const char *name, int limit, void *a, void *b, void *c, void *d, void *e);
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int is_extern, size_t bytes, int is_constant, int is_global);
unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared, void *stream);
int __cudaPopCallConfiguration(Dim3 *grid, Dim3 *block, size_t *shared, void **stream);
int __cudaGetKernel(const void **kernel, const void *host);
int __cudaLaunchKernel(const void *kernel, Dim3 grid, Dim3 block, void **arguments, size_t shared, void *stream);
int cudaLaunchKernel(const void *function, Dim3 grid, Dim3 block, void **arguments, size_t shared, void *stream);
int cudaLaunchKernelExC(const LaunchConfig *config, const void *function, void **arguments);
int cudaFuncSetAttribute(const void *function, int attribute, int value);
int cudaGetDevice(int *device);
int cudaDriverGetVersion(int *version);
int cudaGetLastError(void);
int cudaPeekAtLastError(void);
int cudaDeviceGetAttribute(int *value, int attribute, int device);
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads, size_t shared, unsigned flags);
int cudaMemsetAsync(void *at, int value, size_t bytes, void *stream);
const char *cudaGetErrorString(int error);
int cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned version, uint64_t flags, int *result);

void **__cudaRegisterFatBinary(void *binary) {
  static void *handle;
  (void)binary;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
char __cudaInitModule(void **handle) {
  (void)handle;
  return 1;
}
void __cudaRegisterFunction(void **handle, const void *host, char *device, const char *name, int limit, void *a, void *b, void *c, void *d, void *e) {
  (void)handle, (void)device, (void)limit, (void)a, (void)b, (void)c, (void)d, (void)e;
  if (function_count == MOST_FUNCTIONS) reckon_fail("too many kernels:", name);
  functions[function_count].host = host;
  functions[function_count++].name = name;
}
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int is_extern, size_t bytes, int is_constant, int is_global) {
  (void)handle, (void)host, (void)device, (void)name, (void)is_extern, (void)bytes, (void)is_constant, (void)is_global;
}
unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared, void *stream) {
  peer.pushed = (LaunchConfig){.grid = grid, .block = block, .shared = shared, .stream = stream};
  return CUDA_SUCCESS;
}
int __cudaPopCallConfiguration(Dim3 *grid, Dim3 *block, size_t *shared, void **stream) {
  *grid = peer.pushed.grid, *block = peer.pushed.block, *shared = peer.pushed.shared, *stream = peer.pushed.stream;
  return CUDA_SUCCESS;
}
int __cudaGetKernel(const void **kernel, const void *host) {
  *kernel = host;
  return CUDA_SUCCESS;
}
int __cudaLaunchKernel(const void *kernel, Dim3 grid, Dim3 block, void **arguments, size_t shared, void *stream) {
  return launch(kernel, &(LaunchConfig){.grid = grid, .block = block, .shared = shared, .stream = stream}, arguments);
}
int cudaLaunchKernel(const void *function, Dim3 grid, Dim3 block, void **arguments, size_t shared, void *stream) {
  return __cudaLaunchKernel(function, grid, block, arguments, shared, stream);
}
int cudaLaunchKernelExC(const LaunchConfig *config, const void *function, void **arguments) { return launch(function, config, arguments); }
int cudaFuncSetAttribute(const void *function, int attribute, int value) {
  (void)function, (void)attribute, (void)value;
  return CUDA_SUCCESS;
}
int cudaGetDevice(int *device) {
  *device = 0;
  return CUDA_SUCCESS;
}
int cudaDriverGetVersion(int *version) {
  *version = 14000; /* in maps by older ones CUTLASS changes a bit, around a defect of theirs: here, of the address */
  return CUDA_SUCCESS;
}
int cudaGetLastError(void) { return CUDA_SUCCESS; }
int cudaPeekAtLastError(void) { return CUDA_SUCCESS; }
int cudaDeviceGetAttribute(int *value, int attribute, int device) {
  (void)value, (void)attribute, (void)device;
  return CUDA_INVALID_VALUE; /* programs say how many multiprocessors there are */
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads, size_t shared, unsigned flags) {
  (void)blocks, (void)function, (void)threads, (void)shared, (void)flags;
  return CUDA_INVALID_VALUE;
}
int cudaMemsetAsync(void *at, int value, size_t bytes, void *stream) {
  (void)stream;
  memset(at, value, bytes);
  sim_mark(peer.machine, at, (int64_t)bytes, true);
  return CUDA_SUCCESS;
}
const char *cudaGetErrorString(int error) { return error ? "an error" : "no error"; }

/* ── tensor maps ──────────────────────────────────────────────────────────────────────────── */
/* As the CUDA driver API demands of cuTensorMapEncodeTiled; what the simulator does not have (elements at a distance,
 * interleaving, NaN outside of the tensor) is refused. */
static int encode_map(void *out, int type, uint32_t rank, void *address, const uint64_t *dim, const uint64_t *stride, const uint32_t *box,
                      const uint32_t *element_stride, int interleave, int swizzle, int promotion, int fill) {
  static const int bytes_of[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  static const int swizzles[] = {0, 32, 64, 128};
  (void)promotion;
  if (type < 0 || type >= (int)(sizeof bytes_of / sizeof *bytes_of) || !rank || rank > SIM_MAP_RANK || interleave || fill || swizzle < 0 || swizzle > 3 ||
      (uintptr_t)out & 63 || (uintptr_t)address & 15)
    return CUDA_INVALID_VALUE;
  SimTensorMap map = {.magic = SIM_TENSOR_MAP, .address = (uint64_t)(uintptr_t)address, .rank = (uint16_t)rank, .swizzle = (uint16_t)swizzles[swizzle]};
  bool is_good = true;
  for (uint32_t i = 0; i < rank; i++) {
    map.dim[i] = dim[i];
    map.box[i] = box[i];
    map.stride[i] = i ? stride[i - 1] : (uint64_t)bytes_of[type];
    is_good = is_good && dim[i] && dim[i] <= UINT64_C(1) << 32 && box[i] && box[i] <= 256 && element_stride[i] == 1;
    is_good = is_good && (!i || (map.stride[i] % 16 == 0 && map.stride[i] < UINT64_C(1) << 40));
  }
  uint64_t inner = box[0] * map.stride[0];
  if (!is_good || inner % 16 || (map.swizzle && inner > map.swizzle)) return CUDA_INVALID_VALUE;
  memset(out, 0, 128);
  memcpy(out, &map, sizeof map);
  return CUDA_SUCCESS;
}

int cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned version, uint64_t flags, int *result) {
  (void)version, (void)flags;
  if (strcmp(name, "cuTensorMapEncodeTiled") != 0) return CUDA_UNKNOWN;
  int (*function)(void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *, const uint32_t *, int, int, int, int) = encode_map;
  memcpy(out, &function, sizeof function);
  *result = CUDA_SUCCESS;
  return CUDA_SUCCESS;
}
