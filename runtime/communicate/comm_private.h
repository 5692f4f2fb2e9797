/* comm_private: the parts of a Comm.
 *
 * Threads: the caller's; the engine's, which makes all calls of the engine (comm_engine.c); and the
 * watch (watch.c), which tells the other ranks where this one is and learns from rank 0 that the
 * job has failed. They share what stands below `lock`, under it.
 * A failure is for ever: all works end with its sentence, and the engine is not called again. */
#ifndef FT_RUNTIME_COMM_PRIVATE_H
#define FT_RUNTIME_COMM_PRIVATE_H
#include "runtime/communicate/board.h"
#include "runtime/communicate/engine.h"
#include "runtime/communicate/shared.h"
#include <pthread.h>
#include <stdatomic.h>

enum { COMM_SENTENCE = 1792, COMM_SEAT = 128, COMM_TEXT = 192, COMM_DOING = 128, COMM_SLOTS = 4096, COMM_UNDER_WAY = 32 };

/* Works that several ranks begin in one order are numbered, and compared: those of all ranks, and of
 * a pipeline, whose stages run programs of their own, those within a stage. */
typedef enum { ORDER_ALL, ORDER_STAGE, ORDER_COUNT } CommOrder;

typedef enum { SLOT_FREE, SLOT_QUEUED, SLOT_UNDER_WAY, SLOT_ENDED, SLOT_FAILED } SlotState;
typedef struct {
  SlotState state;
  int64_t number;
  CommWork work;
  EngineWork *engine_work;
  SharedWork *shared_work;
  bool is_shared; /* it is done in memory that the ranks share */
  bool is_waited; /* … and its caller goes on with it, who waits for its end */
  CommOrder order;
  int64_t collective; /* its number in that, from 1; 0: between two ranks */
  int peer;           /* … of all ranks, the other one of these two */
  int64_t step;       /* in which it was begun; 0: in none */
  bool is_noted;      /* its end has been counted in `ended` */
} Slot;

/* What the other ranks are told of a work: collective 37 is "all_reduce of 12 f32 (gradients)". */
typedef struct {
  uint64_t hash;
  char text[COMM_TEXT];
} Note;

/* For the watch: how far this rank is. */
typedef struct {
  int64_t entered, entered_in_stage; /* collectives begun, of each order */
  int64_t oldest;  /* of the works that have not ended; 0: there is none */
  int64_t oldest_collective, oldest_step;
  bool oldest_is_in_stage; /* its number is of that order */
  bool oldest_is_message;  /* it goes between this rank and: */
  int oldest_peer;
  int64_t since; /* when it became the oldest */
  int64_t step;  /* that it is in; 0: none */
  int64_t signs; /* of life, in what may last */
  bool may_last;
  char text[COMM_TEXT]; /* of the oldest */
  char doing[COMM_DOING];
} Progress;

/* Of a rank, to all. */
typedef struct {
  char host[BOARD_HOST];
  char device[32];
} Seat;

typedef struct Watch Watch;

struct Comm {
  CommPlace place;
  CommOptions options;
  double timeout;
  Mesh mesh;
  char host[BOARD_HOST];
  Seat *seats; /* of all ranks */
  char text[160];
  const EngineType *type;
  Engine *engine; /* of the engine's thread */
  Shared *shared; /* NULL: there is none */
  Board board;
  Watch *watch;
  int launcher; /* launcher.h; -1 */
  _Atomic int64_t step, signs;
  const CommDoing *_Atomic doing; /* NULL: nothing has been said */

  pthread_mutex_t lock;
  pthread_cond_t queued;  /* the engine's thread waits for it */
  pthread_cond_t changed; /* all others */
  pthread_t thread;
  bool has_thread, is_open, is_closing, has_left;
  bool may_leave;    /* all ranks leave in peace */
  bool is_left, is_stuck; /* comm_leave has been called; the engine's thread does not return */
  bool is_in_engine; /* its thread is, and may write to what works give out */
  Slot slot[COMM_SLOTS]; /* of work n: n % COMM_SLOTS, from 1 */
  int64_t begun, started;
  int64_t listed; /* to here the engine's thread knows what has started */
  int64_t ended; /* all works to this one have */
  int64_t since; /* when work ended + 1 became the oldest */
  int64_t entered[ORDER_COUNT];
  Note note[ORDER_COUNT][BOARD_RING]; /* of collective n: n % BOARD_RING */
  int64_t noted[ORDER_COUNT];         /* to here the watch has read them */
  bool has_failed, is_told; /* is_told: the caller knows of it */
  bool is_rank_0_lost;      /* that is why */
  Status failed_as;
  CommOutside outside;
  bool is_attached, is_aborting; /* is_aborting: a thread is in outside.abort */
  int64_t failed_at;
  char sentence[COMM_SENTENCE];
};

/* comm.c */
/* The same where rank 0 is dead or stopped. */
bool comm_fail_without_rank_0(Comm *comm, const char *sentence);
/* Only the first failure counts. False if there was one. */
bool comm_fail(Comm *comm, Status status, const char *sentence);
/* "host n3", "host n3, cuda:1" */
void comm_seat(const Comm *comm, int rank, char *out, size_t size);
/* With the lock held. */
void comm_note_end(Comm *comm, Slot *slot);
void comm_progress(Comm *comm, Progress *out);
/* Waits for `condition` at most so long; the lock is held. */
void comm_wait(Comm *comm, pthread_cond_t *condition, int64_t nanoseconds);
/* False, and a text that says nothing, where the ring has it no more, or not yet. */
bool comm_read_note(Comm *comm, CommOrder order, int64_t number, Note *out);
int comm_next_notes(Comm *comm, CommOrder order, Note *out, int most, int64_t *first);
/* The rank that this one's works of the order are compared with. */
int comm_reference(const Comm *comm, CommOrder order, int rank);

/* Wakes the engine's thread. */
void comm_alert(Comm *comm);
/* All ranks leave in peace. */
void comm_let_leave(Comm *comm);
void comm_leave_outside(Comm *comm, bool in_peace);

/* comm_shared.c */
/* By the engine's thread, before the first work. */
bool comm_share(Comm *comm, char *why);
/* With the lock held. True: this work, the last that was queued, has ended. */
bool comm_enter(Comm *comm, Slot *slot);
/* With the lock held, which it leaves meanwhile: returns when the work has ended, or failed. */
void comm_drive(Comm *comm, Slot *slot);
void comm_share_no_more(Comm *comm);

/* comm_engine.c */
/* By its thread, before the first work that is queued. */
bool comm_do_now(Comm *comm, const CommWork *work, char *why);
/* With the lock held, which it leaves meanwhile. */
void comm_engine_failed(Comm *comm, const Slot *slot, const char *why);
void *comm_engine_main(void *comm);
/* Finds and opens the plug-in. */
STATUS_CHECKED Status comm_find_engine(const char *library, int ranks, const EngineType **out);
/* For a process that cannot end its threads: exits without destructors. */
void comm_leave_at_exit(void);

/* comm_open.c: as comm_open, of a process that is this one of several ranks; tests have several in
 * a process. */
STATUS_CHECKED Status comm_open_at(const CommPlace *place, const CommOptions *options, Comm **out);

/* watch.c */
/* Rank 0 waits here for all others' connections, these connect. */
STATUS_CHECKED Status watch_start(Comm *comm, Watch **out);
/* Tells the others that this rank fails. */
void watch_tell_failure(Watch *watch, Status status, const char *sentence);
/* … that it leaves in peace. */
void watch_tell_leaving(Watch *watch);
/* Returns when all has been told, at most so many seconds later. */
void watch_flush(Watch *watch, double seconds);
/* Waits until rank 0 has closed its Comm, at most so many seconds. */
void watch_wait_for_rank_0(Watch *watch, double seconds);
void watch_stop(Watch *watch); /* NULL is fine */
#endif
