/* image: memory, and what kind of file it is; see image.h. */
#include "runtime/image/image_private.h"
#include <stdlib.h>
#include <string.h>

ImageWorker *image_worker_new(void) { return calloc(1, sizeof(ImageWorker)); }

void image_worker_free(ImageWorker *worker) {
  if (!worker) return;
  for (int i = 0; i < SCRATCH_COUNT; i++) free(worker->scratch[i].at);
  image_jpeg_free(worker->jpeg);
  free(worker);
}

int64_t image_worker_memory(const ImageWorker *worker) {
  int64_t total = image_jpeg_memory(worker->jpeg);
  for (int i = 0; i < SCRATCH_COUNT; i++) total += (int64_t)worker->scratch[i].room;
  return total;
}

void image_free(Image *image) {
  free(image->at);
  *image = (Image){0};
}

static Status image_no_memory(size_t bytes) {
  return status_fail(STATUS_FAULT, "no memory for an image (%zu bytes)", bytes);
}

/* Larger than asked for, so that images that grow bit by bit do not allocate each time. */
static void *image_grow(void *at, size_t *room, size_t bytes) {
  free(at);
  *room = bytes + bytes / 8 + 64;
  at = malloc(*room);
  if (!at) *room = 0;
  return at;
}

Status image_reserve(Image *image, int height, int width, int channels) {
  size_t bytes = (size_t)height * (size_t)width * (size_t)channels;
  STATUS_TRY(image_check_size((uint64_t)height, (uint64_t)width));
  if (bytes > image->room) image->at = image_grow(image->at, &image->room, bytes);
  image->height = image->at ? height : 0;
  image->width = image->at ? width : 0;
  image->channels = channels;
  return image->at ? STATUS_OK : image_no_memory(bytes);
}

Status image_copy(const Image *from, Image *out) {
  STATUS_TRY(image_reserve(out, from->height, from->width, from->channels));
  memcpy(out->at, from->at, image_byte_count(from));
  return STATUS_OK;
}

Status image_scratch(ImageWorker *worker, ScratchKind kind, size_t bytes, void *out) {
  if (bytes > worker->scratch[kind].room)
    worker->scratch[kind].at =
        image_grow(worker->scratch[kind].at, &worker->scratch[kind].room, bytes);
  memcpy(out, &worker->scratch[kind].at, sizeof(void *));
  return worker->scratch[kind].at ? STATUS_OK : image_no_memory(bytes);
}

Status image_check_size(uint64_t height, uint64_t width) {
  if (!height || !width) return status_fail(STATUS_USER, "the image has no pixels");
  if (height > IMAGE_MOST_SIDE || width > IMAGE_MOST_SIDE || height * width > IMAGE_MOST_PIXELS)
    return status_fail(STATUS_USER,
                       "the image has %llu x %llu pixels, and at most %d are read: make it smaller",
                       (unsigned long long)width, (unsigned long long)height, IMAGE_MOST_PIXELS);
  return STATUS_OK;
}

Status image_channels(const Image *from, int channels, Image *out) {
  if (channels == from->channels) return image_copy(from, out);
  STATUS_TRY(image_reserve(out, from->height, from->width, channels));
  size_t pixels = (size_t)from->height * (size_t)from->width;
  if (channels == 1)
    for (size_t i = 0; i < pixels; i++) out->at[i] = image_luma(from->at + 3 * i);
  else
    for (size_t i = 0; i < pixels; i++) memset(out->at + 3 * i, from->at[i], 3);
  return STATUS_OK;
}

static Status not_an_image(const uint8_t *bytes, size_t count) {
  static const struct {
    const char *name, *start;
    size_t at, count;
  } kinds[] = {{"a GIF", "GIF8", 0, 4},         {"a BMP", "BM", 0, 2},
               {"a TIFF", "II*\0", 0, 4},       {"a TIFF", "MM\0*", 0, 4},
               {"a WebP", "WEBP", 8, 4},        {"an AVIF or HEIC", "ftyp", 4, 4},
               {"a JPEG XL", "\xff\x0a", 0, 2}, {"a JPEG 2000", "jP  ", 4, 4}};
  if (!count) return status_fail(STATUS_USER, "the file is empty");
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (count >= kinds[i].at + kinds[i].count &&
        !memcmp(bytes + kinds[i].at, kinds[i].start, kinds[i].count))
      return status_fail(STATUS_USER, "%s image; JPEG and PNG are read: convert it", kinds[i].name);
  return status_fail(STATUS_USER, "neither a JPEG nor a PNG image");
}

Status image_check_box(const int *box, int64_t height, int64_t width) {
  if (!box || (box[0] >= 0 && box[1] >= 0 && box[0] < box[2] && box[1] < box[3] &&
               box[2] <= width && box[3] <= height))
    return STATUS_OK;
  return status_fail(STATUS_USER,
                     "the box %d, %d to %d, %d is empty or not inside of an image of %lld x %lld",
                     box[0], box[1], box[2], box[3], (long long)width, (long long)height);
}

static Status decode_wish(ImageWorker *worker, const ImageWish *wish, Image *out,
                          double inside[4]) {
  if (image_is_jpeg(wish->bytes, wish->count)) return image_jpeg_decode(worker, wish, out, inside);
  if (!image_is_png(wish->bytes, wish->count)) return not_an_image(wish->bytes, wish->count);
  STATUS_TRY(image_png_decode(worker, wish->bytes, wish->count, wish->channels, out));
  for (int i = 0; wish->box && i < 4; i++) inside[i] = wish->box[i];
  return image_check_box(wish->box, out->height, out->width);
}

Status image_decode(ImageWorker *worker, const uint8_t *bytes, size_t count, int channels,
                    int scale, Image *out) {
  double inside[4];
  ImageWish wish = {bytes, count, channels, NULL, scale};
  return decode_wish(worker, &wish, out, inside);
}

Status image_decode_part(ImageWorker *worker, const uint8_t *bytes, size_t count, int channels,
                         const int box[4], int scale, Image *out, double inside[4]) {
  ImageWish wish = {bytes, count, channels, box, scale};
  return decode_wish(worker, &wish, out, inside);
}

/* ── headers ──────────────────────────────────────────────────────────────────────────────── */
bool image_is_jpeg(const uint8_t *bytes, size_t count) {
  return count >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

bool image_is_png(const uint8_t *bytes, size_t count) {
  return count >= 8 && !memcmp(bytes, "\x89PNG\r\n\x1a\n", 8);
}

int image_draft(int height, int width, int least_height, int least_width) {
  int scale = 8;
  while (scale > 1 &&
         ((int64_t)least_height * scale > height || (int64_t)least_width * scale > width))
    scale /= 2;
  return scale;
}

/* The end marker, or a little behind it that cameras and editors leave there. */
bool image_ends(const uint8_t *bytes, size_t count) {
  enum { BEHIND = 64 };
  if (!image_is_jpeg(bytes, count)) return false;
  for (size_t at = count; at > 2 && count - at < BEHIND; at--)
    if (bytes[at - 2] == 0xff && bytes[at - 1] == 0xd9) return true;
  return false;
}

static uint32_t big_end_16(const uint8_t *at) { return (uint32_t)at[0] << 8 | at[1]; }
static uint32_t big_end_32(const uint8_t *at) { return big_end_16(at) << 16 | big_end_16(at + 2); }

/* The next segment of a JPEG from *at on that has a length: its marker, or 0 where scans begin, the
 * file ends or is damaged. `body` is behind the length. */
static int jpeg_segment(const uint8_t *bytes, size_t count, size_t *at, const uint8_t **body,
                        size_t *size) {
  for (;;) {
    while (*at < count && bytes[*at] != 0xff) ++*at; /* libjpeg passes over such bytes, too */
    while (*at < count && bytes[*at] == 0xff) ++*at;
    if (*at >= count) return 0;
    int marker = bytes[(*at)++];
    if (marker == 0 || marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8)) continue;
    if (marker == 0xd9 || marker == 0xda || count - *at < 2) return 0;
    size_t length = big_end_16(bytes + *at);
    if (length < 2 || length > count - *at) return 0;
    *body = bytes + *at + 2;
    *size = length - 2;
    *at += length;
    return marker;
  }
}

static Status jpeg_size(const uint8_t *bytes, size_t count, uint64_t *height, uint64_t *width) {
  const uint8_t *body;
  size_t at = 2, size;
  for (int marker; (marker = jpeg_segment(bytes, count, &at, &body, &size));) {
    bool is_frame =
        marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
    if (!is_frame || size < 6) continue;
    *height = big_end_16(body + 1);
    *width = big_end_16(body + 3);
    return STATUS_OK;
  }
  return status_fail(STATUS_USER, "the JPEG image is damaged: no frame header is found");
}

Status image_size(const uint8_t *bytes, size_t count, int *height, int *width) {
  uint64_t rows = 0, columns = 0;
  if (image_is_jpeg(bytes, count)) {
    STATUS_TRY(jpeg_size(bytes, count, &rows, &columns));
  } else if (!image_is_png(bytes, count)) {
    return not_an_image(bytes, count);
  } else if (count < 24 || memcmp(bytes + 12, "IHDR", 4)) {
    return status_fail(STATUS_USER, "the PNG image is damaged: it does not begin with its header");
  } else {
    columns = big_end_32(bytes + 16);
    rows = big_end_32(bytes + 20);
  }
  STATUS_TRY(image_check_size(rows, columns));
  *height = (int)rows;
  *width = (int)columns;
  return STATUS_OK;
}

/* ── EXIF ─────────────────────────────────────────────────────────────────────────────────── */
/* Tag 0x0112 of the first directory of a TIFF file. */
static int tiff_orientation(const uint8_t *tiff, size_t count) {
  if (count < 8) return 1;
  bool is_big = !memcmp(tiff, "MM\0*", 4);
  if (!is_big && memcmp(tiff, "II*\0", 4)) return 1;
#define TIFF_16(p) (is_big ? big_end_16(p) : (uint32_t)((p)[1] << 8 | (p)[0]))
#define TIFF_32(p) (is_big ? big_end_32(p) : TIFF_16((p) + 2) << 16 | TIFF_16(p))
  size_t at = TIFF_32(tiff + 4);
  if (at > count || count - at < 2) return 1;
  size_t entries = TIFF_16(tiff + at);
  for (at += 2; entries-- && count - at >= 12; at += 12) {
    if (TIFF_16(tiff + at) != 0x0112) continue;
    uint32_t type = TIFF_16(tiff + at + 2), values = TIFF_32(tiff + at + 4);
    uint32_t value = type == 3 ? TIFF_16(tiff + at + 8) : TIFF_32(tiff + at + 8);
    return (type == 3 || type == 4) && values == 1 && value >= 1 && value <= 8 ? (int)value : 1;
  }
#undef TIFF_16
#undef TIFF_32
  return 1;
}

int image_orientation(const uint8_t *bytes, size_t count) {
  if (image_is_jpeg(bytes, count)) {
    const uint8_t *body;
    size_t at = 2, size;
    for (int marker; (marker = jpeg_segment(bytes, count, &at, &body, &size));)
      if (marker == 0xe1 && size >= 6 && !memcmp(body, "Exif\0\0", 6))
        return tiff_orientation(body + 6, size - 6);
  } else if (image_is_png(bytes, count)) {
    for (size_t at = 8; count - at >= 12;) {
      size_t size = big_end_32(bytes + at);
      if (size > count - at - 12) break;
      if (!memcmp(bytes + at + 4, "eXIf", 4)) return tiff_orientation(bytes + at + 8, size);
      at += 12 + size;
    }
  }
  return 1;
}

/* The eight of EXIF: 2 to 4 are flips and half a turn, 5 to 8 the same of rows that were columns. */
Status image_turn(const Image *from, int orientation, Image *out) {
  bool is_across = orientation >= 5;
  bool flips_x = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  bool flips_y = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  int height = from->height, width = from->width, channels = from->channels;
  if (orientation <= 1 || orientation > 8) return image_copy(from, out);
  STATUS_TRY(image_reserve(out, is_across ? width : height, is_across ? height : width, channels));
  for (int y = 0; y < out->height; y++) {
    uint8_t *to = out->at + (size_t)y * image_row_bytes(out);
    for (int x = 0; x < out->width; x++, to += channels) {
      int u = flips_x ? out->width - 1 - x : x, v = flips_y ? out->height - 1 - y : y;
      size_t pixel =
          is_across ? (size_t)u * (size_t)width + (size_t)v : (size_t)v * (size_t)width + (size_t)u;
      for (int c = 0; c < channels; c++) to[c] = from->at[pixel * (size_t)channels + (size_t)c];
    }
  }
  return STATUS_OK;
}
