/* permute: a parameter between files, where its elements stand in row-major order, and memory,
 * where they may lie in another (ir/type.h, Storage). Both buffers have all its elements and do not
 * overlap; a storage of rank 0 is a copy. */
#ifndef FT_RUNTIME_PERMUTE_H
#define FT_RUNTIME_PERMUTE_H
#include "plan/plan.h"
#include "runtime/common/status.h"

/* The tensor's elements are of 2 or 4 bytes. */
void permute_to_memory(const PlanTensor *tensor, const void *from, void *to);
void permute_from_memory(const PlanTensor *tensor, const void *from, void *to);
/* Where what lies in `values` is to lie in the other order. */
STATUS_CHECKED Status permute_in_place(const PlanTensor *tensor, bool to_memory, void *values);

/* A tensor that is too large to have twice in memory goes piece by piece. A piece is a run of
 * elements, in the order of files or in that of memory (is_memory). How many from `first` on make
 * the next piece: at most `most`. */
typedef struct {
  int64_t first, count;
} PermutePiece;
PermutePiece permute_piece(const PlanTensor *tensor, bool is_memory, int64_t first, int64_t most);
/* Does memory have the elements in another order than the type? */
bool permute_moves(const PlanTensor *tensor);
/* Of the piece `from` of memory, what belongs to the piece `to` of the file; the buffers hold no
 * more than these. */
void permute_piece_from_memory(const PlanTensor *tensor, const void *from, PermutePiece from_piece,
                               void *to, PermutePiece to_piece);
/* The elements of that, as runs in the order of the file: how many there are from `first` on. What
 * `run` fails with ends it. */
typedef Status PermuteRun(void *context, int64_t first, int64_t count);
STATUS_CHECKED Status permute_runs(const PlanTensor *tensor, PermutePiece from_piece,
                                   PermutePiece to_piece, PermuteRun *run, void *context);
#endif
