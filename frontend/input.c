/* input: what the data's transforms make of the model's inputs. The loader's part of a chain gives u8
 * pixels: that is what the artifact's input holds. From there on it is nodes in front of the model,
 * each graph with those of its own split; noise and mixing (mix.c) in the train graph only. */
#include "frontend/builder.h"
#include "plan/source_kind.h"
#include <math.h>
#include <string.h>

static const Transform *input_find(const DataSource *data, const char *name) {
  return data ? transform_in(data->transforms, data->transform_count, name) : NULL;
}

static bool makes_images(const DataSource *data) {
  return transform_loaded(data->transforms, data->transform_count) ||
         input_find(data, "normalize") || source_makes_images(data);
}

static const Transform *input_mixing(const DataSource *data) {
  return data ? transform_mixing(data->transforms, data->transform_count) : NULL;
}

/* Height and width behind the chain; 0: those of each image by itself. */
static void chain_size(const DataSource *data, int64_t *height, int64_t *width) {
  *height = *width = 0;
  for (int i = 0; i < data->transform_count; i++) {
    const Transform *transform = &data->transforms[i];
    const TransformParameter *first = &transform->kind->parameter[0];
    const TransformArgument *size = &transform->argument[0];
    if (strcmp(transform->kind->name, "pad") == 0 && *height) {
      int side[4];
      transform_padding(size, side);
      *width += side[0] + side[2];
      *height += side[1] + side[3];
    }
    if (!first->name || first->type != PARAMETER_SIZE) continue;
    int64_t one = (int64_t)size->number[0];
    if (size->count == 2) {
      *height = one, *width = (int64_t)size->number[1];
    } else if (strcmp(transform->kind->name, "resize") == 0) { /* the shorter side */
      int64_t longer = *height > *width ? *height : *width;
      int64_t shorter = *height < *width ? *height : *width;
      int64_t other = shorter ? one * longer / shorter : 0;
      bool is_high = *height > *width;
      *height = !shorter ? 0 : is_high ? other : one;
      *width = !shorter ? 0 : is_high ? one : other;
    } else {
      *height = *width = one;
    }
  }
}

static bool check_size(Builder *b, const DataSource *data, Loc loc, const char *name,
                       const ImageLayout *layout) {
  int64_t height, width;
  chain_size(data, &height, &width);
  if (!height && source_makes_images(data))
    return builder_fail(b, loc,
                        "images of %s(...) are of any size: make all of them %lld x %lld, as input "
                        "'%s' wants, with center_crop, random_resized_crop or resize((h, w))",
                        data->kind, (long long)layout->height, (long long)layout->width, name);
  if (height && (height != layout->height || width != layout->width))
    return builder_fail(b, loc,
                        "behind its transforms an image of %s is %lld x %lld (height x width), but "
                        "input '%s' wants %lld x %lld",
                        data->split, (long long)height, (long long)width, name,
                        (long long)layout->height, (long long)layout->width);
  return true;
}

/* A number for each channel needs as many channels. */
static bool check_channels(Builder *b, const DataSource *data, Loc loc, const char *name,
                           const ImageLayout *layout) {
  for (int k = 0; k < data->transform_count; k++) {
    const Transform *transform = &data->transforms[k];
    for (int i = 0; i < transform_parameter_count(transform->kind); i++) {
      const TransformParameter *parameter = &transform->kind->parameter[i];
      int count = transform->argument[i].count;
      if (parameter->type != PARAMETER_COLOUR && parameter->type != PARAMETER_CHANNELS) continue;
      if (count != 1 && count != layout->channels)
        return builder_fail(b, loc, "%s: %d numbers for %s, but input '%s' has %lld channel%s",
                            transform->kind->name, count, parameter->name, name,
                            (long long)layout->channels, layout->channels == 1 ? "" : "s");
    }
  }
  return true;
}

static bool input_check_step(Builder *b, const DataSource *data, Loc loc, const char *name,
                             DType dtype) {
  const Transform *step = input_find(data, "normalize");
  if (!step && input_find(data, "noise"))
    return builder_fail(b, loc,
                        "noise makes floats of pixels: normalize stands behind it (without "
                        "arguments: 0 to 1)");
  if (step && !dtype_is_float(dtype))
    return builder_fail(b, loc, "%s makes floats, but input '%s' is %s: declare it f32[...]",
                        step->kind->name, name, dtype_text(dtype));
  if (!step && dtype != DT_U8)
    return builder_fail(b, loc,
                        "%s gives pixels, u8 from 0 to 255, but input '%s' is %s: end its "
                        "transforms with normalize (without arguments: 0 to 1), or declare it u8",
                        data->split, name, dtype_text(dtype));
  return true;
}

/* The split whose normalize a graph has. NULL: no data. */
static const DataSource *split_of(const Builder *b, bool training) {
  static const char *const of_train[] = {"train", "valid", "test", NULL};
  static const char *const of_eval[] = {"valid", "test", "train", NULL};
  for (const char *const *split = training ? of_train : of_eval; *split; split++)
    for (int i = 0; i < b->program->sources.count; i++)
      if (strcmp(b->program->sources.at[i].split, *split) == 0) return &b->program->sources.at[i];
  return NULL;
}

static bool check_split(Builder *b, int index, const char *name, const ImageLayout *layout,
                        DType dtype) {
  const DataSource *data = &b->program->sources.at[index], *eval = split_of(b, false);
  Loc loc = b->source_locs.at[index];
  if (!check_size(b, data, loc, name, layout) || !check_channels(b, data, loc, name, layout) ||
      !input_check_step(b, data, loc, name, dtype))
    return false;
  const Transform *own = input_find(data, "normalize"), *has = input_find(eval, "normalize");
  if (strcmp(data->split, "test") == 0 && own && has && !transform_is_same(own, has))
    return builder_fail(b, loc,
                        "test has another normalize than valid, but one graph evaluates "
                        "both");
  return true;
}

/* Classes become rows of numbers in all splits, or in none. */
static bool input_check_one_hot(Builder *b, const Ast *input, int index, const Type *declared,
                                Type *held) {
  enum { LABEL = 1 };
  const Shape *shape = &declared->shape;
  bool is_only = b->frame->definition->kid[0]->count == LABEL;
  int with = 0;
  for (int i = 0; i < b->program->sources.count; i++) {
    const DataSource *data = &b->program->sources.at[i];
    const Transform *one_hot = input_find(data, "one_hot");
    Loc loc = b->source_locs.at[i];
    if (one_hot && is_only)
      return builder_fail(b, loc, "one_hot is for the model's second input, its labels, and it has one");
    if (!one_hot || index != LABEL) continue;
    with++;
    double classes = one_hot->argument[0].number[0];
    if (!dtype_is_float(declared->dtype) || shape->rank != 2 || (double)shape->dim[1] != classes) {
      char text[TYPE_TEXT];
      return builder_fail(b, loc, "one_hot makes f32[B, %.0f] of a class, but input '%s' is %s", classes,
                          input->name, type_text(declared, text));
    }
    *held = (Type){DT_I32, {.rank = 1, .dim = {shape->dim[0]}}};
  }
  return !with || with == b->program->sources.count ||
         builder_fail(b, input->loc, "one_hot is in some of the data's chains: it belongs in all of them");
}

/* The mixing of the train split, which all inputs take part in. */
static bool input_check_mixing(Builder *b, const Ast *input, int index, const Type *declared) {
  const Transform *mixing = input_mixing(split_of(b, true));
  return index || !mixing || mix_check(b, mixing, input, declared);
}

bool input_check(Builder *b, const Ast *input, int index, const Type *declared, Type *held) {
  bool has_images = false;
  *held = *declared;
  if (!input_check_one_hot(b, input, index, declared, held) ||
      !input_check_mixing(b, input, index, declared))
    return false;
  if (index) return true;
  for (int i = 0; i < b->program->sources.count; i++)
    has_images = has_images || makes_images(&b->program->sources.at[i]);
  if (!has_images) return true;
  Shape sample = {.rank = declared->shape.rank - 1};
  memcpy(sample.dim, declared->shape.dim + 1, sizeof sample.dim - sizeof *sample.dim);
  ImageLayout layout;
  char text[TYPE_TEXT];
  if (sample.rank < 1 || !image_layout(&sample, &layout))
    return builder_fail(b, input->loc,
                        "the data's transforms make images, so input '%s' is [B, channels, height, "
                        "width], [B, height, width, channels] or [B, height, width], of 1 or 3 "
                        "channels, not %s",
                        input->name, type_text(declared, text));
  for (int i = 0; i < b->program->sources.count; i++)
    if (!check_split(b, i, input->name, &layout, declared->dtype)) return false;
  held->dtype = DT_U8;
  return true;
}

/* ── normalize ────────────────────────────────────────────────────────────────────────────── */
/* A number for each channel, of a shape that broadcasts to x. */
static Node *per_channel(Builder *b, const ImageLayout *layout, int rank, const double *values,
                         Loc loc) {
  bool is_same = true;
  for (int i = 1; i < layout->channels; i++) is_same = is_same && values[i] == values[0];
  if (is_same) return tensor_const(b, DT_F32, values[0], loc);
  Type type = {DT_I32, {.rank = rank}};
  int axis = layout->is_channels_first ? rank - 3 : rank - 1;
  for (int i = 0; i < rank; i++) type.shape.dim[i] = i == axis ? layout->channels : 1;
  Attr attr = attr_int(ATTR_AXIS, axis);
  Node *index = tensor_node(b, OP_IOTA, NULL, 0, &attr, 1, &type, loc);
  Node *out = tensor_fill(b, DT_F32, type.shape, values[layout->channels - 1], loc);
  for (int i = (int)layout->channels - 2; i >= 0 && index && out; i--) {
    Node *is_here = tensor_binary(b, OP_EQ, "==", index, tensor_const(b, DT_I32, i, loc), loc);
    out = tensor_select(b, is_here, tensor_fill(b, DT_F32, type.shape, values[i], loc), out, loc);
  }
  return out;
}

/* (x / 255 - mean) / std, as x - 255 mean times 1 / (255 std). */
static Node *input_normalize(Builder *b, Node *x, const Transform *step, const ImageLayout *layout,
                             Loc loc) {
  const TransformArgument *mean = transform_argument(step, "mean");
  const TransformArgument *std = transform_argument(step, "std");
  double shift[3], factor[3];
  for (int i = 0; i < 3; i++) {
    shift[i] = 255 * mean->number[mean->count > i ? i : 0];
    factor[i] = 1 / (255 * std->number[std->count > i ? i : 0]);
  }
  int rank = x->type.shape.rank;
  x = tensor_cast(b, x, DT_F32, loc);
  x = tensor_binary(b, OP_SUB, "-", x, per_channel(b, layout, rank, shift, loc), loc);
  return tensor_binary(b, OP_MUL, "*", x, per_channel(b, layout, rank, factor, loc), loc);
}

/* In the chain's order, but that pixels are mixed in front of normalize, where they are read. */
static Node *input_steps(Builder *b, Node *x, const Type *declared, Loc loc) {
  const DataSource *data = split_of(b, b->training);
  const Transform *mixing = b->training ? input_mixing(data) : NULL;
  Shape sample = {.rank = declared->shape.rank - 1};
  memcpy(sample.dim, declared->shape.dim + 1, sizeof sample.dim - sizeof *sample.dim);
  ImageLayout layout;
  bool is_image = image_layout(&sample, &layout);
  for (int i = 0; data && i < data->transform_count; i++) {
    const Transform *step = &data->transforms[i];
    bool is_normalize = strcmp(step->kind->name, "normalize") == 0;
    if (b->training && strcmp(step->kind->name, "noise") == 0)
      x = mix_noise(b, x, step, input_find(data, "normalize") ? 255 : 1, loc);
    if (mixing && (is_normalize || step == mixing)) {
      x = mix_images(b, x, mixing, loc);
      mixing = NULL;
    }
    if (is_normalize && is_image) x = input_normalize(b, x, step, &layout, loc);
  }
  return tensor_cast(b, x, declared->dtype, loc);
}

static Node *input_one_hot(Builder *b, Node *label, const Type *declared, Loc loc) {
  Type type = {label->type.dtype, declared->shape};
  Attr axis = attr_int(ATTR_AXIS, 1);
  Shape column = {.rank = 2, .dim = {declared->shape.dim[0], 1}};
  tensor_within(b, label, declared->shape.dim[1], NULL);
  Node *class = tensor_node(b, OP_IOTA, NULL, 0, &axis, 1, &type, loc);
  label = tensor_reshape(b, label, column, loc);
  return tensor_cast(b, tensor_binary(b, OP_EQ, "==", class, label, loc), declared->dtype, loc);
}

Node *input_value(Builder *b, Node *input, int index, const Type *declared, Loc loc) {
  if (!input) return NULL;
  if (!index) return input_steps(b, input, declared, loc);
  if (index == 1 && input_find(split_of(b, b->training), "one_hot"))
    input = input_one_hot(b, input, declared, loc);
  return input ? mix_label(b, input, loc) : NULL;
}
