/* verify: what the parts of the verifier share. Private to ir/verify*.c. */
#ifndef FT_IR_VERIFY_H
#define FT_IR_VERIFY_H
#include "ir/graph.h"

/* Why the body (structure already checked) breaks its kind's contract, or NULL. *where is the node
 * of the body at fault, NULL for the kernel as a whole. */
const char *verify_kernel(const Node *fused, const Node **where);
/* Why a reader of the planned graph does not find the value it wants, or NULL; *where is the
 * reader.
 */
const char *verify_places(const Graph *graph, Arena *arena, const Node **where);
/* May the step store result `index` in the place of what its operands with this base hold? Only if
 * no work item reads what another has stored, whatever their order. */
bool verify_overwrite(const Node *step, int index, const Node *base);
#endif
