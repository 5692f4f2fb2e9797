/* widths: `widths = "conv1=16 block.0.conv2=31"`: how many outputs layers have, in place of what the model says. A layer is
 * meant by its path, and has a width if its block has a parameter `out` (Linear, Conv2d …; blocks of the program too). "attn:h=9" is
 * a size that rearrange is given in the layer, or a parameter of its block; "h.3=0" leaves out a round of a `repeat`. `ftrun shrink`
 * writes this setting, since the rounds of a `repeat` cannot have widths of their own otherwise. */
#include "frontend/builder.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char widths_key[] = "train.widths";

static const SettingValue *widths_setting(const Builder *b) {
  return &b->program->settings[setting_find(widths_key)];
}

static bool widths_fail(Builder *b, const char *why, const char *word) {
  return builder_fail(b, widths_setting(b)->loc, "widths: %s '%s'; write widths = \"conv1=16 block.0.fc=31\"", why, word);
}

bool widths_read(Builder *b) {
  char *rest = NULL, *text = arena_strdup(b->arena, widths_setting(b)->text);
  b->widths.count = 0;
  for (char *word = strtok_r(text, " ,\t\n", &rest); word; word = strtok_r(NULL, " ,\t\n", &rest)) {
    char *equals = strchr(word, '='), *end = NULL;
    if (!equals || equals == word) return widths_fail(b, "no layer with a width:", word);
    Width width = {.layer = arena_strndup(b->arena, word, (size_t)(equals - word))};
    if (isdigit((unsigned char)equals[1])) width.out = strtoll(equals + 1, &end, 10);
    bool has_name = strchr(width.layer, ':');
    if (!end || *end || width.out < has_name || width.out > LIMIT_ELEMENTS)
      return widths_fail(b, "a width is a whole number from 1:", word);
    for (int i = 0; i < b->widths.count; i++)
      if (strcmp(b->widths.at[i].layer, width.layer) == 0) return widths_fail(b, "given twice:", word);
    VEC_PUSH(b->arena, b->widths, width);
  }
  return true;
}

Value *block_width(Instance *instance, const char *name) {
  for (int i = 0; i < instance->config.count; i++) {
    Variable *v = &instance->config.at[i];
    if (strcmp(v->name, name) == 0) return v->value.kind == VALUE_INT ? &v->value : NULL;
  }
  return NULL;
}

/* "attn:h" of "attn": "h"; NULL: it is of another layer. */
static const char *name_in_layer(const Width *width, const char *path) {
  size_t length = strlen(path);
  return strncmp(width->layer, path, length) == 0 && width->layer[length] == ':' ? width->layer + length + 1 : NULL;
}

/* One group for each channel stays so. */
void widths_apply(Builder *b, Instance *instance) {
  if (!b->widths.count || b->frozen.file) return;
  const char *path = block_path(b, instance);
  Value *out = block_width(instance, "out"), *groups = block_width(instance, "groups");
  for (int i = 0; i < b->widths.count; i++) {
    Width *width = &b->widths.at[i];
    const char *name = name_in_layer(width, path);
    Value *named = name ? block_width(instance, name) : NULL;
    if (named) named->i = width->out;
    width->is_used |= named != NULL;
    if (!out || !width->out || strcmp(width->layer, path) != 0) continue;
    if (groups && groups->i > 1 && groups->i == out->i) groups->i = width->out;
    out->i = width->out;
    width->is_used = true;
  }
}

bool widths_leave_out(Builder *b) {
  bool is_out = false;
  for (int i = 0; i < b->widths.count && !b->frozen.file; i++) {
    Width *width = &b->widths.at[i];
    if (width->out || strcmp(width->layer, block_layer(b)) != 0) continue;
    is_out = width->is_used = true;
  }
  return is_out;
}

int64_t widths_size(Builder *b, const char *name, int64_t size) {
  for (int i = 0; i < b->widths.count && !b->frozen.file; i++) {
    Width *width = &b->widths.at[i];
    const char *meant = name_in_layer(width, block_layer(b));
    if (!meant || strcmp(meant, name) != 0) continue;
    width->is_used = true;
    return width->out;
  }
  return size;
}

bool widths_check(Builder *b) {
  VEC(const char *) names = {0};
  for (int i = 0; i < b->program->layers.count; i++)
    if (b->program->layers.at[i].width) VEC_PUSH(b->arena, names, b->program->layers.at[i].path);
  for (int i = 0; i < b->widths.count; i++) {
    const char *layer = b->widths.at[i].layer;
    if (b->widths.at[i].is_used) continue;
    if (!b->widths.at[i].out)
      return builder_fail(b, widths_setting(b)->loc, "widths: a width is a whole number from 1: '%s=0'; 0 is for a round of a `repeat`, and none is called so",
                          layer);
    if (strchr(layer, ':'))
      return builder_fail(b, widths_setting(b)->loc,
                          "widths: '%s' is neither a parameter of a layer's block nor a size that rearrange is given in it", layer);
    return builder_fail(b, widths_setting(b)->loc,
                        "widths: there is no layer '%s' whose block has a parameter `out`, as Linear and Conv2d have%s", layer,
                        builder_hint(b, layer, names.at, names.count));
  }
  return true;
}
