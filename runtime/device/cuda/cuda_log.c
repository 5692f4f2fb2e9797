/* cuda_log: see cuda_log.h. Lines that matter, from ptxas of CUDA 12 and 13:
 *   … : Potential Performance Loss: wgmma.mma_async instructions are serialized due to … in the function 'k3'
 *   … : Function properties for k3
 *       552 bytes stack frame, 600 bytes spill stores, 608 bytes spill loads */
#define _GNU_SOURCE /* memmem */
#include "runtime/device/cuda/cuda_log.h"
#include "base/say.h"
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  const char *at;
  size_t count;
} Line;

/* NULL: it is not there. */
static const char *log_find(Line line, const char *words) {
  return memmem(line.at, line.count, words, strlen(words));
}

static Line rest_of(Line line, const char *at) {
  return (Line){at, (size_t)(line.at + line.count - at)};
}

static Line log_behind(Line line, const char *words) {
  const char *at = log_find(line, words);
  return at ? rest_of(line, at + strlen(words)) : (Line){line.at + line.count, 0};
}

static void copy_printable(Line from, char *to, size_t size) {
  size_t count = from.count < size - 1 ? from.count : size - 1;
  for (size_t i = 0; i < count; i++) to[i] = isprint((unsigned char)from.at[i]) ? from.at[i] : '?';
  to[count] = 0;
}

/* "552 bytes stack frame, 600 bytes spill stores": 600 before " bytes spill stores"; 0: none. */
static long number_before(Line line, const char *words) {
  const char *at = log_find(line, words);
  long number = 0, unit = 1;
  while (at && at > line.at && isdigit((unsigned char)at[-1]) && unit <= 100000000) {
    number += (*--at - '0') * unit;
    unit *= 10;
  }
  return number;
}

/* Cuts " in the function 'k3'" off what is said, or " for the function …". */
static void read_loss(Line said, CudaLogRemark *out) {
  Line name = log_behind(said, "function '");
  const char *quote = name.count ? memchr(name.at, '\'', name.count) : NULL;
  if (quote) {
    copy_printable((Line){name.at, (size_t)(quote - name.at)}, out->kernel, sizeof out->kernel);
    said.count = (size_t)(name.at - strlen("function '") - said.at);
    static const char *const joints[] = {" in the ", " for the "};
    for (int i = 0; i < 2; i++) {
      size_t count = strlen(joints[i]);
      if (said.count >= count && !memcmp(said.at + said.count - count, joints[i], count))
        said.count -= count;
    }
  }
  copy_printable(said, out->words, sizeof out->words);
}

static bool read_log_line(Line line, char *kernel, CudaLogRemark *out) {
  static const char loss[] = "Potential Performance Loss: ", properties[] = "Function properties for ";
  *out = (CudaLogRemark){0};
  if (log_find(line, properties)) copy_printable(log_behind(line, properties), kernel, CUDA_LOG_KERNEL);
  if (log_find(line, loss)) {
    read_loss(log_behind(line, loss), out);
    return true;
  }
  long stores = number_before(line, " bytes spill stores");
  long loads = number_before(line, " bytes spill loads");
  if (!stores && !loads) return false;
  snprintf(out->kernel, sizeof out->kernel, "%s", kernel);
  snprintf(out->words, sizeof out->words,
           "it has too few registers and keeps values in memory instead (spills: %ld bytes of "
           "stores, %ld of loads for each thread)",
           stores, loads);
  return true;
}

static bool is_known_remark(const CudaLogRemark *remark, const CudaLogRemark *known, int count) {
  for (int i = 0; i < count; i++)
    if (!strcmp(remark->kernel, known[i].kernel) && !strcmp(remark->words, known[i].words))
      return true;
  return false;
}

int cuda_log_read(const char *log, size_t size, CudaLogRemark *out, int most) {
  char kernel[CUDA_LOG_KERNEL] = "";
  int count = 0;
  Line left = {log, strnlen(log, size)};
  while (left.count) {
    const char *end = memchr(left.at, '\n', left.count);
    Line line = {left.at, end ? (size_t)(end - left.at) : left.count};
    CudaLogRemark remark;
    if (read_log_line(line, kernel, &remark) &&
        !is_known_remark(&remark, out, count < most ? count : most)) {
      if (count < most) out[count] = remark;
      count++;
    }
    left = end ? rest_of(left, end + 1) : (Line){left.at + left.count, 0};
  }
  return count;
}

void cuda_log_warn(const char *path, const char *log, size_t size) {
  enum { MOST = 8 };
  CudaLogRemark remark[MOST];
  int count = cuda_log_read(log, size, remark, MOST);
  for (int i = 0; i < count && i < MOST; i++)
    say_warning("%s: %s%s%s is slower than it could be: %s", path,
                remark[i].kernel[0] ? "kernel " : "a kernel", remark[i].kernel,
                remark[i].kernel[0] ? "" : " that is not named", remark[i].words);
  if (count > MOST)
    say_warning("%s: the driver's compiler says such things %d more times", path, count - MOST);
}
