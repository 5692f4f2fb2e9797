/* attention_wgmma_forward_ptx: attention of f16 or bf16 on Hopper's tensor cores, in the manner of
 * FlashAttention-3 (Shah et al. 2024). A block has 64 queries for each of its warpgroups but the
 * last; that one brings tiles of keys and of values, in a ring of places each of which has two
 * mbarriers: `full`, at which it says that a tile has come, and `free`, at which the others say
 * that they have read it. Nothing else holds the warpgroups together, so one makes exponentials
 * while another multiplies. */
#define ELEMENT unsigned short
#include "kernels/attention_wgmma.h"
#include "kernels/attention_softmax.h"

int attention_stages(void);

/* ── shared memory: queries; places for tiles, keys and values in turn; two mbarriers of each, and
 * one for each warpgroup that multiplies ─────────────────────────────────────────────────────── */

enum { KEYS, VALUES, STRIP = 32 /* rows that are brought with few registers */ };

ALWAYS int place_of(int which, int t) { return t % attention_stages() * 2 + which; }
ALWAYS Panel tile_panel(Panel memory, int which, int t) {
  return memory + (block_rows() + place_of(which, t) * attention_tile()) * attention_width();
}
ALWAYS Mbarrier mbarriers(Panel memory) {
  return (Mbarrier)(memory +
                    (block_rows() + 2 * attention_stages() * attention_tile()) * attention_width());
}
ALWAYS Mbarrier full(Panel memory, int which, int t) {
  return mbarriers(memory) + 2 * place_of(which, t);
}
ALWAYS Mbarrier empty(Panel memory, int which, int t) { return full(memory, which, t) + 1; }
ALWAYS Mbarrier turn(Panel memory, int group) {
  return mbarriers(memory) + 4 * attention_stages() + group;
}
/* Of the phase of its place's mbarriers that tile t is. */
ALWAYS int parity(int t) { return t / attention_stages() % 2; }

ALWAYS void open_mbarriers(Panel memory, int thread) {
  if (thread == 0) {
#pragma clang loop unroll(full)
    for (int i = 0; i < 2 * attention_stages(); i++) {
      mbarrier_open(mbarriers(memory) + 2 * i, GROUP_THREADS / 2 / 32);
      mbarrier_open(mbarriers(memory) + 2 * i + 1, attention_warps());
    }
#pragma clang loop unroll(full)
    for (int group = 0; group < groups_of_rows(); group++)
      mbarrier_open(turn(memory, group), GROUP_THREADS / 32);
  }
  __nvvm_bar_sync(0);
}

/* One arrival for the warp, after what all its lanes did. */
ALWAYS void warp_arrives(Mbarrier at, int lane) {
  __nvvm_bar_warp_sync(0xffffffffu);
  if (lane == 0) mbarrier_arrive(at);
}

/* ── the warpgroup that brings tiles: half of it keys, the other values ──────────────────────── */

ALWAYS void bring_tiles(const Here *w, Panel memory, int count) {
  int threads = GROUP_THREADS / 2, which = w->thread / threads % 2;
  Rows from = which == KEYS ? rows_of_key(w->args, w->batch, w->group)
                            : rows_of_value(w->args, w->batch, w->group);
#pragma clang loop unroll(disable)
  for (int t = 0; t < count; t++) {
    if (t >= attention_stages()) mbarrier_wait(empty(memory, which, t), !parity(t));
#pragma clang loop unroll(disable)
    for (int row = 0; row < attention_tile(); row += STRIP)
      bring_part(tile_panel(memory, which, t) + row * LINE, attention_tile(), from,
                 t * attention_tile() + row, attention_keys(), STRIP, w->thread % threads, threads);
    __nvvm_cp_async_commit_group();
    __nvvm_cp_async_wait_group(0);
    show_to_wgmma();
    warp_arrives(full(memory, which, t), w->lane);
  }
}

/* ── those that multiply ─────────────────────────────────────────────────────────────────────── */

ALWAYS Panel await_tile(Panel memory, int which, int t) {
  mbarrier_wait(full(memory, which, t), parity(t));
  return tile_panel(memory, which, t);
}
ALWAYS void leave_tile(Panel memory, int which, int t, int lane) {
  warp_arrives(empty(memory, which, t), lane);
}

/* Warpgroups take turns in giving products to the tensor cores: while one makes exponentials, these
 * have another's. Turn t of the first one comes after turn t - 1 of the last. */
ALWAYS void await_turn(Panel memory, int group, int t) {
  if (group == 0) t--;
  if (t >= 0) mbarrier_wait(turn(memory, group), t % 2);
}
ALWAYS void pass_turn(Panel memory, int group, int lane) {
  warp_arrives(turn(memory, group + 1 == groups_of_rows() ? 0 : group + 1), lane);
}

ALWAYS void bring_queries(const Here *w, Panel memory, int group) {
  int first = group * GROUP_ROWS;
  bring_part(memory + first * LINE, block_rows(), rows_of_query(w->args, w->batch, w->head),
             w->first + first, attention_queries(), GROUP_ROWS, w->thread % GROUP_THREADS,
             GROUP_THREADS);
  __nvvm_cp_async_commit_group();
  __nvvm_cp_async_wait_group(0);
  show_to_wgmma();
  group_barrier(group);
}

ALWAYS void begin_scores(float s[MAX_ROWS][MAX_COLUMNS], Panel memory, int group, int t) {
  Panel keys = await_tile(memory, KEYS, t);
  wgmma_begin();
  multiply(s, memory, keys, group);
  wgmma_commit();
}
ALWAYS void begin_sums(Forward *f, Weights *weights, Panel values) {
  hold(f->out, features_each());
  hold_weights(weights);
  wgmma_begin();
  accumulate(f->out, weights, values);
  wgmma_commit();
}
ALWAYS void end_sums(Forward *f, Weights *weights) {
  wgmma_wait(0);
  hold(f->out, features_each());
  hold_weights(weights);
}

/* The scores of a tile become weights while those of the tile before it are multiplied. */
ALWAYS void attend_to(const Here *w, Panel memory, int group, int count, Forward *f) {
  float s[MAX_ROWS][MAX_COLUMNS], correction[MAX_ROWS];
  Weights weights;
  begin_scores(s, memory, group, 0);
  wgmma_wait(0);
  hold(s, columns_each());
  leave_tile(memory, KEYS, 0, w->lane);
  hide(w, s, 0, 0);
  weigh(f, s, correction);
  turn_weights(&weights, s);
  Panel values = await_tile(memory, VALUES, 0);
#pragma clang loop unroll(disable)
  for (int t = 1; t < count; t++) {
    await_turn(memory, group, t - 1);
    begin_scores(s, memory, group, t);
    begin_sums(f, &weights, values);
    pass_turn(memory, group, w->lane);
    wgmma_wait(1);
    hold(s, columns_each());
    leave_tile(memory, KEYS, t, w->lane);
    hide(w, s, t * attention_tile(), 0);
    weigh(f, s, correction);
    hold(s, columns_each());
    values = await_tile(memory, VALUES, t); /* a loop, over which ptxas moves no waiting */
    end_sums(f, &weights);
    leave_tile(memory, VALUES, t - 1, w->lane);
    correct(f, correction);
    turn_weights(&weights, s);
  }
  begin_sums(f, &weights, values);
  end_sums(f, &weights);
  leave_tile(memory, VALUES, count - 1, w->lane);
}

/* A tile that only other warpgroups see. */
ALWAYS void pass_tile(const Here *w, Panel memory, int group, int t) {
  if (t) {
    await_turn(memory, group, t - 1);
    pass_turn(memory, group, w->lane);
  }
#pragma clang loop unroll(full)
  for (int which = KEYS; which <= VALUES; which++) {
    await_tile(memory, which, t);
    leave_tile(memory, which, t, w->lane);
  }
}

ALWAYS void attend(const Here *w, Panel memory, int count) {
  int group = w->warp / 4, own = tiles_seen(w->first + (group + 1) * GROUP_ROWS);
  Forward f;
  begin_forward(&f);
  bring_queries(w, memory, group);
  if (own) attend_to(w, memory, group, own, &f);
#pragma clang loop unroll(disable)
  for (int t = own; t < count; t++) pass_tile(w, memory, group, t);
  group_barrier(group); /* all of its queries have been read */
  finish_forward(w, &f, memory);
}

/* Registers go from who brings to who multiplies: all of a multiprocessor's 65536 are the block's.
 */
ALWAYS void take_registers(void) {
  if (groups_of_rows() == 3)
    __asm__ volatile("setmaxnreg.inc.sync.aligned.u32 160;");
  else
    __asm__ volatile("setmaxnreg.inc.sync.aligned.u32 232;");
}
ALWAYS void give_registers(void) {
  if (groups_of_rows() == 3)
    __asm__ volatile("setmaxnreg.dec.sync.aligned.u32 32;");
  else
    __asm__ volatile("setmaxnreg.dec.sync.aligned.u32 40;");
}

__attribute__((always_inline)) void attention_forward(void *const *args, SHARED void *shared,
                                                      int block, int head, int batch, int thread) {
  Panel memory = (Panel)shared;
  Here w = here_of_queries(args, block, head, batch, thread);
  int count = tiles_of_keys(&w);
  open_mbarriers(memory, thread);
  if (w.warp < attention_warps()) {
    take_registers();
    attend(&w, memory, count);
  } else {
    give_registers();
    bring_tiles(&w, memory, count);
  }
}
