/* jsonl: see jsonl.h. */
#include "runtime/data/jsonl.h"
#include "plan/source_kind.h"
#include "runtime/common/json.h"
#include "runtime/data/source_array.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Status jsonl_form(const DataSource *data, Bpe *tokenizer, JsonlForm *out) {
  const char *path = source_kind_text(data, "tokenizer", NULL);
  *out = (JsonlForm){.text = source_kind_text(data, "text", "text"),
                     .label = source_kind_text(data, "label", NULL),
                     .tokenizer = tokenizer,
                     .element = ELEMENT_U8,
                     .end = -1};
  if (path && !tokenizer) return status_fail(STATUS_FAULT, "has no tokenizer opened for it");
  int64_t count = tokenizer ? bpe_count(tokenizer) : 256;
  if (tokenizer) {
    out->element = count <= 1 << 16 ? ELEMENT_U16 : ELEMENT_U32;
    out->end = bpe_end_of_text(tokenizer);
  }
  if (!strcmp(source_kind_text(data, "end", ""), "none")) out->end = -1;
  double end = source_kind_number(data, "end", (double)out->end);
  if (end >= (double)count)
    return status_fail(STATUS_USER, "is not read: end=%.0f is no token, these are 0 to %lld%s", end,
                       (long long)count - 1, tokenizer ? "" : ", bytes, without a tokenizer");
  out->end = (int64_t)end;
  return STATUS_OK;
}

/* ── tokens ───────────────────────────────────────────────────────────────────────────────── */
/* Memory grows by halves. */
static Status reserve_tokens(const JsonlForm *form, JsonlTexts *out, size_t more) {
  size_t need = out->count + more, each = (size_t)element_bytes(form->element);
  if (need <= out->room) return STATUS_OK;
  size_t room = out->room + out->room / 2;
  if (room < need) room = need;
  void *grown = realloc(out->tokens, room * each);
  if (!grown) return status_errno(ENOMEM, "has too many tokens:");
  out->tokens = grown;
  out->room = room;
  return STATUS_OK;
}

static void put_token(const JsonlForm *form, JsonlTexts *out, int64_t token) {
  size_t at = out->count++;
  switch (form->element) {
  case ELEMENT_U8:
    ((uint8_t *)out->tokens)[at] = (uint8_t)token;
    break;
  case ELEMENT_U16:
    ((uint16_t *)out->tokens)[at] = (uint16_t)token;
    break;
  default:
    ((uint32_t *)out->tokens)[at] = (uint32_t)token;
  }
}

static Status add_document(const JsonlForm *form, const char *text, size_t count, BpeTokens *room,
                           JsonlTexts *out) {
  room->count = 0;
  if (form->tokenizer) STATUS_TRY(bpe_encode(form->tokenizer, text, count, room));
  STATUS_TRY(reserve_tokens(form, out, (form->tokenizer ? room->count : count) + 1));
  for (size_t i = 0; i < room->count; i++) put_token(form, out, room->at[i]);
  if (!form->tokenizer && count) memcpy((char *)out->tokens + out->count, text, count);
  if (!form->tokenizer) out->count += count;
  if (form->end >= 0) put_token(form, out, form->end);
  if (out->documents == out->document_room) {
    size_t more = (size_t)out->document_room + (size_t)out->document_room / 2 + 64;
    int64_t *behind = realloc(out->behind, more * sizeof *behind);
    if (behind) out->behind = behind;
    int64_t *label = form->label && behind ? realloc(out->label, more * sizeof *label) : out->label;
    if (!behind || (form->label && !label))
      return status_errno(ENOMEM, "has too many documents:");
    out->label = label;
    out->document_room = (int64_t)more;
  }
  out->behind[out->documents++] = (int64_t)out->count;
  return STATUS_OK;
}

/* ── members ──────────────────────────────────────────────────────────────────────────────── */
static const char *json_kind(const json_t *json) {
  switch (json_typeof(json)) {
  case JSON_OBJECT:
    return "an object";
  case JSON_ARRAY:
    return "an array";
  case JSON_STRING:
    return "a text";
  case JSON_NULL:
    return "null";
  case JSON_TRUE:
  case JSON_FALSE:
    return "true or false";
  default:
    return "a number";
  }
}

static Status line_member(json_t *object, const char *name, const char *option, json_t **out) {
  if (!json_is_object(object))
    return status_fail(STATUS_USER,
                       "is %s; each line is to be an object, {\"%s\": ...} (of an array, jq -c "
                       "'.[]' makes such lines)",
                       json_kind(object), name);
  *out = json_object_get(object, name);
  if (*out) return STATUS_OK;
  Text has = {0};
  const char *key;
  json_t *value;
  int listed = 0;
  json_object_foreach(object, key, value) {
    if (listed < 6) text_printf(&has, "%s'%.40s'", listed ? ", " : "", key);
    listed++;
  }
  Status status =
      status_fail(STATUS_USER, "has no member '%s'%s%s%s: %s= says which member it is", name,
                  listed ? "; it has " : "", text_cstr(&has), listed > 6 ? ", ..." : "", option);
  text_free(&has);
  return status;
}

static Status take_class(const char *text, size_t count, JsonlTexts *out, int64_t *label) {
  int known = lookup_find(&out->classes, text, count), next = out->classes.entries.count;
  *label = known >= 0 ? known : next;
  if (known >= 0) return STATUS_OK;
  if (out->is_listed)
    return status_fail(STATUS_USER, "label '%.60s' is none of those that classes= lists", text);
  if (next == JSONL_MOST_CLASSES)
    return status_fail(STATUS_USER, "label '%.60s' is that of one class too many: there are %d",
                       text, next);
  if (strlen(text) != count) return status_fail(STATUS_USER, "a label has a NUL in it");
  lookup_add(&out->classes, text, count, next);
  return STATUS_OK;
}

static Status take_label(const JsonlForm *form, json_t *object, JsonlTexts *out, int64_t *label) {
  json_t *json;
  STATUS_TRY(line_member(object, form->label, "label", &json));
  double number = json_is_boolean(json) ? json_is_true(json) : json_number_value(json);
  bool is_text = json_is_string(json);
  if (!is_text && ((!json_is_number(json) && !json_is_boolean(json)) || number != trunc(number) ||
                   fabs(number) > 0x1p53))
    return status_fail(STATUS_USER, "member '%s' is %s, but a label is a whole number or a text",
                       form->label, json_is_number(json) ? "no whole number" : json_kind(json));
  if (is_text ? out->has_numbers : out->has_texts || out->is_listed)
    return status_fail(STATUS_USER, "member '%s' is %s, but %s", form->label, json_kind(json),
                       is_text          ? "in the lines before it is a number"
                       : out->has_texts ? "in the lines before it is a text"
                                        : "classes= lists texts");
  *(is_text ? &out->has_texts : &out->has_numbers) = true;
  if (is_text) return take_class(json_string_value(json), json_string_length(json), out, label);
  *label = (int64_t)number;
  return STATUS_OK;
}

static Status add_line(const JsonlForm *form, const char *line, size_t count, BpeTokens *room,
                       JsonlTexts *out) {
  json_t *object, *text;
  int64_t label = 0;
  STATUS_TRY(json_parse_line(line, count, &object));
  Status status = line_member(object, form->text, "text", &text);
  if (status == STATUS_OK && !json_is_string(text))
    status = status_fail(STATUS_USER, "member '%s' is %s, not a text", form->text, json_kind(text));
  if (status == STATUS_OK && form->label) status = take_label(form, object, out, &label);
  if (status == STATUS_OK)
    status = add_document(form, json_string_value(text), json_string_length(text), room, out);
  json_decref(object);
  if (status == STATUS_OK && form->label) out->label[out->documents - 1] = label;
  return status;
}

/* "line 3, column 7: …" where the message begins with a column, "line 3: …" else. */
static Status name_line(Status status, int64_t line) {
  char *why = strdup(status_message());
  if (!why) return status;
  status = status_fail(status, "line %lld%s%s", (long long)line,
                       strncmp(why, "column ", 7) == 0 ? ", " : ": ", why);
  free(why);
  return status;
}

static bool is_blank(const char *line, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') return false;
  return true;
}

Status jsonl_add(const JsonlForm *form, const uint8_t *at, size_t count, JsonlTexts *out) {
  static const char mark[] = "\xef\xbb\xbf"; /* of the order of bytes */
  const char *line = (const char *)at, *end = line + count;
  BpeTokens room = {0};
  Status status = STATUS_OK;
  int64_t before = out->documents;
  if (count >= 3 && !memcmp(line, mark, 3)) line += 3;
  for (int64_t number = 1; line < end && status == STATUS_OK; number++) {
    const char *behind = memchr(line, '\n', (size_t)(end - line));
    if (!behind) behind = end;
    size_t length = (size_t)(behind - line);
    if (!is_blank(line, length)) status = add_line(form, line, length, &room, out);
    if (status != STATUS_OK) status = name_line(status, number);
    line = behind + (behind < end);
  }
  free(room.at);
  if (status == STATUS_OK && out->documents == before)
    status = status_fail(STATUS_USER, "has no line with an object");
  return status;
}

Status jsonl_add_file(const JsonlForm *form, const char *path, JsonlTexts *out) {
  SourceBytes *bytes;
  size_t count;
  STATUS_TRY(source_bytes_open_unpacked(path, &bytes));
  (void)source_bytes_size(bytes, &count);
  Status status = source_bytes_expect(bytes, count);
  if (status == STATUS_OK) {
    status = jsonl_add(form, source_bytes_at(bytes), count, out);
    Status intact = source_bytes_intact(bytes); /* goes before what was read */
    if (status != STATUS_OK && intact == STATUS_OK) {
      char *why = strdup(status_message());
      status = status_fail(status, "%s %s", path, why ? why : "cannot be read");
      free(why);
    }
    if (intact != STATUS_OK) status = intact;
  }
  source_bytes_close(bytes);
  return status;
}

/* ── classes ──────────────────────────────────────────────────────────────────────────────── */
Status jsonl_list_classes(JsonlTexts *texts, const char *list) {
  while (*list) {
    list += strspn(list, " ");
    size_t length = strcspn(list, ","), kept = length;
    while (kept && list[kept - 1] == ' ') kept--;
    int count = texts->classes.entries.count;
    if (!kept || count == JSONL_MOST_CLASSES ||
        lookup_add(&texts->classes, list, kept, count) != count)
      return status_fail(STATUS_USER, "is not read: classes= has %s%.*s%s", kept ? "'" : "",
                         kept ? (int)(kept < 60 ? kept : 60) : 14, kept ? list : "an empty name",
                         kept ? "' twice" : "");
    list += length + (list[length] == ',');
  }
  texts->is_listed = true;
  return STATUS_OK;
}

typedef struct {
  const char *text;
  size_t count;
  int value;
} NamedClass;

static int by_name_bytes(const void *a, const void *b) {
  const NamedClass *left = a, *right = b;
  size_t least = left->count < right->count ? left->count : right->count;
  int order = memcmp(left->text, right->text, least);
  return order ? order : (left->count > right->count) - (left->count < right->count);
}

static Status order_classes(JsonlTexts *texts) {
  int count = texts->classes.entries.count;
  NamedClass *sorted = calloc((size_t)count + 1, sizeof *sorted);
  int *number = calloc((size_t)count + 1, sizeof *number);
  Lookup ordered = {.arena = texts->classes.arena};
  for (int i = 0; sorted && i < count; i++) {
    const LookupEntry *entry = &texts->classes.entries.at[i];
    sorted[i] = (NamedClass){entry->key, entry->bytes, entry->value};
  }
  if (sorted && number) {
    qsort(sorted, (size_t)count, sizeof *sorted, by_name_bytes);
    for (int i = 0; i < count; i++) {
      number[sorted[i].value] = i;
      lookup_add(&ordered, sorted[i].text, sorted[i].count, i);
    }
    for (int64_t i = 0; i < texts->documents; i++) texts->label[i] = number[texts->label[i]];
    texts->classes = ordered;
  }
  Status status = sorted && number ? STATUS_OK : status_errno(ENOMEM, "classes of labels");
  free(sorted);
  free(number);
  return status;
}

Status jsonl_finish(const JsonlForm *form, JsonlTexts *texts) {
  size_t each = (size_t)element_bytes(form->element);
  void *less = texts->count ? realloc(texts->tokens, texts->count * each) : NULL;
  if (less) texts->tokens = less;
  if (less) texts->room = texts->count;
  return texts->has_texts && !texts->is_listed ? order_classes(texts) : STATUS_OK;
}

void jsonl_free(JsonlTexts *texts) {
  free(texts->tokens);
  free(texts->behind);
  free(texts->label);
  texts->tokens = texts->behind = texts->label = NULL;
}

/* All documents of a file as one text. */
Status jsonl_parse(const ArrayFile *file, ArrayHeader *out) {
  JsonlForm form;
  JsonlTexts texts = {0};
  *out = (ArrayHeader){0};
  STATUS_TRY(jsonl_form(file->options, file->tokenizer, &form));
  form.label = NULL;
  Status status = jsonl_add(&form, file->at, file->count, &texts);
  if (status == STATUS_OK) status = jsonl_finish(&form, &texts);
  if (status == STATUS_OK && !texts.count)
    status = status_fail(STATUS_USER, "has no token: its documents are empty");
  if (status == STATUS_OK) {
    out->element = form.element;
    out->shape = (Shape){.rank = 1, .dim = {(int64_t)texts.count}};
    out->elements = texts.tokens;
    texts.tokens = NULL;
  }
  jsonl_free(&texts);
  return status;
}
