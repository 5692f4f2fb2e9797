/* verify: what the parts of the verifier share. Private to ir/verify*.c. */
#ifndef FT_IR_VERIFY_H
#define FT_IR_VERIFY_H
#include "ir/graph.h"

/* Why the body (structure already checked) breaks its kind's contract, or NULL. *where is the node
 * of the body at fault, NULL for the kernel as a whole. */
const char *verify_kernel(const Node *fused, const Node **where);
#endif
