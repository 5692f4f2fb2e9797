/* npy: NumPy's array files (numpy.lib.format): versions 1, 2 and 3, C order. npy_parse, which reads
 * them, is declared with the other readers in source_array.h. */
#ifndef FT_RUNTIME_NPY_H
#define FT_RUNTIME_NPY_H
#include "runtime/data/source_array.h"

/* Writes version 1, in parts: open with the final shape, append its bytes, finish. The file
 * appears under its name only when finished. */
typedef struct NpyWriter NpyWriter;
STATUS_CHECKED Status npy_writer_open(const char *path, const Type *type, NpyWriter **out);
STATUS_CHECKED Status npy_writer_append(NpyWriter *writer, const void *bytes, size_t count);
STATUS_CHECKED Status npy_writer_commit(NpyWriter *writer);
void npy_writer_free(NpyWriter *writer); /* NULL is fine; without a commit the file is dropped */
#endif
