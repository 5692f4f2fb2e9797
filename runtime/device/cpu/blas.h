/* blas: OpenBLAS, opened where a product is bound that oneDNN has no code for. It is not linked:
 * its constructor takes memory for every processor and, where the system gives none (ulimit -v),
 * asks again without end, before main. */
#ifndef FT_RUNTIME_BLAS_H
#define FT_RUNTIME_BLAS_H
#include "runtime/common/status.h"
#include <cblas-openblas.h>
#include <stdbool.h>
#include <stddef.h>

typedef __typeof__(cblas_sgemm) BlasGemm;
/* From the main thread. Stays open for the life of the process. */
STATUS_CHECKED Status blas_open(BlasGemm **out);
/* Could so much more be mapped, for a library that does not say that it could not? */
bool blas_has_room(size_t bytes);
#endif
