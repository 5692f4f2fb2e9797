/* source_inflate: see source_inflate.h. The decoder is ours (RFC 1951) because the start of a
 * training waits for it: with the whole file and the whole result in memory it needs no window and
 * no state between calls, and is several times as fast as zlib's. zlib reads the first bytes, whose
 * length that is not known yet, and computes checksums.
 * Codes are looked up by 11 (distances: 8) bits at once; longer ones lead to a second table.
 * Invariants: reads stop at in_end (then zeros come, counted in `beyond`), writes at the end of
 * `out`, copies start within the same member. */
#include "runtime/data/source_inflate.h"
#include <errno.h>
#include <string.h>
#include <zlib.h>

enum { GZIP_WINDOW = 15 + 16, CHUNK = 1 << 20, LONGEST_CODE = 15 };

bool inflate_is_gzip(const uint8_t *in, size_t in_count) {
  return in_count >= 18 && in[0] == 0x1f && in[1] == 0x8b;
}

int inflate_head(const uint8_t *in, size_t in_count, uint8_t *out, size_t capacity, size_t *count) {
  z_stream stream = {0};
  if (inflateInit2(&stream, GZIP_WINDOW) != Z_OK) return ENOMEM;
  stream.next_in = (uint8_t *)(uintptr_t)in;
  stream.avail_in = in_count < CHUNK ? (uInt)in_count : CHUNK;
  stream.next_out = out;
  stream.avail_out = (uInt)capacity;
  int result;
  do {
    result = inflate(&stream, Z_NO_FLUSH);
  } while (result == Z_STREAM_END && stream.avail_out &&
           inflate_is_gzip(stream.next_in, stream.avail_in) &&
           inflateReset2(&stream, GZIP_WINDOW) == Z_OK);
  *count = capacity - stream.avail_out;
  inflateEnd(&stream);
  if (result == Z_MEM_ERROR) return ENOMEM;
  return result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR ? 0 : EINVAL;
}

static const char truncated[] = "is truncated: the gzip data ends too early";
static const char damaged[] = "is damaged: the gzip data is not valid";
static const char too_long[] = "is damaged: it holds more bytes than its header promises";
static const char too_short[] = "is truncated: it holds fewer bytes than its header promises";
static const char stopped[] = "was not read to its end";

/* ── bits ─────────────────────────────────────────────────────────────────────────────────── */

typedef struct {
  const uint8_t *in, *in_end;
  uint64_t bits;                   /* the next bits, first one lowest */
  unsigned count;                  /* of them known; higher ones may be there already */
  size_t beyond;                   /* zero bytes made up after the end */
  uint8_t *out, *out_end, *member; /* member: start of this gzip member's content */
  uint8_t *told;                   /* progress was told up to here */
  uint8_t *start;
  const uint8_t *in_start;
  InflateProgress *progress;
  void *context;
} Stream;

/* At least 56 bits are known afterwards. */
static inline void refill(Stream *s) {
  if (s->in_end - s->in >= 8) {
    uint64_t word;
    memcpy(&word, s->in, 8);
    s->bits |= word << s->count;
    s->in += (63 - s->count) >> 3;
    s->count |= 56;
    return;
  }
  for (; s->count < 56; s->count += 8) {
    if (s->in < s->in_end)
      s->bits |= (uint64_t)*s->in++ << s->count;
    else
      s->beyond++;
  }
}

static inline uint32_t take_bits(Stream *s, unsigned count) {
  uint32_t value = (uint32_t)(s->bits & ((1u << count) - 1));
  s->bits >>= count;
  s->count -= count;
  return value;
}

static bool tell(const Stream *s) {
  return s->progress(s->context, (size_t)(s->in - s->in_start), (size_t)(s->out - s->start));
}

static inline bool is_past_end(const Stream *s) { return s->beyond * 8 > s->count; }

/* Steps back to the byte after the last bit used. */
static bool align_to_byte(Stream *s) {
  if (is_past_end(s)) return false;
  size_t unused = s->count / 8 - s->beyond;
  s->in -= unused;
  s->bits = 0;
  s->count = 0;
  s->beyond = 0;
  return true;
}

/* ── code tables ──────────────────────────────────────────────────────────────────────────── */

/* An entry: value << 16 | kind << 12 | extra bits << 8 | bits of the code; 0: no such code.
 * LITERAL stands alone in the highest bit. For a LINK, value is where the second table starts and
 * extra its bits. */
#define LITERAL 0x80000000u
enum { BASE = 1, END = 2, LINK = 3 };
enum { LITLEN_BITS = 11, DIST_BITS = 8, PRECODE_BITS = 7 };
enum { LITLEN_SIZE = 2048 + 144 * 16, DIST_SIZE = 256 + 16 * 128, PRECODE_SIZE = 128 };
#define ENTRY(value, kind, extra) ((uint32_t)(value) << 16 | (kind) << 12 | (extra) << 8)

typedef struct {
  uint32_t litlen[LITLEN_SIZE], dist[DIST_SIZE], precode[PRECODE_SIZE];
} Tables;

static uint32_t litlen_entry(unsigned symbol) {
  static const uint16_t base[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                  31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
  static const uint8_t extra[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                  2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
  if (symbol < 256) return LITERAL | symbol << 16;
  if (symbol == 256) return ENTRY(0, END, 0);
  return symbol > 285 ? 0 : ENTRY(base[symbol - 257], BASE, (uint32_t)extra[symbol - 257]);
}

static uint32_t dist_entry(unsigned symbol) {
  if (symbol > 29) return 0;
  unsigned extra = symbol < 4 ? 0 : symbol / 2 - 1;
  unsigned base = symbol < 4 ? symbol + 1 : ((2 + symbol % 2) << extra) + 1;
  return ENTRY(base, BASE, extra);
}

static uint32_t precode_entry(unsigned symbol) { return ENTRY(symbol, BASE, 0); }

static unsigned reversed(unsigned code, unsigned length) {
  unsigned result = 0;
  for (unsigned i = 0; i < length; i++) result |= (code >> i & 1) << (length - 1 - i);
  return result;
}

/* Canonical codes (RFC 1951, 3.2.2) by symbol; false if there are more than fit, or fewer, other
 * than none or, where that is allowed, a single one of one bit. */
static bool assign_codes(const uint8_t *length, unsigned symbols, bool may_be_single,
                         uint16_t *code) {
  unsigned count[LONGEST_CODE + 1] = {0}, next[LONGEST_CODE + 2] = {0}, used = 0;
  for (unsigned i = 0; i < symbols; i++) count[length[i]]++;
  count[0] = 0;
  for (unsigned bits = 1; bits <= LONGEST_CODE; bits++) {
    next[bits + 1] = (next[bits] + count[bits]) << 1;
    if (next[bits] + count[bits] > 1u << bits) return false;
    used += count[bits];
  }
  bool is_complete = next[LONGEST_CODE + 1] == 2u << LONGEST_CODE;
  bool is_single = may_be_single && used == 1 && count[1] == 1;
  if (!is_complete && used && !is_single) return false;
  for (unsigned i = 0; i < symbols; i++)
    if (length[i]) code[i] = (uint16_t)reversed(next[length[i]]++, length[i]);
  return true;
}

static bool build_table(uint32_t *table, unsigned size, unsigned bits, const uint8_t *length,
                        unsigned symbols, uint32_t (*entry)(unsigned)) {
  uint16_t code[320] = {0};
  uint8_t longest[1 << LITLEN_BITS] = {0}; /* of the codes that start with these bits */
  unsigned first = 1u << bits, end = first;
  if (!assign_codes(length, symbols, entry != precode_entry, code)) return false;
  memset(table, 0, first * sizeof *table);
  for (unsigned i = 0; i < symbols; i++)
    if (length[i] > bits && longest[code[i] & (first - 1)] < length[i])
      longest[code[i] & (first - 1)] = length[i];
  for (unsigned i = 0; i < symbols; i++) {
    uint32_t value = entry(i);
    if (!length[i]) continue;
    if (length[i] <= bits) {
      for (unsigned at = code[i]; at < first; at += 1u << length[i])
        table[at] = value ? value | length[i] : 0;
      continue;
    }
    unsigned start = code[i] & (first - 1), more = longest[start] - bits;
    if (!table[start]) {
      if (end + (1u << more) > size) return false;
      memset(table + end, 0, sizeof *table << more);
      table[start] = ENTRY(end, LINK, more) | bits;
      end += 1u << more;
    }
    uint32_t *second = table + (table[start] >> 16);
    for (unsigned at = code[i] >> bits; at < 1u << more; at += 1u << (length[i] - bits))
      second[at] = value ? value | (length[i] - bits) : 0;
  }
  return true;
}

static bool build_fixed(Tables *tables) {
  uint8_t length[288], dist[32];
  for (unsigned i = 0; i < 288; i++) length[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
  memset(dist, 5, sizeof dist);
  return build_table(tables->litlen, LITLEN_SIZE, LITLEN_BITS, length, 288, litlen_entry) &&
         build_table(tables->dist, DIST_SIZE, DIST_BITS, dist, 32, dist_entry);
}

/* The code lengths of a dynamic block, themselves coded (3.2.7). */
static bool read_tables(Stream *s, Tables *tables) {
  static const uint8_t order[19] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                    11, 4,  12, 3, 13, 2, 14, 1, 15};
  uint8_t precode[19] = {0}, length[320] = {0};
  refill(s);
  unsigned litlens = take_bits(s, 5) + 257, dists = take_bits(s, 5) + 1,
           precodes = take_bits(s, 4) + 4;
  if (litlens > 286 || dists > 30) return false;
  for (unsigned i = 0; i < precodes; i++) {
    refill(s);
    precode[order[i]] = (uint8_t)take_bits(s, 3);
  }
  if (!build_table(tables->precode, PRECODE_SIZE, PRECODE_BITS, precode, 19, precode_entry))
    return false;
  for (unsigned at = 0; at < litlens + dists;) {
    refill(s);
    uint32_t entry = tables->precode[s->bits & ((1 << PRECODE_BITS) - 1)];
    if (!entry || is_past_end(s)) return false;
    take_bits(s, entry & 0xff);
    unsigned symbol = entry >> 16;
    if (symbol < 16) {
      length[at++] = (uint8_t)symbol;
      continue;
    }
    unsigned times = symbol == 16   ? 3 + take_bits(s, 2)
                     : symbol == 17 ? 3 + take_bits(s, 3)
                                    : 11 + take_bits(s, 7);
    if ((symbol == 16 && at == 0) || at + times > litlens + dists) return false;
    memset(length + at, symbol == 16 ? length[at - 1] : 0, times);
    at += times;
  }
  return length[256] &&
         build_table(tables->litlen, LITLEN_SIZE, LITLEN_BITS, length, litlens, litlen_entry) &&
         build_table(tables->dist, DIST_SIZE, DIST_BITS, length + litlens, dists, dist_entry);
}

/* ── blocks ───────────────────────────────────────────────────────────────────────────────── */

static const char *copy_stored(Stream *s) {
  take_bits(s, s->count % 8);
  if (!align_to_byte(s)) return truncated;
  if (s->in_end - s->in < 4) return truncated;
  size_t count = (size_t)s->in[0] | (size_t)s->in[1] << 8;
  size_t check = (size_t)s->in[2] | (size_t)s->in[3] << 8;
  s->in += 4;
  if ((count ^ check) != 0xffff) return damaged;
  if ((size_t)(s->in_end - s->in) < count) return truncated;
  if ((size_t)(s->out_end - s->out) < count) return too_long;
  memcpy(s->out, s->in, count);
  s->in += count;
  s->out += count;
  return NULL;
}

static inline uint32_t look_up(Stream *s, const uint32_t *table, unsigned bits) {
  uint32_t entry = table[s->bits & ((1u << bits) - 1)];
  if ((entry & (LITERAL | 0xf000)) == LINK << 12) {
    take_bits(s, bits);
    entry = table[(entry >> 16) + (s->bits & ((1u << (entry >> 8 & 15)) - 1))];
  }
  return entry;
}

/* `length` bytes from `distance` back; is_roomy: up to 7 bytes after them may be overwritten. */
static inline void copy_back(Stream *s, unsigned length, unsigned distance, bool is_roomy) {
  uint8_t *to = s->out;
  const uint8_t *from = to - distance;
  s->out += length;
  if (is_roomy && distance >= 8) {
    for (; to < s->out; to += 8, from += 8) memcpy(to, from, 8);
  } else if (distance == 1) {
    memset(to, *from, length);
  } else {
    while (to < s->out) *to++ = *from++;
  }
}

/* Up to the end of the block (*is_end), or the out limit. In a roomy stretch neither input nor
 * output can end within one turn, so that nothing is checked but once per turn. */
static inline __attribute__((always_inline)) const char *
decode(Stream *s, const Tables *tables, const uint8_t *limit, bool is_roomy, bool *is_end) {
  const uint32_t *litlen = tables->litlen;
  const uint32_t mask = (1u << LITLEN_BITS) - 1;
  while (s->out < limit && (!is_roomy || s->in_end - s->in >= 16)) {
    refill(s);
    if (is_roomy) { /* three literals of at most 11 bits each leave 23 for a length */
      uint32_t entry = litlen[s->bits & mask];
      if (entry & LITERAL) {
        take_bits(s, entry & 0xff), *s->out++ = (uint8_t)(entry >> 16);
        entry = litlen[s->bits & mask];
        if (entry & LITERAL) {
          take_bits(s, entry & 0xff), *s->out++ = (uint8_t)(entry >> 16);
          entry = litlen[s->bits & mask];
          if (entry & LITERAL) {
            take_bits(s, entry & 0xff), *s->out++ = (uint8_t)(entry >> 16);
            continue;
          }
        }
      }
    }
    uint32_t entry = look_up(s, litlen, LITLEN_BITS);
    take_bits(s, entry & 0xff);
    if (entry & LITERAL) {
      if (is_past_end(s)) return truncated;
      *s->out++ = (uint8_t)(entry >> 16);
      continue;
    }
    if ((entry >> 12 & 15) == END) {
      *is_end = true;
      return is_past_end(s) ? truncated : NULL;
    }
    if (!entry) return is_past_end(s) ? truncated : damaged;
    unsigned length = (entry >> 16) + take_bits(s, entry >> 8 & 15);
    refill(s);
    entry = look_up(s, tables->dist, DIST_BITS);
    if (!entry) return is_past_end(s) ? truncated : damaged;
    take_bits(s, entry & 0xff);
    unsigned distance = (entry >> 16) + take_bits(s, entry >> 8 & 15);
    if (is_past_end(s)) return truncated;
    if (distance > (size_t)(s->out - s->member)) return damaged;
    if (!is_roomy && length > (size_t)(s->out_end - s->out)) return too_long;
    copy_back(s, length, distance, is_roomy);
  }
  return NULL;
}

enum { ROOM = 258 + 8 + 3 };

static const char *inflate_coded(Stream *s, const Tables *tables) {
  bool is_end = false;
  while (!is_end) {
    const char *failure;
    if (s->out_end - s->out > ROOM && s->in_end - s->in >= 16) {
      const uint8_t *limit = s->out_end - ROOM;
      if (limit - s->out > CHUNK) limit = s->out + CHUNK;
      failure = decode(s, tables, limit, true, &is_end);
    } else if (s->out < s->out_end) {
      const uint8_t *limit = s->out_end - s->out > 64 ? s->out + 64 : s->out_end;
      failure = decode(s, tables, limit, false, &is_end);
    } else { /* full: only the end of the block may come */
      refill(s);
      uint32_t entry = look_up(s, tables->litlen, LITLEN_BITS);
      take_bits(s, entry & 0xff);
      if (is_past_end(s)) return truncated;
      return !entry ? damaged : (entry & (LITERAL | 0xf000)) == END << 12 ? NULL : too_long;
    }
    if (failure) return failure;
    if (s->out - s->told >= CHUNK / 2) {
      s->told = s->out;
      if (!tell(s)) return stopped;
    }
  }
  return NULL;
}

static const char *inflate_blocks(Stream *s, Tables *tables) {
  bool is_last = false;
  while (!is_last) {
    refill(s);
    is_last = take_bits(s, 1);
    unsigned kind = take_bits(s, 2);
    const char *failure;
    if (kind == 0)
      failure = copy_stored(s);
    else if (kind == 3)
      failure = damaged;
    else if (!(kind == 1 ? build_fixed(tables) : read_tables(s, tables)))
      failure = is_past_end(s) ? truncated : damaged;
    else
      failure = inflate_coded(s, tables);
    if (!failure && is_past_end(s)) failure = truncated;
    if (failure) return failure;
  }
  take_bits(s, s->count % 8);
  return align_to_byte(s) ? NULL : truncated;
}

/* ── gzip ─────────────────────────────────────────────────────────────────────────────────── */

static bool skip_text(Stream *s) {
  const uint8_t *end = memchr(s->in, 0, (size_t)(s->in_end - s->in));
  s->in = end ? end + 1 : s->in_end;
  return end != NULL;
}

static const char *skip_header(Stream *s) {
  enum { HAS_CHECK = 2, HAS_EXTRA = 4, HAS_NAME = 8, HAS_COMMENT = 16, RESERVED = 0xe0 };
  if (!inflate_is_gzip(s->in, (size_t)(s->in_end - s->in))) return damaged;
  unsigned flags = s->in[3];
  if (s->in[2] != 8 || flags & RESERVED) return damaged;
  s->in += 10;
  if (flags & HAS_EXTRA) {
    if (s->in_end - s->in < 2) return truncated;
    ptrdiff_t extra = s->in[0] | s->in[1] << 8;
    if (s->in_end - s->in - 2 < extra) return truncated;
    s->in += 2 + extra;
  }
  if (flags & HAS_NAME && !skip_text(s)) return truncated;
  if (flags & HAS_COMMENT && !skip_text(s)) return truncated;
  if (flags & HAS_CHECK) {
    if (s->in_end - s->in < 2) return truncated;
    s->in += 2;
  }
  return NULL;
}

static uint32_t little_32(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Told in pieces, so that a stop need not wait for gigabytes. */
static const char *check_sum(Stream *s, uint32_t expected) {
  uLong sum = crc32(0, NULL, 0);
  for (const uint8_t *at = s->member; at < s->out;) {
    size_t count = (size_t)(s->out - at) < CHUNK ? (size_t)(s->out - at) : CHUNK;
    sum = crc32(sum, at, (uInt)count);
    at += count;
    if (!tell(s)) return stopped;
  }
  return sum == expected ? NULL : "is damaged: its gzip checksum is wrong";
}

const char *inflate_all(const uint8_t *in, size_t in_count, uint8_t *out, size_t count,
                        InflateProgress *progress, void *context) {
  Tables tables;
  Stream s = {.in = in,
              .in_end = in + in_count,
              .out = out,
              .out_end = out + count,
              .told = out,
              .start = out,
              .in_start = in,
              .progress = progress,
              .context = context};
  do {
    const char *failure = skip_header(&s);
    s.member = s.out;
    if (!failure) failure = inflate_blocks(&s, &tables);
    if (failure) return failure;
    if (s.in_end - s.in < 8) return truncated;
    if (!tell(&s)) return stopped;
    failure = check_sum(&s, little_32(s.in));
    if (failure) return failure;
    if (little_32(s.in + 4) != (uint32_t)(s.out - s.member)) return damaged;
    s.in += 8;
  } while (s.in < s.in_end);
  return s.out == s.out_end ? NULL : too_short;
}
