/* deploy_sparse: see deploy_sparse.h. */
#include "runtime/command/deploy_sparse.h"
#include "runtime/checkpoint/weight_files.h"
#include "runtime/command/shrink.h"
#include <string.h>

enum { FOUR = 4, KEPT = 2 };

static bool is_two_of_four(const SafeTensor *tensor) {
  if (tensor->shape.rank != 2 || !element_converts(tensor->element, DT_F32)) return false;
  int64_t rows = tensor->shape.dim[0], columns = tensor->shape.dim[1];
  int bytes = element_bytes(tensor->element);
  for (int64_t row = 0; row < rows; row++)
    for (int64_t first = 0; first < columns; first += FOUR) {
      int kept = 0;
      for (int64_t i = first; i < first + FOUR && i < columns; i++)
        kept += !is_zero_element(tensor->data + (row * columns + i) * bytes, bytes);
      if (kept > KEPT) return false;
    }
  return true;
}

Status deploy_sparse_names(const char *path, Text *out) {
  WeightFiles weights;
  Status status = weight_files_open(&path, 1, NULL, 0, &weights);
  for (int i = 0; status == STATUS_OK && i < weights.all.tensor_count; i++) {
    const SafeTensor *tensor = &weights.all.tensor[i];
    if (strchr(tensor->name, ',') || !is_two_of_four(tensor)) continue;
    text_printf(out, "%s%s", out->count ? "," : "?", tensor->name);
  }
  weight_files_close(&weights);
  return status;
}
