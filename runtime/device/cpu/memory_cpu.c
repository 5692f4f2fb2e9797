/* memory_cpu: see memory_cpu.h. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, madvise */
#include "runtime/device/cpu/memory_cpu.h"
#include "runtime/device/cpu/dev_cpu.h"
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, HUGE = 2 << 20 };

static size_t mapped_bytes(int64_t bytes) {
  size_t unit = bytes >= HUGE ? HUGE : PAGE;
  return ((size_t)bytes + unit) & ~(unit - 1); /* at least one page more than nothing */
}

/* Fresh pages are zero. Large blocks are aligned to huge pages and advised to use them. */
Status cpu_alloc(Device *device, int64_t bytes, char **out) {
  (void)device;
  size_t size = mapped_bytes(bytes), slack = bytes >= HUGE ? HUGE : 0;
  char *at = mmap(NULL, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    return status_fail(STATUS_FAULT, "out of memory: %.1f MiB cannot be had",
                       (double)bytes / (1 << 20));
  if (slack) {
    size_t low = (HUGE - (uintptr_t)at % HUGE) % HUGE;
    if (low) munmap(at, low);
    if (slack - low) munmap(at + low + size, slack - low);
    at += low;
    madvise(at, size, MADV_HUGEPAGE);
  }
  *out = at;
  return STATUS_OK;
}

Status cpu_alloc_shared(Device *device, int64_t bytes, char **out) {
  *out = comm_memory_new(device->comm, bytes);
  if (*out) return STATUS_OK;
  device->has_shared = false;
  return cpu_alloc(device, bytes, out);
}

/* Works are done in shared memory where every rank has it: the ranks must find the same. */
Status cpu_join(Device *device) {
  uint8_t own = device->has_shared, all = 0;
  STATUS_TRY(comm_do(device->comm, &(CommWork){.kind = COMM_ALL_REDUCE,
                                               .op = COMM_MIN,
                                               .dtype = DT_U8,
                                               .count = 1,
                                               .x = &own,
                                               .out = &all,
                                               .label = "memory that all ranks share"}));
  device->is_shared = all;
  return STATUS_OK;
}

void cpu_free(Device *device, char *memory, int64_t bytes) {
  if (memory && comm_memory_free(device->comm, memory)) return;
  if (memory) munmap(memory, mapped_bytes(bytes));
}

Status cpu_write(Device *device, char *to, const void *from, int64_t bytes) {
  (void)device;
  if (bytes) memcpy(to, from, (size_t)bytes);
  return STATUS_OK;
}

Status cpu_read(Device *device, void *to, const char *from, int64_t bytes) {
  (void)device;
  if (bytes) memcpy(to, from, (size_t)bytes);
  return STATUS_OK;
}
