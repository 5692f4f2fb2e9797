/* bpe: see bpe.h. Within a piece the pair of lowest rank is merged wherever it stands, from left to
 * right; then the pairs that there are now are ranked again. A heap of pairs does that in n log n
 * steps: a pair that a merge makes waits until all pairs of the current rank are merged. */
#include "runtime/text/bpe.h"
#include "runtime/text/bpe_table.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
  int32_t rank, at, left, right;
} Pair;

/* A piece at work: its symbols as a list; heap and later hold pairs that may be gone by now. */
typedef struct {
  const Bpe *bpe;
  int32_t *symbol, *before, *after; /* symbol -1: merged into the one before */
  Pair *heap, *later;
  int32_t heap_count, later_count;
} Piece;

/* ── the heap ─────────────────────────────────────────────────────────────────────────────── */
static bool is_first(const Pair *a, const Pair *b) {
  return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push_pair(Piece *piece, Pair pair) {
  int32_t at = piece->heap_count++;
  for (int32_t up; at > 0 && is_first(&pair, &piece->heap[up = (at - 1) / 2]); at = up)
    piece->heap[at] = piece->heap[up];
  piece->heap[at] = pair;
}

static Pair pop(Piece *piece) {
  Pair first = piece->heap[0], last = piece->heap[--piece->heap_count];
  int32_t at = 0, down;
  while ((down = 2 * at + 1) < piece->heap_count) {
    if (down + 1 < piece->heap_count && is_first(&piece->heap[down + 1], &piece->heap[down]))
      down++;
    if (!is_first(&piece->heap[down], &last)) break;
    piece->heap[at] = piece->heap[down];
    at = down;
  }
  piece->heap[at] = last;
  return first;
}

/* ── merging ──────────────────────────────────────────────────────────────────────────────── */
static bool pair_at(const Piece *piece, int32_t at, Pair *out) {
  if (at < 0 || piece->after[at] < 0) return false;
  int32_t left = piece->symbol[at], right = piece->symbol[piece->after[at]];
  const BpeMerge *merge = bpe_find_merge(piece->bpe, left, right);
  if (merge) *out = (Pair){merge->rank, at, left, right};
  return merge != NULL;
}

static void merge_pair(Piece *piece, const Pair *pair) {
  int32_t at = pair->at, gone = piece->after[at];
  if (piece->symbol[at] != pair->left || gone < 0 || piece->symbol[gone] != pair->right) return;
  Pair fresh;
  piece->symbol[at] = bpe_find_merge(piece->bpe, pair->left, pair->right)->merged;
  piece->symbol[gone] = -1;
  piece->after[at] = piece->after[gone];
  if (piece->after[at] >= 0) piece->before[piece->after[at]] = at;
  if (pair_at(piece, piece->before[at], &fresh)) piece->later[piece->later_count++] = fresh;
  if (pair_at(piece, at, &fresh)) piece->later[piece->later_count++] = fresh;
}

static void merge_all(Piece *piece, int32_t count) {
  Pair pair;
  for (int32_t i = 0; i < count; i++)
    if (pair_at(piece, i, &pair)) push_pair(piece, pair);
  int32_t rank = -1;
  while (piece->heap_count || piece->later_count) {
    if (!piece->heap_count || piece->heap[0].rank != rank) {
      while (piece->later_count) push_pair(piece, piece->later[--piece->later_count]);
      rank = piece->heap[0].rank;
    }
    pair = pop(piece);
    merge_pair(piece, &pair);
  }
}

/* ── a text ───────────────────────────────────────────────────────────────────────────────── */
Status bpe_tokens_add(BpeTokens *out, int64_t token) {
  if (out->count == out->capacity) {
    size_t capacity = out->capacity ? 2 * out->capacity : 64;
    int64_t *grown = realloc(out->at, capacity * sizeof *grown);
    if (!grown) return status_fail(STATUS_FAULT, "out of memory");
    out->at = grown;
    out->capacity = capacity;
  }
  out->at[out->count++] = token;
  return STATUS_OK;
}

static Status get_room(Bpe *bpe, size_t count, Piece *piece) {
  const size_t each = 3 * sizeof(int32_t) + 5 * sizeof(Pair); /* a merge makes two pairs at most */
  if (count > bpe->work_capacity) {
    void *grown = realloc(bpe->work, count * each);
    if (!grown) return status_fail(STATUS_FAULT, "out of memory");
    bpe->work = grown;
    bpe->work_capacity = count;
  }
  *piece = (Piece){.bpe = bpe, .heap = bpe->work};
  piece->later = piece->heap + 3 * count;
  piece->symbol = (int32_t *)(piece->later + 2 * count);
  piece->before = piece->symbol + count;
  piece->after = piece->before + count;
  return STATUS_OK;
}

static Status encode_piece(Bpe *bpe, const char *text, size_t count, BpeTokens *out) {
  Piece piece = {0};
  if (count > INT32_MAX / 8)
    return status_fail(STATUS_USER, "%zu bytes of text without a place to cut them", count);
  STATUS_TRY(get_room(bpe, count, &piece));
  int32_t length = (int32_t)count;
  for (int32_t i = 0; i < length; i++) {
    piece.symbol[i] = bpe->byte[(unsigned char)text[i]];
    piece.before[i] = i - 1;
    piece.after[i] = i + 1 < length ? i + 1 : -1;
  }
  merge_all(&piece, length);
  for (int32_t i = 0; i >= 0; i = piece.after[i]) STATUS_TRY(bpe_tokens_add(out, piece.symbol[i]));
  return STATUS_OK;
}

/* The added token that stands at `text`, the longest one; -1: none. */
static int32_t added_at(const Bpe *bpe, const char *text, size_t count) {
  int32_t best = -1;
  for (int i = 0; i < bpe->added_count; i++) {
    const BpeToken *token = &bpe->token[bpe->added[i]];
    if (token->count <= count && token->bytes[0] == *text &&
        memcmp(token->bytes, text, token->count) == 0 &&
        (best < 0 || token->count > bpe->token[best].count))
      best = bpe->added[i];
  }
  return best;
}

static Status encode_plain(Bpe *bpe, const char *text, size_t count, BpeTokens *out) {
  const char *piece;
  pretoken_start(bpe->pretoken, text, count);
  for (size_t bytes; (bytes = pretoken_next(bpe->pretoken, &piece)) > 0;)
    STATUS_TRY(encode_piece(bpe, piece, bytes, out));
  return STATUS_OK;
}

Status bpe_encode(Bpe *bpe, const char *text, size_t count, BpeTokens *out) {
  bool begins[256] = {false};
  for (int i = 0; i < bpe->added_count; i++)
    begins[(unsigned char)bpe->token[bpe->added[i]].bytes[0]] = true;
  size_t plain = 0;
  for (size_t i = 0; i < count;) {
    int32_t token = begins[(unsigned char)text[i]] ? added_at(bpe, text + i, count - i) : -1;
    if (token < 0) {
      i++;
      continue;
    }
    STATUS_TRY(encode_plain(bpe, text + plain, i - plain, out));
    STATUS_TRY(bpe_tokens_add(out, token));
    plain = i += bpe->token[token].count;
  }
  return encode_plain(bpe, text + plain, count - plain, out);
}

int64_t bpe_count(const Bpe *bpe) { return bpe->count; }

const char *bpe_bytes(const Bpe *bpe, int64_t token, size_t *count) {
  bool is_there = token >= 0 && token < bpe->count && bpe->token[token].bytes;
  *count = is_there ? bpe->token[token].count : 0;
  return is_there ? bpe->token[token].bytes : "";
}

int64_t bpe_end_of_text(const Bpe *bpe) {
  static const char name[] = "<|endoftext|>";
  for (int i = 0; i < bpe->added_count; i++) {
    const BpeToken *token = &bpe->token[bpe->added[i]];
    if (token->count == strlen(name) && memcmp(token->bytes, name, token->count) == 0)
      return bpe->added[i];
  }
  return -1;
}

void bpe_free(Bpe *bpe) {
  if (!bpe) return;
  for (int64_t i = 0; i < bpe->count; i++) free(bpe->token[i].bytes);
  free(bpe->token);
  free(bpe->place);
  free(bpe->merge);
  free(bpe->work);
  pretoken_free(bpe->pretoken);
  free(bpe);
}
