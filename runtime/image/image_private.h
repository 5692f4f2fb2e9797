/* image_private: what the files of this room share. */
#ifndef FT_RUNTIME_IMAGE_PRIVATE_H
#define FT_RUNTIME_IMAGE_PRIVATE_H
#include "runtime/image/image.h"
#include <stdio.h>
#include <jpeglib.h>
#include <spng.h>

/* ── the libraries ── */
typedef struct {
#define IMAGE_JPEG(name) __typeof__(name) *name;
#define IMAGE_PNG(name)
#include "runtime/image/image_libraries.def"
#undef IMAGE_JPEG
#undef IMAGE_PNG
} JpegLibrary;
typedef struct {
#define IMAGE_JPEG(name)
#define IMAGE_PNG(name) __typeof__(name) *name;
#include "runtime/image/image_libraries.def"
#undef IMAGE_JPEG
#undef IMAGE_PNG
} PngLibrary;
/* From any thread. They stay open. */
STATUS_CHECKED Status image_jpeg_library(const JpegLibrary **out);
STATUS_CHECKED Status image_png_library(const PngLibrary **out);

/* ── memory ── */
typedef enum {
  SCRATCH_ROW,          /* of a decoder */
  SCRATCH_PASS,         /* between two passes over an image */
  SCRATCH_TILE,         /* rows turned into columns */
  SCRATCH_COEFFICIENTS, /* of a filter */
  SCRATCH_COUNT
} ScratchKind;
typedef struct ImageJpeg ImageJpeg;
struct ImageWorker {
  struct {
    void *at;
    size_t room;
  } scratch[SCRATCH_COUNT];
  ImageJpeg *jpeg; /* NULL until the first one */
};
/* At least so many bytes, whose content is undefined. */
STATUS_CHECKED Status image_scratch(ImageWorker *worker, ScratchKind kind, size_t bytes, void *out);
void image_jpeg_free(ImageJpeg *jpeg);
int64_t image_jpeg_memory(const ImageJpeg *jpeg); /* NULL is fine */

/* ── files ── */
STATUS_CHECKED Status image_check_size(uint64_t height, uint64_t width);
bool image_is_png(const uint8_t *bytes, size_t count);
/* See image_decode_part; box NULL: all. */
typedef struct {
  const uint8_t *bytes;
  size_t count;
  int channels;
  const int *box;
  int scale;
} ImageWish;
STATUS_CHECKED Status image_jpeg_decode(ImageWorker *worker, const ImageWish *wish, Image *out,
                                        double inside[4]);
STATUS_CHECKED Status image_check_box(const int *box, int64_t height, int64_t width);
STATUS_CHECKED Status image_png_decode(ImageWorker *worker, const uint8_t *bytes, size_t count,
                                       int channels, Image *out);

/* ── rows ── */
/* The luma of ITU-R 601 in 16 bits of fraction, rounded. */
static inline uint8_t image_luma(const uint8_t *rgb) {
  return (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}
static inline size_t image_row_bytes(const Image *image) {
  return (size_t)image->width * (size_t)image->channels;
}
static inline size_t image_byte_count(const Image *image) {
  return image_row_bytes(image) * (size_t)image->height;
}

/* One axis of a resampling: output i is the sum of `count` pixels from `first` on, times the
 * coefficients at i * taps, which are in 22 bits of fraction. */
typedef struct {
  int first, count;
} ResampleSpan;
typedef struct {
  int outputs, taps;
  ResampleSpan *span;
  int32_t *coefficient;
} ResampleAxis;
enum { RESAMPLE_BITS = 22, RESAMPLE_ROWS = 16 };

/* The loops that take time, compiled for several kinds of processors (image_rows.inc). */
typedef struct {
  /* `rows` rows, at most RESAMPLE_ROWS, of `stride` bytes each, along the axis; tile: as many bytes
   * for each of them as a row of both has, together, and 16 more. */
  void (*across)(const uint8_t *from, size_t stride, int rows, int channels,
                 const ResampleAxis *axis, uint8_t *to, uint8_t *tile);
  /* One row of `bytes` bytes from span->count rows. */
  void (*down)(const uint8_t *from, size_t bytes, int count, const int32_t *coefficient,
               uint8_t *to);
  /* low + (high - low) * factor, cut off at 0 and 255 and truncated: of two images, of a value and
   * an image, and of a pixel's luma and an image of three channels. */
  void (*blend)(const uint8_t *low, const uint8_t *high, size_t count, float factor, uint8_t *to);
  void (*blend_value)(uint8_t low, size_t count, float factor, uint8_t *at);
  void (*blend_luma)(size_t pixels, float factor, uint8_t *at);
  /* The rounded mean of 3 x 3 pixels, the middle one five times; at: neighbours are `step` bytes
   * apart. */
  void (*smooth)(const uint8_t *at, size_t stride, size_t step, size_t count, uint8_t *to);
  /* to[i] = the sum of weights[t] * from[i + t * step] */
  void (*weigh_bytes)(const uint8_t *from, size_t count, size_t step, int taps,
                      const float *weights, float *to);
  /* to[i] = the sum of weights[t] * rows[t][i], rounded half to even */
  void (*weigh_rows)(const float *const *rows, int taps, const float *weights, size_t count,
                     uint8_t *to);
} ImageRows;
extern const ImageRows image_rows_base, image_rows_v3, image_rows_v4;
const ImageRows *image_rows(void); /* for this processor */
#endif
