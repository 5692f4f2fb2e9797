/* memory_cpu: the functions of the CPU's DeviceType for memory. */
#ifndef FT_RUNTIME_MEMORY_CPU_H
#define FT_RUNTIME_MEMORY_CPU_H
#include "runtime/device/dev.h"

Status cpu_alloc(Device *device, int64_t bytes, char **out);
/* Where other ranks of this machine reach it, if that can be had. */
Status cpu_alloc_shared(Device *device, int64_t bytes, char **out);
Status cpu_join(Device *device);
void cpu_free(Device *device, char *memory, int64_t bytes);
Status cpu_write(Device *device, char *to, const void *from, int64_t bytes);
Status cpu_read(Device *device, void *to, const char *from, int64_t bytes);
#endif
