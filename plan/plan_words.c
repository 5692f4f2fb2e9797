/* plan_words: the words of one line of a plan: names, strings, numbers, types. Invariant: `at`
 * never moves past the NUL that ends the line, and a failure is reported once, with its line. */
#include "plan/plan_words.h"
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_LENGTH = 4096 };

bool words_fail(Words *p, const char *format, ...) {
  if (p->why) return false;
  va_list args;
  va_start(args, format);
  p->why = arena_printf(p->arena, "line %d: %s", p->line, arena_vprintf(p->arena, format, args));
  va_end(args);
  return false;
}

void words_skip(Words *p) {
  while (*p->at == ' ') p->at++;
}

bool words_at_end(Words *p) {
  words_skip(p);
  return *p->at == 0;
}

/* Takes `text` if it comes next. Words end where no letter or digit follows. */
bool words_take(Words *p, const char *text) {
  words_skip(p);
  size_t length = strlen(text);
  if (strncmp(p->at, text, length) != 0) return false;
  if (isalnum((unsigned char)text[length - 1]) &&
      (isalnum((unsigned char)p->at[length]) || p->at[length] == '_'))
    return false;
  p->at += length;
  return true;
}

bool words_expect(Words *p, const char *text) {
  return words_take(p, text) || words_fail(p, "expected '%s'", text);
}

/* A bare word: letters, digits, and ._- */
const char *words_word(Words *p, const char *what) {
  words_skip(p);
  size_t length = 0;
  while (isalnum((unsigned char)p->at[length]) || (p->at[length] && strchr("@._-", p->at[length])))
    length++;
  if (!length || length > NAME_LENGTH) {
    words_fail(p, "expected %s", what);
    return NULL;
  }
  const char *result = arena_strndup(p->arena, p->at, length);
  p->at += length;
  return result;
}

static int hex_digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A quoted string. */
const char *words_string(Words *p, const char *what) {
  words_skip(p);
  if (*p->at != '"') {
    words_fail(p, "expected %s in quotes", what);
    return NULL;
  }
  size_t longest = 0; /* up to the closing quote: what escapes shorten is no matter */
  for (p->at++; p->at[longest] && p->at[longest] != '"'; longest++)
    if (p->at[longest] == '\\' && p->at[longest + 1]) longest++;
  char *out = arena_alloc(p->arena, longest + 1), *to = out;
  for (; *p->at && *p->at != '"'; p->at++) {
    unsigned char c = (unsigned char)*p->at;
    if (c == '\\' && (p->at[1] == '"' || p->at[1] == '\\')) {
      c = (unsigned char)*++p->at;
    } else if (c == '\\' && p->at[1] == 'x' && hex_digit(p->at[2]) >= 0 &&
               hex_digit(p->at[3]) >= 0) {
      c = (unsigned char)(hex_digit(p->at[2]) * 16 + hex_digit(p->at[3]));
      p->at += 3;
      if (c != 0 && (c < 0x20 || c > 0x7e)) { /* what the printer escapes, and nothing else */
        *to++ = (char)c;
        continue;
      }
      c = 0;
    } else if (c == '\\') {
      c = 0;
    }
    if (c < 0x20 || c > 0x7e) {
      words_fail(p, "%s holds a character that may not stand there", what);
      return NULL;
    }
    *to++ = (char)c;
  }
  if (*p->at != '"') {
    words_fail(p, "%s lacks its closing quote", what);
    return NULL;
  }
  p->at++;
  return out;
}

const char *words_name(Words *p, const char *what) {
  const char *text = words_string(p, what);
  if (!text) return NULL;
  size_t length = strlen(text);
  bool is_good = length > 0 && length <= NAME_LENGTH;
  for (size_t i = 0; i < length; i++) {
    unsigned char c = (unsigned char)text[i];
    is_good = is_good && c < 0x80 &&
              (isalnum(c) || c == '_' || (i && (c == '.' || c == '-')) ||
               ((!i || text[i - 1] == '.') && own_is(text + i)));
  }
  if (is_good) return text;
  words_fail(p, "%s is no name of letters, digits, '_', '-' and '.'", what);
  return NULL;
}

bool words_integer(Words *p, const char *what, int64_t low, int64_t high, int64_t *out) {
  words_skip(p);
  char *end = NULL;
  errno = 0;
  bool is_digit = isdigit((unsigned char)p->at[*p->at == '-']);
  long long value = is_digit ? strtoll(p->at, &end, 10) : 0;
  if (!is_digit || errno == ERANGE) return words_fail(p, "expected %s, a whole number", what);
  if (value < low || value > high)
    return words_fail(p, "%s is %lld; it must lie in %" PRId64 "..%" PRId64, what, value, low,
                      high);
  p->at = end;
  *out = value;
  return true;
}

bool words_number(Words *p, const char *what, double *out) {
  words_skip(p);
  char *end = NULL;
  char first = p->at[*p->at == '-'];
  if (!isdigit((unsigned char)first)) return words_fail(p, "expected %s, a number", what);
  if (first == '0' && (p->at[(*p->at == '-') + 1] | 32) == 'x')
    return words_fail(p, "expected %s, a decimal number", what);
  *out = strtod(p->at, &end);
  if (!isfinite(*out)) return words_fail(p, "%s is not finite", what);
  p->at = end;
  return true;
}

bool words_value(Words *p, const char *what, double *out) {
  if (words_take(p, "nan"))
    *out = NAN;
  else if (words_take(p, "most"))
    *out = INFINITY;
  else if (words_take(p, "least"))
    *out = -INFINITY;
  else
    return words_number(p, what, out);
  return true;
}

/* What follows "[", to the "]" or ":" behind them. */
static bool read_dimensions(Words *p, Shape *out) {
  *out = (Shape){0};
  while (*p->at != ']' && !(out->rank && *p->at == ':')) {
    if (out->rank == MAX_RANK) return words_fail(p, "there are more than %d dimensions", MAX_RANK);
    if (out->rank && *p->at++ != ',') return words_fail(p, "expected ',' or ']' among dimensions");
    if (!words_integer(p, "a dimension", 0, INT64_MAX, &out->dim[out->rank++])) return false;
  }
  return true;
}

static bool read_type_end(Words *p) {
  return *p->at++ == ']' || words_fail(p, "a pitch is for buffers only");
}

bool words_shape(Words *p, Shape *out) {
  return words_expect(p, "[") && read_dimensions(p, out) && read_type_end(p);
}

bool words_type(Words *p, Type *out) {
  if (!words_type_in_memory(p, out, false)) return false;
  return !dtype_is_float8(out->dtype) || words_fail(p, "only working memory holds %s", dtype_text(out->dtype));
}

bool words_type_in_memory(Words *p, Type *out, bool may_have_pitch) {
  words_skip(p);
  char dtype[8] = "";
  size_t length = strcspn(p->at, "[ ");
  if (length < sizeof dtype) memcpy(dtype, p->at, length);
  *out = (Type){0};
  if (p->at[length] != '[' || !dtype_parse(dtype, &out->dtype))
    return words_fail(p, "expected a type such as f32[64,10]");
  p->at += length + 1;
  if (!read_dimensions(p, &out->shape)) return false;
  int64_t bytes = dtype_bytes(out->dtype);
  for (int i = 0; i < out->shape.rank; i++) { /* without zeros, so that partial products fit too */
    int64_t dim = out->shape.dim[i] ? out->shape.dim[i] : 1;
    if (__builtin_mul_overflow(bytes, dim, &bytes) || bytes > LARGEST_PLACE)
      return words_fail(p, "a type is too large");
  }
  if (!may_have_pitch || *p->at != ':') return read_type_end(p);
  p->at++;
  if (!words_integer(p, "a pitch", 1, LARGEST_PLACE, &out->pitch)) return false;
  if (!type_has_legal_pitch(out))
    return words_fail(p, "a pitch is a multiple of %d bytes, at least a row and at most two", PITCH_UNIT);
  return read_type_end(p);
}
