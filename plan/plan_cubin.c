/* plan_cubin: see plan_cubin.h. */
#include "plan/plan_cubin.h"
#include "plan/plan_text.h"
#include <ctype.h>
#include <elf.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 96, MACHINE = 190 /* EM_CUDA */ };
static const char head_mark[] = "//@cubin ", data_mark[] = "//@cubin-data ";
static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t plan_ptx_length(const char *text, size_t length) {
  size_t mark = sizeof head_mark - 1;
  for (const char *at = text, *end = text + length; at && (size_t)(end - at) > mark;) {
    if (!memcmp(at, head_mark, mark)) return (size_t)(at - text);
    at = memchr(at, '\n', (size_t)(end - at));
    if (at) at++;
  }
  return length;
}

/* ── writing ──────────────────────────────────────────────────────────────────────────────── */
static void append_base64(Text *out, const uint8_t *bytes, size_t count) {
  for (size_t i = 0; i < count; i += 3) {
    uint32_t left = (uint32_t)(count - i);
    uint32_t group = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                     (left > 2 ? bytes[i + 2] : 0);
    char four[4] = {digits[group >> 18], digits[group >> 12 & 63],
                    left > 1 ? digits[group >> 6 & 63] : '=', left > 2 ? digits[group & 63] : '='};
    text_append(out, four, sizeof four);
  }
}

void plan_append_cubin(Text *out, const char *target, const void *bytes, size_t count) {
  if (out->count && out->at[out->count - 1] != '\n') text_append(out, "\n", 1);
  uint64_t ptx = plan_checksum(text_cstr(out), out->count);
  text_printf(out, "%s1 %s bytes=%zu ptx=%016" PRIx64 " sum=%016" PRIx64 "\n", head_mark, target,
              count, ptx, plan_checksum(bytes, count));
  for (size_t i = 0; i < count; i += LINE_BYTES) {
    text_append(out, data_mark, sizeof data_mark - 1);
    append_base64(out, (const uint8_t *)bytes + i, count - i < LINE_BYTES ? count - i : LINE_BYTES);
    text_append(out, "\n", 1);
  }
}

/* ── reading ──────────────────────────────────────────────────────────────────────────────── */
static int digit_value(char digit) {
  if (digit >= 'A' && digit <= 'Z') return digit - 'A';
  if (digit >= 'a' && digit <= 'z') return digit - 'a' + 26;
  if (digit >= '0' && digit <= '9') return digit - '0' + 52;
  return digit == '+' ? 62 : digit == '/' ? 63 : -1;
}

/* Four digits to at most `most` bytes; how many, -1: they are none. */
static int read_four(const char *at, uint8_t *out, size_t most) {
  int value[4], count = at[3] != '=' ? 3 : at[2] != '=' ? 2 : 1;
  for (int i = 0; i < 4; i++) {
    value[i] = i <= count ? digit_value(at[i]) : 0;
    if (value[i] < 0) return -1;
  }
  uint32_t group = (uint32_t)value[0] << 18 | (uint32_t)value[1] << 12 | (uint32_t)value[2] << 6 |
                   (uint32_t)value[3];
  if ((size_t)count > most) return -1;
  for (int i = 0; i < count; i++) out[i] = (uint8_t)(group >> (16 - 8 * i));
  return count;
}

/* A line's digits, [at, end), behind *used bytes of `count`. */
static bool cubin_line(const char *at, const char *end, uint8_t *out, size_t count, size_t *used) {
  for (; end - at >= 4; at += 4) {
    int got = read_four(at, out + *used, count - *used);
    if (got < 0) return false;
    *used += (size_t)got;
  }
  return at == end;
}

static bool cubin_lines(const char *at, const char *stop, uint8_t *out, size_t count) {
  size_t used = 0, mark = sizeof data_mark - 1;
  while (at < stop) {
    const char *end = memchr(at, '\n', (size_t)(stop - at));
    if (!end) end = stop;
    const char *last = end > at && end[-1] == '\r' ? end - 1 : end;
    bool is_data = (size_t)(last - at) > mark && !memcmp(at, data_mark, mark);
    if (last > at && (!is_data || !cubin_line(at + mark, last, out, count, &used))) return false;
    at = end + 1;
  }
  return used == count;
}

/* What the driver follows in the file lies within it. */
static bool is_whole_elf(const uint8_t *bytes, size_t count) {
  Elf64_Ehdr head;
  Elf64_Shdr section;
  if (count < sizeof head) return false;
  memcpy(&head, bytes, sizeof head);
  if (memcmp(head.e_ident, ELFMAG, SELFMAG) || head.e_ident[EI_CLASS] != ELFCLASS64 ||
      head.e_ident[EI_DATA] != ELFDATA2LSB || head.e_machine != MACHINE)
    return false;
  if (head.e_phnum && (head.e_phentsize != sizeof(Elf64_Phdr) || head.e_phoff > count ||
                       head.e_phnum > (count - head.e_phoff) / sizeof(Elf64_Phdr)))
    return false;
  if (!head.e_shnum) return true;
  if (head.e_shentsize != sizeof section || head.e_shoff > count ||
      head.e_shnum > (count - head.e_shoff) / sizeof section || head.e_shstrndx >= head.e_shnum)
    return false;
  for (int i = 0; i < head.e_shnum; i++) {
    memcpy(&section, bytes + head.e_shoff + (size_t)i * sizeof section, sizeof section);
    bool is_stored = section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL;
    if (is_stored && (section.sh_offset > count || section.sh_size > count - section.sh_offset))
      return false;
  }
  return true;
}

typedef struct {
  char target[16];
  unsigned long long bytes;
  uint64_t ptx, sum;
} CubinHead;

/* The first line, a string. */
static bool cubin_head(const char *line, CubinHead *out) {
  int end = 0;
  if (sscanf(line, "//@cubin 1 %15[a-z0-9_] bytes=%10llu ptx=%16" SCNx64 " sum=%16" SCNx64 "%n",
             out->target, &out->bytes, &out->ptx, &out->sum, &end) != 4)
    return false;
  return !line[end] && !strncmp(out->target, "sm_", 3) && isdigit((unsigned char)out->target[3]);
}

PlanCubin plan_read_cubin(Arena *arena, const char *text, size_t length) {
  size_t start = plan_ptx_length(text, length);
  PlanCubin cubin = {0};
  CubinHead head;
  if (start == length) return cubin;
  const char *line = text + start, *stop = text + length;
  const char *end = memchr(line, '\n', length - start);
  if (!end) end = stop;
  size_t shown = (size_t)(end - line) - (end > line && end[-1] == '\r');
  cubin.target = "?";
  cubin.problem = "its first line is damaged, or of a newer ft";
  if (!cubin_head(arena_strndup(arena, line, shown), &head)) return cubin;
  cubin.target = arena_strdup(arena, head.target);
  cubin.problem = "the PTX before it is not the one that it was made of";
  if (plan_checksum(text, start) != head.ptx) return cubin;
  cubin.problem = "it is damaged";
  if (head.bytes > length - start) return cubin; /* base64 is longer */
  uint8_t *bytes = ARENA_ARRAY(arena, uint8_t, head.bytes + 1);
  const char *data = end < stop ? end + 1 : stop;
  if (!cubin_lines(data, stop, bytes, (size_t)head.bytes)) return cubin;
  if (plan_checksum((const char *)bytes, (size_t)head.bytes) != head.sum) return cubin;
  if (!is_whole_elf(bytes, (size_t)head.bytes)) return cubin;
  cubin.bytes = bytes;
  cubin.count = (size_t)head.bytes;
  cubin.problem = NULL;
  return cubin;
}

/* CUDA C++ Programming Guide, "Binary Compatibility": the same major number and no higher a minor one;
 * of an "a" just that GPU, of an "f" its family, which has the major number. */
bool plan_cubin_fits(const char *target, int major, int minor) {
  char *end;
  long number = strncmp(target, "sm_", 3) ? 0 : strtol(target + 3, &end, 10);
  if (number < 10 || number / 10 != major) return false;
  return *end == 'a' ? number % 10 == minor : number % 10 <= minor;
}
