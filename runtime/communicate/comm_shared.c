/* comm_shared: works that ranks of one machine do in memory that they share (shared.h). Who begins
 * such a work enters it at once, unless others wait before it. The engine's thread goes on with
 * those that go on meanwhile, and who waits for one, with that one himself: a message of a few
 * bytes then takes no thread but his. */
#include "runtime/communicate/comm_private.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ── opening ──────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  uint8_t has_met[MESH_AXIS_COUNT]; /* all others of its group */
} Met;

/* The ranks of this one's group of the axis. */
static int members_of(const Comm *comm, MeshAxis axis, int *rank, int most) {
  int count = mesh_size(&comm->mesh, axis);
  for (int i = 0; i < count && i < most; i++)
    rank[i] = axis == MESH_ALL ? i : mesh_member(&comm->mesh, axis, comm->place.rank, i);
  return count;
}

static void meet(const Comm *comm, const SharedCard *cards, Met *own) {
  for (MeshAxis axis = MESH_ALL; axis < MESH_AXIS_COUNT; axis++) {
    int rank[SHARED_RANKS], count = members_of(comm, axis, rank, SHARED_RANKS);
    own->has_met[axis] = comm->shared && count <= SHARED_RANKS;
    for (int i = 0; i < count && own->has_met[axis]; i++)
      own->has_met[axis] = !strcmp(comm->seats[rank[i]].host, comm->host) &&
                           shared_meet(comm->shared, rank[i], &cards[rank[i]]);
  }
}

static void admit(Comm *comm, const Met *all) {
  for (MeshAxis axis = MESH_ALL; axis < MESH_AXIS_COUNT; axis++) {
    int rank[SHARED_RANKS], count = members_of(comm, axis, rank, SHARED_RANKS);
    bool is_good = comm->shared && count > 1 && count <= SHARED_RANKS;
    for (int i = 0; i < count && is_good; i++) is_good = all[rank[i]].has_met[axis];
    if (is_good) shared_admit(comm->shared, axis, rank, count, comm_index(comm, axis));
  }
}

bool comm_share(Comm *comm, char *why) {
  size_t ranks = (size_t)comm->place.ranks;
  SharedCard card = {.file = -1}, *cards = calloc(ranks, sizeof *cards);
  Met own = {0}, *all = calloc(ranks, sizeof *all);
  bool is_wanted = !comm->type->keeps_all && !comm->options.is_apart && cards && all;
  if (is_wanted) comm->shared = shared_new(comm->place.rank, comm->place.ranks, &card);
  CommWork exchange = {.kind = COMM_ALL_GATHER,
                       .dtype = DT_U8,
                       .count = sizeof card,
                       .x = &card,
                       .out = cards,
                       .label = "memory to share"};
  CommWork agree = {.kind = COMM_ALL_GATHER,
                    .dtype = DT_U8,
                    .count = sizeof own,
                    .x = &own,
                    .out = all,
                    .label = "who shares memory"};
  bool is_good = cards && all;
  if (!is_good) snprintf(why, ENGINE_WHY, "out of memory");
  is_good = is_good && comm_do_now(comm, &exchange, why);
  if (is_good) meet(comm, cards, &own);
  is_good = is_good && comm_do_now(comm, &agree, why);
  if (is_good) admit(comm, all);
  free(cards);
  free(all);
  return is_good;
}

void comm_share_no_more(Comm *comm) {
  for (int i = 0; i < COMM_SLOTS; i++) shared_drop(comm->slot[i].shared_work);
  shared_free(comm->shared);
  comm->shared = NULL;
}

/* ── works ────────────────────────────────────────────────────────────────────────────────── */
static void end_shared(Comm *comm, Slot *slot) {
  shared_leave(comm->shared, slot->shared_work);
  slot->shared_work = NULL;
  comm_note_end(comm, slot);
  slot->state = slot->work.done ? SLOT_FREE : SLOT_ENDED;
}

/* A small work that all others have entered is over here and now. */
bool comm_enter(Comm *comm, Slot *slot) {
  char why[ENGINE_WHY];
  EngineState state = ENGINE_WAITS;
  bool is_first = comm->started + 1 == slot->number;
  bool can = slot->is_shared && is_first && shared_has_room(comm->shared, slot->work.over);
  if (can) slot->shared_work = shared_begin(comm->shared, &slot->work);
  if (!slot->shared_work) {
    comm_alert(comm);
    return false;
  }
  comm->started++;
  slot->state = SLOT_UNDER_WAY;
  if (!shared_is_small(&slot->work) ||
      !shared_go_on(comm->shared, slot->shared_work, &state, why) || state != ENGINE_DONE)
    return false;
  end_shared(comm, slot);
  return true;
}

void comm_drive(Comm *comm, Slot *slot) {
  enum { WAIT = 100000000 };
  while (slot->state == SLOT_QUEUED || slot->state == SLOT_UNDER_WAY) {
    char why[ENGINE_WHY] = "";
    EngineState state = ENGINE_WAITS;
    uint32_t bell = shared_bell(comm->shared);
    SharedWork *work = slot->shared_work;
    pthread_mutex_unlock(&comm->lock);
    bool is_good = !work || shared_go_on(comm->shared, work, &state, why);
    if (is_good && state == ENGINE_WAITS) shared_wait(comm->shared, bell, WAIT, true);
    pthread_mutex_lock(&comm->lock);
    if (!is_good && !comm->has_failed) comm_engine_failed(comm, slot, why);
    if (state == ENGINE_DONE && slot->state == SLOT_UNDER_WAY) end_shared(comm, slot);
  }
}

/* ── memory ───────────────────────────────────────────────────────────────────────────────── */
char *comm_memory_new(Comm *comm, int64_t bytes) {
  if (!comm || !comm->shared) return NULL;
  pthread_mutex_lock(&comm->lock);
  char *at = shared_memory_new(comm->shared, bytes);
  pthread_mutex_unlock(&comm->lock);
  return at;
}

bool comm_memory_free(Comm *comm, char *memory) {
  if (!comm || !comm->shared) return false;
  pthread_mutex_lock(&comm->lock);
  bool is_ours = shared_memory_free(comm->shared, memory);
  pthread_mutex_unlock(&comm->lock);
  return is_ours;
}

bool comm_holds(Comm *comm, const void *at, int64_t bytes) {
  if (!comm) return false;
  pthread_mutex_lock(&comm->lock);
  bool does = shared_holds(comm->shared, at, bytes);
  pthread_mutex_unlock(&comm->lock);
  return does;
}
