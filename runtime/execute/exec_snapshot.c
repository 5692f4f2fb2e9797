/* exec_snapshot: see exec_snapshot.h. The ranges lie one behind the other in one piece of
 * memory. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, madvise */
#include "runtime/execute/exec_snapshot.h"
#include "runtime/common/room.h"
#include "runtime/execute/exec_fetch.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct ExecSnapshot {
  const DeviceType *type;
  Device *device;
  ExecRange *range;
  int count;
  int64_t bytes;
  char *at;
  bool is_on_device;
};

/* ── memory ───────────────────────────────────────────────────────────────────────────────── */
static Status take_device(ExecSnapshot *snapshot) {
  if (!snapshot->type->spare) return STATUS_OK;
  snapshot->is_on_device = true;
  return snapshot->type->spare(snapshot->device, snapshot->bytes, &snapshot->at);
}

/* Pages that have not been touched yet are free whatever the kernel has promised, so what is free
 * is asked first. */
static void take_host(ExecSnapshot *snapshot) {
  size_t bytes = (size_t)snapshot->bytes + 1;
  snapshot->is_on_device = false;
  if (snapshot->bytes > room_now() / 2) return;
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return;
  madvise(at, bytes, MADV_HUGEPAGE);
  snapshot->at = at;
}

void exec_snapshot_free(ExecSnapshot *snapshot) {
  if (!snapshot) return;
  if (snapshot->at && snapshot->is_on_device)
    snapshot->type->spare_free(snapshot->device, snapshot->at);
  else if (snapshot->at)
    munmap(snapshot->at, (size_t)snapshot->bytes + 1);
  free(snapshot->range);
  free(snapshot);
}

/* ── copying ──────────────────────────────────────────────────────────────────────────────── */
static Status copy(ExecSnapshot *snapshot, Exec *exec) {
  int64_t at = 0;
  for (int i = 0; i < snapshot->count; i++) {
    const ExecRange *range = &snapshot->range[i];
    if (snapshot->is_on_device)
      STATUS_TRY(snapshot->type->copy(snapshot->device, snapshot->at + at,
                                      exec->base[range->place] + range->offset, range->bytes));
    else
      STATUS_TRY(exec_read(exec, range->place, range->offset, range->bytes, snapshot->at + at));
    at += range->bytes;
  }
  return STATUS_OK;
}

Status exec_snapshot_new(Exec *exec, const ExecRange *ranges, int count, unsigned where,
                         ExecSnapshot **out) {
  *out = NULL;
  ExecSnapshot *snapshot = calloc(1, sizeof *snapshot);
  ExecRange *copied = calloc((size_t)count + 1, sizeof *copied);
  if (!snapshot || !copied) {
    free(snapshot);
    free(copied);
    return STATUS_OK; /* no room even for that */
  }
  if (count) memcpy(copied, ranges, (size_t)count * sizeof *copied);
  *snapshot = (ExecSnapshot){.type = exec->type, .device = exec->device, copied, count};
  for (int i = 0; i < count; i++) snapshot->bytes += ranges[i].bytes;
  Status status = where & SNAPSHOT_ON_DEVICE ? take_device(snapshot) : STATUS_OK;
  if (status == STATUS_OK && !snapshot->at && where & SNAPSHOT_ON_HOST) take_host(snapshot);
  if (status == STATUS_OK && snapshot->at) status = copy(snapshot, exec);
  if (status == STATUS_OK && snapshot->at)
    *out = snapshot;
  else
    exec_snapshot_free(snapshot);
  return status;
}

Status exec_snapshot_again(Exec *exec, ExecSnapshot *snapshot) { return copy(snapshot, exec); }

Status exec_snapshot_read(const ExecSnapshot *snapshot, int place, int64_t offset, int64_t bytes,
                          void *to) {
  int64_t at = 0;
  for (int i = 0; i < snapshot->count; at += snapshot->range[i++].bytes) {
    const ExecRange *range = &snapshot->range[i];
    if (range->place != place || offset < range->offset || bytes < 0 ||
        offset + bytes > range->offset + range->bytes)
      continue;
    const char *from = snapshot->at + at + (offset - range->offset);
    if (snapshot->is_on_device)
      return snapshot->type->read_beside(snapshot->device, to, from, bytes);
    if (bytes) memcpy(to, from, (size_t)bytes);
    return STATUS_OK;
  }
  return status_fail(STATUS_FAULT, "bytes %lld+%lld of place %d were not copied", (long long)offset,
                     (long long)bytes, place);
}

bool exec_snapshot_is_on_device(const ExecSnapshot *snapshot) { return snapshot->is_on_device; }
