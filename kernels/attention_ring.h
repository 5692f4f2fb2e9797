/* attention_ring: how a block of the wgmma kernels of attention works together, in the manner of
 * FlashAttention-3 (Shah et al. 2024). It stays on its multiprocessor and computes several items,
 * one after the other: 64 rows of a head for each of its warpgroups but the last. Those are the
 * consumers, which multiply; the last one is the producer, which loads tiles of columns, those of
 * the next item while the consumers end the one before. Tiles come in pairs, and each half of the producer loads one of a pair: keys and values,
 * or queries and dy. A tile goes to a place of a ring that has two mbarriers: the producer arrives
 * at `full` when the tile is loaded, and the consumers arrive at `empty` when they have read it.
 * Nothing else orders the warpgroups, so one computes exponentials while another multiplies. Where
 * their tensors have maps, one thread starts the copies of both tiles (TMA). The file that includes
 * this one defines what an item is: item_here, item_tiles, tile_place, numbers, load_tile,
 * load_rows, compute. */
#ifndef FT_KERNELS_ATTENTION_RING_H
#define FT_KERNELS_ATTENTION_RING_H
#include "kernels/attention_wgmma.h"

#include "kernels/attention_added.h"
#include "kernels/attention_tiles.h"

/* How many pairs of tiles the ring holds; how many panels an item's rows have, and for how many items there is room. */
int attention_stages(void), attention_row_panels(void), attention_places(void);
/* How many items there are, and blocks; how many heads, of all samples, have their items together.
 */
int attention_items(void), attention_blocks(void), attention_section(void);
/* Do the tensors that tiles are of have tensor maps? A map is of planes of rows; a box is a tile's rows, 64
 * elements wide. A head begins at element head * map_head of the rows of plane batch * map_planes,
 * or, where each head has a plane of its own (map_head 0), of plane batch * map_planes + head. */
int attention_maps(void), attention_map_head(void), attention_map_planes(void);
void *attention_first_map(void *const *args), *attention_second_map(void *const *args);

int attention_wait_polls(void), attention_wait_kernel(void); /* ftc --debug-waits: mbarrier.h */

enum { KEYS, VALUES };
enum { HALF_GROUP = GROUP_THREADS / 2, STRIP = 8 /* rows that are loaded with few registers */ };

/* The head and the first row of item `number`; how many pairs of tiles it needs. */
ALWAYS Here item_here(void *const *args, int number, int thread);
ALWAYS int item_tiles(const Here *w);
/* Where the item's pair t of tiles is: a head, and its first row. */
typedef struct {
  int head, row;
} TilePlace;
ALWAYS TilePlace tile_place(const Here *w, int t);
/* The numbers that go with each row of a tile, f32 [batch][heads][rows]; NULL: none. */
ALWAYS const void *numbers(const Here *w, int which);
/* Starts the copies of one tile of the item's pair t to its place, by cp.async of half a
 * warpgroup; and those of the rows of one consumer. */
ALWAYS void load_tile(const Here *w, Panel memory, int which, int t);
ALWAYS void load_rows(const Here *w, Panel memory);
/* A consumer's part of an item of `count` pairs of tiles, whose rows have been loaded. */
ALWAYS void compute(Here *w, Panel memory, int count);

/* ── items ───────────────────────────────────────────────────────────────────────────────────── */

/* A number of which the compiler does not know that it is the same in each turn of a loop: so what
 * is computed from it does not stay in registers over the loop. */
ALWAYS int afresh(int x) {
  __asm__ volatile("" : "+r"(x));
  __builtin_assume(x >= 0);
  return x;
}

/* Where attention is causal, items are in the order of their work, the longest of all heads first,
 * and blocks take them in turn, forwards and then backwards: all get about the same. A section's
 * heads are those whose keys and values stay in L2 meanwhile. Else an item is beside those that
 * read the same keys. */
typedef struct {
  int block, plane; /* of rows, in the order of work; of heads, batch * heads + head */
} Item;

/* Item `number`, where a head has `blocks`. */
ALWAYS Item item_at(int number, int blocks) {
  if (!attention_causal()) return (Item){number % blocks, number / blocks};
  int all = attention_items() / blocks;
  if (attention_section() == all) return (Item){number / all, number % all};
  int first = number / (blocks * attention_section()) * attention_section();
  int heads = smaller(attention_section(), all - first);
  number -= first * blocks;
  return (Item){number / heads, first + number % heads};
}
/* The block's item of turn `turn`: its number. */
ALWAYS int item_number(int turn, int block) {
  return turn * attention_blocks() + (turn % 2 ? attention_blocks() - 1 - block : block);
}
ALWAYS int has_item(int turn, int block) { return item_number(turn, block) < attention_items(); }
ALWAYS Here item_of_turn(void *const *args, int turn, int block, int thread, int begin) {
  Here w = item_here(args, item_number(turn, block), thread);
  w.begin = begin;
  w.place = turn % attention_places();
  return w;
}

/* ── shared memory ───────────────────────────────────────────────────────────────────────────── */

/* In order: the rows of this item and, where there is room, of the next, the ring of tiles, a number for each column of
 * each tile, two mbarriers for each tile, and one for each consumer. Places of the ring go on from
 * item to item: below, t counts the pairs of all items where there is no Here. */

ALWAYS int tiles(void) { return 2 * attention_stages(); }
ALWAYS int place_of(int which, int t) { return t % attention_stages() * 2 + which; }
ALWAYS Panel rows_panel(const Here *w, Panel memory, int which) {
  return memory + (w->place * attention_row_panels() + which) * block_rows() * attention_width();
}
ALWAYS Panel tile_at(Panel memory, int place) {
  return memory + attention_places() * attention_row_panels() * block_rows() * attention_width() +
         place * attention_tile() * attention_width();
}
ALWAYS Panel tile_panel(Panel memory, int which, int t) {
  return tile_at(memory, place_of(which, t));
}
ALWAYS Floats tile_numbers(Panel memory, int which, int t) {
  return (Floats)tile_at(memory, tiles()) + place_of(which, t) * attention_tile();
}
ALWAYS Mbarrier mbarriers(Panel memory) {
  return (Mbarrier)((Floats)tile_at(memory, tiles()) + tiles() * attention_tile());
}
ALWAYS Mbarrier full(Panel memory, int which, int t) {
  return mbarriers(memory) + 2 * place_of(which, t);
}
ALWAYS Mbarrier empty(Panel memory, int which, int t) { return full(memory, which, t) + 1; }
ALWAYS Mbarrier turn(Panel memory, int group) { return mbarriers(memory) + 2 * tiles() + group; }
/* `stage`: the place in the ring; a warpgroup for WAIT_TURN. */
ALWAYS Wait wait_for(int barrier, int stage) {
  return (Wait){attention_wait_polls(), attention_wait_kernel(), barrier, stage};
}
/* Each tile is one phase of the mbarriers of its place: the parity of tile t's phase. */
ALWAYS int parity(int t) { return t / attention_stages() % 2; }

ALWAYS void open_mbarriers(Panel memory, int thread) {
  if (thread == 0) {
#pragma clang loop unroll(full)
    for (int i = 0; i < tiles(); i++) {
      mbarrier_open(mbarriers(memory) + 2 * i, attention_maps() ? 1 : HALF_GROUP / 32);
      mbarrier_open(mbarriers(memory) + 2 * i + 1, attention_warps());
    }
#pragma clang loop unroll(full)
    for (int group = 0; group < groups_of_rows(); group++)
      mbarrier_open(turn(memory, group), GROUP_THREADS / 32);
    show_to_wgmma();
  }
  __nvvm_bar_sync(0);
}

/* One arrival for the whole warp, ordered after the work of all its lanes. */
ALWAYS void warp_arrives(Mbarrier at, int lane) {
  __nvvm_bar_warp_sync(0xffffffffu);
  if (lane == 0) mbarrier_arrive(at);
}

/* The producer gives registers to the consumers; the block has all 65536 of the multiprocessor. */
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

/* ── the producer ────────────────────────────────────────────────────────────────────────────── */

/* Loads the rows from `first` on, a multiple of a tile's, as one tile of pair t. */
ALWAYS void load_strips(const Here *w, Panel memory, int which, int t, Rows from, int first,
                         int limit) {
#pragma clang loop unroll(disable)
  for (int row = 0; row < attention_tile(); row += STRIP)
    load_part(tile_panel(memory, which, w->begin + t) + row * LINE, attention_tile(), from, first + row,
               limit, STRIP, w->thread % HALF_GROUP, HALF_GROUP);
}
/* load_tile where tiles are keys and values. */
ALWAYS void load_keys(const Here *w, Panel memory, int which, int t) {
  Rows keys = rows_of_key(w->args, w->batch, w->group);
  Rows values = rows_of_value(w->args, w->batch, w->group);
  load_strips(w, memory, which, t, which == KEYS ? keys : values, tile_place(w, t).row,
               attention_keys());
}

/* How many loaded tiles are published only after the next tile's copies have started. None where
 * the ring holds two pairs: there a place becomes free only when the following tile is complete. */
ALWAYS int in_flight(void) { return attention_stages() > 2; }

ALWAYS void publish(Panel memory, int thread, int which, int t) {
  show_to_wgmma();
  warp_arrives(full(memory, which, t), thread % 32);
}

/* Waits until the place of tile t is empty. */
ALWAYS void await_place(Panel memory, int which, int t) {
  if (t >= attention_stages())
    mbarrier_wait(empty(memory, which, t), !parity(t), wait_for(WAIT_EMPTY, place_of(which, t)));
}

/* Loads one tile of the item's pair t by its tensor map. */
ALWAYS void fetch_tile(const Here *w, Panel memory, int which, int t) {
  int n = w->begin + t;
  TilePlace from = tile_place(w, t);
  int x = from.head * attention_map_head();
  int plane = w->batch * attention_map_planes() + (attention_map_head() ? 0 : from.head);
  int own = attention_tile() * (int)sizeof(float);
  const void *map = which == KEYS ? attention_first_map(w->args) : attention_second_map(w->args);
  const char *beside = numbers(w, which);
  Mbarrier arrived = full(memory, which, n);
  await_place(memory, which, n);
  mbarrier_arrive_expect(arrived, attention_tile() * attention_width() * (int)sizeof(ELEMENT) +
                                      (beside ? own : 0));
#pragma clang loop unroll(full)
  for (int d = 0; d < attention_width(); d += LINE)
    mbarrier_box(arrived, tile_panel(memory, which, n) + d * attention_tile(), map, x + d, from.row,
                 plane);
  if (beside)
    mbarrier_copy(arrived, tile_numbers(memory, which, n),
                  beside + (int64_t)((w->batch * attention_heads() + from.head) *
                                         attention_queries() + from.row) * (int)sizeof(float),
                  own);
}
/* One thread starts all copies. */
ALWAYS void fetch_tiles(const Here *w, Panel memory, int count) {
  if (w->thread % GROUP_THREADS) return;
#pragma clang loop unroll(disable)
  for (int t = 0; t < count; t++) {
    fetch_tile(w, memory, KEYS, t);
    fetch_tile(w, memory, VALUES, t);
  }
}

/* Loads the `count` pairs of an item. */
ALWAYS void load_tiles(const Here *w, Panel memory, int count) {
  int which = w->thread / HALF_GROUP % 2;
  if (attention_maps()) {
    fetch_tiles(w, memory, count);
    return;
  }
#pragma clang loop unroll(disable)
  for (int t = 0; t < count; t++) {
    Here from = *w;
    from.thread = afresh(w->thread);
    await_place(memory, which, w->begin + t);
    load_tile(&from, memory, which, t);
    __nvvm_cp_async_commit_group();
    if (w->begin + t < in_flight()) continue;
    if (in_flight())
      __nvvm_cp_async_wait_group(1);
    else
      __nvvm_cp_async_wait_group(0);
    publish(memory, w->thread, which, w->begin + t - in_flight());
  }
}
/* After the last item, of `count` pairs in all. */
ALWAYS void end_loading(Panel memory, int thread, int count) {
  if (attention_maps() || !in_flight() || !count) return;
  __nvvm_cp_async_wait_group(0);
  publish(memory, thread, thread / HALF_GROUP % 2, count - 1);
}

/* ── the consumers ───────────────────────────────────────────────────────────────────────────── */

ALWAYS Panel await_tile(Panel memory, int which, int t) {
  mbarrier_wait(full(memory, which, t), parity(t), wait_for(WAIT_FULL, place_of(which, t)));
  return tile_panel(memory, which, t);
}
ALWAYS void store_tile(Panel memory, int which, int t, int lane) {
  warp_arrives(empty(memory, which, t), lane);
}

/* The number of this warp's group, as a value that ptxas knows to be the same in all lanes. */
ALWAYS int own_group(const Here *w) {
  return __nvvm_shfl_sync_idx_i32(0xffffffffu, w->thread / GROUP_THREADS, 0, 31);
}

/* Lets a pair of tiles pass that only other warpgroups need. */
ALWAYS void pass_tiles(const Here *w, Panel memory, int t) {
#pragma clang loop unroll(full)
  for (int which = KEYS; which <= VALUES; which++) {
    await_tile(memory, which, t);
    store_tile(memory, which, t, w->lane);
  }
}

/* Starts the copies of a consumer's own 64 rows, and waits for them. When the wait is over, all warps
 * of the group have ended the item before, whose place is that of the next one's rows. */
ALWAYS void load_own(const Here *w, Panel panel, Rows from, int limit) {
  int first = w->warp / 4 * GROUP_ROWS;
  load_part(panel + first * LINE, block_rows(), from, w->first + first, limit, GROUP_ROWS,
             w->thread % GROUP_THREADS, GROUP_THREADS);
}
ALWAYS void await_own(int thread) {
  __nvvm_cp_async_wait_group(0);
  show_to_wgmma();
  group_barrier(thread / GROUP_THREADS);
}

/* The rows of a warpgroup in a panel of the block's. */
ALWAYS Panel own_rows(const Here *w, Panel memory, int group, int which) {
  return rows_panel(w, memory, which) + group * GROUP_ROWS * LINE;
}

/* These start a product and do not wait for it: scores = rows x the item's tile `which`, and sums +=
 * weights x tile. */
ALWAYS Panel begin_scores(const Here *w, float s[MAX_ROWS][MAX_COLUMNS], Panel memory, Panel rows,
                          int which, int t) {
  Panel columns = await_tile(memory, which, w->begin + t);
  wgmma_begin();
  multiply(s, rows, columns);
  wgmma_commit();
  return columns;
}
ALWAYS void begin_sums(float sums[MAX_ROWS][MAX_COLUMNS], Weights *weights, Panel columns) {
  hold(sums, features_each());
  hold_weights(weights);
  wgmma_begin();
  accumulate(sums, weights, columns);
  wgmma_commit();
}

/* ── a block ─────────────────────────────────────────────────────────────────────────────────── */

ALWAYS void load_items(void *const *args, Panel memory, int block, int thread) {
  int begin = 0;
#pragma clang loop unroll(disable)
  for (int turn = 0; has_item(turn, block); turn++) {
    Here w = item_of_turn(args, turn, block, thread, begin);
    int count = item_tiles(&w);
    load_tiles(&w, memory, count);
    begin += count;
  }
  end_loading(memory, thread, begin);
}

ALWAYS void load_next(void *const *args, Panel memory, int turn, int block, int thread) {
  if (has_item(turn + 1, block)) {
    Here next = item_of_turn(args, afresh(turn) + 1, block, afresh(thread), 0);
    load_rows(&next, memory);
  }
  __nvvm_cp_async_commit_group();
}
/* The next item's rows are loaded while an item is computed, if there is room, or else after it. */
ALWAYS void compute_items(void *const *args, Panel memory, int block, int thread) {
  int begin = 0;
  Here first = item_of_turn(args, 0, block, thread, 0);
  load_rows(&first, memory);
  __nvvm_cp_async_commit_group();
#pragma clang loop unroll(disable)
  for (int turn = 0; has_item(turn, block); turn++) {
    await_own(thread);
    if (attention_places() > 1) load_next(args, memory, turn, block, thread);
    Here w = item_of_turn(args, afresh(turn), block, afresh(thread), begin);
    int count = item_tiles(&w);
    compute(&w, memory, count);
    begin += count;
    if (attention_places() > 1) continue;
    group_barrier(own_group(&w)); /* its results have been stored */
    load_next(args, memory, turn, block, thread);
  }
}

ALWAYS void share_items(void *const *args, SHARED void *shared, int block, int thread) {
  Panel memory = (Panel)shared;
  open_mbarriers(memory, thread);
  if (thread / 32 < attention_warps()) {
    take_registers();
    compute_items(args, memory, block, thread);
  } else {
    give_registers();
    load_items(args, memory, block, thread);
  }
}
#endif
