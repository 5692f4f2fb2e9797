/* rearrange: rearrange(x, "b t (h d) -> b h t d", h=12): names the dimensions of x, grouped ones in
 * brackets, and gives them in their new order. A 1 is a dimension of size 1; a name on the right
 * alone, whose size is given, repeats. One reshape, one broadcast, one transpose, one reshape. */
#include "frontend/builder.h"
#include <ctype.h>
#include <string.h>

enum { MOST_NAMES = MAX_RANK, NAME_LENGTH = 32 };

typedef struct {
  char name[MOST_NAMES][NAME_LENGTH];
  int group[MOST_NAMES]; /* which dimension of the tensor the name is part of; -1: of none */
  int names, groups;
} Side;

Value rearrange_run(Call *call);

/* A name, or 1; *text goes behind it. */
static bool rearrange_name(Call *call, const char **text, const char *end, bool inside, Side *side) {
  const char *at = *text;
  size_t length = 0;
  while (at + length < end && (isalnum((unsigned char)at[length]) || at[length] == '_')) length++;
  bool is_one = length == 1 && *at == '1';
  if (!inside) side->groups++;
  *text += length;
  if (is_one) return true;
  if (length && isdigit((unsigned char)*at))
    return builder_fail(call->b, call->at[1],
                        "'%.*s' is no name: 1 stands for a dimension of size 1, and other sizes "
                        "are given to names, n=%.*s",
                        (int)length, at, (int)length, at);
  if (length == 0 || length >= NAME_LENGTH)
    return builder_fail(call->b, call->at[1], "unexpected '%c' in the pattern", *at);
  if (side->names == MOST_NAMES)
    return builder_fail(call->b, call->at[1], "a pattern has at most %d names", MOST_NAMES);
  side->group[side->names] = side->groups - !inside;
  memcpy(side->name[side->names++], at, length);
  return true;
}

static bool read_side(Call *call, const char *text, const char *end, Side *side) {
  bool inside = false;
  while (text < end) {
    if (isspace((unsigned char)*text)) {
      text++;
    } else if (*text == '(' && !inside) {
      inside = true;
      text++;
    } else if (*text == ')' && inside) {
      inside = false;
      side->groups++;
      text++;
    } else if (!rearrange_name(call, &text, end, inside, side)) {
      return false;
    }
    if (side->groups > MAX_RANK)
      return builder_fail(call->b, call->at[1], "a tensor has at most %d dimensions", MAX_RANK);
  }
  if (inside) return builder_fail(call->b, call->at[1], "a bracket of the pattern is not closed");
  return true;
}

static int find_name(const Side *side, const char *name) {
  for (int i = 0; i < side->names; i++)
    if (strcmp(side->name[i], name) == 0) return i;
  return -1;
}

/* `h=12`: is it given? They come as leftover keywords: see builtin_call. */
static bool has_size(const Call *call, const char *name) {
  const Value *sizes = &call->arg[2];
  for (int k = 0; sizes->kind == VALUE_TUPLE && k + 1 < sizes->count; k += 2)
    if (strcmp(sizes->items[k].s, name) == 0) return true;
  return false;
}

/* Both sides hold the same names, each once; but names of the right side whose sizes are given may
 * be new, and become names of the left side that are part of no dimension. */
static bool same_names(Call *call, Side *from, const Side *to) {
  for (int i = 0; i < from->names; i++)
    if (find_name(from, from->name[i]) != i || find_name(to, from->name[i]) < 0)
      return builder_fail(call->b, call->at[1], "'%s' must stand once on each side of the pattern",
                          from->name[i]);
  for (int i = 0; i < to->names; i++) {
    bool is_new = find_name(from, to->name[i]) < 0;
    if (find_name(to, to->name[i]) != i || (is_new && !has_size(call, to->name[i])))
      return builder_fail(call->b, call->at[1],
                          "'%s' must stand once on each side of the pattern%s", to->name[i],
                          is_new ? ", or its size be given, to repeat" : "");
    if (!is_new) continue;
    if (from->names == MOST_NAMES)
      return builder_fail(call->b, call->at[1], "a pattern has at most %d names", MOST_NAMES);
    from->group[from->names] = -1;
    memcpy(from->name[from->names++], to->name[i], sizeof to->name[i]);
  }
  return true;
}

/* The size of each name: given, or what its dimension leaves. */
static bool solve(Call *call, const Side *from, const Shape *shape, int64_t *size) {
  for (int d = 0; d < from->groups; d++) {
    int64_t known = 1;
    int open = -1;
    for (int i = 0; i < from->names; i++) {
      if (from->group[i] != d) continue;
      if (size[i] > 0) {
        if (known > shape->dim[d] / size[i] && shape->dim[d] > 0)
          known = shape->dim[d] + 1;
        else
          known *= size[i];
      } else if (open >= 0) {
        return builder_fail(call->b, call->at[1], "the size of '%s' or '%s' must be given: %s=...",
                            from->name[open], from->name[i], from->name[open]);
      } else {
        open = i;
      }
    }
    bool is_one = true;
    for (int i = 0; i < from->names; i++) is_one &= from->group[i] != d;
    if (is_one && shape->dim[d] != 1)
      return builder_fail(call->b, call->at[1],
                          "dimension %d has size %lld, and the pattern has a 1 there", d,
                          (long long)shape->dim[d]);
    if (shape->dim[d] % known != 0 || (open < 0 && known != shape->dim[d]))
      return builder_fail(call->b, call->at[1],
                          "dimension %d has size %lld, which the given sizes do not divide", d,
                          (long long)shape->dim[d]);
    if (open >= 0) size[open] = shape->dim[d] / known;
  }
  return true;
}

/* `h=12`: any name of the pattern. */
static bool read_sizes(Call *call, const Side *from, int64_t *size) {
  const Value *sizes = &call->arg[2];
  for (int k = 0; sizes->kind == VALUE_TUPLE && k + 1 < sizes->count; k += 2) {
    int i = find_name(from, sizes->items[k].s);
    if (i < 0)
      return builder_fail(call->b, call->at[2], "there is no '%s' in the pattern",
                          sizes->items[k].s);
    if (size[i])
      return builder_fail(call->b, call->at[2], "the size of '%s' is given twice",
                          sizes->items[k].s);
    if (!value_to_int(&sizes->items[k + 1], &size[i]) || size[i] < 1)
      return builder_fail(call->b, call->at[2], "the size of '%s' must be a positive integer",
                          sizes->items[k].s);
    size[i] = widths_size(call->b, sizes->items[k].s, size[i]);
  }
  return true;
}

/* x has a dimension for each name now. */
static void note_sizes(Call *call, const Side *from, const Node *x) {
  const Value *sizes = &call->arg[2];
  for (int k = 0; sizes->kind == VALUE_TUPLE && k + 1 < sizes->count; k += 2) {
    int i = find_name(from, sizes->items[k].s);
    GivenSize given = {.path = block_layer(call->b), .name = from->name[i], .node = x, .dim = i, .size = x->type.shape.dim[i], .rest = 1};
    if (from->group[i] < 0) continue;
    given.name = arena_strdup(call->b->arena, given.name);
    for (int d = 0; d < from->names; d++)
      if (d != i && from->group[d] == from->group[i]) given.rest *= x->type.shape.dim[d];
    VEC_PUSH(call->b->arena, call->b->program->sizes, given);
  }
}

Value rearrange_run(Call *call) {
  Builder *b = call->b;
  Node *x = builtin_tensor(call, 0);
  const Value *pattern = &call->arg[1];
  const char *arrow = pattern->kind == VALUE_STRING ? strstr(pattern->s, "->") : NULL;
  if (!x) return value_error();
  if (!arrow) {
    builder_fail(b, call->at[1], "rearrange() needs a pattern such as \"b t (h d) -> b h t d\"");
    return value_error();
  }
  Side from = {0}, to = {0};
  int64_t size[MOST_NAMES] = {0}, perm[MOST_NAMES];
  if (!read_side(call, pattern->s, arrow, &from) ||
      !read_side(call, arrow + 2, arrow + strlen(arrow), &to) || !same_names(call, &from, &to) ||
      !read_sizes(call, &from, size))
    return value_error();
  if (from.groups != x->type.shape.rank) {
    char text[TYPE_TEXT];
    builder_fail(b, call->at[1], "the pattern has %d dimensions, but the tensor is %s", from.groups,
                 type_text(&x->type, text));
    return value_error();
  }
  if (!solve(call, &from, &x->type.shape, size)) return value_error();
  Shape apart = {.rank = from.names}, whole = apart, together = {.rank = to.groups};
  for (int i = 0; i < from.names; i++) {
    whole.dim[i] = size[i];
    apart.dim[i] = from.group[i] < 0 ? 1 : size[i];
  }
  x = tensor_broadcast(b, tensor_reshape(b, x, apart, call->loc), whole, call->loc);
  if (!x) return value_error();
  note_sizes(call, &from, x);
  for (int d = 0; d < to.groups; d++) together.dim[d] = 1;
  for (int i = 0; i < to.names; i++) {
    perm[i] = find_name(&from, to.name[i]);
    together.dim[to.group[i]] *= size[perm[i]];
  }
  x = tensor_transpose(b, x, perm, call->loc);
  return value_tensor(tensor_reshape(b, x, together, call->loc));
}
