/* tcp_engine: an engine inside ftrun, for jobs that MPI did not start: torchrun's variables, and
 * ftrun --gpus. Each two ranks have a connection. It carries what the hosts tell each other beside
 * NCCL. It can do every collective, so ranks on CPUs can be joined by it, too; but each rank sends
 * its operand to all others of the group, which is slow for many gradients. Ranks find each other at
 * MASTER_ADDR and MASTER_PORT, or one of the ports behind it, since torchrun's own store may have
 * that one. Whoever connects is not trusted: message sizes are fixed, a magic word and the job are
 * compared, and every wait has a time limit. */
#ifndef FT_RUNTIME_TCP_ENGINE_H
#define FT_RUNTIME_TCP_ENGINE_H
#include "runtime/communicate/engine.h"

enum { TCP_PORTS = 16 }; /* from MASTER_PORT on */

extern const EngineType tcp_engine;
/* Fills link[r] with a socket to rank r; its own is -1. False, and why. */
bool tcp_join(const CommPlace *place, int *link, char *why);
/* For other threads, while tcp_join of this rank has not returned for so many seconds: which ranks it
 * waits for, as far as it knows. False: it does not. */
bool tcp_find_missing(const CommPlace *place, double seconds, char *sentence, size_t size);
#endif
