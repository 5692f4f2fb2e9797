/* deploy_onnx: the ONNX model of an artifact for inference, with the weights that it has read. What ftc says of it is the section .ft_onnx
 * (codegen/onnx.h); initializers are written behind it. */
#ifndef FT_RUNTIME_DEPLOY_ONNX_H
#define FT_RUNTIME_DEPLOY_ONNX_H
#include "base/text.h"
#include "runtime/execute/exec.h"

STATUS_CHECKED Status deploy_onnx(Exec *exec, const Artifact *artifact, Text *out);
#endif
