/* blas: see blas.h. */
#define _GNU_SOURCE /* MAP_NORESERVE */
#include "runtime/device/cpu/blas.h"
#include "runtime/common/pool.h"
#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What version 0.3.21 maps: its code and that of the libraries it needs, and a buffer for every
 * processor. */
enum { CODE_MIB = 64, BUFFER_MIB = 130 };

bool blas_has_room(size_t bytes) {
  void *at =
      mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return false;
  munmap(at, bytes);
  return true;
}

Status blas_open(BlasGemm **out) {
  static BlasGemm *gemm;
  if (!gemm) {
    long processors = sysconf(_SC_NPROCESSORS_CONF);
    long needed = CODE_MIB + BUFFER_MIB * (processors > 0 ? processors : 1);
    if (!blas_has_room((size_t)needed << 20))
      return status_fail(STATUS_FAULT,
                         "OpenBLAS, which makes this product, takes %ld MiB of address space, and "
                         "the limit leaves less: raise it (ulimit -v)",
                         needed);
    void *library = dlopen(FT_OPENBLAS, RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "cblas_sgemm") : NULL;
    if (!symbol)
      return status_fail(STATUS_USER, "OpenBLAS cannot be opened: %s; install libopenblas0-openmp",
                         dlerror());
    memcpy(&gemm, &symbol, sizeof gemm);
    pool_find_libraries();
  }
  *out = gemm;
  return STATUS_OK;
}
