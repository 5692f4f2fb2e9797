/* mpi_engine: the parts of libft-mpi.so. */
#ifndef FT_RUNTIME_MPI_ENGINE_H
#define FT_RUNTIME_MPI_ENGINE_H
#include "runtime/communicate/engine.h"
#include <mpi.h>

enum { MPI_OPS = COMM_PROD + 1 };
/* Operations of our own for all types: MPI's minimum of a NaN and a number depends on which comes
 * first, so that ranks would differ; and it has no f16 and bf16. */
int mpi_op_make(MPI_Op op[DT_COUNT][MPI_OPS]);
void mpi_op_free(MPI_Op op[DT_COUNT][MPI_OPS]);
#endif
