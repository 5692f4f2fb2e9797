/* mpi_allreduce: MPI's own all-reduce without ft, and the floor of memory: mpi_allreduce BYTES TIMES
 * under mpirun. Sums of f32 in place, as ft's are. Rank 0 prints what it took, two medians over TIMES,
 * in microseconds: of MPI_Allreduce behind a barrier, as `comm_program speed` measures ft's; and of
 * copying as many bytes once, all ranks at the same time, which no all-reduce through memory can
 * beat, as each rank reads its operand and writes its result.
 *   mpicc -O2 bench/distributed/mpi_allreduce.c -o mpi_allreduce */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Sorts. */
static double median(double *times, int count) {
  qsort(times, (size_t)count, sizeof *times, ascending);
  return count % 2 ? times[count / 2] : (times[count / 2 - 1] + times[count / 2]) / 2;
}

int main(int count, char **argument) {
  MPI_Init(&count, &argument);
  int rank, times = count > 2 ? atoi(argument[2]) : 0;
  long bytes = count > 2 ? atol(argument[1]) / 4 * 4 : 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (bytes <= 0 || bytes / 4 > 1 << 30 || times <= 0) {
    if (rank == 0) fprintf(stderr, "usage: mpi_allreduce BYTES TIMES\n");
    MPI_Finalize();
    return 2;
  }
  float *x = calloc(1, (size_t)bytes), *y = malloc((size_t)bytes);
  double *took = calloc((size_t)times, sizeof *took), *copied = calloc((size_t)times, sizeof *took);
  if (!x || !y || !took || !copied) MPI_Abort(MPI_COMM_WORLD, 3);
  memset(y, 0, (size_t)bytes);
  for (int warm = 1; warm >= 0; warm--)
    for (int i = 0; i < times; i++) {
      MPI_Barrier(MPI_COMM_WORLD);
      double start = MPI_Wtime();
      MPI_Allreduce(MPI_IN_PLACE, x, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      took[i] = MPI_Wtime() - start;
      MPI_Barrier(MPI_COMM_WORLD);
      start = MPI_Wtime();
      memcpy(y, x, (size_t)bytes);
      __asm__ volatile("" : : "r"(y) : "memory");
      copied[i] = MPI_Wtime() - start;
    }
  double all_reduce = median(took, times), floor = median(copied, times);
  if (rank == 0) printf("median %.3f us, copy %.3f us\n", 1e6 * all_reduce, 1e6 * floor);
  MPI_Finalize();
  return 0;
}
