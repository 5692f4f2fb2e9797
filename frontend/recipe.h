/* recipe: what the files that read data and train blocks share. recipe.c: sections and settings;
 * recipe_source.c: where data comes from; recipe_choice.c: what is chosen by name (optimizer,
 * schedule, clip); recipe_groups.c: settings of some parameters only; recipe_rule.c: numbers of evaluations that are
 * named; recipe_stop.c: when a training ends early; recipe_prune.c: what becomes 0; recipe_grow.c: what grows. */
#ifndef FT_FRONTEND_RECIPE_H
#define FT_FRONTEND_RECIPE_H
#include "frontend/builder.h"

/* Set a setting from text, a value, an expression; false after reporting. */
/* Words that entries of train { } and data { } begin with besides settings; end with NULL. */
extern const char *const recipe_train_words[], *const recipe_data_words[];
bool recipe_set_text(Builder *b, const char *key, const char *text, Loc loc);
bool recipe_set_value(Builder *b, const char *key, const Value *v, Loc loc);
bool recipe_set_ast(Builder *b, const char *key, const Ast *ast);
/* `min(valid.loss)` and the like stay text. */
bool recipe_set_metric(Builder *b, const char *key, const char *what, const Ast *ast);

/* ── recipe_rule.c ── */
/* Where the text of such a setting stands (plan/metric_rule.h); NULL: it is no such setting. */
Loc *recipe_rule_loc(Builder *b, const char *key);

/* ── recipe_stop.c ── */
/* none, early(...), reached(...), early(...) or reached(...) */
bool recipe_stop(Builder *b, const Ast *ast);

/* ── recipe_source.c ── */
/* The entry `train = idx(...)` becomes a source of the program. The model may be NULL: not
 * known. */
bool recipe_source(Builder *b, const Ast *entry, const Ast *model);
/* `valid = 0.1 of train by label`: once the sources that name files are there. */
bool recipe_is_part(const Ast *entry);
bool recipe_part(Builder *b, const Ast *entry, const Ast *model);

/* ── recipe_order.c ── */
/* `order = balanced(label)`, `curriculum("difficulty.npy", from=0.2, epochs=5)`: data.order. */
bool recipe_order(Builder *b, const Ast *ast, const Ast *model);

/* ── recipe_pipe.c ── */
/* The data source at the head of `source | transform | ...`, and its transforms. */
const Ast *recipe_pipe_head(const Ast *ast);
bool recipe_pipe(Builder *b, const Ast *ast, DataSource *source);

/* ── recipe_choice.c ── */
/* A row of what a setting is chosen from, by name; the last one has none. */
typedef struct {
  const char *name, *arguments; /* "lr momentum": `name` or `name:key` where the key differs */
  const char *prefix;           /* of the settings that these are */
} Choice;
/* Of optimizer, schedule, precision, recompute, prune or sharpness; NULL of others. */
const Choice *recipe_choices(const char *key);
bool recipe_optimizer(Builder *b, const Ast *ast);
bool recipe_schedule(Builder *b, const Ast *ast);
bool recipe_precision(Builder *b, const Ast *ast);
bool recipe_recompute(Builder *b, const Ast *ast);
bool recipe_clip(Builder *b, const Ast *ast);
/* none, sam(rho=0.05), asam(rho=0.5, eta=0.01) */
bool recipe_sharpness(Builder *b, const Ast *ast);
bool recipe_average(Builder *b, const Ast *ast);
/* One of recipe_choices(entry), with its arguments: the setting train.ENTRY and others. */
bool recipe_choice(Builder *b, const char *entry, const Ast *ast);
/* auto, auto(memory = 8 GiB, most = 512): the words of train.batch.auto. */
bool recipe_batch(Builder *b, const Ast *ast);
/* auto(gpus = 64, memory = 80 GiB): the words that `ftc --simulate` takes, as a setting. */
bool recipe_auto(Builder *b, const Ast *ast);
const OptimizerInfo *recipe_chosen_optimizer(const Builder *b);
bool recipe_set_defaults(Builder *b);
/* After the command line: defaults that depend on the optimiser, and what does not go together. */
bool recipe_settle(Builder *b, Loc loc);

/* ── recipe_groups.c ── */
/* lr and weight_decay, which may have `on` and `per`; any other key as recipe_set_ast. */
bool recipe_set_grouped(Builder *b, const char *key, const Ast *ast);
/* after(0.3, ...), after(200 steps, ...): behind a share of all steps, below 1, or a number of them. False after an error, of `what`. */
typedef struct {
  bool is_share;
  const char *text; /* the number */
} Moment;
bool recipe_moment(Builder *b, const char *what, const Ast *ast, Moment *out);
/* `freeze = "backbone.*"`: as `lr = 0x on`, whatever other rules say; `freeze = after(0.3, "stem.*")`: from a step on,
 * in a form of the step of its own (plan/step_form.h). */
bool recipe_freeze(Builder *b, const Ast *ast);
bool recipe_check_freeze(Builder *b);
/* `prune = magnitude(...) on CONDITION` */
bool recipe_prune_on(Builder *b, const Ast *condition);
/* `optimizer = muon(...) on CONDITION` */
bool recipe_matrices_on(Builder *b, const Ast *condition);
/* Rules become factors on the settings, before the command line changes those. */
bool recipe_resolve_groups(Builder *b);

/* ── recipe_grow.c ── */
/* none, truncate(T, 64, 128, every=200 steps), resize(...), batch(...) */
bool recipe_grow(Builder *b, const Ast *ast);
/* ── quantize_switch.c ── */
bool recipe_quantize(Builder *b, const Ast *ast);

/* ── recipe_prune.c ── */
extern const char recipe_prune_key[];
/* none, magnitude(...), magnitude(...) on CONDITION and the like */
bool recipe_prune(Builder *b, const Ast *ast);
bool recipe_check_prune(Builder *b);
/* Notes on a param that it is pruned. is_named: a rule's condition holds for it. */
void recipe_apply_prune(Builder *b, Node *param, bool is_named, bool is_frozen);
#endif
