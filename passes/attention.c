/* attention: where no kernel takes it whole (f64; heads of more features than most_features says;
 * values of another size than keys), attention and its gradient are written out in matrix products
 * and pointwise work; --disable=attention writes all of it out. The heads that share keys become
 * rows of one product, [B,G,H/G*T,D], which is only a view. */
#include "passes/attention.h"
#include "passes/pass.h"
#include <math.h>
#include <string.h>

bool attention_is_whole(const Node *node, int most) {
  DType dtype = node->input[node->op == OP_ATTENTION_GRAD]->type.dtype;
  AttentionForm f = attention_form(node);
  return dtype != DT_F64 && f.features == f.values && f.features >= 1 && f.features <= most;
}

int64_t attention_least_kept(const Node *node) { return (int64_t)ceil((double)(float)node_float(node, ATTR_DROPOUT, 0) * 0x1p24); }

bool attention_is_long(const AttentionForm *form) {
  enum { LEAST = 128 };
  return form->rows >= LEAST && form->keys >= LEAST;
}

typedef struct {
  const PassContext *context;
  Node *(*results)[3]; /* by old node */
  Node **first;        /* by old node that draws: the numbers of the heads' first elements */
} Writing;

/* One attention while it is written out; all nodes go to `graph`. */
typedef struct {
  Graph *graph;
  Node *q, *k, *v, *mask; /* q with the heads of a group as rows */
  Shape scores;           /* [B,H,T,S] */
  double scale, cap;      /* cap 0: none */
  double share;           /* of the softmax's results that dropout makes 0 */
  Node *kept;             /* the others; NULL: without dropout */
  Node *bent;             /* with a cap: tanh(scores / cap) */
  bool causal;
} Written;

static Node *written_unary(const Written *w, Op op, Node *x) { return make_unary(w->graph, op, x); }
static Node *written_binary(const Written *w, Op op, Node *a, Node *b) {
  return make_binary(w->graph, op, a, b);
}
static Node *written_number(const Written *w, const Node *like, double value) {
  return make_const(w->graph, like->type.dtype, shape_scalar(), value);
}
static Node *along_keys(const Written *w, Op op, Node *x) {
  return make_reduce(w->graph, op, x, (int64_t[]){3}, 1);
}

/* [B,H,T,X] as [B,G,H/G*T,X]. */
static Node *in_groups(const Written *w, Node *x) {
  Shape shape = x->type.shape;
  int64_t groups = w->k->type.shape.dim[1];
  if (groups) shape.dim[2] *= shape.dim[1] / groups;
  shape.dim[1] = groups;
  return make_reshape(w->graph, x, shape);
}

static Written begin(Graph *graph, const Node *old, Node *const *inputs, int at) {
  Written w = {.graph = graph,
               .q = inputs[at],
               .k = inputs[at + 1],
               .v = inputs[at + 2],
               .scores = inputs[at]->type.shape,
               .scale = node_float(old, ATTR_SCALE, 1),
               .cap = node_float(old, ATTR_SOFTCAP, 0),
               .share = node_float(old, ATTR_DROPOUT, 0),
               .causal = node_int(old, ATTR_CAUSAL, 0)};
  AttentionForm form = attention_form(old);
  if (form.mask >= 0) w.mask = inputs[form.mask];
  if (form.draws >= 0) {
    Node *draws = inputs[form.draws];
    w.kept = make_binary(graph, OP_GE, draws, make_const(graph, DT_F32, shape_scalar(), w.share));
  }
  w.scores.dim[3] = w.k->type.shape.dim[2];
  w.q = in_groups(&w, w.q);
  return w;
}

static Node *written_scores(Written *w) {
  Node *s = make_dot(w->graph, w->q, w->k, false, true), *keep = NULL;
  s = make_reshape(w->graph, s, w->scores);
  s = written_binary(w, OP_MUL, s, written_number(w, s, w->cap > 0 ? w->scale / w->cap : w->scale));
  if (w->cap > 0) {
    w->bent = written_unary(w, OP_TANH, s);
    s = written_binary(w, OP_MUL, w->bent, written_number(w, s, w->cap));
  }
  if (w->mask && w->mask->type.dtype != DT_BOOL) s = written_binary(w, OP_ADD, s, w->mask);
  if (w->mask && w->mask->type.dtype == DT_BOOL) keep = w->mask;
  if (w->causal) {
    int64_t rows = w->scores.dim[2], keys = w->scores.dim[3];
    Shape plane = shape_of(4, (int64_t[]){1, 1, rows, keys});
    Node *row = make_iota(w->graph, DT_I64, plane, 2);
    Node *key = make_iota(w->graph, DT_I64, plane, 3);
    Node *seen = written_binary(
        w, OP_LE, key,
        written_binary(w, OP_ADD, row, make_like(w->graph, row, (double)(keys - rows))));
    keep = keep ? written_binary(w, OP_AND, keep, seen) : seen;
  }
  return keep ? make_select(w->graph, keep, s, written_number(w, s, -INFINITY)) : s;
}

/* x where it is not `odd`, else `instead`. */
static Node *unless(const Written *w, Node *x, double odd, double instead) {
  return make_select(w->graph, written_binary(w, OP_EQ, x, written_number(w, x, odd)),
                     written_number(w, x, instead), x);
}

/* x as dropout leaves it. */
static Node *written_kept(const Written *w, Node *x) {
  if (!w->kept) return x;
  Node *more = written_binary(w, OP_MUL, x, written_number(w, x, 1 / (1 - w->share)));
  return make_select(w->graph, w->kept, more, written_number(w, x, 0));
}

static void write_forward(Written *w, const Node *old, Node *results[3]) {
  Node *s = written_scores(w);
  Node *most = unless(w, along_keys(w, OP_RMAX, s), -INFINITY, 0);
  Node *e = written_unary(w, OP_EXP, written_binary(w, OP_SUB, s, most)),
       *sum = along_keys(w, OP_SUM, e);
  Node *p = written_binary(w, OP_DIV, e, unless(w, sum, 0, 1));
  Node *out = make_dot(w->graph, in_groups(w, written_kept(w, p)), w->v, false, false);
  results[0] = make_reshape(w->graph, out, old->type.shape);
  results[1] = written_binary(w, OP_ADD, most, written_unary(w, OP_LOG, sum));
}

static void write_backward(Written *w, const Node *old, Node *const *inputs,
                           Node *results[3]) {
  Node *dy = inputs[0], *lse = unless(w, inputs[5], -INFINITY, 0);
  Node *p = written_unary(w, OP_EXP, written_binary(w, OP_SUB, written_scores(w), lse));
  Node *dp = make_dot(w->graph, in_groups(w, dy), w->v, false, true);
  dp = written_kept(w, make_reshape(w->graph, dp, w->scores));
  Node *delta = along_keys(w, OP_SUM, written_binary(w, OP_MUL, dy, inputs[4]));
  Node *ds = written_binary(w, OP_MUL, p, written_binary(w, OP_SUB, dp, delta));
  if (w->bent) {
    Node *square = written_binary(w, OP_MUL, w->bent, w->bent);
    ds = written_binary(w, OP_MUL, ds,
                        written_binary(w, OP_SUB, written_number(w, square, 1), square));
  }
  ds = in_groups(w, written_binary(w, OP_MUL, ds, written_number(w, ds, w->scale)));
  Node *dq = make_dot(w->graph, ds, w->k, false, false);
  results[0] = make_reshape(w->graph, dq, old->type.shape);
  results[1] = make_dot(w->graph, ds, w->q, true, false);
  results[2] = make_dot(w->graph, in_groups(w, written_kept(w, p)), in_groups(w, dy), true, false);
}

/* Of its products: attention has no 8-bit form, and is of bf16 there. NULL: as the setting says. */
static const char *products_precision(const SettingValue *settings, const Node *old) {
  const char *own = node_str(old, ATTR_PRECISION);
  const char *precision = own || !settings ? own : setting_text(settings, "train.precision");
  return precision && !strcmp(precision, "fp8") ? "bf16" : own;
}

/* Will the pass `precision` make its operands bf16 or f16, if they are not yet? */
static bool becomes_narrow(const PassContext *context, const Node *old) {
  DType dtype = old->input[old->op == OP_ATTENTION_GRAD]->type.dtype;
  if (dtype != DT_F32 || text_has_word(context->left_out, "precision")) return dtype_is_narrow(dtype);
  const char *own = node_str(old, ATTR_PRECISION);
  const char *precision = own || !context->settings ? own : setting_text(context->settings, "train.precision");
  return precision && (!strcmp(precision, "bf16") || !strcmp(precision, "fp16") || !strcmp(precision, "fp8"));
}

/* The most features of a head for which the target has a kernel. Heads of more than 128 are for the tensor cores of
 * Hopper, which take rows of whole 16 bytes, and have no dropout. */
static int most_features(const PassContext *context, const Node *old) {
  enum { PIECE = 8 };
  AttentionForm form = attention_form(old);
  bool is_hopper = context->multiplies_float8 == FLOAT8_ALONG_K && !text_has_word(context->left_out, "attention_wgmma");
  if (!context->for_gpu) return ATTENTION_MOST;
  if (!is_hopper || form.draws >= 0 || form.features % PIECE || !attention_is_long(&form)) return ATTENTION_MOST_GPU;
  return becomes_narrow(context, old) ? ATTENTION_MOST : ATTENTION_MOST_GPU;
}

/* ── dropout in a kernel ────────────────────────────────────────────────────────────────────── */
/* The number of the first element of each head, [B,H,1,1], among all that are drawn at this step. Where ranks share the heads,
 * `first` has a number for each element, the same for all of a head. */
static Node *first_of_heads(Graph *graph, const Node *draws) {
  const int64_t *dim = draws->type.shape.dim;
  Shape heads = {4, {dim[0], dim[1], 1, 1}};
  Node *sample = make_iota(graph, DT_I64, heads, 0), *head = make_iota(graph, DT_I64, heads, 1);
  head = make_binary(graph, OP_ADD, make_binary(graph, OP_MUL, sample, make_like(graph, sample, (double)dim[1])), head);
  Node *number = make_binary(graph, OP_MUL, head, make_like(graph, head, (double)(dim[2] * dim[3])));
  if (draws->input_count <= 2) return number;
  Node *first = draws->input[2];
  if (first->type.shape.rank) first = make_slice(graph, first, (int64_t[]){0, 0, 0, 0}, heads);
  return make_binary(graph, OP_ADD, number, first);
}

/* The attention that draws for itself, in place of reading what was drawn. */
static Node *with_own_draws(Graph *fresh, const Node *old, Node **inputs, Writing *writing, int at) {
  const Node *draws = inputs[at];
  Node *operands[MOST_INPUTS], **first = &writing->first[old->input[at]->id];
  if (!*first) *first = first_of_heads(fresh, draws);
  for (int i = 0; i < at; i++) operands[i] = inputs[i];
  operands[at] = draws->input[0], operands[at + 1] = draws->input[1], operands[at + 2] = *first;
  operands[at + 3] = make_const(fresh, DT_I64, shape_scalar(), (double)node_int(draws, ATTR_STREAM, 0));
  Node changed = *old;
  changed.input_count = at + 4;
  return graph_copy_with(fresh, &changed, operands, &old->type, NULL, 0);
}

static Node *attention_visit(Graph *fresh, const Node *old, Node **inputs, void *context) {
  Writing *writing = context;
  if (old->op == OP_RESULT)
    return writing->results[old->input[0]->id][node_int(old, ATTR_INDEX, 0)];
  bool is_backward = old->op == OP_ATTENTION_GRAD;
  if (old->op != OP_ATTENTION && !is_backward) return NULL;
  if (attention_draws_itself(old)) return NULL; /* it was found to have a kernel */
  int draws = attention_form(old).draws;
  bool is_known = draws < 0 || inputs[draws]->op == OP_RANDOM;
  if (is_known && !writing->context->is_plain && attention_is_whole(old, most_features(writing->context, old)))
    return draws < 0 ? NULL : with_own_draws(fresh, old, inputs, writing, draws);
  Node **results = writing->results[old->id];
  int first = fresh->nodes.count;
  Written w = begin(fresh, old, inputs, is_backward);
  if (is_backward)
    write_backward(&w, old, inputs, results);
  else
    write_forward(&w, old, results);
  const char *precision = products_precision(writing->context->settings, old);
  for (int i = first; i < fresh->nodes.count; i++) {
    if (precision && fresh->nodes.at[i]->op == OP_DOT)
      node_set_attr(fresh, fresh->nodes.at[i], attr_str(ATTR_PRECISION, precision));
  }
  return results[0];
}

Graph *pass_attention(PassContext *context, Graph *graph) {
  if (!graph_find_op(graph, OP_ATTENTION) && !graph_find_op(graph, OP_ATTENTION_GRAD)) return graph;
  Writing writing = {.context = context};
  writing.results =
      arena_alloc(context->scratch, sizeof *writing.results * (size_t)graph->nodes.count);
  writing.first = ARENA_ARRAY(context->scratch, Node *, graph->nodes.count);
  return graph_rewrite(graph, attention_visit, &writing);
}
