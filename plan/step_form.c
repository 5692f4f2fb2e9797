/* step_form: see step_form.h. */
#include "plan/step_form.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char rest_key[] = "train.freeze";
const char rest_rate_key[] = "train.freeze.rate";
const char rest_usage[] = "\"share 0.3 0.5\" or \"step 200 500\", with up to 6 numbers that rise";

static const char *rest_skip(const char *at) { return at + strspn(at, " \t"); }

bool rest_read(const char *text, RestRule *out) {
  *out = (RestRule){0};
  const char *at = rest_skip(text);
  if (!*at) return true;
  size_t length = strcspn(at, " \t");
  out->is_share = length == 5 && !memcmp(at, "share", 5);
  if (!out->is_share && !(length == 4 && !memcmp(at, "step", 4))) return false;
  for (at = rest_skip(at + length); *at; at = rest_skip(at)) {
    char *end;
    double number = isdigit((unsigned char)*at) ? strtod(at, &end) : -1;
    double last = out->count ? out->at[out->count - 1] : -1;
    bool is_fine = number > last && number >= 0 && number < (out->is_share ? 1 : 9e15);
    if (!is_fine || out->count == PLAN_MOST_RESTS || (*end && !strchr(" \t", *end))) return false;
    if (!out->is_share && number != floor(number)) return false;
    out->at[out->count++] = number;
    at = end;
  }
  return out->count > 0;
}

StepRule step_rule_of(const SettingValue *settings) {
  StepRule rule = {.grow = grow_of(settings), .every = 1};
  if (!rest_read(setting_text(settings, rest_key), &rule.rest)) rule.rest = (RestRule){0};
  if (strcmp(setting_text(settings, "train.sharpness"), "none") != 0)
    rule.every = (int64_t)setting_number(settings, "train.sharpness.every");
  return rule;
}

bool step_rule_is_one(const StepRule *rule) {
  return !rule->grow.kind && !rule->rest.count && rule->every <= 1;
}

static void take_until(int64_t *until, int64_t bound) { *until = bound < *until ? bound : *until; }

StepForm step_form(const StepRule *rule, const SettingValue *settings, int64_t total_steps, int64_t step,
                   int64_t *until) {
  int64_t grown = INT64_MAX;
  StepForm form = {.size = grow_size(&rule->grow, settings, total_steps, step, &grown)};
  *until = grown;
  for (int i = 0; i < rule->rest.count; i++) {
    if (rule->rest.is_share && !total_steps) break; /* nobody has said how many there are */
    double bound = rule->rest.at[i] * (rule->rest.is_share ? (double)total_steps : 1);
    int64_t from = (int64_t)floor(bound + 0.5);
    if (step < from) {
      take_until(until, from);
      break;
    }
    form.resting = i + 1;
  }
  if (rule->every > 1) {
    form.is_plain = step % rule->every != 0;
    take_until(until, form.is_plain ? step + rule->every - step % rule->every : step + 1);
  }
  return form;
}

bool step_form_equal(StepForm a, StepForm b) {
  return a.size == b.size && a.resting == b.resting && a.is_plain == b.is_plain;
}

void step_form_append_name(StepForm form, Text *out) {
  if (form.size) text_printf(out, ".%lld", (long long)form.size);
  if (form.resting) text_printf(out, ".resting%lld", (long long)form.resting);
  if (form.is_plain) text_printf(out, ".plain");
}

void step_form_append(const SettingValue *settings, StepForm form, Text *out) {
  if (form.size) grow_append_size(settings, form.size, out);
  if (form.resting)
    text_printf(out, "%s%lld group%s resting", form.size ? ", " : "", (long long)form.resting,
                form.resting > 1 ? "s" : "");
  if (form.is_plain) text_printf(out, "%splain", form.size || form.resting ? ", " : "");
}
