/* tokens: a text as a row of numbers: bytes of any file (`bytes`), or a .bin file of u16 or u32
 * (`tokens`), with the header that llm.c writes (1024 bytes: magic, version, count) or without. */
#ifndef FT_RUNTIME_TOKENS_H
#define FT_RUNTIME_TOKENS_H
#include "runtime/data/source_array.h"

enum { TOKENS_HEADER = 1024 }; /* bytes */
/* The header of a file of `count` tokens of 2 or 4 bytes. */
void tokens_header(int bytes, uint32_t count, uint8_t out[TOKENS_HEADER]);

/* kind "bytes", "tokens16" or "tokens32"; `head` is the file's beginning, `size` its whole length.
 * The failure's text goes on after the file's name. */
bool tokens_is_kind(const char *kind);
STATUS_CHECKED Status tokens_parse(const char *kind, const uint8_t *head, size_t count, size_t size,
                                   ArrayHeader *out);
#endif
