/* What the driver's compiler says of kernels: the lines that matter, from ptxas of CUDA 13.0, and
 * logs that are cut, damaged or hostile. */
#include "runtime/device/cuda/cuda_log.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 4 };
static const char sample[] =
    "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized "
    "due to insufficient register resources for the wgmma pipeline in the function 'k1_dot'\n"
    "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized "
    "due to insufficient register resources for the function 'k2_dot'\n"
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'k0_row' for 'sm_90a'\n"
    "ptxas info    : Function properties for k0_row\n"
    "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 255 registers, used 1 barriers\n"
    "ptxas info    : Compiling entry function 'k_spill' for 'sm_90a'\n"
    "ptxas info    : Function properties for k_spill\n"
    "    552 bytes stack frame, 600 bytes spill stores, 608 bytes spill loads\n"
    "ptxas info    : Used 64 registers, used 0 barriers, 552 bytes cumulative stack size\n";

/* In memory of just this size: what reads beyond it is found by AddressSanitizer. */
static int read_exactly(const char *text, size_t size, CudaLogRemark *out) {
  char *copy = malloc(size ? size : 1);
  assert_non_null(copy);
  memcpy(copy, text, size);
  int count = cuda_log_read(copy, size, out, MOST);
  free(copy);
  return count;
}

static void test_what_matters(void **state) {
  (void)state;
  CudaLogRemark remark[MOST];
  assert_int_equal(read_exactly(sample, sizeof sample - 1, remark), 3);
  assert_string_equal(remark[0].kernel, "k1_dot");
  assert_string_equal(remark[0].words, "wgmma.mma_async instructions are serialized due to "
                                       "insufficient register resources for the wgmma pipeline");
  assert_string_equal(remark[1].kernel, "k2_dot");
  assert_string_equal(remark[1].words, "wgmma.mma_async instructions are serialized due to "
                                       "insufficient register resources");
  assert_string_equal(remark[2].kernel, "k_spill");
  assert_non_null(strstr(remark[2].words, "600 bytes of stores, 608 of loads"));
}

static void test_ends_where_the_buffer_does(void **state) {
  (void)state;
  CudaLogRemark remark[MOST];
  char more[2 * sizeof sample];
  int used = snprintf(more, sizeof more, "%s", sample);
  snprintf(more + used, sizeof more - (size_t)used, "Potential Performance Loss: beyond\n");
  assert_int_equal(cuda_log_read(more, (size_t)used, remark, MOST), 3);
  more[used - 1] = 0;
  assert_int_equal(cuda_log_read(more, sizeof more, remark, MOST), 3);
}

static void test_each_thing_once(void **state) {
  (void)state;
  CudaLogRemark remark[MOST];
  char twice[2 * sizeof sample];
  snprintf(twice, sizeof twice, "%s%s", sample, sample);
  assert_int_equal(read_exactly(twice, strlen(twice), remark), 3);
}

static void test_more_than_there_is_room_for(void **state) {
  (void)state;
  CudaLogRemark remark[MOST];
  char many[4096] = "";
  size_t used = 0;
  for (int i = 0; i < 20; i++)
    used += (size_t)snprintf(many + used, sizeof many - used,
                             "x: Potential Performance Loss: slow in the function 'k%d'\n", i);
  assert_int_equal(read_exactly(many, used, remark), 20);
  assert_string_equal(remark[MOST - 1].kernel, "k3");
}

static void test_cut_anywhere(void **state) {
  (void)state;
  CudaLogRemark remark[MOST];
  for (size_t size = 0; size < sizeof sample; size++) {
    int count = read_exactly(sample, size, remark);
    assert_in_range(count, 0, 3);
    for (int i = 0; i < count; i++) assert_true(remark[i].words[0] || size < sizeof sample - 1);
  }
}

static void test_hostile(void **state) {
  (void)state;
  static const char *const bad[] = {
      "Potential Performance Loss: ", "Potential Performance Loss: function '",
      "Potential Performance Loss: function 'x", "Potential Performance Loss: function ''",
      "Potential Performance Loss: in the function 'a' in the function 'b'",
      " bytes spill stores, 99999999999999999999999999 bytes spill loads",
      "Function properties for ", "-1 bytes spill stores", "Function properties for \x1b[31m%s%n\n1 bytes spill loads"};
  CudaLogRemark remark[MOST];
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    int count = read_exactly(bad[i], strlen(bad[i]), remark);
    for (int k = 0; k < count; k++)
      for (const char *at = remark[k].kernel; *at; at++) assert_in_range(*at, ' ', '~');
  }
  char *long_name = malloc(1 << 16);
  assert_non_null(long_name);
  memset(long_name, 'k', 1 << 16);
  memcpy(long_name, "Potential Performance Loss: slow in the function '", 50);
  assert_int_equal(read_exactly(long_name, 1 << 16, remark), 1);
  long_name[(1 << 16) - 1] = '\'';
  assert_int_equal(read_exactly(long_name, 1 << 16, remark), 1);
  assert_int_equal(strlen(remark[0].kernel), CUDA_LOG_KERNEL - 1);
  free(long_name);
}

/* Bytes of the sample exchanged for others, anywhere. */
static void test_damaged(void **state) {
  (void)state;
  CudaLogRemark remark[MOST];
  uint64_t random = 1;
  for (int round = 0; round < 20000; round++) {
    char damaged[sizeof sample];
    memcpy(damaged, sample, sizeof sample);
    for (int i = 0; i < 8; i++) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      damaged[(random >> 33) % (sizeof sample - 1)] = (char)(random >> 56);
    }
    assert_in_range(read_exactly(damaged, sizeof sample - 1, remark), 0, 8);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_matters),   cmocka_unit_test(test_ends_where_the_buffer_does),
      cmocka_unit_test(test_each_thing_once),
      cmocka_unit_test(test_more_than_there_is_room_for), cmocka_unit_test(test_cut_anywhere),
      cmocka_unit_test(test_hostile),        cmocka_unit_test(test_damaged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
