/* attention: which attention nodes reach code generation as they are. */
#ifndef FT_PASSES_ATTENTION_H
#define FT_PASSES_ATTENTION_H
#include "ir/graph.h"

/* Features of a head; on GPUs without the tensor cores of Hopper, or in other types than bf16 and f16. */
enum { ATTENTION_MOST = 256, ATTENTION_MOST_GPU = 128 };

/* Is there a kernel for this attention or attention_grad, which takes heads of so many features? */
bool attention_is_whole(const Node *node, int most);
/* With dropout: the least draw, a number of 24 bits, of an element that is kept. */
int64_t attention_least_kept(const Node *node);
/* Are there enough queries and keys for the tensor cores of Hopper? */
bool attention_is_long(const AttentionForm *form);
#endif
