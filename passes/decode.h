/* decode: the constants of generation on which the decode pass and the plan agree. */
#ifndef FT_PASSES_DECODE_H
#define FT_PASSES_DECODE_H

enum { PREFILL_WIDTH = 64 }; /* positions that the graph "prefill" takes at once */
#endif
