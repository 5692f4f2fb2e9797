/* ptx_text: what LLVM 19 has no words for, put into the text of the PTX that it makes.
 *
 * Early launches: programmatic dependent launch (CUDA C++ Programming Guide, "Programmatic Dependent
 * Launch and Synchronization"; PTX ISA, "griddepcontrol"), on sm_90 and later. A kernel may then be begun before the
 * one that it waits for, the kernel before it, has ended. THE rule, which everything else stands on:
 *
 *   The first instruction of every thread of every kernel is griddepcontrol.wait.
 *
 * That instruction "causes the executing thread to wait until all prerequisite grids in flight have
 * completed and all the memory operations from the prerequisite grids are performed and made visible to
 * the current grid" (PTX ISA). So no thread reads what the kernel before still writes, or writes what it still
 * reads. It goes on transitively: the kernel before has ended only when its own threads had waited for
 * the one before that. Which launches are begun early is then no question of what they compute, only of
 * what they wait for: plan_begins_early (plan/plan_order.h). A kernel that is launched in the ordinary way waits for nothing.
 *
 * The second instruction, griddepcontrol.launch_dependents, lets the next kernel's blocks come when all
 * blocks of this one have begun. It stands behind the wait, so no more than two kernels of a chain are there
 * at a time.
 *
 * The text is changed, not LLVM's functions, since LLVM moves loads: a parameter that is noalias and
 * readonly may be loaded before anything, a wait too. For the same reason there is no ld.global.nc in
 * kernels that are begun early: it is for memory that nobody writes as long as the kernel runs, and
 * the kernel before still writes when this one has begun (llama.cpp, pull request 24030, met that race
 * by way of __restrict__).
 *
 * Kernels in module->ordinary keep ld.global.nc, since they would lose more than an early beginning
 * gains (nvptx_contract.c), and so are never begun early themselves. They wait as all do, which in an
 * ordinary launch takes no time, so the kernel behind them may be begun early.
 */
#ifndef FT_CODEGEN_PTX_TEXT_H
#define FT_CODEGEN_PTX_TEXT_H
#include "codegen/module.h"

/* Is the module for a GPU that can begin kernels early, and are its kernels to be such? */
bool ptx_launches_early(const Module *module);
/* Appends LLVM's text, with these words. False: it has not the form that LLVM 19's has. */
bool ptx_text_append(const Module *module, const char *text, size_t count, Text *out);
#endif
