/* judge: the sentences of a job that has failed (watch_private.h). */
#include "runtime/communicate/watch_private.h"
#include <stdio.h>
#include <string.h>

/* A rank that lives says something every quarter of a second. */
static const int64_t silent_after = 1500000000;
/* One that comes back goes on with what the others wait for. */
static const double just_back = 2e9;

enum { SEEN = COMM_DOING + 64, SEVERAL_SEEN = 2 * SEEN, NAMES = 400, WORK = COMM_TEXT + 64 };

static bool is_silent(const Judge *j, int rank) {
  return rank > 0 && j->now - j->peer[rank].heard > silent_after;
}

void judge_heard(const Judge *j, int rank, int64_t own_pause) {
  Peer *peer = &j->peer[rank];
  int64_t silence = j->now - peer->heard - own_pause;
  if (silence > silent_after) {
    peer->away = silence;
    peer->back = j->now;
  }
  peer->heard = j->now;
}

/* It has kept the others waiting, and has been back for less than `since`. */
static bool was_away(const Judge *j, int rank, double since) {
  const Peer *peer = &j->peer[rank];
  return peer->back && (double)peer->away > j->comm->timeout * 5e8 &&
         (double)(j->now - peer->back) < since;
}

static int find_away(const Judge *j, bool *is_named, double since) {
  int away = 0;
  for (int r = 0; r < j->ranks; r++) away += is_named[r] = was_away(j, r, since);
  return away;
}

/* "rank 1 (host n3, cuda:1)", "ranks 1, 2 (hosts n3, n4)" */
static void name_ranks(const Judge *j, const bool *is_named, char *out, size_t size) {
  enum { MOST = 4 };
  char ranks[96] = "", hosts[MOST * (BOARD_HOST + 2)] = "", seat[COMM_SEAT];
  int count = 0, r_at = 0, h_at = 0, last = 0;
  for (int r = 0; r < j->ranks; r++) {
    if (!is_named[r] || ++count > MOST) continue;
    const char *between = count > 1 ? ", " : "", *host = j->comm->seats[r].host;
    r_at += snprintf(ranks + r_at, sizeof ranks - (size_t)r_at, "%s%d", between, r);
    h_at += snprintf(hosts + h_at, sizeof hosts - (size_t)h_at, "%s%s", between, host);
    last = r;
  }
  comm_seat(j->comm, last, seat, sizeof seat);
  if (count == 1)
    snprintf(out, size, "rank %d (%s)", last, seat);
  else
    snprintf(out, size, "ranks %s%s (hosts %s)", ranks, count > MOST ? ", …" : "", hosts);
}

/* "all_reduce #37 (gradients) of step 1207": of "all_reduce of 12 f32 (gradients)". */
static void name_work(const Progress *progress, char *out, size_t size) {
  const char *label = strchr(progress->text, '(');
  int kind = (int)strcspn(progress->text, " "), length;
  if (progress->oldest_collective)
    length = snprintf(out, size, "%.*s #%lld %s", kind, progress->text,
                      (long long)progress->oldest_collective, label ? label : "");
  else
    length = snprintf(out, size, "%s", progress->text);
  if (progress->oldest_step > 0 && (size_t)length < size)
    snprintf(out + length, size - (size_t)length, " of step %lld",
             (long long)progress->oldest_step);
}

/* "in step 1207, kernel dot (line 5)", "opening its data" */
static void name_doing(const Progress *progress, char *out, size_t size) {
  if (progress->step > 0 && progress->doing[0])
    snprintf(out, size, "in step %lld, %s", (long long)progress->step, progress->doing);
  else if (progress->step > 0)
    snprintf(out, size, "in step %lld", (long long)progress->step);
  else
    snprintf(out, size, "%s", progress->doing[0] ? progress->doing : "at its start");
}

/* "it was last seen in step 1207, kernel dot (line 5)" */
static void judge_seen(const Progress *progress, char *out, size_t size) {
  char doing[COMM_DOING + 32];
  name_doing(progress, doing, sizeof doing);
  snprintf(out, size, "it was last seen %s", doing);
}

/* "it was last seen in step 7, kernel a", "last seen: rank 1 in step 7, kernel a, rank 2 in …" */
static void name_seen(const Judge *j, const bool *is_named, char *out, size_t size) {
  enum { MOST = 2 };
  int count = 0, only = 0, told = 0;
  size_t at = 0;
  for (int r = 0; r < j->ranks; r++)
    if (is_named[r]) count++, only = r;
  if (count == 1) {
    judge_seen(&j->peer[only].progress, out, size);
    return;
  }
  for (int r = 0; r < j->ranks && told < MOST && at < size; r++) {
    char doing[COMM_DOING + 32];
    if (!is_named[r]) continue;
    name_doing(&j->peer[r].progress, doing, sizeof doing);
    at += (size_t)snprintf(out + at, size - at, "%srank %d %s", told ? ", " : "last seen: ", r,
                           doing);
    told++;
  }
  if (count > MOST && at < size) snprintf(out + at, size - at, ", …");
}

/* ── who is late ──────────────────────────────────────────────────────────────────────────── */
/* A collective that rank `of` waits for is one of all ranks, or of those of its stage. */
static bool is_in_scope(const Judge *j, const Progress *waiting, int of, int rank) {
  const Mesh *mesh = &j->comm->mesh;
  return !waiting->oldest_is_in_stage ||
         mesh_index(mesh, MESH_PIPELINE, of) == mesh_index(mesh, MESH_PIPELINE, rank);
}

/* Of the order that the one is of which `waiting` waits for. */
static int64_t has_entered(const Progress *waiting, const Progress *progress) {
  return waiting->oldest_is_in_stage ? progress->entered_in_stage : progress->entered;
}

/* The first collective that a rank waits for, of those that can be heard: who waits for an earlier
 * one does not stay away from the later one by itself. */
static const Progress *first_waited_for(const Judge *j, int of) {
  const Progress *first = &j->peer[of].progress;
  for (int r = 0; r < j->ranks; r++) {
    const Progress *progress = &j->peer[r].progress;
    bool waits = progress->oldest_collective > 0 && !is_silent(j, r) &&
                 progress->oldest_is_in_stage == first->oldest_is_in_stage &&
                 is_in_scope(j, first, of, r);
    if (waits && progress->oldest_collective < first->oldest_collective) first = progress;
  }
  return first;
}

/* It is about what may last, and goes on with it. */
static bool is_excused(const Judge *j, int rank) {
  const Peer *peer = &j->peer[rank];
  return peer->progress.may_last && !is_silent(j, rank) &&
         (double)(j->now - peer->moved) < j->comm->timeout * 1e9;
}

/* Those that have not entered what rank `of` waits for, but for `excused` ones. */
static int find_missing(const Judge *j, const Progress *waiting, int of, bool *is_missing,
                        int *silent, int *excused) {
  int missing = 0;
  *silent = *excused = 0;
  for (int r = 0; r < j->ranks; r++) {
    bool is_there = !is_in_scope(j, waiting, of, r) ||
                    has_entered(waiting, &j->peer[r].progress) >= waiting->oldest_collective;
    is_missing[r] = !is_there && !is_excused(j, r);
    missing += is_missing[r];
    *silent += is_missing[r] && is_silent(j, r);
    *excused += !is_there && !is_missing[r];
  }
  return missing;
}

static int find_silent(const Judge *j, bool *is_named) {
  int silent = 0;
  for (int r = 0; r < j->ranks; r++) silent += is_named[r] = is_silent(j, r);
  return silent;
}

/* Of works between two: those that wait for nobody. */
static int find_busy(const Judge *j, bool *is_named) {
  int busy = 0;
  for (int r = 0; r < j->ranks; r++) busy += is_named[r] = !j->peer[r].progress.oldest;
  return busy;
}

static void say_missing(const Judge *j, const char *work, int missing, int silent,
                        char *sentence) {
  char names[NAMES], seen[SEVERAL_SEEN];
  int others = j->ranks - missing;
  name_ranks(j, j->is_named, names, sizeof names);
  name_seen(j, j->is_named, seen, sizeof seen);
  snprintf(sentence, COMM_SENTENCE, "%s %s not entered %s for %g s%s; %s; the other %d wait%s", names,
           missing == 1 ? "has" : "have", work, j->comm->timeout,
           silent == missing ? " and nothing is heard from there (stopped, or cut off)" : "", seen,
           others, others == 1 ? "s" : "");
}

/* All have entered it, or it is between two. */
static void say_unended(const Judge *j, const Progress *progress, int rank, const char *work,
                        char *sentence) {
  char names[NAMES], seen[SEVERAL_SEEN], seat[COMM_SEAT];
  bool *is_named = j->is_named;
  double seconds = j->comm->timeout;
  comm_seat(j->comm, rank, seat, sizeof seat);
  if (find_silent(j, is_named)) {
    name_ranks(j, is_named, names, sizeof names);
    name_seen(j, is_named, seen, sizeof seen);
    snprintf(sentence, COMM_SENTENCE,
             "nothing is heard from %s (stopped, or cut off), and %s, which rank %d has begun, "
             "does not end for %g s; %s",
             names, work, rank, seconds, seen);
  } else if (find_away(j, is_named, seconds * 1e9)) {
    name_ranks(j, is_named, names, sizeof names);
    snprintf(sentence, COMM_SENTENCE,
             "nothing was heard from %s for long (stopped, or cut off), and %s, which rank %d has "
             "begun, does not end for %g s",
             names, work, rank, seconds);
  } else if (progress->oldest_collective && progress->oldest_is_in_stage) {
    snprintf(sentence, COMM_SENTENCE,
             "all %d ranks of stage %d have entered %s, and it does not end for %g s: does the "
             "network between them work?",
             mesh_size(&j->comm->mesh, MESH_STAGE),
             mesh_index(&j->comm->mesh, MESH_PIPELINE, rank), work, seconds);
  } else if (progress->oldest_collective) {
    snprintf(sentence, COMM_SENTENCE,
             "all %d ranks have entered %s, and it does not end for %g s: does the network between "
             "them work?",
             j->ranks, work, seconds);
  } else if (find_busy(j, is_named)) {
    name_ranks(j, is_named, names, sizeof names);
    name_seen(j, is_named, seen, sizeof seen);
    snprintf(sentence, COMM_SENTENCE, "rank %d (%s) waits for %g s in its %s; %s %s for nobody; %s",
             rank, seat, seconds, work, names, strncmp(names, "ranks", 5) ? "waits" : "wait", seen);
  } else if (progress->oldest_is_message) {
    char other[WORK];
    int peer = progress->oldest_peer;
    for (int r = 0; r < j->ranks; r++) is_named[r] = r == rank || r == peer;
    name_work(&j->peer[peer].progress, other, sizeof other);
    name_seen(j, is_named, seen, sizeof seen);
    snprintf(sentence, COMM_SENTENCE,
             "rank %d (%s) waits for %g s in its %s, and rank %d in its %s; %s", rank, seat, seconds,
             work, peer, other, seen);
  } else {
    snprintf(sentence, COMM_SENTENCE, "rank %d (%s) waits for %g s in its %s", rank, seat, seconds,
             work);
  }
}

/* Of those that have not entered what the rank waits for the first one, if they all wait in messages;
 * -1: they do not, or there are none. */
static int next_waiting(const Judge *j, int rank) {
  int silent, excused, next = -1;
  find_missing(j, first_waited_for(j, rank), rank, j->is_named, &silent, &excused);
  for (int r = j->ranks - 1; r >= 0; r--) {
    if (!j->is_named[r]) continue;
    if (!j->peer[r].progress.oldest_is_message || is_silent(j, r)) return -1;
    next = r;
  }
  return next;
}

/* Who waits in a message, or for those that wait in one, waits for another rank in turn: the one at
 * the end of these, and *before, the one that waits for it in a message; -1: none does. */
static int find_end(const Judge *j, int rank, int *before) {
  *before = -1;
  for (int i = 0; i < 2 * j->ranks && !is_silent(j, rank); i++) {
    const Progress *progress = &j->peer[rank].progress;
    int next = progress->oldest_is_message    ? progress->oldest_peer
               : progress->oldest_collective ? next_waiting(j, rank)
                                             : -1;
    if (next < 0) break;
    *before = progress->oldest_is_message ? rank : -1;
    rank = next;
  }
  return rank;
}

/* What `waiting` waits for: "transfer (activations of micro-batch 3 to stage 1) of step 7". */
static void say_unsent(const Judge *j, int rank, int waiting, char *sentence) {
  const Progress *progress = &j->peer[waiting].progress;
  bool is_sent = strncmp(progress->text, "send", 4) == 0, is_gone = is_silent(j, rank);
  char names[NAMES], seen[SEVERAL_SEEN], step[32] = "";
  const char *label = strchr(progress->text, '(');
  for (int r = 0; r < j->ranks; r++) j->is_named[r] = r == rank;
  name_ranks(j, j->is_named, names, sizeof names);
  name_seen(j, j->is_named, seen, sizeof seen);
  if (progress->oldest_step > 0)
    snprintf(step, sizeof step, " of step %lld", (long long)progress->oldest_step);
  snprintf(sentence, COMM_SENTENCE,
           "%s has not %s transfer %s%s for %g s%s; %s; the other %d wait%s", names,
           is_sent ? "taken" : "sent", label ? label : "", step, j->comm->timeout,
           is_gone ? " and nothing is heard from there (stopped, or cut off)" : "", seen,
           j->ranks - 1, j->ranks == 2 ? "s" : "");
}

bool judge_late(const Judge *j, int rank, char *sentence) {
  char work[WORK];
  int missing = 0, silent = 0, excused = 0, before, end = find_end(j, rank, &before);
  if (before >= 0 && (is_silent(j, end) || !j->peer[end].progress.oldest)) {
    if (is_excused(j, end) || was_away(j, end, just_back)) return false;
    say_unsent(j, end, before, sentence);
    return true;
  }
  if (!j->peer[end].progress.oldest_is_message) rank = end;
  const Progress *progress = &j->peer[rank].progress;
  if (progress->oldest_collective) progress = first_waited_for(j, rank);
  if (progress->oldest_collective)
    missing = find_missing(j, progress, rank, j->is_named, &silent, &excused);
  if (!missing && (excused || find_away(j, j->is_named, just_back))) return false;
  name_work(progress, work, sizeof work);
  if (missing)
    say_missing(j, work, missing, silent, sentence);
  else
    say_unended(j, progress, rank, work, sentence);
  return true;
}

/* ── who is gone ──────────────────────────────────────────────────────────────────────────── */
/* What it had entered last, if it is not in it any more. */
static void name_last(const Judge *j, const Progress *progress, char *out, size_t size) {
  Progress before = {.oldest_collective = progress->entered};
  Note last;
  comm_read_note(j->comm, ORDER_ALL, progress->entered, &last);
  snprintf(before.text, sizeof before.text, "%s", last.text);
  name_work(&before, out, size);
}

void judge_dead(const Judge *j, int rank, char *sentence) {
  const Progress *progress = &j->peer[rank].progress;
  char work[WORK] = "", seen[SEEN], seat[COMM_SEAT];
  const char *where = "";
  comm_seat(j->comm, rank, seat, sizeof seat);
  judge_seen(progress, seen, sizeof seen);
  if (progress->oldest) {
    where = ", in ";
    name_work(progress, work, sizeof work);
  } else if (progress->entered) {
    where = ", behind ";
    name_last(j, progress, work, sizeof work);
  }
  snprintf(sentence, COMM_SENTENCE,
           "rank %d (%s) has ended without a word (killed, or out of memory); %s%s%s; the other %d "
           "end%s",
           rank, seat, seen, where, work, j->ranks - 1, j->ranks == 2 ? "s" : "");
}

void judge_silent_0(const Judge *j, const Progress *own, int64_t silent, char *sentence) {
  char work[WORK], seen[SEEN], seat[COMM_SEAT];
  comm_seat(j->comm, 0, seat, sizeof seat);
  judge_seen(&j->peer[0].progress, seen, sizeof seen);
  name_work(own, work, sizeof work);
  snprintf(sentence, COMM_SENTENCE,
           "nothing is heard from rank 0 (%s) for %d s (stopped, or cut off); %s; rank %d waits "
           "for %g s in %s",
           seat, (int)(silent / 1000000000), seen, j->comm->place.rank, j->comm->timeout, work);
}

bool judge_left(const Judge *j, char *sentence) {
  char seat[COMM_SEAT], work[WORK];
  for (int r = 0; r < j->ranks; r++)
    for (int gone = 0; gone < j->ranks; gone++) {
      const Progress *waiting = &j->peer[r].progress;
      bool is_there = !is_in_scope(j, waiting, r, gone) ||
                      has_entered(waiting, &j->peer[gone].progress) >= waiting->oldest_collective;
      if (!j->peer[gone].has_left || is_there) continue; /* a message may have gone before it left */
      comm_seat(j->comm, gone, seat, sizeof seat);
      name_work(waiting, work, sizeof work);
      snprintf(sentence, COMM_SENTENCE,
               "rank %d (%s) has ended its run, and rank %d waits for it in %s", gone, seat, r,
               work);
      return true;
    }
  return false;
}
