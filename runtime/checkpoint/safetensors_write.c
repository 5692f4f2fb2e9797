/* safetensors_write: where a file has its tensors, and writing those that lie in memory (declared in
 * safetensors.h). */
#include "base/text.h"
#include "runtime/checkpoint/safetensors_sum.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

/* Padded with spaces so that the data starts at a multiple of 8. */
static void append_header(Text *out, const SafeTensor *tensors, int count, const SafeText *texts,
                          int text_count, const SafeLayout *layout) {
  Text json = {0};
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
    int index = layout->order[i];
    if (i || text_count) text_append(&json, ",", 1);
    append_tensor(&json, &tensors[index], layout->at[index]);
  }
  text_append(&json, "}", 1);
  while (json.count % 8) text_append(&json, " ", 1);
  char length[8];
  for (int i = 0; i < 8; i++) length[i] = (char)(json.count >> (8 * i));
  text_append(out, length, 8);
  text_append(out, json.at, json.count);
  text_free(&json);
}

/* The texts, with room for the sum. */
static SafeText *texts_with_sum(const SafeText *texts, int count, bool has_sum) {
  SafeText *all = calloc((size_t)count + 2, sizeof *all);
  for (int i = 0; all && i < count; i++) all[i] = texts[i];
  if (all && has_sum) all[count] = (SafeText){"checksum", "0000000000000000"};
  return all;
}

Status safetensors_layout(const SafeTensor *tensors, int count, const SafeText *texts,
                          int text_count, bool has_sum, SafeLayout *out) {
  *out = (SafeLayout){.at = calloc((size_t)count + 1, sizeof *out->at),
                      .order = calloc((size_t)count + 1, sizeof *out->order),
                      .has_sum = has_sum};
  SafeText *all = texts_with_sum(texts, text_count, has_sum);
  if (!all || !out->at || !out->order) {
    free(all);
    safetensors_layout_free(out);
    return status_errno(ENOMEM, "weights");
  }
  int placed = 0;
  for (int bytes = 8; bytes >= 1; bytes /= 2)
    for (int i = 0; i < count; i++) {
      if (element_bytes(tensors[i].element) != bytes) continue;
      out->order[placed++] = i;
      out->at[i] = out->data_bytes;
      out->data_bytes += tensors[i].bytes;
    }
  Text head = {0};
  append_header(&head, tensors, count, all, text_count + has_sum, out);
  out->head = head.at;
  out->head_bytes = head.count;
  free(all);
  return STATUS_OK;
}

void safetensors_layout_free(SafeLayout *layout) {
  free(layout->head);
  free(layout->at);
  free(layout->order);
  *layout = (SafeLayout){0};
}

static Status write_all(SafeFile *file, const SafeTensor *tensors, int count,
                        const SafeLayout *layout) {
  uint64_t sum;
  for (int i = 0; i < count; i++)
    STATUS_TRY(safetensors_file_write(file, layout->at[i], tensors[i].data, tensors[i].bytes));
  STATUS_TRY(safetensors_file_sync(file, &sum));
  return safetensors_file_finish(file, sum);
}

Status safetensors_write(const char *path, const SafeTensor *tensors, int count,
                         const SafeText *texts, int text_count, bool has_sum) {
  SafeLayout layout;
  SafeFile *file = NULL;
  STATUS_TRY(safetensors_layout(tensors, count, texts, text_count, has_sum, &layout));
  Status status = safetensors_file_make(path, &layout, &file);
  if (status == STATUS_OK) status = write_all(file, tensors, count, &layout);
  safetensors_file_free(file);
  safetensors_layout_free(&layout);
  return status;
}
