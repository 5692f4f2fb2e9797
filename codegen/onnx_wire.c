/* onnx_wire: see onnx_wire.h. */
#include "codegen/onnx_wire.h"
#include <string.h>

enum { WIRE_VARINT = 0, WIRE_BYTES = 2 };
enum { ATTRIBUTE_INT = 2, ATTRIBUTE_INTS = 7 };

static void wire_varint(Text *out, uint64_t value) {
  char bytes[10];
  size_t count = 0;
  do {
    bytes[count++] = (char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
    value >>= 7;
  } while (value);
  text_append(out, bytes, count);
}

static void wire_tag(Text *out, int field, int kind) { wire_varint(out, (uint64_t)(field << 3 | kind)); }

void wire_int(Text *out, int field, int64_t value) {
  wire_tag(out, field, WIRE_VARINT);
  wire_varint(out, (uint64_t)value);
}

void wire_bytes(Text *out, int field, const void *bytes, size_t count) {
  wire_tag(out, field, WIRE_BYTES);
  wire_varint(out, count);
  if (count) text_append(out, bytes, count);
}

void wire_text(Text *out, int field, const char *text) { wire_bytes(out, field, text, strlen(text)); }

void wire_message(Text *out, int field, Text *message) {
  wire_bytes(out, field, message->at, message->count);
  text_free(message);
}

int onnx_type(DType dtype) {
  switch (dtype) {
  case DT_F32:
    return 1;
  case DT_U8:
    return 2;
  case DT_I32:
    return 6;
  case DT_I64:
    return 7;
  case DT_BOOL:
    return 9;
  case DT_F16:
    return 10;
  case DT_F64:
    return 11;
  case DT_U32:
    return 12;
  case DT_BF16:
    return 16;
  default:
    return 0;
  }
}

void onnx_value_info(Text *out, int field, const char *name, const Type *type, int batch) {
  Text info = {0}, of = {0}, tensor = {0}, shape = {0};
  for (int i = 0; i < type->shape.rank; i++) {
    Text dim = {0};
    if (i == batch)
      wire_text(&dim, 2, "batch");
    else
      wire_int(&dim, 1, type->shape.dim[i]);
    wire_message(&shape, 1, &dim);
  }
  wire_int(&tensor, 1, onnx_type(type->dtype));
  wire_message(&tensor, 2, &shape);
  wire_message(&of, 1, &tensor);
  wire_text(&info, 1, name);
  wire_message(&info, 2, &of);
  wire_message(out, field, &info);
}

void onnx_tensor(Text *out, int field, const char *name, const Type *type, const void *bytes, size_t count) {
  Text tensor = {0};
  for (int i = 0; i < type->shape.rank; i++) wire_int(&tensor, 1, type->shape.dim[i]);
  wire_int(&tensor, 2, onnx_type(type->dtype));
  wire_text(&tensor, 8, name);
  wire_bytes(&tensor, 9, bytes, count);
  wire_message(out, field, &tensor);
}

void onnx_int(Text *node, const char *name, int64_t value) {
  Text attribute = {0};
  wire_text(&attribute, 1, name);
  wire_int(&attribute, 3, value);
  wire_int(&attribute, 20, ATTRIBUTE_INT);
  wire_message(node, 5, &attribute);
}

void onnx_ints(Text *node, const char *name, const int64_t *values, int count) {
  Text attribute = {0};
  wire_text(&attribute, 1, name);
  for (int i = 0; i < count; i++) wire_int(&attribute, 8, values[i]);
  wire_int(&attribute, 20, ATTRIBUTE_INTS);
  wire_message(node, 5, &attribute);
}
