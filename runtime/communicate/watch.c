/* watch: the thread of each rank that says where it is, over the board and not through the engine,
 * which may hang. Rank 0's gathers what all say, and when one of them is dead, late or does
 * something else than the others it ends the job with a sentence that all ranks get.
 * A rank says that it is late when the oldest of its works has not ended for `timeout` seconds;
 * rank 0 then sees who has not entered it. */
#include "runtime/communicate/watch_private.h"
#include "base/clock.h"
#include "runtime/common/guard.h"
#include "runtime/communicate/arrivals.h"
#include "runtime/communicate/launcher.h"
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* To rank 0: that it is late, that its collective is another than rank 0's, that it fails. From
 * rank 0: what it has entered, the end. From both: where they are, that they leave. */
enum {
  AT = 'A',
  LATE = 'L',
  OTHER = 'O',
  FAILS = 'F',
  NOTES = 'N',
  END = 'E',
  LEAVES = 'B'
};
enum { NOTES_IN_ONE = 64, TICK = 50 /* ms */ };
static const int64_t second = 1000000000, ping_every = 250000000, grace = 10000000000;
/* Rank 0 says nothing while it waits for others to come, and looks for them a while after its timeout. */
static const int64_t gathering = 5000000000;

/* Of FAILS and END; sent to the end of its sentence. */
typedef struct {
  Status status;
  char sentence[COMM_SENTENCE];
} Failure;

/* Hashes of the collectives of the rank that this one is compared with (comm_reference). */
typedef struct {
  uint64_t hash[BOARD_RING];
  int64_t to, compared;
} Expected;

struct Watch {
  Comm *comm;
  Peer *peer; /* rank 0: of all ranks; others: [0] is rank 0 */
  pthread_t thread;
  bool *is_named; /* for the judge */
  int wake;
  bool has_thread;
  atomic_bool is_ending, leaves, fails, is_flushed, is_rank_0_gone;
  Failure complaint; /* written before `fails` */
  /* of the thread alone: */
  bool has_told; /* of a failure */
  bool has_heard;                  /* from rank 0: all have come to it */
  int64_t looked, pause, was_away; /* its last round and the time to it; how long it was stopped */
  bool has_said_leaves, has_printed;
  Progress said;
  int64_t late; /* the oldest work of which it was said */
  int64_t late_since, pinged;
  Expected expected[ORDER_COUNT];
  char message[BOARD_BYTES];
};

typedef struct {
  int64_t order, first, count;
  uint64_t hash[NOTES_IN_ONE];
} NotesMessage;
typedef struct {
  int64_t order, number;
  char text[COMM_TEXT];
} OtherMessage;

static bool is_judge(const Watch *w) { return w->comm->place.rank == 0; }
static Judge judge_of(const Watch *w) {
  return (Judge){w->comm, w->peer, w->is_named, w->comm->place.ranks, clock_nanoseconds()};
}

/* ── rank 0 ───────────────────────────────────────────────────────────────────────────────── */
static void tell_all(Watch *w, int kind, const void *bytes, size_t count) {
  for (int r = 1; r < w->comm->place.ranks; r++) {
    /* that it is gone is noticed where it is read from */
    if (w->peer[r].link.socket >= 0 && !board_send(&w->peer[r].link, kind, bytes, count)) continue;
  }
}

static size_t failure_bytes(const Failure *failure) {
  return offsetof(Failure, sentence) + strlen(failure->sentence) + 1;
}

/* Of a message that has come. */
static bool read_failure(Watch *w, size_t count, Failure *out) {
  if (count <= offsetof(Failure, sentence) || count > sizeof *out) return false;
  memcpy(out, w->message, count);
  out->sentence[sizeof out->sentence - 1] = 0;
  return true;
}

static void end_job_as(Watch *w, const Failure *failure) {
  if (w->has_told) return;
  w->has_told = true;
  tell_all(w, END, failure, failure_bytes(failure));
  comm_fail(w->comm, failure->status, failure->sentence);
}

static void end_job(Watch *w, const char *sentence) {
  Failure failure = {.status = STATUS_FAULT};
  snprintf(failure.sentence, sizeof failure.sentence, "%s", sentence);
  end_job_as(w, &failure);
}

/* What rank `from` has begun, to those that are compared with it. Where one does not read, as the network
 * to it is cut while works go on another way, it goes without: this thread has others to look after. */
static void hand_notes(Watch *w, int from, const NotesMessage *message) {
  for (int r = 1; r < w->comm->place.ranks; r++)
    if (r != from && comm_reference(w->comm, (CommOrder)message->order, r) == from &&
        w->peer[r].link.socket >= 0)
      (void)board_send_if_room(&w->peer[r].link, NOTES, message, sizeof *message);
}

static void hear_other(Watch *w, int rank, const OtherMessage *other) {
  char sentence[COMM_SENTENCE], seat[COMM_SEAT];
  Note own = {.text = "another one"};
  bool is_in_stage = other->order == ORDER_STAGE;
  int as = comm_reference(w->comm, is_in_stage ? ORDER_STAGE : ORDER_ALL, rank);
  comm_seat(w->comm, rank, seat, sizeof seat);
  if (as == 0) comm_read_note(w->comm, (CommOrder)is_in_stage, other->number, &own);
  snprintf(sentence, sizeof sentence,
           "rank %d (%s) has begun %s as collective #%lld, and rank %d %s: all ranks%s must begin "
           "the same in the same order",
           rank, seat, other->text, (long long)other->number, as, own.text,
           is_in_stage ? " of a stage" : "");
  end_job(w, sentence);
}

static void hear_progress(Peer *peer, const Progress *progress) {
  const Progress *before = &peer->progress;
  if (progress->oldest != before->oldest) peer->late_since = 0;
  if (progress->signs != before->signs || strcmp(progress->doing, before->doing))
    peer->moved = clock_nanoseconds();
  peer->progress = *progress;
}

static void hear_as_judge(Watch *w, int rank, int kind, size_t count) {
  Peer *peer = &w->peer[rank];
  Failure failure;
  Judge j = judge_of(w);
  judge_heard(&j, rank, w->pause);
  if ((kind == AT || kind == LATE) && count == sizeof(Progress)) {
    Progress progress;
    memcpy(&progress, w->message, sizeof progress);
    hear_progress(peer, &progress);
    if (kind == LATE) peer->late_since = peer->heard;
  } else if (kind == OTHER && count == sizeof(OtherMessage)) {
    OtherMessage other;
    memcpy(&other, w->message, sizeof other);
    hear_other(w, rank, &other);
  } else if (kind == NOTES && count == sizeof(NotesMessage)) {
    NotesMessage notes;
    memcpy(&notes, w->message, sizeof notes);
    if (notes.order == ORDER_STAGE) hand_notes(w, rank, &notes);
  } else if (kind == FAILS && read_failure(w, count, &failure)) {
    end_job_as(w, &failure);
    peer->has_left = true; /* it has said why */
  } else if (kind == LEAVES) {
    peer->has_left = true;
  }
}

/* No rank goes into MPI_Finalize before all want to: one that waits there while the job fails has
 * made mpirun itself hang. */
static void let_leave(Watch *w) {
  bool all = !w->has_said_leaves && !w->has_told;
  for (int r = 0; r < w->comm->place.ranks; r++) all = all && w->peer[r].has_left;
  if (!all) return;
  w->has_said_leaves = true;
  tell_all(w, LEAVES, NULL, 0);
  comm_let_leave(w->comm);
}

/* A LATE may overtake what another rank says of itself, by a tick or two. */
static void judge(Watch *w) {
  char sentence[COMM_SENTENCE];
  Judge j = judge_of(w);
  if (w->has_told) return;
  if (judge_left(&j, sentence)) {
    end_job(w, sentence);
    return;
  }
  let_leave(w);
  for (int r = 0; r < j.ranks; r++) {
    const Peer *peer = &w->peer[r];
    if (!peer->late_since || j.now - peer->late_since < 6 * (int64_t)TICK * 1000000) continue;
    if (judge_late(&j, r, sentence)) end_job(w, sentence);
    return;
  }
}

static void lost_as_judge(Watch *w, int rank) {
  char sentence[COMM_SENTENCE];
  Judge j = judge_of(w);
  board_drop(&w->peer[rank].link);
  if (w->peer[rank].has_left || w->has_told) return;
  judge_dead(&j, rank, sentence);
  if (w->was_away)
    snprintf(sentence, sizeof sentence,
             "rank 0 (host %s) did not run for %d s (stopped?), and the others have given it up",
             w->comm->host, (int)(w->was_away / second));
  end_job(w, sentence);
}

/* ── the others ───────────────────────────────────────────────────────────────────────────── */
static void lost_rank_0(Watch *w) {
  char sentence[COMM_SENTENCE];
  Judge j = judge_of(w);
  board_drop(&w->peer[0].link);
  pthread_mutex_lock(&w->comm->lock);
  atomic_store(&w->is_rank_0_gone, true);
  pthread_cond_broadcast(&w->comm->changed);
  pthread_mutex_unlock(&w->comm->lock);
  if (w->peer[0].has_left) return;
  judge_dead(&j, 0, sentence);
  comm_fail_without_rank_0(w->comm, sentence);
}

static void hear_rank_0(Watch *w, int kind, size_t count) {
  Failure failure;
  w->peer[0].heard = clock_nanoseconds();
  w->has_heard = true;
  if (kind == END && read_failure(w, count, &failure)) {
    w->has_told = true; /* rank 0 knows */
    comm_fail(w->comm, failure.status, failure.sentence);
  } else if (kind == AT && count == sizeof(Progress)) {
    memcpy(&w->peer[0].progress, w->message, sizeof(Progress));
  } else if (kind == LEAVES) {
    w->peer[0].has_left = true;
    comm_let_leave(w->comm);
  } else if (kind == NOTES && count == sizeof(NotesMessage)) {
    NotesMessage notes;
    memcpy(&notes, w->message, sizeof notes);
    Expected *expected = &w->expected[notes.order == ORDER_STAGE];
    if (notes.first > expected->to + 1 && expected->compared < notes.first - 1)
      expected->compared = notes.first - 1; /* that rank was too fast for its watch */
    for (int i = 0; i < notes.count && i < NOTES_IN_ONE; i++)
      expected->hash[(notes.first + i) % BOARD_RING] = notes.hash[i];
    expected->to = notes.first + notes.count - 1;
  }
}

static bool send_to_rank_0(Watch *w, int kind, const void *bytes, size_t count) {
  BoardLink *link = &w->peer[0].link;
  if (link->socket < 0) return false;
  if ((kind == NOTES ? board_send_if_room : board_send)(link, kind, bytes, count)) return true;
  lost_rank_0(w);
  return false;
}

/* What both have entered must be the same. */
static void watch_compare(Watch *w, CommOrder order) {
  Expected *e = &w->expected[order];
  int64_t entered = order == ORDER_ALL ? w->said.entered : w->said.entered_in_stage;
  if (e->compared < e->to - BOARD_RING) e->compared = e->to - BOARD_RING;
  for (Note own; e->compared < e->to; e->compared++) {
    int64_t number = e->compared + 1;
    if (!comm_read_note(w->comm, order, number, &own)) {
      if (number > entered) return; /* not yet */
      continue;
    }
    if (own.hash == e->hash[number % BOARD_RING]) continue;
    OtherMessage other = {.order = order, .number = number};
    snprintf(other.text, sizeof other.text, "%s", own.text);
    send_to_rank_0(w, OTHER, &other, sizeof other);
    e->to = e->compared; /* once is enough */
    return;
  }
}

/* Those that others are compared with. */
static void send_notes(Watch *w, CommOrder order) {
  Note note[NOTES_IN_ONE];
  NotesMessage message = {.order = order};
  int own = w->comm->place.rank;
  if (comm_reference(w->comm, order, own) != own) return;
  while ((message.count = comm_next_notes(w->comm, order, note, NOTES_IN_ONE, &message.first)) >
         0) {
    for (int i = 0; i < message.count; i++) message.hash[i] = note[i].hash;
    if (is_judge(w))
      hand_notes(w, own, &message);
    else
      send_to_rank_0(w, NOTES, &message, sizeof message);
  }
}

/* Rank 0 should have said something by now. */
static void judge_rank_0(Watch *w) {
  char sentence[COMM_SENTENCE];
  Judge j = judge_of(w);
  int64_t now = clock_nanoseconds(), silent = now - w->peer[0].heard;
  int64_t patience = w->has_heard ? second : gathering;
  if (!w->late || now - w->late_since < patience || silent < patience) return;
  judge_silent_0(&j, &w->said, silent, sentence);
  comm_fail_without_rank_0(w->comm, sentence);
}

/* ── all ──────────────────────────────────────────────────────────────────────────────────── */
static void tell_progress(Watch *w) {
  Progress now;
  int64_t time = clock_nanoseconds();
  comm_progress(w->comm, &now);
  bool is_late = now.oldest && (double)(time - now.since) > w->comm->timeout * 1e9;
  bool is_new = now.entered != w->said.entered || now.oldest != w->said.oldest ||
                now.entered_in_stage != w->said.entered_in_stage;
  int kind = 0;
  if (is_new) kind = AT;
  if (is_late && w->late != now.oldest) kind = LATE;
  if (!is_late) w->late = 0;
  if (kind == LATE) w->late = now.oldest, w->late_since = time;
  w->said = now;
  if (!kind) return;
  if (!is_judge(w)) {
    send_to_rank_0(w, kind, &now, sizeof now);
    return;
  }
  hear_progress(&w->peer[0], &now);
  if (kind == LATE) w->peer[0].late_since = time;
}

static void tell_urgent(Watch *w) {
  bool fails = atomic_load(&w->fails), leaves = atomic_load(&w->leaves);
  if (fails && !w->has_told) {
    w->has_told = true;
    if (is_judge(w))
      tell_all(w, END, &w->complaint, failure_bytes(&w->complaint));
    else
      send_to_rank_0(w, FAILS, &w->complaint, failure_bytes(&w->complaint));
  }
  if (leaves && is_judge(w)) w->peer[0].has_left = true;
  if (leaves && !is_judge(w) && !w->has_said_leaves) {
    w->has_said_leaves = true;
    send_to_rank_0(w, LEAVES, NULL, 0);
  }
  if ((!fails && !leaves) || atomic_load(&w->is_flushed)) return;
  pthread_mutex_lock(&w->comm->lock);
  atomic_store(&w->is_flushed, true);
  pthread_cond_broadcast(&w->comm->changed);
  pthread_mutex_unlock(&w->comm->lock);
}

static void ping(Watch *w) {
  int64_t now = clock_nanoseconds();
  Progress progress;
  if (now - w->pinged < ping_every) return;
  w->pinged = now;
  comm_progress(w->comm, &progress);
  if (is_judge(w)) hear_progress(&w->peer[0], &progress);
  for (int r = 0; r < w->comm->place.ranks; r++) {
    if (w->peer[r].link.socket >= 0 && 
        !board_send_if_read(&w->peer[r].link, AT, &progress, sizeof progress)) {
      if (is_judge(w))
        lost_as_judge(w, r);
      else
        lost_rank_0(w);
    }
    if (!is_judge(w)) return;
  }
}

/* The job has failed and the caller does not come to hear it: it computes, or hangs. */
static void end_process(Watch *w) {
  Comm *comm = w->comm;
  pthread_mutex_lock(&comm->lock);
  int64_t since = comm->has_failed ? clock_nanoseconds() - comm->failed_at : 0;
  bool is_heard = comm->is_told || comm->is_closing;
  bool is_over = since > grace && !comm->is_closing;
  pthread_mutex_unlock(&comm->lock);
  if (comm_speaks(comm) && since > second / 2 && !is_heard && !w->has_printed) {
    w->has_printed = true;
    fprintf(stderr, "%s\n", comm->sentence);
  }
  if (!is_over) return;
  launcher_see_off(comm->launcher);
  _exit(comm->failed_as);
}

static void read_links(Watch *w, struct pollfd *poll_for, const int *rank, int count) {
  for (int i = 0; i < count; i++) {
    Peer *peer = &w->peer[rank[i]];
    int kind = 1;
    if (!poll_for[i].revents) continue;
    for (size_t bytes; kind && peer->link.socket >= 0;) {
      bool is_there = board_receive(&peer->link, &kind, w->message, &bytes);
      if (!is_there && is_judge(w)) lost_as_judge(w, rank[i]);
      if (!is_there && !is_judge(w)) lost_rank_0(w);
      if (!is_there || !kind) break;
      if (is_judge(w))
        hear_as_judge(w, rank[i], kind, bytes);
      else
        hear_rank_0(w, kind, bytes);
    }
  }
}

/* Rank 0 was stopped: that the others are gone is no fault of theirs. */
static void notice_pause(Watch *w) {
  int64_t now = clock_nanoseconds();
  w->pause = w->looked ? now - w->looked : 0;
  if ((double)w->pause > w->comm->timeout * 1e9) w->was_away = w->pause;
  w->looked = now;
  if (!is_judge(w)) return;
  Judge j = judge_of(w);
  judge_heard(&j, 0, 0);
}

static void wait_and_read(Watch *w, struct pollfd *poll_for, int *rank) {
  int count = 0, peers = is_judge(w) ? w->comm->place.ranks : 1;
  for (int r = 0; r < peers; r++)
    if (w->peer[r].link.socket >= 0) {
      rank[count] = r;
      poll_for[count++] = (struct pollfd){.fd = w->peer[r].link.socket, .events = POLLIN};
    }
  poll_for[count] = (struct pollfd){.fd = w->wake, .events = POLLIN};
  poll(poll_for, (nfds_t)count + 1, TICK);
  notice_pause(w);
  if (poll_for[count].revents) {
    uint64_t value;
    if (read(w->wake, &value, sizeof value) < 0) value = 0;
  }
  read_links(w, poll_for, rank, count);
}

static void *watch_main(void *argument) {
  Watch *w = argument;
  int ranks = w->comm->place.ranks;
  struct pollfd *poll_for = calloc((size_t)ranks + 1, sizeof *poll_for);
  int *rank = calloc((size_t)ranks + 1, sizeof *rank);
  sigset_t before;
  guard_block_signals(&before);
  if (!poll_for || !rank) comm_fail(w->comm, STATUS_FAULT, "out of memory");
  while (poll_for && rank) {
    bool is_ending = atomic_load(&w->is_ending);
    wait_and_read(w, poll_for, rank);
    for (CommOrder order = ORDER_ALL; order < ORDER_COUNT; order++) send_notes(w, order);
    tell_progress(w);
    for (CommOrder order = ORDER_ALL; order < ORDER_COUNT && !is_judge(w); order++)
      watch_compare(w, order);
    tell_urgent(w);
    ping(w);
    if (is_judge(w))
      judge(w);
    else
      judge_rank_0(w);
    end_process(w);
    if (is_ending) break;
  }
  free(poll_for);
  free(rank);
  return NULL;
}

/* ── starting and ending ──────────────────────────────────────────────────────────────────── */
/* To those that have come, which are at work already. */
static Status gathering_failed(Watch *w) {
  Failure failure = {.status = STATUS_FAULT};
  snprintf(failure.sentence, sizeof failure.sentence, "%s", status_message());
  tell_all(w, END, &failure, failure_bytes(&failure));
  return STATUS_FAULT;
}

/* Rank 0: everybody else. */
static Status gather(Watch *w) {
  Comm *comm = w->comm;
  int missing = comm->place.ranks - 1;
  int64_t end = clock_nanoseconds() + (int64_t)(comm->timeout * 1e9);
  while (missing && clock_nanoseconds() < end) {
    struct pollfd poll_for = {.fd = comm->board.listening, .events = POLLIN};
    BoardLink link;
    int rank;
    if (poll(&poll_for, 1, 100) <= 0) continue;
    board_accept(&comm->board, &link, &rank);
    if (link.socket < 0) continue;
    if (rank < 1 || rank >= comm->place.ranks || w->peer[rank].link.socket >= 0) {
      board_drop(&link);
      continue;
    }
    w->peer[rank].link = link;
    missing--;
  }
  board_close(&comm->board);
  char sentence[COMM_SENTENCE];
  if (missing && arrivals_find_missing(comm->timeout, sentence, sizeof sentence))
    return status_fail(STATUS_FAULT, "%s", sentence);
  for (int r = 1; r < comm->place.ranks && missing; r++)
    if (w->peer[r].link.socket < 0)
      return status_fail(STATUS_FAULT,
                         "rank %d (host %s) has not come to rank 0 (host %s) within %g s: is there "
                         "a firewall between them?",
                         r, comm->seats[r].host, comm->seats[0].host, comm->timeout);
  return STATUS_OK;
}

Status watch_start(Comm *comm, Watch **out) {
  Watch *w = calloc(1, sizeof *w);
  if (!w) return status_fail(STATUS_FAULT, "out of memory");
  Peer *peer = calloc((size_t)comm->place.ranks, sizeof *peer);
  *out = w;
  w->comm = comm;
  w->peer = peer;
  w->is_named = calloc((size_t)comm->place.ranks, sizeof *w->is_named);
  w->wake = -1;
  if (!peer || !w->is_named) return status_fail(STATUS_FAULT, "out of memory");
  w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (w->wake < 0) return status_fail(STATUS_FAULT, "out of file descriptors");
  for (int r = 0; r < comm->place.ranks; r++) peer[r].link.socket = -1;
  if (is_judge(w) && gather(w) != STATUS_OK) return gathering_failed(w);
  if (!is_judge(w))
    STATUS_TRY(board_connect(&comm->board, comm->place.rank, comm->host, comm->timeout,
                             &peer[0].link));
  for (int r = 0; r < comm->place.ranks; r++) peer[r].heard = clock_nanoseconds();
  if (pthread_create(&w->thread, NULL, watch_main, w) != 0)
    return status_fail(STATUS_FAULT, "cannot start a thread");
  w->has_thread = true;
  return STATUS_OK;
}

static void watch_wake(Watch *w) {
  uint64_t one = 1;
  if (write(w->wake, &one, sizeof one) < 0) return; /* it is awake */
}

void watch_tell_failure(Watch *w, Status status, const char *sentence) {
  if (!w) return;
  if (!atomic_load(&w->fails)) {
    w->complaint.status = status;
    snprintf(w->complaint.sentence, sizeof w->complaint.sentence, "%s", sentence);
    atomic_store(&w->fails, true);
  }
  watch_wake(w);
}

void watch_tell_leaving(Watch *w) {
  if (!w) return;
  atomic_store(&w->leaves, true);
  watch_wake(w);
}

static void watch_wait(Watch *w, atomic_bool *flag, double seconds) {
  int64_t end = clock_nanoseconds() + (int64_t)(seconds * 1e9);
  if (!w) return;
  pthread_mutex_lock(&w->comm->lock);
  while (!atomic_load(flag) && clock_nanoseconds() < end)
    comm_wait(w->comm, &w->comm->changed, end - clock_nanoseconds());
  pthread_mutex_unlock(&w->comm->lock);
}

void watch_flush(Watch *w, double seconds) {
  if (w) watch_wait(w, &w->is_flushed, seconds);
}

void watch_wait_for_rank_0(Watch *w, double seconds) {
  if (w && !is_judge(w)) watch_wait(w, &w->is_rank_0_gone, seconds);
}

void watch_stop(Watch *w) {
  if (!w) return;
  atomic_store(&w->is_ending, true);
  if (w->has_thread) {
    watch_wake(w);
    pthread_join(w->thread, NULL);
  }
  for (int r = 0; w->peer && r < w->comm->place.ranks; r++) board_drop(&w->peer[r].link);
  if (w->wake >= 0) close(w->wake);
  free(w->peer);
  free(w->is_named);
  free(w);
}
