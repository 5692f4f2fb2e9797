/* gather: one of the runtime's own kernels: rows of a split kept on the GPU, in the order of the
 * data (runtime/common/order.h, the same code as the host's), into the batches of one or more
 * steps. CMake compiles this file to PTX text, which ftrun holds as a string. A row is copied by
 * `lanes` threads; threads beyond the last row do nothing. */
#define ORDER_LINKAGE static
#include "runtime/common/order.c"

#define SPECIAL(name) __nvvm_read_ptx_sreg_##name()
typedef unsigned int Four __attribute__((ext_vector_type(4), aligned(16)));
#define GLOBAL __attribute__((address_space(1)))

static void copy_row(GLOBAL const char *from, GLOBAL char *to, int64_t bytes, int64_t lane,
                     int64_t lanes) {
  if (bytes % 16 == 0) { /* rows start at multiples of 16 then */
    for (int64_t i = lane; i < bytes / 16; i += lanes)
      ((GLOBAL Four *)to)[i] = ((GLOBAL const Four *)from)[i];
  } else if (bytes % 4 == 0) {
    for (int64_t i = lane; i < bytes / 4; i += lanes)
      ((GLOBAL uint32_t *)to)[i] = ((GLOBAL const uint32_t *)from)[i];
  } else {
    for (int64_t i = lane; i < bytes; i += lanes) to[i] = from[i];
  }
}

/* from: the split's rows; to: the batch of the first step, the next one `stride` bytes behind.
 * Every parameter is 64 bits wide. */
__attribute__((nvptx_kernel)) void ft_gather(GLOBAL const char *from, GLOBAL char *to,
                                             int64_t row_bytes, int64_t lanes, int64_t batch,
                                             int64_t stride, int64_t samples, int64_t shuffle,
                                             int64_t seed, int64_t first_step, int64_t steps) {
  int64_t thread = (int64_t)SPECIAL(ctaid_x) * SPECIAL(ntid_x) + SPECIAL(tid_x);
  int64_t row = thread / lanes, lane = thread % lanes;
  if (row >= batch * steps) return;
  int64_t step = first_step + row / batch, place = row % batch, per_epoch = samples / batch;
  Order order = order_new(samples, shuffle != 0, (uint64_t)seed, (uint64_t)(step / per_epoch));
  int64_t sample = order_sample(&order, step % per_epoch * batch + place);
  copy_row(from + sample * row_bytes, to + row / batch * stride + place * row_bytes, row_bytes,
           lane, lanes);
}
