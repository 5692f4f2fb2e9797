/* simplify_sum: what is the same for all elements of a sum is taken out of it. The backward pass of
 * a normalisation sums gradients times its input, times scales that are constant along the summed
 * axes; with the scales outside, these sums are few and do not wait for one another, so that one
 * kernel makes them all in one reading.
 *
 * Sums are reassociated: rounding differs as between two orders of adding. */
#include "passes/simplify.h"
#include <math.h>

enum { FACTOR_LIMIT = 8, DEPTH_LIMIT = 8 };

/* x = scale * factor[0] * ... * row[0] * ...; a row is a broadcast of what has no extent along the
 * axes of the sum. */
typedef struct {
  const Node *sum;
  Node *factor[FACTOR_LIMIT], *row[FACTOR_LIMIT];
  int factor_count, row_count;
  double scale;
} Product;

static bool is_row(const Node *sum, const Node *x) {
  const Attr *axes = node_attr(sum, ATTR_AXES);
  if (x->op != OP_BROADCAST) return false;
  for (int i = 0; i < axes->count; i++)
    if (x->input[0]->type.shape.dim[axes->ints[i]] != 1) return false;
  return true;
}

/* False if there are too many factors. */
static bool split_product(Product *product, Node *x, int depth) {
  double c;
  if (match_const(x, &c)) {
    product->scale *= c;
    return true;
  }
  if (x->op == OP_NEG && depth < DEPTH_LIMIT) {
    product->scale = -product->scale;
    return split_product(product, x->input[0], depth + 1);
  }
  if (x->op == OP_MUL && depth < DEPTH_LIMIT)
    return split_product(product, x->input[0], depth + 1) &&
           split_product(product, x->input[1], depth + 1);
  if (is_row(product->sum, x)) {
    if (product->row_count == FACTOR_LIMIT) return false;
    product->row[product->row_count++] = x->input[0];
    return true;
  }
  if (product->factor_count == FACTOR_LIMIT) return false;
  product->factor[product->factor_count++] = x;
  return true;
}

/* By id, so that equal products look equal to cse. */
static void sort_factors(Product *product) {
  for (int i = 1; i < product->factor_count; i++)
    for (int k = i; k > 0 && product->factor[k]->id < product->factor[k - 1]->id; k--) {
      Node *swap = product->factor[k];
      product->factor[k] = product->factor[k - 1];
      product->factor[k - 1] = swap;
    }
}

static Node *sum_like(Graph *graph, const Node *node, Node *x) {
  return graph_node(graph, OP_SUM, &x, 1, node->attr, node->attr_count, NULL);
}
static Node *sum_of_product(Graph *graph, Node *node) {
  Product product = {.sum = node, .scale = 1};
  if (!dtype_is_float(node->type.dtype) || !split_product(&product, node->input[0], 0)) return NULL;
  double size = fabs(product.scale);
  bool is_plain = product.row_count == 0 && product.scale == 1;
  if (is_plain || product.factor_count == 0 || !(size > 1e-30 && size < 1e30)) return NULL;
  sort_factors(&product);
  Node *x = product.factor[0];
  for (int i = 1; i < product.factor_count; i++)
    x = make_binary(graph, OP_MUL, x, product.factor[i]);
  Node *result = sum_like(graph, node, x);
  for (int i = 0; i < product.row_count; i++)
    result =
        make_binary(graph, OP_MUL, result, make_broadcast(graph, product.row[i], node->type.shape));
  if (product.scale == 1) return result;
  return make_binary(graph, OP_MUL, result, make_like(graph, result, product.scale));
}

/* Does every term of x have a factor to take out? */
static bool has_rows(const Node *sum, Node *x, int depth) {
  if (depth == DEPTH_LIMIT) return false;
  if (x->op == OP_ADD || x->op == OP_SUB)
    return has_rows(sum, x->input[0], depth + 1) && has_rows(sum, x->input[1], depth + 1);
  if (x->op == OP_NEG) return has_rows(sum, x->input[0], depth + 1);
  Product product = {.sum = sum, .scale = 1};
  return split_product(&product, x, 0) && product.row_count > 0;
}

static Node *sum_of_terms(Graph *graph, Node *node) {
  Node *x = node->input[0];
  if ((x->op != OP_ADD && x->op != OP_SUB) || !dtype_is_float(node->type.dtype)) return NULL;
  if (!has_rows(node, x, 0)) return NULL;
  return make_binary(graph, x->op, sum_like(graph, node, x->input[0]),
                     sum_like(graph, node, x->input[1]));
}

/* The deviations from a mean sum to 0. Only in a gradient, where such a sum stands beside terms
 * that hold the deviations themselves, and with them any NaN. */
static Node *sum_of_deviations(Graph *graph, Node *node) {
  const Node *x = node->input[0];
  if (!node->origin.is_backward || x->op != OP_SUB || x->input[1]->op != OP_BROADCAST) return NULL;
  const Node *mean = x->input[1]->input[0];
  if ((mean->op != OP_MUL && mean->op != OP_DIV) || mean->input[0]->op != OP_SUM) return NULL;
  const Node *total = mean->input[0];
  const Attr *axes = node_attr(node, ATTR_AXES), *other = node_attr(total, ATTR_AXES);
  double c, count = 1;
  if (total->input[0] != x->input[0] || !attr_equal(axes, other) ||
      !match_const(mean->input[1], &c))
    return NULL;
  for (int i = 0; i < axes->count; i++) count *= (double)x->type.shape.dim[axes->ints[i]];
  if (fabs((mean->op == OP_MUL ? c * count : c / count) - 1) > 1e-12) return NULL;
  return make_const(graph, node->type.dtype, node->type.shape, 0);
}

const SimplifyRule simplify_sum_rules[] = {
    {OP_SUM, sum_of_deviations},
    {OP_SUM, sum_of_product},
    {OP_SUM, sum_of_terms},
    {0, NULL},
};
