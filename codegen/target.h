/* target: the processors that code is made for, and LLVM's optimiser and back ends. */
#ifndef FT_CODEGEN_TARGET_H
#define FT_CODEGEN_TARGET_H
#include "codegen/module.h"

/* Makes the LLVM module and target machine for options->target (cpu: options->cpu, or the highest
 * x86-64 level that this machine has). False with a diagnostic, e.g. for an unknown --gpu. */
bool target_open(Module *module, Arena *arena, Diag *diag, const CodegenOptions *options);
/* Before module_link, so that what came with ft's build is not looked at again. False, with a diagnostic, if ft made
 * illegal IR. */
bool target_verify(Module *module);
/* The whole-module pipeline, then nothing in it is fit for linking any more. */
bool target_optimize(Module *module);
bool target_emit(Module *module, LLVMCodeGenFileType kind, Text *out);
void target_close(Module *module);
#endif
