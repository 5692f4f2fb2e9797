/* tar_file: see tar_file.h. */
#include "runtime/data/tar_file.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { WINDOW = 1 << 16, MOST_EXTRA = 1 << 20 /* bytes of a long name or of pax records */ };

uint32_t tar_head_sum(const uint8_t head[TAR_BLOCK]) { return (uint32_t)crc32(0, head, TAR_BLOCK); }

Status tar_file_start(int fd, uint64_t base, uint64_t size, TarFile *out) {
  *out = (TarFile){.fd = fd, .base = base, .size = size, .window = malloc(WINDOW)};
  return out->window ? STATUS_OK : status_errno(ENOMEM, "cannot be read");
}

void tar_file_end(TarFile *tar) {
  text_free(&tar->name);
  text_free(&tar->longer);
  free(tar->window);
  *tar = (TarFile){0};
}

/* The block at `at`, which lies in the archive. */
static Status tar_block(TarFile *tar, uint64_t at, const uint8_t **out) {
  if (at < tar->window_at || at + TAR_BLOCK > tar->window_at + tar->window_count) {
    uint64_t left = tar->size - at;
    size_t want = left < WINDOW ? (size_t)left : WINDOW, have = 0;
    while (have < want) {
      ssize_t got = pread(tar->fd, tar->window + have, want - have, (off_t)(tar->base + at + have));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return status_errno(errno, "cannot be read");
      if (!got) return status_fail(STATUS_USER, "has become shorter while it was read");
      have += (size_t)got;
    }
    tar->window_at = at;
    tar->window_count = have;
  }
  *out = tar->window + (at - tar->window_at);
  return STATUS_OK;
}

/* ── numbers ──────────────────────────────────────────────────────────────────────────────── */
/* Octal digits between blanks, as far as a NUL; or, with the first bit set, bytes. */
static bool tar_number(const uint8_t *field, int bytes, uint64_t *out) {
  uint64_t value = 0;
  int i = 0;
  *out = 0;
  if (field[0] == 0x80) {
    for (i = 1; i < bytes; i++) {
      if (value >> 55) return false;
      value = value << 8 | field[i];
    }
    *out = value;
    return true;
  }
  while (i < bytes && field[i] == ' ') i++;
  for (; i < bytes && field[i] >= '0' && field[i] <= '7'; i++) value = value << 3 | (field[i] & 7u);
  while (i < bytes && field[i] == ' ') i++;
  *out = value;
  return i == bytes || !field[i];
}

static bool tar_sum_fits(const uint8_t *head) {
  enum { SUM = 148, SUM_BYTES = 8 };
  uint64_t wanted;
  int64_t plain = 0, with_sign = 0; /* some programs add up bytes with a sign */
  for (int i = 0; i < TAR_BLOCK; i++) {
    bool is_sum = i >= SUM && i < SUM + SUM_BYTES;
    plain += is_sum ? ' ' : head[i];
    with_sign += is_sum ? ' ' : (int8_t)head[i];
  }
  return tar_number(head + SUM, SUM_BYTES, &wanted) &&
         ((int64_t)wanted == plain || (int64_t)wanted == with_sign);
}

static bool is_zero_block(const uint8_t *block) {
  for (int i = 0; i < TAR_BLOCK; i++)
    if (block[i]) return false;
  return true;
}

/* ── heads in front of a head ─────────────────────────────────────────────────────────────── */
/* The content of such a member. */
static Status tar_extra(TarFile *tar, uint64_t size, Text *out) {
  if (size > MOST_EXTRA)
    return status_fail(STATUS_USER, "is damaged: a member's name or pax head takes %llu bytes",
                       (unsigned long long)size);
  out->count = 0;
  text_append(out, "", 0);
  for (uint64_t done = 0; done < size; done += TAR_BLOCK) {
    const uint8_t *block;
    STATUS_TRY(tar_block(tar, tar->at + done, &block));
    uint64_t some = size - done < TAR_BLOCK ? size - done : TAR_BLOCK;
    text_append(out, (const char *)block, (size_t)some);
  }
  return STATUS_OK;
}

static Status bad_pax(void) {
  return status_fail(STATUS_USER, "is damaged: a pax head is not valid");
}

static bool has_key(const char *record, size_t length, const char *key) {
  size_t count = strlen(key);
  return length >= count && !memcmp(record, key, count);
}

/* "key=value" of `length` bytes. */
static Status take_pax(TarFile *tar, const char *record, size_t length, bool is_global) {
  bool is_path = has_key(record, length, "path="), is_size = has_key(record, length, "size=");
  if (has_key(record, length, "GNU.sparse.")) tar->is_sparse = true;
  if (!is_path && !is_size) return STATUS_OK;
  if (is_global)
    return status_fail(STATUS_USER, "has a pax head that gives all members one %s",
                       is_path ? "name" : "size");
  if (is_path) {
    tar->longer.count = 0;
    text_append(&tar->longer, record + 5, length - 5);
    tar->has_longer = true;
    return memchr(record, 0, length) ? bad_pax() : STATUS_OK;
  }
  tar->pax_size = 0;
  for (size_t i = 5; i < length; i++) {
    if (record[i] < '0' || record[i] > '9' || tar->pax_size >> 58) return bad_pax();
    tar->pax_size = tar->pax_size * 10 + (uint64_t)(record[i] - '0');
  }
  tar->has_size = length > 5;
  return STATUS_OK;
}

/* Records of "length key=value\n", the length being that of the record. */
static Status read_pax(TarFile *tar, const Text *text, bool is_global) {
  for (size_t at = 0; at < text->count;) {
    size_t length = 0, i = at;
    for (; i < text->count && text->at[i] >= '0' && text->at[i] <= '9' && length <= MOST_EXTRA; i++)
      length = length * 10 + (size_t)(text->at[i] - '0');
    if (i == at && !text->at[i]) return STATUS_OK; /* zeros behind the last one */
    if (i == at || i == text->count || text->at[i] != ' ' || length > text->count - at ||
        length < i - at + 3 || text->at[at + length - 1] != '\n')
      return bad_pax();
    STATUS_TRY(take_pax(tar, text->at + i + 1, at + length - 1 - (i + 1), is_global));
    at += length;
  }
  return STATUS_OK;
}

/* A long name or pax records, which belong to the member that follows. */
static Status read_extra(TarFile *tar, char kind, uint64_t size) {
  Text text = {0};
  Status status = tar_extra(tar, size, &text);
  if (status == STATUS_OK && kind == 'L') {
    tar->longer.count = 0;
    text_append(&tar->longer, text.at, strlen(text_cstr(&text)));
    tar->has_longer = true;
  } else if (status == STATUS_OK && kind != 'K') {
    status = read_pax(tar, &text, kind == 'g');
  }
  text_free(&text);
  return status;
}

/* ── members ──────────────────────────────────────────────────────────────────────────────── */
static void read_name(TarFile *tar, const uint8_t *head) {
  const char *name = (const char *)head, *prefix = name + 345;
  bool has_prefix = !memcmp(head + 257, "ustar\0", 6) && *prefix;
  tar->name.count = 0;
  text_append(&tar->name, "", 0);
  if (tar->has_longer) {
    text_append(&tar->name, text_cstr(&tar->longer), tar->longer.count);
    return;
  }
  if (has_prefix) text_printf(&tar->name, "%.155s/", prefix);
  text_printf(&tar->name, "%.100s", name);
}

/* What follows the blocks of zeros has to be zeros: another archive behind it would be left out. */
static Status tar_check_rest(TarFile *tar) {
  for (; tar->size - tar->at >= TAR_BLOCK; tar->at += TAR_BLOCK) {
    const uint8_t *block;
    STATUS_TRY(tar_block(tar, tar->at, &block));
    if (!is_zero_block(block))
      return status_fail(STATUS_USER,
                         "goes on behind its end, at byte %llu: archives that were joined are read "
                         "one by one",
                         (unsigned long long)tar->at);
  }
  return STATUS_OK;
}

static Status no_head(const TarFile *tar) {
  if (!tar->at) return status_fail(STATUS_USER, "is no tar archive");
  return status_fail(STATUS_USER, "is damaged: at byte %llu stands no member of a tar archive",
                     (unsigned long long)tar->at);
}

static bool is_file_kind(char kind) { return !kind || kind == '0' || kind == '7' || kind == 'S'; }

/* Takes the head at `at`, and goes behind it and its content. *is_file: it is one. */
static Status tar_take(TarFile *tar, const uint8_t *head, TarMember *out, bool *is_file) {
  uint64_t size;
  char kind = (char)head[156];
  if (!tar_sum_fits(head) || !tar_number(head + 124, 12, &size)) return no_head(tar);
  out->head_sum = tar_head_sum(head);
  read_name(tar, head);
  bool is_extra = kind && strchr("LKxXg", kind), is_regular = is_file_kind(kind);
  size_t length = tar->name.count;
  if (!kind && length && tar->name.at[length - 1] == '/') is_regular = false; /* an old folder */
  if (tar->has_size && !is_extra) size = tar->pax_size;
  if (!is_extra && !is_regular && (!kind || strchr("123456", kind))) size = 0;
  tar->at += TAR_BLOCK;
  uint64_t left = tar->size - tar->at;
  if (size > left || (size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK > left)
    return status_fail(STATUS_USER,
                       "is truncated: member %.200s has %llu bytes, but only %llu follow",
                       text_cstr(&tar->name), (unsigned long long)size, (unsigned long long)left);
  if (is_extra) STATUS_TRY(read_extra(tar, kind, size));
  if (is_regular && (kind == 'S' || tar->is_sparse))
    return status_fail(STATUS_USER, "holds the sparse file %.200s: pack it without --sparse",
                       text_cstr(&tar->name));
  if (!is_extra) tar->has_longer = tar->has_size = tar->is_sparse = false;
  out->name = text_cstr(&tar->name);
  out->offset = tar->at;
  out->size = size;
  tar->at += (size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
  *is_file = is_regular;
  return STATUS_OK;
}

Status tar_file_next(TarFile *tar, TarMember *out, bool *is_end) {
  *is_end = false;
  for (bool is_file = false; !is_file;) {
    const uint8_t *head;
    if (tar->size - tar->at < TAR_BLOCK) {
      if (!tar->at) return no_head(tar);
      return status_fail(STATUS_USER, "is truncated: the blocks of zeros at its end are missing");
    }
    STATUS_TRY(tar_block(tar, tar->at, &head));
    if (is_zero_block(head)) {
      *is_end = true;
      return tar_check_rest(tar);
    }
    STATUS_TRY(tar_take(tar, head, out, &is_file));
  }
  return STATUS_OK;
}
