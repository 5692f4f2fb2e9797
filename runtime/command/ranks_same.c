/* ranks_same: do the ranks train the same thing? Each compares what it has with rank 0: the program
 * and its flags, the artifact's bytes, every setting, each file of the data by its length and some of
 * its bytes, and the values that training starts from. Declared in ranks.h. */
#include "runtime/checkpoint/safetensors_sum.h"
#include "runtime/command/ranks.h"
#include "runtime/data/file_sum.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The failure is that of all ranks. */
static Status ranks_compare(Ranks *ranks, const char *what, const void *bytes, int64_t count) {
  Status status = comm_same(ranks->comm, what, bytes, count);
  return status == STATUS_USER ? ranks_failed_alike(ranks, status) : status;
}

/* ── files ────────────────────────────────────────────────────────────────────────────────── */
static Status same_artifact(Ranks *ranks, const char *path) {
  FileSum sum;
  STATUS_TRY(ranks_agree(ranks, file_sum(path, INT64_MAX, &sum)));
  return ranks_compare(ranks, "the artifact", &sum, sizeof sum);
}

static Status same_program(Ranks *ranks) {
  FileSum sum;
  const char *library = comm_text(ranks->comm);
  STATUS_TRY(ranks_agree(ranks, file_sum("/proc/self/exe", INT64_MAX, &sum)));
  STATUS_TRY(ranks_compare(ranks, "the program (ftrun)", &sum, sizeof sum));
  return ranks_compare(ranks, "the library that joins the ranks", library,
                       (int64_t)strlen(library));
}

static Status same_data(Ranks *ranks, const Source *source) {
  char what[80];
  snprintf(what, sizeof what, "the %s data", source_label(source));
  uint64_t sum = 0;
  STATUS_TRY(ranks_agree(ranks, source_sum(source, &sum)));
  return ranks_compare(ranks, what, &sum, sizeof sum);
}

/* ── settings ─────────────────────────────────────────────────────────────────────────────── */

static bool is_of_one_rank(const char *key) {
  static const char *const keys[] = {"distributed.rank", "distributed.data_rank",
                                     "distributed.pipeline_rank", "distributed.tensor_rank"};
  for (int i = 0; i < 4; i++)
    if (strcmp(key, keys[i]) == 0) return true;
  return false;
}

static void append_setting(Text *out, const Plan *plan, int index) {
  const SettingValue *value = &plan->settings[index];
  if (is_of_one_rank(setting_info[index].key)) return;
  if (setting_info[index].kind == SET_STR)
    text_append(out, value->text, strlen(value->text) + 1);
  else
    text_append(out, (const char *)&value->number, sizeof value->number);
}

static Status same_settings(Ranks *ranks, const Plan *plan) {
  Text text = {0};
  for (int i = 0; i < setting_count; i++) append_setting(&text, plan, i);
  Status one = STATUS_OK;
  Status status = ranks_compare(ranks, "the settings", text.at, (int64_t)text.count);
  for (int i = 0; i < setting_count && ranks->is_agreed && one == STATUS_OK; i++) { /* which? */
    char what[80];
    snprintf(what, sizeof what, "the setting %s", setting_info[i].key);
    text.count = 0;
    append_setting(&text, plan, i);
    one = ranks_compare(ranks, what, text_cstr(&text), (int64_t)text.count);
  }
  text_free(&text);
  return status;
}

Status ranks_same(Ranks *ranks, const Plan *plan, const char *artifact,
                  const Source *const *sources, int count) {
  if (!ranks->comm) return STATUS_OK;
  STATUS_TRY(same_program(ranks));
  STATUS_TRY(same_artifact(ranks, artifact));
  STATUS_TRY(same_settings(ranks, plan));
  for (int i = 0; i < count; i++)
    if (sources[i]) STATUS_TRY(same_data(ranks, sources[i]));
  return STATUS_OK;
}

/* ── flags ────────────────────────────────────────────────────────────────────────────────── */

/* Files may have other names elsewhere; that they are given may not. */
Status ranks_same_flags(Ranks *ranks, const TrainOptions *options) {
  const struct {
    const char *what;
    bool value;
  } flags[] = {{"--no-shuffle", options->no_shuffle},
               {"--overfit-batch", options->overfit_batch},
               {"--dry-run", options->dry_run},
               {"--check=nan", options->check_nan},
               {"--check=overflow", options->check_overflow},
               {"--deterministic", options->deterministic},
               {"--keep-going", options->keep_going},
               {"--init", options->init.path_count > 0},
               {"--init-missing", options->init.keeps_missing},
               {"--init-mismatch", options->init.keeps_mismatch},
               {"--init-rename", options->init.rename_count > 0},
               {"--resume", options->resume != NULL},
               {"--or-start", options->or_start},
               {"--stop-at", options->stops},
               {"--save", options->save != NULL},
               {"--save-ema", options->save_ema != NULL},
               {"--trace", options->trace != NULL}};
  enum { FLAGS = sizeof flags / sizeof *flags };
  bool values[FLAGS];
  if (!ranks->comm) return STATUS_OK;
  for (int i = 0; i < FLAGS; i++) values[i] = flags[i].value;
  Status one = STATUS_OK, status = ranks_compare(ranks, "a flag", values, sizeof values);
  for (int i = 0; i < FLAGS && ranks->is_agreed && one == STATUS_OK; i++) /* which? */
    one = ranks_compare(ranks, flags[i].what, &values[i], sizeof values[i]);
  return status;
}

/* ── values ───────────────────────────────────────────────────────────────────────────────── */

static Status add_values(SafeSum *sum, Exec *exec, int place, int64_t offset, int64_t all) {
  enum { BYTES = 4 << 20 };
  char *bytes = malloc(BYTES);
  Status status = bytes ? STATUS_OK : status_errno(ENOMEM, "ranks");
  for (int64_t at = 0; at < all && status == STATUS_OK; at += BYTES) {
    int64_t count = all - at < BYTES ? all - at : BYTES;
    status = exec_read(exec, place, offset + at, count, bytes);
    if (status == STATUS_OK) safetensors_sum_add(sum, bytes, (size_t)count);
  }
  free(bytes);
  return status;
}

/* All that is saved; where the ranks share parameters out each has others, and the same of the
 * states that do not go with these. */
static Status sum_values(SafeSum *sum, Exec *exec) {
  const Plan *plan = exec_plan(exec);
  bool is_shared = plan_has_parts(plan);
  for (int p = 0; p < plan->places.count && !is_shared; p++) {
    const PlanPlace *place = &plan->places.at[p];
    if (place->saved && !place->is_window) STATUS_TRY(add_values(sum, exec, p, 0, place->bytes));
  }
  for (int i = 0; i < plan->states.count && is_shared; i++) {
    const PlanTensor *state = &plan->states.at[i];
    if (!role_has(state->role, ROLE_SLICED))
      STATUS_TRY(add_values(sum, exec, state->place, state->offset, type_bytes(&state->type)));
  }
  return STATUS_OK;
}

Status ranks_same_values(Ranks *ranks, Exec *exec) {
  if (!ranks->comm) return STATUS_OK;
  SafeSum sum;
  safetensors_sum_start(&sum, 0);
  Status status = sum_values(&sum, exec);
  uint64_t total = safetensors_sum_end(&sum);
  STATUS_TRY(ranks_agree(ranks, status));
  status = comm_same_in_stages(ranks->comm, "the values to begin with", &total, sizeof total);
  return status == STATUS_USER ? ranks_failed_alike(ranks, status) : status;
}

Status ranks_same_given(Ranks *ranks, uint64_t sum) {
  if (!ranks->comm) return STATUS_OK;
  return ranks_compare(ranks, "the weights of the frozen layers", &sum, sizeof sum);
}
