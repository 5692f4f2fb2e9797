/* safetensors: named tensors in a file (github.com/huggingface/safetensors, "Format"): a 64-bit
 * little-endian header length, a JSON header, then the data, without holes. The reader takes
 * the file into memory and treats it as hostile: every length, offset, shape and dtype is checked
 * against it. */
#ifndef FT_RUNTIME_SAFETENSORS_H
#define FT_RUNTIME_SAFETENSORS_H
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
STATUS_CHECKED Status safetensors_parse(const uint8_t *bytes, size_t count, Safetensors **out);
void safetensors_close(Safetensors *file);                                     /* NULL is fine */
const SafeTensor *safetensors_find(const Safetensors *file, const char *name); /* NULL: none */
const char *safetensors_text(const Safetensors *file, const char *key);        /* NULL: none */

/* Writes beside `path`, fsyncs, renames: the old file or the new one, never a part. The same
 * tensors give the same bytes. Tensors are stored in the order given, but wider elements first, so
 * that each is aligned. has_sum: the metadata gets one more text, "sum": 16 digits that every other
 * byte of the file goes into, so that a bit lost on a disk is seen. No protection against intent.
 */
STATUS_CHECKED Status safetensors_write(const char *path, const SafeTensor *tensors, int count,
                                        const SafeText *texts, int text_count, bool has_sum);
/* The same of tensors whose data do not lie in memory: `read` gives a piece of the data of tensor
 * `index`, from byte `from` on, and how long it is, until the next call. What fails there ends the
 * writing, as a full disk does. */
typedef Status SafeRead(void *context, int index, size_t from, const void **at, size_t *bytes);
STATUS_CHECKED Status safetensors_write_from(const char *path, const SafeTensor *tensors, int count,
                                             const SafeText *texts, int text_count, bool has_sum,
                                             SafeRead *read, void *context);
/* Has the file a sum, and is it that of its bytes? */
bool safetensors_sum_agrees(const Safetensors *file);
#endif
