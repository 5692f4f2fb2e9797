/* clock: the time since some fixed moment, for measuring how long things take. Also from signal
 * handlers. */
#ifndef FT_BASE_CLOCK_H
#define FT_BASE_CLOCK_H
#include <stdint.h>
#include <time.h>

static inline int64_t clock_nanoseconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}
#endif
