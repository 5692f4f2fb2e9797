/* mpi_exchange: all_reduce, reduce_scatter and all_gather of many elements by messages between each
 * two ranks of a group, without blocking. Open MPI's own collectives that do not block (libnbc)
 * reduce whole operands along a tree, one rank after the other: on one machine that takes two to
 * four times as long as its MPI_Allreduce, which blocks, and as this one. */
#ifndef FT_RUNTIME_MPI_EXCHANGE_H
#define FT_RUNTIME_MPI_EXCHANGE_H
#include "runtime/communicate/mpi/mpi_engine.h"

typedef struct Exchange Exchange;

typedef struct {
  MPI_Comm comm;
  int rank, ranks;
  int tag; /* this one and the next are of no other work under way */
  MPI_Datatype type;
} ExchangeOf;

/* Of so many bytes an element, and `piece` elements at most in a message. NULL: out of memory. */
Exchange *exchange_new(const ExchangeOf *of, const CommWork *work, int size, int64_t piece);
/* An error of MPI. */
int exchange_go_on(Exchange *exchange, EngineState *state);
void exchange_free(Exchange *exchange);
#endif
