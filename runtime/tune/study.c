/* study: see study.h. */
#include "runtime/tune/study.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

Status study_open(const Journal *journal, SamplerKind kind, Study *out) {
  *out = (Study){.kind = kind, .is_own = calloc(JOURNAL_MOST_TRIALS, sizeof *out->is_own)};
  if (!out->is_own) return status_fail(STATUS_FAULT, "out of memory");
  Status status = sampler_new(kind, &journal->space, journal->seed, &out->sampler);
  if (status) study_close(out);
  return status;
}

void study_close(Study *study) {
  sampler_free(study->sampler);
  free(study->is_own);
  *study = (Study){0};
}

static Status study_propose(Study *study, const Journal *journal, double *point, bool *is_over) {
  Observation *seen = malloc((size_t)(journal->count + 1) * sizeof *seen);
  if (!seen) return status_fail(STATUS_FAULT, "out of memory");
  for (int i = 0; i < journal->count; i++) {
    const Trial *trial = &journal->trial[i];
    seen[i] =
        (Observation){trial->point, journal->is_max ? -trial->value : trial->value, trial->state};
  }
  Status status =
      sampler_next(study->sampler, seen, journal->count, journal->count, point, is_over);
  free(seen);
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

int study_ended(const Journal *journal) {
  int count = 0;
  for (int i = 0; i < journal->count; i++) count += journal->trial[i].state != TRIAL_RUNNING;
  return count;
}

void study_print_point(const Space *space, const double *point, Text *out) {
  for (int i = 0; i < space->count; i++) {
    if (isnan(point[i])) continue;
    Text value = {0};
    dim_print(&space->dim[i], point[i], &value);
    text_printf(out, "%s%s=%s", out->count ? " " : "", space->dim[i].name, text_cstr(&value));
    text_free(&value);
  }
}
