/* gemm_leave: a finished tile leaves through shared memory, part by part: shared by gemm_loop.h and
 * wgmma_ptx.h. Included after the type Total (a thread's sums) is defined, with these promised. */
#ifndef FT_KERNELS_GEMM_LEAVE_H
#define FT_KERNELS_GEMM_LEAVE_H

/* Puts part `pass` of the sums into shared memory, as leave_part wants it. */
ALWAYS void leave(Sums memory, int thread, int pass, const Total *sum);

ALWAYS void leave_tile(void *const *args, Sums memory, const Where *w, const Total *sum) {
  Columns columns = {0};
#pragma clang loop unroll(disable)
  for (int pass = 0; pass < gemm_passes(); pass++) {
    meet(); /* the panels, or the part before, have been read */
    leave(memory, w->thread, pass, sum);
    meet();
    leave_part(args, memory, w, pass, &columns);
  }
  if (!numbers()) return;
  meet();
  leave_columns(args, memory, w, &columns);
}
#endif
