/* ftc_shrink: see ftc_shrink.h. What it reads are lines of
 *
 *   tensor NAME SIZE..      a tensor of the weights, and behind it
 *   zero DIM INDEX..        where it is 0 along a dimension; 3-7 are five of them
 *   stay LAYER              keeps its width, as do those in it
 *
 * and what it prints are lines of
 *
 *   width LAYER OLD NEW     or LAYER:NAME, of a size that rearrange is given in the layer, as heads
 *   round LAYER             of a repeat, left out whole
 *   held LAYER WHY          something could go by the weights, but not by the program
 *   rounded LAYER           one, if there are any, that computes with rounded weights
 *   prune HOW               what the small program's recipe says
 *   flops OLD NEW           of forward, of a batch
 *   gone NAME               a parameter or state of a round that is left out
 *   tensor NAME             a parameter or state of the program, and behind it, of each dimension that is shorter now,
 *   keep DIM INDEX..        what is left of it
 */
#include "tools/ftc_shrink.h"
#include "frontend/apply.h"
#include "passes/shrink.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_ROUNDS = 500 };

/* A size that is given by name. The same one may be given several times in a layer. */
typedef struct {
  const GivenSize *given;
  int64_t kept;
  bool stays;
} ShrunkSize;

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
  VEC(const char *) stay;                    /* layers that the user wants as they are */
  VEC(const char *) rounds;                  /* that are left out */
  VEC(ShrunkSize) sizes;
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
  VEC_PUSH(s->arena, s->stay, arena_strdup(s->arena, layer));
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

/* ── rounds of a repeat ─────────────────────────────────────────────────────────────────────── */
static bool must_stay(const Shrinking *s, const char *path) {
  for (int i = 0; i < s->stay.count; i++)
    if (is_in_layer(path, s->stay.at[i]) || is_in_layer(s->stay.at[i], path)) return true;
  return false;
}

static bool is_left_out(const Shrinking *s, const char *path) {
  for (int i = 0; i < s->rounds.count; i++)
    if (is_in_layer(path, s->rounds.at[i])) return true;
  return false;
}

/* Every graph of the program has the round of that path, once. */
static const RepeatRound *find_round(const Shrinking *s, const char *path, int graph) {
  const RepeatRound *found = NULL;
  for (int i = 0; i < s->program->rounds.count; i++) {
    const RepeatRound *round = &s->program->rounds.at[i];
    if (round->graph != s->shrink->graphs.at[graph] || strcmp(round->path, path) != 0) continue;
    if (found) return NULL;
    found = round;
  }
  return found;
}

static void leave_out_round(Shrinking *s, const char *path) {
  if (must_stay(s, path) || is_left_out(s, path)) return;
  for (int pass = 0; pass < 2; pass++)
    for (int g = 0; g < s->shrink->graphs.count; g++) {
      const RepeatRound *round = find_round(s, path, g);
      if (!round || (!pass && !shrink_can_leave_out(s->shrink, g, round->begin, round->end))) return;
      if (pass) shrink_leave_out(s->shrink, g, round->begin, round->end);
    }
  VEC_PUSH(s->arena, s->rounds, path);
}

/* Outer rounds are noted behind those in them, and take these with them. */
static void find_rounds(Shrinking *s) {
  shrink_find_same(s->shrink);
  for (int i = s->program->rounds.count - 1; i >= 0; i--) leave_out_round(s, s->program->rounds.at[i].path);
}

/* ── sizes ──────────────────────────────────────────────────────────────────────────────────── */
static bool is_same_size(const GivenSize *a, const GivenSize *b) {
  return strcmp(a->path, b->path) == 0 && strcmp(a->name, b->name) == 0;
}

/* Where what is left of a size is not the same everywhere in the layer, it stays. */
static bool find_given_sizes(Shrinking *s) {
  bool is_smaller = false;
  for (int i = 0; i < s->sizes.count; i++) s->sizes.at[i].kept = 0;
  for (int i = 0; i < s->program->sizes.count; i++) {
    const GivenSize *given = &s->program->sizes.at[i];
    const ShrinkValue *value = shrink_value(s->shrink, given->node);
    if (!value || shrink_is_gone(s->shrink, given->node) || is_left_out(s, given->path)) continue;
    int at = 0;
    while (at < s->sizes.count && !is_same_size(s->sizes.at[at].given, given)) at++;
    if (at == s->sizes.count) VEC_PUSH(s->arena, s->sizes, (ShrunkSize){.given = given});
    ShrunkSize *size = &s->sizes.at[at];
    int64_t kept = shrink_kept(value, given->dim, given->size);
    size->stays = size->stays || given->size != size->given->size || (size->kept && size->kept != kept);
    size->kept = size->stays ? size->given->size : kept;
  }
  for (int i = 0; i < s->sizes.count; i++) is_smaller |= s->sizes.at[i].kept < s->sizes.at[i].given->size;
  return is_smaller;
}

/* Does the layer's block say it by parameters, `heads` and `head_size`? */
static bool is_in_block(const Shrinking *s, const GivenSize *given) {
  for (int i = 0; i < s->program->layers.count; i++) {
    const Layer *layer = &s->program->layers.at[i];
    if (layer->heads && layer->heads == given->size && strcmp(layer->path, given->path) == 0) return true;
  }
  return false;
}

/* ── widths ─────────────────────────────────────────────────────────────────────────────────── */
/* The parameter that has the outputs of a layer along *dim: a vector as its bias, or dimension 0, but of a transposed convolution. */
static const Node *output_leaf(const Shrinking *s, const Layer *layer, int *dim) {
  size_t length = strlen(layer->path);
  int count = s->shrink->leaves.count;
  for (int k = 0; k < 2 * count; k++) {
    int i = k % count;
    bool is_vector = s->shrink->leaves.at[i]->type.shape.rank == 1;
    if (is_vector != (k < count)) continue;
    *dim = !is_vector && strncmp(layer->block, "ConvTranspose", 13) == 0;
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
    if (!layer->width || !is_first_layer(s, i) || is_left_out(s, layer->path)) continue;
    widths[i] = new_width(s, layer);
    *is_smaller = *is_smaller || widths[i] < layer->width;
  }
  return widths;
}

static void add_width(Shrinking *s, const char *layer, int64_t width) {
  if (!has_width(s->widths, layer))
    s->widths = arena_printf(s->arena, "%s%s%s=%lld", s->widths, *s->widths ? " " : "", layer, (long long)width);
}

static void write_sizes(Shrinking *s) {
  for (int i = 0; i < s->sizes.count; i++) {
    const ShrunkSize *size = &s->sizes.at[i];
    const char *path = size->given->path;
    if (size->kept >= size->given->size) continue;
    if (is_in_block(s, size->given)) {
      add_width(s, arena_printf(s->arena, "%s:heads", path), size->kept);
      add_width(s, arena_printf(s->arena, "%s:head_size", path), size->given->rest);
    } else {
      add_width(s, arena_printf(s->arena, "%s:%s", path, size->given->name), size->kept);
    }
  }
}

/* What an earlier shrink has said of rounds and sizes. */
static void write_earlier(Shrinking *s, const char *before) {
  char *rest = NULL, *text = arena_strdup(s->arena, before);
  for (char *word = strtok_r(text, " ,\t\n", &rest); word; word = strtok_r(NULL, " ,\t\n", &rest)) {
    char *equals = strchr(word, '=');
    *equals = 0;
    char *colon = strchr(word, ':');
    const char *path = colon ? arena_strndup(s->arena, word, (size_t)(colon - word)) : word;
    int64_t width = strtoll(equals + 1, NULL, 10);
    if ((!width || colon) && !is_left_out(s, path)) add_width(s, word, width);
  }
}

static void write_widths(Shrinking *s, const int64_t *widths) {
  const char *before = setting_text(s->program->settings, "train.widths");
  s->widths = "";
  write_sizes(s);
  write_earlier(s, before);
  for (int i = 0; i < s->rounds.count; i++) add_width(s, s->rounds.at[i], 0);
  for (int i = 0; i < s->program->layers.count; i++) {
    const Layer *layer = &s->program->layers.at[i];
    if (widths[i] && (widths[i] < layer->width || has_width(before, layer->path))) add_width(s, layer->path, widths[i]);
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

/* Where weights share a scale, which is that of the largest, a channel that goes might change it: so it stays. */
static const char *rounded_layer(const Program *program) {
  for (int i = 0; i < program->layers.count; i++)
    if (strncmp(program->layers.at[i].block, "Quant", 5) == 0) return program->layers.at[i].path;
  return NULL;
}

/* Layers with whose new widths it does not compile keep theirs: those without which it has fewer errors. */
static bool hold_wrong(Shrinking *s, int64_t *widths, int errors) {
  for (int i = 0; i < s->sizes.count && errors; i++) {
    ShrunkSize *size = &s->sizes.at[i];
    int64_t kept = size->kept;
    if (kept >= size->given->size) continue;
    size->kept = size->given->size;
    int left = build_small(s, widths, false);
    if (left >= errors) {
      size->kept = kept;
      continue;
    }
    errors = left;
    size->stays = true;
    shrink_keep_all(s->shrink, size->given->node, size->given->dim);
    tell_held(s, size->given->path, arena_printf(s->arena, "with %s=%lld in place of %lld the program does not compile", size->given->name,
                                                 (long long)kept, (long long)size->given->size));
  }
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
  if (rounded_layer(s->program))
    return shrink_fail(s, "%s does not compile with the widths that are left over, %s, and has layers that are rounded: shrink the network first, then quantise it",
                       s->input->path, s->widths);
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

/* The program without the rounds is another one: they stay. */
static bool hold_rounds(Shrinking *s) {
  for (int i = 0; i < s->rounds.count; i++)
    tell_held(s, s->rounds.at[i], "it adds 0, but the program without this round computes something else besides");
  bool had_any = s->rounds.count > 0;
  s->rounds.count = 0;
  shrink_leave_nothing_out(s->shrink);
  return had_any;
}

/* With sizes that are given otherwise it is another one. */
static bool hold_sizes(Shrinking *s) {
  bool had_any = false;
  for (int i = 0; i < s->sizes.count; i++) {
    ShrunkSize *size = &s->sizes.at[i];
    if (size->kept >= size->given->size) continue;
    had_any = size->stays = true;
    shrink_keep_all(s->shrink, size->given->node, size->given->dim);
    tell_held(s, size->given->path, arena_printf(s->arena, "with %s=%lld in place of %lld the program computes something else besides",
                                                 size->given->name, (long long)size->kept, (long long)size->given->size));
  }
  return had_any;
}

static bool find_small(Shrinking *s) {
  find_rounds(s);
  for (int round = 0; round < MOST_ROUNDS; round++) {
    shrink_settle(s->shrink);
    int64_t *widths = find_widths(s, &s->is_smaller);
    s->is_smaller |= find_given_sizes(s);
    s->is_smaller |= s->rounds.count > 0;
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
    if (is.dim < 0 && (hold_rounds(s) || hold_sizes(s))) continue;
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
    if (is_first_layer(s, i) && !is_left_out(s, layer->path) && new_width(s, layer) < layer->width)
      fprintf(out, "width %s %lld %lld\n", layer->path, (long long)layer->width, (long long)new_width(s, layer));
  }
  for (int i = 0; i < s->sizes.count; i++) {
    const ShrunkSize *size = &s->sizes.at[i];
    if (size->kept < size->given->size)
      fprintf(out, "width %s:%s %lld %lld\n", size->given->path, size->given->name, (long long)size->given->size, (long long)size->kept);
  }
  for (int i = s->rounds.count - 1; i >= 0; i--) fprintf(out, "round %s\n", s->rounds.at[i]);
  const char *prune = setting_text(s->small.settings, "train.prune");
  if (strcmp(prune, "none") && strcmp(prune, "zeros")) fprintf(out, "prune %s\n", prune);
  fprintf(out, "flops %lld %lld\n", (long long)program_flops(s->program), (long long)program_flops(&s->small));
  for (int i = 0; i < s->shrink->leaves.count; i++) {
    const Node *leaf = s->shrink->leaves.at[i];
    if (!is_shrunk_leaf(leaf)) continue;
    if (shrink_is_gone(s->shrink, leaf))
      fprintf(out, "gone %s\n", node_str(leaf, ATTR_NAME));
    else
      print_kept(s, leaf);
  }
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
  const char *rounded = rounded_layer(program);
  if (fine && rounded) fprintf(input->out, "rounded %s\n", *rounded ? rounded : "model");
  if (fine && s.is_smaller) print_shrunk(&s);
  return fine;
}
