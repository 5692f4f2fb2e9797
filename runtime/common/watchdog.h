/* watchdog: ends a run whose main thread waits too long for a batch or for a checkpoint, as where a
 * network's disk does not answer: no call that hangs there can be called off, so the process ends,
 * with one sentence on stderr and STATUS_FAULT as its exit code. What the main thread waits for makes
 * progress where any thread says so, and only a time without any counts. One per process, of ftrun:
 * where watchdog_start was not called (a program that uses ft.h) all others do nothing. */
#ifndef FT_RUNTIME_WATCHDOG_H
#define FT_RUNTIME_WATCHDOG_H
#include <stdint.h>

/* Begins to watch, by a thread of its own; without one (no memory) nothing is watched. `seconds`: how
 * long without progress; 0: nothing is watched. `setting`: its name, for the sentence. */
void watchdog_start(double seconds, const char *setting);
void watchdog_stop(void);
/* Main thread: from here until watchdog_end it waits for `what` ("a batch", "the checkpoint"), which comes
 * from or goes to `path` (NULL: nobody knows); in `step`, or 0 if that is of no step. The texts stay. */
void watchdog_begin(const char *what, const char *path, int64_t step);
void watchdog_end(void);
/* Any thread: something of what is waited for has come or gone. */
void watchdog_progress(void);
/* The last checkpoint that is whole, and what --resume takes, for the sentence. Any thread. */
void watchdog_saved(int64_t step, const char *path);
#endif
