/* FlashAttention-3's backward kernels for sm_90a in the simulator (peer.h): bf16, heads of 64 or 128 features, all of one
 * length, with and without a causal mask, in any order of the sums for dq (its default). The kernels, and the host code
 * that makes their parameters, are FlashAttention's (hopper/); this chooses the template arguments as its
 * run_mha_bwd_hdim64 and run_mha_bwd_hdim128 do.
 *
 *   flash_backward GPU BLOCKS FILE.ptx REGISTERS MULTIPROCESSORS BATCH HEADS LENGTH FEATURES CAUSAL [Q K V O L DY DQ DK DV]
 *
 * Tensors are [batch, length, heads, features]; L is the logarithm of the softmax's sums, f32 [batch, heads, length]. DQ,
 * DK and DV are written. Three launches: the sums of dy . out and zeros for dq, the gradients, and dq rounded. */
#include "bench/gpu_model/peer.h"
#include "flash_bwd_launch_template.h"
#include "bench/gpu_model/flash_shape.h"
#include <cstdio>
#include <cstdlib>

using Brain = cutlass::bfloat16_t;

/* Rows of queries and of keys in a tile; whether products are taken the other way round, and how warpgroups share them. */
template <int ROWS, int KEYS, int FEATURES, bool CAUSAL, bool TURNS_DQ, int ACROSS_DQ> static void backward(Flash_bwd_params &p) {
  p.seqlen_q_rounded = (p.seqlen_q + ROWS - 1) / ROWS * ROWS;
  p.seqlen_k_rounded = (p.seqlen_k + KEYS - 1) / KEYS * KEYS;
  int64_t padded = int64_t(p.b) * p.h * p.seqlen_q_rounded;
  p.dsoftmax_sum = peer_memory(4 * padded, nullptr);
  p.softmax_lse_log2_ptr = peer_memory(4 * padded, nullptr);
  p.dq_accum_ptr = peer_memory(4 * padded * FEATURES, nullptr);
  p.dq_semaphore = static_cast<int *>(peer_memory(4 * padded / ROWS, nullptr));
  run_flash_bwd<90, FEATURES, ROWS, KEYS, Brain, CAUSAL, false, false, false, false, false, 2, 2, true, false, TURNS_DQ, 2, 1, 2, ACROSS_DQ, false>(p, nullptr);
}

static void describe_gradients(Flash_bwd_params &p) {
  p.do_row_stride = p.dq_row_stride = p.dk_row_stride = p.dv_row_stride = p.q_row_stride;
  p.do_head_stride = p.dq_head_stride = p.dk_head_stride = p.dv_head_stride = p.q_head_stride;
  p.do_batch_stride = p.dq_batch_stride = p.dk_batch_stride = p.dv_batch_stride = p.q_batch_stride;
}

static void *memory(int64_t bytes, char **file, int number) { return peer_memory(bytes, file ? file[number] : nullptr); }

int main(int count, char **word) {
  if (count != 11 && count != 20) {
    fprintf(stderr, "flash_backward: GPU BLOCKS FILE.ptx REGISTERS MULTIPROCESSORS BATCH HEADS LENGTH FEATURES CAUSAL [Q K V O L DY DQ DK DV]\n");
    return 1;
  }
  int batch = atoi(word[6]), heads = atoi(word[7]), length = atoi(word[8]), features = atoi(word[9]);
  bool is_causal = atoi(word[10]);
  char **file = count == 20 ? word + 11 : nullptr;
  int64_t rows = int64_t(batch) * heads * length, bytes = 2 * rows * features;
  Flash_bwd_params p = {};
  peer_begin(word[1], atol(word[2]), word[3], word[4]);
  describe(p, batch, heads, length, features, is_causal, atoi(word[5]));
  describe_gradients(p);
  p.q_ptr = memory(bytes, file, 0);
  p.k_ptr = memory(bytes, file, 1);
  p.v_ptr = memory(bytes, file, 2);
  p.o_ptr = memory(bytes, file, 3);
  p.softmax_lse_ptr = memory(4 * rows, file, 4);
  p.do_ptr = memory(bytes, file, 5);
  p.dq_ptr = peer_memory(bytes, nullptr);
  p.dk_ptr = peer_memory(bytes, nullptr);
  p.dv_ptr = peer_memory(bytes, nullptr);
  p.tile_count_semaphore = static_cast<int *>(peer_memory(4, nullptr));
  double sums = 2.0 * bytes; /* dq in f32: written, added to and read, once each */
  peer_work(2.0 * bytes + 12.0 * rows + sums, 0, "before");
  peer_work(6.0 * bytes + 8.0 * rows + sums, 10.0 * rows * length * features / (is_causal ? 2 : 1), "backward");
  peer_work(1.0 * bytes + sums, 0, "behind");
  if (features == 64)
    is_causal ? backward<128, 128, 64, true, false, 2>(p) : backward<128, 128, 64, false, false, 2>(p);
  else if (features == 128)
    is_causal ? backward<64, 128, 128, true, false, 1>(p) : backward<80, 128, 128, false, true, 1>(p);
  else {
    fprintf(stderr, "flash_backward: there is no kernel for %d features\n", features);
    return 1;
  }
  if (file) {
    peer_write(file[6], p.dq_ptr, bytes);
    peer_write(file[7], p.dk_ptr, bytes);
    peer_write(file[8], p.dv_ptr, bytes);
  }
  return 0;
}
