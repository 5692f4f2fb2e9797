/* read_whole: the content of a file in memory of our own, which nothing that happens to the file
 * changes any more. Pipes, devices and folders are refused at once, without waiting for their
 * writers. */
#ifndef FT_RUNTIME_READ_WHOLE_H
#define FT_RUNTIME_READ_WHOLE_H
#include "runtime/common/status.h"
#include <stddef.h>
#include <stdint.h>

/* *out is freed by munmap(*out, *bytes); *bytes > 0. */
STATUS_CHECKED Status read_whole(const char *path, uint8_t **out, size_t *bytes);
/* Its parts: a descriptor of a regular file that is not empty, or how long one that is open is; and the
 * reading. */
STATUS_CHECKED Status read_whole_size(const char *path, int fd, size_t *bytes);
STATUS_CHECKED Status read_whole_open(const char *path, int *fd, size_t *bytes);
STATUS_CHECKED Status read_whole_from(const char *path, int fd, size_t bytes, uint8_t **out);
/* The failure of a file that has lost bytes meanwhile. */
STATUS_CHECKED Status read_whole_shorter(const char *path);
#endif
