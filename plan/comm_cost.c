/* comm_cost: see comm_cost.h. */
#include "plan/comm_cost.h"
#include <math.h>
#include <string.h>

enum { RING, TREE, LEVELS, ALGORITHMS };
static const char *const algorithm_text[ALGORITHMS] = {"ring", "tree", "by levels"};

/* Seconds of the start, of a hop by kind of link, and the share of the bandwidth that data has. LL
 * sends a flag with every 4 bytes, LL128 one with every 120. GPUs: the figures of NCCL's tuning.cc
 * in microseconds. MPI: of ranks on one machine through shared memory, and TCP between machines. */
typedef struct {
  const char *name;
  double base[2], hop[LINK_KINDS][2]; /* ring, tree */
  double share;
} Protocol;
enum { GPU_PROTOCOLS = 3 };
static const Protocol protocol[] = {
    {"LL",
     {3.6, 4.4},
     {[LINK_NVLINK] = {.47, .52}, [LINK_PCIE] = {1, 1}, [LINK_NETWORK] = {2.7, 5}},
     .25},
    {"LL128",
     {10, 4.4},
     {[LINK_NVLINK] = {1.9, 1.2}, [LINK_PCIE] = {2.5, 1.9}, [LINK_NETWORK] = {4, 8.5}},
     .92},
    {"Simple",
     {8.4, 0},
     {[LINK_NVLINK] = {3.4, 28}, [LINK_PCIE] = {5.7, 28}, [LINK_NETWORK] = {9.6, 50}},
     1},
    {"MPI", {5, 5}, {[LINK_MEMORY] = {2, 2}, [LINK_NETWORK] = {25, 25}}, 1},
};
static const double tree_share = .9;
/* 46 to 48 of 50 GB/s: an author of NCCL in NVIDIA/nccl-tests, issue 290. */
static const double network_reached = .92;

Fabric fabric_of(const Machine *machine, int nodes, int local) {
  return (Fabric){.nodes = nodes,
                  .local = local,
                  .kind = machine->link_kind,
                  .link = machine->link_reached,
                  .network = machine->network * network_reached};
}

CostKind comm_cost_kind(const char *name) {
  static const char *const names[COST_KINDS] = {"all_reduce", "reduce_scatter", "all_gather",
                                                "all_to_all", "broadcast",      "send"};
  if (!strcmp(name, "receive") || !strcmp(name, "transfer")) return COST_SEND;
  for (int i = 0; i < COST_KINDS; i++)
    if (!strcmp(names[i], name)) return (CostKind)i;
  return COST_KINDS;
}

/* ── one algorithm by one protocol ──────────────────────────────────────────────────────────── */
typedef struct {
  const Fabric *fabric;
  const Protocol *protocol;
  double inside, between; /* seconds of a hop */
} Way;

static Way way_of(const Fabric *fabric, const Protocol *of, bool is_tree) {
  Way way = {fabric, of, of->hop[fabric->kind][is_tree] * 1e-6,
             of->hop[LINK_NETWORK][is_tree] * 1e-6};
  if (fabric->link_latency > 0) way.inside = fabric->link_latency;
  if (fabric->network_latency > 0) way.between = fabric->network_latency;
  return way;
}

/* What a ring or a tree through all ranks moves a second: every card of a node carries its share. */
static double bus_bandwidth(const Fabric *fabric) {
  double network = fabric->network * fabric->local;
  if (fabric->nodes == 1) return fabric->link;
  return fabric->local == 1 || network < fabric->link ? network : fabric->link;
}

static double ring_seconds(const Way *way, double rounds, double bytes) {
  const Fabric *f = way->fabric;
  double ranks = (double)f->nodes * f->local, hops = rounds * (ranks - 1);
  double between = rounds * (f->nodes - 1);
  return way->protocol->base[0] * 1e-6 + (hops - between) * way->inside + between * way->between +
         bytes * rounds * (ranks - 1) / ranks / (bus_bandwidth(f) * way->protocol->share);
}

static double tree_seconds(const Way *way, double bytes) {
  const Fabric *f = way->fabric;
  return way->protocol->base[1] * 1e-6 +
         2 * ((f->local - 1) * way->inside + ceil(log2(f->nodes)) * way->between) +
         2 * bytes / (bus_bandwidth(f) * way->protocol->share * tree_share);
}

static double levels_seconds(const Way *way, double rounds, double bytes) {
  const Fabric *f = way->fabric;
  Fabric node = *f, cards = *f;
  node.nodes = cards.local = 1;
  Way in = *way, out = *way;
  in.fabric = &node;
  out.fabric = &cards;
  return ring_seconds(&in, rounds, bytes) + ring_seconds(&out, rounds, bytes / f->local);
}

/* Each rank sends every other one its part; what leaves the node goes by the rank's own card. */
static double all_to_all_seconds(const Way *way, double bytes) {
  const Fabric *f = way->fabric;
  double ranks = (double)f->nodes * f->local, share = way->protocol->share;
  double inside = bytes * (f->local - 1) / ranks / (f->link * share);
  double between = bytes * (ranks - f->local) / ranks / (f->network * share);
  return way->protocol->base[0] * 1e-6 + (f->local - 1) * way->inside +
         (ranks - f->local) * way->between + (inside > between ? inside : between);
}

/* Less than 0: the algorithm does not do that. */
static double seconds_of(const Fabric *fabric, const Protocol *of, int algorithm, CostKind kind,
                         double bytes) {
  Way way = way_of(fabric, of, algorithm == TREE);
  double rounds = kind == COST_ALL_REDUCE ? 2 : 1, ranks = (double)fabric->nodes * fabric->local;
  bool reduces = kind == COST_ALL_REDUCE || kind == COST_REDUCE_SCATTER || kind == COST_ALL_GATHER;
  if (algorithm == TREE) return kind == COST_ALL_REDUCE ? tree_seconds(&way, bytes) : -1;
  if (algorithm == LEVELS)
    return reduces && fabric->nodes > 1 && fabric->local > 1 ? levels_seconds(&way, rounds, bytes)
                                                             : -1;
  if (reduces) return ring_seconds(&way, rounds, bytes);
  if (kind == COST_ALL_TO_ALL) return all_to_all_seconds(&way, bytes);
  if (kind == COST_BROADCAST) /* in pieces along the ring, one behind the other */
    return of->base[0] * 1e-6 + (ranks - fabric->nodes) * way.inside +
           (fabric->nodes - 1) * way.between + bytes / (bus_bandwidth(fabric) * of->share);
  double link = fabric->nodes > 1 ? fabric->network : fabric->link;
  return of->base[0] * 1e-6 + (fabric->nodes > 1 ? way.between : way.inside) +
         bytes / (link * of->share);
}

CommCost comm_cost(const Fabric *fabric, CostKind kind, int64_t bytes) {
  CommCost best = {0, "none", "none"};
  if (fabric->nodes * fabric->local <= 1 || bytes <= 0) return best;
  bool is_cpu = fabric->kind == LINK_MEMORY;
  int first = is_cpu ? GPU_PROTOCOLS : 0, end = is_cpu ? GPU_PROTOCOLS + 1 : GPU_PROTOCOLS;
  for (int p = first; p < end; p++)
    for (int algorithm = 0; algorithm < ALGORITHMS; algorithm++) {
      double seconds = seconds_of(fabric, &protocol[p], algorithm, kind, (double)bytes);
      bool is_first = p == first && algorithm == 0;
      if (seconds < 0 || (!is_first && seconds >= best.seconds)) continue;
      best = (CommCost){seconds, algorithm_text[algorithm], protocol[p].name};
    }
  return best;
}

/* ── buckets ────────────────────────────────────────────────────────────────────────────────── */
BucketSize comm_bucket_size(const Fabric *fabric, int64_t total) {
  const int64_t large = (int64_t)1 << 30;
  double latency = comm_cost(fabric, COST_ALL_REDUCE, 1).seconds;
  double slope = (comm_cost(fabric, COST_ALL_REDUCE, 2 * large).seconds -
                  comm_cost(fabric, COST_ALL_REDUCE, large).seconds) /
                 (double)large;
  if (slope <= 0 || total <= 0) return (BucketSize){large, large};
  double best = sqrt((double)total * latency / slope), last = latency / slope;
  return (BucketSize){(int64_t)best + 1, (int64_t)last + 1};
}
