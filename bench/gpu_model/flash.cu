/* FlashAttention-3's kernels for sm_90a in the simulator (peer.h): bf16, heads of 64 or 128 features, all of one length,
 * with and without a causal mask. The kernels, and the host code that makes their parameters, are FlashAttention's
 * (hopper/); this chooses the template arguments as its run_mha_fwd_ does.
 *
 *   flash GPU BLOCKS FILE.ptx REGISTERS MULTIPROCESSORS forward BATCH HEADS LENGTH FEATURES CAUSAL [Q K V O L]
 *
 * Tensors are [batch, length, heads, features]; L is the logarithm of the softmax's sums, f32 [batch, heads, length]. O and
 * L are written. */
#include "bench/gpu_model/peer.h"
#include "flash_fwd_launch_template.h"
#include "bench/gpu_model/flash_shape.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>

using Brain = cutlass::bfloat16_t;

void prepare_varlen_num_blocks(Flash_fwd_params &, cudaStream_t, bool, int, int, bool) {} /* for lengths that differ */

template <int FEATURES, bool CAUSAL, int CLUSTER> static void forward(Flash_fwd_params &p) {
  run_flash_fwd<90, FEATURES, FEATURES, CLUSTER, Brain, Brain, CAUSAL, false, false, false, false, false, false, false, false, false>(p, nullptr);
}

int main(int count, char **word) {
  if ((count != 12 && count != 17) || strcmp(word[6], "forward")) {
    fprintf(stderr, "flash: GPU BLOCKS FILE.ptx REGISTERS MULTIPROCESSORS forward BATCH HEADS LENGTH FEATURES CAUSAL [Q K V O L]\n");
    return 1;
  }
  int batch = atoi(word[7]), heads = atoi(word[8]), length = atoi(word[9]), features = atoi(word[10]);
  bool is_causal = atoi(word[11]), has_files = count == 17;
  int64_t rows = int64_t(batch) * heads * length, bytes = 2 * rows * features;
  Flash_fwd_params p = {};
  peer_begin(word[1], atol(word[2]), word[3], word[4]);
  describe(p, batch, heads, length, features, is_causal, atoi(word[5]));
  p.q_ptr = peer_memory(bytes, has_files ? word[12] : nullptr);
  p.k_ptr = peer_memory(bytes, has_files ? word[13] : nullptr);
  p.v_ptr = peer_memory(bytes, has_files ? word[14] : nullptr);
  p.o_ptr = peer_memory(bytes, nullptr);
  p.softmax_lse_ptr = peer_memory(4 * rows, nullptr);
  p.tile_count_semaphore = static_cast<int *>(peer_memory(4, nullptr));
  peer_counter(p.tile_count_semaphore);
  peer_work(4.0 * bytes + 4.0 * rows, 4.0 * rows * length * features / (is_causal ? 2 : 1), "forward");
  bool is_even = (length + 127) / 128 % 2 == 0;
  if (features == 64)
    is_causal ? forward<64, true, 1>(p) : forward<64, false, 1>(p);
  else if (features == 128 && !is_causal && is_even)
    forward<128, false, 2>(p);
  else if (features == 128 && is_causal)
    forward<128, true, 1>(p);
  else {
    fprintf(stderr, "flash: there is no kernel for %d features and this length\n", features);
    return 1;
  }
  if (has_files) {
    peer_write(word[15], p.o_ptr, bytes);
    peer_write(word[16], p.softmax_lse_ptr, 4 * rows);
  }
  return 0;
}
