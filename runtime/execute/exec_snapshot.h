/* exec_snapshot: a copy of what an Exec holds as its last run leaves it, to be read by another
 * thread while more runs go on: what a checkpoint is written from (runtime/checkpoint). On the
 * device if it can spare the memory, so that a run waits for one copy within it; else on the host,
 * and a run waits until the bytes are there. Neither takes more than half of what is free. */
#ifndef FT_RUNTIME_EXEC_SNAPSHOT_H
#define FT_RUNTIME_EXEC_SNAPSHOT_H
#include "runtime/execute/exec.h"

typedef struct {
  int place;
  int64_t offset, bytes;
} ExecRange;
typedef struct ExecSnapshot ExecSnapshot;
enum { SNAPSHOT_ON_DEVICE = 1, SNAPSHOT_ON_HOST = 2, SNAPSHOT_ANYWHERE = 3 };

/* *out is NULL if there is no room `where` it may lie. */
STATUS_CHECKED Status exec_snapshot_new(Exec *exec, const ExecRange *ranges, int count,
                                        unsigned where, ExecSnapshot **out);
/* The same once more, of what the Exec holds now. */
STATUS_CHECKED Status exec_snapshot_again(Exec *exec, ExecSnapshot *snapshot);
/* From any one thread at a time. What is read lies within one of the ranges. */
STATUS_CHECKED Status exec_snapshot_read(const ExecSnapshot *snapshot, int place, int64_t offset,
                                         int64_t bytes, void *to);
bool exec_snapshot_is_on_device(const ExecSnapshot *snapshot);
void exec_snapshot_free(ExecSnapshot *snapshot); /* from any thread; NULL is fine */
#endif
