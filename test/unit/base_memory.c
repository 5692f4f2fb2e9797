/* memory: without memory a program ends with its sentence and exit code 3, from any thread and
 * without the exit handlers, which would take down what other threads use; under a guard it goes
 * back there. */
#include "base/memory.h"
#include "base/text.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void exit_handler(void) { _exit(9); }

static void *ask_for_too_much(void *unused) {
  (void)unused;
  text_append(&(Text){0}, "", SIZE_MAX / 2);
  return NULL;
}

/* The child leaves no temporary file, and the file itself as it was: not there. */
static int end_of_child(bool in_thread) {
  int ends[2], status, fd;
  char folder[] = "/tmp/ft_memory_XXXXXX", path[64];
  Text temporary = {0};
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/file", folder);
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  if (child == 0) {
    pthread_t thread;
    dup2(ends[1], STDERR_FILENO);
    if (atexit(exit_handler) || text_open_beside(path, &temporary, &fd)) _exit(8);
    if (!in_thread) ask_for_too_much(NULL);
    if (in_thread && pthread_create(&thread, NULL, ask_for_too_much, NULL) == 0)
      pthread_join(thread, NULL);
    _exit(7);
  }
  close(ends[1]);
  char said[64] = "";
  assert_true(read(ends[0], said, sizeof said - 1) > 0);
  close(ends[0]);
  assert_string_equal(said, "error: out of memory\n");
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(rmdir(folder), 0);
  return WEXITSTATUS(status);
}

static void test_the_end(void **state) {
  (void)state;
  assert_int_equal(end_of_child(false), 3);
  assert_int_equal(end_of_child(true), 3);
}

static void test_guard(void **state) {
  (void)state;
  MemoryGuard outer, inner;
  volatile int reached = 0;
  memory_enter(&outer);
  if (setjmp(outer.place) == 0) {
    memory_enter(&inner);
    if (setjmp(inner.place) == 0) {
      ask_for_too_much(NULL);
      fail();
    }
    memory_leave(&inner);
    reached = 1;
    ask_for_too_much(NULL);
    fail();
  }
  memory_leave(&outer);
  assert_int_equal(reached, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_end), cmocka_unit_test(test_guard)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
