/* bpe_table: see bpe_table.h. */
#include "runtime/text/bpe_table.h"
#include <stdlib.h>
#include <string.h>

static Status no_memory(void) { return status_fail(STATUS_FAULT, "out of memory"); }

/* FNV-1a, finished so that low bits depend on all. */
static size_t hash_bytes(const char *bytes, size_t count) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < count; i++) hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001b3u;
  return (size_t)(hash ^ hash >> 29);
}

static size_t hash_pair(int32_t left, int32_t right) {
  uint64_t hash = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
  return (size_t)(hash ^ hash >> 32);
}

Status bpe_add_token(Bpe *bpe, int64_t number, const char *bytes, size_t count, bool is_added) {
  if (number < 0 || number >= BPE_MOST_TOKENS)
    return status_fail(STATUS_USER, "the number %lld of a token is not in 0..%d", (long long)number,
                       BPE_MOST_TOKENS - 1);
  if (!count) return status_fail(STATUS_USER, "token %lld is empty", (long long)number);
  if (number >= bpe->capacity) {
    int64_t capacity = bpe->capacity * 2 > number + 1 ? bpe->capacity * 2 : number + 1024;
    BpeToken *grown = realloc(bpe->token, (size_t)capacity * sizeof *grown);
    if (!grown) return no_memory();
    memset(grown + bpe->capacity, 0, (size_t)(capacity - bpe->capacity) * sizeof *grown);
    bpe->token = grown;
    bpe->capacity = capacity;
  }
  BpeToken *token = &bpe->token[number];
  if (token->bytes)
    return status_fail(STATUS_USER, "two tokens have the number %lld", (long long)number);
  token->bytes = malloc(count);
  if (!token->bytes) return no_memory();
  memcpy(token->bytes, bytes, count);
  token->count = count;
  token->is_added = is_added;
  if (number >= bpe->count) bpe->count = number + 1;
  return STATUS_OK;
}

/* The place of these bytes, or the empty one where they would be. */
static size_t table_place(const Bpe *bpe, const char *bytes, size_t count) {
  size_t at = hash_bytes(bytes, count) & (bpe->places - 1);
  for (; bpe->place[at] >= 0; at = (at + 1) & (bpe->places - 1)) {
    const BpeToken *token = &bpe->token[bpe->place[at]];
    if (token->count == count && memcmp(token->bytes, bytes, count) == 0) break;
  }
  return at;
}

int32_t bpe_find(const Bpe *bpe, const char *bytes, size_t count) {
  return bpe->place[table_place(bpe, bytes, count)];
}

Status bpe_make_table(Bpe *bpe) {
  bpe->places = 1024;
  while (bpe->places < 2 * (size_t)bpe->count + 2) bpe->places *= 2;
  bpe->place = malloc(bpe->places * sizeof *bpe->place);
  if (!bpe->place) return no_memory();
  for (size_t i = 0; i < bpe->places; i++) bpe->place[i] = -1;
  for (int64_t i = 0; i < bpe->count; i++) {
    const BpeToken *token = &bpe->token[i];
    if (!token->bytes || token->is_added) continue;
    size_t at = table_place(bpe, token->bytes, token->count);
    if (bpe->place[at] >= 0)
      return status_fail(STATUS_USER, "tokens %d and %lld are the same", bpe->place[at],
                         (long long)i);
    bpe->place[at] = (int32_t)i;
  }
  return STATUS_OK;
}

/* ── merges ───────────────────────────────────────────────────────────────────────────────── */
static size_t place_of_pair(const BpeMerge *merge, size_t places, int32_t left, int32_t right) {
  size_t at = hash_pair(left, right) & (places - 1);
  while (merge[at].merged >= 0 && (merge[at].left != left || merge[at].right != right))
    at = (at + 1) & (places - 1);
  return at;
}

static Status grow_merges(Bpe *bpe) {
  size_t places = bpe->merge_places ? 2 * bpe->merge_places : 1024;
  BpeMerge *grown = malloc(places * sizeof *grown);
  if (!grown) return no_memory();
  for (size_t i = 0; i < places; i++) grown[i].merged = -1;
  for (size_t i = 0; i < bpe->merge_places; i++) {
    const BpeMerge *old = &bpe->merge[i];
    if (old->merged >= 0) grown[place_of_pair(grown, places, old->left, old->right)] = *old;
  }
  free(bpe->merge);
  bpe->merge = grown;
  bpe->merge_places = places;
  return STATUS_OK;
}

Status bpe_add_merge(Bpe *bpe, int32_t left, int32_t right, int32_t merged) {
  if (2 * bpe->merges + 2 > bpe->merge_places) STATUS_TRY(grow_merges(bpe));
  size_t at = place_of_pair(bpe->merge, bpe->merge_places, left, right);
  int32_t rank = (int32_t)bpe->merges++;
  bpe->merge[at] = (BpeMerge){left, right, rank, merged}; /* of two, the later one counts */
  return STATUS_OK;
}

const BpeMerge *bpe_find_merge(const Bpe *bpe, int32_t left, int32_t right) {
  if (!bpe->merges) return NULL;
  const BpeMerge *merge = &bpe->merge[place_of_pair(bpe->merge, bpe->merge_places, left, right)];
  return merge->merged < 0 ? NULL : merge;
}
