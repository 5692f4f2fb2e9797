/* deploy: what ftc --inference adds: to a .so the function PREFIX_run, which predicts without a runtime. */
#ifndef FT_CODEGEN_DEPLOY_H
#define FT_CODEGEN_DEPLOY_H
#include "codegen/module.h"
#include "plan/plan_inference.h"

/* After lowering. Puts tables, the function and room for the weights (section .ft_weights, zeros, which
 * ftrun deploy fills) into the first module, and takes the kernels that no evaluation has from all of them.
 * onnx (NULL: none) becomes the section .ft_onnx. For PTX there is no function, but a kernel that looks at values
 * (kernels/deploy_ptx.c). False with an error in the diag of the first. */
bool deploy_add(Module *const *modules, int count, const Plan *plan, const Text *onnx);
/* Of a portable module, after LLVM's optimiser: its C text, without the weights, becomes the section .ft_c. False
 * with an error in the module's diag. */
bool deploy_write_c(Module *module, const Plan *plan);

/* ── what both forms have, as kernels/deploy_x86.c reads it ── */
int deploy_step_kind(const PlanStep *step); /* its Kind there */
/* Assembly: a section of these bytes that is not loaded with the library. */
void deploy_section(const char *name, const Text *bytes, Text *out);
#endif
