/* sample_value: numbers of a sample, read from a small file of its own: a whole number as text, JSON, or
 * a .npy array; converted to an input's type. The bytes are hostile input. A failure's sentence goes on
 * after what the file is called. */
#ifndef FT_RUNTIME_SAMPLE_VALUE_H
#define FT_RUNTIME_SAMPLE_VALUE_H
#include "plan/plan.h"
#include "runtime/common/status.h"

/* What one sample of an input is. */
typedef struct {
  Type type; /* without the batch */
  int64_t elements, bytes;
  PlanTensor row; /* the input as if it held one sample, for the numbers that it may hold */
  PlanPart *parts;
} SampleValue;

/* False: the input has no batch of `rows`. */
STATUS_CHECKED Status sample_value_bind(const PlanTensor *input, int64_t rows, SampleValue *out);
void sample_value_free(SampleValue *value);
/* Each writes value->bytes bytes, and refuses what the input may not hold. */
STATUS_CHECKED Status sample_value_whole(const SampleValue *value, const uint8_t *text,
                                         size_t count, void *out);
/* field: the member of an object; "": the number, or the array in arrays, is all of it. */
STATUS_CHECKED Status sample_value_json(const SampleValue *value, const uint8_t *text, size_t count,
                                        const char *field, void *out);
/* From `elements` of them. */
STATUS_CHECKED Status sample_value_integers(const SampleValue *value, const int64_t *from, void *out);
STATUS_CHECKED Status sample_value_npy(const SampleValue *value, const uint8_t *bytes, size_t count,
                                       void *out);
#endif
