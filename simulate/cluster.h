/* cluster: what `ftc --simulate "nodes=128 gpus=8 gpu=h100 net=400Gb"` says: words KEY=VALUE, in any
 * order, a key once. Rates and times have units, so that bits are not taken for bytes. */
#ifndef FT_SIMULATE_CLUSTER_H
#define FT_SIMULATE_CLUSTER_H
#include "base/arena.h"
#include "base/mesh.h"
#include "plan/comm_cost.h"

typedef struct {
  const Machine *machine;
  Fabric fabric;
  double memory, memory_rate; /* of a rank: bytes, bytes/s */
  double products, copies;    /* share of the peaks that kernels reach */
  double launch;              /* seconds that each kernel takes besides */
  int cores;                  /* of a node whose ranks are processes; 0: one for each rank */
} Cluster;

enum { CLUSTER_MOST = 1 << 16 }; /* nodes, and GPUs of a node */

/* NULL, or the sentence (in the arena) that says what is wrong with it and what may stand there. */
const char *cluster_parse(Arena *arena, const char *text, Cluster *out);
int cluster_ranks(const Cluster *cluster);
/* The ranks of a node share its cores: so many times as long takes what one does (1: nothing). */
double cluster_slowness(const Cluster *cluster);
/* The same cluster with fewer ranks: whole nodes, as far as it goes. */
Fabric cluster_fabric(const Cluster *cluster, int ranks);
/* What joins the ranks of a group of the mesh, whose ranks fill node after node. */
Fabric cluster_group(const Cluster *cluster, const Mesh *mesh, MeshAxis axis);
#endif
