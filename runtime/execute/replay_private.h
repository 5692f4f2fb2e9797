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
/* An operation that made a NaN of infinities, to be told of where these were meant to be. */
typedef struct {
  ReplaySpot spot; /* of its kernel's result, */
  int rank;        /* … of this rank */
  bool is_there;
} ReplayMade;
/* Where the way back has come to. */
typedef struct {
  ReplaySpot spot;
  ReplayMade made;
} ReplayTrail;

/* ── several ranks (replay_ranks.c): the one that follows the number says what all do next ── */
int replay_rank(const Replay *replay);
bool replay_leads(Replay *replay);
STATUS_CHECKED Status replay_agree_on(Replay *replay, ReplaySpot *spot);
/* The leader, before it does the step again up to a kernel; when it has done; when rank `rank` is to go
 * on from the trail. Alone: nothing. */
STATUS_CHECKED Status replay_tell_again(Replay *replay);
STATUS_CHECKED Status replay_tell_end(Replay *replay);
STATUS_CHECKED Status replay_tell_lead(Replay *replay, int rank, const ReplayTrail *trail);
/* The leader, whose number step `index` has from other ranks: which of them gave it goes on. *values: what
 * they gave, where all of it is finite and what was made of it is not; NULL: somebody goes on. */
STATUS_CHECKED Status replay_ask(Replay *replay, int run, int index, int arg, ReplayTrail *trail,
                                 double **values, int *count);
/* The others: what the leader says. */
STATUS_CHECKED Status replay_follow(Replay *replay, ReplayTrail *trail, bool *is_done);
void replay_say_sum(Replay *replay, int run, int index, const double *values, int count,
                    ReplayCause *out);
/* Does the number lie in it? */
bool replay_covers(const PlanBuffer *buffer, const ReplaySpot *spot);
/* Which element of the buffer the spot is. */
int64_t replay_element(const PlanBuffer *buffer, const ReplaySpot *spot);
/* The sentence and the details: of an operation of the kernel, of a kernel whose operations are not told
 * one by one or that rounds in another way, and of what was there before the step (where a batch's row
 * says where it is from). */
void replay_say_operation(const Kernel *kernel, int value, int64_t element, ReplayCause *out);
void replay_say_kernel(const Kernel *kernel, const ReplaySpot *spot, ReplayCause *out);
STATUS_CHECKED Status replay_say_given(Replay *replay, const ReplaySpot *spot, ReplayCause *out);
#endif
