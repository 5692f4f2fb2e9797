/* comm_cost: how long a collective takes, by latency and bandwidth, and the size of buckets that
 * follows from it.
 *
 * Time = base + hops · latency of a hop + bytes on the busiest link / its bandwidth; the least over
 * algorithms and protocols, as NCCL chooses them (NVIDIA/nccl, src/graph/tuning.cc, whose latencies
 * of hops are taken over). n ranks, of them l on each of m nodes, S bytes of the whole tensor:
 *   ring: 2(n-1) hops and 2(n-1)/n · S for an all_reduce, half of both for reduce_scatter and
 *     all_gather (Patarasuk and Yuan 2009; nccl-tests doc/PERFORMANCE.md); of the hops 2(m-1) are
 *     between nodes. A link carries what its node's ring does: the slower of a GPU's link and the
 *     node's network cards together.
 *   tree: all_reduce only: 2(l-1) hops inside and 2·log2(m) between nodes, 2S through each rank, at
 *     0.9 of the bandwidth (Sanders, Speck and Traff 2009; NCCL 2.4).
 *   by levels: reduce_scatter inside of the node, the collective of S/l between nodes by each rank's
 *     card, all_gather inside (Cho et al., BlueConnect, 2019).
 * Not counted: reductions in the switch (NVLink SHARP), congestion, ranks that come late. */
#ifndef FT_PLAN_COMM_COST_H
#define FT_PLAN_COMM_COST_H
#include "plan/machine.h"
#include <stdbool.h>
#include <stdint.h>

/* What joins the ranks. */
typedef struct {
  int nodes, local;    /* ranks: nodes · local */
  LinkKind kind;       /* inside of a node */
  double link;         /* bytes/s of a rank there, reached */
  double network;      /* bytes/s of a rank's share of its node's network, reached */
  double link_latency; /* seconds of a hop inside, and between nodes; 0: by the table */
  double network_latency;
} Fabric;

typedef enum {
  COST_ALL_REDUCE,
  COST_REDUCE_SCATTER, /* bytes: of the whole, not of a rank's part; so for all_gather */
  COST_ALL_GATHER,
  COST_ALL_TO_ALL,
  COST_BROADCAST,
  COST_SEND, /* to a rank of the next node, if there are several */
  COST_KINDS
} CostKind;

typedef struct {
  double seconds;
  const char *algorithm, *protocol; /* static: "ring", "LL128" */
} CommCost;

Fabric fabric_of(const Machine *machine, int nodes, int local);
/* By the name of plan/beside.def; COST_KINDS: it is none of them. receive and transfer cost what
 * send does. */
CostKind comm_cost_kind(const char *name);
CommCost comm_cost(const Fabric *fabric, CostKind kind, int64_t bytes);

/* The bytes of buckets into which gradients of `total` bytes are cut, and those of the last ones to
 * exist, which begin when backward ends. Each bucket costs a collective's latency, and the last one
 * is exposed; where buckets of S bytes have latency a and bandwidth b, a · total/S + S/b is least
 * for S = sqrt(total · a · b). The last one is as large as takes as long as the latency, a · b. */
typedef struct {
  int64_t bytes, last;
} BucketSize;
BucketSize comm_bucket_size(const Fabric *fabric, int64_t total);
#endif
