/* comm_agree: see comm.h. */
#include "runtime/communicate/comm_private.h"
#include <stdio.h>
#include <string.h>

enum { SAID = 1280 };

/* What the rank that has failed says of it. */
static Status share_failure(Comm *comm, int failed, char *said) {
  CommWork work = {.kind = COMM_BROADCAST,
                   .peer = failed,
                   .dtype = DT_U8,
                   .count = SAID,
                   .x = said,
                   .out = said,
                   .label = "what a rank has failed with"};
  if (comm->place.rank == failed && failed > 0)
    snprintf(said, SAID, "rank %d (host %s): %.1100s", failed, comm->host, status_message());
  else if (comm->place.rank == failed)
    snprintf(said, SAID, "%s", status_message());
  return comm_do(comm, &work);
}

Status comm_agree(Comm *comm, Status status) {
  enum { STATUSES = 16 };
  if (!comm) return status;
  char own[SAID], said[SAID] = "";
  int64_t mine = status == STATUS_OK ? INT64_MAX : comm->place.rank * STATUSES + (int64_t)status;
  int64_t first = INT64_MAX;
  CommWork work = {.kind = COMM_ALL_REDUCE,
                   .op = COMM_MIN,
                   .dtype = DT_I64,
                   .count = 1,
                   .x = &mine,
                   .out = &first,
                   .label = "how all ranks fare"};
  snprintf(own, sizeof own, "%s", status_message());
  Status shared = comm_do(comm, &work);
  if (shared == STATUS_OK && first == INT64_MAX) return STATUS_OK;
  if (shared == STATUS_OK) {
    if (status != STATUS_OK) status_fail(status, "%s", own);
    shared = share_failure(comm, (int)(first / STATUSES), said);
  }
  if (shared == STATUS_OK) return status_fail((Status)(first % STATUSES), "%s", said);
  return status == STATUS_OK ? shared : status_fail(status, "%s", own);
}
