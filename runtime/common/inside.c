/* inside: see inside.h. Paths are checked right before they are opened. That is enough against the
 * author of a model's file, who cannot change folders on this machine in between. */
#include "runtime/common/inside.h"
#include "base/text.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool inside_is_plain(const char *path) {
  if (path[0] == '/') return false;
  for (const char *at = path; *at;) {
    size_t length = strcspn(at, "/");
    if (length == 2 && at[0] == '.' && at[1] == '.') return false;
    at += length;
    at += strspn(at, "/");
  }
  return true;
}

/* .bashrc, .git/hooks/x: what other programs read without being asked. */
static bool inside_is_hidden(const char *path) {
  for (const char *at = path; *at;) {
    size_t length = strcspn(at, "/");
    if (at[0] == '.' && length > 1) return true;
    at += length;
    at += strspn(at, "/");
  }
  return false;
}

/* folder itself, or something in it; both without links. */
static bool is_below(const char *folder, const char *path) {
  size_t length = strlen(folder);
  if (strcmp(folder, "/") == 0) return true;
  return strncmp(folder, path, length) == 0 && (path[length] == '/' || !path[length]);
}

/* Where the deepest part of the path that exists leads to. A link to nowhere is no such part:
 * opening it would make what it points to. */
static bool leads_inside(const char *path) {
  char *folder = realpath(".", NULL), *part = strdup(path);
  bool is_inside = folder && part;
  while (is_inside && *part) {
    struct stat info;
    char *real = realpath(part, NULL);
    bool is_link_to_nowhere = !real && lstat(part, &info) == 0;
    is_inside = !is_link_to_nowhere && (!real || is_below(folder, real));
    bool is_found = real != NULL;
    free(real);
    if (is_found) break;
    char *slash = strrchr(part, '/');
    *(slash ? slash : part) = 0;
  }
  free(folder);
  free(part);
  return is_inside;
}

Status inside_check_setting(const SettingValue *settings, const char *key, bool allow_paths) {
  const SettingValue *value = &settings[setting_find(key)];
  if (allow_paths || value->is_users || !value->text[0]) return STATUS_OK;
  errno = 0;
  if (inside_is_plain(value->text) && !inside_is_hidden(value->text) && leads_inside(value->text))
    return STATUS_OK;
  if (text_is_fault(errno)) return status_errno(errno, "%s", key);
  return status_fail(
      STATUS_USER,
      "%s is '%s' in the model's file, which is hidden or leads out of the current folder: "
      "--allow-paths lets the file name such places, --set %s=… names another",
      key, value->text, key);
}
