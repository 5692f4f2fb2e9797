/* chunks: cuts the model into parts for the stages of a pipeline (distributed.pipeline ranks, each
 * with distributed.interleave parts), and notes on every param and state which parts read it.
 *
 * The forward graph is cut along its order, before the first readers of blocks' params, so that the slowest
 * chunk is as fast as can be: work by operations and bytes, and what goes to the next chunk. With
 * distributed.stages the user says before which blocks. A param that several chunks read (an embedding
 * that is the output's matrix too) belongs to the first of them, and the others get it once a step. */
#include "passes/chunks.h"
#include "passes/min_cut.h"
#include "passes/prune.h"
#include "plan/machine.h"
#include <string.h>

/* ── kinds of values ────────────────────────────────────────────────────────────────────────── */
typedef struct {
  bool *on_data; /* by node: of an input or random numbers */
  bool *is_kept; /* by node, of states: follows params */
} Kinds;

int chunks_pick(const Node *leaf, int least) {
  const Attr *chunks = node_attr(leaf, ATTR_CHUNKS);
  int found = -1;
  for (int i = 0; chunks && i < chunks->count; i++)
    if (chunks->ints[i] >= least && (found < 0 || chunks->ints[i] < found))
      found = (int)chunks->ints[i];
  return found < 0 ? least : found;
}

int chunks_home(const Node *leaf) {
  const Attr *chunks = node_attr(leaf, ATTR_CHUNKS);
  return chunks ? (int)chunks->ints[0] : 0;
}

static bool keeps_size(const Node *node) {
  OpClass op_class = op_info[node->op].op_class;
  return op_class == CLASS_POINTWISE || (op_class == CLASS_MOVE && node->op != OP_GATHER);
}

static ValueKind leaf_kind(const Kinds *kinds, const Node *node) {
  if (node->op == OP_PARAM) return VALUE_WEIGHT;
  bool is_kept = kinds->is_kept[node->id] || node_attr(node, ATTR_CHUNKS) || /* in another graph */
                 node->role == ROLE_PART_TOTAL;
  return node->op == OP_STATE && is_kept ? VALUE_WEIGHT : VALUE_FREE;
}

static void chunks_add_leaf(Chunks *c, ChunkLeaves *to, const Node *leaf) {
  for (int i = 0; i < to->count; i++)
    if (to->at[i] == leaf) return;
  VEC_PUSH(c->arena, *to, leaf);
}

static void chunks_find_kind(Chunks *c, Kinds *kinds, const Node *node) {
  bool has_data = false, on_data = node->op == OP_INPUT || node->op == OP_RANDOM;
  ChunkLeaves *leaves = &c->leaves[node->id];
  leaves->count = 0;
  for (int k = 0; k < node->input_count; k++) {
    int of = node->input[k]->id;
    has_data |= c->kind[of] == VALUE_DATA;
    on_data |= kinds->on_data[of];
    for (int i = 0; c->kind[of] == VALUE_WEIGHT && i < c->leaves[of].count; i++)
      chunks_add_leaf(c, leaves, c->leaves[of].at[i]);
  }
  ValueKind *kind = &c->kind[node->id];
  kinds->on_data[node->id] = on_data;
  if (!node->input_count) {
    *kind = leaf_kind(kinds, node);
    if (*kind == VALUE_WEIGHT) chunks_add_leaf(c, leaves, node);
  } else if (!leaves->count && !has_data) {
    *kind = VALUE_FREE;
  } else {
    *kind = !has_data && !on_data && keeps_size(node) ? VALUE_WEIGHT : VALUE_DATA;
  }
}

/* States of which an update needs a param are kept where that is. */
static bool find_kept(const Chunks *c, Kinds *kinds) {
  bool is_changed = false;
  for (int i = 0; i < c->graph->roots.count; i++) {
    const Root *root = &c->graph->roots.at[i];
    if (root->kind != ROOT_ASSIGN || c->kind[root->node->id] == VALUE_FREE) continue;
    const Node *state = graph_find_state(c->graph, node_str(root->node, ATTR_TARGET));
    if (!state || kinds->is_kept[state->id]) continue;
    kinds->is_kept[state->id] = is_changed = true;
  }
  return is_changed;
}

static Chunks find_kinds(const Graph *graph, int count, Arena *arena) {
  int nodes = graph->nodes.count;
  Kinds kinds = {ARENA_ARRAY(arena, bool, nodes), ARENA_ARRAY(arena, bool, nodes)};
  Chunks c = {.graph = graph,
              .arena = arena,
              .count = count,
              .kind = ARENA_ARRAY(arena, ValueKind, nodes),
              .chunk = ARENA_ARRAY(arena, int, nodes),
              .leaves = ARENA_ARRAY(arena, ChunkLeaves, nodes)};
  do {
    for (int i = 0; i < nodes; i++) chunks_find_kind(&c, &kinds, graph->nodes.at[i]);
  } while (find_kept(&c, &kinds));
  return c;
}

/* ── where values are made ──────────────────────────────────────────────────────────────────── */
/* By node: the first chunk that it can be made in; is_pinned: it reads a param there. */
static void chunks_find_first(Chunks *c, bool *is_pinned) {
  for (int i = 0; i < c->graph->nodes.count; i++) {
    const Node *node = c->graph->nodes.at[i];
    int first = 0;
    for (int k = 0; k < node->input_count; k++) {
      int of = node->input[k]->id;
      if (c->kind[of] == VALUE_DATA && c->chunk[of] > first) first = c->chunk[of];
    }
    int least = first;
    const ChunkLeaves *leaves = &c->leaves[i];
    for (int k = 0; c->kind[i] == VALUE_DATA && k < leaves->count; k++) {
      int at = chunks_pick(leaves->at[k], least);
      if (at > first) first = at;
      is_pinned[i] = true;
    }
    c->chunk[i] = first;
  }
}

/* Which values are made in chunk `from` or later. An update belongs where its state is. */
static void cut_before(Chunks *c, int from, const int *first, const bool *is_pinned) {
  int nodes = c->graph->nodes.count, source = 2 * nodes, sink = source + 1;
  MinCut *cut = min_cut_new(c->arena, sink + 1);
  for (int i = 0; i < nodes; i++) {
    const Node *node = c->graph->nodes.at[i];
    if (c->kind[i] != VALUE_DATA) continue;
    bool is_late = first[i] >= from;
    bool is_early = (is_pinned[i] && !is_late) || c->chunk[i] < from - 1;
    if (is_early) min_cut_edge(cut, source, i, MIN_CUT_INFINITE);
    if (is_late) min_cut_edge(cut, i, sink, MIN_CUT_INFINITE);
    min_cut_edge(cut, i, nodes + i, type_bytes(&node->type));
    for (int k = 0; k < node->input_count; k++) {
      int of = node->input[k]->id;
      if (c->kind[of] != VALUE_DATA) continue;
      min_cut_edge(cut, nodes + of, i, MIN_CUT_INFINITE);
      min_cut_edge(cut, i, of, MIN_CUT_INFINITE);
    }
  }
  const bool *is_behind = min_cut_solve(cut, source, sink);
  for (int i = 0; is_behind && i < nodes; i++)
    if (c->kind[i] == VALUE_DATA && is_behind[i]) c->chunk[i] = from;
}

Chunks chunks_assign(const Graph *graph, int count, Arena *arena) {
  int nodes = graph->nodes.count;
  Chunks c = find_kinds(graph, count, arena);
  bool *is_pinned = ARENA_ARRAY(arena, bool, nodes);
  chunks_find_first(&c, is_pinned);
  int *first = ARENA_ARRAY(arena, int, nodes);
  for (int i = 0; i < nodes; i++) first[i] = c.chunk[i], c.chunk[i] = 0;
  for (int from = 1; from < count; from++) cut_before(&c, from, first, is_pinned);
  return c;
}

/* ── the choice ─────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  PassContext *context;
  Chunks c;
  double *work;     /* by node: seconds of all nodes up to it */
  double *crossing; /* by node: seconds that what lies across a cut before it takes to be sent */
  VEC(int) before;  /* nodes that a chunk may begin with, in order; the first is node 0 */
  bool *is_within;  /* by node: params before it and behind are pruned together */
  VEC(int) not_before; /* so a chunk may not begin with these */
} Choice;

static double choice_seconds(const Machine *machine, const Node *node) {
  double operations = (double)shape_elements(&node->type.shape);
  double bytes = (double)type_bytes(&node->type);
  if (node->op == OP_DOT) {
    DotForm form = dot_form(node);
    operations = 2 * (double)(form.batch * form.m * form.n * form.k);
  } else if (node->op == OP_CONV) {
    ConvForm form = conv_form(node);
    operations *= 2 * (double)(form.in * form.kernel_height * form.kernel_width);
  } else if (node->op == OP_ATTENTION) {
    AttentionForm form = attention_form(node);
    operations = 4 * (double)(form.batch * form.heads * form.rows * form.keys * form.features);
  }
  double rate = machine->half > 0 ? machine->half : machine->f32;
  return operations / rate + bytes / machine->memory_rate;
}

/* "h.3.attn" of "h.3.attn.weight". */
static size_t block_length(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot ? (size_t)(dot - name) : strlen(name);
}

/* By leaf: the first node that is made of it; the number of nodes: none. */
static int *first_readers(const Chunks *c) {
  int nodes = c->graph->nodes.count, *first = ARENA_ARRAY(c->arena, int, nodes);
  for (int i = 0; i < nodes; i++) first[i] = nodes;
  for (int i = nodes - 1; i >= 0; i--)
    for (int k = 0; c->kind[i] == VALUE_DATA && k < c->leaves[i].count; k++) first[c->leaves[i].at[k]->id] = i;
  return first;
}

/* The rank that chooses what of a matrix is pruned has the vectors that become 0 with it (train.prune). */
static void find_pruned_together(Choice *choice) {
  const Graph *graph = choice->c.graph;
  int nodes = graph->nodes.count;
  const int *first = first_readers(&choice->c);
  choice->is_within = ARENA_ARRAY(choice->c.arena, bool, nodes);
  for (int i = 0; i < nodes; i++) {
    const char *by = node_str(graph->nodes.at[i], ATTR_PRUNED);
    const Node *leader = by ? graph_find_leaf(graph, OP_PARAM, by) : NULL;
    int begin = leader ? first[leader->id] : nodes, end = first[i];
    if (end < begin) begin = first[i], end = leader ? first[leader->id] : begin;
    for (int k = begin + 1; k <= end && end < nodes; k++) choice->is_within[k] = true;
  }
}

/* Prefix sums, and where the first reader of a block's params stands. */
static void measure(Choice *choice) {
  const Chunks *c = &choice->c;
  const Machine *machine = machine_find(choice->context->for_gpu ? "h100" : "cpu");
  int nodes = c->graph->nodes.count;
  int *last = ARENA_ARRAY(c->arena, int, nodes);
  Lookup blocks = {.arena = c->arena};
  for (int i = 0; i < nodes; i++)
    for (int k = 0; k < c->graph->nodes.at[i]->input_count; k++)
      if (c->kind[i] == VALUE_DATA) last[c->graph->nodes.at[i]->input[k]->id] = i;
  double *ends = ARENA_ARRAY(c->arena, double, nodes + 1), work = 0, bytes = 0;
  for (int i = 0; i < nodes; i++) {
    const Node *node = c->graph->nodes.at[i];
    bytes -= ends[i]; /* what was read for the last time before */
    choice->crossing[i] = bytes / (machine->link_reached > 0 ? machine->link_reached : 1e10);
    bool begins = false;
    for (int k = 0; c->kind[i] == VALUE_DATA && k < c->leaves[i].count; k++) {
      const Node *leaf = c->leaves[i].at[k];
      const char *name = node_str(leaf, ATTR_NAME);
      if (leaf->op != OP_PARAM || lookup_find(&blocks, name, block_length(name)) >= 0) continue;
      lookup_add(&blocks, name, block_length(name), i);
      begins = true; /* so each chunk has a param */
    }
    if (begins && choice->is_within[i])
      VEC_PUSH(c->arena, choice->not_before, i);
    else if (begins)
      VEC_PUSH(c->arena, choice->before, i);
    if (c->kind[i] == VALUE_DATA) {
      work += choice_seconds(machine, node);
      if (last[i] > i) bytes += (double)type_bytes(&node->type);
      if (last[i] > i) ends[last[i] + 1] += (double)type_bytes(&node->type);
    }
    choice->work[i] = work;
  }
}

/* The time of a chunk of candidates [a, b). */
static double chunk_time(const Choice *choice, int a, int b) {
  int count = choice->before.count, nodes = choice->c.graph->nodes.count;
  int first = a ? choice->before.at[a] : 0, end = b < count ? choice->before.at[b] : nodes;
  double work = choice->work[end - 1] - (first ? choice->work[first - 1] : 0);
  double sent = (a ? choice->crossing[first] : 0) + (b < count ? choice->crossing[end] : 0);
  return 3 * work + 2 * sent;
}

/* By chunk: the candidate that it begins with. The largest time is the least, then the sum of what
 * is sent. */
static int *balanced(const Choice *choice, int chunks) {
  Arena *arena = choice->c.arena;
  int count = choice->before.count, *begin = ARENA_ARRAY(arena, int, chunks + 1);
  double *best = ARENA_ARRAY(arena, double, (chunks + 1) * (count + 1));
  int *from = ARENA_ARRAY(arena, int, (chunks + 1) * (count + 1));
  for (int k = 1; k <= chunks; k++)
    for (int end = k; end <= count; end++) {
      double *least = &best[k * (count + 1) + end];
      *least = -1;
      for (int first = k - 1; first < end && (k > 1 || first == 0); first++) {
        double before = k > 1 ? best[(k - 1) * (count + 1) + first] : 0;
        double own = chunk_time(choice, first, end), time = own > before ? own : before;
        if (*least >= 0 && time >= *least) continue;
        *least = time;
        from[k * (count + 1) + end] = first;
      }
    }
  for (int k = chunks, end = count; k > 0; k--) begin[k - 1] = end = from[k * (count + 1) + end];
  return begin;
}

/* ── what the user says ─────────────────────────────────────────────────────────────────────── */
static bool is_of_block(const char *name, const char *block, size_t length) {
  return !strncmp(name, block, length) && (name[length] == '.' || !name[length]);
}

static bool begins_block(const Chunks *c, int node, const char *block, size_t length) {
  for (int k = 0; k < c->leaves[node].count; k++)
    if (is_of_block(node_str(c->leaves[node].at[k], ATTR_NAME), block, length)) return true;
  return false;
}

static int candidate_of(const Choice *choice, const char *block, size_t length) {
  for (int b = 0; b < choice->before.count; b++)
    if (begins_block(&choice->c, choice->before.at[b], block, length)) return b;
  return -1;
}

static void refuse_block(const Choice *choice, const char *block, size_t length) {
  bool is_within = false;
  for (int i = 0; i < choice->not_before.count; i++) is_within |= begins_block(&choice->c, choice->not_before.at[i], block, length);
  diag_error(choice->context->diag, (Loc){0},
             is_within ? "distributed.stages: no stage begins with block '%.*s', since train.prune makes its vectors 0 with the channels of the layer "
                         "before: begin it with that layer"
                       : "distributed.stages: no block '%.*s' has parameters",
             (int)length, block);
}

/* "h.3, h.6": the blocks that the second chunk and those behind it begin with. */
static int *as_said(const Choice *choice, const char *text, int chunks) {
  Diag *diag = choice->context->diag;
  int *begin = ARENA_ARRAY(choice->c.arena, int, chunks + 1), found = 1;
  for (const char *at = text + strspn(text, ", "); *at; found++) {
    size_t length = strcspn(at, ", ");
    int b = candidate_of(choice, at, length);
    if (b < 0) {
      refuse_block(choice, at, length);
      return NULL;
    }
    if (found < chunks) begin[found] = b;
    if (found < chunks && b <= begin[found - 1]) {
      diag_error(diag, (Loc){0},
                 "distributed.stages: block '%.*s' does not come after the beginning of the stage "
                 "before it",
                 (int)length, at);
      return NULL;
    }
    at += length;
    at += strspn(at, ", ");
  }
  if (found == chunks) return begin;
  diag_error(
      diag, (Loc){0},
      "distributed.stages names %d blocks, but %d parts of the model begin behind the first: "
      "distributed.pipeline x distributed.interleave = %d",
      found - 1, chunks - 1, chunks);
  return NULL;
}

/* ── the pass ───────────────────────────────────────────────────────────────────────────────── */
/* Notes that the leaf is read in that chunk; the one that is noted first has it. */
static void note_chunk(Graph *graph, Node *leaf, int chunk) {
  const Attr *old = node_attr(leaf, ATTR_CHUNKS);
  int count = old ? old->count : 0;
  int64_t *chunks = ARENA_ARRAY(graph->arena, int64_t, count + 1);
  for (int i = 0; i < count; i++) {
    if (old->ints[i] == chunk) return;
    chunks[i] = old->ints[i];
  }
  chunks[count] = chunk;
  node_set_attr(graph, leaf, attr_ints(ATTR_CHUNKS, chunks, count + 1));
}

/* A state is where its next value is made. */
static void note_updates(const Chunks *c, Graph *graph) {
  for (int i = 0; i < graph->roots.count; i++) {
    const Root *root = &graph->roots.at[i];
    if (root->kind != ROOT_ASSIGN || c->kind[root->node->input[0]->id] != VALUE_DATA) continue;
    Node *state = graph_find_state(graph, node_str(root->node, ATTR_TARGET));
    if (state) note_chunk(graph, state, c->chunk[root->node->input[0]->id]);
  }
}

/* By the chunks of its readers; of `to`, which may be another graph with the same leaves. */
static void note_readers(const Chunks *c, Graph *to) {
  for (int i = 0; i < c->graph->nodes.count; i++)
    for (int k = 0; c->kind[i] == VALUE_DATA && k < c->leaves[i].count; k++) {
      const Node *leaf = c->leaves[i].at[k];
      Node *own = graph_find_leaf(to, leaf->op, node_str(leaf, ATTR_NAME));
      if (own) note_chunk(to, own, c->chunk[i]);
    }
}

static void forget_chunks(Graph *graph) {
  for (int i = 0; i < graph->nodes.count; i++) node_drop_attr(graph->nodes.at[i], ATTR_CHUNKS);
}

/* As the cut along the order has it. */
static void note_linear(const Choice *choice, Graph *graph, const int *begin, int chunks) {
  Chunks linear = choice->c;
  for (int i = 0, k = 0; i < graph->nodes.count; i++) {
    while (k + 1 < chunks && choice->before.at[begin[k + 1]] <= i) k++;
    linear.chunk[i] = k;
  }
  note_readers(&linear, graph);
}

static bool chunks_choose(PassContext *context, Graph *graph, int chunks) {
  int nodes = graph->nodes.count;
  Arena *arena = context->scratch;
  forget_chunks(graph);
  Choice choice = {.context = context,
                   .c = find_kinds(graph, chunks, arena),
                   .work = ARENA_ARRAY(arena, double, nodes + 1),
                   .crossing = ARENA_ARRAY(arena, double, nodes + 1)};
  find_pruned_together(&choice);
  measure(&choice);
  if (choice.before.count < chunks) {
    diag_error(
        context->diag, (Loc){0},
        "a pipeline of %d parts needs as many layers with parameters, and this model has %d%s: "
        "take a smaller distributed.pipeline or distributed.interleave",
        chunks, choice.before.count, choice.not_before.count ? " with their norms, which train.prune keeps together" : "");
    return false;
  }
  const char *said = setting_text(context->settings, "distributed.stages");
  bool is_said = said && *said;
  const int *begin = is_said ? as_said(&choice, said, chunks) : balanced(&choice, chunks);
  if (!begin) return false;
  note_linear(&choice, graph, begin, chunks);
  return true;
}

/* The same params as in the train graph are in the same chunks; those that nothing reads in the
 * first one. */
static void copy_chunks(Graph *graph, const Graph *train) {
  for (int i = 0; i < graph->nodes.count; i++) {
    Node *leaf = graph->nodes.at[i];
    if (leaf->op != OP_PARAM && leaf->op != OP_STATE) continue;
    const Node *other = graph_find_leaf(train, leaf->op, node_str(leaf, ATTR_NAME));
    const Attr *chunks = other ? node_attr(other, ATTR_CHUNKS) : NULL;
    if (chunks) node_set_attr(graph, leaf, attr_ints(ATTR_CHUNKS, chunks->ints, chunks->count));
    if (!chunks && leaf->op == OP_PARAM) note_chunk(graph, leaf, 0);
  }
}

/* Totals over batches are kept where they are added up. */
static void note_own_states(Graph *graph, int chunks, Arena *arena) {
  Chunks c = chunks_assign(graph, chunks, arena);
  note_updates(&c, graph);
  bool *has_chunks = ARENA_ARRAY(arena, bool, graph->nodes.count);
  for (int i = 0; i < graph->nodes.count; i++)
    has_chunks[i] = node_attr(graph->nodes.at[i], ATTR_CHUNKS) != NULL;
  for (int i = 0; i < graph->nodes.count; i++)
    for (int k = 0; c.kind[i] == VALUE_DATA && k < c.leaves[i].count; k++) {
      const Node *leaf = c.leaves[i].at[k];
      if (!has_chunks[leaf->id]) note_chunk(graph, graph->nodes.at[leaf->id], c.chunk[i]);
    }
}

/* What evaluation reads in another chunk than training belongs to both. */
static void note_evaluation(PassContext *context, Graph *graph, int chunks) {
  if (!context->program || !context->program->eval || context->of != PASS_OF_TRAIN) return;
  Graph *eval = graph_rewrite(context->program->eval, NULL, NULL);
  copy_chunks(eval, graph);
  Chunks c = chunks_assign(eval, chunks, context->scratch);
  note_readers(&c, graph);
}

Graph *pass_chunks(PassContext *context, Graph *old) {
  int ranks = context->settings ? (int)setting_pipeline(context->settings) : 1;
  if (ranks == 1) return old;
  int chunks = ranks * (int)setting_number(context->settings, "distributed.interleave");
  Graph *graph = graph_rewrite(old, NULL, NULL);
  const Program *program = context->program;
  if (context->of != PASS_OF_TRAIN && program && program->train) {
    copy_chunks(graph, program->train);
    note_own_states(graph, chunks, context->scratch);
    return graph;
  }
  if (!chunks_choose(context, graph, chunks)) return NULL;
  Chunks c = chunks_assign(graph, chunks, context->scratch);
  forget_chunks(graph);
  note_updates(&c, graph);
  note_readers(&c, graph);
  copy_chunks(graph, graph);
  note_evaluation(context, graph, chunks);
  prune_note_order(graph, context->settings);
  return graph;
}
