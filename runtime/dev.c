/* dev: which device an artifact runs on. Only the cpu is built in; for the others the message says
 * what to do instead. */
#include "runtime/dev.h"
#include <string.h>

static Status no_device(const Artifact *artifact, const char *reason) {
  return status_fail(STATUS_USER,
                     "%s: %s; compile for this machine's processor instead: ftc %s -o model.so",
                     artifact->path, reason, artifact->plan->source);
}

Status dev_find(const char *text, const Artifact *artifact, const DeviceType **out,
                DeviceOptions *options) {
  bool is_ptx = !strcmp(artifact->plan->target, "ptx");
  if (!text || !strcmp(text, "auto")) text = is_ptx ? "cuda" : "cpu";
  if (!strcmp(text, "cpu")) {
    if (is_ptx) return no_device(artifact, "a .ptx runs on an NVIDIA GPU, not on the cpu");
    *out = &dev_cpu;
    return STATUS_OK;
  }
  options->index = 0;
  if (!strncmp(text, "cuda", 4) && (!text[4] || text[4] == ':')) {
    if (!is_ptx)
      return status_fail(STATUS_USER,
                         "%s runs on the cpu; for a GPU compile a .ptx: ftc %s -o model.ptx",
                         artifact->path, artifact->plan->source);
    return no_device(artifact, "this ftrun has no CUDA device yet");
  }
  if (!strcmp(text, "sim")) return no_device(artifact, "this ftrun has no simulator yet");
  return status_fail(STATUS_USER, "there is no device '%s': auto, cpu, cuda, cuda:N or sim", text);
}
