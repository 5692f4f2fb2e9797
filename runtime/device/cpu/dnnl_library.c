/* dnnl_library: see dnnl_library.h. */
#include "runtime/device/cpu/dnnl_library.h"
#include "runtime/common/pool.h"
#include "runtime/device/cpu/blas.h"
#include <dlfcn.h>
#include <string.h>

/* What version 2.6 maps, with OpenCL and the C++ library: its static data is set up by code that does not ask whether there is memory. */
enum { CODE_MIB = 96 };

DnnlLibrary dnnl;

static Status find_entries(void *library, DnnlLibrary *out) {
  const struct {
    const char *name;
    void *at;
  } entries[] = {
#define DNNL_ROW(name) {"dnnl_" #name, &out->name},
      DNNL_ENTRIES(DNNL_ROW)
#undef DNNL_ROW
  };
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
    void *symbol = dlsym(library, entries[i].name);
    if (!symbol)
      return status_fail(STATUS_USER, "oneDNN has no %s: another version than 2; install libdnnl2",
                         entries[i].name);
    memcpy(entries[i].at, &symbol, sizeof symbol);
  }
  return STATUS_OK;
}

Status dnnl_library_open(void) {
  static bool is_open;
  if (is_open) return STATUS_OK;
  if (!blas_has_room((size_t)CODE_MIB << 20))
    return status_fail(
        STATUS_FAULT,
        "oneDNN, which this model's convolutions and matrix products need, takes %d MiB of address "
        "space, and the limit leaves less: raise it (ulimit -v)",
        CODE_MIB);
  void *library = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return status_fail(STATUS_USER, "oneDNN cannot be opened: %s; install libdnnl2", dlerror());
  DnnlLibrary found;
  STATUS_TRY(find_entries(library, &found));
  dnnl = found;
  is_open = true;
  pool_find_libraries();
  return STATUS_OK;
}
