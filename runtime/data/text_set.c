/* text_set: see text_set.h. */
#include "runtime/data/text_set.h"
#include "plan/source_kind.h"
#include "runtime/common/fnv.h"
#include "runtime/data/once.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ── documents ────────────────────────────────────────────────────────────────────────────── */
static Status add_document_end(TextSet *text, int64_t behind) {
  JsonlTexts *texts = &text->texts;
  if (texts->documents == texts->document_room) {
    int64_t room = texts->document_room + texts->document_room / 2 + 64;
    int64_t *more = realloc(texts->behind, (size_t)room * sizeof *more);
    if (!more) return status_errno(ENOMEM, "%s: the list of documents", text->label);
    texts->behind = more;
    texts->document_room = room;
  }
  texts->behind[texts->documents++] = behind;
  return STATUS_OK;
}

/* In a file of tokens each `end` ends a document, and so does the text. */
static Status find_ends(TextSet *text) {
  enum { PIECE = 1 << 14 };
  int64_t *piece = malloc(PIECE * sizeof *piece);
  Status status = piece ? STATUS_OK : status_errno(ENOMEM, "%s", text->label);
  for (int64_t at = 0, count; at < text->tokens && status == STATUS_OK; at += count) {
    count = text->tokens - at < PIECE ? text->tokens - at : PIECE;
    status = text_set_tokens(text, at, count, piece);
    for (int64_t i = 0; i < count && status == STATUS_OK; i++)
      if (piece[i] == text->end) status = add_document_end(text, at + i + 1);
  }
  free(piece);
  int64_t listed = text->texts.documents;
  if (status == STATUS_OK && (!listed || text->texts.behind[listed - 1] < text->tokens))
    status = add_document_end(text, text->tokens);
  return status;
}

/* Files as they are. A document of bytes is a file. */
static Status open_arrays(TextSet *text, const SampleSetOptions *options) {
  for (int i = 0; i < options->path_count; i++) {
    DataArray *array;
    STATUS_TRY(array_open(options->data, options->path[i], &array));
    STATUS_TRY(column_add(&text->column, options->data->kind, array));
  }
  text->tokens = text->column.samples;
  text->end = (int64_t)source_kind_number(options->data, "end", -1);
  if (text->form.rows == TEXT_WINDOWS) return STATUS_OK;
  if (!strcmp(options->data->kind, "tokens")) return find_ends(text);
  for (int i = 0; i < text->column.file_count; i++) {
    const ColumnFile *file = &text->column.file[i];
    STATUS_TRY(add_document_end(text, file->first + file->array->header.shape.dim[0]));
  }
  return STATUS_OK;
}

static void lines_close(TextLines *lines) {
  if (!lines || !once_leave(lines)) return;
  jsonl_free(&lines->texts);
  arena_free(lines->arena);
  free(lines);
}

static Status read_lines(TextLines *lines, const SampleSetOptions *options) {
  const char *classes = source_kind_text(options->data, "classes", NULL);
  JsonlForm form;
  STATUS_TRY(jsonl_form(options->data, options->tokenizer, &form));
  lines->element = form.element;
  lines->end = form.end;
  lines->arena = arena_new();
  lines->texts.classes = (Lookup){.arena = lines->arena};
  if (classes) STATUS_TRY(jsonl_list_classes(&lines->texts, classes));
  for (int i = 0; i < options->path_count; i++)
    STATUS_TRY(jsonl_add_file(&form, options->path[i], &lines->texts));
  return jsonl_finish(&form, &lines->texts);
}

/* Those of another split, if it has the same. */
static Status lines_open(const SampleSetOptions *options, TextLines **out) {
  Text key = {0};
  once_key("lines", options->data, options->path, options->path_count, &key);
  *out = once_take(&key);
  bool is_new = !*out;
  Status status = STATUS_OK;
  if (is_new) {
    *out = calloc(1, sizeof **out);
    status = *out ? read_lines(*out, options) : status_errno(ENOMEM, "%s", options->data->split);
  }
  if (is_new && status == STATUS_OK) once_offer(&key, *out);
  text_free(&key);
  return status;
}

static Status open_lines(TextSet *text, const SampleSetOptions *options) {
  STATUS_TRY(lines_open(options, &text->lines));
  text->texts = text->lines->texts;
  text->element = text->lines->element;
  text->end = text->lines->end;
  text->tokens = (int64_t)text->texts.count;
  const Lookup *named = &text->texts.classes;
  if (!text->texts.has_texts) return STATUS_OK;
  text->set.class_count = named->entries.count;
  text->set.classes = calloc((size_t)named->entries.count + 1, sizeof *text->set.classes);
  if (!text->set.classes) return status_errno(ENOMEM, "classes");
  for (int i = 0; i < named->entries.count; i++) {
    const LookupEntry *entry = &named->entries.at[i];
    text->set.classes[entry->value] = arena_strndup(text->arena, entry->key, entry->bytes);
  }
  return STATUS_OK;
}

/* ── rows ─────────────────────────────────────────────────────────────────────────────────── */
static Status make_rows(TextSet *text) {
  const TextForm *form = &text->form;
  const JsonlTexts *texts = &text->texts;
  if (form->rows == TEXT_PACK) {
    bool cut = transform_argument(form->layout, "cut")->number[0] != 0;
    STATUS_TRY(text_pack(texts->behind, texts->documents, text->width, cut, &text->pack));
    text->set.count = text->pack.rows;
    return STATUS_OK;
  }
  if (form->rows == TEXT_WINDOWS) {
    text->set.count = text->tokens / text->width;
    if (text->set.count) return STATUS_OK;
    return status_fail(STATUS_USER, "holds %lld tokens, but one sample takes %lld",
                       (long long)text->tokens, (long long)text->width);
  }
  text->set.count = texts->documents;
  for (int64_t i = 0; i < texts->documents; i++)
    if (texts->behind[i] == (i ? texts->behind[i - 1] : 0))
      return status_fail(STATUS_USER,
                         "has no token in document %lld (from 0), and a sample without one cannot "
                         "be told from padding: leave it out, or say end= to give each a token",
                         (long long)i);
  return STATUS_OK;
}

/* ── inputs ───────────────────────────────────────────────────────────────────────────────── */
static Status bind_part(TextSet *text, const SampleSetOptions *options, int i) {
  const PlanTensor *input = &options->inputs[i];
  SampleValue *value = &text->values[i];
  char have[TYPE_TEXT];
  STATUS_TRY(sample_value_bind(input, options->rows, value));
  bool is_number = text->form.part[i] == TEXT_LENGTHS || text->form.part[i] == TEXT_LABEL;
  const Shape *shape = &value->type.shape;
  bool is_right = (value->type.dtype == DT_I32 || value->type.dtype == DT_I64) &&
                  shape->rank == !is_number && (is_number || shape->dim[0] >= 1);
  if (!is_right)
    return status_fail(STATUS_USER, "%s are for an input of i32[B%s], but %s is %s",
                       text_part_word(text->form.part[i]), is_number ? "" : ",T", input->name,
                       type_text(&input->type, have));
  if (is_number) return STATUS_OK;
  if (text->width && shape->dim[0] != text->width)
    return status_fail(STATUS_USER, "inputs of a text have rows of one length: %s is %s, not %lld",
                       input->name, type_text(&input->type, have), (long long)text->width);
  text->width = shape->dim[0];
  return STATUS_OK;
}

static Status bind_inputs(TextSet *text, const SampleSetOptions *options) {
  enum { WIDEST = 1 << 24 };
  text->values = calloc((size_t)options->input_count, sizeof *text->values);
  if (!text->values) return status_errno(ENOMEM, "inputs");
  for (int i = 0; i < options->input_count; i++) {
    STATUS_TRY(bind_part(text, options, i));
    if (text->form.part[i] == TEXT_LABEL) text->set.label_of = &options->inputs[i];
  }
  if (text->width > WIDEST)
    return status_fail(STATUS_USER, "a row of %lld tokens is too long: at most %d",
                       (long long)text->width, WIDEST);
  double said = text->form.layout ? transform_argument(text->form.layout, "length")->number[0] : 0;
  const TransformArgument *buckets = text_form_buckets(&text->form);
  if (buckets && buckets->number[buckets->count - 1] != (double)text->width)
    return status_fail(STATUS_USER, "the last of buckets is %.0f, but the model's inputs have rows of %lld tokens",
                       buckets->number[buckets->count - 1], (long long)text->width);
  if (said == 0 || said == (double)text->width) return STATUS_OK;
  return status_fail(STATUS_USER,
                     "%s(length=%.0f), but the model's inputs have rows of %lld tokens",
                     text->form.layout->kind->name, said, (long long)text->width);
}

/* ── the set ──────────────────────────────────────────────────────────────────────────────── */
static void text_name(const SampleSet *set, int64_t index, Text *out) {
  const TextSet *text = (const TextSet *)set;
  text_printf(out, "%s %lld of %s", text->form.rows == TEXT_PAD ? "document" : "row",
              (long long)index, set->path);
}

static int64_t text_label(const SampleSet *set, int64_t index) {
  return ((const TextSet *)set)->texts.label[index];
}

static int64_t text_length(const SampleSet *set, int64_t index) {
  const TextSet *text = (const TextSet *)set;
  const int64_t *behind = text->texts.behind;
  int64_t length = behind[index] - (index ? behind[index - 1] : 0);
  return length < text->width ? length : text->width;
}

static Status text_write(const SampleSet *set, int64_t index, int input, uint64_t seed,
                         uint64_t epoch, Sample *room, void *row) {
  const TextSet *text = (const TextSet *)set;
  size_t bytes = (size_t)text->width * sizeof(int64_t);
  if (room->room < bytes) {
    uint8_t *larger = realloc(room->at, bytes);
    if (!larger) return status_errno(ENOMEM, "%s", set->path);
    room->at = larger;
    room->room = bytes;
  }
  int64_t *values = (int64_t *)(void *)room->at;
  STATUS_TRY(text_set_part(text, index, text->form.part[input], seed, epoch, values));
  Status status = sample_value_integers(&text->values[input], values, row);
  if (status == STATUS_OK) return status;
  Text name = {0};
  char *why = strdup(status_message());
  text_name(set, index, &name);
  status = status_fail(status, "%s %s", text_cstr(&name), why ? why : "is wrong");
  text_free(&name);
  free(why);
  return status;
}

/* All labels at the start: a class too many is not to be found hours later. */
static Status check_labels(const TextSet *text) {
  int input = 0;
  while (input < text->form.count && text->form.part[input] != TEXT_LABEL) input++;
  for (int64_t i = 0; input < text->form.count && i < text->texts.documents; i++) {
    int64_t row;
    Status status = sample_value_integers(&text->values[input], &text->texts.label[i], &row);
    if (status != STATUS_OK)
      return status_prefix(status, "%s: the label of document %lld", text->set.path, (long long)i);
  }
  return STATUS_OK;
}

static uint64_t text_sum(const SampleSet *set) {
  const TextSet *text = (const TextSet *)set;
  uint64_t sum = fnv_add(FNV_START, &text->tokens, sizeof text->tokens);
  for (int64_t i = 0; i < text->texts.documents; i++)
    sum = (sum ^ (uint64_t)text->texts.behind[i]) * 1099511628211u;
  for (int64_t i = 0; text->texts.label && i < text->texts.documents; i++)
    sum = (sum ^ (uint64_t)text->texts.label[i]) * 1099511628211u;
  return sum;
}

static void text_describe(const SampleSet *set, Text *out) {
  const TextSet *text = (const TextSet *)set;
  int64_t rows = set->count, cut = 0, filled = text->tokens, before = 0, room = 0;
  text_printf(out, "%lld tokens", (long long)text->tokens);
  if (text->form.rows != TEXT_WINDOWS)
    text_printf(out, " of %lld documents", (long long)text->texts.documents);
  text_printf(out, " in %d file%s, %lld rows of %lld", set->file_count,
              set->file_count == 1 ? "" : "s", (long long)rows, (long long)text->width);
  const TransformArgument *buckets = text_form_buckets(&text->form);
  for (int64_t i = 0; text->form.rows == TEXT_PAD && i < rows; i++) {
    int64_t length = text->texts.behind[i] - before;
    before = text->texts.behind[i];
    if (length > text->width) cut++, filled -= length - text->width;
    for (int k = 0; buckets && k < buckets->count; k++)
      if (k + 1 == buckets->count || (double)length <= buckets->number[k]) {
        room += (int64_t)buckets->number[k];
        break;
      }
  }
  if (text->form.rows != TEXT_WINDOWS)
    text_printf(out, ", of which %.1f %% are padding",
                100 - 100 * (double)filled / ((double)rows * (double)text->width));
  if (buckets) {
    text_printf(out, ", and %.1f %% in rows of ", 100 - 100 * (double)filled / (double)room);
    for (int k = 0; k < buckets->count; k++)
      text_printf(out, "%s%.0f", !k ? "" : k + 1 < buckets->count ? ", " : " and ", buckets->number[k]);
  }
  if (cut) text_printf(out, "; %lld documents are longer and are cut off", (long long)cut);
  text_printf(out, "; tokens and lists of documents take %.1f MiB of memory",
              (double)set->memory / 0x1p20);
  if (text->lines && once_is_shared(text->lines))
    text_printf(out, ", the tokens once for all splits of these files");
}

static void text_close(SampleSet *set) {
  TextSet *text = (TextSet *)set;
  if (text->lines)
    lines_close(text->lines);
  else
    jsonl_free(&text->texts);
  column_close(&text->column);
  text_pack_free(&text->pack);
  for (int i = 0; text->values && i < text->form.count; i++) sample_value_free(&text->values[i]);
  for (int i = 0; i < set->file_count; i++) free(text->paths[i]);
  free(text->values);
  free(text->paths);
  free(set->classes);
  free((void *)(uintptr_t)set->path);
  arena_free(text->arena);
  free(text);
}

static Status keep_paths(TextSet *text, const SampleSetOptions *options) {
  Text path = {0};
  text->paths = calloc((size_t)options->path_count + 1, sizeof *text->paths);
  if (!text->paths) return status_errno(ENOMEM, "files");
  text->set.files = text->paths;
  for (int i = 0; i < options->path_count; i++) {
    text->paths[i] = strdup(options->path[i]);
    if (!text->paths[i]) return status_errno(ENOMEM, "files");
    text->set.file_count = i + 1;
  }
  text_printf(&path, "%s", options->path_count ? options->path[0] : "");
  if (options->path_count > 1)
    text_printf(&path, " ... %s (%d files)", options->path[options->path_count - 1],
                options->path_count);
  text->set.path = path.at;
  return STATUS_OK;
}

static Status make_set(TextSet *text, const SampleSetOptions *options) {
  Text why = {0};
  Status status = STATUS_OK;
  if (!text_form(options->data, options->input_count, &text->form, &why))
    status = status_fail(STATUS_USER, "%s", text_cstr(&why));
  text_free(&why);
  STATUS_TRY(status);
  STATUS_TRY(keep_paths(text, options));
  STATUS_TRY(bind_inputs(text, options));
  STATUS_TRY(!strcmp(options->data->kind, "jsonl") ? open_lines(text, options)
                                                   : open_arrays(text, options));
  STATUS_TRY(status_prefix(make_rows(text), "%s", text->set.path));
  STATUS_TRY(check_labels(text));
  SampleSet *set = &text->set;
  set->memory = text_pack_memory(&text->pack) + text->texts.documents * (int64_t)sizeof(int64_t);
  set->memory += (int64_t)text->texts.count * element_bytes(text->element);
  if (text->texts.label) set->memory += text->texts.documents * (int64_t)sizeof(int64_t);
  set->write = text_write;
  set->label = text_label;
  if (text->form.rows == TEXT_PAD) set->length = text_length;
  set->name = text_name;
  set->describe = text_describe;
  set->sum = text_sum;
  return STATUS_OK;
}

Status text_samples(const SampleSetOptions *options, SampleSet **out) {
  TextSet *text = calloc(1, sizeof *text);
  *out = NULL;
  if (!text) return status_errno(ENOMEM, "%s", options->data->split);
  text->label = options->data->split;
  text->element = ELEMENT_U8;
  text->set.close = text_close;
  text->arena = arena_new();
  Status status = make_set(text, options);
  if (status == STATUS_OK)
    *out = &text->set;
  else
    text_close(&text->set);
  return status;
}
