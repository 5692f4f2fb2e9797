/* The median of the microseconds that a call of a deployed model takes, with one image; see bench/deploy/c_file. */
#include "bench/deploy/latency.c"
#include <stdio.h>

int main(void) {
  static uint8_t image[28 * 28];
  float logits[10];
  for (int i = 0; i < 28 * 28; i++) image[i] = (uint8_t)(i * 7);
  double median = median_us(101, image, logits);
  printf("%.3f\n", median);
  return median < 0;
}
