/* signals: see signals.h. */
#include "runtime/signals.h"
#include <signal.h>
#include <string.h>

static volatile sig_atomic_t pending;

static void on_signal(int number) { pending = number; }

void signals_listen(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  /* after the first, the default is back: the second one kills */
  action.sa_flags = (int)(SA_RESETHAND | SA_RESTART);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
}

int signals_pending(void) { return pending; }
