/* CUTLASS's kernels for sm_90a in the simulator (peer.h): c[m,n] = a[m,k] b[n,k]^T of bf16, sums in f32, c in bf16. The
 * kernels, and the host code that makes their parameters, are CUTLASS's; this names the template arguments.
 *
 *   cutlass GPU BLOCKS FILE.ptx REGISTERS MULTIPROCESSORS KERNEL M N K [A B C]
 *
 * KERNEL: a row of the table below; A, B, C: files, of which C is written. */
#include "bench/gpu_model/peer.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include <cstdio>
#include <cstdlib>

using Brain = cutlass::bfloat16_t;
using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;

struct Sizes {
  int m, n, k, multiprocessors;
  void *a, *b, *c;
};

/* Tiles of M x N x 64, clusters of CLUSTER blocks along m, schedules of the main loop and of what follows it. */
template <int M, int N, int CLUSTER, class Loop, class End> static int multiply(const Sizes &s) {
  using namespace cutlass;
  using Tile = cute::Shape<cute::Int<M>, cute::Int<N>, cute::_64>;
  using Cluster = cute::Shape<cute::Int<CLUSTER>, cute::_1, cute::_1>;
  using Epilogue = typename epilogue::collective::CollectiveBuilder<arch::Sm90, arch::OpClassTensorOp, Tile, Cluster, epilogue::collective::EpilogueTileAuto, float,
                                                                    float, void, Row, 8, Brain, Row, 8, End>::CollectiveOp;
  using Stages = gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>;
  using Main = typename gemm::collective::CollectiveBuilder<arch::Sm90, arch::OpClassTensorOp, Brain, Row, 8, Brain, Column, 8, float, Tile, Cluster, Stages,
                                                            Loop>::CollectiveOp;
  using Kernel = gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Main, Epilogue>;
  using Gemm = gemm::device::GemmUniversalAdapter<Kernel>;
  typename Gemm::Arguments arguments{gemm::GemmUniversalMode::kGemm,
                                     {s.m, s.n, s.k, 1},
                                     {static_cast<Brain *>(s.a), {s.k, cute::_1{}, 0}, static_cast<Brain *>(s.b), {s.k, cute::_1{}, 0}},
                                     {{1.0f, 0.0f}, nullptr, {s.n, cute::_1{}, 0}, static_cast<Brain *>(s.c), {s.n, cute::_1{}, 0}}};
  arguments.hw_info.sm_count = s.multiprocessors;
  Gemm product;
  bool is_done = Gemm::can_implement(arguments) == Status::kSuccess && Gemm::get_workspace_size(arguments) == 0 &&
                 product.initialize(arguments) == Status::kSuccess && product.run() == Status::kSuccess;
  return is_done ? 0 : 1;
}

using Pingpong = cutlass::gemm::KernelTmaWarpSpecializedPingpong;
using PingpongEnd = cutlass::epilogue::TmaWarpSpecialized;
using Cooperative = cutlass::gemm::KernelTmaWarpSpecializedCooperative;
using CooperativeEnd = cutlass::epilogue::TmaWarpSpecializedCooperative;
static const struct {
  const char *name;
  int (*run)(const Sizes &);
} kernels[] = {
    {"pingpong-64x128", multiply<64, 128, 1, Pingpong, PingpongEnd>},
    {"pingpong-128x128-2", multiply<128, 128, 2, Pingpong, PingpongEnd>},
    {"cooperative-128x256-2", multiply<128, 256, 2, Cooperative, CooperativeEnd>},
};

int main(int count, char **word) {
  if (count != 10 && count != 13) {
    fprintf(stderr, "cutlass: GPU BLOCKS FILE.ptx REGISTERS MULTIPROCESSORS KERNEL M N K [A B C]\n");
    return 1;
  }
  Sizes s = {atoi(word[7]), atoi(word[8]), atoi(word[9]), atoi(word[5]), nullptr, nullptr, nullptr};
  double m = s.m, n = s.n, k = s.k;
  bool has_files = count == 13;
  peer_begin(word[1], atol(word[2]), word[3], word[4]);
  s.a = peer_memory(2 * int64_t(s.m) * s.k, has_files ? word[10] : nullptr);
  s.b = peer_memory(2 * int64_t(s.n) * s.k, has_files ? word[11] : nullptr);
  s.c = peer_memory(2 * int64_t(s.m) * s.n, nullptr);
  peer_work(2 * (m * k + n * k + m * n), 2 * m * n * k, word[6]);
  for (const auto &kernel : kernels)
    if (!strcmp(kernel.name, word[6])) {
      if (kernel.run(s)) {
        fprintf(stderr, "cutlass: %s does not take %d x %d x %d\n", word[6], s.m, s.n, s.k);
        return 1;
      }
      if (has_files) peer_write(word[12], s.c, 2 * int64_t(s.m) * s.n);
      return 0;
    }
  fprintf(stderr, "cutlass: there is no kernel %s\n", word[6]);
  return 1;
}
