/* text_form: see text_form.h. */
#include "plan/text_form.h"
#include "plan/source_kind.h"
#include <string.h>

const char *text_part_word(TextPart part) {
  static const char *const words[] = {
#define X(ID, word) word,
      TEXT_PARTS(X)
#undef X
  };
  return words[part];
}

static bool form_fail(Text *why, const char *reason) {
  text_printf(why, "%s", reason);
  return false;
}

/* pack or pad, then mask or shift. */
static bool read_chain(const DataSource *data, TextForm *out, Text *why) {
  bool is_shifted = false;
  for (int i = 0; i < data->transform_count; i++) {
    const Transform *transform = &data->transforms[i];
    const char *name = transform->kind->name;
    bool is_pack = !strcmp(name, "pack");
    if (is_pack || !strcmp(name, "pad")) {
      if (i) return form_fail(why, "pack, or pad, is the first transform, as it makes the rows");
      out->layout = transform;
      out->rows = is_pack ? TEXT_PACK : TEXT_PAD;
      continue;
    }
    if (out->mask || is_shifted)
      return form_fail(why, "mask and shift both say what is to be predicted: take one of them");
    is_shifted = !strcmp(name, "shift");
    if (is_shifted) {
      out->shift = (int64_t)transform_argument(transform, "by")->number[0];
    } else {
      out->mask = transform;
      out->mask_place = i;
    }
  }
  return true;
}

/* The parts without keys=, in their order. */
static const TextPart *usual_parts(const TextForm *form, bool has_label, int inputs) {
  static const TextPart label_2[] = {TEXT_TOKENS, TEXT_LABEL},
                        label_3[] = {TEXT_TOKENS, TEXT_LENGTHS, TEXT_LABEL},
                        pad[] = {TEXT_TOKENS, TEXT_TARGETS, TEXT_LENGTHS},
                        pack[] = {TEXT_TOKENS, TEXT_TARGETS, TEXT_DOCUMENTS, TEXT_POSITIONS};
  if (has_label) return inputs == 2 ? label_2 : inputs == 3 ? label_3 : NULL;
  if (form->rows == TEXT_PAD) return inputs <= 3 ? pad : NULL;
  return inputs <= (form->rows == TEXT_PACK ? 4 : 2) ? pack : NULL;
}

static bool read_key(const char *word, size_t length, TextForm *out, Text *why) {
  int part = 0;
  while (part < TEXT_PART_COUNT && (strlen(text_part_word((TextPart)part)) != length ||
                                    memcmp(text_part_word((TextPart)part), word, length) != 0))
    part++;
  if (part == TEXT_PART_COUNT) {
    text_printf(why, "keys= has '%.*s'; there are ", (int)(length < 40 ? length : 40), word);
    for (int i = 0; i < TEXT_PART_COUNT; i++)
      text_printf(why, "%s%s",
                  i == 0                    ? ""
                  : i + 1 < TEXT_PART_COUNT ? ", "
                                            : " and ",
                  text_part_word((TextPart)i));
    return false;
  }
  for (int i = 0; i < out->count; i++)
    if (out->part[i] == (TextPart)part) {
      text_printf(why, "keys= has '%s' twice", text_part_word((TextPart)part));
      return false;
    }
  out->part[out->count++] = (TextPart)part;
  return true;
}

/* keys="tokens, label": no more than there are parts, since none comes twice. */
static bool read_keys(const char *keys, TextForm *out, Text *why) {
  do {
    keys += strspn(keys, " ");
    size_t length = strcspn(keys, ","), word = length;
    while (word && keys[word - 1] == ' ') word--;
    if (!read_key(keys, word, out, why)) return false;
    keys += length;
  } while (*keys++ == ',');
  return true;
}

static bool form_has(const TextForm *form, TextPart part) {
  for (int i = 0; i < form->count; i++)
    if (form->part[i] == part) return true;
  return false;
}

/* Parts that the rows, and the source, have. */
static bool check_text_parts(const DataSource *data, const TextForm *form, Text *why) {
  bool has_label = source_kind_text(data, "label", NULL) != NULL;
  bool is_windows = form->rows == TEXT_WINDOWS;
  if (form_has(form, TEXT_LABEL) != has_label)
    return form_fail(why, has_label ? "label= is given, but no input gets the label"
                                    : "no label= says which member has the label");
  if (has_label && form->rows != TEXT_PAD)
    return form_fail(why, "a label is of one document: `| pad` makes a sample of each");
  if (source_kind_text(data, "classes", NULL) && !has_label)
    return form_fail(why, "classes= is for labels, and label= is not given");
  if (is_windows && (form_has(form, TEXT_DOCUMENTS) || form_has(form, TEXT_POSITIONS) ||
                     form_has(form, TEXT_LENGTHS)))
    return form_fail(why, "documents, positions and lengths are what `| pack` and `| pad` make");
  if (form->mask && !form_has(form, TEXT_TARGETS))
    return form_fail(why, "mask asks for tokens, but no input gets the targets");
  if (!form_has(form, TEXT_TOKENS)) return form_fail(why, "no input gets the tokens");
  if (!is_windows && !strcmp(data->kind, "tokens") && source_kind_number(data, "end", -1) < 0)
    return form_fail(why, "end= has to say which token ends a document");
  return true;
}

static bool plain_windows(const TextForm *form) {
  return form->rows == TEXT_WINDOWS && !form->mask && form->shift == 1 && form->count <= 2 &&
         form->part[0] == TEXT_TOKENS && (form->count < 2 || form->part[1] == TEXT_TARGETS);
}

bool text_form(const DataSource *data, int inputs, TextForm *out, Text *why) {
  const char *keys = source_kind_text(data, "keys", NULL);
  bool has_label = source_kind_text(data, "label", NULL) != NULL;
  *out = (TextForm){.shift = 1};
  if (!read_chain(data, out, why)) return false;
  if (keys && !read_keys(keys, out, why)) return false;
  const TextPart *usual = keys ? NULL : usual_parts(out, has_label, inputs);
  for (int i = 0; usual && i < inputs; i++) out->part[out->count++] = usual[i];
  if (out->count != inputs || !inputs) {
    if (keys)
      text_printf(why, "keys= has %d parts for %d inputs", out->count, inputs);
    else
      text_printf(why,
                  out->rows == TEXT_WINDOWS && !has_label
                      ? "a text is for one input (tokens) or two (tokens and the ones that follow), "
                        "not %d"
                      : "keys= has to say what each of %d inputs gets: \"tokens, targets\" or the "
                        "like",
                  inputs);
    return false;
  }
  out->moves = plain_windows(out);
  return check_text_parts(data, out, why);
}

const TransformArgument *text_form_buckets(const TextForm *form) {
  if (form->rows != TEXT_PAD) return NULL;
  const TransformArgument *buckets = transform_argument(form->layout, "buckets");
  return buckets->count ? buckets : NULL;
}

bool text_moves(const DataSource *data) {
  const SourceKind *kind = source_kind_find(data->kind);
  TextForm form = {.shift = 1};
  Text why = {0};
  bool fine = kind && kind->form == SOURCE_TEXT && read_chain(data, &form, &why);
  text_free(&why);
  return fine && form.rows == TEXT_WINDOWS && !form.mask;
}
