/* output: see output.h. */
#include "base/output.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void output_start(void) {
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd ? O_WRONLY : O_RDONLY);
}

static atomic_bool leaves_at_once;

void output_leave_at_once(void) { atomic_store(&leaves_at_once, true); }

static int output_leave(int code) {
  if (!atomic_load(&leaves_at_once)) return code;
  fflush(stderr);
  _exit(code);
}

int output_end(const char *tool, int code) {
  errno = 0;
  int failed = fflush(stdout) != 0, error = errno;
  if (!failed && !ferror(stdout)) return output_leave(code);
  fprintf(stderr, "%s: cannot write all of the standard output%s%s\n", tool, error ? ": " : "",
          error ? strerror(error) : "");
  return output_leave(code ? code : 3);
}
