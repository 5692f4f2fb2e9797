/* runtime_init: Philox against its published vectors, the distributions' moments and bounds, the
 * matrices' structure; and the pool: every share runs, every part is done once by whoever comes. */
#define _DEFAULT_SOURCE /* usleep */
#include "runtime/execute/init.h"
#include "runtime/common/philox.h"
#include "runtime/common/pool.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* From Random123's kat_vectors. */
static void test_philox(void **state) {
  (void)state;
  static const struct {
    uint32_t key[2], counter[4], out[4];
  } cases[] = {
      {{0, 0}, {0, 0, 0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0xa4093822, 0x299f31d0},
       {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (int i = 0; i < 3; i++) {
    uint32_t out[4];
    philox(cases[i].key, cases[i].counter, out);
    assert_memory_equal(out, cases[i].out, sizeof out);
  }
}

static float *fill(const char *text, double a, double b, Shape shape, uint64_t seed,
                   uint32_t stream) {
  Type type = {DT_F32, shape};
  Init init = {text, {a, b}, 2};
  float *values = malloc((size_t)type_bytes(&type) + 4);
  assert_int_equal(init_fill(&init, &type, seed, stream, values), STATUS_OK);
  return values;
}

static void moments(const float *v, int count, double *mean, double *deviation, double *low,
                    double *high) {
  double sum = 0, square = 0;
  *low = INFINITY, *high = -INFINITY;
  for (int i = 0; i < count; i++) {
    sum += v[i], square += (double)v[i] * v[i];
    *low = fmin(*low, v[i]), *high = fmax(*high, v[i]);
  }
  *mean = sum / count;
  *deviation = sqrt(square / count - *mean * *mean);
}

static void test_distributions(void **state) {
  (void)state;
  enum { COUNT = 100000 };
  const Shape shape = {1, {COUNT}};
  double mean, deviation, low, high;
  float *v = fill("uniform", -2, 4, shape, 1, 0);
  moments(v, COUNT, &mean, &deviation, &low, &high);
  assert_true(fabs(mean - 1) < 0.02 && fabs(deviation - sqrt(3)) < 0.02 && low >= -2 && high < 4);
  float *again = fill("uniform", -2, 4, shape, 1, 0), *other = fill("uniform", -2, 4, shape, 2, 0);
  float *stream = fill("uniform", -2, 4, shape, 1, 1);
  assert_memory_equal(v, again, COUNT * 4);
  assert_memory_not_equal(v, other, COUNT * 4);
  assert_memory_not_equal(v, stream, COUNT * 4);
  free(v), free(again), free(other), free(stream);
  v = fill("normal", 1, 3, shape, 1, 0);
  moments(v, COUNT, &mean, &deviation, &low, &high);
  assert_true(fabs(mean - 1) < 0.05 && fabs(deviation - 3) < 0.05 && low < -8 && high > 10);
  free(v);
  v = fill("trunc_normal", 1, 3, shape, 1, 0);
  moments(v, COUNT, &mean, &deviation, &low, &high);
  assert_true(fabs(mean - 1) < 0.05 && fabs(deviation - 3 * 0.8796) < 0.05 && low >= -5 &&
              high <= 7);
  free(v);
  v = fill("const", 2.5, 0, shape, 1, 0);
  for (int i = 0; i < COUNT; i++) assert_true(v[i] == 2.5f);
  free(v);
  Type type = {DT_F32, shape};
  for (double huge = -1e300; huge <= 1e300; huge += 1e300) { /* of no use, but no fault */
    Init far = {"const", {huge}, 1}, unknown = {"const", {NAN}, 1};
    int32_t whole;
    uint8_t byte;
    assert_int_equal(init_fill(&far, &(Type){DT_I32, {0}}, 1, 0, &whole), STATUS_OK);
    assert_int_equal(init_fill(&far, &(Type){DT_U8, {0}}, 1, 0, &byte), STATUS_OK);
    assert_int_equal(whole, huge < 0 ? INT32_MIN : huge > 0 ? INT32_MAX : 0);
    assert_int_equal(byte, huge > 0 ? 255 : 0);
    assert_int_equal(init_fill(&unknown, &(Type){DT_I32, {0}}, 1, 0, &whole), STATUS_OK);
    assert_int_equal(whole, 0);
  }
  Init wrong = {"wild", {0}, 0};
  float *unused = malloc(COUNT * 4);
  assert_int_equal(init_fill(&wrong, &type, 1, 0, unused), STATUS_USER);
  free(unused);
}

/* Rows (or columns, if there are more rows) are orthogonal and have length `gain`. */
static void check_orthogonal(int64_t rows, int64_t columns) {
  float *v = fill("orthogonal", 1.5, 0, (Shape){3, {rows, columns, 1}}, 9, 3);
  bool is_wide = rows <= columns;
  int64_t count = is_wide ? rows : columns, length = is_wide ? columns : rows;
  for (int64_t i = 0; i < count; i++)
    for (int64_t j = 0; j <= i; j++) {
      double sum = 0;
      for (int64_t k = 0; k < length; k++)
        sum += is_wide ? (double)v[i * columns + k] * v[j * columns + k]
                       : (double)v[k * columns + i] * v[k * columns + j];
      assert_true(fabs(sum - (i == j ? 2.25 : 0)) < 1e-5);
    }
  free(v);
}

static void test_matrices(void **state) {
  (void)state;
  check_orthogonal(5, 17);
  check_orthogonal(17, 5);
  check_orthogonal(16, 16);
  check_orthogonal(1, 1);
  check_orthogonal(0, 3);
  float *v = fill("identity", 0, 0, (Shape){2, {3, 2}}, 1, 0);
  assert_memory_equal(v, ((float[]){1, 0, 0, 1, 0, 0}), 24);
  free(v);
  v = fill("identity", 0, 0, (Shape){4, {1, 1, 3, 3}}, 1, 0);
  assert_memory_equal(v, ((float[]){0, 0, 0, 0, 1, 0, 0, 0, 0}), 36);
  free(v);
}

/* ── the pool ─────────────────────────────────────────────────────────────────────────────── */
enum { ROUNDS = 2000, PARTS = 6 };
typedef struct {
  Pool *pool;
  _Atomic int count[5];
  _Atomic int late;              /* helpers that found nothing to do */
  _Atomic uint64_t state[PARTS]; /* the ticket that began the part, plus 1 when done */
  int done[PARTS];               /* not atomic: whoever waits for a part sees what it wrote */
} Shared;

static void count_share(void *context, int share) {
  atomic_fetch_add(&((Shared *)context)->count[share], 1);
}

static void help(void *context, int first, int end, uint64_t ticket, int share) {
  Shared *shared = context;
  if (share && (ticket / 2 + (unsigned)share) % 7 == 0) usleep(200);
  int found = 0;
  for (int part = first; part < end; part++) {
    uint64_t seen = atomic_load(&shared->state[part]);
    if (seen >= ticket || !atomic_compare_exchange_strong(&shared->state[part], &seen, ticket))
      continue;
    shared->done[part]++;
    found++;
    pool_post(shared->pool, &shared->state[part], ticket + 1);
  }
  if (!found) atomic_fetch_add(&shared->late, 1);
}

static void ask_for_help(Shared *shared, int round) {
  int first = round % 3, end = PARTS - round % 2;
  int before[PARTS];
  memcpy(before, shared->done, sizeof before);
  uint64_t ticket = pool_ask(shared->pool, help, shared, first, end);
  help(shared, first, end, ticket, 0);
  for (int part = first; part < end; part++) {
    pool_wait(shared->pool, &shared->state[part], ticket);
    assert_int_equal(shared->state[part], ticket + 1);
  }
  for (int part = 0; part < PARTS; part++)
    assert_int_equal(shared->done[part], before[part] + (part >= first && part < end));
}

static void test_pool(void **state) {
  (void)state;
  for (int threads = 1; threads <= 5; threads++) {
    Pool *pool;
    assert_int_equal(pool_new(threads, &pool), STATUS_OK);
    assert_int_equal(pool_threads(pool), threads);
    Shared *shared = calloc(1, sizeof *shared);
    shared->pool = pool;
    for (int round = 1; round <= ROUNDS; round++) {
      ask_for_help(shared, round);
      if (round % 10) continue;
      pool_run(pool, count_share, shared);
      for (int share = 0; share < 5; share++)
        assert_int_equal(shared->count[share], share < threads ? round / 10 : 0);
    }
    pool_ask(pool, help, shared, 0, PARTS); /* nobody waits for it */
    pool_settle(pool);
    memset(shared, 0x7f, sizeof *shared); /* a helper that came now would crash */
    free(shared);
    usleep(2000);
    pool_free(pool);
  }
}

static void test_pool_environment(void **state) {
  (void)state;
  Pool *pool;
  setenv("FT_THREADS", "3", 1);
  assert_int_equal(pool_new(0, &pool), STATUS_OK);
  assert_int_equal(pool_threads(pool), 3);
  pool_free(pool);
  assert_int_equal(pool_new(2, &pool), STATUS_OK);
  assert_int_equal(pool_threads(pool), 2);
  pool_free(pool);
  static const char *const wrong[] = {"0", "-1", "two", "3x", "99999999999999999999", "257"};
  for (int i = 0; i < 6; i++) {
    setenv("FT_THREADS", wrong[i], 1);
    assert_int_equal(pool_new(0, &pool), STATUS_USER);
  }
  unsetenv("FT_THREADS");
  setenv("OMP_NUM_THREADS", "2,1", 1);
  assert_int_equal(pool_new(0, &pool), STATUS_OK);
  assert_int_equal(pool_threads(pool), 2);
  pool_free(pool);
  unsetenv("OMP_NUM_THREADS");
  assert_int_equal(pool_new(257, &pool), STATUS_USER);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_philox),           cmocka_unit_test(test_distributions),
      cmocka_unit_test(test_matrices),         cmocka_unit_test(test_pool),
      cmocka_unit_test(test_pool_environment),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
