/* plan_chain: the transforms of a data source in a plan's text, ` then resize size 256 filter
 * bilinear then hflip p 0.5`: every parameter of the row in transforms.def, in its order. */
#include "plan/plan_text.h"
#include "plan/plan_words.h"
#include "plan/source_kind.h"
#include <string.h>

static void chain_print_argument(Text *out, const TransformParameter *parameter,
                                 const TransformArgument *argument) {
  if (!argument->count) return;
  text_printf(out, " %s", parameter->name);
  if (parameter->type == PARAMETER_WORD) {
    int length;
    const char *word = transform_word(parameter->words, (int)argument->number[0], &length);
    text_printf(out, " %.*s", length, word);
    return;
  }
  for (int i = 0; i < argument->count; i++) {
    text_printf(out, i ? ", " : " ");
    plan_print_number(out, argument->number[i]);
  }
}

void plan_print_chain(Text *out, const DataSource *source) {
  for (int i = 0; i < source->transform_count; i++) {
    const Transform *transform = &source->transforms[i];
    text_printf(out, " then %s", transform->kind->name);
    for (int j = 0; j < transform_parameter_count(transform->kind); j++)
      chain_print_argument(out, &transform->kind->parameter[j], &transform->argument[j]);
  }
}

static bool chain_read_argument(Words *words, const TransformParameter *parameter,
                                TransformArgument *out) {
  char buffer[96];
  if (parameter->type == PARAMETER_LENGTHS && !words_take(words, parameter->name)) return true;
  if (parameter->type != PARAMETER_LENGTHS && !words_expect(words, parameter->name)) return false;
  if (parameter->type == PARAMETER_WORD) {
    const char *word = words_word(words, "a word");
    if (!word) return false;
    *out = (TransformArgument){1, {transform_which(parameter->words, word, strlen(word))}};
  } else {
    do {
      if (out->count == TRANSFORM_NUMBERS)
        return words_fail(words, "more than %d numbers for %s", TRANSFORM_NUMBERS, parameter->name);
      if (!words_number(words, parameter->name, &out->number[out->count++])) return false;
    } while (words_take(words, ","));
  }
  const char *takes = transform_check(parameter, out, buffer);
  return !takes || words_fail(words, "%s takes %s", parameter->name, takes);
}

bool plan_read_chain(Words *words, DataSource *out) {
  VEC(Transform) chain = {0};
  while (words_take(words, "then")) {
    Transform transform = {0};
    const char *name = words_word(words, "a transform");
    if (!name) return false;
    const SourceKind *kind = source_kind_find(out->kind);
    bool is_text = kind && kind->form == SOURCE_TEXT;
    transform.kind = is_text ? transform_find_text(name) : transform_find(name);
    if (!transform.kind)
      return words_fail(words, "there is no transform '%s' for %s", name, out->kind);
    if (chain.count == LONGEST_CHAIN)
      return words_fail(words, "more than %d transforms", LONGEST_CHAIN);
    for (int i = 0; i < transform_parameter_count(transform.kind); i++)
      if (!chain_read_argument(words, &transform.kind->parameter[i], &transform.argument[i]))
        return false;
    char buffer[96];
    const char *wrong = transform_check_together(&transform, buffer);
    if (wrong) return words_fail(words, "%s: %s", name, wrong);
    VEC_PUSH(words->arena, chain, transform);
    char order[160];
    wrong = transform_check_chain(chain.at, chain.count, order);
    if (wrong) return words_fail(words, "%s", wrong);
  }
  out->transforms = chain.at;
  out->transform_count = chain.count;
  return true;
}
