/* safetensors: writing such files (runtime/data/safetensors.h reads them). */
#ifndef FT_RUNTIME_SAFETENSORS_H
#define FT_RUNTIME_SAFETENSORS_H
#include "runtime/data/safetensors.h"

/* Where a file has its tensors: in the order given, but wider elements first, so that each is
 * aligned. The same tensors and texts give the same bytes. has_sum: the metadata gets one more text,
 * "checksum": 16 digits that every other byte of the file goes into, so that a bit lost on a disk is
 * seen. No protection against intent. */
typedef struct {
  char *head; /* length and JSON, with zeros for the sum's digits */
  size_t head_bytes, data_bytes;
  size_t *at; /* by tensor as given: where its data begins behind the head */
  int *order; /* the tensors' indices, as they lie in the file */
  bool has_sum;
} SafeLayout;
STATUS_CHECKED Status safetensors_layout(const SafeTensor *tensors, int count,
                                         const SafeText *texts, int text_count, bool has_sum,
                                         SafeLayout *out);
void safetensors_layout_free(SafeLayout *layout); /* zeros are fine */

/* A file that one process makes and several may write, each its share of the data. It lies beside
 * `path` until safetensors_file_finish: the old file is there or the new one, never a part. The
 * layout and the path must outlive it. */
typedef struct SafeFile SafeFile;
STATUS_CHECKED Status safetensors_file_make(const char *path, const SafeLayout *layout,
                                            SafeFile **out);
/* Its name until it is finished, and another process that joins in, by that name. */
const char *safetensors_file_temporary(const SafeFile *file);
STATUS_CHECKED Status safetensors_file_join(const char *path, const char *temporary,
                                            const SafeLayout *layout, SafeFile **out);
STATUS_CHECKED Status safetensors_file_write(SafeFile *file, size_t at, const void *bytes,
                                             size_t count);
/* What this process has written is on the disk. *sum: what it adds to the sum over the data. */
STATUS_CHECKED Status safetensors_file_sync(SafeFile *file, uint64_t *sum);
/* By its maker, when all is on the disk. `sum`: those of all shares, added. */
STATUS_CHECKED Status safetensors_file_finish(SafeFile *file, uint64_t sum);
/* Removes what its maker has not finished. NULL is fine. */
void safetensors_file_free(SafeFile *file);
/* All of that, of tensors in memory. */
STATUS_CHECKED Status safetensors_write(const char *path, const SafeTensor *tensors, int count,
                                        const SafeText *texts, int text_count, bool has_sum);
/* Has the file a sum, and is it that of its bytes? */
bool safetensors_sum_agrees(const Safetensors *file);
#endif
