/* onnx: the evaluation's graph as an ONNX model without its weights, for `ftrun deploy W -o model.onnx`. It is made of the graph as the front
 * end has it, before passes, so names, layouts and shapes are those of the program. The batch is a dimension of any size, unless something
 * in the model needs its number (samples that are related to each other, a constant table by sample).
 *
 * The text, which the section .ft_onnx of a .so for inference holds, is lines and then bytes:
 *   onnx 1                         or   refused WHY
 *   param NAME AS / state NAME AS  what becomes an initializer, and under which name
 *   model BYTES                    a ModelProto follows, of so many bytes. Initializers go behind it as a further
 *                                  field `graph`: messages that are written one behind the other are merged */
#ifndef FT_CODEGEN_ONNX_H
#define FT_CODEGEN_ONNX_H
#include "frontend/program.h"

enum { ONNX_IR_VERSION = 10, ONNX_OPSET = 21 };
/* The program as it comes from the front end. */
void onnx_describe(const Program *program, Text *out);
#endif
