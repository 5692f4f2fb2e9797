/* safetensors: see safetensors.h (reading; safetensors_write.c writes). */
#include "runtime/data/safetensors.h"
#include "runtime/common/json.h"
#include "runtime/common/read_whole.h"
#include "runtime/data/keys.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LARGEST_HEADER = 100 << 20 /* the format's own limit is 100 MB */ };

static bool element_of_text(const char *text, Element *out) {
  static const char *const names[ELEMENT_COUNT] = {
      [ELEMENT_BOOL] = "BOOL", [ELEMENT_U8] = "U8",   [ELEMENT_I8] = "I8",
      [ELEMENT_U16] = "U16",   [ELEMENT_I16] = "I16", [ELEMENT_U32] = "U32",
      [ELEMENT_I32] = "I32",   [ELEMENT_I64] = "I64", [ELEMENT_F16] = "F16",
      [ELEMENT_F32] = "F32",   [ELEMENT_F64] = "F64", [ELEMENT_BF16] = "BF16",
  };
  for (int i = 0; i < ELEMENT_COUNT; i++) {
    if (strcmp(names[i], text) != 0) continue;
    *out = (Element)i;
    return true;
  }
  return false;
}

static bool parse_shape(const json_t *list, Shape *out) {
  if (!json_is_array(list) || json_array_size(list) > MAX_RANK) return false;
  out->rank = (int)json_array_size(list);
  for (int i = 0; i < out->rank; i++) {
    const json_t *dim = json_array_get(list, (size_t)i);
    if (!json_is_integer(dim) || json_integer_value(dim) < 0) return false;
    out->dim[i] = json_integer_value(dim);
  }
  return true;
}

static Status parse_tensor(const char *name, const json_t *entry, const uint8_t *data,
                           size_t data_bytes, SafeTensor *out) {
  const json_t *dtype = json_object_get(entry, "dtype"), *shape = json_object_get(entry, "shape");
  const json_t *offsets = json_object_get(entry, "data_offsets");
  out->name = name;
  if (!json_is_object(entry) || !json_is_string(dtype) || !parse_shape(shape, &out->shape) ||
      json_array_size(offsets) != 2 || !json_is_integer(json_array_get(offsets, 0)) ||
      !json_is_integer(json_array_get(offsets, 1)))
    return status_fail(STATUS_USER, "is damaged: the header's entry for '%.80s' is not valid",
                       name);
  if (!element_of_text(json_string_value(dtype), &out->element))
    return status_fail(STATUS_USER, "holds '%.80s' of type %.20s, which ft does not read", name,
                       json_string_value(dtype));
  json_int_t begin = json_integer_value(json_array_get(offsets, 0));
  json_int_t end = json_integer_value(json_array_get(offsets, 1));
  size_t bytes;
  ArrayHeader header = {.element = out->element, .shape = out->shape};
  if (begin < 0 || end < begin || (uint64_t)end > data_bytes)
    return status_fail(STATUS_USER,
                       "is truncated or damaged: '%.80s' lies at bytes %lld to %lld of %zu", name,
                       (long long)begin, (long long)end, data_bytes);
  if (!array_header_bytes(&header, &bytes) || bytes != (size_t)(end - begin)) {
    char text[TYPE_TEXT];
    return status_fail(STATUS_USER, "is damaged: '%.80s' is %s but has %lld bytes", name,
                       array_header_text(&header, text), (long long)(end - begin));
  }
  out->data = data + begin;
  out->bytes = bytes;
  return STATUS_OK;
}

static int by_place(const void *left, const void *right) {
  const SafeTensor *a = left, *b = right;
  if (a->data != b->data) return a->data < b->data ? -1 : 1;
  if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
  return strcmp(a->name, b->name);
}

/* The data must be covered without holes and without overlaps, as the format demands. */
static Status check_cover(const Safetensors *file, const uint8_t *data, size_t data_bytes) {
  const uint8_t *at = data;
  for (int i = 0; i < file->tensor_count; i++) {
    const SafeTensor *tensor = &file->tensor[i];
    if (tensor->data != at)
      return status_fail(STATUS_USER, "is damaged: the data of '%.80s' %s", tensor->name,
                         tensor->data < at ? "overlaps another tensor's" : "follows a hole");
    at += tensor->bytes;
  }
  if (at != data + data_bytes)
    return status_fail(STATUS_USER, "is damaged: %zu bytes follow the last tensor",
                       (size_t)(data + data_bytes - at));
  return STATUS_OK;
}

static Status parse_metadata(Safetensors *file, json_t *entry) {
  const char *key;
  json_t *value;
  file->text = calloc(json_object_size(entry) + 1, sizeof *file->text);
  if (!file->text) return status_errno(ENOMEM, "header");
  json_object_foreach(entry, key, value) {
    if (!json_is_string(value))
      return status_fail(STATUS_USER, "is damaged: its metadata '%.80s' is not a string", key);
    file->text[file->text_count++] = (SafeText){key, json_string_value(value)};
  }
  return STATUS_OK;
}

static Status safetensors_parse_header(Safetensors *file, json_t *root, const uint8_t *data,
                                       size_t data_bytes) {
  const char *name;
  json_t *entry;
  file->tensor = calloc(json_object_size(root) + 1, sizeof *file->tensor);
  if (!file->tensor) return status_errno(ENOMEM, "header");
  json_object_foreach(root, name, entry) {
    if (strcmp(name, "__metadata__") == 0) {
      STATUS_TRY(parse_metadata(file, entry));
      continue;
    }
    STATUS_TRY(parse_tensor(name, entry, data, data_bytes, &file->tensor[file->tensor_count]));
    file->tensor_count++;
  }
  qsort(file->tensor, (size_t)file->tensor_count, sizeof *file->tensor, by_place);
  return check_cover(file, data, data_bytes);
}

/* The bytes are no head of one. A head may begin as a pickle does, so this is asked last. */
static Status not_safetensors(const uint8_t *bytes, size_t count) {
  bool is_archive = count >= 4 && !memcmp(bytes, "PK\3\4", 4);
  bool is_pickle = count >= 2 && bytes[0] == 0x80 && bytes[1] < 6;
  if (is_archive || is_pickle)
    return status_fail(STATUS_USER,
                       "is one of Python's pickles or archives, not a safetensors file; PyTorch "
                       "writes one by safetensors.torch.save_file(model.state_dict(), FILE)");
  if (count < 8) return status_fail(STATUS_USER, "is not a safetensors file: %zu bytes", count);
  return status_fail(STATUS_USER, "is not a safetensors file");
}

Status safetensors_read(const uint8_t *bytes, size_t count, Safetensors **out) {
  *out = NULL;
  if (count < 8) return not_safetensors(bytes, count);
  uint64_t length = 0;
  for (int i = 7; i >= 0; i--) length = length << 8 | bytes[i];
  if (length < 2 || length > LARGEST_HEADER) return not_safetensors(bytes, count);
  if (length > count - 8)
    return status_fail(STATUS_USER, "is truncated: its header has %llu bytes, the whole file %zu",
                       (unsigned long long)length, count);
  if (bytes[8] != '{') return not_safetensors(bytes, count);
  json_t *root;
  Status parsed = json_parse((const char *)bytes + 8, (size_t)length, &root);
  if (parsed == STATUS_USER)
    return status_prefix(parsed, "is damaged: its header is not valid JSON");
  STATUS_TRY(parsed);
  if (!json_is_object(root)) {
    json_decref(root);
    return status_fail(STATUS_USER, "is damaged: its header is no JSON object");
  }
  Safetensors *file = calloc(1, sizeof *file);
  if (!file) {
    json_decref(root);
    return status_errno(ENOMEM, "header");
  }
  file->private_json = root;
  file->private_head = bytes;
  file->private_head_bytes = 8 + (size_t)length;
  Status status =
      safetensors_parse_header(file, root, bytes + 8 + (size_t)length, count - 8 - (size_t)length);
  if (status == STATUS_OK)
    *out = file;
  else
    safetensors_close(file);
  return status;
}

Status safetensors_open(const char *path, Safetensors **out) {
  *out = NULL;
  uint8_t *map = NULL;
  size_t bytes = 0;
  STATUS_TRY(read_whole(path, &map, &bytes));
  Status status = safetensors_read(map, bytes, out);
  if (status == STATUS_OK) {
    (*out)->private_map = map;
    (*out)->private_map_bytes = bytes;
    return STATUS_OK;
  }
  munmap(map, bytes);
  char *message = strdup(status_message());
  status = status_fail(status, "%s %s", path, message ? message : "is damaged");
  free(message);
  return status;
}

void safetensors_close(Safetensors *file) {
  if (!file) return;
  if (file->private_map) munmap(file->private_map, file->private_map_bytes);
  json_decref(file->private_json);
  free(file->tensor);
  free(file->text);
  free(file);
}

const SafeTensor *safetensors_find(const Safetensors *file, const char *name) {
  for (int i = 0; i < file->tensor_count; i++)
    if (strcmp(file->tensor[i].name, name) == 0) return &file->tensor[i];
  return NULL;
}

const char *safetensors_text(const Safetensors *file, const char *key) {
  for (int i = 0; i < file->text_count; i++)
    if (strcmp(file->text[i].key, key) == 0) return file->text[i].value;
  return NULL;
}

/* ── as a data source ─────────────────────────────────────────────────────────────────────── */
static Status no_tensor(const Safetensors *from, const char *name) {
  Text has = {0};
  for (int i = 0; i < from->tensor_count; i++)
    keys_list(&has, from->tensor[i].name, strlen(from->tensor[i].name));
  Status status = keys_none(name, &has);
  text_free(&has);
  return status;
}

static Status give_tensors(const ArrayFile *file, const Safetensors *from, ArrayHeader *out) {
  for (int i = 0; i < file->input_count; i++) {
    char name[KEY_MOST + 1];
    STATUS_TRY(keys_name(file, i, name));
    const SafeTensor *tensor = safetensors_find(from, name);
    if (!tensor) return no_tensor(from, name);
    out[i] = (ArrayHeader){.element = tensor->element,
                           .shape = tensor->shape,
                           .offset = (size_t)(tensor->data - file->at)};
  }
  return STATUS_OK;
}

Status safetensors_parse(const ArrayFile *file, ArrayHeader *out) {
  Safetensors *from;
  STATUS_TRY(keys_check(file));
  STATUS_TRY(safetensors_read(file->at, file->count, &from));
  Status status = give_tensors(file, from, out);
  safetensors_close(from);
  return status;
}
