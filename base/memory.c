/* memory: see memory.h. */
#include "base/memory.h"
#include "base/text.h"
#include <stdio.h>
#include <unistd.h>

static _Thread_local MemoryGuard *innermost;

void memory_enter(MemoryGuard *guard) {
  guard->outer = innermost;
  innermost = guard;
}

void memory_leave(MemoryGuard *guard) { innermost = guard->outer; }

/* Not exit(): it takes LLVM's tables down under threads that are still compiling. */
_Noreturn void memory_none(void) {
  text_remove_temporaries(innermost != NULL);
  if (innermost) longjmp(innermost->place, 1);
  fputs("error: out of memory\n", stderr);
  _exit(3);
}
