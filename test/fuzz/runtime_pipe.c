/* Any chain of transforms with any arguments that transform_check takes, on pictures of any small
 * size: what it makes has the input's size, or is refused. The first bytes are the numbers, one
 * behind the other. */
#include "runtime/data/pipe.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const uint8_t *at;
  size_t count;
} Bytes;

static unsigned take(Bytes *bytes) {
  if (!bytes->count) return 0;
  bytes->count--;
  return *bytes->at++;
}

/* Small numbers, whole ones more often, for pictures stay small. */
static double take_number(Bytes *bytes, const TransformParameter *parameter) {
  unsigned a = take(bytes), b = take(bytes);
  double high = fmin(parameter->high, 80), x = parameter->low + (high - parameter->low) * a / 255;
  return b & 1 ? x : rint(x);
}

static bool take_transform(Bytes *bytes, Transform *out) {
  char why[96];
  out->kind = &transform_kinds[take(bytes) % (unsigned)transform_kind_count];
  if (out->kind->where == TRANSFORM_TEXT) return false; /* not for pictures */
  for (int i = 0; i < transform_parameter_count(out->kind); i++) {
    const TransformParameter *parameter = &out->kind->parameter[i];
    TransformArgument *argument = &out->argument[i];
    argument->count = 1 + (int)(take(bytes) % 4);
    for (int k = 0; k < argument->count; k++) argument->number[k] = take_number(bytes, parameter);
    if (transform_check(parameter, argument, why)) *argument = parameter->otherwise;
    if (transform_check(parameter, argument, why)) return false; /* it needs one */
  }
  return !transform_check_together(out, why);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  enum { MOST = 6 };
  Bytes bytes = {data, size};
  Transform chain[MOST] = {0};
  DataSource source = {.split = "train", .transforms = chain};
  unsigned shape = take(&bytes);
  ImageLayout from = {shape & 1 ? 3 : 1, 1 + take(&bytes) % 40, 1 + take(&bytes) % 40, shape & 2};
  ImageLayout to = {from.channels, 1 + take(&bytes) % 40, 1 + take(&bytes) % 40, shape & 4};
  PipeDraw draw = {take(&bytes), take(&bytes), take(&bytes)};
  int count = (int)(take(&bytes) % (MOST + 1));
  while (source.transform_count < count && take_transform(&bytes, &chain[source.transform_count]))
    source.transform_count++;
  Pipe pipe = pipe_of(&source, &to);
  PipeWorker worker;
  uint8_t *pixels = calloc(1, (size_t)(from.channels * from.height * from.width));
  uint8_t *out = malloc((size_t)(to.channels * to.height * to.width));
  if (!pixels || !out || pipe_worker_new(&worker) != STATUS_OK) abort();
  size_t room = (size_t)(from.channels * from.height * from.width);
  memcpy(pixels, bytes.at, bytes.count < room ? bytes.count : room);
  Status status = pipe_load(&worker, &from, pixels);
  if (status == STATUS_OK) status = pipe_run(&pipe, 0, pipe.count, &worker, draw);
  if (status == STATUS_OK) status = pipe_write(&pipe, &worker, out);
  pipe_worker_free(&worker);
  free(pixels);
  free(out);
  return 0;
}
