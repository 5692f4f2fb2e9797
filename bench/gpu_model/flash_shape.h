/* flash_shape: the parameters of FlashAttention-3 that forward and backward have in common: tensors [batch, length, heads,
 * features] without gaps. After the headers of FlashAttention. */
#ifndef FT_BENCH_FLASH_SHAPE_H
#define FT_BENCH_FLASH_SHAPE_H
#include <cmath>

static void describe(Flash_fwd_params &p, int batch, int heads, int length, int features, bool is_causal, int multiprocessors) {
  p.b = p.b_k = batch;
  p.h = p.h_k = heads;
  p.seqlen_q = p.seqlen_k = p.seqlen_q_rounded = p.seqlen_k_rounded = length;
  p.d = p.dv = p.d_rounded = p.dv_rounded = features;
  p.q_row_stride = p.k_row_stride = p.v_row_stride = p.o_row_stride = int64_t(heads) * features;
  p.q_head_stride = p.k_head_stride = p.v_head_stride = p.o_head_stride = features;
  p.q_batch_stride = p.k_batch_stride = p.v_batch_stride = p.o_batch_stride = int64_t(length) * heads * features;
  p.v_dim_stride = 1;
  p.scale_softmax = 1 / sqrtf(float(features));
  p.window_size_left = -1;
  p.window_size_right = is_causal ? 0 : -1;
  p.is_bf16 = true;
  p.is_causal = is_causal;
  p.num_splits = 1;
  p.arch = 90;
  p.num_sm = multiprocessors;
}

#endif
