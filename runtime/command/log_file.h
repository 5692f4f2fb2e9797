/* log_file: a file to which a log is written line by line. The first line that cannot be written is
 * reported, and later lines are dropped; the training then ends when it next checks its files. */
#ifndef FT_RUNTIME_LOG_FILE_H
#define FT_RUNTIME_LOG_FILE_H
#include "base/text.h"
#include "runtime/common/status.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct {
  FILE *file;       /* NULL: there is none, and all that follows does nothing */
  const char *path; /* must outlive it */
  bool has_failed;
} LogFile;

/* path NULL or "": none. append: goes on behind what is there. */
STATUS_CHECKED Status log_file_open(LogFile *file, const char *path, bool append);
STATUS_CHECKED Status log_file_write(LogFile *file, const Text *text);
STATUS_CHECKED Status log_file_flush(LogFile *file);
/* Of what a line tells; step -1: of none. */
typedef struct {
  int64_t step;
  bool is_eval;
} LogPlace;
/* Takes out all from the first line of a step after `step` on, or of the evaluation after it unless
 * is_evaluated, and a last line that a kill cut short. A pipe or a device keeps what it got. */
STATUS_CHECKED Status log_file_cut(LogFile *file, int64_t step, bool is_evaluated,
                                   LogPlace (*place_of)(const char *line));
bool log_file_is_empty(const LogFile *file);
STATUS_CHECKED Status log_file_close(LogFile *file);
#endif
