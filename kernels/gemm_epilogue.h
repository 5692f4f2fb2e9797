/* gemm_epilogue: a finished tile goes to memory through shared memory and the epilogue, part by
 * part: shared by gemm_loop.h and wgmma_ptx.h. Included after the type Total (a thread's sums) is
 * defined, with these promised. */
#ifndef FT_KERNELS_GEMM_EPILOGUE_H
#define FT_KERNELS_GEMM_EPILOGUE_H

/* Puts part `pass` of the sums into shared memory, as store_part wants it. */
ALWAYS void stage_sums(Sums memory, int thread, int pass, const Total *sum);

ALWAYS void store_tile(void *const *args, Sums memory, const Where *w, const Total *sum) {
  Columns columns = {0};
#pragma clang loop unroll(disable)
  for (int pass = 0; pass < gemm_passes(); pass++) {
    meet(); /* the panels, or the part before, have been read */
    stage_sums(memory, w->thread, pass, sum);
    meet();
    store_part(args, memory, w, pass, &columns);
  }
  if (!numbers()) return;
  meet();
  store_columns(args, memory, w, &columns);
}
#endif
