/* storage_choose: which params are stored in another order than the program's. All graphs share the
 * places, so the train graph decides and the others follow. Each consumer votes for the order in
 * which it reads the param, and the gradient for the order in which it is computed; the order with
 * the most votes wins, and each vote for another one costs a transpose. Generation, on a CPU, reads all
 * matrices for each token, and reads them fastest where what a result sums over is contiguous: it has the say
 * over those that it multiplies by few rows. */
#include "passes/storage.h"
#include "passes/narrow.h"
#include <string.h>

typedef VEC(const Node *) Params;

typedef struct {
  const Graph *graph;
  Arena *arena;
  Params params;  /* the wide ones; narrow forms share the index */
  Lookup number;  /* by name: the index of a param */
  Storages forms; /* all that are met */
  int *param_of;  /* by node: index of the param whose elements it has, one for one; -1 */
  int *form_of;   /* by node: the order in which its elements are; -1 */
  int *votes;     /* by param and form; behind the forms: plain */
} Election;

int storages_find(const Storages *list, const Storage *storage) {
  for (int i = 0; i < list->count; i++)
    if (storage_equal(&list->at[i], storage)) return i;
  return -1;
}

Storage storage_of_transpose(const Node *transpose) {
  const Attr *perm = node_attr(transpose, ATTR_PERM);
  Storage storage = {.view = transpose->input[0]->type.shape};
  memcpy(storage.perm, perm->ints, sizeof(int64_t) * (size_t)perm->count);
  return storage;
}

bool storage_is_view(const Node *node) {
  if (node->op != OP_TRANSPOSE) return node->op == OP_RESHAPE;
  Storage storage = storage_of_transpose(node);
  return !storage_merged(&storage).view.rank;
}

bool storage_keeps_places(const Node *node) {
  return storage_is_view(node) || op_info[node->op].op_class == CLASS_POINTWISE;
}

Lookup storage_params(const Graph *graph, Arena *arena) {
  Lookup params = {.arena = arena};
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    int64_t place[] = {node_int(node, ATTR_OFFSET, -1), shape_elements(&node->type.shape)};
    if (node->op == OP_PARAM && !is_narrow_param(node) && place[1])
      lookup_add(&params, place, sizeof place, i);
  }
  return params;
}

int storage_param_at(const Lookup *params, int64_t offset, int64_t elements) {
  return lookup_find(params, (int64_t[]){offset, elements}, 2 * sizeof(int64_t));
}

/* ── what there is to choose from ───────────────────────────────────────────────────────────── */
static int param_index(Election *e, const Node *param) {
  int fresh = e->params.count;
  int index = lookup_add_text(&e->number, node_str(param, ATTR_NAME), fresh);
  if (index == fresh) VEC_PUSH(e->arena, e->params, param);
  if (!is_narrow_param(param)) e->params.at[index] = param;
  return index;
}

static int form_index(Election *e, const Storage *storage) {
  int found = storages_find(&e->forms, storage);
  if (found >= 0) return found;
  VEC_PUSH(e->arena, e->forms, *storage);
  return e->forms.count - 1;
}

static void election_find_forms(Election *e) {
  for (int i = 0; i < e->graph->nodes.count; i++) {
    const Node *node = e->graph->nodes.at[i];
    e->param_of[i] = node->op == OP_PARAM ? param_index(e, node) : -1;
    e->form_of[i] = -1;
    if (node->op == OP_CAST || storage_is_view(node))
      e->param_of[i] = e->param_of[node->input[0]->id];
    for (int k = 0; storage_keeps_places(node) && k < node->input_count && e->form_of[i] < 0; k++)
      e->form_of[i] = e->form_of[node->input[k]->id];
    if (node->op != OP_TRANSPOSE || storage_is_view(node)) continue;
    Storage storage = storage_of_transpose(node), back = storage_inverse(&storage);
    form_index(e, &storage);
    e->form_of[i] = form_index(e, &back);
  }
}

/* ── votes ──────────────────────────────────────────────────────────────────────────────────── */
static int *votes_of(Election *e, int param) { return &e->votes[param * (e->forms.count + 1)]; }

static void count_reader(Election *e, const Node *reader, const Node *operand) {
  int param = e->param_of[operand->id], plain = e->forms.count;
  if (param < 0 || (reader && (reader->op == OP_CAST || storage_is_view(reader)))) return;
  if (!reader || reader->op != OP_TRANSPOSE) {
    votes_of(e, param)[plain] = 1; /* however many: they read one */
    return;
  }
  Storage storage = storage_of_transpose(reader);
  votes_of(e, param)[form_index(e, &storage)]++;
}

static void count_gradients(Election *e) {
  const Node *pack = graph_find_gradients(e->graph);
  Lookup params = storage_params(e->graph, e->arena);
  for (int k = 0; pack && k < pack->input_count; k++) {
    const Node *gradient = pack->input[k];
    int param = storage_param_at(&params, node_attr(pack, ATTR_OFFSETS)->ints[k],
                                 shape_elements(&gradient->type.shape));
    int form = e->form_of[gradient->id];
    if (param >= 0) votes_of(e, e->param_of[param])[form < 0 ? e->forms.count : form]++;
  }
}

/* ── generation ─────────────────────────────────────────────────────────────────────────────── */
enum { FEW_ROWS = 4 }; /* for which the kernels read a matrix once: kernels/gemm_few_x86.c */

/* The matrix [k, n] that this product multiplies few rows by; NULL: it is another product. */
static const Node *matrix_of_few_rows(const Node *dot) {
  if (dot->op != OP_DOT || dot->type.shape.rank != 2 || node_int(dot, ATTR_TRANS_B, 0)) return NULL;
  const Node *matrix = dot->input[1];
  while (matrix->op == OP_CAST) matrix = matrix->input[0];
  return matrix->op == OP_PARAM && dot->type.shape.dim[0] <= FEW_ROWS ? matrix : NULL;
}

static Storage turned_storage(const Node *matrix) {
  return (Storage){.view = matrix->type.shape, .perm = {1, 0}};
}

/* In the decode graph; votes: more than a training has. */
static void count_generation(Election *e, const Graph *decode) {
  enum { VOTES = 8 };
  for (int i = 0; i < decode->nodes.count; i++) {
    const Node *matrix = matrix_of_few_rows(decode->nodes.at[i]);
    int param = matrix ? lookup_find_text(&e->number, node_str(matrix, ATTR_NAME)) : -1;
    if (param < 0) continue;
    Storage turned = turned_storage(matrix);
    votes_of(e, param)[form_index(e, &turned)] += VOTES;
  }
}

static void find_forms_of_generation(Election *e, const Graph *decode) {
  for (int i = 0; i < decode->nodes.count; i++) {
    const Node *matrix = matrix_of_few_rows(decode->nodes.at[i]);
    if (!matrix) continue;
    Storage turned = turned_storage(matrix);
    form_index(e, &turned);
  }
}

/* Of a param that is trained as a matrix, rows must stay rows; of one that is pruned, all is numbered. */
static bool storage_is_allowed(const Node *param, const Storage *storage) {
  if (node_storage(param).view.rank) return false; /* the pass was here */
  if (node_attr(param, ATTR_PRUNED)) return false;
  if (!node_int(param, ATTR_AS_MATRIX, 0)) return true;
  int64_t rows = 1;
  int split = 0;
  while (split < storage->view.rank && rows < param->type.shape.dim[0])
    rows *= storage->view.dim[split++];
  for (int i = 0; i < split; i++)
    if (storage->perm[i] >= split) return false;
  return rows == param->type.shape.dim[0];
}

static Storage elected(Election *e, int index) {
  const int *votes = votes_of(e, index);
  const Node *param = e->params.at[index];
  int best = e->forms.count;
  for (int i = 0; i < e->forms.count; i++)
    if (votes[i] > votes[best] && storage_is_allowed(param, &e->forms.at[i])) best = i;
  return best < e->forms.count ? e->forms.at[best] : (Storage){0};
}

static void elect(PassContext *context, const Graph *graph, Storage *out) {
  Arena *arena = context->scratch;
  int count = graph->nodes.count;
  Election e = {.graph = graph,
                .arena = arena,
                .number = {.arena = arena},
                .param_of = ARENA_ARRAY(arena, int, count),
                .form_of = ARENA_ARRAY(arena, int, count)};
  const Graph *decode = context->program && !context->for_gpu ? context->program->decode : NULL;
  election_find_forms(&e);
  if (decode) find_forms_of_generation(&e, decode);
  e.votes = ARENA_ARRAY(arena, int, e.params.count *(e.forms.count + 1));
  for (int i = 0; i < count; i++)
    for (int k = 0; k < graph->nodes.at[i]->input_count; k++)
      count_reader(&e, graph->nodes.at[i], graph->nodes.at[i]->input[k]);
  for (int i = 0; i < graph->roots.count; i++) count_reader(&e, NULL, graph->roots.at[i].node);
  count_gradients(&e);
  if (decode) count_generation(&e, decode);
  for (int i = 0; i < count; i++)
    if (graph->nodes.at[i]->op == OP_PARAM) out[i] = elected(&e, e.param_of[i]);
}

/* ── the choice ─────────────────────────────────────────────────────────────────────────────── */
static void storage_follow(const Graph *leader, const Graph *graph, Storage *out) {
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *param = graph->nodes.at[i], *same = NULL;
    if (param->op == OP_PARAM)
      same = graph_find_leaf(leader, OP_PARAM, node_str(param, ATTR_NAME));
    if (same) out[i] = node_storage(same);
  }
}

Storage *storage_choose(PassContext *context, const Graph *graph) {
  Storage *out = ARENA_ARRAY(context->scratch, Storage, graph->nodes.count);
  const Program *program = context->program;
  bool is_step = context->of == PASS_OF_TRAIN && !context->is_variant;
  bool decides = !program || !program->train || is_step;
  if (decides)
    elect(context, graph, out);
  else
    storage_follow(program->train, graph, out);
  return out;
}
