/* sim_clock: see sim_clock.h. */
#include "runtime/device/sim/sim_clock.h"
#include <stdlib.h>
#include <string.h>

/* Beside the threads, each mbarrier counts as one: in its name its copies write. */
enum { MOST_MBARRIERS = 96, LAST_TIME = 1 << 30, NOT_OVER = INT32_MAX };
enum { CLASH_READ = 2, CLASH_WRITE = 3, WHO_WARP = 1056 }; /* as in sim_touch.h */

typedef struct {
  uint32_t address, time; /* time: of its copies */
  uint32_t *arriving;     /* what those that arrived in this phase know, */
  uint32_t *over;         /* and in those that are over */
} Phases;

struct SimClock {
  int warps, length;         /* length: of a vector */
  int64_t words;             /* of shared memory */
  uint32_t base;             /* all that earlier blocks did is not later than this */
  uint32_t now[SIM_LANES];   /* of the threads of each warp */
  bool has_least[SIM_LANES]; /* of each warp */
  uint32_t *known;           /* [thread][length] */
  uint32_t *least;           /* [warp][length]: what all lanes know */
  uint32_t *joined;          /* [length] */
  uint32_t *memory;          /* of the mbarriers' vectors */
  Phases mbarrier[MOST_MBARRIERS];
  int mbarrier_count;
  uint64_t *writer;  /* word: time << 32 | thread */
  int64_t open_reads; /* by wgmma */
  uint64_t *readers; /* [word][warp]: time << 32 | lanes; no lanes: wgmma, for all of them */
};

/* ── vectors ──────────────────────────────────────────────────────────────────────────────── */
static uint32_t *known_by(const SimClock *c, int thread) {
  return c->known + (int64_t)thread * c->length;
}
static void clock_join(uint32_t *restrict to, const uint32_t *restrict from, int count) {
  for (int i = 0; i < count; i++) to[i] = to[i] > from[i] ? to[i] : from[i];
}
static void clock_fill(uint32_t *to, int64_t count, uint32_t value) {
  for (int64_t i = 0; i < count; i++) to[i] = value;
}

void sim_clock_free(SimClock *c) {
  if (!c) return;
  free(c->known);
  free(c->least);
  free(c->joined);
  free(c->memory);
  free(c->writer);
  free(c->readers);
  free(c);
}

static SimClock *clock_make(int warps, int64_t words) {
  SimClock *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  c->warps = warps;
  c->words = words;
  c->length = warps * SIM_LANES + MOST_MBARRIERS;
  size_t length = (size_t)c->length, vector = length * sizeof(uint32_t);
  c->known = malloc(vector * SIM_LANES * (size_t)warps);
  c->least = malloc(vector * (size_t)warps);
  c->joined = malloc(vector);
  c->memory = malloc(vector * 2 * MOST_MBARRIERS);
  c->writer = calloc((size_t)words, sizeof *c->writer);
  c->readers = calloc((size_t)words * (size_t)warps, sizeof *c->readers);
  if (c->known && c->least && c->joined && c->memory && c->writer && c->readers) {
    for (int i = 0; i < MOST_MBARRIERS; i++) {
      c->mbarrier[i].arriving = c->memory + 2 * i * c->length;
      c->mbarrier[i].over = c->mbarrier[i].arriving + c->length;
    }
    return c;
  }
  sim_clock_free(c);
  return NULL;
}

bool sim_clock_begin(SimCta *cta) {
  SimClock *c = cta->clock_memory;
  int64_t words = cta->run->shared_bytes / 4 + 4;
  cta->clock = NULL;
  if (!cta->run->kernel->is_partly_ordered) return true;
  if (c && (c->warps != cta->run->warps || c->words < words || c->base > LAST_TIME)) {
    sim_clock_free(c);
    c = NULL;
  }
  if (!c) c = clock_make(cta->run->warps, words);
  cta->clock = cta->clock_memory = c;
  if (!c) return false;
  if (c->open_reads)
    memset(c->readers, 0, (size_t)c->words * (size_t)c->warps * sizeof *c->readers);
  c->open_reads = 0;
  for (int i = 0; i < c->warps; i++) c->base = c->now[i] > c->base ? c->now[i] : c->base;
  for (int i = 0; i < c->mbarrier_count; i++)
    c->base = c->mbarrier[i].time > c->base ? c->mbarrier[i].time : c->base;
  clock_fill(c->known, (int64_t)c->warps * SIM_LANES * c->length, c->base);
  for (int i = 0; i < c->warps; i++) {
    c->now[i] = c->base + 1;
    c->has_least[i] = false;
  }
  c->mbarrier_count = 0;
  return true;
}

/* ── edges ────────────────────────────────────────────────────────────────────────────────── */
static void clock_gather(SimClock *c, int warp, uint32_t lanes) {
  for (; lanes; lanes &= lanes - 1) {
    int thread = warp * SIM_LANES + __builtin_ctz(lanes);
    clock_join(c->joined, known_by(c, thread), c->length);
    c->joined[thread] = c->now[warp];
  }
}
static void clock_spread(SimClock *c, int warp, uint32_t lanes) {
  for (; lanes; lanes &= lanes - 1)
    memcpy(known_by(c, warp * SIM_LANES + __builtin_ctz(lanes)), c->joined,
           (size_t)c->length * sizeof *c->joined);
  c->has_least[warp] = false;
  c->now[warp]++;
}

void sim_clock_barrier(SimCta *cta, int id) {
  SimClock *c = cta->clock;
  clock_fill(c->joined, c->length, c->base);
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < c->warps; i++) {
      const SimWarp *w = &cta->warps[i];
      if (w->state != WARP_WAITS || w->barrier != id) continue;
      if (pass)
        clock_spread(c, i, w->live);
      else
        clock_gather(c, i, w->live);
    }
}

void sim_clock_warp(SimWarp *w, uint32_t lanes) {
  SimClock *c = w->cta->clock;
  clock_fill(c->joined, c->length, c->base);
  clock_gather(c, w->index, lanes);
  clock_spread(c, w->index, lanes);
}

void sim_clock_tick(SimWarp *w) { w->cta->clock->now[w->index]++; }

/* Those that have no room of their own share the last one's: then a race may be missed. */
static Phases *phases_of(SimClock *c, uint32_t address) {
  for (int i = 0; i < c->mbarrier_count; i++)
    if (c->mbarrier[i].address == address) return &c->mbarrier[i];
  if (c->mbarrier_count == MOST_MBARRIERS) return &c->mbarrier[MOST_MBARRIERS - 1];
  Phases *made = &c->mbarrier[c->mbarrier_count++];
  made->address = address;
  made->time = c->base;
  clock_fill(made->arriving, c->length, c->base);
  clock_fill(made->over, c->length, c->base);
  return made;
}

void sim_clock_init(SimCta *cta, uint32_t mbarrier) {
  SimClock *c = cta->clock;
  Phases *phases = phases_of(c, mbarrier);
  if (c->mbarrier_count == MOST_MBARRIERS) return;
  clock_fill(phases->arriving, c->length, c->base);
  clock_fill(phases->over, c->length, c->base);
}

void sim_clock_release(SimWarp *w, int lane, uint32_t mbarrier) {
  SimClock *c = w->cta->clock;
  Phases *phases = phases_of(c, mbarrier);
  int thread = w->index * SIM_LANES + lane;
  clock_join(phases->arriving, known_by(c, thread), c->length);
  phases->arriving[thread] = c->now[w->index];
}

void sim_clock_acquire(SimWarp *w, int lane, uint32_t mbarrier) {
  SimClock *c = w->cta->clock;
  clock_join(known_by(c, w->index * SIM_LANES + lane), phases_of(c, mbarrier)->over, c->length);
  c->has_least[w->index] = false;
}

void sim_clock_phase(SimCta *cta, uint32_t mbarrier) {
  Phases *phases = phases_of(cta->clock, mbarrier);
  memcpy(phases->over, phases->arriving, (size_t)cta->clock->length * sizeof *phases->over);
}

void sim_clock_copied(SimCta *cta, const SimBulk *copy) {
  SimClock *c = cta->clock;
  Phases *phases = phases_of(c, copy->mbarrier);
  uint32_t who = (uint32_t)(c->warps * SIM_LANES + (phases - c->mbarrier));
  phases->arriving[who] = ++phases->time;
  for (uint32_t word = copy->to >> 2; word < (copy->to + copy->bytes) >> 2; word++)
    c->writer[word] = (uint64_t)phases->time << 32 | who;
}

/* ── accesses ─────────────────────────────────────────────────────────────────────────────── */
static bool clash(SimWarp *w, const SimInst *in, int lane, int64_t word, int kind, uint32_t who) {
  uint32_t threads = (uint32_t)w->cta->clock->warps * SIM_LANES;
  uint64_t name = who >= threads && who < WHO_WARP ? TOUCH_ASYNC : who;
  sim_fault_clash(w, in, lane, true, word * 4, kind, w->cta->owner_shared | name << TOUCH_THREAD);
  return false;
}

static bool follows_writer(SimWarp *w, const SimInst *in, int lane, int64_t word) {
  const SimClock *c = w->cta->clock;
  uint64_t record = c->writer[word];
  uint32_t who = (uint32_t)record, thread = (uint32_t)(w->index * SIM_LANES + lane);
  if (who == thread || known_by(c, (int)thread)[who] >= record >> 32) return true;
  return clash(w, in, lane, word, CLASH_WRITE, who);
}

/* The lanes of warp `other` that read the word at `time`, ahead of this thread? *who: of one that
 * did not. */
static bool follows_lanes(const SimClock *c, int thread, int other, uint64_t record,
                          uint32_t *who) {
  const uint32_t *known = known_by(c, thread) + other * SIM_LANES;
  uint64_t time = record >> 32;
  *who = (uint32_t)(WHO_WARP + other);
  if (time <= c->base) return true;
  if (time == NOT_OVER) return false;
  if (!(uint32_t)record) {
    bool is_known = thread / SIM_LANES == other;
    for (int l = 0; l < SIM_LANES; l++) is_known |= known[l] >= time;
    return is_known;
  }
  for (uint32_t rest = (uint32_t)record; rest; rest &= rest - 1) {
    int l = __builtin_ctz(rest);
    *who = (uint32_t)(other * SIM_LANES + l);
    if ((int)*who != thread && known[l] < time) return false;
  }
  return true;
}

static bool follows_readers(SimWarp *w, const SimInst *in, int lane, int64_t word) {
  const SimClock *c = w->cta->clock;
  uint64_t *readers = c->readers + word * c->warps;
  uint32_t who;
  for (int i = 0; i < c->warps; i++)
    if (readers[i] && !follows_lanes(c, w->index * SIM_LANES + lane, i, readers[i], &who))
      return clash(w, in, lane, word, CLASH_READ, who);
  return true;
}

bool sim_clock_target(SimWarp *w, const SimInst *in, int lane, int64_t at, int64_t bytes) {
  SimClock *c = w->cta->clock;
  for (int64_t word = at >> 2; word < (at + bytes) >> 2; word++) {
    if (!follows_writer(w, in, lane, word) || !follows_readers(w, in, lane, word)) return false;
    memset(c->readers + word * c->warps, 0, (size_t)c->warps * sizeof *c->readers);
  }
  return true;
}

bool sim_clock_uses(SimWarp *w, const SimInst *in, int lane, int64_t at) {
  return follows_writer(w, in, lane, at >> 2);
}

static bool access(SimWarp *w, const SimInst *in, int lane, int64_t word, bool is_store) {
  SimClock *c = w->cta->clock;
  uint64_t now = (uint64_t)c->now[w->index] << 32;
  uint64_t *reader = &c->readers[word * c->warps + w->index];
  if (!follows_writer(w, in, lane, word)) return false;
  if (!is_store) {
    *reader = (*reader >> 32 == now >> 32 ? *reader : now) | UINT64_C(1) << lane;
    return true;
  }
  if (!follows_readers(w, in, lane, word)) return false;
  memset(c->readers + word * c->warps, 0, (size_t)c->warps * sizeof *c->readers);
  c->writer[word] = now | (uint32_t)(w->index * SIM_LANES + lane);
  return true;
}

bool sim_clock_run(SimWarp *w, const SimInst *in, int first, int lanes, int64_t at, int step,
                   int bytes, bool is_store) {
  for (int i = 0; i < lanes && bytes >= 4; i++)
    for (int64_t word = (at + i * step) >> 2; word < (at + i * step + bytes) >> 2; word++)
      if (!access(w, in, first + i, word, is_store)) return false;
  return true;
}

/* ── wgmma ────────────────────────────────────────────────────────────────────────────────── */
/* What all lanes of the warp know; of each other, in the places of their own. */
static const uint32_t *least_of(SimWarp *w) {
  SimClock *c = w->cta->clock;
  int first = w->index * SIM_LANES;
  uint32_t *least = c->least + (int64_t)w->index * c->length;
  if (c->has_least[w->index]) return least;
  clock_fill(least, c->length, UINT32_MAX);
  for (int l = 0; l < SIM_LANES; l++) {
    const uint32_t *known = known_by(c, first + l);
    uint32_t own = least[first + l];
    for (int i = 0; i < c->length; i++) least[i] = least[i] < known[i] ? least[i] : known[i];
    least[first + l] = own;
  }
  c->has_least[w->index] = true;
  return least;
}

bool sim_clock_begin_read(SimWarp *w, const SimInst *in, int64_t word) {
  SimClock *c = w->cta->clock;
  uint64_t record = c->writer[word];
  if (least_of(w)[(uint32_t)record] < record >> 32)
    return clash(w, in, 0, word, CLASH_WRITE, (uint32_t)record);
  uint64_t *reader = &c->readers[word * c->warps + w->index];
  c->open_reads += *reader >> 32 != NOT_OVER;
  *reader = (uint64_t)NOT_OVER << 32;
  return true;
}

void sim_clock_end_read(SimWarp *w, int64_t word) {
  SimClock *c = w->cta->clock;
  uint64_t *reader = &c->readers[word * c->warps + w->index];
  c->open_reads -= *reader >> 32 == NOT_OVER;
  *reader = (uint64_t)c->now[w->index] << 32;
}
