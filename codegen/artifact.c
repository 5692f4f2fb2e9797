/* artifact: a .ptx is text with the plan at its head; a .so is our object, linked by the system's
 * ld. Invariant: the file appears whole or not at all, and equal input gives equal bytes. */
#include "codegen/artifact.h"
#include "codegen/codegen.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

bool artifact_embed_plan(Module *module, const Plan *plan) {
  Text text = {0};
  plan_print(plan, &text);
  LLVMValueRef string = LLVMConstStringInContext2(module->context, text_cstr(&text), text.count, 0);
  LLVMValueRef global = LLVMAddGlobal(module->llvm, LLVMTypeOf(string), "ft_plan");
  LLVMSetInitializer(global, string);
  LLVMSetGlobalConstant(global, true);
  LLVMSetSection(global, ".ft_plan");
  text_free(&text);
  return true;
}

static bool fail(Diag *diag, const char *what, const char *path, int error) {
  diag_error(diag, (Loc){0}, "cannot %s %s: %s", what, path, text_error(error));
  return false;
}

static bool write_ptx(Diag *diag, const Code *code, const char *path) {
  Text text = {0};
  plan_to_ptx(code->plan, &text);
  text_append(&text, text_cstr(&code->assembly), code->assembly.count);
  int error = text_write_file(path, text_cstr(&text), text.count);
  text_free(&text);
  return !error || fail(diag, "write", path, error);
}

/* ── .so ────────────────────────────────────────────────────────────────────────────────────── */
/* Runs ld; *message gets what it said. Returns its exit status, or -1 if there is no ld. What no
 * kernel uses is left out. The list of objects ends with NULL. */
static int run_ld(const char *const *object, const char *output, Text *message) {
  int pipe_ends[2];
  if (pipe(pipe_ends)) return -1;
  pid_t child = fork();
  if (child == 0) {
    const char *arguments[16 + CODEGEN_OBJECTS] = {
        "ld", "-shared", "-O1", "-z", "noexecstack", "--build-id=none", "--gc-sections",
        "-o", output};
    for (int i = 0; object[i]; i++) arguments[9 + i] = object[i];
    dup2(pipe_ends[1], STDERR_FILENO);
    dup2(pipe_ends[1], STDOUT_FILENO);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    execvp("ld", (char *const *)(uintptr_t)arguments);
    _exit(127);
  }
  close(pipe_ends[1]);
  char buffer[1024];
  ssize_t got;
  while (child > 0 && (got = read(pipe_ends[0], buffer, sizeof buffer)) != 0) {
    if (got > 0) text_append(message, buffer, (size_t)got);
    if (got < 0 && errno != EINTR) break;
  }
  close(pipe_ends[0]);
  int status = -1;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (child < 0) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool explain_ld(Diag *diag, int status, const Text *message) {
  if (status == 127)
    diag_error(diag, (Loc){0},
               "cannot run 'ld', which makes the .so file: install Debian's package binutils");
  else if (status)
    diag_error(diag, (Loc){0}, "ld could not make the .so file (status %d): %s", status,
               text_cstr(message));
  return !status;
}

/* A new file beside `path`, gone in a moment: not synced. Its name goes to *name, also when it was
 * made and could not be written. Returns 0, an errno value or TEXT_IRREGULAR. */
static int write_beside(const char *path, const Text *bytes, Arena *arena, const char **name) {
  Text temporary = {0};
  int fd = -1, error = text_open_beside(path, &temporary, &fd);
  if (!error) {
    *name = arena_strdup(arena, text_cstr(&temporary));
    error = text_write_all(fd, text_cstr(bytes), bytes->count);
    if (close(fd) && !error) error = errno;
  }
  text_free(&temporary);
  return error;
}

/* All files lie beside the output, so that the last step is a rename. */
static bool link_shared(Diag *diag, const Code *code, Arena *arena, const char *path) {
  const char *object[CODEGEN_OBJECTS + 1] = {NULL};
  const char *linked = NULL;
  int count = 0, error = write_beside(path, &(Text){0}, arena, &linked);
  bool good = !error || fail(diag, "write", path, error);
  for (int i = 0; i < CODEGEN_OBJECTS && good; i++) {
    if (!code->object[i].count) continue;
    error = write_beside(path, &code->object[i], arena, &object[count]);
    if (error) good = fail(diag, "write", path, error);
    if (object[count]) count++;
  }
  Text message = {0};
  good = good && explain_ld(diag, run_ld(object, linked, &message), &message);
  text_free(&message);
  if (good && rename(linked, path)) good = fail(diag, "write", path, errno);
  for (int i = 0; i < count; i++) unlink(object[i]);
  if (!good && linked) unlink(linked);
  return good;
}

bool codegen_write(Diag *diag, const Code *code, const CodegenOptions *options, const char *path) {
  if (options->target == TARGET_PTX) return write_ptx(diag, code, path);
  Arena *arena = arena_new();
  bool good = link_shared(diag, code, arena, path);
  arena_free(arena);
  return good;
}
