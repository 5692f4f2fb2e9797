/* guard: mapped files that become shorter while they are read. Touching what is gone would end the
 * program by SIGBUS; with the guard it reads zeros there and the file is marked as lost. For
 * programs only: a library leaves the signals of its host alone, and then guard_add refuses. */
#ifndef FT_RUNTIME_GUARD_H
#define FT_RUNTIME_GUARD_H
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* Takes over SIGBUS; what is no guarded memory ends the program as ever. */
void guard_install(void);
/* A mapping to guard, whole pages from `at` on. Returns its number, or -1 without guard_install or
 * if there are too many: read the file into memory then. */
int guard_add(const void *at, size_t bytes);
void guard_remove(int number); /* before munmap; -1 is fine */
bool guard_is_lost(int number);
/* What a thread that leaves signals to the main thread blocks: all but those of its own faults,
 * which would otherwise end the program. */
void guard_block_signals(sigset_t *before);
#endif
