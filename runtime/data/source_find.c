/* source_find: where a data file is (declared in source.h). */
#include "runtime/common/inside.h"
#include "runtime/data/source.h"
#include "runtime/data/spool.h"
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char datasets_folder[] = "/usr/share/datasets";

/* Debian's packages of data sets, by the start of a file's name. */
static const struct {
  const char *start, *package;
} packages[] = {
    {"train-images-idx3-ubyte", "dataset-fashion-mnist"},
    {"train-labels-idx1-ubyte", "dataset-fashion-mnist"},
    {"t10k-images-idx3-ubyte", "dataset-fashion-mnist"},
    {"t10k-labels-idx1-ubyte", "dataset-fashion-mnist"},
};

static char *join_path(const char *folder, size_t folder_length, const char *file) {
  Text path = {0};
  text_append(&path, folder, folder_length);
  text_printf(&path, "%s%s", folder_length && folder[folder_length - 1] == '/' ? "" : "/", file);
  return path.at;
}

static bool file_exists(const char *path) {
  struct stat info;
  return stat(path, &info) == 0;
}

static bool is_pattern(const char *file) { return strpbrk(file, "*?[") != NULL; }

/* The pattern of a pattern in a folder, whose own name is none. */
static char *join_pattern(const char *folder, size_t folder_length, const char *file) {
  Text escaped = {0};
  for (size_t i = 0; i < folder_length; i++)
    text_printf(&escaped, "%s%c", strchr("*?[\\", folder[i]) ? "\\" : "", folder[i]);
  char *path = join_path(text_cstr(&escaped), escaped.count, file);
  text_free(&escaped);
  return path;
}

static bool pattern_matches(const char *path) {
  glob_t found;
  bool is_match = glob(path, 0, NULL, &found) == 0;
  if (is_match) globfree(&found);
  return is_match;
}

/* Takes `folder`/`file` if it is there; else notes the folder in *tried. */
static bool find_in_folder(const char *folder, size_t length, const char *file, Text *tried,
                           char **out) {
  char *path = join_path(folder, length, file);
  if (file_exists(path)) {
    *out = path;
    return true;
  }
  free(path);
  if (is_pattern(file)) {
    path = join_pattern(folder, length, file);
    if (pattern_matches(path)) {
      *out = path;
      return true;
    }
    free(path);
  }
  /* Text is searched for duplicates: the artifact often lies in the current folder */
  Text entry = {0};
  text_printf(&entry, "%.*s, ", (int)length, folder);
  if (!tried->count || !strstr(text_cstr(tried), text_cstr(&entry)))
    text_append(tried, text_cstr(&entry), entry.count);
  text_free(&entry);
  return false;
}

static bool try_folder_of(const char *sibling, const char *file, Text *tried, char **out) {
  const char *slash = strrchr(sibling, '/');
  if (!slash) return find_in_folder(".", 1, file, tried, out);
  return find_in_folder(sibling, slash == sibling ? 1 : (size_t)(slash - sibling), file, tried,
                        out);
}

/* Every folder in /usr/share/datasets, in the order of their names. *error: why it was not read, if
 * it is there. */
static bool try_datasets(const char *file, Text *tried, char **out, int *error) {
  enum { MOST = 256 };
  char *names[MOST];
  int count = 0;
  DIR *folder = opendir(datasets_folder);
  if (!folder && errno != ENOENT && errno != ENOTDIR) *error = errno;
  for (struct dirent *entry; folder && count < MOST && (entry = readdir(folder));)
    if (entry->d_name[0] != '.')
      names[count++] = join_path(datasets_folder, sizeof datasets_folder - 1, entry->d_name);
  if (folder) closedir(folder);
  qsort(names, (size_t)count, sizeof *names, text_compare);
  bool found = false;
  Text ignored = {0};
  for (int i = 0; i < count; i++) {
    if (!found) found = find_in_folder(names[i], strlen(names[i]), file, &ignored, out);
    free(names[i]);
  }
  text_free(&ignored);
  text_printf(tried, "%s/*", datasets_folder);
  return found;
}

static const char *package_of(const char *file) {
  const char *slash = strrchr(file, '/');
  const char *name = slash ? slash + 1 : file;
  for (size_t i = 0; i < sizeof packages / sizeof *packages; i++)
    if (strncmp(name, packages[i].start, strlen(packages[i].start)) == 0)
      return packages[i].package;
  return NULL;
}

/* Beside the .ft file? An artifact's word for where that was may be anything; ftrun model.ft has it
 * from the command line. */
static bool looks_beside_source(const Plan *plan, const SourcePlaces *places) {
  if (!plan->source || !plan->source[0]) return false;
  return !places->artifact_path || places->allow_paths || inside_is_plain(plan->source);
}

static Status find_command(const SourcePlaces *places, const char *command, char **out) {
  if (!places->allow_commands) {
    Text shown = {0};
    text_printf(&shown, "%s", command);
    text_make_printable(shown.at);
    Status status = status_fail(STATUS_USER,
                                "\"%s\" is a command, whose output would be the data. It was not "
                                "run: --allow-commands runs it, and it can do whatever you can do",
                                text_cstr(&shown));
    text_free(&shown);
    return status;
  }
  STATUS_TRY(spool_run(command));
  *out = strdup(command);
  return *out ? STATUS_OK : status_errno(ENOMEM, "%s", command);
}

Status source_find_file(const Plan *plan, const SourcePlaces *places, const char *file,
                        char **out) {
  *out = NULL;
  Text why = {0};
  if (spool_is_command(file)) return find_command(places, file, out);
  if (source_file_is_remote(file, &why)) {
    Status status = status_fail(STATUS_USER, "%s", text_cstr(&why));
    text_free(&why);
    return status;
  }
  if (!places->allow_paths && !inside_is_plain(file))
    return status_fail(STATUS_USER,
                       "%s: a model names its data by relative paths without '..', to be found in "
                       "--data DIR and the like; --allow-paths lets it name others",
                       file);
  if (file[0] == '/') {
    *out = strdup(file);
    return *out ? STATUS_OK : status_errno(ENOMEM, "%s", file);
  }
  Text tried = {0};
  const char *only = places->data_dir; /* a file of the same name elsewhere is another one */
  if (only) {
    bool is_found = find_in_folder(only, strlen(only), file, &tried, out);
    text_free(&tried);
    if (is_found) return STATUS_OK;
    const char *package = package_of(file);
    struct stat info;
    if (stat(only, &info) != 0 || !S_ISDIR(info.st_mode))
      return status_fail(STATUS_USER, "%s not found: --data %s is no folder", file, only);
    return status_fail(
        STATUS_USER, "%s not found in %s; with --data no other folder is searched%s%s", file, only,
        package ? ", without it the package is found: apt install " : "", package ? package : "");
  }
  int error = 0;
  bool found =
      (places->artifact_path && try_folder_of(places->artifact_path, file, &tried, out)) ||
      (looks_beside_source(plan, places) && try_folder_of(plan->source, file, &tried, out)) ||
      find_in_folder(".", 1, file, &tried, out) || try_datasets(file, &tried, out, &error);
  Status status = STATUS_OK;
  if (!found && error) {
    status = status_errno(error, "%s: cannot look into %s", file, datasets_folder);
  } else if (!found) {
    const char *package = package_of(file);
    status = status_fail(STATUS_USER, "%s not found; looked in %s; %s%s%s", file, text_cstr(&tried),
                         package ? "apt install " : "",
                         package ? package : "tell its folder with --data DIR",
                         package ? ", or tell its folder with --data DIR" : "");
  }
  text_free(&tried);
  return status;
}

void source_files_free(SourceFiles *files) {
  for (int i = 0; i < files->count; i++) free(files->path[i]);
  free(files->path);
  *files = (SourceFiles){0};
}

/* A pattern may lead out of the folder where its text does not: ".?/x". */
static bool matches_inside(const char *pattern, const char *name, const char *path) {
  size_t parts = 1;
  for (const char *at = name; (at = strchr(at, '/')); at++) parts++;
  const char *at = path + strlen(path);
  while (at > path && (at[-1] != '/' || --parts)) at--;
  return *pattern && inside_is_plain(at);
}

/* Takes a path that is the list's to free from now on. */
static Status add_path(SourceFiles *out, char *path, const char *name) {
  char **more = path ? realloc(out->path, ((size_t)out->count + 1) * sizeof *more) : NULL;
  if (!more) {
    free(path);
    return status_errno(ENOMEM, "%s", name);
  }
  out->path = more;
  out->path[out->count++] = path;
  return STATUS_OK;
}

static Status match_files(const SourcePlaces *places, const char *name, const char *pattern,
                          SourceFiles *out) {
  glob_t found;
  int error = glob(pattern, 0, NULL, &found), before = out->count;
  if (error == GLOB_NOSPACE) return status_errno(ENOMEM, "%s", name);
  if (error) return status_fail(STATUS_USER, "%s not found", name);
  Status status = STATUS_OK;
  for (size_t i = 0; i < found.gl_pathc && status == STATUS_OK; i++) {
    const char *path = found.gl_pathv[i];
    if (places->allow_paths || matches_inside(pattern, name, path))
      status = text_ends_with(path, ".ftindex") ? STATUS_OK : add_path(out, strdup(path), name);
    else
      status = status_fail(STATUS_USER, "%s: %s is not below the folder; --allow-paths takes it",
                           name, path);
  }
  globfree(&found);
  if (status == STATUS_OK)
    qsort(out->path + before, (size_t)(out->count - before), sizeof *out->path, text_compare);
  return status;
}

static Status find_named(const Plan *plan, const SourcePlaces *places, const char *name,
                         SourceFiles *out) {
  char *path;
  STATUS_TRY(source_find_file(plan, places, name, &path));
  if (spool_is_command(name) || !is_pattern(name) || file_exists(path))
    return add_path(out, path, name);
  Status status = match_files(places, name, path, out);
  free(path);
  return status;
}

/* ── braces ───────────────────────────────────────────────────────────────────────────────── */
/* The first pair of braces that stands for several names; what is between them in *parts, each ended
 * by NUL. False: there is none. */
static bool find_braces(const char *name, const char **open, const char **close, Text *parts) {
  enum { MOST_NAMES = 1 << 20 };
  for (*open = strchr(name, '{'); *open; *open = strchr(*open + 1, '{')) {
    *close = strpbrk(*open + 1, "{}");
    if (!*close || **close != '}') continue;
    const char *at = *open + 1;
    long long low, high;
    int of_low, of_all;
    parts->count = 0;
    if (sscanf(at, "%lld%n..%lld%n", &low, &of_low, &high, &of_all) == 2 && at + of_all == *close &&
        low >= 0 && high >= low && high - low < MOST_NAMES) {
      int width = *at == '0' || at[of_low + 2] == '0' ? of_low : 1;
      if (at[of_low + 2] == '0' && of_all - of_low - 2 > width) width = of_all - of_low - 2;
      for (long long i = low; i <= high; i++) text_printf(parts, "%0*lld%c", width, i, 0);
      return true;
    }
    if (!memchr(at, ',', (size_t)(*close - at))) continue;
    for (; at <= *close; at++) text_append(parts, at == *close || *at == ',' ? "" : at, 1);
    return true;
  }
  return false;
}

static Status find_braced(const Plan *plan, const SourcePlaces *places, const char *name, int depth,
                          SourceFiles *out) {
  const char *open, *close;
  Text parts = {0}, one = {0};
  if (depth > 8 || !find_braces(name, &open, &close, &parts)) {
    text_free(&parts);
    return find_named(plan, places, name, out);
  }
  Status status = STATUS_OK;
  for (size_t at = 0; at < parts.count && status == STATUS_OK; at += strlen(parts.at + at) + 1) {
    one.count = 0;
    text_printf(&one, "%.*s%s%s", (int)(open - name), name, parts.at + at, close + 1);
    status = find_braced(plan, places, one.at, depth + 1, out);
  }
  text_free(&one);
  text_free(&parts);
  return status;
}

Status source_find_files(const Plan *plan, const SourcePlaces *places, const char *name,
                         SourceFiles *out) {
  char *path;
  if (spool_is_command(name) || !strchr(name, '{')) return find_named(plan, places, name, out);
  if (source_find_file(plan, places, name, &path) == STATUS_OK) return add_path(out, path, name);
  return find_braced(plan, places, name, 0, out);
}
