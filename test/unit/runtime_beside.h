/* runtime_beside: a plan with the beginning of a send, which no device can run yet. */
#ifndef FT_TEST_RUNTIME_BESIDE_H
#define FT_TEST_RUNTIME_BESIDE_H
#include "runtime/execute/exec.h"

/* The artifact of this file is refused on the device (NULL: the default one), with a reason. */
static inline void beside_refused(const char *path, const char *device) {
  Artifact *artifact;
  Exec *exec = NULL;
  assert_int_equal(artifact_open(path, &artifact), STATUS_OK);
  static const int buffer[1];
  PlanStep begin = {.kind = STEP_BEGIN,
                    .name = "send",
                    .label = "the gradient",
                    .args = buffer,
                    .arg_count = 1,
                    .input_count = 1,
                    .queue = QUEUE_COMMUNICATE};
  VEC_PUSH(artifact->plan->arena, artifact->plan->graphs.at[0].steps, begin);
  assert_int_equal(exec_new(artifact, &(ExecOptions){.device = device}, &exec), STATUS_USER);
  assert_non_null(strstr(status_message(), "\"send\" (the gradient), which needs several ranks"));
  artifact_close(artifact);
}
#endif
