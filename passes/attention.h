/* attention: which attention nodes reach code generation as they are. */
#ifndef FT_PASSES_ATTENTION_H
#define FT_PASSES_ATTENTION_H
#include "ir/graph.h"

enum { ATTENTION_MOST = 256 }; /* features of a head that the CPU's kernel can take */

/* Is there a kernel for this attention or attention_grad on the CPU? */
bool attention_is_whole(const Node *node);
#endif
