/* fuse_prepare: brings a graph into the form that grouping expects.
 *
 * Every reduction becomes a row reduction (its axes are the last dimensions) or a column reduction
 * (the last dimension of more than one element is kept), with axes of more than one element. What
 * is neither, such as the sums of a batch norm over N, H and W of NCHW, is done in two stages: the
 * trailing axes first. A reduction of many elements to few is split in two, so that there is work
 * for every thread, by a view of its input as [.., parts, part, ..]. A relu in front of a max
 * pooling has its mask behind the pooling in backward. Operands that backward's products read as
 * f32 are widened for them. */
#include "passes/fuse_plan.h"
#include "ir/match.h"
#include <string.h>

enum {
  ROW_SPLIT_LENGTH = 16384, /* longer rows than this are split ... */
  ROW_SPLIT_ROWS = 32,      /* ... if there are fewer rows than this */
  COLUMN_SPLIT_LENGTH = 4096,
  COLUMN_SPLIT_WIDTH = 16384,
  PART_LEAST = 64,
  PART_MOST = 2048,
  MANY_PARTS = 1024 /* keep the blocks of any GPU busy, however long each is */
};

Shape fuse_squeeze(const Shape *shape) {
  Shape out = {0};
  for (int i = 0; i < shape->rank; i++)
    if (shape->dim[i] != 1) out.dim[out.rank++] = shape->dim[i];
  return out;
}

Shape fuse_reduce_domain(const Node *reduce, int64_t axes[MAX_RANK], int *axis_count) {
  const Shape *shape = &reduce->input[0]->type.shape;
  const Attr *attr = node_attr(reduce, ATTR_AXES);
  Shape out = {0};
  *axis_count = 0;
  for (int i = 0; i < shape->rank; i++) {
    if (shape->dim[i] == 1) continue;
    for (int k = 0; k < attr->count; k++)
      if (attr->ints[k] == i) axes[(*axis_count)++] = out.rank;
    out.dim[out.rank++] = shape->dim[i];
  }
  return out;
}

static bool has_axis(const int64_t *axes, int count, int axis) {
  for (int i = 0; i < count; i++)
    if (axes[i] == axis) return true;
  return false;
}

/* How many of the last dimensions are all reduced. */
static int trailing_axes(const Shape *domain, const int64_t *axes, int count) {
  int trailing = 0;
  while (trailing < domain->rank && has_axis(axes, count, domain->rank - 1 - trailing)) trailing++;
  return trailing;
}

bool fuse_is_row(const Node *reduce) {
  int64_t axes[MAX_RANK];
  int count;
  Shape domain = fuse_reduce_domain(reduce, axes, &count);
  return trailing_axes(&domain, axes, count) > 0;
}


/* The longest part between PART_LEAST and PART_MOST that divides `length`; 0 if there is none. */
static int64_t part_of(int64_t length) {
  for (int64_t part = PART_MOST; part >= PART_LEAST; part--)
    if (length % part == 0) return part;
  return 0;
}

/* Splits a reduction of the axes from..to of x, which is without dimensions of 1: part by part,
 * then the parts' results. A part is made of whole dimensions if that gives a fair size, or any on a GPU if
 * there are many of them (then x keeps its shape, and what else runs over it can share the kernel as it is);
 * else x is viewed anew. */
static Node *reduce_split(Graph *graph, const Node *old, Node *x, int from, int to, bool for_gpu) {
  int64_t outer[MAX_RANK], inner[MAX_RANK], part = 1;
  Shape shape = x->type.shape;
  int cut = to;
  while (cut > from + 1 && part < PART_LEAST) part *= shape.dim[--cut];
  bool are_many = for_gpu && shape_elements_between(&shape, from, cut) >= MANY_PARTS;
  if (part < PART_LEAST || (part > PART_MOST && !are_many)) {
    int64_t length = 1;
    for (int i = from; i < to; i++) length *= shape.dim[i];
    if (!(part = part_of(length))) return NULL;
    Shape split = {.rank = shape.rank - (to - from) + 2};
    memcpy(split.dim, shape.dim, sizeof *split.dim * (size_t)from);
    split.dim[from] = length / part;
    split.dim[from + 1] = part;
    for (int i = to; i < shape.rank; i++) split.dim[from + 2 + i - to] = shape.dim[i];
    x = make_reshape(graph, x, split);
    cut = from + 1;
    to = from + 2;
  }
  for (int i = from; i < cut; i++) outer[i - from] = i;
  for (int i = cut; i < to; i++) inner[i - cut] = i;
  Node *parts = make_reduce(graph, old->op, x, inner, to - cut);
  return make_reduce(graph, old->op, parts, outer, cut - from);
}


/* Is there too little to do at a time, so that the reduction should be split? The columns of a GPU
 * are not: its kernels cut them themselves. */
static bool should_split(const Node *old, const Shape *domain, const int64_t *axes, int count,
                         bool is_row, bool for_gpu) {
  if (for_gpu && !is_row) return false;
  int from = (int)axes[0], to = from + count;
  if (op_is_arg(old->op) || axes[count - 1] != to - 1 || domain->rank + 1 > MAX_RANK) return false;
  int64_t length = shape_elements_between(domain, from, to),
          others = shape_elements(domain) / (length ? length : 1);
  return is_row ? length > ROW_SPLIT_LENGTH && others < ROW_SPLIT_ROWS
                : from == 0 && length > COLUMN_SPLIT_LENGTH && others < COLUMN_SPLIT_WIDTH;
}

/* ── the largest size of a product's result ─────────────────────────────────────────────────── */
enum {
  SUMMED_TILE = 64,   /* rows and columns of a tile; */
  ENOUGH_TILES = 132, /* these keep a GPU busy */
  FEW_STEPS = 512,
  SEARCHED = 128 /* nodes between a product and what its epilogue makes of it */
};

/* It adds f32 and takes four columns at a time, and it has no splits of k: a small product of many steps has too few
 * blocks without them. Nor has it other sums than these: not those by rounded or sparse weights. */
bool fuse_dot_may_sum(const Node *dot) {
  const DotForm form = dot_form(dot);
  int64_t down = (form.m + SUMMED_TILE - 1) / SUMMED_TILE;
  int64_t across = (form.n + SUMMED_TILE - 1) / SUMMED_TILE;
  return form.batch == 1 && dot->input[0]->type.dtype != DT_F64 && form.n % 4 == 0 &&
         !node_attr(dot, ATTR_ROUNDED) && !node_attr(dot, ATTR_SPARSE) &&
         (form.k <= FEW_STEPS || across * down >= ENOUGH_TILES);
}

bool fuse_is_largest_size(const Node *reduce) {
  const Node *x = reduce->input[0];
  while (x->op == OP_RESHAPE || fuse_is_widening(x)) x = x->input[0];
  return reduce->op == OP_RMAX && x->op == OP_ABS;
}

/* What x is made of, element by element. */
typedef struct {
  int64_t elements, columns;
  const Node *seen[SEARCHED];
  int count;
  bool has_product, has_reduction;
} Made;

/* Finds a product of as many columns, whose kernel may reduce them; and reductions, whose kernel the work belongs to. */
static void find_product(const Node *x, Made *made) {
  OpClass of = op_info[x->op].op_class;
  for (int i = 0; i < made->count; i++)
    if (made->seen[i] == x) return;
  made->has_reduction |= of == CLASS_REDUCE || made->count == SEARCHED;
  if (made->has_reduction) return;
  made->seen[made->count++] = x;
  if (x->op == OP_DOT && shape_elements(&x->type.shape) == made->elements)
    made->has_product |= dot_form(x).n == made->columns && fuse_dot_may_sum(x);
  if (x->op != OP_RESHAPE && x->op != OP_BROADCAST && of != CLASS_POINTWISE) return;
  for (int i = 0; i < x->input_count; i++)
    if (shape_elements(&x->input[i]->type.shape) > 1) find_product(x->input[i], made);
}

/* The largest size of all that a product's epilogue makes (of an operand of 8-bit floats its scale follows from that):
 * those of its columns first, which the product's kernel finds. */
static Node *largest_by_columns(Graph *graph, const Node *old, Node *x, const Shape *domain, int reduced,
                                const FusePreparation *p) {
  int64_t axes[MAX_RANK], last = domain->rank - 1, columns = last > 0 ? domain->dim[last] : 0;
  if (!p->has_column_sums || !fuse_is_largest_size(old) || reduced != domain->rank || last < 1) return NULL;
  Made made = {.elements = shape_elements(domain), .columns = columns};
  find_product(x, &made);
  if (!made.has_product || made.has_reduction) return NULL;
  for (int i = 0; i < last; i++) axes[i] = i;
  Node *first = make_reduce(graph, OP_RMAX, make_reshape(graph, x, *domain), axes, (int)last);
  return make_reduce(graph, OP_RMAX, make_reshape(graph, first, shape_of(1, &columns)), (int64_t[]){0}, 1);
}

static Node *prepare_reduce(Graph *graph, const Node *old, Node *x, const FusePreparation *p) {
  int64_t axes[MAX_RANK];
  int count;
  const Shape *want = &old->type.shape;
  Shape domain = fuse_reduce_domain(old, axes, &count);
  if (count == 0) { /* nothing but dimensions of 1 */
    if (op_is_arg(old->op)) return make_const(graph, old->type.dtype, *want, 0);
    return make_reshape(graph, x, *want);
  }
  int trailing = trailing_axes(&domain, axes, count), rank = domain.rank, kept = rank - trailing;
  Node *result = largest_by_columns(graph, old, x, &domain, count, p);
  if (result) return make_reshape(graph, result, *want);
  if (trailing > 0 && trailing < count) {
    Node *first = make_reduce(graph, old->op, make_reshape(graph, x, domain),
                              axes + count - trailing, trailing);
    first = make_reshape(graph, first, shape_of(kept, domain.dim));
    result = make_reduce(graph, old->op, first, axes, count - trailing);
    Node *again = prepare_reduce(graph, result, first, p);
    if (again) result = again;
  } else if (should_split(old, &domain, axes, count, trailing > 0, p->for_gpu)) {
    result = reduce_split(graph, old, make_reshape(graph, x, domain), (int)axes[0],
                          (int)axes[0] + count, p->for_gpu);
  }
  return result ? make_reshape(graph, result, *want) : NULL;
}

/* The last two dimensions of x swapped. */
static Node *swapped(Graph *graph, Node *x) {
  int64_t perm[MAX_RANK];
  int rank = x->type.shape.rank;
  for (int i = 0; i < rank; i++) perm[i] = i;
  perm[rank - 2] = rank - 1;
  perm[rank - 1] = rank - 2;
  return make_transpose(graph, x, perm);
}

/* Processors have no kernel and no library call for products in f64: a multiplication and a sum do
 * them, slowly. Batch dimensions become one, so that there is room for one more. NULL: too
 * large. */
static Node *dot_as_sum(Graph *graph, const Node *old, Node **inputs) {
  DotForm f = dot_form(old);
  int64_t axis = 3;
  Shape all = shape_of(4, (int64_t[]){f.batch, f.m, f.n, f.k});
  if (!shape_is_legal(&all)) return NULL;
  Node *a = f.ta ? swapped(graph, inputs[0]) : inputs[0];
  Node *b = f.tb ? inputs[1] : swapped(graph, inputs[1]);
  a = make_reshape(graph, a, shape_of(4, (int64_t[]){f.batch, f.m, 1, f.k}));
  b = make_reshape(graph, b, shape_of(4, (int64_t[]){f.batch, 1, f.n, f.k}));
  Node *product = make_binary(graph, OP_MUL, a, b);
  Node *sum = make_reduce(graph, OP_SUM, product, &axis, 1);
  Node *prepared = prepare_reduce(graph, sum, product, &(FusePreparation){0});
  return make_reshape(graph, prepared ? prepared : sum, old->type.shape);
}

static Node *prepare_dot(Graph *graph, const Node *old, Node **inputs) {
  bool turned[2] = {node_int(old, ATTR_TRANS_A, 0), node_int(old, ATTR_TRANS_B, 0)};
  bool changed = false;
  Node *operand[2];
  for (int i = 0; i < 2; i++) {
    operand[i] = inputs[i];
    if (!match_swap_of_last_two(operand[i])) continue;
    operand[i] = operand[i]->input[0];
    turned[i] = !turned[i];
    changed = true;
  }
  if (!changed) return NULL;
  return make_dot_like(graph, old, operand[0], operand[1], turned[0], turned[1]);
}

/* ── relu before pooling ────────────────────────────────────────────────────────────────────── */
static Node *find_pool(const Graph *graph, const Node *index) {
  for (int i = 0; i < graph->nodes.count; i++) {
    Node *node = graph->nodes.at[i];
    if (node->op != OP_POOL_MAX || node->input[0] != index->input[0]) continue;
    bool same = true;
    static const AttrId window[] = {ATTR_KERNEL, ATTR_STRIDE, ATTR_PADDING};
    for (int k = 0; k < 3; k++)
      same &= attr_equal(node_attr(node, window[k]), node_attr(index, window[k]));
    if (same) return node;
  }
  return NULL;
}

/* y = relu(x), p = pool_max(y). The gradient of relu, g where y > 0, with g = pool_max_grad(dp,
 * index): g is dp only where y is the p of its window, so that the mask may as well be taken from
 * p, before the gradient is spread. Then nothing needs y after the pooling: the largest tensor of a
 * convolutional network need not be kept for backward. Exact, NaN included. */
static Node *prepare_select(Graph *graph, Node **inputs) {
  Node *mask = inputs[0];
  int spread = match_value(inputs[1], 0) ? 2 : match_value(inputs[2], 0) ? 1 : 0;
  if (!spread || inputs[spread]->op != OP_POOL_MAX_GRAD || mask->input_count != 2 ||
      op_info[mask->op].op_class != CLASS_POINTWISE || !match_value(mask->input[1], 0))
    return NULL;
  Node *grad = inputs[spread], *dy = grad->input[0], *index = grad->input[1];
  if (index->op != OP_POOL_INDEX || index->input[0] != mask->input[0]) return NULL;
  Node *pooled = find_pool(graph, index);
  if (!pooled) return NULL;
  Node *zero = make_like(graph, dy, 0);
  Node *sides[] = {pooled, make_like(graph, pooled, 0)};
  Node *chosen[] = {graph_node(graph, mask->op, sides, 2, NULL, 0, NULL), zero, zero};
  chosen[spread] = dy;
  Node *masked[] = {graph_node(graph, OP_SELECT, chosen, 3, NULL, 0, NULL), index};
  return graph_copy_node(graph, grad, masked);
}

/* ── widened operands ───────────────────────────────────────────────────────────────────────── */
/* A product of backward that needs a forward value in f32 (passes/widen.c) gets a cast of its own.
 * So the narrow value stays live until backward, and the wide one only until forward's product has
 * read it. */
static Node *fuse_prepare_for_backward(Graph *graph, const Node *node, Node *input) {
  Node *copy = graph_copy_node(graph, node, &input);
  copy->origin.is_backward = true;
  return copy;
}

static Node *widen_again(Graph *graph, Node *input) {
  if (input->origin.is_backward) return input;
  if (input->op == OP_RESHAPE) {
    Node *viewed = widen_again(graph, input->input[0]);
    return viewed == input->input[0] ? input : fuse_prepare_for_backward(graph, input, viewed);
  }
  return fuse_is_widening(input) ? fuse_prepare_for_backward(graph, input, input->input[0]) : input;
}

static Node *prepare_product(Graph *graph, const Node *old, Node **inputs, const FusePreparation *p) {
  if (!p->for_gpu && old->op == OP_DOT && old->type.dtype == DT_F64) {
    Node *sum = dot_as_sum(graph, old, inputs);
    if (sum) return sum;
  }
  bool is_changed = false;
  for (int i = 0; old->origin.is_backward && i < old->input_count; i++) {
    Node *input = widen_again(graph, inputs[i]);
    is_changed |= input != inputs[i];
    inputs[i] = input;
  }
  bool is_left = p->keeps_orders && dtype_is_float8(inputs[0]->type.dtype);
  if (old->op == OP_DOT && !is_left) return prepare_dot(graph, old, inputs);
  return is_changed ? graph_copy_node(graph, old, inputs) : NULL;
}

/* ── concat ─────────────────────────────────────────────────────────────────────────────────── */
/* Many operands become several concats, and a concat of those: a kernel of hundreds of parts takes
 * LLVM time by their square, and a GPU's launch has no room for its operands. */
static Node *prepare_concat(Graph *graph, const Node *old, Node **inputs, int count) {
  Node *part[FUSE_CONCAT_PARTS];
  int most = FUSE_CONCAT_PARTS, each = most; /* of the operands in a part */
  if (count <= most) return NULL;
  while ((count + each - 1) / each > most) each *= most;
  int parts = 0;
  for (int at = 0; at < count; at += each) {
    int here = count - at < each ? count - at : each;
    Node *whole = here == 1 ? inputs[at] : prepare_concat(graph, old, inputs + at, here);
    if (!whole)
      whole = graph_node(graph, OP_CONCAT, inputs + at, here, old->attr, old->attr_count, NULL);
    part[parts++] = whole;
  }
  return graph_node(graph, OP_CONCAT, part, parts, old->attr, old->attr_count, NULL);
}

static Node *prepare_node(Graph *graph, const Node *old, Node **inputs, void *context) {
  const FusePreparation *p = context;
  if (old->op == OP_STOP_GRADIENT) return inputs[0];
  if (old->op == OP_SELECT) return prepare_select(graph, inputs);
  if (old->op == OP_CONCAT) return prepare_concat(graph, old, inputs, old->input_count);
  if (op_info[old->op].op_class == CLASS_CONTRACT)
    return prepare_product(graph, old, inputs, p);
  if (op_info[old->op].op_class == CLASS_REDUCE)
    return prepare_reduce(graph, old, inputs[0], p);
  return NULL;
}

Graph *fuse_prepare(const Graph *graph, const FusePreparation *preparation) {
  FusePreparation own = *preparation;
  return graph_rewrite(graph, prepare_node, &own);
}
