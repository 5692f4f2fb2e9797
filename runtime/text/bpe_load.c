/* bpe_load: reads a tokenizer's files (declared in bpe.h). In them each byte is written as one
 * printable character: those of Latin-1 that are printable as themselves, the others, in order,
 * from U+0100. */
#include "base/text.h"
#include "runtime/text/bpe.h"
#include "runtime/text/bpe_table.h"
#include "runtime/common/json.h"
#include "runtime/common/utf8.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char end_of_text[] = "<|endoftext|>";

/* ── the alphabet of bytes ────────────────────────────────────────────────────────────────── */
static bool is_printable(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 255 && byte != 173);
}

/* The byte that a character stands for; -1: none. */
static int byte_of(uint32_t character) {
  if (character < 256) return is_printable((int)character) ? (int)character : -1;
  uint32_t odd = 256;
  for (int byte = 0; byte < 256; byte++)
    if (!is_printable(byte) && odd++ == character) return byte;
  return -1;
}

static uint32_t read_character(const char *text, int length) {
  static const unsigned char mask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
  uint32_t character = (unsigned char)text[0] & mask[length];
  for (int i = 1; i < length; i++) character = character << 6 | ((unsigned char)text[i] & 0x3f);
  return character;
}

/* Appends the bytes that a word stands for; false if it is no such word. */
static bool append_bytes(Text *out, const char *word, size_t count) {
  for (size_t i = 0; i < count;) {
    int length = utf8_character(word + i, count - i);
    int byte = length ? byte_of(read_character(word + i, length)) : -1;
    if (byte < 0) return false;
    text_append(out, &(char){(char)byte}, 1);
    i += (size_t)length;
  }
  return true;
}

/* ── tokens ───────────────────────────────────────────────────────────────────────────────── */
static Status add_added(Bpe *bpe, int64_t number, const char *content, size_t count) {
  if (bpe->added_count == BPE_MOST_ADDED)
    return status_fail(STATUS_USER, "has more than %d added tokens", BPE_MOST_ADDED);
  STATUS_TRY(bpe_add_token(bpe, number, content, count, true));
  bpe->added[bpe->added_count++] = (int32_t)number;
  return STATUS_OK;
}

static Status bpe_add_word(Bpe *bpe, int64_t number, const char *word) {
  Text bytes = {0};
  size_t count;
  const char *known = bpe_bytes(bpe, number, &count);
  if (count && count == strlen(word) && memcmp(known, word, count) == 0) return STATUS_OK;
  if (strcmp(word, end_of_text) == 0) return add_added(bpe, number, word, strlen(word));
  bool is_word = append_bytes(&bytes, word, strlen(word));
  Status status = is_word ? bpe_add_token(bpe, number, text_cstr(&bytes), bytes.count, false)
                          : bpe_add_token(bpe, number, word, strlen(word), false);
  text_free(&bytes);
  return status;
}

static Status read_vocabulary(Bpe *bpe, json_t *vocabulary) {
  const char *word;
  json_t *number;
  if (!json_is_object(vocabulary))
    return status_fail(STATUS_USER, "is no vocabulary: expected {\"token\": number, ...}");
  json_object_foreach(vocabulary, word, number) {
    if (!json_is_integer(number))
      return status_fail(STATUS_USER, "the token \"%.40s\" has no whole number", word);
    STATUS_TRY(bpe_add_word(bpe, json_integer_value(number), word));
  }
  STATUS_TRY(bpe_make_table(bpe));
  for (int byte = 0; byte < 256; byte++) {
    bpe->byte[byte] = bpe_find(bpe, &(char){(char)byte}, 1);
    if (bpe->byte[byte] < 0)
      return status_fail(STATUS_USER,
                         "has no token for the byte 0x%02x: it is no byte-level "
                         "vocabulary, as GPT-2's is",
                         byte);
  }
  return STATUS_OK;
}

/* ── merges ───────────────────────────────────────────────────────────────────────────────── */
static Status add_merge(Bpe *bpe, const char *left, size_t left_count, const char *right,
                        size_t right_count, long line) {
  Text bytes = {0};
  bool is_known = append_bytes(&bytes, left, left_count);
  size_t cut = bytes.count;
  is_known = is_known && append_bytes(&bytes, right, right_count) && cut && bytes.count > cut;
  int32_t a = -1, b = -1, both = -1;
  if (is_known) {
    a = bpe_find(bpe, bytes.at, cut);
    b = bpe_find(bpe, bytes.at + cut, bytes.count - cut);
    both = bpe_find(bpe, bytes.at, bytes.count);
  }
  text_free(&bytes);
  if (a < 0 || b < 0 || both < 0)
    return status_fail(STATUS_USER,
                       "merge %ld, \"%.*s %.*s\", is of tokens that the vocabulary lacks", line,
                       (int)(left_count < 40 ? left_count : 40), left,
                       (int)(right_count < 40 ? right_count : 40), right);
  return bpe_add_merge(bpe, a, b, both);
}

static Status add_merge_line(Bpe *bpe, const char *line, size_t count, long number) {
  const char *space = memchr(line, ' ', count);
  if (!space || memchr(space + 1, ' ', count - (size_t)(space + 1 - line)))
    return status_fail(STATUS_USER, "merge %ld, \"%.*s\", is not two tokens", number,
                       (int)(count < 80 ? count : 80), line);
  size_t left = (size_t)(space - line);
  return add_merge(bpe, line, left, space + 1, count - left - 1, number);
}

static Status read_merges(Bpe *bpe, const char *text, size_t count) {
  long number = 0;
  for (size_t at = 0; at < count;) {
    const char *line = text + at, *end = memchr(line, '\n', count - at);
    size_t length = end ? (size_t)(end - line) : count - at;
    at += length + 1;
    number++;
    if (length && line[length - 1] == '\r') length--;
    bool is_head = number == 1 && length >= 8 && memcmp(line, "#version", 8) == 0;
    if (length && !is_head) STATUS_TRY(add_merge_line(bpe, line, length, number));
  }
  return STATUS_OK;
}

static Status read_merge_list(Bpe *bpe, json_t *list) {
  size_t i;
  json_t *entry;
  if (!json_is_array(list)) return status_fail(STATUS_USER, "has no list of merges");
  json_array_foreach(list, i, entry) {
    const char *left = json_string_value(json_array_get(entry, 0));
    const char *right = json_string_value(json_array_get(entry, 1));
    const char *line = json_string_value(entry);
    if (line)
      STATUS_TRY(add_merge_line(bpe, line, strlen(line), (long)i + 1));
    else if (left && right && json_array_size(entry) == 2)
      STATUS_TRY(add_merge(bpe, left, strlen(left), right, strlen(right), (long)i + 1));
    else
      return status_fail(STATUS_USER, "merge %zu is not two tokens", i + 1);
  }
  return STATUS_OK;
}

/* ── tokenizer.json ───────────────────────────────────────────────────────────────────────── */
static bool json_is_text(json_t *object, const char *key, const char *wanted) {
  const char *text = json_string_value(json_object_get(object, key));
  return text && strcmp(text, wanted) == 0;
}

static bool is_nothing(json_t *value) { return !value || json_is_null(value); }

/* What it asks for beyond GPT-2's rules would give other tokens. */
static Status check_rules(json_t *root) {
  json_t *model = json_object_get(root, "model"), *before = json_object_get(root, "pre_tokenizer");
  if (!model || (!json_is_text(model, "type", "BPE") && json_object_get(model, "type")))
    return status_fail(STATUS_USER,
                       "is no tokenizer of byte pairs (\"model\": {\"type\": \"BPE\", ...})");
  if (!is_nothing(json_object_get(root, "normalizer")))
    return status_fail(STATUS_USER, "has a normalizer, which GPT-2's tokenizer has not");
  if (!json_is_text(before, "type", "ByteLevel") ||
      json_is_true(json_object_get(before, "add_prefix_space")) ||
      json_is_false(json_object_get(before, "use_regex")))
    return status_fail(STATUS_USER, "cuts texts in another way than GPT-2 (\"pre_tokenizer\": "
                                    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false})");
  return STATUS_OK;
}

static Status read_whole(Bpe *bpe, json_t *root) {
  size_t i;
  json_t *entry, *model = json_object_get(root, "model");
  STATUS_TRY(check_rules(root));
  json_array_foreach(json_object_get(root, "added_tokens"), i, entry) {
    const char *content = json_string_value(json_object_get(entry, "content"));
    json_t *number = json_object_get(entry, "id");
    if (!content || !json_is_integer(number))
      return status_fail(STATUS_USER, "added token %zu has no content or no id", i + 1);
    STATUS_TRY(add_added(bpe, json_integer_value(number), content, strlen(content)));
  }
  STATUS_TRY(read_vocabulary(bpe, json_object_get(model, "vocab")));
  return read_merge_list(bpe, json_object_get(model, "merges"));
}

static Status bpe_parse_json(Bpe *bpe, json_t *root, const char *merges, size_t merges_bytes) {
  STATUS_TRY(pretoken_new(&bpe->pretoken));
  if (!merges) return read_whole(bpe, root);
  STATUS_TRY(read_vocabulary(bpe, root));
  return read_merges(bpe, merges, merges_bytes);
}

Status bpe_parse(const char *json, size_t json_bytes, const char *merges, size_t merges_bytes,
                 Bpe **out) {
  json_t *root;
  Status parsed = json_parse(json, json_bytes, &root);
  if (parsed == STATUS_USER) return status_prefix(parsed, "is no JSON");
  STATUS_TRY(parsed);
  Bpe *bpe = calloc(1, sizeof *bpe);
  Status status = bpe ? bpe_parse_json(bpe, root, merges, merges_bytes)
                      : status_fail(STATUS_FAULT, "out of memory");
  json_decref(root);
  if (status == STATUS_OK)
    *out = bpe;
  else
    bpe_free(bpe);
  return status;
}

/* ── files ────────────────────────────────────────────────────────────────────────────────── */
static bool exists(const char *path) {
  struct stat info;
  return stat(path, &info) == 0;
}

/* The first of these names, separated by '|', that is a file in the folder; true if there is one.
 */
static bool find_in(const char *folder, const char *names, Text *out) {
  for (const char *name = names; *name;) {
    size_t length = strcspn(name, "|");
    text_free(out);
    *out = (Text){0};
    text_printf(out, "%s/%.*s", folder, (int)length, name);
    if (exists(text_cstr(out))) return true;
    name += length + (name[length] == '|');
  }
  return false;
}

static const char merge_names[] = "merges.txt|vocab.bpe";

/* The files that `path` names; *merges stays empty for a tokenizer.json. */
static Status bpe_find_files(const char *path, Text *json, Text *merges) {
  struct stat info;
  if (stat(path, &info)) return status_errno(errno, "%s", path);
  if (S_ISDIR(info.st_mode)) {
    if (find_in(path, "vocab.json|encoder.json", json) && find_in(path, merge_names, merges))
      return STATUS_OK;
    text_free(merges);
    *merges = (Text){0};
    if (find_in(path, "tokenizer.json", json)) return STATUS_OK;
    return status_fail(STATUS_USER,
                       "%s: there is neither vocab.json with merges.txt nor "
                       "tokenizer.json in this folder",
                       path);
  }
  text_printf(json, "%s", path);
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  if (strcmp(name, "vocab.json") != 0 && strcmp(name, "encoder.json") != 0) return STATUS_OK;
  Text folder = {0};
  text_printf(&folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
  bool found = find_in(text_cstr(&folder), merge_names, merges);
  text_free(&folder);
  return found ? STATUS_OK : status_fail(STATUS_USER, "%s: there is no merges.txt beside it", path);
}

static Status open_files(const Text *json, const Text *merges, Bpe **out) {
  Text vocabulary = {0}, list = {0};
  int error = text_read_file(&vocabulary, text_cstr(json));
  Status status = error ? status_errno(error, "%s", text_cstr(json)) : STATUS_OK;
  error = status == STATUS_OK && merges->count ? text_read_file(&list, text_cstr(merges)) : 0;
  if (error) status = status_errno(error, "%s", text_cstr(merges));
  if (status == STATUS_OK) {
    status = bpe_parse(text_cstr(&vocabulary), vocabulary.count,
                       merges->count ? text_cstr(&list) : NULL, list.count, out);
    bool is_of_merges = merges->count && strncmp(status_message(), "merge ", 6) == 0;
    if (status != STATUS_OK)
      status = status_prefix(status, "%s", text_cstr(is_of_merges ? merges : json));
  }
  text_free(&vocabulary);
  text_free(&list);
  return status;
}

Status bpe_open(const char *path, Bpe **out) {
  Text json = {0}, merges = {0};
  Status status = bpe_find_files(path, &json, &merges);
  if (status == STATUS_OK) status = open_files(&json, &merges, out);
  text_free(&json);
  text_free(&merges);
  return status;
}
