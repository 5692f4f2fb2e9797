/* own: names of what the compiler adds to a model: leaves, roots, states and the files' keys of
 * these. They begin with a mark that no name of the language can contain, so that a user's name
 * never meets one of them, whatever it is. PyTorch's names of parameters and running statistics
 * stay as they are: those are the user's. */
#ifndef FT_BASE_OWN_H
#define FT_BASE_OWN_H
#include <stdbool.h>
#include <string.h>

#define OWN_MARK "@"
#define OWN_STEP "@step"     /* state: training steps done */
#define OWN_PARAMS "@params" /* state: the flat arena of all parameters */
#define OWN_NARROW "@params.narrow" /* state: the same, rounded */
#define OWN_DIRECTION "@direction" /* root: the gradients that say where the loss rises */
#define OWN_GRADS "@grads"   /* root: the flat arena of all gradients */
#define OWN_EMA "@ema"       /* state: the average of the weights */
#define OWN_PLATEAU "@plateau"
#define OWN_ACCUMULATE "@accumulate." /* states: sums over the parts of a batch */
#define OWN_EVAL "@eval."             /* states: sums over the batches of an evaluation */
#define OWN_DECODE "@decode."         /* states: the position in a text, and what is kept of it */
#define OWN_LOSS_SCALE "@loss_scale"  /* state, and what a step gives out of it */
#define OWN_FLOAT8 "@float8."         /* states: the scales of 8-bit operands, and what they follow from */
#define OWN_LR "@lr" /* what a training step gives out beside the loss and metrics */
#define OWN_SKIPPED "@skipped_steps"
#define OWN_GRAD_NORM "@grad_norm"
#define OWN_GRAD_FACTOR "@grad_factor"

/* Keys of a JSON line that no metric can take (DESIGN section 9). */
#define OWN_LOG_KEYS                                                                               \
  "step", "epoch", "eval", "loss", "lr", "samples_per_s", "nonfinite", "loss_scale",               \
      "skipped_steps", "split", "time", "data_wait", "grad_norm", "means"

static inline bool own_is(const char *name) { return name[0] == OWN_MARK[0]; }
/* As people and the log see it. */
static inline const char *own_shown(const char *name) { return name + own_is(name); }
#endif
