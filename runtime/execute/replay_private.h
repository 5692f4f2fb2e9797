/* replay_private: what replay_explain.c (the way back) and replay_words.c (what is said) share. */
#ifndef FT_RUNTIME_REPLAY_PRIVATE_H
#define FT_RUNTIME_REPLAY_PRIVATE_H
#include "runtime/execute/body.h"
#include "runtime/execute/replay.h"

/* A kernel with its operands, as they are before it. */
typedef struct {
  Replay *replay;
  const PlanGraph *graph;
  const PlanStep *step;
  const PlanBody *of; /* NULL: the plan does not tell what it does */
  int run, index;
  const int *args; /* buffers */
  int input_count;
  const char **at;
  char **copy;
  Body *body;
} Kernel;

static inline const PlanBuffer *replay_buffer(const Kernel *kernel, int arg) {
  return &kernel->graph->buffers.at[kernel->args[arg]];
}
/* Does the number lie in it? */
bool replay_covers(const PlanBuffer *buffer, const ReplaySpot *spot);
/* The sentence and the details: of an operation of the kernel, of a kernel whose operations are not told
 * one by one or that rounds in another way, and of what was there before the step (where a batch's row
 * says where it is from). */
void replay_say_operation(const Kernel *kernel, int value, int64_t element, ReplayCause *out);
void replay_say_kernel(const Kernel *kernel, const ReplaySpot *spot, ReplayCause *out);
STATUS_CHECKED Status replay_say_given(Replay *replay, const ReplaySpot *spot, ReplayCause *out);
#endif
