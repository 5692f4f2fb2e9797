/* plan_calls: see plan_calls.h. All arithmetic on sizes is checked for overflow: the numbers may
 * come from a hostile file. */
#include "plan/plan_calls.h"
#include <assert.h>
#include <limits.h>
#include <string.h>

const CallInfo call_info[] = {
#define CALL(name, inputs, outputs, attributes) {name, inputs, outputs, attributes},
#include "plan/calls.def"
#undef CALL
};
static_assert(sizeof call_info / sizeof *call_info == CALL_COUNT, "CallId follows calls.def");

bool call_parse(const char *name, CallId *out) {
  for (int i = 0; i < CALL_COUNT; i++)
    if (!strcmp(call_info[i].name, name)) {
      *out = (CallId)i;
      return true;
    }
  return false;
}

static const int64_t *find_int(const PlanStep *step, const char *key) {
  for (int i = 0; i < step->int_count; i++)
    if (!strcmp(step->ints[i].key, key)) return &step->ints[i].value;
  return NULL;
}

int64_t call_int(const PlanStep *step, const char *key) {
  const int64_t *value = find_int(step, key);
  assert(value && "a call has all the attributes of calls.def");
  return *value;
}

static int64_t int_or(const PlanStep *step, const char *key, int64_t otherwise) {
  const int64_t *value = find_int(step, key);
  return value ? *value : otherwise;
}

static int64_t window_count(int64_t size, int64_t low, int64_t high, int64_t kernel, int64_t stride,
                            int64_t dilation) {
  int64_t span = dilation * (kernel - 1) + 1, padded = size + low + high;
  return padded < span ? 0 : (padded - span) / stride + 1;
}

void call_conv_shape(const PlanStep *step, ConvShape *s) {
  *s = (ConvShape){
      .n = call_int(step, "n"),
      .c = call_int(step, "c"),
      .h = call_int(step, "h"),
      .w = call_int(step, "w"),
      .o = call_int(step, "o"),
      .kh = call_int(step, "kh"),
      .kw = call_int(step, "kw"),
      .sh = call_int(step, "sh"),
      .sw = call_int(step, "sw"),
      .pt = call_int(step, "pt"),
      .pl = call_int(step, "pl"),
      .pb = call_int(step, "pb"),
      .pr = call_int(step, "pr"),
      .dh = call_int(step, "dh"),
      .dw = call_int(step, "dw"),
      .groups = call_int(step, "groups"),
      .is_nhwc = call_int(step, "layout") == 1,
      .has_bias = int_or(step, "bias", 0) == 1,
      .has_relu = int_or(step, "act", 0) == 1,
  };
  s->ho = window_count(s->h, s->pt, s->pb, s->kh, s->sh, s->dh);
  s->wo = window_count(s->w, s->pl, s->pr, s->kw, s->sw, s->dw);
}

void call_gemm_shape(const PlanStep *step, GemmShape *s) {
  *s = (GemmShape){.batch = call_int(step, "batch"),
                   .m = call_int(step, "m"),
                   .n = call_int(step, "n"),
                   .k = call_int(step, "k"),
                   .ta = call_int(step, "ta") == 1,
                   .tb = call_int(step, "tb") == 1,
                   .has_bias = call_int(step, "bias") == 1,
                   .has_relu = call_int(step, "act") == 1};
}

void call_matmul_shape(const PlanStep *step, MatmulShape *s) {
  *s = (MatmulShape){.batch = call_int(step, "batch"),
                     .m = call_int(step, "m"),
                     .n = call_int(step, "n"),
                     .k = call_int(step, "k"),
                     .ta = call_int(step, "ta") == 1,
                     .tb = call_int(step, "tb") == 1,
                     .compute = (CallCompute)call_int(step, "compute"),
                     .act = (CallAct)call_int(step, "act"),
                     .of = call_int(step, "sums") == 2  ? SUMS_B
                           : call_int(step, "act") == 0 ? SUMS_A
                                                        : SUMS_RESULT,
                     .bias = -1,
                     .aux = -1,
                     .c = -1,
                     .sums = -1};
  bool has_aux = call_int(step, "aux") == 1, reads_aux = s->act >= ACT_RELU_GRADIENT;
  bool is_relu = s->act == ACT_RELU || s->act == ACT_RELU_GRADIENT;
  int next = 2;
  if (call_int(step, "bias") == 1) s->bias = next++;
  if (has_aux && reads_aux) s->aux = next++;
  if (call_int(step, "accumulate") == 1) s->c = next++;
  s->input_count = next;
  s->d = next++;
  if (has_aux && !reads_aux) s->aux = next++;
  if (call_int(step, "sums")) s->sums = next++;
  s->arg_count = next;
  int64_t unit = is_relu ? 128 : 8;
  s->aux_row = (s->n + unit - 1) / unit * unit;
}

/* ── checks ───────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  Arena *arena;
  const PlanStep *step;
  const PlanBuffer *buffers;
  const char **why;
} Check;

/* Argument `index` must be f32 and hold the product of `count` dimensions. */
static bool holds(Check *check, int index, const char *role, const int64_t *dims, int count) {
  const PlanBuffer *buffer = &check->buffers[check->step->args[index]];
  int64_t bytes = 4;
  for (int i = 0; i < count; i++)
    if (__builtin_mul_overflow(bytes, dims[i], &bytes)) bytes = INT64_MAX;
  if (buffer->type.dtype != DT_F32) {
    *check->why = arena_printf(check->arena, "%s: %s must be f32", check->step->name, role);
    return false;
  }
  if (type_bytes(&buffer->type) < bytes) {
    *check->why =
        arena_printf(check->arena, "%s: the buffer of %s is smaller than its attributes say",
                     check->step->name, role);
    return false;
  }
  return true;
}

/* Argument `index` is of this dtype and holds the product of `count` dimensions. */
static bool holds_as(Check *check, int index, const char *role, DType dtype, const int64_t *dims,
                     int count) {
  const PlanBuffer *buffer = &check->buffers[check->step->args[index]];
  int64_t bytes = dtype_bytes(dtype);
  for (int i = 0; i < count; i++)
    if (__builtin_mul_overflow(bytes, dims[i], &bytes)) bytes = INT64_MAX;
  if (buffer->type.dtype == dtype && type_bytes(&buffer->type) >= bytes) return true;
  *check->why = arena_printf(check->arena, "%s: the buffer of %s is not %s or too small",
                             check->step->name, role, dtype_text(dtype));
  return false;
}

static bool in_range(Check *check, const char *key, int64_t low, int64_t high) {
  const int64_t *value = find_int(check->step, key);
  if (value && (*value < low || *value > high)) {
    *check->why = arena_printf(check->arena, "%s: %s=%lld is out of range", check->step->name, key,
                               (long long)*value);
    return false;
  }
  return true;
}

static bool check_gemm(Check *check) {
  static const char *const sizes[] = {"batch", "m", "n", "k"};
  static const char *const flags[] = {"ta", "tb", "bias", "act"};
  for (int i = 0; i < 4; i++)
    if (!in_range(check, sizes[i], 0, INT_MAX) || !in_range(check, flags[i], 0, 1)) return false;
  GemmShape s;
  call_gemm_shape(check->step, &s);
  return holds(check, 0, "a", (int64_t[]){s.batch, s.m, s.k}, 3) &&
         holds(check, 1, "b", (int64_t[]){s.batch, s.k, s.n}, 3) &&
         (!s.has_bias || holds(check, 2, "bias", (int64_t[]){s.n}, 1)) &&
         holds(check, s.has_bias ? 3 : 2, "c", (int64_t[]){s.batch, s.m, s.n}, 3);
}

static bool matmul_type(Check *check, int index, const char *role, DType *out) {
  *out = check->buffers[check->step->args[index]].type.dtype;
  if (*out == DT_F32 || *out == DT_BF16 || *out == DT_F16) return true;
  *check->why = arena_printf(check->arena, "matmul: %s must be f32, bf16 or f16", role);
  return false;
}

static bool check_matmul(Check *check) {
  static const char *const sizes[] = {"batch", "m", "n", "k"};
  static const char *const flags[] = {"ta", "tb", "bias", "aux", "accumulate"};
  for (int i = 0; i < 4; i++)
    if (!in_range(check, sizes[i], 1, INT_MAX - 128)) return false;
  for (int i = 0; i < 5; i++)
    if (!in_range(check, flags[i], 0, 1)) return false;
  if (!in_range(check, "sums", 0, 2) || !in_range(check, "act", ACT_NONE, ACT_GELU_GRADIENT) ||
      !in_range(check, "compute", COMPUTE_F32, COMPUTE_F16))
    return false;
  MatmulShape s;
  call_matmul_shape(check->step, &s);
  if (check->step->input_count != s.input_count || check->step->arg_count != s.arg_count) {
    *check->why = arena_printf(check->arena, "matmul needs %d inputs and %d output(s)",
                               s.input_count, s.arg_count - s.input_count);
    return false;
  }
  bool is_gradient = s.act >= ACT_RELU_GRADIENT;
  bool is_relu = s.act == ACT_RELU || s.act == ACT_RELU_GRADIENT;
  if ((is_gradient && s.aux < 0) || (s.act == ACT_NONE && s.aux >= 0) ||
      (s.sums >= 0 && (s.of == SUMS_RESULT ? !is_gradient : s.act != ACT_NONE)) ||
      (s.bias >= 0 && (is_gradient || s.sums >= 0)) ||
      (s.batch > 1 && (s.aux >= 0 || s.sums >= 0))) {
    *check->why = "matmul: act, bias, aux, sums and batch do not go together";
    return false;
  }
  DType a, b, d;
  if (!matmul_type(check, 0, "a", &a) || !matmul_type(check, 1, "b", &b) ||
      !matmul_type(check, s.d, "d", &d))
    return false;
  if (a != b || (d != a && d != DT_F32)) {
    *check->why = "matmul: the types of a, b and d do not go together";
    return false;
  }
  int64_t sums = s.of == SUMS_A ? s.m : s.n;
  return holds_as(check, 0, "a", a, (int64_t[]){s.batch, s.m, s.k}, 3) &&
         holds_as(check, 1, "b", b, (int64_t[]){s.batch, s.k, s.n}, 3) &&
         holds_as(check, s.d, "d", d, (int64_t[]){s.batch, s.m, s.n}, 3) &&
         (s.c < 0 || holds_as(check, s.c, "c", d, (int64_t[]){s.batch, s.m, s.n}, 3)) &&
         (s.bias < 0 || holds_as(check, s.bias, "bias", d, &s.n, 1)) &&
         (s.sums < 0 || holds_as(check, s.sums, "sums", d, &sums, 1)) &&
         (s.aux < 0 || holds_as(check, s.aux, "aux", is_relu ? DT_U8 : d,
                                (int64_t[]){s.m, is_relu ? s.aux_row / 8 : s.aux_row}, 2));
}

static bool check_conv(Check *check, CallId id) {
  static const char *const positive[] = {"kh", "kw", "sh", "sw", "dh", "dw", "groups"};
  static const char *const sizes[] = {"n", "c", "h", "w", "o"};
  static const char *const pads[] = {"pt", "pl", "pb", "pr"};
  static const char *const flags[] = {"layout", "bias", "act"};
  for (int i = 0; i < 7; i++)
    if (!in_range(check, positive[i], 1, MAX_WINDOW)) return false;
  for (int i = 0; i < 5; i++)
    if (!in_range(check, sizes[i], 0, MAX_WINDOW)) return false;
  for (int i = 0; i < 4; i++)
    if (!in_range(check, pads[i], 0, MAX_WINDOW)) return false;
  for (int i = 0; i < 3; i++)
    if (!in_range(check, flags[i], 0, 1)) return false;
  ConvShape s;
  call_conv_shape(check->step, &s);
  if (s.c % s.groups || s.o % s.groups) {
    *check->why =
        arena_printf(check->arena, "%s: groups does not divide the channels", check->step->name);
    return false;
  }
  int64_t x[] = {s.n, s.c, s.h, s.w}, w[] = {s.o, s.c / s.groups, s.kh, s.kw};
  int64_t y[] = {s.n, s.o, s.ho, s.wo};
  if (id == CALL_CONV)
    return holds(check, 0, "x", x, 4) && holds(check, 1, "w", w, 4) &&
           (!s.has_bias || holds(check, 2, "bias", (int64_t[]){s.o}, 1)) &&
           holds(check, s.has_bias ? 3 : 2, "y", y, 4);
  if (id == CALL_CONV_GRAD_INPUT)
    return holds(check, 0, "dy", y, 4) && holds(check, 1, "w", w, 4) && holds(check, 2, "dx", x, 4);
  return holds(check, 0, "dy", y, 4) && holds(check, 1, "x", x, 4) && holds(check, 2, "dw", w, 4);
}

/* The attributes must be the table's, in the table's order. */
static bool check_keys(Check *check, const CallInfo *info) {
  const char *at = info->attributes;
  for (int i = 0; i < check->step->int_count || *at; i++) {
    size_t length = strcspn(at, " ");
    if (i >= check->step->int_count || !length || strlen(check->step->ints[i].key) != length ||
        memcmp(check->step->ints[i].key, at, length) != 0) {
      *check->why = arena_printf(check->arena, "%s needs the attributes %s, in this order",
                                 info->name, info->attributes);
      return false;
    }
    at += length;
    while (*at == ' ') at++;
  }
  return true;
}

bool call_check(Arena *arena, const PlanStep *step, const PlanBuffer *buffers, const char **why) {
  Check check = {arena, step, buffers, why};
  CallId id;
  if (!call_parse(step->name, &id)) {
    *why = arena_printf(arena, "there is no library call %s", step->name);
    return false;
  }
  const CallInfo *info = &call_info[id];
  if (!check_keys(&check, info)) return false;
  if (id == CALL_MATMUL) return check_matmul(&check);
  int inputs = info->input_count + (int_or(step, "bias", 0) == 1);
  if (step->input_count != inputs || step->arg_count != inputs + info->output_count) {
    *why = arena_printf(arena, "%s needs %d inputs and %d output(s)", info->name, inputs,
                        info->output_count);
    return false;
  }
  switch (id) {
  case CALL_GEMM:
    return check_gemm(&check);
  case CALL_CONV:
  case CALL_CONV_GRAD_INPUT:
  case CALL_CONV_GRAD_WEIGHT:
    return check_conv(&check, id);
  case CALL_MATMUL:
  case CALL_COUNT:
    break;
  }
  return false;
}
