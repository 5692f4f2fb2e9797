/* journal_read: the lines of a study's journal; see journal.h. */
#include "runtime/tune/journal_private.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const state_names[] = {"running", "complete", "pruned", "failed"};

const char *journal_state_name(TrialState state) { return state_names[state]; }

static double number_of(json_t *object, const char *key) {
  json_t *value = json_object_get(object, key);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

static bool take_dimensions(Space *out, json_t *space, json_t *where) {
  bool fine = true;
  for (size_t i = 0; fine && i < json_array_size(space); i++) {
    const char *dim = json_string_value(json_array_get(space, i));
    fine = dim && !space_add(out, dim);
  }
  for (size_t i = 0; fine && i < json_array_size(where); i++) {
    const char *text = json_string_value(json_array_get(where, i));
    fine = text && !space_add_where(out, text);
  }
  if (!fine) space_free(out);
  return fine;
}

static bool take_study(Journal *journal, json_t *line) {
  json_t *space = json_object_get(line, "space"), *where = json_object_get(line, "where");
  const char *goal = json_string_value(json_object_get(line, "goal"));
  double seed = number_of(line, "seed");
  if (!json_is_array(space) || !goal || strlen(goal) >= sizeof journal->goal ||
      !goals_read(goal, &journal->goals, NULL))
    return false;
  if ((where && !json_is_array(where)) || !take_dimensions(&journal->space, space, where)) return false;
  snprintf(journal->goal, sizeof journal->goal, "%s", goal);
  journal->is_max = journal->goals.goal[0].rule.is_max;
  journal->seed = seed >= 0 && seed < 0x1p53 ? (uint64_t)seed : 0;
  return journal->has_header = journal->space.count > 0;
}

static bool take_point(const Space *space, json_t *values, double *point) {
  for (int i = 0; i < space->count; i++) {
    const char *text = json_string_value(json_object_get(values, space->dim[i].name));
    point[i] = NAN;
    if (!space_is_active(space, i, point)) continue;
    if (!text || !dim_read(&space->dim[i], text, &point[i])) return false;
  }
  return true;
}

static Status take_trial_start(Journal *journal, int64_t number, json_t *line) {
  double point[SPACE_MOST];
  if (number > journal->count ||
      (number < journal->count && journal->trial[number].state != TRIAL_RUNNING) ||
      !take_point(&journal->space, json_object_get(line, "start"), point))
    return journal->skipped++, STATUS_OK;
  if (number == journal->count) {
    if (journal->count == journal->room) {
      int room = journal->room ? 2 * journal->room : 64;
      Trial *more = realloc(journal->trial, (size_t)room * sizeof *more);
      if (!more)
        return status_fail(STATUS_FAULT, "out of memory for the trials of %s", journal->path);
      journal->trial = more;
      journal->room = room;
    }
    journal->trial[journal->count++] = (Trial){.value = NAN};
  }
  Trial *trial = &journal->trial[number];
  memcpy(trial->point, point, sizeof point);
  trial->state = TRIAL_RUNNING;
  trial->report_count = 0; /* it begins again */
  trial->attempts++;
  trial->time = number_of(line, "time");
  const char *source = json_string_value(json_object_get(line, "source"));
  snprintf(trial->source, sizeof trial->source, "%s", source ? source : "");
  return STATUS_OK;
}

static Status take_trial_report(Journal *journal, Trial *trial, double step, double value) {
  if (isnan(step) || trial->report_count == JOURNAL_MOST_REPORTS) return STATUS_OK;
  if (trial->report_count == trial->report_room) {
    int room = trial->report_room ? 2 * trial->report_room : 8;
    Report *more = realloc(trial->report, (size_t)room * sizeof *more);
    if (!more)
      return status_fail(STATUS_FAULT, "out of memory for the trials of %s", journal->path);
    trial->report = more;
    trial->report_room = room;
  }
  if (trial->report_count && trial->report[trial->report_count - 1].step >= step) return STATUS_OK;
  trial->report[trial->report_count++] = (Report){step, value};
  return STATUS_OK;
}

static bool take_trial_end(Trial *trial, int goals, json_t *line, const char *end) {
  for (int state = TRIAL_COMPLETE; state <= TRIAL_FAILED; state++) {
    if (strcmp(end, state_names[state])) continue;
    trial->state = (TrialState)state;
    trial->value = number_of(line, "value");
    trial->values[0] = trial->value;
    bool has_all = isfinite(trial->value);
    json_t *values = json_object_get(line, "values");
    for (int g = 1; g < goals; g++) {
      json_t *one = json_array_get(values, (size_t)g);
      trial->values[g] = json_is_number(one) ? json_number_value(one) : NAN;
      has_all &= isfinite(trial->values[g]);
    }
    if (state == TRIAL_COMPLETE && !has_all) trial->state = TRIAL_FAILED;
    trial->step = number_of(line, "step");
    trial->seconds = number_of(line, "seconds");
    const char *why = json_string_value(json_object_get(line, "why"));
    snprintf(trial->why, sizeof trial->why, "%s", why ? why : "");
    text_make_printable(trial->why);
    return true;
  }
  return false;
}

static Status take_object(Journal *journal, json_t *line) {
  double number = number_of(line, "trial");
  if (!journal->has_header) {
    if (number_of(line, "study") != 1 || !take_study(journal, line)) journal->skipped++;
    return STATUS_OK;
  }
  if (!(number >= 0 && number < JOURNAL_MOST_TRIALS && number == floor(number)))
    return journal->skipped++, STATUS_OK;
  if (json_is_object(json_object_get(line, "start")))
    return take_trial_start(journal, (int64_t)number, line);
  const char *end = json_string_value(json_object_get(line, "end"));
  if (number >= journal->count || journal->trial[(int)number].state != TRIAL_RUNNING)
    return journal->skipped++, STATUS_OK;
  Trial *trial = &journal->trial[(int)number];
  if (!end)
    return take_trial_report(journal, trial, number_of(line, "step"), number_of(line, "value"));
  if (!take_trial_end(trial, journal->goals.count, line, end)) journal->skipped++;
  return STATUS_OK;
}

Status journal_take_line(Journal *journal, const char *line, size_t count) {
  json_t *object = NULL;
  Status status = json_parse(line, count, &object);
  if (status == STATUS_FAULT) return status;
  if (status || !json_is_object(object))
    journal->skipped++;
  else
    status = take_object(journal, object);
  json_decref(object);
  return status == STATUS_FAULT ? status : STATUS_OK;
}

static Status compare_conditions(const Journal *journal, const Space *meant) {
  const Space *there = &journal->space;
  for (int i = 0; i < there->where_count || i < meant->where_count; i++) {
    const char *one = i < there->where_count ? there->where[i].text : "none";
    const char *other = i < meant->where_count ? meant->where[i].text : "none";
    if (strcmp(one, other))
      return status_fail(STATUS_USER,
                         "%s: condition %d of this study is %s, --where says %s; choose another "
                         "--study folder",
                         journal->path, i + 1, one, other);
  }
  return STATUS_OK;
}

Status journal_compare(const Journal *journal, const JournalHeader *header) {
  if (strcmp(journal->goal, header->goal))
    return status_fail(STATUS_USER,
                       "%s: this study's goal is %s, not %s; choose another --study folder",
                       journal->path, journal->goal, header->goal);
  bool is_same = journal->space.count == header->space->count;
  for (int i = 0; is_same && i < journal->space.count; i++) {
    Text there = {0}, meant = {0};
    dim_describe(&journal->space, i, &there);
    dim_describe(header->space, i, &meant);
    is_same = !strcmp(text_cstr(&there), text_cstr(&meant));
    if (!is_same)
      status_fail(STATUS_USER,
                  "%s: this study has %s where --space says %s; choose another --study folder",
                  journal->path, text_cstr(&there), text_cstr(&meant));
    text_free(&there);
    text_free(&meant);
    if (!is_same) return STATUS_USER;
  }
  if (!is_same)
    return status_fail(
        STATUS_USER,
        "%s: this study has %d dimensions, --space gives %d; choose another --study folder",
        journal->path, journal->space.count, header->space->count);
  return compare_conditions(journal, header->space);
}
