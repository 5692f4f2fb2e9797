/* onnx_private: what onnx.c and onnx_ops.c share. Broadcasts are left to ONNX's operators, which take dimensions of 1 for any: a value
 * is kept with the dimensions that it has there, and expanded where an operator wants them all. */
#ifndef FT_CODEGEN_ONNX_PRIVATE_H
#define FT_CODEGEN_ONNX_PRIVATE_H
#include "codegen/onnx_wire.h"
#include "frontend/program.h"
#include "passes/samples.h"

typedef struct {
  const char *name; /* NULL: not made yet */
  Shape shape;      /* as it is there: 1 where a broadcast is left to the reader */
} OnnxValue;

typedef struct {
  Arena *arena;
  const Graph *graph;
  const Samples *samples; /* by node */
  int64_t batch;
  bool is_fixed;     /* the batch is a number */
  bool needs_fixed;  /* it turned out that it must be */
  const char *why;   /* refused */
  OnnxValue *value;  /* by node */
  int count;         /* of names */
  Text nodes, constants;
} Onnx;

/* The dimension that has the samples; -1: none, or the batch is a number. */
int onnx_batch_axis(const Onnx *o, const Node *node);
const char *onnx_refuse(Onnx *o, const Node *node, const char *why);
/* A name of its own. */
const char *onnx_name(Onnx *o);
/* Constants: integers of rank 1; a number of a type, [] . */
const char *onnx_list(Onnx *o, const int64_t *values, int count);
const char *onnx_number(Onnx *o, DType dtype, double value);
/* A node of one result; attributes (AttributeProtos) are freed; NULL: none. Inputs that are NULL end the list. */
const char *onnx_node(Onnx *o, const char *op, Text *attributes, const char *a, const char *b, const char *c);
const char *onnx_node_of(Onnx *o, const char *op, Text *attributes, const char *const *inputs, int count);
/* The input of a node, with all its dimensions, or those of a mask; as it is. */
const char *onnx_whole_along(Onnx *o, const Node *node, unsigned axes);
const char *onnx_whole(Onnx *o, const Node *node);
const char *onnx_value(const Onnx *o, const Node *node);
const char *onnx_cast(Onnx *o, const char *x, DType dtype);
/* The operators of a node (onnx_ops.c); NULL after a refusal. *shape comes with node->type.shape. */
const char *onnx_convert(Onnx *o, const Node *node, Shape *shape);
#endif
