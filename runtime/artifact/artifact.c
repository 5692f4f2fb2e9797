/* artifact: see artifact.h. Invariant: the dynamic linker sees a file only after its plan was read,
 * checked and found to be for this machine. */
#define _GNU_SOURCE /* memfd_create */
#include "runtime/artifact/artifact.h"
#include "plan/plan_prepare.h"
#include "plan/plan_text.h"
#include "runtime/artifact/elf.h"
#include "runtime/common/read_whole.h"
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Not blocked by a FIFO: what is no regular file is refused. */
/* No such file: perhaps its ending was left out, or it has yet to be compiled. */
static Status is_missing(const char *path) {
  static const char *const endings[] = {".ft", ".so", ".ptx"};
  char other[4096];
  size_t length = strlen(path);
  for (int i = 0; i < 3; i++) {
    snprintf(other, sizeof other, "%s%s", path, endings[i]);
    if (access(other, F_OK) == 0)
      return status_fail(STATUS_USER, "there is no file %s; did you mean %s?", path, other);
  }
  const char *dot = strrchr(path, '.');
  snprintf(other, sizeof other, "%.*s.ft", (int)(dot ? dot - path : (long)length), path);
  bool may_compile = dot && (!strcmp(dot, ".so") || !strcmp(dot, ".ptx"));
  if (may_compile && access(other, F_OK) == 0)
    return status_fail(STATUS_USER, "there is no file %s; `ftc %s -o %s` makes it", path, other,
                       path);
  return status_errno(ENOENT, "%s", path);
}

static Status open_regular(const char *path, int *fd, int64_t *size) {
  struct stat info = {0};
  *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (*fd < 0 && errno == ENOENT) return is_missing(path);
  if (*fd < 0) return status_errno(errno, "%s", path);
  Status status = STATUS_OK;
  if (fstat(*fd, &info) != 0)
    status = status_errno(errno, "%s", path);
  else if (S_ISDIR(info.st_mode))
    status = status_fail(STATUS_USER, "%s is a folder, not a model: a .ft, .so or .ptx file", path);
  else if (!S_ISREG(info.st_mode))
    status = status_fail(STATUS_USER, "%s: not a regular file", path);
  else if (!info.st_size)
    status = status_fail(STATUS_USER, "%s: the file is empty", path);
  *size = info.st_size;
  if (status != STATUS_OK) close(*fd);
  return status;
}

static Status check_kernels_of(const Artifact *artifact, const Plan *plan) {
  for (int g = 0; g < plan->graphs.count; g++) {
    const PlanGraph *graph = &plan->graphs.at[g];
    const PlanGraph *eval = plan_result(plan, PROGRAMME_EVALUATE);
    bool is_needed = graph == eval || (eval && g == plan_prepare_of(plan, eval));
    if (artifact->weights >= 0 && !is_needed) continue;
    for (int i = 0; i < graph->steps.count; i++) {
      const PlanStep *step = &graph->steps.at[i];
      if (step->kind == STEP_LAUNCH && !artifact_kernel(artifact, step->name))
        return status_fail(STATUS_USER, "%s: the plan calls kernel %s, which the file lacks",
                           artifact->path, step->name);
    }
  }
  return STATUS_OK;
}

static Status check_kernels(const Artifact *artifact) {
  for (int s = 0; s < artifact->stages.count; s++)
    STATUS_TRY(check_kernels_of(artifact, artifact->stages.at[s]));
  return STATUS_OK;
}

/* x86-64 levels and names that the kernels may have been compiled for: does this machine have it?
 */
static Status check_processor(const Artifact *artifact) {
#if defined(__x86_64__)
  const char *cpu = artifact->plan->target_cpu;
  __builtin_cpu_init();
  bool needs_512 = strstr(cpu, "avx512") || !strcmp(cpu, "x86-64-v4") || !strcmp(cpu, "znver4") ||
                   !strcmp(cpu, "znver5") || !strncmp(cpu, "skylake-avx512", 14) ||
                   !strncmp(cpu, "icelake", 7) || !strncmp(cpu, "cascadelake", 11) ||
                   !strncmp(cpu, "sapphirerapids", 14);
  bool needs_2 = needs_512 || !strcmp(cpu, "x86-64-v3") || !strncmp(cpu, "znver", 5) ||
                 !strcmp(cpu, "haswell") || !strcmp(cpu, "broadwell") || !strcmp(cpu, "skylake") ||
                 !strncmp(cpu, "alderlake", 9);
  if ((needs_512 && !__builtin_cpu_supports("avx512f")) ||
      (needs_2 && !__builtin_cpu_supports("avx2")))
    return status_fail(STATUS_USER,
                       "%s: compiled for %s, and this machine lacks its instructions; compile it "
                       "here: ftc %s -o %s",
                       artifact->path, cpu, artifact->plan->source, artifact->path);
#endif
  (void)artifact;
  return STATUS_OK;
}

static Status parse_plans(Artifact *artifact, const char *text, size_t length) {
  const char *why = NULL;
  if (!plan_parse_stages(artifact->arena, text, length, &artifact->stages, &why))
    return status_fail(STATUS_USER, "%s: %s", artifact->path, why);
  artifact->plan = artifact->stages.at[0];
  return STATUS_OK;
}

static Status open_shared(Artifact *artifact, int fd, int64_t size) {
  Text text = {0};
  Status status = elf_read_section(fd, size, ".ft_plan", &text);
  if (status == STATUS_OK)
    status = elf_find_section(fd, size, ".ft_weights", &artifact->weights_at, &artifact->weights);
  if (status != STATUS_OK) {
    Text why = {0};
    text_printf(&why, "%s", status_message());
    status = status_fail(status, "%s %s", artifact->path, text_cstr(&why));
    text_free(&why);
  }
  size_t length = strnlen(text_cstr(&text), text.count);
  artifact->is_shared = true;
  artifact->plan_sum = plan_checksum(text_cstr(&text), length);
  if (status == STATUS_OK) status = parse_plans(artifact, text_cstr(&text), length);
  text_free(&text);
  STATUS_TRY(status);
  if (strcmp(artifact->plan->target, "cpu") != 0)
    return status_fail(STATUS_USER, "%s: its plan is for target %s", artifact->path,
                       artifact->plan->target);
  return STATUS_OK;
}

static Status another_plan(const Artifact *artifact) {
  return status_fail(STATUS_USER, "%s: the plan that was loaded is not the one that was read",
                     artifact->path);
}

/* The file in memory: what the dynamic linker maps, code that runs, would end the process by SIGBUS
 * if someone cut the file. artifact->copy stays -1 where there is no such memory, or no file may be
 * so large (ulimit -f): then the file itself is loaded. */
static Status copy_shared(Artifact *artifact) {
  uint8_t *bytes;
  size_t count;
  Text text = {0};
  STATUS_TRY(read_whole(artifact->path, &bytes, &count));
  artifact->copy = memfd_create("ft-artifact", MFD_CLOEXEC);
  int error = artifact->copy < 0 ? 0 : text_write_all(artifact->copy, bytes, count);
  munmap(bytes, count);
  if (error == EFBIG) {
    close(artifact->copy);
    artifact->copy = -1;
    return STATUS_OK;
  }
  if (error) return status_errno(error, "%s: cannot be loaded", artifact->path);
  if (artifact->copy < 0) return STATUS_OK;
  Status status = elf_read_section(artifact->copy, (int64_t)count, ".ft_plan", &text);
  size_t length = strnlen(text_cstr(&text), text.count);
  if (status == STATUS_USER ||
      (status == STATUS_OK && plan_checksum(text_cstr(&text), length) != artifact->plan_sum))
    status = another_plan(artifact);
  text_free(&text);
  return status;
}

/* The copy stays open: its name is that of its descriptor, and the dynamic linker takes one name
 * for one library. */
static void *load_copy(const Artifact *artifact) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", artifact->copy);
  return artifact->copy < 0 ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

Status artifact_load(Artifact *artifact) {
  if (artifact->library || !artifact->is_shared) return STATUS_OK;
  STATUS_TRY(check_processor(artifact));
  STATUS_TRY(copy_shared(artifact));
  const char *slash = strchr(artifact->path, '/'); /* without one dlopen would search elsewhere */
  const char *path = slash ? artifact->path : arena_printf(artifact->arena, "./%s", artifact->path);
  artifact->library = load_copy(artifact);
  if (!artifact->library) artifact->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!artifact->library)
    return status_fail(STATUS_USER, "%s: cannot be loaded: %s", artifact->path, dlerror());
  const char *text = dlsym(artifact->library, "ft_plan");
  if (!text || plan_checksum(text, strlen(text)) != artifact->plan_sum)
    return another_plan(artifact);
  return check_kernels(artifact);
}

/* A file that is no artifact, and what it is where its first bytes tell. */
static Status no_artifact(const char *path, const Text *bytes) {
  const char *at = bytes->at;
  if (bytes->count > 6 && !memcmp(at, "\x93NUMPY", 6))
    return status_fail(STATUS_USER,
                       "%s is a NumPy array, not a model: a model's data { ... } names its data",
                       path);
  if (bytes->count > 9 && at[8] == '{' && !at[7])
    return status_fail(STATUS_USER,
                       "%s holds weights, not a model: `ftrun eval MODEL --weights %s` evaluates "
                       "them, `ftrun MODEL --init %s` trains on",
                       path, path, path);
  return status_fail(STATUS_USER,
                     "%s: neither a .so nor a .ptx that ftc made; of a model's text `ftc MODEL.ft "
                     "-o MODEL.so` makes one",
                     path);
}

static Status open_ptx(Artifact *artifact) {
  Text bytes = {0};
  int error = text_read_file(&bytes, artifact->path);
  Status status = STATUS_OK;
  if (error) {
    status = status_errno(error, "%s", artifact->path);
  } else {
    const char *plan = plan_from_ptx(artifact->arena, text_cstr(&bytes), bytes.count);
    artifact->ptx = arena_strndup(artifact->arena, text_cstr(&bytes),
                                  plan_ptx_length(text_cstr(&bytes), bytes.count));
    artifact->cubin = plan_read_cubin(artifact->arena, text_cstr(&bytes), bytes.count);
    bool is_inference = strstr(artifact->ptx, plan_ptx_inference) != NULL;
    if (is_inference) artifact->weights = 0;
    status = plan ? parse_plans(artifact, plan, strlen(plan)) : no_artifact(artifact->path, &bytes);
    if (status == STATUS_OK && strcmp(artifact->plan->target, "ptx") != 0)
      status = status_fail(STATUS_USER, "%s: its plan is for target %s", artifact->path,
                           artifact->plan->target);
  }
  text_free(&bytes);
  return status;
}

Status artifact_open(const char *path, Artifact **out) {
  int64_t size = 0;
  int fd = -1;
  char head[SELFMAG] = {0};
  STATUS_TRY(open_regular(path, &fd, &size));
  Arena *arena = arena_new();
  Artifact *artifact = ARENA_NEW(arena, Artifact);
  artifact->arena = arena;
  artifact->path = arena_strdup(arena, path);
  artifact->copy = -1;
  artifact->weights = -1;
  Status status = STATUS_OK;
  if (pread(fd, head, sizeof head, 0) < 0)
    status = status_errno(errno, "%s", path);
  else if (memcmp(head, ELFMAG, SELFMAG) == 0)
    status = open_shared(artifact, fd, size);
  else
    status = open_ptx(artifact);
  close(fd);
  if (status != STATUS_OK) {
    artifact_close(artifact);
    return status;
  }
  *out = artifact;
  return STATUS_OK;
}

Status artifact_from_plan(Plan *plan, void *library, Artifact **out) {
  Arena *arena = arena_new();
  Artifact *artifact = ARENA_NEW(arena, Artifact);
  artifact->arena = arena;
  artifact->path = "(in memory)";
  artifact->plan = plan;
  artifact->stages = (PlanStages){ARENA_ARRAY(arena, Plan *, 1), 1};
  artifact->stages.at[0] = plan;
  artifact->is_borrowed = true;
  artifact->library = library;
  artifact->copy = -1;
  artifact->weights = -1;
  Status status = check_kernels(artifact);
  if (status != STATUS_OK) {
    artifact_close(artifact);
    return status;
  }
  *out = artifact;
  return STATUS_OK;
}

void artifact_close(Artifact *artifact) {
  if (!artifact) return;
  if (artifact->library && !artifact->is_borrowed) dlclose(artifact->library);
  if (artifact->copy >= 0) close(artifact->copy);
  arena_free(artifact->arena);
}

void artifact_choose(Artifact *artifact, int stage) { artifact->plan = artifact->stages.at[stage]; }

HostKernel *artifact_kernel(const Artifact *artifact, const char *name) {
  if (!artifact->library) return NULL;
  union {
    void *data;
    HostKernel *code; /* ISO C has no cast between the two; POSIX says that this works */
  } symbol = {dlsym(artifact->library, name)};
  return symbol.code;
}
