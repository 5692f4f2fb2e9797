/* Any bytes as a safetensors file: every tensor that is offered can be read. */
#include "runtime/checkpoint/safetensors.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint8_t *exact = malloc(size + !size); /* so that the sanitizer sees a read beyond the end */
  memcpy(exact, data, size);
  Safetensors *file;
  if (safetensors_read(exact, size, &file) == STATUS_OK) {
    unsigned sum = 0;
    for (int i = 0; i < file->tensor_count; i++) {
      const SafeTensor *tensor = &file->tensor[i];
      for (size_t j = 0; j < tensor->bytes; j++) sum += tensor->data[j];
      if (!safetensors_find(file, tensor->name)) abort();
    }
    for (int i = 0; i < file->text_count; i++)
      if (!safetensors_text(file, file->text[i].key)) abort();
    if (sum == 1234567891) abort(); /* keeps the reads */
    safetensors_close(file);
  }
  free(exact);
  return 0;
}
