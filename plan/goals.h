/* goals: what `ftrun tune --goal` names, one or several with commas: "max(valid.accuracy), min(model.parameters)". */
#ifndef FT_PLAN_GOALS_H
#define FT_PLAN_GOALS_H
#include "plan/metric_rule.h"

enum { GOALS_MOST = 4, GOALS_TEXT = 256 };

typedef enum {
  GOAL_OF_LOG,     /* a number of the log, of a split: valid.loss */
  GOAL_SECONDS,    /* run.seconds: how long the training took, as a process */
  GOAL_RATE,       /* run.samples_per_s: of the last line of the log that has it */
  GOAL_PARAMETERS, /* model.parameters: how many numbers they are */
  GOAL_BYTES,      /* model.weight_bytes: their bytes */
  GOAL_MEMORY,     /* model.memory: the bytes of the plan of a training */
} GoalKind;

typedef struct {
  MetricRule rule;
  GoalKind kind;
} Goal;

typedef struct {
  Goal goal[GOALS_MOST];
  int count;
} Goals;

/* False: the text names none; *wrong (may be NULL) is where the first one begins that is none. */
bool goals_read(const char *text, Goals *out, const char **wrong);
#endif
