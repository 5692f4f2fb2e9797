/* plan_cubin: machine code for one kind of GPU (a cubin, which ptxas makes of the PTX) in a .ptx file: comment
 * lines behind the PTX, so that the file stays one that ptxas and the driver read.
 *
 *   //@cubin 1 sm_90a bytes=558472 ptx=0123456789abcdef sum=0123456789abcdef
 *   //@cubin-data f0VMRgIBATMHAAAAAAAAAAIAvgB...                             96 bytes a line, base64
 *
 * `ptx` is plan_checksum of all that stands before these lines, of which the code was made; `sum` that
 * of the code. The reader takes the text for hostile; but the code itself goes to the driver. */
#ifndef FT_PLAN_CUBIN_H
#define FT_PLAN_CUBIN_H
#include "base/arena.h"
#include "base/text.h"

typedef struct {
  const char *target;  /* "sm_90a"; NULL: the file has no code */
  const char *problem; /* the code cannot be used, and why; NULL: it can, */
  const uint8_t *bytes;
  size_t count; /* … and is a whole ELF file for NVIDIA's GPUs */
} PlanCubin;

/* How much of the text is PTX. */
size_t plan_ptx_length(const char *text, size_t length);
/* Appends the lines to a whole .ptx without such ones. */
void plan_append_cubin(Text *out, const char *target, const void *bytes, size_t count);
/* In the arena. */
PlanCubin plan_read_cubin(Arena *arena, const char *text, size_t length);
/* Does a GPU of compute capability major.minor run code for this target? */
bool plan_cubin_fits(const char *target, int major, int minor);
#endif
