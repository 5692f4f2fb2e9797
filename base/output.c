/* output: see output.h. */
#include "base/output.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

void output_start(void) {
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd ? O_WRONLY : O_RDONLY);
}

int output_end(const char *tool, int code) {
  errno = 0;
  int failed = fflush(stdout) != 0, error = errno;
  if (!failed && !ferror(stdout)) return code;
  fprintf(stderr, "%s: cannot write all of the standard output%s%s\n", tool, error ? ": " : "",
          error ? strerror(error) : "");
  return code ? code : 3;
}
