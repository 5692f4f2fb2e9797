/* text_pack: see text_pack.h. Rows with room are kept in a list for each size of it, and a bit says
 * which lists have one, so that the least room that is enough is found by words of 64 sizes. */
#include "runtime/data/text_pack.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = -1 };

/* How many pieces there are; into `piece`, unless it is NULL. */
static int64_t cut_pieces(const int64_t *behind, int64_t documents, int64_t width, bool cut,
                          TextPiece *piece) {
  int64_t count = 0, start = 0;
  for (int64_t i = 0; i < documents; i++)
    for (int64_t length; start < behind[i]; start += length) {
      int64_t room = cut ? width - start % width : width;
      length = behind[i] - start < room ? behind[i] - start : room;
      if (piece) piece[count] = (TextPiece){start, (int32_t)length};
      count++;
    }
  return count;
}

/* Rows with room for `room` more tokens. */
typedef struct {
  int64_t width;
  int32_t *head;   /* by room: a row, or NONE */
  int32_t *next;   /* by row */
  uint64_t *has;   /* by room: a bit */
  int32_t *number; /* by row: its number once it has one */
} Rooms;

static void rooms_push(Rooms *rooms, int64_t room, int32_t row) {
  rooms->next[row] = rooms->head[room];
  rooms->head[room] = row;
  rooms->has[room / 64] |= (uint64_t)1 << room % 64;
}

/* A row with the least room that is enough, taken out; NONE: there is none. */
static int32_t rooms_pop(Rooms *rooms, int64_t needed, int64_t *room) {
  int64_t word = needed / 64, words = rooms->width / 64 + 1;
  uint64_t bits = rooms->has[word] & ~(uint64_t)0 << needed % 64;
  while (!bits && ++word < words) bits = rooms->has[word];
  if (!bits) return NONE;
  *room = word * 64 + __builtin_ctzll(bits);
  int32_t row = rooms->head[*room];
  rooms->head[*room] = rooms->next[row];
  if (rooms->head[*room] == NONE) rooms->has[word] &= ~((uint64_t)1 << *room % 64);
  return row;
}

/* Pieces by length, longest first; of one length in their order. */
static int32_t *longest_first(const TextPiece *piece, int64_t count, int64_t width) {
  int32_t *order = malloc((size_t)count * sizeof *order);
  int64_t *place = calloc((size_t)width + 2, sizeof *place);
  for (int64_t i = 0; order && place && i < count; i++) place[width - piece[i].length + 1]++;
  for (int64_t k = 0; order && place && k <= width; k++) place[k + 1] += place[k];
  for (int64_t i = 0; order && place && i < count; i++)
    order[place[width - piece[i].length]++] = (int32_t)i;
  if (!place) {
    free(order);
    order = NULL;
  }
  free(place);
  return order;
}

/* row[i]: of piece i. Returns how many rows. */
static int64_t best_fit(const TextPiece *piece, int64_t count, const int32_t *order, Rooms *rooms,
                        int32_t *row) {
  int32_t rows = 0;
  for (int64_t i = 0; i < count; i++) {
    int64_t length = piece[order[i]].length, room = rooms->width;
    int32_t found = rooms_pop(rooms, length, &room);
    if (found == NONE) found = rows++, room = rooms->width;
    row[order[i]] = found;
    if (room > length) rooms_push(rooms, room - length, found);
  }
  /* numbered in the order of their first pieces */
  int32_t numbered = 0;
  for (int64_t i = 0; i < rows; i++) rooms->number[i] = NONE;
  for (int64_t i = 0; i < count; i++) {
    if (rooms->number[row[i]] == NONE) rooms->number[row[i]] = numbered++;
    row[i] = rooms->number[row[i]];
  }
  return rows;
}

/* Puts pieces into the order of their rows. */
static Status order_pieces(TextPack *out, const int32_t *row) {
  TextPiece *ordered = malloc((size_t)out->pieces * sizeof *ordered);
  out->first = calloc((size_t)out->rows + 2, sizeof *out->first);
  if (!ordered || !out->first) {
    free(ordered);
    return status_errno(ENOMEM, "the list of rows");
  }
  int64_t *place = out->first + 1; /* of a row: where its next piece goes, at last where it ends */
  for (int64_t i = 0; i < out->pieces; i++) place[row[i] + 1]++;
  for (int64_t i = 1; i <= out->rows; i++) place[i] += place[i - 1];
  for (int64_t i = 0; i < out->pieces; i++) ordered[place[row[i]]++] = out->piece[i];
  free(out->piece);
  out->piece = ordered;
  return STATUS_OK;
}

static Status fill_rows_best(TextPack *out, int64_t width) {
  size_t count = (size_t)out->pieces, sizes = (size_t)width + 1;
  int32_t *order = longest_first(out->piece, out->pieces, width);
  int32_t *row = malloc(count * sizeof *row);
  Rooms rooms = {.width = width,
                 .head = malloc(sizes * sizeof *rooms.head),
                 .next = malloc(count * sizeof *rooms.next),
                 .has = calloc(sizes / 64 + 1, sizeof *rooms.has),
                 .number = malloc(count * sizeof *rooms.number)};
  bool is_made = order && row && rooms.head && rooms.next && rooms.has && rooms.number;
  for (size_t i = 0; is_made && i < sizes; i++) rooms.head[i] = NONE;
  if (is_made) out->rows = best_fit(out->piece, out->pieces, order, &rooms, row);
  Status status =
      is_made ? order_pieces(out, row) : status_errno(ENOMEM, "the list of rows");
  free(order);
  free(row);
  free(rooms.head);
  free(rooms.next);
  free(rooms.has);
  free(rooms.number);
  return status;
}

/* Pieces end where rows do. */
static Status fill_rows_in_order(TextPack *out, int64_t width) {
  const TextPiece *last = &out->piece[out->pieces - 1];
  out->rows = (last->start + last->length + width - 1) / width;
  out->first = calloc((size_t)out->rows + 1, sizeof *out->first);
  if (!out->first) return status_errno(ENOMEM, "the list of rows");
  for (int64_t i = 0; i < out->pieces; i++) out->first[out->piece[i].start / width + 1] = i + 1;
  return STATUS_OK;
}

Status text_pack(const int64_t *behind, int64_t documents, int64_t width, bool cut, TextPack *out) {
  *out = (TextPack){.pieces = cut_pieces(behind, documents, width, cut, NULL)};
  if (!out->pieces) return status_fail(STATUS_USER, "has no token in its documents");
  if (out->pieces > INT32_MAX)
    return status_fail(STATUS_USER, "has %lld documents or pieces of them: at most %d are packed",
                       (long long)out->pieces, INT32_MAX);
  out->piece = malloc((size_t)out->pieces * sizeof *out->piece);
  if (!out->piece) return status_errno(ENOMEM, "the list of documents");
  (void)cut_pieces(behind, documents, width, cut, out->piece);
  Status status = cut ? fill_rows_in_order(out, width) : fill_rows_best(out, width);
  if (status != STATUS_OK) text_pack_free(out);
  return status;
}

void text_pack_free(TextPack *pack) {
  free(pack->piece);
  free(pack->first);
  *pack = (TextPack){0};
}

int64_t text_pack_memory(const TextPack *pack) {
  return pack->pieces * (int64_t)sizeof *pack->piece + pack->rows * (int64_t)sizeof *pack->first;
}
