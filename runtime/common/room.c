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

static int64_t memory_available(void) {
  FILE *file = fopen("/proc/meminfo", "r");
  char line[128];
  int64_t kib = -1;
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "MemAvailable: %" SCNd64, &kib) == 1) break;
  if (file) fclose(file);
  return kib < 0 ? INT64_MAX : kib << 10;
}

/* What the group uses, but for what the kernel would take back from its cached files. */
static int64_t used_in(const char *folder) {
  char path[1200], line[128];
  int64_t used = 0, cached = 0;
  snprintf(path, sizeof path, "%s/memory.current", folder);
  FILE *file = fopen(path, "r");
  if (file && fscanf(file, "%" SCNd64, &used) != 1) used = 0;
  if (file) fclose(file);
  snprintf(path, sizeof path, "%s/memory.stat", folder);
  file = fopen(path, "r");
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "inactive_file %" SCNd64, &cached) == 1) break;
  if (file) fclose(file);
  return cached < used ? used - cached : 0;
}

int64_t room_now(void) {
  char folder[1100];
  int64_t room = memory_available();
  for (group_folder(folder, sizeof folder); strchr(folder, '/'); *strrchr(folder, '/') = 0) {
    int64_t limit = limit_in(folder);
    if (limit < INT64_MAX && limit - used_in(folder) < room) room = limit - used_in(folder);
  }
  return room < 0 ? 0 : room;
}
