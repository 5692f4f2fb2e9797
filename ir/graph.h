/* graph: the tensor graph in SSA form. Nodes are in topological order: an input's id is smaller
 * than its user's. Types are inferred and checked when a node is made; a wrong use by the compiler
 * itself is an assertion, a wrong use by the user must be diagnosed before (infer_type tells).
 * Side effects are roots: a loss, metrics, outputs and assigns. */
#ifndef FT_IR_GRAPH_H
#define FT_IR_GRAPH_H
#include "base/arena.h"
#include "base/diag.h"
#include "base/lookup.h"
#include "base/mesh.h"
#include "base/own.h"
#include "base/role.h"
#include "ir/op.h"
#include "ir/region.h"
#include "ir/type.h"

typedef struct {
  AttrId id;
  int count; /* INTS, FLOATS: how many */
  union {
    int64_t i; /* INT, BOOL, DTYPE */
    double f;
    const char *s;
    const int64_t *ints;
    const double *floats;
  };
} Attr;

/* Where a node comes from. Nodes are given their graph's `origin` when they are made. */
typedef struct {
  Loc loc; /* in the .ft source; of what backward computes: that of the forward node */
  Region region;
  bool is_backward; /* made for a gradient */
  bool
      is_recomputed; /* backward computes it although forward has done so: cse must not undo that */
  int piece; /* of the batch, from 1, which it is made of (passes/pieces.c); 0: it is of all */
  bool is_update; /* made by the optimizer, of gradients */
  /* For people; they live as long as the first graph's arena. NULL: none. */
  const char *layer;    /* its path, "h.3.mlp.c_fc" */
  const char *function; /* of the language, which it is a part of: "gelu" */
} Origin;
enum { PIECES_MOST = 1024 };

typedef struct Graph Graph;
typedef struct Node {
  int id; /* index in graph->nodes */
  Op op;
  Type type;
  LeafRole role; /* of a param or state; NONE of all others */
  int input_count, attr_count;
  struct Node **input;
  Attr *attr;  /* sorted by id */
  Graph *body; /* OP_FUSED: the kernel's own graph, whose leaves are OP_ARG (and IOTA, CONST)
                       and whose roots, in order, are its results */
  Origin origin;
} Node;

typedef enum {
  ROOT_LOSS,
  ROOT_METRIC, /* a number; in an evaluation also a row or table of numbers */
  ROOT_OUTPUT,
  ROOT_AUC, /* evaluation: f32[n, 1 + C], of each row its class, or less than 0, and C scores */
  ROOT_ASSIGN,
  ROOT_RESULT,
  ROOT_GRADIENTS,  /* from autodiff to the optimizer: the pack of all */
  ROOT_DIRECTION,  /* from autodiff to sharpness: the pack of the gradients of ROOT_ASCENT */
  ROOT_STAYS,      /* until sharpness: copies and averages of parameters, which its second gradient reads as they are */
  ROOT_PASSES,     /* evaluation: how often it goes through its samples, if not once */
  ROOT_RATE,       /* training: the learning rate of this step */
  ROOT_LOSS_SCALE, /* fp16: the loss scale of this step, */
  ROOT_SKIPPED,    /* … and how many steps were skipped so far */
  ROOT_GRAD_NORM,  /* training: the norm of all gradients before it is clipped */
  ROOT_GRAD_FACTOR, /* training: what gradients in memory are multiplied with in the update */
  ROOT_ASCENT,     /* until autodiff: the loss of this part of the batch by itself */
  ROOT_OBJECTIVE,  /* until autodiff: what is differentiated in place of the loss */
  ROOT_FACTOR      /* until optimizer: what the sum of the parts' gradients is multiplied with */
} RootKind;
typedef struct {
  RootKind kind;
  const char *name; /* loss: "loss"; assign: the target; result: "" */
  Node *node;
} Root;

struct Graph {
  Arena *arena;
  const char *name; /* "train", "eval"; a body: the kernel's name or "" */
  Origin origin;    /* of the nodes that are made from now on; graph_rewrite sets it */
  VEC(Node *) nodes;
  VEC(Root) roots;
  Lookup leaves[LEAF_OPS]; /* by op: ids by name, of the first of each; graph_find_leaf asks */
};

Graph *graph_new(Arena *arena, const char *name);
void graph_add_root(Graph *graph, RootKind kind, const char *name, Node *node);
Node *graph_find_root(const Graph *graph, RootKind kind, const char *name); /* name NULL: any */
/* Takes the first root of this kind off the graph; NULL: there is none. */
Node *graph_take_root(Graph *graph, RootKind kind);
/* The first input, param, state or setting of this name, at no cost that grows with the graph; the
 * first state of this role. NULL: there is none. */
Node *graph_find_leaf(const Graph *graph, Op op, const char *name);
Node *graph_find_state(const Graph *graph, const char *name);
Node *graph_find_role(const Graph *graph, LeafRole role);
extern const char *const root_kind_text[ROOT_FACTOR + 1];
/* The pack of all gradients side by side, and not one that the update makes; NULL: there is none. */
Node *graph_find_gradients(const Graph *graph);
/* The first node of this op, of this class; NULL: there is none. */
Node *graph_find_op(const Graph *graph, Op op);
Node *graph_find_class(const Graph *graph, OpClass op_class);
/* By node: is a root made of it, or what goes to another rank? */
bool *graph_find_live(const Graph *graph, Arena *arena);
/* By node: is it made in forward, and leads it to a contraction that a root needs? */
bool *graph_find_early(const Graph *graph, const bool *live, Arena *arena);
/* Marks what the marked nodes are made of, too. */
void graph_mark_inputs(const Graph *graph, bool *marked);

/* ── making nodes ─────────────────────────────────────────────────────────────────────────────
 * graph_node infers the type with infer_type, asserting that it is legal. `given` supplies the
 * dtype and shape where the op's rule is "given", the dtype for cast, the shape for reshape,
 * broadcast and slice, and may be NULL elsewhere. Attributes are copied. */
Node *graph_node(Graph *graph, Op op, Node *const *inputs, int input_count, const Attr *attrs,
                 int attr_count, const Type *given);
/* Like graph_node for checked use: returns NULL and a reason in the arena if it is illegal. */
Node *graph_try_node(Graph *graph, Op op, Node *const *inputs, int input_count, const Attr *attrs,
                     int attr_count, const Type *given, const char **why);
/* The shape rules. Returns false and sets *why, in which the operation is `called` so; NULL: by its own text. */
bool infer_type(Arena *arena, Op op, const char *called, Node *const *inputs, int input_count, const Attr *attrs,
                int attr_count, const Type *given, Type *out, const char **why);

enum { PARTS_HEAD = 3 }; /* numbers before the dimensions in each of ATTR_PARTS */
Attr attr_int(AttrId id, int64_t value);
Attr attr_bool(AttrId id, bool value);
Attr attr_float(AttrId id, double value);
Attr attr_str(AttrId id, const char *value);
Attr attr_ints(AttrId id, const int64_t *values, int count);
Attr attr_floats(AttrId id, const double *values, int count);

const Attr *node_attr(const Node *node, AttrId id); /* NULL if absent */
int64_t node_int(const Node *node, AttrId id, int64_t otherwise);
double node_float(const Node *node, AttrId id, double otherwise);
const char *node_str(const Node *node, AttrId id); /* NULL if absent */
/* For messages: the function that it is part of, or what the language calls the operation. */
const char *node_called(const Node *node);
/* In memory before the step: an input, param, state or setting. */
static inline bool node_is_leaf(const Node *node) { return op_has(node->op, TRAIT_NAMED); }
void node_set_attr(Graph *graph, Node *node, Attr attr);
void node_drop_attr(Node *node, AttrId id);
/* The same key and the same bits. */
bool attr_equal(const Attr *a, const Attr *b);
/* The same attributes, but for those that `skips` (NULL: none). */
bool node_attrs_equal(const Node *a, const Node *b, bool (*skips)(AttrId));
/* A hash of op, type and attributes but those that `skips`; more may be mixed in. */
uint64_t node_hash(const Node *node, bool (*skips)(AttrId));
uint64_t hash_type(uint64_t hash, const Type *type);
uint64_t hash_mix(uint64_t hash, uint64_t value);
/* What the node is a view of. */
const Node *node_base(const Node *node);
/* Something between ranks with other graphs, which have their part of it: it is needed though nothing
 * here reads its result. */
bool node_is_agreed(const Node *node);
/* The ranks that do a collective. */
MeshAxis node_axis(const Node *node);
/* A param's order in memory; view.rank 0: row-major. And the shape that files have. */
Storage node_storage(const Node *param);
Shape node_file_shape(const Node *param);
/* Is it a param that the update leaves as it is, whatever the rate? Its offset is behind those of the
 * others, and its place in memory is one of its own. */
bool node_is_frozen(const Node *node);
/* What an attention or attention_grad node computes. is_beside: heads are side by side in
 * rows of features, the first of q, k and v at start. */
typedef struct {
  int64_t batch, heads, groups, rows, keys, features, values;
  int64_t start[3];
  int64_t mask_batch, mask_head, mask_row; /* elements from one to the next; 0: one for all */
  int mask, draws;                         /* operands: the mask; the first of what tells the draws; -1: none */
  bool is_beside;
} AttentionForm;
AttentionForm attention_form(const Node *node);
/* Does it have dropout and draw for itself, from operands that are seed, step, first and stream? */
bool attention_draws_itself(const Node *node);
/* The operand that is the step for which the node draws random numbers; -1: it draws none. */
int node_step_operand(const Node *node);
/* Where the heads of its tensors lie: elements from the tensor's beginning, and from one to the
 * next; argument: its place among operands and results. Forward has the first four. */
typedef enum {
  TENSOR_QUERY,
  TENSOR_KEY,
  TENSOR_VALUE,
  TENSOR_OUT,
  TENSOR_SLOPE,
  TENSOR_QUERY_GRAD,
  TENSOR_KEY_GRAD,
  TENSOR_VALUE_GRAD,
  TENSORS
} AttentionTensor;
typedef struct {
  int argument;
  int64_t start, batch, head, row;
} HeadPlace;
void attention_places(const Node *node, HeadPlace place[TENSORS]);

/* A product: batch times [m,k] [k,n], of operands that are turned first. */
typedef struct {
  int64_t batch, m, n, k;
  bool ta, tb;
} DotForm;
DotForm dot_form(const Node *dot);

/* The forward convolution of a conv, conv_grad_input or conv_grad_weight node. */
typedef struct {
  const Type *x, *w, *y;
  int64_t images, groups, in, out; /* channels: of a group */
  int64_t in_height, in_width, out_height, out_width, kernel_height, kernel_width;
  const int64_t *stride, *padding, *dilation;
  bool is_nhwc;
} ConvForm;
ConvForm conv_form(const Node *node);
/* Operations of a dot, a convolution or an attention, or one's gradient: a multiplication with an
 * addition counts two. 0 for any other node. */
int64_t contraction_flops(const Node *node);

/* Nodes with several results (fused, attention, attention_grad, all_reduce) are read only through `result`
 * nodes; their own type is that of result 0. */
bool node_has_results(const Node *node);
int node_result_count(const Node *node);                /* 1 for all others */
Type node_result_type(const Node *node, int64_t index); /* index < node_result_count */

/* ── short hands (ir/make.c) ──────────────────────────────────────────────────────────────────
 * They broadcast, reshape and cast as NumPy would, and leave out what changes nothing. */
Node *make_unary(Graph *graph, Op op, Node *x);
Node *make_binary(Graph *graph, Op op, Node *a, Node *b);      /* broadcasts a and b first */
Node *make_select(Graph *graph, Node *cond, Node *a, Node *b); /* broadcasts too */
Node *make_const(Graph *graph, DType dtype, Shape shape, double value);
Node *make_like(Graph *graph, Node *x, double value); /* const of x's type */
Node *make_cast(Graph *graph, Node *x, DType dtype);  /* x itself if it has that dtype */
Node *make_reduce(Graph *graph, Op op, Node *x, const int64_t *axes, int count);
Node *make_reshape(Graph *graph, Node *x, Shape shape);           /* x itself if unchanged */
Node *make_broadcast(Graph *graph, Node *x, Shape shape);         /* NumPy rules, rank grows by
                                                                      a reshape; x if unchanged */
Node *make_transpose(Graph *graph, Node *x, const int64_t *perm); /* x if identity */
void perm_of_matrices(int rank, int64_t *perm); /* the one that turns the last two dimensions */
/* So many elements from `start` on; x if that is all of it. */
Node *make_slice(Graph *graph, Node *x, const int64_t *start, Shape size);
/* With zeros before and behind it; x if there are none. */
Node *make_pad(Graph *graph, Node *x, const int64_t *low, const int64_t *high);
/* The elements at `index`, i32 or i64 of rank 1, along one dimension; zeros where it is outside. */
Node *make_take(Graph *graph, Node *x, Node *index, int axis);
Node *make_dot(Graph *graph, Node *a, Node *b, bool ta, bool tb);
/* Result `index` of a node with several. */
Node *make_result(Graph *graph, Node *node, int index);
/* x of all ranks, by sum, prod, rmax or rmin. */
Node *make_all_reduce(Graph *graph, Op reduction, Node *x);
/* x of all of so many ranks, one behind the other along the first dimension. */
Node *make_all_gather(Graph *graph, Node *x, int64_t ranks);
/* Which of the ranks of a group of the axis this one is: f64[], from 0. */
Node *make_rank(Graph *graph, MeshAxis axis);
/* This rank's part, along the first dimension, of make_all_reduce. */
Node *make_reduce_scatter(Graph *graph, Op reduction, Node *x, int64_t ranks);
/* The product of a and b with the other attributes (result, tf32, ...) and the place of `like`. */
Node *make_dot_like(Graph *graph, const Node *like, Node *a, Node *b, bool ta, bool tb);
Node *make_iota(Graph *graph, DType dtype, Shape shape, int axis);
/* The setting of this key, made if there is none. */
Node *make_setting(Graph *graph, const char *key);
/* The state of this name, made if there is none: it begins with this value in every element. */
Node *make_state(Graph *graph, LeafRole role, const char *name, Type type, double initial);
/* The state takes this value when the step ends. */
void make_assign(Graph *graph, const char *state, Node *value);
/* Sums x down to `shape` (the reverse of make_broadcast). */
Node *make_unbroadcast(Graph *graph, Node *x, Shape shape);

/* ── rewriting (ir/rewrite.c) ─────────────────────────────────────────────────────────────────
 * Passes that change a graph build a new one: graph_rewrite visits every node in order, with its
 * inputs already mapped; `visit` returns the replacement in the new graph (or NULL for "copy it").
 * All that is made for a node has its origin.
 * Roots and names come along. The old graph stays intact. */
typedef Node *RewriteVisit(Graph *fresh, const Node *old, Node **inputs, void *context);
Graph *graph_rewrite(const Graph *old, RewriteVisit *visit, void *context);
Node *graph_copy_node(Graph *fresh, const Node *old, Node *const *inputs);
Node *graph_copy_as(Graph *fresh, const Node *old, Node *const *inputs, const Type *type);
/* With these attributes in place of, or beside, its own. */
Node *graph_copy_with(Graph *fresh, const Node *old, Node *const *inputs, const Type *type,
                      const Attr *attrs, int count);
/* The roots of `old` go to the nodes that stand in the map, by id, for theirs. */
void graph_copy_roots(Graph *fresh, const Graph *old, Node *const *map);
/* How many uses each node has (roots count), indexed by id; in `arena`. */
int *graph_use_counts(const Graph *graph, Arena *arena);

/* ── text form (ir/print.c, ir/parse.c) ───────────────────────────────────────────────────────
 * Prints and parses back to itself, byte for byte. docs/ir.md has the grammar. */
struct Text;
void graph_print(const Graph *graph, FILE *out);
char *graph_to_text(const Graph *graph, Arena *arena);
/* Parses one or more graphs from .ftir text; errors go to diag. Returns the number of graphs, or
 * -1. Hostile input is refused, never trusted. */
int graph_parse(Arena *arena, Diag *diag, const char *path, const char *text, Graph **out, int max);
void graph_print_dot(const Graph *graph, FILE *out);

/* ── verifier (ir/verify.c) ───────────────────────────────────────────────────────────────────
 * Structure, types (infer_type again), attributes, roots, and which ops are legal at a stage. */
bool graph_verify(const Graph *graph, Stage stage, Diag *diag);

/* ── interpreter (ir/interp.c) ────────────────────────────────────────────────────────────────
 * The oracle: naive, float types in double (f16 and bf16 rounded to the dtype after each node, f32
 * when `round` is set), integers in int64. A tensor is a flat row-major array of double or int64.
 */
typedef struct {
  Type type;
  double *f;  /* float types */
  int64_t *i; /* bool and integer types */
} Tensor;
Tensor *tensor_new(Arena *arena, Type type);
/* Leaves (input, param, state, setting) are looked up by name through `leaf`, which returns NULL
 * for "not given" (an error). values[id] is filled for every node. Returns false with an error. */
typedef const Tensor *InterpLeaf(const Node *leaf, void *context);
bool graph_interpret(const Graph *graph, Arena *arena, InterpLeaf *leaf, void *context, bool round,
                     Tensor **values, Diag *diag);
/* The same; `after` sees each node's value before it is rounded, and may change it: to find out how
 * far the rounding of single operations moves the results. */
typedef void InterpAfter(const Node *node, const Tensor *const *inputs, Tensor *value,
                         void *context);
/* The same on several ranks, which take turns node by node: values[r] and context[r] are rank r's. */
bool graph_interpret_mesh(const Graph *graph, Arena *arena, InterpLeaf *leaf, void *const *context,
                          const Mesh *mesh, Tensor **const *values, Diag *diag);
/* The same where ranks run different graphs, by their pipeline index, and send each other messages. */
bool graph_interpret_stages(const Graph *const *stage, Arena *arena, InterpLeaf *leaf,
                            void *const *context, const Mesh *mesh, Tensor **const *values,
                            Diag *diag);
/* … that share a batch, and no more. */
bool graph_interpret_ranks(const Graph *graph, Arena *arena, InterpLeaf *leaf, void *const *context,
                           int ranks, Tensor **const *values, Diag *diag);
bool graph_interpret_changed(const Graph *graph, Arena *arena, InterpLeaf *leaf, InterpAfter *after,
                             void *context, Tensor **values, Diag *diag);
#endif
