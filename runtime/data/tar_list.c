/* tar_list: the samples of a shard as WebDataset groups them: files that follow each other and have the
 * same key are a sample (declared in tar.h). A compressed shard is unpacked once into a temporary
 * file without a name, which is gone with the process: reading it at random would otherwise unpack
 * all before a sample again. */
#define _GNU_SOURCE /* O_TMPFILE */
#include "runtime/data/tar.h"
#include "runtime/data/tar_index.h"
#include "runtime/data/spool.h"
#include "runtime/data/unpack.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_FILES_OF_A_SAMPLE = 1000, LARGEST_PART = (1 << 30) - 1 };

/* The sample that is being put together. */
typedef struct {
  Tar *tar;
  Text key, endings; /* each ending ends in NUL */
  int files;
  bool is_open, is_bad; /* is_bad: a file says so, "__bad__" */
  TarPart *parts;
  bool *has;
} TarGroup;

static Status tar_grow(Tar *tar) {
  if ((size_t)tar->set.count < tar->room) return STATUS_OK;
  size_t room = tar->room + tar->room / 2 + 256, each = (size_t)tar->input_count * sizeof(TarPart);
  TarPart *parts = realloc(tar->parts, room * each);
  if (parts) tar->parts = parts;
  uint64_t *names = parts ? realloc(tar->names, room * sizeof *names) : NULL;
  if (!names) return status_errno(ENOMEM, "the list of samples");
  tar->names = names;
  tar->room = room;
  return STATUS_OK;
}

static Status lacks(const TarGroup *group, int input) {
  const TarKey *key = &group->tar->keys[input];
  Text wants = {0}, has = {0};
  for (int i = 0; i < key->count; i++)
    text_printf(&wants, "%s.%s", i ? " or " : "", key->way[i].ending);
  for (size_t at = 0; at < group->endings.count && has.count < 100;
       at += strlen(group->endings.at + at) + 1)
    text_printf(&has, "%s.%.40s", has.count ? ", " : "", group->endings.at + at);
  Status status = status_fail(STATUS_USER,
                              "sample %.200s has no %s, only %s: keys= can name others, and files "
                              "of a sample have to follow "
                              "each other (tar --sort=name)",
                              text_cstr(&group->key), text_cstr(&wants), text_cstr(&has));
  text_free(&wants);
  text_free(&has);
  return status;
}

static Status group_end(TarGroup *group) {
  Tar *tar = group->tar;
  int inputs = tar->input_count;
  if (!group->is_open || group->is_bad) return STATUS_OK;
  for (int i = 0; i < inputs; i++)
    if (!group->has[i]) return lacks(group, i);
  STATUS_TRY(tar_grow(tar));
  memcpy(tar->parts + tar->set.count * inputs, group->parts, (size_t)inputs * sizeof *tar->parts);
  tar->names[tar->set.count++] = tar->text.count;
  text_append(&tar->text, text_cstr(&group->key), group->key.count + 1);
  return STATUS_OK;
}

static Status group_begin(TarGroup *group, const char *key, size_t length) {
  STATUS_TRY(group_end(group));
  group->key.count = group->endings.count = 0;
  text_append(&group->key, key, length);
  group->files = 0;
  group->is_open = true;
  group->is_bad = false;
  memset(group->has, 0, (size_t)group->tar->input_count * sizeof *group->has);
  return STATUS_OK;
}

static Status note_ending(TarGroup *group, const char *ending) {
  for (size_t at = 0; at < group->endings.count; at += strlen(group->endings.at + at) + 1)
    if (!strcmp(group->endings.at + at, ending))
      return status_fail(STATUS_USER, "sample %.200s has two files .%.60s", text_cstr(&group->key),
                         ending);
  if (++group->files > MOST_FILES_OF_A_SAMPLE)
    return status_fail(STATUS_USER, "sample %.200s has more than %d files", text_cstr(&group->key),
                       MOST_FILES_OF_A_SAMPLE);
  text_append(&group->endings, ending, strlen(ending) + 1);
  return STATUS_OK;
}

/* The first of the ways to have an input counts. */
static Status group_take_part(TarGroup *group, const char *ending, const TarMember *member) {
  for (int i = 0; i < group->tar->input_count; i++) {
    const TarKey *key = &group->tar->keys[i];
    int way = 0;
    while (way < key->count && strcmp(key->way[way].ending, ending) != 0) way++;
    if (way == key->count || (group->has[i] && (int)group->parts[i].way <= way)) continue;
    if (member->size > LARGEST_PART)
      return status_fail(STATUS_USER, "%.200s is larger than 1 GiB", member->name);
    if (member->offset / TAR_BLOCK > UINT32_MAX)
      return status_fail(STATUS_USER, "is larger than 2 TiB, which no shard is");
    group->has[i] = true;
    group->parts[i] = (TarPart){.block = (uint32_t)(member->offset / TAR_BLOCK),
                                .size = (uint32_t)member->size & LARGEST_PART,
                                .way = (uint32_t)way & 3,
                                .head_sum = member->head_sum};
  }
  return STATUS_OK;
}

/* "__meta__" and what is in such a folder is of no sample. */
static bool is_meta(const char *name) {
  size_t length = strcspn(name, "/");
  return length >= 4 && !memcmp(name, "__", 2) && !memcmp(name + length - 2, "__", 2);
}

static Status take_member(void *context, const TarMember *member) {
  TarGroup *group = context;
  const char *ending;
  size_t length;
  if (is_meta(member->name) || !tar_keys_split(member->name, &length, &ending)) return STATUS_OK;
  if (!group->is_open || group->key.count != length || memcmp(group->key.at, member->name, length))
    STATUS_TRY(group_begin(group, member->name, length));
  char *small = strdup(ending);
  if (!small) return status_errno(ENOMEM, "the list of samples");
  for (char *at = small; *at; at++) *at = (char)tolower((unsigned char)*at);
  Status status = note_ending(group, small);
  if (!strcmp(small, "__bad__") && member->size) group->is_bad = true;
  if (status == STATUS_OK) status = group_take_part(group, small, member);
  free(small);
  return status;
}

/* ── compressed shards ────────────────────────────────────────────────────────────────────── */
static Status unpack_shard(Tar *tar, TarShard *shard, Unpack *unpack, uint64_t *size) {
  if (tar->temporary < 0) STATUS_TRY(unpack_temporary(&tar->temporary));
  shard->is_packed = true;
  shard->base = tar->unpacked;
  STATUS_TRY(unpack_to_file(unpack, tar->temporary, size));
  tar->unpacked += *size;
  return STATUS_OK;
}

static Status list_opened(Tar *tar, int i, int fd, bool may_read, bool may_write, TarGroup *group) {
  struct stat info;
  Unpack *unpack;
  uint64_t size = 0;
  TarShard *shard = &tar->shards[i];
  if (fstat(fd, &info) != 0) return status_errno(errno, "cannot be read");
  if (!S_ISREG(info.st_mode)) return status_fail(STATUS_USER, "is no file");
  if (!info.st_size) return status_fail(STATUS_USER, "is empty");
  STATUS_TRY(unpack_open(fd, &unpack));
  if (!unpack)
    return tar_index_list(tar->paths[i], fd, &info, may_read, may_write, take_member, group);
  Status status = unpack_shard(tar, shard, unpack, &size);
  unpack_free(unpack);
  if (status == STATUS_OK)
    status = tar_index_scan(tar->temporary, shard->base, size, take_member, group);
  return status;
}

Status tar_list_shard(Tar *tar, int i, bool may_read, bool may_write) {
  size_t inputs = (size_t)tar->input_count;
  TarGroup group = {.tar = tar,
                    .parts = calloc(inputs, sizeof *group.parts),
                    .has = calloc(inputs, sizeof *group.has)};
  tar->shards[i].first = tar->set.count;
  if (spool_is_command(tar->paths[i])) may_read = may_write = false; /* there is no "beside" */
  int fd = spool_open(tar->paths[i]);
  Status status = fd < 0                     ? status_errno(errno, "cannot be read")
                  : group.parts && group.has ? list_opened(tar, i, fd, may_read, may_write, &group)
                                             : status_errno(ENOMEM, "the list of samples");
  if (status == STATUS_OK) status = group_end(&group);
  if (fd >= 0) close(fd);
  text_free(&group.key);
  text_free(&group.endings);
  free(group.parts);
  free(group.has);
  if (status == STATUS_OK) return status;
  char *why = strdup(status_message());
  status = status_fail(status, "%s %s", tar->paths[i], why ? why : "cannot be read");
  free(why);
  return status;
}
