/* events_samples: samples of the data for TensorBoard (declared in events.h): images as PNG, and texts, which it shows as
 * Markdown. */
#include "runtime/command/event_file.h"
#include "runtime/command/events.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { VALUE_TAG = 1, VALUE_IMAGE = 4, VALUE_TENSOR = 8, VALUE_METADATA = 9 };

/* ── PNG ──────────────────────────────────────────────────────────────────────────────────── */
static void append_big(Text *out, uint32_t value) {
  const char at[4] = {(char)(value >> 24), (char)(value >> 16), (char)(value >> 8), (char)value};
  text_append(out, at, sizeof at);
}

static void png_chunk(Text *out, const char *kind, const void *bytes, size_t count) {
  append_big(out, (uint32_t)count);
  size_t start = out->count;
  text_append(out, kind, 4);
  if (count) text_append(out, bytes, count);
  append_big(out, (uint32_t)crc32(0, (const Bytef *)out->at + start, (uInt)(count + 4)));
}

/* 8 bits a channel, no filters: such images are small. */
static Status png_append(Text *out, const EventsImage *image) {
  size_t row = (size_t)image->width * (size_t)image->channels;
  Text plain = {0}, head = {0};
  for (int y = 0; y < image->height; y++) {
    text_append(&plain, "\0", 1);
    text_append(&plain, (const char *)image->at + (size_t)y * row, row);
  }
  uLongf count = compressBound(plain.count);
  Bytef *packed = malloc(count);
  bool fine = packed && compress(packed, &count, (const Bytef *)plain.at, plain.count) == Z_OK;
  append_big(&head, (uint32_t)image->width);
  append_big(&head, (uint32_t)image->height);
  text_append(&head, image->channels == 1 ? "\x08\0\0\0\0" : "\x08\x02\0\0\0", 5);
  text_append(out, "\x89PNG\r\n\x1a\n", 8);
  png_chunk(out, "IHDR", head.at, head.count);
  if (fine) png_chunk(out, "IDAT", packed, count);
  png_chunk(out, "IEND", NULL, 0);
  free(packed);
  text_free(&head);
  text_free(&plain);
  return fine ? STATUS_OK : status_errno(ENOMEM, "samples for TensorBoard");
}

/* ── values ───────────────────────────────────────────────────────────────────────────────── */
Status events_image(Events *events, int64_t step, const char *tag, const EventsImage *image) {
  enum { HEIGHT = 1, WIDTH, CHANNELS, ENCODED };
  Text png = {0}, message = {0}, value = {0};
  Status status = png_append(&png, image);
  wire_int(&message, HEIGHT, image->height);
  wire_int(&message, WIDTH, image->width);
  wire_int(&message, CHANNELS, image->channels);
  wire_message(&message, ENCODED, &png);
  wire_string(&value, VALUE_TAG, tag);
  wire_message(&value, VALUE_IMAGE, &message);
  if (status == STATUS_OK) status = events_sample(events, step, &value);
  text_free(&png);
  text_free(&message);
  text_free(&value);
  return status;
}

Status events_text(Events *events, int64_t step, const char *tag, const Text *markdown) {
  enum { PLUGIN = 1, PLUGIN_NAME = 1, DTYPE = 1, STRINGS = 8, DT_STRING = 7 };
  Text plugin = {0}, metadata = {0}, tensor = {0}, value = {0};
  wire_string(&plugin, PLUGIN_NAME, "text");
  wire_message(&metadata, PLUGIN, &plugin);
  wire_int(&tensor, DTYPE, DT_STRING);
  wire_message(&tensor, STRINGS, markdown);
  wire_string(&value, VALUE_TAG, tag);
  wire_message(&value, VALUE_TENSOR, &tensor);
  wire_message(&value, VALUE_METADATA, &metadata);
  Status status = events_sample(events, step, &value);
  text_free(&plugin);
  text_free(&metadata);
  text_free(&tensor);
  text_free(&value);
  return status;
}
