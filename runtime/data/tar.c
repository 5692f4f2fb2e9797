/* tar: shards of samples as WebDataset writes them: tar archives, plain, gzip or zstd, in which files
 * of the same name up to its first dot are a sample. The order of samples is that of the shards as they
 * are named, then that of their files. The list is made once; it takes the sample's name, 9 bytes and
 * 12 for each input. Invariant: what is read of an archive has a head of the sum that was listed. */
#include "runtime/common/fnv.h"
#include "runtime/data/tar.h"
#include "runtime/data/tar_file.h"
#include "runtime/data/spool.h"
#include "runtime/common/watchdog.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static const TarShard *shard_of(const Tar *tar, int64_t index, int *number) {
  int low = 0, high = tar->set.file_count - 1; /* low begins before it or with it */
  while (low < high) {
    int middle = low + (high - low + 1) / 2;
    if (tar->shards[middle].first <= index)
      low = middle;
    else
      high = middle - 1;
  }
  *number = low;
  return &tar->shards[low];
}

static void tar_name(const SampleSet *set, int64_t index, Text *out) {
  const Tar *tar = (const Tar *)set;
  int shard;
  (void)shard_of(tar, index, &shard);
  text_printf(out, "%s/%s", tar->paths[shard], tar->text.at + tar->names[index]);
}

static const TarPart *tar_part_of(const Tar *tar, int64_t index, int input) {
  return &tar->parts[index * tar->input_count + input];
}

static const TarWay *tar_way_of(const Tar *tar, int64_t index, int input) {
  return &tar->keys[input].way[tar_part_of(tar, index, input)->way];
}

/* ── reading ──────────────────────────────────────────────────────────────────────────────── */
/* Head and content in one call. Returns 0, an errno value, or -1: it is not what was listed. */
static int read_part(int fd, uint64_t base, const TarPart *part, Sample *out) {
  uint8_t head[TAR_BLOCK];
  uint64_t at = base + ((uint64_t)part->block - 1) * TAR_BLOCK;
  size_t done = 0, all = TAR_BLOCK + out->count;
  while (done < all) {
    struct iovec to[2] = {{head + done, done < TAR_BLOCK ? TAR_BLOCK - done : 0}, {out->at, 0}};
    size_t of_content = done > TAR_BLOCK ? done - TAR_BLOCK : 0;
    if (done >= TAR_BLOCK) to[0] = (struct iovec){head, 0};
    to[1] = (struct iovec){out->at + of_content, out->count - of_content};
    ssize_t got = preadv(fd, to, 2, (off_t)(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (!got) return -1;
    done += (size_t)got;
    watchdog_progress();
  }
  return tar_head_sum(head) == part->head_sum ? 0 : -1;
}

static Status read_file_of(const Tar *tar, int64_t index, int input, Sample *out) {
  int number;
  const TarShard *shard = shard_of(tar, index, &number);
  const TarPart *part = tar_part_of(tar, index, input);
  const char *path = tar->paths[number];
  out->count = part->size;
  if (!out->at || out->count > out->room) {
    uint8_t *larger = realloc(out->at, out->count + 1);
    if (!larger) return status_errno(ENOMEM, "%s", path);
    out->at = larger;
    out->room = out->count + 1;
  }
  int fd = shard->is_packed ? tar->temporary : spool_open(path);
  int error = fd < 0 ? errno : read_part(fd, shard->base, part, out);
  if (fd >= 0 && !shard->is_packed) close(fd);
  if (error > 0) return status_errno(error, "cannot read %s", path);
  if (error)
    return status_fail(STATUS_USER, "%s has changed since its files were listed: start again",
                       path);
  return STATUS_OK;
}

static Status tar_read(const SampleSet *set, int64_t index, Sample *out) {
  const Tar *tar = (const Tar *)set;
  out->label = 0;
  STATUS_TRY(read_file_of(tar, index, 0, out));
  if (out->count) return STATUS_OK;
  Text name = {0};
  tar_name(set, index, &name);
  text_make_printable(name.at);
  Status status = status_fail(STATUS_USER, "%s.%s is empty", text_cstr(&name),
                              tar_way_of(tar, index, 0)->ending);
  text_free(&name);
  return status;
}

static Status tar_write(const SampleSet *set, int64_t index, int input, uint64_t seed,
                        uint64_t epoch, Sample *room, void *row) {
  (void)seed, (void)epoch;
  const Tar *tar = (const Tar *)set;
  const TarWay *way = tar_way_of(tar, index, input);
  const SampleValue *value = &tar->values[input];
  STATUS_TRY(read_file_of(tar, index, input, room));
  Status status = way->content == TAR_WHOLE ? sample_value_whole(value, room->at, room->count, row)
                  : way->content == TAR_JSON
                      ? sample_value_json(value, room->at, room->count, way->field, row)
                      : sample_value_npy(value, room->at, room->count, row);
  if (status == STATUS_OK) return status;
  Text name = {0}, why = {0};
  text_printf(&why, "%s", status_message());
  tar_name(set, index, &name);
  text_make_printable(name.at);
  status = status_fail(status, "%s.%s %s", text_cstr(&name), way->ending, text_cstr(&why));
  text_free(&name);
  text_free(&why);
  return status;
}

/* Of the shard. What a command has printed has no file. */
static bool tar_stamp(const SampleSet *set, int64_t index, uint64_t *size, uint64_t *time) {
  const Tar *tar = (const Tar *)set;
  struct stat info;
  int shard;
  (void)shard_of(tar, index, &shard);
  if (spool_is_command(tar->paths[shard]) || stat(tar->paths[shard], &info) != 0) return false;
  *size = (uint64_t)info.st_size;
  *time = (uint64_t)info.st_mtim.tv_sec * 1000000000u + (uint64_t)info.st_mtim.tv_nsec;
  return true;
}

/* ── the set ──────────────────────────────────────────────────────────────────────────────── */
static Status tar_measure(const SampleSet *set, int64_t *which, int64_t *largest, int64_t *total) {
  const Tar *tar = (const Tar *)set;
  *which = *largest = *total = 0;
  for (int64_t i = 0; i < set->count; i++) {
    for (int k = 0; k < tar->input_count; k++) *total += tar_part_of(tar, i, k)->size;
    if (tar_part_of(tar, i, 0)->size > *largest) {
      *largest = tar_part_of(tar, i, 0)->size;
      *which = i;
    }
  }
  return STATUS_OK;
}

static uint64_t tar_sum(const SampleSet *set) {
  const Tar *tar = (const Tar *)set;
  uint64_t sum = fnv_add(FNV_START, text_cstr(&tar->text), tar->text.count);
  for (int64_t i = 0; i < set->count * tar->input_count; i++) {
    const uint32_t of_part[] = {tar->parts[i].size, tar->parts[i].way, tar->parts[i].head_sum};
    sum = fnv_add(sum, of_part, sizeof of_part);
  }
  return sum;
}

static void tar_close(SampleSet *set) {
  Tar *tar = (Tar *)set;
  for (int i = 0; i < set->file_count; i++) free(tar->paths[i]);
  for (int i = 0; tar->values && i < tar->input_count; i++) sample_value_free(&tar->values[i]);
  if (tar->temporary >= 0) close(tar->temporary);
  free(tar->paths);
  free(tar->shards);
  free(tar->keys);
  free(tar->values);
  free(tar->parts);
  free(tar->names);
  text_free(&tar->text);
  free((void *)(uintptr_t)set->path);
  free(tar);
}

static Status tar_bind(Tar *tar, const SampleSetOptions *options) {
  size_t inputs = (size_t)options->input_count, files = (size_t)options->path_count;
  tar->input_count = options->input_count;
  tar->keys = calloc(inputs, sizeof *tar->keys);
  tar->values = calloc(inputs, sizeof *tar->values);
  tar->shards = calloc(files, sizeof *tar->shards);
  tar->paths = calloc(files, sizeof *tar->paths);
  Text path = {0};
  text_printf(&path, "%s", options->path[0]);
  if (files > 1) text_printf(&path, " ... %s", options->path[files - 1]);
  tar->set.path = path.at;
  if (!tar->keys || !tar->values || !tar->shards || !tar->paths)
    return status_errno(ENOMEM, "tar(...)");
  STATUS_TRY(tar_keys_read(options->data, options->inputs, options->input_count, tar->keys));
  tar->set.files = tar->paths;
  tar->set.is_image = tar->keys[0].way[0].content == TAR_IMAGE;
  for (int i = tar->set.is_image; i < options->input_count; i++)
    STATUS_TRY(sample_value_bind(&options->inputs[i], options->rows, &tar->values[i]));
  for (size_t i = 0; i < files; i++, tar->set.file_count++)
    if (!(tar->paths[i] = strdup(options->path[i]))) return status_errno(ENOMEM, "tar(...)");
  return STATUS_OK;
}

static Status tar_open(Tar *tar, const SampleSetOptions *options) {
  bool may_index = source_kind_flag(options->data, "index", true);
  STATUS_TRY(tar_bind(tar, options));
  for (int i = 0; i < tar->set.file_count; i++)
    STATUS_TRY(tar_list_shard(tar, i, may_index, may_index && options->may_write));
  tar->set.memory = (int64_t)(tar->text.capacity + tar->room * sizeof *tar->names +
                              tar->room * (size_t)tar->input_count * sizeof *tar->parts);
  if (tar->set.count) return STATUS_OK;
  return status_fail(STATUS_USER, "%s holds no sample: files are 000.jpg, 000.cls and the like",
                     tar->set.path);
}

Status tar_samples(const SampleSetOptions *options, SampleSet **out) {
  *out = NULL;
  Tar *tar = calloc(1, sizeof *tar);
  if (!tar) return status_errno(ENOMEM, "tar(...)");
  tar->temporary = -1;
  tar->set = (SampleSet){.read = tar_read,
                         .write = tar_write,
                         .name = tar_name,
                         .stamp = tar_stamp,
                         .measure = tar_measure,
                         .sum = tar_sum,
                         .close = tar_close};
  Status status = tar_open(tar, options);
  if (status == STATUS_OK)
    *out = &tar->set;
  else
    tar_close(&tar->set);
  return status;
}
