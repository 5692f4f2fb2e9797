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

/* Rank 3 was stopped, and comes back as the others give it up. */
static void one_that_is_back_is_waited_for(void **state) {
  (void)state;
  waits_in(3, 37);
  peer[3].heard -= 100 * second;
  judge_heard(&judge, 3, 99 * second); /* it was rank 0 that was stopped */
  says("all 4 ranks have entered all_reduce #37 (bucket 2: gradients of h.0.*) of step 12, and it "
       "does not end for 120 s: does the network between them work?");
  peer[3].heard -= 100 * second;
  judge_heard(&judge, 3, 0);
  assert_false(judge_late(&judge, 0, sentence));
  judge.now += 3 * second;
  for (int r = 0; r < 4; r++) peer[r].heard = judge.now;
  says("nothing was heard from rank 3 (host n1) for long (stopped, or cut off), and all_reduce #37 "
       "(bucket 2: gradients of h.0.*) of step 12, which rank 0 has begun, does not end for 120 s");
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

/* ── stages of a pipeline ─────────────────────────────────────────────────────────────────── */
/* Two stages on two ranks each: 0 and 2 are of stage 0, 1 and 3 of stage 1. All compute. */
static int all_compute(void **state) {
  all_wait(state);
  comm.mesh = (Mesh){2, 2, 1};
  for (int r = 0; r < RANKS; r++) {
    is_at(r, 3);
    peer[r].progress.entered_in_stage = r % 2 ? 5 : 1;
  }
  return 0;
}

static void waits_for(int rank, int other, const char *text) {
  Progress *at = &peer[rank].progress;
  at->oldest = 90;
  at->oldest_is_message = true;
  at->oldest_peer = other;
  at->oldest_collective = 0;
  snprintf(at->text, sizeof at->text, "%s", text);
}

static void waits_in_stage(int rank, int64_t collective) {
  waits_in(rank, collective);
  peer[rank].progress.entered = 3;
  peer[rank].progress.entered_in_stage = collective;
  peer[rank].progress.oldest_is_in_stage = true;
}

static void messages(void **state) {
  (void)state;
  static const char receive[] = "receive of 9 f32 from rank 1 over pipeline (gradients, part 2)";
  static const char of_1[] =
      "rank 1 (host n0) has not sent transfer (gradients, part 2) of step 12 for 120 s; it was last "
      "seen in step 12, kernel dot (line 5); the other 3 wait";
  waits_for(0, 1, receive);
  says(of_1);
  /* rank 2 waits for rank 0 in a collective of their stage, and rank 3 for rank 2 */
  waits_in_stage(2, 2);
  waits_for(3, 2, "receive of 9 f32 from rank 0 over pipeline (activations, part 4)");
  for (int r = 2; r < RANKS; r++) {
    assert_true(judge_late(&judge, r, sentence));
    assert_string_equal(sentence, of_1);
  }
  peer[1].heard -= 60 * second;
  says("rank 1 (host n0) has not sent transfer (gradients, part 2) of step 12 for 120 s and nothing "
       "is heard from there (stopped, or cut off); it was last seen in step 12, kernel dot (line 5); "
       "the other 3 wait");
  peer[1].heard = judge.now;
  waits_for(1, 0, "send of 9 f32 to rank 0 over pipeline (gradients, part 1)");
  is_at(0, 3);
  peer[0].progress.oldest_is_message = false;
  assert_true(judge_late(&judge, 1, sentence));
  assert_non_null(strstr(sentence, "rank 0 (host n0) has not taken transfer (gradients, part 1) of"));
  waits_for(0, 1, receive);
  says("rank 0 (host n0) waits for 120 s in its receive of 9 f32 from rank 1 over pipeline "
       "(gradients, part 2) of step 12, and rank 1 in its send of 9 f32 to rank 0 over pipeline "
       "(gradients, part 1) of step 12; last seen: rank 0 in step 12, kernel dot (line 5), rank 1 in "
       "step 12, kernel dot (line 5)");
}

/* Ranks of other stages have collectives of their own. */
static void collectives_of_a_stage(void **state) {
  (void)state;
  waits_in_stage(1, 6);
  assert_true(judge_late(&judge, 1, sentence));
  assert_string_equal(
      sentence, "rank 3 (host n1) has not entered all_reduce #6 (bucket 2: gradients of h.0.*) of "
                "step 11 for 120 s; it was last seen in step 12, kernel dot (line 5); the other 3 wait");
  waits_in_stage(3, 6);
  assert_true(judge_late(&judge, 1, sentence));
  assert_non_null(strstr(sentence, "all 2 ranks of stage 1 have entered all_reduce #6 (bucket 2: "));
  assert_false(judge_left(&judge, sentence));
  peer[0].has_left = true; /* it is no matter of stage 0 */
  assert_false(judge_left(&judge, sentence));
  waits_for(3, 0, "receive of 9 f32 from rank 0 over pipeline (x)");
  assert_false(judge_left(&judge, sentence)); /* it may have been sent, and not be said to have come */
  peer[3].has_left = true;
  waits_in_stage(1, 7);
  assert_true(judge_left(&judge, sentence));
  assert_non_null(strstr(sentence, "rank 3 (host n1) has ended its run, and rank 1 waits for it in"));
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
      cmocka_unit_test_setup(one_that_is_back_is_waited_for, all_wait),
      cmocka_unit_test_setup(silent_ranks_wait_for_nothing, all_wait),
      cmocka_unit_test_setup(writing_goes_on, all_wait),
      cmocka_unit_test_setup(between_two, all_wait),
      cmocka_unit_test_setup(dead, all_wait),
      cmocka_unit_test_setup(messages, all_compute),
      cmocka_unit_test_setup(collectives_of_a_stage, all_compute)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
