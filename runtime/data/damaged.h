/* damaged: which samples of a set could not be decoded, a bit for each. Any number of threads. */
#ifndef FT_RUNTIME_DAMAGED_H
#define FT_RUNTIME_DAMAGED_H
#include "runtime/common/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct Damaged Damaged;
STATUS_CHECKED Status damaged_new(int64_t count, Damaged **out);
void damaged_free(Damaged *damaged); /* NULL is fine */
bool damaged_has(const Damaged *damaged, int64_t index);
void damaged_add(Damaged *damaged, int64_t index);
/* How many there are, and the first one. */
int64_t damaged_count(const Damaged *damaged, int64_t *first);
#endif
