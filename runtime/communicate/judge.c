/* judge: the sentences of a job that has failed (watch_private.h). */
#include "runtime/communicate/watch_private.h"
#include <stdio.h>
#include <string.h>

/* A rank that lives says something every quarter of a second. */
static const int64_t silent_after = 1500000000;

static bool is_silent(const Judge *j, int rank) {
  return rank > 0 && j->now - j->peer[rank].heard > silent_after;
}

/* "rank 1 (host n3)", "ranks 1, 2 (hosts n3, n4)" */
static void name_ranks(const Judge *j, const bool *is_named, char *out, size_t size) {
  enum { MOST = 4 };
  char ranks[96] = "", hosts[MOST * (BOARD_HOST + 2)] = "";
  int count = 0, r_at = 0, h_at = 0;
  for (int r = 0; r < j->ranks; r++) {
    if (!is_named[r] || ++count > MOST) continue;
    const char *between = count > 1 ? ", " : "";
    r_at += snprintf(ranks + r_at, sizeof ranks - (size_t)r_at, "%s%d", between, r);
    h_at += snprintf(hosts + h_at, sizeof hosts - (size_t)h_at, "%s%s", between, j->comm->hosts[r]);
  }
  const char *several = count > 1 ? "s" : "";
  snprintf(out, size, "rank%s %s%s (host%s %s)", several, ranks, count > MOST ? ", …" : "",
           several, hosts);
}

/* "all_reduce #37 (gradients)": of "all_reduce of 12 f32 (gradients)". */
static void name_work(const Progress *progress, char *out, size_t size) {
  const char *label = strchr(progress->text, '(');
  int kind = (int)strcspn(progress->text, " ");
  if (progress->oldest_collective)
    snprintf(out, size, "%.*s #%lld %s", kind, progress->text,
             (long long)progress->oldest_collective, label ? label : "");
  else
    snprintf(out, size, "%s", progress->text);
}

static void name_rank(const Judge *j, int rank, char *out, size_t size) {
  snprintf(out, size, "rank %d (host %s)", rank, j->comm->hosts[rank]);
}

enum { NAMES = 400 };

static int find_missing(const Judge *j, int64_t collective, bool *is_missing) {
  int missing = 0;
  for (int r = 0; r < j->ranks; r++)
    missing += is_missing[r] = j->peer[r].progress.entered < collective;
  return missing;
}

static int find_silent(const Judge *j, bool *is_named) {
  int silent = 0;
  for (int r = 0; r < j->ranks; r++) silent += is_named[r] = is_silent(j, r);
  return silent;
}

bool judge_late(const Judge *j, int rank, char *sentence) {
  const Progress *progress = &j->peer[rank].progress;
  char names[NAMES], work[COMM_TEXT + 32];
  bool *is_named = j->is_named;
  double seconds = j->comm->timeout;
  int64_t collective = progress->oldest_collective;
  name_work(progress, work, sizeof work);
  int missing = collective ? find_missing(j, collective, is_named) : 0;
  if (missing) {
    int silent = 0, others = j->ranks - missing;
    for (int r = 0; r < j->ranks; r++) silent += is_named[r] && is_silent(j, r);
    name_ranks(j, is_named, names, sizeof names);
    snprintf(sentence, COMM_SENTENCE, "%s %s not entered %s for %g s%s; the other %d wait%s", names,
             missing == 1 ? "has" : "have", work, seconds,
             silent == missing ? " and nothing is heard from there (stopped, or cut off)" : "",
             others, others == 1 ? "s" : "");
    return true;
  }
  if (find_silent(j, is_named)) {
    name_ranks(j, is_named, names, sizeof names);
    snprintf(sentence, COMM_SENTENCE,
             "nothing is heard from %s (stopped, or cut off), and %s, which rank %d has begun, "
             "does not end for %g s",
             names, work, rank, seconds);
    return true;
  }
  name_rank(j, rank, names, sizeof names);
  if (collective)
    snprintf(sentence, COMM_SENTENCE,
             "all %d ranks have entered %s, and it does not end for %g s: does the network between "
             "them work?",
             j->ranks, work, seconds);
  else
    snprintf(sentence, COMM_SENTENCE, "%s waits for %g s in its %s", names, seconds, work);
  return true;
}

void judge_dead(const Judge *j, int rank, char *sentence) {
  const Progress *progress = &j->peer[rank].progress;
  char work[COMM_TEXT + 32];
  int length = snprintf(sentence, COMM_SENTENCE,
                        "rank %d (host %s) has ended without a word: was it killed, or had no "
                        "memory?",
                        rank, j->comm->hosts[rank]);
  if (progress->oldest) {
    name_work(progress, work, sizeof work);
    snprintf(sentence + length, (size_t)(COMM_SENTENCE - length), " It was in %s", work);
  } else if (progress->entered) {
    Progress before = {.oldest_collective = progress->entered};
    Note last;
    comm_read_note(j->comm, progress->entered, &last);
    snprintf(before.text, sizeof before.text, "%s", last.text);
    name_work(&before, work, sizeof work);
    snprintf(sentence + length, (size_t)(COMM_SENTENCE - length), " It was behind %s", work);
  }
}

bool judge_left(const Judge *j, char *sentence) {
  char names[NAMES], work[COMM_TEXT + 32];
  for (int r = 0; r < j->ranks; r++)
    for (int gone = 0; gone < j->ranks; gone++) {
      const Progress *waiting = &j->peer[r].progress;
      if (!j->peer[gone].has_left || j->peer[gone].progress.entered >= waiting->oldest_collective)
        continue;
      name_rank(j, gone, names, sizeof names);
      name_work(waiting, work, sizeof work);
      snprintf(sentence, COMM_SENTENCE, "%s has ended its run, and rank %d waits for it in %s",
               names, r, work);
      return true;
    }
  return false;
}
