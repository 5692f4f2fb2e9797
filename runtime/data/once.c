/* once: see once.h. A list under a lock: there are as many as a process has files of such kinds. */
#include "runtime/data/once.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct Once Once;
struct Once {
  Text key;
  void *object;
  int users;
  Once *next;
};
static Once *once_list;
static pthread_mutex_t once_lock = PTHREAD_MUTEX_INITIALIZER;

/* Every part ends with a NUL, so that no two recipes look alike. */
static void key_part(Text *out, const char *part) { text_append(out, part, strlen(part) + 1); }

void once_key(const char *what, const DataSource *data, char *const *path, int path_count,
              Text *out) {
  key_part(out, what);
  key_part(out, data->kind);
  for (int i = 0; i < data->option_count; i++) {
    const DataOption *option = &data->options[i];
    key_part(out, option->name);
    if (!option->text) text_printf(out, "%a", option->number);
    key_part(out, option->text ? option->text : "");
  }
  key_part(out, "");
  for (int i = 0; i < path_count; i++) {
    struct stat info = {0};
    key_part(out, path[i]);
    if (stat(path[i], &info) != 0) continue; /* what a command prints is there once */
    text_printf(out, "%llu %llu %lld %lld.%09ld", (unsigned long long)info.st_dev,
                (unsigned long long)info.st_ino, (long long)info.st_size,
                (long long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    key_part(out, "");
  }
}

/* Under the lock: the place that points to it. */
static Once **once_find(const Text *key, const void *object) {
  Once **at = &once_list;
  for (; *at; at = &(*at)->next) {
    const Text *have = &(*at)->key;
    if (object ? (*at)->object == object
               : have->count == key->count && !memcmp(have->at, key->at, key->count))
      break;
  }
  return at;
}

void *once_take(const Text *key) {
  pthread_mutex_lock(&once_lock);
  Once *found = *once_find(key, NULL);
  if (found) found->users++;
  void *object = found ? found->object : NULL;
  pthread_mutex_unlock(&once_lock);
  return object;
}

void once_offer(const Text *key, void *object) {
  Once *new = calloc(1, sizeof *new);
  if (!new) return;
  text_append(&new->key, key->at, key->count);
  new->object = object;
  new->users = 1;
  pthread_mutex_lock(&once_lock);
  new->next = once_list;
  once_list = new;
  pthread_mutex_unlock(&once_lock);
}

bool once_leave(const void *object) {
  pthread_mutex_lock(&once_lock);
  Once **at = once_find(NULL, object), *found = *at;
  bool is_last = !found || --found->users == 0;
  if (found && is_last) *at = found->next;
  pthread_mutex_unlock(&once_lock);
  if (!found || !is_last) return is_last;
  text_free(&found->key);
  free(found);
  return true;
}

bool once_is_shared(const void *object) {
  pthread_mutex_lock(&once_lock);
  const Once *found = *once_find(NULL, object);
  bool is = found && found->users > 1;
  pthread_mutex_unlock(&once_lock);
  return is;
}
