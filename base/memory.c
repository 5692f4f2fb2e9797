/* memory: see memory.h. */
#include "base/memory.h"
#include <stdio.h>
#include <stdlib.h>

static _Thread_local MemoryGuard *innermost;

void memory_enter(MemoryGuard *guard) {
  guard->outer = innermost;
  innermost = guard;
}

void memory_leave(MemoryGuard *guard) { innermost = guard->outer; }

_Noreturn void memory_none(void) {
  if (innermost) longjmp(innermost->place, 1);
  fputs("error: out of memory\n", stderr);
  exit(3);
}
