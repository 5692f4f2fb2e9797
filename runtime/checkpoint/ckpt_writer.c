/* ckpt_writer: checkpoints are written by a thread of their own, from a copy (declared in ckpt.h).
 * One job at a time: the copy and the files that are made of it, in order, the best before the
 * step's own, so that a step's file never tells of a best that is not on the disk. The job belongs
 * to its thread from start to join. */
#include "runtime/checkpoint/ckpt.h"
#include "runtime/checkpoint/ckpt_places.h"
#include "runtime/common/guard.h"
#include <stdio.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Where the thread may be delayed while the Exec goes on: test/unit/runtime_ckpt_writer.c, which
 * includes this file, delays it there. */
#ifndef CKPT_WRITER_MAY_BE_DELAYED
#define CKPT_WRITER_MAY_BE_DELAYED() ((void)0)
#endif

enum { MOST_FILES = 2 };

typedef struct {
  char *folder;
  CkptInfo info;
  int64_t keep; /* 0: the best one */
} File;

struct CkptWriter {
  Exec *exec;
  File file[MOST_FILES];
  int file_count;
  bool is_running; /* the thread exists */
  pthread_t thread;
  ExecSnapshot *snapshot;
  atomic_bool is_done;
  /* what the job leaves, read after its end */
  Status status;
  char message[1024];
  int64_t saved_step;
  bool is_waited_for; /* the last job had no copy or no thread */
};

Status ckpt_writer_new(Exec *exec, CkptWriter **out) {
  CkptWriter *writer = calloc(1, sizeof *writer);
  if (!writer) return status_errno(ENOMEM, "checkpoints");
  writer->exec = exec;
  writer->saved_step = -1;
  *out = writer;
  return STATUS_OK;
}

static Status write_one(CkptWriter *writer, const CkptFrom *from, const File *file) {
  if (!file->keep) return ckpt_save_best_from(from, file->folder, &file->info);
  STATUS_TRY(ckpt_save_step_from(from, file->folder, &file->info, file->keep));
  writer->saved_step = file->info.step;
  return STATUS_OK;
}

static void write_all(CkptWriter *writer) {
  CkptFrom from = {.exec = writer->exec, .snapshot = writer->snapshot};
  for (int i = 0; i < writer->file_count && writer->status == STATUS_OK; i++) {
    writer->status = write_one(writer, &from, &writer->file[i]);
    if (writer->status != STATUS_OK)
      snprintf(writer->message, sizeof writer->message, "%s", status_message());
  }
  exec_snapshot_free(writer->snapshot);
  writer->snapshot = NULL;
}

static void *writer_main(void *argument) {
  CkptWriter *writer = argument;
  CKPT_WRITER_MAY_BE_DELAYED();
  write_all(writer);
  atomic_store(&writer->is_done, true);
  return NULL;
}

/* Takes no signals: Ctrl-C is the main thread's. */
static bool start_thread(CkptWriter *writer) {
  sigset_t before;
  atomic_store(&writer->is_done, false);
  guard_block_signals(&before);
  writer->is_running = pthread_create(&writer->thread, NULL, writer_main, writer) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return writer->is_running;
}

static void forget_files(CkptWriter *writer) {
  for (int i = 0; i < writer->file_count; i++) free(writer->file[i].folder);
  writer->file_count = 0;
}

Status ckpt_writer_result(CkptWriter *writer, bool wait, int64_t *saved_step) {
  if (writer->is_running && (wait || atomic_load(&writer->is_done))) {
    pthread_join(writer->thread, NULL);
    writer->is_running = false;
    forget_files(writer);
  }
  *saved_step = writer->is_running ? -1 : writer->saved_step;
  if (writer->is_running || writer->status == STATUS_OK) return STATUS_OK;
  Status status = writer->status;
  writer->status = STATUS_OK;
  return status_fail(status, "%s", writer->message);
}

Status ckpt_writer_add(CkptWriter *writer, const char *folder, const CkptInfo *info, int64_t keep) {
  int64_t ignored;
  STATUS_TRY(ckpt_writer_result(writer, true, &ignored));
  char *copy = strdup(folder);
  if (!copy || writer->file_count == MOST_FILES) {
    free(copy);
    return status_errno(ENOMEM, "%s", folder);
  }
  writer->file[writer->file_count++] = (File){copy, *info, keep};
  return STATUS_OK;
}

static Status take_copy(CkptWriter *writer) {
  Arena *arena = arena_new();
  CkptRanges ranges = ckpt_ranges(arena, exec_plan(writer->exec));
  Status status = exec_snapshot_new(writer->exec, ranges.at, ranges.count, SNAPSHOT_ANYWHERE,
                                    &writer->snapshot);
  arena_free(arena);
  return status;
}

Status ckpt_writer_start(CkptWriter *writer, bool goes_on) {
  int64_t ignored;
  writer->is_waited_for = false;
  if (!writer->file_count || writer->is_running) return STATUS_OK;
  bool is_joined = plan_is_apart(exec_plan(writer->exec)) && !exec_is_held(writer->exec);
  Status status = goes_on || is_joined ? take_copy(writer) : STATUS_OK;
  if (status == STATUS_OK && !exec_is_first(writer->exec)) { /* rank 0 writes for all */
    forget_files(writer);
    return STATUS_OK;
  }
  if (status == STATUS_OK && writer->snapshot && start_thread(writer)) return STATUS_OK;
  if (status == STATUS_OK) write_all(writer);
  writer->is_waited_for = goes_on;
  forget_files(writer);
  return status == STATUS_OK ? ckpt_writer_result(writer, false, &ignored) : status;
}

bool ckpt_writer_is_waited_for(const CkptWriter *writer) { return writer->is_waited_for; }

void ckpt_writer_free(CkptWriter *writer) {
  if (!writer) return;
  if (writer->is_running) pthread_join(writer->thread, NULL);
  forget_files(writer);
  free(writer);
}
