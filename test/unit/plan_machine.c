/* plan_machine: the table of machines is of one piece: a tensor rate is what that many
 * multiprocessors do at that clock, and rates stand in the proportions that the makers state. */
#include "plan/machine.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

/* 16-bit operations of a multiprocessor's tensor cores in a cycle, by its architecture. */
static double operations_a_cycle(const Machine *machine) {
  if (!strcmp(machine->target, "sm_80")) return 2048;  /* A100 */
  if (!strcmp(machine->target, "sm_90a")) return 4096; /* H100 */
  if (!strcmp(machine->target, "sm_90")) return 8192;  /* B200 */
  return machine->f32 < 90e12 ? 512 : 1024; /* sm_89: GeForce accumulates in f32 at half the rate */
}

static void test_tensor_rates(void **state) {
  (void)state;
  for (int i = 0; i < machine_count; i++) {
    const Machine *machine = &machine_table[i];
    if (!machine->half) continue;
    double made = machine->multiprocessors * machine->clock * operations_a_cycle(machine);
    if (fabs(made / machine->half - 1) > 0.02)
      fail_msg("%s: %g TFLOP/s by clock, %g stated", machine->name, made * 1e-12,
               machine->half * 1e-12);
    assert_true(fabs(machine->half / machine->tf32 - 2) < 0.03);
  }
}

static void test_rows(void **state) {
  (void)state;
  for (int i = 0; i < machine_count; i++) {
    const Machine *machine = &machine_table[i];
    assert_ptr_equal(machine_find(machine->name), machine);
    assert_true(machine->link_reached > 0 && machine->link_reached <= machine->link);
    assert_true(machine->memory > 0 && machine->memory_rate > machine->network);
    assert_true(machine->f32 > 0 && machine->network > 0);
  }
  assert_null(machine_find("h1000"));
  assert_string_equal(machine_nearest("h10O"), "h100");
  const Machine *h100 = machine_find("h100");
  assert_true(h100->network == 50e9 && h100->memory_rate == 3.35e12);
  assert_true(h100->memory == 80.0 * (1 << 30));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tensor_rates),
      cmocka_unit_test(test_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
