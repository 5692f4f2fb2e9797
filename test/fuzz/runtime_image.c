/* Any bytes as a JPEG or PNG image: decoded or refused. What decodes has the size that its head says. */
#include "runtime/image/image.h"
#include <stdlib.h>

enum { MOST_PIXELS = 1 << 20 }; /* more take too long for a fuzzer */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static ImageWorker *worker;
  static Image image, turned;
  int height = 0, width = 0;
  if (!worker) worker = image_worker_new();
  if (image_size(data, size, &height, &width) != STATUS_OK) return 0;
  if ((int64_t)height * width > MOST_PIXELS) return 0;
  for (int channels = 1; channels <= 3; channels += 2) {
    if (image_decode(worker, data, size, channels, 1, &image) == STATUS_OK) {
      if (image.height != height || image.width != width || image.channels != channels) abort();
      if (image_turn(&image, image_orientation(data, size), &turned) != STATUS_OK) abort();
    }
    int least = height / 5, scale = image_draft(height, width, least, 1);
    if (image_decode(worker, data, size, channels, scale, &image) == STATUS_OK &&
        (image.height < least || image.height > height || image.width > width))
      abort();
  }
  return 0;
}
