/* deploy_ptx: what a deployed model's caller has on the GPU (ftc --inference, codegen/deploy.c): values that the
 * model has no place for, such as a token beyond its vocabulary, become 0, and *status tells of them, so that
 * no kernel reads beyond a table. */
#include <stdint.h>

#define SPECIAL(name) __nvvm_read_ptx_sreg_##name()
#define GLOBAL __attribute__((address_space(1)))

/* One value a thread of `count`. element: its bytes, negative if it has a sign. Values are 0 .. below - 1, or
 * `ignore` if has_ignore. code: what *status becomes, if it is 0. */
__attribute__((nvptx_kernel)) void ft_deploy_check(GLOBAL char *values, int64_t count, int64_t element, int64_t below,
                                                   int64_t ignore, int64_t has_ignore, int64_t code, GLOBAL int32_t *status) {
  int64_t i = (int64_t)SPECIAL(ctaid_x) * SPECIAL(ntid_x) + SPECIAL(tid_x), value;
  if (i >= count) return;
  if (element == 1)
    value = ((GLOBAL uint8_t *)values)[i];
  else if (element == -4)
    value = ((GLOBAL int32_t *)values)[i];
  else if (element == 4)
    value = ((GLOBAL uint32_t *)values)[i];
  else
    value = ((GLOBAL int64_t *)values)[i];
  if ((value >= 0 && value < below) || (has_ignore && value == ignore)) return;
  if (element == 1)
    ((GLOBAL uint8_t *)values)[i] = 0;
  else if (element == 4 || element == -4)
    ((GLOBAL int32_t *)values)[i] = 0;
  else
    ((GLOBAL int64_t *)values)[i] = 0;
  int32_t before = 0;
  __atomic_compare_exchange_n(status, &before, (int32_t)code, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
