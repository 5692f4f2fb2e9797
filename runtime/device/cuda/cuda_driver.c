/* cuda_driver: see cuda_driver.h. Invariant: a table that cuda_driver_open hands out has every
 * needed entry, and cuInit has succeeded. The library is never closed: a driver leaves threads. */
#include "runtime/device/cuda/cuda_driver.h"
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
  const char *symbol;
  size_t place; /* in CudaDriver */
  bool is_optional;
} Entry;

static const Entry cuda_driver_entries[] = {
#define DRIVER(name, symbol, parameters) {symbol, offsetof(CudaDriver, name), false},
#define DRIVER_OPTIONAL(name, symbol, parameters) {symbol, offsetof(CudaDriver, name), true},
#include "runtime/device/cuda/cuda_driver.def"
#undef DRIVER_OPTIONAL
#undef DRIVER
};
enum { ENTRIES = sizeof cuda_driver_entries / sizeof *cuda_driver_entries };

const char *cuda_error_name(const CudaDriver *driver, CudaResult result) {
  static _Thread_local char number[32];
  const char *name = NULL;
  if (driver->error_name && driver->error_name(result, &name) == CUDA_SUCCESS && name) return name;
  snprintf(number, sizeof number, "CUDA error %d", result);
  return number;
}

Status cuda_check(const CudaDriver *driver, CudaResult result, const char *format, ...) {
  if (result == CUDA_SUCCESS) return STATUS_OK;
  char what[256];
  const char *text = NULL;
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  if (driver->error_string(result, &text) != CUDA_SUCCESS || !text) text = "unknown error";
  return status_fail(STATUS_FAULT, "%s: %s (%s)", what, text, cuda_error_name(driver, result));
}

static void *cuda_driver_open_library(void) {
  const char *path = getenv("FT_CUDA_LIBRARY");
  if (path && path[0]) return dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  /* containers mount the driver where no ld.so.conf says */
  if (!library) library = dlopen("/usr/local/nvidia/lib64/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) library = dlopen("/usr/lib/wsl/lib/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return library;
}

static Status cuda_driver_find_entries(CudaDriver *driver) {
  for (int i = 0; i < ENTRIES; i++) {
    void *symbol = dlsym(driver->library, cuda_driver_entries[i].symbol);
    if (!symbol && !cuda_driver_entries[i].is_optional)
      return status_fail(STATUS_USER,
                         "the NVIDIA driver here lacks %s: it is too old (ftrun needs a driver for "
                         "CUDA %d.%d or newer)",
                         cuda_driver_entries[i].symbol, CUDA_DRIVER_OLDEST / 1000,
                         CUDA_DRIVER_OLDEST % 1000 / 10);
    *(void **)((char *)driver + cuda_driver_entries[i].place) = symbol;
  }
  return STATUS_OK;
}

static Status initialise(CudaDriver *driver) {
  CudaResult result = driver->init(0);
  if (result == CUDA_ERROR_NO_DEVICE)
    return status_fail(STATUS_USER, "the NVIDIA driver finds no GPU on this machine");
  if (result != CUDA_SUCCESS)
    return status_fail(STATUS_USER, "the NVIDIA driver does not start: %s",
                       cuda_error_name(driver, result));
  STATUS_TRY(cuda_check(driver, driver->driver_version(&driver->version), "the driver's version"));
  if (driver->version < CUDA_DRIVER_OLDEST)
    return status_fail(STATUS_USER,
                       "the NVIDIA driver here is for CUDA %d.%d, too old: ftrun needs %d.%d or "
                       "newer",
                       driver->version / 1000, driver->version % 1000 / 10,
                       CUDA_DRIVER_OLDEST / 1000, CUDA_DRIVER_OLDEST % 1000 / 10);
  return STATUS_OK;
}

Status cuda_driver_open(const CudaDriver **out) {
  static CudaDriver driver;
  static bool is_open;
  *out = &driver;
  if (is_open) return STATUS_OK;
  if (!driver.library) driver.library = cuda_driver_open_library();
  if (!driver.library) {
    const char *path = getenv("FT_CUDA_LIBRARY"), *why = dlerror();
    if (path && path[0])
      return status_fail(STATUS_USER, "FT_CUDA_LIBRARY=%s cannot be opened: %s", path,
                         why ? why : "no such library");
    return status_fail(STATUS_USER, "there is no NVIDIA driver here (libcuda.so.1 is not found)");
  }
  STATUS_TRY(cuda_driver_find_entries(&driver));
  STATUS_TRY(initialise(&driver));
  is_open = true;
  return STATUS_OK;
}
