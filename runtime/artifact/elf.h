/* elf: one section of a shared object, read without loading it, so that nothing in the file runs.
 * The file may come from anyone: every number in it is checked against the file's size. */
#ifndef FT_RUNTIME_ELF_H
#define FT_RUNTIME_ELF_H
#include "base/text.h"
#include "runtime/common/status.h"
#include <stdint.h>

/* Appends the section's bytes to *out. Refused are files that are no whole 64-bit shared object for
 * this machine and those that lack the section; the message follows the file's name ("is cut
 * off"). `size` is the file's. */
STATUS_CHECKED Status elf_read_section(int fd, int64_t size, const char *section, Text *out);
/* Where the section's bytes are in the file; *bytes -1: it has no such section. The same files are refused. */
STATUS_CHECKED Status elf_find_section(int fd, int64_t size, const char *section, int64_t *offset,
                                       int64_t *bytes);
#endif
