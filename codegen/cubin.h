/* cubin: ftc --cubin: machine code for the GPU that the artifact is compiled for, by NVIDIA's ptxas, behind
 * the PTX (plan/plan_cubin.h), so that the driver of that GPU compiles nothing at the first start. */
#ifndef FT_CODEGEN_CUBIN_H
#define FT_CODEGEN_CUBIN_H
#include "base/diag.h"
#include "base/text.h"

/* Appends it to the whole text of a .ptx for `target` ("sm_90a"). Temporary files lie beside `path`. ptxas is
 * looked for in PATH and in $CUDA_HOME/bin (CUDA_HOME: /usr/local/cuda); without it: false, as with other failures. */
bool cubin_append(Diag *diag, const char *target, const char *path, Text *ptx);
#endif
