/* Any bytes as a file of KIND, a row of plan/sources.def, plain or gzip: opened, read and
 * converted, or refused. CMakeLists.txt makes a target of each row. Where the kind has options, the
 * last bytes say what they are. */
#define _GNU_SOURCE /* memfd_create */
#include "runtime/data/source_array.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_OPTIONS = 8 };

/* The n-th of words with spaces between, counted round. */
static const char *a_word(const char *words, unsigned n) {
  static char copy[4][256]; /* the text of an option stays */
  static unsigned turn;
  turn = (turn + 1) % 4;
  char *found[32];
  unsigned count = 0;
  snprintf(copy[turn], sizeof *copy, "%s", words);
  for (char *word = strtok(copy[turn], " "); word && count < 32; word = strtok(NULL, " "))
    found[count++] = word;
  return count ? found[n % count] : NULL;
}

static void convert_all(const DataArray *array) {
  int64_t count = shape_elements(&array->header.shape);
  if (count > 1 << 20) count = 1 << 20;
  for (int dtype = 0; dtype < DT_NAMED; dtype++) {
    if (!element_converts(array->header.element, (DType)dtype)) continue;
    void *to = malloc((size_t)count * 8 + 8);
    int64_t done = element_convert(array_at(array), array->header.element,
                                   array->header.is_big_endian, count, (DType)dtype, to);
    if (done < 0 || done > count) abort();
    free(to);
  }
}

__attribute__((unused)) static void read_one(const DataSource *source, const char *path) {
  DataArray *array;
  if (array_open(source, path, &array) != STATUS_OK) return;
  if (source_bytes_check(array->bytes) == STATUS_OK) convert_all(array);
  array_close(array);
}

/* For models of one input and of two. */
__attribute__((unused)) static void read_records(const DataSource *source, const char *path,
                                                 size_t size) {
  const PlanTensor inputs[] = {
      {.name = "x", .type = {DT_F32, {2, {4, 1 + (int64_t)(size & 1)}}}},
      {.name = "y", .type = {DT_I32, {1, {4}}}, .below = (int64_t)(size & 2) + 1}};
  DataArray *arrays[2];
  int count = size & 4 ? 1 : 2;
  const PlanTensor *first = size & 8 ? &inputs[2 - count] : inputs;
  if (array_open_records(source, path, first, count, arrays) != STATUS_OK) return;
  for (int i = count; i-- > 0;) {
    if (source_bytes_check(arrays[i]->bytes) == STATUS_OK) convert_all(arrays[i]);
    array_close(arrays[i]);
  }
}

/* Options of the kind, as a check of them lets through: the last bytes of the file say which are given,
 * and what. */
static int make_options(const uint8_t *data, size_t size, char room[64], DataOption *options) {
  const SourceKind *kind = source_kind_find(KIND);
  int count = 0;
  size_t used = 0, length = size < 63 ? size : 63;
  for (size_t i = 0; i < length; i++) room[i] = (char)data[size - 1 - i];
  room[length] = 0;
  for (int i = 0; i < source_option_count && count < MOST_OPTIONS; i++) {
    const SourceOption *option = &source_options[i];
    if (strcmp(option->source, kind->name) || used >= length) continue;
    unsigned said = (unsigned char)room[used++];
    if (said < 0x80) continue; /* such as files of text end with: then it is not given */
    DataOption value = {.name = option->name, .number = said & 0x7f};
    if (option->type == OPTION_BOOL) value.text = (int)value.number & 1 ? "true" : "false";
    if (option->type == OPTION_TEXT) value.text = &room[used], used += strlen(&room[used]) + 1;
    if (*option->words && ((int)value.number & 1 || option->type == OPTION_WORD))
      value.text = a_word(option->words, (unsigned)value.number >> 1);
    if (source_option_takes(option, &value)) options[count++] = value;
  }
  return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[64], room[64];
  DataOption options[MOST_OPTIONS];
  DataSource source = {.kind = KIND, .options = options};
  source.option_count = make_options(data, size, room, options);
  int fd = memfd_create("fuzz", 0);
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  if (fd >= 0 && write(fd, data, size) == (ssize_t)size) {
    if (source_kind_find(KIND)->form == SOURCE_RECORDS)
      read_records(&source, path, size);
    else
      read_one(&source, path);
  }
  close(fd);
  return 0;
}
