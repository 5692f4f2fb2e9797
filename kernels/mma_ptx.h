/* mma_ptx: the body of kernels/mma16_ptx.c (f16, bf16), mma32_ptx.c (f32 rounded to tf32), mma8_ptx.c (8-bit
 * floats, sm_89) and mma_whole_ptx.c (8-bit integers): products and convolutions on tensor cores (mma.sync, sm_80 and
 * later), summed in f32, or of integers (WHOLE is defined) in 32-bit integers. Constants
 * and callbacks as in kernels/gemm_operand.h and gemm_panel.h.
 *
 * A block makes tile_m x tile_n results; its warps form `slices`, each of which sums its own part
 * of every panel, a warp micro_m x micro_n results as fragments of 16 x 8. Panels come by cp.async,
 * `stages` deep. Fragments are read with ldmatrix, transposed on the way where the panel is flat;
 * it cannot transpose 32-bit elements, so those of flat panels are read one by one, nor 8-bit ones, which it
 * transposes in pairs (read_across). The layout of
 * panels keeps these reads and the copies into panels free of bank conflicts (NVIDIA, PTX ISA 7.0:
 * mma.m16n8k16, mma.m16n8k8, mma.m16n8k32, ldmatrix).
 *
 * Tensor cores add products of 8-bit floats in fewer bits than f32 has (DeepSeek-V3 Technical Report, 2024, 3.3.2, counts
 * 14 on an H800). So each panel's part is summed by itself, and added to the whole in f32. */
#ifndef REAL
#define REAL float
#endif
#include "kernels/gemm_operand.h"

#define SUM_PAD 8 /* pairs of sums are stored without bank conflicts */
#include "kernels/gemm_panel.h"

/* sum[4] += a[4] b[2], fragments of one warp: 16 x 8 results, over 16 (32-bit: 8, 8-bit: 32) steps of k. */
void gemm_mma(REAL *sum, const unsigned *a, const unsigned *b);
/* Four 8 x 8 matrices of 16 bits: lane i names row i % 8 of matrix i / 8. */
void gemm_matrices(unsigned *four, SHARED void *row);
void gemm_matrices_across(unsigned *four, SHARED void *row); /* transposed */
unsigned gemm_round(unsigned element);                       /* 32-bit: f32 to tf32 */

enum { IS_WORD = sizeof(ELEMENT) == 4, IS_BYTE = sizeof(ELEMENT) == 1, MAX_HIGH = 4, MAX_WIDE = 8 };
enum { DEPTH = 32 / sizeof(ELEMENT) };
#ifdef WHOLE
enum { HAS_PARTS = 0 };
#else
enum { HAS_PARTS = IS_BYTE };
#endif
typedef struct {
  REAL at[MAX_HIGH][MAX_WIDE][4]; /* of the fragments of a warp */
} Total;
#include "kernels/gemm_loop.h"

ALWAYS int warps(void) { return gemm_tile_m() / gemm_micro_m() * (gemm_tile_n() / gemm_micro_n()); }
ALWAYS int threads(void) { return gemm_slices() * warps() * 32; }
ALWAYS int warp_row(int thread) {
  return thread / 32 % warps() / (gemm_tile_n() / gemm_micro_n()) * gemm_micro_m();
}
ALWAYS int warp_column(int thread) {
  return thread / 32 % warps() % (gemm_tile_n() / gemm_micro_n()) * gemm_micro_n();
}

/* ── panels ──────────────────────────────────────────────────────────────────────────────────── */

enum { PIECE = 16 / sizeof(ELEMENT), BANKS = 128 / sizeof(ELEMENT) };

/* The layout of a panel without bank conflicts. ldmatrix reads the same piece of eight neighbouring
 * rows; single words are read in pairs of pieces, of four rows. Rows long enough to fill all banks
 * are padded by one piece, or one pair. Several shorter rows fill the banks together; their pieces
 * are permuted by xor with the number of that group of rows. */
ALWAYS int row_width(int tile, int deep) { return deep ? gemm_steps() : tile; }
ALWAYS int is_pairs(int deep) { return IS_WORD && !deep; }
ALWAYS int pitch(int tile, int deep) {
  int width = row_width(tile, deep);
  return width < BANKS ? width : width + (PIECE << is_pairs(deep));
}
ALWAYS int panel_size(int tile, int deep) {
  return (deep ? tile : gemm_steps()) * pitch(tile, deep);
}
/* The number of the xor for the pieces of a row; it repeats every 16 rows. */
ALWAYS int exchange(int tile, int deep, int row) {
  int width = row_width(tile, deep);
  return width < BANKS ? (row / (BANKS / width) << is_pairs(deep)) & (width / PIECE - 1) : 0;
}
ALWAYS int panel_place(int tile, int deep, int along, int k) {
  int row = deep ? along : k, column = deep ? k : along;
  return row * pitch(tile, deep) + (column / PIECE ^ exchange(tile, deep, row)) * PIECE +
         column % PIECE;
}
/* The address that a lane reads, relative to a multiple of 16 rows and an even number of pieces. */
ALWAYS int lane_place(int tile, int deep, int row0, int row, int piece0, int piece) {
  return (row0 + row) * pitch(tile, deep) + (piece0 ^ (piece ^ exchange(tile, deep, row))) * PIECE;
}

/* ── fragments ───────────────────────────────────────────────────────────────────────────────── */

/* 32 steps of k of 16 neighbours, bytes of a flat panel: four[0] and [1] are steps 4t … 4t + 3 of neighbours 2g and
 * 2g + 1, [2] and [3] steps 16 + 4t …; lane = 4 g + t. ldmatrix transposes pairs of neighbours: of the two matrices that
 * have 16 steps it gives a lane steps 4t and 4t + 1 of both neighbours from one, 4t + 2 and 4t + 3 from the other. Which
 * is which differs with t, so that the eight rows of a matrix lie in different banks. */
ALWAYS void read_across(Panel panel, int lane, int tile, int along, int k, unsigned *four) {
  int of = lane % 8, upper = of / 4; /* row and half of its matrix */
  int step = lane / 16 * 16 + of / 2 * 4 + of % 2 + ((lane / 8 % 2) ^ upper) * 2;
  unsigned pair[4], swap = lane % 4 / 2;
  gemm_matrices_across(pair, panel + lane_place(tile, 0, k, step, along / PIECE, 0));
  int even = swap ? 0x2064 : 0x6420, odd = swap ? 0x3175 : 0x7531;
#pragma clang loop unroll(full)
  for (int half = 0; half < 4; half += 2) {
    four[half] = (unsigned)__nvvm_prmt((int)pair[half], (int)pair[half + 1], even);
    four[half + 1] = (unsigned)__nvvm_prmt((int)pair[half], (int)pair[half + 1], odd);
  }
}
/* The place in its 16 of row or column `i` of the two groups of eight that read_across gives. */
ALWAYS int fragment_place(int group, int i, int deep) { return IS_BYTE && !deep ? 2 * i + group : group * 8 + i; }

/* The fragment of `a` at (row, k): rows g and g + 8, steps 2t and 2t + 8 (words: t and t + 4, bytes:
 * 4t and 4t + 16), where lane = 4 g + t. Of a flat panel of bytes rows 2g and 2g + 1. */
ALWAYS void read_a(Panel panel, int lane, int row, int k, unsigned *out) {
  int tile = gemm_tile_m();
  if (gemm_a_deep()) {
    gemm_matrices(out, panel + lane_place(tile, 1, row, lane % 16, k / PIECE, lane / 16));
  } else if (IS_BYTE) {
    read_across(panel, lane, tile, row, k, out);
  } else if (!IS_WORD) {
    int down = lane % 8 + lane / 16 * 8;
    gemm_matrices_across(out, panel + lane_place(tile, 0, k, down, row / PIECE, lane / 8 % 2));
  } else {
#pragma clang loop unroll(full)
    for (int e = 0; e < 4; e++)
      out[e] =
          panel[lane_place(tile, 0, k, lane % 4 + e / 2 * 4, row / PIECE, lane / 16 ^ e % 2 * 2) +
                lane / 4 % PIECE];
  }
}

/* Two neighbouring fragments of `b` at (k, column): out[0..1] and out[2..3]. */
ALWAYS void read_b(Panel panel, int lane, int column, int k, unsigned *out) {
  int tile = gemm_tile_n();
  if (gemm_b_deep()) {
    int down = lane % 8 + lane / 16 * 8;
    gemm_matrices(out, panel + lane_place(tile, 1, column, down, k / PIECE, lane / 8 % 2));
  } else if (IS_BYTE) {
    unsigned four[4];
    read_across(panel, lane, tile, column, k, four);
    out[0] = four[0];
    out[1] = four[2];
    out[2] = four[1];
    out[3] = four[3];
  } else if (!IS_WORD) {
    gemm_matrices_across(out, panel + lane_place(tile, 0, k, lane % 16, column / PIECE, lane / 16));
  } else {
#pragma clang loop unroll(full)
    for (int e = 0; e < 4; e++)
      out[e] = panel[lane_place(tile, 0, k, lane % 4 + e % 2 * 4, column / PIECE,
                                lane / 16 ^ e / 2 * 2) +
                     lane / 4 % PIECE];
  }
}

ALWAYS void round_all(unsigned *fragment) {
  if (!IS_WORD) return;
#pragma clang loop unroll(full)
  for (int e = 0; e < 4; e++) fragment[e] = gemm_round(fragment[e]);
}

ALWAYS void clear(Total *sum) {
#pragma clang loop unroll(full)
  for (int i = 0; i < gemm_micro_m() / 16; i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < gemm_micro_n() / 8; j++)
#pragma clang loop unroll(full)
      for (int e = 0; e < 4; e++) sum->at[i][j][e] = 0;
}

ALWAYS void multiply(Panel a, Panel b, int thread, Total *sum) {
  int high = gemm_micro_m() / 16, across = gemm_micro_n() / 8, lane = thread % 32;
  int depth = gemm_steps() / gemm_slices(), slice = thread / 32 / warps();
  Total part, *to = HAS_PARTS ? &part : sum;
  if (HAS_PARTS) clear(&part);
#pragma clang loop unroll(full)
  for (int s = 0; s < depth / DEPTH; s++) {
    int k = slice * depth + s * DEPTH;
    unsigned left[MAX_HIGH][4], right[MAX_WIDE][2];
#pragma clang loop unroll(full)
    for (int i = 0; i < high; i++) {
      read_a(a, lane, warp_row(thread) + i * 16, k, left[i]);
      round_all(left[i]);
    }
#pragma clang loop unroll(full)
    for (int j = 0; j < across; j += 2) {
      unsigned both[4];
      read_b(b, lane, warp_column(thread) + j * 8, k, both);
      round_all(both);
      right[j][0] = both[0];
      right[j][1] = both[1];
      right[j + 1][0] = both[2];
      right[j + 1][1] = both[3];
    }
#pragma clang loop unroll(full)
    for (int i = 0; i < high; i++)
#pragma clang loop unroll(full)
      for (int j = 0; j < across; j++) gemm_mma(to->at[i][j], left[i], right[j]);
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < high && HAS_PARTS; i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < across; j++)
#pragma clang loop unroll(full)
      for (int e = 0; e < 4; e++) sum->at[i][j][e] += part.at[i][j][e];
}

/* A part holds some of the fragments of every warp; those of one warp are contiguous. */
ALWAYS int row_of(int pass, int local) {
  int some = gemm_micro_m() / gemm_passes();
  return local / some * gemm_micro_m() + pass * some + local % some;
}

ALWAYS void stage_sums(Sums memory, int thread, int pass, const Total *sum) {
  int high = gemm_micro_m() / 16, across = gemm_micro_n() / 8, lane = thread % 32;
  int height = gemm_tile_m() / gemm_passes(), some = high / gemm_passes();
  int wide = gemm_tile_n() + SUM_PAD, slice = thread / 32 / warps();
  int row = slice * height + warp_row(thread) / gemm_passes(), column = warp_column(thread);
#pragma clang loop unroll(full)
  for (int i = 0; i < high; i++) {
    if (i / some != pass) continue;
#pragma clang loop unroll(full)
    for (int j = 0; j < across; j += 2)
#pragma clang loop unroll(full)
      for (int h = 0; h < 2; h++) {
        const REAL *one = sum->at[i][j] + h * 2, *other = sum->at[i][j + 1] + h * 2;
        int at = row + i % some * 16 + fragment_place(h, lane / 4, gemm_a_deep());
        Sums to = memory + at * wide + column + j * 8;
        if (IS_BYTE && !gemm_b_deep()) {
          *(SHARED Four *)(to + lane % 4 * 4) = (Four){one[0], other[0], one[1], other[1]};
        } else {
          *(SHARED Two *)(to + lane % 4 * 2) = (Two){one[0], one[1]};
          *(SHARED Two *)(to + 8 + lane % 4 * 2) = (Two){other[0], other[1]};
        }
      }
  }
}
