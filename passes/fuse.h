/* fuse: what a kernel is. The contract between the fuse pass and code generation.
 *
 * After fuse a graph holds leaves, `fused` nodes with their `result`s, contractions and scatter_add
 * outside of bodies, each a kernel or a library call of its own, `pack`, `assign`, and reshapes
 * (views: no kernel). Everything else is in bodies.
 *
 * A `fused` node has a body graph: leaves ARG{index} (operand of the fused node), CONST, IOTA;
 * roots of kind ROOT_RESULT, in order, are the outputs; `result{index}` nodes project them, also
 * when there is one only. Operands that are scalars (settings, the step) are ARGs too.
 * Bodies hold POINTWISE, MOVE (no scatter_add), WINDOW, RANDOM, REDUCE (row, column) and, in dot
 * and conv, the one contraction. The emitter evaluates by pulling: the value of a node at an index,
 * from its inputs at indices derived from it. So every node of a body costs its whole producer tree
 * where it is pulled: fuse never puts an expensive node (exp, log, div, ...) where overlapping
 * windows, broadcasts or gathers would compute it again and again.
 *
 * kind (attr `kind`; the domain D is what one work item ranges over):
 *   loop    no REDUCE. All results have the same shape D.
 *   row     all REDUCEs have an input of shape D and the same attr `axes` (copied to the fused
 *           node), which are the last dimensions of D (trailing). Results have shape D or the
 *           reduced shape (axes are 1). D-shaped values may depend on reductions (softmax). On a
 *           GPU also with SUMs of f32 of D-shaped values over all dimensions that `axes` leaves,
 *           which are results and are read nowhere in the body (kernel_is_beside), where rows are
 *           many and not long.
 *   column  the same, but `axes` does not hold the last dimension with more than one element, and
 *           nothing of shape D depends on a REDUCE. Results of shape D are side outputs.
 *   dot     one DOT; operands of the DOT are ARGs; results have its shape; the rest is its epilogue
 *           (POINTWISE and RANDOM on its shape, with broadcast ARGs). On a GPU also with REDUCEs of
 *           f32 (SUM, MEAN, SPREAD, or RMAX of sizes) of its shape over all but the last dimension, as in
 *           column.
 *   conv    the same with one CONV; on the CPU the CONV may be of integers and read by one POOL_MAX
 *           only (integers.h), whose shape D is then, and the epilogue is behind it; on a GPU also with
 *           one CONV_GRAD_INPUT, and with REDUCEs of f32 (SUM, MEAN, SPREAD) of its shape over all but
 *           the last dimension, as in column.
 *
 * A huge reduction to few elements is split by fuse in two kernels (reshape to [p, n/p], reduce,
 * reduce). */
#ifndef FT_PASSES_FUSE_H
#define FT_PASSES_FUSE_H
#include "ir/graph.h"
/* The most that a kernel holds: fuse merges none beyond, and code generation has room for these. A
 * GPU takes 4 KiB of parameters, and in a block's 48 KiB of shared memory a column kernel has 256
 * places for each accumulator. */
enum {
  KERNEL_MOST_ACCUMULATORS = 32, /* of its reductions, in 4-byte words */
  KERNEL_MOST_POINTERS = 64,     /* operands and results of a kernel that is merged of others */
  KERNEL_MOST_NODES = 400 /* of its body, likewise, where those of much code count several times:
                             what LLVM compiles in good time */
};
/* What the reduction takes of the first. argmax and argmin are two: the extreme, and where it is;
 * mean and spread need two sums. */
int kernel_accumulators(const Node *reduce);

typedef enum { KERNEL_LOOP, KERNEL_ROW, KERNEL_COLUMN, KERNEL_DOT, KERNEL_CONV } KernelKind;
KernelKind kernel_kind(const Node *fused);
Shape kernel_domain(const Node *fused); /* D */
/* The contraction that stands alone, or in the body; NULL: there is none. */
const Node *kernel_contraction(const Node *node);
/* Of kind dot or conv: the value that the epilogue begins with, the contraction or the pooling of it. */
const Node *kernel_product(const Node *fused);
/* Which operand of the node is the contraction's operand `i`, an ARG in a body. */
int kernel_operand(const Node *node, int i);
/* Is this value of a row's body a sum of columns? */
bool kernel_is_beside(const Node *fused, const Node *value);
/* Has this value of the body D's shape? Of a root that has not, there is one for each row or
 * column.
 */
bool kernel_is_whole(const Node *fused, const Node *value);
/* The structural hash and equality under which two fused nodes share one kernel: bodies equal,
 * operand types equal; names and locations do not count. */
uint64_t kernel_hash(const Node *fused);
bool kernel_equal(const Node *a, const Node *b);
#endif
