/* pretoken: see pretoken.h. The pattern is the one of OpenAI's encoder.py, with white space written
 * out: PCRE2's \s has U+180E too, which is none. The text is checked here, once, and PCRE2 told so,
 * since it would check all the rest at each piece. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "runtime/text/pretoken.h"
#include "runtime/common/utf8.h"
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#define SPACE                                                                                      \
  "\\t-\\r "                                                                                       \
  "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
static const char pattern[] =
    "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|"
    "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+";

struct Pretoken {
  pcre2_code *code;
  pcre2_match_data *match;
  const char *text;
  size_t left, valid; /* valid: so many bytes are known to be characters */
};

Status pretoken_new(Pretoken **out) {
  Pretoken *pretoken = calloc(1, sizeof *pretoken);
  int error = 0;
  PCRE2_SIZE place;
  if (!pretoken) return status_fail(STATUS_FAULT, "out of memory");
  pretoken->code =
      pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &place, NULL);
  if (pretoken->code) {
    (void)pcre2_jit_compile(pretoken->code, PCRE2_JIT_COMPLETE); /* slower without, no more */
    pretoken->match = pcre2_match_data_create_from_pattern(pretoken->code, NULL);
  }
  if (!pretoken->match) {
    pretoken_free(pretoken);
    return status_fail(STATUS_FAULT, "PCRE2 does not take the tokenizer's pattern: error %d",
                       error);
  }
  *out = pretoken;
  return STATUS_OK;
}

void pretoken_free(Pretoken *pretoken) {
  if (!pretoken) return;
  pcre2_match_data_free(pretoken->match);
  pcre2_code_free(pretoken->code);
  free(pretoken);
}

void pretoken_start(Pretoken *pretoken, const char *text, size_t count) {
  pretoken->text = text;
  pretoken->left = count;
  pretoken->valid = 0;
}

static size_t match(Pretoken *pretoken, uint32_t flags) {
  int found = pcre2_match(pretoken->code, (PCRE2_SPTR)pretoken->text, pretoken->valid, 0,
                          flags | PCRE2_NO_UTF_CHECK | PCRE2_ANCHORED, pretoken->match, NULL);
  return found > 0 ? pcre2_get_ovector_pointer(pretoken->match)[1] : 0;
}

static size_t pretoken_measure(Pretoken *pretoken) {
  const char *text = pretoken->text;
  size_t left = pretoken->left;
  int length;
  while (!pretoken->valid && pretoken->valid < left) { /* as far as there are characters */
    size_t at = 0;
    while ((length = utf8_character(text + at, left - at)) > 0) at += (size_t)length;
    if (at) {
      pretoken->valid = at;
      break;
    }
    for (at = 1; at < left && !utf8_character(text + at, left - at);) at++;
    return at;
  }
  if (!left) return 0;
  size_t bytes = match(pretoken, 0);
  if (!bytes) bytes = match(pretoken, PCRE2_NO_JIT); /* a run too long for the compiled form */
  return bytes ? bytes : (size_t)utf8_character(text, left);
}

size_t pretoken_next(Pretoken *pretoken, const char **piece) {
  size_t bytes = pretoken_measure(pretoken);
  *piece = pretoken->text;
  pretoken->text += bytes;
  pretoken->left -= bytes;
  pretoken->valid -= pretoken->valid < bytes ? pretoken->valid : bytes;
  return bytes;
}
