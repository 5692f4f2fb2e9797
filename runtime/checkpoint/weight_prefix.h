/* weight_prefix: what stands in front of a model's names in a file that another program has saved as a part of something
 * larger, such as "transformer." in "transformer.wte.weight" for wte.weight. */
#ifndef FT_RUNTIME_WEIGHT_PREFIX_H
#define FT_RUNTIME_WEIGHT_PREFIX_H
#include "runtime/checkpoint/safetensors.h"
#include "runtime/common/status.h"
#include <stddef.h>

typedef struct {
  const char *text; /* not terminated, a part of a name of the file; length 0: nothing stands in front */
  size_t length;
  const char *rival; /* NULL, or another prefix behind which all those names are, too: which is meant cannot be told */
  size_t rival_length;
} WeightPrefix;

/* The prefix behind which most of those names are that the file does not have as they are, if they are more than those that
 * it has: one name alone may be somebody else's. `names` may have a name several times. */
STATUS_CHECKED Status weight_prefix(const Safetensors *file, const char *const *names, int count, WeightPrefix *out);
#endif
