/* sim_fit: gives virtual registers places, so that a warp's registers stay in the first cache, and
 * links the code. Registers share a place if the stretches of code in which they live do not meet;
 * a stretch is from the first to the last instruction at which the register is live, loops
 * included. That is sound with divergent warps too: a lane alone is an ordinary program, and lanes
 * never write each other's part of a register. */
#define _GNU_SOURCE /* qsort_r */
#include "runtime/device/sim/sim_private.h"
#include <stdlib.h>
#include <string.h>

enum { NARROW = SIM_LANES * 4, WIDE = SIM_LANES * 8, MOST_WORK = 1 << 27, MOST_PASSES = 100 };

typedef struct {
  int begin, end; /* instructions; the first is a SIM_block */
  int next[2];    /* blocks, -1: none */
  uint64_t *live; /* at the beginning */
} Block;

typedef struct {
  SimModule *module;
  SimKernel *kernel;
  Arena *arena;
  Block *block;
  int block_count, words, registers;
  int *first, *last; /* of each register; -1: never */
  bool is_exact;     /* liveness was computed: not for huge kernels */
} Fit;

/* ── blocks ───────────────────────────────────────────────────────────────────────────────── */
static int target_of(const Fit *fit, const SimInst *inst) {
  if (inst->imm >= 0) return (int)inst->imm;
  return inst->imm == -1 ? fit->kernel->code.count - 2 : (int)(-2 - inst->imm);
}

static void find_blocks(Fit *fit) {
  const SimKernel *kernel = fit->kernel;
  int *of = ARENA_ARRAY(fit->arena, int, kernel->code.count + 1);
  for (int i = 0; i < kernel->code.count; i++)
    if (kernel->code.at[i].code == SIM_block) of[i] = fit->block_count++;
  fit->block = ARENA_ARRAY(fit->arena, Block, fit->block_count + 1);
  for (int i = 0, b = -1; i < kernel->code.count; i++) {
    const SimInst *inst = &kernel->code.at[i];
    if (inst->code == SIM_block) {
      b++;
      fit->block[b] = (Block){.begin = i, .next = {b + 1 < fit->block_count ? b + 1 : -1, -1}};
    }
    fit->block[b].end = i + 1;
    if (inst->code == SIM_bra) fit->block[b].next[0] = of[target_of(fit, inst)];
    if (inst->code == SIM_bra_if) fit->block[b].next[1] = of[target_of(fit, inst)];
    if (inst->code == SIM_end) fit->block[b].next[0] = -1;
  }
}

/* ── liveness ─────────────────────────────────────────────────────────────────────────────── */
static void fit_set(uint64_t *bits, int i) { bits[i >> 6] |= UINT64_C(1) << (i & 63); }
static void unset(uint64_t *bits, int i) { bits[i >> 6] &= ~(UINT64_C(1) << (i & 63)); }

static bool is_guarded(const SimInst *code, int index) {
  return index > 0 && code[index - 1].code == SIM_guard;
}

/* live: after the instruction -> before it. */
static void fit_step_back(const SimInst *code, int index, uint64_t *live) {
  const SimInst *inst = &code[index];
  for (int i = 0; i < SIM_ARGS; i++)
    if (inst->defs >> i & 1 && !is_guarded(code, index)) unset(live, inst->arg[i]);
  for (int i = 0; i < SIM_ARGS; i++)
    if (inst->uses >> i & 1 && inst->arg[i] >= 0) fit_set(live, inst->arg[i]);
}

static void live_after(const Fit *fit, const Block *block, uint64_t *live) {
  memset(live, 0, sizeof *live * (size_t)fit->words);
  for (int k = 0; k < 2; k++)
    for (int w = 0; block->next[k] >= 0 && w < fit->words; w++)
      live[w] |= fit->block[block->next[k]].live[w];
}

/* False if code goes round so wildly that it takes too long. */
static bool find_live(Fit *fit) {
  uint64_t *live = ARENA_ARRAY(fit->arena, uint64_t, fit->words + 1);
  for (int b = 0; b < fit->block_count; b++)
    fit->block[b].live = ARENA_ARRAY(fit->arena, uint64_t, fit->words + 1);
  int passes = 0;
  for (bool changed = true; changed; passes++) {
    if (passes == MOST_PASSES) return false;
    changed = false;
    for (int b = fit->block_count - 1; b >= 0; b--) {
      Block *block = &fit->block[b];
      live_after(fit, block, live);
      for (int i = block->end - 1; i >= block->begin; i--)
        fit_step_back(fit->kernel->code.at, i, live);
      if (!memcmp(live, block->live, sizeof *live * (size_t)fit->words)) continue;
      memcpy(block->live, live, sizeof *live * (size_t)fit->words);
      changed = true;
    }
  }
  return true;
}

static void extend(Fit *fit, int reg, int at) {
  if (fit->first[reg] < 0 || at < fit->first[reg]) fit->first[reg] = at;
  if (at > fit->last[reg]) fit->last[reg] = at;
}

static void extend_set(Fit *fit, const uint64_t *live, int at) {
  for (int w = 0; w < fit->words; w++)
    for (uint64_t rest = live[w]; rest; rest &= rest - 1)
      extend(fit, w * 64 + __builtin_ctzll(rest), at);
}

static int size_of(const Fit *fit, int reg) {
  uint8_t class = fit->kernel->classes.at[reg];
  return class == CLASS_PRED ? 0 : class == CLASS_64 ? 2 : 1;
}

static int pressure(const Fit *fit, const uint64_t *live) {
  int sum = 0;
  for (int w = 0; w < fit->words; w++)
    for (uint64_t rest = live[w]; rest; rest &= rest - 1)
      sum += size_of(fit, w * 64 + __builtin_ctzll(rest));
  return sum;
}

/* From where to where each register lives, and how many live at once at most. */
static void find_stretches(Fit *fit) {
  SimInst *code = fit->kernel->code.at;
  uint64_t *live = ARENA_ARRAY(fit->arena, uint64_t, fit->words + 1);
  for (int b = 0; b < fit->block_count; b++) {
    Block *block = &fit->block[b];
    if (fit->is_exact) {
      extend_set(fit, block->live, block->begin);
      live_after(fit, block, live);
      extend_set(fit, live, block->end);
    }
    int now = fit->is_exact ? pressure(fit, live) : 0;
    for (int i = block->end - 1; i >= block->begin; i--) {
      /* results of other than pointwise instructions must overwrite neither operands nor each
       * other */
      int after = code[i].code > SIM_mma ? i : i + 1;
      for (int k = 0; k < SIM_ARGS; k++) {
        if (code[i].defs >> k & 1)
          extend(fit, code[i].arg[k], i), extend(fit, code[i].arg[k], after);
        if (code[i].uses >> k & 1 && code[i].arg[k] >= 0)
          extend(fit, code[i].arg[k], i), extend(fit, code[i].arg[k], after);
      }
      if (!fit->is_exact) continue;
      fit_step_back(code, i, live);
      if (code[i].defs | code[i].uses) now = pressure(fit, live);
      if (now > fit->kernel->live_registers) fit->kernel->live_registers = now;
    }
  }
}

/* wgmma uses its registers until it is waited for, even if no later instruction reads them: they
 * share no place with other live ranges. */
static void keep_asynchronous(Fit *fit) {
  const SimKernel *kernel = fit->kernel;
  for (int i = 0; i < kernel->code.count && kernel->is_hopper; i++) {
    const SimInst *inst = &kernel->code.at[i];
    bool is_wgmma = inst->code == SIM_wgmma;
    for (int k = is_wgmma ? 4 : 0; k < SIM_ARGS && (is_wgmma || inst->code == SIM_data); k++) {
      int reg = inst->arg[k];
      if (!((inst->defs | inst->uses) >> k & 1) || reg < 0) continue;
      fit->first[reg] = 0;
      fit->last[reg] = kernel->code.count;
    }
  }
}

/* ── places ───────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  int *free;
  int free_count, made;
} Shelf;

static int by_key(const void *a, const void *b, void *context) {
  const int *keys = context;
  int x = *(const int *)a, y = *(const int *)b;
  return keys[x] != keys[y] ? (keys[x] > keys[y]) - (keys[x] < keys[y]) : x - y;
}

/* place[r]: the number of its place on its shelf (narrow, wide). */
static void share_places(Fit *fit, Shelf shelf[2], int *place) {
  int count = 0, ended = 0;
  int *by_first = ARENA_ARRAY(fit->arena, int, fit->registers + 1);
  int *by_last = ARENA_ARRAY(fit->arena, int, fit->registers + 1);
  int *release = ARENA_ARRAY(fit->arena, int, fit->registers + 1);
  for (int r = 0; r < fit->registers; r++) {
    if (fit->first[r] < 0) continue;
    release[r] = fit->last[r] + (fit->last[r] == fit->first[r]);
    by_first[count] = by_last[count] = r;
    count++;
  }
  qsort_r(by_first, (size_t)count, sizeof *by_first, by_key, fit->first);
  qsort_r(by_last, (size_t)count, sizeof *by_last, by_key, release);
  for (int i = 0; i < count; i++) {
    int reg = by_first[i];
    for (; ended < count && release[by_last[ended]] <= fit->first[reg]; ended++) {
      int gone = by_last[ended];
      Shelf *from = &shelf[fit->kernel->classes.at[gone] == CLASS_64];
      from->free[from->free_count++] = place[gone];
    }
    Shelf *to = &shelf[fit->kernel->classes.at[reg] == CLASS_64];
    place[reg] = to->free_count ? to->free[--to->free_count] : to->made++;
  }
}

static void give_places(Fit *fit) {
  SimKernel *kernel = fit->kernel;
  int *place = ARENA_ARRAY(fit->arena, int, fit->registers + 1);
  Shelf shelf[2] = {{.made = 1}, {.made = 0}}; /* unused args point to place 0 */
  for (int k = 0; k < 2; k++) shelf[k].free = ARENA_ARRAY(fit->arena, int, fit->registers + 1);
  share_places(fit, shelf, place);
  int64_t wide_at = (int64_t)shelf[0].made * NARROW;
  int *constant = ARENA_ARRAY(fit->arena, int, kernel->constants.count + 1), bytes = 0;
  for (int i = 0; i < kernel->constants.count; i++) {
    constant[i] = bytes;
    bytes += kernel->constants.at[i].is_wide ? WIDE : NARROW;
  }
  kernel->register_bytes = wide_at + (int64_t)shelf[1].made * WIDE;
  for (int r = 0; r < fit->registers; r++)
    place[r] = kernel->classes.at[r] == CLASS_64 ? (int)(wide_at + (int64_t)place[r] * WIDE)
                                                 : place[r] * NARROW;
  for (int i = 0; i < kernel->code.count; i++) {
    SimInst *inst = &kernel->code.at[i];
    int used = inst->code == SIM_block ? 0 : inst->defs | inst->uses;
    for (int k = 0; k < SIM_ARGS; k++)
      if (used >> k & 1)
        inst->arg[k] = inst->arg[k] >= 0 ? place[inst->arg[k]] : constant[-1 - inst->arg[k]] | 1;
  }
  for (int i = 0; i < SPECIAL_COUNT; i++)
    if (kernel->special[i] >= 0) kernel->special[i] = place[kernel->special[i]];
  kernel->constant_lanes = arena_alloc(fit->module->arena, (size_t)bytes + WIDE + 64);
  kernel->constant_lanes += -(uintptr_t)kernel->constant_lanes & 63;
  for (int i = 0; i < kernel->constants.count; i++)
    for (int l = 0; l < SIM_LANES; l++) {
      int size = kernel->constants.at[i].is_wide ? 8 : 4;
      memcpy(kernel->constant_lanes + constant[i] + l * size, &kernel->constants.at[i].bits,
             (size_t)size);
    }
}

/* ── linking ──────────────────────────────────────────────────────────────────────────────── */
static bool is_counted(int code) {
  return code != SIM_block && code != SIM_guard && code != SIM_data && code != SIM_end;
}

static void link_code(Fit *fit, const SimLanes *lanes) {
  SimKernel *kernel = fit->kernel;
  SimInst *block = NULL;
  int(*next)[2] = arena_alloc(fit->arena, sizeof(int[2]) * (size_t)(fit->block_count + 1));
  int *rank = ARENA_ARRAY(fit->arena, int, fit->block_count + 1), b = 0;
  for (int i = 0; i < fit->block_count; i++)
    for (int k = 0; k < 2; k++) next[i][k] = fit->block[i].next[k];
  sim_order(fit->arena, (const int(*)[2])next, fit->block_count, rank);
  for (int i = 0; i < kernel->code.count; i++) {
    SimInst *inst = &kernel->code.at[i];
    inst->op = lanes->op[inst->code];
    if (inst->code == SIM_block) {
      block = inst;
      block->arg[1] = rank[b++];
    }
    if (is_counted(inst->code)) block->arg[0]++;
    if (inst->code == SIM_bra || inst->code == SIM_bra_if)
      inst->target = &kernel->code.at[target_of(fit, inst)];
  }
}

static void fit_kernel(SimModule *module, SimKernel *kernel, const SimLanes *lanes) {
  Fit fit = {.module = module, .kernel = kernel, .arena = arena_new()};
  fit.registers = kernel->classes.count;
  fit.words = (fit.registers + 63) / 64;
  find_blocks(&fit);
  fit.first = ARENA_ARRAY(fit.arena, int, fit.registers + 1);
  fit.last = ARENA_ARRAY(fit.arena, int, fit.registers + 1);
  memset(fit.first, 0xff, sizeof(int) * (size_t)fit.registers);
  memset(fit.last, 0xff, sizeof(int) * (size_t)fit.registers);
  fit.is_exact = (int64_t)(fit.words + 1) * kernel->code.count < MOST_WORK && find_live(&fit);
  find_stretches(&fit);
  for (int r = 0; r < fit.registers && !fit.is_exact; r++)
    if (fit.first[r] >= 0) fit.first[r] = 0, fit.last[r] = kernel->code.count;
  keep_asynchronous(&fit);
  for (int i = 0; i < SPECIAL_COUNT; i++)
    if (kernel->special[i] >= 0) {
      fit.first[kernel->special[i]] = 0;
      fit.last[kernel->special[i]] = kernel->code.count;
    }
  give_places(&fit);
  link_code(&fit, lanes);
  arena_free(fit.arena);
}

void sim_fit(SimModule *module, const SimLanes *lanes) {
  for (int i = 0; i < module->kernels.count; i++) fit_kernel(module, module->kernels.at[i], lanes);
}
