/* image_png: libspng on bytes in memory, which checks sums and sizes. Rows come as they stand in the
 * file and are converted here, because Pillow's conversions are not the usual ones: grey of 16 bits
 * is cut off at 255, and a colour that the palette lacks is black. */
#include "runtime/image/image_private.h"
#include <string.h>

/* Of the chunks beside the image, whose content nobody asks for. */
enum { MOST_CHUNK = 16 << 20, MOST_CHUNKS = 64 << 20 };

typedef struct {
  struct spng_ihdr head;
  uint8_t palette[256][3];
} PngRow;

static Status png_fail(const PngLibrary *library, int error) {
  if (error == SPNG_EMEM || error == SPNG_EZLIB_INIT)
    return status_fail(STATUS_FAULT, "no memory for a PNG image");
  if (error == SPNG_IO_EOF) return status_fail(STATUS_USER, "the PNG image is truncated");
  return status_fail(STATUS_USER, "the PNG image cannot be decoded: %s",
                     library->spng_strerror(error));
}

static unsigned png_samples(const struct spng_ihdr *head) {
  switch (head->color_type) {
  case SPNG_COLOR_TYPE_TRUECOLOR:
    return 3;
  case SPNG_COLOR_TYPE_GRAYSCALE_ALPHA:
    return 2;
  case SPNG_COLOR_TYPE_TRUECOLOR_ALPHA:
    return 4;
  default:
    return 1;
  }
}

static size_t png_row_bytes(const struct spng_ihdr *head) {
  return ((size_t)head->width * png_samples(head) * head->bit_depth + 7) / 8;
}

/* The one sample of a pixel that is grey or has an index. */
static unsigned png_sample(const uint8_t *row, unsigned x, unsigned bits) {
  if (bits == 8) return row[x];
  return row[x * bits / 8] >> (8 - bits - x * bits % 8) & ((1u << bits) - 1);
}

static void png_convert_row(const PngRow *kind, const uint8_t *from, int channels, uint8_t *to) {
  unsigned bits = kind->head.bit_depth, samples = png_samples(&kind->head);
  size_t step = samples * bits / 8;
  bool has_palette = kind->head.color_type == SPNG_COLOR_TYPE_INDEXED;
  for (uint32_t x = 0; x < kind->head.width; x++, to += channels) {
    uint8_t grey[3];
    const uint8_t *rgb = grey;
    if (samples >= 3 && bits == 8) {
      rgb = from + x * step;
    } else if (samples >= 3) {
      for (unsigned c = 0; c < 3; c++) grey[c] = from[x * step + 2 * c];
    } else if (has_palette) {
      rgb = kind->palette[png_sample(from, x, bits)];
    } else {
      unsigned value = samples == 2 ? from[x * step]
                       : bits == 16 ? (from[2 * x] ? 255 : from[2 * x + 1])
                                    : png_sample(from, x, bits) * (255 / ((1u << bits) - 1));
      memset(grey, (int)value, 3);
    }
    if (channels == 3)
      memcpy(to, rgb, 3);
    else
      *to = samples < 3 && !has_palette ? *rgb : image_luma(rgb);
  }
}

static Status png_read_palette(const PngLibrary *library, spng_ctx *png, PngRow *kind) {
  struct spng_plte palette;
  memset(kind->palette, 0, sizeof kind->palette);
  if (kind->head.color_type != SPNG_COLOR_TYPE_INDEXED) return STATUS_OK;
  int error = library->spng_get_plte(png, &palette);
  if (error) return png_fail(library, error);
  for (uint32_t i = 0; i < palette.n_entries && i < 256; i++) {
    kind->palette[i][0] = palette.entries[i].red;
    kind->palette[i][1] = palette.entries[i].green;
    kind->palette[i][2] = palette.entries[i].blue;
  }
  return STATUS_OK;
}

/* Rows in the order of the file, converted one by one. */
static Status png_read_rows(const PngLibrary *library, spng_ctx *png, const PngRow *kind,
                            uint8_t *row, Image *out) {
  int error = library->spng_decode_image(png, NULL, 0, SPNG_FMT_RAW, SPNG_DECODE_PROGRESSIVE);
  size_t stride = png_row_bytes(&kind->head);
  for (int y = 0; !error && y < out->height; y++) {
    error = library->spng_decode_row(png, row, stride);
    if (error && !(error == SPNG_EOI && y == out->height - 1)) break;
    error = 0;
    png_convert_row(kind, row, out->channels, out->at + (size_t)y * image_row_bytes(out));
  }
  return error ? png_fail(library, error) : STATUS_OK;
}

static Status png_read(ImageWorker *worker, const PngLibrary *library, spng_ctx *png, size_t count,
                       int channels, Image *out) {
  PngRow kind;
  uint8_t *raw;
  int error = library->spng_get_ihdr(png, &kind.head);
  if (error) return png_fail(library, error);
  STATUS_TRY(image_check_size(kind.head.height, kind.head.width));
  /* two bits of deflate are 258 bytes at most: no memory for what cannot come */
  if (png_row_bytes(&kind.head) * kind.head.height / 1032 > count)
    return status_fail(STATUS_USER, "the PNG image is truncated: %zu bytes are not %u x %u pixels",
                       count, kind.head.width, kind.head.height);
  STATUS_TRY(png_read_palette(library, png, &kind));
  STATUS_TRY(image_reserve(out, (int)kind.head.height, (int)kind.head.width, channels));
  size_t stride = png_row_bytes(&kind.head), all = stride * kind.head.height;
  if (kind.head.bit_depth == 8 && (int)png_samples(&kind.head) == channels &&
      kind.head.color_type != SPNG_COLOR_TYPE_INDEXED) {
    error = library->spng_decode_image(png, out->at, all, SPNG_FMT_RAW, 0);
    return error ? png_fail(library, error) : STATUS_OK;
  }
  if (!kind.head.interlace_method) {
    STATUS_TRY(image_scratch(worker, SCRATCH_ROW, stride, &raw));
    return png_read_rows(library, png, &kind, raw, out);
  }
  STATUS_TRY(image_scratch(worker, SCRATCH_PASS, all, &raw));
  memset(raw, 0, all); /* libspng adds samples of less than a byte to what is there */
  error = library->spng_decode_image(png, raw, all, SPNG_FMT_RAW, 0);
  if (error) return png_fail(library, error);
  for (int y = 0; y < out->height; y++)
    png_convert_row(&kind, raw + (size_t)y * stride, channels,
                    out->at + (size_t)y * image_row_bytes(out));
  return STATUS_OK;
}

Status image_png_decode(ImageWorker *worker, const uint8_t *bytes, size_t count, int channels,
                        Image *out) {
  const PngLibrary *library;
  STATUS_TRY(image_png_library(&library));
  spng_ctx *png = library->spng_ctx_new(0);
  if (!png) return status_fail(STATUS_FAULT, "no memory for a PNG image");
  int error = library->spng_set_png_buffer(png, bytes, count);
  if (!error) error = library->spng_set_chunk_limits(png, MOST_CHUNK, MOST_CHUNKS);
  Status status =
      error ? png_fail(library, error) : png_read(worker, library, png, count, channels, out);
  library->spng_ctx_free(png);
  return status;
}
