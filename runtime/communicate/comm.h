/* comm: the ranks of a training and what they do together. A rank is a process with its own device;
 * all of them run the same artifact. What moves the bytes between them is an engine: MPI for ranks
 * on CPUs (a plug-in, engine.h), NCCL between GPUs. This room knows no plan and no device.
 *
 * Work is begun and ended: it goes on meanwhile on the thread of the Comm, which makes all calls of
 * the engine. Every rank begins the same work in the same order. Begin and end may be called by any
 * thread; the caller sees to the order.
 */
#ifndef FT_RUNTIME_COMM_H
#define FT_RUNTIME_COMM_H
#include "base/mesh.h"
#include "ir/type.h"
#include "runtime/common/status.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct Comm Comm;

/* What the environment says of this process: mpirun's, srun's or torchrun's variables. */
typedef struct {
  int rank, ranks;             /* 0, 1: alone */
  int local_rank, local_ranks; /* of those on this machine */
  const char *launcher;        /* "mpirun", "srun", "torchrun"; NULL: none, then it is alone */
} CommPlace;
/* Reads variables only. STATUS_USER where they contradict each other. */
STATUS_CHECKED Status comm_place(CommPlace *out);

typedef struct {
  int ranks;           /* expected; 0: as many as there are */
  double timeout;      /* seconds a rank may stay away from work that others have begun */
  const char *library; /* the engine's file; NULL: the one beside ftrun, then the loader's path */
  Mesh mesh;           /* of all ranks; zeros: they share a batch, and no more */
  int64_t piece; /* at most so many elements in one message; 0: as many as the engine likes */
  bool is_apart; /* the engine does all works, also between ranks of one machine */
  const char *device; /* "cuda:1", for messages; NULL: there is nothing to say */
} CommOptions;

/* Joins the others: returns when all ranks have come, and the groups of the mesh's axes are there.
 * *out is NULL if this process is alone. */
STATUS_CHECKED Status comm_open(const CommOptions *options, Comm **out);
/* Leaves; `status` is how the run ended. Not STATUS_OK: the other ranks are ended too, and told
 * what this thread's status_message() is. Where one of these functions fails because the job does,
 * the status is that of the rank that failed, and the message says why the job ends: the caller
 * should print it if comm_speaks, close, and exit. The others
 * wait here for rank 0 to close, so that the sentence is out before the launcher ends the rest. A
 * process that does not close within ten seconds of a failure is ended. NULL is fine. */
void comm_close(Comm *comm, Status status);
/* The same, but the Comm is there until comm_close, whose status says nothing more: for those that
 * still name it, to begin nothing. */
void comm_leave(Comm *comm, Status status);

int comm_rank(const Comm *comm);  /* NULL: 0 */
int comm_ranks(const Comm *comm); /* NULL: 1 */
int comm_size(const Comm *comm, MeshAxis axis); /* ranks of a group of the axis. NULL: 1 */
int comm_index(const Comm *comm, MeshAxis axis); /* which of its group it is. NULL: 0 */
const Mesh *comm_mesh(const Comm *comm); /* of several ranks */
/* Of the axes whose groups are this one's the first: a group that several axes have is one for what
 * joins the ranks. */
MeshAxis comm_axis(const Comm *comm, MeshAxis axis);
int comm_local_rank(const Comm *comm); /* among those of this machine; NULL: 0 */
/* Is it this rank that says on the console why the job ends? Rank 0; where that one is dead or
 * stopped, rank 1. NULL: yes. */
bool comm_speaks(Comm *comm);
const char *comm_text(const Comm *comm); /* "4 ranks on 2 machines, Open MPI 4.1.4" */

/* What a rank does beside its works: where it was last seen, if it stays away from one. */
typedef struct {
  const char *what, *name; /* "kernel", "dot + gelu"; name: NULL: there is none */
  uint32_t line;           /* of the source; 0: none */
  bool may_last; /* the others wait longer than the timeout while comm_goes_on is called */
} CommDoing;
/* By any thread; these cost a store or two. `doing` must be there until comm_doing_nothing, or as long
 * as the Comm. NULL: nothing. */
void comm_at_step(Comm *comm, int64_t step); /* the works that are begun from here on are its own */
void comm_doing(Comm *comm, const CommDoing *doing);
/* From then on nobody looks at what was given before, and it need not be there any more. */
void comm_doing_nothing(Comm *comm);
void comm_goes_on(Comm *comm);

/* The rows of plan/beside.def. */
typedef enum {
  COMM_ALL_REDUCE,     /* out[i] = x[i] of all ranks, by op; out may be x */
  COMM_REDUCE_SCATTER, /* out = part `rank` of that; x has ranks times as many elements */
  COMM_ALL_GATHER,     /* out = x of all ranks, in order; out may hold x at its place */
  COMM_ALL_TO_ALL,     /* part r of x goes to rank r, to part `rank` of its out */
  COMM_BROADCAST,      /* out = x of rank `peer`; out may be x */
  COMM_SEND,           /* x to `peer` */
  COMM_RECEIVE,        /* out from `peer` */
  COMM_ABSENT,         /* no row: of a transfer in which this rank has no part */
  COMM_RUN /* no row: works that a device does for itself, `count` of them; see `look` */
} CommKind;
typedef enum { COMM_SUM, COMM_MIN, COMM_MAX, COMM_PROD } CommOp; /* as `op` in plan/beside.def */
/* x and out do not overlap but where it says so. reduce_scatter and all_to_all: the elements of x
 * are a multiple of the ranks. The results have the same bits on every rank and in every run. */
typedef struct CommWork {
  CommKind kind;
  CommOp op;
  MeshAxis over; /* which of this rank's groups does it: ranks are counted there */
  int peer;
  DType dtype;
  int64_t count; /* elements of x; RECEIVE: of out */
  const void *x;
  void *out;
  bool clears;       /* SEND, ABSENT: out becomes zeros, as many as x has elements */
  bool is_shared;    /* on all ranks of the group x and out lie in memory of comm_memory_new */
  const char *label; /* for messages: "gradients of h.3.attn"; must outlive the Comm's work */
  /* NULL, or called by a thread of the Comm when the work has ended, whose status_message() is the
   * sentence of a failure. Such a work has no number, and comm_end knows nothing of it. */
  void (*done)(void *context, Status status);
  void *context;
  /* Of a RUN, which is not the engine's affair: begun already, and a thread of the Comm asks now
   * and then whether it is over, so that the ranks know how far each is. False, and why, where it
   * has failed. It has a `done`, and x is whatever its caller likes. */
  bool (*look)(const struct CommWork *work, bool *is_over, char *why, size_t size);
} CommWork;
const char *comm_kind_text(CommKind kind); /* "all_reduce" */
/* Is this a work that a group of so many ranks can do? A sentence if not. */
STATUS_CHECKED Status comm_check(const CommWork *work, int ranks);

/* Queues the work, and says under which number it is ended; x and out are the engine's so long. */
STATUS_CHECKED Status comm_begin(Comm *comm, const CommWork *work, int64_t *number);
STATUS_CHECKED Status comm_end(Comm *comm, int64_t number);
/* Both, for the host's own affairs. On one rank alone (comm NULL) it copies x to out. */
STATUS_CHECKED Status comm_do(Comm *comm, const CommWork *work);
/* Memory that the other ranks of this machine may read and write: zeroed, and aligned as large blocks
 * should be. NULL: there is none. It is given back before comm_close. */
char *comm_memory_new(Comm *comm, int64_t bytes);
bool comm_memory_free(Comm *comm, char *memory); /* false: it is none of these */
bool comm_holds(Comm *comm, const void *at, int64_t bytes);
/* What else joins the ranks, on their devices. `abort` is called when the job has failed, on a
 * thread of its own, and may take its time; `leave` by comm_leave when it has not. Afterwards, there
 * is no Comm. One at a time. */
typedef struct {
  void (*abort)(void *context);
  void (*leave)(void *context);
  void *context;
} CommOutside;
STATUS_CHECKED Status comm_attach(Comm *comm, const CommOutside *outside);
/* Neither is called any more. False: an abort is under way, and hangs. */
bool comm_detach(Comm *comm);
/* STATUS_FAULT and the sentence if the job has failed. NULL: STATUS_OK. */
STATUS_CHECKED Status comm_status(Comm *comm);
int64_t comm_failed_at(Comm *comm); /* clock_nanoseconds; 0: it has not. NULL: 0 */

/* Returns when all ranks have called it. */
STATUS_CHECKED Status comm_barrier(Comm *comm, const char *label);
/* All ranks call it, each with how it fared: the failure of the lowest one that has failed is that
 * of all, with its name: "rank 2 (host n3): cannot write …". Alone, or where the ranks cannot say so
 * to each other any more, it is one's own, or what the job has failed with. */
STATUS_CHECKED Status comm_agree(Comm *comm, Status status);
/* Do all ranks have the same bytes? STATUS_USER and a sentence that names `what` and the ranks that
 * differ from rank 0. */
STATUS_CHECKED Status comm_same(Comm *comm, const char *what, const void *bytes, int64_t count);
/* The same of the ranks of each stage of a pipeline, which differ from the first of theirs. */
STATUS_CHECKED Status comm_same_in_stages(Comm *comm, const char *what, const void *bytes,
                                          int64_t count);
#endif
