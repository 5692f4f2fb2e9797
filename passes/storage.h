/* storage: what the two files of the pass share: storage.c turns params around, storage_choose.c
 * says which. */
#ifndef FT_PASSES_STORAGE_H
#define FT_PASSES_STORAGE_H
#include "passes/pass.h"

typedef VEC(Storage) Storages;

/* Index of the storage that means the same order; -1: none. */
int storages_find(const Storages *list, const Storage *storage);
/* The order in which a transpose's result has its operand's elements. */
Storage storage_of_transpose(const Node *transpose);
/* Is the node only another shape of the same row-major sequence? */
bool storage_is_view(const Node *node);
/* Does the op keep each element at its place, of all operands of as many elements? */
bool storage_keeps_places(const Node *node);
/* The params, their wide forms, by where they lie in the flat places. */
Lookup storage_params(const Graph *graph, Arena *arena);
/* The id of the one at this place with so many elements; -1: none. */
int storage_param_at(const Lookup *params, int64_t offset, int64_t elements);

/* By node: the order that a param should have; rank 0: row-major. */
Storage *storage_choose(PassContext *context, const Graph *graph);
#endif
