/* chain: see chain.h. */
#include "codegen/chain.h"
#include "codegen/nvptx_private.h"
#include <string.h>

enum {
  MOST_BLOCKS = 4 * MULTIPROCESSORS, /* of four rows; of eight: those of MULTIPROCESSORS */
  LEAST_ROWS = 2,
  MOST_ROWS = 8 * MULTIPROCESSORS,
  MOST_WEIGHTS = 32 << 10, /* of a product: each block reads them all */
  LONGEST_ROW = 1024,      /* of a loop */
  KINDS_OF_ROWS = 8        /* numbers of rows that are tried in a graph */
};

int chain_block_rows(int64_t rows) {
  return rows <= MOST_BLOCKS / 4 ? 2 : rows <= MOST_BLOCKS ? 4 : 8;
}

/* ── one kernel ─────────────────────────────────────────────────────────────────────────────── */
/* Leading dimensions of the shape that have so many elements; -1: there are none. */
static int leading(const Shape *shape, int64_t rows) {
  int64_t count = 1;
  for (int d = 0; d <= shape->rank; d++) {
    if (count == rows) return d;
    if (d < shape->rank) count *= shape->dim[d];
  }
  return -1;
}

/* Is every row of the node's value made of the same row of its operand i? */
static bool keeps_rows(const Node *node, int i, int64_t rows) {
  const Shape *to = &node->type.shape, *from = &node->input[i]->type.shape;
  int first = leading(to, rows);
  OpClass of = op_info[node->op].op_class;
  if (first < 0 || leading(from, rows) < 0) return false;
  if (of == CLASS_POINTWISE || node->op == OP_RESHAPE || node->op == OP_STOP_GRADIENT)
    return shape_elements(to) == shape_elements(from);
  if (node->op == OP_DOT) return i == 0;
  if (node->op != OP_BROADCAST && of != CLASS_REDUCE) return false;
  if (to->rank != from->rank) return false;
  for (int d = 0; d < first; d++)
    if (to->dim[d] != from->dim[d]) return false;
  if (of != CLASS_REDUCE) return true;
  const Attr *axes = node_attr(node, ATTR_AXES);
  for (int k = 0; axes && k < axes->count; k++)
    if (axes->ints[k] < first) return false;
  return axes != NULL;
}

/* Does what the body makes of this operand need no other row of it than its own? Of sums of a product's columns a block
 * adds up its own rows; a second launch does the rest. */
static bool operand_goes_by_rows(Arena *scratch, const Node *fused, const Node *operand, int64_t rows) {
  const Graph *body = fused->body;
  bool has_column_sums = kernel_kind(fused) == KERNEL_DOT;
  bool *is_made = ARENA_ARRAY(scratch, bool, body->nodes.count);
  if (leading(&operand->type.shape, rows) < 0) return false;
  is_made[operand->id] = true;
  for (int i = operand->id + 1; i < body->nodes.count; i++) {
    const Node *node = body->nodes.at[i];
    if (has_column_sums && op_info[node->op].op_class == CLASS_REDUCE) continue;
    for (int k = 0; k < node->input_count; k++) {
      if (!is_made[node->input[k]->id]) continue;
      is_made[i] = true;
      if (!keeps_rows(node, k, rows)) return false;
    }
  }
  return true;
}

static bool is_product_of_rows(const Node *dot, int64_t rows) {
  if (dot->op != OP_DOT) return false;
  const DotForm f = dot_form(dot);
  DType dtype = dot->input[0]->type.dtype;
  return f.batch == 1 && !f.ta && f.m == rows && f.n <= CHAIN_MOST_SIDE && f.k > 0 && f.n > 0 && !node_attr(dot, ATTR_INTEGERS) &&
         !node_attr(dot, ATTR_ROUNDED) && !node_attr(dot, ATTR_SPARSE) && (dtype == DT_F32 || dtype_is_narrow(dtype)) && dot->input[1]->type.dtype == dtype;
}

bool chain_is_small(const Node *product, int64_t rows) {
  if (!is_product_of_rows(product, rows)) return false;
  const DotForm f = dot_form(product);
  return f.k <= CHAIN_MOST_SIDE && f.n * f.k <= MOST_WEIGHTS;
}

/* Are all of a row kernel's results rows, or numbers of rows, and its rows these? */
static bool is_small_row(const Node *node, int64_t rows) {
  Shape domain = kernel_domain(node);
  const Node *reduce = graph_find_class(node->body, CLASS_REDUCE);
  int64_t elements = shape_elements(&domain);
  for (int i = 0; i < node->body->nodes.count; i++)
    if (kernel_is_beside(node, node->body->nodes.at[i])) return false;
  return shape_elements(&reduce->type.shape) == rows && leading(&domain, rows) >= 0 && elements <= rows * CHAIN_MOST_SIDE;
}

static bool is_kernel_by_rows(const Node *node, int64_t rows) {
  const Node *product = node->op == OP_FUSED || node->op == OP_DOT ? kernel_contraction(node) : NULL;
  if (product) return is_product_of_rows(product, rows);
  if (node->op != OP_FUSED || graph_find_class(node->body, CLASS_WINDOW)) return false;
  KernelKind kind = kernel_kind(node);
  Shape domain = kernel_domain(node);
  if (kind == KERNEL_ROW) return is_small_row(node, rows);
  return kind == KERNEL_LOOP && leading(&domain, rows) >= 0 && shape_elements(&domain) <= rows * LONGEST_ROW;
}

static bool has_pitch_somewhere(const Node *node) {
  for (int i = 0; i < node->input_count; i++)
    if (node->input[i]->type.pitch) return true;
  return false;
}

bool chain_by_rows(Arena *scratch, const Node *node, int64_t rows, bool *by_rows) {
  int results = node_result_count(node);
  if (!is_kernel_by_rows(node, rows) || has_pitch_somewhere(node)) return false;
  const Node *product = kernel_contraction(node);
  bool is_small = !product || chain_is_small(product, rows);
  for (int i = 0; i < node->input_count; i++) by_rows[i] = !node->body && i == 0 && is_small;
  for (int i = 0; node->body && i < node->body->nodes.count; i++) {
    const Node *inner = node->body->nodes.at[i];
    if (inner->op != OP_ARG) continue;
    int operand = (int)node_int(inner, ATTR_INDEX, 0);
    bool is_multiplied = product && (inner == product->input[0] || inner == product->input[1]);
    by_rows[operand] = (is_small || !is_multiplied) && operand_goes_by_rows(scratch, node, inner, rows);
  }
  for (int i = 0; i < results; i++) {
    Type type = node_result_type(node, i);
    by_rows[node->input_count + i] = leading(&type.shape, rows) >= 0 &&
                                     (!node->body || kernel_kind(node) != KERNEL_DOT ||
                                      kernel_is_whole(node, node->body->roots.at[i].node));
  }
  return true;
}

/* ── kernels in a row ───────────────────────────────────────────────────────────────────────── */
typedef struct {
  Arena *arena;
  const Graph *graph;
  int64_t rows;
  bool **by_rows; /* by node; NULL: it cannot go by these rows */
  int *chain;     /* by node: another one of its chain, or itself */
} ChainSearch;

static int chain_of(ChainSearch *search, int node) {
  while (search->chain[node] != node) node = search->chain[node] = search->chain[search->chain[node]];
  return node;
}

/* The node reads these rows of another one that goes by them. */
static void link_operands(ChainSearch *search, const Node *node) {
  for (int i = 0; i < node->input_count; i++) {
    const Node *from = node_base(node->input[i]);
    int result = from->op == OP_RESULT ? (int)node_int(from, ATTR_INDEX, 0) : 0;
    if (from->op == OP_RESULT) from = from->input[0];
    const bool *made = search->by_rows[from->id];
    if (made && made[from->input_count + result] && search->by_rows[node->id][i])
      search->chain[chain_of(search, node->id)] = chain_of(search, from->id);
  }
}

static bool has_small_product(const Node *node, int64_t rows) {
  const Node *product = kernel_contraction(node);
  return product && chain_is_small(product, rows);
}

static void search_chains(ChainSearch *search, int64_t *out) {
  int count = search->graph->nodes.count;
  int *nodes = ARENA_ARRAY(search->arena, int, count), *products = ARENA_ARRAY(search->arena, int, count);
  for (int i = 0; i < count; i++) {
    const Node *node = search->graph->nodes.at[i];
    bool *by_rows = ARENA_ARRAY(search->arena, bool, node->input_count + node_result_count(node) + 1);
    search->chain[i] = i;
    search->by_rows[i] = !out[i] && chain_by_rows(search->arena, node, search->rows, by_rows) ? by_rows : NULL;
    if (search->by_rows[i]) link_operands(search, node);
  }
  for (int i = 0; i < count; i++)
    if (search->by_rows[i]) {
      nodes[chain_of(search, i)]++;
      products[chain_of(search, i)] += has_small_product(search->graph->nodes.at[i], search->rows);
    }
  for (int i = 0; i < count; i++)
    if (search->by_rows[i] && nodes[chain_of(search, i)] > 1 && products[chain_of(search, i)]) out[i] = search->rows;
}

/* The numbers of rows of small products. */
static int list_row_counts(const Graph *graph, int64_t rows[KINDS_OF_ROWS]) {
  int count = 0;
  for (int i = 0; i < graph->nodes.count && count < KINDS_OF_ROWS; i++) {
    const Node *node = graph->nodes.at[i];
    const Node *product = node->op == OP_FUSED || node->op == OP_DOT ? kernel_contraction(node) : NULL;
    if (!product || product->op != OP_DOT) continue;
    int64_t own = dot_form(product).m;
    bool is_new = own >= LEAST_ROWS && own <= MOST_ROWS && chain_is_small(product, own);
    for (int k = 0; k < count; k++) is_new &= rows[k] != own;
    if (is_new) rows[count++] = own;
  }
  return count;
}

int64_t *chain_find(const Module *module, Arena *arena, const Graph *graph) {
  int64_t rows[KINDS_OF_ROWS];
  if (module->target != TARGET_PTX || module->options->is_inference || module->only_tile ||
      module_leaves_out(module, "row_chains"))
    return NULL;
  int count = list_row_counts(graph, rows);
  int64_t *out = count ? ARENA_ARRAY(arena, int64_t, graph->nodes.count) : NULL;
  for (int i = 0; i < count; i++) {
    ChainSearch search = {.arena = arena_new(), .graph = graph, .rows = rows[i]};
    search.by_rows = ARENA_ARRAY(search.arena, bool *, graph->nodes.count);
    search.chain = ARENA_ARRAY(search.arena, int, graph->nodes.count);
    search_chains(&search, out);
    arena_free(search.arena);
  }
  return out;
}

/* ── for joined launches ────────────────────────────────────────────────────────────────────── */
static void note_launch(Module *first, const Kernel *kernel, const KernelLaunch *launch, int64_t rows, const bool *by_rows,
                        int count) {
  int args = launch->args ? launch->arg_count : count + (kernel->workspace > 0);
  bool *own = ARENA_ARRAY(first->arena, bool, args + 1);
  for (int i = 0; i < args; i++) {
    int which = launch->args ? launch->args[i] : i;
    own[i] = which < count && by_rows[which];
  }
  ChainLaunch *note = ARENA_NEW(first->arena, ChainLaunch);
  *note = (ChainLaunch){launch->name, rows, own};
  VEC_PUSH(first->arena, first->chained, note);
}

void chain_note(Module *first, const Kernel *kernel, int64_t rows, const bool *by_rows, int count) {
  for (int i = 0; i < kernel->launch_count; i++)
    if (kernel->launch[i].goes_by_rows) note_launch(first, kernel, &kernel->launch[i], rows, by_rows, count);
}

const ChainLaunch *chain_launch(const Module *first, const char *name) {
  for (int i = 0; i < first->chained.count; i++)
    if (!strcmp(first->chained.at[i]->name, name)) return first->chained.at[i];
  return NULL;
}
