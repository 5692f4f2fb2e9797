/* value: see value.h. */
#include "frontend/value.h"
#include "base/text.h"
#include <math.h>
#include <string.h>

static const char *const value_kind_text[VALUE_COUNT] = {
#define X(ID, text) text,
    VALUE_KINDS(X)
#undef X
};

bool value_to_int(const Value *v, int64_t *out) {
  if (v->kind == VALUE_INT)
    *out = v->i;
  else if (v->kind == VALUE_FLOAT && fabs(v->f) < 9e15 && v->f == floor(v->f))
    *out = (int64_t)v->f;
  else
    return false;
  return true;
}

bool value_equal(const Value *a, const Value *b) {
  if (value_is_number(a) && value_is_number(b)) {
    if (a->kind == VALUE_INT && b->kind == VALUE_INT) return a->i == b->i;
    return value_number(a) == value_number(b);
  }
  if (a->kind != b->kind) return false;
  switch (a->kind) {
  case VALUE_NONE:
  case VALUE_ABSENT:
    return true;
  case VALUE_BOOL:
    return a->i == b->i;
  case VALUE_STRING:
    return strcmp(a->s, b->s) == 0;
  case VALUE_LIST:
  case VALUE_TUPLE:
    if (a->count != b->count) return false;
    for (int i = 0; i < a->count; i++)
      if (!value_equal(&a->items[i], &b->items[i])) return false;
    return true;
  default:
    return a->node == b->node;
  }
}

const char *value_describe(Arena *arena, const Value *v) {
  char text[TYPE_TEXT];
  switch (v->kind) {
  case VALUE_TENSOR:
    return arena_printf(arena, "a tensor %s", type_text(&v->node->type, text));
  case VALUE_INT:
  case VALUE_FLOAT:
  case VALUE_BOOL:
    return value_text(arena, v);
  case VALUE_STRING:
    return strlen(v->s) < 40 ? arena_printf(arena, "the string \"%s\"", v->s) : "a string";
  case VALUE_LAYER:
    return "a layer, not yet applied to a tensor";
  default:
    return value_kind_text[v->kind];
  }
}

static void write(Text *out, const Value *v) {
  switch (v->kind) {
  case VALUE_INT:
    text_printf(out, "%lld", (long long)v->i);
    break;
  case VALUE_FLOAT:
    text_printf(out, "%.9g", v->f);
    break;
  case VALUE_BOOL:
    text_printf(out, "%s", v->i ? "true" : "false");
    break;
  case VALUE_STRING:
    text_printf(out, "%s", v->s);
    break;
  case VALUE_DURATION:
    text_printf(out, "%lld %ss", (long long)v->i, v->unit);
    break;
  case VALUE_LIST:
  case VALUE_TUPLE:
    text_printf(out, "%s", v->kind == VALUE_LIST ? "[" : "(");
    for (int i = 0; i < v->count; i++) {
      if (i) text_printf(out, ", ");
      if (out->count > 200) {
        text_printf(out, "…");
        break;
      }
      write(out, &v->items[i]);
    }
    text_printf(out, "%s", v->kind == VALUE_LIST ? "]" : ")");
    break;
  case VALUE_TENSOR: {
    char text[TYPE_TEXT];
    text_printf(out, "%s", type_text(&v->node->type, text));
    break;
  }
  default:
    text_printf(out, "%s", value_kind_text[v->kind]);
  }
}

char *value_text(Arena *arena, const Value *v) {
  Text text = {0};
  write(&text, v);
  char *copy = arena_strdup(arena, text_cstr(&text));
  text_free(&text);
  return copy;
}
