/* peer: what the CUDA runtime is to a program that nvcc has compiled, with the simulator in place of a GPU: launches run
 * the PTX that nvcc kept (--keep), and print how long they would take (reckon.h). Only what CUTLASS and FlashAttention
 * call; a function that is missing here is missing when the program is linked.
 *
 *   peer_begin("h100", 4, "gemm.ptx", "gemm.registers");   // 0 blocks: all of them, every access checked, nothing reckoned; -1: the same without checks
 *   void *a = peer_memory(2 * m * k, "a.bf16");            // device memory; NULL: zeros that count as written
 *   peer_work(bytes, flops, "64x128");                     // of the next launch; called once more: of the one behind it; the last: of all that follow
 *   …launches…
 *   peer_write("c.bf16", c, 2 * m * n);
 *
 * The file of registers has a kernel's name and its registers in each line. Errors end the program with one line. */
#ifndef FT_BENCH_PEER_H
#define FT_BENCH_PEER_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
void peer_begin(const char *gpu, long blocks, const char *ptx, const char *registers);
void *peer_memory(int64_t bytes, const char *file);
void peer_work(double bytes, double flops, const char *label);
/* A counter from which blocks draw their work: see SimLaunch.counter. */
void peer_counter(const void *counter);
void peer_write(const char *file, const void *at, int64_t bytes);
#ifdef __cplusplus
}
#endif
#endif
