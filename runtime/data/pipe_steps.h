/* pipe_steps: one transform of plan/transforms.def on one picture, `step_<name>`. It takes
 * worker->now, and puts what it makes there, in place or in the other picture. */
#ifndef FT_RUNTIME_PIPE_STEPS_H
#define FT_RUNTIME_PIPE_STEPS_H
#include "runtime/data/pipe.h"

typedef struct {
  const Transform *transform;
  int place; /* in the chain, from 0 */
  PipeDraw draw;
  bool cuts_next; /* a crop that pipe_cuts follows, at once */
} PipeStep;
typedef Status PipeStepRun(const PipeStep *step, PipeWorker *worker);

#define WORKER(name) STATUS_CHECKED Status step_##name(const PipeStep *step, PipeWorker *worker);
#define RANDOM WORKER
#define STEP(name)
#define TRAIN(name)
#define TEXT(name)
#define TRANSFORM(name, where, parameters) where(name)
#include "plan/transforms.def"
#undef TRANSFORM
#undef WORKER
#undef RANDOM
#undef STEP
#undef TRAIN
#undef TEXT

/* The n-th number that the transform draws for this sample: in [low, high); 0 .. end - 1, of which
 * each is as likely to within end / 2^32. */
double pipe_uniform(const PipeStep *step, int n, double low, double high);
int pipe_below(const PipeStep *step, int n, int end);
/* Is it a crop that takes a resize as noted in the worker, and does it? */
bool pipe_cuts(const Transform *transform);
/* Pixels around the picture: left, top, right and bottom, as the step's padding_mode and fill say. */
STATUS_CHECKED Status pipe_pad_by(const PipeStep *step, PipeWorker *worker, const int side[4]);
/* The transform's one number, the words of `filter`, and what fills up, for each channel. */
double pipe_number(const PipeStep *step, const char *parameter);
ImageFilter pipe_filter(const PipeStep *step);
void pipe_colour(const PipeStep *step, const char *parameter, uint8_t fill[3]);
/* Does word n fall under the transform's p? */
bool pipe_happens(const PipeStep *step, int n);
/* Does the flips that are noted. */
void pipe_flip_now(PipeWorker *worker);
/* The picture that is free. */
Image *pipe_other(PipeWorker *worker);
#endif
