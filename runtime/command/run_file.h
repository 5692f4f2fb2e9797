/* run_file: follows the file of a log as it grows, whoever writes it. The file may not exist yet, may
 * be replaced by a new one of its name, or may be shortened by a resumed training that goes on
 * in it. */
#ifndef FT_RUNTIME_RUN_FILE_H
#define FT_RUNTIME_RUN_FILE_H
#include "runtime/command/run_log.h"

typedef struct RunFile RunFile;

/* A folder stands for the log.jsonl in it. */
STATUS_CHECKED Status run_file_new(const char *path, RunFile **out);
void run_file_free(RunFile *file); /* NULL is fine */
/* Reads what has come since, at most some MiB: *more is whether there is more of it. *has_changed:
 * has anything come, or gone? A file that is not there is no failure; STATUS_USER: it is no regular
 * file, or may not be read. */
STATUS_CHECKED Status run_file_read(RunFile *file, RunSeen *seen, void *user, bool *more,
                                    bool *has_changed);
bool run_file_is_there(const RunFile *file);
/* How often it has begun anew: what was shown before is of another file. */
int run_file_restarts(const RunFile *file);
RunLog *run_file_log(RunFile *file);
const char *run_file_path(const RunFile *file);
#endif
