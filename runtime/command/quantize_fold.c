/* quantize_fold: factors of a layer's input that weights before it take in (frontend/folds.c says which can), so that nothing multiplies
 * the input at run time: those of a norm, or the rows of a layer. All layers that read the same features have the same factors then, by
 * the largest weights of all of them. Where one of these is not smoothed, the factors of each stay with its input. */
#include "base/say.h"
#include "runtime/command/quantize_private.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_READERS = 64 };

/* The next of the words; NULL: there are no more. */
static char *fold_word(char **at) { return strtok_r(NULL, " ", at); }

static QuantLayer *layer_of_weight(Quantizing *q, const char *name) {
  for (int i = 0; i < q->layers.count; i++)
    if (!strcmp(q->layers.at[i].weight_name, name)) return &q->layers.at[i];
  return NULL;
}

/* Why a weight cannot take in so many factors; NULL: it can. */
static const char *refuse_weight(const Quantizing *q, const FoldedWeight *weight) {
  const SafeTensor *tensor = safetensors_find(&q->weights.all, weight->name);
  bool fits = tensor && weight->axis >= 0 && weight->axis < tensor->shape.rank && tensor->shape.dim[weight->axis] == weight->features;
  return fits && element_converts(tensor->element, DT_F32) ? NULL : arena_printf(q->arena, "%s is no f32 weight of so many features", weight->name);
}

/* Reads "reader NAME ... weight NAME AXIS ..." of a layer; false: its factors stay with its input, and it says why. */
static bool read_fold(Quantizing *q, QuantLayer *layer, QuantLayer **readers, int *count) {
  char *at = layer->fold;
  *count = 0;
  for (char *kind = fold_word(&at), *name; kind; kind = fold_word(&at)) {
    if (!strcmp(kind, "none")) return layer->why = at, false;
    if (!(name = fold_word(&at))) break;
    if (!strcmp(kind, "reader")) {
      QuantLayer *reader = layer_of_weight(q, name);
      bool is_smoothed = reader && quantize_is_smoothed(q, reader) && reader->features == layer->features && *count < MOST_READERS;
      if (!is_smoothed) return layer->why = arena_printf(q->arena, "%s reads the same and is not smoothed", name), false;
      readers[(*count)++] = reader;
    } else {
      const char *axis = fold_word(&at);
      FoldedWeight weight = {name, axis ? (int)strtol(axis, NULL, 10) : -1, NULL, layer->features};
      if ((layer->why = refuse_weight(q, &weight))) return false;
      VEC_PUSH(q->arena, q->folded, weight);
    }
  }
  if (!*count) layer->why = "ftc says nothing of what is before it";
  return *count > 0;
}

void quantize_fold(Quantizing *q) {
  for (int i = 0; i < q->layers.count; i++) {
    QuantLayer *layer = &q->layers.at[i], *readers[MOST_READERS];
    int count, first = q->folded.count;
    if (!quantize_is_smoothed(q, layer) || layer->factor) continue;
    layer->why = q->options->keeps_factors ? "--keep-factors" : "ftc says nothing of what is before it";
    if (q->options->keeps_factors || !layer->fold) continue;
    if (!read_fold(q, layer, readers, &count)) {
      q->folded.count = first;
      continue;
    }
    quantize_smooth_layers(q, readers, count);
    for (int k = first; k < q->folded.count; k++) q->folded.at[k].factor = layer->factor;
  }
}

void quantize_fold_into(const Quantizing *q, const char *name, const Shape *shape, float *values) {
  for (int i = 0; i < q->folded.count; i++) {
    const FoldedWeight *of = &q->folded.at[i];
    if (strcmp(of->name, name) != 0) continue;
    int64_t inside = 1;
    for (int d = of->axis + 1; d < shape->rank; d++) inside *= shape->dim[d];
    for (int64_t k = 0; k < shape_elements(shape); k++) values[k] *= of->factor[k / inside % of->features];
  }
}

void quantize_fold_rows(Quantizing *q, QuantLayer *layer) {
  for (int i = 0; i < q->folded.count; i++) {
    const FoldedWeight *of = &q->folded.at[i];
    if (strcmp(of->name, layer->weight_name) != 0) continue;
    int64_t count = layer->rounding.rows * layer->rounding.columns;
    for (int64_t k = 0; k < count; k++) layer->weight[k] *= of->factor[k / layer->rounding.columns];
    layer->out = of->factor;
  }
}

/* ── what is said of it ─────────────────────────────────────────────────────────────────────── */
static void print_fold(const Quantizing *q, int first) {
  const float *factor = q->layers.at[first].factor;
  Text readers = {0}, weights = {0};
  for (int i = first; i < q->layers.count; i++)
    if (q->layers.at[i].factor == factor) text_printf(&readers, "%s%s", readers.count ? ", " : "", q->layers.at[i].path);
  for (int i = 0; i < q->folded.count; i++)
    if (q->folded.at[i].factor == factor) text_printf(&weights, "%s%s", weights.count ? ", " : "", q->folded.at[i].name);
  printf("smoothing: the factors of %s are in %s\n", text_cstr(&readers), text_cstr(&weights));
  text_free(&readers);
  text_free(&weights);
}

void quantize_print_folds(const Quantizing *q) {
  for (int i = 0; i < q->layers.count && !q->options->keeps_factors; i++) {
    const QuantLayer *layer = &q->layers.at[i];
    bool is_first = layer->factor != NULL;
    for (int k = 0; k < i; k++) is_first &= q->layers.at[k].factor != layer->factor;
    if (is_first && !layer->form.has_factor)
      print_fold(q, i);
    else if (is_first)
      printf("smoothing: the input of %s is multiplied by its factors: %s\n", layer->path, layer->why);
  }
}
