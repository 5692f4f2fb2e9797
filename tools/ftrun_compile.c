/* ftrun_compile: see ftrun_compile.h. */
#include "tools/ftrun_compile.h"
#include "runtime/data/source_early.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static int start_and_wait_for(const char *compiler, const char *const *arguments,
                              const Compilation *c) {
  int status = 0;
  pid_t child = fork();
  if (child == 0) {
    execvp(compiler, (char **)(uintptr_t)arguments);
    fprintf(stderr, "error: cannot run the compiler %s: %s\n", compiler, strerror(errno));
    _exit(127);
  }
  if (c->opens_data) source_early_start(c->source, c->places);
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (child < 0) {
    fprintf(stderr, "error: cannot start the compiler: %s\n", strerror(errno));
    return 3;
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status) == 127 ? 1 : WEXITSTATUS(status);
  fprintf(stderr, "error: the compiler %s ended by signal %d\n", compiler, WTERMSIG(status));
  return 3;
}

int compile_source(const Compilation *c) {
  static char compiler[4096];
  const char **arguments = calloc((size_t)c->pass_count + 11, sizeof *arguments);
  int count = 0;
  if (!arguments) return fprintf(stderr, "error: out of memory\n"), 3;
  find_compiler(compiler, sizeof compiler);
  arguments[count++] = compiler;
  arguments[count++] = c->source;
  arguments[count++] = "-o";
  arguments[count++] = c->artifact;
  if (c->gpu) {
    arguments[count++] = "--gpu";
    arguments[count++] = c->gpu;
  }
  if (c->find_batch) arguments[count++] = "--find-batch";
  if (c->places->allow_paths) arguments[count++] = "--allow-paths";
  for (int i = 0; i < c->pass_count; i++) arguments[count++] = c->pass[i];
  int code = start_and_wait_for(compiler, arguments, c);
  free(arguments);
  return code;
}
