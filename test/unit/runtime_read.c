/* read_whole, source_bytes, guard: files that become shorter while they are read, and what is no
 * file. */
#define _GNU_SOURCE
#include "runtime/common/guard.h"
#include "runtime/common/read_whole.h"
#include "runtime/data/source_bytes.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

enum { BYTES = 5 * 4096 + 100 };
static char path[64];

static int make_file(void **state) {
  (void)state;
  strcpy(path, "/tmp/ft-read-XXXXXX");
  int fd = mkstemp(path);
  static char content[BYTES];
  memset(content, 7, sizeof content);
  bool good = fd >= 0 && write(fd, content, BYTES) == BYTES;
  close(fd);
  return good ? 0 : -1;
}

static int remove_file(void **state) {
  (void)state;
  return unlink(path);
}

static void shorter_while_read(void **state) {
  (void)state;
  int fd;
  size_t bytes;
  uint8_t *at;
  assert_int_equal(read_whole_open(path, &fd, &bytes), STATUS_OK);
  assert_int_equal(bytes, BYTES);
  assert_int_equal(truncate(path, 5000), 0);
  assert_int_equal(read_whole_from(path, fd, bytes, &at), STATUS_FAULT);
  assert_non_null(strstr(status_message(), path));
  assert_non_null(strstr(status_message(), "shorter"));
  close(fd);
}

static void no_file(void **state) {
  (void)state;
  uint8_t *at;
  size_t bytes;
  SourceBytes *source;
  assert_int_equal(read_whole("/tmp", &at, &bytes), STATUS_USER);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(mkfifo(path, 0600), 0);
  assert_int_equal(read_whole(path, &at, &bytes), STATUS_USER); /* and not: for ever */
  assert_non_null(strstr(status_message(), "a pipe or device"));
  assert_int_equal(source_bytes_open(path, &source), STATUS_USER);
}

static int sum_of(const SourceBytes *source) {
  int sum = 0;
  for (int i = 0; i < BYTES; i++) sum += source_bytes_at(source)[i];
  return sum;
}

/* Without guard_install, as in a program that embeds ft: its own memory, whatever becomes of the
 * file. */
static void library(void **state) {
  (void)state;
  SourceBytes *source;
  assert_int_equal(guard_add(path, 1), -1);
  assert_int_equal(source_bytes_open(path, &source), STATUS_OK);
  assert_int_equal(source_bytes_expect(source, BYTES), STATUS_OK);
  assert_int_equal(truncate(path, 0), 0);
  assert_int_equal(sum_of(source), 7 * BYTES);
  assert_int_equal(source_bytes_intact(source), STATUS_OK);
  source_bytes_close(source);
}

static void guarded(void **state) {
  (void)state;
  SourceBytes *source;
  guard_install();
  for (int round = 0; round < 100; round++) { /* more than there are slots: each is given back */
    assert_int_equal(source_bytes_open(path, &source), STATUS_OK);
    source_bytes_close(source);
  }
  assert_int_equal(source_bytes_open(path, &source), STATUS_OK);
  assert_int_equal(source_bytes_expect(source, BYTES), STATUS_OK);
  assert_int_equal(source_bytes_wait(source, BYTES), STATUS_OK);
  assert_int_equal(truncate(path, 4096), 0);
  assert_int_equal(sum_of(source), 7 * 4096); /* zeros, and no signal */
  assert_int_equal(source_bytes_intact(source), STATUS_FAULT);
  assert_non_null(strstr(status_message(), "shorter"));
  assert_int_equal(source_bytes_check(source), STATUS_FAULT);
  source_bytes_close(source);
  assert_int_equal(source_bytes_open(path, &source), STATUS_OK);
  assert_int_equal(source_bytes_intact(source), STATUS_OK); /* the mark went with the mapping */
  source_bytes_close(source);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(shorter_while_read, make_file, remove_file),
      cmocka_unit_test_setup_teardown(no_file, make_file, remove_file),
      cmocka_unit_test_setup_teardown(library, make_file, remove_file),
      cmocka_unit_test_setup_teardown(guarded, make_file, remove_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
