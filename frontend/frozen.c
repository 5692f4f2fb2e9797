/* frozen: frozen(layer, "weights.safetensors") applied is the layer as a file of weights has it, in
 * evaluation: a teacher (Hinton et al., Distilling the knowledge in a neural network, 2015), or a network
 * that only measures. Its parameters and states are leaves of role given, which nothing updates and no
 * checkpoint holds: `training` is false inside of it, and gradients flow through it to its input only. */
#include "frontend/builder.h"
#include <string.h>

Value frozen_layer(Call *call) {
  Builder *b = call->b;
  Value layer = call->arg[0];
  DType dtype;
  if (layer.kind != VALUE_LAYER) {
    builder_fail(b, call->at[0],
                 "frozen() takes a layer and gives one with the weights of a file, not %s: "
                 "teacher = frozen(Net(512, name=\"teacher\"), \"teacher.safetensors\")",
                 value_describe(b->arena, &layer));
    return value_error();
  }
  if (call->arg[1].kind != VALUE_STRING || !call->arg[1].s[0]) {
    builder_fail(b, call->at[1], "frozen() needs the name of a file of weights, not %s",
                 value_describe(b->arena, &call->arg[1]));
    return value_error();
  }
  if (!builtin_dtype(call, 2, DT_F32, &dtype)) return value_error();
  if (dtype != DT_F32 && dtype != DT_BF16) {
    builder_fail(b, call->at[2], "the weights of a frozen layer are kept in f32 or bf16, not %s",
                 dtype_text(dtype));
    return value_error();
  }
  if (layer.file || layer.is_average) {
    builder_fail(b, call->loc, "this layer has %s in place of its parameters already",
                 layer.file ? "the weights of a file" : "averages");
    return value_error();
  }
  layer.file = call->arg[1].s;
  layer.is_bf16 = dtype == DT_BF16;
  return layer;
}

/* "fc1.weight" of "teacher.fc1.weight", for the layer "teacher". */
static const char *name_in_file(Builder *b, const char *path) {
  const char *layer = block_path(b, b->frozen.layer);
  size_t length = strlen(layer);
  bool is_below = length && !strncmp(path, layer, length) && path[length] == '.';
  return is_below ? path + length + 1 : path;
}

Node *frozen_leaf(Builder *b, const char *path, Type type, Loc loc) {
  if (type.dtype != DT_F32) {
    builder_fail(b, loc, "'%s' is %s: a frozen layer has parameters and states of f32 only", path,
                 dtype_text(type.dtype));
    return NULL;
  }
  if (b->frozen.is_bf16) type.dtype = DT_BF16;
  Attr attrs[] = {attr_str(ATTR_NAME, path), attr_str(ATTR_INIT, "zeros"),
                  attr_str(ATTR_FILE, b->frozen.file),
                  attr_str(ATTR_TENSOR_NAME, name_in_file(b, path))};
  Node *leaf = tensor_node(b, OP_STATE, NULL, 0, attrs, 4, &type, loc);
  if (leaf) leaf->role = ROLE_GIVEN;
  return leaf;
}

Node *frozen_value(Builder *b, Node *leaf, Loc loc) {
  const char *of = leaf->role == ROLE_GIVEN ? node_str(leaf, ATTR_FILE) : NULL;
  bool is_same = of && b->frozen.file ? !strcmp(of, b->frozen.file) : !of && !b->frozen.file;
  if (!is_same) {
    builder_fail(b, loc,
                 "the layer of '%s' is applied frozen, with the weights of \"%s\", and otherwise: "
                 "make one more layer for frozen()",
                 node_str(leaf, ATTR_NAME), of ? of : b->frozen.file);
    return NULL;
  }
  return of && leaf->type.dtype != DT_F32 ? tensor_cast(b, leaf, DT_F32, loc) : leaf;
}
