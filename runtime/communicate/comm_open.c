/* comm_open: joining the others and leaving them. */
#include "runtime/communicate/comm_private.h"
#include "base/clock.h"
#include "runtime/communicate/arrivals.h"
#include "runtime/communicate/tcp_engine.h"
#include "runtime/communicate/launcher.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double default_timeout = 120;

static Status not_all_came(const Comm *comm) {
  enum { PATIENCE = 8 }; /* busy machines start their ranks seconds after one another */
  char sentence[COMM_SENTENCE];
  const CommPlace *place = &comm->place;
  if (arrivals_find_missing(comm->timeout, sentence, sizeof sentence))
    return status_fail(STATUS_FAULT, "%s", sentence);
  /* the machine of those that are missing knows them, and has the first word */
  if (place->local_ranks < place->ranks) sleep(PATIENCE);
  if (comm->type == &tcp_engine &&
      tcp_find_missing(place, comm->timeout, sentence, sizeof sentence))
    return status_fail(STATUS_FAULT, "%s", sentence);
  if (arrivals_say_elsewhere(comm->timeout, sentence, sizeof sentence))
    return status_fail(STATUS_FAULT, "%s", sentence);
  return status_fail(STATUS_FAULT,
                     "the %d ranks have not joined within %g s; all %d of host %s came",
                     place->ranks, comm->timeout, place->local_ranks, comm->host);
}

/* ── opening ──────────────────────────────────────────────────────────────────────────────── */
static void comm_release(Comm *comm) {
  watch_stop(comm->watch);
  comm_share_no_more(comm);
  board_close(&comm->board);
  if (comm->launcher >= 0) close(comm->launcher);
  pthread_mutex_destroy(&comm->lock);
  pthread_cond_destroy(&comm->queued);
  pthread_cond_destroy(&comm->changed);
  free(comm->seats);
  free(comm);
}

static Status make(const CommPlace *place, const CommOptions *options, Comm **out) {
  Comm *comm = calloc(1, sizeof *comm);
  if (!comm) return status_fail(STATUS_FAULT, "out of memory");
  comm->place = *place;
  comm->options = *options;
  comm->mesh = options->mesh.data ? options->mesh : (Mesh){place->ranks, 1, 1};
  comm->timeout = options->timeout > 0 ? options->timeout : default_timeout;
  comm->board.listening = -1;
  gethostname(comm->host, sizeof comm->host - 1);
  comm->launcher = launcher_find();
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_mutex_init(&comm->lock, NULL);
  pthread_cond_init(&comm->queued, &attributes);
  pthread_cond_init(&comm->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  *out = comm;
  comm->seats = calloc((size_t)place->ranks, sizeof *comm->seats);
  if (!comm->seats) return status_fail(STATUS_FAULT, "out of memory");
  return STATUS_OK;
}

/* Waits until the flag is set or the job has failed, at most `timeout` seconds. */
static void comm_wait_for(Comm *comm, const bool *flag, double timeout, bool despite_failure) {
  int64_t end = clock_nanoseconds() + (int64_t)(timeout * 1e9);
  pthread_mutex_lock(&comm->lock);
  while (!*flag && (despite_failure || !comm->has_failed) && clock_nanoseconds() < end)
    comm_wait(comm, &comm->changed, end - clock_nanoseconds());
  pthread_mutex_unlock(&comm->lock);
}

/* Where a rank has died the engine may notice it first, and who looks for it knows it better. */
static Status join_failed(const Comm *comm) {
  usleep(500000);
  return status_fail(comm->failed_as, "%s", comm->sentence);
}

static Status join_ranks(Comm *comm) {
  const Mesh *mesh = &comm->mesh;
  if (mesh_ranks(mesh) != comm->place.ranks)
    return status_fail(STATUS_USER,
                       "a mesh of %d x %d x %d ranks (data, pipeline, tensor) is not "
                       "one of %d",
                       mesh->data, mesh->pipeline, mesh->tensor, comm->place.ranks);
  if (comm->options.library || strcmp(comm->place.launcher, "torchrun") != 0)
    STATUS_TRY(comm_find_engine(comm->options.library, comm->place.ranks, &comm->type));
  else
    comm->type = &tcp_engine;
  if (comm->place.rank == 0) STATUS_TRY(board_listen(&comm->board));
  if (pthread_create(&comm->thread, NULL, comm_engine_main, comm) != 0)
    return status_fail(STATUS_FAULT, "cannot start a thread");
  comm->has_thread = true;
  comm_wait_for(comm, &comm->is_open, comm->timeout, false);
  pthread_mutex_lock(&comm->lock);
  bool is_open = comm->is_open, has_failed = comm->has_failed;
  pthread_mutex_unlock(&comm->lock);
  if (has_failed) return join_failed(comm);
  if (!is_open) return not_all_came(comm);
  return watch_start(comm, &comm->watch);
}

Status comm_open_at(const CommPlace *place, const CommOptions *options, Comm **out) {
  Comm *comm = NULL;
  *out = NULL;
  Status status = make(place, options, &comm);
  if (status == STATUS_OK) status = join_ranks(comm);
  if (status == STATUS_OK)
    *out = comm;
  else if (comm)
    comm_close(comm, status);
  return status;
}

Status comm_open(const CommOptions *options, Comm **out) {
  CommPlace place;
  *out = NULL;
  STATUS_TRY(comm_place(&place));
  int ranks = options->ranks ? options->ranks : place.ranks;
  if (ranks != place.ranks)
    return status_fail(STATUS_USER, "%d ranks are expected, and there %s %d: start them by mpirun",
                       ranks, place.ranks == 1 ? "is" : "are", place.ranks);
  if (ranks == 1) return STATUS_OK;
  arrivals_begin(&place);
  arrivals_join();
  STATUS_TRY(comm_open_at(&place, options, out));
  arrivals_end();
  return STATUS_OK;
}

/* ── leaving ──────────────────────────────────────────────────────────────────────────────── */
/* This rank's failure, unless it is that of the job, which all know. */
static void tell_failure(Comm *comm, Status status) {
  enum { PATIENCE = 3 }; /* seconds; rank 0's sentence is to be out before the launcher kills it */
  char sentence[COMM_SENTENCE], why[COMM_SENTENCE];
  snprintf(why, sizeof why, "%s", status_message());
  snprintf(sentence, sizeof sentence, "rank %d (host %.60s) has failed: %.900s", comm->place.rank,
           comm->host, why);
  if (comm_fail(comm, status, sentence)) {
    watch_tell_failure(comm->watch, status, sentence);
    watch_flush(comm->watch, PATIENCE);
  }
  watch_wait_for_rank_0(comm->watch, PATIENCE);
  status_fail(status, "%s", why); /* as it was */
}

void comm_leave(Comm *comm, Status status) {
  enum { PATIENCE = 1 };
  if (!comm || comm->is_left) return;
  comm->is_left = true;
  pthread_mutex_lock(&comm->lock);
  comm->is_closing = true;
  comm_alert(comm);
  pthread_mutex_unlock(&comm->lock);
  comm_leave_outside(comm, status == STATUS_OK);
  if (status == STATUS_OK)
    watch_tell_leaving(comm->watch);
  else
    tell_failure(comm, status);
  bool is_quiet = comm_detach(comm), is_gone = !comm->has_thread;
  if (comm->has_thread) {
    /* what is under way ends, and all ranks leave the engine together; or none waits for another */
    if (status == STATUS_OK) comm_wait_for(comm, &comm->has_left, comm->timeout, false);
    comm_wait_for(comm, &comm->has_left, PATIENCE, true);
    pthread_mutex_lock(&comm->lock);
    is_gone = comm->has_left;
    pthread_mutex_unlock(&comm->lock);
  }
  if (!is_gone || status != STATUS_OK) launcher_see_off(comm->launcher);
  if (!is_gone || !is_quiet) {
    comm_leave_at_exit(); /* a thread is in the engine, or in an abort, and stays there */
    comm->is_stuck = true;
  }
  if (is_gone && comm->has_thread) pthread_join(comm->thread, NULL);
  watch_stop(comm->watch);
  comm->watch = NULL;
}

void comm_close(Comm *comm, Status status) {
  comm_leave(comm, status);
  if (comm && !comm->is_stuck) comm_release(comm);
}
