/* npz: NumPy's archives, zip files (PKWARE's APPNOTE.TXT) of .npy files: numpy.savez, whose members
 * are used where they lie in the mapped file, and numpy.savez_compressed, whose deflated members
 * zlib inflates into memory. A library for zip files would copy the former. Checksums are verified.
 * The file is hostile input, and may change while it is read: each number is read once, then checked,
 * then used. */
#include "runtime/data/keys.h"
#include "runtime/data/npy.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { END = 22, END_64 = 56, LOCATOR_64 = 20, ENTRY = 46, LOCAL = 30, LONGEST_COMMENT = 65535 };
enum { STORED = 0, DEFLATED = 8, LARGEST_DEFLATE = 1032 /* bytes of a deflated one, at most */ };

typedef struct {
  const uint8_t *at;
  size_t size;
  uint64_t entries, directory, directory_bytes;
} Zip;

typedef struct {
  const char *name;
  size_t name_length;
  unsigned flags, method;
  uint32_t sum;
  uint64_t packed, bytes, local;
} Member;

static uint64_t little(const uint8_t *at, int bytes) {
  uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
  return value;
}

static bool has_mark(const Zip *zip, uint64_t at, uint64_t bytes, const char *mark) {
  return bytes <= zip->size && at <= zip->size - bytes && !memcmp(zip->at + at, mark, 4);
}

static Status bad_zip(const char *what) {
  return status_fail(STATUS_USER, "is truncated or damaged: %s", what);
}

/* The record at the end of the file says where the list of members is. */
static Status find_directory(Zip *zip) {
  if (zip->size < END || memcmp(zip->at, "PK", 2) != 0)
    return status_fail(STATUS_USER, "is not a NumPy .npz file");
  size_t end = zip->size - END, most = LONGEST_COMMENT;
  while (!has_mark(zip, end, END, "PK\5\6")) {
    if (!end || !most--) return bad_zip("it has no list of its members");
    end--;
  }
  zip->entries = little(zip->at + end + 10, 2);
  zip->directory_bytes = little(zip->at + end + 12, 4);
  zip->directory = little(zip->at + end + 16, 4);
  if (end >= LOCATOR_64 && has_mark(zip, end - LOCATOR_64, LOCATOR_64, "PK\6\7")) {
    uint64_t wide = little(zip->at + end - LOCATOR_64 + 8, 8);
    if (!has_mark(zip, wide, END_64, "PK\6\6")) return bad_zip("it has no list of its members");
    zip->entries = little(zip->at + wide + 32, 8);
    zip->directory_bytes = little(zip->at + wide + 40, 8);
    zip->directory = little(zip->at + wide + 48, 8);
  }
  if (zip->directory_bytes > zip->size || zip->directory > zip->size - zip->directory_bytes)
    return bad_zip("the list of its members lies outside");
  return STATUS_OK;
}

/* Sizes of 4 GiB and more stand in the extra field, those that are 0xffffffff, in this order. */
static bool read_wide(const uint8_t *extra, size_t length, Member *out) {
  uint64_t *fields[] = {&out->bytes, &out->packed, &out->local};
  while (length >= 4) {
    size_t bytes = (size_t)little(extra + 2, 2), used = 0;
    bool is_wide = little(extra, 2) == 1;
    extra += 4, length -= 4;
    if (bytes > length) return false;
    for (int i = 0; is_wide && i < 3; i++) {
      if (*fields[i] != UINT32_MAX) continue;
      if (bytes - used < 8) return false;
      *fields[i] = little(extra + used, 8);
      used += 8;
    }
    extra += bytes, length -= bytes;
  }
  return true;
}

/* The member whose line stands at *at, which goes to the next. */
static Status read_member(const Zip *zip, uint64_t *at, Member *out) {
  uint64_t end = zip->directory + zip->directory_bytes;
  if (end - *at < ENTRY || !has_mark(zip, *at, ENTRY, "PK\1\2"))
    return bad_zip("the list of its members ends early");
  const uint8_t *line = zip->at + *at;
  size_t name = (size_t)little(line + 28, 2), extra = (size_t)little(line + 30, 2);
  uint64_t bytes = ENTRY + name + extra + little(line + 32, 2);
  if (bytes > end - *at) return bad_zip("the list of its members ends early");
  *out = (Member){.name = (const char *)line + ENTRY,
                  .name_length = name,
                  .flags = (unsigned)little(line + 8, 2),
                  .method = (unsigned)little(line + 10, 2),
                  .sum = (uint32_t)little(line + 16, 4),
                  .packed = little(line + 20, 4),
                  .bytes = little(line + 24, 4),
                  .local = little(line + 42, 4)};
  *at += bytes;
  return read_wide(line + ENTRY + name, extra, out)
             ? STATUS_OK
             : bad_zip("the sizes of a member are not valid");
}

static Status find_member(const Zip *zip, const char *name, Member *out) {
  size_t length = strlen(name);
  uint64_t at = zip->directory;
  Text has = {0};
  for (uint64_t i = 0; i < zip->entries; i++) {
    Status status = read_member(zip, &at, out);
    if (status != STATUS_OK) {
      text_free(&has);
      return status;
    }
    size_t ends =
        out->name_length >= 4 && !memcmp(out->name + out->name_length - 4, ".npy", 4) ? 4 : 0;
    if (out->name_length - ends == length && !memcmp(out->name, name, length)) {
      text_free(&has);
      return STATUS_OK;
    }
    keys_list(&has, out->name, out->name_length - ends);
  }
  Status status = keys_none(name, &has);
  text_free(&has);
  return status;
}

static uint32_t sum_of(const uint8_t *at, size_t bytes) {
  return (uint32_t)crc32_z(crc32_z(0, NULL, 0), at, bytes);
}

/* Exactly `bytes` of them. */
static Status inflate_member(const uint8_t *packed, size_t packed_bytes, uint8_t *out,
                             size_t bytes) {
  z_stream z = {0};
  const size_t most = 1 << 30; /* zlib counts in 32 bits */
  size_t in_rest = packed_bytes, out_rest = bytes;
  if (inflateInit2(&z, -15) != Z_OK) return status_errno(ENOMEM, "zlib");
  z.next_in = (Bytef *)(uintptr_t)packed;
  z.next_out = out;
  int state = Z_OK;
  while (state == Z_OK) {
    if (!z.avail_in) z.avail_in = (uInt)(in_rest < most ? in_rest : most), in_rest -= z.avail_in;
    if (!z.avail_out)
      z.avail_out = (uInt)(out_rest < most ? out_rest : most), out_rest -= z.avail_out;
    state = inflate(&z, Z_NO_FLUSH);
  }
  bool is_whole = state == Z_STREAM_END && !z.avail_out && !out_rest;
  inflateEnd(&z);
  if (state == Z_MEM_ERROR) return status_errno(ENOMEM, "zlib");
  return is_whole ? STATUS_OK : bad_zip("a member cannot be inflated to the length it promises");
}

/* The content of a member: where it lies in the file, or malloc'd in *made. */
static Status open_member(const Zip *zip, const Member *member, const uint8_t **content,
                          void **made) {
  *made = NULL;
  if (member->flags & 1) return status_fail(STATUS_USER, "is encrypted");
  if (member->method != STORED && member->method != DEFLATED)
    return status_fail(STATUS_USER,
                       "is compressed by method %u; stored and deflated members can be read",
                       member->method);
  if (!has_mark(zip, member->local, LOCAL, "PK\3\4")) return bad_zip("a member lies outside");
  uint64_t start = member->local + LOCAL + little(zip->at + member->local + 26, 2) +
                   little(zip->at + member->local + 28, 2);
  if (start > zip->size || member->packed > zip->size - start)
    return bad_zip("a member lies outside");
  *content = zip->at + start;
  if (member->method == STORED) {
    if (member->packed != member->bytes) return bad_zip("the sizes of a member are not valid");
  } else {
    if (member->bytes / LARGEST_DEFLATE > member->packed)
      return bad_zip("a member promises more than it can hold");
    uint8_t *room = malloc(member->bytes ? (size_t)member->bytes : 1);
    *made = room;
    *content = room;
    if (!room)
      return status_errno(ENOMEM, "needs %llu bytes of memory when inflated",
                          (unsigned long long)member->bytes);
    STATUS_TRY(
        inflate_member(zip->at + start, (size_t)member->packed, room, (size_t)member->bytes));
  }
  if (sum_of(*content, (size_t)member->bytes) != member->sum)
    return status_fail(STATUS_USER, "is damaged: the checksum of a member is wrong");
  return STATUS_OK;
}

static Status read_array(const Zip *zip, const Member *member, ArrayHeader *out) {
  const uint8_t *content = NULL;
  void *made;
  Status status = open_member(zip, member, &content, &made);
  ArrayFile file = {.at = content, .count = (size_t)member->bytes};
  size_t bytes = 0;
  if (status == STATUS_OK) status = status_prefix(npy_parse(&file, out), "a member");
  if (status == STATUS_OK &&
      (!array_header_bytes(out, &bytes) || bytes != member->bytes - out->offset))
    status = bad_zip("a member does not hold as many elements as its header promises");
  if (status != STATUS_OK) {
    free(made);
    return status;
  }
  if (made) { /* the elements to the front, which is aligned */
    memmove(made, content + out->offset, bytes);
    out->elements = made;
    out->offset = 0;
  } else {
    out->offset += (size_t)(content - zip->at);
  }
  return STATUS_OK;
}

Status npz_parse(const ArrayFile *file, ArrayHeader *out) {
  Zip zip = {.at = file->at, .size = file->count};
  STATUS_TRY(keys_check(file));
  STATUS_TRY(find_directory(&zip));
  for (int i = 0; i < file->input_count; i++) {
    char name[KEY_MOST + 1];
    Member member;
    STATUS_TRY(keys_name(file, i, name));
    STATUS_TRY(find_member(&zip, name, &member));
    STATUS_TRY(status_prefix(read_array(&zip, &member, &out[i]), "array '%s'", name));
  }
  return STATUS_OK;
}
