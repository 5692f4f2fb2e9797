/* safetensors: named tensors in a file (github.com/huggingface/safetensors, "Format"): a 64-bit
 * little-endian header length, a JSON header, then the data, without holes. The reader takes
 * the file into memory and treats it as hostile: every length, offset, shape and dtype is checked
 * against it. As a data source, safetensors_parse in source_array.h, the file is mapped. */
#ifndef FT_RUNTIME_DATA_SAFETENSORS_H
#define FT_RUNTIME_DATA_SAFETENSORS_H
#include "runtime/data/source_array.h"

typedef struct {
  const char *name;
  Element element;
  Shape shape;
  const uint8_t *data; /* element-aligned if the file was well written; copy out to be sure */
  size_t bytes;
} SafeTensor;
typedef struct {
  const char *key, *value;
} SafeText;

typedef struct Safetensors {
  SafeTensor *tensor; /* in the order of their data */
  int tensor_count;
  SafeText *text; /* "__metadata__" */
  int text_count;
  void *private_json, *private_map;
  size_t private_map_bytes, private_head_bytes;
  const uint8_t *private_head; /* length and JSON */
} Safetensors;

STATUS_CHECKED Status safetensors_open(const char *path, Safetensors **out);
/* The same over bytes that outlive it; failures follow the file's name ("is truncated: …"). */
STATUS_CHECKED Status safetensors_read(const uint8_t *bytes, size_t count, Safetensors **out);
void safetensors_close(Safetensors *file);                                     /* NULL is fine */
const SafeTensor *safetensors_find(const Safetensors *file, const char *name); /* NULL: none */
const char *safetensors_text(const Safetensors *file, const char *key);        /* NULL: none */
#endif
