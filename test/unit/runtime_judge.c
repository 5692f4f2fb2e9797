/* runtime_judge: whom the sentence of a failed job names, of ranks whose reports are made up here. */
#include "runtime/communicate/watch_private.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { RANKS = 4 };
static const int64_t second = 1000000000;
static Comm comm;
static Seat seats[RANKS];
static Peer peer[RANKS];
static bool is_named[RANKS];
static Judge judge;
static char sentence[COMM_SENTENCE];

/* All are in step 12, have been heard of just now, and wait in collective 37. */
static int all_wait(void **state) {
  (void)state;
  judge = (Judge){&comm, peer, is_named, RANKS, 1000 * second};
  comm.seats = seats;
  comm.timeout = 120;
  for (int r = 0; r < RANKS; r++) {
    snprintf(seats[r].host, sizeof seats[r].host, "n%d", r / 2);
    peer[r] = (Peer){.heard = judge.now, .moved = judge.now};
    Progress *at = &peer[r].progress;
    at->entered = at->oldest = at->oldest_collective = 37;
    at->step = at->oldest_step = 12;
    snprintf(at->text, sizeof at->text, "all_reduce of 9 f32 (bucket 2: gradients of h.0.*)");
    snprintf(at->doing, sizeof at->doing, "kernel dot (line 5)");
  }
  return 0;
}

/* It computes, and has entered so many collectives. */
static void is_at(int rank, int64_t entered) {
  peer[rank].progress.entered = entered;
  peer[rank].progress.oldest = peer[rank].progress.oldest_collective = 0;
}

/* It waits in that one, and knows of no later one. */
static void waits_in(int rank, int64_t collective) {
  Progress *at = &peer[rank].progress;
  at->entered = at->oldest = at->oldest_collective = collective;
  at->oldest_step = 11;
}

static void says(const char *expected) {
  assert_true(judge_late(&judge, 0, sentence));
  assert_string_equal(sentence, expected);
}

static void missing(void **state) {
  (void)state;
  is_at(3, 36);
  snprintf(seats[3].device, sizeof seats[3].device, "cuda:1");
  says("rank 3 (host n1, cuda:1) has not entered all_reduce #37 (bucket 2: gradients of h.0.*) of "
       "step 12 for 120 s; it was last seen in step 12, kernel dot (line 5); the other 3 wait");
  seats[3].device[0] = 0;
  is_at(1, 35);
  says("ranks 1, 3 (hosts n0, n1) have not entered all_reduce #37 (bucket 2: gradients of h.0.*) of "
       "step 12 for 120 s; last seen: rank 1 in step 12, kernel dot (line 5), rank 3 in step 12, "
       "kernel dot (line 5); the other 2 wait");
}

/* Rank 1 has not come to 37 because it waits in 36 for rank 2, which is stopped in it, or not there
 * yet. */
static void who_waits_earlier_is_not_named(void **state) {
  (void)state;
  waits_in(1, 36);
  is_at(2, 35);
  says("rank 2 (host n1) has not entered all_reduce #36 (bucket 2: gradients of h.0.*) of step 11 "
       "for 120 s; it was last seen in step 12, kernel dot (line 5); the other 3 wait");
  waits_in(2, 36);
  peer[2].heard -= 60 * second;
  says("nothing is heard from rank 2 (host n1) (stopped, or cut off), and all_reduce #36 (bucket 2: "
       "gradients of h.0.*) of step 11, which rank 0 has begun, does not end for 120 s; it was last "
       "seen in step 12, kernel dot (line 5)");
}

/* What one that is stopped said last, it may not be waiting for any more. */
static void silent_ranks_wait_for_nothing(void **state) {
  (void)state;
  waits_in(2, 36);
  peer[2].heard -= 60 * second;
  says("rank 2 (host n1) has not entered all_reduce #37 (bucket 2: gradients of h.0.*) of step 12 "
       "for 120 s and nothing is heard from there (stopped, or cut off); it was last seen in step "
       "12, kernel dot (line 5); the other 3 wait");
}

/* A checkpoint that is written is waited for as long as it goes on. */
static void writing_goes_on(void **state) {
  (void)state;
  is_at(2, 36);
  peer[2].progress.may_last = true;
  snprintf(peer[2].progress.doing, sizeof peer[2].progress.doing, "writing a checkpoint");
  peer[2].moved -= 100 * second;
  assert_false(judge_late(&judge, 0, sentence));
  is_at(1, 36); /* this one does not */
  assert_true(judge_late(&judge, 0, sentence));
  assert_non_null(strstr(sentence, "rank 1 (host n0) has not entered"));
  waits_in(1, 37);
  peer[2].moved -= 100 * second;
  says("rank 2 (host n1) has not entered all_reduce #37 (bucket 2: gradients of h.0.*) of step 12 "
       "for 120 s; it was last seen in step 12, writing a checkpoint; the other 3 wait");
}

static void between_two(void **state) {
  (void)state;
  for (int r = 0; r < 3; r++) peer[r].progress.oldest_collective = 0;
  snprintf(peer[0].progress.text, sizeof peer[0].progress.text, "receive of 9 f32 from rank 1 (x)");
  is_at(3, 36);
  says("rank 0 (host n0) waits for 120 s in its receive of 9 f32 from rank 1 (x) of step 12; rank 3 "
       "(host n1) waits for nobody; it was last seen in step 12, kernel dot (line 5)");
}

static void dead(void **state) {
  (void)state;
  judge_dead(&judge, 2, sentence);
  assert_string_equal(sentence,
                      "rank 2 (host n1) has ended without a word (killed, or out of memory); it was "
                      "last seen in step 12, kernel dot (line 5), in all_reduce #37 (bucket 2: "
                      "gradients of h.0.*) of step 12; the other 3 end");
  peer[2].progress = (Progress){0};
  judge_dead(&judge, 2, sentence);
  assert_non_null(strstr(sentence, "it was last seen at its start; the other 3 end"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(missing, all_wait),
      cmocka_unit_test_setup(who_waits_earlier_is_not_named, all_wait),
      cmocka_unit_test_setup(silent_ranks_wait_for_nothing, all_wait),
      cmocka_unit_test_setup(writing_goes_on, all_wait),
      cmocka_unit_test_setup(between_two, all_wait),
      cmocka_unit_test_setup(dead, all_wait)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
