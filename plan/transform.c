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
#define LENGTHS(name) {#name, PARAMETER_LENGTHS, 1, 1 << 24, false, {0}, NULL},
const TransformKind transform_kinds[] = {
#define TRANSFORM(name, where, parameters) {#name, TRANSFORM_##where, {parameters}},
#include "plan/transforms.def"
#undef TRANSFORM
};
const int transform_kind_count = sizeof transform_kinds / sizeof *transform_kinds;

static const TransformKind *find_transform(const char *name, bool is_text) {
  for (int i = 0; i < transform_kind_count; i++)
    if (!strcmp(transform_kinds[i].name, name) &&
        (transform_kinds[i].where == TRANSFORM_TEXT) == is_text)
      return &transform_kinds[i];
  return NULL;
}

const TransformKind *transform_find(const char *name) { return find_transform(name, false); }

const TransformKind *transform_find_text(const char *name) { return find_transform(name, true); }

static bool is_loaded(const TransformKind *kind) {
  return kind->where == TRANSFORM_WORKER || kind->where == TRANSFORM_RANDOM;
}

int transform_loaded(const Transform *chain, int count) {
  int loaded = 0;
  while (loaded < count && is_loaded(chain[loaded].kind)) loaded++;
  return loaded;
}

const Transform *transform_in(const Transform *chain, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (!strcmp(chain[i].kind->name, name)) return &chain[i];
  return NULL;
}

static bool is_mixing(const TransformKind *kind) {
  return !strcmp(kind->name, "mixup") || !strcmp(kind->name, "cutmix") ||
         !strcmp(kind->name, "mixup_or_cutmix");
}

const Transform *transform_mixing(const Transform *chain, int count) {
  for (int i = 0; i < count; i++)
    if (is_mixing(chain[i].kind)) return &chain[i];
  return NULL;
}

const char *transform_check_chain(const Transform *chain, int count, char buffer[160]) {
  const TransformKind *last = chain[count - 1].kind;
  int before = count - 1, loaded = transform_loaded(chain, before);
  const Transform *mixing = transform_mixing(chain, before);
  *buffer = 0;
  if (loaded < before && is_loaded(last))
    snprintf(buffer, 160, "%s stands behind %s, which is computed in the step, where there are no pixels any more",
             last->name, chain[loaded].kind->name);
  else if (is_loaded(last))
    return NULL;
  else if (is_mixing(last) && mixing)
    snprintf(buffer, 160, "%s stands behind %s: a batch is mixed once; mixup_or_cutmix does either",
             last->name, mixing->kind->name);
  else if (!is_mixing(last) && transform_in(chain, before, last->name))
    snprintf(buffer, 160, "%s is there twice", last->name);
  else if (!strcmp(last->name, "noise") && transform_in(chain, before, "normalize"))
    snprintf(buffer, 160, "noise stands in front of normalize: it is added to pixels of 0 to 1");
  else if (!strcmp(last->name, "normalize") && mixing)
    snprintf(buffer, 160, "normalize stands in front of %s, which mixes what it makes",
             mixing->kind->name);
  return *buffer ? buffer : NULL;
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

/* How many numbers each type has, as bits, and what it takes. */
static const struct {
  unsigned counts;
  bool is_whole, is_range;
  const char *takes;
} types[] = {
    [PARAMETER_SIZE] = {1u << 1 | 1u << 2, true, false, "a whole number or (height, width),"},
    [PARAMETER_WHOLE] = {1u << 1, true, false, "a whole number"},
    [PARAMETER_ODD] = {1u << 1, true, false, "an odd number"},
    [PARAMETER_FLAG] = {1u << 1, true, false, NULL},
    [PARAMETER_NUMBER] = {1u << 1, false, false, "a number"},
    [PARAMETER_RANGE] = {1u << 2, false, true, "(low, high), both"},
    [PARAMETER_SPREAD] = {1u << 1 | 1u << 2, false, true,
                          "a number of at least 0, or (low, high),"},
    [PARAMETER_PAIR] = {1u << 2, false, false, "two numbers"},
    [PARAMETER_SHEAR] = {1u << 1 | 1u << 2 | 1u << 4, false, true,
                         "a number of at least 0, (low, high) or two of these,"},
    [PARAMETER_PADDING] = {1u << 1 | 1u << 2 | 1u << 4, true, false, "1, 2 or 4 whole numbers"},
    [PARAMETER_COLOUR] = {1u << 1 | 1u << 3, true, false,
                          "a whole number for all channels or one for each of 3,"},
    [PARAMETER_CHANNELS] = {1u << 1 | 1u << 3, false, false,
                            "a number for all channels or one for each of 3,"},
    [PARAMETER_LENGTHS] = {~0u << 2, true, false,
                           "two to eight lengths, each longer than the one before,"},
    [PARAMETER_WORD] = {1u << 1, true, false, NULL}};

static bool is_taken(const TransformParameter *parameter, const TransformArgument *argument) {
  ParameterType type = parameter->type;
  const double *number = argument->number;
  int count = argument->count, length;
  if (type == PARAMETER_LENGTHS && !count) return true;
  if (count < 1 || count > TRANSFORM_NUMBERS || !(types[type].counts >> count & 1)) return false;
  for (int i = 0; i < count; i++) {
    double x = number[i];
    if (!(x >= parameter->low && x <= parameter->high)) return false;
    if (types[type].is_whole && x != floor(x)) return false;
    if (type == PARAMETER_ODD && fmod(x, 2) != 1) return false;
    if (type == PARAMETER_LENGTHS && i && x <= number[i - 1]) return false;
  }
  if (types[type].is_range && count == 1) return number[0] >= 0;
  for (int i = 0; types[type].is_range && i < count; i += 2)
    if (!(number[i] <= number[i + 1])) return false;
  if (type == PARAMETER_WORD)
    return transform_word(parameter->words, (int)number[0], &length) != NULL;
  return true;
}

const char *transform_check(const TransformParameter *parameter, const TransformArgument *argument,
                            char buffer[96]) {
  if (is_taken(parameter, argument)) return NULL;
  if (parameter->type == PARAMETER_WORD)
    snprintf(buffer, 96, "one of these words: %.60s", parameter->words);
  else if (parameter->type == PARAMETER_FLAG)
    snprintf(buffer, 96, "true or false");
  else
    snprintf(buffer, 96, "%s from %g to %g", types[parameter->type].takes, parameter->low,
             parameter->high);
  return buffer;
}

const char *transform_check_together(const Transform *transform, char buffer[96]) {
  if (strcmp(transform->kind->name, "mask") == 0 &&
      transform_argument(transform, "replace")->number[0] +
              transform_argument(transform, "random")->number[0] >
          1)
    return "replace and random are shares of the same tokens: at most 1 together";
  if (strcmp(transform->kind->name, "randaugment") != 0) return NULL;
  double magnitude = transform_argument(transform, "magnitude")->number[0];
  double bins = transform_argument(transform, "num_magnitude_bins")->number[0];
  if (magnitude < bins) return NULL;
  snprintf(buffer, 96, "magnitude %g is not one of %g bins, which count from 0", magnitude, bins);
  return buffer;
}

void transform_padding(const TransformArgument *argument, int side[4]) {
  for (int i = 0; i < 4; i++) side[i] = (int)argument->number[i % argument->count];
}

static void transform_print_argument(const TransformParameter *parameter,
                                     const TransformArgument *argument, Text *out) {
  text_printf(out, "%s=%s", parameter->name, argument->count > 1 ? "(" : "");
  int length;
  const char *words = parameter->type == PARAMETER_FLAG ? "false true" : parameter->words;
  const char *word = words ? transform_word(words, (int)argument->number[0], &length) : NULL;
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
      if (!chain[i].argument[j].count) continue;
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
