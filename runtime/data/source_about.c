/* source: what is said of one, its memory, and the sum by which a resumed training sees that its data has
 * changed; see source.h. */
#include "runtime/common/fnv.h"
#include "runtime/data/file_sum.h"
#include "runtime/data/source_text.h"

void source_append_paths(const Source *source, Text *out) {
  if (source->images.set) text_printf(out, "%s", source->images.set->path);
  const int most = 3; /* of a column, or the first and the last are named */
  for (int i = 0, listed = 0; i < source->column_count; i++) {
    const Column *column = &source->column[i];
    if (column->is_shared || column->file[0].array->is_shared) continue;
    for (int k = 0; k < column->file_count; k++) {
      bool is_last = k + 1 == column->file_count;
      if (column->file_count > most && k && !is_last) continue;
      text_printf(out, "%s%s",
                  !listed++                        ? ""
                  : column->file_count > most && k ? " ... "
                                                   : ", ",
                  source_bytes_path(column->file[k].array->bytes));
    }
    if (column->file_count > most) text_printf(out, " (%d files)", column->file_count);
  }
}

int64_t source_memory(const Source *source) {
  int64_t total = source->images.set ? source->images.set->memory : 0;
  if (source->visits) total += visits_memory(source->visits);
  if (source->part.sample) total += source->part.count * (int64_t)sizeof *source->part.sample;
  for (int i = 0; i < source->column_count; i++)
    for (int k = 0; k < source->column[i].file_count && !source->column[i].is_shared; k++)
      total += (int64_t)array_memory(source->column[i].file[k].array);
  return total;
}

static uint64_t list_sum(const Source *source) {
  uint64_t sum = images_list_sum(&source->images);
  if (source->visits) sum ^= visits_sum(source->visits);
  for (int64_t i = 0; source->part.sample && i < source->part.count; i++)
    sum = (sum ^ source->part.sample[i]) * 1099511628211u;
  return sum;
}

/* Of many files only the ends, where compressed ones have checksums of all. */
Status source_sum(const Source *source, uint64_t *out) {
  enum { FEW_FILES = 64 };
  const char *path;
  int count = 0;
  while (source_path(source, count)) count++;
  *out = fnv_add(FNV_START, &source->samples, sizeof source->samples);
  for (int i = 0; (path = source_path(source, i)); i++) {
    FileSum sum;
    STATUS_TRY(file_sum(path, count > FEW_FILES ? 1 : FILE_SUM_PIECES, &sum));
    *out = fnv_add(*out, &sum, sizeof sum);
  }
  uint64_t list = list_sum(source);
  *out = fnv_add(*out, &list, sizeof list);
  return STATUS_OK;
}

Status source_describe(const Source *source, int workers, Text *out) {
  if (source->window) source_text_describe(source, out);
  return images_describe(&source->images, workers, out);
}

bool source_say_damaged(const Source *source, Text *out) {
  return images_say_damaged(&source->images, out);
}

bool source_say_full(const Source *source, Text *out) {
  return images_say_full(&source->images, out);
}

const char *source_class(const Source *source, const PlanTensor *input, int64_t value) {
  const SampleSet *set = source->images.set;
  if (!set) return NULL;
  const PlanTensor *labelled = source->images.target ? source->images.target : set->label_of;
  return labelled == input && value >= 0 && value < set->class_count ? set->classes[value] : NULL;
}

Status source_same_classes(const Source *train, const Source *other) {
  return images_same_classes(&train->images, &other->images);
}
