/* recipe_choice: what a recipe chooses by name: the optimiser, the schedule, precision, clipping.
 * Each has its own arguments, which are settings of this or another name. */
#include "frontend/recipe.h"
#include <string.h>

static const Choice optimizers[] = {
#define OPTIMIZER(name, arguments, defaults, buffers, rest) {#name, arguments, "train."},
#include "plan/optimizers.def"
#undef OPTIMIZER
    {0},
};
static const Choice schedules[] = {
    {"constant", "warmup", "train.schedule."},
    {"step", "every gamma warmup", "train.schedule."},
    {"exponential", "every gamma warmup", "train.schedule."},
    {"linear", "warmup final", "train.schedule."},
    {"cosine", "warmup final", "train.schedule."},
    {"onecycle", "pct_start div_factor final_div_factor", "train.schedule."},
    {"wsd", "warmup decay final", "train.schedule."},
    {"plateau", "metric gamma patience threshold cooldown final warmup", "train.schedule."},
    {0},
};
static const Choice precisions[] = {
    {"f32", "", "train."},
    {"tf32", "", "train."},
    {"bf16", "parameters rounding", "train."},
    {"fp16",
     "loss_scale initial:loss_scale growth:loss_scale.growth every:loss_scale.every "
     "backoff:loss_scale.backoff",
     "train."},
    {"fp8", "scaling:fp8.scaling history:fp8.history margin:fp8.margin", "train."},
    {0},
};
static const Choice recomputes[] = {
    {"pointwise", "", "train."},
    {"block", "", "train."},
    {"auto", "budget:recompute.budget", "train."},
    {0},
};
#define WHEN_PRUNED "sparsity initial begin end every structure scope"
static const Choice prunes[] = {
    {"magnitude", WHEN_PRUNED, "train.prune."},
    {"movement", WHEN_PRUNED, "train.prune."},
    {"gradient", WHEN_PRUNED " average", "train.prune."},
    {"zeros", "", "train.prune."},
    {0},
};
static const Choice sharpnesses[] = {
    {"sam", "rho every", "train.sharpness."},
    {"asam", "rho eta every", "train.sharpness."},
    {0},
};
static const Choice rest_rates[] = {
    {"constant", "", "train.freeze.rate."},
    {"cosine", "final", "train.freeze.rate."},
    {"scaled_cosine", "final", "train.freeze.rate."},
    {0},
};
static const Choice averages[] = {
    {"ema", "decay:ema", "train."},
    {"swa", "start every", "train.average."},
    {0},
};
enum { MOST_ARGUMENTS = 12, MOST_CHOICES = 12 };

const Choice *recipe_choices(const char *key) {
  return !strcmp(key, "optimizer")     ? optimizers
         : !strcmp(key, "schedule")    ? schedules
         : !strcmp(key, "precision")   ? precisions
         : !strcmp(key, "recompute")   ? recomputes
         : !strcmp(key, "prune")       ? prunes
         : !strcmp(key, "sharpness")   ? sharpnesses
         : !strcmp(key, "average")     ? averages
         : !strcmp(key, "freeze.rate") ? rest_rates
                                       : NULL;
}

static bool set_betas(Builder *b, const Ast *ast) {
  Value v = eval(b, ast);
  if (v.kind == VALUE_ERROR) return false;
  bool two = (v.kind == VALUE_TUPLE || v.kind == VALUE_LIST) && v.count == 2;
  if (!two) return builder_fail(b, ast->loc, "betas must be two numbers: (0.9, 0.999)");
  return recipe_set_value(b, "train.beta1", &v.items[0], ast->loc) &&
         recipe_set_value(b, "train.beta2", &v.items[1], ast->loc);
}

/* dynamic, or a number that stays. */
static bool set_loss_scale(Builder *b, const Ast *ast) {
  if (ast->kind == AST_NAME && strcmp(ast->name, "dynamic") == 0) return true;
  return recipe_set_ast(b, "train.loss_scale", ast) &&
         recipe_set_text(b, "train.loss_scale.growth", "1", ast->loc) &&
         recipe_set_text(b, "train.loss_scale.backoff", "1", ast->loc);
}

static bool set_argument(Builder *b, const Choice *choice, const char *name, const char *key,
                         const Ast *ast) {
  if (strcmp(name, "betas") == 0) return set_betas(b, ast);
  if (strcmp(name, "loss_scale") == 0) return set_loss_scale(b, ast);
  key = arena_printf(b->arena, "%s%s", choice->prefix, key);
  if (strcmp(name, "metric") == 0) return recipe_set_metric(b, key, "metric", ast);
  if (setting_info[setting_find(key)].kind == SET_STR && ast->kind == AST_NAME)
    return recipe_set_text(b, key, ast->name, ast->loc); /* adjust=original */
  return recipe_set_grouped(b, key, ast);
}

static bool choice_argument(Builder *b, const Choice *choice, const Ast *argument) {
  const char *names[MOST_ARGUMENTS], *keys[MOST_ARGUMENTS];
  int count = 0;
  char *list = arena_strdup(b->arena, choice->arguments), *rest = NULL;
  for (char *n = strtok_r(list, " ", &rest); n && count < MOST_ARGUMENTS;
       n = strtok_r(NULL, " ", &rest)) {
    char *colon = strchr(n, ':');
    if (colon) *colon = 0;
    names[count] = n;
    keys[count++] = colon ? colon + 1 : n;
  }
  if (!count) return builder_fail(b, argument->loc, "%s has no arguments", choice->name);
  if (argument->kind != AST_KEYWORD)
    return builder_fail(b, argument->loc, "the arguments of %s have names: %s(%s=...)",
                        choice->name, choice->name, names[0]);
  for (int i = 0; i < count; i++)
    if (strcmp(names[i], argument->name) == 0)
      return set_argument(b, choice, names[i], keys[i], argument->kid[0]);
  const char *hint = builder_hint_as(b, FOREIGN_ARGUMENT, argument->name, names, count);
  return builder_fail(b, argument->loc, "%s has no argument '%s'%s", choice->name, argument->name,
                      *hint ? hint : hint_list(b, "it has", names, count));
}

/* `optimizer = adamw(lr=1e-3)`, `schedule = cosine`, or a string */
static bool choice_read(Builder *b, const char *key, const Choice *choices, const Ast *ast) {
  const Ast *callee = ast->kind == AST_CALL ? ast->kid[0] : ast;
  const char *names[MOST_CHOICES];
  int count = 0;
  for (const Choice *c = choices; c->name; c++) names[count++] = c->name;
  if (callee->kind == AST_ATTRIBUTE) {
    const char *hint = builder_hint_as(b, FOREIGN_CHOICE, callee->name, names, count);
    return builder_fail(b, ast->loc, "%s is chosen by its name alone%s", strrchr(key, '.') + 1,
                        *hint ? hint : arena_printf(b->arena, ", such as %s(...)", names[0]));
  }
  if (callee->kind != AST_NAME && callee->kind != AST_STRING)
    return builder_fail(b, ast->loc, "%s is chosen by name, such as %s(...) or %s(...)",
                        strrchr(key, '.') + 1, names[0], names[1]);
  for (const Choice *c = choices; c->name; c++) {
    if (strcmp(c->name, callee->name) != 0) continue;
    bool fine = recipe_set_text(b, key, c->name, ast->loc);
    for (int i = 1; ast->kind == AST_CALL && i < ast->count; i++)
      fine = choice_argument(b, c, ast->kid[i]) && fine;
    return fine;
  }
  const char *hint = builder_hint_as(b, FOREIGN_CHOICE, callee->name, names, count);
  return builder_fail(b, callee->loc, "unknown %s '%s'%s", strrchr(key, '.') + 1, callee->name,
                      *hint ? hint : hint_list(b, "there are", names, count));
}

const OptimizerInfo *recipe_chosen_optimizer(const Builder *b) {
  return optimizer_find(setting_text(b->program->settings, "train.optimizer"));
}

/* Only an optimiser that trains matrices leaves some parameters to another. */
static bool refuse_on(Builder *b, Loc loc) {
  Text list = {0};
  for (int i = 0; i < optimizer_count; i++)
    if (optimizer_info[i].rest[0])
      text_printf(&list, "%s%s trains some parameters and leaves the rest to %s",
                  list.count ? ", " : "", optimizer_info[i].name, optimizer_info[i].rest);
  builder_fail(b, loc, "only %s; others take lr and weight_decay `on` some", text_cstr(&list));
  text_free(&list);
  return false;
}

bool recipe_optimizer(Builder *b, const Ast *ast) {
  if (ast->kind != AST_ON) return choice_read(b, "train.optimizer", optimizers, ast);
  if (!choice_read(b, "train.optimizer", optimizers, ast->kid[0])) return false;
  if (!recipe_chosen_optimizer(b)->rest[0]) return refuse_on(b, ast->loc);
  return recipe_matrices_on(b, ast->kid[1]);
}

bool recipe_choice(Builder *b, const char *entry, const Ast *ast) {
  return choice_read(b, arena_printf(b->arena, "train.%s", entry), recipe_choices(entry), ast);
}

bool recipe_schedule(Builder *b, const Ast *ast) {
  return choice_read(b, "train.schedule", schedules, ast);
}

bool recipe_precision(Builder *b, const Ast *ast) {
  return choice_read(b, "train.precision", precisions, ast);
}

bool recipe_sharpness(Builder *b, const Ast *ast) {
  if (ast->kind == AST_NONE) return recipe_set_text(b, "train.sharpness", "none", ast->loc);
  return choice_read(b, "train.sharpness", sharpnesses, ast);
}

bool recipe_average(Builder *b, const Ast *ast) {
  if (ast->kind == AST_NONE)
    return recipe_set_text(b, "train.average", "ema", ast->loc) && recipe_set_text(b, "train.ema", "0", ast->loc);
  return choice_read(b, "train.average", averages, ast);
}

/* none; gelu is what most people would say for pointwise */
bool recipe_recompute(Builder *b, const Ast *ast) {
  bool is_gelu = ast->kind == AST_NAME && strcmp(ast->name, "gelu") == 0;
  if (ast->kind == AST_NONE || is_gelu)
    return recipe_set_text(b, "train.recompute", is_gelu ? "pointwise" : "none", ast->loc);
  return choice_read(b, "train.recompute", recomputes, ast);
}

/* none; norm(1.0), also written 1.0; value(0.5) */
bool recipe_clip(Builder *b, const Ast *ast) {
  bool is_norm = ast_is_call_of(ast, "norm") && ast->count == 2;
  bool is_value = ast_is_call_of(ast, "value") && ast->count == 2;
  if ((ast->kind == AST_CALL && !is_norm && !is_value) || ast->kind == AST_ON)
    return builder_fail(b, ast->loc, "clip is none, norm(1.0) or value(1.0)");
  if (ast->kind == AST_NONE)
    return recipe_set_text(b, "train.clip", "0", ast->loc) &&
           recipe_set_text(b, "train.clip_value", "0", ast->loc);
  if (is_value) return recipe_set_ast(b, "train.clip_value", ast->kid[1]);
  return recipe_set_ast(b, "train.clip", is_norm ? ast->kid[1] : ast);
}

/* ── auto ─────────────────────────────────────────────────────────────────────────────────── */
/* A size is an integer in the language, in bytes; the word has a unit. */
static const char *auto_size(Builder *b, int64_t bytes) {
  static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int u = 0;
  for (; bytes && bytes % 1024 == 0 && u < 4; u++) bytes /= 1024;
  return arena_printf(b->arena, "%lld%s", (long long)bytes, bytes ? unit[u] : "");
}

/* `gpu = h100` is a word as `data = any` is, unless something has that name. */
static const char *auto_value(Builder *b, const char *name, const Ast *ast) {
  if (ast->kind == AST_NAME && !builder_find(b, ast->name)) return ast->name;
  Value v = eval(b, ast);
  if (v.kind == VALUE_ERROR) return NULL;
  if (v.kind == VALUE_INT && !strcmp(name, "memory")) return auto_size(b, v.i);
  if (v.kind == VALUE_INT) return arena_printf(b->arena, "%lld", (long long)v.i);
  if (v.kind == VALUE_FLOAT) return arena_printf(b->arena, "%.17g", v.f);
  if (v.kind == VALUE_STRING && *v.s && !strpbrk(v.s, " \t\n,=")) return v.s;
  builder_fail(b, ast->loc, "auto's %s is a number or a word, such as \"400Gb\"", name);
  return NULL;
}

/* The arguments as words, "" if there are none; NULL after reporting. */
static const char *auto_words(Builder *b, const Ast *ast, const char *example) {
  const char *words = "";
  bool fine = true;
  for (int i = 1; i < ast->count; i++) {
    const Ast *argument = ast->kid[i];
    if (argument->kind != AST_KEYWORD) {
      builder_fail(b, argument->loc, "auto takes NAME = VALUE, such as %s", example);
      return NULL;
    }
    const char *value = auto_value(b, argument->name, argument->kid[0]);
    fine = fine && value;
    char *name = arena_strdup(b->arena, argument->name); /* link_latency is link-latency there */
    for (char *at = name; *at; at++) *at = *at == '_' ? '-' : *at;
    if (value) words = arena_printf(b->arena, "%s%s%s=%s", words, *words ? " " : "", name, value);
  }
  return fine ? words : NULL;
}

bool recipe_batch(Builder *b, const Ast *ast) {
  bool is_word =
      ast->kind == AST_NAME && strcmp(ast->name, "auto") == 0 && !builder_find(b, "auto");
  const char *words = ast_is_call_of(ast, "auto") ? auto_words(b, ast, "memory = 8 GiB") : "";
  b->program->batch_loc = ast->loc;
  if (is_word || ast_is_call_of(ast, "auto"))
    return words && recipe_set_text(b, "train.batch.auto", *words ? words : "auto", ast->loc);
  return recipe_set_ast(b, "train.batch", ast);
}

bool recipe_auto(Builder *b, const Ast *ast) {
  if (!ast_is_call_of(ast, "auto"))
    return builder_fail(b, ast->loc, "auto is auto(gpus = 64, memory = 80 GiB) and the like");
  const char *words = auto_words(b, ast, "gpus = 64");
  b->program->auto_loc = ast->loc;
  return words && recipe_set_text(b, "distributed.auto", *words ? words : "gpus=any", ast->loc);
}

/* ── what goes together ───────────────────────────────────────────────────────────────────── */
static double choice_number(Builder *b, const char *key) {
  return setting_number(b->program->settings, key);
}
static bool is_chosen(Builder *b, const char *key, const char *name) {
  return strcmp(setting_text(b->program->settings, key), name) == 0;
}

/* A setting that the program does not set gets the value that the row says, or with it the table's
 * own. */
static bool set_defaults(Builder *b, const OptimizerInfo *row, bool is_chosen_one) {
  SettingValue *values = b->program->settings;
  char *list = arena_strdup(b->arena, row->defaults), *rest = NULL;
  const char *why;
  for (char *key = strtok_r(list, " ", &rest); key; key = strtok_r(NULL, " ", &rest)) {
    char *value = strchr(key, '=');
    *value++ = 0;
    int index = setting_find(arena_printf(b->arena, "train.%s", key));
    if (values[index].is_set) continue;
    const char *text = is_chosen_one ? value : setting_info[index].otherwise;
    if (!setting_set(b->arena, values, index, text, &why)) return false;
    values[index].is_set = false;
  }
  return true;
}

/* Of the chosen optimiser, which may be another one than before. */
bool recipe_set_defaults(Builder *b) {
  for (int i = 0; i < optimizer_count; i++)
    if (!set_defaults(b, &optimizer_info[i], false)) return false;
  return set_defaults(b, recipe_chosen_optimizer(b), true);
}

/* Of delayed scaling alone, unless current scaling was asked for in so many words. */
static bool check_float8(Builder *b, Loc loc) {
  const SettingValue *settings = b->program->settings;
  static const char *const keys[] = {"train.fp8.history", "train.fp8.margin"};
  for (int i = 0; i < 2 && !settings[setting_find("train.fp8.scaling")].is_set; i++)
    if (settings[setting_find(keys[i])].is_set)
      return (diag_error(b->diag, loc, "fp8's %s is one of delayed scaling: say fp8(scaling=delayed, %s=%.0f)", strrchr(keys[i], '.') + 1,
                         strrchr(keys[i], '.') + 1, choice_number(b, keys[i])),
              false);
  return true;
}

static bool check_precision(Builder *b, Loc loc) {
  bool fine = true, is_known = false;
  for (const Choice *c = precisions; c->name; c++)
    is_known |= is_chosen(b, "train.precision", c->name);
  if (!is_known) /* from the command line */
    fine = (diag_error(b->diag, loc, "precision is f32, tf32, bf16, fp16 or fp8, not '%s'",
                       setting_text(b->program->settings, "train.precision")),
            false);
  fine = check_float8(b, loc) && fine;
  bool is_narrow = is_chosen(b, "train.parameters", "bf16");
  if (!is_narrow && !is_chosen(b, "train.parameters", "f32"))
    fine = (diag_error(b->diag, loc, "parameters are kept as f32 or bf16, not '%s'",
                       setting_text(b->program->settings, "train.parameters")),
            false);
  if (!is_chosen(b, "train.rounding", "stochastic") && !is_chosen(b, "train.rounding", "nearest"))
    fine = (diag_error(b->diag, loc, "rounding is stochastic or nearest, not '%s'",
                       setting_text(b->program->settings, "train.rounding")),
            false);
  if (is_narrow && !is_chosen(b, "train.precision", "bf16"))
    fine = (diag_error(b->diag, loc, "parameters=bf16 goes with precision = bf16, not with %s",
                       setting_text(b->program->settings, "train.precision")),
            false);
  if (is_narrow && setting_averages(b->program->settings))
    fine =
        (diag_error(b->diag, loc,
                    "an average of the weights is one of f32 parameters: with parameters=bf16 there are none; leave out "
                    "one of the two"),
         false);
  if (choice_number(b, "train.loss_scale") <= 0)
    fine = (diag_error(b->diag, loc, "loss_scale must be positive"), false);
  return fine;
}

/* What the update must know of a parameter beyond the elements that a rank has of it. */
static bool check_zero(Builder *b, Loc loc) {
  const SettingValue *settings = b->program->settings;
  if (!setting_number(settings, "distributed.zero")) return true;
  if (!setting_ranks(settings))
    return (diag_error(b->diag, loc,
                       "distributed.zero shares parameters out when the model is compiled: say for "
                       "how many ranks, as in `distributed { data = 4; zero = 1 }`"),
            false);
  return true;
}

static bool check_pipeline(Builder *b, Loc loc) {
  const SettingValue *settings = b->program->settings;
  int chunks = (int)setting_number(settings, "distributed.interleave");
  bool is_random =
      is_chosen(b, "train.parameters", "bf16") && is_chosen(b, "train.rounding", "stochastic");
  if (setting_pipeline(settings) > 1 && is_random)
    return (diag_error(b->diag, loc,
                       "with distributed.pipeline parameters=bf16 are rounded to the nearest only: "
                       "say rounding=nearest, or pipeline = 1"),
            false);
  if (setting_pipeline(settings) > 1 && is_chosen(b, "train.recompute", "auto"))
    return (
        diag_error(b->diag, loc,
                   "recompute = auto plans for one micro-batch at a time, and a pipeline has "
                   "several on their way: say recompute = block, or none"),
        false);
  if (setting_pipeline(settings) > 1 || chunks == 1) return true;
  return (
      diag_error(b->diag, loc,
                 "interleave = %d is how many parts of the layers each rank of a pipeline has, "
                 "and there is no pipeline: say `distributed { pipeline = 2; interleave = %d }`",
                 chunks, chunks),
      false);
}

/* What moves the weights is a gradient that this rank has whole and for itself. */
static bool settle_sharpness(Builder *b) {
  SettingValue *settings = b->program->settings;
  SettingValue *rho = &settings[setting_find("train.sharpness.rho")];
  Loc loc = setting_loc(settings, "train.sharpness");
  const char *kind = setting_text(settings, "train.sharpness");
  if (!strcmp(kind, "none")) return true;
  if (!rho->is_set) rho->number = strcmp(kind, "asam") ? 0.05 : 0.5;
  if (!is_chosen(b, "train.prune", "none"))
    return builder_fail(b, loc, "sharpness = %s would move weights that prune keeps at 0: leave out one of the two", kind);
  if (setting_tensor(settings) > 1 || setting_pipeline(settings) > 1)
    return builder_fail(b, loc,
                        "sharpness = %s moves the weights by the norm of all gradients, and with distributed.%s a rank has "
                        "some: leave out one of the two; distributed.data goes with it",
                        kind, setting_tensor(settings) > 1 ? "tensor" : "pipeline");
  return true;
}

/* What the command line says of something that is off. */
static bool check_needs(Builder *b) {
  const SettingValue *settings = b->program->settings;
  for (int i = 0; i < setting_count; i++) {
    const char *needs = settings[i].is_set && !settings[i].loc.line ? setting_needs(settings, i) : NULL;
    if (!needs) continue;
    diag_error(b->diag, (Loc){0}, "--set %s does nothing by itself: say --set \"%s\" or the like, too", setting_info[i].key, needs);
    return false;
  }
  return true;
}

/* ema is switched on by its decay, which is that of `ema = 0.999`, too. */
static bool check_averages(Builder *b) {
  const SettingValue *settings = b->program->settings, *average = &settings[setting_find("train.average")];
  double decay = choice_number(b, "train.ema");
  bool is_swa = is_chosen(b, "train.average", "swa");
  if (is_swa && decay != 0)
    return builder_fail(b, average->loc, "there is one average of the weights, and average = swa and ema = %g are two: leave out one of them", decay);
  if (is_swa || !average->is_set || average->loc.line == 0 || settings[setting_find("train.ema")].is_set) return true;
  return builder_fail(b, average->loc, "average = ema needs its decay: ema(decay=0.999), where 0 is none");
}

bool recipe_settle(Builder *b, Loc loc) {
  bool fine = recipe_set_defaults(b) && check_precision(b, loc) && check_zero(b, loc) &&
              check_pipeline(b, loc) && check_needs(b) && recipe_check_prune(b) && settle_sharpness(b) && check_averages(b) &&
              recipe_check_freeze(b);
  const char *optimizer = setting_text(b->program->settings, "train.optimizer");
  if (optimizer_takes(optimizer, "dampening") && choice_number(b, "train.nesterov") != 0 &&
      (choice_number(b, "train.momentum") == 0 || choice_number(b, "train.dampening") != 0))
    fine = (diag_error(b->diag, loc, "nesterov needs a momentum, and no dampening"), false);
  if (is_chosen(b, "train.schedule", "plateau") && choice_number(b, "train.eval.every") == 0)
    fine = (diag_error(b->diag, loc,
                       "schedule = plateau follows evaluations, but eval = none switches them off"),
            false);
  bool is_auto = is_chosen(b, "train.recompute", "auto");
  if (is_auto && choice_number(b, "train.recompute.budget") == 0)
    fine = (diag_error(b->diag, loc,
                       "recompute = auto needs to know how much memory there is: "
                       "auto(budget=8 GiB)"),
            false);
  if (!recipe_chosen_optimizer(b)->rest[0]) b->matrix_condition = NULL; /* --set chose another */
  return fine;
}
