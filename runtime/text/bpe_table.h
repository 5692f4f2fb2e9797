/* bpe_table: what bpe.c and bpe_load.c share: tokens by number and by bytes, merges by their two
 * sides. Open addressing, at most half full. */
#ifndef FT_RUNTIME_BPE_TABLE_H
#define FT_RUNTIME_BPE_TABLE_H
#include "runtime/text/bpe.h"
#include "runtime/text/pretoken.h"
#include <stdbool.h>

enum { BPE_MOST_TOKENS = 1 << 22, BPE_MOST_ADDED = 4096 };

typedef struct {
  char *bytes; /* NULL: no token of this number */
  size_t count;
  bool is_added; /* written in the text as it is */
} BpeToken;

typedef struct {
  int32_t left, right, rank, merged; /* merged -1: an empty place */
} BpeMerge;

struct Bpe {
  BpeToken *token;
  int64_t count, capacity;
  int32_t *place; /* by hash of a token's bytes: its number, -1: empty */
  size_t places;
  BpeMerge *merge;
  size_t merges, merge_places;
  int32_t byte[256]; /* the token of each byte */
  int32_t added[BPE_MOST_ADDED];
  int added_count;
  Pretoken *pretoken;
  void *work; /* of bpe_encode */
  size_t work_capacity;
};

/* Adds a token; the bytes are copied. A number or bytes that are taken are an error. */
STATUS_CHECKED Status bpe_add_token(Bpe *bpe, int64_t number, const char *bytes, size_t count,
                                    bool is_added);
/* -1: there is no such token. Added ones are not looked for. */
int32_t bpe_find(const Bpe *bpe, const char *bytes, size_t count);
STATUS_CHECKED Status bpe_make_table(Bpe *bpe);
STATUS_CHECKED Status bpe_add_merge(Bpe *bpe, int32_t left, int32_t right, int32_t merged);
const BpeMerge *bpe_find_merge(const Bpe *bpe, int32_t left, int32_t right); /* NULL: none */
#endif
