/* runtime_deployed: any bytes as the weights beside a deployed model's PTX, read by what `ftrun deploy` writes for programs
 * (runtime/command/deploy_ptx.part, a model of 27 bytes; CMakeLists.txt fills in its words), on a driver that is only here. They are
 * loaded to the last byte, or refused by a code and a sentence, and nothing is kept then. From memory and from a file; as they are; with the
 * head that they should have, so that the fuzzer gets past it; and as the PTX. */
#define _GNU_SOURCE /* memfd_create */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ── the model ──────────────────────────────────────────────────────────────────────────────── */
#define FTM_KERNELS 1
#define FTM_STEPS 1
#define FTM_MAPS 0
#define FTM_MOST_ARGS 1
#define FTM_MOST_MAPS 0
#define FTM_WEIGHTS 27
#define FTM_STATUS 64
#define FTM_PARTS 0
#define FTM_PTX_BYTES 16
#define FTM_PTX_SUM UINT64_C(0xa94fb9ea26372bb3)
#define FTM_CUDA 12040
#define FTM_ARCH 80
#define FTM_ARCH_IS_EXACT 0
#define FTM_ID UINT64_C(0x0123456789abcdef)
static const char text_of_kernels[] = ".version 8.4 //\n";
static const char *const ftm_kernels[] = {"kernel", "ft_deploy_check"};
static const int64_t ftm_args[] = {1, 0};
static const int64_t ftm_step[][16] = {{0, 0, 0, 0, 1, 1, 1, 1, 32, 1, 1, 1 << 16}, {0}};
static const int64_t ftm_part[][3] = {{0, 0, 0}};
static const int64_t ftm_input[][8] = {{0, 4, 4, 0, 0, 0, 1, 4}, {0}};
static const int64_t ftm_output[][8] = {{0, 4, 4, 0, 0, 0, 1, 4}, {0}};

/* ── the driver ─────────────────────────────────────────────────────────────────────────────── */
static char *memory; /* of the GPU: one piece */
static size_t memory_bytes, things; /* streams, modules, contexts and pieces that are not yet given back */

static int fake_fine(void) { return 0; }

static int fake_number(int *number) { return *number = 12040, 0; }

static int fake_attribute(int *value, int attribute, int device) {
  (void)device;
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 1 << 17;
  return 0;
}

static int fake_take(void **thing) { return things++, *thing = &things, 0; }

static int fake_give(void) { return things--, 0; }

static int fake_alloc(uint64_t *address, size_t bytes) {
  if (memory) abort();
  memory = malloc(bytes), memory_bytes = bytes, things++;
  if (!memory) abort();
  memset(memory, 0x7f, bytes);
  *address = (uint64_t)(uintptr_t)memory;
  return 0;
}

static int fake_free(uint64_t address) {
  if (address != (uint64_t)(uintptr_t)memory) abort();
  free(memory);
  memory = NULL;
  return things--, 0;
}

static int fake_to_device(uint64_t to, const void *from, size_t bytes, void *stream) {
  (void)stream;
  size_t at = (size_t)(to - (uint64_t)(uintptr_t)memory);
  if (!memory || at > memory_bytes || bytes > memory_bytes - at) abort();
  memcpy(memory + at, from, bytes);
  return 0;
}

static int fake_module(void **module, const void *text, unsigned count, int *options, void **values) {
  (void)count, (void)options, (void)values;
  if (memcmp(text, text_of_kernels, sizeof text_of_kernels) != 0) abort();
  return fake_take(module);
}

static int fake_function(void **function, void *module, const char *name) { return *function = module, !*name; }

static int fake_shared(int *bytes) { return *bytes = 0, 0; }

static void *fake_symbol(const char *name) {
  static const struct {
    const char *name;
    void (*call)(void);
  } known[] = {
#define KNOWN(name, call) {name, (void (*)(void))call}
      KNOWN("cuDriverGetVersion", fake_number),
      KNOWN("cuDeviceGetAttribute", fake_attribute),
      KNOWN("cuDevicePrimaryCtxRetain", fake_take),
      KNOWN("cuDevicePrimaryCtxRelease_v2", fake_give),
      KNOWN("cuMemAlloc_v2", fake_alloc),
      KNOWN("cuMemFree_v2", fake_free),
      KNOWN("cuMemcpyHtoDAsync_v2", fake_to_device),
      KNOWN("cuStreamCreate", fake_take),
      KNOWN("cuStreamDestroy_v2", fake_give),
      KNOWN("cuModuleLoadDataEx", fake_module),
      KNOWN("cuModuleUnload", fake_give),
      KNOWN("cuModuleGetFunction", fake_function),
      KNOWN("cuFuncGetAttribute", fake_shared),
  };
  void (*call)(void) = (void (*)(void))fake_fine;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(known[i].name, name)) call = known[i].call;
  void *symbol;
  memcpy(&symbol, &call, sizeof symbol);
  return symbol;
}

#define dlopen(name, mode) ((void)(name), (void *)memory_of_library)
#define dlsym(library, name) ((void)(library), fake_symbol(name))
static char memory_of_library[1];
#define FTM_IMPLEMENTATION
#include "deployed.h"

/* ── loading ────────────────────────────────────────────────────────────────────────────────── */
static void look(int code, ftm_model *model, const uint8_t *data, size_t size, bool is_right) {
  uint64_t head[8];
  if (code && is_right) abort();
  if (code) {
    if (!*ftm_message() || model || things || memory) abort();
    return;
  }
  if (size != sizeof head + FTM_WEIGHTS || memcmp(memory, data + sizeof head, FTM_WEIGHTS) != 0) abort();
  memcpy(head, data, sizeof head);
  if (memcmp(data, "ftweight", 8) != 0 || head[3] != FTM_ID || head[2] != FTM_WEIGHTS) abort();
  ftm_free(model);
  if (things || memory) abort();
}

static void load(const char *kernels, size_t kernel_bytes, const uint8_t *data, size_t size, bool is_right) {
  ftm_model *model = NULL;
  char *copy = malloc(size + 1); /* at its end, where a byte more is seen */
  if (!copy) abort();
  memcpy(copy + 1, data, size);
  look(ftm_load_memory(&model, kernels, kernel_bytes, copy + 1, size, 0), model, data, size, is_right);
  free(copy);
}

/* A file of the bytes. */
static int open_bytes(const void *data, size_t size, char path[64]) {
  int fd = memfd_create("fuzz", 0);
  if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
  snprintf(path, 64, "/proc/self/fd/%d", fd);
  return fd;
}

static void load_file(const uint8_t *data, size_t size, bool is_right) {
  ftm_model *model = NULL;
  char kernels[64], weights[64];
  int ptx = open_bytes(text_of_kernels, FTM_PTX_BYTES, kernels), fd = open_bytes(data, size, weights);
  look(ftm_load(&model, kernels, weights, 0), model, data, size, is_right);
  close(ptx);
  close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint64_t head[8] = {0, 1, FTM_WEIGHTS, FTM_ID, 0};
  load(text_of_kernels, FTM_PTX_BYTES, data, size, false);
  load_file(data, size, false);
  load((const char *)data, size, data, size, false); /* as the PTX */
  uint8_t *mended = malloc(sizeof head + size);
  if (!mended) abort();
  head[4] = ftm_sum(1, (const char *)data, size);
  memcpy(head, "ftweight", 8);
  memcpy(mended, head, sizeof head);
  memcpy(mended + sizeof head, data, size);
  load(text_of_kernels, FTM_PTX_BYTES, mended, sizeof head + size, size == FTM_WEIGHTS);
  load_file(mended, sizeof head + size, size == FTM_WEIGHTS);
  free(mended);
  return 0;
}
