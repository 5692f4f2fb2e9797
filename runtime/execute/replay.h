/* replay: a training step that can be done again. What it begins with is kept beside the places, and
 * its batches; where its numbers are no longer finite it is run again, as often as it takes, up to one
 * kernel after another, from where the number lies back to the operation that made it. Of several
 * ranks one follows the number, and all do the step again with it: all call the same functions. */
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
/* After the step: is the loss finite, and all that is kept between steps? On any of several ranks: all
 * have the spot of the lowest one that has one. */
STATUS_CHECKED Status replay_look(Replay *replay, ReplaySpot *out);
/* Of a step that is skipped: a gradient that is not finite. */
STATUS_CHECKED Status replay_look_at_gradients(Replay *replay, ReplaySpot *out);

typedef struct {
  Text sentence; /* what is wrong and where, for one line */
  Text details;  /* lines with statistics of operands */
  int input;     /* of the plan, if it is the data: */
  int run;       /* … of this run of the step, */
  int64_t row;   /* … in this row of its batch; */
  bool is_input;
  bool is_own; /* this rank has found it: the others have an empty cause, until it is shared */
} ReplayCause;
STATUS_CHECKED Status replay_explain(Replay *replay, const ReplaySpot *spot, ReplayCause *out);
/* All ranks have the sentence and the details of the one that has found it. */
STATUS_CHECKED Status replay_share(Replay *replay, ReplayCause *cause);
void replay_cause_free(ReplayCause *cause);

/* ── between replay.c and replay_explain.c ── */
/* Everything as before the step, then its runs up to this one, and of that one steps before `step`. */
STATUS_CHECKED Status replay_to(Replay *replay, int run, int step);
Exec *replay_exec(const Replay *replay);
Comm *replay_comm(const Replay *replay); /* NULL: it is alone */
int *replay_leader(Replay *replay);      /* the rank that follows the number back */
const PlanGraph *replay_graph(const Replay *replay, int run);
/* … and from there on to the end of the step, where the other ranks go on, too. Alone: nothing. */
STATUS_CHECKED Status replay_rest(Replay *replay, int run, int step);
int replay_last_run(const Replay *replay);
/* The number of bytes there as they lie in memory of the host: *copy is to be freed, or NULL. */
STATUS_CHECKED Status replay_bytes(Replay *replay, int run, int place, int64_t offset,
                                   int64_t bytes, const char **at, char **copy);
/* The first element that is not finite; with `nan` the first NaN, if there is one. -1: none. */
int64_t replay_first_bad(const Type *type, const char *at, bool nan);
#endif
