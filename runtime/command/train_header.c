/* train: the lines that stand before the first step. */
#include "plan/step_form.h"
#include "runtime/command/train_state.h"
#include <stdio.h>

static void append_memory(Text *out, double bytes) {
  if (bytes < 1e6)
    text_printf(out, "%.1f kB", bytes / 1e3);
  else if (bytes < 1e9)
    text_printf(out, "%.1f MB", bytes / 1e6);
  else
    text_printf(out, "%.2f GB", bytes / 1e9);
}

/* What the first steps have less of. */
static void header_say_sizes(const Training *training) {
  const SettingValue *settings = training->plan->settings;
  GrowRule rule = grow_of(settings);
  Text text = {0};
  for (int64_t step = 0, until, size; step < training->total_steps; step = until) {
    if (!(size = grow_size(&rule, settings, training->total_steps, step, &until))) break;
    text_printf(&text, "%s", text.count ? ", " : "");
    grow_append_size(settings, size, &text);
    text_printf(&text, " up to step %lld", (long long)(until < training->total_steps ? until : training->total_steps));
  }
  if (text.count) log_say(training->log, "grow: %s", text_cstr(&text));
  text_free(&text);
}

/* What rests from which step on. */
static void header_say_rests(const Training *training) {
  const SettingValue *settings = training->plan->settings;
  StepRule rule = step_rule_of(settings);
  Text text = {0};
  int64_t said = 0, until;
  for (int64_t step = 0; step < training->total_steps && said < rule.rest.count; step = until) {
    int64_t resting = step_form(&rule, settings, training->total_steps, step, &until).resting;
    if (resting > said)
      text_printf(&text, "%s%lld group%s from step %lld", text.count ? ", " : "", (long long)resting,
                  resting > 1 ? "s rest" : " rests", (long long)step + 1);
    said = resting;
  }
  const char *rate = setting_text(settings, rest_rate_key);
  if (text.count && strcmp(rate, "constant") != 0) text_printf(&text, "; until then rate = %s", rate);
  if (text.count) log_say(training->log, "freeze: %s", text_cstr(&text));
  text_free(&text);
}

/* --set of what no step reads, such as a beta of sgd. */
static void header_warn_unread(const Training *training) {
  const Plan *plan = training->plan;
  for (int i = 0; i < setting_count; i++)
    if (plan->settings[i].is_users && plan->settings[i].number != 0 && setting_is_of_steps(i) && !plan_reads_setting(plan, setting_info[i].key))
      log_warn(training->log, "--set %s does nothing: no step of this model reads it (optimizer %s, schedule %s)", setting_info[i].key,
               train_text(training, "train.optimizer"), train_text(training, "train.schedule"));
}

void train_say_header(Training *training) {
  const Plan *plan = training->plan;
  int64_t parameters = train_parameters(training);
  int64_t data = source_memory(training->train);
  if (training->valid) data += source_memory(training->valid);
  Text memory = {0};
  append_memory(&memory, (double)(plan_memory(plan) + feed_memory(training->feed)));
  text_printf(&memory, " for the model");
  if (data) {
    text_printf(&memory, ", ");
    append_memory(&memory, (double)data);
    text_printf(&memory, " for data");
  }
  if (feed_is_kept(training->feed)) text_printf(&memory, "; the training data is on the device");
  log_say(training->log, "%s: %lld parameters, %s on %s; memory %s", plan->model,
          (long long)parameters, train_text(training, "train.optimizer"),
          exec_device_text(training->exec), text_cstr(&memory));
  char valid[64] = "";
  if (training->valid)
    snprintf(valid, sizeof valid, ", %lld to validate", (long long)source_samples(training->valid));
  char parts[96] = "";
  int ranks = training->ranks.place.ranks, shares = training->ranks.shares;
  char who[64] = "";
  if (ranks > shares && shares > 1)
    snprintf(who, sizeof who, "%d groups of %d ranks", shares, ranks / shares);
  else
    snprintf(who, sizeof who, "%d ranks", shares);
  if (shares > 1 && training->parts > 1)
    snprintf(parts, sizeof parts, " (%lld parts of %s x %.0f)", (long long)training->parts, who,
             train_number(training, "train.batch"));
  else if (shares > 1)
    snprintf(parts, sizeof parts, " (%s x %.0f)", who, train_number(training, "train.batch"));
  else if (training->parts > 1)
    snprintf(parts, sizeof parts, " (%lld parts of %.0f)", (long long)training->parts,
             train_number(training, "train.batch"));
  if (ranks > 1) log_say(training->log, "ranks: %s", comm_text(training->ranks.comm));
  log_say(training->log, "%lld samples to train%s; batch %lld%s, %lld steps an epoch, %lld in all",
          (long long)source_samples(training->train), valid, (long long)training->batch, parts,
          (long long)training->steps_per_epoch, (long long)training->total_steps);
  memory.count = 0;
  source_append_paths(training->train, &memory);
  if (training->valid) text_printf(&memory, "; valid: ");
  if (training->valid) source_append_paths(training->valid, &memory);
  log_say(training->log, "train: %s", text_cstr(&memory));
  header_say_sizes(training);
  header_say_rests(training);
  header_warn_unread(training);
  if (training->options->deterministic)
    log_say(training->log,
            "deterministic: with the same threads, every run on %s gives the same bits",
            exec_device_text(training->exec));
  text_free(&memory);
}
