/* ftc_shrink: see ftc_shrink.h. What it reads are lines of
 *
 *   tensor NAME SIZE..      a tensor of the weights, and behind it
 *   zero DIM INDEX..        where it is 0 along a dimension; 3-7 are five of them
 *   stay LAYER              keeps its width, as do those in it
 *
 * and what it prints are lines of
 *
 *   width LAYER OLD NEW
 *   held LAYER WHY          something could go by the weights, but not by the program
 *   flops OLD NEW           of forward, of a batch
 *   tensor NAME             a parameter or state of the program, and behind it, of each dimension that is shorter now,
 *   keep DIM INDEX..        what is left of it
 */
#include "tools/ftc_shrink.h"
#include "frontend/apply.h"
#include "passes/shrink.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_ROUNDS = 500 };

typedef struct {
  const ShrinkInput *input;
  const Program *program;
  Diag *diag;
  Arena *arena;
  Shrink *shrink;
  Lookup layers;                             /* by path, of the first of each: index in program->layers */
  VEC(const char *) tensors;                 /* of the weights */
  bool is_smaller;
  const char *widths;                        /* the setting, if it is */
  VEC(const char *) held;                    /* lines to print */
  Program small;
} Shrinking;

__attribute__((format(printf, 2, 3))) static bool shrink_fail(const Shrinking *s, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  diag_error(s->diag, (Loc){0}, "%s", arena_vprintf(s->arena, format, arguments));
  va_end(arguments);
  return false;
}

/* ── the weights ────────────────────────────────────────────────────────────────────────────── */
static bool is_shrunk_leaf(const Node *leaf) { return leaf->op == OP_PARAM || leaf->role == ROLE_MODEL; }

static bool read_weight_shape(Shrinking *s, char *rest, const Node **leaf) {
  char *name = strtok_r(NULL, " ", &rest);
  Shape shape = {0};
  for (char *word; name && (word = strtok_r(NULL, " ", &rest)) && shape.rank < MAX_RANK;)
    shape.dim[shape.rank++] = strtoll(word, NULL, 10);
  *leaf = name ? shrink_leaf(s->shrink, name) : NULL;
  if (!*leaf || !is_shrunk_leaf(*leaf)) return (*leaf = NULL, true); /* an optimiser's */
  char want[TYPE_TEXT];
  if (!shape_equal(&shape, &(*leaf)->type.shape))
    return shrink_fail(s, "'%s' is %s in the program, and has another shape in the weights", name,
                       type_text(&(*leaf)->type, want));
  VEC_PUSH(s->arena, s->tensors, node_str(*leaf, ATTR_NAME));
  return true;
}

static void read_zeros(Shrinking *s, char *rest, const Node *leaf) {
  char *word = strtok_r(NULL, " ", &rest);
  int64_t dim = word ? strtoll(word, NULL, 10) : -1;
  bool is_param = leaf && leaf->op == OP_PARAM; /* a state that is 0 may be something else after a step */
  if (!is_param || dim < 0 || dim >= leaf->type.shape.rank) return;
  while ((word = strtok_r(NULL, " ", &rest))) {
    char *end;
    int64_t first = strtoll(word, &end, 10), last = *end == '-' ? strtoll(end + 1, NULL, 10) : first;
    for (int64_t i = first; i >= 0 && i <= last && i < leaf->type.shape.dim[dim]; i++)
      shrink_value(s->shrink, leaf)->zero[dim][i] = true;
  }
}

static bool is_in_layer(const char *path, const char *layer) {
  size_t length = strlen(layer);
  return strncmp(path, layer, length) == 0 && (!path[length] || path[length] == '.');
}

static bool read_stay(Shrinking *s, const char *layer) {
  bool is_there = false;
  for (int i = 0; i < s->shrink->leaves.count; i++) {
    const Node *leaf = s->shrink->leaves.at[i];
    if (!is_in_layer(node_str(leaf, ATTR_NAME), layer)) continue;
    is_there = true;
    if (leaf->type.shape.rank) shrink_keep_all(s->shrink, leaf, 0);
  }
  return is_there || shrink_fail(s, "there is no layer '%s'", layer);
}

static bool read_weights(Shrinking *s) {
  Text text = {0};
  int error = text_read_file(&text, s->input->zeros);
  if (error) return shrink_fail(s, "cannot read '%s': %s", s->input->zeros, text_error(error));
  const Node *leaf = NULL;
  bool fine = true;
  char *rest = NULL;
  for (char *line = strtok_r(text.at, "\n", &rest); line && fine; line = strtok_r(NULL, "\n", &rest)) {
    char *words = NULL, *kind = strtok_r(line, " ", &words);
    if (kind && strcmp(kind, "tensor") == 0) fine = read_weight_shape(s, words, &leaf);
    if (kind && strcmp(kind, "zero") == 0) read_zeros(s, words, leaf);
    if (kind && strcmp(kind, "stay") == 0) fine = read_stay(s, words);
  }
  text_free(&text);
  for (int i = 0; fine && i < s->shrink->leaves.count; i++) {
    const Node *l = s->shrink->leaves.at[i];
    bool is_there = !is_shrunk_leaf(l);
    for (int k = 0; k < s->tensors.count && !is_there; k++)
      is_there = strcmp(s->tensors.at[k], node_str(l, ATTR_NAME)) == 0;
    if (!is_there) fine = shrink_fail(s, "the weights have no '%s', which the program has", node_str(l, ATTR_NAME));
  }
  return fine;
}

/* ── widths ─────────────────────────────────────────────────────────────────────────────────── */
/* The parameter that has the outputs of a layer along *dim: dimension 0, as a bias, but of a transposed convolution. */
static const Node *output_leaf(const Shrinking *s, const Layer *layer, int *dim) {
  *dim = strncmp(layer->block, "ConvTranspose", 13) == 0;
  size_t length = strlen(layer->path);
  for (int i = 0; i < s->shrink->leaves.count; i++) {
    const Node *leaf = s->shrink->leaves.at[i];
    const char *name = node_str(leaf, ATTR_NAME);
    bool is_own = strncmp(name, layer->path, length) == 0 && name[length] == '.' && !strchr(name + length + 1, '.');
    if (is_own && is_shrunk_leaf(leaf) && leaf->type.shape.rank > *dim && leaf->type.shape.dim[*dim] == layer->width)
      return leaf;
  }
  return NULL;
}

static bool has_width(const char *widths, const char *layer) {
  size_t length = strlen(layer);
  for (const char *at = widths; (at = strstr(at, layer)); at += length)
    if (at[length] == '=' && (at == widths || at[-1] == ' ' || at[-1] == ',')) return true;
  return false;
}

static int64_t new_width(const Shrinking *s, const Layer *layer) {
  int dim;
  const Node *leaf = layer->width ? output_leaf(s, layer, &dim) : NULL;
  return leaf ? shrink_kept(shrink_value(s->shrink, leaf), dim, layer->width) : layer->width;
}

/* One application of each layer. */
static bool is_first_layer(const Shrinking *s, int layer) {
  return lookup_find_text(&s->layers, s->program->layers.at[layer].path) == layer;
}

/* By layer: the width that it is to have; 0: its block has none, or it is applied again. */
static int64_t *find_widths(const Shrinking *s, bool *is_smaller) {
  int64_t *widths = ARENA_ARRAY(s->arena, int64_t, s->program->layers.count);
  *is_smaller = false;
  for (int i = 0; i < s->program->layers.count; i++) {
    const Layer *layer = &s->program->layers.at[i];
    if (!layer->width || !is_first_layer(s, i)) continue;
    widths[i] = new_width(s, layer);
    *is_smaller = *is_smaller || widths[i] < layer->width;
  }
  return widths;
}

static void write_widths(Shrinking *s, const int64_t *widths) {
  const char *before = setting_text(s->program->settings, "train.widths");
  s->widths = "";
  for (int i = 0; i < s->program->layers.count; i++) {
    const Layer *layer = &s->program->layers.at[i];
    if (widths[i] && (widths[i] < layer->width || has_width(before, layer->path)))
      s->widths = arena_printf(s->arena, "%s%s%s=%lld", s->widths, *s->widths ? " " : "", layer->path, (long long)widths[i]);
  }
}

/* ── the small program ──────────────────────────────────────────────────────────────────────── */
/* How many errors it has. is_aloud: they are told. */
static int build_small(Shrinking *s, const int64_t *widths, bool is_aloud) {
  FrontendOptions with = *s->input->frontend;
  const char **sets = ARENA_ARRAY(s->arena, const char *, with.set_count + 1);
  Diag quiet;
  write_widths(s, widths);
  for (int i = 0; i < with.set_count; i++) sets[i] = with.sets[i];
  sets[with.set_count++] = arena_printf(s->arena, "train.widths=%s", s->widths);
  with.sets = sets;
  diag_init(&quiet, s->arena, s->diag->out);
  quiet.is_quiet = true;
  bool fine = frontend_compile(s->arena, is_aloud ? s->diag : &quiet, s->input->path, &with, &s->small);
  return fine && !quiet.errors ? 0 : quiet.errors ? quiet.errors : 1;
}

static void tell_held(Shrinking *s, const char *layer, const char *why) {
  VEC_PUSH(s->arena, s->held, arena_printf(s->arena, "held %s %s", layer && *layer ? layer : "model", why));
}

/* Layers with whose new widths it does not compile keep theirs: those without which it has fewer errors. */
static bool hold_wrong(Shrinking *s, int64_t *widths, int errors) {
  for (int i = 0; i < s->program->layers.count && errors; i++) {
    const Layer *layer = &s->program->layers.at[i];
    int dim;
    int64_t width = widths[i];
    const Node *leaf = width && width < layer->width ? output_leaf(s, layer, &dim) : NULL;
    if (!leaf) continue;
    widths[i] = layer->width;
    int left = build_small(s, widths, false);
    if (left >= errors) {
      widths[i] = width;
      continue;
    }
    errors = left;
    shrink_keep_all(s->shrink, leaf, dim);
    tell_held(s, layer->path, arena_printf(s->arena, "with %lld outputs in place of %lld the program does not compile", (long long)width,
                                           (long long)layer->width));
  }
  if (!errors) return true;
  build_small(s, widths, true);
  return shrink_fail(s,
                     "%s does not compile with the widths that are left over, %s: the message above says where another width "
                     "is written; ftrun shrink --stay LAYER leaves a layer as it is",
                     s->input->path, s->widths);
}

static const char *node_place(const Shrinking *s, const Node *node) {
  Loc loc = node->origin.loc;
  return arena_printf(s->arena, "line %u of %s", loc.line, diag_path(s->diag, loc));
}

/* The program has another size there than is left over: all of it stays, and so does what is tied to it. */
static void hold_size(Shrinking *s, const ShrinkDifference *is) {
  const char *layer = is->node->origin.layer;
  int64_t size = is->node->type.shape.dim[is->dim];
  tell_held(s, layer, arena_printf(s->arena, "%s makes %lld of %lld there, where %lld are left over", node_place(s, is->node),
                                   (long long)is->size, (long long)size, (long long)is->kept));
  shrink_keep_all(s->shrink, is->node, is->dim);
}

static bool find_small(Shrinking *s) {
  for (int round = 0; round < MOST_ROUNDS; round++) {
    shrink_settle(s->shrink);
    int64_t *widths = find_widths(s, &s->is_smaller);
    if (!s->is_smaller) return true;
    int errors = build_small(s, widths, false);
    if (errors) {
      if (!hold_wrong(s, widths, errors)) return false;
      continue;
    }
    ShrinkDifference is = {0};
    for (int i = 0, index = 0; i < PROGRAM_GRAPHS && !is.node; i++)
      if (program_graph(s->program, i)) is = shrink_compare(s->shrink, index++, program_graph(&s->small, i));
    if (!is.node) return true;
    if (is.dim < 0)
      return shrink_fail(s,
                         "%s: what is computed there depends on a width by more than its shape, so the smaller network would be "
                         "another one; ftrun shrink --stay LAYER leaves a layer as it is",
                         node_place(s, is.node));
    hold_size(s, &is);
  }
  return shrink_fail(s, "no smaller widths go with the program");
}

/* ── output ─────────────────────────────────────────────────────────────────────────────────── */
static void print_kept(const Shrinking *s, const Node *leaf) {
  const ShrinkValue *value = shrink_value(s->shrink, leaf);
  fprintf(s->input->out, "tensor %s\n", node_str(leaf, ATTR_NAME));
  for (int d = 0; d < leaf->type.shape.rank; d++) {
    int64_t size = leaf->type.shape.dim[d];
    if (shrink_kept(value, d, size) == size) continue;
    fprintf(s->input->out, "keep %d", d);
    for (int64_t i = 0, end; i < size; i = end + 1) {
      for (end = i; end < size && value->keep[d][end];) end++;
      if (end > i) fprintf(s->input->out, end > i + 1 ? " %lld-%lld" : " %lld", (long long)i, (long long)end - 1);
    }
    fprintf(s->input->out, "\n");
  }
}

static int64_t program_flops(const Program *program) {
  int64_t flops = 0;
  for (int i = 0; i < program->layers.count; i++) flops += program->layers.at[i].flops;
  return flops;
}

static void print_shrunk(const Shrinking *s) {
  FILE *out = s->input->out;
  for (int i = 0; i < s->program->layers.count; i++) {
    const Layer *layer = &s->program->layers.at[i];
    if (is_first_layer(s, i) && new_width(s, layer) < layer->width)
      fprintf(out, "width %s %lld %lld\n", layer->path, (long long)layer->width, (long long)new_width(s, layer));
  }
  fprintf(out, "flops %lld %lld\n", (long long)program_flops(s->program), (long long)program_flops(&s->small));
  for (int i = 0; i < s->shrink->leaves.count; i++)
    if (is_shrunk_leaf(s->shrink->leaves.at[i])) print_kept(s, s->shrink->leaves.at[i]);
}

/* The file with the widths in it, and with what the command line says. */
static bool write_small(const Shrinking *s) {
  FrontendOptions with = *s->input->frontend;
  const char **sets = ARENA_ARRAY(s->arena, const char *, with.set_count + 1);
  int count = 0;
  for (int i = 0; i < with.set_count; i++)
    if (strncmp(with.sets[i], "train.widths=", 13) != 0) sets[count++] = with.sets[i];
  sets[count++] = arena_printf(s->arena, "train.widths=%s", s->widths);
  with.sets = sets;
  with.set_count = count;
  return apply_copy(s->arena, s->diag, s->program, &with, s->input->output);
}

bool ftc_shrink(const ShrinkInput *input, const Program *program, Diag *diag) {
  Graph *graphs[PROGRAM_GRAPHS];
  int count = 0;
  for (int i = 0; i < PROGRAM_GRAPHS; i++)
    if (program_graph(program, i)) graphs[count++] = program_graph(program, i);
  Shrinking s = {.input = input, .program = program, .diag = diag, .arena = program->arena};
  s.layers.arena = s.arena;
  s.shrink = shrink_new(s.arena, graphs, count);
  for (int i = 0; i < program->layers.count; i++) lookup_add_text(&s.layers, program->layers.at[i].path, i);
  bool fine = read_weights(&s);
  if (fine) shrink_spread_zeros(s.shrink);
  fine = fine && find_small(&s);
  if (fine && s.is_smaller) fine = write_small(&s);
  for (int i = 0; fine && i < s.held.count; i++) fprintf(input->out, "%s\n", s.held.at[i]);
  if (fine && s.is_smaller) print_shrunk(&s);
  return fine;
}
