/* tcp_engine: see tcp_engine.h. A work is messages to and from the others of its group, and what is
 * made of them when all are through. Between two ranks the messages of a channel come in the order in
 * which both begin these works; each has a head that says what it is of. */
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
  Head head;
  char *bytes;
  size_t at; /* of head and bytes, sent */
  struct Message *next;
} Message;
typedef struct {
  int socket; /* -1: itself */
  Message *out, *in;
  Message *early;  /* has come, and nobody has waited for it yet: of no work, and its bytes are its own */
  Message *coming; /* NULL: a head comes next */
  Head head;
  size_t at; /* of the head, or of the bytes of what is coming */
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
/* What stands in one order on both ends: the works of a group, and what one sends to the other. Ranks
 * of different stages of a pipeline run programs of their own, which need not have these in one
 * order with each other. */
static uint32_t channel_of(const Head *head) {
  return head->kind == COMM_SEND ? (uint32_t)MESH_AXIS_COUNT : head->over;
}

/* Where the first of the list is that has the channel of this one; or its end. */
static Message **find_message(Message **list, const Head *head) {
  while (*list && channel_of(&(*list)->head) != channel_of(head)) list = &(*list)->next;
  return list;
}

static void add_last(Message **list, Message *message) {
  while (*list) list = &(*list)->next;
  *list = message;
}

static void end_message(Message **first) {
  Message *message = *first;
  *first = message->next;
  message->work->missing--;
  free(message);
}

/* It has come before it was waited for. False: what has come is another work. */
static bool take_early(Link *link, Message *message) {
  Message **at = find_message(&link->early, &message->head), *early = *at;
  if (memcmp(&early->head, &message->head, sizeof early->head) != 0) return false;
  *at = early->next;
  if (early->head.bytes) memcpy(message->bytes, early->bytes, (size_t)early->head.bytes);
  free(early->bytes);
  free(early);
  end_message(&message);
  return true;
}

static bool add_message(Engine *engine, EngineWork *under_way, int member, bool is_out, char *bytes,
                        int64_t count, char *why) {
  const CommWork *work = &under_way->work;
  int rank = under_way->group->rank[member];
  Link *link = &engine->link[rank];
  Message *message = calloc(1, sizeof *message);
  if (!message) return tcp_say(why, "out of memory");
  /* a receiver does not know how much is sent, but what it expects */
  uint32_t kind = work->kind == COMM_RECEIVE ? COMM_SEND : work->kind;
  *message = (Message){.work = under_way, .bytes = bytes};
  message->head = (Head){.kind = kind,
                         .op = (uint32_t)work->op,
                         .over = (uint32_t)work->over,
                         .dtype = (uint32_t)work->dtype,
                         .count = work->count,
                         .bytes = count};
  under_way->missing++;
  if (is_out || !*find_message(&link->early, &message->head)) {
    add_last(is_out ? &link->out : &link->in, message);
    return true;
  }
  if (take_early(link, message)) return true;
  snprintf(why, ENGINE_WHY, "rank %d has begun another work", rank);
  return false;
}

/* Returns how much went: 0: not now; -1: the connection is gone. */
static ssize_t tcp_move(int socket, char *bytes, size_t count, bool is_out) {
  ssize_t moved = is_out ? send(socket, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT)
                         : recv(socket, bytes, count, MSG_DONTWAIT);
  if (moved > 0) return moved;
  bool is_later = moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  return is_later ? 0 : -1;
}

static bool link_gone(int rank, char *why) {
  snprintf(why, ENGINE_WHY, "the connection to rank %d is gone", rank);
  return false;
}

static bool send_on(Link *link, int rank, char *why) {
  Message *m;
  while ((m = link->out)) {
    size_t head = sizeof m->head, all = head + (size_t)m->head.bytes;
    bool is_head = m->at < head;
    char *at = is_head ? (char *)&m->head + m->at : m->bytes + (m->at - head);
    ssize_t moved = tcp_move(link->socket, at, (is_head ? head : all) - m->at, true);
    if (moved < 0) return link_gone(rank, why);
    m->at += (size_t)moved;
    if (m->at < all && !moved) return true;
    if (m->at == all) end_message(&link->out);
  }
  return true;
}

/* What comes next is this: of what is waited for the first of its channel, or one that nobody waits
 * for yet. */
static bool take_head(Link *link, int rank, char *why) {
  Message **at = find_message(&link->in, &link->head), *m = *at;
  enum { MOST = 1 << 30 };
  bool is_early = !m && link->head.bytes >= 0 && link->head.bytes / MOST < MOST;
  if (is_early) m = calloc(1, sizeof *m);
  if (is_early && m) *m = (Message){.head = link->head, .bytes = malloc((size_t)link->head.bytes + 1)};
  if (is_early && (!m || !m->bytes)) {
    free(m);
    return tcp_say(why, "out of memory");
  }
  if (!m || memcmp(&m->head, &link->head, sizeof m->head) != 0) {
    snprintf(why, ENGINE_WHY, "rank %d has begun another work", rank);
    return false;
  }
  if (!is_early) *at = m->next;
  m->next = NULL;
  link->coming = m;
  link->at = 0;
  return true;
}

static void has_come(Link *link) {
  Message *m = link->coming;
  link->coming = NULL;
  link->at = 0;
  if (m->work)
    end_message(&m);
  else
    add_last(&link->early, m);
}

/* Nothing is read while nothing is waited for, so that what comes early is not much. */
static bool receive_on(Link *link, int rank, char *why) {
  while (link->coming || link->in) {
    Message *m = link->coming;
    size_t all = m ? (size_t)m->head.bytes : sizeof link->head;
    char *at = m ? m->bytes + link->at : (char *)&link->head + link->at;
    ssize_t moved = link->at < all ? tcp_move(link->socket, at, all - link->at, false) : 0;
    if (moved < 0) return link_gone(rank, why);
    link->at += (size_t)moved;
    if (link->at < all && !moved) return true;
    if (link->at < all) continue;
    if (!m && !take_head(link, rank, why)) return false;
    if (m) has_come(link);
  }
  return true;
}

static bool go_on_with_links(Engine *engine, char *why) {
  for (int r = 0; r < engine->ranks; r++)
    if (engine->link[r].socket >= 0 && (!send_on(&engine->link[r], r, why) ||
                                        !receive_on(&engine->link[r], r, why)))
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
    if ((to && !add_message(engine, under_way, i, true, to, under_way->part, why)) ||
        (from && !add_message(engine, under_way, i, false, from, under_way->part, why)))
      return false;
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
  const char *mine = work->kind == COMM_ALL_REDUCE || !x ? x : x + own;
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

static bool tcp_go_on(Engine *engine, EngineWork *work, EngineState *state, char *why) {
  *state = ENGINE_WAITS;
  if (!go_on_with_links(engine, why)) return false;
  if (work->missing) return true;
  finish_work(work);
  free_work(work);
  *state = ENGINE_DONE;
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
  EngineState state = ENGINE_WAITS;
  group->rank = calloc((size_t)engine->ranks, sizeof *group->rank);
  bool is_good = all && group->rank ? tcp_begin(engine, &work, &under_way, why)
                                    : tcp_say(why, "out of memory");
  while (is_good && state != ENGINE_DONE) {
    is_good = tcp_go_on(engine, under_way, &state, why);
    if (state != ENGINE_DONE) usleep(50);
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
