/* shrink: the weights' part of `ftrun shrink`: where they are 0, as ftc --shrink reads it (tools/ftc_shrink.c has the form), and
 * what is left of them by what it answers. */
#ifndef FT_RUNTIME_SHRINK_H
#define FT_RUNTIME_SHRINK_H
#include "base/text.h"
#include "runtime/checkpoint/weight_files.h"

/* Is this element, of any format of floats, 0 or -0? */
bool is_zero_element(const uint8_t *at, int bytes);
void shrink_zeros(const WeightFiles *weights, Text *out);
typedef struct {
  int64_t before, after; /* elements of what the program has */
} ShrinkCount;
/* Reads the answer's lines of tensors, and writes a safetensors file. */
STATUS_CHECKED Status shrink_weights(const WeightFiles *weights, const char *answer, const char *output, ShrinkCount *count);
#endif
