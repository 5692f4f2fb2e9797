/* ftrun_folder: where `ftrun model.ft` has its artifact while it runs: a folder of its own below
 * TMPDIR, which is gone when ftrun ends, also by a signal that no training answers. What a killed
 * run has left, the next one removes. */
#ifndef FT_TOOLS_FTRUN_FOLDER_H
#define FT_TOOLS_FTRUN_FOLDER_H
#include <stdbool.h>

/* 0, and the artifact's path, or an exit code with a message on standard error. Once a process. */
int folder_open(bool is_ptx, const char **artifact);
/* For another artifact beside the first one; goes with it. */
const char *folder_second(void);
void folder_close(void);
/* Removes it where another thread than main's ends the process. */
void folder_leave(void);
#endif
