/* text: a growing string (malloc'd, always NUL-terminated), whole-file reading and atomic
 * writing, and the nearest-name suggestion that our error messages use. */
#ifndef FT_BASE_TEXT_H
#define FT_BASE_TEXT_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct {
  char *at; /* NULL until the first append; use text_cstr to read */
  size_t count, capacity;
} Text;

void text_append(Text *text, const char *bytes, size_t count);
void text_printf(Text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_vprintf(Text *text, const char *format, va_list args);
const char *text_cstr(const Text *text);
void text_free(Text *text);

/* Appends the file to *out. Returns 0, or an errno value. "-" is not special. */
int text_read_file(Text *out, const char *path);
/* All of the bytes, however many calls it takes. Returns 0, or an errno value. */
int text_write_all(int fd, const void *bytes, size_t count);
/* Writes beside `path`, fsyncs, renames over it: a reader sees the old file or the new one.
 * Returns 0, or an errno value (ENOSPC and the like; the temporary file is then removed). */
int text_write_file(const char *path, const void *bytes, size_t count);

/* The candidate nearest to `word` by edit distance, or NULL if none is near enough to suggest. */
const char *text_nearest(const char *word, const char *const *candidates, int count);
#endif
