/* spool: what a command prints, "| command" in place of a file's name, kept in a temporary file that has no
 * name and is gone with the process. A command is run once in a process, whole, before the first byte is used, so order and resuming are those of any
 * other file. */
#ifndef FT_RUNTIME_SPOOL_H
#define FT_RUNTIME_SPOOL_H
#include "runtime/common/status.h"
#include <stdbool.h>

/* Is it a command in place of a file's name? */
bool spool_is_command(const char *name);
/* Runs it, `sh -c`, with nothing on its standard input, and waits for its end. A failure, no output among
 * them, names the command. One that has run already is not run again. From any thread. */
STATUS_CHECKED Status spool_run(const char *name);
/* A descriptor, to be read by pread, of a file or of what a command has printed; -1: errno. */
int spool_open(const char *name);
#endif
