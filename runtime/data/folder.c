/* folder: images in one folder for each class, as torchvision's ImageFolder has them: classes are
 * the subfolders in the order of their names, bytewise; the files of a class, in folders below too,
 * in the order of the folders' paths, then of their names. Files whose names do not end as those of
 * images are left out. The list is made once; it takes a file's name and 16 bytes for each. */
#define _DEFAULT_SOURCE /* DT_DIR */
#include "runtime/common/fnv.h"
#include "runtime/data/sample_set.h"
#include "runtime/common/watchdog.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* Deeper is a circle of links, more a mistake: its names alone would be gigabytes. */
enum { DEEPEST = 32, MOST_CLASSES = 1 << 20 };
#define MOST_FILES ((int64_t)1 << 31)
#define LARGEST_FILE ((int64_t)1 << 30) /* bytes */

typedef struct {
  uint64_t name; /* where it begins in `names` */
  uint32_t folder, label;
} Entry;

typedef struct {
  SampleSet set;
  char *path;
  Text names;        /* each ends in NUL */
  uint64_t *folders; /* where the name of each begins, below `path` */
  Entry *entries;
  size_t folder_count, folder_room, entry_room;
} Folder;

/* ── listing ──────────────────────────────────────────────────────────────────────────────── */
static Status folder_add_name(Folder *folder, const char *name, uint64_t *out) {
  *out = folder->names.count;
  text_append(&folder->names, name, strlen(name) + 1);
  return STATUS_OK;
}

/* Room for one more. */
static Status folder_grow(void **at, size_t *room, size_t count, size_t each, const char *path) {
  if (count < *room) return STATUS_OK;
  size_t more = *room + *room / 2 + 64;
  void *larger = realloc(*at, more * each);
  if (!larger) return status_errno(ENOMEM, "%s: the list of its files", path);
  *at = larger;
  *room = more;
  return STATUS_OK;
}

static bool ends_in(const char *name, const char *const *endings) {
  const char *dot = strrchr(name, '.');
  for (; dot && *endings; endings++)
    if (strcasecmp(dot, *endings) == 0) return true;
  return false;
}

static Status folder_add_file(Folder *folder, uint32_t at, uint32_t label, const char *name) {
  static const char *const read[] = {".jpg", ".jpeg", ".png", NULL};
  static const char *const others[] = {".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", NULL};
  const char *below = folder->names.at + folder->folders[at];
  if (ends_in(name, others))
    return status_fail(STATUS_USER,
                       "%s/%s/%s: folder() reads .jpg, .jpeg and .png; convert it, or take it away",
                       folder->path, below, name);
  if (!ends_in(name, read)) return STATUS_OK;
  if (folder->set.count == MOST_FILES)
    return status_fail(STATUS_USER, "%s holds more than %lld images", folder->path,
                       (long long)MOST_FILES);
  STATUS_TRY(folder_grow((void **)&folder->entries, &folder->entry_room, (size_t)folder->set.count,
                         sizeof *folder->entries, folder->path));
  Entry *entry = &folder->entries[folder->set.count++];
  entry->folder = at;
  entry->label = label;
  return folder_add_name(folder, name, &entry->name);
}

typedef VEC(char *) Names;

static bool folder_is_folder(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static void sort_names(Names *names) {
  if (names->count) qsort(names->at, (size_t)names->count, sizeof *names->at, text_compare);
}

/* What is in a folder, each in order. */
static Status list_names(Arena *arena, const char *path, Names *folders, Names *files) {
  DIR *open = opendir(path);
  if (!open) return status_errno(errno, "cannot list %s", path);
  errno = 0;
  for (struct dirent *entry; (entry = readdir(open)); errno = 0) {
    const char *name = entry->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
    bool is_known = entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN;
    bool is_below = is_known ? entry->d_type == DT_DIR
                             : folder_is_folder(arena_printf(arena, "%s/%s", path, name));
    Names *to = is_below ? folders : files;
    VEC_PUSH(arena, *to, arena_strdup(arena, name));
  }
  int error = errno;
  closedir(open);
  if (error) return status_errno(error, "cannot list %s", path);
  sort_names(folders);
  sort_names(files);
  return STATUS_OK;
}

/* The folders at and below `below`, by their paths below the root. */
static Status find_folders(Folder *folder, Arena *arena, const char *below, int depth,
                           Names *found) {
  Names folders = {0}, files = {0};
  if (depth > DEEPEST)
    return status_fail(STATUS_USER, "%s/%.200s... lies more than %d folders deep", folder->path,
                       below, DEEPEST);
  VEC_PUSH(arena, *found, arena_strdup(arena, below));
  const char *path = arena_printf(arena, "%s/%s", folder->path, below);
  STATUS_TRY(list_names(arena, path, &folders, &files));
  for (int i = 0; i < folders.count; i++)
    STATUS_TRY(find_folders(folder, arena, arena_printf(arena, "%s/%s", below, folders.at[i]),
                            depth + 1, found));
  return STATUS_OK;
}

static Status list_folder(Folder *folder, Arena *arena, const char *below, uint32_t label) {
  Names folders = {0}, files = {0};
  STATUS_TRY(folder_grow((void **)&folder->folders, &folder->folder_room, folder->folder_count,
                         sizeof *folder->folders, folder->path));
  uint32_t at = (uint32_t)folder->folder_count++;
  STATUS_TRY(folder_add_name(folder, below, &folder->folders[at]));
  const char *path = arena_printf(arena, "%s/%s", folder->path, below);
  STATUS_TRY(list_names(arena, path, &folders, &files));
  for (int i = 0; i < files.count; i++) STATUS_TRY(folder_add_file(folder, at, label, files.at[i]));
  return STATUS_OK;
}

static Status list_class(Folder *folder, const char *name, uint32_t label) {
  Names folders = {0};
  Arena *arena = arena_new();
  int64_t before = folder->set.count;
  Status status = find_folders(folder, arena, name, 0, &folders);
  sort_names(&folders);
  for (int i = 0; i < folders.count && status == STATUS_OK; i++)
    status = list_folder(folder, arena, folders.at[i], label);
  arena_free(arena);
  if (status == STATUS_OK && folder->set.count == before)
    status = status_fail(STATUS_USER,
                         "%s/%s holds no image (.jpg, .jpeg, .png), and each folder in %s is a "
                         "class: fill it or take it away",
                         folder->path, name, folder->path);
  return status;
}

static Status folder_list_classes(Folder *folder, Arena *arena) {
  Names names = {0}, files = {0};
  STATUS_TRY(list_names(arena, folder->path, &names, &files));
  int count = names.count;
  if (!count)
    return status_fail(STATUS_USER,
                       "%s has no folders: each class is one, %s/cat/1.jpg, %s/dog/2.jpg",
                       folder->path, folder->path, folder->path);
  if (count > MOST_CLASSES)
    return status_fail(STATUS_USER, "%s holds more than %d folders", folder->path, MOST_CLASSES);
  folder->set.classes = calloc((size_t)count, sizeof *folder->set.classes);
  if (!folder->set.classes) return status_errno(ENOMEM, "%s", folder->path);
  for (int i = 0; i < count; i++) {
    if (!(folder->set.classes[i] = strdup(names.at[i])))
      return status_errno(ENOMEM, "%s", folder->path);
    folder->set.class_count++;
    STATUS_TRY(list_class(folder, names.at[i], (uint32_t)i));
  }
  return STATUS_OK;
}

/* ── reading ──────────────────────────────────────────────────────────────────────────────── */
static void folder_name(const SampleSet *set, int64_t index, Text *out) {
  const Folder *folder = (const Folder *)set;
  const Entry *entry = &folder->entries[index];
  text_printf(out, "%s/%s/%s", folder->path, folder->names.at + folder->folders[entry->folder],
              folder->names.at + entry->name);
}

static Status folder_read_file(int file, const char *path, Sample *out) {
  struct stat info;
  if (fstat(file, &info) != 0) return status_errno(errno, "cannot read %s", path);
  if (!S_ISREG(info.st_mode)) return status_fail(STATUS_USER, "%s is no file", path);
  if (!info.st_size) {
    out->count = 0;
    return status_fail(STATUS_USER, "%s is empty", path);
  }
  if (info.st_size > LARGEST_FILE)
    return status_fail(STATUS_USER, "%s is larger than 1 GiB: no image is", path);
  size_t size = (size_t)info.st_size;
  if (size > out->room) {
    uint8_t *larger = realloc(out->at, size);
    if (!larger) return status_errno(ENOMEM, "%s", path);
    out->at = larger;
    out->room = size;
  }
  for (out->count = 0; out->count < size;) {
    ssize_t count = read(file, out->at + out->count, size - out->count);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return status_errno(errno, "cannot read %s", path);
    if (!count) break; /* it became shorter: the decoder will say so */
    out->count += (size_t)count;
    watchdog_progress();
  }
  return STATUS_OK;
}

static Status folder_read(const SampleSet *set, int64_t index, Sample *out) {
  Text path = {0};
  folder_name(set, index, &path);
  out->label = ((const Folder *)set)->entries[index].label;
  int file = open(text_cstr(&path), O_RDONLY | O_CLOEXEC);
  Status status = file < 0 ? status_errno(errno, "cannot read %s", text_cstr(&path))
                           : folder_read_file(file, text_cstr(&path), out);
  if (file >= 0) close(file);
  text_free(&path);
  return status;
}

static bool folder_stamp(const SampleSet *set, int64_t index, uint64_t *size, uint64_t *time) {
  Text path = {0};
  struct stat info;
  folder_name(set, index, &path);
  bool is_there = stat(text_cstr(&path), &info) == 0;
  text_free(&path);
  if (!is_there) return false;
  *size = (uint64_t)info.st_size;
  *time = (uint64_t)info.st_mtim.tv_sec * 1000000000u + (uint64_t)info.st_mtim.tv_nsec;
  return true;
}

static int64_t folder_label(const SampleSet *set, int64_t index) {
  return ((const Folder *)set)->entries[index].label;
}

static Status folder_measure(const SampleSet *set, int64_t *which, int64_t *largest,
                             int64_t *total) {
  Text path = {0};
  Status status = STATUS_OK;
  *which = *largest = *total = 0;
  for (int64_t i = 0; i < set->count && status == STATUS_OK; i++) {
    struct stat info;
    path.count = 0;
    folder_name(set, i, &path);
    if (stat(text_cstr(&path), &info) != 0) {
      status = status_errno(errno, "cannot read %s", text_cstr(&path));
    } else if (!info.st_size) {
      status = status_fail(STATUS_USER, "%s is empty", text_cstr(&path));
    } else {
      *total += info.st_size;
      if (info.st_size > *largest) *largest = info.st_size, *which = i;
    }
  }
  text_free(&path);
  return status;
}

static void folder_close(SampleSet *set) {
  Folder *folder = (Folder *)set;
  for (int64_t i = 0; i < set->class_count; i++) free((void *)set->classes[i]);
  free(set->classes);
  free(folder->path);
  free(folder->folders);
  free(folder->entries);
  text_free(&folder->names);
  free(folder);
}

static uint64_t folder_sum(const SampleSet *set) {
  Text name = {0};
  uint64_t sum = FNV_START;
  for (int64_t i = 0; i < set->count; i++) {
    name.count = 0;
    folder_name(set, i, &name);
    size_t root = strlen(set->path); /* and the NUL at the end counts */
    sum = fnv_add(sum, text_cstr(&name) + root, name.count - root + 1);
  }
  text_free(&name);
  return sum;
}

Status folder_samples(const SampleSetOptions *options, SampleSet **out) {
  const char *path = options->path[0];
  *out = NULL;
  Folder *folder = calloc(1, sizeof *folder);
  if (folder) folder->path = strdup(path);
  if (!folder || !folder->path) {
    free(folder);
    return status_errno(ENOMEM, "%s", path);
  }
  size_t length = strlen(folder->path);
  while (length > 1 && folder->path[length - 1] == '/') folder->path[--length] = 0;
  folder->set = (SampleSet){.path = folder->path,
                            .read = folder_read,
                            .label = folder_label,
                            .name = folder_name,
                            .stamp = folder_stamp,
                            .measure = folder_measure,
                            .sum = folder_sum,
                            .is_image = true,
                            .close = folder_close};
  Arena *arena = arena_new();
  Status status = folder_is_folder(folder->path)
                      ? folder_list_classes(folder, arena)
                      : status_fail(STATUS_USER, "%s is no folder", folder->path);
  arena_free(arena);
  folder->set.memory = (int64_t)(folder->names.count + folder->folder_room * sizeof(uint64_t) +
                                 folder->entry_room * sizeof(Entry));
  if (status == STATUS_OK)
    *out = &folder->set;
  else
    folder_close(&folder->set);
  return status;
}
