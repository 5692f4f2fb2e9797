/* settings: the table of settings.def and values for it. Ranges and choices stand here, beside the
 * parser of values, so that the compiler, ftrun --set and the plan reader refuse the same things.
 */
#include "plan/plan.h"
#include "base/foreign.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const SettingInfo setting_info[] = {
#define SETTING(key, kind, when, otherwise, doc) {key, SET_##kind, WHEN_##when, otherwise, doc},
#include "plan/settings.def"
#undef SETTING
};
enum { COUNT = sizeof setting_info / sizeof *setting_info };
const int setting_count = COUNT;

const OptimizerInfo optimizer_info[] = {
#define OPTIMIZER(name, arguments, defaults, buffers, rest)                                        \
  {#name, arguments, defaults, buffers, rest},
#include "plan/optimizers.def"
#undef OPTIMIZER
};
const int optimizer_count = sizeof optimizer_info / sizeof *optimizer_info;

const OptimizerInfo *optimizer_find(const char *name) {
  for (int i = 0; i < optimizer_count; i++)
    if (!strcmp(optimizer_info[i].name, name)) return &optimizer_info[i];
  return NULL;
}

bool optimizer_takes(const char *optimizer, const char *argument) {
  const OptimizerInfo *row = optimizer_find(optimizer);
  const char *at = row ? row->arguments : "";
  size_t length = strlen(argument);
  for (at += strspn(at, " "); *at; at += strcspn(at, " "), at += strspn(at, " "))
    if (strcspn(at, " :") == length && memcmp(at, argument, length) == 0) return true;
  return false;
}

/* Numbers not listed: integers from 0, floats any finite value. */
static const struct {
  const char *key;
  double low, high;
} ranges[] = {
    {"train.batch", 1, 1 << 30},
    {"train.accumulate", 1, 1 << 20},
    {"train.clip", 0, INFINITY},
    {"train.clip_value", 0, INFINITY},
    {"train.initial_accumulator", 0, INFINITY},
    {"train.muon.steps", 1, 99},
    {"train.alpha", 0, 1},
    {"train.lr_decay", 0, INFINITY},
    {"train.ema", 0, 1},
    {"train.average.start", 0, 1},
    {"train.lr", 0, INFINITY},
    {"train.weight_decay", 0, INFINITY},
    {"train.momentum", 0, 1},
    {"train.dampening", 0, 1},
    {"train.beta1", 0, 1},
    {"train.beta2", 0, 1},
    {"train.eps", 0, INFINITY},
    {"train.fp8.history", 1, 1 << 16},
    {"train.fp8.margin", 0, 64},
    {"train.prune.sparsity", 0, 1},
    {"train.prune.initial", 0, 1},
    {"train.prune.every", 1, 9007199254740992.0},
    {"train.prune.average", 0, 1},
    {"train.sharpness.every", 1, 9007199254740992.0},
    {"train.freeze.rate.final", 0, 1},
    {"train.sharpness.rho", 0, INFINITY},
    {"train.sharpness.eta", 0, INFINITY},
    {"train.quantize.after", 0, 9007199254740992.0},
    {"train.quantize.observe", 0, 9007199254740992.0},
    {"train.grow.share", 0, 1},
    {"train.schedule.final", 0, INFINITY},
    {"train.schedule.every", 1, 9007199254740992.0},
    {"train.schedule.gamma", 0, INFINITY},
    {"train.schedule.pct_start", 0, 1},
    {"train.schedule.div_factor", 1e-9, INFINITY},
    {"train.schedule.final_div_factor", 1e-9, INFINITY},
    {"train.schedule.threshold", 0, INFINITY},
    {"train.checkpoint.every", 1, 9007199254740992.0},
    {"train.stop.patience", 1, 9007199254740992.0},
    {"train.stop.threshold", 0, INFINITY},
    {"train.max_time", 0, 1e9},
    {"train.max_time.spare", 0, 1e9},
    {"train.timeout", 0, 1e6},
    {"train.log.histograms", 0, 9007199254740992.0},
    {"train.log.samples", 0, 64},
    {"train.log.prompt_tokens", 1, 1 << 20},
    {"train.log.temperature", 0, INFINITY},
    {"train.log.layers", 0, 9007199254740992.0},
    {"train.log.every", 1, 9007199254740992.0},
    {"data.fold", 1, 1 << 20},
    {"data.folds", 2, 1 << 20},
    {"data.workers", 0, 256},
    {"data.prefetch", 1, 4096},
    {"distributed.bucket", 0, 1e6},
    {"distributed.zero", 0, 3},
    {"distributed.pipeline", 1, SETTING_MOST_STAGES},
    {"distributed.interleave", 1, SETTING_MOST_STAGES},
    {"distributed.pieces", 0, 16},
    {"distributed.tensor", 1, SETTING_MOST_RANKS},
    {"distributed.timeout", 1, 1e6},
    {"distributed.ranks", 1, SETTING_MOST_RANKS},
    {"distributed.rank", 0, SETTING_MOST_RANKS},
    {"distributed.data_rank", 0, SETTING_MOST_RANKS},
    {"distributed.pipeline_rank", 0, SETTING_MOST_RANKS},
    {"distributed.tensor_rank", 0, SETTING_MOST_RANKS},
};

/* Strings that must be one of a few, separated by spaces. */
static const struct {
  const char *key, *choices;
} choices[] = {
    {"train.precision", "f32 tf32 bf16 fp16 fp8"},
    {"train.fp8.scaling", "current delayed"},
    {"train.recompute", "none pointwise block auto"},
#define OPTIMIZER(name, arguments, defaults, buffers, rest) #name " "
    {
        "train.optimizer",
#include "plan/optimizers.def"
    },
#undef OPTIMIZER
    {"train.schedule", "constant step exponential linear cosine onecycle wsd plateau"},
    {"train.prune", "none magnitude movement gradient zeros"},
    {"train.prune.scope", "layer global"},
    {"train.sharpness", "none sam asam"},
    {"train.freeze.rate", "constant cosine scaled_cosine"},
    {"train.average", "ema swa"},
    {"train.muon.adjust", "match_rms_adamw original"},
    {"train.eval.unit", "epoch step"},
    {"train.checkpoint.unit", "epoch step"},
};

/* "any" or how many; -1: neither. */
static int64_t count_of_ranks(const char *text) {
  char *end;
  if (strcmp(text, "any") == 0) return 0;
  size_t digits = strspn(text, "0123456789");
  long long number = strtoll(text, &end, 10); /* too large a one is LLONG_MAX */
  return digits && !text[digits] && number >= 1 && number <= SETTING_MOST_RANKS ? number : -1;
}

int64_t setting_ranks(const SettingValue *values) {
  return count_of_ranks(setting_text(values, "distributed.data"));
}

int64_t setting_tensor(const SettingValue *values) {
  return (int64_t)setting_number(values, "distributed.tensor");
}

int64_t setting_pipeline(const SettingValue *values) {
  return (int64_t)setting_number(values, "distributed.pipeline");
}

int64_t setting_group(const SettingValue *values) {
  return setting_pipeline(values) * setting_tensor(values);
}

int64_t setting_parts(const SettingValue *values) {
  int64_t ranks = setting_ranks(values);
  return ranks > 1 && setting_number(values, "distributed.zero") > 0 ? ranks : 1;
}

bool setting_averages(const SettingValue *values) {
  return setting_number(values, "train.ema") != 0 || !strcmp(setting_text(values, "train.average"), "swa");
}

int setting_find(const char *key) {
  for (int i = 0; i < COUNT; i++)
    if (!strcmp(setting_info[i].key, key)) return i;
  return -1;
}

int setting_find_short(const char *name, char *key, size_t capacity) {
  static const char *const before[] = {"", "train.", "data."};
  for (int i = 0; i < 3; i++) {
    snprintf(key, capacity, "%s%s", before[i], name);
    int index = setting_find(key);
    if (index >= 0 && setting_info[index].when != WHEN_DERIVED) return index;
  }
  return -1;
}

/* A person may leave out the section: "lr" means train.lr. */
const char *setting_nearest(const char *key) {
  const char *keys[COUNT], *tails[COUNT];
  for (int i = 0; i < COUNT; i++) {
    keys[i] = setting_info[i].key;
    tails[i] = strchr(keys[i], '.') + 1;
    if (!strcmp(tails[i], key)) return keys[i];
  }
  const char *best = text_nearest(key, keys, COUNT);
  if (best) return best;
  const char *tail = text_nearest(key, tails, COUNT);
  for (int i = 0; tail && i < COUNT; i++)
    if (tails[i] == tail) return keys[i];
  return NULL;
}

const char *setting_needs(const SettingValue *values, int index) {
  static const struct {
    const char *group, *off, *example;
  } groups[] = {{"train.prune", "none", "train.prune=magnitude"},
                {"train.grow", "", "train.grow=batch(16)"},
                {"train.sharpness", "none", "train.sharpness=sam"},
                {"train.freeze.rate", "constant", "train.freeze.rate=cosine"},
                {"train.average", "ema", "train.average=swa"}};
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
    size_t length = strlen(groups[i].group);
    bool is_inside = !strncmp(setting_info[index].key, groups[i].group, length) && setting_info[index].key[length] == '.';
    if (is_inside && !strcmp(setting_text(values, groups[i].group), groups[i].off)) return groups[i].example;
  }
  return NULL;
}

bool setting_is_of_run(int index) {
  static const char *const of_run[] = {"train.epochs", "train.steps", "train.eval.", "train.checkpoint.", "train.stop.", "train.max_time", "train.log.", "data.", "distributed.",
                                       "train.schedule.metric", "train.schedule.patience", "train.schedule.threshold", "train.schedule.cooldown"};
  for (size_t i = 0; i < sizeof of_run / sizeof *of_run; i++)
    if (!strncmp(setting_info[index].key, of_run[i], strlen(of_run[i]))) return true;
  return false;
}

bool setting_is_of_steps(int index) {
  static const char *const by_host[] = {"train.seed", "train.timeout", "train.grow.every", "train.grow.share", NULL};
  const SettingInfo *info = &setting_info[index];
  return info->when == WHEN_RUNTIME && !setting_is_of_run(index) && !text_is_one_of(info->key, by_host);
}

void setting_hint(const char *key, char *out, size_t size) {
  const char *tail = strrchr(key, '.'), *nearest = setting_nearest(key);
  const char *advice = foreign_find(FOREIGN_SET, tail ? tail + 1 : key);
  out[0] = 0;
  if (advice)
    snprintf(out, size, "; %s", advice);
  else if (nearest && setting_info[setting_find(nearest)].when == WHEN_DERIVED)
    snprintf(out, size, "; %s follows from how the run is started and from its data, and cannot be set", nearest);
  else if (nearest)
    snprintf(out, size, "; did you mean '%s'?", nearest);
}

static bool set_text(Arena *arena, SettingValue *out, const char *key, const char *value,
                     const char **why) {
  for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
    if (!strcmp(choices[i].key, key) && !text_has_word(choices[i].choices, value)) {
      const char *list = choices[i].choices;
      size_t length = strlen(list);
      if (list[length - 1] == ' ') length--;
      *why = arena_printf(arena, "'%s' is none of: %.*s", value, (int)length, list);
      return false;
    }
  if (!strcmp(key, "distributed.data") && count_of_ranks(value) < 0) {
    *why = arena_printf(arena, "'%s' is neither any nor a number of ranks from 1 to %d", value,
                        SETTING_MOST_RANKS);
    return false;
  }
  for (const unsigned char *at = (const unsigned char *)value; *at; at++)
    if (*at < ' ' || *at == 0x7f) {
      *why = "the text holds a control character";
      return false;
    }
  out->text = arena_strdup(arena, value);
  return true;
}

static bool parse_bool(const char *value, double *out) {
  static const char *const yes = "true yes on 1", *const no = "false no off 0";
  bool is_yes = text_has_word(yes, value);
  if (!is_yes && !text_has_word(no, value)) return false;
  *out = is_yes;
  return true;
}

static bool is_time(const SettingInfo *info) {
  return strncmp(info->key, "train.max_time", 14) == 0;
}

/* What a unit behind a number makes of it: "GiB" of a budget bytes, "m" of a time seconds; 0: no
 * unit of this setting. */
static double unit_of(const SettingInfo *info, const char *text) {
  static const struct {
    const char *unit;
    double factor;
    bool is_for_time;
  } units[] = {{"KiB", 0x1p10, false}, {"MiB", 0x1p20, false}, {"GiB", 0x1p30, false},
               {"TiB", 0x1p40, false}, {"s", 1, true},         {"m", 60, true},
               {"min", 60, true},      {"h", 3600, true},      {"d", 86400, true}};
  bool is_size = text_ends_with(info->key, ".budget");
  text += strspn(text, " ");
  for (size_t i = 0; i < sizeof units / sizeof *units && (is_size || is_time(info)); i++)
    if (units[i].is_for_time == is_time(info) && !strcmp(text, units[i].unit))
      return units[i].factor;
  return 0;
}

static bool set_number(Arena *arena, SettingValue *out, const SettingInfo *info, const char *value,
                       const char **why) {
  double number = 0, low = info->kind == SET_INT ? 0 : -INFINITY;
  double high = info->kind == SET_INT ? 9007199254740992.0 : INFINITY; /* 2^53 */
  char *end = NULL;
  if (info->kind == SET_BOOL) {
    *why = arena_printf(arena, "'%s' is neither true nor false", value);
    return parse_bool(value, &out->number);
  }
  bool may_be_auto = !strcmp(info->key, "data.workers") || !strcmp(info->key, "data.prefetch");
  if (may_be_auto && !strcmp(value, "auto")) {
    out->number = SETTING_AUTO;
    return true;
  }
  size_t digits = strspn(value, "0123456789+-.eE");
  if (digits == strlen(value) || unit_of(info, value + digits)) number = strtod(value, &end);
  if (end && *end) {
    number *= unit_of(info, end);
    if (info->kind == SET_INT) number = floor(number);
    end += strlen(end);
  }
  if (!end || end == value || *end || !isfinite(number) ||
      (info->kind == SET_INT && number != floor(number))) {
    *why = arena_printf(arena, "'%s' is no %s", value,
                        is_time(info)           ? "time, such as 90m or 2h"
                        : info->kind == SET_INT ? "whole number"
                                                : "finite number");
    return false;
  }
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
    if (!strcmp(ranges[i].key, info->key)) low = ranges[i].low, high = ranges[i].high;
  if (number < low || number > high) {
    *why = number < low ? arena_printf(arena, "%.10g is less than %.16g", number, low)
                        : arena_printf(arena, "%s is more than %.16g", value, high);
    return false;
  }
  out->number = number;
  return true;
}

bool setting_set(Arena *arena, SettingValue *values, int index, const char *value,
                 const char **why) {
  assert(index >= 0 && index < COUNT);
  const SettingInfo *info = &setting_info[index];
  bool is_good = info->kind == SET_STR ? set_text(arena, &values[index], info->key, value, why)
                                       : set_number(arena, &values[index], info, value, why);
  if (is_good) values[index].is_set = true, values[index].loc = (Loc){0};
  if (!is_good && strchr(value, '(') && text_ends_with(value, ")")) /* adamw(lr=1e-3), as the file has it */
    *why = arena_printf(arena, "%s; brackets are for the file, here each value in them has a setting of its own: docs/language.md#settings", *why);
  return is_good;
}

const char *setting_off(int index, const char *value) {
  static const char *const numbers[] = {"train.clip", "train.clip_value", "train.ema", "train.max_time", "train.eval.every"};
  const SettingInfo *info = &setting_info[index];
  if (strcmp(value, "none") != 0) return value;
  if (info->kind == SET_STR) return *info->otherwise ? value : "";
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (!strcmp(numbers[i], info->key)) return "0";
  return value;
}

SettingValue *settings_new(Arena *arena) {
  SettingValue *values = ARENA_ARRAY(arena, SettingValue, COUNT);
  for (int i = 0; i < COUNT; i++) {
    const char *why = "";
    bool is_good = setting_set(arena, values, i, setting_info[i].otherwise, &why);
    assert(is_good && "a default of settings.def is out of its own range");
    (void)is_good;
    values[i].is_set = false;
  }
  return values;
}

Loc setting_loc(const SettingValue *values, const char *key) {
  return values[setting_find(key)].loc;
}

double setting_number(const SettingValue *values, const char *key) {
  int index = setting_find(key);
  assert(index >= 0 && setting_info[index].kind != SET_STR);
  return values[index].number;
}

const char *setting_text(const SettingValue *values, const char *key) {
  int index = setting_find(key);
  assert(index >= 0 && setting_info[index].kind == SET_STR);
  return values[index].text;
}
