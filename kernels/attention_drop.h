/* attention_drop: the part of attention_x86.c that draws for dropout: the numbers that ir/ops.def's random gives to elements of the scores,
 * [batch, heads, rows, keys] (Philox4x32-10, kernels/math.c), for a row of a block at a time. Backward draws them again. */
#ifndef FT_KERNELS_ATTENTION_DROP_H
#define FT_KERNELS_ATTENTION_DROP_H
#include "kernels/attention_host.h"
#include "kernels/lanes_x86.h"
#include "kernels/philox.h"

/* What is drawn for one head: the first row of numbers begins at `first`. */
typedef struct {
  uint64_t seed, first;
  uint32_t step, stream;
} Draws;

/* Eight blocks of four numbers side by side. A number is the low half of 64 bits; what is above it is anything. */
typedef uint64_t WideLanes __attribute__((ext_vector_type(8)));
enum { DRAWN_AT_ONCE = 64 };

static Draws attention_draws_of(const AttentionProblem *p, void *const *args, int64_t b, int64_t h) {
  if (!p->drop_below) return (Draws){0, 0, 0, 0};
  const uint64_t *const *numbers = (const uint64_t *const *)(args + p->arg_draws);
  return (Draws){numbers[0][0], numbers[2][b * p->heads + h], (uint32_t)numbers[1][0], (uint32_t)numbers[3][0] + (uint32_t)(numbers[1][0] >> 32)};
}

/* to[64]: the numbers of sixteen blocks from `block` on. */
ALWAYS void draw_blocks(const Draws *draws, uint64_t block, uint32_t *to) {
  const WideLanes count = {0, 1, 2, 3, 4, 5, 6, 7}, low = (WideLanes)0xffffffffull;
  WideLanes a[2], b[2], c[2], d[2];
#pragma clang loop unroll(full)
  for (int k = 0; k < 2; k++) {
    a[k] = (WideLanes)block + count + (uint64_t)(8 * k);
    b[k] = a[k] >> 32;
    c[k] = (WideLanes)(uint64_t)draws->step;
    d[k] = (WideLanes)(uint64_t)draws->stream;
  }
  uint32_t key_a = (uint32_t)draws->seed, key_b = (uint32_t)(draws->seed >> 32);
#pragma clang loop unroll(full)
  for (int round = 0; round < 10; round++, key_a += 0x9e3779b9u, key_b += 0xbb67ae85u)
#pragma clang loop unroll(full)
    for (int k = 0; k < 2; k++) {
      WideLanes left = (a[k] & low) * 0xd2511f53ull, right = (c[k] & low) * 0xcd9e8d57ull;
      a[k] = right >> 32 ^ b[k] ^ (uint64_t)key_a;
      c[k] = left >> 32 ^ d[k] ^ (uint64_t)key_b;
      b[k] = right;
      d[k] = left;
    }
#pragma clang loop unroll(full)
  for (int k = 0; k < 2; k++) {
    WideLanes first = (a[k] & low) | b[k] << 32, second = (c[k] & low) | d[k] << 32;
    WideLanes x = __builtin_shufflevector(first, second, 0, 8, 1, 9, 2, 10, 3, 11);
    WideLanes y = __builtin_shufflevector(first, second, 4, 12, 5, 13, 6, 14, 7, 15);
    __builtin_memcpy(to + 32 * k, &x, sizeof x);
    __builtin_memcpy(to + 32 * k + 16, &y, sizeof y);
  }
}

/* A row of a block: its numbers are word[0], word[1] and on, up to 64 of them. */
typedef struct {
  _Alignas(64) uint32_t room[DRAWN_AT_ONCE + 4];
  const uint32_t *word;
  uint32_t below;
} DrawnRow;

/* Draws for `keys` elements, of which the first has the number `at` in its head. */
static __attribute__((noinline)) void draw_row(const AttentionProblem *p, const Draws *draws, int64_t at, int64_t keys, DrawnRow *row) {
  uint64_t first = draws->first + (uint64_t)at;
  int within = (int)(first & 3);
  row->word = row->room + within;
  row->below = (uint32_t)p->drop_below;
  if (keys <= 0) return;
  draw_blocks(draws, first >> 2, row->room);
  if (within + keys > DRAWN_AT_ONCE) philox_block(draws->seed, draws->step, draws->stream, (first >> 2) + DRAWN_AT_ONCE / 4, row->room + DRAWN_AT_ONCE);
}

/* x, or `instead` where elements [j, j + 16) of the row are dropped. */
ALWAYS Lanes drawn_kept(const DrawnRow *row, int64_t j, Lanes x, Lanes instead) {
  typedef uint32_t LooseWords __attribute__((ext_vector_type(16), aligned(4)));
  IntLanes draw = __builtin_convertvector(*(const LooseWords *)(row->word + j) >> 8, IntLanes);
  return draw >= (IntLanes)(int32_t)row->below ? x : instead;
}
#endif
