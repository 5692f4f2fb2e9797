/* host: CPU skeletons: loops, rows and columns around the emitter.
 * Invariant: the bits a kernel writes do not depend on how its work items are split over threads.
 */
#ifndef FT_CODEGEN_HOST_H
#define FT_CODEGEN_HOST_H
#include "codegen/emit.h"

/* Emits the kernel of a FUSED node (loop, row, column, or the epilogue of dot and conv around their
 * library call) or of a SCATTER_ADD or PUT. `alias[i]`: the operand at the same address as result
 * i, or -1. False with an error in module->diag. */
bool host_emit(Module *module, const Node *node, const char *name, const int *alias, Kernel *out);
#endif
