/* room: how much memory this process may have at most, so that a model that cannot fit is refused
 * before the run and not ended by the system in the middle of it. */
#ifndef FT_RUNTIME_ROOM_H
#define FT_RUNTIME_ROOM_H
#include <stdint.h>

/* Bytes of memory and swap, or the control group's limit (v2, memory.max of this group and those
 * above it) where that is less; INT64_MAX if unknown. */
int64_t room_of_host(void);
/* Of that, what is not in use now (files that are only cached count as free). */
int64_t room_now(void);
#endif
