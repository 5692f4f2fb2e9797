/* libcuda_launch: the fake driver's modules, tensor maps and launches, see fake.h. */
#include "fake_entry.h"
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CudaModuleBody {
  SimModule *module;
};

/* ── modules and launches ─────────────────────────────────────────────────────────────────── */
/* The newest PTX that a driver reads: CUDA 11.4 reads 7.4, 12.0 reads 8.0, 13.0 reads 9.0. */
static bool is_too_new(const char *ptx) {
  long version = fake_setting("VERSION", 12040);
  int major = 0, minor = 0;
  const char *line = strstr(ptx, "\n.version ");
  if (!line || sscanf(line, "\n.version %d.%d", &major, &minor) != 2) fake_die("PTX of no version");
  return major * 1000 + minor * 10 > version - 4000;
}

/* What test/fake/ptxas makes: the head of an ELF file for NVIDIA's GPUs, and the PTX behind it. NULL: it is
 * no cubin, or one that this driver does not run, as all that NVIDIA's ptxas makes. */
static const char *ptx_of_cubin(const char *image) {
  Elf64_Ehdr head;
  memcpy(&head, image, sizeof head);
  if (head.e_machine != 190 || head.e_shnum || fake_setting("CUBIN_FAILS", 0)) return NULL;
  return image + sizeof head;
}

typedef struct {
  char *error, *info;
  size_t error_room, info_room;
  bool is_verbose;
} JitOptions;

static JitOptions jit_options(unsigned count, const int *options, void *const *values) {
  JitOptions jit = {0};
  for (unsigned i = 0; i < count; i++) {
    size_t number = (size_t)(uintptr_t)values[i];
    switch (options[i]) {
    case CUDA_JIT_ERROR_LOG: jit.error = values[i]; break;
    case CUDA_JIT_ERROR_LOG_BYTES: jit.error_room = number; break;
    case CUDA_JIT_INFO_LOG: jit.info = values[i]; break;
    case CUDA_JIT_INFO_LOG_BYTES: jit.info_room = number; break;
    case CUDA_JIT_LOG_VERBOSE: jit.is_verbose = number != 0; break;
    default: fake_die("an option of the compiler: %d", options[i]);
    }
  }
  return jit;
}

/* A log that is cut ends anywhere, and not by a zero. Spills are said to those who ask for all. */
static void write_info(const JitOptions *jit) {
  const char *info = getenv("FT_FAKE_CUDA_JIT_INFO");
  if (!info || !jit->info || (strstr(info, "spill") && !jit->is_verbose)) return;
  strncpy(jit->info, info, jit->info_room);
}

CudaResult entry_module_load(CudaModule *module, const void *image, unsigned count, int *options,
                             void **values) {
  LIVE();
  NOT_IN_CAPTURE("cuModuleLoadDataEx");
  JitOptions jit = jit_options(count, options, values);
  if (!memcmp(image, ELFMAG, SELFMAG)) {
    image = ptx_of_cubin(image);
    if (!image) return CUDA_ERROR_NO_BINARY;
    fake_counts.cubin++;
  } else {
    fake_counts.compiled++;
  }
  const char *planned = getenv("FT_FAKE_CUDA_JIT");
  SimModule *loaded = NULL;
  bool is_bad = (planned && planned[0]) || fake_counts.compiled == fake_setting("COMPILE_FAILS", -1);
  if (is_too_new(image)) return CUDA_ERROR_UNSUPPORTED_PTX;
  write_info(&jit);
  if (is_bad && jit.error) snprintf(jit.error, jit.error_room, "ptxas error   : %s\n", planned);
  if (!is_bad && sim_module_load("(driver)", image, strlen(image), &loaded) != STATUS_OK) {
    is_bad = true;
    if (jit.error) snprintf(jit.error, jit.error_room, "%s\n", status_message());
  }
  if (is_bad) return CUDA_ERROR_INVALID_PTX;
  *module = calloc(1, sizeof **module);
  (*module)->module = loaded;
  return CUDA_SUCCESS;
}

CudaResult entry_module_unload(CudaModule module) {
  fake_context_check();
  NOT_IN_CAPTURE("cuModuleUnload");
  sim_module_free(module->module);
  free(module);
  return fake_sticky;
}

CudaResult entry_module_function(CudaFunction *function, CudaModule module, const char *name) {
  LIVE();
  *function = (CudaFunction)(uintptr_t)sim_module_kernel(module->module, name);
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CudaResult entry_module_global(CudaAddress *address, size_t *bytes, CudaModule module,
                               const char *name) {
  LIVE();
  int64_t size = 0;
  char *at = sim_module_variable(module->module, name, &size);
  if (!at) return CUDA_ERROR_NOT_FOUND;
  fake_memory_know(at, (size_t)size);
  *address = (CudaAddress)(uintptr_t)at;
  *bytes = (size_t)size;
  return CUDA_SUCCESS;
}

/* ── tensor maps ──────────────────────────────────────────────────────────────────────────── */
/* What CUDA 13 says at cuTensorMapEncodeTiled, for the parameters that ft may use. */
static bool takes_map(const CudaTensorMap *map, int type, unsigned rank, uint64_t address,
                      const uint64_t *dims, const uint64_t *strides, const unsigned *box,
                      const unsigned *steps, int swizzle, const int *element) {
  static const unsigned widest[] = {1u << 20, 32, 64, 128};
  if ((uintptr_t)map % 128 || type < 0 || type > 12 || rank < 1 || rank > 5 || address % 16 ||
      swizzle < 0 || swizzle > 3)
    return false;
  for (unsigned i = 0; i < rank; i++)
    if (!dims[i] || dims[i] > UINT64_C(1) << 32 || !box[i] || box[i] > 256 || !steps[i] ||
        steps[i] > 8)
      return false;
  for (unsigned i = 0; i + 1 < rank; i++)
    if (strides[i] % 16 || strides[i] >= UINT64_C(1) << 40 ||
        strides[i] < dims[i] * (i ? strides[i - 1] : (uint64_t)element[type]))
      return false;
  unsigned wide = box[0] * (unsigned)element[type];
  return wide % 16 == 0 && wide <= widest[swizzle];
}

/* The simulator's form of a map. */
CudaResult entry_map_tiled(CudaTensorMap *map, int type, unsigned rank, void *address,
                           const uint64_t *dims, const uint64_t *strides, const unsigned *box,
                           const unsigned *steps, int interleave, int swizzle, int promotion,
                           int fill) {
  static const int element[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  LIVE();
  if (fake_setting("CC", 90) < 90 || interleave || promotion < 0 || promotion > 3 || fill ||
      !takes_map(map, type, rank, (uintptr_t)address, dims, strides, box, steps, swizzle, element))
    return CUDA_ERROR_INVALID_VALUE;
  SimTensorMap made = {.magic = SIM_TENSOR_MAP,
                       .address = (uintptr_t)address,
                       .rank = (uint16_t)rank,
                       .swizzle = (uint16_t)(swizzle ? 16 << swizzle : 0)};
  uint64_t bytes = made.stride[0] = (uint64_t)element[type];
  for (unsigned i = 0; i < rank; i++) {
    made.dim[i] = dims[i];
    made.box[i] = box[i];
    if (i) made.stride[i] = strides[i - 1];
    if (steps[i] != 1) fake_die("a tensor map with steps of elements");
    bytes += (dims[i] - 1) * made.stride[i];
  }
  fake_memory_check((CudaAddress)(uintptr_t)address, bytes, "a tensor map");
  memset(map, 0, sizeof *map);
  memcpy(map, &made, sizeof made);
  return CUDA_SUCCESS;
}

/* What a block may get beyond the 48 KiB that every kernel may: by function, asked for before. */
static struct {
  CudaFunction function;
  long bytes;
} allowed[1024];
static int allowed_count;

static long fixed_shared(CudaFunction function) {
  return (long)sim_kernel_info((const SimKernel *)(uintptr_t)function).shared_bytes;
}

static bool has_shared(CudaFunction function, long bytes) {
  if (bytes + fixed_shared(function) <= 48 << 10) return true;
  for (int i = 0; i < allowed_count; i++)
    if (allowed[i].function == function && allowed[i].bytes >= bytes) return true;
  return false;
}

CudaResult entry_function_set(CudaFunction function, int attribute, int value) {
  LIVE();
  if (attribute != CUDA_FUNCTION_SHARED_MOST ||
      value + fixed_shared(function) > fake_setting("SHARED", 227 << 10))
    return CUDA_ERROR_INVALID_VALUE;
  if (allowed_count == 1024) fake_die("too many kernels with large blocks");
  allowed[allowed_count].function = function;
  allowed[allowed_count++].bytes = value;
  return CUDA_SUCCESS;
}

CudaResult entry_function_get(int *value, int attribute, CudaFunction function) {
  LIVE();
  *value = attribute == CUDA_FUNCTION_SHARED_BYTES ? (int)fixed_shared(function) : 0;
  return CUDA_SUCCESS;
}

/* CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". */
static bool has_limits(const CudaLaunch *launch, const SimKernelInfo *info) {
  int64_t threads = (int64_t)launch->block_x * launch->block_y * launch->block_z;
  return launch->grid_x && launch->grid_y && launch->grid_z && threads && launch->block_x <= 1024 &&
         launch->block_y <= 1024 && launch->block_z <= 64 && threads <= info->max_threads &&
         launch->grid_x <= INT32_MAX && launch->grid_y <= 65535 && launch->grid_z <= 65535 &&
         launch->grid_x % (unsigned)info->cluster == 0;
}

/* Is the launch to be begun early? Dies where that has no meaning that CUDA states: behind what is no kernel, or
 * behind several things. */
static bool is_early(const CudaLaunch *launch) {
  if (!launch->attribute_count) return false;
  const CudaLaunchAttribute *attribute = launch->attributes;
  if (launch->attribute_count != 1 || attribute->id != CUDA_LAUNCH_EARLY || attribute->value.number != 1)
    fake_die("an attribute of a launch: %d", attribute->id);
  CudaStream stream = launch->stream;
  if (!stream || !stream->capture) fake_die("a launch that may begin early, in no graph");
  if (stream->wait_count != 1 || stream->wait[0]->op.kind != OP_KERNEL)
    fake_die("a launch that may begin early, behind %s",
             stream->wait_count == 1 ? "something that is no kernel" : "no one thing");
  fake_counts.early++;
  return true;
}

static CudaResult launch_any(const CudaLaunch *launch, CudaFunction function, void **arguments,
                             void **extra) {
  const SimKernel *kernel = (const SimKernel *)(uintptr_t)function;
  SimKernelInfo info = sim_kernel_info(kernel);
  int64_t threads = (int64_t)launch->block_x * launch->block_y * launch->block_z;
  CudaStream stream = launch->stream;
  if (extra) fake_die("a launch with extra parameters");
  if (stream && stream->capture && fake_graph_fails(launch->attribute_count ? "early" : "launch")) {
    stream->is_spoiled = true;
    return CUDA_ERROR_CAPTURE_UNSUPPORTED;
  }
  if (!has_limits(launch, &info)) return CUDA_ERROR_INVALID_VALUE;
  if (!has_shared(function, (long)launch->shared_bytes)) return CUDA_ERROR_INVALID_VALUE;
  if ((threads + 31) / 32 * 32 * info.launch_registers > 65536) return CUDA_ERROR_LAUNCH_RESOURCES;
  char *params = calloc(1, (size_t)info.param_bytes + 1);
  for (int i = 0; i < info.params; i++) {
    int64_t offset, bytes;
    sim_kernel_param(kernel, i, &offset, &bytes);
    memcpy(params + offset, arguments[i], (size_t)bytes);
  }
  fake_counts.launch++;
  FakeOp op = {.kind = OP_KERNEL, .kernel = kernel, .params = params};
  op.launch = (SimLaunch){.grid = {launch->grid_x, launch->grid_y, launch->grid_z},
                          .block = {launch->block_x, launch->block_y, launch->block_z},
                          .shared = launch->shared_bytes,
                          .is_early = is_early(launch),
                          .param_bytes = info.param_bytes};
  return fake_enqueue(stream, op);
}

CudaResult entry_launch(CudaFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CudaStream stream, void **arguments, void **extra) {
  LIVE();
  CudaLaunch plain = {grid_x,  grid_y,       grid_z, block_x, block_y,
                      block_z, shared_bytes, stream, NULL,    0};
  return launch_any(&plain, function, arguments, extra);
}

CudaResult entry_launch_ex(const CudaLaunch *given, CudaFunction function, void **arguments,
                           void **extra) {
  LIVE();
  return launch_any(given, function, arguments, extra);
}
