/* watch_private: what rank 0 knows of the others, and the sentences that it makes of it. */
#ifndef FT_RUNTIME_WATCH_PRIVATE_H
#define FT_RUNTIME_WATCH_PRIVATE_H
#include "runtime/communicate/comm_private.h"

/* One rank, as rank 0 sees it; its own too. */
typedef struct {
  BoardLink link;
  int64_t heard; /* when it last said anything */
  int64_t away, back; /* for how long it had not, and until when; 0: never for long */
  bool has_left; /* in peace */
  Progress progress;
  int64_t late_since; /* it said that it waits for too long; 0: it did not, or it goes on */
  int64_t moved;      /* when it last did something else, or gave a sign of life */
} Peer;

typedef struct {
  Comm *comm;
  Peer *peer;
  bool *is_named; /* of each rank, for use here */
  int ranks;
  int64_t now;
} Judge;

/* A rank says something: its silence before that, of which rank 0 itself has made so much. */
void judge_heard(const Judge *judge, int rank, int64_t own_pause);
/* Somebody waits for longer than the timeout. False: it waits for what may last, or for one that
 * has been stopped or cut off and has just come back. */
bool judge_late(const Judge *judge, int rank, char *sentence);
/* A connection is gone. */
void judge_dead(const Judge *judge, int rank, char *sentence);
/* What another rank, which is at `own`, says of a rank 0 that has been silent for so long. */
void judge_silent_0(const Judge *judge, const Progress *own, int64_t silent, char *sentence);
/* A rank waits for one that has left. */
bool judge_left(const Judge *judge, char *sentence);
#endif
