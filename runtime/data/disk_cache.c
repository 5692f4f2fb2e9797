/* disk_cache: see disk_cache.h. Below FOLDER/ft-images, KEY/THOUSANDS/INDEX is a picture: a head, then its pixels; `used` counts the
 * bytes of all of them, in memory that all processes share; who uses the folder holds a shared lock of that file, so whoever gets it
 * alone counts anew, and takes away what others left half written. */
#define _GNU_SOURCE /* struct stat's nanoseconds, nftw */
#include "runtime/data/disk_cache.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { OF_A_FOLDER = 1000 };
static const uint64_t disk_mark = 0x3167616d69746600; /* "\0ftimag1" */

typedef struct {
  uint64_t mark, key, index;
  DiskStamp stamp;
  int64_t label;
  uint32_t height, width, channels, unused;
  uint64_t sum; /* of all this with 0 in its place, and of the pixels */
} DiskHead;

struct DiskCache {
  char *folder; /* with the key, */
  int above;    /* … and its first bytes without it */
  uint64_t key;
  int64_t budget;
  bool may_write;
  atomic_int failure;    /* errno of a write; then nothing more is written */
  atomic_bool is_full;   /* a picture was not kept for lack of room */
  _Atomic int64_t kept;  /* pictures, by this process */
  int lock;              /* -1: there is none */
  _Atomic int64_t *used; /* shared by processes; NULL: nothing is written, … */
  int64_t found;         /* … and this is what it was; -1: not known */
  _Atomic uint64_t next; /* of names beside */
};

/* Four sums of words, which the processor makes side by side. */
static uint64_t disk_sum(uint64_t sum, const void *bytes, size_t count) {
  const uint64_t prime = 1099511628211u;
  uint64_t lane[4] = {sum, sum + 1, sum + 2, sum + 3}, word[4];
  const uint8_t *at = bytes;
  for (; count >= sizeof word; count -= sizeof word, at += sizeof word) {
    memcpy(word, at, sizeof word);
    for (int i = 0; i < 4; i++) {
      lane[i] = (lane[i] ^ word[i]) * prime;
      lane[i] ^= lane[i] >> 29;
    }
  }
  memset(word, 0, sizeof word);
  memcpy(word, at, count);
  for (int i = 0; i < 4; i++) sum = ((sum ^ lane[i]) * prime ^ word[i]) * prime;
  return sum;
}

static uint64_t sum_of_picture(const DiskHead *head, const uint8_t *pixels, size_t count) {
  DiskHead plain = *head;
  plain.sum = 0;
  return disk_sum(disk_sum(count, &plain, sizeof plain), pixels, count);
}

/* ── the folder ───────────────────────────────────────────────────────────────────────────── */
static _Thread_local int64_t counted;

/* Names beside are "012-PID-N.part"; with nobody else here they are left over. */
static bool is_unfinished(const char *name) {
  long pid, number;
  int index, end = 0;
  return sscanf(name, "%3d-%ld-%ld.part%n", &index, &pid, &number, &end) == 3 && end && !name[end];
}

static int count_file(const char *path, const struct stat *info, int type, struct FTW *walk) {
  if (type != FTW_F) return 0;
  if (is_unfinished(path + walk->base))
    unlink(path);
  else if (walk->level > 1)
    counted += info->st_size;
  return 0;
}

static Status make_folder(const char *path) {
  if (mkdir(path, 0777) == 0 || errno == EEXIST) return STATUS_OK;
  return status_errno(errno, "data.cache_dir: cannot make %s", path);
}

/* Those above it, too. */
static Status make_folders(char *path) {
  for (char *at = path + 1; (at = strchr(at, '/')); at++) {
    *at = 0;
    Status status = make_folder(path);
    *at = '/';
    STATUS_TRY(status);
  }
  return make_folder(path);
}

static Status open_count(DiskCache *cache, const char *folder) {
  Text path = {0};
  text_printf(&path, "%s/used", folder);
  cache->lock = open(path.at, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  int error = cache->lock < 0 ? errno : 0;
  bool is_alone = !error && flock(cache->lock, LOCK_EX | LOCK_NB) == 0;
  if (!error && ftruncate(cache->lock, sizeof *cache->used) != 0) error = errno;
  if (!error) {
    void *at = mmap(NULL, sizeof *cache->used, PROT_READ | PROT_WRITE, MAP_SHARED, cache->lock, 0);
    if (at == MAP_FAILED)
      error = errno;
    else
      cache->used = at;
  }
  if (!error && is_alone) {
    counted = 0;
    nftw(folder, count_file, 16, FTW_PHYS);
    atomic_store(cache->used, counted);
  }
  if (!error) flock(cache->lock, LOCK_SH);
  Status status =
      error ? status_errno(error, "data.cache_dir: cannot write %s", path.at) : STATUS_OK;
  text_free(&path);
  return status;
}

/* As whoever wrote last has left it. */
static int64_t read_count(const char *folder) {
  Text path = {0}, text = {0};
  int64_t count = -1;
  text_printf(&path, "%s/used", folder);
  if (text_read_file(&text, path.at) == 0 && text.count == sizeof count)
    memcpy(&count, text.at, sizeof count);
  text_free(&text);
  text_free(&path);
  return count < 0 ? -1 : count;
}

Status disk_cache_open(const char *folder, uint64_t key, int64_t budget, bool may_write,
                       DiskCache **out) {
  struct stat info;
  *out = NULL;
  if (!may_write && stat(folder, &info) != 0) return STATUS_OK;
  DiskCache *cache = calloc(1, sizeof *cache);
  Text path = {0};
  if (!cache) return status_errno(ENOMEM, "data.cache_dir");
  cache->lock = -1;
  cache->key = key;
  cache->budget = budget;
  cache->may_write = may_write;
  text_printf(&path, "%s/ft-images", folder);
  Status status = STATUS_OK;
  if (may_write) {
    status = make_folders(path.at);
    if (status == STATUS_OK) status = open_count(cache, path.at);
  } else {
    cache->found = read_count(path.at);
  }
  cache->above = (int)strlen(folder);
  text_printf(&path, "/%016" PRIx64, key);
  cache->folder = path.at;
  if (status == STATUS_OK && may_write) status = make_folder(cache->folder);
  if (status == STATUS_OK)
    *out = cache;
  else
    disk_cache_close(cache);
  return status;
}

void disk_cache_close(DiskCache *cache) {
  if (!cache) return;
  if (cache->used) munmap((void *)cache->used, sizeof *cache->used);
  if (cache->lock >= 0) close(cache->lock);
  free(cache->folder);
  free(cache);
}

bool disk_cache_say_full(const DiskCache *cache, Text *out) {
  char used[32], budget[32];
  int failure = atomic_load(&cache->failure);
  if (!failure && !atomic_load(&cache->is_full)) return false;
  text_printf(out, "data.cache_dir: %.*s ", cache->above, cache->folder);
  if (failure)
    text_printf(out, "cannot be written (%s)", strerror(failure));
  else
    text_printf(out, "is full");
  text_printf(
      out,
      ": its images take %s of data.disk_cache = %s, and %lld of them are of this training; "
      "what has no room there is decoded anew in each epoch",
      text_bytes(atomic_load(cache->used), used), text_bytes(cache->budget, budget),
      (long long)atomic_load(&cache->kept));
  return true;
}

int64_t disk_cache_used(const DiskCache *cache) {
  return cache->used ? atomic_load(cache->used) : cache->found;
}

/* ── pictures ─────────────────────────────────────────────────────────────────────────────── */
enum { MOST_NAME = 48 };
static char *picture_path(const DiskCache *cache, int64_t index, bool has_name) {
  size_t room = strlen(cache->folder) + 2 * MOST_NAME;
  char *path = malloc(room);
  if (!path) return NULL;
  int count = snprintf(path, room, "%s/%06" PRId64, cache->folder, index / OF_A_FOLDER);
  if (has_name) snprintf(path + count, room - (size_t)count, "/%03d", (int)(index % OF_A_FOLDER));
  return path;
}

static bool read_all(int file, void *to, size_t count) {
  for (size_t done = 0; done < count;) {
    ssize_t got = read(file, (char *)to + done, count - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += (size_t)got;
  }
  return true;
}

static bool read_picture(const DiskCache *cache, int file, int64_t index, DiskStamp stamp,
                         int channels, Image *image, int64_t *label) {
  DiskHead head;
  struct stat info;
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || !read_all(file, &head, sizeof head))
    return false;
  if (head.mark != disk_mark || head.key != cache->key || head.index != (uint64_t)index ||
      head.stamp.size != stamp.size || head.stamp.time != stamp.time ||
      head.channels != (uint32_t)channels || head.height - 1 >= IMAGE_MOST_SIDE ||
      head.width - 1 >= IMAGE_MOST_SIDE)
    return false;
  uint64_t bytes = (uint64_t)head.height * head.width * head.channels;
  if ((uint64_t)info.st_size != sizeof head + bytes ||
      image_reserve(image, (int)head.height, (int)head.width, channels) != STATUS_OK ||
      !read_all(file, image->at, (size_t)bytes))
    return false;
  *label = head.label;
  return sum_of_picture(&head, image->at, (size_t)bytes) == head.sum;
}

bool disk_cache_find(const DiskCache *cache, int64_t index, DiskStamp stamp, int channels,
                     Image *image, int64_t *label) {
  char *path = picture_path(cache, index, true);
  int file = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
  bool is_there = file >= 0 && read_picture(cache, file, index, stamp, channels, image, label);
  if (file >= 0) close(file);
  free(path);
  return is_there;
}

/* Could it change again without another time? Clocks of file systems go by ticks, and seconds on some. */
static bool is_settled(DiskStamp stamp) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  uint64_t time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
  return stamp.time + 2000000000u < time;
}

/* Returns an errno value. */
static int write_picture(DiskCache *cache, const char *path, const DiskHead *head,
                         const uint8_t *pixels, size_t count) {
  Text beside = {0};
  text_printf(&beside, "%s-%ld-%" PRIu64 ".part", path, (long)getpid(),
              atomic_fetch_add(&cache->next, 1));
  int file = open(beside.at, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  int error = file < 0 ? errno : text_write_all(file, head, sizeof *head);
  if (!error) error = text_write_all(file, pixels, count);
  if (file >= 0 && close(file) != 0 && !error) error = errno;
  if (!error && rename(beside.at, path) != 0) error = errno;
  if (file >= 0 && error) unlink(beside.at);
  text_free(&beside);
  return error;
}

/* Room is taken before, so that processes together stay within the budget. */
static bool take_room(DiskCache *cache, int64_t bytes) {
  int64_t used = atomic_load(cache->used);
  do
    if (used > cache->budget - bytes) return false;
  while (!atomic_compare_exchange_weak(cache->used, &used, used + bytes));
  return true;
}

void disk_cache_keep(DiskCache *cache, int64_t index, DiskStamp stamp, const Image *image,
                     int64_t label) {
  size_t bytes = (size_t)image->height * (size_t)image->width * (size_t)image->channels;
  int64_t size = (int64_t)(sizeof(DiskHead) + bytes), before = 0;
  struct stat info;
  if (!cache->used || atomic_load(&cache->failure) || !is_settled(stamp)) return;
  if (!take_room(cache, size)) {
    atomic_store_explicit(&cache->is_full, true, memory_order_relaxed);
    return;
  }
  DiskHead head = {.mark = disk_mark,
                   .key = cache->key,
                   .index = (uint64_t)index,
                   .stamp = stamp,
                   .label = label,
                   .height = (uint32_t)image->height,
                   .width = (uint32_t)image->width,
                   .channels = (uint32_t)image->channels};
  head.sum = sum_of_picture(&head, image->at, bytes);
  char *path = picture_path(cache, index, true), *folder = picture_path(cache, index, false);
  int error = path && folder ? 0 : ENOMEM;
  if (!error && stat(path, &info) == 0) before = info.st_size; /* one that is not valid any more */
  if (!error) error = write_picture(cache, path, &head, image->at, bytes);
  if (error == ENOENT && mkdir(folder, 0777) != 0 && errno != EEXIST) error = errno;
  if (error == ENOENT) error = write_picture(cache, path, &head, image->at, bytes);
  atomic_fetch_sub(cache->used, error ? size : before);
  if (error)
    atomic_store(&cache->failure, error);
  else
    atomic_fetch_add(&cache->kept, 1);
  free(path);
  free(folder);
}
