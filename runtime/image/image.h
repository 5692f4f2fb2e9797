/* image: decodes and transforms images of 8 bits in a thread of the loader. Rows of pixels, channels
 * last, without gaps. Values are those of Pillow, bit for bit: what it decodes, how it resamples and
 * transforms, so a model sees what it would see behind torchvision. Every thread has a worker of its
 * own. Images and the worker's memory grow and are used again: once they are large enough, nothing
 * of ours is allocated for a sample. Bytes from outside may be anything; a failure is a sentence that
 * follows the file's name. */
#ifndef FT_RUNTIME_IMAGE_H
#define FT_RUNTIME_IMAGE_H
#include "runtime/common/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
  uint8_t *at; /* malloc'd, `room` bytes; {0} is an empty image */
  int height, width, channels;
  size_t room;
} Image;

typedef enum {
  IMAGE_NEAREST,
  IMAGE_BILINEAR,
  IMAGE_BICUBIC,
  IMAGE_BOX,
  IMAGE_LANCZOS,
  IMAGE_FILTER_COUNT
} ImageFilter;

/* What may be decoded or made at most: pixels, and the length of a side. */
enum { IMAGE_MOST_PIXELS = 1 << 28, IMAGE_MOST_SIDE = 1 << 24 };

typedef struct ImageWorker ImageWorker;
ImageWorker *image_worker_new(void); /* NULL: no memory */
void image_worker_free(ImageWorker *worker);
/* Bytes that it took at most so far, libjpeg's for its largest image among them, as reckoned. */
int64_t image_worker_memory(const ImageWorker *worker);
void image_free(Image *image);
/* Gives the image this size; what is in it is undefined. */
STATUS_CHECKED Status image_reserve(Image *image, int height, int width, int channels);
STATUS_CHECKED Status image_copy(const Image *from, Image *out);

/* ── files: JPEG and PNG (image_jpeg.c, image_png.c) ──────────────────────────────────────── */
/* libjpeg and libspng are opened when the first file of their kind is decoded. This opens both, to
 * say before a training that one is missing. */
STATUS_CHECKED Status image_open_libraries(void);
/* From the header only. */
STATUS_CHECKED Status image_size(const uint8_t *bytes, size_t count, int *height, int *width);
/* `channels` is 1 or 3. As Pillow's convert("RGB") or convert("L"): CMYK is taken for inverted, as
 * Adobe writes it, and mixed without a profile; alpha, tRNS, gamma and profiles are left out; of 16
 * bits the upper 8 count, but grey ones are cut off at 255. A JPEG comes out smaller by `scale`, 1, 2,
 * 4 or 8, its sides rounded up, as behind Pillow's draft; other files do not. Damage that
 * libjpeg only warns of is passed over, as there; a file that ends too early is refused. */
STATUS_CHECKED Status image_decode(ImageWorker *worker, const uint8_t *bytes, size_t count,
                                   int channels, int scale, Image *out);
/* The scale that Pillow's draft(mode, (width, height)) chooses for a JPEG of this size: the largest by which
 * neither side becomes smaller than that. */
int image_draft(int height, int width, int least_height, int least_width);
bool image_is_jpeg(const uint8_t *bytes, size_t count);
/* Decodes what is needed of the pixels {x0, y0, x1, y1} of the file, which is less work for a JPEG; what
 * lies below them is then not looked at. `inside` says where they are in `out`: {0, 0, …} and the
 * sizes of `out` for a JPEG that is not scaled. */
STATUS_CHECKED Status image_decode_part(ImageWorker *worker, const uint8_t *bytes, size_t count,
                                        int channels, const int box[4], int scale, Image *out,
                                        double inside[4]);
/* Does a JPEG have its end? Then no part of it is refused for what is missing below it. False for other files. */
bool image_ends(const uint8_t *bytes, size_t count);
/* What the file's EXIF says of how the picture is to be turned, 1 (as it is) to 8. Neither Pillow's
 * open nor image_decode turns it; image_turn does, as Pillow's ImageOps.exif_transpose. */
int image_orientation(const uint8_t *bytes, size_t count);
STATUS_CHECKED Status image_turn(const Image *from, int orientation, Image *out);

/* ── sizes and places (image_resample.c, image_place.c, image_affine.c) ───────────────────── */
/* The part {x0, y0, x1, y1} of `from`, which need not be whole pixels, in this size. All but nearest
 * take in every pixel below an output pixel, so making things smaller has no alias. */
STATUS_CHECKED Status image_resample(ImageWorker *worker, const Image *from, const double box[4],
                                     int height, int width, ImageFilter filter, Image *out);
/* A part of what image_resample makes of a whole image, the pixels [x, x + width) of its rows [y, y +
 * height), by another filter than nearest; the same bytes. */
typedef struct {
  int in_height, in_width;   /* of the whole image */
  int out_height, out_width; /* … resampled */
  ImageFilter filter;
  int x, y, height, width;
  double to_height,
      to_width; /* of the whole image what is resampled, from its upper left corner; 0: all */
} ImageWindow;
/* The pixels {x0, y0, x1, y1} of the whole image that a window within the result is made of. */
void image_window_needs(const ImageWindow *window, int box[4]);
/* from: the whole image from its column `left` and its row `top` on, as far as the window needs it. */
STATUS_CHECKED Status image_resample_window(ImageWorker *worker, const Image *from, int left,
                                            int top, const ImageWindow *window, Image *out);
/* What is outside of `from` is black. */
STATUS_CHECKED Status image_crop(const Image *from, int x, int y, int height, int width,
                                 Image *out);
typedef enum {
  IMAGE_PAD_CONSTANT,
  IMAGE_PAD_EDGE,
  IMAGE_PAD_REFLECT,  /* the edge stands once */
  IMAGE_PAD_SYMMETRIC /* … twice */
} ImagePad;
STATUS_CHECKED Status image_pad(const Image *from, int left, int top, int right, int bottom,
                                ImagePad kind, const uint8_t fill[3], Image *out);
void image_flip_left_right(Image *image);
void image_flip_top_bottom(Image *image);
/* Pixel (x, y) of the result lies at (m0 x + m1 y + m2, m3 x + m4 y + m5) of `from`, both counted
 * from corners. The filter is nearest, bilinear or bicubic; `fill` is for what lies outside. */
STATUS_CHECKED Status image_affine(const Image *from, const double matrix[6], ImageFilter filter,
                                   const uint8_t fill[3], Image *out);
/* torchvision's affine: degrees clockwise, pixels, a factor, degrees; around the point (x, y). */
void image_affine_matrix(const double centre[2], double angle, const double translate[2],
                         double scale, const double shear[2], double matrix[6]);
/* As image_affine; both coordinates are divided by c6 x + c7 y + 1. */
STATUS_CHECKED Status image_perspective(const Image *from, const double c[8], ImageFilter filter,
                                        const uint8_t fill[3], Image *out);
/* The coefficients that show what is at the corners of an image of this size (of their pixels: (0, 0),
 * (width - 1, 0), (width - 1, height - 1), (0, height - 1)) at these four points; torchvision's, with 24 bits.
 * false: there are none, since the corners or points are on one line. */
bool image_perspective_matrix(int height, int width, const int points[4][2], double c[8]);
/* Counter-clockwise, around the middle, in the same size. */
STATUS_CHECKED Status image_rotate(const Image *from, double angle, ImageFilter filter,
                                   const uint8_t fill[3], Image *out);

/* ── colours, in place (image_colour.c, image_table.c, image_blur.c) ──────────────────────── */
void image_brightness(Image *image, double factor);
void image_contrast(Image *image, double factor);
void image_saturation(Image *image, double factor);
void image_hue(Image *image, double shift); /* of the whole circle: -0.5 to 0.5 */
/* The luma of ITU-R 601, in as many channels as before. */
void image_grey(Image *image);
/* One channel of three or three of one. */
STATUS_CHECKED Status image_channels(const Image *from, int channels, Image *out);
STATUS_CHECKED Status image_sharpness(ImageWorker *worker, Image *image, double factor);
/* torchvision's gaussian_blur: an odd number of taps along each side, reflected at the edges. */
STATUS_CHECKED Status image_blur(ImageWorker *worker, Image *image, const int taps[2],
                                 const double sigma[2]);
void image_invert(Image *image);
void image_posterize(Image *image, int bits);        /* 0 to 8 that are left */
void image_solarize(Image *image, double threshold); /* inverts what is not below */
void image_autocontrast(Image *image);
void image_equalize(Image *image);
/* Fills a rectangle, as far as it lies in the image. */
void image_erase(Image *image, int x, int y, int height, int width, const uint8_t fill[3]);
#endif
