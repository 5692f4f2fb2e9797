/* event_file: the format of TensorBoard's event files: records of TFRecord (length, masked CRC-32C
 * of it, bytes, masked CRC-32C of them), each a message of protocol buffers, and the few parts of
 * their wire format that these messages need. Numbers of fields are those of TensorBoard's
 * event.proto and summary.proto. */
#ifndef FT_RUNTIME_EVENT_FILE_H
#define FT_RUNTIME_EVENT_FILE_H
#include "base/text.h"
#include <stdint.h>

/* CRC-32C (Castagnoli), and as TFRecord stores it. */
uint32_t event_crc(const void *bytes, size_t count);
uint32_t event_masked_crc(const void *bytes, size_t count);
/* Appends a record that holds `message`. */
void event_append_record(Text *out, const Text *message);

/* ── fields of a message, appended ────────────────────────────────────────────────────────── */
void wire_int(Text *out, int field, int64_t value);
void wire_double(Text *out, int field, double value);
void wire_float(Text *out, int field, float value);
void wire_bytes(Text *out, int field, const void *bytes, size_t count);
void wire_string(Text *out, int field, const char *value);
void wire_message(Text *out, int field, const Text *message);
void wire_doubles(Text *out, int field, const double *values, int count); /* packed */

/* ── a file that was written before ───────────────────────────────────────────────────────── */
/* How many of the bytes, which may be anything, are whole records up to the first one of a step
 * after `step`. */
size_t event_bytes_to_keep(const void *bytes, size_t count, int64_t step);
#endif
