/* signals: Ctrl-C, SIGTERM, SIGHUP (the terminal is gone) and SIGUSR1 (a batch system's warning) as a
 * question the training loop asks between steps. The first one asks for an orderly end; a second one
 * ends the process at once, as if nobody had listened. */
#ifndef FT_RUNTIME_SIGNALS_H
#define FT_RUNTIME_SIGNALS_H

void signals_listen(void);
/* The signal that arrived since signals_listen, or 0. */
int signals_pending(void);
#endif
