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

enum { IN_FLIGHT = 2 }; /* tiles that are fetched before the first of them is waited for */

/* ── shared memory: queries; places for tiles, keys and values in turn; two mbarriers of each ── */

ALWAYS int ring(void) { return 2 * attention_stages(); }
ALWAYS Panel tile_panel(Panel memory, int place) {
  return memory + (block_rows() + place * attention_tile()) * attention_width();
}
ALWAYS Mbarrier full(Panel memory, int place) {
  return (Mbarrier)tile_panel(memory, ring()) + 2 * place;
}
ALWAYS Mbarrier empty(Panel memory, int place) { return full(memory, place) + 1; }

/* Number t of the tiles that come, keys before values, has place t modulo the ring; so many tiles
 * had it before: */
ALWAYS int turn_of(int t) { return t / ring(); }

ALWAYS void open_ring(Panel memory, int thread) {
  if (thread == 0)
#pragma clang loop unroll(full)
    for (int place = 0; place < ring(); place++) {
      mbarrier_open(full(memory, place), GROUP_THREADS / 32);
      mbarrier_open(empty(memory, place), attention_warps());
    }
  __nvvm_bar_sync(0);
}

/* ── the warpgroup that brings tiles ─────────────────────────────────────────────────────────── */

/* One arrival for the warp, after what all its lanes did. */
ALWAYS void warp_arrives(Mbarrier at, int lane) {
  __nvvm_bar_warp_sync(0xffffffffu);
  if (lane == 0) mbarrier_arrive(at);
}

ALWAYS void publish(Panel memory, int t, int lane) {
  show_to_wgmma();
  warp_arrives(full(memory, t % ring()), lane);
}

ALWAYS void bring_tiles(const Here *w, Panel memory, int count) {
  int thread = w->thread % GROUP_THREADS;
  Rows keys = rows_of_key(w->args, w->batch, w->group);
  Rows values = rows_of_value(w->args, w->batch, w->group);
#pragma clang loop unroll(disable)
  for (int t = 0; t < 2 * count; t++) {
    if (t >= ring()) mbarrier_wait(empty(memory, t % ring()), (turn_of(t) - 1) % 2);
    bring(tile_panel(memory, t % ring()), t % 2 ? values : keys, t / 2 * attention_tile(),
          attention_keys(), attention_tile(), thread);
    __nvvm_cp_async_commit_group();
    if (t < IN_FLIGHT) continue;
    __nvvm_cp_async_wait_group(IN_FLIGHT);
    publish(memory, t - IN_FLIGHT, w->lane);
  }
  __nvvm_cp_async_wait_group(0);
  for (int t = 2 * count < IN_FLIGHT ? 0 : 2 * count - IN_FLIGHT; t < 2 * count; t++)
    publish(memory, t, w->lane);
}

/* ── those that multiply ─────────────────────────────────────────────────────────────────────── */

ALWAYS Panel await_tile(Panel memory, int t) {
  mbarrier_wait(full(memory, t % ring()), turn_of(t) % 2);
  return tile_panel(memory, t % ring());
}
ALWAYS void leave_tile(Panel memory, int t, int lane) {
  warp_arrives(empty(memory, t % ring()), lane);
}

ALWAYS void bring_queries(const Here *w, Panel memory, int group) {
  int first = group * GROUP_ROWS;
  bring_part(memory + first * LINE, block_rows(), rows_of_query(w->args, w->batch, w->head),
             w->first + first, attention_queries(), GROUP_ROWS, w->thread % GROUP_THREADS);
  __nvvm_cp_async_commit_group();
  __nvvm_cp_async_wait_group(0);
  show_to_wgmma();
  group_barrier(group);
}

ALWAYS void attend(const Here *w, Panel memory, int count) {
  int group = w->warp / 4;
  Forward f;
  begin_forward(&f);
  bring_queries(w, memory, group);
#pragma clang loop unroll(disable)
  for (int t = 0; t < count; t++) {
    float s[MAX_ROWS][MAX_COLUMNS], correction[MAX_ROWS];
    Weights weights;
    Panel keys = await_tile(memory, 2 * t);
    wgmma_begin();
    multiply(s, memory, keys, group);
    wgmma_commit();
    wgmma_wait(0);
    hold(s, columns_each());
    leave_tile(memory, 2 * t, w->lane);
    hide(w, s, t * attention_tile(), 0);
    weigh(&f, s, correction);
    correct(&f, correction);
    turn_weights(&weights, s);
    Panel values = await_tile(memory, 2 * t + 1);
    hold(f.out, features_each());
    hold_weights(&weights);
    wgmma_begin();
    accumulate(f.out, &weights, values);
    wgmma_commit();
    wgmma_wait(0);
    hold(f.out, features_each());
    hold_weights(&weights);
    leave_tile(memory, 2 * t + 1, w->lane);
  }
  group_barrier(group); /* all of its queries have been read */
  finish_forward(w, &f, memory);
}

__attribute__((always_inline)) void attention_forward(void *const *args, SHARED void *shared,
                                                      int block, int head, int batch, int thread) {
  Panel memory = (Panel)shared;
  Here w = here_of_queries(args, block, head, batch, thread);
  int count = tiles_of_keys(&w);
  open_ring(memory, thread);
  if (w.warp < attention_warps())
    attend(&w, memory, count);
  else
    bring_tiles(&w, memory, count);
}
