/* study: see study.h. */
#include "runtime/tune/study.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

Status study_open(const Journal *journal, SamplerKind kind, Study *out) {
  *out = (Study){.kind = kind, .is_own = calloc(JOURNAL_MOST_TRIALS, sizeof *out->is_own)};
  if (!out->is_own) return status_fail(STATUS_FAULT, "out of memory");
  Status status = sampler_new(kind, &journal->space, journal->seed, &out->sampler);
  if (!status && journal->goals.count > 1)
    status = sampler_set_goals(out->sampler, journal->goals.count);
  if (status) study_close(out);
  return status;
}

/* Smaller is better. */
static void as_losses(const Journal *journal, const Trial *trial, double *out) {
  for (int g = 0; g < journal->goals.count; g++)
    out[g] = journal->goals.goal[g].rule.is_max ? -trial->values[g] : trial->values[g];
}

void study_close(Study *study) {
  sampler_free(study->sampler);
  free(study->is_own);
  *study = (Study){0};
}

static Status study_propose(Study *study, const Journal *journal, double *point, bool *is_over) {
  Observation *seen = malloc((size_t)(journal->count + 1) * sizeof *seen);
  double(*values)[GOALS_MOST] = malloc((size_t)(journal->count + 1) * sizeof *values);
  if (!seen || !values) {
    free(seen);
    free(values);
    return status_fail(STATUS_FAULT, "out of memory");
  }
  for (int i = 0; i < journal->count; i++) {
    const Trial *trial = &journal->trial[i];
    as_losses(journal, trial, values[i]);
    seen[i] = (Observation){trial->point, journal->is_max ? -trial->value : trial->value,
                            trial->state, values[i]};
  }
  Status status =
      sampler_next(study->sampler, seen, journal->count, journal->count, point, is_over);
  free(seen);
  free(values);
  return status;
}

Status study_begin(Study *study, Journal *journal, int trials, int *number, bool *is_over) {
  double point[SPACE_MOST];
  *number = -1;
  *is_over = false;
  STATUS_TRY(journal_lock(journal));
  int next = journal_find_lost(journal, study->is_own);
  Status status = STATUS_OK;
  if (next >= 0) {
    memcpy(point, journal->trial[next].point, sizeof point);
  } else if (journal->count < trials && journal->count < JOURNAL_MOST_TRIALS) {
    next = journal->count;
    status = study_propose(study, journal, point, is_over);
    if (*is_over) next = -1;
  }
  if (!status && next >= 0) status = journal_start(journal, next, point, sampler_name(study->kind));
  journal_unlock(journal);
  if (status || next < 0) return status;
  study->is_own[next] = true;
  *number = next;
  return STATUS_OK;
}

int study_best(const Journal *journal) {
  int best = -1;
  for (int i = 0; i < journal->count; i++) {
    const Trial *trial = &journal->trial[i];
    if (trial->state != TRIAL_COMPLETE) continue;
    double gain = best < 0 ? 1 : journal->trial[best].value - trial->value;
    if (journal->is_max && best >= 0) gain = -gain;
    if (gain > 0) best = i;
  }
  return best;
}

bool study_is_on_front(const Journal *journal, int number) {
  double own[GOALS_MOST], other[GOALS_MOST];
  if (journal->trial[number].state != TRIAL_COMPLETE) return false;
  as_losses(journal, &journal->trial[number], own);
  for (int i = 0; i < journal->count; i++) {
    if (journal->trial[i].state != TRIAL_COMPLETE) continue;
    as_losses(journal, &journal->trial[i], other);
    if (front_dominates(other, own, journal->goals.count)) return false;
  }
  return true;
}

int study_front(const Journal *journal, int *out) {
  int count = 0;
  for (int i = 0; i < journal->count; i++) {
    if (!study_is_on_front(journal, i)) continue;
    int at = count++;
    for (; at > 0 && journal->trial[out[at - 1]].value > journal->trial[i].value; at--)
      out[at] = out[at - 1];
    out[at] = i;
  }
  return count;
}

int study_ended(const Journal *journal) {
  int count = 0;
  for (int i = 0; i < journal->count; i++) count += journal->trial[i].state != TRIAL_RUNNING;
  return count;
}

void study_print_point(const Space *space, const double *point, Text *out) {
  for (int i = 0; i < space->count; i++) {
    if (isnan(point[i])) continue;
    Text value = {0};
    dim_show(&space->dim[i], point[i], &value);
    text_printf(out, "%s%s=%s", out->count ? " " : "", space->dim[i].name, text_cstr(&value));
    text_free(&value);
  }
}
