/* event_file: see event_file.h. */
#include "runtime/command/event_file.h"
#include <string.h>

/* ── records ──────────────────────────────────────────────────────────────────────────────── */

/* By half bytes of the reflected polynomial 0x82f63b78: records are small. */
uint32_t event_crc(const void *bytes, size_t count) {
  static const uint32_t of_half[16] = {
      0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
      0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
      0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
  };
  const uint8_t *at = bytes;
  uint32_t crc = 0xffffffff;
  for (size_t i = 0; i < count; i++) {
    crc ^= at[i];
    crc = crc >> 4 ^ of_half[crc & 15];
    crc = crc >> 4 ^ of_half[crc & 15];
  }
  return ~crc;
}

uint32_t event_masked_crc(const void *bytes, size_t count) {
  uint32_t crc = event_crc(bytes, count);
  return (crc >> 15 | crc << 17) + 0xa282ead8;
}

static void append_little(Text *out, uint64_t value, int bytes) {
  char at[8];
  for (int i = 0; i < bytes; i++) at[i] = (char)(value >> 8 * i);
  text_append(out, at, (size_t)bytes);
}

void event_append_record(Text *out, const Text *message) {
  size_t start = out->count;
  append_little(out, message->count, 8);
  append_little(out, event_masked_crc(out->at + start, 8), 4);
  text_append(out, text_cstr(message), message->count);
  append_little(out, event_masked_crc(text_cstr(message), message->count), 4);
}

/* ── writing fields ───────────────────────────────────────────────────────────────────────── */
enum { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_32 = 5 };

static void append_varint(Text *out, uint64_t value) {
  char at[10];
  size_t count = 0;
  for (; value > 127; value >>= 7) at[count++] = (char)(value | 128);
  at[count++] = (char)value;
  text_append(out, at, count);
}

static void wire_start(Text *out, int field, int type) {
  append_varint(out, (uint64_t)(field << 3 | type));
}

void wire_int(Text *out, int field, int64_t value) {
  wire_start(out, field, WIRE_VARINT);
  append_varint(out, (uint64_t)value);
}

static uint64_t bits_of_double(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

void wire_double(Text *out, int field, double value) {
  wire_start(out, field, WIRE_64);
  append_little(out, bits_of_double(value), 8);
}

void wire_float(Text *out, int field, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  wire_start(out, field, WIRE_32);
  append_little(out, bits, 4);
}

void wire_bytes(Text *out, int field, const void *bytes, size_t count) {
  wire_start(out, field, WIRE_BYTES);
  append_varint(out, count);
  text_append(out, count ? bytes : "", count);
}

void wire_string(Text *out, int field, const char *value) {
  wire_bytes(out, field, value, strlen(value));
}

void wire_message(Text *out, int field, const Text *message) {
  wire_bytes(out, field, text_cstr(message), message->count);
}

void wire_doubles(Text *out, int field, const double *values, int count) {
  wire_start(out, field, WIRE_BYTES);
  append_varint(out, (uint64_t)count * 8);
  for (int i = 0; i < count; i++) append_little(out, bits_of_double(values[i]), 8);
}

/* ── reading ──────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  const uint8_t *at;
  size_t left;
} Bytes;

static uint64_t take_little(const uint8_t *at, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << 8 * i;
  return value;
}

static void skip_bytes(Bytes *bytes, size_t count) {
  bytes->at += count;
  bytes->left -= count;
}

static bool take_varint(Bytes *bytes, uint64_t *out) {
  *out = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (!bytes->left) return false;
    uint8_t byte = *bytes->at;
    skip_bytes(bytes, 1);
    *out |= (uint64_t)(byte & 127) << shift;
    if (byte < 128) return true;
  }
  return false;
}

/* The step of an Event: its field 2; 0, as it is where the field is missing. False: it is none. */
static bool event_step(Bytes event, int64_t *step) {
  uint64_t key, value;
  *step = 0;
  while (event.left) {
    if (!take_varint(&event, &key)) return false;
    int type = (int)(key & 7);
    size_t size = type == WIRE_64 ? 8 : type == WIRE_32 ? 4 : 0;
    if (type == WIRE_VARINT || type == WIRE_BYTES) {
      if (!take_varint(&event, &value)) return false;
      if (key == (2 << 3 | WIRE_VARINT)) *step = (int64_t)value;
      if (type == WIRE_BYTES && value > event.left) return false;
      size = type == WIRE_BYTES ? (size_t)value : 0;
    } else if (!size || size > event.left) {
      return false;
    }
    skip_bytes(&event, size);
  }
  return true;
}

size_t event_bytes_to_keep(const void *from, size_t count, int64_t step) {
  Bytes bytes = {from, count};
  while (bytes.left >= 16) { /* length, two sums */
    uint64_t length = take_little(bytes.at, 8);
    int64_t of;
    if (length > bytes.left - 16 || take_little(bytes.at + 8, 4) != event_masked_crc(bytes.at, 8))
      break;
    const uint8_t *message = bytes.at + 12;
    uint32_t sum = event_masked_crc(message, (size_t)length);
    if (take_little(message + length, 4) != sum) break;
    if (!event_step((Bytes){message, (size_t)length}, &of) || of > step) break;
    skip_bytes(&bytes, (size_t)length + 16);
  }
  return count - bytes.left;
}
