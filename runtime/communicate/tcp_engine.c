/* tcp_engine: see tcp_engine.h. A work is messages to and from the others of its group, and what is
 * made of them when all are through. Between two ranks messages come in the order in which both
 * begin their works; each has a head that says what it is of. */
#include "runtime/communicate/tcp_engine.h"
#include "runtime/communicate/combine.h"
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct {
  uint32_t kind, op, over, dtype;
  int64_t count, bytes;
} Head;

typedef struct Message {
  EngineWork *work;
  Head head, came; /* came: of what is received */
  char *bytes;
  size_t at; /* of head and bytes, done */
  struct Message *next;
} Message;
typedef struct {
  int socket; /* -1: itself */
  Message *out, *in;
} Link;

typedef struct {
  int *rank; /* of each member, in order */
  int count, index;
} TcpGroup;

struct Engine {
  int rank, ranks;
  Link *link;
  TcpGroup group[MESH_AXIS_COUNT];
};
struct EngineWork {
  CommWork work;
  const TcpGroup *group;
  int missing;    /* messages */
  char *received; /* a part of each member, where it is not received in place */
  int64_t part;   /* bytes of it */
};

static bool tcp_say(char *why, const char *text) {
  snprintf(why, ENGINE_WHY, "%s", text);
  return false;
}

/* ── messages ─────────────────────────────────────────────────────────────────────────────── */
static bool add_message(Engine *engine, EngineWork *under_way, int member, bool is_out, char *bytes,
                        int64_t count) {
  const CommWork *work = &under_way->work;
  Link *link = &engine->link[under_way->group->rank[member]];
  Message *message = calloc(1, sizeof *message), **at = is_out ? &link->out : &link->in;
  if (!message) return false;
  /* a receiver does not know how much is sent, but what it expects */
  uint32_t kind = work->kind == COMM_RECEIVE ? COMM_SEND : work->kind;
  *message = (Message){.work = under_way, .bytes = bytes};
  message->head = (Head){.kind = kind,
                         .op = (uint32_t)work->op,
                         .over = (uint32_t)work->over,
                         .dtype = (uint32_t)work->dtype,
                         .count = work->count,
                         .bytes = count};
  while (*at) at = &(*at)->next;
  *at = message;
  under_way->missing++;
  return true;
}

static void end_message(Message **first) {
  Message *message = *first;
  *first = message->next;
  message->work->missing--;
  free(message);
}

/* Returns how much went: 0: not now; -1: the connection is gone. */
static ssize_t tcp_move(int socket, char *bytes, size_t count, bool is_out) {
  ssize_t moved = is_out ? send(socket, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT)
                         : recv(socket, bytes, count, MSG_DONTWAIT);
  if (moved > 0) return moved;
  bool is_later = moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  return is_later ? 0 : -1;
}

static bool go_on_with_link(Link *link, int rank, bool is_out, char *why) {
  Message **first = is_out ? &link->out : &link->in, *m;
  while ((m = *first)) {
    size_t head = sizeof m->head, all = head + (size_t)m->head.bytes;
    bool is_head = m->at < head;
    char *at = is_head ? (char *)(is_out ? &m->head : &m->came) + m->at : m->bytes + (m->at - head);
    size_t left = (is_head ? head : all) - m->at;
    ssize_t moved = left ? tcp_move(link->socket, at, left, is_out) : 0;
    if (moved < 0) {
      snprintf(why, ENGINE_WHY, "the connection to rank %d is gone", rank);
      return false;
    }
    m->at += (size_t)moved;
    if (!is_out && m->at == head && memcmp(&m->came, &m->head, head) != 0) {
      snprintf(why, ENGINE_WHY, "rank %d has begun another work", rank);
      return false;
    }
    if (m->at < all && !moved) return true;
    if (m->at == all) end_message(first);
  }
  return true;
}

static bool go_on_with_links(Engine *engine, char *why) {
  for (int r = 0; r < engine->ranks; r++)
    if (engine->link[r].socket >= 0 && (!go_on_with_link(&engine->link[r], r, true, why) ||
                                        !go_on_with_link(&engine->link[r], r, false, why)))
      return false;
  return true;
}

/* ── works ────────────────────────────────────────────────────────────────────────────────── */
/* What member i gets of x, and where what it sends goes; NULL: nothing. */
static void messages_with(const EngineWork *under_way, int i, char **out, char **in) {
  const CommWork *work = &under_way->work;
  char *x = (char *)(uintptr_t)work->x, *received = under_way->received;
  int64_t part = under_way->part;
  bool is_peer = work->peer == i, is_root = work->peer == under_way->group->index;
  *out = *in = NULL;
  switch (work->kind) {
  case COMM_ALL_REDUCE:
    *out = x;
    *in = received + i * part;
    break;
  case COMM_REDUCE_SCATTER:
  case COMM_ALL_TO_ALL:
    *out = x + i * part;
    *in = received + i * part;
    break;
  case COMM_ALL_GATHER:
    *out = x;
    *in = (char *)work->out + i * part;
    break;
  case COMM_BROADCAST:
    if (is_root) *out = x;
    if (is_peer) *in = work->out;
    break;
  case COMM_SEND:
    if (is_peer) *out = x;
    break;
  default:
    if (is_peer) *in = work->out;
  }
}

static bool tcp_begin(Engine *engine, const CommWork *work, EngineWork **out, char *why) {
  EngineWork *under_way = calloc(1, sizeof *under_way);
  const TcpGroup *group = &engine->group[work->over];
  if (!under_way) return tcp_say(why, "out of memory");
  *out = under_way;
  under_way->work = *work;
  under_way->group = group;
  bool is_parted = work->kind == COMM_REDUCE_SCATTER || work->kind == COMM_ALL_TO_ALL;
  bool is_kept = is_parted || work->kind == COMM_ALL_REDUCE;
  int64_t bytes = work->count * dtype_bytes(work->dtype);
  under_way->part = is_parted ? bytes / group->count : bytes;
  if (is_kept) {
    under_way->received = malloc((size_t)(under_way->part * group->count) + 1);
    if (!under_way->received) return tcp_say(why, "out of memory");
  }
  if ((work->kind == COMM_SEND || work->kind == COMM_RECEIVE) && work->peer == group->index)
    return tcp_say(why, "a rank sends nothing to itself");
  for (int i = 0; i < group->count; i++) {
    char *to, *from;
    messages_with(under_way, i, &to, &from);
    if (i == group->index) continue;
    if ((to && !add_message(engine, under_way, i, true, to, under_way->part)) ||
        (from && !add_message(engine, under_way, i, false, from, under_way->part)))
      return tcp_say(why, "out of memory");
  }
  return true;
}

/* All messages are through. In the order of the members, so that all have the same bits. */
static void finish_work(EngineWork *under_way) {
  const CommWork *work = &under_way->work;
  const TcpGroup *group = under_way->group;
  int64_t part = under_way->part, own = group->index * part;
  char *received = under_way->received;
  const char *x = work->x;
  bool is_sum = work->kind == COMM_ALL_REDUCE || work->kind == COMM_REDUCE_SCATTER;
  bool is_root = work->peer == group->index;
  const char *mine = work->kind == COMM_ALL_REDUCE ? x : x + own;
  if (received && part) memcpy(received + own, mine, (size_t)part);
  for (int i = 1; i < group->count && is_sum; i++)
    combine_find(work->dtype, work->op)(received + i * part, received,
                                        part / dtype_bytes(work->dtype));
  if (is_sum && part) memcpy(work->out, received, (size_t)part);
  if (work->kind == COMM_ALL_TO_ALL && part)
    memcpy(work->out, received, (size_t)(part * group->count));
  if (work->kind == COMM_ALL_GATHER && part) memmove((char *)work->out + own, x, (size_t)part);
  if (work->kind == COMM_BROADCAST && is_root && part && work->out != x)
    memmove(work->out, x, (size_t)part);
}

static void free_work(EngineWork *under_way) {
  free(under_way->received);
  free(under_way);
}

static bool tcp_go_on(Engine *engine, EngineWork *work, bool *is_done, char *why) {
  *is_done = false;
  if (!go_on_with_links(engine, why)) return false;
  if (work->missing) return true;
  finish_work(work);
  free_work(work);
  *is_done = true;
  return true;
}

/* ── joining and leaving ──────────────────────────────────────────────────────────────────── */
static bool tcp_open(const CommPlace *place, int64_t piece, Engine **out, char *why) {
  (void)piece;
  Engine *engine = *out = calloc(1, sizeof *engine);
  int *sockets = calloc((size_t)place->ranks, sizeof *sockets);
  TcpGroup *all = engine ? &engine->group[MESH_ALL] : NULL;
  if (engine) engine->link = calloc((size_t)place->ranks, sizeof *engine->link);
  if (all) all->rank = calloc((size_t)place->ranks, sizeof *all->rank);
  if (!sockets || !engine || !engine->link || !all->rank) {
    free(sockets);
    return tcp_say(why, "out of memory");
  }
  engine->rank = all->index = place->rank;
  engine->ranks = all->count = place->ranks;
  bool is_good = tcp_join(place, sockets, why);
  for (int r = 0; r < place->ranks; r++) {
    engine->link[r].socket = sockets[r];
    all->rank[r] = r;
  }
  free(sockets);
  return is_good;
}

/* After a failure works may be under way: their memory is the process's to give back. */
static void tcp_close(Engine *engine, bool has_failed) {
  if (!engine || has_failed) return;
  for (int r = 0; r < engine->ranks; r++)
    if (engine->link[r].socket >= 0) close(engine->link[r].socket);
  for (int axis = 0; axis < MESH_AXIS_COUNT; axis++) free(engine->group[axis].rank);
  free(engine->link);
  free(engine);
}

static int tcp_rank(const Engine *engine) { return engine->rank; }
static int tcp_ranks(const Engine *engine) { return engine->ranks; }
static const char *tcp_text(const Engine *engine) {
  (void)engine;
  return "TCP";
}

static bool tcp_split(Engine *engine, MeshAxis axis, int color, char *why) {
  TcpGroup *group = &engine->group[axis];
  int32_t own = color, *all = calloc((size_t)engine->ranks, sizeof *all);
  EngineWork *under_way;
  CommWork work = {.kind = COMM_ALL_GATHER, .dtype = DT_I32, .count = 1, .x = &own, .out = all};
  bool is_done = false;
  group->rank = calloc((size_t)engine->ranks, sizeof *group->rank);
  bool is_good = all && group->rank ? tcp_begin(engine, &work, &under_way, why)
                                    : tcp_say(why, "out of memory");
  while (is_good && !is_done) {
    is_good = tcp_go_on(engine, under_way, &is_done, why);
    if (!is_done) usleep(50);
  }
  for (int r = 0; r < engine->ranks && is_good; r++) {
    if (all[r] != color) continue;
    if (r == engine->rank) group->index = group->count;
    group->rank[group->count++] = r;
  }
  free(all);
  return is_good;
}

const EngineType tcp_engine = {
    .version = ENGINE_VERSION,
    .open = tcp_open,
    .close = tcp_close,
    .rank = tcp_rank,
    .ranks = tcp_ranks,
    .text = tcp_text,
    .split = tcp_split,
    .begin = tcp_begin,
    .go_on = tcp_go_on,
};
