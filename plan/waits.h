/* waits: what kernels of `ftc --debug-waits` say of a wait that took too many polls: words that
 * kernels/mbarrier.h writes to memory of the host before the kernel ends itself, and the sentence
 * that they make. */
#ifndef FT_PLAN_WAITS_H
#define FT_PLAN_WAITS_H
#include "plan/plan.h"

/* The module's variable, of 8 bytes, that holds the address of the words; 0: nobody listens. */
#define WAITS_VARIABLE "ft_waits"
/* The first record's word 0 counts the waits that were given up; the others tell of one each. */
enum { WAITS_RECORDS = 15, WAITS_WORDS = 16, WAITS_BYTES = (WAITS_RECORDS + 1) * WAITS_WORDS * 4 };
typedef enum { WAITS_FULL, WAITS_EMPTY, WAITS_TURN, WAITS_BARRIERS } WaitsBarrier;
typedef struct {
  uint32_t is_whole, kernel, barrier, stage, parity, block[3], thread, unused[7];
} WaitsRecord;
_Static_assert(sizeof(WaitsRecord) == WAITS_WORDS * 4, "a record is what kernels write");

/* The polls of a wait that are allowed where --debug-waits gives no number. */
enum { WAITS_POLLS = 1 << 22 };
/* "4194304", or NULL for that; false: it is no number from 1 to 2^31 - 1. */
bool waits_polls(const char *text, int *polls);

/* A kernel as one number: FNV-1a of its name. */
uint32_t waits_kernel(const char *name);
/* False: no wait was given up. Else `kernel NAME (label) waits at barrier "full" of stage 2, …` in
 * out; `when` ("in step 3"; NULL: not known) stands in it. The words may be anything. */
bool waits_tell(const void *words, const Plan *plan, const char *when, char *out, size_t size);
#endif
