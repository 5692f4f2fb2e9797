/* fake_engine: an engine whose ranks are threads of one process, for tests with ThreadSanitizer. A
 * work takes a random number of calls to end, and works end in any order. No f16, no bf16.
 * FAKE_ENGINE_FAILS=n: the n-th work of rank 1 cannot begin. */
#include "runtime/communicate/engine.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 8, SLOTS = 128, MOST_CALLS = 12, GROUPS = MESH_AXIS_COUNT * RANKS };

/* What the ranks of a group do together, by its place in their order. */
typedef struct {
  const CommWork *work[RANKS];
  int entered, left;
  bool is_done;
} Meeting;

/* Of an engine: group `number` of all there are, in which it is rank `rank`. */
typedef struct {
  int number, rank, ranks;
  int64_t begun, sent[RANKS], received[RANKS]; /* by peer */
} Group;

struct Engine {
  int rank, ranks;
  Group group[MESH_AXIS_COUNT];
  int64_t begun, fails_at;
  unsigned random;
  EngineWork *works; /* under way */
};
struct EngineWork {
  Meeting *meeting;
  int calls, ranks;
  EngineWork *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Meeting meetings[GROUPS][SLOTS];
static Meeting messages[GROUPS][RANKS][RANKS][SLOTS];               /* from, to */
static int colors[MESH_AXIS_COUNT][RANKS], called[MESH_AXIS_COUNT]; /* of splits: who came */
static int present;

static const int sizes[DT_COUNT] = {
#define X(ID, text, bytes) [DT_##ID] = bytes,
    DTYPES(X)
#undef X
};

static bool fake_open(const CommPlace *place, int64_t piece, Engine **out, char *why) {
  const char *fails = getenv("FAKE_ENGINE_FAILS");
  (void)piece;
  (void)why;
  *out = calloc(1, sizeof **out);
  (*out)->rank = place->rank;
  (*out)->ranks = place->ranks;
  (*out)->group[MESH_ALL] = (Group){0, place->rank, place->ranks, 0, {0}, {0}};
  (*out)->random = (unsigned)place->rank + 1;
  (*out)->fails_at = place->rank == 1 && fails ? atoll(fails) : -1;
  pthread_mutex_lock(&lock);
  if (present++ == 0) {
    memset(meetings, 0, sizeof meetings);
    memset(messages, 0, sizeof messages);
    memset(called, 0, sizeof called);
  }
  pthread_mutex_unlock(&lock);
  return true;
}

static void fake_close(Engine *engine, bool has_failed) {
  (void)has_failed;
  pthread_mutex_lock(&lock);
  present--;
  pthread_mutex_unlock(&lock);
  for (EngineWork *work = engine->works, *next; work; work = next) { /* after a failure */
    next = work->next;
    free(work);
  }
  free(engine);
}

static int fake_rank(const Engine *engine) { return engine->rank; }
static int fake_ranks(const Engine *engine) { return engine->ranks; }
static const char *fake_text(const Engine *engine) {
  (void)engine;
  return "threads";
}

static unsigned draw(Engine *engine) {
  engine->random = engine->random * 1664525u + 1013904223u;
  return engine->random >> 16;
}

/* Exact for all but large i64. */
static double get(const CommWork *work, int64_t i) {
  switch (work->dtype) {
  case DT_F64:
    return ((const double *)work->x)[i];
  case DT_F32:
    return (double)((const float *)work->x)[i];
  case DT_I64:
    return (double)((const int64_t *)work->x)[i];
  case DT_I32:
    return ((const int32_t *)work->x)[i];
  case DT_U32:
    return ((const uint32_t *)work->x)[i];
  default:
    return ((const uint8_t *)work->x)[i];
  }
}

static void put(const CommWork *work, int64_t i, double value) {
  switch (work->dtype) {
  case DT_F64:
    ((double *)work->out)[i] = value;
    break;
  case DT_F32:
    ((float *)work->out)[i] = (float)value;
    break;
  case DT_I64:
    ((int64_t *)work->out)[i] = (int64_t)value;
    break;
  case DT_I32:
    ((int32_t *)work->out)[i] = (int32_t)(int64_t)value;
    break;
  case DT_U32:
    ((uint32_t *)work->out)[i] = (uint32_t)(int64_t)value;
    break;
  default:
    ((uint8_t *)work->out)[i] = (uint8_t)(int64_t)value;
    break;
  }
}

static double joined(const Meeting *m, int ranks, int64_t i) {
  double all = get(m->work[0], i);
  for (int r = 1; r < ranks; r++) {
    double x = get(m->work[r], i);
    switch (m->work[0]->op) {
    case COMM_SUM:
      all += x;
      break;
    case COMM_PROD:
      all *= x;
      break;
    case COMM_MIN:
      all = isnan(all) || all < x ? all : x;
      break;
    case COMM_MAX:
      all = isnan(all) || all > x ? all : x;
      break;
    }
  }
  return all;
}

static bool fake_split(Engine *engine, MeshAxis axis, int color, char *why) {
  static pthread_cond_t all_came = PTHREAD_COND_INITIALIZER;
  Group *group = &engine->group[axis];
  int first = engine->ranks;
  (void)why;
  pthread_mutex_lock(&lock);
  colors[axis][engine->rank] = color;
  called[axis]++;
  pthread_cond_broadcast(&all_came);
  while (called[axis] < engine->ranks) pthread_cond_wait(&all_came, &lock);
  *group = (Group){0};
  for (int r = 0; r < engine->ranks; r++) {
    if (colors[axis][r] != color) continue;
    if (r < first) first = r;
    group->rank += r < engine->rank;
    group->ranks++;
  }
  group->number = (int)axis * RANKS + first;
  pthread_mutex_unlock(&lock);
  return true;
}

static void do_meeting(Meeting *m, int ranks) {
  const CommWork *first = m->work[0];
  int64_t count = first->count;
  size_t bytes = (size_t)count * (size_t)sizes[first->dtype];
  for (int64_t i = 0; i < count && first->kind == COMM_ALL_REDUCE; i++) {
    double all = joined(m, ranks, i);
    for (int r = 0; r < ranks; r++) put(m->work[r], i, all);
  }
  int64_t part = count / ranks;
  for (int64_t i = 0; i < count && first->kind == COMM_REDUCE_SCATTER; i++)
    put(m->work[i / part], i % part, joined(m, ranks, i));
  for (int from = 0; from < ranks && first->kind == COMM_ALL_GATHER; from++)
    for (int to = 0; to < ranks; to++)
      memcpy((char *)m->work[to]->out + (size_t)from * bytes, m->work[from]->x, bytes);
  size_t block = bytes / (size_t)ranks;
  for (int from = 0; from < ranks && first->kind == COMM_ALL_TO_ALL; from++)
    for (int to = 0; to < ranks; to++)
      memcpy((char *)m->work[to]->out + (size_t)from * block,
             (const char *)m->work[from]->x + (size_t)to * block, block);
  if (first->kind == COMM_SEND) memcpy(m->work[1]->out, first->x, bytes);
  for (int to = 0; to < ranks && first->kind == COMM_BROADCAST; to++)
    if (m->work[to]->out != m->work[first->peer]->x)
      memcpy(m->work[to]->out, m->work[first->peer]->x, bytes);
}

/* Where the work meets those of the others, and as which of them it comes; *ranks: how many come. */
static Meeting *find_meeting(Group *group, const CommWork *work, int *place, int *ranks) {
  int peer = work->peer;
  *ranks = 2;
  *place = work->kind == COMM_RECEIVE;
  if (work->kind == COMM_SEND)
    return &messages[group->number][group->rank][peer][group->sent[peer]++ % SLOTS];
  if (work->kind == COMM_RECEIVE)
    return &messages[group->number][peer][group->rank][group->received[peer]++ % SLOTS];
  *ranks = group->ranks;
  *place = group->rank;
  return &meetings[group->number][group->begun++ % SLOTS];
}

static bool fake_begin(Engine *engine, const CommWork *work, EngineWork **out, char *why) {
  if (engine->begun == engine->fails_at) {
    snprintf(why, ENGINE_WHY, "the cable is cut");
    return false;
  }
  *out = calloc(1, sizeof **out);
  (*out)->next = engine->works;
  engine->works = *out;
  (*out)->calls = (int)(draw(engine) % MOST_CALLS);
  engine->begun++;
  pthread_mutex_lock(&lock);
  int place;
  Meeting *m = find_meeting(&engine->group[work->over], work, &place, &(*out)->ranks);
  m->work[place] = work;
  (*out)->meeting = m;
  if (++m->entered == (*out)->ranks) {
    do_meeting(m, (*out)->ranks);
    m->is_done = true;
  }
  pthread_mutex_unlock(&lock);
  return true;
}

static bool fake_go_on(Engine *engine, EngineWork *work, EngineState *state, char *why) {
  (void)why;
  pthread_mutex_lock(&lock);
  bool is_done = work->meeting->is_done && work->calls-- <= 0;
  if (is_done && ++work->meeting->left == work->ranks) *work->meeting = (Meeting){0};
  pthread_mutex_unlock(&lock);
  *state = is_done ? ENGINE_DONE : ENGINE_WAITS;
  if (!is_done) return true;
  EngineWork **place = &engine->works;
  while (*place != work) place = &(*place)->next;
  *place = work->next;
  free(work);
  return true;
}

__attribute__((visibility("default"))) extern const EngineType ft_engine;
const EngineType ft_engine = {
    .version = ENGINE_VERSION,
    .open = fake_open,
    .close = fake_close,
    .rank = fake_rank,
    .ranks = fake_ranks,
    .text = fake_text,
    .split = fake_split,
    .begin = fake_begin,
    .go_on = fake_go_on,
};
