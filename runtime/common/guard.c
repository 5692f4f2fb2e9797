/* guard: see guard.h. The handler uses atomics and mmap only. Invariant: a slot with a start has
 * its end and its mark set before. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "runtime/common/guard.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

enum { SLOTS = 1024, PAGE = 4096 };

static struct {
  _Atomic uintptr_t start, end; /* start 0: free */
  atomic_bool is_lost;
} slots[SLOTS];
static atomic_bool is_installed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void on_bus_error(int number, siginfo_t *info, void *context) {
  (void)context;
  int error = errno;
  uintptr_t at = (uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1);
  for (int i = 0; i < SLOTS; i++) {
    uintptr_t start = atomic_load(&slots[i].start), end = atomic_load(&slots[i].end);
    if (!start || at < start || at >= end) continue;
    void *zeros = mmap((void *)at, end - at, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (zeros == MAP_FAILED) break;
    atomic_store(&slots[i].is_lost, true);
    errno = error;
    return;
  }
  signal(number, SIG_DFL); /* the access is made again when this returns */
}

void guard_install(void) {
  struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGBUS, &action, NULL) == 0) atomic_store(&is_installed, true);
}

int guard_add(const void *at, size_t bytes) {
  int number = -1;
  if (!atomic_load(&is_installed)) return number;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < SLOTS && number < 0; i++)
    if (!atomic_load(&slots[i].start)) number = i;
  if (number >= 0) {
    uintptr_t end = (uintptr_t)at + (bytes + PAGE - 1) / PAGE * PAGE;
    atomic_store(&slots[number].is_lost, false);
    atomic_store(&slots[number].end, end);
    atomic_store(&slots[number].start, (uintptr_t)at);
  }
  pthread_mutex_unlock(&lock);
  return number;
}

void guard_remove(int number) {
  if (number >= 0) atomic_store(&slots[number].start, 0);
}

bool guard_is_lost(int number) { return number >= 0 && atomic_load(&slots[number].is_lost); }

void guard_block_signals(sigset_t *before) {
  static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL};
  sigset_t others;
  sigfillset(&others);
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&others, own[i]);
  pthread_sigmask(SIG_SETMASK, &others, before);
}
