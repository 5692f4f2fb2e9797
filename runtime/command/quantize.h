/* quantize: the part of `ftrun quantize` that runs models: an artifact whose evaluation has what layers read and give as outputs
 * (ftc --taps) is run on calibration samples, and the weights, scales and ranges of the quantised model come of it; then that model is
 * run beside it, layer by layer, and both are evaluated. */
#ifndef FT_RUNTIME_QUANTIZE_COMMAND_H
#define FT_RUNTIME_QUANTIZE_COMMAND_H
#include "base/text.h"
#include "runtime/command/train.h"
#include "runtime/quantize/gptq.h"
#include "runtime/quantize/observer.h"

typedef struct {
  RunOptions run;      /* of the artifact */
  const char *source;  /* the .ft file, for messages */
  const char *weights, *split;
  const char *taps;    /* what ftc --taps has listed (tools/ftc_report.h) */
  const char *const *layers, *const *stay; /* "fc*=w8a8", the last that a layer matches counts; patterns of layers that stay as they are */
  int layer_count, stay_count;
  RangeRule range;
  double percent, momentum, smooth; /* smooth < 0: no factors */
  ScaleRule scale;
  bool is_gptq, keeps_factors; /* keeps_factors: no weights take in those of smooth */
  GptqOptions gptq;
  int64_t samples;
} QuantizeOptions;

typedef struct Quantizing Quantizing;
/* Runs the calibration. */
STATUS_CHECKED Status quantize_new(const QuantizeOptions *options, Quantizing **out);
void quantize_free(Quantizing *q); /* NULL is fine */
/* The text of train.quantize that makes the quantised program. */
const char *quantize_setting(const Quantizing *q);
STATUS_CHECKED Status quantize_write(Quantizing *q, const char *path);
/* Prints each layer, and loss and metrics of both, `artifact` being the quantised program's with taps. */
STATUS_CHECKED Status quantize_compare(Quantizing *q, const char *artifact, const char *weights);
#endif
