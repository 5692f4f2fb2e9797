/* sim_touch: which thread read and wrote each word last, and which races follow from it. Two
 * accesses to a word race if one is a write, they are of different threads, and nothing orders
 * them: for threads of one block a barrier (the epoch) or, within a warp, bar.warp.sync; for
 * threads of different blocks nothing but the end of the launch. Only the last writer and reader of
 * a word are kept, so a race can hide behind a later access; what is reported is one. Of writes of
 * 1 or 2 bytes the record says which bytes, but only of the last thread, or of several together; of
 * an atomic it says which warp, or that there were several. Included by sim_lanes.inc only: the
 * loops are for the vectoriser. */
#ifndef FT_RUNTIME_SIM_TOUCH_H
#define FT_RUNTIME_SIM_TOUCH_H
#include "runtime/device/sim/sim_private.h"

enum {
  TOUCH_BLOCKS_READ = 1027, /* readers of several blocks */
  TOUCH_PARTIAL = 1028,     /* written in parts, or by several lanes of a warp */
  TOUCH_WARP = 1056,        /* + warp: several lanes of it */
  TOUCH_ATOMIC_WARP = 1088, /* + warp: atomics of it alone */
  TOUCH_LAUNCH = TOUCH_OWNER + TOUCH_BLOCKS,
  TOUCH_CONSTANT = 1, /* in a reader: ld.global.nc read the word in this launch */
};

/* Accesses of one instruction to one memory. */
typedef struct {
  SimTouch *writer, *reader;
  uint64_t now; /* owner, epoch and sync of the warp */
  int warp;
  bool is_shared, is_constant; /* is_constant: by ld.global.nc */
  int64_t base; /* the address of word 0; shared: 0 */
} TouchSet;

typedef enum {
  CLASH_NONE,
  CLASH_UNWRITTEN,
  CLASH_READ,
  CLASH_WRITE,
  CLASH_ASYNC,
  CLASH_STORED,
  CLASH_CONSTANT
} Clash;

#define TOUCH_INLINE static inline __attribute__((always_inline))
TOUCH_INLINE uint64_t touch_thread(SimTouch x) { return x >> TOUCH_THREAD & 2047; }
TOUCH_INLINE bool touch_same_owner(const TouchSet *t, SimTouch x) {
  return x >> TOUCH_OWNER == t->now >> TOUCH_OWNER;
}
TOUCH_INLINE bool touch_same_epoch(const TouchSet *t, SimTouch x) {
  return x >> TOUCH_EPOCH == t->now >> TOUCH_EPOCH;
}
TOUCH_INLINE bool touch_same_launch(const TouchSet *t, SimTouch x) {
  return x >> TOUCH_LAUNCH == t->now >> TOUCH_LAUNCH;
}
TOUCH_INLINE bool touch_in_warp(const TouchSet *t, SimTouch x) {
  uint64_t thread = touch_thread(x);
  return (thread < 1024 && thread >> 5 == (uint64_t)t->warp) ||
         thread == (uint64_t)(TOUCH_WARP + t->warp);
}
TOUCH_INLINE bool touch_is_atomic(uint64_t who) {
  return who == TOUCH_ATOMIC || (who >= TOUCH_ATOMIC_WARP && who < TOUCH_ATOMIC_WARP + 32);
}
/* Ordered by bar.warp.sync, or too many barriers ago to tell. */
TOUCH_INLINE bool touch_is_ordered(const TouchSet *t, SimTouch x) {
  uint64_t sync = x >> TOUCH_SYNC & (TOUCH_SYNCS - 1),
           now = t->now >> TOUCH_SYNC & (TOUCH_SYNCS - 1);
  bool is_saturated = (t->now >> TOUCH_EPOCH & (TOUCH_EPOCHS - 1)) == TOUCH_EPOCHS - 1;
  return is_saturated || (touch_in_warp(t, x) && (sync != now || now == TOUCH_SYNCS - 1));
}

/* ── many words at once: true means that nothing is wrong; false, that a closer look is due ── */
/* Word i is thread first + (i >> shift)'s; shift 31: of all lanes at once, who tells. */
TOUCH_INLINE bool touch_reads_fine(const TouchSet *t, int64_t word, int64_t count, uint64_t first,
                                   int shift) {
  const SimTouch *w = t->writer + word;
  uint64_t bad = 0, now = t->now;
  EACH(i, count) {
    uint64_t x = w[i], thread = x >> TOUCH_THREAD & 2047, me = first + (uint64_t)(i >> shift);
    bool is_mine = x >> TOUCH_OWNER == now >> TOUCH_OWNER;
    bool is_fresh = (x >> TOUCH_EPOCH == now >> TOUCH_EPOCH) & (thread != me);
    if (t->is_shared)
      bad |= (uint64_t)(!is_mine | ((x & 15) != 15) | is_fresh | (thread == TOUCH_ASYNC));
    else
      bad |= (uint64_t)((x >> TOUCH_LAUNCH == now >> TOUCH_LAUNCH) &
                        (!is_mine | is_fresh | t->is_constant));
  }
  return !bad;
}

TOUCH_INLINE void touch_reads(const TouchSet *t, int64_t word, int64_t count, uint64_t first,
                              int shift) {
  SimTouch *r = t->reader + word;
  uint64_t now = t->now, of_warp = (uint64_t)(TOUCH_WARP + t->warp), warp = (uint64_t)t->warp;
  EACH(i, count) {
    uint64_t x = r[i], thread = x >> TOUCH_THREAD & 2047, me = first + (uint64_t)(i >> shift);
    bool is_in_warp = ((thread < 1024) & (thread >> 5 == warp)) | (thread == of_warp);
    bool same_sync = x >> TOUCH_SYNC == now >> TOUCH_SYNC;
    bool same_epoch = x >> TOUCH_EPOCH == now >> TOUCH_EPOCH;
    bool joins = same_epoch & (same_sync | !is_in_warp) & (thread != me);
    uint64_t who = joins ? (is_in_warp ? of_warp : (uint64_t)TOUCH_MANY) : me, constant = 0;
    if (!t->is_shared) {
      bool same_launch = x >> TOUCH_LAUNCH == now >> TOUCH_LAUNCH;
      bool is_other = (x >> TOUCH_OWNER != now >> TOUCH_OWNER) | (thread == TOUCH_BLOCKS_READ);
      who = (same_launch & is_other) ? (uint64_t)TOUCH_BLOCKS_READ : who;
      constant = (x & (uint64_t)same_launch & TOUCH_CONSTANT) | (uint64_t)t->is_constant;
    }
    r[i] = now | who << TOUCH_THREAD | constant;
  }
}

TOUCH_INLINE bool touch_writes_fine(const TouchSet *t, int64_t word, int64_t count, uint64_t first,
                                    int shift) {
  const SimTouch *w = t->writer + word, *r = t->reader + word;
  uint64_t bad = 0, now = t->now;
  EACH(i, count) {
    uint64_t x = w[i], y = r[i], me = first + (uint64_t)(i >> shift);
    uint64_t a = x >> TOUCH_THREAD & 2047, b = y >> TOUCH_THREAD & 2047;
    bool is_fresh = ((x >> TOUCH_EPOCH == now >> TOUCH_EPOCH) & (a != me)) |
                    ((y >> TOUCH_EPOCH == now >> TOUCH_EPOCH) & (b != me));
    if (t->is_shared) {
      bad |= (uint64_t)(is_fresh | ((x >> TOUCH_OWNER == now >> TOUCH_OWNER) & (a == TOUCH_ASYNC)) |
                        ((y >> TOUCH_OWNER == now >> TOUCH_OWNER) & (b == TOUCH_ASYNC)));
    } else {
      bool w_other =
          (x >> TOUCH_LAUNCH == now >> TOUCH_LAUNCH) & (x >> TOUCH_OWNER != now >> TOUCH_OWNER);
      bool r_other = (y >> TOUCH_LAUNCH == now >> TOUCH_LAUNCH) &
                     ((y >> TOUCH_OWNER != now >> TOUCH_OWNER) | (b == TOUCH_BLOCKS_READ) |
                      (y & TOUCH_CONSTANT));
      bad |= (uint64_t)(is_fresh | w_other | r_other);
    }
  }
  return !bad;
}

TOUCH_INLINE void touch_writes(const TouchSet *t, int64_t word, int64_t count, uint64_t first,
                               int shift) {
  SimTouch *w = t->writer + word;
  EACH(i, count) w[i] = t->now | (first + (uint64_t)(i >> shift)) << TOUCH_THREAD | 15;
}

/* The words of one lane; false: a closer look is due, at what is not recorded yet. */
TOUCH_INLINE bool touch_lane(const TouchSet *t, int64_t word, int64_t count, uint64_t me,
                             bool is_store) {
  uint64_t now = t->now;
  for (int64_t i = word; i < word + count; i++) {
    uint64_t x = t->writer[i], y = t->reader[i];
    bool w_fresh = x >> TOUCH_EPOCH == now >> TOUCH_EPOCH && touch_thread(x) != me;
    bool r_mine = y >> TOUCH_OWNER == now >> TOUCH_OWNER;
    bool r_fresh = y >> TOUCH_EPOCH == now >> TOUCH_EPOCH && touch_thread(y) != me;
    if (w_fresh || (is_store && r_fresh)) return false;
    if (t->is_shared) {
      bool w_mine = x >> TOUCH_OWNER == now >> TOUCH_OWNER;
      if ((w_mine && touch_thread(x) == TOUCH_ASYNC) || (!is_store && !(w_mine && (x & 15) == 15)))
        return false;
      if (is_store && r_mine && touch_thread(y) == TOUCH_ASYNC) return false;
    } else {
      if (touch_same_launch(t, x) && x >> TOUCH_OWNER != now >> TOUCH_OWNER) return false;
      if (is_store && touch_same_launch(t, y) &&
          (!r_mine || touch_thread(y) == TOUCH_BLOCKS_READ || y & TOUCH_CONSTANT))
        return false;
      if (t->is_constant && touch_same_launch(t, x)) return false;
    }
    if (is_store)
      t->writer[i] = now | me << TOUCH_THREAD | 15;
    else if (!r_fresh && (t->is_shared || r_mine || !touch_same_launch(t, y)) &&
             !(r_mine && touch_thread(y) == TOUCH_BLOCKS_READ && !t->is_shared))
      t->reader[i] = now | me << TOUCH_THREAD | (r_mine ? y & TOUCH_CONSTANT : 0) |
                     (uint64_t)t->is_constant;
    else
      touch_reads(t, i, 1, me, 31);
  }
  return true;
}

/* ── one word, exactly ────────────────────────────────────────────────────────────────────── */
/* Of a record of the same block and between the same barriers: is it of another thread, for sure?
 */
TOUCH_INLINE bool touch_is_other(const TouchSet *t, SimTouch x, uint64_t thread) {
  uint64_t who = touch_thread(x);
  return who != thread && who != TOUCH_PARTIAL && who != (uint64_t)(TOUCH_ATOMIC_WARP + t->warp) &&
         !touch_is_ordered(t, x);
}
/* Shared memory's records add up the bytes over barriers, so there all of a word counts. */
TOUCH_INLINE bool touch_overlaps(const TouchSet *t, SimTouch x, uint32_t bytes) {
  return t->is_shared || (x & bytes) != 0;
}

/* `bytes`: which of the word's four. *other: the access that it clashes with. */
TOUCH_INLINE Clash touch_read_clash(const TouchSet *t, int64_t word, uint64_t thread,
                                    uint32_t bytes, SimTouch *other) {
  SimTouch x = *other = t->writer[word];
  uint64_t who = touch_thread(x);
  if (t->is_shared && who == TOUCH_ASYNC && touch_same_owner(t, x)) return CLASH_ASYNC;
  if (t->is_shared && (!touch_same_owner(t, x) || (x & bytes) != bytes)) return CLASH_UNWRITTEN;
  if (!touch_same_launch(t, x) || !touch_overlaps(t, x, bytes)) return CLASH_NONE;
  if (t->is_constant) return CLASH_CONSTANT;
  if (!touch_same_owner(t, x)) return CLASH_WRITE;
  return touch_same_epoch(t, x) && touch_is_other(t, x, thread) ? CLASH_WRITE : CLASH_NONE;
}

TOUCH_INLINE Clash touch_write_clash(const TouchSet *t, int64_t word, uint64_t thread,
                                     uint32_t bytes, bool is_atomic, SimTouch *other) {
  SimTouch x = *other = t->writer[word];
  uint64_t who = touch_thread(x);
  bool are_atomic = is_atomic && touch_is_atomic(who);
  /* what another block left in shared memory is no access of this one */
  if (touch_same_launch(t, x) && (!t->is_shared || touch_same_owner(t, x)) && !are_atomic) {
    bool same_owner = touch_same_owner(t, x);
    if (!same_owner && touch_overlaps(t, x, bytes)) return CLASH_WRITE;
    if (same_owner && who == TOUCH_ASYNC) return CLASH_ASYNC;
    bool is_whole = !t->is_shared || bytes == 15;
    if (same_owner && touch_same_epoch(t, x) && is_whole && touch_overlaps(t, x, bytes) &&
        touch_is_other(t, x, thread))
      return CLASH_WRITE;
  }
  x = *other = t->reader[word];
  who = touch_thread(x);
  if (!touch_same_launch(t, x) || (t->is_shared && !touch_same_owner(t, x))) return CLASH_NONE;
  if (t->is_shared && who == TOUCH_ASYNC) return CLASH_STORED;
  if (!t->is_shared && x & TOUCH_CONSTANT && bytes == 15) return CLASH_CONSTANT;
  if (!touch_same_owner(t, x) || (!t->is_shared && who == TOUCH_BLOCKS_READ))
    return bytes == 15 ? CLASH_READ : CLASH_NONE;
  if (touch_same_epoch(t, x) && who != thread && bytes == 15 && !touch_is_ordered(t, x))
    return CLASH_READ;
  return CLASH_NONE;
}

/* Global memory: a record of bytes begins anew with every owner, barrier and bar.warp.sync. */
TOUCH_INLINE void touch_write(const TouchSet *t, int64_t word, uint64_t thread, uint32_t bytes,
                              bool is_atomic) {
  SimTouch x = t->writer[word];
  uint64_t was = touch_thread(x), who = thread, of_warp = (uint64_t)(TOUCH_ATOMIC_WARP + t->warp);
  bool goes_on = touch_same_epoch(t, x) && !touch_is_ordered(t, x);
  uint64_t before = (t->is_shared ? touch_same_owner(t, x) : goes_on) ? x & 15 : 0;
  if (is_atomic)
    who = goes_on && touch_is_atomic(was) && was != of_warp ? (uint64_t)TOUCH_ATOMIC : of_warp;
  else if (bytes != 15 && (t->is_shared || (goes_on && was != thread)))
    who = TOUCH_PARTIAL;
  t->writer[word] = t->now | who << TOUCH_THREAD | before | bytes;
}
#endif
