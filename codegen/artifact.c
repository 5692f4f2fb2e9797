/* artifact: a .ptx is text with the plan at its head; a .so is our object, linked by the system's
 * ld. Invariant: the file appears whole or not at all, and equal input gives equal bytes. */
#include "codegen/artifact.h"
#include "codegen/codegen.h"
#include "codegen/cubin.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_last_stage(const Plan *plan) {
  return !plan->settings || plan->stage + 1 == setting_pipeline(plan->settings);
}

/* The plans of all stages to this one, in their order. */
static void print_plans(const Code *code, Text *out, void (*print)(const Plan *, Text *)) {
  if (code->before) print_plans(code->before, out, print);
  print(code->plan, out);
}

bool artifact_embed_plan(Module *module, const Code *code) {
  Text text = {0};
  if (!is_last_stage(code->plan)) return true;
  print_plans(code, &text, plan_print);
  LLVMValueRef string = LLVMConstStringInContext2(module->context, text_cstr(&text), text.count, 0);
  LLVMValueRef global = LLVMAddGlobal(module->llvm, LLVMTypeOf(string), "ft_plan");
  LLVMSetInitializer(global, string);
  LLVMSetGlobalConstant(global, true);
  LLVMSetSection(global, ".ft_plan");
  text_free(&text);
  return true;
}

bool artifact_fail(Diag *diag, const char *what, const char *path, int error) {
  if (text_is_fault(error)) diag->is_fault = true;
  diag_error(diag, (Loc){0}, "cannot %s %s: %s", what, path, text_error(error));
  return false;
}

/* ── other programs ─────────────────────────────────────────────────────────────────────────── */
int artifact_run(const char *const *arguments, char *message, size_t size) {
  int pipe_ends[2];
  if (pipe(pipe_ends)) return -1;
  pid_t child = fork();
  if (child == 0) {
    dup2(pipe_ends[1], STDERR_FILENO);
    dup2(pipe_ends[1], STDOUT_FILENO);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    execvp(arguments[0], (char *const *)(uintptr_t)arguments);
    _exit(127);
  }
  close(pipe_ends[1]);
  char buffer[1024];
  size_t count = 0;
  ssize_t got;
  while (child > 0 && (got = read(pipe_ends[0], buffer, sizeof buffer)) != 0) {
    if (got < 0 && errno != EINTR) break;
    size_t room = size - 1 - count, kept = got < 0 ? 0 : (size_t)got < room ? (size_t)got : room;
    memcpy(message + count, buffer, kept);
    count += kept;
  }
  message[count] = 0;
  close(pipe_ends[0]);
  int status = -1;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (child < 0) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int artifact_write_beside(const char *path, const Text *bytes, Text *name) {
  int fd = -1, error = text_open_beside(path, name, &fd);
  if (error) {
    text_free(name);
    return error;
  }
  error = text_write_all(fd, text_cstr(bytes), bytes->count);
  return close(fd) && !error ? errno : error;
}

static void append_assembly(const Code *code, Text *out) {
  if (code->before) append_assembly(code->before, out);
  text_append(out, text_cstr(&code->assembly), code->assembly.count);
}

static bool write_ptx(Diag *diag, const Code *code, const CodegenOptions *options, const char *path) {
  Text text = {0};
  print_plans(code, &text, plan_to_ptx);
  if (options->is_inference) text_printf(&text, "%s", plan_ptx_inference);
  append_assembly(code, &text);
  bool good = !options->wants_cubin || cubin_append(diag, code->plan->target_cpu, path, &text);
  int error = good ? text_write_file(path, text_cstr(&text), text.count) : 0;
  text_free(&text);
  return good && (!error || artifact_fail(diag, "write", path, error));
}

/* ── .so ────────────────────────────────────────────────────────────────────────────────────── */
/* What lies beside the output while ld works: their names as they were made. */
typedef struct {
  Text linked, *object;
  int count;
} Beside;

/* Returns ld's exit status, or -1. What no kernel uses is left out; names are the artifact's own, whatever else is
 * loaded. An end without memory removes ld's files, which it could make again. */
static int run_ld(const Beside *files, char *message, size_t size) {
  const char *arguments[16 + SETTING_MOST_STAGES * CODEGEN_OBJECTS] = {
      "ld", "-shared", "-O1", "-z", "noexecstack", "--build-id=none", "--gc-sections",
      "-Bsymbolic", "-o", files->linked.at};
  for (int i = 0; i < files->count; i++) arguments[10 + i] = files->object[i].at;
  return artifact_run(arguments, message, size);
}

static bool explain_ld(Diag *diag, int status, const char *message) {
  diag->is_fault |= status && status != 127;
  if (status == 127)
    diag_error(diag, (Loc){0},
               "cannot run 'ld', which makes the .so file: install Debian's package binutils");
  else if (status)
    diag_error(diag, (Loc){0}, "ld could not make the .so file (status %d): %s", status, message);
  return !status;
}

/* Of all stages to this one, in their order. */
static int write_objects(const Code *code, const char *path, Beside *files) {
  int error = code->before ? write_objects(code->before, path, files) : 0;
  for (int i = 0; i < CODEGEN_OBJECTS && !error; i++)
    if (code->object[i].count)
      error = artifact_write_beside(path, &code->object[i], &files->object[files->count++]);
  return error;
}

/* All files lie beside the output, so that the last step is a rename. */
static bool link_beside(Diag *diag, const Code *code, const char *path, Beside *files) {
  char message[4096] = "";
  int error = artifact_write_beside(path, &(Text){0}, &files->linked);
  if (!error) error = write_objects(code, path, files);
  if (error) return artifact_fail(diag, "write", path, error);
  if (!explain_ld(diag, run_ld(files, message, sizeof message), message)) return false;
  if (rename(files->linked.at, path)) return artifact_fail(diag, "write", path, errno);
  text_free(&files->linked);
  return true;
}

static bool link_shared(Diag *diag, const Code *code, const char *path) {
  Text object[SETTING_MOST_STAGES * CODEGEN_OBJECTS] = {0};
  Beside files = {.object = object};
  bool good = link_beside(diag, code, path, &files);
  for (int i = 0; i <= files.count; i++) {
    Text *name = i < files.count ? &files.object[i] : &files.linked;
    if (name->count) unlink(name->at);
    text_free(name);
  }
  return good;
}

bool codegen_write(Diag *diag, const Code *code, const CodegenOptions *options, const char *path) {
  if (options->target == TARGET_PTX) return write_ptx(diag, code, options, path);
  return link_shared(diag, code, path);
}
