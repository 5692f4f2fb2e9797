/* sensitivity: `ftrun sensitivity`: how much an evaluation loses where one parameter after another is pruned to this share or that, with
 * nothing trained in between; and which shares, a different one for each parameter, lose least for a share of all weights. (Han et al.
 * 2015 of the idea: "pruning sensitivity for each layer".) */
#ifndef FT_RUNTIME_SENSITIVITY_H
#define FT_RUNTIME_SENSITIVITY_H
#include "base/arena.h"
#include "plan/prune_structure.h"
#include "runtime/command/log.h"
#include "runtime/command/train.h"

enum { SENSITIVITY_MOST_SHARES = 64 };

typedef struct {
  RunOptions run;
  const char *weights, *split;            /* split NULL: valid */
  const char *structure, *shares;         /* NULL: element; 0.1 to 0.9 and 0.95 */
  double budget;                          /* of all weights that are scanned */
  const char *const *on;                  /* patterns of names; none: all of two dimensions and more */
  int on_count;
  const char *output, *log_jsonl, *save;  /* the page, JSON lines, weights pruned as suggested; NULL: none */
} SensitivityOptions;
STATUS_CHECKED Status sensitivity_run(const SensitivityOptions *options);

/* ── what came of it (report_sensitivity.c shows it) ── */
typedef struct {
  double share; /* that was asked for, and what became 0 of the elements */
  int64_t zeros;
  LogStep result;
} SensitivityPoint;

typedef struct {
  const char *name;
  int64_t elements;
  SensitivityPoint *point; /* by share */
  double suggested;
} SensitivityCurve;

typedef struct {
  const char *model, *weights, *split, *structure;
  LogStep base;
  double share[SENSITIVITY_MOST_SHARES];
  int share_count;
  VEC(SensitivityCurve) curves;
  double budget;
  bool has_suggestion;
  SensitivityPoint suggested, uniform; /* all parameters together */
} Sensitivity;

/* Sets `suggested` of each curve: the shares that lose least, if losses add up, for `budget` of all elements. */
void sensitivity_suggest(Arena *arena, Sensitivity *all);
#endif
