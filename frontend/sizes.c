/* sizes: what in a graph follows from the number of samples. Dimensions are numbers when a graph
 * exists, so 1/64 of a mean over the batch looks like any other number. An evaluation of a whole
 * split, and a batch in parts, count other numbers of samples (passes/totals.c); so the model is
 * built again with other batches, and what differs is noted where it stands:
 *
 *   const  {samples=[a,b,c,d]}  for n samples it is (a n + b) / (c n + d); zeros: of no such form
 *   const, iota, random, broadcast  {batch=axis}  this dimension is the samples'; where a
 *                               reduction over it has no input behind it that would tell, of random
 *                               ones wherever ranks share a batch, of an iota that counts the
 *                               samples always, and of a broadcast that makes pairs of samples
 *   reshape  {batch=axis}       the same, where the batch is one sample and sizes tell nothing
 *   input  {samples=[1]}        this graph has been looked through
 *
 * A model that cannot be built with another batch (a literal 64 in a reshape) keeps no notes, nor does one that is another model then
 * (a slice of 64 samples, which is all of this batch, but not of another). */
#include "frontend/builder.h"
#include <math.h>
#include <string.h>

enum { BUILDS = 4 };

/* ── building again ───────────────────────────────────────────────────────────────────────── */
Builder *builder_again(const Builder *b, Diag *diag) {
  Builder *again = ARENA_NEW(b->arena, Builder);
  Program *program = ARENA_NEW(b->arena, Program);
  *again = *b;
  *program = *b->program;
  program->settings = ARENA_ARRAY(b->arena, SettingValue, setting_count);
  memcpy(program->settings, b->program->settings, sizeof(SettingValue) * (size_t)setting_count);
  memset(&program->layers, 0, sizeof program->layers);
  memset(&program->rounds, 0, sizeof program->rounds);
  memset(&program->sizes, 0, sizeof program->sizes);
  again->diag = diag;
  again->program = program;
  memset(&again->declared, 0, sizeof again->declared);
  memset(&again->weights, 0, sizeof again->weights);
  memset(&again->evaluated, 0, sizeof again->evaluated);
  memset(&again->reported, 0, sizeof again->reported);
  return again;
}

static Graph *build_again(const Builder *b, const Ast *model, bool training, int64_t batch) {
  Diag *quiet = ARENA_NEW(b->arena, Diag);
  *quiet = *b->diag;
  quiet->is_quiet = true;
  Builder *again = builder_again(b, quiet);
  again->program->settings[setting_find("train.batch")].number = (double)batch;
  again->is_again = true;
  return build_graph(again, model, training);
}

static bool is_view(const Node *node) {
  return node->op == OP_BROADCAST || node->op == OP_RESHAPE;
}

/* Does the slice take all along the same dimensions? */
static bool takes_alike(const Node *one, const Node *other) {
  const Shape *from = &one->input[0]->type.shape, *there = &other->input[0]->type.shape;
  bool same = true;
  for (int i = 0; i < from->rank; i++)
    same &= (one->type.shape.dim[i] == from->dim[i]) == (other->type.shape.dim[i] == there->dim[i]);
  return same;
}

/* Are these the same step, if back[] gives the nodes of one for those of the other? */
static bool sizes_is_alike(const Node *one, const Node *other, const int *back) {
  bool same = one->op == other->op && one->input_count == other->input_count &&
              one->type.shape.rank == other->type.shape.rank;
  for (int i = 0; same && i < one->input_count; i++)
    same = one->input[i]->id == back[other->input[i]->id];
  return same && (one->op != OP_SLICE || takes_alike(one, other));
}

/* The node of `other` for each of `graph`, by id; NULL if the two are not alike. With one sample a
 * batch some views change nothing and are not made, so `other` may have more of these. */
static int *align_nodes(const Builder *b, const Graph *graph, const Graph *other) {
  if (!other) return NULL;
  int *there = ARENA_ARRAY(b->arena, int, graph->nodes.count);
  int *back = ARENA_ARRAY(b->arena, int, other->nodes.count), k = 0;
  for (int i = 0; i < graph->nodes.count; i++, k++) {
    for (; k < other->nodes.count && !sizes_is_alike(graph->nodes.at[i], other->nodes.at[k], back);
         k++) {
      if (!is_view(other->nodes.at[k])) return NULL;
      back[k] = back[other->nodes.at[k]->input[0]->id];
    }
    if (k == other->nodes.count) return NULL;
    there[i] = k;
    back[k] = i;
  }
  return there;
}

/* ── how a number follows from n ──────────────────────────────────────────────────────────── */
typedef struct {
  double a, b, c, d;
} Form;

static bool form_fits(const Form *f, const double n[BUILDS], const double y[BUILDS]) {
  for (int i = 0; i < BUILDS; i++) {
    double have = (f->a * n[i] + f->b) / (f->c * n[i] + f->d);
    if (!(fabs(have - y[i]) <= 1e-9 * fabs(y[i]))) return false;
  }
  return true;
}

/* (a n + b) / (n + d), from y (n + d) = a n + b at three places. */
static Form fraction(const double n[BUILDS], const double y[BUILDS]) {
  double dy1 = y[1] - y[0], dy2 = y[2] - y[0], dn1 = n[1] - n[0], dn2 = n[2] - n[0];
  double ny1 = n[1] * y[1] - n[0] * y[0], ny2 = n[2] * y[2] - n[0] * y[0];
  Form f = {.c = 1};
  f.d = (ny2 * dn1 - ny1 * dn2) / (dy1 * dn2 - dy2 * dn1);
  f.a = (ny1 + f.d * dy1) / dn1;
  f.b = y[0] * (n[0] + f.d) - f.a * n[0];
  return f;
}

static Form sizes_form(const double n[BUILDS], const double y[BUILDS]) {
  double slope = (y[1] - y[0]) / (n[1] - n[0]);
  Form affine = {slope, y[0] - slope * n[0], 0, 1}, f = affine;
  if (form_fits(&f, n, y)) return f;
  slope = (1 / y[1] - 1 / y[0]) / (n[1] - n[0]);
  f = (Form){0, 1, slope, 1 / y[0] - slope * n[0]};
  if (fabs(f.d) < 1e-9) f.d = 0;
  if (form_fits(&f, n, y)) return f;
  f = fraction(n, y);
  return form_fits(&f, n, y) ? f : (Form){0};
}

/* ── the notes ────────────────────────────────────────────────────────────────────────────── */
static void note_const(Graph *graph, Node *node, Form f) {
  double values[] = {f.a, f.b, f.c, f.d};
  node_set_attr(graph, node, attr_floats(ATTR_SAMPLES, values, 4));
}

static int batch_axis(const Node *one, const Node *other) {
  const Shape *a = &one->type.shape, *b = &other->type.shape;
  for (int i = 0; i < a->rank; i++)
    if (a->dim[i] != b->dim[i]) return i;
  return -1;
}

/* By node: the first dimension that the batch says, -1 where none is. */
static int *find_batch_axes(Builder *b, const Graph *graph, const Graph *other, const int *there) {
  int *axes = ARENA_ARRAY(b->arena, int, graph->nodes.count);
  for (int i = 0; i < graph->nodes.count; i++)
    axes[i] = batch_axis(graph->nodes.at[i], other->nodes.at[there[i]]);
  return axes;
}

/* The same, of broadcasts that make this dimension. */
static int *find_grown_axes(Builder *b, const Graph *graph, const Graph *other, const int *there) {
  int *axes = ARENA_ARRAY(b->arena, int, graph->nodes.count);
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *one = graph->nodes.at[i], *two = other->nodes.at[there[i]];
    axes[i] = -1;
    for (int d = one->type.shape.rank - 1; d >= 0 && one->op == OP_BROADCAST; d--)
      if (one->type.shape.dim[d] != two->type.shape.dim[d] &&
          one->input[0]->type.shape.dim[d] == two->input[0]->type.shape.dim[d])
        axes[i] = d;
  }
  return axes;
}

/* Reductions over samples that no input tells of: what is in their dimension lies the same for
 * each sample. What has no such dimension, as a total over the samples, tells nothing of them. */
static void note_free(Builder *b, Graph *graph, const int *axis, const int *grown) {
  int count = graph->nodes.count;
  bool *is_told = ARENA_ARRAY(b->arena, bool, count), *wanted = ARENA_ARRAY(b->arena, bool, count);
  for (int i = 0; i < count; i++) {
    Node *node = graph->nodes.at[i];
    is_told[i] = node->op == OP_INPUT && axis[i] >= 0;
    for (int k = 0; axis[i] >= 0 && k < node->input_count; k++)
      is_told[i] |= is_told[node->input[k]->id];
    const Node *x = node->input_count ? node->input[0] : NULL;
    const Attr *axes = x && !is_told[x->id] ? node_attr(node, ATTR_AXES) : NULL;
    for (int k = 0; axes && k < axes->count; k++) wanted[i] |= axes->ints[k] == axis[x->id];
    if (grown[i] >= 0 && is_told[x->id]) /* pairs of samples */
      node_set_attr(graph, node, attr_int(ATTR_BATCH, grown[i]));
  }
  for (int i = count - 1; i >= 0; i--) {
    Node *node = graph->nodes.at[i];
    bool is_leaf = node->op == OP_CONST || node->op == OP_IOTA || node->op == OP_RANDOM ||
                   (grown[i] >= 0 && axis[node->input[0]->id] < 0);
    if (wanted[i] && is_leaf && axis[i] >= 0)
      node_set_attr(graph, node, attr_int(ATTR_BATCH, axis[i]));
    for (int k = 0; wanted[i] && k < node->input_count; k++)
      wanted[node->input[k]->id] |= axis[node->input[k]->id] >= 0;
  }
}

/* What counts the samples differs from one to the next: no part of a batch knows where it begins.
 * And of a batch of one sample no size tells which dimension is the samples'. */
static void note_axes(Builder *b, Graph *graph, const Graph *other, const int *there) {
  const int *axis = find_batch_axes(b, graph, other, there);
  note_free(b, graph, axis, find_grown_axes(b, graph, other, there));
  for (int i = 0; i < graph->nodes.count; i++) {
    Node *node = graph->nodes.at[i];
    bool is_number = node->op == OP_IOTA && axis[i] >= 0 && node_int(node, ATTR_AXIS, -1) == axis[i];
    bool is_one = node->op == OP_RESHAPE && axis[i] >= 0 && node->type.shape.dim[axis[i]] == 1;
    if (is_number || is_one) node_set_attr(graph, node, attr_int(ATTR_BATCH, axis[i]));
  }
}

static void note_inputs(Graph *graph) {
  double known = 1;
  for (int i = 0; i < graph->nodes.count; i++)
    if (graph->nodes.at[i]->op == OP_INPUT)
      node_set_attr(graph, graph->nodes.at[i], attr_floats(ATTR_SAMPLES, &known, 1));
}

/* Which rows of the whole batch random numbers are for, when ranks share it. */
static void note_random(Graph *graph, const Graph *other, const int *there) {
  for (int i = 0; i < graph->nodes.count; i++) {
    Node *node = graph->nodes.at[i];
    int axis = node->op == OP_RANDOM ? batch_axis(node, other->nodes.at[there[i]]) : -1;
    if (axis >= 0) node_set_attr(graph, node, attr_int(ATTR_BATCH, axis));
  }
}

/* A NaN, as of ids that embed does not know, is one for any number of samples. */
static bool is_same_number(double x, double y) { return x == y || (isnan(x) && isnan(y)); }

/* One sample is not broadcast to the batch, so that no node can say of a reduction that what it is
 * over lies the same for each sample. `two`, `three`: the model with more of them. */
static bool hides_broadcast(Builder *b, const Graph *graph, Graph *two, const Graph *three,
                            const int *there) {
  const int *further = align_nodes(b, two, three);
  bool *is_there = ARENA_ARRAY(b->arena, bool, two->nodes.count), hides = !further;
  for (int i = 0; i < graph->nodes.count; i++) is_there[there[i]] = true;
  if (further) note_axes(b, two, three, further);
  for (int i = 0; i < two->nodes.count; i++)
    hides |= !is_there[i] && two->nodes.at[i]->op == OP_BROADCAST &&
             node_attr(two->nodes.at[i], ATTR_BATCH);
  return hides;
}

/* Without notes a sum over the samples is taken for a mean (passes/totals_value.c). */
static void warn_averaged(Builder *b, const Ast *model, int64_t parts) {
  const char *each = parts ? arena_printf(b->arena, "the %lld parts of a batch", (long long)parts) : "the ranks";
  diag_warning(b->diag, model->loc,
               "the model cannot be built for another number of samples than %lld, so its loss and gradients are the average over %s: right for a mean over the "
               "samples, too small for a sum; write B, or -1 in a shape, where that number is written out",
               (long long)setting_number(b->program->settings, "train.batch"), each);
}

/* An evaluation's number of samples is known when it runs, as is that of ranks. */
static bool note_open(Builder *b, const Ast *model, Graph *graph, bool training, int64_t batch) {
  Graph *built[BUILDS] = {graph};
  int *there[BUILDS];
  double n[BUILDS], y[BUILDS];
  for (int i = 0; i < BUILDS; i++) {
    n[i] = (double)(batch * (i + 1));
    if (i) built[i] = build_again(b, model, training, batch * (i + 1));
    there[i] = align_nodes(b, graph, built[i]);
    if (!there[i]) return false;
  }
  if (batch == 1 && hides_broadcast(b, graph, built[1], built[2], there[1])) return false;
  for (int i = 0; i < graph->nodes.count; i++) {
    if (graph->nodes.at[i]->op != OP_CONST) continue;
    bool differs = false;
    for (int k = 0; k < BUILDS; k++) {
      y[k] = node_float(built[k]->nodes.at[there[k][i]], ATTR_VALUE, 0);
      differs |= !is_same_number(y[k], y[0]);
    }
    if (differs) note_const(graph, graph->nodes.at[i], sizes_form(n, y));
  }
  note_axes(b, graph, built[1], there[1]);
  if (setting_ranks(b->program->settings) != 1) note_random(graph, built[1], there[1]);
  note_inputs(graph);
  return true;
}

/* A batch in parts has a fixed number of samples. */
/* false: no notes could be made. */
static bool note_train(Builder *b, const Ast *model, Graph *graph, int64_t batch, int64_t parts) {
  Graph *whole = build_again(b, model, true, batch * parts);
  int *there = align_nodes(b, graph, whole);
  if (!there) return false;
  const Graph *further = batch == 1 ? build_again(b, model, true, batch * parts + 1) : NULL;
  if (further && hides_broadcast(b, graph, whole, further, there)) return false;
  for (int i = 0; i < graph->nodes.count; i++) {
    Node *node = graph->nodes.at[i];
    double value = node_float(whole->nodes.at[there[i]], ATTR_VALUE, 0);
    if (node->op == OP_CONST && !is_same_number(value, node_float(node, ATTR_VALUE, 0)))
      note_const(graph, node, (Form){0, value, 0, 1});
  }
  note_axes(b, graph, whole, there);
  note_inputs(graph);
  return true;
}

void sizes_note(Builder *b, const Ast *model, Graph *graph, bool training) {
  int64_t batch = (int64_t)setting_number(b->program->settings, "train.batch");
  int64_t parts = (int64_t)setting_number(b->program->settings, "train.accumulate");
  bool shared = setting_ranks(b->program->settings) != 1;
  bool noted = !training || shared ? note_open(b, model, graph, training, batch) : parts <= 1 || note_train(b, model, graph, batch, parts);
  if (training && !noted && !b->is_again) warn_averaged(b, model, shared ? 0 : parts);
}
