/* runtime_elf: any bytes as a shared object: its section .ft_plan lies in the file, or it is
 * refused with a message. The file is in memory. */
#define _GNU_SOURCE /* memfd_create */
#include "runtime/artifact/elf.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Text plan = {0};
  int fd = memfd_create("fuzz", 0);
  if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
  Status status = elf_read_section(fd, (int64_t)size, ".ft_plan", &plan);
  if (status != STATUS_OK && (plan.count || !status_message()[0])) abort();
  if (status == STATUS_OK && plan.count && !memmem(data, size, plan.at, plan.count)) abort();
  text_free(&plan);
  close(fd);
  return 0;
}
