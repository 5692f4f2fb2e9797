/* ftrun_tune_block: the tune block of a .ft file, as `ftc --hypers` prints it, together with the command line: what a
 * line of it gives stands in place of the block's. */
#ifndef FT_TOOLS_FTRUN_TUNE_BLOCK_H
#define FT_TOOLS_FTRUN_TUNE_BLOCK_H
#include "tools/ftrun_study.h"

typedef struct {
  const char *flag;
  char *value; /* owned */
} BlockLine;

enum { BLOCK_MOST = 256 };

typedef struct {
  BlockLine line[BLOCK_MOST];
  int count;
} TuneBlock;

/* In what ftc printed. */
STATUS_CHECKED Status block_read(const char *printed, TuneBlock *block);
void block_free(TuneBlock *block);
/* Dimensions of the block, but those of `spaces` in their place; then the others of `spaces`. */
STATUS_CHECKED Status block_space(const TuneBlock *block, const char *const *spaces, int count,
                                  Space *space);
/* Conditions of the block, then those of `wheres`; one that is there already is not there twice. */
STATUS_CHECKED Status block_where(const TuneBlock *block, const char *const *wheres, int count,
                                  Space *space);
#endif
