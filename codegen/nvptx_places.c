/* nvptx_places: where windows overlap, neighbouring places of an image read the same ones. The gradient of a pooling whose windows
 * are 3 x 3 with a stride of 2 reads four windows for each place: of a tile of 2 x 2 places, which begins at a multiple of the
 * stride, all read the same four. There each place's part of a window is known when the kernel is compiled, too: of the 16 pairs
 * of a place and a window, 9 remain, without a division. What is pooled forward is read by neighbours of the result. */
#include "codegen/nvptx_places.h"

enum { ENOUGH_THREADS = 1024 * MULTIPROCESSORS }; /* two blocks for a place: fewer threads would leave the GPU idle */

/* The digit of the domain that is this dimension of the shape, with others behind it; -1: there is none. */
static int digit_of(const Domain *domain, const Shape *shape, int d) {
  int64_t behind = shape_elements_between(shape, d + 1, shape->rank), weight = 1;
  for (int i = domain->count - 1; i >= 0; i--) {
    if (weight == behind && domain->extent[i] == shape->dim[d] && weight > 1) return i;
    weight *= domain->extent[i];
  }
  return -1;
}

/* Tiles for this window: of the stride, or of two places where all windows begin side by side. */
static bool tile_window(const Node *node, const Domain *domain, bool is_reduced, int digit[2], int size[2]) {
  bool is_backward = node->op == OP_POOL_MAX_GRAD || node->op == OP_POOL_AVG_GRAD;
  if (op_info[node->op].op_class != CLASS_WINDOW || !emit_window_is_flat(node) ||
      shape_elements(&node->type.shape) != domain_elements(domain, -1))
    return false;
  const int64_t *kernel = node_attr(node, ATTR_KERNEL)->ints;
  const int64_t *stride = node_attr(node, ATTR_STRIDE)->ints;
  for (int i = 0; i < 2; i++) {
    size[i] = is_backward && stride[i] > 1 ? (int)stride[i] : is_backward || kernel[i] > stride[i] ? 2 : 1;
    digit[i] = digit_of(domain, &node->type.shape, 1 + i);
    if (digit[i] < 0 || domain->is_reduced[digit[i]] != is_reduced) return false;
    if (domain->extent[digit[i]] % size[i] || domain->extent[digit[i]] == size[i]) return false;
  }
  return size[0] * size[1] > 1 && size[0] * size[1] <= MOST_PLACES;
}

int nvptx_tile_places(const Job *job, Domain *domain, bool is_reduced, int width) {
  const Graph *body = job->node->body;
  int digit[2], size[2];
  if (module_leaves_out(job->module, "window_tiles")) return 1;
  for (int i = 0; i < body->nodes.count; i++) {
    if (!tile_window(body->nodes.at[i], domain, is_reduced, digit, size)) continue;
    int places = size[0] * size[1];
    bool is_large = domain_elements(domain, -1) / width / places >= ENOUGH_THREADS;
    if (!is_large && !job->module->only_tile) return 1; /* tests have few elements */
    for (int k = 0; k < 2; k++) {
      if (size[k] == 1) continue;
      domain->extent[digit[k]] /= size[k];
      domain->tile[digit[k]] = size[k];
    }
    return places;
  }
  return 1;
}

void nvptx_set_place(Domain *domain, int place) {
  for (int i = domain->count - 1; i >= 0; i--) {
    if (!domain->tile[i]) continue;
    domain->in_tile[i] = place % domain->tile[i];
    place /= domain->tile[i];
  }
}
