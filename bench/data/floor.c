/* floor: decodes JPEG files with libjpeg-turbo and does nothing with the pixels, which is the least that a loader of whole images
 * must do.   floor THREADS PASSES FILE...   prints images per second over all passes. Rows go to one buffer for each thread. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <jpeglib.h>

static char **files;
static int file_count, passes;
static atomic_int next;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *must(void *at, const char *what) {
  if (!at) perror(what), exit(1);
  return at;
}

static void *decode(void *unused) {
  unsigned char *bytes = NULL, *pixels = NULL;
  size_t room = 0, pixel_room = 0;
  struct jpeg_decompress_struct decoder;
  struct jpeg_error_mgr errors;
  (void)unused;
  decoder.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&decoder);
  for (int i; (i = atomic_fetch_add(&next, 1)) < file_count * passes;) {
    FILE *file = must(fopen(files[i % file_count], "rb"), files[i % file_count]);
    fseek(file, 0, SEEK_END);
    size_t count = (size_t)ftell(file);
    rewind(file);
    if (count > room) bytes = must(realloc(bytes, room = count + count / 8), "memory");
    if (fread(bytes, 1, count, file) != count) perror(files[i % file_count]), exit(1);
    fclose(file);
    jpeg_mem_src(&decoder, bytes, count);
    jpeg_read_header(&decoder, TRUE);
    decoder.out_color_space = JCS_RGB;
    jpeg_start_decompress(&decoder);
    size_t stride = (size_t)decoder.output_width * 3, wanted = stride * decoder.output_height;
    if (wanted > pixel_room)
      pixels = must(realloc(pixels, pixel_room = wanted + wanted / 8), "memory");
    while (decoder.output_scanline < decoder.output_height) {
      JSAMPROW rows[8];
      for (int k = 0; k < 8; k++) rows[k] = pixels + (decoder.output_scanline + (size_t)k) * stride;
      unsigned left = decoder.output_height - decoder.output_scanline;
      jpeg_read_scanlines(&decoder, rows, left < 8 ? left : 8);
    }
    jpeg_finish_decompress(&decoder);
  }
  jpeg_destroy_decompress(&decoder);
  free(bytes);
  free(pixels);
  return NULL;
}

int main(int count, char **arguments) {
  if (count < 4) return fprintf(stderr, "floor THREADS PASSES FILE...\n"), 2;
  int threads = atoi(arguments[1]);
  passes = atoi(arguments[2]);
  files = arguments + 3;
  file_count = count - 3;
  pthread_t *thread = must(calloc((size_t)threads, sizeof *thread), "memory");
  double start = now();
  for (int i = 0; i < threads; i++)
    if (pthread_create(&thread[i], NULL, decode, NULL)) return perror("thread"), 1;
  for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
  printf("%.1f\n", file_count * passes / (now() - start));
  free(thread);
  return 0;
}
