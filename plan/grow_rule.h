/* grow_rule: the text of train.grow, what the first steps of a training have less of than the others:
 * "truncate(T, 64, 128)", rows that end there; "resize(S, 16, 20)", smaller images; "batch(16, 32)", fewer
 * samples. The artifact has a step for each size (frontend/variant.c), and its number chooses one:
 *   every > 0: the first `every` steps have the first size, the next the second one, and so on
 *   else all sizes together have `share` of all steps, each as many; a bound between two steps is rounded */
#ifndef FT_PLAN_GROW_RULE_H
#define FT_PLAN_GROW_RULE_H
#include "plan/plan.h"

typedef enum { GROW_NONE, GROW_TRUNCATE, GROW_RESIZE, GROW_BATCH } GrowKind;
enum { GROW_NAME = 64 };
typedef struct {
  GrowKind kind;
  char name[GROW_NAME]; /* of the dimension; of a batch "" */
  int64_t size[PLAN_MOST_SIZES - 1];
  int count;
} GrowRule;

extern const char grow_key[], grow_usage[];
const char *grow_kind_text(GrowKind kind);
/* False: it is no such text, grow_usage says what is. The empty text is GROW_NONE. */
bool grow_read(const char *text, GrowRule *out);
/* What a plan's settings say; GROW_NONE where the text is no such text. */
GrowRule grow_of(const SettingValue *settings);
/* The size that a step has, the first one being 0; 0: the whole. *until: the first step behind it with another
 * size, where there is one. */
int64_t grow_size(const GrowRule *rule, const SettingValue *settings, int64_t total_steps, int64_t step,
                  int64_t *until);
/* "rows of 64", "images of 16", "batches of 16": what a programme of this size has. */
void grow_append_size(const SettingValue *settings, int64_t size, Text *out);
#endif
