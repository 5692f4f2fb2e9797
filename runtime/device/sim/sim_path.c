/* sim_path: see sim_path.h. */
#include "runtime/device/sim/sim_path.h"
#include "runtime/device/sim/sim_cost.h"
#include <stdlib.h>
#include <string.h>

enum { PLACE = SIM_LANES * 4 /* bytes of a place of a register */, BARRIER_CYCLES = 16, CLUSTER_CYCLES = 180 /* a guess: a way to another multiprocessor and back */, WGMMA_CYCLES = 32, MMA_CYCLES = 18,
       ARRIVE_CYCLES = 12 };
/* 16-bit operations of the largest mma.sync (of 8-bit operands twice as many, in the same time), and of a wgmma's eight columns by each of its warps */
enum { MMA_WORK = 16 * 8 * 16 * 2, WGMMA_WORK = 16 * 8 * 16 * 2 };

/* ── memory ───────────────────────────────────────────────────────────────────────────────── */
void sim_path_free(SimPaths *paths) {
  if (!paths) return;
  free(paths->warp);
  free(paths->ready);
  free(paths);
}

static bool path_grow(SimPaths *paths, int warps, int64_t places) {
  if (warps > paths->warp_capacity) {
    free(paths->warp);
    paths->warp = malloc(sizeof *paths->warp * (size_t)warps);
    paths->warp_capacity = paths->warp ? warps : 0;
  }
  if (places * warps > paths->ready_capacity) {
    free(paths->ready);
    paths->ready = malloc(sizeof *paths->ready * (size_t)(places * warps));
    paths->ready_capacity = paths->ready ? places * warps : 0;
  }
  return paths->warp && paths->ready;
}

bool sim_path_begin(SimCta *cta) {
  const SimRun *run = cta->run;
  for (int i = 0; i < run->warps; i++) cta->warps[i].path = NULL;
  if (!run->launch->timing || !run->launch->counts) return true;
  if (!cta->paths && !(cta->paths = calloc(1, sizeof *cta->paths))) return false;
  int64_t places = run->kernel->register_bytes / PLACE + 2;
  if (!path_grow(cta->paths, run->warps, places)) return false;
  memset(cta->paths->warp, 0, sizeof *cta->paths->warp * (size_t)run->warps);
  memset(cta->paths->ready, 0, sizeof *cta->paths->ready * (size_t)(places * run->warps));
  memset(cta->paths->phase, 0, sizeof cta->paths->phase);
  for (int i = 0; i < run->warps; i++) {
    cta->warps[i].path = &cta->paths->warp[i];
    cta->warps[i].path->ready = cta->paths->ready + places * i;
  }
  return true;
}

/* ── stretches ────────────────────────────────────────────────────────────────────────────── */
static int64_t path_now(const SimPath *path) {
  int64_t now = path->start + path->slots;
  return now > path->latest ? now : path->latest;
}

/* Nothing behind begins before `cycle`. */
static void path_from(SimPath *path, int64_t cycle) {
  int64_t now = path_now(path);
  path->start = path->latest = cycle > now ? cycle : now;
  path->slots = path->stored = 0;
}

static int64_t operands_ready(const SimPath *path, const SimInst *in) {
  int64_t ready = path->start + path->slots;
  for (int used = in->uses; used; used &= used - 1) {
    int32_t arg = in->arg[__builtin_ctz((unsigned)used)];
    if (!(arg & 1) && path->ready[arg / PLACE] > ready) ready = path->ready[arg / PLACE];
  }
  return ready;
}

static void results_ready(SimPath *path, const SimInst *in, int64_t cycle) {
  for (int made = in->defs; made; made &= made - 1)
    path->ready[in->arg[__builtin_ctz((unsigned)made)] / PLACE] = cycle;
}

static bool is_global(const SimInst *in) {
  return (in->code == SIM_ld || in->code == SIM_st) ? in->space != SPACE_SHARED
                                                    : in->code == SIM_ld_generic || in->code == SIM_st_generic;
}

void sim_path_issue(SimWarp *w, const SimInst *in) {
  SimPath *path = w->path;
  SimPaths *paths = w->cta->paths;
  paths->wavefronts = 0;
  paths->is_missed = false;
  path->issue = operands_ready(path, in);
  if (in->code == SIM_data || in->code == SIM_guard) return;
  if (in->code == SIM_mma || in->code == SIM_mma_sparse) { /* other operands stand in the next ones; the pipe takes one at a time */
    for (int i = 1; i < (in->code == SIM_mma ? 2 : 3); i++) {
      int64_t more = operands_ready(path, in + i);
      if (more > path->issue) path->issue = more;
    }
    if (path->tensor > path->issue) path->issue = path->tensor;
  }
  bool may_pass = in->code == SIM_ld && in->mode; /* .nc: nobody writes there */
  if (is_global(in) && !in->is_store && !may_pass && path->stored > path->issue)
    path->issue = path->stored;
  paths->event = path->issue + ARRIVE_CYCLES;
}

/* ── what takes time ──────────────────────────────────────────────────────────────────────── */
int64_t sim_path_arrival(const SimWarp *w, uint32_t bytes) {
  const SimTiming *timing = w->cta->run->launch->timing;
  return w->path->issue + timing->memory_cycles + (int64_t)(bytes / timing->copied);
}

int64_t sim_path_stored(const SimWarp *w, uint32_t bytes) {
  const SimTiming *timing = w->cta->run->launch->timing;
  return w->path->issue + timing->shared_cycles + (int64_t)(bytes / timing->copied);
}
void sim_path_stored_until(SimWarp *w, int64_t cycle) { path_from(w->path, cycle); }

static int64_t load_cycles(const SimWarp *w, const SimInst *in) {
  const SimTiming *timing = w->cta->run->launch->timing;
  const SimPaths *paths = w->cta->paths;
  int more = paths->wavefronts > 1 ? paths->wavefronts - 1 : 0;
  if (in->code == SIM_ld_local) return timing->l1_cycles;
  if (paths->is_missed) return timing->memory_cycles + more;
  return (is_global(in) ? timing->l1_cycles : timing->shared_cycles) + more;
}

/* The tensor core takes the next when it has issued the last; the result is there later. */
static int64_t tensor_until(SimPath *path, double cycles) {
  int64_t begin = path->issue > path->tensor ? path->issue : path->tensor;
  path->tensor = begin + (int64_t)(cycles + 0.5);
  return path->tensor;
}

static void do_wgmma(SimWarp *w, const SimInst *in) {
  SimCounts *counts = &w->cta->counts;
  double work = (double)in->count * WGMMA_WORK; /* of 8-bit operands: of twice as many operations */
  counts->wgmma += (int64_t)work;
  counts->wavefronts += (in->count + 1) / 2 + (in->is_wide ? 0 : 4); /* a quarter of b, its rows of a */
  tensor_until(w->path, work / w->cta->run->launch->timing->wgmma);
}

static void do_mma(SimWarp *w, const SimInst *in) {
  bool is_deep = in->mode == MMA_F16_16816 || in->mode == MMA_BF16_16816 || in->mode == MMA_TF32_1688 ||
                 in->mode >= MMA_FLOAT8 || in->code == SIM_mma_sparse;
  int64_t work = is_deep ? MMA_WORK : MMA_WORK / 2;
  w->cta->counts.mma += work;
  int64_t until = tensor_until(w->path, (double)work / w->cta->run->launch->timing->mma);
  results_ready(w->path, in, until + MMA_CYCLES);
}

static int64_t group_until(const int64_t *group, int count, int64_t left) {
  int64_t last = count - left - 1;
  return last < 0 ? 0 : group[last % PATH_GROUPS];
}

/* What is beyond results in registers. */
static void beside(SimWarp *w, const SimInst *in) {
  SimPath *path = w->path;
  switch (in->code) {
  case SIM_ld:
  case SIM_ld_generic:
  case SIM_ld_local:
  case SIM_ldmatrix:
    results_ready(path, in, path->issue + load_cycles(w, in));
    break;
  case SIM_atom:
    results_ready(path, in,
                  path->issue + (in->space == SPACE_SHARED
                                     ? 2 * w->cta->run->launch->timing->shared_cycles
                                     : w->cta->run->launch->timing->memory_cycles));
    break;
  case SIM_st:
  case SIM_st_generic:
    if (is_global(in) && path->issue > path->stored) path->stored = path->issue;
    break;
  case SIM_shfl:
    w->cta->counts.wavefronts++;
    break;
  case SIM_cp_async: {
    int64_t arrives = path->issue + load_cycles(w, in) + w->cta->run->launch->timing->shared_cycles;
    if (arrives > path->copied) path->copied = arrives;
    break;
  }
  case SIM_cp_commit:
    path->copy_group[path->copy_groups++ % PATH_GROUPS] = path->copied;
    break;
  case SIM_cp_wait:
    path_from(path, in->mode ? path->copied
                             : group_until(path->copy_group, path->copy_groups, in->imm));
    break;
  case SIM_wgmma:
    do_wgmma(w, in);
    break;
  case SIM_wgmma_commit:
    path->tensor_group[path->tensor_groups++ % PATH_GROUPS] = path->tensor;
    break;
  case SIM_wgmma_wait:
    if (path->tensor_groups > in->imm)
      path_from(path, group_until(path->tensor_group, path->tensor_groups, in->imm) + WGMMA_CYCLES);
    break;
  case SIM_mma:
  case SIM_mma_sparse: /* twice the depth in the same time */
    do_mma(w, in);
    break;
  default:
    break;
  }
}

static void path_count(SimCounts *counts, const SimCost *cost) {
  int plain = cost->issued - cost->special;
  counts->issued += cost->issued;
  counts->special += cost->special;
  switch ((SimUnit)cost->unit) {
  case UNIT_F32: counts->f32 += plain; break;
  case UNIT_MULTIPLY: counts->multiply += plain; break;
  case UNIT_INTEGER: counts->integer += plain; break;
  case UNIT_SPECIAL: counts->special += plain; break;
  default: break;
  }
}

static void spend(SimWarp *w, const SimInst *in) {
  SimPath *path = w->path;
  const SimCost *cost = sim_cost(in->code);
  path_count(&w->cta->counts, cost);
  w->cta->counts.wavefronts += w->cta->paths->wavefronts;
  path->slots += cost->issued;
  if (path->issue > path->latest) path->latest = path->issue;
  if (in->defs) results_ready(path, in, path->issue + cost->cycles);
  beside(w, in);
}

void sim_path_done(SimWarp *w, const SimInst *in, const SimInst *next) {
  SimPath *path = w->path;
  if (w->state == WARP_FAULT || in->code == SIM_data) return;
  if (in->code == SIM_block) {
    path_from(path, 0);
    return;
  }
  if (in->code == SIM_guard) {
    if (next == in + 1) return; /* it runs as any other */
    int64_t guard = path->issue, own = operands_ready(path, in + 1);
    path->issue = guard > own ? guard : own;
    spend(w, in + 1);
    return;
  }
  if (!next && w->is_polling) return; /* it comes again */
  spend(w, in);
}

/* ── barriers ─────────────────────────────────────────────────────────────────────────────── */
void sim_path_barrier_arrive(SimWarp *w) {
  int64_t *last = &w->cta->barrier[w->barrier].last;
  if (w->path->issue > *last) *last = w->path->issue;
}

void sim_path_barrier(SimCta *cta, int id) {
  int64_t last = cta->barrier[id].last;
  for (int i = 0; i < cta->run->warps; i++) {
    const SimWarp *w = &cta->warps[i];
    int64_t now = path_now(w->path);
    if (w->state == WARP_WAITS && w->barrier == id && now > last) last = now;
  }
  for (int i = 0; i < cta->run->warps; i++) {
    SimWarp *w = &cta->warps[i];
    if (w->state == WARP_WAITS && w->barrier == id) path_from(w->path, last + BARRIER_CYCLES);
  }
}

/* Its row; a block with more mbarriers than there are rows shares them. */
static SimPhase *mbarrier_row(SimPaths *paths, uint32_t address) {
  uint32_t at = address / 8 % PATH_BARRIERS;
  for (int i = 0; i < PATH_BARRIERS; i++, at = (at + 1) % PATH_BARRIERS) {
    SimPhase *phase = &paths->phase[at];
    if (phase->is_used && phase->address != address) continue;
    phase->is_used = true;
    phase->address = address;
    return phase;
  }
  return &paths->phase[at];
}

void sim_path_arrive(SimCta *cta, uint32_t address, int ended) {
  SimPhase *phase = mbarrier_row(cta->paths, address);
  if (cta->paths->event > phase->pending) phase->pending = cta->paths->event;
  if (ended < 0) return;
  phase->ended[ended] = phase->pending;
  phase->pending = 0;
}

void sim_path_waited(SimWarp *w, uint32_t address, int phase) {
  path_from(w->path, mbarrier_row(w->cta->paths, address)->ended[phase]);
}

int64_t sim_path_cluster(const SimCta *cta) {
  int64_t last = 0;
  for (int b = 0; b < cta->run->cluster && cta->warps->path; b++)
    for (int i = 0; i < cta->run->warps; i++) {
      const SimWarp *w = &cta->peer[b]->warps[i];
      int64_t now = w->has_arrived ? path_now(w->path) : 0;
      if (now > last) last = now;
    }
  return last;
}

void sim_path_cluster_waited(SimWarp *w) {
  path_from(w->path, w->cta->cluster_over + CLUSTER_CYCLES);
}

void sim_path_end(SimCta *cta) {
  int64_t longest = 0;
  for (int i = 0; i < cta->run->warps; i++) {
    int64_t now = path_now(cta->warps[i].path);
    if (now > longest) longest = now;
  }
  cta->counts.path += longest;
  if (longest > cta->counts.longest_path) cta->counts.longest_path = longest;
}
