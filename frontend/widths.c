/* widths: `widths = "conv1=16 block.0.conv2=31"`: how many outputs layers have, in place of what the model says. A layer is
 * meant by its path, and has a width if its block has a parameter `out` (Linear, Conv2d …; blocks of the program too). `ftrun
 * shrink` writes this setting, since the rounds of a `repeat` cannot have widths of their own otherwise. */
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
    if (!end || *end || width.out < 1 || width.out > LIMIT_ELEMENTS)
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

/* One group for each channel stays so. */
void widths_apply(Builder *b, Instance *instance) {
  if (!b->widths.count || b->frozen.file) return;
  const char *path = block_path(b, instance);
  Value *out = block_width(instance, "out"), *groups = block_width(instance, "groups");
  for (int i = 0; out && i < b->widths.count; i++) {
    Width *width = &b->widths.at[i];
    if (strcmp(width->layer, path) != 0) continue;
    if (groups && groups->i > 1 && groups->i == out->i) groups->i = width->out;
    out->i = width->out;
    width->is_used = true;
  }
}

bool widths_check(Builder *b) {
  VEC(const char *) names = {0};
  for (int i = 0; i < b->program->layers.count; i++)
    if (b->program->layers.at[i].width) VEC_PUSH(b->arena, names, b->program->layers.at[i].path);
  for (int i = 0; i < b->widths.count; i++) {
    const char *layer = b->widths.at[i].layer;
    if (b->widths.at[i].is_used) continue;
    return builder_fail(b, widths_setting(b)->loc,
                        "widths: there is no layer '%s' whose block has a parameter `out`, as Linear and Conv2d have%s", layer,
                        builder_hint(b, layer, names.at, names.count));
  }
  return true;
}
