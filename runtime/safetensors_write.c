/* safetensors_write: the writer (declared in safetensors.h). */
#include "base/text.h"
#include "runtime/safetensors.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static void append_json_text(Text *out, const char *text) {
  text_append(out, "\"", 1);
  for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
    if (*at == '"' || *at == '\\')
      text_printf(out, "\\%c", *at);
    else if (*at < 0x20)
      text_printf(out, "\\u%04x", *at);
    else
      text_append(out, (const char *)at, 1);
  }
  text_append(out, "\"", 1);
}

static const char *const dtype_names[ELEMENT_COUNT] = {
    [ELEMENT_BOOL] = "BOOL", [ELEMENT_U8] = "U8",   [ELEMENT_I8] = "I8",   [ELEMENT_U16] = "U16",
    [ELEMENT_I16] = "I16",   [ELEMENT_U32] = "U32", [ELEMENT_I32] = "I32", [ELEMENT_I64] = "I64",
    [ELEMENT_F16] = "F16",   [ELEMENT_F32] = "F32", [ELEMENT_F64] = "F64", [ELEMENT_BF16] = "BF16",
};

static void append_tensor(Text *out, const SafeTensor *tensor, size_t begin) {
  append_json_text(out, tensor->name);
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
      append_json_text(&json, texts[i].key);
      text_append(&json, ":", 1);
      append_json_text(&json, texts[i].value);
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
static int write_file(const char *temporary, const char *path, const Text *header,
                      const SafeTensor *const *order, int count) {
  int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return errno;
  (void)flock(fd, LOCK_EX | LOCK_NB);
  int error = text_write_all(fd, header->at, header->count);
  for (int i = 0; i < count && !error; i++)
    error = text_write_all(fd, order[i]->data, order[i]->bytes);
  if (!error && fsync(fd) != 0 && errno != EINVAL) error = errno;
  if (!error && rename(temporary, path) != 0) error = errno;
  if (close(fd) != 0 && !error) error = errno;
  if (error) unlink(temporary);
  return error;
}

/* A rename is lasting only when the folder is on disk too; a folder that cannot be synced is not
 * worth a failure. */
static void sync_folder(const char *path) {
  const char *slash = strrchr(path, '/');
  char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
  int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  if (fd >= 0) {
    (void)fsync(fd);
    close(fd);
  }
  free(folder);
}

Status safetensors_write(const char *path, const SafeTensor *tensors, int count,
                         const SafeText *texts, int text_count) {
  const SafeTensor **order = calloc((size_t)count + 1, sizeof *order);
  if (!order) return status_errno(ENOMEM, "cannot write %s", path);
  int placed = 0;
  for (int bytes = 8; bytes >= 1; bytes /= 2)
    for (int i = 0; i < count; i++)
      if (element_bytes(tensors[i].element) == bytes) order[placed++] = &tensors[i];
  Text header = {0}, temporary = {0};
  append_header(&header, order, count, texts, text_count);
  text_printf(&temporary, "%s.%d.tmp", path, (int)getpid());
  int error = write_file(temporary.at, path, &header, order, count);
  if (!error) sync_folder(path);
  text_free(&header);
  text_free(&temporary);
  free(order);
  return error ? status_errno(error, "cannot write %s", path) : STATUS_OK;
}
