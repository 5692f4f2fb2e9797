/* scatter_ptx: the body of scatter_ptx.c and scatter64_ptx.c: out[v] = sum of the updates whose
 * index is v, in the order of the updates, so that the bits never change. A block has one v and up
 * to 256 columns; its threads look through the indices together, 256 at a time, and each thread
 * adds the hits of its column. */
#include <stdint.h>

int scatter_updates(void); /* how many */
int scatter_columns(void); /* elements of each */
int64_t scatter_index(void *const *args, int update);
REAL scatter_load(void *const *args, int64_t element);
void scatter_store(void *const *args, int64_t element, REAL value);

#define SHARED static __attribute__((address_space(3)))
enum { THREADS = 256 };
SHARED unsigned scatter_hits[THREADS / 32];

__attribute__((always_inline)) void scatter_row(void *const *args, int row, int column_block,
                                                int thread) {
  int column = column_block * THREADS + thread, count = scatter_updates();
  int is_inside = column < scatter_columns();
  REAL sum = 0;
  for (int first = 0; first < count; first += THREADS) {
    int update = first + thread;
    int is_hit = update < count && scatter_index(args, update < count ? update : 0) == row;
    unsigned hits = __nvvm_vote_ballot_sync(0xffffffffu, is_hit);
    if (thread % 32 == 0) scatter_hits[thread / 32] = hits;
    __nvvm_bar_sync(0);
    for (int warp = 0; warp < THREADS / 32; warp++)
      for (unsigned rest = scatter_hits[warp]; rest; rest &= rest - 1) {
        int64_t hit = first + warp * 32 + __builtin_ctz(rest);
        if (is_inside) sum += scatter_load(args, hit * scatter_columns() + column);
      }
    __nvvm_bar_sync(0);
  }
  if (is_inside) scatter_store(args, (int64_t)row * scatter_columns() + column, sum);
}
