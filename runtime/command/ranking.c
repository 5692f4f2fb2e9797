/* ranking: see ranking.h. */
#include "runtime/command/ranking.h"
#include "runtime/common/room.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DIGIT_BITS = 11, DIGITS = 3, DIGIT_VALUES = 1 << DIGIT_BITS }; /* of 33 bits */
enum { PIECE = 1 << 22 }; /* elements that one collective gathers of each rank */
static const int64_t most_rows = (int64_t)1 << 31; /* pairs of these fit 64 bits, twice */

struct Ranking {
  const char *name;
  int64_t columns, count, capacity;
  float *rows;
};

/* ── collecting ───────────────────────────────────────────────────────────────────────────── */
/* What it takes at the most: the rows, and to sort them two words for each. */
static double ranking_bytes(int64_t rows, int64_t columns) {
  return (double)rows * ((double)columns * sizeof(float) + 2 * sizeof(uint64_t));
}

Status ranking_new(const char *name, int64_t columns, int64_t most, Ranking **out) {
  double bytes = ranking_bytes(most, columns);
  *out = NULL;
  if (most > most_rows)
    return status_fail(STATUS_USER, "auc '%s' would rank %lld samples, and at most %lld are ranked",
                       name, (long long)most, (long long)most_rows);
  if (bytes > 0.5 * (double)room_now())
    return status_fail(STATUS_USER,
                       "auc '%s' keeps the scores of all samples: %.1f GiB, more than half of the "
                       "memory that is free; evaluate fewer samples (limit=) or leave it out",
                       name, bytes / 0x1p30);
  *out = calloc(1, sizeof **out);
  if (!*out) return status_errno(ENOMEM, "auc '%s'", name);
  **out = (Ranking){.name = name, .columns = columns};
  return STATUS_OK;
}

void ranking_free(Ranking *ranking) {
  if (ranking) free(ranking->rows);
  free(ranking);
}

void ranking_clear(Ranking *ranking) { ranking->count = 0; }

static Status ranking_grow(Ranking *ranking, int64_t count) {
  if (count <= ranking->capacity) return STATUS_OK;
  int64_t capacity = count > 2 * ranking->capacity ? count : 2 * ranking->capacity;
  float *rows = realloc(ranking->rows, (size_t)(capacity * ranking->columns) * sizeof *rows);
  if (!rows) return status_errno(ENOMEM, "the scores of auc '%s'", ranking->name);
  ranking->rows = rows;
  ranking->capacity = capacity;
  return STATUS_OK;
}

Status ranking_add(Ranking *ranking, const float *rows, int64_t count) {
  int64_t columns = ranking->columns;
  STATUS_TRY(ranking_grow(ranking, ranking->count + count));
  for (int64_t i = 0; i < count; i++) {
    if (!(rows[i * columns] >= 0)) continue;
    memcpy(ranking->rows + ranking->count++ * columns, rows + i * columns,
           (size_t)columns * sizeof *rows);
  }
  return STATUS_OK;
}

/* ── of all ranks ─────────────────────────────────────────────────────────────────────────── */
/* The rows of rank r begin at begin[r] in `all`; each has `most` at the most. */
static Status gather_rows(Ranking *ranking, Comm *comm, const int64_t *count, int64_t most,
                          float *piece, float *all) {
  int ranks = comm_size(comm, MESH_DATA);
  int64_t columns = ranking->columns;
  for (int64_t first = 0; first < most * columns; first += PIECE) {
    int64_t left = most * columns - first, size = left < PIECE ? left : PIECE;
    CommWork gather = {.kind = COMM_ALL_GATHER,
                       .over = MESH_DATA,
                       .dtype = DT_F32,
                       .count = size,
                       .x = ranking->rows + first,
                       .out = piece,
                       .label = "scores of an AUC"};
    STATUS_TRY(comm_do(comm, &gather));
    float *to = all;
    for (int r = 0; r < ranks; to += count[r++] * columns) {
      int64_t own = count[r] * columns - first;
      if (own > 0) memcpy(to + first, piece + r * size, (size_t)(own < size ? own : size) * 4);
    }
  }
  return STATUS_OK;
}

static Status ranking_of_all(Ranking *ranking, Ranks *ranks) {
  int parts = comm_size(ranks->comm, MESH_DATA);
  if (parts == 1) return STATUS_OK;
  int64_t *count = calloc((size_t)parts, sizeof *count), most = 0, total = 0;
  STATUS_TRY(ranks_agree(ranks, count ? STATUS_OK : status_errno(ENOMEM, "auc")));
  CommWork counts = {.kind = COMM_ALL_GATHER,
                     .over = MESH_DATA,
                     .dtype = DT_I64,
                     .count = 1,
                     .x = &ranking->count,
                     .out = count,
                     .label = "scores of an AUC"};
  Status status = comm_do(ranks->comm, &counts);
  for (int r = 0; status == STATUS_OK && r < parts; r++) {
    total += count[r];
    if (count[r] > most) most = count[r];
  }
  float *all = NULL, *piece = NULL;
  int64_t largest = most * ranking->columns < PIECE ? most * ranking->columns : PIECE;
  if (status == STATUS_OK) {
    all = malloc((size_t)(total * ranking->columns + 1) * sizeof *all);
    piece = malloc((size_t)(largest * parts + 1) * sizeof *piece);
    status = all && piece ? ranking_grow(ranking, most)
                          : status_errno(ENOMEM, "the scores of auc '%s'", ranking->name);
    status = ranks_agree(ranks, status);
  }
  if (status == STATUS_OK) status = gather_rows(ranking, ranks->comm, count, most, piece, all);
  if (status == STATUS_OK) {
    free(ranking->rows);
    ranking->rows = all;
    ranking->count = ranking->capacity = total;
    all = NULL;
  }
  free(all);
  free(piece);
  free(count);
  return status;
}

/* ── the area ─────────────────────────────────────────────────────────────────────────────── */
/* Bits that order as the numbers do, -0 and 0 alike; behind them whether it is a positive. */
static uint64_t ranking_key(float score, bool is_positive) {
  uint32_t bits;
  score += 0.0f; /* -0 becomes 0 */
  memcpy(&bits, &score, sizeof bits);
  bits = bits >> 31 ? ~bits : bits | (uint32_t)1 << 31;
  return (uint64_t)bits << 1 | is_positive;
}

/* Sorts `keys` by way of `other`: after an odd number of digits, into it. */
static uint64_t *ranking_sort(uint64_t *keys, uint64_t *other, int64_t count) {
  int64_t begin[DIGIT_VALUES];
  for (int digit = 0; digit < DIGITS; digit++) {
    int shift = digit * DIGIT_BITS;
    memset(begin, 0, sizeof begin);
    for (int64_t i = 0; i < count; i++) begin[keys[i] >> shift & (DIGIT_VALUES - 1)]++;
    for (int64_t v = 0, sum = 0; v < DIGIT_VALUES; v++) {
      int64_t here = begin[v];
      begin[v] = sum;
      sum += here;
    }
    for (int64_t i = 0; i < count; i++)
      other[begin[keys[i] >> shift & (DIGIT_VALUES - 1)]++] = keys[i];
    uint64_t *sorted = other;
    other = keys;
    keys = sorted;
  }
  return keys;
}

/* Of sorted keys. */
static double ranking_area(const uint64_t *keys, int64_t count) {
  uint64_t positives = 0, negatives = 0, twice = 0;
  for (int64_t i = 0; i < count;) {
    uint64_t tied[2] = {0};
    for (uint64_t score = keys[i] >> 1; i < count && keys[i] >> 1 == score; i++)
      tied[keys[i] & 1]++;
    twice += tied[1] * (2 * negatives + tied[0]);
    negatives += tied[0];
    positives += tied[1];
  }
  return positives && negatives ? (double)twice / 2 / (double)positives / (double)negatives : NAN;
}

static double class_area(const Ranking *ranking, int64_t column, uint64_t *keys, uint64_t *other) {
  float positive = ranking->columns == 2 ? 1 : (float)(column - 1);
  for (int64_t i = 0; i < ranking->count; i++) {
    const float *row = ranking->rows + i * ranking->columns;
    if (isnan(row[column])) return NAN;
    keys[i] = ranking_key(row[column], row[0] == positive);
  }
  return ranking_area(ranking_sort(keys, other, ranking->count), ranking->count);
}

Status ranking_auc(Ranking *ranking, Ranks *ranks, double *out) {
  STATUS_TRY(ranking_of_all(ranking, ranks));
  size_t count = (size_t)ranking->count + 1;
  uint64_t *keys = malloc(count * sizeof *keys), *other = malloc(count * sizeof *other);
  Status status =
      keys && other ? STATUS_OK : status_errno(ENOMEM, "the scores of auc '%s'", ranking->name);
  double sum = 0;
  status = ranks_agree(ranks, status);
  for (int64_t c = 1; status == STATUS_OK && c < ranking->columns; c++)
    sum += class_area(ranking, c, keys, other);
  *out = sum / (double)(ranking->columns - 1);
  free(keys);
  free(other);
  return status;
}
