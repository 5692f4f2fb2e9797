/* conv_cpu: convolutions by oneDNN. */
#include "runtime/calls_internal.h"

Status cpu_conv_new(CpuLibrary *library, const PlanStep *step, CallId id, char *const *args,
                    CpuCall **out) {
  (void)library, (void)step, (void)id, (void)args, (void)out;
  return status_fail(STATUS_USER, "convolutions are not built yet");
}
