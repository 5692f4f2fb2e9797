/* attention_bits: a mask of bools for the kernels of Hopper, whose registers have no room for its
 * elements. A lane loads some of its warp's bytes, 16 at a time, before the scores of a tile are
 * complete, and makes bits of them; the lanes then exchange bits, so that each has one for each of
 * its scores, 32 a register. */
#ifndef FT_KERNELS_ATTENTION_BITS_H
#define FT_KERNELS_ATTENTION_BITS_H
#include "kernels/attention_softmax.h"

void *attention_mask_bytes(void *const *args); /* where the mask begins */

enum { PIECE = 16, MAX_PIECES = 4, HALF_WARP = 16 };
/* Bytes as they were loaded: of rows that are queries [row of the lane][piece of a quarter of the
 * tile's keys]; of rows that are keys those of the warp's 16 keys, of two queries. */
typedef struct {
  Quad at[MAX_PIECES];
} MaskBytes;
/* Of a lane's score [i][j] bit mask_bit(j) of word i, or, of rows that are keys, bit
 * 16 (j / 8) + 8 i + j % 8 of word 0. */
typedef struct {
  unsigned at[2];
} MaskBits;

ALWAYS int same_for_rows(void) { return attention_mask_row() == 0; }
/* Of a row's pieces in a tile lane l % 4 loads those from l * row_pieces() on, as far as there are any. */
ALWAYS int row_pieces(void) { return (attention_tile() + 4 * PIECE - 1) / (4 * PIECE); }
ALWAYS int mask_bit(int j) { return j / 2 % 4 * 8 + j / 8 * 2 + j % 2; }

/* The mask's bytes of 16 keys from `key` on; zeros where keys end, or if the row `is_there` not. */
ALWAYS Quad mask_piece(const Here *w, int query, int key, int is_there) {
  const GLOBAL unsigned char *from = (const GLOBAL unsigned char *)attention_mask_bytes(w->args) +
                                     (w->batch * attention_mask_batch() +
                                      w->head * attention_mask_head() +
                                      query * attention_mask_row() + key);
  Quad piece = {0, 0, 0, 0};
  if (attention_keys() % PIECE == 0) {
    if (is_there && key < attention_keys()) piece = *(const GLOBAL Quad *)from;
    return piece;
  }
#pragma clang loop unroll(full)
  for (int e = 0; e < PIECE; e++)
    if (is_there && key + e < attention_keys())
      piece[e / 4] |= (unsigned)from[e] << e % 4 * 8;
  return piece;
}

ALWAYS unsigned any_of(Quad piece) { return piece[0] | piece[1] | piece[2] | piece[3]; }
ALWAYS unsigned lanes_with(unsigned x) {
  return (unsigned)__nvvm_vote_ballot_sync(0xffffffffu, x != 0);
}

/* Where the mask is the same for all queries (padding): how many keys there are up to the last one
 * that is seen. */
ALWAYS int keys_alive(const Here *w) {
  int at = (attention_keys() + PIECE * 32 - 1) / (PIECE * 32) * (PIECE * 32);
  if (!attention_has_bits() || !same_for_rows()) return attention_keys();
#pragma clang loop unroll(disable)
  for (; at > 0; at -= PIECE * 32) {
    int key = at - PIECE * 32 + w->lane * PIECE;
    unsigned alive = lanes_with(any_of(mask_piece(w, 0, key, 1)));
    if (alive) return smaller(at - __builtin_clz(alive) * PIECE, attention_keys());
  }
  return 0;
}
/* … and does a block of keys, with all heads that share them, have one that is seen? */
ALWAYS int has_alive(const Here *w) {
  int key = w->first + w->lane * PIECE;
  if (!attention_has_bits() || !same_for_rows() || attention_mask_head()) return 1;
  return lanes_with(w->lane * PIECE < block_rows() ? any_of(mask_piece(w, 0, key, 1)) : 0) != 0;
}

/* Starts to load the bytes for a tile from column `column0` on. */
ALWAYS void load_mask(const Here *w, MaskBytes *bytes, int column0, int is_transposed) {
  int row0 = w->first + w->warp * attention_micro();
  if (!attention_has_bits()) return;
  if (is_transposed) {
#pragma clang loop unroll(full)
    for (int half = 0; half < (same_for_rows() ? 1 : 2); half++) {
      int query = same_for_rows() ? 0 : column0 + half * 32 + w->lane;
      bytes->at[half] = mask_piece(w, query, row0, query < attention_queries());
    }
    return;
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < (same_for_rows() ? 1 : 2); i++)
#pragma clang loop unroll(full)
    for (int p = 0; p < row_pieces(); p++) {
      int query = same_for_rows() ? 0 : row0 + own_row(w->lane, i);
      int piece = w->lane % 4 * row_pieces() + p;
      int is_there = attention_tile() % (4 * PIECE * row_pieces()) == 0 || piece < attention_tile() / PIECE;
      bytes->at[i * row_pieces() + p] =
          mask_piece(w, query, column0 + piece * PIECE, is_there & (query < attention_queries()));
    }
}

/* Bit e of the result: is byte e of the piece not 0? */
ALWAYS unsigned bits_of_piece(Quad piece) {
  unsigned bits = 0;
#pragma clang loop unroll(full)
  for (int word = 0; word < 4; word++) {
    unsigned x = piece[word];
    x = ((x & 0x7f7f7f7fu) + 0x7f7f7f7fu | x) >> 7 & 0x01010101u;
    bits |= x * 0x01020408u >> 24 << word * 4; /* byte e of x is shifted to bit 24 + e */
  }
  return bits;
}

ALWAYS unsigned from_lane(unsigned x, int lane) {
  return (unsigned)__nvvm_shfl_sync_idx_i32(0xffffffffu, (int)x, lane, 31);
}

ALWAYS void exchange_bits(const Here *w, MaskBits *bits, const MaskBytes *bytes,
                          int is_transposed) {
  if (!attention_has_bits()) return;
  if (is_transposed) {
    unsigned own = bits_of_piece(bytes->at[0]);
    own |= (same_for_rows() ? own : bits_of_piece(bytes->at[1])) << 16;
    bits->at[0] = 0;
#pragma clang loop unroll(full)
    for (int j = 0; j < 8; j++) {
      unsigned pair = same_for_rows() ? own : from_lane(own, own_column(w->lane, j));
      bits->at[0] |= (pair >> w->lane / 4 & 0x01010101u) << j;
    }
    return;
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < (same_for_rows() ? 1 : 2); i++) {
    unsigned own = bits_of_piece(bytes->at[i * row_pieces()]);
    if (row_pieces() == 2) own |= bits_of_piece(bytes->at[i * row_pieces() + 1]) << 16;
    bits->at[i] = 0;
#pragma clang loop unroll(full)
    for (int k = 0; k < (attention_tile() + 31) / 32; k++) { /* 32 keys are in one or two lanes */
      int from = w->lane / 4 * 4 + k * 2 / row_pieces();
      unsigned word = from_lane(own, from);
      if (row_pieces() == 1) word |= from_lane(own, from + 1) << 16;
      bits->at[i] |= (word >> w->lane % 4 * 2 & 0x03030303u) << k * 2;
    }
  }
  if (same_for_rows()) bits->at[1] = bits->at[0];
}

/* Makes scores -inf whose bit is 0. */
ALWAYS void hide_by_bits(float s[MAX_ROWS][MAX_COLUMNS], const MaskBits *bits, int is_transposed) {
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each() && attention_has_bits(); i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < columns_each(); j++) {
      int bit = is_transposed ? j / 8 * 16 + i * 8 + j % 8 : mask_bit(j);
      s[i][j] = bits->at[is_transposed ? 0 : i] >> bit & 1 ? s[i][j] : -infinity;
    }
}
#endif
