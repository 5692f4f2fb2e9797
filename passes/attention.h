/* attention: which attention nodes reach code generation as they are. */
#ifndef FT_PASSES_ATTENTION_H
#define FT_PASSES_ATTENTION_H
#include "ir/graph.h"

enum { ATTENTION_MOST = 256, ATTENTION_MOST_GPU = 128 }; /* features of a head */

/* Is there a kernel for this attention or attention_grad? */
bool attention_is_whole(const Node *node, bool for_gpu);
#endif
