/* safetensors_write: the writer (declared in safetensors.h). */
#include "base/text.h"
#include "runtime/checkpoint/safetensors.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const char *const dtype_names[ELEMENT_COUNT] = {
    [ELEMENT_BOOL] = "BOOL", [ELEMENT_U8] = "U8",   [ELEMENT_I8] = "I8",   [ELEMENT_U16] = "U16",
    [ELEMENT_I16] = "I16",   [ELEMENT_U32] = "U32", [ELEMENT_I32] = "I32", [ELEMENT_I64] = "I64",
    [ELEMENT_F16] = "F16",   [ELEMENT_F32] = "F32", [ELEMENT_F64] = "F64", [ELEMENT_BF16] = "BF16",
};

static void append_tensor(Text *out, const SafeTensor *tensor, size_t begin) {
  text_append_json(out, tensor->name);
  text_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", dtype_names[tensor->element]);
  for (int i = 0; i < tensor->shape.rank; i++)
    text_printf(out, "%s%lld", i ? "," : "", (long long)tensor->shape.dim[i]);
  text_printf(out, "],\"data_offsets\":[%zu,%zu]}", begin, begin + tensor->bytes);
}

/* The header, padded with spaces so that the data starts at a multiple of 8. */
static void append_header(Text *out, const SafeTensor *const *order, int count,
                          const SafeText *texts, int text_count) {
  Text json = {0};
  size_t offset = 0;
  text_append(&json, "{", 1);
  if (text_count) {
    text_printf(&json, "\"__metadata__\":{");
    for (int i = 0; i < text_count; i++) {
      if (i) text_append(&json, ",", 1);
      text_append_json(&json, texts[i].key);
      text_append(&json, ":", 1);
      text_append_json(&json, texts[i].value);
    }
    text_append(&json, "}", 1);
  }
  for (int i = 0; i < count; i++) {
    if (i || text_count) text_append(&json, ",", 1);
    append_tensor(&json, order[i], offset);
    offset += order[i]->bytes;
  }
  text_append(&json, "}", 1);
  while (json.count % 8) text_append(&json, " ", 1);
  char length[8];
  for (int i = 0; i < 8; i++) length[i] = (char)(json.count >> (8 * i));
  text_append(out, length, 8);
  text_append(out, json.at, json.count);
  text_free(&json);
}

/* The lock tells whoever finds the temporary file later whether its writer lives (ckpt_folder.c).
 */
static int write_file(const char *path, const Text *header, const SafeTensor *const *order,
                      int count) {
  Text temporary = {0};
  int fd = -1, error = text_open_beside(path, &temporary, &fd);
  if (!error) {
    (void)flock(fd, LOCK_EX | LOCK_NB);
    error = text_write_all(fd, header->at, header->count);
    for (int i = 0; i < count && !error; i++)
      error = text_write_all(fd, order[i]->data, order[i]->bytes);
    if (!error && fsync(fd) != 0 && errno != EINVAL) error = errno;
    if (!error && rename(temporary.at, path) != 0) error = errno;
    if (close(fd) != 0 && !error) error = errno;
    if (error) unlink(temporary.at);
  }
  text_free(&temporary);
  if (!error) text_sync_parent(path);
  return error;
}

/* The texts, with room for the sum. */
static SafeText *texts_with_sum(const SafeText *texts, int count, bool has_sum) {
  SafeText *all = calloc((size_t)count + 2, sizeof *all);
  for (int i = 0; all && i < count; i++) all[i] = texts[i];
  if (all && has_sum) all[count] = (SafeText){"sum", "0000000000000000"};
  return all;
}

Status safetensors_write(const char *path, const SafeTensor *tensors, int count,
                         const SafeText *texts, int text_count, bool has_sum) {
  const SafeTensor **order = calloc((size_t)count + 1, sizeof *order);
  SafeText *all = texts_with_sum(texts, text_count, has_sum);
  Status status = order && all ? STATUS_OK : status_errno(ENOMEM, "cannot write %s", path);
  int placed = 0;
  for (int bytes = 8; bytes >= 1 && status == STATUS_OK; bytes /= 2)
    for (int i = 0; i < count; i++)
      if (element_bytes(tensors[i].element) == bytes) order[placed++] = &tensors[i];
  Text header = {0};
  if (status == STATUS_OK) {
    append_header(&header, order, count, all, text_count + has_sum);
    if (has_sum) safetensors_put_sum(header.at, header.count, order, count);
    int error = write_file(path, &header, order, count);
    if (error) status = status_errno(error, "cannot write %s", path);
  }
  text_free(&header);
  free(order);
  free(all);
  return status;
}
