/* npy: see npy.h. The header is a Python dictionary with exactly the keys descr, fortran_order and
 * shape; the parser knows that much Python and no more. */
#include "runtime/data/npy.h"
#include "base/text.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  const char *at, *end;
} Scan;

static void npy_skip_space(Scan *scan) {
  while (scan->at < scan->end && strchr(" \t\n\r", *scan->at) && *scan->at) scan->at++;
}

static bool npy_take(Scan *scan, char c) {
  npy_skip_space(scan);
  if (scan->at == scan->end || *scan->at != c) return false;
  scan->at++;
  return true;
}

static bool npy_take_word(Scan *scan, const char *word) {
  npy_skip_space(scan);
  size_t length = strlen(word);
  if ((size_t)(scan->end - scan->at) < length || memcmp(scan->at, word, length) != 0) return false;
  scan->at += length;
  return true;
}

/* A string in either quote, without escapes; false if longer than the buffer. */
static bool take_string(Scan *scan, char *out, size_t capacity) {
  npy_skip_space(scan);
  if (scan->at == scan->end || (*scan->at != '\'' && *scan->at != '"')) return false;
  char quote = *scan->at++;
  size_t length = 0;
  while (scan->at < scan->end && *scan->at != quote) {
    if (length + 1 >= capacity || *scan->at == '\\') return false;
    out[length++] = *scan->at++;
  }
  if (scan->at == scan->end) return false;
  scan->at++;
  out[length] = 0;
  return true;
}

static bool take_shape(Scan *scan, Shape *shape) {
  if (!npy_take(scan, '(')) return false;
  while (!npy_take(scan, ')')) {
    npy_skip_space(scan);
    int64_t value = 0;
    const char *start = scan->at;
    for (; scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9'; scan->at++) {
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, *scan->at - '0', &value))
        return false;
    }
    if (scan->at == start || shape->rank == MAX_RANK) return false;
    shape->dim[shape->rank++] = value;
    if (!npy_take(scan, ',')) return npy_take(scan, ')');
  }
  return true;
}

static bool element_of_descr(const char *descr, ArrayHeader *out) {
  static const struct {
    const char *code;
    Element element;
  } codes[] = {
      {"b1", ELEMENT_BOOL}, {"u1", ELEMENT_U8},  {"i1", ELEMENT_I8},  {"u2", ELEMENT_U16},
      {"i2", ELEMENT_I16},  {"u4", ELEMENT_U32}, {"i4", ELEMENT_I32}, {"i8", ELEMENT_I64},
      {"f2", ELEMENT_F16},  {"f4", ELEMENT_F32}, {"f8", ELEMENT_F64},
  };
  char order = descr[0];
  if (!order || !strchr("<>|=", order)) return false;
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    if (strcmp(descr + 1, codes[i].code) != 0) continue;
    out->element = codes[i].element;
    out->is_big_endian = order == '>';
    return true;
  }
  return false;
}

static Status parse_dictionary(Scan *scan, ArrayHeader *out) {
  char key[32], descr[32];
  bool has_descr = false, has_order = false, has_shape = false;
  if (!npy_take(scan, '{')) goto damaged;
  while (!npy_take(scan, '}')) {
    if (!take_string(scan, key, sizeof key) || !npy_take(scan, ':')) goto damaged;
    if (strcmp(key, "descr") == 0 && !has_descr) {
      npy_skip_space(scan);
      if (scan->at < scan->end && *scan->at == '[')
        return status_fail(STATUS_USER, "holds a structured array; expected one of plain numbers");
      if (!take_string(scan, descr, sizeof descr)) goto damaged;
      if (!element_of_descr(descr, out))
        return status_fail(STATUS_USER,
                           "holds elements of NumPy type '%s'; expected b1, u1, i1, u2, i2, u4, "
                           "i4, i8, f2, f4 or f8",
                           descr);
      has_descr = true;
    } else if (strcmp(key, "fortran_order") == 0 && !has_order) {
      if (npy_take_word(scan, "True")) {
        return status_fail(STATUS_USER, "is in Fortran order; save it with "
                                        "numpy.save(file, numpy.ascontiguousarray(array))");
      }
      if (!npy_take_word(scan, "False")) goto damaged;
      has_order = true;
    } else if (strcmp(key, "shape") == 0 && !has_shape) {
      if (!take_shape(scan, &out->shape)) goto damaged;
      has_shape = true;
    } else {
      goto damaged;
    }
    if (!npy_take(scan, ',')) {
      if (!npy_take(scan, '}')) goto damaged;
      break;
    }
  }
  if (has_descr && has_order && has_shape) return STATUS_OK;
damaged:
  return status_fail(STATUS_USER, "is damaged: its NumPy header is not valid");
}

Status npy_parse(const ArrayFile *file, ArrayHeader *out) {
  const uint8_t *head = file->at;
  size_t count = file->count;
  *out = (ArrayHeader){0};
  if (count < 10 || memcmp(head, "\x93NUMPY", 6) != 0)
    return status_fail(STATUS_USER, "is not a NumPy .npy file%s",
                       count >= 2 && !memcmp(head, "PK", 2) ? "; npz(...) reads an .npz" : "");
  int major = head[6];
  if (major < 1 || major > 3)
    return status_fail(STATUS_USER, "is a .npy file of version %d; expected 1, 2 or 3", major);
  size_t start = major == 1 ? 10 : 12;
  if (count < start) return status_fail(STATUS_USER, "is truncated within the NumPy header");
  size_t length = (size_t)head[8] | (size_t)head[9] << 8;
  if (major > 1) length |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
  if (length > count - start)
    return status_fail(STATUS_USER, "is truncated or damaged: its NumPy header promises %zu bytes",
                       length);
  out->offset = start + length;
  Scan scan = {(const char *)head + start, (const char *)head + start + length};
  return parse_dictionary(&scan, out);
}

/* ── writing ──────────────────────────────────────────────────────────────────────────────── */

struct NpyWriter {
  FILE *file;
  char *path;
  Text temporary;
};

static const char *descr_of(DType dtype) {
  static const char *const text[DT_COUNT] = {
      [DT_BOOL] = "|b1", [DT_U8] = "|u1",  [DT_I32] = "<i4", [DT_U32] = "<u4",
      [DT_I64] = "<i8",  [DT_F16] = "<f2", [DT_F32] = "<f4", [DT_F64] = "<f8",
  };
  return text[dtype];
}

static Status write_header(NpyWriter *writer, const Type *type) {
  char header[512];
  int at = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                    descr_of(type->dtype));
  for (int i = 0; i < type->shape.rank; i++)
    at += snprintf(header + at, sizeof header - (size_t)at, i ? " %lld," : "%lld,",
                   (long long)type->shape.dim[i]);
  if (type->shape.rank > 1) at--; /* one comma makes a tuple of one, none is needed for more */
  at += snprintf(header + at, sizeof header - (size_t)at, "), }");
  while ((10 + at + 1) % 64) header[at++] = ' ';
  header[at++] = '\n';
  uint8_t start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (uint8_t)at, (uint8_t)(at >> 8)};
  STATUS_TRY(npy_writer_append(writer, start, sizeof start));
  return npy_writer_append(writer, header, (size_t)at);
}

static Status open_writer(NpyWriter *writer, const char *path, const Type *type) {
  int fd = -1;
  writer->path = strdup(path);
  if (!writer->path) return status_errno(ENOMEM, "%s", path);
  int error = text_open_beside(path, &writer->temporary, &fd);
  if (!error && !(writer->file = fdopen(fd, "wb"))) error = errno;
  if (error && fd >= 0) close(fd);
  if (error && fd >= 0) unlink(writer->temporary.at);
  return error ? status_errno(error, "cannot write %s", path) : write_header(writer, type);
}

Status npy_writer_open(const char *path, const Type *type, NpyWriter **out) {
  *out = NULL;
  if (!descr_of(type->dtype))
    return status_fail(STATUS_USER, "%s: NumPy has no %s", path, dtype_text(type->dtype));
  NpyWriter *writer = calloc(1, sizeof *writer);
  if (!writer) return status_errno(ENOMEM, "%s", path);
  Status status = open_writer(writer, path, type);
  if (status == STATUS_OK)
    *out = writer;
  else
    npy_writer_free(writer);
  return status;
}

Status npy_writer_append(NpyWriter *writer, const void *bytes, size_t count) {
  if (count == 0 || fwrite(bytes, 1, count, writer->file) == count) return STATUS_OK;
  return status_errno(errno, "cannot write %s", writer->path);
}

Status npy_writer_commit(NpyWriter *writer) {
  int error = 0;
  if (fflush(writer->file) != 0 || (fsync(fileno(writer->file)) != 0 && errno != EINVAL))
    error = errno;
  if (fclose(writer->file) != 0 && !error) error = errno;
  writer->file = NULL;
  if (!error && rename(writer->temporary.at, writer->path) != 0) error = errno;
  if (!error) return STATUS_OK;
  unlink(writer->temporary.at);
  return status_errno(error, "cannot write %s", writer->path);
}

void npy_writer_free(NpyWriter *writer) {
  if (!writer) return;
  if (writer->file) {
    fclose(writer->file);
    unlink(writer->temporary.at);
  }
  free(writer->path);
  text_free(&writer->temporary);
  free(writer);
}
