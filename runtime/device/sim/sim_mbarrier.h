/* sim_mbarrier: what the 64 bits of an mbarrier hold (PTX keeps them to itself; these are ours),
 * and bulk copies, which end its phases. */
#ifndef FT_RUNTIME_SIM_MBARRIER_H
#define FT_RUNTIME_SIM_MBARRIER_H
#include "runtime/device/sim/sim_private.h"

/* Arrivals that are missing, arrivals of a phase, bytes that are expected (with a sign), and the
 * phase's last bit. */
enum { MBAR_COUNT_AT = 20, MBAR_BYTES_AT = 40, MBAR_PHASE_AT = 63, MBAR_MOST = (1 << 20) - 1 };
typedef struct {
  int64_t missing, count, bytes;
  int phase;
} Mbarrier;

static inline Mbarrier mbarrier_of(uint64_t word) {
  int64_t bytes = (int64_t)(word << 1) >> (MBAR_BYTES_AT + 1);
  return (Mbarrier){word & MBAR_MOST, word >> MBAR_COUNT_AT & MBAR_MOST, bytes,
                    (int)(word >> MBAR_PHASE_AT)};
}
static inline uint64_t mbarrier_word(const Mbarrier *m) {
  return (uint64_t)m->missing | (uint64_t)m->count << MBAR_COUNT_AT |
         ((uint64_t)m->bytes << MBAR_BYTES_AT & ~(UINT64_C(1) << MBAR_PHASE_AT)) |
         (uint64_t)m->phase << MBAR_PHASE_AT;
}

/* After a change of the one at `address`: begins the next phase if this one is over. */
void mbarrier_settle(SimCta *cta, Mbarrier *m, uint32_t address);

/* A new bulk copy with room for its bytes; NULL: out of memory. */
SimBulk *sim_bulk_new(SimCta *cta, uint32_t bytes);
/* It comes to shared memory and tells its mbarrier. */
void sim_bulk_arrive(SimCta *cta, SimBulk *copy);
/* A store reads shared memory and writes the tensor. */
void sim_bulk_store(SimCta *cta, SimBulk *copy);
/* A warp waits for the mbarrier: without a seed its copies arrive; they are remembered no more
 * once they have. */
void sim_bulk_await(SimCta *cta, uint32_t mbarrier);
#endif
