/* sim_clock: see sim_clock.h. */
#include "runtime/device/sim/sim_clock.h"
#include <stdlib.h>
#include <string.h>

/* Beside the threads, each mbarrier counts as one: in its name its copies write. */
enum {
  MOST_MBARRIERS = 96,
  LAST_TIME = 1 << 30,
  NOT_OVER = INT32_MAX,
  MOST_WARPS = 32 * SIM_CLUSTER
};
enum { CLASH_READ = 2, CLASH_WRITE = 3, TOUCH_WARP = 1056 }; /* as in sim_touch.h */
enum { SOME_LANES = 1 << 20 };        /* + warp: of one that did something, but not which lane */
enum { CLUSTER_BARRIER = INT32_MAX, BLOCK_BARRIER = 1 << (SIM_CLUSTER_AT - 1) }; /* their places among the mbarriers; and + id */

typedef struct {
  uint32_t address, time; /* time: of its copies */
  uint32_t *arriving;     /* what those that arrived in this phase know, */
  uint32_t *over;         /* and in those that are over */
} Phases;

/* Of all blocks of a cluster together: their warps follow one another, and so do their words of
 * shared memory. */
struct SimClock {
  int blocks, warps, length;  /* warps: of all blocks; length: of a vector */
  int64_t words;              /* of shared memory of a block */
  uint32_t base;              /* all that earlier blocks did is not later than this */
  uint32_t now[MOST_WARPS];   /* of the threads of each warp */
  bool has_least[MOST_WARPS]; /* of each warp */
  uint32_t touched[SIM_CLUSTER][MOST_WARPS]; /* when each warp last used a block's memory that is
                                                not its own */
  uint32_t *known;                           /* [thread][length] */
  uint32_t *least;                           /* [warp][length]: what all lanes know */
  uint32_t *joined;                          /* [length] */
  uint32_t *memory;                          /* of the mbarriers' vectors */
  Phases mbarrier[MOST_MBARRIERS];
  int mbarrier_count;
  uint64_t *writer;   /* word: time << 32 | thread */
  int64_t open_reads; /* by wgmma */
  uint64_t *readers;  /* [word][warp]: time << 32 | lanes; no lanes: wgmma, for all of them */
};

/* ── places in a cluster ──────────────────────────────────────────────────────────────────── */
static int clock_warp(const SimWarp *w) { return w->cta->rank * w->cta->run->warps + w->index; }
static int clock_thread(const SimWarp *w, int lane) { return clock_warp(w) * SIM_LANES + lane; }
static int64_t clock_word(const SimCta *cta, int64_t word) {
  return cta->rank * cta->clock->words + word;
}
static uint32_t clock_address(const SimCta *cta, uint32_t mbarrier) {
  return (uint32_t)cta->rank << SIM_CLUSTER_AT | mbarrier;
}

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

static SimClock *clock_make(int blocks, int warps, int64_t words) {
  SimClock *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  c->blocks = blocks;
  c->warps = warps *= blocks;
  c->words = words;
  c->length = warps * SIM_LANES + MOST_MBARRIERS;
  size_t length = (size_t)c->length, vector = length * sizeof(uint32_t);
  c->known = malloc(vector * SIM_LANES * (size_t)warps);
  c->least = malloc(vector * (size_t)warps);
  c->joined = malloc(vector);
  c->memory = malloc(vector * 2 * MOST_MBARRIERS);
  c->writer = calloc((size_t)(words * blocks), sizeof *c->writer);
  c->readers = calloc((size_t)(words * blocks * warps), sizeof *c->readers);
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
  int blocks = cta->run->cluster, warps = cta->run->warps;
  cta->clock = NULL;
  if (!cta->run->kernel->is_partly_ordered) return true;
  if (cta->rank) { /* it shares the first one's */
    cta->clock = cta->peer[0]->clock;
    return true;
  }
  if (c && (c->blocks != blocks || c->warps != warps * blocks || c->words < words ||
            c->base > LAST_TIME)) {
    sim_clock_free(c);
    c = NULL;
  }
  if (!c) c = clock_make(blocks, warps, words);
  cta->clock = cta->clock_memory = c;
  if (!c) return false;
  if (c->open_reads)
    memset(c->readers, 0, (size_t)(c->words * blocks * c->warps) * sizeof *c->readers);
  memset(c->touched, 0, sizeof c->touched);
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

void sim_clock_barrier(SimCta *cta, int id) {
  SimClock *c = cta->clock;
  clock_fill(c->joined, c->length, c->base);
  if (cta->barrier[id].arrived)
    memcpy(c->joined, phases_of(c, clock_address(cta, BLOCK_BARRIER + (uint32_t)id))->arriving, (size_t)c->length * sizeof *c->joined);
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < cta->run->warps; i++) {
      const SimWarp *w = &cta->warps[i];
      if (w->state != WARP_WAITS || w->barrier != id) continue;
      if (pass)
        clock_spread(c, clock_warp(w), w->live);
      else
        clock_gather(c, clock_warp(w), w->live);
    }
}

void sim_clock_warp(SimWarp *w, uint32_t lanes) {
  SimClock *c = w->cta->clock;
  clock_fill(c->joined, c->length, c->base);
  clock_gather(c, clock_warp(w), lanes);
  clock_spread(c, clock_warp(w), lanes);
}

void sim_clock_tick(SimWarp *w) { w->cta->clock->now[clock_warp(w)]++; }

void sim_clock_init(SimCta *cta, uint32_t mbarrier) {
  SimClock *c = cta->clock;
  Phases *phases = phases_of(c, clock_address(cta, mbarrier));
  if (c->mbarrier_count == MOST_MBARRIERS) return;
  clock_fill(phases->arriving, c->length, c->base);
  clock_fill(phases->over, c->length, c->base);
}

static void clock_release(SimWarp *w, int lane, Phases *phases) {
  SimClock *c = w->cta->clock;
  int thread = clock_thread(w, lane);
  clock_join(phases->arriving, known_by(c, thread), c->length);
  phases->arriving[thread] = c->now[clock_warp(w)];
}

void sim_clock_arrive(SimWarp *w) {
  Phases *phases = phases_of(w->cta->clock, clock_address(w->cta, BLOCK_BARRIER + (uint32_t)w->barrier));
  for (uint32_t rest = w->live; rest; rest &= rest - 1) clock_release(w, __builtin_ctz(rest), phases);
  sim_clock_tick(w);
}

void sim_clock_release(SimWarp *w, int lane, const SimCta *of, uint32_t mbarrier) {
  clock_release(w, lane, phases_of(w->cta->clock, clock_address(of, mbarrier)));
}

void sim_clock_acquire(SimWarp *w, int lane, uint32_t mbarrier, bool is_cluster) {
  SimClock *c = w->cta->clock;
  const uint32_t *over = phases_of(c, clock_address(w->cta, mbarrier))->over;
  uint32_t *known = known_by(c, clock_thread(w, lane));
  int threads = c->warps * SIM_LANES, own = threads / c->blocks, first = own * w->cta->rank;
  if (is_cluster) {
    clock_join(known, over, c->length);
  } else { /* .cta: of this block's threads only, and of copies */
    clock_join(known + first, over + first, own);
    clock_join(known + threads, over + threads, MOST_MBARRIERS);
  }
  c->has_least[clock_warp(w)] = false;
}

void sim_clock_phase(SimCta *cta, uint32_t mbarrier) {
  Phases *phases = phases_of(cta->clock, clock_address(cta, mbarrier));
  memcpy(phases->over, phases->arriving, (size_t)cta->clock->length * sizeof *phases->over);
}

void sim_clock_copied(SimCta *cta, const SimBulk *copy) {
  SimClock *c = cta->clock;
  Phases *phases = phases_of(c, clock_address(cta, copy->mbarrier));
  uint32_t who = (uint32_t)(c->warps * SIM_LANES + (phases - c->mbarrier));
  phases->arriving[who] = ++phases->time;
  for (uint32_t word = copy->to >> 2; word < (copy->to + copy->bytes) >> 2; word++)
    c->writer[clock_word(cta, word)] = (uint64_t)phases->time << 32 | who;
}

/* ── the cluster's barrier ────────────────────────────────────────────────────────────────── */
void sim_clock_cluster_arrive(SimWarp *w) {
  for (uint32_t rest = w->live; rest; rest &= rest - 1)
    clock_release(w, __builtin_ctz(rest), phases_of(w->cta->clock, CLUSTER_BARRIER));
  sim_clock_tick(w);
}

void sim_clock_cluster_over(SimCta *cta) {
  Phases *phases = phases_of(cta->clock, CLUSTER_BARRIER);
  memcpy(phases->over, phases->arriving, (size_t)cta->clock->length * sizeof *phases->over);
}

void sim_clock_cluster_wait(SimWarp *w) {
  SimClock *c = w->cta->clock;
  const uint32_t *over = phases_of(c, CLUSTER_BARRIER)->over;
  for (uint32_t rest = w->live; rest; rest &= rest - 1)
    clock_join(known_by(c, clock_thread(w, __builtin_ctz(rest))), over, c->length);
  c->has_least[clock_warp(w)] = false;
}

void sim_clock_touch(SimWarp *w, const SimCta *of) {
  SimClock *c = w->cta->clock;
  c->touched[of->rank][clock_warp(w)] = c->now[clock_warp(w)];
}

int sim_clock_unknown(const SimCta *cta) {
  const SimClock *c = cta->clock;
  int own = cta->run->warps * SIM_LANES;
  for (int warp = 0; warp < c->warps; warp++) {
    bool is_known = !c->touched[cta->rank][warp];
    for (int thread = own * cta->rank; thread < own * (cta->rank + 1) && !is_known; thread++)
      for (int l = 0; l < SIM_LANES; l++)
        is_known |= known_by(c, thread)[warp * SIM_LANES + l] >= c->touched[cta->rank][warp];
    if (!is_known) return warp / cta->run->warps;
  }
  return -1;
}

/* ── accesses ─────────────────────────────────────────────────────────────────────────────── */
static bool clash(SimWarp *w, const SimInst *in, int lane, const SimCta *of, int64_t word, int kind,
                  uint32_t who) {
  const SimClock *c = w->cta->clock;
  int threads = c->warps * SIM_LANES, own = threads / c->blocks, warps = c->warps / c->blocks;
  bool is_warp = who >= SOME_LANES;
  int block = is_warp ? (int)(who - SOME_LANES) / warps : (int)who / own;
  bool is_copy = !is_warp && (int)who >= threads;
  uint64_t name = is_copy   ? (uint64_t)TOUCH_ASYNC
                  : is_warp ? (uint64_t)(TOUCH_WARP + (int)(who - SOME_LANES) % warps)
                            : (uint64_t)((int)who % own);
  if (c->blocks > 1 && !is_copy && block != w->cta->rank)
    sim_fault(w, in,
              "race: byte %lld of shared memory of block %d of the cluster is used here by warp %d "
              "of block %d, and was %s by %s %d of block %d, and nothing orders the two",
              (long long)word * 4, of->rank, w->index, w->cta->rank,
              kind == CLASH_READ ? "read" : "written", is_warp ? "warp" : "thread",
              is_warp ? (int)name - TOUCH_WARP : (int)name, block);
  else
    sim_fault_clash(w, in, lane, true, word * 4, kind, w->cta->owner_shared | name << TOUCH_THREAD);
  return false;
}

/* `of`: the block whose memory it is. */
static bool follows_writer(SimWarp *w, const SimInst *in, int lane, const SimCta *of,
                           int64_t word) {
  const SimClock *c = w->cta->clock;
  uint64_t record = c->writer[clock_word(of, word)];
  uint32_t who = (uint32_t)record, thread = (uint32_t)clock_thread(w, lane);
  if (who == thread || known_by(c, (int)thread)[who] >= record >> 32) return true;
  return clash(w, in, lane, of, word, CLASH_WRITE, who);
}

/* The lanes of warp `other` that read the word at `time`, ahead of this thread? *who: of one that
 * did not. */
static bool follows_lanes(const SimClock *c, int thread, int other, uint64_t record,
                          uint32_t *who) {
  const uint32_t *known = known_by(c, thread) + other * SIM_LANES;
  uint64_t time = record >> 32;
  *who = (uint32_t)(SOME_LANES + other);
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

/* Of all warps of the cluster. */
static uint64_t *readers_of(const SimCta *of, int64_t word) {
  return of->clock->readers + clock_word(of, word) * of->clock->warps;
}

static bool follows_readers(SimWarp *w, const SimInst *in, int lane, const SimCta *of,
                            int64_t word) {
  const SimClock *c = w->cta->clock;
  const uint64_t *readers = readers_of(of, word);
  uint32_t who;
  for (int i = 0; i < c->warps; i++)
    if (readers[i] && !follows_lanes(c, clock_thread(w, lane), i, readers[i], &who))
      return clash(w, in, lane, of, word, CLASH_READ, who);
  return true;
}

bool sim_clock_target(SimWarp *w, const SimInst *in, int lane, const SimCta *of, int64_t at,
                      int64_t bytes) {
  SimClock *c = w->cta->clock;
  for (int64_t word = at >> 2; word < (at + bytes) >> 2 && sim_is_checked(w); word++) {
    if (!follows_writer(w, in, lane, of, word) || !follows_readers(w, in, lane, of, word))
      return false;
    memset(readers_of(of, word), 0, (size_t)c->warps * sizeof *c->readers);
  }
  return true;
}

bool sim_clock_uses(SimWarp *w, const SimInst *in, int lane, const SimCta *of, int64_t at) {
  return !sim_is_checked(w) || follows_writer(w, in, lane, of, at >> 2);
}

static bool access(SimWarp *w, const SimInst *in, int lane, int64_t word, bool is_store) {
  SimClock *c = w->cta->clock;
  uint64_t now = (uint64_t)c->now[clock_warp(w)] << 32;
  uint64_t *reader = &readers_of(w->cta, word)[clock_warp(w)];
  if (!follows_writer(w, in, lane, w->cta, word)) return false;
  if (!is_store) {
    *reader = (*reader >> 32 == now >> 32 ? *reader : now) | UINT64_C(1) << lane;
    return true;
  }
  if (!follows_readers(w, in, lane, w->cta, word)) return false;
  memset(readers_of(w->cta, word), 0, (size_t)c->warps * sizeof *c->readers);
  c->writer[clock_word(w->cta, word)] = now | (uint32_t)clock_thread(w, lane);
  return true;
}

bool sim_clock_run(SimWarp *w, const SimInst *in, int first, int lanes, int64_t at, int step,
                   int bytes, bool is_store) {
  for (int i = 0; i < lanes && bytes >= 4 && sim_is_checked(w); i++)
    for (int64_t word = (at + i * step) >> 2; word < (at + i * step + bytes) >> 2; word++)
      if (!access(w, in, first + i, word, is_store)) return false;
  return true;
}

/* ── wgmma ────────────────────────────────────────────────────────────────────────────────── */
/* What all lanes of the warp know; of each other, in the places of their own. */
static const uint32_t *least_of(SimWarp *w) {
  SimClock *c = w->cta->clock;
  int warp = clock_warp(w), first = warp * SIM_LANES;
  uint32_t *least = c->least + (int64_t)warp * c->length;
  if (c->has_least[warp]) return least;
  clock_fill(least, c->length, UINT32_MAX);
  for (int l = 0; l < SIM_LANES; l++) {
    const uint32_t *known = known_by(c, first + l);
    uint32_t own = least[first + l];
    for (int i = 0; i < c->length; i++) least[i] = least[i] < known[i] ? least[i] : known[i];
    least[first + l] = own;
  }
  c->has_least[warp] = true;
  return least;
}

bool sim_clock_begin_read(SimWarp *w, const SimInst *in, int64_t word) {
  if (!sim_is_checked(w)) return true;
  SimClock *c = w->cta->clock;
  uint64_t record = c->writer[clock_word(w->cta, word)];
  if (least_of(w)[(uint32_t)record] < record >> 32)
    return clash(w, in, 0, w->cta, word, CLASH_WRITE, (uint32_t)record);
  uint64_t *reader = &readers_of(w->cta, word)[clock_warp(w)];
  c->open_reads += *reader >> 32 != NOT_OVER;
  *reader = (uint64_t)NOT_OVER << 32;
  return true;
}

void sim_clock_end_read(SimWarp *w, int64_t word) {
  if (!sim_is_checked(w)) return;
  SimClock *c = w->cta->clock;
  uint64_t *reader = &readers_of(w->cta, word)[clock_warp(w)];
  c->open_reads -= *reader >> 32 == NOT_OVER;
  *reader = (uint64_t)c->now[clock_warp(w)] << 32;
}
