/* report_study: see report_study.h. */
#include "runtime/command/report_study.h"
#include "runtime/command/report_data.h"
#include "runtime/tune/study.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* in the order of TrialState */
static const char *const study_states[] = {"running", "complete", "pruned", "failed"};

enum { MOST_TRIALS_SHOWN = 5000 }; /* a page of some megabytes */

static bool study_journal(const char *path, char out[4096]) {
  struct stat about;
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  bool is_folder = stat(path, &about) == 0 && S_ISDIR(about.st_mode);
  int length = snprintf(out, 4096, is_folder ? "%s/journal.jsonl" : "%s", path);
  return (is_folder || !strcmp(name, "journal.jsonl")) && length < 4096 && stat(out, &about) == 0 &&
         S_ISREG(about.st_mode);
}

bool report_is_study(const char *path) {
  char journal[4096];
  return study_journal(path, journal);
}

static void append_finite(Text *out, double value) {
  if (isfinite(value))
    text_printf(out, "%.9g", value);
  else
    text_printf(out, "null");
}

static void append_dimension(Text *out, const Space *space, int index) {
  static const char *const kinds[] = {"real", "int", "choice"};
  const Dim *dim = &space->dim[index];
  Text range = {0};
  dim_describe(space, index, &range);
  text_printf(out, "%s{\"name\":", index ? "," : "");
  report_string(out, dim->name);
  text_printf(out,
              ",\"kind\":\"%s\",\"log\":%s,\"low\":%.9g,\"high\":%.9g,\"range\":", kinds[dim->kind],
              dim->is_log ? "true" : "false", dim->low, dim->high);
  report_string(out, text_cstr(&range));
  text_printf(out, ",\"choices\":[");
  for (int i = 0; i < dim->choice_count; i++) {
    if (i) text_append(out, ",", 1);
    report_string(out, dim->choice[i]);
  }
  text_printf(out, "]}");
  text_free(&range);
}

static void append_study_trial(Text *out, const Journal *journal, int number) {
  const Trial *trial = &journal->trial[number];
  double value = trial->value, step = trial->step;
  if (trial->state == TRIAL_RUNNING) { /* how far it is */
    const Report *last = trial->report_count ? &trial->report[trial->report_count - 1] : NULL;
    value = last ? last->value : NAN;
    step = last ? last->step : NAN;
  }
  text_printf(out, "{\"n\":%d,\"state\":\"%s\",\"value\":", number, study_states[trial->state]);
  append_finite(out, value);
  if (journal->goals.count > 1) {
    text_printf(out, ",\"values\":[");
    for (int g = 0; g < journal->goals.count; g++) {
      if (g) text_append(out, ",", 1);
      append_finite(out, trial->state == TRIAL_COMPLETE ? trial->values[g] : NAN);
    }
    text_printf(out, "],\"front\":%s", study_is_on_front(journal, number) ? "true" : "false");
  }
  text_printf(out, ",\"step\":");
  append_finite(out, step);
  text_printf(out, ",\"seconds\":");
  append_finite(out, trial->state == TRIAL_RUNNING ? NAN : trial->seconds);
  text_printf(out, ",\"why\":");
  report_string(out, trial->why);
  text_printf(out, ",\"point\":[");
  for (int d = 0; d < journal->space.count; d++) {
    if (d) text_append(out, ",", 1);
    append_finite(out, trial->point[d]);
  }
  text_printf(out, "]}");
}

static void append_importance(Text *out, const Journal *journal) {
  Importance importance;
  if (!importance_of(journal, &importance)) {
    text_printf(out, "null");
    return;
  }
  text_printf(out, "{\"trials\":%d,\"together\":%.6g,\"share\":[", importance.trials,
              importance.together);
  for (int d = 0; d < journal->space.count; d++)
    text_printf(out, "%s[%.6g,%.6g]", d ? "," : "", importance.share[d], importance.deviation[d]);
  text_printf(out, "]}");
}

/* Of all trials, as the page need not have all. */
static void append_states(Text *out, const Journal *journal) {
  int count[4] = {0};
  for (int i = 0; i < journal->count; i++) count[journal->trial[i].state]++;
  text_printf(out, ",\"states\":[");
  for (int i = 0; i < 4; i++)
    text_printf(out, "%s[\"%s\",%d]", i ? "," : "", study_states[i], count[i]);
  text_printf(out, "]");
}

/* The newest, and of all that were the best at their time, so that "best so far" is right. */
static void append_study(Text *out, const Journal *journal, const char *study) {
  bool any = false;
  text_printf(out, "{\"study\":");
  report_string(out, study);
  text_printf(out, ",\"goal\":");
  report_string(out, journal->goal);
  text_printf(out, ",\"goals\":[");
  for (int g = 0; g < journal->goals.count; g++) {
    const Goal *goal = &journal->goals.goal[g];
    Text text = {0};
    text_printf(&text, "%s(%s.%s)", goal->rule.is_max ? "max" : "min", goal->rule.split,
                goal->rule.name);
    if (g) text_append(out, ",", 1);
    text_printf(out, "{\"max\":%s,\"name\":", goal->rule.is_max ? "true" : "false");
    report_string(out, text_cstr(&text));
    text_append(out, "}", 1);
    text_free(&text);
  }
  bool has_several = journal->goals.count > 1; /* then nothing is the best */
  text_printf(out, "],\"max\":%s,\"skipped\":%lld,\"count\":%d,\"best\":%d,\"dims\":[",
              journal->is_max ? "true" : "false", (long long)journal->skipped, journal->count,
              has_several ? -1 : study_best(journal));
  for (int d = 0; d < journal->space.count; d++) append_dimension(out, &journal->space, d);
  text_printf(out, "],\"where\":[");
  for (int i = 0; i < journal->space.where_count; i++) {
    if (i) text_append(out, ",", 1);
    report_string(out, journal->space.where[i].text);
  }
  text_printf(out, "],\"importance\":");
  append_importance(out, journal);
  append_states(out, journal);
  text_printf(out, ",\"trials\":[");
  double record = NAN;
  for (int i = 0; i < journal->count; i++) {
    const Trial *trial = &journal->trial[i];
    bool is_record =
        trial->state == TRIAL_COMPLETE &&
        (isnan(record) || (journal->is_max ? trial->value > record : trial->value < record));
    if (is_record) record = trial->value;
    bool is_kept = is_record || (has_several && study_is_on_front(journal, i));
    if (i < journal->count - MOST_TRIALS_SHOWN && !is_kept) continue;
    text_printf(out, any ? ",\n" : "");
    append_study_trial(out, journal, i);
    any = true;
  }
  text_printf(out, "]}");
}

Status report_study_run(const char *study, const char *output) {
  const char *path = output ? output : "report.html";
  char name[4096];
  Journal journal;
  Text data = {0}, page = {0};
  if (!study_journal(study, name)) return status_fail(STATUS_USER, "%s is no study", study);
  STATUS_TRY(journal_open(name, NULL, &journal));
  append_study(&data, &journal, study);
  report_study_page(&page, &data);
  int error = text_write_file(path, page.at, page.count);
  Status status = error ? status_errno(error, "cannot write %s", path) : STATUS_OK;
  if (!status)
    printf("%s: a study of %d trial%s, %.1f MB\n", path, journal.count,
           journal.count == 1 ? "" : "s", (double)page.count * 1e-6);
  journal_close(&journal);
  text_free(&data);
  text_free(&page);
  return status;
}

void report_tell_importance(const Space *space, const Importance *importance, Text *out) {
  int order[SPACE_MOST];
  for (int d = 0; d < space->count; d++) {
    int at = d;
    while (at > 0 && importance->share[order[at - 1]] < importance->share[d]) {
      order[at] = order[at - 1];
      at--;
    }
    order[at] = d;
  }
  text_printf(out, "importance (fANOVA of %d trials):", importance->trials);
  for (int i = 0; i < space->count; i++)
    text_printf(out, " %s %.0f %%,", space->dim[order[i]].name, 100 * importance->share[order[i]]);
  text_printf(out, " only together %.0f %%\n", 100 * importance->together);
}
