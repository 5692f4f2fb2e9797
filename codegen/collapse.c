/* collapse: walks the body as the emitter will, but with symbols for the domain's dimensions, and
 * notes every border between two dimensions that some access needs, and where one divides a
 * dimension. */
#include "codegen/collapse.h"
#include "passes/fuse.h"
#include <string.h>

/* One digit of a symbolic index: a dimension of the domain, or something computed (dim -1) from the
 * dimensions in `mask`. */
typedef struct {
  int64_t extent;
  int dim;
  uint32_t mask;
} Item;
enum { MAX_ITEMS = 24 };
typedef struct {
  int count;
  Item item[MAX_ITEMS];
} Symbol;

typedef struct Visit {
  struct Visit *next;
  Symbol symbol;
} Visit;

typedef struct {
  Arena *scratch;
  const Node *fused;
  const Type *result; /* of its results; NULL: they have no pitch */
  Shape domain;
  int next_dim[MAX_RANK]; /* the next dimension with more than one element, or -1 */
  bool border[MAX_RANK];  /* between dimension d and next_dim[d] */
  int64_t cut[MAX_RANK];  /* an access divides dimension d into parts of so many; 0: none does */
  Visit **seen;           /* by node id */
} Walk;

static void symbol_push(Symbol *symbol, int64_t extent, int dim, uint32_t mask) {
  if (extent == 1) return;
  if (symbol->count < MAX_ITEMS) symbol->item[symbol->count++] = (Item){extent, dim, mask};
}

/* These items are read as one number: the borders between them may go where they are whole,
 * neighbouring dimensions. */
static void collapse_use(Walk *walk, const Symbol *symbol) {
  uint32_t present = 0, computed = 0;
  int position[MAX_RANK];
  for (int i = 0; i < symbol->count; i++) {
    if (symbol->item[i].dim >= 0) {
      present |= 1u << symbol->item[i].dim;
      position[symbol->item[i].dim] = i;
    } else {
      computed |= symbol->item[i].mask;
    }
  }
  for (int d = 0; d < walk->domain.rank; d++) {
    int next = walk->next_dim[d];
    if (next < 0 || walk->domain.dim[d] == 1) continue;
    bool first = present >> d & 1, second = present >> next & 1;
    if (first && second && position[next] != position[d] + 1) walk->border[d] = true;
    if (first != second) walk->border[d] = true;
    /* an item computed from one of them is elsewhere in the address: such a dimension cannot be
     * collapsed with one that is only used as it is */
    if ((computed >> d & 1) != (computed >> next & 1)) walk->border[d] = true;
  }
}

static uint32_t collapse_mask_of(const Item *item) {
  return item->dim >= 0 ? 1u << item->dim : item->mask;
}

/* A border of an access lies where the items behind it count `weight`: within item k, it may be. */
static void note_cut(Walk *walk, const Symbol *symbol, int64_t weight) {
  int64_t behind = 1;
  for (int k = symbol->count - 1; k >= 0 && behind < weight; k--) {
    const Item *item = &symbol->item[k];
    int64_t part = weight / behind;
    if (item->dim >= 0 && part < item->extent && weight % behind == 0 && item->extent % part == 0 &&
        !walk->cut[item->dim])
      walk->cut[item->dim] = part;
    behind *= item->extent;
  }
}

/* Dimensions [from, to) of `shape`, whose elements `symbol` counts. */
static void collapse_run(Walk *walk, const Symbol *symbol, const Shape *shape, int from, int to,
                         Symbol *out) {
  int64_t low = shape_elements_between(shape, to, shape->rank), weight = 1;
  int64_t high = shape_elements_between(shape, from, shape->rank);
  if (high <= low) return;
  int first = -1, last = -1;
  for (int k = symbol->count; k >= 0; k--) {
    if (weight == low) last = k;
    if (weight == high) first = k;
    if (k > 0) weight *= symbol->item[k - 1].extent;
  }
  if (first >= 0 && last >= 0) {
    for (int k = first; k < last; k++)
      symbol_push(out, symbol->item[k].extent, symbol->item[k].dim, symbol->item[k].mask);
    return;
  }
  if (last < 0) note_cut(walk, symbol, low);
  if (first < 0) note_cut(walk, symbol, high);
  uint32_t mask = 0; /* cut through a digit: keep every border that is involved */
  for (int k = 0; k < symbol->count; k++) {
    Symbol alone = {.count = 1, .item = {symbol->item[k]}};
    collapse_use(walk, &alone);
    mask |= collapse_mask_of(&symbol->item[k]);
  }
  symbol_push(out, high / low, -1, mask);
}

/* Dimension d as a number that is computed with. */
static void collapse_computed(Walk *walk, const Symbol *symbol, const Shape *shape, int d,
                              int64_t extent, Symbol *out) {
  Symbol part = {0};
  collapse_run(walk, symbol, shape, d, d + 1, &part);
  collapse_use(walk, &part);
  uint32_t mask = 0;
  for (int k = 0; k < part.count; k++) mask |= collapse_mask_of(&part.item[k]);
  symbol_push(out, extent, -1, mask);
}

static void collapse_visit(Walk *walk, const Node *node, const Symbol *symbol);

static void visit_resized(Walk *walk, const Node *node, const Node *input, const Symbol *symbol,
                          bool is_dropped) {
  const Shape *out = &node->type.shape, *in = &input->type.shape;
  Symbol inner = {0};
  for (int d = 0; d < out->rank;) {
    int end = d;
    while (end < out->rank && in->dim[end] == out->dim[end]) end++;
    collapse_run(walk, symbol, out, d, end, &inner);
    if (end < out->rank && !is_dropped)
      collapse_computed(walk, symbol, out, end, in->dim[end], &inner);
    d = end + 1;
  }
  collapse_visit(walk, input, &inner);
}

static void visit_transpose(Walk *walk, const Node *node, const Symbol *symbol) {
  const Shape *shape = &node->type.shape;
  const int64_t *perm = node_attr(node, ATTR_PERM)->ints;
  int source[MAX_RANK];
  for (int i = 0; i < shape->rank; i++) source[perm[i]] = i;
  Symbol inner = {0};
  for (int j = 0; j < shape->rank; j++)
    collapse_run(walk, symbol, shape, source[j], source[j] + 1, &inner);
  collapse_visit(walk, node->input[0], &inner);
}

static void visit_concat(Walk *walk, const Node *node, const Symbol *symbol) {
  const Shape *out = &node->type.shape;
  int axis = (int)node_int(node, ATTR_AXIS, 0);
  for (int i = 0; i < node->input_count; i++) {
    Symbol inner = {0};
    collapse_run(walk, symbol, out, 0, axis, &inner);
    collapse_computed(walk, symbol, out, axis, node->input[i]->type.shape.dim[axis], &inner);
    collapse_run(walk, symbol, out, axis + 1, out->rank, &inner);
    collapse_visit(walk, node->input[i], &inner);
  }
}

static void visit_gather(Walk *walk, const Node *node, const Symbol *symbol) {
  const Shape *out = &node->type.shape;
  const Node *table = node->input[0], *row = node->input[1];
  Symbol at = {0}, inner = {0};
  collapse_run(walk, symbol, out, 0, row->type.shape.rank, &at);
  uint32_t mask = 0;
  for (int k = 0; k < at.count; k++) mask |= collapse_mask_of(&at.item[k]);
  collapse_visit(walk, row, &at);
  symbol_push(&inner, table->type.shape.dim[0], -1, mask);
  collapse_run(walk, symbol, out, row->type.shape.rank, out->rank, &inner);
  collapse_visit(walk, table, &inner);
}

static void visit_window(Walk *walk, const Node *node, const Symbol *symbol) {
  const Shape *out = &node->type.shape;
  int height = node_str(node, ATTR_LAYOUT)[1] == 'h' ? 1 : 2;
  for (int i = 0; i < node->input_count; i++) {
    const Shape *in = &node->input[i]->type.shape;
    Symbol inner = {0};
    collapse_run(walk, symbol, out, 0, height, &inner);
    collapse_computed(walk, symbol, out, height, in->dim[height], &inner);
    collapse_computed(walk, symbol, out, height + 1, in->dim[height + 1], &inner);
    collapse_run(walk, symbol, out, height + 2, out->rank, &inner);
    collapse_visit(walk, node->input[i], &inner);
  }
}

/* An operand or result whose rows have a pitch: the row, and the place in it. */
static void visit_rows(Walk *walk, const Node *node, const Symbol *symbol) {
  const Shape *shape = &node->type.shape;
  Symbol row = {0}, column = {0};
  collapse_run(walk, symbol, shape, 0, shape->rank - 1, &row);
  collapse_run(walk, symbol, shape, shape->rank - 1, shape->rank, &column);
  collapse_use(walk, &row);
  collapse_use(walk, &column);
}

static bool is_seen(Walk *walk, const Node *node, const Symbol *symbol) {
  for (Visit *v = walk->seen[node->id]; v; v = v->next)
    if (v->symbol.count == symbol->count &&
        !memcmp(v->symbol.item, symbol->item, sizeof(Item) * (size_t)symbol->count))
      return true;
  Visit *v = ARENA_NEW(walk->scratch, Visit);
  v->symbol = *symbol;
  v->next = walk->seen[node->id];
  walk->seen[node->id] = v;
  return false;
}

static void visit_inputs(Walk *walk, const Node *node, const Symbol *symbol) {
  for (int i = 0; i < node->input_count; i++) collapse_visit(walk, node->input[i], symbol);
}

static void collapse_visit(Walk *walk, const Node *node, const Symbol *symbol) {
  if (!shape_elements(&node->type.shape) || is_seen(walk, node, symbol)) return;
  OpClass op_class = op_info[node->op].op_class;
  if (op_class == CLASS_REDUCE) return; /* has been computed: a value of its row */
  if (op_class == CLASS_POINTWISE || node->op == OP_RESHAPE || node->op == OP_STOP_GRADIENT) {
    visit_inputs(walk, node, symbol);
    return;
  }
  if (op_class == CLASS_WINDOW) {
    visit_window(walk, node, symbol);
    return;
  }
  switch (node->op) {
  case OP_CONST:
    return;
  case OP_IOTA: {
    Symbol ignored = {0};
    int axis = (int)node_int(node, ATTR_AXIS, 0);
    collapse_computed(walk, symbol, &node->type.shape, axis, node->type.shape.dim[axis], &ignored);
    return;
  }
  case OP_TRANSPOSE:
    visit_transpose(walk, node, symbol);
    return;
  case OP_BROADCAST:
    visit_resized(walk, node, node->input[0], symbol, true);
    return;
  case OP_SLICE:
  case OP_PAD:
    visit_resized(walk, node, node->input[0], symbol, false);
    return;
  case OP_CONCAT:
    visit_concat(walk, node, symbol);
    return;
  case OP_GATHER:
    visit_gather(walk, node, symbol);
    return;
  case OP_RANDOM:
    collapse_use(walk, symbol);
    if (node->input_count > 2 && node->input[2]->type.shape.rank)
      collapse_visit(walk, node->input[2], symbol);
    return;
  case OP_ARG:
    if (walk->fused->input[node_int(node, ATTR_INDEX, 0)]->type.pitch) {
      visit_rows(walk, node, symbol);
      return;
    } /* fall through */
  default:
    collapse_use(walk, symbol);
    return; /* arg, a contraction's result: an element number */
  }
}

uint32_t collapse_axes(const Node *node) {
  const Attr *axes = node_attr(node, ATTR_AXES);
  uint32_t mask = 0;
  for (int i = 0; axes && i < axes->count; i++) mask |= 1u << axes->ints[i];
  return mask;
}

static void collapse_visit_root(Walk *walk, int root, const Symbol *symbol) {
  const Node *node = walk->fused->body->roots.at[root].node;
  collapse_visit(walk, node, symbol);
  if (walk->result && walk->result[root].pitch) visit_rows(walk, node, symbol);
}

static void walk_body(Walk *walk, const Node *fused) {
  const Graph *body = fused->body;
  Symbol all = {0};
  for (int d = 0; d < walk->domain.rank; d++) symbol_push(&all, walk->domain.dim[d], d, 0);
  walk->seen = ARENA_ARRAY(walk->scratch, Visit *, body->nodes.count);
  for (int i = 0; i < body->roots.count; i++) {
    if (kernel_is_whole(fused, body->roots.at[i].node)) collapse_visit_root(walk, i, &all);
  }
  for (int i = 0; i < body->nodes.count; i++)
    if (op_info[body->nodes.at[i]->op].op_class == CLASS_REDUCE) {
      const Node *reduce = body->nodes.at[i];
      collapse_visit(walk, reduce->input[0], &all);
      if (op_is_arg(reduce->op)) {
        Symbol ignored = {0};
        int axis = (int)node_attr(reduce, ATTR_AXES)->ints[0];
        const Shape *input = &reduce->input[0]->type.shape;
        collapse_computed(walk, &all, input, axis, input->dim[axis], &ignored);
      }
    }
}

/* The domain's dimensions as `shape` has them, perhaps divided; `walk` keeps where they could be
 * divided further. */
static Domain domain_of(Arena *scratch, const Node *node, const Type *result, const Shape *shape,
                        Walk *walk) {
  *walk = (Walk){.scratch = scratch, .fused = node, .result = result, .domain = *shape};
  uint32_t axes = collapse_axes(node);
  for (int d = shape->rank - 1, next = -1; d >= 0; d--) {
    walk->next_dim[d] = next;
    if (shape->dim[d] == 1) continue;
    walk->border[d] = next >= 0 && (axes >> d & 1) != (axes >> next & 1);
    next = d;
  }
  /* Values of the reduced shape are pulled per row, at the kept digits: fine with any borders that
   * the kept dimensions have, so what they need is noted too. */
  walk_body(walk, node);
  if (axes) {
    Symbol kept = {0};
    for (int d = 0; d < shape->rank; d++)
      if (!(axes >> d & 1)) symbol_push(&kept, shape->dim[d], d, 0);
    for (int i = 0; i < node->body->roots.count; i++) {
      if (!kernel_is_whole(node, node->body->roots.at[i].node)) collapse_visit_root(walk, i, &kept);
    }
  }
  Domain domain = {0};
  for (int d = 0; d < shape->rank; d++) {
    if (shape->dim[d] == 1) continue;
    int64_t *extent = &domain.extent[domain.count];
    *extent = (*extent ? *extent : 1) * shape->dim[d];
    domain.is_reduced[domain.count] = axes >> d & 1;
    if (walk->border[d] || walk->next_dim[d] < 0) domain.count++;
  }
  return domain;
}

Domain collapse_domain(Arena *scratch, const Node *node, const Type *result) {
  Shape shape = kernel_domain(node);
  Walk walk;
  return domain_of(scratch, node, result, &shape, &walk);
}

/* Divides one dimension where an access does; false: there is none that is worth it. */
static bool divide(Shape *shape, const Walk *walk) {
  enum { SHORTEST = 16 }; /* neighbours in the innermost loop */
  for (int d = 0; d < shape->rank && shape->rank < MAX_RANK; d++) {
    int64_t part = walk->cut[d];
    if (!part || (walk->next_dim[d] < 0 && part < SHORTEST)) continue;
    memmove(shape->dim + d + 1, shape->dim + d, sizeof *shape->dim * (size_t)(shape->rank - d));
    shape->rank++;
    shape->dim[d] /= part;
    shape->dim[d + 1] = part;
    return true;
  }
  return false;
}

Domain collapse_divided(Arena *scratch, const Node *node) {
  Shape shape = kernel_domain(node);
  Walk walk;
  Domain domain = domain_of(scratch, node, NULL, &shape, &walk);
  while (divide(&shape, &walk)) domain = domain_of(scratch, node, NULL, &shape, &walk);
  return domain;
}
