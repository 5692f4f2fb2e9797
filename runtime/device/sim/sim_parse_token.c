/* sim_parse_token: words, numbers and signs of PTX. */
#include "runtime/device/sim/sim_parse.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

Status parse_fail(const Parser *p, const char *format, ...) {
  va_list args;
  va_start(args, format);
  Status status = sim_fail_at(p->module, p->line, format, args);
  va_end(args);
  return status;
}

void parse_skip_space(Parser *p) {
  while (p->at < p->end) {
    if (*p->at == '\n') {
      p->line++;
      p->at++;
    } else if (isspace((unsigned char)*p->at)) {
      p->at++;
    } else if (p->end - p->at >= 2 && p->at[0] == '/' && p->at[1] == '/') {
      const char *eol = memchr(p->at, '\n', (size_t)(p->end - p->at));
      p->at = eol ? eol : p->end;
    } else if (p->end - p->at >= 2 && p->at[0] == '/' && p->at[1] == '*') {
      for (p->at += 2;
           p->at < p->end && !(p->at[0] == '*' && p->end - p->at > 1 && p->at[1] == '/'); p->at++)
        if (*p->at == '\n') p->line++;
      p->at = p->end - p->at >= 2 ? p->at + 2 : p->end;
    } else {
      return;
    }
  }
}

static bool is_word_char(char c) {
  return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

static Status read_hex(Parser *p, int digits, uint64_t *out) {
  int seen = 0;
  *out = 0;
  while (p->at < p->end && isxdigit((unsigned char)*p->at)) {
    int c = tolower((unsigned char)*p->at++);
    if (++seen > digits) break;
    *out = *out << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  if (seen == 0 || seen > digits || (digits != 16 && seen != digits))
    return parse_fail(p, "a number has %s digits", seen > digits ? "too many" : "too few");
  return STATUS_OK;
}

static Status sim_read_number(Parser *p) {
  char kind = p->end - p->at >= 2 && p->at[0] == '0' ? (char)tolower((unsigned char)p->at[1]) : 0;
  p->token = TOKEN_NUMBER;
  p->number = (PtxValue){.kind = VALUE_INT};
  if (kind == 'x' || kind == 'f' || kind == 'd') {
    p->at += 2;
    if (kind == 'f') p->number.kind = VALUE_F32;
    if (kind == 'd') p->number.kind = VALUE_F64;
    STATUS_TRY(read_hex(p, kind == 'f' ? 8 : 16, &p->number.bits));
  } else {
    while (p->at < p->end && isdigit((unsigned char)*p->at)) {
      uint64_t digit = (uint64_t)(*p->at++ - '0');
      if (p->number.bits > (UINT64_MAX - digit) / 10) return parse_fail(p, "a number is too large");
      p->number.bits = p->number.bits * 10 + digit;
    }
    if (p->at < p->end && *p->at == '.')
      return parse_fail(p, "numbers with a point are not supported; write 0f or 0d and the bits");
  }
  if (p->at < p->end && *p->at == 'U') p->at++;
  if (p->at < p->end && is_word_char(*p->at)) return parse_fail(p, "a number ends in '%c'", *p->at);
  return STATUS_OK;
}

/* The "::" of .shared::cta, either half of it. */
static bool is_colons(const Parser *p) {
  if (*p->at != ':') return false;
  return (p->end - p->at > 1 && p->at[1] == ':') || p->at[-1] == ':';
}

Status parse_next(Parser *p) {
  parse_skip_space(p);
  p->word[0] = 0;
  if (p->at >= p->end) {
    p->token = 0;
    return STATUS_OK;
  }
  unsigned char c = (unsigned char)*p->at;
  if (isdigit(c)) return sim_read_number(p);
  if (is_word_char((char)c)) {
    size_t length = 0;
    while (p->at < p->end && (is_word_char(*p->at) || is_colons(p))) {
      if (length + 1 >= sizeof p->word)
        return parse_fail(p, "a name is longer than %d", MOST_WORD - 1);
      p->word[length++] = *p->at++;
    }
    p->word[length] = 0;
    p->token = TOKEN_WORD;
    return STATUS_OK;
  }
  if (c == '"') {
    const char *close = memchr(p->at + 1, '"', (size_t)(p->end - p->at - 1));
    if (!close || memchr(p->at, '\n', (size_t)(close - p->at)))
      return parse_fail(p, "a string has no end");
    p->at = close + 1;
    p->token = TOKEN_STRING;
    return STATUS_OK;
  }
  if (c < 32 || c > 126) return parse_fail(p, "a byte %d that PTX does not have", c);
  p->token = c;
  p->at++;
  return STATUS_OK;
}

const char *parse_token_text(const Parser *p, char out[TOKEN_TEXT]) {
  if (p->token == TOKEN_WORD)
    snprintf(out, TOKEN_TEXT, "'%.70s'", p->word);
  else if (p->token == TOKEN_NUMBER || p->token == TOKEN_STRING)
    snprintf(out, TOKEN_TEXT, "a %s", p->token == TOKEN_NUMBER ? "number" : "string");
  else if (p->token)
    snprintf(out, TOKEN_TEXT, "'%c'", p->token);
  else
    snprintf(out, TOKEN_TEXT, "the end of the file");
  return out;
}

Status parse_expect(Parser *p, int token, const char *what) {
  char text[TOKEN_TEXT];
  if (p->token != token)
    return parse_fail(p, "expected %s, found %s", what, parse_token_text(p, text));
  return parse_next(p);
}

bool parse_is_word(const Parser *p, const char *word) {
  return p->token == TOKEN_WORD && !strcmp(p->word, word);
}

Status parse_count(Parser *p, int64_t most, int64_t *out) {
  if (p->token != TOKEN_NUMBER || p->number.kind != VALUE_INT || p->number.bits > (uint64_t)most)
    return parse_fail(p, "expected a whole number from 0 to %lld", (long long)most);
  *out = (int64_t)p->number.bits;
  return parse_next(p);
}
