/* conv_cpu: convolutions by oneDNN. The batch is cut into one block of images per thread, each with
 * a primitive made for one thread (measured: as fast as oneDNN's own split, and no second pool).
 * Its fast code (AVX-512: 450 GFLOP/s on two cores) wants channels last; for plans that keep nchw
 * the images are reordered into scratch and back, still twice as fast as its nchw code. Weights are
 * reordered from the plan's layout to what the primitives like, each time: they change each step.
 * Phases: conv and conv_grad_input: (weights to the common scratch), the blocks. conv_grad_weight:
 * each block's own sum, their sum, (reorder to the plan's). What oneDNN cannot do is done by plain
 * loops. */
#include "runtime/device/cpu/calls_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The three tensors of a convolution, whichever way it is run. */
typedef enum { ROLE_X, ROLE_W, ROLE_Y, ROLE_COUNT } Role;

/* One thread's images. */
typedef struct {
  ConvShape shape;                        /* with n of its own */
  int64_t first;                          /* image */
  CpuPrimitive main, reorder[ROLE_COUNT]; /* of images that are not channels last */
  bool is_reordered[ROLE_COUNT];
} Block;

typedef struct {
  CpuCall call;
  CallId id;
  ConvShape shape;
  Block *block;
  int block_count;
  CpuPrimitive reorder_w; /* to the common scratch, or from it */
  bool is_w_reordered;
  dnnl_memory_desc_t inner_w; /* as the primitives want them */
  int64_t w_stride;           /* bytes of one copy in the common scratch, a multiple of 64 */
  int w_copies;               /* in the common scratch */
  char *address[ROLE_COUNT], *bias;
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
  dnnl.memory_desc_init_by_tag(out, 4, dims, dnnl_f32, is_nhwc ? dnnl_nhwc : dnnl_nchw);
}

static void describe_weights(const ConvShape *s, bool is_any, dnnl_memory_desc_t *out) {
  dnnl_dims_t grouped = {s->groups, s->o / s->groups, s->c / s->groups, s->kh, s->kw};
  bool has_groups = s->groups > 1;
  dnnl_format_tag_t plain =
      s->is_nhwc ? (has_groups ? dnnl_gohwi : dnnl_ohwi) : (has_groups ? dnnl_goihw : dnnl_oihw);
  dnnl_format_tag_t tag = is_any ? dnnl_format_tag_any : plain;
  dnnl.memory_desc_init_by_tag(out, 4 + has_groups, grouped + !has_groups, dnnl_f32, tag);
}

static void conv_describe(const ConvShape *s, bool is_nhwc, bool is_any, Descs *out) {
  describe_image(s, ROLE_X, is_nhwc, &out->role[ROLE_X]);
  describe_image(s, ROLE_Y, is_nhwc, &out->role[ROLE_Y]);
  describe_weights(s, is_any, &out->role[ROLE_W]);
  dnnl.memory_desc_init_by_tag(&out->bias, 1, (dnnl_dims_t){s->o}, dnnl_f32, dnnl_a);
}

static dnnl_status_t describe_forward(const ConvCall *c, const Descs *d,
                                      dnnl_convolution_desc_t *out) {
  const ConvShape *s = &c->shape;
  dnnl_dims_t stride = {s->sh, s->sw}, low = {s->pt, s->pl}, high = {s->pb, s->pr};
  dnnl_dims_t dilation = {s->dh - 1, s->dw - 1};
  return dnnl.dilated_convolution_forward_desc_init(
      out, dnnl_forward_training, dnnl_convolution_direct, &d->role[ROLE_X], &d->role[ROLE_W],
      s->has_bias ? &d->bias : NULL, &d->role[ROLE_Y], stride, dilation, low, high);
}

static dnnl_status_t describe_backward(const ConvCall *c, const Descs *d,
                                       dnnl_convolution_desc_t *out) {
  const ConvShape *s = &c->shape;
  dnnl_dims_t stride = {s->sh, s->sw}, low = {s->pt, s->pl}, high = {s->pb, s->pr};
  dnnl_dims_t dilation = {s->dh - 1, s->dw - 1};
  if (c->id == CALL_CONV_GRAD_INPUT)
    return dnnl.dilated_convolution_backward_data_desc_init(
        out, dnnl_convolution_direct, &d->role[ROLE_X], &d->role[ROLE_W], &d->role[ROLE_Y], stride,
        dilation, low, high);
  return dnnl.dilated_convolution_backward_weights_desc_init(
      out, dnnl_convolution_direct, &d->role[ROLE_X], &d->role[ROLE_W], NULL, &d->role[ROLE_Y],
      stride, dilation, low, high);
}

static Status make_main(ConvCall *c, int index, const Descs *d) {
  dnnl_convolution_desc_t forward, backward;
  CpuPrimitive *main = &c->block[index].main;
  STATUS_TRY(cpu_dnnl(describe_forward(c, d, &forward), "describe a convolution"));
  if (c->id == CALL_CONV) {
    dnnl_post_ops_t post = NULL;
    if (c->shape.has_relu) {
      STATUS_TRY(cpu_dnnl(dnnl.post_ops_create(&post), "make post-ops"));
      dnnl.post_ops_append_eltwise(post, 1, dnnl_eltwise_relu, 0, 0);
    }
    Status status = cpu_primitive_new(c->call.library, &forward, post, NULL, main);
    if (post) dnnl.post_ops_destroy(post);
    return status;
  }
  dnnl_primitive_desc_t hint = NULL;
  STATUS_TRY(cpu_dnnl(describe_backward(c, d, &backward), "describe a convolution's gradient"));
  STATUS_TRY(
      cpu_dnnl(dnnl.primitive_desc_create(&hint, &forward, NULL, c->call.library->engine, NULL),
               "make a convolution"));
  Status status = cpu_primitive_new(c->call.library, &backward, NULL, hint, main);
  dnnl.primitive_desc_destroy(hint);
  return status;
}

/* ── making ───────────────────────────────────────────────────────────────────────────────── */
static int64_t image_bytes(const ConvShape *s, Role role) {
  return 4 * (role == ROLE_X ? s->c * s->h * s->w : s->o * s->ho * s->wo);
}

static char *block_address(const ConvCall *c, const Block *b, Role role) {
  return c->address[role] + b->first * image_bytes(&c->shape, role);
}

/* Channels last if oneDNN has real code for it, else channels first, else whatever it has. Weights:
 * the first block chooses, the others must take the same. */
static Status choose_main(ConvCall *c, int index, Descs *inner) {
  Block *b = &c->block[index];
  for (int attempt = 0; attempt < 3; attempt++) {
    bool is_last = attempt == 2;
    conv_describe(&b->shape, is_last ? c->shape.is_nhwc : attempt == 0, true, inner);
    if (index > 0) inner->role[ROLE_W] = c->inner_w;
    Status status = make_main(c, index, inner);
    if (status == STATUS_OK && (is_last || !b->main.is_reference)) break;
    cpu_primitive_free(&b->main);
    if (is_last) return status;
  }
  if (index == 0)
    c->inner_w =
        *cpu_primitive_query(&b->main, c->id == CALL_CONV_GRAD_WEIGHT ? dnnl_query_diff_weights_md
                                                                      : dnnl_query_weights_md);
  return STATUS_OK;
}

/* Binds a block's images: straight to the plan's memory if the layouts agree, else by scratch. */
static Status bind_image(ConvCall *c, int index, Role role, const dnnl_memory_desc_t *outer,
                         const dnnl_memory_desc_t *inner, int64_t *offset) {
  Block *b = &c->block[index];
  char *address = block_address(c, b, role);
  int arg = dnnl_arg(c, role);
  if (dnnl.memory_desc_equal(outer, inner))
    return cpu_primitive_bind(&b->main, arg, inner, address);
  bool is_result = role == result_role(c);
  CpuPrimitive *p = &b->reorder[role];
  STATUS_TRY(
      cpu_reorder_new(c->call.library, is_result ? inner : outer, is_result ? outer : inner, p));
  b->is_reordered[role] = true;
  int64_t at = *offset;
  *offset += ((int64_t)dnnl.memory_desc_get_size(inner) + 63) & ~INT64_C(63);
  STATUS_TRY(cpu_primitive_bind(p, is_result ? DNNL_ARG_TO : DNNL_ARG_FROM, outer, address));
  STATUS_TRY(cpu_primitive_bind_scratch(p, is_result ? DNNL_ARG_FROM : DNNL_ARG_TO, inner,
                                        PLACE_SCRATCH, at));
  return cpu_primitive_bind_scratch(&b->main, arg, inner, PLACE_SCRATCH, at);
}

/* Weights, when they are as the plan has them; the sums of blocks after the first go to scratch. */
static Status bind_weights(ConvCall *c, int index) {
  Block *b = &c->block[index];
  int arg = dnnl_arg(c, ROLE_W);
  bool is_sum = c->id == CALL_CONV_GRAD_WEIGHT;
  int copy = is_sum ? index - !c->is_w_reordered : 0;
  if (!c->is_w_reordered && (!is_sum || index == 0))
    return cpu_primitive_bind(&b->main, arg, &c->inner_w, c->address[ROLE_W]);
  if (copy + 1 > c->w_copies) c->w_copies = copy + 1;
  return cpu_primitive_bind_scratch(&b->main, arg, &c->inner_w, PLACE_COMMON, copy * c->w_stride);
}

static Status make_block(ConvCall *c, int index, Descs *inner) {
  Block *b = &c->block[index];
  Descs outer;
  int64_t offset = 0;
  conv_describe(&b->shape, c->shape.is_nhwc, false, &outer);
  STATUS_TRY(bind_image(c, index, ROLE_X, &outer.role[ROLE_X], &inner->role[ROLE_X], &offset));
  STATUS_TRY(bind_image(c, index, ROLE_Y, &outer.role[ROLE_Y], &inner->role[ROLE_Y], &offset));
  STATUS_TRY(bind_weights(c, index));
  if (c->shape.has_bias)
    STATUS_TRY(cpu_primitive_bind(&b->main, DNNL_ARG_BIAS, &outer.bias, c->bias));
  for (int role = 0; role < ROLE_COUNT; role++)
    if (b->is_reordered[role]) STATUS_TRY(cpu_primitive_finish(&b->reorder[role], offset));
  return cpu_primitive_finish(&b->main, offset);
}

static Status make_weights(ConvCall *c) {
  dnnl_memory_desc_t outer;
  bool is_sum = c->id == CALL_CONV_GRAD_WEIGHT;
  CpuPrimitive *p = &c->reorder_w;
  describe_weights(&c->shape, false, &outer);
  c->w_stride = ((int64_t)dnnl.memory_desc_get_size(&c->inner_w) + 63) & ~INT64_C(63);
  if (dnnl.memory_desc_equal(&outer, &c->inner_w)) return STATUS_OK;
  c->is_w_reordered = true;
  STATUS_TRY(cpu_reorder_new(c->call.library, is_sum ? &c->inner_w : &outer,
                             is_sum ? &outer : &c->inner_w, p));
  STATUS_TRY(
      cpu_primitive_bind(p, is_sum ? DNNL_ARG_TO : DNNL_ARG_FROM, &outer, c->address[ROLE_W]));
  STATUS_TRY(cpu_primitive_bind_scratch(p, is_sum ? DNNL_ARG_FROM : DNNL_ARG_TO, &c->inner_w,
                                        PLACE_COMMON, 0));
  return cpu_primitive_finish(p, 0);
}

static Status conv_make(ConvCall *c) {
  Descs inner;
  for (int i = 0; i < c->block_count; i++) {
    STATUS_TRY(choose_main(c, i, &inner));
    if (i == 0) STATUS_TRY(make_weights(c));
    STATUS_TRY(make_block(c, i, &inner));
  }
  return STATUS_OK;
}

static void drop(ConvCall *c) {
  for (int i = 0; i < c->block_count; i++) {
    cpu_primitive_free(&c->block[i].main);
    for (int role = 0; role < ROLE_COUNT; role++) cpu_primitive_free(&c->block[i].reorder[role]);
  }
  cpu_primitive_free(&c->reorder_w);
  free(c->block);
  c->block = NULL;
  c->block_count = 0;
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

static float *weight_at(const ConvCall *c, int64_t o, int64_t i, int64_t ky, int64_t kx) {
  const ConvShape *s = &c->shape;
  int64_t inner = s->c / s->groups;
  int64_t index = s->is_nhwc ? ((o * s->kh + ky) * s->kw + kx) * inner + i
                             : ((o * inner + i) * s->kh + ky) * s->kw + kx;
  return (float *)c->address[ROLE_W] + index;
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
        float *w = weight_at(c, o, i, ky, kx);
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

/* ── running ──────────────────────────────────────────────────────────────────────────────── */
static bool run_block(ConvCall *c, int part, int thread) {
  Block *b = &c->block[part];
  Role result = result_role(c);
  for (int role = 0; role < ROLE_COUNT; role++)
    if (b->is_reordered[role] && role != (int)result &&
        !cpu_primitive_run(&b->reorder[role], thread))
      return false;
  if (!cpu_primitive_run(&b->main, thread)) return false;
  return !b->is_reordered[result] || cpu_primitive_run(&b->reorder[result], thread);
}

/* Adds the blocks' weight gradients up: this part's range of elements. */
static void sum_blocks(ConvCall *c, int part) {
  int64_t count = (int64_t)dnnl.memory_desc_get_size(&c->inner_w) / 4;
  int64_t begin = count * part / c->block_count, end = count * (part + 1) / c->block_count;
  char *common = c->call.library->common;
  float *into = (float *)(c->is_w_reordered ? common : c->address[ROLE_W]);
  for (int i = 1; i < c->block_count; i++) {
    const float *from = (const float *)(common + (i - !c->is_w_reordered) * c->w_stride);
    for (int64_t j = begin; j < end; j++) into[j] += from[j];
  }
}

static bool run_forward(CpuCall *call, int phase, int part, int thread) {
  ConvCall *c = (ConvCall *)call;
  if (phase == 0 && c->is_w_reordered) return cpu_primitive_run(&c->reorder_w, thread);
  return run_block(c, part, thread);
}

static bool run_grad_weight(CpuCall *call, int phase, int part, int thread) {
  ConvCall *c = (ConvCall *)call;
  if (phase == 0) return run_block(c, part, thread);
  if (phase == 1 && c->block_count > 1) {
    sum_blocks(c, part);
    return true;
  }
  return cpu_primitive_run(&c->reorder_w, thread);
}

static void conv_move(CpuCall *call, int arg, char *address) {
  ConvCall *c = (ConvCall *)call;
  bool is_bias = c->shape.has_bias && arg == 2;
  if (is_bias) c->bias = address;
  for (int i = 0; is_bias && i < c->block_count; i++)
    cpu_primitive_move(&c->block[i].main, DNNL_ARG_BIAS, address);
  for (int role = 0; role < ROLE_COUNT && !is_bias; role++) {
    if (plan_arg(c, (Role)role) != arg) continue;
    int side = role == (int)result_role(c) ? DNNL_ARG_TO : DNNL_ARG_FROM;
    c->address[role] = address;
    if (role == ROLE_W && c->is_w_reordered) cpu_primitive_move(&c->reorder_w, side, address);
    for (int i = 0; i < c->block_count; i++) {
      Block *b = &c->block[i];
      if (b->is_reordered[role])
        cpu_primitive_move(&b->reorder[role], side, block_address(c, b, (Role)role));
      else if (role != ROLE_W)
        cpu_primitive_move(&b->main, dnnl_arg(c, (Role)role), block_address(c, b, (Role)role));
      else if (!c->is_w_reordered && (i == 0 || c->id != CALL_CONV_GRAD_WEIGHT))
        cpu_primitive_move(&b->main, dnnl_arg(c, ROLE_W), address);
    }
  }
}

static bool run_naive(CpuCall *call, int phase, int part, int thread) {
  (void)phase, (void)part, (void)thread;
  naive_run((ConvCall *)call);
  return true;
}

static void conv_free(CpuCall *call) { drop((ConvCall *)call); }

/* ── the call ─────────────────────────────────────────────────────────────────────────────── */
static bool conv_is_empty(const ConvShape *s) {
  return !s->n || !s->c || !s->h || !s->w || !s->o || !s->ho || !s->wo;
}

static Status cut_batch(ConvCall *c) {
  int64_t n = c->shape.n;
  int count = n < c->call.library->threads ? (int)n : c->call.library->threads;
  c->block = calloc((size_t)count, sizeof *c->block);
  if (!c->block) return status_fail(STATUS_FAULT, "out of memory");
  c->block_count = count;
  for (int i = 0; i < count; i++) {
    c->block[i].shape = c->shape;
    c->block[i].first = n * i / count;
    c->block[i].shape.n = n * (i + 1) / count - c->block[i].first;
  }
  return STATUS_OK;
}

static void add_phase(ConvCall *c, int parts) { c->call.parts[c->call.phases++] = parts; }

static void set_phases(ConvCall *c) {
  c->call.shares_scratch = c->is_w_reordered || c->w_copies > 0;
  if (c->id != CALL_CONV_GRAD_WEIGHT) {
    c->call.run = run_forward;
    if (c->is_w_reordered) add_phase(c, 1);
    add_phase(c, c->block_count);
    return;
  }
  c->call.run = run_grad_weight;
  add_phase(c, c->block_count);
  if (c->block_count > 1) add_phase(c, c->block_count);
  if (c->is_w_reordered) add_phase(c, 1);
}

Status cpu_conv_new(CpuLibrary *library, const PlanStep *step, CallId id, char *const *args,
                    CpuCall **out) {
  ConvCall *c = calloc(1, sizeof *c);
  if (!c) return status_fail(STATUS_FAULT, "out of memory");
  c->call = (CpuCall){.library = library, .run = run_naive, .move = conv_move, .free = conv_free};
  c->id = id;
  call_conv_shape(step, &c->shape);
  for (int role = 0; role < ROLE_COUNT; role++) c->address[role] = args[plan_arg(c, (Role)role)];
  if (c->shape.has_bias) c->bias = args[2];
  bool is_naive =
      conv_is_empty(&c->shape) || cut_batch(c) != STATUS_OK || conv_make(c) != STATUS_OK;
  snprintf(c->call.text, sizeof c->call.text, "%s",
           is_naive ? "plain loops" : c->block[0].main.text);
  if (is_naive) {
    drop(c);
    c->is_w_reordered = false;
    add_phase(c, 1);
  } else {
    set_phases(c);
  }
  *out = &c->call;
  return STATUS_OK;
}
