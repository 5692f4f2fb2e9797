/* wgmma_ptx: the body of kernels/wgmma16_ptx.c (f16, bf16) and wgmma8_ptx.c (8-bit floats): products and
 * convolutions on Hopper's tensor cores (wgmma.mma_async, sm_90a), summed in f32. Constants and callbacks as in
 * kernels/gemm_operand.h and gemm_panel.h.
 *
 * A block computes tile_m x tile_n results; each warpgroup, of four warps, computes micro_m x
 * micro_n of them by instructions of 64 x micro_n x 16 (8-bit: 32). These read both operands from shared memory
 * by descriptors, while the next panels are being loaded. Panels have the layout that the
 * descriptors call 128-byte swizzled: rows of 128 bytes, 64 elements (8-bit: 128), in which piece i of 16 bytes
 * is stored at place i xor (row modulo 8). A deep panel is [tile] rows of as many steps of k; a flat one
 * is [tile / 64][64] rows of 64 neighbours along the tile, of 16-bit elements only: the instruction takes 8-bit ones
 * with neighbours in k. Panels are loaded in one of two ways.
 *
 * Tensor cores add products of 8-bit floats in fewer bits than f32 has (DeepSeek-V3 Technical Report, 2024, 3.3.2, counts
 * 14 on an H800). So the part of each panel, 128 steps, is summed by itself, and added to the whole in f32: a thread has
 * both sums in registers, and waits for its instructions before the next panel's, which another warpgroup's fill.
 *
 * By tensor maps (products whose operands are multiplied as memory has them): one thread of an
 * additional warp, the producer, starts the copies of boxes. Each stage has two mbarriers: one is
 * complete when the stage is full, the other when every consumer has waited for its instructions on
 * the stage. A block that has a multiprocessor to itself computes several tiles, and its producer
 * loads panels of the next tile during the epilogue of one. Two blocks on neighbouring
 * multiprocessors, a cluster, may compute neighbouring tiles: one operand's panel is then the same
 * for both, each loads a half of it, and the copy engine stores it in both. So a panel is empty when
 * the consumers of both blocks have waited.
 *
 * By cp.async (convolutions, with their paddings and strides, and products with an operand that is computed): all
 * threads load panels. Where one operand lies in memory as it is multiplied (weights; the gradient of a convolution's
 * result, for that of its weights), it still comes by boxes of a tensor map, which one of the threads starts; each stage
 * has an mbarrier that is complete when the box is there. That saves its addresses and its way through the first-level cache. Convolutions with
 * a stride of 1 may load a region of the images once for all places of the window: wgmma_region.h. Panel t + stages - 2 is loaded into the place of panel t - 2 while panel t
 * is multiplied: every warpgroup has waited for its instructions on t - 2 before the barrier at the
 * start of the iteration. wgmma reads what threads write through another path, the async proxy:
 * each thread's fence before the barrier makes it visible there (NVIDIA, PTX ISA 8.0: wgmma,
 * fence.proxy.async). */
#define REAL float
#include "kernels/gemm_operand.h"

#define SUM_PAD 8 /* pairs of sums are stored without bank conflicts */
#include "kernels/gemm_panel.h"
#include "kernels/mbarrier.h"
#include "kernels/wgmma.h"

int gemm_a_mapped(void), gemm_b_mapped(void); /* these operands come by tensor maps; */
int gemm_stays(void); /* both do, and a block, alone on its multiprocessor, makes several tiles */
int gemm_pair(void);  /* and two blocks share panels of b (1: tiles below each other) or a (2) */
int gemm_sums(void), gemm_barriers(void); /* where finished sums and mbarriers lie: bytes */
int gemm_wait_polls(void), gemm_wait_kernel(void); /* ftc --debug-waits: kernels/mbarrier.h */
const void *gemm_map_a(void *const *args), *gemm_map_b(void *const *args);

/* sum = a b, or += with `adds`, of a panel, asynchronous: micro_m x micro_n results of a warpgroup. A descriptor of b for
 * every DEPTH steps of k, and of a for each 64 rows, too. */
typedef struct Total Total;
typedef struct Descriptors Descriptors;
void gemm_wgmma(Total *sum, const Descriptors *a, const uint64_t *b, int adds);

enum { IS_BYTE = sizeof(ELEMENT) == 1, PIECE = 16 / sizeof(ELEMENT), ROW = 8 * PIECE, DEPTH = 2 * PIECE };
enum { GROUP_THREADS = 128, MAX_HIGH = 2, MAX_SUMS = 128, PANEL_DEPTHS = 4 };
struct Total {
  float at[MAX_HIGH][MAX_SUMS];
};
struct Descriptors {
  uint64_t at[PANEL_DEPTHS][MAX_HIGH];
};

#include "kernels/gemm_epilogue.h"

ALWAYS int threads(void) {
  return gemm_tile_m() / gemm_micro_m() * (gemm_tile_n() / gemm_micro_n()) * GROUP_THREADS;
}
ALWAYS int group_row(int thread) {
  return thread / GROUP_THREADS / (gemm_tile_n() / gemm_micro_n()) * gemm_micro_m();
}
ALWAYS int group_column(int thread) {
  return thread / GROUP_THREADS % (gemm_tile_n() / gemm_micro_n()) * gemm_micro_n();
}
/* Each part has as many rows of every sixteen. */
ALWAYS int row_of(int pass, int local) {
  int part = 16 / gemm_passes();
  return local / part * 16 + pass * part + local % part;
}

/* ── panels ──────────────────────────────────────────────────────────────────────────────────── */

ALWAYS int panel_size(int tile, int deep) {
  (void)deep;
  return tile * gemm_steps();
}
ALWAYS int swizzled(int row, int element) {
  return row * ROW + ((element / PIECE ^ row % 8) * PIECE | element % PIECE);
}
ALWAYS int panel_place(int tile, int deep, int along, int k) {
  (void)tile;
  return deep ? swizzled(along, k) : swizzled(along / ROW * gemm_steps() + k, along % ROW);
}

ALWAYS int is_mapped(int is_a) { return is_a ? gemm_a_mapped() : gemm_b_mapped(); }
ALWAYS int gemm_maps(void) { return gemm_a_mapped() && gemm_b_mapped(); }

/* The mbarriers: of full stages, and where both operands come by maps, each beside that of the empty stage. */
ALWAYS Mbarrier full_of(Panel memory, int stage) {
  return (Mbarrier)((SHARED char *)memory + gemm_barriers()) + 2 * stage;
}
ALWAYS Mbarrier empty_of(Panel memory, int stage) { return full_of(memory, stage) + 1; }
ALWAYS Wait gemm_wait(int barrier, int stage) {
  return (Wait){gemm_wait_polls(), gemm_wait_kernel(), barrier, stage,
                gemm_pair() && barrier == WAIT_EMPTY};
}

/* The panel of the one operand that has a map: its boxes are started by the first thread. Flat operands of convolutions
 * are [k][part of k or batch][along] there: of weights, output channels and places of the window. */
ALWAYS void load_one_mapped(void *const *args, const Where *w, int is_a, int k0, Panel panel, Mbarrier full) {
  const void *map = is_a ? gemm_map_a(args) : gemm_map_b(args);
  int tile = is_a ? gemm_tile_m() : gemm_tile_n(), along = is_a ? w->row0 : w->column0;
  int does = w->thread == 0;
  mbarrier_arrive_expect_if(full, (int)sizeof(ELEMENT) * gemm_steps() * tile, does);
  if (is_a ? gemm_a_deep() : gemm_b_deep()) {
    mbarrier_box_if(full, panel, map, k0, along, w->batch, does);
    return;
  }
  Step step = step_of(k0, 0);
  int y = gemm_kind() == 2 ? window_of(&w->class, step.tap) : gemm_kind() == 3 ? w->batch : k0;
  int z = gemm_kind() == 2 ? w->batch * gemm_out_channels() + step.channel : gemm_kind() == 3 ? k0 : w->batch;
#pragma clang loop unroll(full)
  for (int i = 0; i < tile / ROW; i++)
    mbarrier_box_if(full, panel + i * ROW * gemm_steps(), map, along + i * ROW, y, z, does);
}

/* Loads a panel of one operand: starts its copies, or, where elements are computed, computes and
 * stores them now, while the tensor cores are busy with another panel. */
ALWAYS void load_one(void *const *args, const Where *w, int is_a, int k0, Panel panel) {
  int tile = is_a ? gemm_tile_m() : gemm_tile_n(), deep = is_a ? gemm_a_deep() : gemm_b_deep();
  int along, k;
  if (is_a ? gemm_a_async() : gemm_b_async()) {
    fetch(args, w, is_a, k0, panel, 0);
    return;
  }
#pragma clang loop unroll(full)
  for (int c = 0; c < pieces(tile, PIECE); c++) {
    if (!piece(w->thread, c, tile, deep, PIECE, &along, &k)) continue;
    Element element = element_of(w, is_a, along, k0, k);
    ELEMENT __attribute__((vector_size(16))) whole;
    if (element.is_inside && element.index % PIECE)
      __builtin_unreachable(); /* so that LLVM joins the loads */
#pragma clang loop unroll(full)
    for (int e = 0; e < PIECE; e++)
      whole[e] = !element.is_inside ? (ELEMENT)0
                 : is_a             ? gemm_element_a(args, element.index + e)
                                    : gemm_element_b(args, element.index + e);
    *(SHARED ELEMENT
      __attribute__((vector_size(16))) *)(panel + panel_place(tile, deep, along, k)) = whole;
  }
}
ALWAYS void load_operand(void *const *args, const Where *w, int is_a, int k0, Panel panel, Mbarrier full) {
  if (is_mapped(is_a))
    load_one_mapped(args, w, is_a, k0, panel, full);
  else
    load_one(args, w, is_a, k0, panel);
}
ALWAYS void load_panel(void *const *args, const Where *w, int k0, Panel memory, int stage) {
  load_operand(args, w, 1, k0, panel_of(memory, stage, 1), full_of(memory, stage));
  load_operand(args, w, 0, k0, panel_of(memory, stage, 0), full_of(memory, stage));
}

/* ── multiplying ─────────────────────────────────────────────────────────────────────────────── */

/* The descriptor of the part of a panel that begins at its row `row`, of 128 bytes. */
ALWAYS uint64_t describe(Panel panel, int row) {
  return wgmma_descriptor(panel + row * ROW, gemm_steps() * 128);
}
/* What to add to a descriptor for step s of DEPTH k: 32 bytes along a deep row, or that many rows. */
ALWAYS uint64_t further(int s, int deep) { return (uint64_t)(s * (deep ? 32 : DEPTH * 128)) >> 4; }

ALWAYS void multiply(Panel a, Panel b, int thread, int adds, Total *sum) {
  uint64_t left = describe(a, group_row(thread)), right = describe(b, group_column(thread));
  uint64_t columns[PANEL_DEPTHS];
  Descriptors rows;
#pragma clang loop unroll(full)
  for (int s = 0; s < PANEL_DEPTHS; s++) {
    columns[s] = right + further(s, gemm_b_deep());
#pragma clang loop unroll(full)
    for (int i = 0; i < gemm_micro_m() / 64; i++)
      rows.at[s][i] = left + further(s, gemm_a_deep()) + (uint64_t)(i * 64 * 128 >> 4);
  }
  wgmma_begin();
  gemm_wgmma(sum, &rows, columns, adds);
  wgmma_commit();
}

ALWAYS void clear(Total *sum) {
#pragma clang loop unroll(full)
  for (int i = 0; i < gemm_micro_m() / 64; i++)
#pragma clang loop unroll(full)
    for (int e = 0; e < gemm_micro_n() / 2; e++) sum->at[i][e] = 0;
}

/* 8-bit: adds the part that a panel is; all its instructions have been waited for. */
ALWAYS void add_part(Total *sum, const Total *part) {
#pragma clang loop unroll(full)
  for (int i = 0; i < gemm_micro_m() / 64; i++)
#pragma clang loop unroll(full)
    for (int e = 0; e < gemm_micro_n() / 2; e++) sum->at[i][e] += part->at[i][e];
}

ALWAYS void stage_sums(Sums memory, int thread, int pass, const Total *sum) {
  int wide = gemm_tile_n() + SUM_PAD, lane = thread % 32, part = 16 / gemm_passes();
  int sixteen = group_row(thread) / 16 + thread / 32 % 4;
  int column = group_column(thread) + lane % 4 * 2;
#pragma clang loop unroll(full)
  for (int h = 0; h < 2; h++) {
    int row = lane / 4 + h * 8;
    if (row / part != pass) continue;
#pragma clang loop unroll(full)
    for (int i = 0; i < gemm_micro_m() / 64; i++)
#pragma clang loop unroll(full)
      for (int j = 0; j < gemm_micro_n() / 8; j++) {
        Two both = {sum->at[i][j * 4 + h * 2], sum->at[i][j * 4 + h * 2 + 1]};
        *(SHARED Two *)(memory + ((sixteen + i * 4) * part + row % part) * wide + column + j * 8) =
            both;
      }
  }
}

/* ── the way through k ───────────────────────────────────────────────────────────────────────── */

ALWAYS int panels_of(const Where *w) {
  return (w->end - w->begin + gemm_steps() - 1) / gemm_steps();
}

ALWAYS void open_full(Panel memory, int thread) {
  if (thread == 0)
#pragma clang loop unroll(full)
    for (int s = 0; s < gemm_stages(); s++) mbarrier_open(full_of(memory, s), 1);
  __asm__ volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  show_to_wgmma();
  __nvvm_bar_sync(0);
}

#include "kernels/wgmma_region.h"

/* All threads load panels. */
ALWAYS void multiply_panels(void *const *args, Panel memory, const Where *w, Total *sum) {
  int steps = gemm_steps(), stages = gemm_stages(), ahead = gemm_stages() - 2, at = 0;
  int count = panels_of(w), is_boxed = is_mapped(0) || is_mapped(1), parity = 0;
  if (is_boxed) open_full(memory, w->thread);
  if (IS_BYTE) clear(sum);
#pragma clang loop unroll(disable)
  for (int t = 0; t < ahead; t++) {
    if (t < count) load_panel(args, w, w->begin + t * steps, memory, t);
    async_commit();
  }
#pragma clang loop unroll(disable)
  for (int t = 0; t < count; t++) {
    async_wait(stages - 3);
    show_to_wgmma();
    if (is_boxed) mbarrier_wait(full_of(memory, at), parity, gemm_wait(WAIT_FULL, at));
    __nvvm_bar_sync(0);
    Total part; /* the first step sets it */
    multiply(panel_of(memory, at, 1), panel_of(memory, at, 0), w->thread, !IS_BYTE && t > 0, IS_BYTE ? &part : sum);
    if (t + stages - 2 < count)
      load_panel(args, w, w->begin + (t + stages - 2) * steps, memory, ahead);
    async_commit();
    wgmma_wait(!IS_BYTE);
    if (IS_BYTE) add_part(sum, &part);
    at = at + 1 == stages ? 0 : at + 1;
    parity ^= at == 0;
    ahead = ahead + 1 == stages ? 0 : ahead + 1;
  }
}

/* A panel of one operand: a deep one is one box, a flat one a box for each 64 neighbours. Of one
 * that both blocks of a cluster need, each sends half of the rows, or every other box, to both. */
ALWAYS void load_boxes(void *const *args, const Where *w, int is_a, int k, Panel panel,
                       Mbarrier full) {
  const void *map = is_a ? gemm_map_a(args) : gemm_map_b(args);
  int tile = is_a ? gemm_tile_m() : gemm_tile_n(), along = is_a ? w->row0 : w->column0;
  int is_shared = gemm_pair() == (is_a ? 2 : 1), rank = is_shared ? cluster_rank() : 0;
  if (is_a ? gemm_a_deep() : gemm_b_deep()) {
    int first = rank * (tile / 2);
    if (is_shared)
      mbarrier_box_cast(full, panel + first * ROW, map, k, along + first, w->batch, 3);
    else
      mbarrier_box(full, panel, map, k, along, w->batch);
    return;
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < tile / ROW; i++)
    if (!is_shared)
      mbarrier_box(full, panel + i * ROW * gemm_steps(), map, along + i * ROW, k, w->batch);
    else if (i % 2 == rank)
      mbarrier_box_cast(full, panel + i * ROW * gemm_steps(), map, along + i * ROW, k, w->batch, 3);
}

/* The stage at which the producer or a consumer is; it goes on from tile to tile. */
typedef struct {
  int at, parity;
} Ring;
ALWAYS void advance(Ring *ring) {
  ring->at = ring->at + 1 == gemm_stages() ? 0 : ring->at + 1;
  ring->parity ^= ring->at == 0;
}

/* A consumer's warp no longer reads the panels of a stage, if `does`. */
ALWAYS void tell_empty(Panel memory, int stage, int lane, int does) {
  if (gemm_pair())
    mbarrier_arrive_far_if(empty_of(memory, stage), lane % 2, does && lane < 2);
  else
    mbarrier_arrive_if(empty_of(memory, stage), does && lane == 0);
}

ALWAYS void produce(void *const *args, Panel memory, const Where *w, Ring *ring) {
  int bytes = (int)sizeof(ELEMENT) * gemm_steps() * (gemm_tile_m() + gemm_tile_n());
#pragma clang loop unroll(disable)
  for (int k = w->begin; k < w->end; k += gemm_steps()) {
    Mbarrier full = full_of(memory, ring->at);
    mbarrier_wait(empty_of(memory, ring->at), ring->parity ^ 1, gemm_wait(WAIT_EMPTY, ring->at));
    mbarrier_arrive_expect(full, bytes);
    load_boxes(args, w, 1, k, panel_of(memory, ring->at, 1), full);
    load_boxes(args, w, 0, k, panel_of(memory, ring->at, 0), full);
    advance(ring);
  }
}

/* A stage is told to be empty when the next one's instructions are under way, or, of 8-bit elements,
 * when its own have been waited for, before its part is added. */
ALWAYS void consume(Panel memory, const Where *w, Ring *ring, Total *sum) {
  int before = 0, count = panels_of(w), lane = w->thread % 32;
  if (IS_BYTE) clear(sum);
#pragma clang loop unroll(disable)
  for (int t = 0; t < count; t++) {
    Total part; /* the first step sets it */
    mbarrier_wait(full_of(memory, ring->at), ring->parity, gemm_wait(WAIT_FULL, ring->at));
    multiply(panel_of(memory, ring->at, 1), panel_of(memory, ring->at, 0), w->thread,
             !IS_BYTE && t > 0, IS_BYTE ? &part : sum);
    wgmma_wait(!IS_BYTE);
    tell_empty(memory, IS_BYTE ? ring->at : before, lane, IS_BYTE || t > 0);
    if (IS_BYTE) add_part(sum, &part);
    before = ring->at;
    advance(ring);
  }
  if (IS_BYTE) return;
  wgmma_wait(0);
  tell_empty(memory, before, lane, 1);
}

ALWAYS void open_stages(Panel memory, int thread) {
  if (thread == 0)
#pragma clang loop unroll(full)
    for (int s = 0; s < gemm_stages(); s++) {
      mbarrier_open(full_of(memory, s), 1);
      mbarrier_open(empty_of(memory, s), threads() / 32 * (gemm_pair() ? 2 : 1));
    }
  __asm__ volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  show_to_wgmma();
  if (gemm_pair())
    cluster_meet();
  else
    __nvvm_bar_sync(0);
}

/* The producer's warps are those behind the consumers'. The number is shuffled, so that ptxas sees
 * that a warp does not diverge. */
ALWAYS int is_producer(int thread) {
  return __nvvm_shfl_sync_idx_i32(-1, thread / 32, 0, 31) >= threads() / 32;
}

/* Where blocks compute several tiles, the producer is four warps, which give registers to the
 * consumers: each warp begins with 168, and then has 40 and 232. */
ALWAYS void share_registers(int producer) {
  if (!gemm_stays()) return;
  if (producer)
    __asm__ volatile("setmaxnreg.dec.sync.aligned.u32 40;");
  else
    __asm__ volatile("setmaxnreg.inc.sync.aligned.u32 232;");
}

/* A barrier of the consumers. */
ALWAYS void meet(void) {
  if (gemm_maps())
    __asm__ volatile("bar.sync 1, %0;" ::"r"(threads()) : "memory");
  else
    __nvvm_bar_sync(0);
}

ALWAYS Sums sums_of(SHARED void *shared) { return (Sums)((SHARED char *)shared + gemm_sums()); }

/* ── a block ─────────────────────────────────────────────────────────────────────────────────── */

/* Tiles, or those of a cluster, follow each other along the rows. A cluster's second tile may lie
 * behind the last row or column. */
ALWAYS int rows_of_tiles(void) {
  int side = gemm_tile_m() * (gemm_pair() == 1 ? 2 : 1);
  return (gemm_m() + side - 1) / side;
}
ALWAYS int columns_of_tiles(void) {
  int side = gemm_tile_n() * (gemm_pair() == 2 ? 2 : 1);
  return (gemm_n() + side - 1) / side;
}
ALWAYS Where tile_of(int number, int thread) {
  int rows = rows_of_tiles(), columns = columns_of_tiles();
  int blocks = gemm_pair() ? 2 : 1, rank = number % blocks, place = number / blocks;
  int row = place % rows, column = place / rows % columns;
  if (gemm_pair() == 1) row = row * 2 + rank;
  if (gemm_pair() == 2) column = column * 2 + rank;
  return where(row * gemm_tile_m(), column * gemm_tile_n(), place / rows / columns, thread);
}

/* Computes tile after tile: the first panels of the next are loaded during the epilogue of one. */
ALWAYS void by_maps(void *const *args, SHARED void *shared, int block, int thread) {
  int tiles =
      rows_of_tiles() * columns_of_tiles() * gemm_batches() * gemm_splits() * (gemm_pair() ? 2 : 1);
  Panel memory = (Panel)shared;
  Ring ring = {0, 0};
  open_stages(memory, thread);
  if (is_producer(thread)) {
    share_registers(1);
    if (thread != threads()) return;
    mbarrier_map(gemm_map_a(args));
    mbarrier_map(gemm_map_b(args));
#pragma clang loop unroll(disable)
    for (; block < tiles; block += __nvvm_read_ptx_sreg_nctaid_x()) {
      Where w = tile_of(block, thread);
      produce(args, memory, &w, &ring);
    }
    return;
  }
  share_registers(0);
#pragma clang loop unroll(disable)
  for (; block < tiles; block += __nvvm_read_ptx_sreg_nctaid_x()) {
    Where w = tile_of(block, thread);
    Total sum; /* the first step sets it */
    consume(memory, &w, &ring, &sum);
    if (!gemm_pair() || (w.row0 < gemm_m() && w.column0 < gemm_n()))
      store_tile(args, sums_of(shared), &w, &sum);
  }
  /* the other block tells this one's mbarriers, and may do so late */
  if (gemm_pair()) cluster_meet();
}

__attribute__((always_inline)) void gemm_tile(void *const *args, SHARED void *shared, int row_block,
                                              int column_block, int batch_split, int thread) {
  if (gemm_maps()) {
    by_maps(args, shared, row_block, thread);
    return;
  }
  Where w = where(row_block * gemm_tile_m(), column_block * gemm_tile_n(), batch_split, thread);
  Total sum;
  /* Zeros where a class has no tap; beside the products, not before them: ptxas would let these
   * wait for one another. */
  if (classes() > 1 && !panels_of(&w)) {
    clear(&sum);
  } else if (gemm_region()) {
    multiply_region(args, (Panel)shared, &w, &sum);
    wgmma_wait(0);
  } else { /* the first step sets it */
    multiply_panels(args, (Panel)shared, &w, &sum);
    wgmma_wait(0);
  }
  store_tile(args, sums_of(shared), &w, &sum);
}
