/* source_bytes: see source_bytes.h. Invariant: `ready` only grows, and bytes below it never change;
 * a failure is written once, under the lock, before `failed` is set. */
#include "runtime/data/source_bytes.h"
#include "runtime/common/guard.h"
#include "runtime/common/read_whole.h"
#include "runtime/common/watchdog.h"
#include "runtime/data/source_inflate.h"
#include "runtime/data/source_zstd.h"
#include "runtime/data/spool.h"
#include "runtime/data/unpack.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HEAD_BYTES = 1 << 16 };

/* How a file is compressed, told by its first bytes. */
typedef struct {
  const char *name;
  size_t largest_ratio; /* of content to file */
  bool (*is)(const uint8_t *in, size_t in_count);
  int (*head)(const uint8_t *in, size_t in_count, uint8_t *out, size_t capacity, size_t *count);
  const char *(*all)(const uint8_t *in, size_t in_count, uint8_t *out, size_t count,
                     InflateProgress *progress, void *context);
} Packing;
static const Packing packings[] = {
    {"gzip", 1032, inflate_is_gzip, inflate_head, inflate_all},
    {"zstd", 32768, zstd_is, zstd_head, zstd_all}, /* a block of 4 bytes may hold 128 KiB */
};

struct SourceBytes {
  char *path;
  uint8_t *map; /* the file as it is on disk */
  size_t map_bytes;
  int guard;              /* of the map; -1: nobody can make it shorter, … */
  bool is_ours;           /* … as it is of a temporary file, or memory of our own */
  const Packing *packing; /* NULL: none */
  uint8_t *head;          /* of a compressed file: the first inflated bytes */
  size_t head_count;
  uint8_t *content;
  size_t count;
  size_t released; /* of the map, by the inflating thread */
  bool has_thread;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t progress;
  atomic_size_t ready;
  atomic_bool is_checked, failed, stop;
  const char *failure; /* a literal: "is truncated: …" */
};

/* "data.gz is damaged" */
static Status say_path(Status status, const SourceBytes *bytes) {
  if (status == STATUS_OK) return status;
  char *why = strdup(status_message());
  status = status_fail(status, "%s %s", bytes->path, why ? why : "cannot be read");
  free(why);
  return status;
}

/* Where the file is compressed, *fd becomes that of its content; else it stays. */
static Status unpack_opened(SourceBytes *bytes, int *fd) {
  Unpack *unpack;
  int temporary = -1;
  uint64_t count = 0;
  Status status = unpack_open(*fd, &unpack);
  if (status != STATUS_OK || !unpack) return say_path(status, bytes);
  status = unpack_temporary(&temporary);
  if (status == STATUS_OK) status = unpack_to_file(unpack, temporary, &count);
  if (status == STATUS_OK && !count) status = status_fail(STATUS_USER, "is empty when unpacked");
  unpack_free(unpack);
  close(*fd);
  *fd = temporary;
  bytes->map_bytes = (size_t)count;
  bytes->is_ours = true;
  return say_path(status, bytes);
}

/* Mapped where the file may become shorter without harm, else read. */
static Status map_opened(SourceBytes *bytes, int fd) {
  void *at = mmap(NULL, bytes->map_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  Status status = STATUS_OK;
  if (at == MAP_FAILED) {
    status = status_errno(errno, "%s cannot be mapped", bytes->path);
  } else {
    bytes->map = at;
    bytes->guard = bytes->is_ours ? -1 : guard_add(at, bytes->map_bytes);
  }
  if (status == STATUS_OK && bytes->guard < 0 && !bytes->is_ours) {
    munmap(bytes->map, bytes->map_bytes);
    bytes->map = NULL;
    status = read_whole_from(bytes->path, fd, bytes->map_bytes, &bytes->map);
  }
  return status;
}

static Status map_file(SourceBytes *bytes, bool unpacks) {
  int fd = spool_open(bytes->path);
  if (fd < 0) return status_errno(errno, "%s cannot be read", bytes->path);
  Status status = read_whole_size(bytes->path, fd, &bytes->map_bytes);
  if (status == STATUS_OK && unpacks) status = unpack_opened(bytes, &fd);
  if (status == STATUS_OK) status = map_opened(bytes, fd);
  if (fd >= 0) close(fd);
  return status;
}

static Status open_head(SourceBytes *bytes, bool unpacks) {
  if (!bytes->path) return status_errno(ENOMEM, "data");
  STATUS_TRY(map_file(bytes, unpacks));
  if (unpacks) return STATUS_OK;
  for (size_t i = 0; i < sizeof packings / sizeof *packings && !bytes->packing; i++)
    if (packings[i].is(bytes->map, bytes->map_bytes)) bytes->packing = &packings[i];
  if (!bytes->packing) return STATUS_OK;
  bytes->head = malloc(HEAD_BYTES);
  if (!bytes->head) return status_errno(ENOMEM, "%s", bytes->path);
  int error = bytes->packing->head(bytes->map, bytes->map_bytes, bytes->head, HEAD_BYTES,
                                   &bytes->head_count);
  STATUS_TRY(source_bytes_intact(bytes));
  if (error == ENOMEM) return status_errno(error, "%s", bytes->path);
  if (error)
    return status_fail(STATUS_USER,
                       "%s is damaged: it starts like a %s file but cannot be inflated",
                       bytes->path, bytes->packing->name);
  return STATUS_OK;
}

static Status bytes_open(const char *path, bool unpacks, SourceBytes **out) {
  *out = NULL;
  SourceBytes *bytes = calloc(1, sizeof *bytes);
  if (!bytes) return status_errno(ENOMEM, "%s", path);
  bytes->guard = -1;
  pthread_mutex_init(&bytes->lock, NULL);
  pthread_cond_init(&bytes->progress, NULL);
  bytes->path = strdup(path);
  Status status = open_head(bytes, unpacks);
  if (status == STATUS_OK)
    *out = bytes;
  else
    source_bytes_close(bytes);
  return status;
}

Status source_bytes_open(const char *path, SourceBytes **out) {
  return bytes_open(path, false, out);
}

Status source_bytes_open_unpacked(const char *path, SourceBytes **out) {
  return bytes_open(path, true, out);
}

void source_bytes_close(SourceBytes *bytes) {
  if (!bytes) return;
  if (bytes->has_thread) {
    atomic_store(&bytes->stop, true);
    pthread_join(bytes->thread, NULL);
  }
  if (bytes->packing && bytes->content) munmap(bytes->content, bytes->count);
  guard_remove(bytes->guard);
  if (bytes->map) munmap(bytes->map, bytes->map_bytes);
  free(bytes->head);
  free(bytes->path);
  pthread_mutex_destroy(&bytes->lock);
  pthread_cond_destroy(&bytes->progress);
  free(bytes);
}

const uint8_t *source_bytes_head(const SourceBytes *bytes, size_t *count) {
  if (bytes->packing) {
    *count = bytes->head_count;
    return bytes->head;
  }
  *count = bytes->map_bytes < HEAD_BYTES ? bytes->map_bytes : HEAD_BYTES;
  return bytes->map;
}

bool source_bytes_size(const SourceBytes *bytes, size_t *count) {
  *count = bytes->map_bytes;
  return !bytes->packing;
}

static void publish(SourceBytes *bytes, size_t ready, bool is_checked, const char *failure) {
  watchdog_progress();
  pthread_mutex_lock(&bytes->lock);
  if (failure && !atomic_load(&bytes->failed)) {
    bytes->failure = failure;
    atomic_store(&bytes->failed, true);
  }
  atomic_store_explicit(&bytes->ready, ready, memory_order_release);
  if (is_checked) atomic_store(&bytes->is_checked, true);
  pthread_cond_broadcast(&bytes->progress);
  pthread_mutex_unlock(&bytes->lock);
}

/* Also lets go of the part of the file that was used: its pages would count as our memory. A page
 * is kept behind, because bits of it may be looked at again. */
static bool on_progress(void *context, size_t used, size_t ready) {
  SourceBytes *bytes = context;
  size_t page = 4096, done = used / page * page;
  if (done > bytes->released + page) {
    madvise(bytes->map + bytes->released, done - page - bytes->released, MADV_DONTNEED);
    bytes->released = done - page;
  }
  publish(bytes, ready, false, NULL);
  return !atomic_load_explicit(&bytes->stop, memory_order_relaxed);
}

static void *inflate_thread(void *argument) {
  SourceBytes *bytes = argument;
  const char *failure = bytes->packing->all(bytes->map, bytes->map_bytes, bytes->content,
                                            bytes->count, on_progress, bytes);
  publish(bytes, failure ? atomic_load(&bytes->ready) : bytes->count, true, failure);
  return NULL;
}

Status source_bytes_expect(SourceBytes *bytes, size_t count) {
  bytes->count = count;
  if (!bytes->packing) {
    if (bytes->map_bytes != count)
      return status_fail(STATUS_USER, "%s is %s: it holds %zu bytes but its header promises %zu",
                         bytes->path, bytes->map_bytes < count ? "truncated" : "damaged",
                         bytes->map_bytes, count);
    bytes->content = bytes->map;
    atomic_store(&bytes->ready, count);
    atomic_store(&bytes->is_checked, true);
    return STATUS_OK;
  }
  if (count / bytes->packing->largest_ratio > bytes->map_bytes)
    return status_fail(STATUS_USER,
                       "%s is truncated: its header promises %zu bytes, more than its %zu bytes of "
                       "%s can hold",
                       bytes->path, count, bytes->map_bytes, bytes->packing->name);
  void *at = mmap(NULL, count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    return status_errno(errno, "%s needs %zu bytes of memory when inflated", bytes->path, count);
  /* page faults, not inflating, would be a good part of the time with small pages */
  madvise(at, count, MADV_HUGEPAGE);
  bytes->content = at;
  return STATUS_OK;
}

static const char no_thread[] = "cannot be inflated: no thread could be started";

/* Under the lock. */
static void start_locked(SourceBytes *bytes) {
  if (!bytes->packing || bytes->has_thread || atomic_load(&bytes->failed)) return;
  sigset_t before;
  guard_block_signals(&before);
  bytes->has_thread = pthread_create(&bytes->thread, NULL, inflate_thread, bytes) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (bytes->has_thread) return;
  bytes->failure = no_thread;
  atomic_store(&bytes->failed, true);
}

void source_bytes_start(SourceBytes *bytes) {
  pthread_mutex_lock(&bytes->lock);
  start_locked(bytes);
  pthread_mutex_unlock(&bytes->lock);
}

const uint8_t *source_bytes_at(const SourceBytes *bytes) { return bytes->content; }

bool source_bytes_has(const SourceBytes *bytes, size_t upto) {
  return atomic_load_explicit(&bytes->ready, memory_order_acquire) >= upto &&
         !atomic_load_explicit(&bytes->failed, memory_order_acquire);
}

bool source_bytes_is_inflating(SourceBytes *bytes) {
  pthread_mutex_lock(&bytes->lock);
  bool is_inflating = bytes->has_thread && !atomic_load(&bytes->is_checked);
  pthread_mutex_unlock(&bytes->lock);
  return is_inflating;
}

static Status bytes_wait_for(SourceBytes *bytes, size_t upto, bool check) {
  pthread_mutex_lock(&bytes->lock);
  start_locked(bytes);
  while (!atomic_load(&bytes->failed) &&
         (atomic_load(&bytes->ready) < upto || (check && !atomic_load(&bytes->is_checked))))
    pthread_cond_wait(&bytes->progress, &bytes->lock);
  const char *failure = bytes->failure;
  pthread_mutex_unlock(&bytes->lock);
  STATUS_TRY(source_bytes_intact(bytes));
  if (!failure) return STATUS_OK;
  return status_fail(failure == no_thread ? STATUS_FAULT : STATUS_USER, "%s %s", bytes->path,
                     failure);
}

Status source_bytes_wait(SourceBytes *bytes, size_t upto) {
  return source_bytes_has(bytes, upto) ? STATUS_OK : bytes_wait_for(bytes, upto, false);
}

Status source_bytes_intact(const SourceBytes *bytes) {
  return guard_is_lost(bytes->guard) ? read_whole_shorter(bytes->path) : STATUS_OK;
}

Status source_bytes_check(SourceBytes *bytes) { return bytes_wait_for(bytes, bytes->count, true); }

const char *source_bytes_path(const SourceBytes *bytes) { return bytes->path; }

size_t source_bytes_memory(const SourceBytes *bytes) {
  return bytes->packing ? bytes->count + HEAD_BYTES : 0;
}
