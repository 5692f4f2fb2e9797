/* auto_words: what `distributed { auto(gpus = 64, memory = 80 GiB) }` says: the words of a cluster
 * (cluster.h), but that gpus= counts all GPUs, and node= how many of them a machine has. */
#ifndef FT_SIMULATE_AUTO_WORDS_H
#define FT_SIMULATE_AUTO_WORDS_H
#include "simulate/cluster.h"

enum { AUTO_NODE = 8 }; /* GPUs of a machine where nothing says how many */

/* `gpu`: a name of machines.def, taken where the words have none. `given`: the cluster of
 * --simulate, taken where the words have neither GPUs nor anything of machines (NULL: none). NULL,
 * or the sentence that says what is wrong. */
const char *auto_words_parse(Arena *arena, const char *text, const char *gpu, const Cluster *given,
                             Cluster *out);
#endif
