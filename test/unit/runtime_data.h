/* What the runtime's data tests share: files with given bytes in a folder of their own. */
#ifndef FT_TEST_RUNTIME_DATA_H
#define FT_TEST_RUNTIME_DATA_H
#include "base/text.h"
#include "runtime/data/source_array.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <cmocka.h>

static char data_folder[64];
static int data_setup(void **state) {
  (void)state;
  strcpy(data_folder, "/tmp/ft-unit-XXXXXX");
  return mkdtemp(data_folder) ? 0 : -1;
}
static int data_teardown(void **state) {
  (void)state;
  char command[128];
  snprintf(command, sizeof command, "rm -r %s", data_folder);
  return system(command);
}
/* The path of a file in the folder; valid until the second next call. */
__attribute__((unused)) static const char *data_path(const char *name) {
  static char path[2][256];
  static int turn;
  turn = !turn;
  snprintf(path[turn], sizeof path[turn], "%s/%s", data_folder, name);
  return path[turn];
}
__attribute__((unused)) static const char *data_write(const char *name, const void *bytes,
                                                      size_t count) {
  const char *path = data_path(name);
  assert_int_equal(text_write_file(path, bytes, count), 0);
  return path;
}
__attribute__((unused)) static const char *data_write_gzip(const char *name, const void *bytes,
                                                           size_t count, int level) {
  const char *path = data_path(name);
  char mode[8];
  snprintf(mode, sizeof mode, "wb%d", level);
  gzFile file = gzopen(path, mode);
  assert_non_null(file);
  assert_int_equal(gzwrite(file, bytes, (unsigned)count), (int)count);
  assert_int_equal(gzclose(file), Z_OK);
  return path;
}
/* Of "dtype=u32" or "limit=3 columns=a,b": a number where it is one, else a text. The words live in
 * `room`. */
__attribute__((unused)) static int data_options(const char *given, char room[256],
                                                DataOption options[8]) {
  int count = 0;
  assert_true(snprintf(room, 256, "%s", given ? given : "") < 256);
  for (char *word = strtok(room, " "); word; word = strtok(NULL, " ")) {
    char *value = strchr(word, '='), *end;
    assert_true(value && count < 8);
    *value++ = 0;
    options[count] = (DataOption){.name = word, .number = strtod(value, &end)};
    if (value[strspn(value, "0123456789.-")] || *end) options[count].text = value;
    count++;
  }
  return count;
}
/* A file of a kind of plan/sources.def, with options as data_options has them, or none (NULL). */
__attribute__((unused)) static Status data_open(const char *kind, const char *given,
                                                const char *path, DataArray **out) {
  char room[256];
  DataOption options[8];
  DataSource data = {.kind = kind, .options = options};
  data.option_count = data_options(given, room, options);
  return array_open(&data, path, out);
}
/* Opens and reads all: what a damaged file must fail in. */
__attribute__((unused)) static Status data_read(const char *kind, const char *path) {
  DataArray *array;
  Status status = data_open(kind, NULL, path, &array);
  if (status == STATUS_OK) status = source_bytes_check(array->bytes);
  array_close(array); /* NULL if it was not opened */
  return status;
}
/* Must fail as the user's error, in one line that holds both texts. */
#define data_refused(kind, path, what)                                                             \
  do {                                                                                             \
    assert_int_equal(data_read((kind), (path)), STATUS_USER);                                      \
    if (!strstr(status_message(), (what)) || !strstr(status_message(), (path)))                    \
      fail_msg("message: %s", status_message());                                                   \
    assert_null(strchr(status_message(), '\n'));                                                   \
  } while (0)
#endif
