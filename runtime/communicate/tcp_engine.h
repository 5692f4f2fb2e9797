/* tcp_engine: an engine within ftrun, for jobs that nobody started by MPI: torchrun's variables,
 * and ftrun --gpus. Each two ranks have a connection. It is there for what the hosts say to each
 * other beside NCCL; it does all kinds of works, so ranks on CPUs can be joined by it too, but each
 * rank sends what it has to all others of the group, which is no way to reduce many gradients.
 * Ranks find each other at MASTER_ADDR and MASTER_PORT, or one of the ports behind it: torchrun's
 * own store may have that one. Who comes there says who it is, and is not believed: sizes are
 * fixed, a word and the job are compared, and all waits have an end. */
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
