/* pitch: how far rows of a value may be apart (passes/pitch.c). */
#ifndef FT_PASSES_PITCH_H
#define FT_PASSES_PITCH_H
#include "ir/graph.h"

/* Elements from row to row, so that each begins at a multiple of 16 bytes; 0: that takes too much memory. */
int64_t pitch_for(const Type *type);
#endif
