/* signals: Ctrl-C, SIGTERM, SIGHUP (the terminal is gone), SIGUSR1 (a batch system's warning) and
 * SIGPIPE (the reader of the log is gone) as a question the training loop asks between steps. The
 * first one asks for an orderly end; a second one ends the process at once, as if none were
 * handled, but for SIGPIPE, which every line of the log brings anew. */
#ifndef FT_RUNTIME_SIGNALS_H
#define FT_RUNTIME_SIGNALS_H
#include <stdbool.h>
#include <stdint.h>

void signals_listen(void);
/* The signal that arrived since signals_listen, or 0. */
int signals_pending(void);
/* Did it come, and well before this time (clock_nanoseconds)? What ends half a second after it, or
 * before it, has not been ended by it: a launcher sends the signal because of that. */
bool signals_came_before(int64_t time);
#endif
