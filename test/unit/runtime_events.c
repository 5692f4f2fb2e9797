/* events: sums and records against published vectors, records of any step cut from a file, and
 * files that are damaged or anything else. */
#include "runtime/command/event_file.h"
#include "runtime/command/events.h"
#include "test/unit/runtime_data.h"
#include <math.h>
#include <string.h>

/* RFC 3720, B.4, and the check value of CRC-32C. */
static void sums(void **state) {
  (void)state;
  uint8_t bytes[32];
  assert_int_equal(event_crc("123456789", 9), 0xe3069283);
  assert_int_equal(event_crc("", 0), 0);
  memset(bytes, 0, sizeof bytes);
  assert_int_equal(event_crc(bytes, 32), 0x8a9136aa);
  memset(bytes, 0xff, sizeof bytes);
  assert_int_equal(event_crc(bytes, 32), 0x62a8ab43);
  for (int i = 0; i < 32; i++) bytes[i] = (uint8_t)i;
  assert_int_equal(event_crc(bytes, 32), 0x46dd794e);
  for (int i = 0; i < 32; i++) bytes[i] = (uint8_t)(31 - i);
  assert_int_equal(event_crc(bytes, 32), 0x113fdb5c);
}

/* The first record of every event file of TensorFlow's: wall time 0 and the format's version. */
static void records(void **state) {
  (void)state;
  Text message = {0}, record = {0};
  wire_double(&message, 1, 1.5);
  wire_int(&message, 2, 300);
  wire_string(&message, 3, "brain.Event:2");
  static const uint8_t wanted[] = {0x09, 0,    0,   0,    0,   0,   0,   0xf8, 0x3f,
                                   0x10, 0xac, 2,   0x1a, 13,  'b', 'r', 'a',  'i',
                                   'n',  '.',  'E', 'v',  'e', 'n', 't', ':',  '2'};
  assert_int_equal(message.count, sizeof wanted);
  assert_memory_equal(message.at, wanted, sizeof wanted);
  event_append_record(&record, &message);
  assert_int_equal(record.count, sizeof wanted + 16);
  static const uint8_t length[8] = {sizeof wanted};
  assert_memory_equal(record.at, length, 8);
  uint32_t sum = event_masked_crc(length, 8);
  assert_memory_equal(record.at + 8, &sum, 4);
  assert_memory_equal(record.at + 12, wanted, sizeof wanted);
  text_free(&message);
  text_free(&record);
}

/* Negative and large numbers take ten bytes and less; 32 bits and packed doubles. */
static void numbers(void **state) {
  (void)state;
  Text message = {0};
  static const double pair[] = {1, -2};
  wire_int(&message, 1, -1);
  wire_float(&message, 2, 1);
  wire_doubles(&message, 6, pair, 2);
  static const uint8_t wanted[] = {
      0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0x15, 0, 0, 0x80, 0x3f, 0x32,
      16,   0,    0,    0,    0,    0,    0,    0xf0, 0x3f, 0,    0, 0,    0, 0, 0,    0,    0xc0};
  assert_int_equal(message.count, sizeof wanted);
  assert_memory_equal(message.at, wanted, sizeof wanted);
  text_free(&message);
}

static void append_step(Text *file, int64_t step) {
  Text message = {0};
  wire_double(&message, 1, 1e9);
  if (step) wire_int(&message, 2, step);
  wire_string(&message, 5, "values of any length");
  event_append_record(file, &message);
  text_free(&message);
}

static void cutting(void **state) {
  (void)state;
  Text file = {0};
  size_t end[12];
  for (int i = 0; i < 12; i++) {
    append_step(&file, 100 * i);
    end[i] = file.count;
  }
  assert_int_equal(event_bytes_to_keep(file.at, file.count, 1100), file.count);
  assert_int_equal(event_bytes_to_keep(file.at, file.count, 500), end[5]);
  assert_int_equal(event_bytes_to_keep(file.at, file.count, 599), end[5]);
  assert_int_equal(event_bytes_to_keep(file.at, file.count, 0), end[0]);
  assert_int_equal(event_bytes_to_keep(file.at, file.count, -1), 0);
  assert_int_equal(event_bytes_to_keep(file.at, 0, 5), 0);
  for (size_t cut = 0; cut < file.count; cut++) { /* up to the last whole record */
    size_t whole = 0;
    for (int i = 0; i < 12 && end[i] <= cut; i++) whole = end[i];
    assert_int_equal(event_bytes_to_keep(file.at, cut, 5000), whole);
  }
  for (size_t at = 0; at < file.count; at++) { /* up to the damaged record */
    size_t whole = 0;
    for (int i = 0; i < 12 && end[i] <= at; i++) whole = end[i];
    file.at[at] ^= 0x20;
    assert_int_equal(event_bytes_to_keep(file.at, file.count, 5000), whole);
    file.at[at] ^= 0x20;
  }
  text_free(&file);
}

/* Right sums around what is no Event. */
static void no_messages(void **state) {
  (void)state;
  static const struct {
    const char *bytes;
    size_t count;
  } none[] = {{"\x10", 1},
              {"\x10\xff", 2},
              {"\x09\0\0", 3},
              {"\x2a\x05xx", 4},
              {"\x0b", 1},
              {"\x15\0\0\0", 4},
              {"\x2a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11},
              {"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12}};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
    Text message = {0}, file = {0};
    text_append(&message, none[i].bytes, none[i].count);
    event_append_record(&file, &message);
    assert_int_equal(event_bytes_to_keep(file.at, file.count, INT64_MAX), 0);
    text_free(&message);
    text_free(&file);
  }
}

static void histograms(void **state) {
  (void)state;
  float values[] = {0, 30, 15, 14.999f, 29.5f, NAN, INFINITY, -INFINITY, 1, 1};
  EventsHistogram histogram = histogram_new();
  histogram_range(&histogram, values, 10);
  histogram_count(&histogram, values, 10);
  assert_true(histogram.least == 0 && histogram.most == 30);
  assert_int_equal(histogram.count, 7);
  assert_int_equal(histogram.other, 3);
  assert_true(fabs(histogram.sum - 91.499) < 1e-5);
  assert_int_equal(histogram.in[0], 1);
  assert_int_equal(histogram.in[1], 2);
  assert_int_equal(histogram.in[14], 1);
  assert_int_equal(histogram.in[15], 1);
  assert_int_equal(histogram.in[29], 2); /* the upper edge counts */
  float same[] = {2, 2, 2};
  histogram = histogram_new();
  histogram_range(&histogram, same, 3);
  histogram_count(&histogram, same, 3);
  assert_int_equal(histogram.in[0], 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sums),    cmocka_unit_test(records),     cmocka_unit_test(numbers),
      cmocka_unit_test(cutting), cmocka_unit_test(no_messages), cmocka_unit_test(histograms),
  };
  return cmocka_run_group_tests(tests, data_setup, data_teardown);
}
