/* recipe: the data and train blocks become settings and data sources. Keys are those of
 * plan/settings.def; what the language writes more nicely (adamw(...), cosine(...), every 1 epoch)
 * is translated here. --set comes last and wins. */
#include "frontend/recipe.h"
#include <stdio.h>
#include <string.h>

const char *const recipe_train_words[] = {"model",      "data", "optimizer", "schedule", "eval",
                                          "checkpoint", "log",  "stop",      "freeze",   "prune",
                                          "grow",       "sharpness", "average", NULL};
const char *const recipe_data_words[] = {"train", "valid", "test", NULL};

bool recipe_set_text(Builder *b, const char *key, const char *text, Loc loc) {
  const char *why = NULL;
  int index = setting_find(key);
  if (setting_set(b->arena, b->program->settings, index, text, &why)) {
    b->program->settings[index].loc = loc;
    return true;
  }
  return builder_fail(b, loc, "%s: %s", key, why);
}

/* Names of the settings below a prefix, without it, plus a few more. */
static const char **names_below(Builder *b, const char *prefix, const char *const *more,
                                int *count) {
  VEC(const char *) names = {0};
  size_t length = strlen(prefix);
  for (int i = 0; i < setting_count; i++)
    if (strncmp(setting_info[i].key, prefix, length) == 0 &&
        !strchr(setting_info[i].key + length, '.') && setting_info[i].when != WHEN_DERIVED)
      VEC_PUSH(b->arena, names, setting_info[i].key + length);
  for (; more && *more; more++) VEC_PUSH(b->arena, names, *more);
  *count = names.count;
  return names.at;
}

static bool unknown_key(Builder *b, const char *prefix, const char *const *more, const char *name,
                        Loc loc) {
  int count;
  const char **names = names_below(b, prefix, more, &count);
  return builder_fail(b, loc, "unknown setting '%s%s'%s", prefix, name,
                      builder_hint_as(b, FOREIGN_SETTING, name, names, count));
}

/* `every = 50 steps`, `warmup = 200 steps`: the number, and the unit where there is a choice. */
static bool set_duration(Builder *b, const char *key, const Value *v, Loc loc) {
  const char *last = strrchr(key, '.');
  const char *unit = arena_printf(b->arena, "%.*s.unit", (int)(last - key), key);
  if (strcmp(last, ".every") == 0 && setting_find(unit) >= 0) {
    if (!recipe_set_text(b, unit, v->unit, loc)) return false;
  } else {
    const char *want = strcmp(key, "train.epochs") == 0 ? "epoch" : "step";
    if (strcmp(v->unit, want) != 0)
      return builder_fail(b, loc, "%s is counted in %ss, not in %ss", key, want, v->unit);
  }
  return recipe_set_text(b, key, arena_printf(b->arena, "%lld", (long long)v->i), loc);
}

bool recipe_set_value(Builder *b, const char *key, const Value *v, Loc loc) {
  switch (v->kind) {
  case VALUE_ERROR:
    return false;
  case VALUE_INT:
    return recipe_set_text(b, key, arena_printf(b->arena, "%lld", (long long)v->i), loc);
  case VALUE_FLOAT:
    return recipe_set_text(b, key, arena_printf(b->arena, "%.17g", v->f), loc);
  case VALUE_BOOL:
    return recipe_set_text(b, key, v->i ? "true" : "false", loc);
  case VALUE_STRING:
    return recipe_set_text(b, key, v->s, loc);
  case VALUE_DURATION:
    return set_duration(b, key, v, loc);
  default:
    return builder_fail(b, loc, "%s cannot be %s", key, value_describe(b->arena, v));
  }
}

bool recipe_set_ast(Builder *b, const char *key, const Ast *ast) {
  Value v = eval(b, ast);
  return recipe_set_value(b, key, &v, ast->loc);
}

/* ── sections ─────────────────────────────────────────────────────────────────────────────── */
/* `max(valid.accuracy)` stays text. */
bool recipe_set_metric(Builder *b, const char *key, const char *what, const Ast *ast) {
  const char *text = ast->kind == AST_STRING ? ast->name : ast_to_text(b->arena, ast);
  *recipe_rule_loc(b, key) = ast->loc;
  const Ast *of = ast->kind == AST_CALL && ast->count == 2 ? ast->kid[1] : NULL;
  bool fine = ast->kind == AST_STRING || ast->kind == AST_NONE ||
              (of && of->kind == AST_ATTRIBUTE && ast->kid[0]->kind == AST_NAME &&
               (!strcmp(ast->kid[0]->name, "max") || !strcmp(ast->kid[0]->name, "min")));
  if (!fine)
    return builder_fail(b, ast->loc, "%s is max(valid.accuracy), min(valid.loss) and the like",
                        what);
  return recipe_set_text(b, key, ast->kind == AST_NONE ? "" : text, ast->loc);
}

static bool section_entry(Builder *b, const char *prefix, const Ast *entry) {
  if (entry->kind != AST_ENTRY)
    return builder_fail(b, entry->loc, "unexpected section '%s'", entry->name);
  const char *key = arena_printf(b->arena, "%s%s", prefix, entry->name);
  int index = setting_find(key);
  if (index < 0 || setting_info[index].when == WHEN_DERIVED)
    return unknown_key(b, prefix, NULL, entry->name, entry->loc);
  if (!entry->kid[0]) { /* a bare word switches something on */
    if (strcmp(key, "train.log.jsonl") == 0)
      return recipe_set_text(b, key, "log.jsonl", entry->loc);
    if (strcmp(key, "train.log.csv") == 0) return recipe_set_text(b, key, "log.csv", entry->loc);
    if (strcmp(key, "train.log.tensorboard") == 0)
      return recipe_set_text(b, key, "tensorboard", entry->loc);
    if (setting_info[index].kind == SET_BOOL) return recipe_set_text(b, key, "true", entry->loc);
    return builder_fail(b, entry->loc, "'%s' needs a value: %s = ...", entry->name, entry->name);
  }
  if (recipe_rule_loc(b, key)) return recipe_set_metric(b, key, entry->name, entry->kid[0]);
  bool is_word = entry->kid[0]->kind == AST_NAME && !builder_find(b, entry->kid[0]->name);
  if (is_word && !strcmp(prefix, "data.") && !strcmp(entry->kid[0]->name, "auto"))
    return recipe_set_text(b, key, "auto", entry->loc);
  return recipe_set_ast(b, key, entry->kid[0]);
}

/* The names of sections below `prefix`, "train.": those of settings with one more name behind it. */
static int list_sections(Arena *arena, const char *prefix, const char **names) {
  size_t length = strlen(prefix);
  int count = 0;
  for (int i = 0; i < setting_count; i++) {
    const char *key = setting_info[i].key, *dot = strncmp(key, prefix, length) ? NULL : strchr(key + length, '.');
    bool is_new = dot != NULL;
    for (int k = 0; k < count && is_new; k++) is_new = strncmp(names[k], key + length, (size_t)(dot - key) - length + 1) != 0;
    if (is_new) names[count++] = arena_strndup(arena, key + length, (size_t)(dot - key) - length + 1);
  }
  for (int k = 0; k < count; k++) names[k] = arena_strndup(arena, names[k], strlen(names[k]) - 1);
  return count;
}

/* `schedule { warmup = 9 }`: settings below a name. */
static bool section(Builder *b, const char *outer, const Ast *ast) {
  const char **names = ARENA_ARRAY(b->arena, const char *, setting_count), *prefix = arena_printf(b->arena, "%s%s.", outer, ast->name);
  int count = list_sections(b->arena, outer, names);
  bool is_known = false, fine = true;
  if (strcmp(prefix, "train.stop.") == 0) return recipe_stop(b, ast);
  for (int i = 0; i < count; i++) is_known |= strcmp(names[i], ast->name) == 0;
  if (!is_known && strcmp(ast->name, "distributed") == 0)
    return builder_fail(b, ast->loc, "distributed { } stands beside train { }, not in it");
  if (!is_known)
    return builder_fail(b, ast->loc, "unknown section '%s'%s", ast->name, builder_hint_as(b, FOREIGN_SETTING, ast->name, names, count));
  for (int i = 0; i < ast->count; i++) {
    const Ast *entry = ast->kid[i];
    fine = (entry->kind == AST_SECTION ? section(b, prefix, entry) : section_entry(b, prefix, entry)) && fine;
  }
  return fine;
}

/* `model = Mlp`: a top-level name of that kind. */
static const Ast *named(Builder *b, const Ast *ast, ValueKind kind, const char *what) {
  Variable *found = ast->kind == AST_NAME ? builder_find(b, ast->name) : NULL;
  if (found && found->value.kind == kind) return found->value.definition;
  VEC(const char *) names = {0};
  for (int i = 0; i < b->user.names.count; i++)
    if (b->user.names.at[i].value.kind == kind) VEC_PUSH(b->arena, names, b->user.names.at[i].name);
  const char *name = ast->kind == AST_NAME ? ast->name : ast_to_text(b->arena, ast);
  builder_fail(b, ast->loc, "there is no %s '%s'%s", what, name,
               builder_hint(b, name, names.at, names.count));
  return NULL;
}

static bool train_entry(Builder *b, const Ast *entry, const Ast **model, const Ast **data) {
  if (entry->kind == AST_SECTION) return section(b, "train.", entry);
  const Ast *value = entry->kid[0];
  const char *name = entry->name;
  if (!value) return builder_fail(b, entry->loc, "'%s' needs a value: %s = ...", name, name);
  if (strcmp(name, "model") == 0) return (*model = named(b, value, VALUE_MODEL, "model")) != NULL;
  if (strcmp(name, "data") == 0) return (*data = named(b, value, VALUE_DATA, "data block")) != NULL;
  if (strcmp(name, "optimizer") == 0) return recipe_optimizer(b, value);
  if (strcmp(name, "schedule") == 0) return recipe_schedule(b, value);
  if (strcmp(name, "precision") == 0) return recipe_precision(b, value);
  if (strcmp(name, "recompute") == 0) return recipe_recompute(b, value);
  if (strcmp(name, "prune") == 0) return recipe_prune(b, value);
  if (strcmp(name, "quantize") == 0) return recipe_quantize(b, value);
  if (strcmp(name, "sharpness") == 0) return recipe_sharpness(b, value);
  if (strcmp(name, "average") == 0) return recipe_average(b, value);
  if (strcmp(name, "grow") == 0) return recipe_grow(b, value);
  if (strcmp(name, "clip") == 0) return recipe_clip(b, value);
  if (strcmp(name, "batch") == 0) return recipe_batch(b, value);
  if (strcmp(name, "stop") == 0) return recipe_stop(b, value);
  if (strcmp(name, "freeze") == 0) return recipe_freeze(b, value);
  if (strcmp(name, "eval") == 0 && value->kind == AST_NONE)
    return recipe_set_text(b, "train.eval.every", "0", value->loc);
  if (!strcmp(name, "checkpoint") || !strcmp(name, "log"))
    return builder_fail(b, entry->loc, "%s has settings of its own: %s { %s }", name, name,
                        name[0] == 'c' ? "dir = \"runs/a\"; every = 1 epoch" : "every = 50 steps");
  const char *key = arena_printf(b->arena, "train.%s", name);
  int index = setting_find(key);
  if (index < 0 || setting_info[index].when == WHEN_DERIVED)
    return unknown_key(b, "train.", recipe_train_words, name, entry->loc);
  if ((!strcmp(key, "train.ema") || !strcmp(key, "train.max_time")) && value->kind == AST_NONE)
    return recipe_set_text(b, key, "0", value->loc);
  return recipe_set_grouped(b, key, value);
}

/* ── data ─────────────────────────────────────────────────────────────────────────────────── */
/* `fold = 2 of 5` */
static bool data_fold(Builder *b, const Ast *of) {
  return recipe_set_text(b, "data.folds", arena_printf(b->arena, "%lld", (long long)of->integer),
                         of->loc) &&
         recipe_set_ast(b, "data.fold", of->kid[0]);
}

/* Is the entry a split, and is it one whose samples are those of files, or a part of another? */
static bool is_split(const Ast *entry, bool is_part) {
  bool is_named = !strcmp(entry->name, "train") || !strcmp(entry->name, "valid") ||
                  !strcmp(entry->name, "test");
  return entry->kind == AST_ENTRY && is_named && recipe_is_part(entry) == is_part;
}

static bool data_block(Builder *b, const Ast *data, const Ast *model) {
  bool fine = true;
  for (int i = 0; i < data->count; i++) {
    const Ast *entry = data->kid[i];
    const Ast *value = entry->kind == AST_ENTRY ? entry->kid[0] : NULL;
    if (is_split(entry, true)) continue; /* below: its files may stand behind it */
    if (is_split(entry, false)) {
      fine = recipe_source(b, entry, model) && fine;
    } else if (value && !strcmp(entry->name, "order")) {
      fine = recipe_order(b, value, model) && fine;
    } else if (value && value->kind == AST_OF && !strcmp(entry->name, "fold") && !value->name) {
      fine = data_fold(b, value) && fine;
    } else {
      const char *key = arena_printf(b->arena, "data.%s", entry->name);
      if (setting_find(key) < 0)
        fine = unknown_key(b, "data.", recipe_data_words, entry->name, entry->loc);
      else
        fine = section_entry(b, "data.", entry) && fine;
    }
  }
  for (int i = 0; i < data->count; i++)
    if (is_split(data->kid[i], true)) fine = recipe_part(b, data->kid[i], model) && fine;
  return fine;
}

/* ── distributed ──────────────────────────────────────────────────────────────────────────── */
static bool distributed_entry(Builder *b, const Ast *entry) {
  const Ast *value = entry->kind == AST_ENTRY ? entry->kid[0] : NULL;
  bool is_word = value && value->kind == AST_NAME && !builder_find(b, value->name);
  if (is_word && strcmp(entry->name, "data") == 0) /* any */
    return recipe_set_text(b, "distributed.data", value->name, value->loc);
  if (value && strcmp(entry->name, "auto") == 0) return recipe_auto(b, value);
  return section_entry(b, "distributed.", entry);
}

/* ── all of it ────────────────────────────────────────────────────────────────────────────── */
static bool is_hyper(const Program *program, const char *name) {
  for (int i = 0; i < program->hypers.count; i++)
    if (strcmp(program->hypers.at[i].name, name) == 0) return true;
  return false;
}

static bool command_line(Builder *b, const FrontendOptions *options) {
  bool fine = true;
  Loc nowhere = {0};
  for (int i = 0; i < options->set_count; i++) {
    const char *equals = strchr(options->sets[i], '=');
    if (!equals) {
      diag_error(b->diag, nowhere, "--set %s: write key=value", options->sets[i]);
      fine = false;
      continue;
    }
    const char *key =
        arena_strndup(b->arena, options->sets[i], (size_t)(equals - options->sets[i]));
    int index = setting_find(key);
    const char *why = NULL, *value = equals + 1;
    bool is_batch = strcmp(key, "train.batch") == 0;
    if (is_batch && strcmp(value, "auto") == 0) {
      index = setting_find("train.batch.auto");
    } else if (is_batch) {
      b->program->settings[setting_find("train.batch.auto")] = (SettingValue){.text = ""};
    }
    if (index < 0 || setting_info[index].when == WHEN_DERIVED) {
      char hint[200];
      setting_hint(key, hint, sizeof hint);
      if (is_hyper(b->program, key))
        diag_error(b->diag, nowhere, "--set: '%s' is a hyper of the program, and no setting: -D %s", key, options->sets[i]);
      else
        diag_error(b->diag, nowhere, "--set: unknown setting '%s'%s", key, hint);
      fine = false;
    } else if (!setting_set(b->arena, b->program->settings, index, setting_off(index, value), &why)) {
      diag_error(b->diag, nowhere, "--set %s: %s", options->sets[i], why);
      fine = false;
    } else { /* what the file says of it is no longer the place of a mistake */
      if (recipe_rule_loc(b, key)) *recipe_rule_loc(b, key) = nowhere;
      if (strcmp(key, "distributed.auto") == 0) {
        b->program->auto_loc = nowhere;
        b->program->settings[index].is_set = equals[1] != 0; /* empty: as if nobody had asked */
      }
    }
  }
  return fine;
}

/* The only definition of a kind in the main file, or, if it has none, in all files. */
static const Ast *only(Builder *b, ValueKind kind, uint16_t main_file, int *count) {
  const Ast *found = NULL;
  for (int all = 0; all < 2; all++) {
    *count = 0;
    for (int i = 0; i < b->user.names.count; i++) {
      const Variable *name = &b->user.names.at[i];
      if (name->value.kind != kind || (!all && name->loc.file != main_file)) continue;
      found = name->value.definition;
      ++*count;
    }
    if (*count) break;
  }
  return *count == 1 ? found : NULL;
}

/* The train or distributed block of the main file, or, if it has none, of the file imported
 * last. */
static const Ast *only_block(Builder *b, AstKind kind, const Ast *const *files, int count,
                             bool *fine) {
  const Ast *found = NULL;
  for (int f = count - 1; f >= 0 && !found; f--)
    for (int i = 0; i < files[f]->count; i++) {
      const Ast *ast = files[f]->kid[i];
      if (ast->kind != kind) continue;
      if (found) {
        *fine = builder_fail(b, ast->loc, "a second %s block; a file has one, with all settings",
                             kind == AST_TRAIN ? "train" : "distributed");
        builder_note(b, found->loc, "the first one is here");
      } else {
        found = ast;
      }
    }
  return found;
}

bool recipe_read(Builder *b, const Ast *const *files, int count, const FrontendOptions *options,
                 const Ast **model) {
  bool fine = true;
  int models, datas;
  uint16_t file = files[count - 1]->loc.file;
  const Ast *data = only(b, VALUE_DATA, file, &datas);
  const Ast *train = only_block(b, AST_TRAIN, files, count, &fine);
  const Ast *distributed = only_block(b, AST_DISTRIBUTED, files, count, &fine);
  *model = only(b, VALUE_MODEL, file, &models);
  const Ast *chosen_model = NULL, *chosen_data = NULL;
  for (int i = 0; train && i < train->count; i++)
    fine = train_entry(b, train->kid[i], &chosen_model, &chosen_data) && fine;
  for (int i = 0; distributed && i < distributed->count; i++)
    fine = distributed_entry(b, distributed->kid[i]) && fine;
  if (chosen_model) *model = chosen_model;
  if (chosen_data) data = chosen_data;
  if (data) fine = data_block(b, data, *model) && fine;
  Loc loc = train ? train->loc : (Loc){.file = file, .line = 1, .column = 1};
  if (train) b->program->train_loc = train->loc;
  if (data) b->program->data_loc = data->loc;
  if (distributed) b->program->distributed_loc = distributed->loc;
  if (datas > 1 && !data && fine)
    fine = builder_fail(b, loc, "there are %d data blocks; `train { data = ... }` chooses", datas);
  if (!*model && fine)
    fine = builder_fail(b, loc,
                        models ? "there are %d models; `train { model = ... }` chooses"
                               : "there is no model in this file",
                        models);
  fine = recipe_set_defaults(b) && recipe_resolve_groups(b) && fine;
  fine = command_line(b, options) && fine;
  statistics_settle(b);
  return recipe_settle(b, loc) && fine;
}
