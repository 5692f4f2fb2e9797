/* fake_nccl: NCCL's C interface between processes of one machine without a GPU, for tests, on top
 * of the fake CUDA driver (test/fake/fake.h). Calls follow runtime/communicate/nccl.def, so a row
 * added there and not here does not link. Ranks must do the same in the same order, with the same
 * counts, types and operations, on memory of the GPU; what else they do ends the process, as do
 * the use of a communicator that was aborted or destroyed, and a group without its end.
 *
 *   FT_FAKE_NCCL_SEED=N      chance: works begin late, and calls are not over when they return
 *   FT_FAKE_NCCL_SLOW=US     each work takes so many microseconds more
 *   FT_FAKE_NCCL_VERSION=N   22703 is 2.27.3 (22703)
 *   FT_FAKE_NCCL_NO_ID=1     ncclGetUniqueId fails
 *   FT_FAKE_NCCL_FAIL=R:N:HOW  on rank R the Nth work (from 1): "remote" and "system" are errors
 *                            behind the caller's back, "hang" none, "call" one of the call */
#ifndef FT_TEST_FAKE_NCCL_H
#define FT_TEST_FAKE_NCCL_H
#include "runtime/communicate/nccl.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum {
  FAKE_NCCL_MAGIC = 0x6e63636c,
  FAKE_NCCL_RANKS = 8,
  FAKE_NCCL_CHUNK = 1 << 20,
  FAKE_NCCL_MAIL = 1 << 16,
  FAKE_NCCL_GROUP = 64
};

typedef enum {
  ITEM_ALL_REDUCE,
  ITEM_REDUCE_SCATTER,
  ITEM_ALL_GATHER,
  ITEM_BROADCAST,
  ITEM_SEND,
  ITEM_RECEIVE
} ItemKind;
typedef struct {
  ItemKind kind;
  const void *x;
  void *out;
  size_t count; /* as the call has it: of a part where it is one */
  int type, op, peer;
} Item;

/* From one rank to another. */
typedef struct {
  atomic_int is_full;
  int type;
  size_t count, bytes; /* count: of the whole */
  char data[FAKE_NCCL_MAIL];
} Mail;

typedef struct {
  atomic_uint has_come;
  atomic_int aborted;
  atomic_long at[FAKE_NCCL_RANKS]; /* meetings that a rank has come to */
  Item item[FAKE_NCCL_RANKS];
  int color[FAKE_NCCL_RANKS], key[FAKE_NCCL_RANKS];
  char data[FAKE_NCCL_RANKS][FAKE_NCCL_CHUNK];
  Mail mail[FAKE_NCCL_RANKS][FAKE_NCCL_RANKS]; /* from, to */
} Shared;

struct NcclCommBody {
  unsigned magic;
  char name[96];
  Shared *shared;
  int rank, ranks, splits, is_finalized;
  long works; /* begun */
  int busy;   /* so often is the last call not over yet */
  bool is_joining, is_destroyed;
  atomic_int is_aborted, error, waiting, ends;
  pthread_t thread;
  bool has_thread;
  uint64_t random;
};

/* Of the fake driver. */
typedef struct {
  void (*pause)(void); /* lets others use the driver for a moment */
  void (*check)(const void *at, size_t bytes);
  void (*mark)(const void *at, size_t bytes);
  void (*move)(void); /* runs what is ready on any stream */
  int (*enqueue)(NcclStream stream, void (*work)(void *), const void *context, size_t bytes);
} FakeDriver;
extern FakeDriver fake_nccl_driver;

void fake_nccl_die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
long fake_nccl_setting(const char *name, long otherwise);
NcclComm fake_nccl_check(NcclComm comm); /* it may be used */
/* ── fake_nccl_work.c ── */
NcclResult fake_nccl_call(NcclComm comm, NcclStream stream, Item item);
int fake_nccl_depth(void);           /* of groups */
NcclResult fake_nccl_group(int by);  /* begins or ends one */
bool fake_nccl_meet(NcclComm comm);  /* false: aborted meanwhile */
#endif
