/* utf8: characters as Unicode 3.9, table 3-7, has them: no overlong forms, no surrogates, none
 * beyond U+10FFFF. */
#ifndef FT_RUNTIME_UTF8_H
#define FT_RUNTIME_UTF8_H
#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character that begins with this one; 1 for what begins none. */
static inline int utf8_length(unsigned char first) {
  if (first < 0xc2 || first >= 0xf5) return 1;
  return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* May `byte` be byte `index` (from 1) of a character that begins with `first`? */
static inline bool utf8_continues(unsigned char first, int index, unsigned char byte) {
  if ((byte & 0xc0) != 0x80) return false;
  if (index > 1) return true;
  return !(first == 0xe0 && byte < 0xa0) && !(first == 0xed && byte > 0x9f) &&
         !(first == 0xf0 && byte < 0x90) && !(first == 0xf4 && byte > 0x8f);
}

/* The length of the character at text[0 .. count); 0 if there is none. */
static inline int utf8_character(const char *text, size_t count) {
  const unsigned char *at = (const unsigned char *)text;
  int length = count ? utf8_length(at[0]) : 0;
  if (!length || (size_t)length > count || (length == 1 && at[0] >= 0x80)) return 0;
  for (int i = 1; i < length; i++)
    if (!utf8_continues(at[0], i, at[i])) return 0;
  return length;
}
#endif
