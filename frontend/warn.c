/* warn: what the graph shows to be a mistake, though it can be computed: parameters that the loss
 * does not train, and probabilities where a loss takes scores. */
#include "frontend/builder.h"
#include <string.h>

/* ── probabilities for scores ─────────────────────────────────────────────────────────────── */
static const struct {
  const char *loss, *made_by, *advice;
} unfit[] = {
    {"cross_entropy", "softmax",
     "cross_entropy() takes scores and computes their softmax itself: leave this softmax out"},
    {"cross_entropy", "log_softmax",
     "cross_entropy() takes scores and computes their log_softmax itself: leave this one out, or "
     "take nll(log_probs, target)"},
    {"cross_entropy", "sigmoid",
     "cross_entropy() takes scores and computes their softmax itself: leave this sigmoid out, or "
     "take bce_with_logits(x, target) if each class is a question of its own"},
    {"bce_with_logits", "sigmoid",
     "bce_with_logits() takes scores and computes their sigmoid itself: leave this sigmoid out"},
    {"bce_with_logits", "softmax",
     "bce_with_logits() takes scores and computes their sigmoid itself: leave this softmax out, or "
     "take cross_entropy(logits, target) if the classes exclude each other"},
    {"bce_with_logits", "log_softmax",
     "bce_with_logits() takes scores and computes their sigmoid itself: leave this log_softmax "
     "out"},
    {"nll", "softmax",
     "nll() takes logarithms of probabilities: write log_softmax here, not softmax"},
    {"nll", "sigmoid", "nll() takes logarithms of probabilities: write logsigmoid, or log_softmax"},
    {"kl_div", "softmax",
     "kl_div(log_probs, target) takes logarithms first: write log_softmax here, not softmax"},
};

/* What made the value that `node` is a view of: "softmax"; NULL: something else. */
static const char *made_by(const Node *node) {
  while (node->op == OP_RESHAPE || node->op == OP_TRANSPOSE || node->op == OP_CAST ||
         node->op == OP_SLICE || node->op == OP_BROADCAST)
    node = node->input[0];
  const char *function = node->origin.function;
  if (node->op == OP_SIGMOID) return "sigmoid";
  bool is_last = function && ((node->op == OP_DIV && !strcmp(function, "softmax")) ||
                              (node->op == OP_SUB && !strcmp(function, "log_softmax")));
  return is_last ? function : NULL;
}

void warn_scores(Builder *b, const char *function, const Value *scores, Loc loc) {
  if (!b->training || b->diag->is_quiet || b->is_again || scores->kind != VALUE_TENSOR ||
      (b->frame && b->frame->is_std))
    return;
  const char *by = made_by(scores->node);
  for (size_t i = 0; by && i < sizeof unfit / sizeof *unfit; i++) {
    if (strcmp(unfit[i].loss, function) != 0 || strcmp(unfit[i].made_by, by) != 0) continue;
    if (!locs_add(b->arena, &b->warned, loc)) return;
    diag_warning(b->diag, loc, "%s", unfit[i].advice);
    diag_note(b->diag, scores->node->origin.loc, "the %s is computed here", by);
  }
}

/* ── parameters without a gradient ────────────────────────────────────────────────────────── */
typedef enum { READ_ALL, READ_FLOATS, READ_GRADIENT } Reading;

/* What the loss is computed of: every node; only floats that floats are made of; these but for what
 * is behind a stop_gradient. */
static bool *find_read(const Graph *graph, const Node *loss, Reading reading) {
  bool *read = ARENA_ARRAY(graph->arena, bool, graph->nodes.count);
  read[loss->id] = true;
  for (int i = loss->id; i >= 0; i--) {
    const Node *node = graph->nodes.at[i];
    if (!read[i] || (reading == READ_GRADIENT && node->op == OP_STOP_GRADIENT)) continue;
    for (int k = 0; k < node->input_count; k++)
      if (reading == READ_ALL || dtype_is_float(node->input[k]->type.dtype))
        read[node->input[k]->id] = true;
  }
  return read;
}

/* Of a line whose value goes nowhere more need not be said. */
static bool is_told_of(const Builder *b, Loc loc) {
  for (int i = 0; i < b->warned.count; i++)
    if (b->warned.at[i].file == loc.file && b->warned.at[i].line == loc.line) return true;
  return false;
}

/* One warning for all of a place that have the same fault: those of one layer, or of all rounds of
 * a repeat. */
static void warn_of_place(Builder *b, Node *const *params, const bool *is_told, int count,
                          int first, const char *format_one, const char *format_many) {
  const char *names = "";
  int told = 0, all = 0;
  for (int i = first; i < count; i++)
    all += is_told[i] && loc_equal(params[i]->origin.loc, params[first]->origin.loc);
  for (int i = first; i < count && told < 3; i++) {
    if (!is_told[i] || !loc_equal(params[i]->origin.loc, params[first]->origin.loc)) continue;
    bool is_last = told == all - 1;
    names = arena_printf(b->arena, "%s%s'%s'", names,
                         !told     ? ""
                         : is_last ? " and "
                                   : ", ",
                         node_str(params[i], ATTR_NAME));
    told++;
  }
  if (all > told) names = arena_printf(b->arena, "%s and %d more", names, all - told);
  diag_warning(b->diag, params[first]->origin.loc, all == 1 ? format_one : format_many, names);
}

static void warn_each(Builder *b, Node *const *params, bool *is_told, int count, const char *one,
                      const char *many) {
  for (int i = 0; i < count; i++) {
    if (!is_told[i]) continue;
    warn_of_place(b, params, is_told, count, i, one, many);
    for (int k = count - 1; k >= i; k--)
      if (loc_equal(params[k]->origin.loc, params[i]->origin.loc)) is_told[k] = false;
  }
}

void warn_untrained(Builder *b, const Graph *graph) {
  const Node *loss = graph_find_root(graph, ROOT_LOSS, NULL);
  VEC(Node *) params = {0};
  for (int i = 0; i < graph->nodes.count; i++)
    if (graph->nodes.at[i]->op == OP_PARAM) VEC_PUSH(b->arena, params, graph->nodes.at[i]);
  if (!params.count) {
    diag_warning(b->diag, loss->origin.loc,
                 "the model has no parameters: there is nothing to train");
    return;
  }
  const bool *read = find_read(graph, loss, READ_ALL), *flows = find_read(graph, loss, READ_FLOATS),
             *trains = find_read(graph, loss, READ_GRADIENT);
  bool *cut = ARENA_ARRAY(b->arena, bool, params.count);
  bool *unread = ARENA_ARRAY(b->arena, bool, params.count);
  int frozen = 0, trained = 0, flowing = 0;
  for (int i = 0; i < params.count; i++) {
    const Node *param = params.at[i];
    frozen += node_is_frozen(param);
    trained += trains[param->id];
    flowing += flows[param->id];
    bool is_news = !node_is_frozen(param) && !is_told_of(b, param->origin.loc);
    cut[i] = is_news && read[param->id] && !flows[param->id];
    unread[i] = is_news && !read[param->id];
  }
  if (statistics_only(b)) return;
  if (frozen == params.count) {
    diag_warning(b->diag, loss->origin.loc, "all parameters are frozen: there is nothing to train");
    return;
  }
  if (!trained) {
    diag_warning(b->diag, loss->origin.loc, "loss depends on no parameter%s: nothing is trained",
                 flowing ? " but through stop_gradient" : "");
    return;
  }
  warn_each(b, params.at, cut, params.count,
            "no gradient reaches parameter %s: between it and the loss there are only comparisons, "
            "argmax or integers",
            "no gradient reaches parameters %s: between them and the loss there are only "
            "comparisons, argmax or integers");
  warn_each(b, params.at, unread, params.count,
            "parameter %s does not influence the loss, so it is not trained",
            "parameters %s do not influence the loss, so they are not trained");
}
