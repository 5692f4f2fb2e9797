/* cifar: the binary versions of CIFAR-10 and CIFAR-100 (cs.toronto.edu/~kriz/cifar.html): records of
 * a label, or of a coarse and a fine one, and an image of 3 x 32 x 32 bytes, channels first. The
 * input with a number for a sample gets the label, the other one the image. */
#include "runtime/data/source_array.h"
#include <string.h>

enum { CHANNELS = 3, SIDE = 32, IMAGE = CHANNELS * SIDE * SIDE };

/* labels: of a record; label: the one that is wanted. */
static Status give_cifar(const ArrayFile *file, const char *name, int labels, int label,
                         ArrayHeader *out) {
  size_t record = IMAGE + (size_t)labels;
  if (file->size % record)
    return status_fail(
        STATUS_USER,
        "is not of the binary version of %s: its %zu bytes are no multiple of %zu, a "
        "record",
        name, file->size, record);
  for (int i = 0; i < file->input_count; i++) {
    const Shape *want = &file->inputs[i].type.shape;
    bool is_label = want->rank == 1;
    out[i] = (ArrayHeader){.element = ELEMENT_U8, .pitch = record};
    out[i].offset = (size_t)(is_label ? label : labels);
    out[i].shape = (Shape){.rank = 1, .dim = {(int64_t)(file->size / record)}};
    if (is_label) continue;
    bool is_flat = want->rank == 2; /* else what does not fit is told by its shape */
    out[i].shape.rank = is_flat ? 2 : 4;
    out[i].shape.dim[1] = is_flat ? IMAGE : CHANNELS;
    out[i].shape.dim[2] = out[i].shape.dim[3] = is_flat ? 0 : SIDE;
  }
  return STATUS_OK;
}

Status cifar10_parse(const ArrayFile *file, ArrayHeader *out) {
  return give_cifar(file, "CIFAR-10", 1, 0, out);
}

Status cifar100_parse(const ArrayFile *file, ArrayHeader *out) {
  bool is_coarse = !strcmp(source_kind_text(file->options, "labels", "fine"), "coarse");
  return give_cifar(file, "CIFAR-100", 2, !is_coarse, out);
}
