/* philox: Philox4x32-10, four random words for a key and a counter (Salmon et al., SC 2011). */
#ifndef FT_RUNTIME_PHILOX_H
#define FT_RUNTIME_PHILOX_H
#include <stdint.h>

void philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);
#endif
