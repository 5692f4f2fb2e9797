/* elements_help: elements of the interpreter's tensors, as memory has them. */
#ifndef FT_TEST_ELEMENTS_HELP_H
#define FT_TEST_ELEMENTS_HELP_H
#include "passes_help.h"
#include "runtime/common/float8.h"

/* Of a value that the type has. */
static inline uint16_t help_to_16(DType dtype, float value) {
  uint32_t bits;
  uint16_t out;
  _Float16 half = (_Float16)value;
  memcpy(&bits, &value, 4);
  memcpy(&out, &half, 2);
  return dtype == DT_F16 ? out : (uint16_t)(bits >> 16);
}

static inline float help_from_16(DType dtype, uint16_t from) {
  uint32_t bits = (uint32_t)from << 16;
  float value;
  _Float16 half;
  memcpy(&value, &bits, 4);
  memcpy(&half, &from, 2);
  return dtype == DT_F16 ? (float)half : value;
}

static inline void help_store(void *to, DType dtype, int64_t i, const Tensor *from) {
  double f = from->f ? from->f[i] : (double)from->i[i];
  switch (dtype) {
  case DT_BOOL:
  case DT_U8:
    ((uint8_t *)to)[i] = (uint8_t)from->i[i];
    break;
  case DT_I32:
  case DT_U32:
    ((int32_t *)to)[i] = (int32_t)from->i[i];
    break;
  case DT_I64:
    ((int64_t *)to)[i] = from->i[i];
    break;
  case DT_F16:
  case DT_BF16:
    ((uint16_t *)to)[i] = help_to_16(dtype, (float)f);
    break;
  case DT_E4M3:
  case DT_E5M2:
    ((uint8_t *)to)[i] = float8_code((float)f, dtype == DT_E5M2);
    break;
  case DT_F32:
    ((float *)to)[i] = (float)f;
    break;
  case DT_F64:
    ((double *)to)[i] = f;
    break;
  default:
    fail_msg("no test value of type %s", dtype_text(dtype));
  }
}

static inline double help_load(const void *from, DType dtype, int64_t i) {
  switch (dtype) {
  case DT_BOOL:
  case DT_U8:
    return ((const uint8_t *)from)[i];
  case DT_E4M3:
  case DT_E5M2:
    return float8_value(((const uint8_t *)from)[i], dtype == DT_E5M2);
  case DT_I32:
    return ((const int32_t *)from)[i];
  case DT_U32:
    return ((const uint32_t *)from)[i];
  case DT_I64:
    return (double)((const int64_t *)from)[i];
  case DT_F16:
  case DT_BF16:
    return (double)help_from_16(dtype, ((const uint16_t *)from)[i]);
  case DT_F32:
    return (double)((const float *)from)[i];
  default:
    return ((const double *)from)[i];
  }
}
#endif
