/* plan_same: see plan_same.h. */
#include "plan/plan_same.h"
#include "plan/plan_body.h"
#include <inttypes.h>
#include <string.h>

/* The layers of its operations, each once, in their order; NULL is one of them. */
typedef struct {
  const char *at[BODY_MOST_OPS];
  int count;
} LayerList;

static int layer_in(const LayerList *list, const char *layer) {
  int i = list->count - 1;
  while (i >= 0 && !body_is_same_name(list->at[i], layer)) i--;
  return i;
}

static void list_layers(const PlanBody *body, LayerList *out) {
  out->count = 0;
  for (int i = 0; i < body->ops.count; i++)
    if (layer_in(out, body->ops.at[i].layer) < 0) out->at[out->count++] = body->ops.at[i].layer;
}

static bool has_same_operands(const PlanGraph *graph, const PlanBody *a, const PlanBody *b) {
  if (a->arg_count != b->arg_count || a->input_count != b->input_count) return false;
  for (int i = 0; i < a->arg_count; i++)
    if (!type_equal(&graph->buffers.at[a->args[i]].type, &graph->buffers.at[b->args[i]].type))
      return false;
  return true;
}

/* An empty list may be NULL, which memcmp must not be given. */
static bool is_same_list(const void *a, const void *b, size_t bytes) {
  return bytes == 0 || !memcmp(a, b, bytes);
}

static bool is_same_op(const PlanOp *a, const PlanOp *b) {
  return a->op == b->op && a->line == b->line && a->phase == b->phase &&
         a->input_count == b->input_count && a->int_count == b->int_count &&
         memcmp(&a->value, &b->value, sizeof a->value) == 0 && type_equal(&a->type, &b->type) &&
         is_same_list(a->inputs, b->inputs, sizeof *a->inputs * (size_t)a->input_count) &&
         is_same_list(a->ints, b->ints, sizeof *a->ints * (size_t)a->int_count) &&
         body_is_same_name(a->function, b->function) && body_is_same_name(a->file, b->file);
}

static bool does_same(const PlanGraph *graph, const PlanBody *a, const PlanBody *b,
                      const LayerList *layers) {
  LayerList other;
  if (a->ops.count != b->ops.count || !has_same_operands(graph, a, b)) return false;
  for (int i = 0; i < a->ops.count; i++)
    if (!is_same_op(&a->ops.at[i], &b->ops.at[i])) return false;
  for (int i = 0; i < a->arg_count - a->input_count; i++)
    if (a->results[i] != b->results[i]) return false;
  list_layers(a, &other);
  for (int i = 0; i < a->ops.count; i++)
    if (layer_in(&other, a->ops.at[i].layer) != layer_in(layers, b->ops.at[i].layer)) return false;
  return true;
}

bool same_print(Text *out, const PlanGraph *graph, const PlanBody *body, int64_t *copied) {
  LayerList layers;
  int earlier = 0, own = (int)(body - graph->bodies.at);
  if (*copied + body->ops.count > SAME_MOST_OPS) return false;
  list_layers(body, &layers);
  while (earlier < own && !does_same(graph, &graph->bodies.at[earlier], body, &layers)) earlier++;
  if (earlier == own) return false;
  *copied += body->ops.count;
  text_printf(out, " same %d", earlier);
  for (int i = 0; i < layers.count; i++)
    text_printf(out, layers.at[i] ? " \"%s\"" : " none", layers.at[i]);
  return true;
}

bool same_read(Words *words, const PlanGraph *graph, PlanBody *body) {
  int64_t number;
  LayerList theirs;
  const char *own[BODY_MOST_OPS];
  if (!graph->bodies.count) return words_fail(words, "there is no kernel before this one");
  if (!words_integer(words, "a kernel", 0, graph->bodies.count - 1, &number)) return false;
  const PlanBody *same = &graph->bodies.at[number];
  if (!has_same_operands(graph, same, body))
    return words_fail(words, "kernel %d has other operands", (int)number);
  words->copied_ops += same->ops.count;
  if (words->copied_ops > SAME_MOST_OPS)
    return words_fail(words, "more than %d operations are the same as others", SAME_MOST_OPS);
  list_layers(same, &theirs);
  for (int i = 0; i < theirs.count; i++) {
    own[i] = NULL;
    if (!words_take(words, "none") && !(own[i] = words_name(words, "the layer"))) return false;
  }
  for (int i = 0; i < same->ops.count; i++) {
    PlanOp op = same->ops.at[i];
    op.layer = own[layer_in(&theirs, op.layer)];
    VEC_PUSH(words->arena, body->ops, op);
  }
  body->results = same->results;
  return true;
}
