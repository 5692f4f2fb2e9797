/* comm: see comm.h. This file has what a process that is alone does. */
#include "runtime/communicate/comm.h"
#include <string.h>

Status comm_open(const CommOptions *options, Comm **out) {
  CommPlace place;
  *out = NULL;
  STATUS_TRY(comm_place(&place));
  int ranks = options->ranks ? options->ranks : place.ranks;
  if (ranks != place.ranks)
    return status_fail(STATUS_USER, "%d ranks are expected, and there %s %d: start them by mpirun",
                       ranks, place.ranks == 1 ? "is" : "are", place.ranks);
  if (ranks == 1) return STATUS_OK;
  return status_fail(STATUS_USER, "%d ranks: libft-mpi.so, which joins them, is not here", ranks);
}

void comm_close(Comm *comm, Status status) {
  (void)comm;
  (void)status;
}

int comm_rank(const Comm *comm) {
  (void)comm;
  return 0;
}
int comm_ranks(const Comm *comm) {
  (void)comm;
  return 1;
}
const char *comm_text(const Comm *comm) {
  (void)comm;
  return "1 rank";
}

static Status copy_alone(const CommWork *work) {
  if (work->kind == COMM_SEND || work->kind == COMM_RECEIVE || work->peer)
    return status_fail(STATUS_USER, "%s: there is no rank %d, this process is alone", work->label,
                       work->peer);
  size_t bytes = (size_t)work->count * (size_t)dtype_bytes(work->dtype);
  if (work->out != work->x && bytes) memmove(work->out, work->x, bytes);
  return STATUS_OK;
}

Status comm_begin(Comm *comm, const CommWork *work, int64_t *number) {
  (void)comm;
  *number = 0;
  return copy_alone(work);
}

Status comm_end(Comm *comm, int64_t number) {
  (void)comm;
  (void)number;
  return STATUS_OK;
}

Status comm_do(Comm *comm, const CommWork *work) {
  int64_t number;
  STATUS_TRY(comm_begin(comm, work, &number));
  return comm_end(comm, number);
}

Status comm_barrier(Comm *comm, const char *label) {
  (void)comm;
  (void)label;
  return STATUS_OK;
}

Status comm_same(Comm *comm, const char *what, const void *bytes, int64_t count) {
  (void)comm;
  (void)what;
  (void)bytes;
  (void)count;
  return STATUS_OK;
}
