/* text: see text.h. */
#define _GNU_SOURCE /* getrandom */
#include "base/text.h"
#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static void text_reserve(Text *text, size_t more) {
  if (more > SIZE_MAX / 4) memory_none();
  if (text->count + more + 1 <= text->capacity) return;
  size_t capacity = text->capacity ? text->capacity : 256;
  while (capacity < text->count + more + 1) capacity *= 2;
  char *at = realloc(text->at, capacity);
  if (!at) memory_none();
  text->at = at;
  text->capacity = capacity;
}

void text_append(Text *text, const char *bytes, size_t count) {
  text_reserve(text, count);
  if (count) memcpy(text->at + text->count, bytes, count);
  text->count += count;
  text->at[text->count] = 0;
}

void text_vprintf(Text *text, const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, args);
  if (length > 0) {
    text_reserve(text, (size_t)length);
    vsnprintf(text->at + text->count, (size_t)length + 1, format, again);
    text->count += (size_t)length;
  }
  va_end(again);
}

void text_printf(Text *text, const char *format, ...) {
  va_list args;
  va_start(args, format);
  text_vprintf(text, format, args);
  va_end(args);
}

const char *text_cstr(const Text *text) { return text->at ? text->at : ""; }

void text_free(Text *text) {
  free(text->at);
  *text = (Text){0};
}

bool text_is_fault(int error) {
  return error == ENOSPC || error == EDQUOT || error == EIO || error == ENOMEM || error == EMFILE ||
         error == ENFILE || error == EFBIG || error == EAGAIN;
}

const char *text_error(int error) {
  return error == TEXT_IRREGULAR ? "it is no regular file" : strerror(error);
}

/* What the caller of the program has opened, such as a shell's <(…), does not make us wait. */
static bool is_open_already(const char *path) {
  return !strcmp(path, "/dev/stdin") || !strncmp(path, "/dev/fd/", 8) ||
         !strncmp(path, "/proc/self/fd/", 14);
}

int text_read_file(Text *out, const char *path) {
  bool may_wait = is_open_already(path);
  int fd = open(path, O_RDONLY | O_CLOEXEC | (may_wait ? 0 : O_NONBLOCK));
  if (fd < 0) return errno;
  struct stat info;
  int error = fstat(fd, &info) == 0 ? 0 : errno;
  if (!error && S_ISDIR(info.st_mode)) error = EISDIR;
  if (!error && !S_ISREG(info.st_mode) && !may_wait) error = TEXT_IRREGULAR;
  while (!error) {
    text_reserve(out, 1 << 16);
    ssize_t got = read(fd, out->at + out->count, out->capacity - out->count - 1);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error = errno;
    if (got <= 0) break;
    out->count += (size_t)got;
  }
  close(fd);
  if (out->at) out->at[out->count] = 0;
  return error;
}

bool text_same_file(const char *a, const char *b) {
  struct stat one, other;
  return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

int text_write_all(int fd, const void *bytes, size_t count) {
  for (const char *at = bytes; count;) {
    ssize_t put = write(fd, at, count);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    at += put;
    count -= (size_t)put;
  }
  return 0;
}

/* As a part of a file's name. */
static void append_host(Text *name) {
  char host[33] = "";
  if (gethostname(host, sizeof host - 1) != 0) host[0] = 0;
  for (char *at = host; *at; at++)
    if (*at == '/' || *at <= ' ' || *at > '~') *at = '_';
  text_printf(name, ".%s.%d", host, (int)getpid());
}

/* The last temporary files, for an end of the program that does not return to the functions that
 * made them. No other process uses their names, so one that has been renamed or removed since does
 * no harm here. */
enum { PENDING = 32, LONGEST_PATH = 4096 };
static struct {
  char path[LONGEST_PATH];
  pthread_t maker;
} pending[PENDING];
static atomic_uint pending_count;

static void note_temporary(const char *path) {
  unsigned at = atomic_fetch_add(&pending_count, 1) % PENDING;
  pending[at].maker = pthread_self();
  snprintf(pending[at].path, LONGEST_PATH, "%s", path);
}

void text_remove_temporaries(bool of_this_thread) {
  for (int i = 0; i < PENDING; i++)
    if (pending[i].path[0] && (!of_this_thread || pthread_equal(pending[i].maker, pthread_self())))
      unlink(pending[i].path);
}

int text_open_beside(const char *path, Text *temporary, int *fd) {
  struct stat info;
  if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
    return S_ISDIR(info.st_mode) ? EISDIR : TEXT_IRREGULAR;
  text_printf(temporary, "%s", path);
  append_host(temporary);
  for (int tries = 0; tries < 100; tries++) {
    Text name = {0};
    unsigned number = 0;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) < 0) number = (unsigned)tries;
    text_printf(&name, "%s.%08x.tmp", temporary->at, number);
    note_temporary(name.at);
    *fd = open(name.at, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    int error = *fd < 0 ? errno : 0;
    if (!error) {
      text_free(temporary);
      *temporary = name;
      return 0;
    }
    text_free(&name);
    if (error != EEXIST) return error;
  }
  return EEXIST;
}

void text_sync_parent(const char *path) {
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') length--;
  while (length && path[length - 1] != '/') length--;
  char *folder = length ? strndup(path, length) : strdup(".");
  int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  if (fd >= 0) {
    (void)fsync(fd);
    close(fd);
  }
  free(folder);
}

/* Into a device or a pipe, which stays what it is. */
static int write_straight(const char *path, const void *bytes, size_t count) {
  int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
  int error = fd < 0 ? errno : text_write_all(fd, bytes, count);
  if (fd >= 0 && close(fd) != 0 && !error) error = errno;
  return error;
}

static int replace_file(const char *path, const void *bytes, size_t count) {
  Text temporary = {0};
  int fd = -1, error = text_open_beside(path, &temporary, &fd);
  if (!error) error = text_write_all(fd, bytes, count);
  if (fd >= 0 && !error && fsync(fd) != 0 && errno != EINVAL && errno != EROFS) error = errno;
  if (fd >= 0 && close(fd) != 0 && !error) error = errno;
  if (fd >= 0 && !error && rename(temporary.at, path) != 0) error = errno;
  if (fd >= 0 && error) unlink(temporary.at);
  text_free(&temporary);
  return error;
}

int text_write_file(const char *path, const void *bytes, size_t count) {
  struct stat info;
  char *real = realpath(path, NULL); /* of a link its target is replaced, not the link */
  int error = stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)
                  ? write_straight(path, bytes, count)
                  : replace_file(real ? real : path, bytes, count);
  free(real);
  return error;
}

void text_append_json(Text *text, const char *value) {
  text_append(text, "\"", 1);
  for (const unsigned char *at = (const unsigned char *)value; *at; at++) {
    if (*at == '"' || *at == '\\')
      text_printf(text, "\\%c", *at);
    else if (*at < 0x20)
      text_printf(text, "\\u%04x", *at);
    else
      text_append(text, (const char *)at, 1);
  }
  text_append(text, "\"", 1);
}

void text_append_shell(Text *text, const char *word) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-/:%=,@";
  if (*word && word[strspn(word, plain)] == 0) {
    text_append(text, word, strlen(word));
    return;
  }
  text_append(text, "'", 1);
  for (; *word; word++) text_append(text, *word == '\'' ? "'\\''" : word, *word == '\'' ? 4 : 1);
  text_append(text, "'", 1);
}

const char *text_bytes(int64_t bytes, char buffer[32]) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = (double)bytes;
  int unit = 0;
  while (value >= 1024 && unit < 4) value /= 1024, unit++;
  snprintf(buffer, 32, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
  return buffer;
}

void text_append_shortest(Text *text, double value) {
  char digits[40];
  for (int count = 6; count <= 17; count++) {
    snprintf(digits, sizeof digits, "%.*g", count, value);
    if (strtod(digits, NULL) == value) break;
  }
  text_append(text, digits, strlen(digits));
}

void text_make_printable(char *text) {
  for (unsigned char *at = (unsigned char *)text; *at; at++)
    if ((*at < ' ' && *at != '\n') || *at == 0x7f) *at = '?';
}

enum { LONGEST_WORD = 64 };

static int fewest_edits(int a, int b) { return a < b ? a : b; }
static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

/* Insertions, removals, changes and swaps of neighbours, of letters in whatever case. */
static int edit_distance(const char *a, const char *b) {
  size_t rows = strlen(a), columns = strlen(b);
  if (rows > LONGEST_WORD || columns > LONGEST_WORD) return INT32_MAX;
  int row[3][LONGEST_WORD + 1]; /* of i, i - 1 and i - 2, by i % 3 */
  for (size_t j = 0; j <= columns; j++) row[0][j] = (int)j;
  for (size_t i = 1; i <= rows; i++) {
    int *now = row[i % 3], *before = row[(i + 2) % 3], *second = row[(i + 1) % 3];
    now[0] = (int)i;
    for (size_t j = 1; j <= columns; j++) {
      char x = lower(a[i - 1]), y = lower(b[j - 1]);
      now[j] = fewest_edits(before[j - 1] + (x != y), fewest_edits(before[j], now[j - 1]) + 1);
      bool is_swap = i > 1 && j > 1 && x == lower(b[j - 2]) && lower(a[i - 2]) == y;
      if (is_swap) now[j] = fewest_edits(now[j], second[j - 2] + 1);
    }
  }
  return row[rows % 3][columns];
}

/* CrossEntropy, cross-entropy and cross_entropy are one word. */
static bool is_same_word(const char *a, const char *b) {
  for (;; a++, b++) {
    while (*a == '_' || *a == '-') a++;
    while (*b == '_' || *b == '-') b++;
    if (lower(*a) != lower(*b)) return false;
    if (!*a) return true;
  }
}

int text_compare(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

bool text_ends_with(const char *text, const char *end) {
  size_t length = strlen(text), tail = strlen(end);
  return length >= tail && !strcmp(text + length - tail, end);
}

bool text_has_word(const char *list, const char *word) {
  static const char between[] = " ,";
  size_t length = strlen(word);
  for (const char *at = list; at && *at; at += strspn(at, between)) {
    size_t here = strcspn(at, between);
    if (here == length && here && !memcmp(at, word, length)) return true;
    at += here;
  }
  return false;
}

bool text_is_one_of(const char *word, const char *const *list) {
  for (; *list; list++)
    if (!strcmp(word, *list)) return true;
  return false;
}

/* A word of three or four letters may have one fault, one of five to seven two: what differs in half
 * of its letters is another word. */
const char *text_nearest(const char *word, const char *const *candidates, int count) {
  const char *best = NULL;
  int best_distance = ((int)strlen(word) + 1) / 3 + 1;
  for (int i = 0; i < count; i++) {
    int length = (int)strlen(candidates[i]);
    if (strcmp(word, candidates[i]) && is_same_word(word, candidates[i])) return candidates[i];
    int distance = edit_distance(word, candidates[i]);
    if (distance < best_distance && 2 * distance < length) {
      best = candidates[i];
      best_distance = distance;
    }
  }
  return best;
}
