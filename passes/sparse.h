/* sparse: products by weights of which, of each four neighbours of what is summed up, at most two are not 0: attribute `sparse`, on the word of who
 * compiles (PassOptions.sparse, `ftc --sparse`). On GPUs kernels/sparse_ptx.c reads the two and their places. */
#ifndef FT_PASSES_SPARSE_H
#define FT_PASSES_SPARSE_H
#include "frontend/program.h"

/* Has this contraction such weights, and a kernel for them? */
bool sparse_has_kernel(const Node *contraction);
/* The cast that makes a product's operand of a parameter, before transposes; NULL: it is none. */
const Node *sparse_cast(const Node *operand);
/* The first name of the list that no parameter of the program has; NULL: there is none. */
const char *sparse_unknown(const Program *program, const char *list, Arena *arena);
#endif
