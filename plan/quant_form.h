/* quant_form: how a layer is quantised, as train.quantize and `ftrun quantize --layers` write it, "w8a8", "w4g32", in this order:
 *
 *   w8     bits of the weights, 2 to 16        t, g32   one scale for all of them; one for each 32 input features; else for each output
 *   a8     bits of the inputs; without: f32    u        … which are never negative
 *                                              d        … each row by the largest of its own numbers, as it comes (dynamic)
 *   f      each input feature is multiplied by a number of its own before it is rounded
 */
#ifndef FT_PLAN_QUANT_FORM_H
#define FT_PLAN_QUANT_FORM_H
#include "base/text.h"

typedef struct {
  int bits, input_bits; /* input_bits 0: f32 */
  int64_t group;        /* 0: none */
  bool per_tensor, is_unsigned, is_dynamic, has_factor;
} QuantForm;

/* NULL, or why it is no form: "a rounded number has 2 to 16 bits". */
const char *quant_form_read(const char *text, QuantForm *out);
/* Does the pattern, "h.*.weight", mean this parameter, a matrix outside of layers? Its last word is spelled out. */
bool quant_form_names(const char *pattern, const char *name);
void quant_form_append(const QuantForm *form, Text *out);
#endif
