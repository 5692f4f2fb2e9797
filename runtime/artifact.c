/* artifact: see artifact.h. A .so is looked at (regular file, ELF, x86-64 shared object) before the
 * dynamic linker sees it, so that a wrong file gives one clear line. */
#include "runtime/artifact.h"
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static Status check_regular(const char *path, int64_t *size) {
  struct stat info;
  if (stat(path, &info) != 0) return status_errno(errno, "%s", path);
  if (!S_ISREG(info.st_mode)) return status_fail(STATUS_USER, "%s: not a regular file", path);
  *size = info.st_size;
  if (!*size) return status_fail(STATUS_USER, "%s: the file is empty", path);
  return STATUS_OK;
}

/* The first bytes; short files leave the rest zero. */
static Status read_head(const char *path, void *head, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return status_errno(errno, "%s", path);
  ssize_t got = pread(fd, head, size, 0);
  int error = errno;
  close(fd);
  return got < 0 ? status_errno(error, "%s", path) : STATUS_OK;
}

/* The dynamic linker maps what the headers say; a file cut off behind them would be a bus error. */
static Status check_elf(const char *path, int64_t size) {
  Elf64_Ehdr head = {0};
  STATUS_TRY(read_head(path, &head, sizeof head));
  if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_type != ET_DYN)
    return status_fail(STATUS_USER, "%s: not a 64-bit shared object", path);
#if defined(__x86_64__)
  if (head.e_machine != EM_X86_64)
    return status_fail(STATUS_USER, "%s: compiled for another kind of processor", path);
#endif
  uint64_t table = head.e_phoff, count = head.e_phnum;
  bool is_whole = head.e_phentsize == sizeof(Elf64_Phdr) && count > 0 && count < 64 &&
                  table <= (uint64_t)size && count * sizeof(Elf64_Phdr) <= (uint64_t)size - table;
  Elf64_Phdr rows[64] = {0};
  if (is_whole) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t bytes = count * sizeof(Elf64_Phdr);
    is_whole = fd >= 0 && pread(fd, rows, bytes, (off_t)table) == (ssize_t)bytes;
    if (fd >= 0) close(fd);
  }
  for (uint64_t i = 0; is_whole && i < count; i++)
    is_whole =
        rows[i].p_offset <= (uint64_t)size && rows[i].p_filesz <= (uint64_t)size - rows[i].p_offset;
  if (!is_whole) return status_fail(STATUS_USER, "%s: the file is damaged or cut off", path);
  return STATUS_OK;
}

static Status check_kernels(const Artifact *artifact) {
  for (int g = 0; g < PLAN_GRAPHS; g++)
    for (int i = 0; i < artifact->plan->graph[g].steps.count; i++) {
      const PlanStep *step = &artifact->plan->graph[g].steps.at[i];
      if (step->kind == STEP_LAUNCH && !artifact_kernel(artifact, step->name))
        return status_fail(STATUS_USER, "%s: the plan calls kernel %s, which the file lacks",
                           artifact->path, step->name);
    }
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

static Status parse_plan(Artifact *artifact, const char *text, size_t length) {
  const char *why = NULL;
  artifact->plan = plan_parse(artifact->arena, text, length, &why);
  if (!artifact->plan) return status_fail(STATUS_USER, "%s: %s", artifact->path, why);
  return STATUS_OK;
}

static Status open_library(Artifact *artifact, int64_t size) {
  STATUS_TRY(check_elf(artifact->path, size));
  const char *slash = strchr(artifact->path, '/'); /* without one dlopen would search elsewhere */
  const char *path = slash ? artifact->path : arena_printf(artifact->arena, "./%s", artifact->path);
  artifact->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!artifact->library)
    return status_fail(STATUS_USER, "%s: cannot be loaded: %s", artifact->path, dlerror());
  const char *text = dlsym(artifact->library, "ft_plan");
  if (!text)
    return status_fail(STATUS_USER, "%s: a shared object, but not one that ftc made",
                       artifact->path);
  STATUS_TRY(parse_plan(artifact, text, strlen(text)));
  if (strcmp(artifact->plan->target, "cpu") != 0)
    return status_fail(STATUS_USER, "%s: its plan is for target %s", artifact->path,
                       artifact->plan->target);
  STATUS_TRY(check_processor(artifact));
  return check_kernels(artifact);
}

static Status open_ptx(Artifact *artifact) {
  Text bytes = {0};
  int error = text_read_file(&bytes, artifact->path);
  Status status = STATUS_OK;
  if (error) {
    status = status_errno(error, "%s", artifact->path);
  } else {
    const char *plan = plan_from_ptx(artifact->arena, text_cstr(&bytes), bytes.count);
    artifact->ptx = arena_strndup(artifact->arena, text_cstr(&bytes), bytes.count);
    status = plan ? parse_plan(artifact, plan, strlen(plan))
                  : status_fail(STATUS_USER, "%s: neither a .so nor a .ptx that ftc made",
                                artifact->path);
    if (status == STATUS_OK && strcmp(artifact->plan->target, "ptx") != 0)
      status = status_fail(STATUS_USER, "%s: its plan is for target %s", artifact->path,
                           artifact->plan->target);
  }
  text_free(&bytes);
  return status;
}

Status artifact_open(const char *path, Artifact **out) {
  int64_t size;
  char head[SELFMAG] = {0};
  STATUS_TRY(check_regular(path, &size));
  STATUS_TRY(read_head(path, head, sizeof head));
  Arena *arena = arena_new();
  Artifact *artifact = ARENA_NEW(arena, Artifact);
  artifact->arena = arena;
  artifact->path = arena_strdup(arena, path);
  Status status =
      memcmp(head, ELFMAG, SELFMAG) == 0 ? open_library(artifact, size) : open_ptx(artifact);
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
  artifact->is_borrowed = true;
  artifact->library = library;
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
  arena_free(artifact->arena);
}

HostKernel *artifact_kernel(const Artifact *artifact, const char *name) {
  if (!artifact->library) return NULL;
  union {
    void *data;
    HostKernel *code; /* ISO C has no cast between the two; POSIX says that this works */
  } symbol = {dlsym(artifact->library, name)};
  return symbol.code;
}
