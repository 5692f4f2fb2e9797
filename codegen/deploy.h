/* deploy: what ftc --inference adds to a .so: the function PREFIX_run, which predicts without a runtime. */
#ifndef FT_CODEGEN_DEPLOY_H
#define FT_CODEGEN_DEPLOY_H
#include "codegen/module.h"

/* After lowering. Puts tables, the function and room for the weights (section .ft_weights, zeros, which
 * ftrun deploy fills) into the first module, and takes the kernels that no evaluation has from all of them.
 * onnx (NULL: none) becomes the section .ft_onnx. False with an error in the diag of the first. */
bool deploy_add(Module *const *modules, int count, const Plan *plan, const Text *onnx);
#endif
