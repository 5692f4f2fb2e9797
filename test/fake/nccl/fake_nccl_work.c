/* fake_nccl_work: what works do, see fake_nccl.h. */
#include "fake_nccl.h"
#include "base/clock.h"
#include "runtime/common/round_half.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
enum { TYPES = sizeof sizes / sizeof *sizes, OPS = 4 };
static const char *const kinds[] = {"all_reduce", "reduce_scatter", "all_gather",
                                    "broadcast",  "send",           "receive"};

typedef struct {
  NcclComm comm;
  int count;
  Item item[FAKE_NCCL_GROUP];
} Work;

static _Thread_local int depth;
static _Thread_local Work pending;
static _Thread_local NcclStream pending_stream;

/* ── waiting ──────────────────────────────────────────────────────────────────────────────── */
static bool pause_unless_aborted(NcclComm comm) {
  if (atomic_load(&comm->is_aborted)) return false;
  fake_nccl_driver.pause();
  return true;
}

static bool wait_for(NcclComm comm, int64_t microseconds) {
  int64_t end = clock_nanoseconds() + microseconds * 1000;
  while (clock_nanoseconds() < end)
    if (!pause_unless_aborted(comm)) return false;
  return true;
}

bool fake_nccl_meet(NcclComm comm) {
  Shared *shared = comm->shared;
  long mine = atomic_fetch_add(&shared->at[comm->rank], 1) + 1;
  for (int r = 0; r < comm->ranks; r++)
    while (atomic_load(&shared->at[r]) < mine)
      if (!pause_unless_aborted(comm)) return false;
  return true;
}

static unsigned draw(NcclComm comm) {
  comm->random = comm->random * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)(comm->random >> 33);
}

/* ── collectives ──────────────────────────────────────────────────────────────────────────── */
static bool is_same(const Item *a, const Item *b) {
  return a->kind == b->kind && a->count == b->count && a->type == b->type && a->op == b->op &&
         a->peer == b->peer;
}

static void text_of(const Item *item, char *out, size_t size) {
  snprintf(out, size, "%s of %zu (type %d, operation %d, root %d)", kinds[item->kind], item->count,
           item->type, item->op, item->peer);
}

static bool compare(NcclComm comm, const Item *item) {
  char mine[128], theirs[128];
  comm->shared->item[comm->rank] = *item;
  if (!fake_nccl_meet(comm)) return false;
  for (int r = 0; r < comm->ranks; r++) {
    if (is_same(item, &comm->shared->item[r])) continue;
    text_of(item, mine, sizeof mine);
    text_of(&comm->shared->item[r], theirs, sizeof theirs);
    fake_nccl_die("rank %d does %s, and rank %d %s", comm->rank, mine, r, theirs);
  }
  return fake_nccl_meet(comm);
}

static float of_half(int type, uint16_t bits) {
  union {
    uint32_t bits;
    float value;
  } wide = {(uint32_t)bits << 16};
  if (type == NCCL_TYPE_BF16) return wide.value;
  wide.bits = (uint32_t)(bits & 0x7fff) << 13;
  wide.value *= 0x1p112f;
  if ((bits & 0x7c00) == 0x7c00) wide.bits = (uint32_t)(bits & 0x3ff) << 13 | 0xff << 23;
  return bits & 0x8000 ? -wide.value : wide.value;
}

#define COMBINE(a, b)                                                                              \
  (op == NCCL_OP_SUM    ? (a) + (b)                                                                \
   : op == NCCL_OP_PROD ? (a) * (b)                                                                \
   : op == NCCL_OP_MAX  ? ((a) > (b) ? (a) : (b))                                                  \
                        : ((a) < (b) ? (a) : (b)))
#define REDUCE(Stored)                                                                             \
  do {                                                                                             \
    Stored value = ((const Stored *)(const void *)shared->data[0])[i];                             \
    for (int r = 1; r < ranks; r++) {                                                              \
      Stored other = ((const Stored *)(const void *)shared->data[r])[i];                           \
      value = (Stored)COMBINE(value, other);                                                       \
    }                                                                                              \
    ((Stored *)out)[i] = value;                                                                    \
  } while (0)

/* In the order of the ranks; of 16 bits in f32, rounded once. */
static void reduce(const Shared *shared, int ranks, int type, int op, size_t count, void *out) {
  bool wraps = op == NCCL_OP_SUM || op == NCCL_OP_PROD; /* integers, as two's complement does */
  if (type == NCCL_TYPE_I32 && wraps) type = NCCL_TYPE_U32;
  for (size_t i = 0; i < count; i++) {
    if (type == NCCL_TYPE_F16 || type == NCCL_TYPE_BF16) {
      float value = of_half(type, ((const uint16_t *)(const void *)shared->data[0])[i]);
      for (int r = 1; r < ranks; r++) {
        float other = of_half(type, ((const uint16_t *)(const void *)shared->data[r])[i]);
        value = COMBINE(value, other);
      }
      ((uint16_t *)out)[i] = type == NCCL_TYPE_F16 ? round_to_half(value) : round_to_bfloat(value);
    } else if (type == NCCL_TYPE_F32)
      REDUCE(float);
    else if (type == NCCL_TYPE_F64)
      REDUCE(double);
    else if (type == NCCL_TYPE_I32)
      REDUCE(int32_t);
    else if (type == NCCL_TYPE_U32)
      REDUCE(uint32_t);
    else if (type == NCCL_TYPE_I64 && wraps)
      REDUCE(uint64_t);
    else if (type == NCCL_TYPE_I64)
      REDUCE(int64_t);
    else
      REDUCE(uint8_t);
  }
}

/* Elements [at, at + count) of what each rank gives; part: of a reduce_scatter, whose it is. */
static bool do_chunk(NcclComm comm, const Item *item, size_t at, size_t count, int part) {
  Shared *shared = comm->shared;
  size_t size = sizes[item->type], bytes = count * size;
  size_t from = (size_t)part * item->count + at;
  memcpy(shared->data[comm->rank], (const char *)item->x + from * size, bytes);
  if (!fake_nccl_meet(comm)) return false;
  char *out = (char *)item->out + at * size;
  if (item->kind == ITEM_ALL_REDUCE || (item->kind == ITEM_REDUCE_SCATTER && part == comm->rank))
    reduce(shared, comm->ranks, item->type, item->op, count, out);
  for (int r = 0; r < comm->ranks && item->kind == ITEM_ALL_GATHER; r++)
    memcpy(out + (size_t)r * item->count * size, shared->data[r], bytes);
  if (item->kind == ITEM_BROADCAST) memcpy(out, shared->data[item->peer], bytes);
  return fake_nccl_meet(comm);
}

static bool do_collective(NcclComm comm, const Item *item) {
  size_t most = FAKE_NCCL_CHUNK / sizes[item->type];
  int parts = item->kind == ITEM_REDUCE_SCATTER ? comm->ranks : 1;
  if (!compare(comm, item)) return false;
  Item own = *item;
  /* a part may lie on the x of parts to come */
  if (parts > 1) own.out = malloc(item->count * sizes[item->type] + 1);
  bool is_good = true;
  for (int part = 0; part < parts && is_good; part++)
    for (size_t at = 0; at < item->count && is_good; at += most)
      is_good =
          do_chunk(comm, &own, at, item->count - at < most ? item->count - at : most, part);
  if (parts > 1 && is_good) memcpy(item->out, own.out, item->count * sizes[item->type]);
  if (parts > 1) free(own.out);
  return is_good;
}

/* ── between two ──────────────────────────────────────────────────────────────────────────── */
static void send_some(NcclComm comm, const Item *item, size_t *at) {
  Mail *mail = &comm->shared->mail[comm->rank][item->peer];
  size_t all = item->count * sizes[item->type], bytes = all - *at;
  if (atomic_load(&mail->is_full)) return;
  if (bytes > FAKE_NCCL_MAIL) bytes = FAKE_NCCL_MAIL;
  memcpy(mail->data, (const char *)item->x + *at, bytes);
  mail->type = item->type;
  mail->count = item->count;
  mail->bytes = bytes;
  *at += bytes;
  atomic_store(&mail->is_full, 1);
}

static void receive_some(NcclComm comm, const Item *item, size_t *at) {
  Mail *mail = &comm->shared->mail[item->peer][comm->rank];
  if (!atomic_load(&mail->is_full)) return;
  if (mail->type != item->type || mail->count != item->count)
    fake_nccl_die("rank %d expects %zu of type %d of rank %d, which sends %zu of type %d",
                  comm->rank, item->count, item->type, item->peer, mail->count, mail->type);
  memcpy((char *)item->out + *at, mail->data, mail->bytes);
  *at += mail->bytes;
  atomic_store(&mail->is_full, 0);
}

/* All of a group go on side by side. */
static bool do_pairs(NcclComm comm, const Work *work) {
  size_t at[FAKE_NCCL_GROUP] = {0};
  for (bool is_over = false; !is_over;) {
    is_over = true;
    for (int i = 0; i < work->count; i++) {
      const Item *item = &work->item[i];
      size_t all = item->count * sizes[item->type];
      if (item->kind < ITEM_SEND || at[i] == all) continue;
      if (item->kind == ITEM_SEND)
        send_some(comm, item, &at[i]);
      else
        receive_some(comm, item, &at[i]);
      is_over = is_over && at[i] == all;
    }
    if (!is_over && !pause_unless_aborted(comm)) return false;
  }
  return true;
}

/* ── a work ───────────────────────────────────────────────────────────────────────────────── */
static bool is_planned(NcclComm comm, long work, char *how) {
  int rank;
  long number;
  const char *text = getenv("FT_FAKE_NCCL_FAIL");
  return text && sscanf(text, "%d:%ld:%15s", &rank, &number, how) == 3 && rank == comm->rank &&
         number == work;
}

static void fail(NcclComm comm, const char *how) {
  if (!strcmp(how, "remote")) atomic_store(&comm->error, NCCL_REMOTE_ERROR);
  if (!strcmp(how, "system")) atomic_store(&comm->error, 2);
  while (pause_unless_aborted(comm)) {
  }
}

static size_t bytes_out(NcclComm comm, const Item *item) {
  size_t bytes = item->count * sizes[item->type];
  return item->kind == ITEM_ALL_GATHER ? bytes * (size_t)comm->ranks : bytes;
}

static void run_work(void *context) {
  Work *work = context;
  NcclComm comm = work->comm;
  char how[16] = "";
  if (comm->is_destroyed) fake_nccl_die("a work of a communicator that was destroyed");
  if (atomic_load(&comm->is_aborted)) return;
  atomic_fetch_add(&comm->waiting, 1);
  if (is_planned(comm, ++comm->works, how)) fail(comm, how);
  bool is_good = wait_for(comm, fake_nccl_setting("SLOW", 0));
  if (is_good && fake_nccl_setting("SEED", 0)) is_good = wait_for(comm, draw(comm) % 2000);
  for (int i = 0; i < work->count && is_good; i++)
    if (work->item[i].kind < ITEM_SEND) is_good = do_collective(comm, &work->item[i]);
  if (is_good) is_good = do_pairs(comm, work);
  for (int i = 0; i < work->count && is_good; i++)
    if (work->item[i].out && work->item[i].count)
      fake_nccl_driver.mark(work->item[i].out, bytes_out(comm, &work->item[i]));
  atomic_fetch_sub(&comm->waiting, 1);
}

/* ── calls ────────────────────────────────────────────────────────────────────────────────── */
int fake_nccl_depth(void) { return depth; }

static NcclResult enqueue(NcclStream stream, const Work *work) {
  NcclComm comm = work->comm;
  char how[16] = "";
  if (fake_nccl_driver.enqueue(stream, run_work, work, sizeof *work) != 0) return 1;
  /* the first call: works are counted when they run */
  if (is_planned(comm, 1, how) && !strcmp(how, "call")) return 3;
  if (!fake_nccl_setting("SEED", 0)) return NCCL_SUCCESS;
  comm->busy = (int)(draw(comm) % 3);
  return comm->busy ? NCCL_IN_PROGRESS : NCCL_SUCCESS;
}

static void check_item(NcclComm comm, const Item *item) {
  size_t bytes = item->count * sizes[item->type], in = bytes;
  if (item->kind == ITEM_REDUCE_SCATTER) in *= (size_t)comm->ranks;
  if (item->type < 0 || item->type >= TYPES) fake_nccl_die("type %d", item->type);
  if (item->op < 0 || item->op >= OPS) fake_nccl_die("operation %d", item->op);
  if (item->peer < 0 || item->peer >= comm->ranks) fake_nccl_die("rank %d", item->peer);
  if (item->x && in) fake_nccl_driver.check(item->x, in);
  if (item->out && bytes) fake_nccl_driver.check(item->out, bytes_out(comm, item));
}

NcclResult fake_nccl_call(NcclComm comm, NcclStream stream, Item item) {
  fake_nccl_check(comm);
  if (!stream) fake_nccl_die("a work on the default stream");
  if (comm->is_joining || comm->busy || comm->is_finalized)
    fake_nccl_die("a work while the communicator is in progress, or finalized");
  check_item(comm, &item);
  if (!depth) {
    Work work = {.comm = comm, .count = 1};
    work.item[0] = item;
    return enqueue(stream, &work);
  }
  if (pending.count == FAKE_NCCL_GROUP) fake_nccl_die("a group of many works");
  if (pending.count && (pending.comm != comm || pending_stream != stream))
    fake_nccl_die("a group with several communicators or streams");
  pending.comm = comm;
  pending_stream = stream;
  pending.item[pending.count++] = item;
  return NCCL_SUCCESS;
}

NcclResult fake_nccl_group(int by) {
  depth += by;
  if (depth < 0) fake_nccl_die("ncclGroupEnd without its ncclGroupStart");
  if (depth || !pending.count) return NCCL_SUCCESS;
  Work work = pending;
  pending.count = 0;
  return enqueue(pending_stream, &work);
}
