/* runtime_pool: the pool with its threads delayed where the system may delay them: nobody returns
 * from a job that others are still at, and nobody is forgotten asleep. */
#define _GNU_SOURCE /* usleep, and what pool.c needs */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void delay(const char *where);
#define POOL_MAY_BE_DELAYED(where) delay(where)
#include "runtime/common/pool.c"

enum { LONG = 20000, SHORT = 300 }; /* microseconds; LONG: longer than a wait spins */

static const char *_Atomic delayed_at; /* NULL: anywhere, by chance */
static _Atomic int delays_left;
static _Atomic uint32_t chance = 1;

static void delay(const char *where) {
  if (!delayed_at) {
    uint32_t draw = atomic_fetch_add(&chance, 1) * 2654435761u >> 16;
    if (draw % 8 == 0) usleep(draw % SHORT);
  } else if (!strcmp(where, delayed_at) && atomic_fetch_sub(&delays_left, 1) > 0) {
    usleep(LONG);
  }
}

/* What a caller keeps on its stack: when pool_run is back, every share has been run. */
typedef struct {
  _Atomic int begun, ended;
  int slow_share;
} Frame;

static void work(void *context, int share) {
  Frame *frame = context;
  atomic_fetch_add(&frame->begun, 1);
  if (share == frame->slow_share) usleep(SHORT);
  atomic_fetch_add(&frame->ended, 1);
}

static void run(Pool *pool, int slow_share) {
  Frame frame = {.slow_share = slow_share};
  pool_run(pool, work, &frame);
  assert_int_equal(atomic_load(&frame.begun), pool_threads(pool));
  assert_int_equal(atomic_load(&frame.ended), pool_threads(pool));
}

/* The last worker of one job is late with waking the caller, who has seen the count and is in the
 * next job. */
static void test_late_wake(void **state) {
  (void)state;
  for (int threads = 2; threads <= 4; threads++) {
    Pool *pool;
    assert_int_equal(pool_new(threads, &pool), STATUS_OK);
    /* not the caller's own announcement, but what follows it: its wake is the first to be passed */
    for (int i = 0; i < 4; i++) {
      delayed_at = "wake";
      atomic_store(&delays_left, 2);
      run(pool, -1);
      run(pool, threads - 1);
      run(pool, 0);
    }
    atomic_store(&delays_left, 0);
    pool_free(pool);
  }
}

/* Workers sleep, or are between the announcement and the job, when the next thing happens. */
static void test_late_workers(void **state) {
  (void)state;
  static const char *const where[] = {"enter", "begin"};
  for (int i = 0; i < 2; i++) {
    Pool *pool;
    delayed_at = where[i];
    atomic_store(&delays_left, 3);
    assert_int_equal(pool_new(3, &pool), STATUS_OK);
    for (int k = 0; k < 3; k++) run(pool, k);
    pool_free(pool);
  }
}

/* Help: what has been settled may be freed. */
typedef struct {
  _Atomic uint64_t alive;
  _Atomic int count;
} Help;

static _Atomic int met_dead;

static void help(void *context, int first, int end, uint64_t ticket, int share) {
  Help *at = context;
  (void)first, (void)end, (void)ticket, (void)share;
  if (!atomic_load(&at->alive)) atomic_fetch_add(&met_dead, 1);
  atomic_fetch_add(&at->count, 1);
  POOL_MAY_BE_DELAYED("help");
  if (!atomic_load(&at->alive)) atomic_fetch_add(&met_dead, 1);
}

static void test_any_delays(void **state) {
  (void)state;
  Pool *pool;
  delayed_at = NULL;
  assert_int_equal(pool_new(4, &pool), STATUS_OK);
  for (int i = 0; i < 600; i++) {
    static Help kept; /* stays readable, so that a late helper is seen and does not crash */
    if (i % 3) {
      run(pool, i % 5);
      continue;
    }
    atomic_store(&kept.alive, 1);
    pool_ask(pool, help, &kept, 0, 1);
    if (i % 2) usleep(SHORT / 4);
    pool_settle(pool);
    atomic_store(&kept.alive, 0);
  }
  pool_free(pool);
  assert_int_equal(atomic_load(&met_dead), 0);
}

/* Reserved threads: no shares of pool_run, no help unless all are asked, and then each comes. */
typedef struct {
  _Atomic int computing, reserved;
  Pool *pool;
} Shares;

static void count_share(void *context, int first, int end, uint64_t ticket, int share) {
  Shares *shares = context;
  (void)first, (void)end, (void)ticket;
  assert_true(share > 0 && share < pool_threads(shares->pool) + pool_reserved(shares->pool));
  atomic_fetch_add(share < pool_threads(shares->pool) ? &shares->computing : &shares->reserved, 1);
}

static void test_reserved(void **state) {
  (void)state;
  static const struct {
    int wish, reserved, threads;
  } cases[] = {{4, 1, 3}, {3, 2, 1}, {1, 1, 1}, {2, 0, 2}, {2, 5, 1}};
  delayed_at = NULL;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    Pool *pool;
    assert_int_equal(pool_new_reserving(cases[c].wish, cases[c].reserved, &pool), STATUS_OK);
    assert_int_equal(pool_threads(pool), cases[c].threads);
    assert_int_equal(pool_reserved(pool), cases[c].reserved);
    for (int i = 0; i < 60; i++) {
      static Shares shares;
      shares = (Shares){.pool = pool};
      run(pool, i % 5);
      pool_ask(pool, count_share, &shares, 0, 1);
      pool_settle(pool);
      assert_int_equal(atomic_load(&shares.reserved), 0);
      pool_ask_all(pool, count_share, &shares, 0, 1);
      for (int k = 0; k < 30000 && atomic_load(&shares.reserved) < cases[c].reserved; k++)
        usleep(SHORT);
      pool_settle(pool);
      assert_int_equal(atomic_load(&shares.reserved), cases[c].reserved);
    }
    pool_free(pool);
  }
  Pool *pool;
  assert_int_equal(pool_new_reserving(2, -1, &pool), STATUS_USER);
  assert_int_equal(pool_new_reserving(2, 256, &pool), STATUS_USER);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_late_wake), cmocka_unit_test(test_late_workers),
      cmocka_unit_test(test_any_delays), cmocka_unit_test(test_reserved)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
