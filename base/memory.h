/* memory: what arenas and texts do when there is none left. In a program of ours that is the end,
 * with a plain message and exit code 3. A library must not end its caller: between memory_enter and
 * memory_leave, this thread goes back to where the guard was set.
 *
 *   MemoryGuard guard;
 *   memory_enter(&guard);
 *   if (setjmp(guard.place) == 0) status = work();
 *   else status = "out of memory";               // what work() had allocated is lost
 *   memory_leave(&guard); */
#ifndef FT_BASE_MEMORY_H
#define FT_BASE_MEMORY_H
#include <setjmp.h>

typedef struct MemoryGuard {
  jmp_buf place;
  struct MemoryGuard *outer;
} MemoryGuard;

void memory_enter(MemoryGuard *guard);
void memory_leave(MemoryGuard *guard);
/* There is none left. */
_Noreturn void memory_none(void);
#endif
