/* scatter_ptx: the body of scatter_ptx.c and scatter64_ptx.c: out[v] = sum of the updates whose
 * index is v, in the order of the updates and without atomics, so that the bits never change. A
 * block has scatter_rows() neighbouring v and 128 columns. Its threads read all indices,
 * 1024 at a time, and list in shared memory, in order, those that hit one of its rows. Then each
 * warp takes rows in turn and adds the listed updates of each, with several loads under way. So
 * indices are read once for each block, not for each row. When the list is full, its updates are
 * added at once, and later ones are added to the sums that are stored. */
#include <stdint.h>

int scatter_updates(void); /* how many */
int scatter_columns(void); /* elements of each */
int scatter_count(void);   /* of the result: how many v */
int scatter_rows(void);    /* of a block, at most 1 << ROW_BITS */
int64_t scatter_index(void *const *args, int update);
REAL scatter_load(void *const *args, int64_t element);
REAL scatter_stored(void *const *args, int64_t element);
void scatter_store(void *const *args, int64_t element, REAL value);

#define SHARED static __attribute__((address_space(3)))
enum {
  THREADS = 256,
  WARPS = THREADS / 32,
  EACH = 4, /* indices, and columns, of a thread at once */
  ROUND = THREADS * EACH,
  LIST = 8192,
  ROW_BITS = 7,
  AHEAD = 4, /* updates under way */
};
SHARED unsigned scatter_hits[EACH * WARPS];
SHARED unsigned scatter_list[LIST]; /* update << ROW_BITS | row of the block */

/* Appends the hits of one round to the `count` that the list has; returns the new count. */
static __attribute__((always_inline)) int list_round(void *const *args, int first_row, int first,
                                                     int count, int thread) {
  int row[EACH], lane = thread % 32, warp = thread / 32;
  unsigned mine[EACH];
#pragma unroll
  for (int k = 0; k < EACH; k++) {
    int update = first + k * THREADS + thread;
    int64_t index = update < scatter_updates() ? scatter_index(args, update) : -1;
    int is_hit = index >= first_row && index < (int64_t)first_row + scatter_rows();
    row[k] = is_hit ? (int)(index - first_row) : -1;
    mine[k] = __nvvm_vote_ballot_sync(0xffffffffu, is_hit);
    if (lane == 0) scatter_hits[k * WARPS + warp] = (unsigned)__builtin_popcount(mine[k]);
  }
  __nvvm_bar_sync(0);
#pragma unroll
  for (int k = 0; k < EACH; k++)
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
      if (w == warp && row[k] >= 0) {
        int place = count + __builtin_popcount(mine[k] & ((1u << lane) - 1));
        scatter_list[place] =
            (unsigned)(first + k * THREADS + thread) << ROW_BITS | (unsigned)row[k];
      }
      count += (int)scatter_hits[k * WARPS + w];
    }
  __nvvm_bar_sync(0);
  return count;
}

typedef struct {
  REAL at[EACH];
} Sums;

/* The next updates of `hits`, at most AHEAD, in their order. */
static __attribute__((always_inline)) unsigned add_some(void *const *args, unsigned hits, int base,
                                                        int column, Sums *sums) {
  REAL value[AHEAD][EACH];
  int is_there[AHEAD];
#pragma unroll
  for (int a = 0; a < AHEAD; a++) {
    is_there[a] = hits != 0;
    int bit = hits ? __builtin_ctz(hits) : 0;
    hits &= hits - 1;
    if (!is_there[a]) continue;
    int64_t update = scatter_list[base + bit] >> ROW_BITS;
#pragma unroll
    for (int e = 0; e < EACH; e++)
      value[a][e] = column + e * 32 < scatter_columns()
                        ? scatter_load(args, update * scatter_columns() + column + e * 32)
                        : 0;
  }
#pragma unroll
  for (int a = 0; a < AHEAD; a++)
#pragma unroll
    for (int e = 0; e < EACH && is_there[a]; e++) sums->at[e] += value[a][e];
  return hits;
}

static __attribute__((always_inline)) void work_off(void *const *args, int first_row, int column,
                                                    int count, int is_first, int thread) {
  int lane = thread % 32;
  for (int row = thread / 32; row < scatter_rows() && first_row + row < scatter_count();
       row += WARPS) {
    int64_t out = (int64_t)(first_row + row) * scatter_columns() + column;
    Sums sums;
#pragma unroll
    for (int e = 0; e < EACH; e++)
      sums.at[e] =
          !is_first && column + e * 32 < scatter_columns() ? scatter_stored(args, out + e * 32) : 0;
    for (int base = 0; base < count; base += 32) {
      int is_mine = base + lane < count && (scatter_list[base + lane < count ? base + lane : 0] &
                                            ((1 << ROW_BITS) - 1)) == (unsigned)row;
      unsigned hits = __nvvm_vote_ballot_sync(0xffffffffu, is_mine);
      while (hits) hits = add_some(args, hits, base, column, &sums);
    }
#pragma unroll
    for (int e = 0; e < EACH; e++)
      if (column + e * 32 < scatter_columns()) scatter_store(args, out + e * 32, sums.at[e]);
  }
}

__attribute__((always_inline)) void scatter_block(void *const *args, int row_block,
                                                  int column_block, int thread) {
  int first_row = row_block * scatter_rows(), count = 0, is_first = 1;
  int column = column_block * 32 * EACH + thread % 32;
  for (int first = 0; first < scatter_updates(); first += ROUND) {
    if (count > LIST - ROUND) {
      work_off(args, first_row, column, count, is_first, thread);
      __nvvm_bar_sync(0);
      is_first = count = 0;
    }
    count = list_round(args, first_row, first, count, thread);
  }
  work_off(args, first_row, column, count, is_first, thread);
}
