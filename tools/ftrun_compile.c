/* ftrun_compile: see ftrun_compile.h. */
#define _GNU_SOURCE /* memfd_create */
#include "tools/ftrun_compile.h"
#include "base/say.h"
#include "runtime/command/ranks.h"
#include "runtime/common/signals.h"
#include "runtime/data/source_early.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The ftc beside this program, else the one in PATH. */
static void find_compiler(char *out, size_t capacity) {
  ssize_t length = readlink("/proc/self/exe", out, capacity - 8);
  if (length > 0) {
    out[length] = 0;
    char *slash = strrchr(out, '/');
    if (slash) {
      strcpy(slash + 1, "ftc");
      if (access(out, X_OK) == 0) return;
    }
  }
  strcpy(out, "ftc");
}

/* output, errors: where it writes to; -1: as this process does. */
static int start_and_wait_for(const char *compiler, const char *const *arguments,
                              const Compilation *c, int output, int errors, FILE *to) {
  int status = 0;
  pid_t self = getpid(), child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  /* the one that ends a process that is stopped, too */
    if (getppid() != self) _exit(127); /* it has ended since */
    if ((output >= 0 && dup2(output, STDOUT_FILENO) < 0) ||
        (errors >= 0 && dup2(errors, STDERR_FILENO) < 0))
      _exit(127);
    execvp(compiler, (char **)(uintptr_t)arguments);
    say_error("%s is compiled by ftc, which cannot be run: %s; it belongs beside ftrun or on "
              "the PATH "
              "(package ft), or compile the file elsewhere (ftc %s -o model.so) and train that",
              c->source, strerror(errno), c->source);
    _exit(127);
  }
  if (c->opens_data) source_early_start(c->source, c->places);
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (child < 0) {
    fprintf(to, "error: cannot start the compiler: %s\n", strerror(errno));
    return 3;
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status) == 127 ? 1 : WEXITSTATUS(status);
  fprintf(to, "error: the compiler %s ended by signal %d\n", compiler, WTERMSIG(status));
  return 3;
}

/* One of several ranks: what it and ftc have to say is kept, and most often the same as rank 0's. */
static int compile_as_rank(const char *compiler, const char *const *arguments,
                           const Compilation *c) {
  char self[160], line[4096];
  int output = memfd_create("ftc", MFD_CLOEXEC);
  FILE *said = output >= 0 ? fdopen(output, "r+") : NULL;
  if (!said) return say_error("out of memory"), 3;
  ranks_name_self(self, sizeof self);
  int code = start_and_wait_for(compiler, arguments, c, output, output, said);
  if (code) usleep(200000);
  if (code && signals_pending()) { /* a launcher ends ftc too; communicate/arrivals.c says why */
    fclose(said);
    sleep(1);
    return 128 + signals_pending();
  }
  bool is_first = !strncmp(self, "rank 0 ", 7), speaks = code ? ranks_may_say() : is_first;
  fseek(said, 0, SEEK_SET);
  for (bool names = code != 0; speaks && fgets(line, sizeof line, said);) {
    bool is_error = names && !strncmp(line, "error: ", 7); /* others begin with the file's name */
    if (names && !is_error) say_error("%s%s is not compiled:", self, c->source);
    if (is_error) say_begin(SAY_ERROR);
    fprintf(stderr, "%s%s", is_error ? self : "", line + (is_error ? 7 : 0));
    names = false;
  }
  fflush(stderr);
  fclose(said);
  if (code && speaks) ranks_have_said(code);
  return code;
}

/* What the compiler has to say, if it fails. */
static int compile_quietly_to(const char *compiler, const char *const *arguments, const Compilation *c, int output) {
  char bytes[4096];
  ssize_t got;
  int errors = memfd_create("errors", MFD_CLOEXEC);
  if (errors < 0) return say_error("out of memory"), 3;
  int code = start_and_wait_for(compiler, arguments, c, output, errors, stderr);
  for (off_t at = 0; code && (got = pread(errors, bytes, sizeof bytes, at)) > 0; at += got) fwrite(bytes, 1, (size_t)got, stderr);
  close(errors);
  return code;
}

/* output: as of start_and_wait_for. */
static int compile_to(const Compilation *c, int output) {
  static char compiler[4096];
  const char **arguments = calloc((size_t)c->pass_count + 11, sizeof *arguments);
  int count = 0;
  if (!arguments) return say_error("out of memory"), 3;
  find_compiler(compiler, sizeof compiler);
  arguments[count++] = compiler;
  arguments[count++] = c->source;
  if (c->artifact) {
    arguments[count++] = "-o";
    arguments[count++] = c->artifact;
  }
  if (c->gpu) {
    arguments[count++] = "--gpu";
    arguments[count++] = c->gpu;
  }
  if (c->find_batch) arguments[count++] = "--find-batch";
  if (c->places->allow_paths) arguments[count++] = "--allow-paths";
  for (int i = 0; i < c->pass_count; i++) arguments[count++] = c->pass[i];
  int code = c->is_rank    ? compile_as_rank(compiler, arguments, c)
             : c->is_again ? compile_quietly_to(compiler, arguments, c, output)
                           : start_and_wait_for(compiler, arguments, c, output, -1, stderr);
  free(arguments);
  return code;
}

int compile_source(const Compilation *compilation) { return compile_to(compilation, -1); }

int compile_and_read(const Compilation *compilation, Text *out) {
  char bytes[4096];
  ssize_t got;
  int output = memfd_create("answer", MFD_CLOEXEC);
  if (output < 0) return say_error("out of memory"), 3;
  int code = compile_to(compilation, output);
  for (off_t at = 0; (got = pread(output, bytes, sizeof bytes, at)) > 0; at += got)
    text_append(out, bytes, (size_t)got);
  close(output);
  return code;
}
