/* onnx_wire: bytes of ONNX files, which are messages of Protocol Buffers: fields of a number, each a variable-length integer or bytes
 * with their length in front. Numbers of fields are those of onnx.proto. */
#ifndef FT_CODEGEN_ONNX_WIRE_H
#define FT_CODEGEN_ONNX_WIRE_H
#include "base/text.h"
#include "ir/type.h"

void wire_int(Text *out, int field, int64_t value);
void wire_bytes(Text *out, int field, const void *bytes, size_t count);
void wire_text(Text *out, int field, const char *text);
/* The message as a field; frees it. */
void wire_message(Text *out, int field, Text *message);

/* TensorProto.DataType; 0: ONNX has no such type, or its operators take none. */
int onnx_type(DType dtype);
/* A ValueInfoProto; batch: the dimension that is "batch", -1: none. */
void onnx_value_info(Text *out, int field, const char *name, const Type *type, int batch);
/* A TensorProto. */
void onnx_tensor(Text *out, int field, const char *name, const Type *type, const void *bytes, size_t count);
/* AttributeProtos of a NodeProto. */
void onnx_int(Text *node, const char *name, int64_t value);
void onnx_ints(Text *node, const char *name, const int64_t *values, int count);
#endif
