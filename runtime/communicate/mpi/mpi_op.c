/* mpi_op: see mpi_engine.h. */
#include "runtime/communicate/combine.h"
#include "runtime/communicate/mpi/mpi_engine.h"

/* MPI tells a function neither the type of ft nor the operation: there is one for each pair. */
#define OPERATION(id, op)                                                                          \
  static void id##_##op(void *in, void *inout, int *count, MPI_Datatype *type) {                   \
    (void)type;                                                                                    \
    combine_find(DT_##id, COMM_##op)(in, inout, *count);                                           \
  }
#define X(ID, text, bytes)                                                                         \
  OPERATION(ID, SUM) OPERATION(ID, MIN) OPERATION(ID, MAX) OPERATION(ID, PROD)
DTYPES(X)
#undef X

static MPI_User_function *const functions[DT_COUNT][MPI_OPS] = {
#define X(ID, text, bytes) [DT_##ID] = {ID##_SUM, ID##_MIN, ID##_MAX, ID##_PROD},
    DTYPES(X)
#undef X
};

int mpi_op_make(MPI_Op op[DT_COUNT][MPI_OPS]) {
  int error = MPI_SUCCESS;
  for (int d = 0; d < DT_NAMED; d++)
    for (int o = 0; o < MPI_OPS && error == MPI_SUCCESS; o++)
      error = MPI_Op_create(functions[d][o], 1, &op[d][o]);
  return error;
}

void mpi_op_free(MPI_Op op[DT_COUNT][MPI_OPS]) {
  for (int d = 0; d < DT_NAMED; d++)
    for (int o = 0; o < MPI_OPS; o++) MPI_Op_free(&op[d][o]);
}
