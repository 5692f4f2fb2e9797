/* dev_cpu: what the parts of the CPU's device share. */
#ifndef FT_RUNTIME_DEV_CPU_H
#define FT_RUNTIME_DEV_CPU_H
#include "runtime/common/pool.h"
#include "runtime/device/cpu/calls_cpu.h"
#include "runtime/device/dev.h"

struct Device {
  Pool *pool;
  CpuLibrary *library;
  Comm *comm;
  bool has_shared; /* all memory that was asked for as shared is */
  bool is_shared;  /* … on all ranks: works may be done there (cpu_join) */
  char text[64];
};
#endif
