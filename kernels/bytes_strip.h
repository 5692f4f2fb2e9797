/* bytes_strip: rows of bytes by a strip of rounded weights, for rounded_bytes.h, which includes it once for each kind of instruction:
 *
 *   BYTES(name)                its functions, with the attribute BYTES_TARGET
 *   BYTES_ADD(sum, a, b)       adds products of unsigned bytes of a by signed ones of b to sums of its own kind, of BYTES_MOST words at most,
 *   BYTES_BEGIN(sum)           which begin so,
 *   BYTES_END(sum, own)        and become sums of 32 bits, one for each word, so */

/* `count` steps of one group of a strip's first vectors. */
ALWAYS BYTES_TARGET void BYTES(part)(int bits, int vectors, int64_t width, const uint8_t *from, int64_t count, int32_t offset, uint32_t *to, int32_t *begin) {
  typedef int8_t SignedLanes __attribute__((ext_vector_type(64)));
  const WordLanes ones = (WordLanes)0x01010101u, low = (WordLanes)0x0f0f0f0fu, sign = (WordLanes)0x08080808u;
  WordLanes total[GEMM_MAX_VECTORS];
  UNROLL for (int j = 0; j < vectors; j++) total[j] = (WordLanes)0;
  for (; count > 0; count -= 32 / bits, from += width * 4, to += 8 / bits * width)
    UNROLL for (int j = 0; j < vectors; j++) {
      WordLanes word = words_at(from + j * LANES * 4);
      UNROLL for (int half = 0; half < 8 / bits; half++) {
        WordLanes numbers = bits == 8 ? word : (WordLanes)((SignedLanes)((word >> (4 * half) & low) ^ sign) - (SignedLanes)sign);
        total[j] = BYTES_END(total[j], BYTES_ADD(BYTES_BEGIN(total[j]), ones, numbers));
        *(WordLanes *)(to + half * width + j * LANES) = numbers;
      }
    }
  UNROLL for (int j = 0; j < vectors; j++) *(WordLanes *)(begin + j * LANES) = total[j] * (uint32_t)-offset;
}

ALWAYS BYTES_TARGET BytesPanel BYTES(panel)(int vectors, const RoundedProduct *p, uint8_t *strip, const BytesSteps *s, BytesRoom *room) {
  int64_t width = rounded_width(p), g = s->first / p->group;
  const uint8_t *from = strip + g * rounded_group_bytes(p) + s->first % p->group / rounded_steps(p) * width * 4;
  for (int64_t i = 0; i < s->parts; i++, from += rounded_group_bytes(p)) {
    uint32_t *to = room->right + i * s->words * width;
    if (p->bits == 4)
      BYTES(part)(4, vectors, width, from, s->count, rounded_offset(p), to, room->begin + i * width);
    else
      BYTES(part)(8, vectors, width, from, s->count, rounded_offset(p), to, room->begin + i * width);
  }
  return (BytesPanel){room->right, room->begin, strip_scales(p, strip) + g * width, width, s->words, s->parts};
}

/* sum += the products of one word of each row, rows `pitch` words apart, by the vectors at right. */
ALWAYS BYTES_TARGET void BYTES(step)(int rows, int vectors, WordSums sum, const uint32_t *left, int64_t pitch, const uint32_t *right) {
  WordLanes by[GEMM_MAX_VECTORS];
  UNROLL for (int j = 0; j < vectors; j++) by[j] = *(const WordLanes *)(right + j * LANES);
  UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < vectors; j++) {
    WordLanes word = (WordLanes)left[i * pitch];
    sum[i][j] = BYTES_ADD(sum[i][j], word, by[j]);
  }
}

/* A part's `words` words, so many at a time as there is room for in a sum. */
ALWAYS BYTES_TARGET void BYTES(words)(int rows, int vectors, WordSums sum, const uint32_t *left, int64_t pitch, const uint32_t *right, int64_t width,
                                      int64_t words) {
  while (words > 0) {
    int64_t some = words < BYTES_MOST ? words : BYTES_MOST;
    WordSums own;
    words -= some;
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < vectors; j++) own[i][j] = BYTES_BEGIN(sum[i][j]);
#pragma clang loop unroll(disable)
    do {
      BYTES(step)(rows, vectors, own, left, pitch, right);
      left++;
      right += width;
    } while (--some);
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < vectors; j++) sum[i][j] = BYTES_END(sum[i][j], own[i][j]);
  }
}

/* Sums of `rows` rows and of `vectors` vectors of columns from `column` on. */
ALWAYS BYTES_TARGET void BYTES(sums)(int rows, int vectors, const BytesPanel *panel, int64_t column, const uint32_t *left, int64_t pitch,
                                     float *sums, int64_t stride, bool adds) {
  TileSums total;
  const uint32_t *right = panel->right + column;
  tile_begin(rows, vectors, total);
  for (int64_t part = 0; part < panel->parts; part++, left += panel->words, right += panel->words * panel->width) {
    WordSums sum;
    int64_t at = part * panel->width + column;
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < vectors; j++) sum[i][j] = *(const WordLanes *)(panel->begin + at + j * LANES);
    BYTES(words)(rows, vectors, sum, left, pitch, right, panel->width, panel->words);
    UNROLL for (int j = 0; j < vectors; j++) {
      Lanes scale = lanes_load(panel->scales + at + j * LANES);
      UNROLL for (int i = 0; i < rows; i++) total[i][j] += __builtin_convertvector((IntLanes)sum[i][j], Lanes) * scale;
    }
  }
  tile_end(rows, vectors, total, sums, stride, adds);
}

/* By vectors, as many rows and vectors at once as there are registers for two sums each. */
#define STRIP_OF(rows_at_once, vectors, at_once)                                                                                           \
  static BYTES_TARGET __attribute__((noinline)) void BYTES(strip_##vectors)(const RoundedProduct *p, uint8_t *strip, const BytesSteps *s,  \
                                                                            const BytesRows *rows, BytesRoom *room) {                      \
    BytesPanel panel = BYTES(panel)(vectors, p, strip, s, room);                                                                           \
    const int64_t stride = (vectors) * LANES;                                                                                              \
    for (int64_t row = 0; row < rows->rows; row += (rows_at_once))                                                                         \
      for (int64_t column = 0; column < stride; column += (at_once) * LANES)                                                               \
        BYTES(sums)(rows_at_once, at_once, &panel, column, rows->at + row * rows->pitch + s->word, rows->pitch,                            \
                    room->sums + row * stride + column, stride, s->first > 0);                                                             \
  }
#if defined __AVX512BW__
STRIP_OF(8, 1, 1)
STRIP_OF(6, 2, 2)
STRIP_OF(4, 3, 3)
STRIP_OF(3, 4, 4)
#else
STRIP_OF(3, 1, 1)
STRIP_OF(3, 2, 1)
STRIP_OF(3, 3, 1)
STRIP_OF(3, 4, 1)
#endif
static BytesStrip *const BYTES(strips)[] = {BYTES(strip_1), BYTES(strip_2), BYTES(strip_3), BYTES(strip_4)};
#undef STRIP_OF
#undef BYTES
#undef BYTES_TARGET
#undef BYTES_ADD
#undef BYTES_MOST
#undef BYTES_BEGIN
#undef BYTES_END
