/* type: element types, shapes, tensor types. Shapes are static: every dimension is a number by the
 * time a Graph exists. A dimension may be 0 (an empty tensor). Rank 0 is a scalar. */
#ifndef FT_IR_TYPE_H
#define FT_IR_TYPE_H
#include <stdbool.h>
#include <stdint.h>

/* X(ID, text, bytes): the types that a program may name. */
#define DTYPES(X)                                                                                  \
  X(BOOL, "bool", 1) /* one byte, 0 or 1 */                                                        \
  X(U8, "u8", 1)                                                                                   \
  X(I32, "i32", 4)                                                                                 \
  X(U32, "u32", 4)                                                                                 \
  X(I64, "i64", 8)                                                                                 \
  X(F16, "f16", 2)                                                                                 \
  X(BF16, "bf16", 2)                                                                               \
  X(F32, "f32", 4)                                                                                 \
  X(F64, "f64", 8)
/* The 8-bit float formats of the OCP 8-bit Floating Point Specification (2023): what is beyond the largest number becomes
 * that as it is rounded. Only operands of products have them, and only in a graph's working memory. */
#define FLOAT8_DTYPES(X)                                                                           \
  X(E4M3, "e4m3", 1)                                                                               \
  X(E5M2, "e5m2", 1)

typedef enum {
#define X(ID, text, bytes) DT_##ID,
  DTYPES(X) FLOAT8_DTYPES(X)
#undef X
      DT_COUNT,
  DT_NAMED = DT_E4M3 /* so many may be named */
} DType;

const char *dtype_text(DType dtype);
bool dtype_parse(const char *text, DType *out);
bool dtype_parse_named(const char *text, DType *out); /* not e4m3 and e5m2 */
int dtype_bytes(DType dtype);
bool dtype_is_float(DType dtype);
static inline bool dtype_is_narrow(DType dtype) { return dtype == DT_F16 || dtype == DT_BF16; }
static inline bool dtype_is_float8(DType dtype) { return dtype == DT_E4M3 || dtype == DT_E5M2; }
/* How a target takes the operands of products of 8-bit floats, if it has such: in any order, or only with neighbours in
 * the sum's dimension side by side. */
typedef enum { FLOAT8_NONE, FLOAT8_ANY_ORDER, FLOAT8_ALONG_K } Float8Unit;
bool dtype_is_integer(DType dtype); /* u8 i32 u32 i64; not bool */
/* What a maximum (is_least) or a minimum over no elements is: the end of the type's range, or the
 * last number before it that is a double. */
double dtype_extreme(DType dtype, bool is_least);
double dtype_largest(DType dtype); /* the largest finite number of a float type */

enum { MAX_RANK = 8 };

typedef struct {
  int rank;
  int64_t dim[MAX_RANK];
} Shape;

typedef struct {
  DType dtype;
  Shape shape;
  int64_t pitch; /* elements between the beginnings of rows, which the last dimension is, in memory;
                    0: they lie side by side. It says nothing of the values: two types are equal
                    without it. What lies between rows may be anything, and nobody reads it. */
} Type;

Shape shape_scalar(void);
Shape shape_of(int rank, const int64_t *dim);
bool shape_equal(const Shape *a, const Shape *b);
bool type_equal(const Type *a, const Type *b);
/* … and their elements lie alike. */
bool type_lies_alike(const Type *a, const Type *b);
int64_t shape_elements(const Shape *shape); /* 1 for a scalar; shapes are checked not to overflow */
int64_t shape_last(const Shape *shape);     /* the last dimension, of a scalar 1: how long rows are */
/* The product of the dimensions from .. to - 1. */
int64_t shape_elements_between(const Shape *shape, int from, int to);
/* Rank and dimensions in range and at most MAX_ELEMENTS elements (zeros counted as ones, so that
 * strides cannot overflow either). Every type that infer_type gives is legal. */
#define MAX_ELEMENTS ((int64_t)1 << 40)
bool shape_is_legal(const Shape *shape);
/* Sizes, strides and paddings of a convolution are at most this, so that a plan's offsets need no
 * checks of their own. */
#define MAX_WINDOW ((int64_t)1 << 20)
/* Are start, start + step, ..., `count` of them (1 at least), places of a dimension of this size?
 */
bool shape_has_steps(int64_t size, int64_t start, int64_t step, int64_t count);
int64_t type_bytes(const Type *type); /* in memory, what lies between rows included */
/* A pitch is a multiple of 16 bytes, and at most twice a row; 0 is legal. */
enum { PITCH_UNIT = 16 };
bool type_has_legal_pitch(const Type *type);
/* The place in memory, in elements, of the element of this number. */
int64_t type_place(const Type *type, int64_t element);
/* The number of the element at this place; -1: it lies between two rows. */
int64_t type_element(const Type *type, int64_t place);
/* Copies the elements, so that rows lie side by side in `to`. */
void type_pack_rows(const Type *type, const char *from, char *to);
/* Row-major strides in elements. */
void shape_strides(const Shape *shape, int64_t stride[MAX_RANK]);
/* NumPy broadcasting of two shapes; false if they do not agree. */
bool shape_broadcast(const Shape *a, const Shape *b, Shape *out);
/* How a tensor's elements lie in memory if not in row-major order: seen as `view`, a shape of as
 * many elements, and transposed, so that dimension i of what lies there is dimension perm[i] of the
 * view. view.rank 0: as they are. */
typedef struct {
  Shape view;
  int64_t perm[MAX_RANK];
} Storage;
bool storage_is_legal(const Storage *storage, const Shape *shape); /* for a tensor of this shape */
Shape storage_shape(const Storage *storage);                       /* of what lies in memory */
/* Takes what lies in memory back to row-major order. */
Storage storage_inverse(const Storage *storage);
/* The same in as few dimensions as there can be: one form for one order; rank 0 where nothing
 * moves. */
Storage storage_merged(const Storage *storage);
bool storage_equal(const Storage *a, const Storage *b); /* do they mean the same order? */
/* The row-major number of the element that lies at this place. */
int64_t storage_element(const Storage *storage, int64_t place);
/* A tensor that ranks share out: each has so many of its elements, in the order of memory; behind
 * the last element come zeros. Whole cache lines of each type that it may be rounded to. */
enum { PART_ALIGN = 32 };
static inline int64_t part_elements(int64_t elements, int64_t parts) {
  int64_t least = elements / parts + (elements % parts != 0);
  return (least + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
}
/* What a loss or metric may be: one number, or of a metric a row or table of so many. */
enum { METRIC_MOST_RANK = 2, METRIC_MOST_ELEMENTS = 1 << 20 };
bool type_is_metric(const Type *type);
/* f32[n, 1 + C]: rows of a class and C scores, of which an AUC is made. */
bool type_is_auc(const Type *type);

/* "f32[64,10]", or "f32[64,10:16]" with a pitch of 16; the buffer needs TYPE_TEXT bytes. Returns buffer. */
enum { TYPE_TEXT = 224 };
char *type_text(const Type *type, char buffer[TYPE_TEXT]);
char *shape_text(const Shape *shape, char buffer[TYPE_TEXT]); /* "[64,10]" */
#endif
