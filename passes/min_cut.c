/* min_cut: see min_cut.h. Edges come in pairs, an edge and its reverse side by side, so that edge
 * e ^ 1 takes back what flows through e. */
#include "passes/min_cut.h"

typedef struct {
  int to, next; /* next edge of the same vertex; -1: none */
  int64_t room; /* what may still flow */
} Edge;

struct MinCut {
  Arena *arena;
  int vertices;
  int *first, *level, *at; /* by vertex: its edges; steps from the source; the edge to try next */
  int *path;               /* to the sink: edges */
  VEC(Edge) edges;
};

MinCut *min_cut_new(Arena *arena, int vertices) {
  MinCut *cut = ARENA_NEW(arena, MinCut);
  *cut = (MinCut){.arena = arena,
                  .vertices = vertices,
                  .first = ARENA_ARRAY(arena, int, vertices),
                  .level = ARENA_ARRAY(arena, int, vertices),
                  .at = ARENA_ARRAY(arena, int, vertices),
                  .path = ARENA_ARRAY(arena, int, vertices)};
  for (int i = 0; i < vertices; i++) cut->first[i] = -1;
  return cut;
}

static void half_edge(MinCut *cut, int from, int to, int64_t room) {
  VEC_PUSH(cut->arena, cut->edges, ((Edge){to, cut->first[from], room}));
  cut->first[from] = cut->edges.count - 1;
}

void min_cut_edge(MinCut *cut, int from, int to, int64_t capacity) {
  half_edge(cut, from, to, capacity);
  half_edge(cut, to, from, 0);
}

/* Steps from the source over edges with room; false if the sink is out of reach. */
static bool find_levels(MinCut *cut, int source, int sink) {
  int *queue = ARENA_ARRAY(cut->arena, int, cut->vertices), count = 0;
  for (int i = 0; i < cut->vertices; i++) cut->level[i] = -1;
  cut->level[source] = 0;
  queue[count++] = source;
  for (int i = 0; i < count; i++)
    for (int e = cut->first[queue[i]]; e >= 0; e = cut->edges.at[e].next) {
      const Edge *edge = &cut->edges.at[e];
      if (edge->room == 0 || cut->level[edge->to] >= 0) continue;
      cut->level[edge->to] = cut->level[queue[i]] + 1;
      queue[count++] = edge->to;
    }
  return cut->level[sink] >= 0;
}

/* Sends what fits along one shortest path with room, and tells how much; 0: there is none. */
static int64_t push_flow(MinCut *cut, int source, int sink) {
  int *path = cut->path, count = 0; /* edges */
  for (int vertex = source; vertex != sink;) {
    int *e = &cut->at[vertex];
    while (*e >= 0 && (cut->edges.at[*e].room == 0 ||
                       cut->level[cut->edges.at[*e].to] != cut->level[vertex] + 1))
      *e = cut->edges.at[*e].next;
    if (*e >= 0) {
      path[count++] = *e;
      vertex = cut->edges.at[*e].to;
    } else if (count == 0) {
      return 0;
    } else { /* a dead end */
      int back = path[--count];
      vertex = cut->edges.at[back ^ 1].to;
      cut->at[vertex] = cut->edges.at[back].next;
    }
  }
  int64_t most = MIN_CUT_INFINITE;
  for (int i = 0; i < count; i++)
    if (cut->edges.at[path[i]].room < most) most = cut->edges.at[path[i]].room;
  for (int i = 0; i < count; i++) {
    cut->edges.at[path[i]].room -= most;
    cut->edges.at[path[i] ^ 1].room += most;
  }
  return most;
}

/* All from which the sink can be reached over edges with room. */
static bool *sink_side(MinCut *cut, int sink) {
  bool *is_in = ARENA_ARRAY(cut->arena, bool, cut->vertices);
  int *queue = ARENA_ARRAY(cut->arena, int, cut->vertices), count = 0;
  is_in[sink] = true;
  queue[count++] = sink;
  for (int i = 0; i < count; i++)
    for (int e = cut->first[queue[i]]; e >= 0; e = cut->edges.at[e].next) {
      int from = cut->edges.at[e].to;
      if (is_in[from] || cut->edges.at[e ^ 1].room == 0) continue;
      is_in[from] = true;
      queue[count++] = from;
    }
  return is_in;
}

bool *min_cut_solve(MinCut *cut, int source, int sink) {
  int64_t flow = 0;
  while (find_levels(cut, source, sink)) {
    for (int i = 0; i < cut->vertices; i++) cut->at[i] = cut->first[i];
    for (int64_t pushed; (pushed = push_flow(cut, source, sink)) > 0; flow += pushed)
      if (flow + pushed >= MIN_CUT_INFINITE) return NULL;
  }
  return sink_side(cut, sink);
}
