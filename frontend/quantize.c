/* quantize: `quantize = "fc*=w8a8 h.*.mlp.up=w4g32"`: layers that compute with rounded weights and inputs, in place of what the model
 * says: a Linear becomes a QuantLinear of the same name, arguments and parameters, a Conv2d a QuantConv2d. A layer is meant by its
 * path, a pattern as the shell has them; plan/quant_form.h says what forms there are. The scales of
 * the weights are states, as `ftrun quantize` writes them, and where they are 0 the largest weight says them. */
#include "frontend/builder.h"
#include <fnmatch.h>
#include <string.h>

static const char quantize_key[] = "train.quantize";

static const SettingValue *quantize_setting(const Builder *b) {
  return &b->program->settings[setting_find(quantize_key)];
}

static bool quantize_fail(Builder *b, const char *why, const char *word) {
  return builder_fail(b, quantize_setting(b)->loc, "quantize: %s: '%s'; write quantize = \"fc*=w8a8 block.*.up=w4g32\"", why, word);
}

bool quantize_read(Builder *b) {
  char *rest = NULL, *text = arena_strdup(b->arena, quantize_setting(b)->text);
  b->quantized.count = 0;
  for (char *word = strtok_r(text, " ,\t\n", &rest); word; word = strtok_r(NULL, " ,\t\n", &rest)) {
    char *equals = strchr(word, '=');
    QuantRule rule = {0};
    if (!equals || equals == word) return quantize_fail(b, "no layer with a form", word);
    rule.layer = arena_strndup(b->arena, word, (size_t)(equals - word));
    const char *wrong = quant_form_read(equals + 1, &rule.form);
    if (wrong) return quantize_fail(b, wrong, word);
    for (int i = 0; i < b->quantized.count; i++)
      if (strcmp(b->quantized.at[i].layer, rule.layer) == 0) return quantize_fail(b, "the layer is given twice", word);
    VEC_PUSH(b->arena, b->quantized, rule);
  }
  return true;
}

static bool is_standard_block(const Builder *b, const Ast *block, const char *name) { return block == call_definition(b, name); }

bool quantize_may(const Builder *b, const Ast *block) {
  return is_standard_block(b, block, "Linear") || is_standard_block(b, block, "Conv2d");
}

bool quantize_is_done(const Builder *b, const Ast *block) {
  return is_standard_block(b, block, "QuantLinear") || is_standard_block(b, block, "QuantConv2d");
}

static void add_quantised(Builder *b, Arguments *arguments, const char *name, Value value, Loc loc) {
  VEC_PUSH(b->arena, *arguments, ((Argument){value, loc, name}));
}

/* Layers within frozen(...) have ranges and scales only if their file has them, so the word says whose they are: teacher.*=w8a8. */
static bool means_frozen(Builder *b, const char *word) {
  const char *layer = block_path(b, b->frozen.layer);
  size_t length = strlen(layer);
  return length && !strncmp(word, layer, length) && (word[length] == '.' || !word[length]);
}

/* The last word that the path matches counts, as of rules for parameters. */
static QuantRule *find_rule(Builder *b, const char *path) {
  for (int i = b->quantized.count - 1; i >= 0; i--) {
    QuantRule *rule = &b->quantized.at[i];
    if (fnmatch(rule->layer, path, 0) == 0 && (!b->frozen.file || means_frozen(b, rule->layer))) return rule;
  }
  return NULL;
}

/* The quantised block has its arguments in another order, so all are given by name. */
bool quantize_apply(Builder *b, const Instance *instance, const Ast **block, Arguments *arguments) {
  if (!b->quantized.count) return true;
  bool is_done = quantize_is_done(b, *block);
  QuantRule *rule = is_done || quantize_may(b, *block) ? find_rule(b, block_path(b, instance)) : NULL;
  if (!rule) return true;
  const QuantForm *form = &rule->form;
  if (is_done && strpbrk(rule->layer, "*?[")) return true; /* the pattern is of others */
  if (is_done)
    return builder_fail(b, instance->loc, "quantize: '%s' is a %s already, with bits of its own; leave it out of \"%s\"",
                        block_path(b, instance), (*block)->name, rule->layer);
  bool is_linear = is_standard_block(b, *block, "Linear");
  if (form->group && !is_linear)
    return builder_fail(b, quantize_setting(b)->loc, "quantize: groups are for Linear, and '%s' is a Conv2d: leave out g%lld",
                        block_path(b, instance), (long long)form->group);
  if (form->is_dynamic && !is_linear)
    return builder_fail(b, quantize_setting(b)->loc, "quantize: d, inputs by the largest of each row, is for Linear and matrices, and '%s' is a Conv2d: give it a%d",
                        block_path(b, instance), form->input_bits);
  const Ast *list = (*block)->kid[0];
  for (int i = 0; i < arguments->count && i < list->count; i++)
    if (!arguments->at[i].name) arguments->at[i].name = list->kid[i]->name;
  Loc loc = instance->loc;
  add_quantised(b, arguments, "bits", value_int(form->bits), loc);
  add_quantised(b, arguments, "input_bits", form->input_bits ? value_int(form->input_bits) : value_none(), loc);
  add_quantised(b, arguments, "signed_input", value_bool(!form->is_unsigned), loc);
  if (form->group) add_quantised(b, arguments, "group", value_int(form->group), loc);
  if (form->is_dynamic) add_quantised(b, arguments, "dynamic", value_bool(true), loc);
  add_quantised(b, arguments, "per_tensor", value_bool(form->per_tensor), loc);
  add_quantised(b, arguments, "stored_scale", value_bool(true), loc);
  add_quantised(b, arguments, "input_factor", value_bool(form->has_factor), loc);
  *block = call_definition(b, is_linear ? "QuantLinear" : "QuantConv2d");
  rule->is_used = true;
  return true;
}

/* A parameter that is meant, and that no product and no embed outside of layers reads as it is. */
bool quantize_refuse_parameter(Builder *b, const Declared *of) {
  for (int i = 0; i < b->program->layers.count; i++) {
    const Layer *layer = &b->program->layers.at[i];
    size_t length = strlen(layer->path);
    bool is_layer = !strcmp(layer->block, "Linear") || !strcmp(layer->block, "Conv2d") || !strcmp(layer->block, "QuantLinear") || !strcmp(layer->block, "QuantConv2d");
    if (is_layer && length && !strncmp(of->name, layer->path, length) && !strcmp(of->name + length, ".weight"))
      return builder_fail(b, quantize_setting(b)->loc, "'%s' is the weight of a layer, which is meant by its own name: '%s'", of->name, layer->path);
  }
  return builder_fail(b, of->loc, "'%s' is no matrix that @ multiplies or embed looks rows up in, as it is, which is what can be rounded beside layers", of->name);
}

bool quantize_check(Builder *b) {
  VEC(const char *) names = {0};
  for (int i = 0; i < b->program->layers.count; i++) {
    const Layer *layer = &b->program->layers.at[i];
    if (!strcmp(layer->block, "Linear") || !strcmp(layer->block, "Conv2d")) VEC_PUSH(b->arena, names, layer->path);
  }
  for (int i = 0; i < b->quantized.count; i++) {
    const char *layer = b->quantized.at[i].layer;
    if (b->quantized.at[i].is_used) continue;
    for (int k = 0; k < names.count; k++)
      if (strcmp(names.at[k], layer) == 0)
        return builder_fail(b, quantize_setting(b)->loc,
                            "quantize: '%s' has no name of its own, by which it could be meant: give it one, Linear(..., name=\"...\")",
                            layer);
    for (int k = 0; k < b->declared.count; k++)
      if (quant_form_names(layer, b->declared.at[k].name)) return quantize_refuse_parameter(b, &b->declared.at[k]);
    return builder_fail(b, quantize_setting(b)->loc, "quantize: there is no Linear or Conv2d '%s' left%s", layer,
                        builder_hint(b, layer, names.at, names.count));
  }
  return true;
}
