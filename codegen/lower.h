/* lower: memory-planned graphs to a plan: tables, buffers, steps. Kernels are emitted into the
 * module on the way; structurally equal ones once. Invariant: every buffer lies inside its arena,
 * and arena_bytes covers all that the steps touch. */
#ifndef FT_CODEGEN_LOWER_H
#define FT_CODEGEN_LOWER_H
#include "codegen/module.h"

/* Fills *plan. False with errors in module->diag. */
bool lower_program(Module *module, const Program *program, Plan *plan);
#endif
