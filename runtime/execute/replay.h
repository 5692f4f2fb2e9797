/* replay: a training step that can be done again. What it begins with is kept beside the places, and
 * its batches; where its numbers are no longer finite it is run again, as often as it takes, up to one
 * kernel after another, from where the number lies back to the operation that made it. For one
 * process: with several ranks exec_run_checked looks at every kernel. */
#ifndef FT_RUNTIME_REPLAY_H
#define FT_RUNTIME_REPLAY_H
#include "base/text.h"
#include "runtime/execute/exec.h"

typedef struct Replay Replay;
STATUS_CHECKED Status replay_new(Exec *exec, Replay **out);
void replay_free(Replay *replay); /* NULL is fine */
/* Before a step. *is_kept: false if there is no room for a copy of what it begins with. */
STATUS_CHECKED Status replay_begin(Replay *replay, bool *is_kept);
/* exec_run, of a copy of the batch that is kept. */
STATUS_CHECKED Status replay_run(Replay *replay, ExecGraph graph, const void *batch);

/* A number in a place, as it is before step `step` of the run of that number. */
typedef struct {
  int run, step, place;
  int64_t at;     /* byte */
  char what[160]; /* "the loss", "parameter fc1.weight"; empty: none is bad */
} ReplaySpot;
/* After the step: is the loss finite, and all that is kept between steps? */
STATUS_CHECKED Status replay_look(Replay *replay, ReplaySpot *out);
/* The first that a kernel of the step gives: of gradients that overflow, whose step is skipped. */
STATUS_CHECKED Status replay_look_inside(Replay *replay, ReplaySpot *out);

typedef struct {
  Text sentence; /* what is wrong and where, for one line */
  Text details;  /* lines with statistics of operands */
  int input;     /* of the plan, if it is the data: */
  int run;       /* … of this run of the step, */
  int64_t row;   /* … in this row of its batch; */
  bool is_input;
} ReplayCause;
STATUS_CHECKED Status replay_explain(Replay *replay, const ReplaySpot *spot, ReplayCause *out);
void replay_cause_free(ReplayCause *cause);

/* ── between replay.c and replay_explain.c ── */
/* Everything as before the step, then its runs up to this one, and of that one steps before `step`. */
STATUS_CHECKED Status replay_to(Replay *replay, int run, int step);
Exec *replay_exec(const Replay *replay);
const PlanGraph *replay_graph(const Replay *replay, int run);
/* The number of bytes there as they lie in memory of the host: *copy is to be freed, or NULL. */
STATUS_CHECKED Status replay_bytes(Replay *replay, int run, int place, int64_t offset,
                                   int64_t bytes, const char **at, char **copy);
/* The first element that is not finite; with `nan` the first NaN, if there is one. -1: none. */
int64_t replay_first_bad(const Type *type, const char *at, bool nan);
#endif
