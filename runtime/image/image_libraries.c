/* image_libraries: opens libjpeg-turbo and libspng where the first image is decoded, so that a
 * training without images needs neither. They are never closed. */
#include "runtime/image/image_private.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

typedef struct {
  const char *symbol;
  size_t place;
} ImageEntry;

static JpegLibrary jpeg_library;
static PngLibrary png_library;
static char jpeg_failure[512], png_failure[512];

static const ImageEntry jpeg_entries[] = {
#define IMAGE_JPEG(name) {#name, offsetof(JpegLibrary, name)},
#define IMAGE_PNG(name)
#include "runtime/image/image_libraries.def"
#undef IMAGE_JPEG
#undef IMAGE_PNG
    {NULL, 0}};
static const ImageEntry png_entries[] = {
#define IMAGE_JPEG(name)
#define IMAGE_PNG(name) {#name, offsetof(PngLibrary, name)},
#include "runtime/image/image_libraries.def"
#undef IMAGE_JPEG
#undef IMAGE_PNG
    {NULL, 0}};

static void open_image_library(const char *kind, const char *file, const char *package,
                               const ImageEntry *entries, void *table, char failure[512]) {
  void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    snprintf(failure, 512, "%s images are read by %s, which cannot be opened: %s; install %s", kind,
             file, why ? why : "no such library", package);
    return;
  }
  for (; entries->symbol; entries++) {
    void *symbol = dlsym(library, entries->symbol);
    if (!symbol) {
      snprintf(failure, 512, "the %s here lacks %s: install that of %s", file, entries->symbol,
               package);
      return;
    }
    memcpy((char *)table + entries->place, &symbol, sizeof symbol);
  }
}

static void open_jpeg(void) {
  open_image_library("JPEG", "libjpeg.so.62", "libjpeg62-turbo", jpeg_entries, &jpeg_library,
                     jpeg_failure);
}
static void open_png(void) {
  open_image_library("PNG", "libspng.so.0", "libspng0", png_entries, &png_library, png_failure);
}

Status image_jpeg_library(const JpegLibrary **out) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_jpeg);
  *out = &jpeg_library;
  return jpeg_failure[0] ? status_fail(STATUS_USER, "%s", jpeg_failure) : STATUS_OK;
}

Status image_png_library(const PngLibrary **out) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_png);
  *out = &png_library;
  return png_failure[0] ? status_fail(STATUS_USER, "%s", png_failure) : STATUS_OK;
}

Status image_open_libraries(void) {
  const JpegLibrary *jpeg;
  const PngLibrary *png;
  STATUS_TRY(image_jpeg_library(&jpeg));
  return image_png_library(&png);
}
