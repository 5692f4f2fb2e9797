/* source_part: which samples a split has where splits share files (plan/data_part.h): a closed
 * choice by data.split_seed, the labels and the number of samples, the same in every process. */
#ifndef FT_RUNTIME_SOURCE_PART_H
#define FT_RUNTIME_SOURCE_PART_H
#include "plan/plan.h"
#include "runtime/common/status.h"

typedef struct {
  uint32_t *sample; /* of the files, ascending; NULL: all of them */
  int64_t count;
} SourcePart;

/* The value of a sample for this input, which is one whole number. */
typedef Status SampleLabel(const void *context, const char *input, int64_t sample, int64_t *out);

/* Is the split a part of another, or has it parts? */
bool source_has_parts(const Plan *plan, const DataSource *data);
/* Of `samples` that the files hold, those of this split. */
STATUS_CHECKED Status source_part_choose(const Plan *plan, const DataSource *data, int64_t samples,
                                         SampleLabel *label, const void *context, SourcePart *out);
/* A text is not drawn but cut: which windows are this split's. */
STATUS_CHECKED Status source_part_windows(const Plan *plan, const DataSource *data, int64_t windows,
                                          int64_t *first, int64_t *count);
void source_part_free(SourcePart *part);
/* What decides the choice, for a person and to be compared: "0.1 of train by label, data.split_seed
 * 0"; nothing where the split has all samples. */
void source_part_describe(const Plan *plan, const DataSource *data, Text *out);
#endif
