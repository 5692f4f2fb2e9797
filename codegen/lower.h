/* lower: memory-planned graphs to a plan: tables, buffers, steps. Kernels are emitted into the
 * modules on the way; structurally equal ones once. Invariant: every buffer lies inside its place,
 * and the places cover all that the steps touch. */
#ifndef FT_CODEGEN_LOWER_H
#define FT_CODEGEN_LOWER_H
#include "codegen/module.h"

/* Fills *plan, and `count` modules with about as much work for LLVM each: which kernel is where
 * depends on the program only. False with errors in the diag of the first. */
bool lower_program(Module *const *modules, int count, const Program *program, Plan *plan);
#endif
