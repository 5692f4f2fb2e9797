/* tune: see tune.h. What it lets pass is what space_add (runtime/tune/space_text.c) takes. */
#include "frontend/tune.h"
#include "base/text.h"
#include "plan/goals.h"
#include "plan/plan.h"
#include "plan/tuned.h"
#include "plan/where.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TUNE_RANGES "log(1e-5, 1e-1), range(0, 0.5), int(1, 8), log_int(16, 1024) or [64, 128, 256]"

enum { MOST_VALUES = 64, MOST_DIMENSIONS = 64, VALUE_LETTERS = 95, MOST_CONDITIONS = 16 };

const TuneSetting tune_settings[] = {
    {"goal", "--goal", TUNE_GOAL, "min max", 0, 0, "max(valid.accuracy)", "what is best"},
    {"sampler", "--sampler", TUNE_WORD, "gp tpe cma random sobol grid", 0, 0, "gp",
     "how trials are chosen"},
    {"trials", "--trials", TUNE_COUNT, NULL, 1, 100000, "20", "how many trials"},
    {"parallel", "--parallel", TUNE_COUNT, NULL, 1, 256, "1", "trials at a time"},
    {"seed", "--seed", TUNE_COUNT, NULL, 0, 1e15, "0", "of the sampler's draws"},
    {"prune", "--prune", TUNE_WORD, "none median asha hyperband", 0, 0, "none",
     "which trials end early"},
    {"prune_from", "--prune-from", TUNE_NUMBER, NULL, 1, 1e15, "100",
     "asha, hyperband: steps of the first rung"},
    {"prune_factor", "--prune-factor", TUNE_NUMBER, NULL, 1.5, 100, "3",
     "asha, hyperband: one in so many goes on"},
    {"where", "--where", TUNE_WHERE, NULL, 0, 0, "\"hidden * layers <= 1024\"",
     "what every trial keeps; again for more"},
    {0}};

const TuneSetting *tune_setting_find(const char *name) {
  for (const TuneSetting *s = tune_settings; s->name; s++)
    if (strcmp(s->name, name) == 0) return s;
  return NULL;
}

typedef struct {
  const char *name; /* as written */
  Tuned tuned;
  const Ast *entry;
  VEC(const char *) values; /* of [ … ] */
} Dimension;

typedef struct {
  Builder *b;
  VEC(Dimension) dims;
  VEC(const Ast *) given; /* entries of settings */
  VEC(const Ast *) wheres; /* texts of conditions */
  SettingValue *trial;    /* to try values of settings on */
} TuneBlock;

/* ── values as text ───────────────────────────────────────────────────────────────────────── */
static bool tune_number(const Ast *ast, double *out) {
  bool is_signed = ast->kind == AST_UNARY && *ast->name != 'n';
  const Ast *value = is_signed ? ast->kid[0] : ast;
  if (value->kind != AST_INT && value->kind != AST_FLOAT) return false;
  double number = value->kind == AST_INT ? (double)value->integer : value->number;
  *out = is_signed && *ast->name == '-' ? -number : number;
  return isfinite(*out);
}

static const char *number_as_text(Arena *arena, double value) {
  Text text = {0};
  text_append_shortest(&text, value);
  const char *copy = arena_strdup(arena, text_cstr(&text));
  text_free(&text);
  return copy;
}

static bool is_choice_word(const char *text) {
  size_t length = 0;
  while (isalnum((unsigned char)text[length]) || (text[length] && strchr("_.+-/:%", text[length]))) length++;
  return length && !text[length];
}

/* As --space has it: in quotes, unless it is a word. */
static const char *choice_as_flag(Arena *arena, const char *value) {
  return is_choice_word(value) ? value : arena_printf(arena, "\"%s\"", value);
}

/* One of [ … ]; NULL: it cannot be one. */
static const char *choice_as_text(Arena *arena, const Ast *ast) {
  double number;
  const Ast *whole = ast->kind == AST_UNARY ? ast->kid[0] : ast;
  if (whole->kind == AST_INT && tune_number(ast, &number))
    return ast == whole ? ast_to_text(arena, ast)
                        : arena_printf(arena, "%s%s", *ast->name == '-' ? "-" : "",
                                       ast_to_text(arena, whole));
  if (tune_number(ast, &number)) return number_as_text(arena, number);
  bool is_word = ast->kind == AST_NAME || ast->kind == AST_STRING || ast->kind == AST_BOOL ||
                 ast->kind == AST_NONE;
  if (!is_word) return NULL;
  const char *text = ast->kind == AST_STRING ? ast->name : ast_to_text(arena, ast);
  for (const unsigned char *at = (const unsigned char *)text; *at; at++)
    if (*at < ' ' || *at == 0x7f || *at == '"') return NULL;
  return strlen(text) <= VALUE_LETTERS ? text : NULL;
}

/* ── dimensions ───────────────────────────────────────────────────────────────────────────── */
static const char *hyper_type(const Program *program, const char *name) {
  for (int i = 0; i < program->hypers.count; i++)
    if (strcmp(program->hypers.at[i].name, name) == 0) return program->hypers.at[i].type;
  return NULL;
}

static bool fail_unknown(const TuneBlock *t, const char *name, Loc loc) {
  VEC(const char *) names = {0};
  char hint[200];
  Arena *arena = t->b->arena;
  for (int i = 0; i < t->b->program->hypers.count; i++)
    VEC_PUSH(arena, names, t->b->program->hypers.at[i].name);
  for (const TuneSetting *s = tune_settings; s->name; s++) VEC_PUSH(arena, names, s->name);
  setting_hint(name, hint, sizeof hint);
  char *set =
      strstr(hint, "--set "); /* for a command line: the name is of use here, the value is not */
  if (set)
    snprintf(hint, sizeof hint, "; write %s",
             arena_strndup(arena, set + 6, strcspn(set + 6, "= ")));
  const char *own = builder_hint(t->b, name, names.at, names.count);
  return builder_fail(t->b, loc,
                      "'%s' is no hyper of this file, no setting of a training and none of "
                      "`ftrun tune`%s",
                      name, *own ? own : hint);
}

/* Hypers go before settings, but `hyper.NAME` is nothing else. */
static bool name_dimension(TuneBlock *t, const Ast *at, const char *written, Dimension *dim) {
  bool is_hyper = strncmp(written, "hyper.", 6) == 0;
  char key[128];
  dim->name = dim->tuned.key = is_hyper ? written + 6 : written;
  dim->tuned.setting = -1;
  dim->tuned.type = hyper_type(t->b->program, dim->name);
  if (strlen(dim->name) > VALUE_LETTERS)
    return builder_fail(t->b, at->loc, "a dimension's name has at most %d letters", VALUE_LETTERS);
  if (!dim->tuned.type && !is_hyper) {
    dim->tuned.setting = setting_find_short(dim->name, key, sizeof key);
    if (dim->tuned.setting >= 0) {
      dim->tuned.key = arena_strdup(t->b->arena, key);
      dim->tuned.type = tuned_type(setting_info[dim->tuned.setting].kind);
    }
  }
  return dim->tuned.type || fail_unknown(t, written, at->loc);
}

static const Dimension *same_dimension(const TuneBlock *t, const Dimension *dim) {
  for (int i = 0; i < t->dims.count; i++) {
    const Dimension *known = &t->dims.at[i];
    if (strcmp(known->tuned.key, dim->tuned.key) == 0 && (known->tuned.setting < 0) == (dim->tuned.setting < 0))
      return known;
  }
  return NULL;
}

/* Can the hyper or setting be this? */
static bool value_fits(const TuneBlock *t, const Dimension *dim, const char *value, Loc loc) {
  char why[TUNED_WHY];
  return tuned_takes(&dim->tuned, t->b->arena, t->trial, value, why) || builder_fail(t->b, loc, "%s", why);
}

static bool fail_range(const TuneBlock *t, Loc loc, const char *why) {
  return builder_fail(t->b, loc, "%s; a range is " TUNE_RANGES, why);
}

static bool read_choices(TuneBlock *t, const Ast *list, Dimension *dim, const char **text) {
  if (!list->count) return fail_range(t, list->loc, "there is nothing to choose from");
  if (list->count > MOST_VALUES)
    return builder_fail(t->b, list->loc, "more than %d values", MOST_VALUES);
  *text = "[";
  for (int i = 0; i < list->count; i++) {
    const Ast *kid = list->kid[i];
    const char *value = choice_as_text(t->b->arena, kid);
    if (!value)
      return builder_fail(t->b, kid->loc,
                          "a value to choose is a number, a word or a string of at most %d letters "
                          "without quotes and control characters",
                          VALUE_LETTERS);
    for (int k = 0; k < dim->values.count; k++)
      if (strcmp(dim->values.at[k], value) == 0)
        return builder_fail(t->b, kid->loc, "%s is there twice; leave one of them out", value);
    if (!value_fits(t, dim, value, kid->loc)) return false;
    VEC_PUSH(t->b->arena, dim->values, value);
    *text = arena_printf(t->b->arena, "%s%s%s", *text, i ? ", " : "", choice_as_flag(t->b->arena, value));
  }
  *text = arena_printf(t->b->arena, "%s]", *text);
  return true;
}

/* Numbers as they are in a range: low, high, step (0: none). */
static bool check_tuned_range(const TuneBlock *t, const Ast *call, const Dimension *dim,
                              const double n[3], bool is_int) {
  bool is_log = strncmp(call->kid[0]->name, "log", 3) == 0;
  bool is_whole = floor(n[0]) == n[0] && floor(n[1]) == n[1] && floor(n[2]) == n[2];
  Loc loc = call->loc;
  Builder *b = t->b;
  if (!(n[0] <= n[1]))
    return builder_fail(b, loc, "the least number is above the largest: swap them");
  if (is_log && !(n[0] > 0)) return builder_fail(b, loc, "a logarithm needs numbers above 0");
  if (is_log && n[2] > 0)
    return builder_fail(b, loc,
                        "a logarithmic range has no step; leave it out, or list the values "
                        "in [ ]");
  if (is_int && (!is_whole || fabs(n[0]) > 1e15 || fabs(n[1]) > 1e15))
    return builder_fail(b, loc, "int takes whole numbers; others are of range(%s, %s)",
                        number_as_text(b->arena, n[0]), number_as_text(b->arena, n[1]));
  if (n[2] > 0 && (n[1] - n[0]) / n[2] > 1e15)
    return builder_fail(b, loc, "there are too many steps in this range");
  char why[TUNED_WHY];
  if (!tuned_takes_range(&dim->tuned, &(TunedRange){is_log, is_int, n[0], n[1], n[2]}, why))
    return builder_fail(b, loc, "%s", why);
  return value_fits(t, dim, number_as_text(b->arena, n[0]), call->kid[1]->loc) &&
         value_fits(t, dim, number_as_text(b->arena, n[1]), call->kid[2]->loc);
}

static bool read_range(TuneBlock *t, const Ast *call, const Dimension *dim, const char **text) {
  static const char *const forms[] = {"log", "range", "int", "log_int"};
  const char *form = call->kid[0]->kind == AST_NAME ? call->kid[0]->name : "";
  bool is_known = false;
  double n[3] = {0};
  for (int i = 0; i < 4; i++) is_known |= strcmp(form, forms[i]) == 0;
  if (!is_known) return fail_range(t, call->loc, "this is no range");
  bool is_pair = (call->count == 3 || call->count == 4) && tune_number(call->kid[1], &n[0]) &&
                 tune_number(call->kid[2], &n[1]);
  if (!is_pair)
    return builder_fail(t->b, call->loc,
                        "%s takes two numbers, the least and the largest: %s(1, 8)", form, form);
  if (call->count == 4) {
    const Ast *step = call->kid[3];
    bool is_step = step->kind == AST_KEYWORD && strcmp(step->name, "step") == 0 &&
                   tune_number(step->kid[0], &n[2]) && n[2] > 0;
    if (!is_step)
      return builder_fail(t->b, step->loc,
                          "behind the two numbers only step=S may stand, with a number above 0");
  }
  if (!check_tuned_range(t, call, dim, n, strstr(form, "int") != NULL)) return false;
  Arena *arena = t->b->arena;
  const char *step = n[2] > 0 ? arena_printf(arena, ", step=%s", number_as_text(arena, n[2])) : "";
  *text = arena_printf(arena, "%s(%s, %s%s)", form, number_as_text(arena, n[0]),
                       number_as_text(arena, n[1]), step);
  return true;
}

/* ` if optimizer=sgd|lion` */
static bool read_condition(TuneBlock *t, const Ast *only, const char **text) {
  const Ast *parent = only->kid[1], *values = only->kid[2];
  bool is_name = parent->kind == AST_NAME || parent->kind == AST_ATTRIBUTE;
  Dimension dim = {0};
  if (!is_name)
    return builder_fail(t->b, parent->loc, "behind `if` stands NAME = VALUE, of another dimension");
  const char *written = ast_to_text(t->b->arena, parent);
  if (!name_dimension(t, parent, written, &dim)) return false;
  const Dimension *of = same_dimension(t, &dim);
  if (!of)
    return builder_fail(t->b, parent->loc,
                        "'%s' is no dimension above this line; `if` asks for one that is", written);
  if (!of->values.count)
    return builder_fail(t->b, parent->loc,
                        "'%s' has a range, not values in [ ]: `if` asks for one of these", written);
  *text = arena_printf(t->b->arena, "%s if %s", *text, of->name);
  for (int i = 0; i < values->count; i++) {
    const char *value = choice_as_text(t->b->arena, values->kid[i]);
    bool is_one = false;
    for (int k = 0; value && k < of->values.count; k++)
      is_one |= strcmp(of->values.at[k], value) == 0;
    if (!is_one)
      return builder_fail(t->b, values->kid[i]->loc, "this is no value of '%s'%s", of->name,
                          builder_hint(t->b, value ? value : "", of->values.at, of->values.count));
    *text = arena_printf(t->b->arena, "%s%c%s", *text, i ? '|' : '=', choice_as_flag(t->b->arena, value));
  }
  return true;
}

static bool read_dimension(TuneBlock *t, const Ast *entry) {
  const Ast *value = entry->kid[0], *range = value->kind == AST_ONLY ? value->kid[0] : value;
  Dimension dim = {.entry = entry};
  const char *text = "";
  if (!name_dimension(t, entry, entry->name, &dim)) return false;
  const Dimension *before = same_dimension(t, &dim);
  if (before) {
    builder_fail(t->b, entry->loc, "'%s' is given twice", dim.tuned.key);
    builder_note(t->b, before->entry->loc, "the first one is here");
    return false;
  }
  if (t->dims.count == MOST_DIMENSIONS)
    return builder_fail(t->b, entry->loc, "more than %d dimensions", MOST_DIMENSIONS);
  bool fine = range->kind == AST_LIST   ? read_choices(t, range, &dim, &text)
              : range->kind == AST_CALL ? read_range(t, range, &dim, &text)
                                        : fail_range(t, range->loc, "this is no range");
  if (fine && range != value) fine = read_condition(t, value, &text);
  if (!fine) return false;
  VEC_PUSH(t->b->arena, t->dims, dim);
  TuneLine line = {"--space", arena_printf(t->b->arena, "%s=%s", dim.name, text)};
  VEC_PUSH(t->b->arena, t->b->program->tune, line);
  return true;
}

/* ── settings of the study ────────────────────────────────────────────────────────────────── */
static bool is_goal(const Ast *value) {
  return value->kind == AST_CALL && value->count == 2 && value->kid[0]->kind == AST_NAME &&
         text_has_word("min max", value->kid[0]->name) &&
         value->kid[1]->kind == AST_ATTRIBUTE && value->kid[1]->kid[0]->kind == AST_NAME;
}

/* One, or several in [ ]; *text: with commas between, as --goal has them. */
static bool read_goals(TuneBlock *t, const Ast *value, const char **text) {
  bool is_list = value->kind == AST_LIST;
  Goals goals;
  *text = "";
  for (int i = 0; i < (is_list ? value->count : 1); i++) {
    const Ast *one = is_list ? value->kid[i] : value;
    *text = arena_printf(t->b->arena, "%s%s%s", *text, i ? ", " : "",
                         ast_to_text(t->b->arena, one));
    if (is_goal(one) && goals_read(*text, &goals, NULL)) continue;
    return builder_fail(t->b, one->loc,
                        "a goal is a number of the log: min(valid.loss), max(valid.accuracy) or "
                        "the like, or of run.seconds, run.samples_per_s, model.parameters, "
                        "model.weight_bytes, model.memory; [ ] has up to %d different ones",
                        GOALS_MOST);
  }
  return **text || builder_fail(t->b, value->loc, "there is no goal in [ ]");
}

static bool fail_no_dimension(const TuneBlock *t, const Ast *entry, const TuneSetting *setting) {
  const char *name = entry->name, *instead = "";
  char key[128];
  if (hyper_type(t->b->program, name))
    instead = arena_printf(t->b->arena, "; the hyper is hyper.%s", name);
  else if (setting_find_short(name, key, sizeof key) >= 0)
    instead = arena_printf(t->b->arena, "; that of a training is %s", key);
  return builder_fail(t->b, entry->loc,
                      "'%s' is a setting of the study itself and takes one value: %s = %s%s", name,
                      name, setting->form, instead);
}

/* Read at the end, when all dimensions are known. */
static bool keep_where(TuneBlock *t, const Ast *entry, const TuneSetting *setting) {
  const Ast *value = entry->kid[0];
  if (value->kind == AST_LIST || value->kind == AST_ONLY || value->kind == AST_CALL)
    return fail_no_dimension(t, entry, setting);
  if (value->kind != AST_STRING)
    return builder_fail(t->b, value->loc, "a condition stands in quotes: where = \"%s\"",
                        ast_to_text(t->b->arena, value));
  VEC_PUSH(t->b->arena, t->wheres, value);
  return true;
}

static bool read_study_setting(TuneBlock *t, const Ast *entry, const TuneSetting *setting) {
  const Ast *value = entry->kid[0];
  const char *text = ast_to_text(t->b->arena, value);
  double number;
  if (setting->kind == TUNE_WHERE) return keep_where(t, entry, setting);
  for (int i = 0; i < t->given.count; i++)
    if (strcmp(t->given.at[i]->name, entry->name) == 0) {
      builder_fail(t->b, entry->loc, "'%s' is given twice", entry->name);
      builder_note(t->b, t->given.at[i]->loc, "the first one is here");
      return false;
    }
  VEC_PUSH(t->b->arena, t->given, entry);
  bool is_range = value->kind == AST_ONLY ||
                  ((value->kind == AST_LIST || value->kind == AST_CALL) && setting->kind != TUNE_GOAL);
  if (is_range) return fail_no_dimension(t, entry, setting);
  if (setting->kind == TUNE_GOAL && !read_goals(t, value, &text)) return false;
  if (setting->kind == TUNE_WORD && !text_has_word(setting->words, text))
    return builder_fail(t->b, value->loc, "'%s' is no %s; there are: %s", text, entry->name,
                        setting->words);
  if (setting->kind == TUNE_COUNT || setting->kind == TUNE_NUMBER) {
    bool is_count = setting->kind == TUNE_COUNT;
    if (!tune_number(value, &number) || number < setting->low || number > setting->high ||
        (is_count && floor(number) != number))
      return builder_fail(t->b, value->loc, "%s takes a %snumber from %.15g to %.15g", entry->name,
                          is_count ? "whole " : "", setting->low, setting->high);
    text =
        is_count ? arena_printf(t->b->arena, "%.0f", number) : number_as_text(t->b->arena, number);
  }
  TuneLine line = {setting->flag, text};
  VEC_PUSH(t->b->arena, t->b->program->tune, line);
  return true;
}

/* ── conditions ───────────────────────────────────────────────────────────────────────────── */
static int find_where_dim(const void *context, const char *name, size_t length) {
  const TuneBlock *t = context;
  Dimension dim = {0};
  const char *written = arena_strndup(t->b->arena, name, length);
  char key[128];
  dim.tuned.key = strncmp(written, "hyper.", 6) == 0 ? written + 6 : written;
  dim.tuned.setting = -1;
  if (!hyper_type(t->b->program, dim.tuned.key) && dim.tuned.key == written) {
    dim.tuned.setting = setting_find_short(written, key, sizeof key);
    if (dim.tuned.setting >= 0) dim.tuned.key = arena_strdup(t->b->arena, key);
  }
  const Dimension *known = same_dimension(t, &dim);
  return known ? (int)(known - t->dims.at) : -1;
}

static const char *where_dim_words(const void *context, int dim, char *out, size_t capacity) {
  const Dimension *d = &((const TuneBlock *)context)->dims.at[dim];
  size_t at = 0;
  bool any = false;
  *out = 0;
  for (int i = 0; i < d->values.count; i++) {
    char *end;
    double number = strtod(d->values.at[i], &end);
    any |= end == d->values.at[i] || *end || !isfinite(number);
    if (at < capacity)
      at += (size_t)snprintf(out + at, capacity - at, "%s%s", i ? ", " : "", d->values.at[i]);
  }
  return any ? out : NULL;
}

static int where_dim_word(const void *context, int dim, const char *word, size_t length) {
  const Dimension *d = &((const TuneBlock *)context)->dims.at[dim];
  for (int i = 0; i < d->values.count; i++)
    if (strlen(d->values.at[i]) == length && !memcmp(d->values.at[i], word, length)) return i;
  return -1;
}

static void hint_where(const void *context, const char *name, char *out, size_t capacity) {
  const TuneBlock *t = context;
  VEC(const char *) names = {0};
  for (int i = 0; i < t->dims.count; i++) VEC_PUSH(t->b->arena, names, t->dims.at[i].name);
  snprintf(out, capacity, " in this block%s", builder_hint(t->b, name, names.at, names.count));
}

static bool read_where(TuneBlock *t, const Ast *text, int number) {
  WhereNames names = {t, find_where_dim, where_dim_words, where_dim_word, hint_where};
  WhereError error;
  Where *where = arena_alloc(t->b->arena, sizeof *where);
  if (number == MOST_CONDITIONS)
    return builder_fail(t->b, text->loc, "more than %d conditions", MOST_CONDITIONS);
  if (!where_read(text->name, &names, where, &error)) {
    Loc loc = text->loc; /* behind the quote; escapes do not belong into a condition */
    loc.column = (uint16_t)(loc.column + error.at + 1);
    return builder_fail(t->b, loc, "%s", error.why);
  }
  TuneLine line = {"--where", arena_strdup(t->b->arena, where->text)};
  VEC_PUSH(t->b->arena, t->b->program->tune, line);
  return true;
}

void tune_read(Builder *b, const Ast *file) {
  TuneBlock block = {.b = b, .trial = settings_new(b->arena)};
  const Ast *tune = NULL;
  for (int i = 0; i < file->count; i++) {
    if (file->kid[i]->kind != AST_TUNE) continue;
    if (tune) {
      builder_fail(b, file->kid[i]->loc, "a second tune block; a file has one");
      builder_note(b, tune->loc, "the first one is here");
      return;
    }
    tune = file->kid[i];
  }
  for (int i = 0; tune && i < tune->count; i++) {
    const TuneSetting *setting = tune_setting_find(tune->kid[i]->name);
    if (setting)
      read_study_setting(&block, tune->kid[i], setting);
    else
      read_dimension(&block, tune->kid[i]);
  }
  for (int i = 0; i < block.wheres.count; i++) read_where(&block, block.wheres.at[i], i);
}
