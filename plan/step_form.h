/* step_form: the forms of a training step. An artifact may have several, all with the same parameters and states, and
 * the number of a step chooses one, so that nothing of it is in a checkpoint:
 *   size      what the first steps have less of (grow_rule.h); where rows are of several lengths, the batch chooses
 *   resting   how many groups of parameters no longer train: freeze = after(0.3, "stem.*"), after(0.5, "block.*").
 *             The text of train.freeze says when each group begins to rest, "share 0.3 0.5", of all steps, or
 *             "step 200 500", after so many
 *   is_plain  with sharpness = sam(every=k) the steps between: one gradient */
#ifndef FT_PLAN_STEP_FORM_H
#define FT_PLAN_STEP_FORM_H
#include "plan/grow_rule.h"

typedef struct {
  double at[PLAN_MOST_RESTS]; /* ascending */
  int count;
  bool is_share;
} RestRule;
extern const char rest_key[], rest_usage[];
/* The setting that says how the rate of a group goes until then: constant, that of the schedule, or falling to 0. */
extern const char rest_rate_key[];
/* False: it is no such text. The empty text: nothing rests. */
bool rest_read(const char *text, RestRule *out);

typedef struct {
  GrowRule grow;
  RestRule rest;
  int64_t every; /* steps from a sharp one to the next; 1: all are */
} StepRule;
StepRule step_rule_of(const SettingValue *settings);
/* Are all steps alike? */
bool step_rule_is_one(const StepRule *rule);
/* The form of a step, the first one being 0. *until: the first step behind it that may have another form, where there
 * is one. */
StepForm step_form(const StepRule *rule, const SettingValue *settings, int64_t total_steps, int64_t step,
                   int64_t *until);
bool step_form_equal(StepForm a, StepForm b);
/* ".64.resting1.plain": behind the name of a graph. */
void step_form_append_name(StepForm form, Text *out);
/* "rows of 64, 1 group resting, plain": what a programme of this form has; nothing of a whole one. */
void step_form_append(const SettingValue *settings, StepForm form, Text *out);
#endif
