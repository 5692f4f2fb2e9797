/* arrivals: of the ranks that fail before they have joined exactly one says why, however late the others
 * are and whenever one is killed. Each rank is a process, forked from this one. */
#include "runtime/communicate/arrivals.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 3, MILLISECOND = 1000 };

/* A rank that fails, at once or `after` milliseconds after the first one has the word, and of the word
 * takes `takes` milliseconds to say it. */
typedef struct {
  int after, takes;
  bool dies; /* while it has the word */
} Fate;

/* `turn`: a pipe whose writers are gone once the rank that fails first has the word. */
static _Noreturn void live(int rank, const Fate *fate, const int turn[2], int out) {
  CommPlace place = {.rank = rank, .ranks = RANKS, .local_rank = rank, .local_ranks = RANKS};
  place.launcher = "mpirun";
  arrivals_begin(&place);
  if (fate->after) {
    close(turn[1]);
    if (read(turn[0], &(char){0}, 1) != 0) _exit(3);
    usleep((useconds_t)fate->after * MILLISECOND);
  }
  if (arrivals_first_word()) {
    if (!fate->after) close(turn[1]);
    usleep((useconds_t)fate->takes * MILLISECOND);
    if (fate->dies) raise(SIGKILL);
    if (write(out, &(char){(char)('0' + rank)}, 1) != 1) _exit(3);
    arrivals_have_said(1);
  }
  if (write(out, "x", 1) != 1) _exit(3);
  _exit(1);
}

/* What the ranks wrote, in order: a digit where one spoke, an x where one ended. */
static void run(const char *job, const Fate fates[RANKS], char *text, size_t size) {
  int ends[2], turn[2];
  char name[64];
  pid_t child[RANKS];
  assert_int_equal(pipe(ends), 0);
  assert_int_equal(pipe(turn), 0);
  snprintf(name, sizeof name, "%d%s", (int)getpid(), job); /* other jobs may run here */
  setenv("PMIX_NAMESPACE", name, 1);
  for (int r = 0; r < RANKS; r++)
    if ((child[r] = fork()) == 0) live(r, &fates[r], turn, ends[1]);
  close(turn[0]);
  close(turn[1]);
  for (int r = 0; r < RANKS; r++) waitpid(child[r], NULL, 0);
  close(ends[1]);
  ssize_t count = read(ends[0], text, size - 1);
  text[count < 0 ? 0 : count] = 0;
  close(ends[0]);
}

/* The others would have their launcher end it before it has spoken. */
static void test_none_ends_before_it_is_said(void **state) {
  (void)state;
  char text[16];
  run("late", (Fate[]){{0, 600, false}, {100, 0, false}, {200, 0, false}}, text, sizeof text);
  assert_string_equal(text, "0xxx");
}

static void test_another_speaks_for_one_that_is_killed(void **state) {
  (void)state;
  char text[16];
  run("dies", (Fate[]){{0, 600, true}, {100, 100, false}, {200, 100, false}}, text, sizeof text);
  assert_true(text[0] == '1' || text[0] == '2');
  assert_string_equal(text + 1, "xx");
}

static void test_all_at_once(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    char text[16];
    int said = 0;
    run("once", (Fate[]){{0, 0, false}, {0, 0, false}, {0, 0, false}}, text, sizeof text);
    for (const char *c = text; *c; c++) said += *c != 'x';
    assert_int_equal(said, 1);
    assert_in_range(text[0], '0', '2');
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_none_ends_before_it_is_said),
      cmocka_unit_test(test_another_speaks_for_one_that_is_killed),
      cmocka_unit_test(test_all_at_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
