/* sim_schedule: in which order the warps of a block run. Without a seed each in turn, until it ends
 * or comes to a barrier. With one (sim_machine_seed) as a GPU might: warps in any order and at any
 * pace, stopped between accesses to shared memory, at barriers and mbarriers; barriers of some of
 * the threads open at once; bulk copies arrive early or late. The order follows from the seed, the
 * launch and the block alone. Either way one thread of the host runs a block. */
#include "plan/waits.h"
#include "runtime/device/sim/sim_clock.h"
#include "runtime/device/sim/sim_mbarrier.h"
#include "runtime/device/sim/sim_path.h"
#include <string.h>

/* ── chance ───────────────────────────────────────────────────────────────────────────────── */
uint64_t sim_random(uint64_t *state) {
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 (Steele et al. 2014) */
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}
static uint32_t below(SimCta *cta, uint32_t count) {
  return (uint32_t)(sim_random(&cta->random) % count);
}

/* ── barriers ─────────────────────────────────────────────────────────────────────────────── */
/* Threads that wait at barrier `id`; *at: the instruction of the first, *differs: of another. */
static int64_t arrived(const SimCta *cta, int id, const SimWarp **first, const SimWarp **differs) {
  int64_t threads = cta->barrier[id].arrived;
  *first = *differs = NULL;
  for (int i = 0; i < cta->run->warps; i++) {
    const SimWarp *w = &cta->warps[i];
    if (w->state != WARP_WAITS || w->barrier != id) continue;
    threads += __builtin_popcount(w->all);
    if (!*first) *first = w;
    if (w->at != (*first)->at) *differs = w;
  }
  return threads;
}

static void release(SimCta *cta, int id, bool is_whole) {
  if (cta->epoch < TOUCH_EPOCHS - 1) cta->epoch++;
  if (cta->clock) sim_clock_barrier(cta, id);
  if (cta->warps->path) sim_path_barrier(cta, id);
  cta->barrier[id] = (SimBarrier){0};
  for (int i = 0; i < cta->run->warps; i++) {
    SimWarp *w = &cta->warps[i];
    if (is_whole) w->sync = 0;
    if (w->state == WARP_WAITS && w->barrier == id) w->state = WARP_RUNS;
  }
}

int64_t sim_barrier_settle(SimCta *cta, int id) {
  const SimWarp *first, *differs;
  int64_t threads = arrived(cta, id, &first, &differs), wanted = first ? first->barrier_threads : cta->barrier[id].threads;
  if (!wanted || wanted != threads) return wanted;
  release(cta, id, false);
  cta->progress++;
  return 0;
}

void sim_barrier_arrive(SimWarp *w) {
  SimCta *cta = w->cta;
  SimBarrier *barrier = &cta->barrier[w->barrier];
  barrier->threads = w->barrier_threads;
  barrier->arrived += __builtin_popcount(w->all);
  if (cta->clock) sim_clock_arrive(w);
  if (w->path) sim_path_barrier_arrive(w);
}

typedef enum { OPENED, NONE_OPENS, BARRIER_FAULT } Opening;

/* Opens a barrier that everybody it waits for has reached. */
static Opening open_barrier(SimCta *cta) {
  int waiting = 0;
  for (int i = 0; i < cta->run->warps; i++)
    waiting += cta->warps[i].state == WARP_WAITS || cta->warps[i].state == WARP_RUNS;
  for (int id = 0; id < 16; id++) {
    const SimWarp *first, *differs;
    int64_t threads = arrived(cta, id, &first, &differs);
    if (!first || (first->barrier_threads && threads != first->barrier_threads)) continue;
    int here = 0;
    for (int i = 0; i < cta->run->warps; i++)
      here += cta->warps[i].state == WARP_WAITS && cta->warps[i].barrier == id;
    if (!first->barrier_threads && here != waiting) continue;
    if (differs && !first->barrier_threads) {
      sim_fault((SimWarp *)(uintptr_t)first, first->at - 1,
                "divergent barrier: warp %d waits here, warp %d at line %d", first->index,
                differs->index, differs->at[-1].line);
      return BARRIER_FAULT;
    }
    release(cta, id, here == waiting);
    return OPENED;
  }
  return NONE_OPENS;
}

/* No warp can go on, and no barrier opens. */
static void fault_stuck(SimCta *cta) {
  SimWarp *some = NULL, *polls = NULL;
  for (int i = 0; i < cta->run->warps; i++) {
    SimWarp *w = &cta->warps[i];
    if (w->state == WARP_RUNS) polls = w;
    if (!some && w->state == WARP_WAITS) some = w;
  }
  if (polls && polls->at->code == SIM_registers)
    sim_fault(polls, polls->at,
              "endless wait: warp %d waits at setmaxnreg.inc for %lld registers a thread, and the "
              "others leave it %lld",
              polls->index, (long long)polls->at->imm,
              (long long)(polls->registers + cta->free_registers / SIM_LANES));
  else if (polls && polls->at->code == SIM_cluster)
    sim_fault(polls, polls->at,
              "endless wait: warp %d waits at the cluster's barrier, where others never arrive",
              polls->index);
  else if (polls)
    sim_fault(polls, polls->at,
              "endless wait: warp %d waits for a phase of an mbarrier that nobody can end",
              polls->index);
  else
    sim_fault(some, some->at - 1,
              "divergent barrier: the block's warps wait at different barriers");
}

/* No warp can go on: from now on polls of mbarriers fail, if their kernel counts them. */
static bool fail_polls(SimCta *cta) {
  int64_t bytes;
  if (cta->polls_fail || !sim_module_variable(cta->run->kernel->module, WAITS_VARIABLE, &bytes))
    return false;
  for (int i = 0; i < cta->run->warps && !cta->polls_fail; i++)
    cta->polls_fail = cta->warps[i].state == WARP_RUNS && cta->warps[i].at->code == SIM_mbar;
  return cta->polls_fail;
}

/* ── one warp ─────────────────────────────────────────────────────────────────────────────── */
/* False, with a finding: the instruction touches a register that a wgmma in flight still uses. */
static bool registers_are_free(SimWarp *w, const SimInst *in) {
  int used = in->defs | in->uses;
  if (in->code == SIM_wgmma || in->code == SIM_block || in->code == SIM_end) return true;
  for (int i = 0; i < SIM_ARGS; i++) {
    if (!(used >> i & 1) || in->arg[i] & 1) continue;
    uint8_t *place = &w->places[in->arg[i] / (SIM_LANES * 4)];
    bool is_def = in->defs >> i & 1;
    if (*place & PLACE_WRITTEN || (is_def && *place & PLACE_READ)) {
      sim_fault(w, in, "unfinished wgmma: a register that it %s is %s before wgmma.wait_group",
                *place & PLACE_WRITTEN ? "sums into" : "multiplies", is_def ? "written" : "read");
      return false;
    }
    if (is_def && *place & PLACE_SUM) w->is_fenced = false;
  }
  return in->code != SIM_guard && in[1].code != SIM_data ? true : registers_are_free(w, in + 1);
}

/* Instructions before which a warp may have to give way: others could see the difference. */
static bool is_visible(const SimInst *in) {
  switch (in->code == SIM_guard ? in[1].code : in->code) {
  case SIM_ld:
  case SIM_st:
    return (in->code == SIM_guard ? in[1].space : in->space) == SPACE_SHARED;
  case SIM_ld_generic:
  case SIM_st_generic:
  case SIM_atom:
  case SIM_ldmatrix:
  case SIM_stmatrix:
  case SIM_cp_async:
  case SIM_cp_wait:
  case SIM_bar_warp:
  case SIM_bar_arrive:
  case SIM_proxy:
  case SIM_wgmma:
  case SIM_wgmma_wait:
  case SIM_registers:
  case SIM_cluster:
  case SIM_mbar:
  case SIM_bulk:
  case SIM_tensor:
  case SIM_tensor_store:
  case SIM_bulk_store:
  case SIM_bulk_wait:
    return true;
  default:
    return false;
  }
}

/* True: it was stopped although it could go on. */
static bool run_by_chance(SimWarp *w) {
  const SimInst *in = w->at;
  uint32_t pace = 1 + below(w->cta, 24); /* of so many visible instructions one stops it */
  while (in) {
    if (w->places && !registers_are_free(w, in)) return false;
    if (is_visible(in) && !below(w->cta, pace)) {
      w->at = in;
      return true;
    }
    in = in->op(w, in);
  }
  return false;
}

/* The same with cycles. */
static void run_timed(SimWarp *w) {
  const SimInst *in = w->at;
  while (in) {
    if (w->places && !registers_are_free(w, in)) return;
    sim_path_issue(w, in);
    const SimInst *next = in->op(w, in);
    sim_path_done(w, in, next);
    in = next;
  }
}

static void run_warp(SimWarp *w) {
  const SimInst *in = w->at;
  if (w->path) {
    run_timed(w);
    return;
  }
  if (!w->cta->run->kernel->is_hopper) {
    while (in) in = in->op(w, in);
    return;
  }
  while (in) {
    if (w->places && !registers_are_free(w, in)) return;
    in = in->op(w, in);
  }
}

/* ── all of them ──────────────────────────────────────────────────────────────────────────── */
typedef struct {
  int done;
  bool moves; /* another round is due, before anybody is stuck */
  bool has_fault;
} Round;

static Round run_in_turn(SimCta *cta) {
  Round round = {0};
  int64_t progress = cta->progress;
  bool is_polling = false;
  for (int i = 0; i < cta->run->warps; i++) {
    SimWarp *w = &cta->warps[i];
    if (w->state == WARP_RUNS) {
      w->is_polling = false;
      run_warp(w);
      is_polling |= w->is_polling;
    }
    if (w->state == WARP_FAULT) return (Round){.has_fault = true};
    round.done += w->state == WARP_DONE;
  }
  round.moves = is_polling && cta->progress != progress;
  return round;
}

/* Copies under way arrive, in any order: one or none or all, or if no warp can go on at least
 * one. True: one has. */
static bool arrive_by_chance(SimCta *cta, bool is_urgent) {
  bool has_arrived = false;
  for (int left = cta->bulk_count; left > 0; left--) {
    SimBulk *copy = &cta->bulk[left - 1];
    if (copy->has_arrived || (below(cta, 3) && !is_urgent)) continue;
    if (copy->is_store)
      sim_bulk_store(cta, copy);
    else
      sim_bulk_arrive(cta, copy);
    has_arrived = true;
    is_urgent = false;
  }
  return has_arrived;
}

/* Each of the warps in any order, or not now; some are slow for many rounds. */
static Round run_shuffled(SimCta *cta) {
  Round round = {0};
  int count = cta->run->warps, order[32];
  int64_t progress = cta->progress;
  if (!below(cta, 8)) cta->slow = (uint32_t)sim_random(&cta->random);
  for (int i = 0; i < count; i++) {
    int at = (int)below(cta, (uint32_t)i + 1);
    order[i] = order[at];
    order[at] = i;
  }
  for (int i = 0; i < count; i++) {
    SimWarp *w = &cta->warps[order[i]];
    if (w->state == WARP_RUNS && cta->slow >> order[i] & 1 && below(cta, 4)) {
      round.moves = true;
    } else if (w->state == WARP_RUNS) {
      w->is_polling = false;
      round.moves |= run_by_chance(w);
    }
    if (w->state == WARP_FAULT) return (Round){.has_fault = true};
    round.done += w->state == WARP_DONE;
    if (!below(cta, 4)) arrive_by_chance(cta, false);
  }
  if (round.done == count) return round;
  Opening opening = open_barrier(cta);
  round.has_fault = opening == BARRIER_FAULT;
  round.moves |= opening == OPENED || cta->progress != progress;
  if (!round.moves && !round.has_fault) round.moves = arrive_by_chance(cta, true);
  return round;
}

/* setmaxnreg is for whole warpgroups; copies are waited for; and other blocks of the cluster use its
 * memory no more. */
static void sim_check_end(SimCta *cta) {
  for (int i = 0; i < cta->run->warps; i++) {
    SimWarp *w = &cta->warps[i], *first = &cta->warps[i / 4 * 4];
    if (w->register_sets == first->register_sets) continue;
    SimWarp *more = w->register_sets > first->register_sets ? w : first;
    sim_fault(more, more->register_set,
              "setmaxnreg by warp %d and not by warp %d of the same warpgroup", more->index,
              more == w ? first->index : w->index);
    return;
  }
  if (cta->bulk_count) {
    SimInst copy = {.line = cta->bulk[0].line};
    sim_fault(&cta->warps[0], &copy, "unfinished copy: the block ends and nobody waited for it");
    return;
  }
  int late = cta->run->cluster > 1 && cta->clock && sim_is_checked(cta->warps) ? sim_clock_unknown(cta) : -1;
  if (late >= 0)
    sim_fault(&cta->warps[0], &(SimInst){.line = cta->run->kernel->line},
              "block %d of the cluster may end before block %d has used its shared memory: nothing "
              "orders the two",
              cta->rank, late);
}

static void count_block(SimCta *cta) {
  for (int i = 0; i < cta->run->warps; i++) {
    cta->counts.instructions += cta->warps[i].steps;
    cta->counts.thread_instructions += cta->warps[i].thread_steps;
  }
  cta->counts.warps += cta->run->warps;
  cta->counts.blocks++;
  if (cta->warps->path) sim_path_end(cta);
}

/* One round of a block's warps. False: a finding. */
static bool cta_round(SimCta *cta, bool *moves) {
  Round round = cta->random ? run_shuffled(cta) : run_in_turn(cta);
  if (round.has_fault) return false;
  if (round.done == cta->run->warps) {
    cta->has_ended = *moves = true;
    sim_check_end(cta);
    return cta->failed_block < 0;
  }
  *moves |= round.moves;
  if (round.moves) return true;
  Opening opening = open_barrier(cta);
  *moves |= opening == OPENED;
  return opening != BARRIER_FAULT;
}

static int64_t all_progress(const SimCta *first) {
  int64_t sum = 0;
  for (int i = 0; i < first->run->cluster; i++) sum += first->peer[i]->progress;
  return sum;
}

/* The block that did not end although no block goes on. */
static bool give_up(SimCta *first, int count) {
  for (int i = 0; i < count; i++)
    if (!first->peer[i]->has_ended && fail_polls(first->peer[i])) return false;
  for (int i = 0; i < count; i++)
    if (!first->peer[i]->has_ended) {
      fault_stuck(first->peer[i]);
      return true;
    }
  return true;
}

/* What the blocks counted, and the finding of one, become the first one's. */
static void close_cluster(SimCta *first, int count) {
  for (int i = 0; i < count; i++) {
    SimCta *cta = first->peer[i];
    if (first->failed_block < 0 && cta->failed_block < 0) count_block(cta);
    if (i) sim_count_add(&first->counts, &cta->counts);
    if (i) memset(&cta->counts, 0, sizeof cta->counts);
    if (!i || cta->failed_block < 0 || first->failed_block >= 0) continue;
    memcpy(first->fault, cta->fault, sizeof first->fault);
    first->fault_line = cta->fault_line;
    first->failed_block = cta->failed_block;
  }
}

void sim_cta_run(SimCta *first, int64_t block) {
  int count = first->run->cluster, left = count;
  for (int i = 0; i < count; i++)
    if (!sim_cta_begin(first->peer[i], block + i)) {
      first->out_of_memory = true;
      return;
    }
  for (bool is_good = true; left && is_good;) {
    int64_t progress = all_progress(first);
    bool moves = false;
    left = 0;
    for (int i = 0; i < count && is_good; i++) {
      SimCta *cta = first->peer[i];
      if (!cta->has_ended) is_good = cta_round(cta, &moves);
      left += !cta->has_ended;
    }
    if (is_good && left && !moves && progress == all_progress(first))
      is_good = !give_up(first, count);
  }
  close_cluster(first, count);
}
