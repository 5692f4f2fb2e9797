/* ckpt_writer: checkpoints are written by a thread of their own, from a copy (declared in ckpt.h).
 * One job at a time: the copy and the files that are made of it, in order. The job belongs to its
 * thread from start to join. On several ranks each writes its share; the files get their names when
 * all have, which is a second thing to do for rank 0's thread. */
#include "runtime/checkpoint/ckpt.h"
#include "base/clock.h"
#include "runtime/checkpoint/ckpt_file.h"
#include "runtime/common/guard.h"
#include "runtime/common/watchdog.h"
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
  CkptFile *file;
} File;

typedef enum {
  IDLE,
  WRITING,  /* this rank's share */
  FINISHING /* all shares are on the disk: rank 0 gives the files their names */
} Phase;

struct CkptWriter {
  Exec *exec;
  Comm *comm; /* NULL: it writes alone */
  File file[MOST_FILES];
  int file_count;
  Phase phase;
  bool is_running; /* the thread exists */
  pthread_t thread;
  ExecSnapshot *snapshot;
  atomic_bool is_done;
  /* what a phase leaves, read after its end */
  Status status;
  char message[1024];
  _Atomic int64_t saved_step;
  bool is_waited_for; /* the last job had no copy or no thread */
  Spans *spans;
};

void ckpt_writer_note(CkptWriter *writer, Spans *spans) { writer->spans = spans; }

Status ckpt_writer_new(Exec *exec, Comm *comm, CkptWriter **out) {
  CkptWriter *writer = calloc(1, sizeof *writer);
  if (!writer) return status_errno(ENOMEM, "checkpoints");
  writer->exec = exec;
  writer->comm = comm;
  writer->saved_step = -1;
  *out = writer;
  return STATUS_OK;
}

static void remember(CkptWriter *writer, Status status) {
  writer->status = status;
  if (status != STATUS_OK) snprintf(writer->message, sizeof writer->message, "%s", status_message());
}

static Status writer_told(CkptWriter *writer) {
  Status status = writer->status;
  writer->status = STATUS_OK;
  return status == STATUS_OK ? STATUS_OK : status_fail(status, "%s", writer->message);
}

/* ── what the thread does ─────────────────────────────────────────────────────────────────── */
static void note_saved_file(CkptWriter *writer, const File *file) {
  atomic_store(&writer->saved_step, file->info.step);
  watchdog_saved(file->info.step, file->folder);
}

/* The best before the step's own, so that a step's file never tells of a best that is not on the
 * disk. */
static Status finish_files(CkptWriter *writer) {
  for (int i = 0; i < writer->file_count; i++) {
    const File *file = &writer->file[i];
    STATUS_TRY(ckpt_file_finish(file->file));
    if (!file->keep || comm_rank(writer->comm) > 0) continue;
    note_saved_file(writer, file);
    STATUS_TRY(ckpt_keep(file->folder, file->info.step, file->keep));
  }
  return STATUS_OK;
}

static Status write_files(CkptWriter *writer) {
  for (int i = 0; i < writer->file_count; i++) {
    STATUS_TRY(ckpt_file_write(writer->file[i].file, writer->snapshot, 0));
    if (!writer->comm) STATUS_TRY(ckpt_file_settle(writer->file[i].file, STATUS_OK));
  }
  return writer->comm ? STATUS_OK : finish_files(writer);
}

static void do_phase(CkptWriter *writer) {
  int64_t start = clock_nanoseconds();
  remember(writer, writer->phase == WRITING ? write_files(writer) : finish_files(writer));
  exec_snapshot_free(writer->snapshot);
  writer->snapshot = NULL;
  spans_add(writer->spans, &(TraceSpan){SPAN_CHECKPOINT, 0, start, clock_nanoseconds(),
                                        writer->file[0].info.step, NULL});
}

static void *writer_main(void *argument) {
  CkptWriter *writer = argument;
  CKPT_WRITER_MAY_BE_DELAYED();
  do_phase(writer);
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

/* ── from phase to phase ──────────────────────────────────────────────────────────────────── */
static void begin_wait(const CkptWriter *writer) {
  const File *file = &writer->file[0];
  watchdog_begin("the checkpoint to be written", file->folder, file->info.step);
}

static void join_thread(CkptWriter *writer) {
  if (!writer->is_running) return;
  begin_wait(writer);
  pthread_join(writer->thread, NULL);
  watchdog_end();
  writer->is_running = false;
}

/* Without a thread. */
static void do_phase_now(CkptWriter *writer) {
  begin_wait(writer);
  do_phase(writer);
  watchdog_end();
}

static void forget_job(CkptWriter *writer) {
  for (int i = 0; i < writer->file_count; i++) {
    ckpt_file_free(writer->file[i].file);
    free(writer->file[i].folder);
  }
  writer->file_count = 0;
  writer->phase = IDLE;
}

static Status settle_files(CkptWriter *writer) {
  Status status = writer_told(writer);
  for (int i = 0; i < writer->file_count; i++)
    STATUS_TRY(ckpt_file_settle(writer->file[i].file, i ? STATUS_OK : status));
  return STATUS_OK;
}

Status ckpt_writer_go_on(CkptWriter *writer) {
  bool was_writing = writer->phase == WRITING;
  if (writer->phase == IDLE) return STATUS_OK;
  join_thread(writer);
  Status status =
      was_writing ? settle_files(writer) : comm_agree(writer->comm, writer_told(writer));
  if (status != STATUS_OK || !was_writing) {
    for (int i = 0; i < writer->file_count && status == STATUS_OK; i++)
      if (writer->file[i].keep) note_saved_file(writer, &writer->file[i]);
    forget_job(writer);
    return status;
  }
  writer->phase = FINISHING;
  if (comm_rank(writer->comm) > 0 || !start_thread(writer)) do_phase_now(writer);
  return STATUS_OK;
}

bool ckpt_writer_is_busy(const CkptWriter *writer) {
  return writer && writer->is_running && !atomic_load(&writer->is_done);
}

bool ckpt_writer_is_pending(const CkptWriter *writer) {
  return writer && writer->comm && writer->phase != IDLE;
}

Status ckpt_writer_result(CkptWriter *writer, bool wait) {
  if (writer->comm) {
    while (wait && writer->phase != IDLE) STATUS_TRY(ckpt_writer_go_on(writer));
    return STATUS_OK;
  }
  if (writer->is_running && (wait || atomic_load(&writer->is_done))) {
    join_thread(writer);
    forget_job(writer);
  }
  return writer->is_running ? STATUS_OK : writer_told(writer);
}

int64_t ckpt_writer_saved_step(const CkptWriter *writer) {
  return writer->is_running && writer->phase == WRITING ? -1 : atomic_load(&writer->saved_step);
}

void ckpt_writer_give_up(CkptWriter *writer) {
  for (int i = 0; i < writer->file_count && writer->phase == WRITING; i++)
    ckpt_file_give_up(writer->file[i].file);
  join_thread(writer);
  writer->status = STATUS_OK;
  if (writer->phase != IDLE) forget_job(writer);
}

/* ── asking ───────────────────────────────────────────────────────────────────────────────── */
Status ckpt_writer_add(CkptWriter *writer, const char *folder, const CkptInfo *info, int64_t keep) {
  STATUS_TRY(ckpt_writer_result(writer, true));
  char *copy = strdup(folder);
  if (!copy || writer->file_count == MOST_FILES) {
    free(copy);
    return status_errno(ENOMEM, "%s", folder);
  }
  writer->file[writer->file_count++] = (File){copy, *info, keep, NULL};
  return STATUS_OK;
}

/* All of them are there, with their lengths, or none. */
static Status begin_files(CkptWriter *writer) {
  for (int i = 0; i < writer->file_count; i++) {
    File *file = &writer->file[i];
    char *path = ckpt_path(file->folder, &file->info, file->keep);
    Status status =
        ckpt_begin(writer->exec, writer->comm, file->folder, path, &file->info, &file->file);
    free(path);
    STATUS_TRY(status);
  }
  return STATUS_OK;
}

/* Both files hold the same places. */
static Status take_copy(CkptWriter *writer) {
  CkptRanges ranges = ckpt_file_ranges(writer->file[0].file);
  return exec_snapshot_new(writer->exec, ranges.at, ranges.count, SNAPSHOT_ANYWHERE,
                           &writer->snapshot);
}

Status ckpt_writer_start(CkptWriter *writer, bool goes_on) {
  writer->is_waited_for = false;
  if (!writer->file_count || writer->phase != IDLE) return STATUS_OK;
  Status status = begin_files(writer);
  if (status != STATUS_OK) {
    forget_job(writer);
    return status;
  }
  writer->phase = WRITING;
  status = goes_on ? take_copy(writer) : STATUS_OK;
  if (status == STATUS_OK && writer->snapshot && start_thread(writer)) return STATUS_OK;
  if (status == STATUS_OK)
    do_phase_now(writer);
  else
    remember(writer, status);
  writer->is_waited_for = goes_on;
  if (writer->comm) return goes_on ? STATUS_OK : ckpt_writer_result(writer, true);
  forget_job(writer);
  return writer_told(writer);
}

bool ckpt_writer_is_waited_for(const CkptWriter *writer) { return writer->is_waited_for; }

void ckpt_writer_free(CkptWriter *writer) {
  if (!writer) return;
  if (writer->comm) ckpt_writer_give_up(writer);
  join_thread(writer);
  forget_job(writer);
  free(writer);
}
