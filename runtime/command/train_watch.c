/* train_watch: what a training tells those who watch it, apart from its lines: the log's files
 * opened, and what stands at their head. Declared in train_state.h. */
#define _GNU_SOURCE /* asprintf */
#include "base/version.h"
#include "runtime/command/events.h"
#include "runtime/command/train_state.h"
#include "runtime/common/inside.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

/* ── the log's files ──────────────────────────────────────────────────────────────────────── */

Status train_open_log(Training *training) {
  const TrainOptions *given = training->options;
  const SettingValue *settings = training->plan->settings;
  bool is_free = given->run.places.allow_paths, writes = training->writes;
  if (!given->log_jsonl) STATUS_TRY(inside_check_setting(settings, "train.log.jsonl", is_free));
  STATUS_TRY(inside_check_setting(settings, "train.log.csv", is_free));
  if (!given->tensorboard)
    STATUS_TRY(inside_check_setting(settings, "train.log.tensorboard", is_free));
  const char *folder =
      given->tensorboard ? given->tensorboard : train_text(training, "train.log.tensorboard");
  const char *jsonl = given->log_jsonl ? given->log_jsonl : train_text(training, "train.log.jsonl");
  LogOptions options = {
      .console = writes && train_number(training, "train.log.console") != 0,
      .is_silent = !writes,
      .is_plain = training->ranks.place.ranks > 1,
      .jsonl = writes ? jsonl : "",
      .csv = writes ? train_text(training, "train.log.csv") : "",
      .shows_grad_norm = train_number(training, "train.log.grad_norm") != 0,
      .shows_layers = train_number(training, "train.log.layer_table") != 0,
      .tensorboard = writes ? folder : "",
      .append = given->resume != NULL,
      .every = (int64_t)train_number(training, "train.log.every"),
      .steps_per_epoch = training->steps_per_epoch,
      .total_steps = training->total_steps,
      .batch = training->batch,
      .grow = grow_of(training->plan->settings),
      .settings = training->plan->settings,
  };
  return log_open(&options, &training->log);
}

Status train_ema_name(Training *training, int index, const char *plain, const char **out) {
  char **name = &training->ema_name[index];
  if (!*name && asprintf(name, "ema_%s", plain) < 0) {
    *name = NULL;
    return status_fail(STATUS_FAULT, "out of memory");
  }
  *out = *name;
  return STATUS_OK;
}

/* Those that are one number. place: which of all metrics each is. */
static int list_metrics(const PlanGraph *graph, const char **names, int *place) {
  int count = 0, all = 0;
  for (int i = 0; i < graph->outputs.count; i++) {
    const PlanOutput *output = &graph->outputs.at[i];
    bool is_shown = output->kind == OUTPUT_METRIC || output->kind == OUTPUT_AUC ||
                    output->kind == OUTPUT_LOSS_SCALE || output->kind == OUTPUT_SKIPPED;
    bool is_table = output->kind == OUTPUT_METRIC && output->type.shape.rank > 0;
    if (is_shown && !is_table) {
      place[count] = all;
      names[count++] = own_shown(output->name);
    }
    all += is_shown;
  }
  return count;
}

static Status list_columns(Training *training, LogColumns *columns) {
  const Exec *exec = training->exec;
  int place[LOG_MOST_METRICS];
  ExecGraph step = exec_result_graph(exec, PROGRAMME_STEP);
  columns->train_count = list_metrics(exec_graph_plan(exec, step), columns->train, place);
  columns->has_grad_norm = exec_find_output(exec, step, OUTPUT_GRAD_NORM, NULL) >= 0;
  columns->has_valid = training->valid != NULL;
  if (!training->valid) return STATUS_OK;
  ExecGraph evaluation = exec_result_graph(exec, PROGRAMME_EVALUATE);
  int count = list_metrics(exec_graph_plan(exec, evaluation), columns->valid, place);
  columns->valid_count = count;
  if (!exec_has_ema(exec)) return STATUS_OK;
  for (int i = 0; i <= count; i++)
    STATUS_TRY(train_ema_name(training, i ? place[i - 1] + 1 : 0,
                              i ? columns->valid[i - 1] : "loss",
                              &columns->valid[columns->valid_count++]));
  return STATUS_OK;
}

/* ── the header ───────────────────────────────────────────────────────────────────────────── */

static void append_key(Text *out, const char *key) {
  if (out->at[out->count - 1] != '{') text_append(out, ", ", 2);
  text_append_json(out, key);
  text_append(out, ": ", 2);
}

static void append_text(Text *out, const char *key, const char *value) {
  append_key(out, key);
  text_append_json(out, value ? value : "");
}

static void append_count(Text *out, const char *key, int64_t value) {
  append_key(out, key);
  text_printf(out, "%lld", (long long)value);
}

/* JSON has no infinity. */
static void append_shortest(Text *out, double value) {
  if (isfinite(value))
    text_append_shortest(out, value);
  else
    text_printf(out, "null");
}

static void header_setting(Text *out, const SettingInfo *info, const SettingValue *value) {
  append_key(out, info->key);
  if (info->kind == SET_STR)
    text_append_json(out, value->text ? value->text : "");
  else if (info->kind == SET_BOOL)
    text_printf(out, value->number != 0 ? "true" : "false");
  else
    append_shortest(out, value->number);
}

static void append_data(Text *out, const Source *source) {
  append_key(out, source_label(source));
  text_printf(out, "{");
  append_count(out, "samples", source_samples(source));
  append_key(out, "files");
  text_printf(out, "[");
  const char *path;
  for (int i = 0; (path = source_path(source, i)); i++) {
    if (i) text_append(out, ", ", 2);
    text_append_json(out, path);
  }
  text_printf(out, "]}");
}

/* What it was compiled for, and what it runs on. */
static void append_system(Text *out, const Plan *plan) {
  struct utsname system;
  char text[256];
  snprintf(text, sizeof text, "%s %s", plan->target, plan->target_cpu);
  append_text(out, "target", text);
  if (uname(&system)) return;
  snprintf(text, sizeof text, "%.80s %.80s %.80s", system.sysname, system.release, system.machine);
  append_text(out, "system", text);
}

static void header_line(const Training *training, Text *out) {
  const Plan *plan = training->plan;
  time_t now = time(NULL);
  struct tm utc;
  char when[40] = "";
  if (gmtime_r(&now, &utc)) strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
  text_printf(out, "{");
  append_text(out, "ft", FT_VERSION);
  append_text(out, "start_time", when);
  append_count(out, "time", (int64_t)now);
  append_text(out, "artifact", training->options->run.artifact);
  append_text(out, "model", plan->model);
  append_text(out, "source", plan->source);
  append_count(out, "parameters", train_parameters(training));
  append_text(out, "device", exec_device_text(training->exec));
  append_system(out, plan);
  append_count(out, "ranks", training->ranks.place.ranks);
  if (training->ranks.comm) append_text(out, "communication", comm_text(training->ranks.comm));
  append_count(out, "batch", training->batch);
  append_count(out, "steps_per_epoch", training->steps_per_epoch);
  append_count(out, "total_steps", training->total_steps);
  append_count(out, "first_step", training->first_step);
  append_key(out, "data");
  text_printf(out, "{");
  append_data(out, training->train);
  if (training->valid) append_data(out, training->valid);
  text_printf(out, "}");
  append_key(out, "settings");
  text_printf(out, "{");
  for (int i = 0; i < setting_count; i++)
    if (setting_info[i].when != WHEN_DERIVED)
      header_setting(out, &setting_info[i], &plan->settings[i]);
  text_printf(out, "}}");
}

static Status begin_events(Training *training) {
  const Plan *plan = training->plan;
  Events *events = log_events(training->log);
  if (!events && train_number(training, "train.log.samples") > 0)
    log_warn(training->log, "train.log.samples: there is no folder for TensorBoard to show them "
                            "in: tensorboard = \"runs/a\" in log { }, or --tensorboard, names it");
  if (!events) return STATUS_OK;
  if (plan_has_parts(plan) && train_number(training, "train.log.histograms") > 0)
    log_say(training->log, "tensorboard: no histograms of weights that ranks have parts of");
  STATUS_TRY(events_hparams(events, plan->settings));
  if (training->first_step == 0) STATUS_TRY(train_samples(training, 0, false));
  const PlanGraph *step = plan_result(plan, PROGRAMME_STEP);
  return step ? events_graph(events, plan, step) : STATUS_OK;
}

Status train_begin_log(Training *training) {
  if (!training->writes || training->options->dry_run) return STATUS_OK;
  LogColumns columns = {0};
  Text header = {0};
  header_line(training, &header);
  Status status = list_columns(training, &columns);
  if (status == STATUS_OK)
    status = log_begin(training->log, training->first_step, text_cstr(&header), &columns);
  text_free(&header);
  return status == STATUS_OK ? begin_events(training) : status;
}
