/* text: a growing string (malloc'd, always NUL-terminated), whole-file reading and atomic
 * writing, and the nearest-name suggestion that our error messages use. */
#ifndef FT_BASE_TEXT_H
#define FT_BASE_TEXT_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
  char *at; /* NULL until the first append; use text_cstr to read */
  size_t count, capacity;
} Text;

void text_append(Text *text, const char *bytes, size_t count);
void text_printf(Text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_vprintf(Text *text, const char *format, va_list args);
const char *text_cstr(const Text *text);
void text_free(Text *text);

/* Appends the file to *out. Returns 0, or an errno value, or TEXT_IRREGULAR: a pipe or a device in
 * the file system, which could keep us for ever (those of /dev/stdin and /dev/fd are read). "-" is
 * not special. */
int text_read_file(Text *out, const char *path);
enum { TEXT_IRREGULAR = -1 };
const char *text_error(int error);
/* Do both paths lead to one file that is there? */
bool text_same_file(const char *a, const char *b);
bool text_is_fault(int error); /* the machine's, not the user's: a full disk, no memory */
/* All of the bytes, however many calls it takes. Returns 0, or an errno value. */
int text_write_all(int fd, const void *bytes, size_t count);
/* Writes beside `path`, fsyncs, renames over it: a reader sees the old file or the new one. Links
 * are followed; a device or a pipe is written to as it is. Returns 0, or an errno value (ENOSPC and
 * the like; the temporary file is then removed). */
int text_write_file(const char *path, const void *bytes, size_t count);
/* For files that cannot be written straight: a new one beside `path`, under a name (host, process,
 * a random number) that no other process uses, appended to *temporary. Returns 0, an errno value,
 * or TEXT_IRREGULAR: what has that name now is a device, a pipe or the like, which a rename would
 * replace. text_error has words for all of them. */
int text_open_beside(const char *path, Text *temporary, int *fd);
/* Before an end without memory (memory.h): removes such files that are still under way; of this
 * thread only, where others go on. */
void text_remove_temporaries(bool of_this_thread);
/* A rename or a new folder lasts when the folder it is in is on the disk too. A folder that cannot
 * be synced is not worth a failure. */
void text_sync_parent(const char *path);

bool text_ends_with(const char *text, const char *end);
int text_compare(const void *a, const void *b); /* of two strings, where they are: for qsort and bsearch */
/* Does the list have the word, between spaces or commas? list may be NULL. */
bool text_has_word(const char *list, const char *word);
bool text_is_one_of(const char *word, const char *const *list); /* which ends with NULL */
/* As a string of JSON, with its quotes. */
void text_append_json(Text *text, const char *value);
/* As one word of a shell's command line, in quotes where it needs them. */
void text_append_shell(Text *text, const char *word);
/* With the fewest digits that read back as this number: 0.1, 1e-05. */
void text_append_shortest(Text *text, double value);
/* "1.50 MiB", into the caller's buffer, which it returns. */
const char *text_bytes(int64_t bytes, char buffer[32]);
/* Control characters become '?', but for newlines: what comes from a file must not steer a
 * terminal. */
void text_make_printable(char *text);

/* The candidate to suggest in place of `word`: one of the same letters in another case or with other
 * underscores, or else the nearest by edit distance; NULL: none is near enough for its length. */
const char *text_nearest(const char *word, const char *const *candidates, int count);
#endif
