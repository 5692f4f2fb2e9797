/* tar_index: see tar_index.h. The file: a head of 8 + 5 * 8 bytes, 8 + 8 + 4 + 4 bytes and the name for
 * each member, and a sum of all before it; numbers are little-endian. It is hostile input as the archive
 * is: what it says is checked against the archive's length. */
#include "runtime/data/tar_index.h"
#include "runtime/common/fnv.h"
#include "runtime/data/file_sum.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEAD = 48, EACH = 24, SUM = 8 };
static const char index_mark[8] = "FTTARIX1";

typedef struct {
  uint64_t size, time, sum; /* of the archive */
} TarStamp;

static void index_append(Text *out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++)
    text_append(out, &(char){i < 8 ? (char)(value >> 8 * i) : 0}, 1); /* of more, the rest is 0 */
}

static uint64_t index_number(const char *at, int bytes) {
  uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; i--) value = value << 8 | (uint8_t)at[i];
  return value;
}

static uint64_t index_sum(const char *at, size_t count) { return fnv_add(FNV_START, at, count); }

static void append_stamp(Text *out, const TarStamp *stamp) {
  text_append(out, index_mark, sizeof index_mark);
  index_append(out, stamp->size, 8);
  index_append(out, stamp->time, 8);
  index_append(out, stamp->sum, 8);
}

/* Is it an index of this archive, whole, with members that lie in it? */
static bool index_is_sound(const Text *index, const TarStamp *stamp) {
  Text want = {0};
  append_stamp(&want, stamp);
  bool is_same = index->count >= HEAD + SUM && !memcmp(index->at, want.at, want.count);
  text_free(&want);
  if (!is_same) return false;
  size_t end = index->count - SUM, at = HEAD;
  uint64_t members = index_number(index->at + 32, 8);
  if (index_sum(index->at, end) != index_number(index->at + end, 8)) return false;
  for (uint64_t i = 0; i < members; i++) {
    if (end - at < EACH) return false;
    uint64_t offset = index_number(index->at + at, 8), size = index_number(index->at + at + 8, 8);
    uint64_t length = index_number(index->at + at + 20, 4);
    if (length > end - at - EACH || offset % TAR_BLOCK || offset < TAR_BLOCK ||
        offset > stamp->size || size > stamp->size - offset ||
        memchr(index->at + at + EACH, 0, (size_t)length))
      return false;
    at += EACH + (size_t)length;
  }
  return at == end;
}

static Status list_index(const Text *index, TarEach *each, void *context) {
  Text name = {0};
  Status status = STATUS_OK;
  uint64_t members = index_number(index->at + 32, 8);
  const char *at = index->at + HEAD;
  for (uint64_t i = 0; i < members && status == STATUS_OK; i++) {
    size_t length = (size_t)index_number(at + 20, 4);
    name.count = 0;
    text_append(&name, at + EACH, length);
    TarMember member = {text_cstr(&name), index_number(at, 8), index_number(at + 8, 8),
                        (uint32_t)index_number(at + 16, 4)};
    status = each(context, &member);
    at += EACH + length;
  }
  text_free(&name);
  return status;
}

/* Into a new file that then gets the name: what has it, if it is no index, stays as it is. That there
 * is no index is no failure. */
static void write_index(const char *path, const Text *index) {
  char mark[sizeof index_mark];
  struct stat info;
  Text temporary = {0};
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), error;
  bool is_other = fd >= 0 ? read(fd, mark, sizeof mark) != sizeof mark ||
                                memcmp(mark, index_mark, sizeof mark) != 0
                          : lstat(path, &info) == 0;
  if (fd >= 0) close(fd);
  if (is_other) return;
  fd = -1;
  error = text_open_beside(path, &temporary, &fd);
  if (!error) error = text_write_all(fd, index->at, index->count);
  if (fd >= 0 && close(fd) != 0 && !error) error = errno;
  if (fd >= 0 && !error && rename(temporary.at, path) != 0) error = errno;
  if (fd >= 0 && error) unlink(temporary.at);
  text_free(&temporary);
}

/* Calls `each`, and notes the member. */
typedef struct {
  TarEach *each;
  void *context;
  Text index;
  uint64_t members;
} TarNoted;

static Status note_member(void *context, const TarMember *member) {
  TarNoted *noted = context;
  size_t length = strlen(member->name);
  index_append(&noted->index, member->offset, 8);
  index_append(&noted->index, member->size, 8);
  index_append(&noted->index, member->head_sum, 4);
  index_append(&noted->index, length, 4);
  text_append(&noted->index, member->name, length);
  noted->members++;
  return noted->each(noted->context, member);
}

static Status scan_and_write(const char *path, int fd, const TarStamp *stamp, TarEach *each,
                             void *context) {
  TarNoted noted = {.each = each, .context = context};
  append_stamp(&noted.index, stamp);
  index_append(&noted.index, 0, 16);
  Status status = tar_index_scan(fd, 0, stamp->size, note_member, &noted);
  for (int i = 0; i < 8; i++) noted.index.at[32 + i] = (char)(noted.members >> 8 * i);
  index_append(&noted.index, index_sum(noted.index.at, noted.index.count), 8);
  if (status == STATUS_OK) write_index(path, &noted.index);
  text_free(&noted.index);
  return status;
}

Status tar_index_list(const char *path, int fd, const struct stat *info, bool may_read,
                      bool may_write, TarEach *each, void *context) {
  Text name = {0}, index = {0};
  FileSum sum;
  TarStamp stamp = {.size = (uint64_t)info->st_size};
  stamp.time = (uint64_t)info->st_mtim.tv_sec * 1000000000u + (uint64_t)info->st_mtim.tv_nsec;
  if (!may_read) return tar_index_scan(fd, 0, stamp.size, each, context);
  text_printf(&name, "%s.ftindex", path);
  int file = open(name.at, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  bool is_there = file >= 0;
  if (is_there) close(file);
  Status status = STATUS_OK;
  if (is_there || may_write) status = file_sum(path, FILE_SUM_PIECES, &sum);
  if (status == STATUS_OK && (is_there || may_write)) stamp.sum = sum.sum;
  if (status == STATUS_OK && is_there && text_read_file(&index, name.at) == 0 &&
      index_is_sound(&index, &stamp))
    status = list_index(&index, each, context);
  else if (status == STATUS_OK && may_write)
    status = scan_and_write(name.at, fd, &stamp, each, context);
  else if (status == STATUS_OK)
    status = tar_index_scan(fd, 0, stamp.size, each, context);
  text_free(&index);
  text_free(&name);
  return status;
}

Status tar_index_scan(int fd, uint64_t base, uint64_t size, TarEach *each, void *context) {
  TarFile tar;
  Status status = tar_file_start(fd, base, size, &tar);
  for (bool is_end = false; status == STATUS_OK && !is_end;) {
    TarMember member;
    status = tar_file_next(&tar, &member, &is_end);
    if (status == STATUS_OK && !is_end) status = each(context, &member);
  }
  tar_file_end(&tar);
  return status;
}
