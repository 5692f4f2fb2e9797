/* source_array: an n-dimensional array in a data file, whose kind is a row of plan/sources.def. The
 * first dimension counts samples. Invariant: an opened array's bytes cover all of its elements
 * (checked against the file). */
#ifndef FT_RUNTIME_SOURCE_ARRAY_H
#define FT_RUNTIME_SOURCE_ARRAY_H
#include "plan/source_kind.h"
#include "runtime/common/element.h"
#include "runtime/data/source_bytes.h"
#include "runtime/text/bpe.h"

/* What a file holds. */
typedef struct {
  Element element;
  bool is_big_endian;
  Shape shape;
  size_t offset;  /* of the first element in the (inflated) file */
  size_t pitch;   /* bytes from a sample to the next; 0: they follow each other */
  void *elements; /* malloc'd, where a reader of whole files has made them; else NULL */
} ArrayHeader;
/* What a reader is given. The failure's text goes on after the file's name: "is not an IDX file".
 * It is hostile input: whatever it says is checked. That the elements are all there is checked by
 * array_open. */
typedef struct {
  const uint8_t *at;  /* the first `count` bytes: at most 64 KiB, or all (sources.def: reads) */
  size_t count, size; /* size: of the whole file; 0 where it may be compressed */
  const DataSource *options; /* source_kind_number and the like; may be NULL */
  const PlanTensor *inputs;  /* of records: what the model takes, `out` has a header for each; … */
  int input_count;           /* … of other kinds NULL and 0, and one */
  Bpe *tokenizer;            /* of a text whose options name one */
} ArrayFile;
#define ARRAYS(name) STATUS_CHECKED Status name##_parse(const ArrayFile *file, ArrayHeader *out);
#define RECORDS ARRAYS
#define TEXT ARRAYS
#define SAMPLES(name)
#define SHARDS(name)
#define SOURCE(name, form, ...) form(name)
#include "plan/sources.def"
#undef SOURCE
#undef ARRAYS
#undef RECORDS
#undef TEXT
#undef SAMPLES
#undef SHARDS
/* Bytes of the elements; false if that does not fit in 2^62 or a dimension is negative. */
bool array_header_bytes(const ArrayHeader *header, size_t *bytes);
/* Bytes of a sample, and from its beginning to that of the next. */
size_t array_header_sample(const ArrayHeader *header);
size_t array_header_pitch(const ArrayHeader *header);
/* "u8[60000,28,28]" */
char *array_header_text(const ArrayHeader *header, char buffer[TYPE_TEXT]);

typedef struct {
  SourceBytes *bytes;
  bool is_shared; /* the bytes are another array's */
  ArrayHeader header;
} DataArray;
/* A file of the kind that `data` says, read with its options; NULL: of the kind that its first
 * bytes tell. Inflating a gzip file goes on after the return: wait before reading. */
STATUS_CHECKED Status array_open(const DataSource *data, const char *path, DataArray **out);
/* The same of a text, with the tokenizer that its options name, if they do. */
STATUS_CHECKED Status array_open_text(const DataSource *data, const char *path, Bpe *tokenizer,
                                      DataArray **out);
/* A file of records: an array for each input. The first one, which is to be closed last, has the
 * bytes. */
STATUS_CHECKED Status array_open_records(const DataSource *data, const char *path,
                                         const PlanTensor *inputs, int input_count,
                                         DataArray **out);
void array_close(DataArray *array); /* NULL is fine */
/* The elements: address of the first one. */
const uint8_t *array_at(const DataArray *array);
/* Bytes of memory that it takes, without shared ones; 0 for a mapped file. */
size_t array_memory(const DataArray *array);

#endif
