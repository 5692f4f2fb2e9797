/* watch_run: `ftrun watch RUN`: what a training says on its console, said from its log in another
 * terminal while it goes on: a block that is drawn anew, or plain lines where that is none. Writes to no file, and
 * the training knows nothing of it. */
#ifndef FT_RUNTIME_WATCH_RUN_H
#define FT_RUNTIME_WATCH_RUN_H
#include "runtime/common/status.h"

/* Waits for a log that is not there yet, and ends with the training: STATUS_USER, with its sentence,
 * where that has failed. */
STATUS_CHECKED Status watch_run(const char *path);
#endif
