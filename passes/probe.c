/* probe: see probe.h. */
#include "passes/probe.h"
#include "ir/scalar.h"
#include "passes/narrow.h"
#include <math.h>
#include <string.h>

static uint64_t probe_random(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
static double probe_uniform(uint64_t *state) {
  return (double)(probe_random(state) >> 11) * 0x1p-53;
}

static uint64_t hash_name(const char *name, uint64_t seed) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
  hash ^= seed * 0x9e3779b97f4a7c15u;
  probe_random(&hash);
  return hash;
}

/* How large an integer input may be: what it indexes tells, else it is a digit (a label). */
static int64_t integer_limit(const Graph *graph, const Node *leaf) {
  int64_t limit = leaf->type.dtype == DT_BOOL ? 2 : leaf->type.dtype == DT_U8 ? 256 : 10;
  bool *follows = ARENA_ARRAY(graph->arena, bool, graph->nodes.count);
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    follows[i] = node == leaf || ((node->op == OP_RESHAPE || node->op == OP_CAST ||
                                   node->op == OP_BROADCAST || node->op == OP_SLICE) &&
                                  follows[node->input[0]->id]);
    int64_t range = limit;
    if (node->op == OP_GATHER && follows[node->input[1]->id])
      range = node->input[0]->type.shape.dim[0];
    else if (node->op == OP_SCATTER_ADD && follows[node->input[1]->id])
      range = node->type.shape.dim[0];
    if (range < limit && range > 0) limit = range;
  }
  return limit;
}

static const Tensor *setting_value(Probe *probe, const Node *leaf, const char *name) {
  Tensor *tensor = tensor_new(probe->arena, leaf->type);
  if (!probe->settings) probe->settings = settings_new(probe->arena);
  double value = setting_find(name) < 0 ? 0.5 : setting_number(probe->settings, name);
  if (strcmp(name, "train.total_steps") == 0 && value == 0) value = 100;
  if (strcmp(name, "train.steps_per_epoch") == 0 && value == 0) value = 10;
  if (tensor->f)
    tensor->f[0] = value;
  else
    tensor->i[0] = (int64_t)value;
  return tensor;
}

/* What the step before assigned to a state, or to that of which a param is a part; NULL:
 * nothing. */
static const Tensor *assigned(const Probe *probe, const Node *leaf) {
  if (!probe->values || node_is_frozen(leaf)) return NULL;
  const Node *state = leaf->op == OP_STATE ? leaf : graph_find_role(probe->graph, leaf->role);
  if (!state) return NULL;
  const Node *node = graph_find_root(probe->graph, ROOT_ASSIGN, node_str(state, ATTR_NAME));
  return node ? probe->values[node->id] : NULL;
}

/* ── orders in memory: values are made up, and shown, in row-major order ────────────────────── */
/* Where in the flat places a value lies, or one for each of their elements begins; -1: nowhere. */
static int64_t flat_place(const Graph *graph, const Node *node) {
  const Node *grads = graph_find_gradients(graph);
  if (node->op == OP_ASSIGN) {
    const Node *state = graph_find_state(graph, node_str(node, ATTR_TARGET));
    if (state) node = state;
  }
  if (node->op == OP_PARAM || node_attr(node, ATTR_OFFSET)) return node_int(node, ATTR_OFFSET, -1);
  if (!grads || node->type.shape.rank != 1) return -1;
  bool is_front = role_has(node->role, ROLE_SLICED); /* Muon's second moment ends before the rest */
  return is_front || shape_equal(&node->type.shape, &grads->type.shape) ? 0 : -1;
}

static void probe_permute(const Storage *storage, const double *from, double *to, bool is_back) {
  for (int64_t i = 0; i < shape_elements(&storage->view); i++) {
    int64_t element = storage_element(storage, i);
    to[is_back ? element : i] = from[is_back ? i : element];
  }
}

/* The value of a node as params lie in the graph, given it in row-major order; is_back: given and
 * wanted the other way. The tensor itself if nothing moves. */
static const Tensor *reordered(const Graph *graph, const Node *node, const Tensor *tensor,
                               bool is_back) {
  Tensor *out = NULL;
  int64_t place = tensor->f ? flat_place(graph, node) : -1;
  int64_t room = shape_elements(&tensor->type.shape);
  for (int i = 0; place >= 0 && i < graph->nodes.count; i++) {
    const Node *param = graph->nodes.at[i];
    if (param->op != OP_PARAM || is_narrow_param(param)) continue;
    Storage storage = node_storage(param);
    int64_t at = node_int(param, ATTR_OFFSET, -1) - place, count = shape_elements(&storage.view);
    if (!storage.view.rank || at < 0 || at + count > room) continue;
    if (!out) {
      out = tensor_new(graph->arena, tensor->type);
      memcpy(out->f, tensor->f, sizeof(double) * (size_t)room);
    }
    probe_permute(&storage, tensor->f + at, out->f + at, is_back);
  }
  return out ? out : tensor;
}

const Tensor *probe_as_it_lies(const Graph *graph, const Node *node, const Tensor *tensor) {
  return reordered(graph, node, tensor, false);
}

static const Tensor *probe_slice(Arena *arena, const Tensor *flat, const Node *param) {
  Tensor *slice = tensor_new(arena, param->type);
  int64_t at = node_int(param, ATTR_OFFSET, 0), count = shape_elements(&param->type.shape);
  memcpy(slice->f, flat->f + at, sizeof(double) * (size_t)count);
  return slice;
}

/* The flat place holds each param of the graph at its offset, and zeros between them; that of the
 * narrow ones the same, rounded. */
static const Tensor *params_value(Probe *probe, const Node *leaf) {
  Tensor *flat = tensor_new(probe->arena, leaf->type);
  int64_t room = shape_elements(&leaf->type.shape);
  for (int i = 0; i < probe->graph->nodes.count; i++) {
    const Node *param = probe->graph->nodes.at[i];
    int64_t at = node_int(param, ATTR_OFFSET, -1), count = shape_elements(&param->type.shape);
    if (param->op != OP_PARAM || is_narrow_param(param) || at < 0 || at + count > room || !flat->f)
      continue;
    const Tensor *value = probe_leaf(param, probe);
    memcpy(flat->f + at, value->f, sizeof(double) * (size_t)count);
  }
  bool is_narrow = dtype_bytes(leaf->type.dtype) < 4; /* a probe computes wider than f32 */
  for (int64_t i = 0; flat->f && is_narrow && i < room; i++)
    flat->f[i] = dtype_round(leaf->type.dtype, flat->f[i]);
  return flat;
}

const Tensor *probe_leaf(const Node *leaf, void *context) {
  Probe *probe = context;
  const char *name = node_str(leaf, ATTR_NAME);
  if (!name) return NULL;
  if (leaf->op == OP_SETTING) return setting_value(probe, leaf, name);
  const Tensor *before = leaf->op == OP_INPUT ? NULL : assigned(probe, leaf);
  if (before && leaf->op == OP_PARAM) return probe_slice(probe->arena, before, leaf);
  if (before && leaf->op == OP_STATE) return before;
  if (leaf->op == OP_STATE && (leaf->role == ROLE_PARAMS || leaf->role == ROLE_NARROW))
    return params_value(probe, leaf);
  Tensor *tensor = tensor_new(probe->arena, leaf->type);
  if (probe->one_batch && role_has(leaf->role, ROLE_NUMBER)) return tensor;
  uint64_t random = hash_name(name, probe->seed);
  int64_t count = shape_elements(&leaf->type.shape);
  int64_t limit = tensor->f ? 0 : integer_limit(probe->graph, leaf);
  for (int64_t i = 0; i < count; i++)
    if (!tensor->f)
      tensor->i[i] = (int64_t)(probe_random(&random) % (uint64_t)limit);
    else if (leaf->op == OP_STATE)
      tensor->f[i] = probe_uniform(&random);
    else
      tensor->f[i] = 2 * probe_uniform(&random) - 1;
  for (int64_t i = 0; i < count && is_narrow_param(leaf); i++)
    tensor->f[i] = dtype_round(leaf->type.dtype, tensor->f[i]);
  return reordered(probe->graph, leaf, tensor, false);
}

Tensor **probe_run(Probe *probe, Diag *diag) {
  Tensor **values = ARENA_ARRAY(probe->arena, Tensor *, probe->graph->nodes.count);
  bool ok = graph_interpret(probe->graph, probe->arena, probe_leaf, probe, false, values, diag);
  return ok ? values : NULL;
}

/* ── printing ───────────────────────────────────────────────────────────────────────────────── */
static void print_number(const Tensor *tensor, int64_t i, FILE *out) {
  if (!tensor->f)
    fprintf(out, " %lld", (long long)tensor->i[i]);
  else /* adding 0 makes -0 a plain 0; what is tiny beside 1 is rounding of a 0 */
    fprintf(out, " %.6g", (fabs(tensor->f[i]) < 1e-13 ? 0 : tensor->f[i]) + 0.0);
}

static void probe_print_tensor(const Tensor *tensor, FILE *out) {
  enum { SHOWN = 12 };
  int64_t count = shape_elements(&tensor->type.shape);
  for (int64_t i = 0; i < count && i < SHOWN; i++) print_number(tensor, i, out);
  if (count <= SHOWN) return;
  double sum = 0, magnitude = 0;
  for (int64_t i = 0; i < count; i++) {
    double value = tensor->f ? tensor->f[i] : (double)tensor->i[i];
    sum += value;
    magnitude += fabs(value);
  }
  fprintf(out, " ... sum %.6g, of magnitudes %.6g", sum, magnitude);
}

void probe_print(const Graph *graph, Tensor *const *values, FILE *out) {
  char text[TYPE_TEXT];
  for (int i = 0; i < graph->roots.count; i++) {
    const Root *root = &graph->roots.at[i];
    const Tensor *value = reordered(graph, root->node, values[root->node->id], true);
    fprintf(out, "%s %s: %s =", root_kind_text[root->kind], root->name,
            type_text(&value->type, text));
    probe_print_tensor(value, out);
    fputc('\n', out);
  }
}

static void probe_print_line(const char *kind, const char *name, const Tensor *tensor, FILE *out) {
  char text[TYPE_TEXT];
  fprintf(out, "%s %s: %s =", kind, name, type_text(&tensor->type, text));
  for (int64_t i = 0; i < shape_elements(&tensor->type.shape); i++)
    if (tensor->f)
      fprintf(out, " %.17g", tensor->f[i]);
    else
      fprintf(out, " %lld", (long long)tensor->i[i]);
  fputc('\n', out);
}

void probe_print_all(Probe *probe, Tensor *const *values, FILE *out) {
  for (int i = 0; i < probe->graph->nodes.count; i++) {
    const Node *node = probe->graph->nodes.at[i];
    if (node->op == OP_INPUT || node->op == OP_PARAM || node->op == OP_STATE ||
        node->op == OP_SETTING)
      probe_print_line(op_info[node->op].text, node_str(node, ATTR_NAME),
                       reordered(probe->graph, node, values[i], true), out);
  }
  for (int i = 0; i < probe->graph->roots.count; i++) {
    const Root *root = &probe->graph->roots.at[i];
    probe_print_line(root_kind_text[root->kind], root->name,
                     reordered(probe->graph, root->node, values[root->node->id], true), out);
  }
}
