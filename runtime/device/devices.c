/* devices: see devices.h. Nothing is opened that costs memory on a GPU. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "runtime/device/devices.h"
#include "runtime/communicate/nccl.h"
#include "runtime/device/cuda/cuda_blas.h"
#include <ctype.h>
#include <sched.h>
#include <string.h>

static int count_cores(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static void print_cpu(FILE *out) {
  char name[128] = "", row[256];
  int cores = count_cores();
  FILE *file = fopen("/proc/cpuinfo", "re");
  while (file && !name[0] && fgets(row, sizeof row, file))
    if (strncmp(row, "model name", 10) == 0 && strchr(row, ':'))
      snprintf(name, sizeof name, " (%.*s)", (int)strcspn(strchr(row, ':') + 2, "\n"),
               strchr(row, ':') + 2);
  if (file) fclose(file);
  fprintf(out, "cpu: %d core%s%s; runs .so artifacts\n", cores, cores == 1 ? "" : "s", name);
}

/* Which memory of the machine is near; -1: not known, or there is only one. */
static int numa_node(const CudaDriver *driver, CudaDevice device) {
  char bus[32] = "", path[96];
  int node = -1;
  if (!driver->device_bus || driver->device_bus(bus, sizeof bus, device) != CUDA_SUCCESS) return -1;
  for (char *at = bus; *at; at++) *at = (char)tolower((unsigned char)*at);
  snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", bus);
  FILE *file = fopen(path, "re");
  if (file && fscanf(file, "%d", &node) != 1) node = -1;
  if (file) fclose(file);
  return node;
}

static Status print_gpu(const CudaDriver *driver, int index, FILE *out) {
  CudaDevice device;
  char name[96] = "";
  size_t bytes = 0;
  int major = 0, minor = 0, processors = 0;
  STATUS_TRY(cuda_check(driver, driver->device_get(&device, index), "cuda:%d", index));
  STATUS_TRY(cuda_check(driver, driver->device_name(name, sizeof name, device), "cuda:%d", index));
  STATUS_TRY(cuda_check(driver, driver->device_memory(&bytes, device), "cuda:%d", index));
  const struct {
    int attribute, *value;
  } wanted[] = {{CUDA_ATTRIBUTE_MAJOR, &major},
                {CUDA_ATTRIBUTE_MINOR, &minor},
                {CUDA_ATTRIBUTE_PROCESSORS, &processors}};
  for (int i = 0; i < 3; i++)
    STATUS_TRY(cuda_check(driver,
                          driver->device_attribute(wanted[i].value, wanted[i].attribute, device),
                          "cuda:%d", index));
  char near[32] = "";
  int node = numa_node(driver, device);
  if (node >= 0) snprintf(near, sizeof near, ", NUMA node %d", node);
  fprintf(out, "cuda:%d: %s, sm_%d%d, %d processors, %.1f GiB%s; runs .ptx artifacts\n", index,
          name, major, minor, processors, (double)bytes / (1 << 30), near);
  return STATUS_OK;
}

/* Over NVLink a GPU has atomics in the other's memory, over PCIe it has not. */
static const char *link_text(const CudaDriver *driver, int from, int to) {
  CudaDevice a, b;
  int access = 0, atomics = 0;
  if (from == to) return "-";
  if (driver->device_get(&a, from) != CUDA_SUCCESS || driver->device_get(&b, to) != CUDA_SUCCESS ||
      driver->device_link(&access, CUDA_LINK_ACCESS, a, b) != CUDA_SUCCESS ||
      driver->device_link(&atomics, CUDA_LINK_ATOMICS, a, b) != CUDA_SUCCESS)
    return "?";
  return !access ? "host" : atomics ? "NVLink" : "PCIe";
}

static void print_links(const CudaDriver *driver, int count, FILE *out) {
  if (count < 2 || !driver->device_link) return;
  fprintf(out, "between GPUs:");
  for (int to = 0; to < count; to++) fprintf(out, "  cuda:%-2d", to);
  for (int from = 0; from < count; from++) {
    fprintf(out, "\n      cuda:%-2d", from);
    for (int to = 0; to < count; to++) fprintf(out, "  %-7s", link_text(driver, from, to));
  }
  fprintf(out,
          "\n  (NVLink and PCIe: one reads the other's memory; host: through the machine's own)\n");
}

static void print_nccl(FILE *out) {
  const NcclLibrary *library;
  if (nccl_open(&library) == STATUS_OK)
    fprintf(out, "NCCL: %d.%d.%d\n", library->number / 10000, library->number / 100 % 100,
            library->number % 100);
  else
    fprintf(out, "NCCL: none, %s\n", status_message());
}

static void print_library(FILE *out) {
  bool is_usable;
  size_t version = cuda_blas_version(&is_usable);
  if (!version) {
    fprintf(out,
            "cuBLASLt: not found; products are ft's own (FT_CUBLASLT_LIBRARY names its file)\n");
    return;
  }
  fprintf(out, "cuBLASLt: %zu.%zu%s\n", version / 10000, version / 100 % 100,
          is_usable ? "" : ", too old: products are ft's own");
}

static void print_gpus(FILE *out) {
  const CudaDriver *driver;
  int count = 0;
  Status status = cuda_driver_open(&driver);
  if (status == STATUS_OK)
    status = cuda_check(driver, driver->device_count(&count), "counting GPUs");
  for (int i = 0; i < count && status == STATUS_OK; i++) status = print_gpu(driver, i, out);
  if (status != STATUS_OK) {
    fprintf(out, "cuda: none, %s\n", status_message());
    return;
  }
  fprintf(out, "cuda driver: for CUDA %d.%d\n", driver->version / 1000,
          driver->version % 1000 / 10);
  print_links(driver, count, out);
  print_library(out);
  if (count > 1) print_nccl(out);
}

void devices_print(FILE *out) {
  print_cpu(out);
  fprintf(out, "sim: a GPU simulated on the cpu, slowly; runs .ptx artifacts\n");
  print_gpus(out);
}
