/* dev: which device an artifact runs on. Where it cannot be had, the message says what to do
 * instead. */
#include "runtime/device/dev.h"
#include "runtime/device/cuda/cuda_driver.h"
#include <stdlib.h>
#include <string.h>

static Status no_device(const Artifact *artifact, const char *reason) {
  return status_fail(STATUS_USER,
                     "%s: %s; simulate one with --device sim, or compile for this machine's "
                     "processor: ftc %s -o model.so",
                     artifact->path, reason, artifact->plan->source);
}

/* Of several ranks on a machine each has its own GPU: as many as there are, in order; or the one
 * that its launcher lets it see. */
static Status take_own(const CudaDriver *driver, DeviceOptions *options) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  int count = 0, own = comm_local_rank(options->comm);
  if (own == 0 || comm_ranks(options->comm) == 1) return STATUS_OK;
  STATUS_TRY(cuda_check(driver, driver->device_count(&count), "counting GPUs"));
  if (own >= count && count == 1 && visible && visible[0]) own = 0;
  if (own >= count)
    return status_fail(STATUS_USER,
                       "rank %d is number %d of the ranks on this machine, which has %d GPU%s: "
                       "start as many ranks as there are GPUs",
                       comm_rank(options->comm), own + 1, count, count == 1 ? "" : "s");
  options->index = own;
  return STATUS_OK;
}

static Status find_cuda(const char *text, const Artifact *artifact, DeviceOptions *options) {
  const CudaDriver *driver;
  options->index = 0;
  if (text[4] == ':') {
    char *end;
    long index = strtol(text + 5, &end, 10);
    if (!text[5] || *end || index < 0 || index > 1023)
      return status_fail(STATUS_USER, "--device %s: expected cuda:N, with N from 0", text);
    options->index = (int)index;
  }
  if (cuda_driver_open(&driver) != STATUS_OK) return no_device(artifact, status_message());
  return text[4] == ':' ? STATUS_OK : take_own(driver, options);
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
    *out = &dev_cuda;
    return find_cuda(text, artifact, options);
  }
  if (!strcmp(text, "sim")) {
    if (!is_ptx)
      return status_fail(
          STATUS_USER, "%s runs on the cpu; for the simulator compile a .ptx: ftc %s -o model.ptx",
          artifact->path, artifact->plan->source);
    *out = &dev_sim;
    return STATUS_OK;
  }
  return status_fail(STATUS_USER, "there is no device '%s': auto, cpu, cuda, cuda:N or sim", text);
}

int dev_gpus(void) {
  const CudaDriver *driver;
  int count = 0;
  bool is_there = cuda_driver_open(&driver) == STATUS_OK;
  return is_there && driver->device_count(&count) == CUDA_SUCCESS ? count : 0;
}

/* sm_90a has wgmma, and needs a driver that reads PTX 8.0; sm_89 has products of 8-bit floats, of PTX 8.4. */
void dev_compile_for(const char *text, bool *is_ptx, const char **gpu) {
  enum { PTX_80 = 12000, PTX_84 = 12040, OLDEST = 8, ADA_MINOR = 9, HOPPER = 9 };
  const CudaDriver *driver;
  CudaDevice device;
  bool is_auto = !text || !strcmp(text, "auto"), is_cuda = text && !strncmp(text, "cuda", 4);
  int major = 0, minor = 0, index = is_cuda && text[4] == ':' ? atoi(text + 5) : 0;
  *is_ptx = is_cuda || (text && !strcmp(text, "sim"));
  *gpu = NULL;
  if ((!is_auto && !is_cuda) || cuda_driver_open(&driver) != STATUS_OK ||
      driver->device_get(&device, index) != CUDA_SUCCESS ||
      driver->device_attribute(&major, CUDA_ATTRIBUTE_MAJOR, device) != CUDA_SUCCESS ||
      driver->device_attribute(&minor, CUDA_ATTRIBUTE_MINOR, device) != CUDA_SUCCESS)
    return;
  if (major >= OLDEST) *is_ptx = true;
  if (major == HOPPER && driver->version >= PTX_80) *gpu = "sm_90a";
  if (major == OLDEST && minor == ADA_MINOR && driver->version >= PTX_84) *gpu = "sm_89";
}

Status dev_refuse_beside(const char *path, const PlanStep *step) {
  return status_fail(STATUS_USER,
                     "%s: the plan has a step \"%s\" (%s), which needs several ranks: start them "
                     "(docs/distributed.md), or compile for one with ftc --set distributed.data=1",
                     path, step->name, step->label);
}
