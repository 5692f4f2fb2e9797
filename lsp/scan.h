/* scan: the words of a text that may be wrong anywhere, as it is while somebody types. Unlike the
 * lexer it never fails: what is no word of the language is a sign by itself. Each token knows the
 * bracket that it is in; a declaration in the first column of a line ends all that are open. */
#ifndef FT_LSP_SCAN_H
#define FT_LSP_SCAN_H
#include "base/arena.h"
#include <stdbool.h>

typedef enum { SCAN_NAME, SCAN_NUMBER, SCAN_STRING, SCAN_COMMENT, SCAN_SIGN } ScanKind;

typedef struct {
  ScanKind kind;
  uint32_t start, end;
  int parent;    /* the innermost ( [ or { around it; -1: none. A bracket is in what it opens in */
  int partner;   /* of a bracket the other one; -1: there is none */
  bool is_first; /* of its line, or behind ; or { */
  bool is_new_line; /* of its line */
} ScanToken;

typedef struct {
  Arena *arena;
  const char *text; /* ends with a NUL */
  size_t length;
  VEC(ScanToken) tokens;
} Scan;

Scan *scan_text(Arena *arena, const char *text, size_t length);
bool scan_is(const Scan *scan, int token, const char *word); /* false outside of the text */
bool scan_is_name(const Scan *scan, int token);
/* The token that the offset is in or at the end of; a name before anything else. -1: none. */
int scan_at(const Scan *scan, size_t offset);
/* The last token that begins before the offset, comments left out; -1: none. */
int scan_before(const Scan *scan, size_t offset);
/* The innermost bracket that is open at the offset; -1: none. Sets *in_word: inside a comment or string. */
int scan_open_at(const Scan *scan, size_t offset, bool *in_word);
const char *scan_word(Arena *arena, const Scan *scan, int token);
/* The next token and the one before that are no comments; -1: none. */
int scan_next(const Scan *scan, int token);
int scan_previous(const Scan *scan, int token);
bool scan_is_declaration(const Scan *scan, int token); /* `model`, `hyper` ... at its beginning */
#endif
