/* conv_cpu: convolutions by oneDNN. Its fast code (measured, AVX-512: 450 GFLOP/s on two cores)
 * wants channels last; for plans that keep nchw the images are reordered into scratch and back,
 * which is still twice as fast as its nchw code. Weights are OIHW in the plan and reordered to what
 * the primitive likes, each time: they change each step. What oneDNN cannot do is done by plain
 * loops at the end of this file, slow and right. */
#include "runtime/calls_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The three tensors of a convolution, whichever way it is run. */
typedef enum { ROLE_X, ROLE_W, ROLE_Y, ROLE_COUNT } Role;

typedef struct {
  CpuCall call;
  CallId id;
  ConvShape shape;
  CpuPrimitive reorder[ROLE_COUNT], main;
  bool is_reordered[ROLE_COUNT];
  char *address[ROLE_COUNT], *bias;
  bool is_naive;
} ConvCall;

/* Which argument of the plan's step a role is, and which of oneDNN's primitive. */
static int plan_arg(const ConvCall *c, Role role) {
  static const int table[][ROLE_COUNT] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}};
  int arg = table[c->id - CALL_CONV][role];
  return c->id == CALL_CONV && role == ROLE_Y && c->shape.has_bias ? 3 : arg;
}

static int dnnl_arg(const ConvCall *c, Role role) {
  static const int table[][ROLE_COUNT] = {{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                                          {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
                                          {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
  return table[c->id - CALL_CONV][role];
}

static Role result_role(const ConvCall *c) {
  return c->id == CALL_CONV ? ROLE_Y : c->id == CALL_CONV_GRAD_INPUT ? ROLE_X : ROLE_W;
}

/* ── descriptions ─────────────────────────────────────────────────────────────────────────── */
typedef struct {
  dnnl_memory_desc_t role[ROLE_COUNT], bias;
} Descs;

/* Images in the given layout; one channel, or one pixel, is the same memory in both. */
static void describe_image(const ConvShape *s, Role role, bool is_nhwc, dnnl_memory_desc_t *out) {
  dnnl_dims_t x = {s->n, s->c, s->h, s->w}, y = {s->n, s->o, s->ho, s->wo};
  const dnnl_dim_t *dims = role == ROLE_X ? x : y;
  if (dims[1] == 1 || dims[2] * dims[3] == 1) is_nhwc = true;
  dnnl_memory_desc_init_by_tag(out, 4, dims, dnnl_f32, is_nhwc ? dnnl_nhwc : dnnl_nchw);
}

static void describe_weights(const ConvShape *s, bool is_any, dnnl_memory_desc_t *out) {
  dnnl_dims_t grouped = {s->groups, s->o / s->groups, s->c / s->groups, s->kh, s->kw};
  bool has_groups = s->groups > 1;
  dnnl_format_tag_t tag = is_any ? dnnl_format_tag_any : has_groups ? dnnl_goihw : dnnl_oihw;
  dnnl_memory_desc_init_by_tag(out, 4 + has_groups, grouped + !has_groups, dnnl_f32, tag);
}

static void describe(const ConvShape *s, bool is_nhwc, bool is_any, Descs *out) {
  describe_image(s, ROLE_X, is_nhwc, &out->role[ROLE_X]);
  describe_image(s, ROLE_Y, is_nhwc, &out->role[ROLE_Y]);
  describe_weights(s, is_any, &out->role[ROLE_W]);
  dnnl_memory_desc_init_by_tag(&out->bias, 1, (dnnl_dims_t){s->o}, dnnl_f32, dnnl_a);
}

static dnnl_status_t describe_forward(const ConvCall *c, const Descs *d,
                                      dnnl_convolution_desc_t *out) {
  const ConvShape *s = &c->shape;
  dnnl_dims_t stride = {s->sh, s->sw}, low = {s->pt, s->pl}, high = {s->pb, s->pr};
  dnnl_dims_t dilation = {s->dh - 1, s->dw - 1};
  return dnnl_dilated_convolution_forward_desc_init(
      out, dnnl_forward_training, dnnl_convolution_direct, &d->role[ROLE_X], &d->role[ROLE_W],
      s->has_bias ? &d->bias : NULL, &d->role[ROLE_Y], stride, dilation, low, high);
}

static dnnl_status_t describe_backward(const ConvCall *c, const Descs *d,
                                       dnnl_convolution_desc_t *out) {
  const ConvShape *s = &c->shape;
  dnnl_dims_t stride = {s->sh, s->sw}, low = {s->pt, s->pl}, high = {s->pb, s->pr};
  dnnl_dims_t dilation = {s->dh - 1, s->dw - 1};
  if (c->id == CALL_CONV_GRAD_INPUT)
    return dnnl_dilated_convolution_backward_data_desc_init(
        out, dnnl_convolution_direct, &d->role[ROLE_X], &d->role[ROLE_W], &d->role[ROLE_Y], stride,
        dilation, low, high);
  return dnnl_dilated_convolution_backward_weights_desc_init(
      out, dnnl_convolution_direct, &d->role[ROLE_X], &d->role[ROLE_W], NULL, &d->role[ROLE_Y],
      stride, dilation, low, high);
}

static Status make_main(ConvCall *c, const Descs *d) {
  dnnl_convolution_desc_t forward, backward;
  STATUS_TRY(cpu_dnnl(describe_forward(c, d, &forward), "describe a convolution"));
  if (c->id == CALL_CONV) {
    dnnl_post_ops_t post = NULL;
    if (c->shape.has_relu) {
      STATUS_TRY(cpu_dnnl(dnnl_post_ops_create(&post), "make post-ops"));
      dnnl_post_ops_append_eltwise(post, 1, dnnl_eltwise_relu, 0, 0);
    }
    Status status = cpu_primitive_new(c->call.library, 0, &forward, post, NULL, &c->main);
    if (post) dnnl_post_ops_destroy(post);
    return status;
  }
  dnnl_primitive_desc_t hint = NULL;
  STATUS_TRY(cpu_dnnl(describe_backward(c, d, &backward), "describe a convolution's gradient"));
  STATUS_TRY(
      cpu_dnnl(dnnl_primitive_desc_create(&hint, &forward, NULL, c->call.library->engine, NULL),
               "make a convolution"));
  Status status = cpu_primitive_new(c->call.library, 0, &backward, NULL, hint, &c->main);
  dnnl_primitive_desc_destroy(hint);
  return status;
}

/* ── making ───────────────────────────────────────────────────────────────────────────────── */
/* Channels last if oneDNN has real code for it, else channels first, else whatever it has. */
static Status choose_main(ConvCall *c, Descs *inner) {
  for (int attempt = 0; attempt < 3; attempt++) {
    bool is_last = attempt == 2;
    describe(&c->shape, is_last ? c->shape.is_nhwc : attempt == 0, true, inner);
    Status status = make_main(c, inner);
    if (status == STATUS_OK && (is_last || !c->main.is_reference)) return STATUS_OK;
    cpu_primitive_free(&c->main);
    if (is_last) return status;
  }
  return STATUS_OK;
}

/* Binds one role: straight to the plan's memory if the layouts agree, else through scratch. */
static Status bind_role(ConvCall *c, Role role, const dnnl_memory_desc_t *outer,
                        const dnnl_memory_desc_t *inner, int64_t *offset) {
  int arg = dnnl_arg(c, role);
  if (dnnl_memory_desc_equal(outer, inner))
    return cpu_primitive_bind(&c->main, arg, inner, c->address[role]);
  bool is_result = role == result_role(c);
  CpuPrimitive *p = &c->reorder[role];
  c->is_reordered[role] = true;
  STATUS_TRY(
      cpu_reorder_new(c->call.library, 0, is_result ? inner : outer, is_result ? outer : inner, p));
  int64_t at = *offset;
  *offset += ((int64_t)dnnl_memory_desc_get_size(inner) + 63) & ~INT64_C(63);
  STATUS_TRY(
      cpu_primitive_bind(p, is_result ? DNNL_ARG_TO : DNNL_ARG_FROM, outer, c->address[role]));
  STATUS_TRY(cpu_primitive_bind_scratch(p, is_result ? DNNL_ARG_FROM : DNNL_ARG_TO, inner, at));
  return cpu_primitive_bind_scratch(&c->main, arg, inner, at);
}

static Status make(ConvCall *c) {
  Descs outer, inner;
  describe(&c->shape, c->shape.is_nhwc, false, &outer);
  STATUS_TRY(choose_main(c, &inner));
  inner.role[ROLE_W] =
      *cpu_primitive_query(&c->main, c->id == CALL_CONV_GRAD_WEIGHT ? dnnl_query_diff_weights_md
                                                                    : dnnl_query_weights_md);
  int64_t offset = 0;
  for (int role = 0; role < ROLE_COUNT; role++)
    STATUS_TRY(bind_role(c, (Role)role, &outer.role[role], &inner.role[role], &offset));
  if (c->shape.has_bias)
    STATUS_TRY(cpu_primitive_bind(&c->main, DNNL_ARG_BIAS, &outer.bias, c->bias));
  for (int role = 0; role < ROLE_COUNT; role++)
    if (c->is_reordered[role]) STATUS_TRY(cpu_primitive_finish(&c->reorder[role], offset));
  return cpu_primitive_finish(&c->main, offset);
}

static void drop(ConvCall *c) {
  for (int role = 0; role < ROLE_COUNT; role++) cpu_primitive_free(&c->reorder[role]);
  cpu_primitive_free(&c->main);
}

/* ── plain loops ──────────────────────────────────────────────────────────────────────────── */
static float *image_at(const ConvCall *c, Role role, int64_t n, int64_t channel, int64_t y,
                       int64_t x) {
  const ConvShape *s = &c->shape;
  bool is_x = role == ROLE_X;
  int64_t channels = is_x ? s->c : s->o, h = is_x ? s->h : s->ho, w = is_x ? s->w : s->wo;
  int64_t index = s->is_nhwc ? ((n * h + y) * w + x) * channels + channel
                             : ((n * channels + channel) * h + y) * w + x;
  return (float *)c->address[role] + index;
}

/* Every product of one output element: adds it where this call's result lies. */
static void naive_element(ConvCall *c, int64_t n, int64_t o, int64_t oy, int64_t ox) {
  const ConvShape *s = &c->shape;
  int64_t inner = s->c / s->groups, group = o / (s->o / s->groups);
  float *y = image_at(c, ROLE_Y, n, o, oy, ox);
  for (int64_t i = 0; i < inner; i++)
    for (int64_t ky = 0; ky < s->kh; ky++)
      for (int64_t kx = 0; kx < s->kw; kx++) {
        int64_t iy = oy * s->sh - s->pt + ky * s->dh, ix = ox * s->sw - s->pl + kx * s->dw;
        if (iy < 0 || iy >= s->h || ix < 0 || ix >= s->w) continue;
        float *x = image_at(c, ROLE_X, n, group * inner + i, iy, ix);
        float *w = (float *)c->address[ROLE_W] + ((o * inner + i) * s->kh + ky) * s->kw + kx;
        if (c->id == CALL_CONV) *y += *x * *w;
        if (c->id == CALL_CONV_GRAD_INPUT) *x += *y * *w;
        if (c->id == CALL_CONV_GRAD_WEIGHT) *w += *y * *x;
      }
}

static void naive_run(ConvCall *c) {
  const ConvShape *s = &c->shape;
  const int64_t sizes[ROLE_COUNT] = {s->n * s->c * s->h * s->w,
                                     s->o * (s->c / s->groups) * s->kh * s->kw,
                                     s->n * s->o * s->ho * s->wo};
  Role result = result_role(c);
  memset(c->address[result], 0, (size_t)sizes[result] * sizeof(float));
  for (int64_t n = 0; n < s->n; n++)
    for (int64_t o = 0; o < s->o; o++)
      for (int64_t y = 0; y < s->ho; y++)
        for (int64_t x = 0; x < s->wo; x++) {
          float *at = image_at(c, ROLE_Y, n, o, y, x);
          if (s->has_bias) *at = ((const float *)c->bias)[o];
          naive_element(c, n, o, y, x);
          if (s->has_relu && *at < 0) *at = 0;
        }
}

/* ── the call ─────────────────────────────────────────────────────────────────────────────── */
static bool conv_run(CpuCall *call, int part) {
  ConvCall *c = (ConvCall *)call;
  (void)part;
  if (c->is_naive) {
    naive_run(c);
    return true;
  }
  Role result = result_role(c);
  for (int role = 0; role < ROLE_COUNT; role++)
    if (c->is_reordered[role] && role != (int)result && !cpu_primitive_run(&c->reorder[role]))
      return false;
  if (!cpu_primitive_run(&c->main)) return false;
  return !c->is_reordered[result] || cpu_primitive_run(&c->reorder[result]);
}

static void conv_move(CpuCall *call, int arg, char *address) {
  ConvCall *c = (ConvCall *)call;
  if (c->shape.has_bias && arg == 2) {
    c->bias = address;
    if (!c->is_naive) cpu_primitive_move(&c->main, DNNL_ARG_BIAS, address);
    return;
  }
  for (int role = 0; role < ROLE_COUNT; role++) {
    if (plan_arg(c, (Role)role) != arg) continue;
    c->address[role] = address;
    if (c->is_naive) continue;
    bool is_result = role == (int)result_role(c);
    if (c->is_reordered[role])
      cpu_primitive_move(&c->reorder[role], is_result ? DNNL_ARG_TO : DNNL_ARG_FROM, address);
    else
      cpu_primitive_move(&c->main, dnnl_arg(c, (Role)role), address);
  }
}

static void conv_free(CpuCall *call) { drop((ConvCall *)call); }

static bool is_empty(const ConvShape *s) {
  return !s->n || !s->c || !s->h || !s->w || !s->o || !s->ho || !s->wo;
}

Status cpu_conv_new(CpuLibrary *library, const PlanStep *step, CallId id, char *const *args,
                    CpuCall **out) {
  ConvCall *c = calloc(1, sizeof *c);
  if (!c) return status_fail(STATUS_FAULT, "out of memory");
  c->call = (CpuCall){.library = library, .run = conv_run, .move = conv_move, .free = conv_free};
  c->id = id;
  call_conv_shape(step, &c->shape);
  for (int role = 0; role < ROLE_COUNT; role++) c->address[role] = args[plan_arg(c, (Role)role)];
  if (c->shape.has_bias) c->bias = args[2];
  c->is_naive = is_empty(&c->shape) || make(c) != STATUS_OK;
  if (c->is_naive) drop(c);
  snprintf(c->call.text, sizeof c->call.text, "%s", c->is_naive ? "plain loops" : c->main.text);
  *out = &c->call;
  return STATUS_OK;
}
