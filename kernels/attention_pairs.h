/* attention_pairs: the part of attention_x86.c for bf16 on processors that multiply pairs of it, by the tiles of AMX or by
 * vdpbf16ps: the same blocks, multiplied that way (kernels/pairs_x86.h). The weights, and the gradients of scores, are rounded to bf16 where they are multiplied, as FlashAttention does and ft's kernels
 * for GPUs do; sums are f32. A word is two neighbours of a row, or of two rows; what is summed over goes on with zeros
 * up to a multiple of 32. */
#if defined __AVX512BW__
#include "kernels/pairs_x86.h"

#define BY_PAIRS static __attribute__((target("avx512bf16"), noinline))
#define BY_TILES static __attribute__((target("amx-tile,amx-bf16"), noinline))
/* s->sums, whose rows are `across` apart, have `columns`. Whole tiles are written: up to 16 rows, or 4, and 16 columns. */
typedef void PairProduct(const PairStrip *s, int64_t columns, int64_t across);
enum { TILE_WORDS = TILE / 2, MOST_WORDS = MOST / 2, PAIRED = 2 * AMX_WORDS };

typedef struct {
  Forward f;
  PairProduct *product;
  _Alignas(64) uint32_t query[TILE * MOST_WORDS], rows[TILE * MOST_WORDS], right[TILE * MOST_WORDS];
  _Alignas(64) uint32_t weights[TILE * TILE_WORDS];
} ForwardPairs;

typedef struct {
  Backward w;
  PairProduct *product;
  _Alignas(64) uint32_t query[TILE * MOST_WORDS], dy[TILE * MOST_WORDS], rows[TILE * MOST_WORDS];
  _Alignas(64) uint32_t key[TILE * MOST_WORDS], value[TILE * MOST_WORDS]; /* [word of features][TILE] */
  _Alignas(64) uint32_t key_rows[TILE * MOST_WORDS], right[TILE * MOST_WORDS]; /* [word of rows][width] */
  _Alignas(64) uint32_t narrow[TILE * TILE_WORDS];
} BackwardPairs;

static int64_t words_for(int64_t count) { return (count + PAIRED - 1) / PAIRED * AMX_WORDS; }

/* ── operands ───────────────────────────────────────────────────────────────────────────────── */
/* to[TILE][words_for(n)]: `count` rows of n features, `step` apart, and zeros. */
static void fill_words(const uint16_t *x, int64_t n, int64_t step, int64_t count, uint32_t *to) {
  int64_t words = words_for(n), whole = n / PAIRED * AMX_WORDS;
  for (int64_t i = 0; i < count; i++)
    for (int64_t d = 0; d < n; d += PAIRED) __builtin_prefetch(x + i * step + d);
  for (int64_t i = 0; i < TILE; i++, to += words) {
    const uint16_t *row = x + i * step;
    for (int64_t w = 0; w < words; w += AMX_WORDS)
      if (i >= count || w >= whole) *(Words *)(to + w) = (Words)0u;
    if (i >= count) continue;
    for (int64_t w = 0; w < whole; w += AMX_WORDS) __builtin_memcpy(to + w, row + 2 * w, sizeof(Words));
    for (int64_t d = 2 * whole; d < n; d++) to[d / 2] |= (uint32_t)row[d] << d % 2 * 16;
  }
}

/* to[words][TILE]: rows as columns. */
static void transpose_words(const uint32_t *from, int64_t words, uint32_t *to) {
  for (int64_t i = 0; i < TILE; i += LANES)
    for (int64_t w = 0; w < words; w += LANES) {
      Lanes x[LANES];
      for (int r = 0; r < LANES; r++) __builtin_memcpy(&x[r], from + (i + r) * words + w, sizeof x[r]);
      lanes_transpose(x);
      for (int r = 0; r < LANES; r++) __builtin_memcpy(to + (w + r) * TILE + i, &x[r], sizeof x[r]);
    }
}

/* to[TILE_WORDS][width]: rows 2 w and 2 w + 1 as pairs. */
static void pair_rows(const uint32_t *from, int64_t words, int64_t width, uint32_t *to) {
  for (int64_t w = 0; w < TILE_WORDS; w++)
    for (int64_t d = 0; d < width; d += LANES) {
      const uint16_t *even = (const uint16_t *)(from + 2 * w * words) + d;
      Words low = __builtin_convertvector(*(const NarrowLanes *)even, Words);
      Words high = __builtin_convertvector(*(const NarrowLanes *)(even + 2 * words), Words);
      *(Words *)(to + w * width + d) = low | high << 16;
    }
}

/* to[rows][TILE_WORDS] of from[rows][TILE], of which `columns` count. */
BY_PAIRS void narrow_rows(const float *from, int64_t rows, int64_t columns, uint32_t *to) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j += PAIRED) {
      const float *at = from + i * TILE + j;
      Lanes high = j + LANES < columns ? lanes_load(at + LANES) : (Lanes)0.0f;
      __m512bh pairs = _mm512_cvtne2ps_pbh(high, lanes_load(at));
      __builtin_memcpy(to + i * TILE_WORDS + j / 2, &pairs, sizeof pairs);
    }
}

/* to[columns][TILE_WORDS]: columns as rows, of which those from `first` on, a multiple of 32, to `rows` count. */
BY_PAIRS void narrow_columns(const float *from, int64_t first, int64_t rows, int64_t columns, uint32_t *to) {
  for (int64_t j = 0; j < columns; j += LANES)
    for (int64_t i = first; i < rows; i += PAIRED) {
      Lanes x[2][LANES];
      for (int half = 0; half < 2; half++) {
        for (int r = 0; r < LANES; r++) {
          int64_t row = i + half * LANES + r;
          x[half][r] = row < rows ? lanes_load(from + row * TILE + j) : (Lanes)0.0f;
        }
        lanes_transpose(x[half]);
      }
      for (int r = 0; r < LANES; r++) {
        __m512bh pairs = _mm512_cvtne2ps_pbh(x[1][r], x[0][r]);
        __builtin_memcpy(to + (j + r) * TILE_WORDS + i / 2, &pairs, sizeof pairs);
      }
    }
}

BY_TILES void amx_product(const PairStrip *s, int64_t columns, int64_t across) {
  const PairAhead none = {0, 0, 0, 0};
  for (int64_t row = 0; row < s->rows; row += 2 * AMX_WORDS)
    for (int64_t j = 0; j < columns; j += 2 * AMX_WORDS) {
      PairStrip at = *s;
      at.right += j;
      float *sums = s->sums + row * across + j;
      bool is_tall = s->rows - row > AMX_WORDS, is_wide = columns - j > AMX_WORDS;
      if (is_tall && is_wide)
        amx_tile(true, true, &at, row, sums, across, none);
      else if (is_tall)
        amx_tile(true, false, &at, row, sums, across, none);
      else if (is_wide)
        amx_tile(false, true, &at, row, sums, across, none);
      else
        amx_tile(false, false, &at, row, sums, across, none);
    }
}

BY_PAIRS void dpbf16_product(const PairStrip *s, int64_t columns, int64_t across) {
  int64_t column = 0;
  for (; column + 2 * LANES <= columns; column += 2 * LANES) dpbf16_rows(2, s, column, across);
  if (column < columns) dpbf16_rows(1, s, column, across);
}

/* ── products of a block, in parts, as those of f32 ─────────────────────────────────────────── */
static void score_pairs(const AttentionProblem *p, const Block *block, PairProduct *product, const uint32_t *a,
                        const uint32_t *b, float *c) {
  int64_t words = words_for(p->features);
  for (Part part = {0}; part_next(p, block, &part);)
    product(&(PairStrip){a + part.first * words, words, b, part.rows, TILE, words, c + part.first * TILE, false},
            2 * words_for(part.keys), TILE);
}

/* The weights are left in narrow[TILE][TILE_WORDS]. */
static void multiply_key_pairs(const AttentionProblem *p, const Block *block, PairProduct *product, const float *weight,
                               uint32_t *narrow, const uint32_t *b, float *c, bool adds) {
  int64_t width = padded(p->features);
  for (Part part = {0}; part_next(p, block, &part);) {
    uint32_t *left = narrow + part.first * TILE_WORDS;
    float *to = c + part.first * width;
    narrow_rows(weight + part.first * TILE, part.rows, part.keys, left);
    if (part.keys > 0)
      product(&(PairStrip){left, TILE_WORDS, b, part.rows, width, words_for(part.keys), to, adds}, width, width);
    else if (!adds)
      for (int64_t d = 0; d < part.rows * width; d += LANES) lanes_store(to + d, (Lanes)0.0f);
  }
}

static void multiply_query_pairs(const AttentionProblem *p, const Block *block, PairProduct *product, const float *weight,
                                 uint32_t *narrow, const uint32_t *b, float *c) {
  int64_t width = padded(p->features), part = rows_of_part(p, block);
  for (int64_t j = 0; j < block->keys; j += part) {
    int64_t first = rows_before(p, block, j) / PAIRED * PAIRED, keys = smaller(part, block->keys - j);
    if (first >= block->count) continue;
    const uint32_t *left = narrow + j * TILE_WORDS + first / 2, *right = b + first / 2 * width;
    narrow_columns(weight + j, first, block->count, keys, narrow + j * TILE_WORDS);
    product(&(PairStrip){left, TILE_WORDS, right, keys, width, words_for(block->count - first), c + j * width, true},
            width, width);
  }
}

/* ── forward ────────────────────────────────────────────────────────────────────────────────── */
static void forward_by_pairs(const AttentionProblem *p, void *const *args, int64_t b, int64_t h,
                        int64_t first, ForwardPairs *x) {
  Forward *f = &x->f;
  int64_t n = p->features, width = padded(n), words = words_for(n), g = h / (p->heads / p->groups);
  const void *mask = attention_mask_of(p, args, b, h);
  Block block = {.first = first, .count = smaller(TILE, p->rows - first)};
  int64_t seen = keys_seen(p, first + block.count);
  Draws draws = attention_draws_of(p, args, b, h);
  fill_words(attention_place(p, &p->q, args, b, h, first), n, p->q.row, block.count, x->query);
  forward_begin(&block, width, f);
  for (block.key = 0; block.key < seen; block.key += TILE) {
    block.keys = smaller(TILE, seen - block.key);
    if (block_is_hidden(p, mask, &block)) continue;
    fill_words(attention_place(p, &p->k, args, b, g, block.key), n, p->k.row, block.keys, x->rows);
    transpose_words(x->rows, words, x->right);
    score_pairs(p, &block, x->product, x->query, x->right, f->score);
    weigh(p, mask, &draws, &block, width, f);
    fill_words(attention_place(p, &p->v, args, b, g, block.key), n, p->v.row, block.keys, x->rows);
    pair_rows(x->rows, words, width, x->right);
    multiply_key_pairs(p, &block, x->product, f->score, x->weights, x->right, f->out, true);
  }
  forward_finish(p, args, b, h, first, block.count, f);
}

/* ── backward ───────────────────────────────────────────────────────────────────────────────── */
/* As backward_block. */
static void backward_block_by_pairs(const AttentionProblem *p, void *const *args, int64_t share, int64_t b,
                               int64_t h, const Block *block, BackwardPairs *x) {
  Backward *w = &x->w;
  int64_t n = p->features, width = padded(n), words = words_for(n), first = block->first, count = block->count, step;
  const float *lse = (const float *)args[p->arg_lse] + (b * p->heads + h) * p->rows + first;
  float *dq = sums_at(p, args, share, b, h, first, &step);
  fill_words(attention_place(p, &p->q, args, b, h, first), n, p->q.row, count, x->query);
  fill_words(attention_place(p, &p->dy, args, b, h, first), n, p->dy.row, count, x->dy);
  score_pairs(p, block, x->product, x->query, x->key, w->weight);
  score_pairs(p, block, x->product, x->dy, x->value, w->slope);
  deltas_of_block(p, args, b, h, block, w->delta);
  Draws draws = attention_draws_of(p, args, b, h);
  slopes(p, attention_mask_of(p, args, b, h), &draws, block, lse, w->delta, w);
  pair_rows(x->dy, words, width, x->right);
  multiply_query_pairs(p, block, x->product, w->weight, x->narrow, x->right, w->dv);
  pair_rows(x->query, words, width, x->right);
  multiply_query_pairs(p, block, x->product, w->slope, x->narrow, x->right, w->dk);
  bool is_direct = count % AMX_WORDS == 0 && step == width;
  multiply_key_pairs(p, block, x->product, w->slope, x->narrow, x->key_rows, is_direct ? dq : w->room[0], is_direct);
  if (!is_direct) add_rows_to_sums(n, count, w->room[0], width, dq, step);
}

static void backward_by_pairs(const AttentionProblem *p, void *const *args, int64_t b, int64_t g,
                         int64_t share, BackwardPairs *x) {
  Backward *w = &x->w;
  int64_t n = p->features, width = padded(n), words = words_for(n), heads = p->heads / p->groups;
  for (int64_t h = g * heads; h < (g + 1) * heads; h++) attention_clear_sums(p, args, share, b, h);
  Block block;
  for (block.key = share * TILE; block.key < p->keys; block.key += p->shares * TILE) {
    block.keys = smaller(TILE, p->keys - block.key);
    fill_words(attention_place(p, &p->k, args, b, g, block.key), n, p->k.row, block.keys, x->rows);
    transpose_words(x->rows, words, x->key);
    pair_rows(x->rows, words, width, x->key_rows);
    fill_words(attention_place(p, &p->v, args, b, g, block.key), n, p->v.row, block.keys, x->rows);
    transpose_words(x->rows, words, x->value);
    for (int64_t i = 0; i < TILE * width; i += LANES) {
      lanes_store(w->dk + i, (Lanes)0.0f);
      lanes_store(w->dv + i, (Lanes)0.0f);
    }
    for (int64_t h = g * heads; h < (g + 1) * heads; h++)
      for (block.first = 0; block.first < p->rows; block.first += TILE) {
        block.count = smaller(TILE, p->rows - block.first);
        if (keys_seen(p, block.first + block.count) <= block.key) continue;
        backward_block_by_pairs(p, args, share, b, h, &block, x);
      }
    backward_finish(p, args, b, g, &block, w);
  }
}

/* ── items ──────────────────────────────────────────────────────────────────────────────────── */
/* As gemm_bf16_way; vcvtne2ps2bf16 is wanted in any case, which all processors with AMX have. */
static int pairs_way(const AttentionProblem *p) {
  return p->type == OPERAND_BF16 && (gemm_bf16_found() & GEMM_DPBF16) ? gemm_bf16_way(p->may_use) : 0;
}
BY_TILES void begin_tiles(void) { amx_begin(); }
BY_TILES void end_tiles(void) { amx_end(); }

static __attribute__((noinline)) void run_forward_by_pairs(const AttentionProblem *p, void *const *args, int64_t begin, int64_t end, int way) {
  ForwardPairs x;
  int64_t blocks = (p->rows + TILE - 1) / TILE;
  x.product = way == GEMM_AMX ? amx_product : dpbf16_product;
  if (way == GEMM_AMX) begin_tiles();
  for (int64_t i = begin; i < end; i++) {
    int64_t head = i / blocks;
    forward_by_pairs(p, args, head / p->heads, head % p->heads, i % blocks * TILE, &x);
  }
  if (way == GEMM_AMX) end_tiles();
}

static __attribute__((noinline)) void run_backward_by_pairs(const AttentionProblem *p, void *const *args, int64_t begin, int64_t end, int way) {
  BackwardPairs x;
  x.product = way == GEMM_AMX ? amx_product : dpbf16_product;
  if (way == GEMM_AMX) begin_tiles();
  for (int64_t i = begin; i < end; i++) {
    int64_t head = i / p->shares;
    backward_by_pairs(p, args, head / p->groups, head % p->groups, i % p->shares, &x);
  }
  if (way == GEMM_AMX) end_tiles();
}
#else
static int pairs_way(const AttentionProblem *p) {
  (void)p;
  return 0;
}
static void run_forward_by_pairs(const AttentionProblem *p, void *const *args, int64_t begin, int64_t end, int way) {
  (void)p, (void)args, (void)begin, (void)end, (void)way;
}
static void run_backward_by_pairs(const AttentionProblem *p, void *const *args, int64_t begin, int64_t end, int way) {
  run_forward_by_pairs(p, args, begin, end, way);
}
#endif
