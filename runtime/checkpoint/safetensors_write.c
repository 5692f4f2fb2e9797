/* safetensors_write: the writer (declared in safetensors.h). */
#include "base/text.h"
#include "runtime/checkpoint/safetensors_sum.h"
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

/* A file being written. */
typedef struct {
  const char *path;
  const SafeTensor *tensors;
  int *order, count; /* of the tensors in the file */
  bool has_sum;
  SafeRead *read;
  void *context;
} Writing;

/* The header, padded with spaces so that the data starts at a multiple of 8. */
static void append_header(Text *out, const Writing *writing, const SafeText *texts,
                          int text_count) {
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
  for (int i = 0; i < writing->count; i++) {
    const SafeTensor *tensor = &writing->tensors[writing->order[i]];
    if (i || text_count) text_append(&json, ",", 1);
    append_tensor(&json, tensor, offset);
    offset += tensor->bytes;
  }
  text_append(&json, "}", 1);
  while (json.count % 8) text_append(&json, " ", 1);
  char length[8];
  for (int i = 0; i < 8; i++) length[i] = (char)(json.count >> (8 * i));
  text_append(out, length, 8);
  text_append(out, json.at, json.count);
  text_free(&json);
}

static Status writing_failed(const Writing *writing, int error) {
  return error ? status_errno(error, "cannot write %s", writing->path) : STATUS_OK;
}

/* What is in memory only would make the fsync at the end long, and whoever waits for it would see
 * no sign of life meanwhile. */
static void sync_now_and_then(size_t before, size_t count, int fd) {
  enum { EVERY = 256 << 20 };
  if (before / EVERY != (before + count) / EVERY) (void)!fdatasync(fd);
}

static Status write_tensor(const Writing *writing, int index, int fd, uint64_t *sum) {
  SafeSum more;
  safetensors_sum_start(&more, *sum);
  for (size_t at = 0, count, all = writing->tensors[index].bytes; at < all; at += count) {
    const void *piece;
    STATUS_TRY(writing->read(writing->context, index, at, &piece, &count));
    if (count > all - at) count = all - at;
    STATUS_TRY(writing_failed(writing, text_write_all(fd, piece, count)));
    if (writing->has_sum) safetensors_sum_add(&more, piece, count);
    sync_now_and_then(at, count, fd);
  }
  *sum = safetensors_sum_end(&more);
  return STATUS_OK;
}

/* The sum is known when all else is written, and goes to its place in the head then. */
static Status write_content(const Writing *writing, const Text *header, int fd) {
  size_t place = 0;
  uint64_t sum = writing->has_sum ? safetensors_sum_of_head(header->at, header->count, &place) : 0;
  char digits[SAFE_SUM_DIGITS + 1];
  STATUS_TRY(writing_failed(writing, text_write_all(fd, header->at, header->count)));
  for (int i = 0; i < writing->count; i++)
    STATUS_TRY(write_tensor(writing, writing->order[i], fd, &sum));
  if (!writing->has_sum) return STATUS_OK;
  safetensors_sum_text(sum, digits);
  if (lseek(fd, (off_t)place, SEEK_SET) < 0) return writing_failed(writing, errno);
  return writing_failed(writing, text_write_all(fd, digits, SAFE_SUM_DIGITS));
}

/* The lock tells a process that finds the temporary file whether its writer lives (ckpt_folder.c).
 */
static Status writing_write_file(const Writing *writing, const Text *header) {
  Text temporary = {0};
  int fd = -1;
  Status status = writing_failed(writing, text_open_beside(writing->path, &temporary, &fd));
  if (status == STATUS_OK) {
    (void)flock(fd, LOCK_EX | LOCK_NB);
    status = write_content(writing, header, fd);
    if (status == STATUS_OK && fsync(fd) != 0 && errno != EINVAL)
      status = writing_failed(writing, errno);
    if (status == STATUS_OK && rename(temporary.at, writing->path) != 0)
      status = writing_failed(writing, errno);
    if (close(fd) != 0 && status == STATUS_OK) status = writing_failed(writing, errno);
    if (status != STATUS_OK) unlink(temporary.at);
  }
  text_free(&temporary);
  if (status == STATUS_OK) text_sync_parent(writing->path);
  return status;
}

/* The texts, with room for the sum. */
static SafeText *texts_with_sum(const SafeText *texts, int count, bool has_sum) {
  SafeText *all = calloc((size_t)count + 2, sizeof *all);
  for (int i = 0; all && i < count; i++) all[i] = texts[i];
  if (all && has_sum) all[count] = (SafeText){"sum", "0000000000000000"};
  return all;
}

Status safetensors_write_from(const char *path, const SafeTensor *tensors, int count,
                              const SafeText *texts, int text_count, bool has_sum, SafeRead *read,
                              void *context) {
  Writing writing = {path, tensors, NULL, count, has_sum, read, context};
  writing.order = calloc((size_t)count + 1, sizeof *writing.order);
  SafeText *all = texts_with_sum(texts, text_count, has_sum);
  Status status = writing.order && all ? STATUS_OK : writing_failed(&writing, ENOMEM);
  int placed = 0;
  for (int bytes = 8; bytes >= 1 && status == STATUS_OK; bytes /= 2)
    for (int i = 0; i < count; i++)
      if (element_bytes(tensors[i].element) == bytes) writing.order[placed++] = i;
  Text header = {0};
  if (status == STATUS_OK) {
    append_header(&header, &writing, all, text_count + has_sum);
    status = writing_write_file(&writing, &header);
  }
  text_free(&header);
  free(writing.order);
  free(all);
  return status;
}

/* Data that lie in memory. */
static Status next_from_memory(void *context, int index, size_t from, const void **at,
                               size_t *bytes) {
  const SafeTensor *tensor = &((const SafeTensor *)context)[index];
  *at = tensor->data + from;
  *bytes = tensor->bytes - from;
  return STATUS_OK;
}

Status safetensors_write(const char *path, const SafeTensor *tensors, int count,
                         const SafeText *texts, int text_count, bool has_sum) {
  return safetensors_write_from(path, tensors, count, texts, text_count, has_sum, next_from_memory,
                                (void *)(uintptr_t)tensors);
}
