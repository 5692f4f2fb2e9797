/* decode: names that the decode pass, memplan and the runtime agree on. */
#ifndef FT_PASSES_DECODE_H
#define FT_PASSES_DECODE_H

#define DECODE_PREFIX "@decode."
#define DECODE_POSITION "@decode.position"
enum { PREFILL_WIDTH = 64 }; /* positions that the graph "prefill" takes at once */
#endif
