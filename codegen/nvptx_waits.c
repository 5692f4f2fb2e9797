/* nvptx_waits: see nvptx_waits.h. */
#include "codegen/nvptx_waits.h"
#include "codegen/nvptx_callback.h"
#include "kernels/wait_record.h"
#include "plan/waits.h"
#include <stdio.h>

/* The runtime reads what the kernels write. */
#define IS_WORD(field, word) (offsetof(WaitsRecord, field) == (word) * sizeof(uint32_t))
_Static_assert(WAITS_RECORDS == (int)WAIT_RECORDS && WAITS_WORDS == (int)WAIT_WORDS &&
                   IS_WORD(is_whole, WAIT_WHOLE) && IS_WORD(kernel, WAIT_KERNEL) &&
                   IS_WORD(barrier, WAIT_BARRIER) && IS_WORD(stage, WAIT_STAGE) &&
                   IS_WORD(parity, WAIT_PARITY) && IS_WORD(block, WAIT_BLOCK) &&
                   IS_WORD(thread, WAIT_THREAD) && WAITS_FULL == (int)WAIT_FULL &&
                   WAITS_EMPTY == (int)WAIT_EMPTY && WAITS_TURN == (int)WAIT_TURN,
               "kernels/wait_record.h and plan/waits.h say the same");

void nvptx_define_waits(Job *job, const char *suffix, const char *prefix, const char *entry) {
  char polls[64], kernel[64];
  snprintf(polls, sizeof polls, "%s_wait_polls", prefix);
  snprintf(kernel, sizeof kernel, "%s_wait_kernel", prefix);
  const Constant constants[] = {{polls, job->module->options->wait_polls},
                                {kernel, waits_kernel(entry)}};
  module_define_constants(job->module, suffix, constants, 2);
}
