/* float8_delayed: see float8_delayed.h. */
#include "passes/float8_delayed.h"
#include "passes/float8.h"
#include <float.h>
#include <math.h>
#include <string.h>

enum { TENSORS_OF_PRODUCT = 3, GRADIENT = 2 };
#define SCALES OWN_FLOAT8 "scale"
#define HISTORY OWN_FLOAT8 "history"
#define PARTS_LARGEST OWN_ACCUMULATE "float8"

/* One row of the states that a tensor has: a value that several products read has several, which are always equal. */
typedef struct {
  int node, row;
} Entry;

struct Histories {
  PassContext *context;
  int products;
  int *row; /* by old node: the least of its rows; -1: it has none */
  VEC(Entry) entries;
  Node **largest; /* by old node: the largest |x|, in the new graph; NULL: not asked for */
};

static void add_entry(Histories *h, const Node *node, int row) {
  VEC_PUSH(h->context->scratch, h->entries, ((Entry){node->id, row}));
  if (h->row[node->id] < 0 || row < h->row[node->id]) h->row[node->id] = row;
}

/* Forward's products say which value is which operand; backward multiplies these again, by what is a gradient then. */
static void find_rows(Histories *h, const Graph *old, bool is_backward) {
  for (int i = 0; i < old->nodes.count; i++) {
    const Node *node = old->nodes.at[i];
    if (!float8_is_product(h->context, node) || node->origin.is_backward != is_backward) continue;
    int first = (int)node_int(node, ATTR_STREAM, 0) * TENSORS_OF_PRODUCT;
    for (int k = 0; k < 2; k++) {
      const Node *base = float8_operand(node->input[k]);
      bool is_operand = h->row[base->id] >= 0 && h->row[base->id] % TENSORS_OF_PRODUCT != GRADIENT;
      if (!is_backward)
        add_entry(h, base, first + k);
      else if (!is_operand)
        add_entry(h, base, first + GRADIENT);
    }
  }
}

/* How many there are in the program, or in the graph of a tool that has no program. */
static int count_products(const PassContext *context, const Graph *graph) {
  int count = context->program && context->program->products ? context->program->products->entries.count : 0;
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    int number = node->op == OP_DOT ? (int)node_int(node, ATTR_STREAM, -1) : -1;
    if (number >= count) count = number + 1;
  }
  return count;
}

Histories *histories_find(PassContext *context, const Graph *old) {
  const SettingValue *settings = context->settings;
  if (!settings || strcmp(setting_text(settings, "train.fp8.scaling"), "delayed") != 0) return NULL;
  Histories *h = ARENA_NEW(context->scratch, Histories);
  *h = (Histories){.context = context,
                   .products = count_products(context, old),
                   .row = ARENA_ARRAY(context->scratch, int, old->nodes.count),
                   .largest = ARENA_ARRAY(context->scratch, Node *, old->nodes.count)};
  for (int i = 0; i < old->nodes.count; i++) h->row[i] = -1;
  find_rows(h, old, false);
  find_rows(h, old, true);
  return h;
}

bool histories_is_gradient(const Histories *h, const Node *old) {
  return h->row[old->id] % TENSORS_OF_PRODUCT == GRADIENT;
}

/* ── a step's scales ────────────────────────────────────────────────────────────────────────── */
static Shape all_tensors(const Histories *h) {
  return shape_of(2, (int64_t[]){h->products, TENSORS_OF_PRODUCT});
}

static Node *scales(const Histories *h, Graph *graph) {
  return make_state(graph, ROLE_FLOAT8, SCALES, (Type){DT_F32, all_tensors(h)}, 1);
}

static Shape ones(int rank) {
  Shape shape = {.rank = rank};
  for (int i = 0; i < rank; i++) shape.dim[i] = 1;
  return shape;
}

/* It is kept for the end of the step, whatever backward recomputes. */
static Node *kept_largest(Graph *graph, Node *x) {
  Region region = graph->origin.region;
  graph->origin.region = (Region){0};
  Node *largest = make_reshape(graph, float8_largest(graph, x), ones(1));
  graph->origin.region = region;
  return largest;
}

Node *histories_scale(Histories *h, Graph *graph, const Node *old, Node *fresh) {
  int row = h->row[old->id];
  int64_t at[2] = {row / TENSORS_OF_PRODUCT, row % TENSORS_OF_PRODUCT};
  if (pass_trains(h->context)) h->largest[old->id] = kept_largest(graph, fresh);
  return make_reshape(graph, make_slice(graph, scales(h, graph), at, ones(2)), ones(fresh->type.shape.rank));
}

/* ── what is remembered ─────────────────────────────────────────────────────────────────────── */
static Node *float8_concat(Graph *graph, Node **parts, int count) {
  Attr axis = attr_int(ATTR_AXIS, 0);
  return count == 1 ? parts[0] : graph_node(graph, OP_CONCAT, parts, count, &axis, 1, NULL);
}

/* f32[products, 3]: the largest sizes of this part of the batch. A NaN is an infinity, which a maximum over ranks keeps
 * whatever the library. */
static Node *largest_of_part(Histories *h, Graph *graph) {
  int rows = h->products * TENSORS_OF_PRODUCT;
  Node **parts = ARENA_ARRAY(graph->arena, Node *, rows), *none = make_const(graph, DT_F32, ones(1), 0);
  for (int i = 0; i < h->entries.count; i++) {
    Entry entry = h->entries.at[i];
    Node *largest = h->largest[entry.node], **part = &parts[entry.row];
    if (*part != largest) *part = *part ? make_binary(graph, OP_MAX, *part, largest) : largest;
  }
  for (int i = 0; i < rows; i++)
    if (!parts[i]) parts[i] = none;
  Node *all = make_reshape(graph, float8_concat(graph, parts, rows), all_tensors(h));
  return make_select(graph, make_unary(graph, OP_ISFINITE, all), all, make_like(graph, all, INFINITY));
}

/* … of all of the batch so far; NULL: there are more parts to come. */
static Node *largest_of_batch(Histories *h, Graph *graph) {
  const SettingValue *settings = h->context->settings;
  Node *largest = largest_of_part(h, graph);
  if (setting_number(settings, "train.accumulate") > 1) {
    Node *before = make_state(graph, ROLE_PART_TOTAL, PARTS_LARGEST, largest->type, 0);
    if (h->context->of == PASS_OF_MICRO) {
      Node *part = make_state(graph, ROLE_PART, PARTS_DONE, (Type){DT_I64, shape_scalar()}, 0);
      Node *is_first = make_binary(graph, OP_EQ, part, make_like(graph, part, 0));
      before = make_select(graph, is_first, make_like(graph, before, 0), before);
    }
    largest = make_binary(graph, OP_MAX, before, largest);
    if (h->context->of == PASS_OF_MICRO) return make_assign(graph, PARTS_LARGEST, largest), NULL;
  }
  return setting_ranks(settings) != 1 ? make_all_reduce(graph, OP_RMAX, largest) : largest;
}

/* The history with this step's in place of the first one's. */
static Node *remembered(Histories *h, Graph *graph, Node *largest) {
  int64_t steps = (int64_t)setting_number(h->context->settings, "train.fp8.history"), second[3] = {1};
  Shape one = shape_of(3, (int64_t[]){1, h->products, TENSORS_OF_PRODUCT}), all = one, rest = one;
  all.dim[0] = steps, rest.dim[0] = steps - 1;
  Node *before = make_state(graph, ROLE_FLOAT8, HISTORY, (Type){DT_F32, all}, 0);
  Node *latest = make_reshape(graph, largest, one);
  if (steps == 1) return latest;
  return float8_concat(graph, (Node *[]){make_slice(graph, before, second, rest), latest}, 2);
}

static Node *next_scales(Histories *h, Graph *graph, Node *history) {
  Node *now = scales(h, graph);
  Node *largest = make_reshape(graph, make_reduce(graph, OP_RMAX, history, (int64_t[]){0}, 1), all_tensors(h));
  Node *tensor = make_iota(graph, DT_I32, all_tensors(h), 1);
  Node *end = make_select(graph, make_binary(graph, OP_EQ, tensor, make_like(graph, tensor, GRADIENT)),
                          make_like(graph, largest, FLOAT8_LARGEST_E5M2), make_like(graph, largest, FLOAT8_LARGEST_E4M3));
  double margin = exp2(-setting_number(h->context->settings, "train.fp8.margin"));
  Node *next = make_binary(graph, OP_DIV, end, largest);
  next = make_binary(graph, OP_MUL, next, make_like(graph, next, margin));
  next = make_binary(graph, OP_MIN, next, make_like(graph, next, FLT_MAX));
  Node *is_some = make_binary(graph, OP_GT, largest, make_like(graph, largest, 0));
  Node *is_known = make_binary(graph, OP_AND, is_some, make_unary(graph, OP_ISFINITE, largest));
  return make_select(graph, is_known, next, now);
}

void histories_update(Histories *h, Graph *graph) {
  if (!pass_trains(h->context)) return;
  Origin outer = graph->origin;
  graph->origin = (Origin){.function = "fp8", .is_backward = true};
  Node *largest = largest_of_batch(h, graph);
  if (largest) {
    Node *history = remembered(h, graph, largest);
    make_assign(graph, HISTORY, history);
    make_assign(graph, SCALES, next_scales(h, graph, history));
  }
  graph->origin = outer;
}
