/* attention_x86: attention and its gradient in f32, block by block (Dao et al. 2022; Milakov and
 * Gimelshein 2018 for the softmax that is corrected as it goes), so that no more than a block of
 * scores ever exists. Compiled to machine code when ft is built, as gemm_x86. Blocks that the
 * causal order hides are skipped. A result depends on the work item only, not on the thread.
 *
 * Everything is made of one primitive, a product of small matrices whose right operand is
 * row-major: scores from transposed keys, results from rows of values; but for few queries
 * (attention_few.h). Rows of features that are no multiple of 16, or not of f32, are first copied,
 * padded with zeros and widened. */
#include "kernels/attention_drop.h"
#include <stdbool.h>

enum { TILE = ATTENTION_TILE, MOST = ATTENTION_MOST_FEATURES };
#ifdef __AVX512F__
enum { VECTORS = 4 };
#else
enum { VECTORS = 1 };
#endif

/* ── products of small matrices ─────────────────────────────────────────────────────────────── */
typedef struct {
  const float *at;
  int64_t row, step; /* from one row to the next, from one k to the next */
} Left;

ALWAYS void sum_tile(int rows, int vectors, Left a, const float *b, int64_t b_k, int64_t k, float *c, int64_t c_row, bool adds) {
  Lanes sum[6][4], right[4];
#pragma clang loop unroll(full)
  for (int i = 0; i < rows; i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < vectors; j++)
      sum[i][j] = adds ? lanes_load(c + i * c_row + j * LANES) : (Lanes)0.0f;
#pragma clang loop unroll(disable)
  for (; k > 0; k--) {
#pragma clang loop unroll(full)
    for (int j = 0; j < vectors; j++) right[j] = lanes_load(b + j * LANES);
#pragma clang loop unroll(full)
    for (int i = 0; i < rows; i++) {
      Lanes left = (Lanes)a.at[i * a.row];
#pragma clang loop unroll(full)
      for (int j = 0; j < vectors; j++) sum[i][j] += left * right[j];
    }
    a.at += a.step;
    b += b_k;
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < rows; i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < vectors; j++) lanes_store(c + i * c_row + j * LANES, sum[i][j]);
}

/* All rows of a strip that is `vectors` vectors wide. */
ALWAYS void sum_strip(int vectors, int64_t rows, Left a, const float *b, int64_t b_k, int64_t k, float *c, int64_t c_row, bool adds) {
  for (; rows >= 6; rows -= 6, a.at += 6 * a.row, c += 6 * c_row)
    sum_tile(6, vectors, a, b, b_k, k, c, c_row, adds);
  if (rows >= 4) {
    sum_tile(4, vectors, a, b, b_k, k, c, c_row, adds);
    rows -= 4, a.at += 4 * a.row, c += 4 * c_row;
  }
  if (rows >= 2) {
    sum_tile(2, vectors, a, b, b_k, k, c, c_row, adds);
    rows -= 2, a.at += 2 * a.row, c += 2 * c_row;
  }
  if (rows) sum_tile(1, vectors, a, b, b_k, k, c, c_row, adds);
}

/* c[rows][columns] = or += a[rows][k] b[k][columns]; columns is a multiple of 16. */
static __attribute__((noinline)) void attention_product(int64_t rows, int64_t columns, int64_t k,
                                                        Left a, const float *b, int64_t b_k,
                                                        float *c, int64_t c_row, bool adds) {
  int64_t left = columns / LANES;
#ifdef __AVX512F__
  for (; left >= 4; left -= 4, b += 4 * LANES, c += 4 * LANES)
    sum_strip(4, rows, a, b, b_k, k, c, c_row, adds);
  if (left >= 2) {
    sum_strip(2, rows, a, b, b_k, k, c, c_row, adds);
    left -= 2, b += 2 * LANES, c += 2 * LANES;
  }
#endif
  for (; left > 0; left--, b += LANES, c += LANES) sum_strip(1, rows, a, b, b_k, k, c, c_row, adds);
}

/* ── rows of features ───────────────────────────────────────────────────────────────────────── */
typedef struct {
  const float *at;
  int64_t step; /* from row to row */
} Rows;

static int64_t padded(int64_t features) { return (features + LANES - 1) / LANES * LANES; }

/* Row `row` of head `head` of sample b. */
static void *attention_place(const AttentionProblem *p, const AttentionPlace *place,
                             void *const *args, int64_t b, int64_t head, int64_t row) {
  int64_t at = place->start + b * place->batch + head * place->head + row * place->row;
  return (char *)args[place->arg] + at * operand_bytes(p->type);
}

ALWAYS void copy_rows(int type, int64_t n, const void *x, int64_t step, int64_t count, float *to) {
  int64_t width = padded(n), whole = n / LANES * LANES;
  for (int64_t i = 0; i < count; i++)
    for (int64_t j = 0; j < n; j += LANES)
      __builtin_prefetch((const char *)x + (i * step + j) * operand_bytes(type));
  for (int64_t i = 0; i < count; i++) {
    for (int64_t j = 0; j < whole; j += LANES)
      lanes_store(to + i * width + j, lanes_load_as(type, x, i * step + j));
    for (int64_t j = whole; j < width; j++)
      to[i * width + j] = j < n ? lanes_at(type, x, i * step + j) : 0.0f;
  }
}

/* `count` rows from x on, `step` apart. They are copied to `room`, unless they are f32, contiguous,
 * and a multiple of 16 long: rows that are far apart share few sets of a cache. */
static Rows rows_of(const AttentionProblem *p, const void *x, int64_t step, int64_t count,
                    float *room) {
  int64_t n = p->features, width = padded(n);
  if (p->type == OPERAND_F32 && n == width && step == n) return (Rows){x, step};
  if (p->type == OPERAND_F32)
    copy_rows(OPERAND_F32, n, x, step, count, room);
  else if (p->type == OPERAND_BF16)
    copy_rows(OPERAND_BF16, n, x, step, count, room);
  else
    copy_rows(OPERAND_F16, n, x, step, count, room);
  return (Rows){room, width};
}

ALWAYS void store_row(int type, int64_t n, const float *x, float factor, void *to) {
  int64_t whole = n / LANES * LANES;
  for (int64_t d = 0; d < whole; d += LANES)
    lanes_store_as(type, to, d, lanes_load(x + d) * factor);
  for (int64_t d = whole; d < n; d++) lanes_put(type, to, d, x[d] * factor);
}

/* A finished row times a factor, rounded. */
static void attention_finish_row(const AttentionProblem *p, const float *x, float factor, void *to) {
  if (p->type == OPERAND_F32)
    store_row(OPERAND_F32, p->features, x, factor, to);
  else if (p->type == OPERAND_BF16)
    store_row(OPERAND_BF16, p->features, x, factor, to);
  else
    store_row(OPERAND_F16, p->features, x, factor, to);
}

/* to[feature][TILE]: `count` rows as columns, and zeros up to a multiple of 16 of them. */
static void transpose_rows(Rows from, int64_t count, int64_t width, float *to) {
  for (int64_t i = 0; i < count; i += LANES)
    for (int64_t d = 0; d < width; d += LANES) {
      Lanes x[LANES];
      for (int r = 0; r < LANES; r++)
        x[r] = i + r < count ? lanes_load(from.at + (i + r) * from.step + d) : (Lanes)0.0f;
      lanes_transpose(x);
      for (int r = 0; r < LANES; r++) lanes_store(to + (d + r) * TILE + i, x[r]);
    }
}

/* ── scores ─────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  int64_t first, count; /* queries */
  int64_t key, keys;    /* first key, how many */
} Block;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* The most keys that any row before `row` sees. */
static int64_t keys_seen(const AttentionProblem *p, int64_t row) {
  int64_t seen = row + p->keys - p->rows;
  return p->is_causal && seen < p->keys ? (seen < 0 ? 0 : seen) : p->keys;
}

/* How many of a block's keys row i of it sees; rows before it see no more. */
static int64_t keys_of_row(const AttentionProblem *p, const Block *block, int64_t i) {
  int64_t seen = keys_seen(p, block->first + i + 1) - block->key;
  return seen < 0 ? 0 : smaller(seen, block->keys);
}

/* How many of a block's rows come before the first that sees key j of it. */
static int64_t rows_before(const AttentionProblem *p, const Block *block, int64_t j) {
  int64_t first = block->key + j - (p->keys - p->rows) - block->first;
  return !p->is_causal || first < 0 ? 0 : smaller(first, block->count);
}

/* Products of a block that the causal order cuts go by parts of so many rows, each of which leaves out what none of its
 * rows sees. */
enum { PART = 32 }; /* a multiple of what an instruction for bf16 sums up */
static int64_t rows_of_part(const AttentionProblem *p, const Block *block) {
  return keys_of_row(p, block, 0) < block->keys ? PART : TILE;
}

/* Rows of a block, and how many of its keys they see. */
typedef struct {
  int64_t first, rows, keys;
} Part;
/* The next ones; of {0}: the first. False: there are none. */
static bool part_next(const AttentionProblem *p, const Block *block, Part *part) {
  part->first += part->rows;
  part->rows = smaller(rows_of_part(p, block), block->count - part->first);
  part->keys = keys_of_row(p, block, part->first + part->rows - 1);
  return part->rows > 0;
}

static const float infinity = __builtin_inff();

/* Caps a row of products: cap * tanh(scale * x / cap). slope (NULL: not wanted): the derivative
 * of a capped score by what it was, 1 - tanh^2. */
static void cap_scores(const AttentionProblem *p, int64_t keys, float *score, float *slope) {
  float cap = (float)p->cap, scale = (float)(p->scale / p->cap);
  for (int64_t j = 0; j < keys; j += LANES) {
    Lanes bent = lanes_tanh(lanes_load(score + j) * scale);
    lanes_store(score + j, bent * cap);
    if (slope) lanes_store(slope + j, 1.0f - bent * bent);
  }
}

/* Scales the products of row i with the `seen` keys that it sees, adds the mask, and puts -inf behind
 * them, up to a multiple of 16. Returns the largest in each lane. */
ALWAYS Lanes finish_scores(const AttentionProblem *p, const void *mask, const Block *block,
                          int64_t i, int64_t seen, float *score, float *slope) {
  static const IntLanes count = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  float scale = (float)p->scale;
  if (p->cap > 0) {
    cap_scores(p, seen, score, slope);
    scale = 1.0f;
  }
  if (p->mask != ATTENTION_NO_MASK) {
    int64_t at = (block->first + i) * p->mask_row + block->key;
    for (int64_t j = 0; j < seen; j++)
      if (p->mask == ATTENTION_BOOL_MASK)
        score[j] = ((const uint8_t *)mask)[at + j] ? score[j] * scale : -infinity;
      else
        score[j] = score[j] * scale + ((const float *)mask)[at + j];
    scale = 1.0f;
  }
  Lanes largest = (Lanes)-infinity;
  for (int64_t j = 0; j < seen; j += LANES) {
    IntLanes hidden = count >= (int32_t)(seen - j);
    Lanes x = hidden ? (Lanes)-infinity : lanes_load(score + j) * scale;
    largest = lanes_larger(x, largest);
    lanes_store(score + j, x);
  }
  return largest;
}

/* The mask of one head, or NULL. */
static const void *attention_mask_of(const AttentionProblem *p, void *const *args, int64_t b,
                                     int64_t h) {
  if (p->mask == ATTENTION_NO_MASK) return 0;
  int64_t at = b * p->mask_batch + h * p->mask_head;
  const char *mask = args[p->arg_mask];
  return mask + at * (p->mask == ATTENTION_BOOL_MASK ? 1 : (int64_t)sizeof(float));
}

/* ── forward ────────────────────────────────────────────────────────────────────────────────── */
/* The natural logarithm of x >= 1, from log m = 2 artanh((m - 1) / (m + 1)). */
static float log_of(float x) {
  uint32_t bits = __builtin_bit_cast(uint32_t, x);
  if (!(x < infinity)) return x;
  int32_t e = (int32_t)(bits - 0x3f3504f3u) >> 23;
  double m = __builtin_bit_cast(float, bits - ((uint32_t)e << 23));
  double s = (m - 1) / (m + 1), z = s * s;
  double series =
      1 + z * (1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7 + z * (1.0 / 9 + z * (1.0 / 11)))));
  return (float)(e * 0.69314718055994530942 + 2 * s * series);
}

/* Of what a row does not see of a block, weights and gradients are 0. */
ALWAYS void clear_unseen(const Block *block, int64_t seen, float *row) {
  for (int64_t j = padded(seen); j < block->keys; j += LANES) lanes_store(row + j, (Lanes)0.0f);
}

typedef struct {
  float most[TILE];                            /* of each row's scores so far */
  _Alignas(64) float sum[TILE * LANES];        /* of its weights, lane by lane */
  _Alignas(64) float transposed[MOST * TILE]; /* of keys */
  _Alignas(64) float score[TILE * TILE];
  _Alignas(64) float out[TILE * MOST];
  _Alignas(64) float room[2][TILE * MOST];
} Forward;

/* Row i of a block's weights, of which the first `seen` are not 0. */
static void drop_row(const AttentionProblem *p, const Draws *draws, const Block *block, int64_t i, int64_t seen, float *weight) {
  DrawnRow drawn;
  draw_row(p, draws, (block->first + i) * p->keys + block->key, seen, &drawn);
  for (int64_t j = 0; j < seen; j += LANES) lanes_store(weight + j, drawn_kept(&drawn, j, lanes_load(weight + j), (Lanes)0.0f));
}

/* Replaces the scores of a block by weights relative to the largest so far, 0 for those that are dropped; rescales the sums. */
static void weigh(const AttentionProblem *p, const void *mask, const Draws *draws, const Block *block, int64_t width,
                  Forward *f) {
  _Alignas(64) float base[TILE], correction[TILE];
  for (int64_t i = 0; i < block->count; i++) {
    float most = lanes_most(finish_scores(p, mask, block, i, keys_of_row(p, block, i), f->score + i * TILE, 0)), before = f->most[i];
    most = most > before ? most : before;
    base[i] = most == -infinity ? 0.0f : most; /* nothing seen yet: all weights are 0 */
    correction[i] = before - base[i];
    f->most[i] = most;
  }
  for (int64_t i = block->count; i < padded(block->count); i++) correction[i] = 0;
  for (int64_t i = 0; i < block->count; i += LANES) lanes_store(correction + i, lanes_exp(lanes_load(correction + i)));
  for (int64_t i = 0; i < block->count; i++) {
    float *score = f->score + i * TILE, *sums = f->sum + i * LANES;
    int64_t seen = keys_of_row(p, block, i);
    Lanes sum = lanes_load(sums) * correction[i];
    for (int64_t j = 0; j < seen; j += LANES) {
      Lanes weight = lanes_exp(lanes_load(score + j) - base[i]);
      lanes_store(score + j, weight);
      sum += weight;
    }
    if (p->drop_below) drop_row(p, draws, block, i, seen, score);
    lanes_store(sums, sum);
    clear_unseen(block, seen, score);
    if (correction[i] == 1.0f) continue;
    for (int64_t d = 0; d < width; d += LANES)
      lanes_store(f->out + i * width + d, lanes_load(f->out + i * width + d) * correction[i]);
  }
}

/* Does no row of the block see any of its keys? A mask of a cache that is not full, or of a sliding
 * window, has such blocks. */
static bool block_is_hidden(const AttentionProblem *p, const void *mask, const Block *block) {
  if (p->mask != ATTENTION_BOOL_MASK) return false;
  for (int64_t i = 0; i < block->count; i++) {
    const uint8_t *row = (const uint8_t *)mask + (block->first + i) * p->mask_row + block->key;
    uint8_t any = 0;
    for (int64_t j = 0; j < block->keys; j++) any |= row[j];
    if (any) return false;
  }
  return true;
}

static void forward_finish(const AttentionProblem *p, void *const *args, int64_t b, int64_t h, int64_t first,
                           int64_t count, const Forward *f) {
  int64_t width = padded(p->features);
  float *lse = (float *)args[p->arg_lse] + (b * p->heads + h) * p->rows + first;
  for (int64_t i = 0; i < count; i++) {
    float sum = lanes_sum(lanes_load(f->sum + i * LANES)), factor = sum == 0 ? 0.0f : (float)p->gain / sum;
    attention_finish_row(p, f->out + i * width, factor,
                         attention_place(p, &p->out, args, b, h, first + i));
    lse[i] = sum == 0 ? -infinity : f->most[i] + log_of(sum);
  }
}

static void forward_begin(const Block *block, int64_t width, Forward *f) {
  for (int64_t i = 0; i < block->count; i++) {
    f->most[i] = -infinity;
    lanes_store(f->sum + i * LANES, (Lanes)0.0f);
  }
  for (int64_t i = 0; i < padded(block->count) * width; i += LANES) lanes_store(f->out + i, (Lanes)0.0f);
}

/* c[rows][columns] = a product of the block's queries and keys, in parts. */
static void multiply_scores(const AttentionProblem *p, const Block *block, Rows a, const float *b, float *c) {
  for (Part part = {0}; part_next(p, block, &part);)
    attention_product(part.rows, padded(part.keys), p->features, (Left){a.at + part.first * a.step, a.step, 1}, b,
                      TILE, c + part.first * TILE, TILE, false);
}

/* c[rows][width] = or += the block's weights times rows of its keys, in parts. */
static void multiply_keys(const AttentionProblem *p, const Block *block, const float *weight, Rows b, float *c,
                          int64_t c_row, bool adds) {
  for (Part part = {0}; part_next(p, block, &part);)
    attention_product(part.rows, padded(p->features), part.keys, (Left){weight + part.first * TILE, TILE, 1}, b.at,
                      b.step, c + part.first * c_row, c_row, adds);
}

/* c[keys][width] += the block's weights, keys by rows, times rows of its queries, in parts. */
static void multiply_queries(const AttentionProblem *p, const Block *block, const float *weight, Rows b, float *c) {
  int64_t width = padded(p->features), part = rows_of_part(p, block);
  for (int64_t j = 0; j < block->keys; j += part) {
    int64_t first = rows_before(p, block, j);
    attention_product(smaller(part, block->keys - j), width, block->count - first,
                      (Left){weight + first * TILE + j, 1, TILE}, b.at + first * b.step, b.step, c + j * width,
                      width, true);
  }
}

#include "kernels/attention_few.h"

static void forward(const AttentionProblem *p, void *const *args, int64_t b, int64_t h, int64_t first, Forward *f) {
  int64_t width = padded(p->features), g = h / (p->heads / p->groups);
  const void *mask = attention_mask_of(p, args, b, h);
  Block block = {.first = first, .count = smaller(TILE, p->rows - first)};
  Rows query = rows_of(p, attention_place(p, &p->q, args, b, h, first), p->q.row, block.count, f->room[0]);
  int64_t seen = keys_seen(p, first + block.count);
  Draws draws = attention_draws_of(p, args, b, h);
  forward_begin(&block, width, f);
  for (block.key = 0; block.key < seen; block.key += TILE) {
    block.keys = smaller(TILE, seen - block.key);
    if (block_is_hidden(p, mask, &block)) continue;
    const void *k = attention_place(p, &p->k, args, b, g, block.key);
    const void *v = attention_place(p, &p->v, args, b, g, block.key);
    if (p->rows <= FEW_QUERIES) {
      add_few(p, mask, &draws, &block, query, k, v, f);
      continue;
    }
    transpose_rows(rows_of(p, k, p->k.row, block.keys, f->room[1]), block.keys, width, f->transposed);
    multiply_scores(p, &block, query, f->transposed, f->score);
    weigh(p, mask, &draws, &block, width, f);
    Rows value = rows_of(p, v, p->v.row, block.keys, f->room[1]);
    multiply_keys(p, &block, f->score, value, f->out, width, true);
  }
  forward_finish(p, args, b, h, first, block.count, f);
}

/* ── backward ───────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  _Alignas(64) float key[MOST * TILE], value[MOST * TILE]; /* transposed */
  _Alignas(64) float weight[TILE * TILE], slope[TILE * TILE];
  _Alignas(64) float dk[TILE * MOST], dv[TILE * MOST];
  _Alignas(64) float room[4][TILE * MOST];
  float delta[TILE];
} Backward;

/* What the gradients of a row's scores are less by: the sum of dy times the result. */
ALWAYS float delta_of(int type, int64_t n, const void *dy, const void *out) {
  int64_t whole = n / LANES * LANES;
  Lanes both = (Lanes)0.0f;
  float rest = 0;
  for (int64_t d = 0; d < whole; d += LANES) both += lanes_load_as(type, dy, d) * lanes_load_as(type, out, d);
  for (int64_t d = whole; d < n; d++) rest += lanes_at(type, dy, d) * lanes_at(type, out, d);
  return lanes_sum(both) + rest;
}

static void deltas_of_block(const AttentionProblem *p, void *const *args, int64_t b, int64_t h, const Block *block,
                            float *delta) {
  for (int64_t i = 0; i < block->count; i++) {
    const void *dy = attention_place(p, &p->dy, args, b, h, block->first + i);
    const void *out = attention_place(p, &p->out, args, b, h, block->first + i);
    delta[i] = p->type == OPERAND_F32    ? delta_of(OPERAND_F32, p->features, dy, out)
               : p->type == OPERAND_BF16 ? delta_of(OPERAND_BF16, p->features, dy, out)
                                         : delta_of(OPERAND_F16, p->features, dy, out);
  }
}

/* Recomputes weights from scores and log-sum-exp; slope becomes the gradient of the scores. */
static void slopes(const AttentionProblem *p, const void *mask, const Draws *draws, const Block *block,
                   const float *lse, const float *delta, Backward *w) {
  for (int64_t i = 0; i < block->count; i++) {
    float *weight = w->weight + i * TILE, *slope = w->slope + i * TILE;
    float base = lse[i] == -infinity ? 0.0f : lse[i];
    _Alignas(64) float bend[TILE];
    DrawnRow drawn;
    int64_t seen = keys_of_row(p, block, i);
    finish_scores(p, mask, block, i, seen, weight, bend);
    if (p->drop_below) draw_row(p, draws, (block->first + i) * p->keys + block->key, seen, &drawn);
    for (int64_t j = 0; j < seen; j += LANES) {
      Lanes x = lanes_exp(lanes_load(weight + j) - base);
      Lanes pulled = lanes_load(slope + j);
      lanes_store(weight + j, p->drop_below ? drawn_kept(&drawn, j, x, (Lanes)0.0f) : x);
      if (p->drop_below) pulled = drawn_kept(&drawn, j, pulled * (float)p->gain, (Lanes)0.0f);
      Lanes pull = x * (pulled - delta[i]) * (float)p->scale;
      lanes_store(slope + j, p->cap > 0 ? pull * lanes_load(bend + j) : pull);
    }
    clear_unseen(block, seen, weight);
    clear_unseen(block, seen, slope);
  }
}

/* Where a share has its sums for dq, from row `row` of a head on; *step: from row to row. In dq
 * itself a row has no room for padding: the next head's features follow at once, and another item
 * sums those at the same time. */
static float *sums_at(const AttentionProblem *p, void *const *args, int64_t share, int64_t b,
                      int64_t h, int64_t row, int64_t *step) {
  int64_t in_place = p->shares - attention_partials(p);
  if (share < in_place) {
    *step = p->dq.row;
    return attention_place(p, &p->dq, args, b, h, row);
  }
  *step = attention_partial_width(p);
  int64_t head = ((share - in_place) * p->batch + b) * p->heads + h;
  return (float *)args[p->arg_partial] + (head * p->rows + row) * *step;
}

/* Rows of n features, of what the tile has, to those of the sums. */
static void add_rows_to_sums(int64_t n, int64_t count, const float *tile, int64_t width, float *to, int64_t step) {
  int64_t whole = n / LANES * LANES;
  for (; count > 0; count--, tile += width, to += step) {
    for (int64_t d = 0; d < whole; d += LANES)
      lanes_store(to + d, lanes_load(to + d) + lanes_load(tile + d));
    for (int64_t d = whole; d < n; d++) to[d] += tile[d];
  }
}

/* What one block of queries of one head adds to dk, dv, and to the sums for its rows of dq. */
static void backward_block(const AttentionProblem *p, void *const *args, int64_t share, int64_t b,
                           int64_t h, const Block *block, Rows key, Backward *w) {
  int64_t n = p->features, width = padded(n), first = block->first, count = block->count, step;
  Rows dy = rows_of(p, attention_place(p, &p->dy, args, b, h, first), p->dy.row, count, w->room[0]);
  Rows q = rows_of(p, attention_place(p, &p->q, args, b, h, first), p->q.row, count, w->room[1]);
  const float *lse = (const float *)args[p->arg_lse] + (b * p->heads + h) * p->rows + first;
  float *dq = sums_at(p, args, share, b, h, first, &step);
  multiply_scores(p, block, q, w->key, w->weight);
  multiply_scores(p, block, dy, w->value, w->slope);
  deltas_of_block(p, args, b, h, block, w->delta);
  Draws draws = attention_draws_of(p, args, b, h);
  slopes(p, attention_mask_of(p, args, b, h), &draws, block, lse, w->delta, w);
  multiply_queries(p, block, w->weight, dy, w->dv);
  multiply_queries(p, block, w->slope, q, w->dk);
  if (step == width && n == width) {
    multiply_keys(p, block, w->slope, key, dq, step, true);
    return;
  }
  multiply_keys(p, block, w->slope, key, w->room[2], width, false);
  add_rows_to_sums(n, count, w->room[2], width, dq, step);
}

static void attention_clear_sums(const AttentionProblem *p, void *const *args, int64_t share,
                                 int64_t b, int64_t h) {
  int64_t step;
  float *dq = sums_at(p, args, share, b, h, 0, &step);
  bool is_own = share >= p->shares - attention_partials(p);
  for (int64_t i = 0; i < p->rows; i++)
    for (int64_t d = 0; d < (is_own ? step : p->features); d++) dq[i * step + d] = 0;
}

static void backward_finish(const AttentionProblem *p, void *const *args, int64_t b, int64_t g, const Block *block,
                            const Backward *w) {
  int64_t width = padded(p->features);
  for (int64_t i = 0; i < block->keys; i++) {
    attention_finish_row(p, w->dk + i * width, 1,
                         attention_place(p, &p->dk, args, b, g, block->key + i));
    attention_finish_row(p, w->dv + i * width, (float)p->gain,
                         attention_place(p, &p->dv, args, b, g, block->key + i));
  }
}

static void backward(const AttentionProblem *p, void *const *args, int64_t b, int64_t g,
                     int64_t share, Backward *w) {
  int64_t width = padded(p->features), heads = p->heads / p->groups;
  for (int64_t h = g * heads; h < (g + 1) * heads; h++) attention_clear_sums(p, args, share, b, h);
  Block block;
  for (block.key = share * TILE; block.key < p->keys; block.key += p->shares * TILE) {
    block.keys = smaller(TILE, p->keys - block.key);
    const void *k = attention_place(p, &p->k, args, b, g, block.key);
    const void *v = attention_place(p, &p->v, args, b, g, block.key);
    Rows key = rows_of(p, k, p->k.row, block.keys, w->room[3]);
    transpose_rows(key, block.keys, width, w->key);
    transpose_rows(rows_of(p, v, p->v.row, block.keys, w->room[0]), block.keys, width, w->value);
    for (int64_t i = 0; i < block.keys * width; i++) w->dk[i] = w->dv[i] = 0;
    for (int64_t h = g * heads; h < (g + 1) * heads; h++)
      for (block.first = 0; block.first < p->rows; block.first += TILE) {
        block.count = smaller(TILE, p->rows - block.first);
        if (keys_seen(p, block.first + block.count) <= block.key) continue;
        backward_block(p, args, share, b, h, &block, key, w);
      }
    backward_finish(p, args, b, g, &block, w);
  }
}

/* ── items ──────────────────────────────────────────────────────────────────────────────────── */
#include "kernels/attention_pairs.h"

static __attribute__((noinline)) void run_plain_forward(const AttentionProblem *p, void *const *args, int64_t begin, int64_t end) {
  Forward f;
  int64_t blocks = (p->rows + TILE - 1) / TILE;
  for (int64_t i = begin; i < end; i++) {
    int64_t head = i / blocks;
    forward(p, args, head / p->heads, head % p->heads, i % blocks * TILE, &f);
  }
}
void attention_run(const AttentionProblem *p, void *const *args, int64_t begin, int64_t end) {
  int way = p->rows <= FEW_QUERIES ? 0 : pairs_way(p);
  way ? run_forward_by_pairs(p, args, begin, end, way) : run_plain_forward(p, args, begin, end);
}

static __attribute__((noinline)) void run_plain_backward(const AttentionProblem *p, void *const *args, int64_t begin, int64_t end) {
  Backward w;
  for (int64_t i = begin; i < end; i++) {
    int64_t head = i / p->shares;
    backward(p, args, head / p->groups, head % p->groups, i % p->shares, &w);
  }
}
void attention_grad_run(const AttentionProblem *p, void *const *args, int64_t begin, int64_t end) {
  int way = pairs_way(p);
  way ? run_backward_by_pairs(p, args, begin, end, way) : run_plain_backward(p, args, begin, end);
}

/* dq: what the shares have summed, in their order. */
static void attention_add_sums(const AttentionProblem *p, void *const *args, int64_t b, int64_t h,
                               int64_t row) {
  _Alignas(64) float sum[MOST];
  int64_t width = padded(p->features), step;
  for (int64_t share = 0; share < p->shares; share++) {
    const float *more = sums_at(p, args, share, b, h, row, &step);
    bool is_own = share >= p->shares - attention_partials(p);
    if (!is_own) more = rows_of(p, more, 0, 1, sum).at;
    for (int64_t d = 0; d < width; d += LANES)
      lanes_store(sum + d,
                  share ? lanes_load(sum + d) + lanes_load(more + d) : lanes_load(more + d));
  }
  attention_finish_row(p, sum, 1, attention_place(p, &p->dq, args, b, h, row));
}

void attention_grad_add_run(const AttentionProblem *p, void *const *args, int64_t begin,
                            int64_t end) {
  int64_t blocks = (p->rows + TILE - 1) / TILE;
  for (int64_t i = begin; i < end; i++) {
    int64_t head = i / blocks, first = i % blocks * TILE, last = smaller(first + TILE, p->rows);
    for (int64_t row = first; row < last; row++)
      attention_add_sums(p, args, head / p->heads, head % p->heads, row);
  }
}
