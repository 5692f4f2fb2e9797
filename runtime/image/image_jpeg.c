/* image_jpeg: libjpeg-turbo on bytes in memory. Its errors come back by longjmp to the one setjmp
 * here; what is set between the two lies in the ImageJpeg. Settings are libjpeg's defaults, which
 * Pillow uses too: the accurate integer transform and smooth upsampling. */
#include "runtime/image/image_private.h"
#include <jerror.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SCANS = 500, ROWS_AT_ONCE = 8 }; /* no real file has more than some 20 scans */

struct ImageJpeg {
  struct jpeg_decompress_struct decoder;
  struct jpeg_error_mgr errors;
  struct jpeg_source_mgr source;
  struct jpeg_progress_mgr progress;
  const JpegLibrary *library;
  jmp_buf place;
  bool is_made; /* the decoder */
  bool is_fault;
  int64_t most; /* bytes, of the images so far */
  char message[JMSG_LENGTH_MAX + 64];
};

_Noreturn static void jpeg_give_up(j_common_ptr decoder, const char *message) {
  ImageJpeg *jpeg = decoder->client_data;
  snprintf(jpeg->message, sizeof jpeg->message, "%s", message);
  longjmp(jpeg->place, 1);
}

_Noreturn static void jpeg_error(j_common_ptr decoder) {
  ImageJpeg *jpeg = decoder->client_data;
  char reason[JMSG_LENGTH_MAX], message[JMSG_LENGTH_MAX + 48];
  jpeg->errors.format_message(decoder, reason);
  jpeg->is_fault = jpeg->errors.msg_code == JERR_OUT_OF_MEMORY;
  snprintf(message, sizeof message, "the JPEG image cannot be decoded: %s", reason);
  jpeg_give_up(decoder, message);
}

static void jpeg_quiet(j_common_ptr decoder) { (void)decoder; }
static void jpeg_warning(j_common_ptr decoder, int level) {
  if (level < 0) decoder->err->num_warnings++;
}

static void jpeg_source_start(j_decompress_ptr decoder) { (void)decoder; }
static void jpeg_source_end(j_decompress_ptr decoder) { (void)decoder; }
static boolean jpeg_source_more(j_decompress_ptr decoder) {
  jpeg_give_up((j_common_ptr)decoder, "the JPEG image is truncated");
}
static void jpeg_source_skip(j_decompress_ptr decoder, long count) {
  if (count <= 0) return;
  if ((size_t)count > decoder->src->bytes_in_buffer) jpeg_source_more(decoder);
  decoder->src->next_input_byte += count;
  decoder->src->bytes_in_buffer -= (size_t)count;
}

/* A small file of many scans could keep the decoder busy for hours. */
static void jpeg_watch(j_common_ptr decoder) {
  if (decoder->is_decompressor && ((j_decompress_ptr)decoder)->input_scan_number > MOST_SCANS)
    jpeg_give_up(decoder, "the JPEG image has more than 500 scans, which no real one has");
}

static Status jpeg_make(ImageWorker *worker) {
  const JpegLibrary *library;
  STATUS_TRY(image_jpeg_library(&library));
  if (worker->jpeg) return STATUS_OK;
  ImageJpeg *jpeg = calloc(1, sizeof *jpeg);
  if (!jpeg) return status_fail(STATUS_FAULT, "no memory for a JPEG decoder");
  jpeg->library = library;
  jpeg->decoder.err = library->jpeg_std_error(&jpeg->errors);
  jpeg->errors.error_exit = jpeg_error;
  jpeg->errors.output_message = jpeg_quiet;
  jpeg->errors.emit_message = jpeg_warning;
  jpeg->source = (struct jpeg_source_mgr){.init_source = jpeg_source_start,
                                          .fill_input_buffer = jpeg_source_more,
                                          .skip_input_data = jpeg_source_skip,
                                          .resync_to_restart = library->jpeg_resync_to_restart,
                                          .term_source = jpeg_source_end};
  jpeg->progress.progress_monitor = jpeg_watch;
  worker->jpeg = jpeg;
  return STATUS_OK;
}

void image_jpeg_free(ImageJpeg *jpeg) {
  if (jpeg && jpeg->is_made) jpeg->library->jpeg_destroy_decompress(&jpeg->decoder);
  free(jpeg);
}

int64_t image_jpeg_memory(const ImageJpeg *jpeg) { return jpeg ? jpeg->most : 0; }

/* What the decoder allocates: tables and small things; of every component some 80 rows, made as wide
 * as the image; and, where there are several scans, the coefficients of all blocks. */
static void jpeg_count_memory(ImageJpeg *jpeg) {
  enum { SMALL = 64 << 10, ROWS = 80 };
  const struct jpeg_decompress_struct *decoder = &jpeg->decoder;
  int64_t bytes = SMALL + (int64_t)decoder->image_width * decoder->num_components * ROWS;
  for (int i = 0;
       i < decoder->num_components && jpeg->library->jpeg_has_multiple_scans(&jpeg->decoder); i++)
    bytes += (int64_t)decoder->comp_info[i].width_in_blocks *
             decoder->comp_info[i].height_in_blocks * (int64_t)sizeof(JBLOCK);
  if (bytes > jpeg->most) jpeg->most = bytes;
}

/* The decoder keeps what it allocated for longer than an image; it clears all but err and
 * client_data when it is made. */
static void jpeg_begin(ImageJpeg *jpeg, const uint8_t *bytes, size_t count) {
  j_decompress_ptr decoder = &jpeg->decoder;
  decoder->client_data = jpeg;
  jpeg->is_fault = false;
  if (!jpeg->is_made) {
    jpeg->library->jpeg_CreateDecompress(decoder, JPEG_LIB_VERSION, sizeof *decoder);
    jpeg->is_made = true;
    decoder->client_data = jpeg;
    decoder->progress = &jpeg->progress;
    decoder->src = &jpeg->source;
  }
  jpeg->source.next_input_byte = bytes;
  jpeg->source.bytes_in_buffer = count;
}

/* Huffman codes have a bit for each block at least, so a file whose head promises far more pixels is
 * refused before there is memory for them. */
static Status jpeg_check(j_decompress_ptr decoder, const ImageWish *wish) {
  STATUS_TRY(image_check_size(decoder->image_height, decoder->image_width));
  STATUS_TRY(image_check_box(wish->box, decoder->image_height, decoder->image_width));
  const jpeg_component_info *first = decoder->comp_info;
  if (!decoder->arith_code &&
      (uint64_t)first->width_in_blocks * first->height_in_blocks > (uint64_t)wish->count * 8)
    return status_fail(STATUS_USER, "the JPEG image is truncated: %zu bytes are not %u x %u pixels",
                       wish->count, decoder->image_width, decoder->image_height);
  int components = decoder->num_components;
  if (components != 1 && components != 3 && components != 4)
    return status_fail(STATUS_USER, "the JPEG image has %d channels; 1, 3 and 4 are read",
                       components);
  return STATUS_OK;
}

static void jpeg_choose(j_decompress_ptr decoder, const ImageWish *wish) {
  int components = decoder->num_components;
  decoder->out_color_space = components == 4                          ? JCS_CMYK
                             : components == 1 && wish->channels == 1 ? JCS_GRAYSCALE
                                                                      : JCS_RGB;
  decoder->scale_num = 1;
  decoder->scale_denom = (unsigned)wish->scale;
}

/* (255 - ink) of what black leaves, rounded as Pillow does. */
static uint8_t without_ink(unsigned value, unsigned left) {
  unsigned taken = (255 - value) * left + 128;
  return (uint8_t)(left - ((taken + (taken >> 8)) >> 8));
}

static void jpeg_convert_row(const uint8_t *from, int components, int width, int channels,
                             uint8_t *to) {
  for (int x = 0; x < width; x++, from += components, to += channels) {
    uint8_t mixed[3];
    const uint8_t *rgb = from;
    if (components == 4) {
      for (int c = 0; c < 3; c++) mixed[c] = without_ink(from[c], from[3]);
      rgb = mixed;
    }
    if (channels == 3)
      memcpy(to, rgb, 3);
    else
      *to = image_luma(rgb);
  }
}

/* What is made of the decoder's rows: columns [left, left + width) of rows [top, top + height), of
 * which the decoder leaves out those before `start` and from `start + stride` bytes on. */
typedef struct {
  int left, top, width, height, start;
  size_t stride;
} JpegPart;

/* Smooth upsampling looks at the next sample of colour on either side, so columns beside the part are
 * decoded too. */
static JpegPart jpeg_cut(ImageJpeg *jpeg, const ImageWish *wish, double inside[4]) {
  enum { BESIDE = 4 };
  j_decompress_ptr decoder = &jpeg->decoder;
  int by = (int)decoder->scale_denom;
  int height = (int)decoder->output_height, width = (int)decoder->output_width;
  JpegPart part = {.width = width, .height = height};
  if (wish->box) {
    int right = (wish->box[2] + by - 1) / by, bottom = (wish->box[3] + by - 1) / by;
    part.left = wish->box[0] / by;
    part.top = wish->box[1] / by;
    part.width = (right < width ? right : width) - part.left;
    part.height = (bottom < height ? bottom : height) - part.top;
    for (int i = 0; i < 4; i++)
      inside[i] = (double)wish->box[i] / by - (i % 2 ? part.top : part.left);
    if (inside[2] > part.width) inside[2] = part.width;
    if (inside[3] > part.height) inside[3] = part.height;
    JDIMENSION first = part.left > BESIDE ? (JDIMENSION)(part.left - BESIDE) : 0;
    JDIMENSION count = (JDIMENSION)(part.left + part.width + BESIDE);
    count = (count < (JDIMENSION)width ? count : (JDIMENSION)width) - first;
    jpeg->library->jpeg_crop_scanline(decoder, &first, &count);
    part.start = (int)first;
    if (part.top) jpeg->library->jpeg_skip_scanlines(decoder, (JDIMENSION)part.top);
  }
  part.stride = (size_t)decoder->output_width * (size_t)decoder->output_components;
  return part;
}

static Status jpeg_rows(ImageWorker *worker, const ImageWish *wish, Image *out, double inside[4]) {
  ImageJpeg *jpeg = worker->jpeg;
  j_decompress_ptr decoder = &jpeg->decoder;
  JpegPart part = jpeg_cut(jpeg, wish, inside);
  int components = decoder->output_components;
  uint8_t *row = NULL;
  STATUS_TRY(image_reserve(out, part.height, part.width, wish->channels));
  size_t made = image_row_bytes(out);
  if (part.stride != made || components != wish->channels)
    STATUS_TRY(image_scratch(worker, SCRATCH_ROW, part.stride * ROWS_AT_ONCE, &row));
  for (int y = 0; y < part.height;) {
    JSAMPROW rows[ROWS_AT_ONCE];
    uint8_t *to = out->at + (size_t)y * made;
    for (int i = 0; i < ROWS_AT_ONCE; i++) rows[i] = (row ? row : to) + (size_t)i * part.stride;
    int most = part.height - y < ROWS_AT_ONCE ? part.height - y : ROWS_AT_ONCE;
    int got = (int)jpeg->library->jpeg_read_scanlines(decoder, rows, (JDIMENSION)most);
    size_t skipped = (size_t)(part.left - part.start) * (size_t)components;
    for (int i = 0; row && i < got; i++)
      if (components == wish->channels)
        memcpy(to + (size_t)i * made, rows[i] + skipped, made);
      else
        jpeg_convert_row(rows[i] + skipped, components, part.width, wish->channels,
                         to + (size_t)i * made);
    y += got;
  }
  return STATUS_OK;
}

/* The one place that errors of the library come back to. */
static Status jpeg_read(ImageWorker *worker, const ImageWish *wish, Image *out, double inside[4]) {
  ImageJpeg *jpeg = worker->jpeg;
  if (setjmp(jpeg->place))
    return status_fail(jpeg->is_fault ? STATUS_FAULT : STATUS_USER, "%s", jpeg->message);
  jpeg_begin(jpeg, wish->bytes, wish->count);
  jpeg->library->jpeg_read_header(&jpeg->decoder, TRUE);
  STATUS_TRY(jpeg_check(&jpeg->decoder, wish));
  jpeg_choose(&jpeg->decoder, wish);
  jpeg_count_memory(jpeg);
  jpeg->library->jpeg_start_decompress(&jpeg->decoder);
  return jpeg_rows(worker, wish, out, inside);
}

Status image_jpeg_decode(ImageWorker *worker, const ImageWish *wish, Image *out, double inside[4]) {
  STATUS_TRY(jpeg_make(worker));
  Status status = jpeg_read(worker, wish, out, inside);
  if (worker->jpeg->is_made) worker->jpeg->library->jpeg_abort_decompress(&worker->jpeg->decoder);
  return status;
}
