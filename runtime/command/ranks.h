/* ranks: a command that runs as several processes (communicate/comm.h), each with the same command
 * line. Rank 0 speaks for all: it writes the console, the log and the files. What would be the same
 * on all ranks only it says; an error of a single rank that rank says itself, with its number and
 * machine. All ranks must decide alike: decisions are made from values that all have, or that are
 * exchanged here. A command that runs alone makes the same calls, and they do nothing. */
#ifndef FT_RUNTIME_RANKS_H
#define FT_RUNTIME_RANKS_H
#include "runtime/command/train.h"
#include "runtime/communicate/comm.h"

/* A variable: the descriptor to which a rank writes its number (int32_t) where a fault of the machine
 * is its own, for the launcher. */
#define RANKS_FAULT "FT_RANKS_FAULT"

enum { RANKS_TIME_IS_UP = 1000 /* no signal's number */ };

typedef struct {
  Comm *comm; /* NULL: alone, or not yet joined, or they have left each other */
  Comm *left; /* then it is this one, which an Exec still names */
  CommPlace place;
  int shares;     /* ranks, or groups of them, that share the batch */
  int cores;      /* of this machine, this rank's share; 0: alone, all that it may use */
  bool has_left;
  bool is_agreed; /* all ranks know that it has failed, and that this one says so: */
  int speaker;
  int64_t calls, interval, exchanged; /* ranks_signal: since the last exchange, calls between two,
                                         nanoseconds of the last */
  int signal;
  int64_t deadline; /* of ranks_signal: clock_nanoseconds; 0: none. Rank 0's counts */
  bool is_busy;   /* set by the caller of ranks_signal: this rank does something beside the steps; */
  bool none_busy; /* … and none did as it was last called: false if they have not spoken then */
} Ranks;

/* As early as can be, of a command that may be one of several ranks: where a launcher has lost one
 * it asks the others to end, and they say why. `trains`: the command asks for signals itself. `leave`,
 * or NULL: is called where the process is ended by another thread than main's before it has joined.
 * False: this process is alone. May be called again. */
bool ranks_begin(bool trains, void (*leave)(void));
/* From there to ranks_open: this rank fails, with this exit code. Is it the one that says why? */
bool ranks_may_say(void);
/* It has been said: the others end with this exit code. */
void ranks_have_said(int code);
/* "rank 2 (host n3): ", or nothing where this process is alone. */
void ranks_name_self(char *out, size_t size);
/* Opens the artifact with its settings, looks whether it may run on so many ranks, and joins the
 * others. After any outcome: ranks_close. */
STATUS_CHECKED Status ranks_open(const RunOptions *options, Ranks *out, Artifact **artifact);
/* All ranks are done with what they do together: each goes on alone. */
STATUS_CHECKED Status ranks_leave(Ranks *ranks);
/* The end of the command, for ranks that have not left: leaves, if `status` is STATUS_OK; else ends
 * the others, if they do not know yet. A failure has then been told: status_message() is empty.
 * Returns `status`, or a failure of the others. */
Status ranks_close(Ranks *ranks, Status status);
/* After the Exec is gone. */
void ranks_free(Ranks *ranks);
/* For commands that run alone: STATUS_USER, which has been told, if this process is one of
 * several. */
STATUS_CHECKED Status ranks_refuse(const char *command);

/* All ranks call it, each with how it fared: a failure if one has failed. */
STATUS_CHECKED Status ranks_agree(Ranks *ranks, Status status);
/* Is it so on all ranks? All of them call it. */
STATUS_CHECKED Status ranks_all(Ranks *ranks, bool *is);
/* All ranks call it, when all have a device: joins these. */
STATUS_CHECKED Status ranks_join_devices(Ranks *ranks, Exec *exec);
/* All ranks call it, or the failure of all of them: the speaker is rank 0. */
Status ranks_failed_alike(Ranks *ranks, Status status);
/* A text of rank 0 (malloc'd, or NULL) becomes that of all. */
STATUS_CHECKED Status ranks_share_text(Ranks *ranks, char **text);
/* Threads of a step: `wanted`, or if 0 this rank's share of the machine, where it has one. */
int ranks_threads(const Ranks *ranks, int wanted);

/* The signal that one of the ranks has got, RANKS_TIME_IS_UP once the deadline is past, or 0: between two steps, by all ranks after the same
 * one. They exchange it about ten times a second, after a number of calls that they count; that
 * number begins anew at 1 with ranks_new_pace, before calls of another length. */
STATUS_CHECKED Status ranks_signal(Ranks *ranks, int *signal);
void ranks_new_pace(Ranks *ranks);

/* Have all ranks the same program, artifact (its file), settings and data? (ranks_same.c) A source may be
 * NULL. */
STATUS_CHECKED Status ranks_same(Ranks *ranks, const Plan *plan, const char *artifact,
                                 const Source *const *sources, int count);
/* … and the same flags, of those that are no settings? */
STATUS_CHECKED Status ranks_same_flags(Ranks *ranks, const TrainOptions *options);
/* Do all begin with the same values, from the same step on? */
STATUS_CHECKED Status ranks_same_values(Ranks *ranks, Exec *exec);
/* … and the same weights of frozen layers? sum: given_load's. */
STATUS_CHECKED Status ranks_same_given(Ranks *ranks, uint64_t sum);
#endif
