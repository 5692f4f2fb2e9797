/* elf: see elf.h. Invariant: no byte is read but by read_part, which checks that it lies in the
 * file. */
#include "runtime/artifact/elf.h"
#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  int fd;
  uint64_t size;
} File;

static Status damaged(void) {
  return status_fail(STATUS_USER, "is damaged or cut off; compile it again");
}

/* count bytes at offset. A file that shrinks meanwhile is cut off, too. */
static Status elf_read_part(const File *file, uint64_t offset, void *to, uint64_t count) {
  if (offset > file->size || count > file->size - offset) return damaged();
  for (uint64_t done = 0; done < count;) {
    ssize_t got = pread(file->fd, (char *)to + done, count - done, (off_t)(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return status_errno(errno, "cannot be read");
    if (got == 0) return damaged();
    done += (uint64_t)got;
  }
  return STATUS_OK;
}

static Status read_head(const File *file, Elf64_Ehdr *head) {
  Status status =
      file->size < sizeof *head ? damaged() : elf_read_part(file, 0, head, sizeof *head);
  if (status == STATUS_FAULT) return status;
  if (status == STATUS_USER || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
      head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_ident[EI_DATA] != ELFDATA2LSB ||
      head->e_type != ET_DYN)
    return status_fail(STATUS_USER, "is not a 64-bit shared object");
#if defined(__x86_64__)
  if (head->e_machine != EM_X86_64)
    return status_fail(STATUS_USER, "is compiled for another kind of processor");
#endif
  return status;
}

/* The dynamic linker maps what these headers say; a file cut off behind them would be a bus error.
 */
static Status check_segments(const File *file, const Elf64_Ehdr *head) {
  enum { MOST = 64 };
  Elf64_Phdr rows[MOST];
  if (head->e_phentsize != sizeof *rows || head->e_phnum < 1 || head->e_phnum > MOST)
    return damaged();
  STATUS_TRY(elf_read_part(file, head->e_phoff, rows, head->e_phnum * sizeof *rows));
  for (int i = 0; i < head->e_phnum; i++)
    if (rows[i].p_offset > file->size || rows[i].p_filesz > file->size - rows[i].p_offset)
      return damaged();
  return STATUS_OK;
}

/* Does the name at `offset` of the table of names equal `name`? */
static Status has_name(const File *file, const Elf64_Shdr *names, uint64_t offset, const char *name,
                       bool *out) {
  char found[64];
  uint64_t length = strlen(name) + 1;
  *out = false;
  if (length > sizeof found || offset > names->sh_size || length > names->sh_size - offset)
    return STATUS_OK; /* too short for it */
  STATUS_TRY(elf_read_part(file, names->sh_offset + offset, found, length));
  *out = memcmp(found, name, length) == 0;
  return STATUS_OK;
}

static Status find_section(const File *file, const Elf64_Ehdr *head, const char *name,
                           Elf64_Shdr *rows, const Elf64_Shdr **out) {
  *out = NULL;
  STATUS_TRY(elf_read_part(file, head->e_shoff, rows, head->e_shnum * sizeof *rows));
  const Elf64_Shdr *names = &rows[head->e_shstrndx];
  if (names->sh_offset > file->size || names->sh_size > file->size - names->sh_offset)
    return damaged();
  for (int i = 0; i < head->e_shnum; i++) {
    bool is_it;
    STATUS_TRY(has_name(file, names, rows[i].sh_name, name, &is_it));
    if (is_it && *out) return damaged();
    if (is_it) *out = &rows[i];
  }
  return STATUS_OK;
}

Status elf_find_section(int fd, int64_t size, const char *section, int64_t *offset,
                        int64_t *bytes) {
  File file = {fd, (uint64_t)size};
  Elf64_Ehdr head = {0};
  const Elf64_Shdr *found = NULL;
  *offset = 0;
  *bytes = -1;
  STATUS_TRY(read_head(&file, &head));
  STATUS_TRY(check_segments(&file, &head));
  if (head.e_shentsize != sizeof *found || head.e_shstrndx >= head.e_shnum)
    return status_fail(STATUS_USER, "is a shared object, but not one that ftc made");
  Elf64_Shdr *rows = calloc(head.e_shnum, sizeof *rows);
  if (!rows) return status_errno(ENOMEM, "sections");
  Status status = find_section(&file, &head, section, rows, &found);
  bool is_there = found && found->sh_type == SHT_PROGBITS && found->sh_offset <= file.size &&
                  found->sh_size <= file.size - found->sh_offset;
  if (status == STATUS_OK && found && !is_there) status = damaged();
  if (status == STATUS_OK && found) {
    *offset = (int64_t)found->sh_offset;
    *bytes = (int64_t)found->sh_size;
  }
  free(rows);
  return status;
}

Status elf_read_section(int fd, int64_t size, const char *section, Text *out) {
  File file = {fd, (uint64_t)size};
  int64_t offset, count;
  STATUS_TRY(elf_find_section(fd, size, section, &offset, &count));
  if (count < 0) return status_fail(STATUS_USER, "is a shared object, but not one that ftc made");
  char *bytes = malloc((size_t)count + 1);
  if (!bytes) return status_errno(ENOMEM, "the plan");
  Status status = elf_read_part(&file, (uint64_t)offset, bytes, (uint64_t)count);
  if (status == STATUS_OK) text_append(out, bytes, (size_t)count);
  free(bytes);
  return status;
}
