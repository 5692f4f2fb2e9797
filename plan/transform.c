/* transform: see transform.h. */
#include "plan/transform.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define COUNT(...) ((int)(sizeof(double[]){__VA_ARGS__} / sizeof(double)))
#define NEEDED(name, type, low, high) {#name, PARAMETER_##type, low, high, true, {0}, NULL},
#define OPTION(name, type, low, high, ...)                                                         \
  {#name, PARAMETER_##type, low, high, false, {COUNT(__VA_ARGS__), {__VA_ARGS__}}, NULL},
#define CHOICE(name, words, otherwise)                                                             \
  {#name, PARAMETER_WORD, 0, 1000, false, {1, {otherwise}}, words},
const TransformKind transform_kinds[] = {
#define TRANSFORM(name, where, parameters) {#name, TRANSFORM_##where, {parameters}},
#include "plan/transforms.def"
#undef TRANSFORM
};
const int transform_kind_count = sizeof transform_kinds / sizeof *transform_kinds;

const TransformKind *transform_find(const char *name) {
  for (int i = 0; i < transform_kind_count; i++)
    if (!strcmp(transform_kinds[i].name, name)) return &transform_kinds[i];
  return NULL;
}

const Transform *transform_of_step(const Transform *chain, int count) {
  return count && chain[count - 1].kind->where == TRANSFORM_STEP ? &chain[count - 1] : NULL;
}

bool transform_is_same(const Transform *a, const Transform *b) {
  bool same = a->kind == b->kind;
  for (int i = 0; i < TRANSFORM_PARAMETERS; i++) {
    same = same && a->argument[i].count == b->argument[i].count;
    for (int j = 0; same && j < a->argument[i].count; j++)
      same = a->argument[i].number[j] == b->argument[i].number[j];
  }
  return same;
}

int transform_parameter_count(const TransformKind *kind) {
  int count = 0;
  while (count < TRANSFORM_PARAMETERS && kind->parameter[count].name) count++;
  return count;
}

const TransformArgument *transform_argument(const Transform *transform, const char *parameter) {
  int i = 0;
  while (strcmp(transform->kind->parameter[i].name, parameter) != 0) i++;
  return &transform->argument[i];
}

const char *transform_word(const char *words, int which, int *length) {
  for (int i = 0; *words; i++) {
    *length = (int)strcspn(words, " ");
    if (i == which) return words;
    words += *length + (words[*length] == ' ');
  }
  return NULL;
}

int transform_which(const char *words, const char *word, size_t length) {
  int count;
  const char *at;
  for (int i = 0; (at = transform_word(words, i, &count)) != NULL; i++)
    if ((size_t)count == length && !memcmp(at, word, length)) return i;
  return -1;
}

static bool is_taken(const TransformParameter *parameter, const TransformArgument *argument) {
  static const int least[] = {1, 1, 1, 1, 2, 1, 1}, most[] = {2, 1, 1, 1, 2, 3, 1};
  ParameterType type = parameter->type;
  int count = argument->count, length;
  if (count < least[type] || count > most[type]) return false;
  if (type == PARAMETER_CHANNELS && count == 2) return false;
  for (int i = 0; i < count; i++) {
    double x = argument->number[i];
    bool is_whole = type == PARAMETER_SIZE || type == PARAMETER_WHOLE || type == PARAMETER_WORD;
    if (!(x >= parameter->low && x <= parameter->high) || (is_whole && x != floor(x))) return false;
    if (type == PARAMETER_ODD && fmod(x, 2) != 1) return false;
  }
  if (type == PARAMETER_RANGE) return argument->number[0] <= argument->number[1];
  if (type == PARAMETER_WORD)
    return transform_word(parameter->words, (int)argument->number[0], &length) != NULL;
  return true;
}

const char *transform_check(const TransformParameter *parameter, const TransformArgument *argument,
                            char buffer[96]) {
  static const char *const takes[] = {[PARAMETER_SIZE] = "a whole number or (height, width),",
                                      [PARAMETER_WHOLE] = "a whole number",
                                      [PARAMETER_ODD] = "an odd number",
                                      [PARAMETER_NUMBER] = "a number",
                                      [PARAMETER_RANGE] = "(low, high), both",
                                      [PARAMETER_CHANNELS] =
                                          "a number for all channels or one for each of 3,"};
  if (is_taken(parameter, argument)) return NULL;
  if (parameter->type == PARAMETER_WORD)
    snprintf(buffer, 96, "one of these words: %.60s", parameter->words);
  else
    snprintf(buffer, 96, "%s from %g to %g", takes[parameter->type], parameter->low,
             parameter->high);
  return buffer;
}

static void transform_print_argument(const TransformParameter *parameter,
                                     const TransformArgument *argument, Text *out) {
  text_printf(out, "%s=%s", parameter->name, argument->count > 1 ? "(" : "");
  int length;
  const char *word =
      parameter->words ? transform_word(parameter->words, (int)argument->number[0], &length) : NULL;
  if (word) text_printf(out, "%.*s", length, word);
  for (int i = 0; !word && i < argument->count; i++)
    text_printf(out, "%s%.6g", i ? ", " : "", argument->number[i]);
  if (argument->count > 1) text_printf(out, ")");
}

void transform_print(const Transform *chain, int count, Text *out) {
  for (int i = 0; i < count; i++) {
    const TransformKind *kind = chain[i].kind;
    text_printf(out, " | %s(", kind->name);
    for (int j = 0; j < transform_parameter_count(kind); j++) {
      if (j) text_printf(out, ", ");
      transform_print_argument(&kind->parameter[j], &chain[i].argument[j], out);
    }
    text_printf(out, ")");
  }
}

static bool is_channels(int64_t count) { return count == 1 || count == 3; }

bool image_layout(const Shape *sample, ImageLayout *out) {
  const int64_t *dim = sample->dim;
  if (sample->rank == 2)
    *out = (ImageLayout){1, dim[0], dim[1], true};
  else if (sample->rank == 3 && is_channels(dim[0]))
    *out = (ImageLayout){dim[0], dim[1], dim[2], true};
  else if (sample->rank == 3 && is_channels(dim[2]))
    *out = (ImageLayout){dim[2], dim[0], dim[1], false};
  else
    return false;
  return out->height > 0 && out->width > 0;
}
