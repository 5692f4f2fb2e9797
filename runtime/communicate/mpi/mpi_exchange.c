/* mpi_exchange: see mpi_exchange.h. Each rank of the group has a part of the elements. It receives
 * the others' operands of its part, chunk by chunk, adds them to its own, and sends the result to
 * all: 2(R-1)/R of the bytes, the least that there is. A chunk that has come is still in the cache
 * when it is added. Up to WINDOW chunks of each kind are under way with each other rank. */
#include "runtime/communicate/mpi/mpi_exchange.h"
#include "runtime/communicate/combine.h"
#include <stdlib.h>
#include <string.h>

/* A chunk's bytes: several of them fit into a core's second cache. */
enum { WINDOW = 4, CHUNK = 1 << 18, ALIGN = 64 };

/* Chunks 0, 1, … in one direction; those before `ended` are through. */
typedef struct {
  MPI_Request request[WINDOW];
  int64_t posted, ended;
} Stream;

typedef struct {
  int rank;
  Stream operands_out, operands_in, results_out, results_in;
} Partner;

struct Exchange {
  ExchangeOf of;
  CommWork work;
  Combine *combine;
  int64_t size, share, chunk; /* bytes of an element; elements of a part, of a chunk */
  int64_t reduced;            /* chunks of the own part that are final */
  int64_t own_chunks;
  char *received; /* of each other rank WINDOW chunks of operands */
  Partner partner[];
};

/* Elements [at, at + count) of all parts behind one another. */
typedef struct {
  int64_t at;
  int count;
} Chunk;

static int64_t exchange_smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t part_begin(const Exchange *e, int rank) {
  bool is_even = e->work.kind != COMM_ALL_REDUCE; /* and count is of one part in all_gather */
  return is_even ? rank * e->share : exchange_smaller(e->work.count, rank * e->share);
}

static int64_t chunks_of(const Exchange *e, int rank) {
  return (part_begin(e, rank + 1) - part_begin(e, rank) + e->chunk - 1) / e->chunk;
}

static Chunk chunk_of(const Exchange *e, int rank, int64_t index) {
  int64_t at = part_begin(e, rank) + index * e->chunk;
  return (Chunk){at, (int)exchange_smaller(e->chunk, part_begin(e, rank + 1) - at)};
}

static const char *operand(const Exchange *e, int64_t at) {
  return (const char *)e->work.x + at * e->size;
}

/* A reduce_scatter's result is the own part alone. */
static char *exchange_result(const Exchange *e, int64_t at) {
  if (e->work.kind == COMM_REDUCE_SCATTER) at -= part_begin(e, e->of.rank);
  return (char *)e->work.out + at * e->size;
}

static char *received(const Exchange *e, int partner, int64_t index) {
  return e->received + (partner * WINDOW + index % WINDOW) * e->chunk * e->size;
}

/* ── messages ─────────────────────────────────────────────────────────────────────────────── */
static int exchange_look_at(Stream *s, bool *has_moved) {
  int is_over = 1, error = MPI_SUCCESS;
  while (s->ended < s->posted && is_over && error == MPI_SUCCESS) {
    error = MPI_Test(&s->request[s->ended % WINDOW], &is_over, MPI_STATUS_IGNORE);
    s->ended += is_over;
    *has_moved = *has_moved || is_over;
  }
  return error;
}

static bool exchange_has_room(const Stream *s, int64_t until) {
  return s->posted < until && s->posted - s->ended < WINDOW;
}

static int post_out(const Exchange *e, Stream *s, int to, int tag, const char *bytes, int count) {
  return MPI_Isend(bytes, count, e->of.type, to, tag, e->of.comm,
                   &s->request[s->posted++ % WINDOW]);
}

static int post_in(const Exchange *e, Stream *s, int from, int tag, char *bytes, int count) {
  return MPI_Irecv(bytes, count, e->of.type, from, tag, e->of.comm,
                   &s->request[s->posted++ % WINDOW]);
}

static int post_operands(Exchange *e, int index) {
  Partner *p = &e->partner[index];
  int error = MPI_SUCCESS, tag = e->of.tag;
  int64_t until = exchange_smaller(e->own_chunks, e->reduced + WINDOW);
  while (error == MPI_SUCCESS && exchange_has_room(&p->operands_in, until)) {
    int64_t next = p->operands_in.posted;
    error = post_in(e, &p->operands_in, p->rank, tag, received(e, index, next),
                    chunk_of(e, e->of.rank, next).count);
  }
  while (error == MPI_SUCCESS && exchange_has_room(&p->operands_out, chunks_of(e, p->rank))) {
    Chunk c = chunk_of(e, p->rank, p->operands_out.posted);
    error = post_out(e, &p->operands_out, p->rank, tag, operand(e, c.at), c.count);
  }
  return error;
}

/* In place, a result overwrites the operand, which must be out before. */
static int post_results(Exchange *e, Partner *p) {
  bool is_in_place = e->work.kind == COMM_ALL_REDUCE && e->work.x == e->work.out;
  int64_t until = is_in_place ? p->operands_out.ended : chunks_of(e, p->rank);
  int error = MPI_SUCCESS, tag = e->of.tag + 1;
  while (error == MPI_SUCCESS && exchange_has_room(&p->results_in, until)) {
    Chunk c = chunk_of(e, p->rank, p->results_in.posted);
    error = post_in(e, &p->results_in, p->rank, tag, exchange_result(e, c.at), c.count);
  }
  while (error == MPI_SUCCESS && exchange_has_room(&p->results_out, e->reduced)) {
    Chunk c = chunk_of(e, e->of.rank, p->results_out.posted);
    error = post_out(e, &p->results_out, p->rank, tag, exchange_result(e, c.at), c.count);
  }
  return error;
}

/* ── the work ─────────────────────────────────────────────────────────────────────────────── */
static bool exchange_has_come(const Exchange *e, int64_t index) {
  for (int i = 0; i < e->of.ranks - 1; i++)
    if (e->partner[i].operands_in.ended <= index) return false;
  return true;
}

/* The others' operands in the order of the ranks behind this one, so that every run has the same
 * bits. */
static void reduce_next(Exchange *e) {
  Chunk c = chunk_of(e, e->of.rank, e->reduced);
  char *out = exchange_result(e, c.at);
  if (out != operand(e, c.at)) memcpy(out, operand(e, c.at), (size_t)(c.count * e->size));
  for (int i = 0; i < e->of.ranks - 1; i++) e->combine(received(e, i, e->reduced), out, c.count);
  e->reduced++;
}

static bool is_over(const Exchange *e) {
  bool over = e->reduced == e->own_chunks;
  for (int i = 0; i < e->of.ranks - 1 && over; i++) {
    const Partner *p = &e->partner[i];
    int64_t theirs = chunks_of(e, p->rank);
    bool reduces = e->work.kind != COMM_ALL_GATHER, gathers = e->work.kind != COMM_REDUCE_SCATTER;
    over = (!reduces || p->operands_out.ended == theirs) &&
           (!gathers || (p->results_in.ended == theirs && p->results_out.ended == e->own_chunks));
  }
  return over;
}

static int go_on_once(Exchange *e, bool *has_moved) {
  int error = MPI_SUCCESS;
  for (int i = 0; i < e->of.ranks - 1 && error == MPI_SUCCESS; i++) {
    Partner *p = &e->partner[i];
    Stream *all[] = {&p->operands_in, &p->results_in, &p->operands_out, &p->results_out};
    for (int k = 0; k < 4 && error == MPI_SUCCESS; k++) error = exchange_look_at(all[k], has_moved);
  }
  while (e->reduced < e->own_chunks && error == MPI_SUCCESS && exchange_has_come(e, e->reduced))
    reduce_next(e);
  for (int i = 0; i < e->of.ranks - 1 && error == MPI_SUCCESS; i++) {
    if (e->work.kind != COMM_ALL_GATHER) error = post_operands(e, i);
    if (e->work.kind != COMM_REDUCE_SCATTER && error == MPI_SUCCESS)
      error = post_results(e, &e->partner[i]);
  }
  return error;
}

int exchange_go_on(Exchange *e, EngineState *state) {
  bool has_ever_moved = false, has_moved = true;
  int error = MPI_SUCCESS;
  for (; has_moved && error == MPI_SUCCESS && !is_over(e); has_ever_moved |= has_moved) {
    has_moved = false;
    error = go_on_once(e, &has_moved);
  }
  *state = is_over(e) ? ENGINE_DONE : has_ever_moved ? ENGINE_MOVES : ENGINE_WAITS;
  return error;
}

Exchange *exchange_new(const ExchangeOf *of, const CommWork *work, int size, int64_t piece) {
  int others = of->ranks - 1;
  Exchange *e = calloc(1, sizeof *e + (size_t)others * sizeof *e->partner);
  if (!e) return NULL;
  e->of = *of;
  e->work = *work;
  e->size = size;
  e->chunk = exchange_smaller(piece, CHUNK / size);
  e->combine = combine_find(work->dtype, work->op);
  bool gathers = work->kind == COMM_ALL_GATHER;
  int64_t line = ALIGN / size, share = (work->count + of->ranks - 1) / of->ranks;
  if (work->kind == COMM_ALL_REDUCE) share = (share + line - 1) / line * line;
  e->share = gathers ? work->count : share;
  for (int i = 0; i < others; i++) e->partner[i].rank = (of->rank + 1 + i) % of->ranks;
  e->own_chunks = chunks_of(e, of->rank);
  if (gathers) {
    char *own = exchange_result(e, part_begin(e, of->rank));
    if (own != work->x) memcpy(own, work->x, (size_t)(work->count * size));
    e->reduced = e->own_chunks;
  } else {
    e->received = malloc((size_t)(others * WINDOW * e->chunk * size));
    if (!e->received) {
      free(e);
      return NULL;
    }
  }
  return e;
}

void exchange_free(Exchange *e) {
  if (e) free(e->received);
  free(e);
}
