/* weight_files: see weight_files.h. */
#include "runtime/checkpoint/weight_files.h"
#include "runtime/checkpoint/ckpt.h"
#include "runtime/checkpoint/weight_packed.h"
#include "runtime/checkpoint/weight_rename.h"
#include "base/text.h"
#include "runtime/common/json.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LARGEST_INDEX = 100 << 20, MOST_SHARDS = 2000, MOST_TENSORS = 1 << 24 };
static const char index_name[] = "model.safetensors.index.json";
static const char single_name[] = "model.safetensors";

typedef struct {
  const char *name;
  const SafeTensor *tensor;
  const char *path;
  int from; /* which of the paths given */
} Found;

typedef struct {
  WeightFiles *out;
  VEC(Found) found;
} Collection;

/* ── files ────────────────────────────────────────────────────────────────────────────────── */
static Status open_weights(Collection *c, const char *path, const Safetensors **out) {
  Safetensors *file;
  STATUS_TRY(safetensors_open(path, &file));
  VEC_PUSH(c->out->arena, c->out->files, file);
  *out = file;
  return STATUS_OK;
}

static void take_tensor(Collection *c, const SafeTensor *tensor, const char *path, int from) {
  VEC_PUSH(c->out->arena, c->found, ((Found){tensor->name, tensor, path, from}));
}

static Status take_file(Collection *c, const char *path, int from) {
  const Safetensors *file;
  STATUS_TRY(open_weights(c, path, &file));
  for (int i = 0; i < file->tensor_count; i++) take_tensor(c, &file->tensor[i], path, from);
  return STATUS_OK;
}

/* A file beside the index, and nothing else: the index may come from anywhere. */
static Status shard_path(Arena *arena, const char *index, const char *name, const char **out) {
  const char *slash = strrchr(index, '/');
  if (!*name || strchr(name, '/') || name[0] == '.' || !text_ends_with(name, ".safetensors"))
    return status_fail(STATUS_USER,
                       "%s: '%.80s' is not the name of a .safetensors file beside the index", index,
                       name);
  *out = slash ? arena_printf(arena, "%.*s/%s", (int)(slash - index), index, name) : name;
  return STATUS_OK;
}

typedef struct {
  const char *path; /* NULL: not open yet */
  const char *name;
  const Safetensors *file;
} Shard;

static int by_shard(const void *left, const void *right) {
  return strcmp(((const Shard *)left)->name, ((const Shard *)right)->name);
}

static Status open_shards(Collection *c, const char *index, json_t *map, Shard *shards,
                          int *count) {
  const char *name;
  json_t *entry;
  int all = 0;
  json_object_foreach(map, name, entry) {
    if (!json_is_string(entry))
      return status_fail(STATUS_USER, "%s is damaged: where '%.80s' lies is not a string", index,
                         name);
    shards[all++].name = json_string_value(entry);
  }
  qsort(shards, (size_t)all, sizeof *shards, by_shard);
  *count = 0;
  for (int i = 0; i < all; i++)
    if (i == 0 || strcmp(shards[i].name, shards[*count - 1].name) != 0)
      shards[(*count)++] = shards[i];
  if (*count > MOST_SHARDS)
    return status_fail(STATUS_USER, "%s names more than %d files", index, MOST_SHARDS);
  for (int i = 0; i < *count; i++) {
    STATUS_TRY(shard_path(c->out->arena, index, shards[i].name, &shards[i].path));
    STATUS_TRY(open_weights(c, shards[i].path, &shards[i].file));
  }
  return STATUS_OK;
}

static int by_tensor_name(const void *left, const void *right) {
  return strcmp((*(const SafeTensor *const *)left)->name, (*(const SafeTensor *const *)right)->name);
}

/* The index says of each tensor in which file it lies; what else lies there is not the model's. */
static Status take_shard(Collection *c, const char *index, json_t *map, const Shard *shard,
                         int from) {
  int count = shard->file->tensor_count;
  const SafeTensor **sorted = ARENA_ARRAY(c->out->arena, const SafeTensor *, count + 1);
  for (int i = 0; i < count; i++) sorted[i] = &shard->file->tensor[i];
  qsort(sorted, (size_t)count, sizeof *sorted, by_tensor_name);
  const char *name;
  json_t *entry;
  json_object_foreach(map, name, entry) {
    if (strcmp(json_string_value(entry), shard->name) != 0) continue;
    SafeTensor key = {.name = name}, *wanted = &key;
    const SafeTensor **at = bsearch(&wanted, sorted, (size_t)count, sizeof *sorted, by_tensor_name);
    if (!at)
      return status_fail(STATUS_USER, "%s says that '%.80s' lies in %s, but it does not", index,
                         name, shard->path);
    take_tensor(c, *at, shard->path, from);
  }
  return STATUS_OK;
}

static Status take_map(Collection *c, const char *index, json_t *root, int from) {
  json_t *map = json_object_get(root, "weight_map");
  size_t size = json_object_size(map);
  if (!json_is_object(map) || !size)
    return status_fail(STATUS_USER, "%s has no \"weight_map\", which says in which file each tensor "
                                    "lies",
                       index);
  Shard *shards = calloc(size, sizeof *shards);
  if (!shards) return status_errno(ENOMEM, "%s", index);
  int count = 0;
  Status status = open_shards(c, index, map, shards, &count);
  for (int i = 0; i < count && status == STATUS_OK; i++)
    status = take_shard(c, index, map, &shards[i], from);
  free(shards);
  return status;
}

static Status take_index(Collection *c, const char *path, int from) {
  Text text = {0};
  struct stat info;
  json_t *root = NULL;
  if (stat(path, &info) == 0 && info.st_size > LARGEST_INDEX)
    return status_fail(STATUS_USER, "%s is too large for an index: %lld bytes", path,
                       (long long)info.st_size);
  int error = text_read_file(&text, path);
  if (error) {
    text_free(&text);
    return status_fail(text_is_fault(error) ? STATUS_FAULT : STATUS_USER, "cannot read %s: %s",
                       path, text_error(error));
  }
  Status status = json_parse(text_cstr(&text), text.count, &root);
  if (status == STATUS_USER) status = status_prefix(status, "%s is not valid JSON", path);
  text_free(&text);
  if (status == STATUS_OK) status = take_map(c, path, root, from);
  json_decref(root);
  return status;
}

/* A folder of checkpoints has several, of which the best and the newest may be meant. */
static Status refuse_folder(const char *path) {
  Text says = {0};
  Status status = ckpt_folder_says(path, &says);
  if (status == STATUS_OK && says.count)
    status = status_fail(STATUS_USER, "%s is a folder of checkpoints: name the one whose weights are meant, %s", path, text_cstr(&says));
  else if (status == STATUS_OK)
    status = status_fail(STATUS_USER, "the folder %s has neither %s nor %s", path, single_name, index_name);
  text_free(&says);
  return status;
}

static Status take_path(Collection *c, const char *path, int from) {
  struct stat info;
  if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
    return text_ends_with(path, ".json") ? take_index(c, path, from) : take_file(c, path, from);
  const char *index = arena_printf(c->out->arena, "%s/%s", path, index_name);
  const char *single = arena_printf(c->out->arena, "%s/%s", path, single_name);
  if (access(index, F_OK) == 0) return take_index(c, index, from);
  if (access(single, F_OK) == 0) return take_file(c, single, from);
  return refuse_folder(path);
}

/* ── names ────────────────────────────────────────────────────────────────────────────────── */
static Status no_match(const Collection *c, const char *text) {
  Text some = {0};
  for (int i = 0; i < c->found.count && i < 5; i++)
    text_printf(&some, "%s%.80s", i ? ", " : "", c->found.at[i].name);
  if (c->found.count > 5) text_printf(&some, " and %d more", c->found.count - 5);
  Status status = status_fail(STATUS_USER, "--init-rename %s: no tensor has such a name; there %s %s",
                              text, c->found.count == 1 ? "is" : "are", text_cstr(&some));
  text_free(&some);
  return status;
}

static Status rename_all(Collection *c, const char *text) {
  Rename rename;
  int matched = 0;
  STATUS_TRY(rename_parse(c->out->arena, text, &rename));
  for (int i = 0; i < c->found.count; i++) {
    Found *found = &c->found.at[i];
    const char *name = *found->name ? rename_apply(c->out->arena, &rename, found->name) : NULL;
    matched += name != NULL;
    if (name) found->name = name;
  }
  return matched ? STATUS_OK : no_match(c, text);
}

static int by_found_name(const void *left, const void *right) {
  const Found *a = left, *b = right;
  int order = strcmp(a->name, b->name);
  return order ? order : a->from - b->from;
}

/* Of one name the last path's tensor stays. Names are in order then. */
static Status settle_names(Collection *c) {
  WeightFiles *out = c->out;
  qsort(c->found.at, (size_t)c->found.count, sizeof *c->found.at, by_found_name);
  out->all.tensor = calloc((size_t)c->found.count + 1, sizeof *out->all.tensor);
  if (!out->all.tensor) return status_errno(ENOMEM, "weights");
  out->path = ARENA_ARRAY(out->arena, const char *, c->found.count + 1);
  for (int i = 0; i < c->found.count; i++) {
    const Found *found = &c->found.at[i], *next = i + 1 < c->found.count ? found + 1 : NULL;
    if (!*found->name) {
      out->left_out++;
    } else if (next && strcmp(found->name, next->name) == 0) {
      if (found->from == next->from)
        return status_fail(STATUS_USER, "%s: '%.80s' and '%.80s' would both be called %.80s",
                           found->path, found->tensor->name, next->tensor->name, found->name);
      out->replaced++;
    } else {
      SafeTensor *tensor = &out->all.tensor[out->all.tensor_count];
      *tensor = *found->tensor;
      tensor->name = found->name;
      out->path[out->all.tensor_count++] = found->path;
    }
  }
  return STATUS_OK;
}

Status weight_files_open(const char *const *paths, int count, const char *const *renames,
                         int rename_count, WeightFiles *out) {
  *out = (WeightFiles){.arena = arena_new(), .named = ""};
  Collection c = {.out = out};
  for (int i = 0; i < count; i++) {
    STATUS_TRY(take_path(&c, paths[i], i));
    out->named = arena_printf(out->arena, "%s%s%s", out->named, i ? ", " : "", paths[i]);
    if (c.found.count > MOST_TENSORS)
      return status_fail(STATUS_USER, "%s: more than %d tensors", paths[i], MOST_TENSORS);
  }
  out->is_several = out->files.count > 1;
  for (int i = 0; i < rename_count; i++) STATUS_TRY(rename_all(&c, renames[i]));
  STATUS_TRY(settle_names(&c));
  return weight_unpack(out);
}

void weight_files_close(WeightFiles *files) {
  for (int i = 0; i < files->files.count; i++) safetensors_close(files->files.at[i]);
  free(files->all.tensor);
  arena_free(files->arena);
  *files = (WeightFiles){0};
}

const char *weight_files_path(const WeightFiles *files, const SafeTensor *tensor) {
  return files->path[tensor - files->all.tensor];
}

bool weight_files_converts(Element from, DType to) {
  return element_converts(from, to) && element_is_float(from) == dtype_is_float(to);
}

bool weight_files_is_of_rounding(const char *name) {
  return text_ends_with(name, ".input.max_abs") || text_ends_with(name, ".weight_scale") || text_ends_with(name, ".input_factor");
}

Status weight_files_check(const SafeTensor *tensor, const char *path) {
  bool is_of_rounding = weight_files_is_of_rounding(tensor->name);
  float value = 0;
  bool is_range = text_ends_with(tensor->name, "max_abs");
  size_t size = (size_t)element_bytes(tensor->element);
  for (size_t at = 0; is_of_rounding && element_converts(tensor->element, DT_F32) && at + size <= tensor->bytes; at += size) {
    bool fits = element_convert(tensor->data + at, tensor->element, false, 1, DT_F32, &value) == 1;
    if (!fits || !isfinite(value) || (is_range && value < 0))
      return status_fail(STATUS_USER, "%s: %s holds %g, which is no %s of a rounded layer: a finite number%s", path, tensor->name, (double)value,
                         is_range ? "range" : "scale", is_range ? " from 0" : "");
  }
  return STATUS_OK;
}
