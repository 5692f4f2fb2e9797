/* shrink: see shrink.h. */
#include "runtime/command/shrink.h"
#include "base/arena.h"
#include "runtime/checkpoint/safetensors.h"
#include <stdlib.h>
#include <string.h>

/* ── where it is 0 ──────────────────────────────────────────────────────────────────────────── */
/* Every bit but the sign's, which is the last byte's highest. */
bool is_zero_element(const uint8_t *at, int bytes) {
  for (int i = 0; i < bytes - 1; i++)
    if (at[i]) return false;
  return (at[bytes - 1] & 0x7f) == 0;
}

/* zero[i]: all elements with index i along the dimension are 0. inside: elements from one index to the next. */
static void find_zeros(const SafeTensor *tensor, int dim, bool *zero) {
  int bytes = element_bytes(tensor->element);
  int64_t size = tensor->shape.dim[dim], inside = 1, all = shape_elements(&tensor->shape);
  for (int d = dim + 1; d < tensor->shape.rank; d++) inside *= tensor->shape.dim[d];
  for (int64_t i = 0; i < size; i++) zero[i] = true;
  for (int64_t at = 0; at < all; at++)
    if (zero[at / inside % size] && !is_zero_element(tensor->data + at * bytes, bytes)) zero[at / inside % size] = false;
}

static void print_zeros(const bool *zero, int64_t size, int dim, Text *out) {
  bool has_any = false;
  for (int64_t i = 0, end; i < size; i = end + 1) {
    for (end = i; end < size && zero[end];) end++;
    if (end == i) continue;
    if (!has_any) text_printf(out, "zero %d", dim);
    text_printf(out, end > i + 1 ? " %lld-%lld" : " %lld", (long long)i, (long long)end - 1);
    has_any = true;
  }
  if (has_any) text_printf(out, "\n");
}

void shrink_zeros(const WeightFiles *weights, Text *out) {
  for (int i = 0; i < weights->all.tensor_count; i++) {
    const SafeTensor *tensor = &weights->all.tensor[i];
    if (strpbrk(tensor->name, " \n")) continue; /* no layer is called so */
    text_printf(out, "tensor %s", tensor->name);
    for (int d = 0; d < tensor->shape.rank; d++) text_printf(out, " %lld", (long long)tensor->shape.dim[d]);
    text_printf(out, "\n");
    if (!element_converts(tensor->element, DT_F32)) continue;
    for (int d = 0; d < tensor->shape.rank && shape_elements(&tensor->shape) > 0; d++) {
      bool *zero = calloc((size_t)tensor->shape.dim[d], sizeof *zero);
      if (!zero) continue; /* then less goes */
      find_zeros(tensor, d, zero);
      print_zeros(zero, tensor->shape.dim[d], d, out);
      free(zero);
    }
  }
}

/* ── what is left ───────────────────────────────────────────────────────────────────────────── */
typedef struct {
  const SafeTensor *from;
  SafeTensor to;
  int64_t *index[MAX_RANK]; /* by dimension: which stay; NULL: all */
} Shrunk;
typedef struct {
  VEC(Shrunk) of;
  int64_t gone; /* elements of tensors that are not there any more */
} ShrunkList;

static int64_t elements_left(const Shrunk *x) {
  int64_t count = 1;
  for (int d = 0; d < x->from->shape.rank; d++) count *= x->to.shape.dim[d];
  return count;
}

static void copy_left(Shrunk *x, uint8_t *out) {
  int bytes = element_bytes(x->from->element), rank = x->from->shape.rank;
  int64_t count = elements_left(x);
  for (int64_t at = 0; at < count; at++) {
    int64_t rest = at, from = 0, stride = 1;
    for (int d = rank - 1; d >= 0; rest /= x->to.shape.dim[d], stride *= x->from->shape.dim[d], d--) {
      int64_t i = rest % x->to.shape.dim[d];
      from += (x->index[d] ? x->index[d][i] : i) * stride;
    }
    memcpy(out + at * bytes, x->from->data + from * bytes, (size_t)bytes);
  }
}

static void read_kept(Arena *arena, Shrunk *x, char *words) {
  char *word = strtok_r(NULL, " ", &words), *end;
  int dim = word ? atoi(word) : -1;
  if (!x || dim < 0 || dim >= x->from->shape.rank) return;
  int64_t count = 0, size = x->from->shape.dim[dim];
  x->index[dim] = ARENA_ARRAY(arena, int64_t, size);
  while ((word = strtok_r(NULL, " ", &words))) {
    int64_t first = strtoll(word, &end, 10), last = *end == '-' ? strtoll(end + 1, NULL, 10) : first;
    for (int64_t i = first; i >= 0 && i <= last && i < size && count < size; i++) x->index[dim][count++] = i;
  }
  x->to.shape.dim[dim] = count;
}

static Status read_answer(Arena *arena, const WeightFiles *weights, const char *answer, ShrunkList *list) {
  char *rest = NULL, *text = arena_strdup(arena, answer);
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    char *words = NULL, *kind = strtok_r(line, " ", &words);
    if (kind && strcmp(kind, "keep") == 0) read_kept(arena, list->of.count ? &list->of.at[list->of.count - 1] : NULL, words);
    bool is_gone = kind && strcmp(kind, "gone") == 0;
    if (!kind || (!is_gone && strcmp(kind, "tensor") != 0)) continue;
    char *name = strtok_r(NULL, " ", &words);
    const SafeTensor *from = name ? safetensors_find(&weights->all, name) : NULL;
    if (!from) return status_fail(STATUS_USER, "%s has no tensor '%s'", weights->named, name ? name : "");
    if (is_gone)
      list->gone += shape_elements(&from->shape);
    else
      VEC_PUSH(arena, list->of, ((Shrunk){.from = from, .to = *from}));
  }
  return STATUS_OK;
}

Status shrink_weights(const WeightFiles *weights, const char *answer, const char *output, ShrinkCount *count) {
  static const SafeText format = {"format", "pt"};
  Arena *arena = arena_new();
  ShrunkList list = {0};
  Status status = read_answer(arena, weights, answer, &list);
  SafeTensor *tensors = ARENA_ARRAY(arena, SafeTensor, list.of.count);
  *count = (ShrinkCount){.before = list.gone};
  for (int i = 0; i < list.of.count && status == STATUS_OK; i++) {
    Shrunk *x = &list.of.at[i];
    x->to.bytes = (size_t)elements_left(x) * (size_t)element_bytes(x->from->element);
    uint8_t *data = ARENA_ARRAY(arena, uint8_t, x->to.bytes);
    copy_left(x, data);
    x->to.data = data;
    tensors[i] = x->to;
    count->before += shape_elements(&x->from->shape);
    count->after += elements_left(x);
  }
  if (status == STATUS_OK) status = safetensors_write(output, tensors, list.of.count, &format, 1, false);
  arena_free(arena);
  return status;
}
