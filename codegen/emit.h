/* emit: the one expression emitter of both targets. A skeleton (host.c, nvptx.c) makes the loops or
 * threads and asks for the value of a body node at an index; the emitter pulls it through the body.
 *
 * An Index is a mixed-radix number over the elements of a shape in row-major order, most
 * significant digit first, without digits of extent 1. Its digits need not be the shape's
 * dimensions: so a reshape costs nothing, a kernel over contiguous data has one digit, and division
 * appears only where a dimension is asked for whose border no digit has.
 *
 * Values in registers: bool i1; u8 i8; i32, u32 i32; i64 i64; f16, bf16 and f32 float (f16 and bf16
 * rounded to their type after every operation); f64 double. In memory bool is one byte.
 *
 * From kernels/math.c (bitcode math_host, math_ptx) it calls, for exp expm1 log log1p sin cos tanh
 * sigmoid erf pow: float ft_<op>_f32(float[, float]), double ft_<op>_f64(double[, double]); and
 *   float ft_random_f32(int64_t seed, int64_t step, int64_t stream, int64_t element);
 * and, of functions that passes/approximate.c marks, float ft_<op>_approximate_f32(float).
 * sqrt, rsqrt, floor, ceil, round, abs, min and max are LLVM intrinsics. */
#ifndef FT_CODEGEN_EMIT_H
#define FT_CODEGEN_EMIT_H
#include "codegen/module.h"

enum { MAX_DIGITS = 24 };
typedef struct {
  int64_t extent;     /* > 1 */
  LLVMValueRef value; /* of Emitter.index_type, in [0, extent) */
  bool varies;        /* differs between neighbouring lanes of a vector (threads of a warp) */
} Digit;
typedef struct {
  int count;
  Digit digit[MAX_DIGITS];
} Index;

typedef struct Emitter Emitter;
/* Gives the value of a `node` that the skeleton has computed itself; called in place of pulling it
 * through the body. */
typedef LLVMValueRef EmitBound(Emitter *emitter, const Node *node, const Index *index, void *user);
/* Reads operand `arg` of the kernel; NULL in the Emitter means a plain load from pointer[arg]. */
typedef LLVMValueRef EmitLoad(Emitter *emitter, const Node *arg, const Index *index, void *user);

typedef struct EmitMemo EmitMemo;
struct Emitter {
  Module *module;
  Arena *arena; /* scratch of this kernel */
  LLVMBuilderRef builder;
  LLVMTypeRef index_type; /* i64, or i32 where every tensor of the kernel has < 2^31 elements */
  const Graph *body;      /* NULL: no body (gemm and the like) */
  LLVMValueRef function;
  LLVMValueRef *pointer; /* per operand of the fused node, then per result */
  int input_count, result_count;
  const int64_t *pitch; /* per pointer: between the beginnings of its rows, or 0; NULL: all 0 */
  EmitLoad *load; /* NULL: the default */
  void *load_user;
  bool is_reassociating; /* float arithmetic may be regrouped: set inside emit_reduce_step */
  bool is_ordered;       /* not even there: the sums of a window, which are part of one element */
  /* private to emit.c */
  EmitMemo *memo;
  struct EmitBinding *binding; /* by node id */
  struct EmitExtent *extents;  /* emit_check.c */
  int depth;
};

/* `pointer` may be filled in afterwards. The builder is the caller's, positioned by the caller. */
void emitter_init(Emitter *emitter, Module *module, Arena *scratch, const Graph *body,
                  LLVMBuilderRef builder, LLVMTypeRef index_type);

/* The value of `node` at `index`, emitted at the builder's position (which may move to a new
 * block). */
LLVMValueRef emit_value(Emitter *emitter, const Node *node, const Index *index);
/* Emits every node that has one element and depends on nothing larger, at the builder's position:
 * called in a kernel's entry block, it takes scalar chains (learning-rate schedules) out of loops.
 */
void emit_hoist_scalars(Emitter *emitter);
/* How many elements lie at this pointer: with --check-memory every access there asks. */
void emit_extent(Emitter *emitter, LLVMValueRef pointer, int64_t elements);
/* With --check-memory: ends the run unless what was kept is what was computed again at the index,
 * of a tensor of so many elements. */
bool emit_is_checking(const Emitter *emitter);
void emit_check_kept(Emitter *emitter, LLVMValueRef kept, LLVMValueRef again, const Index *index,
                     int64_t elements);
/* From now on `node` is what `get` says (NULL: forget). emit_bind_value: one value for all indices,
 * as a finished reduction has within its row. */
void emit_bind(Emitter *emitter, const Node *node, EmitBound *get, void *user);
void emit_bind_value(Emitter *emitter, const Node *node, LLVMValueRef value);
/* Values are remembered by node and index. Open a scope when entering a block that does not
 * dominate the code behind it (a loop body, a branch), and close it when leaving. */
void emit_scope_open(Emitter *emitter);
void emit_scope_close(Emitter *emitter);

/* A put: `count` of `places` along its axis, `inner` neighbouring elements each. */
typedef struct {
  int64_t inner, places, count, elements; /* elements: of the new part */
} PutForm;
PutForm put_form(const Node *node);

/* Is this a pooling whose taps are unrolled and whose channels run fastest? Then neighbours of the
 * result read neighbours of the input. */
bool emit_window_is_flat(const Node *node);

/* ── memory ── */
LLVMTypeRef emit_register_type(Emitter *emitter, DType dtype);
LLVMTypeRef emit_memory_type(Emitter *emitter, DType dtype);
LLVMValueRef emit_load_at(Emitter *emitter, LLVMValueRef pointer, DType dtype,
                          LLVMValueRef element);
void emit_store_at(Emitter *emitter, LLVMValueRef pointer, DType dtype, LLVMValueRef element,
                   LLVMValueRef value);
/* The place of `index` in the group of neighbours that a GPU moves in one access; the group's size
 * is the power of two that the last digit counts. -1: it is in no group. */
int emit_lane_of(const Emitter *emitter, const Index *index);
/* `width` neighbours, at most 8, from element `at` on, a multiple of width, in one access where
 * they are 16 bytes or less: as they lie in memory, and one of them as a register value. */
LLVMTypeRef emit_group_type(Emitter *emitter, DType dtype, int width);
LLVMValueRef emit_load_group(Emitter *emitter, LLVMValueRef pointer, DType dtype, LLVMValueRef at,
                             int width);
LLVMValueRef emit_group_element(Emitter *emitter, DType dtype, LLVMValueRef group, int lane);
void emit_store_group(Emitter *emitter, LLVMValueRef pointer, DType dtype, LLVMValueRef at,
                      int width, LLVMValueRef *value);
/* The address of an element of this type; of one that is known. */
LLVMValueRef emit_at(Emitter *emitter, LLVMTypeRef type, LLVMValueRef base, LLVMValueRef index);
LLVMValueRef emit_at_number(Emitter *emitter, LLVMTypeRef type, LLVMValueRef base, int64_t number);
/* Conversions between the forms in memory and in registers, for skeletons that move vectors or raw
 * bytes. */
LLVMValueRef emit_from_memory(Emitter *emitter, DType dtype, LLVMValueRef raw);
LLVMValueRef emit_to_memory(Emitter *emitter, DType dtype, LLVMValueRef value);

/* ── reductions: what a skeleton needs to accumulate ── */
/* The neutral element of SUM PROD RMAX RMIN for a dtype, as a register constant. */
LLVMValueRef emit_reduce_identity(Emitter *emitter, Op op, DType dtype);
/* One step of it; NaN propagates in RMAX and RMIN. Also combines partial results. */
LLVMValueRef emit_reduce_step(Emitter *emitter, Op op, DType dtype, LLVMValueRef accumulator,
                              LLVMValueRef value);
/* ARGMAX and ARGMIN are two reductions: first `extreme` = RMAX (RMIN) of the input, then the RMIN
 * (on i32) of this candidate: position along the axis where value is the extreme or NaN, else
 * INT32_MAX. */
LLVMValueRef emit_arg_candidate(Emitter *emitter, DType dtype, LLVMValueRef value,
                                LLVMValueRef extreme, LLVMValueRef position);

/* ── arithmetic: one op of the table on register values (a kernel's epilogue may use it too) ── */
LLVMValueRef emit_pointwise(Emitter *emitter, const Node *node, LLVMValueRef *inputs);
LLVMValueRef emit_cast(Emitter *emitter, DType from, DType to, LLVMValueRef value);
LLVMValueRef emit_constant(Emitter *emitter, DType dtype, double value);

/* ── code ── */
/* Assembly text without side effects; `type` is that of a function of the arguments. */
LLVMValueRef emit_assembly(Emitter *emitter, const char *text, const char *constraints, LLVMTypeRef type,
                           LLVMValueRef *arguments, int count);
/* type: what the intrinsic is overloaded on, or NULL. */
LLVMValueRef emit_intrinsic(Emitter *emitter, const char *name, LLVMTypeRef type,
                            LLVMValueRef *arguments, int count);
/* A new block at the end of the function in which the builder stands. */
LLVMBasicBlockRef emit_block(Emitter *emitter, const char *name);

/* ── indices ── */
LLVMValueRef emit_index_const(Emitter *emitter, int64_t value);
/* Arithmetic of indices: folded and remembered. */
LLVMValueRef emit_add(Emitter *emitter, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef emit_sub(Emitter *emitter, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef emit_mul(Emitter *emitter, LLVMValueRef a, int64_t b);
LLVMValueRef emit_div(Emitter *emitter, LLVMValueRef a, int64_t b);
LLVMValueRef emit_rem(Emitter *emitter, LLVMValueRef a, int64_t b);
/* The smaller one. */
LLVMValueRef emit_min(Emitter *emitter, LLVMValueRef a, LLVMValueRef b);
void index_push(Index *index, int64_t extent, LLVMValueRef value, bool varies); /* drops extent 1 */
Index index_flat(int64_t elements, LLVMValueRef value, bool varies);
/* From one value per dimension of the shape. */
Index index_of_dims(const Shape *shape, const LLVMValueRef *value, bool varies);
/* The element number: the linear offset in a contiguous tensor. */
LLVMValueRef index_linear(Emitter *emitter, const Index *index);
/* The element of the tensor of this shape at pointer number `which`, in memory: by its pitch. */
LLVMValueRef emit_place(Emitter *emitter, int which, const Shape *shape, const Index *index);
/* The value along dimension d of `shape`, whose elements the index counts. */
LLVMValueRef index_dim(Emitter *emitter, const Index *index, const Shape *shape, int d);
#endif
