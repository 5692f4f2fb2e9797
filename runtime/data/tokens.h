/* tokens: a text as a row of numbers: bytes of any file (`bytes`), or a .bin file of u16 or u32
 * (`tokens`), with the header that llm.c writes (1024 bytes: magic, version, count) or without. */
#ifndef FT_RUNTIME_TOKENS_H
#define FT_RUNTIME_TOKENS_H
#include "runtime/data/source_array.h"

enum { TOKENS_HEADER = 1024 }; /* bytes */
/* The header of a file of `count` tokens of 2 or 4 bytes. */
void tokens_header(int bytes, uint32_t count, uint8_t out[TOKENS_HEADER]);
#endif
