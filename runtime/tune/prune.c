/* prune: see prune.h. */
#include "runtime/tune/prune.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int prune_find(const char *name) {
  static const char *const names[] = {"none", "median", "asha", "hyperband"};
  for (int i = 0; i < 4; i++)
    if (!strcmp(name, names[i])) return i;
  return -1;
}

/* As something to be minimised; NAN and infinities are worst. */
static double as_loss(const Journal *journal, double value) {
  if (!isfinite(value)) return INFINITY;
  return journal->is_max ? -value : value;
}

/* The best value up to a step; false if the trial did not come there. */
static bool best_until(const Journal *journal, const Trial *trial, double step, double *best) {
  bool came = false;
  *best = INFINITY;
  for (int i = 0; i < trial->report_count && trial->report[i].step <= step; i++)
    *best = fmin(*best, as_loss(journal, trial->report[i].value));
  for (int i = 0; i < trial->report_count; i++) came |= trial->report[i].step >= step;
  return came;
}

static bool is_below_median(const Journal *journal, int number, double step) {
  const Trial *trial = &journal->trial[number];
  double own, *others = malloc((size_t)(journal->count + 1) * sizeof *others);
  int count = 0, ended = 0;
  if (!others) return false;
  for (int i = 0; i < journal->count; i++) {
    ended += journal->trial[i].state == TRIAL_COMPLETE;
    if (i != number && best_until(journal, &journal->trial[i], step, &others[count])) count++;
  }
  best_until(journal, trial, step, &own);
  qsort(others, (size_t)count, sizeof *others, value_compare);
  bool is_worse =
      count >= 3 && ended >= 5 && own > (others[(count - 1) / 2] + others[count / 2]) / 2;
  free(others);
  return is_worse;
}

/* The value with which a trial came to a rung: its report there or the first behind it. */
static bool at_rung(const Journal *journal, const Trial *trial, double rung, double *value) {
  for (int i = 0; i < trial->report_count; i++)
    if (trial->report[i].step >= rung)
      return *value = as_loss(journal, trial->report[i].value), true;
  return false;
}

static bool is_left_at(const Journal *journal, int number, double rung, double factor,
                       const int *bracket) {
  double own, other;
  int came = 0, better = 0;
  if (!at_rung(journal, &journal->trial[number], rung, &own)) return false;
  for (int i = 0; i < journal->count; i++) {
    if ((bracket && bracket[i] != bracket[number]) ||
        !at_rung(journal, &journal->trial[i], rung, &other))
      continue;
    came++;
    better += other < own;
  }
  if (own == INFINITY) return true;
  return better >= (came < factor ? 1 : (int)(came / factor)) && came > 1;
}

/* The rungs between the report before the last one and the last: a trial is asked once at each. */
static bool is_left_at_rungs(const PruneRule *rule, const Journal *journal, int number,
                             double first, const int *bracket) {
  const Trial *trial = &journal->trial[number];
  int last = trial->report_count - 1;
  double now = trial->report[last].step, before = last ? trial->report[last - 1].step : -1;
  for (double rung = first; rung <= now; rung *= rule->factor)
    if (rung > before && is_left_at(journal, number, rung, rule->factor, bracket)) return true;
  return false;
}

static double longest_trial(const Journal *journal) {
  double most = 0;
  for (int i = 0; i < journal->count; i++)
    if (journal->trial[i].report_count)
      most = fmax(most, journal->trial[i].report[journal->trial[i].report_count - 1].step);
  return most;
}

static double earliest_report(const Journal *journal) {
  double least = INFINITY;
  for (int i = 0; i < journal->count; i++)
    if (journal->trial[i].report_count) least = fmin(least, journal->trial[i].report[0].step);
  return fmax(least, 1);
}

/* Trials take the brackets in turns, the aggressive ones more often: bracket s, whose first rung is factor^s later, has
 * a share of factor^(most - s). */
static int bracket_of(int number, int most, double factor) {
  double whole = 0, share;
  for (int s = 0; s <= most; s++) whole += pow(factor, most - s);
  double at = fmod(number * 0.6180339887498949, 1) * whole; /* even for any stretch of trials */
  for (int s = 0; s < most; s++, at -= share)
    if (at < (share = pow(factor, most - s))) return s;
  return most;
}

static bool prune_by_bracket(const PruneRule *rule, const Journal *journal, int number,
                             double first) {
  int most = (int)floor(log(fmax(longest_trial(journal) / first, 1)) / log(rule->factor) + 1e-9);
  int *bracket = malloc((size_t)journal->count * sizeof *bracket);
  if (!bracket) return false;
  for (int i = 0; i < journal->count; i++) bracket[i] = bracket_of(i, most, rule->factor);
  bool is_left =
      is_left_at_rungs(rule, journal, number, first * pow(rule->factor, bracket[number]), bracket);
  free(bracket);
  return is_left;
}

bool prune_now(const PruneRule *rule, const Journal *journal, int number) {
  const Trial *trial = &journal->trial[number];
  if (rule->kind == PRUNE_NONE || !trial->report_count) return false;
  double step = trial->report[trial->report_count - 1].step;
  double first = rule->least > 0 ? rule->least : earliest_report(journal);
  if (step < rule->least) return false;
  if (rule->kind == PRUNE_MEDIAN) return is_below_median(journal, number, step);
  if (rule->kind == PRUNE_ASHA) return is_left_at_rungs(rule, journal, number, first, NULL);
  return prune_by_bracket(rule, journal, number, first);
}
