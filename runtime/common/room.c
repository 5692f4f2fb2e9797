/* room: see room.h. /proc/meminfo counts in KiB; a group's limit is a number of bytes or "max". */
#include "runtime/common/room.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int64_t memory_and_swap(void) {
  FILE *file = fopen("/proc/meminfo", "r");
  char line[128];
  int64_t total = 0, kib;
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "MemTotal: %" SCNd64, &kib) == 1 ||
        sscanf(line, "SwapTotal: %" SCNd64, &kib) == 1)
      total += kib << 10;
  if (file) fclose(file);
  return total ? total : INT64_MAX;
}

/* "0::/a/b" names this process's group. */
static void group_folder(char *out, size_t size) {
  FILE *file = fopen("/proc/self/cgroup", "r");
  char line[1024];
  out[0] = 0;
  while (file && fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = 0;
    if (strncmp(line, "0::", 3) == 0) snprintf(out, size, "/sys/fs/cgroup%s", line + 3);
  }
  if (file) fclose(file);
}

static int64_t limit_in(const char *folder) {
  char path[1200];
  int64_t limit = INT64_MAX;
  snprintf(path, sizeof path, "%s/memory.max", folder);
  FILE *file = fopen(path, "r");
  if (!file) return INT64_MAX;
  if (fscanf(file, "%" SCNd64, &limit) != 1) limit = INT64_MAX; /* "max" */
  fclose(file);
  return limit;
}

int64_t room_of_host(void) {
  char folder[1100];
  int64_t room = memory_and_swap();
  for (group_folder(folder, sizeof folder); strchr(folder, '/'); *strrchr(folder, '/') = 0) {
    int64_t limit = limit_in(folder);
    if (limit < room) room = limit;
  }
  return room;
}
