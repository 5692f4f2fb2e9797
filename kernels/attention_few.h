/* attention_few: the part of attention_x86.c for so few queries that it does not pay to lay keys out anew for them, as where a
 * text is generated: each score is a product of two rows where they lie. Keys and values are widened as they are read; sums,
 * scores and weights are f32 for every type. */
enum { FEW_QUERIES = 3 };

/* Rows of features, in whole vectors. */
typedef struct {
  const void *at;
  int64_t step; /* elements from row to row */
  int type;
} TypedRows;

/* Where they lie, or a copy in `room`, padded with zeros and f32. */
static TypedRows typed_rows(const AttentionProblem *p, const void *x, int64_t step, int64_t count, float *room) {
  if (p->features % LANES == 0) return (TypedRows){x, step, (int)p->type};
  Rows rows = rows_of(p, x, step, count, room);
  return (TypedRows){rows.at, rows.step, OPERAND_F32};
}

/* Lane r: the sum of x[r]. Of two vectors x[i] and x[i + by] each round adds lanes that are `by` apart, and those of the second go where `by` is
 * part of a lane's number. */
#define FOLD_LANE(by, high, l) (((l) & (by) ? LANES : 0) + ((high) ? (l) | (by) : (l) & ~(by)))
#define FOLD_HALF(by, high, i)                                                                                                         \
  __builtin_shufflevector(x[i], x[(i) + (by)], FOLD_LANE(by, high, 0), FOLD_LANE(by, high, 1), FOLD_LANE(by, high, 2),                  \
                          FOLD_LANE(by, high, 3), FOLD_LANE(by, high, 4), FOLD_LANE(by, high, 5), FOLD_LANE(by, high, 6),               \
                          FOLD_LANE(by, high, 7), FOLD_LANE(by, high, 8), FOLD_LANE(by, high, 9), FOLD_LANE(by, high, 10),              \
                          FOLD_LANE(by, high, 11), FOLD_LANE(by, high, 12), FOLD_LANE(by, high, 13), FOLD_LANE(by, high, 14),           \
                          FOLD_LANE(by, high, 15))
#define FOLD(by)                                                                                                  \
  _Pragma("clang loop unroll(full)") for (int i = 0; i < (by); i++) x[i] = FOLD_HALF(by, 0, i) + FOLD_HALF(by, 1, i)
ALWAYS Lanes sums_of_rows(Lanes x[LANES]) {
  FOLD(8);
  FOLD(4);
  FOLD(2);
  FOLD(1);
  return x[0];
}

/* score[count] = a query times rows, up to a multiple of 16 of them: the last one again. Rows are read one after another, not side by side: so
 * they come from memory twice as fast. vectors: of a row, if there are registers for the query; else 0. */
ALWAYS void score_rows(int type, int vectors, int64_t width, const float *query, const TypedRows *key, int64_t count, float *score) {
  Lanes left[MOST / LANES];
#pragma clang loop unroll(full)
  for (int i = 0; i < vectors; i++) left[i] = lanes_load(query + i * LANES);
  for (int64_t j = 0; j < count; j += LANES) {
    Lanes sum[LANES];
#pragma clang loop unroll(disable)
    for (int r = 0; r < LANES; r++) {
      int64_t at = smaller(j + r, count - 1) * key->step;
      Lanes own = (Lanes)0.0f;
#pragma clang loop unroll(full)
      for (int i = 0; i < vectors; i++) own += left[i] * lanes_load_as(type, key->at, at + i * LANES);
      for (int64_t d = vectors ? width : 0; d < width; d += LANES)
        own += lanes_load(query + d) * lanes_load_as(type, key->at, at + d);
      sum[r] = own;
    }
    lanes_store(score + j, sums_of_rows(sum));
  }
}
ALWAYS void few_scores(int type, int64_t width, const float *query, const TypedRows *key, int64_t count, float *score) {
  if (VECTORS == 4 && width == 4 * LANES)
    score_rows(type, 4, width, query, key, count, score);
  else if (VECTORS == 4 && width == 8 * LANES)
    score_rows(type, 8, width, query, key, count, score);
  else
    score_rows(type, 0, width, query, key, count, score);
}

/* out[vectors] += weights times rows. Every second row has sums of its own: a chain of sums is no faster than its latency. */
ALWAYS void few_sums(int type, int vectors, const float *weight, const TypedRows *value, int64_t d, int64_t count, float *out) {
  Lanes sum[2][4];
#pragma clang loop unroll(full)
  for (int i = 0; i < vectors; i++) {
    sum[0][i] = lanes_load(out + d + i * LANES);
    sum[1][i] = (Lanes)0.0f;
  }
  int64_t j = 0;
#pragma clang loop unroll(disable)
  for (; j + 2 <= count; j += 2)
#pragma clang loop unroll(full)
    for (int half = 0; half < 2; half++)
#pragma clang loop unroll(full)
      for (int i = 0; i < vectors; i++)
        sum[half][i] += weight[j + half] * lanes_load_as(type, value->at, (j + half) * value->step + d + i * LANES);
#pragma clang loop unroll(full)
  for (int i = 0; i < vectors; i++) {
    if (j < count) sum[0][i] += weight[j] * lanes_load_as(type, value->at, j * value->step + d + i * LANES);
    lanes_store(out + d + i * LANES, sum[0][i] + sum[1][i]);
  }
}

ALWAYS void few_results(int type, int64_t width, const float *weight, const TypedRows *value, int64_t count, float *out) {
  int64_t d = 0;
  for (; d + VECTORS * LANES <= width; d += VECTORS * LANES) few_sums(type, VECTORS, weight, value, d, count, out);
  for (; d < width; d += LANES) few_sums(type, 1, weight, value, d, count, out);
}

#define FEW_OF(name, type)                                                                                                    \
  static __attribute__((noinline)) void few_scores_##name(int64_t width, const float *query, const TypedRows *key,            \
                                                          int64_t count, float *score) {                                      \
    few_scores(type, width, query, key, count, score);                                                                        \
  }                                                                                                                           \
  static __attribute__((noinline)) void few_results_##name(int64_t width, const float *weight, const TypedRows *value,        \
                                                           int64_t count, float *out) {                                       \
    few_results(type, width, weight, value, count, out);                                                                      \
  }
FEW_OF(f32, OPERAND_F32)
FEW_OF(bf16, OPERAND_BF16)
FEW_OF(f16, OPERAND_F16)

/* The block's scores, as multiply_scores leaves them. */
static void score_few(const AttentionProblem *p, const Block *block, Rows query, const void *k, Forward *f) {
  TypedRows key = typed_rows(p, k, p->k.row, block->keys, f->room[1]);
  for (int64_t i = 0; i < block->count; i++) {
    int64_t width = padded(p->features), seen = keys_of_row(p, block, i);
    const float *row = query.at + i * query.step;
    float *score = f->score + i * TILE;
    if (key.type == OPERAND_F32)
      few_scores_f32(width, row, &key, seen, score);
    else if (key.type == OPERAND_BF16)
      few_scores_bf16(width, row, &key, seen, score);
    else
      few_scores_f16(width, row, &key, seen, score);
  }
}

/* f->out += the block's weights times its values. */
static void sum_few(const AttentionProblem *p, const Block *block, const void *v, Forward *f) {
  TypedRows value = typed_rows(p, v, p->v.row, block->keys, f->room[1]);
  for (int64_t i = 0; i < block->count; i++) {
    int64_t width = padded(p->features), seen = keys_of_row(p, block, i);
    const float *weight = f->score + i * TILE;
    float *out = f->out + i * width;
    if (value.type == OPERAND_F32)
      few_results_f32(width, weight, &value, seen, out);
    else if (value.type == OPERAND_BF16)
      few_results_bf16(width, weight, &value, seen, out);
    else
      few_results_f16(width, weight, &value, seen, out);
  }
}

/* What a block of keys and values adds to the results. */
static void add_few(const AttentionProblem *p, const void *mask, const Draws *draws, const Block *block, Rows query, const void *k,
                    const void *v, Forward *f) {
  score_few(p, block, query, k, f);
  weigh(p, mask, draws, block, padded(p->features), f);
  sum_few(p, block, v, f);
}
