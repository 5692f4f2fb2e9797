/* nvptx_row_sums: sums of columns that a kernel over rows makes of what it has of each row: the
 * gradients of a layer norm's weight and bias, of a bias that was added to its rows. A thread has
 * the same columns of all rows that its team goes through, and keeps their sums in registers. The
 * teams of a block combine theirs in shared memory; each block leaves its sums in the workspace,
 * and a small second launch adds those of all blocks. All in a fixed order: the bits never
 * change. */
#ifndef FT_CODEGEN_NVPTX_ROW_SUMS_H
#define FT_CODEGEN_NVPTX_ROW_SUMS_H
#include "codegen/nvptx_private.h"

enum { MOST_ROW_SUMS = 4 };
typedef struct {
  int count; /* of sums */
  const Node *node[MOST_ROW_SUMS];
  int64_t columns, parts; /* parts: one for each block */
  int64_t share;          /* columns of a thread */
  int total_count;
  LLVMValueRef total[KERNEL_MOST_ACCUMULATORS]; /* [sum][column of the thread] */
} RowSums;

void nvptx_row_sums_find(const Job *job, RowSums *out);
/* How many blocks there shall be, at most `most`; sizes the workspace. */
int64_t nvptx_row_sums_blocks(RowSums *sums, int64_t rows, int64_t rows_at_once, int64_t most);
/* Begins with zeros, for `share` columns of a thread. */
void nvptx_row_sums_clear(Entry *entry, RowSums *sums, int64_t share);
/* Adds the thread's element number e, at `index` of the domain; `valid` NULL: it is there. */
void nvptx_row_sums_add(Entry *entry, RowSums *sums, const Index *index, int64_t e,
                        LLVMValueRef valid);
/* Leaves the sums of all teams of the block in the first one; all threads take part. */
void nvptx_row_sums_meet(Entry *entry, RowSums *sums, LLVMValueRef lane, int team);
void nvptx_row_sums_store(Entry *entry, RowSums *sums, LLVMValueRef block, LLVMValueRef column,
                          int64_t e, LLVMValueRef valid);
/* The second launch; nothing where there are no sums. */
void nvptx_row_sums_combine(Job *job, const RowSums *sums);
#endif
