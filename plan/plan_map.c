/* plan_map: see plan_map.h. The rules are those that CUDA 13 writes at cuTensorMapEncodeTiled; ours
 * are narrower where it says nothing about the result: a swizzled box is as wide as the swizzle. */
#include "plan/plan_map.h"
#include <inttypes.h>

enum { MOST_BOX = 256, MAP_UNIT = 16 };
static const int64_t most_dim = INT64_C(1) << 32, most_stride = (INT64_C(1) << 40) - 1;

/* ── text ─────────────────────────────────────────────────────────────────────────────────── */
static void print_list(Text *out, const char *key, const int64_t *value, int first, int end) {
  if (first < end) text_printf(out, " %s=", key);
  for (int i = first; i < end; i++) text_printf(out, "%s%" PRId64, i > first ? "," : "", value[i]);
}

void map_print(Text *out, const PlanMap *map) {
  text_printf(out, " map %d+%" PRId64 " %s", map->arg, map->offset, dtype_text(map->dtype));
  print_list(out, "dims", map->dim, 0, map->rank);
  print_list(out, "strides", map->stride, 1, map->rank);
  print_list(out, "box", map->box, 0, map->rank);
  if (map->swizzle) text_printf(out, " swizzle=%d", map->swizzle);
}

static bool read_list(Words *words, const char *key, int64_t high, int64_t *value, int first,
                      int end) {
  for (int i = first; i < end; i++)
    if ((i > first && !words_expect(words, ",")) || !words_integer(words, key, 1, high, &value[i]))
      return false;
  return true;
}

bool map_read(Words *words, PlanMap *out) {
  int64_t arg, swizzle = 0;
  *out = (PlanMap){0};
  if (!words_integer(words, "the map's argument", 0, INT32_MAX, &arg) ||
      !words_expect(words, "+") ||
      !words_integer(words, "the offset", 0, LARGEST_PLACE, &out->offset))
    return false;
  const char *type = words_word(words, "the map's type");
  if (!type) return false;
  if (!dtype_parse_named(type, &out->dtype)) return words_fail(words, "there is no type '%s'", type);
  if (!words_expect(words, "dims=")) return false;
  do {
    if (out->rank == MAP_RANK)
      return words_fail(words, "a map has at most %d dimensions", MAP_RANK);
    if (!words_integer(words, "dims", 1, most_dim, &out->dim[out->rank++])) return false;
  } while (words_take(words, ","));
  out->stride[0] = dtype_bytes(out->dtype);
  if (out->rank > 1 && (!words_expect(words, "strides=") ||
                        !read_list(words, "strides", most_stride, out->stride, 1, out->rank)))
    return false;
  if (!words_expect(words, "box=") || !read_list(words, "box", MOST_BOX, out->box, 0, out->rank))
    return false;
  if (words_take(words, "swizzle=") && !words_integer(words, "swizzle", 32, 128, &swizzle))
    return false;
  out->arg = (int)arg;
  out->swizzle = (int)swizzle;
  return true;
}

/* ── rules ────────────────────────────────────────────────────────────────────────────────── */
static bool fail(const char **why, const char *reason) {
  *why = reason;
  return false;
}

/* Each dimension lies within a step of the next one. So the last element is far from the first by
 * less than the last dimension's steps. */
static bool check_strides(const PlanMap *map, const char **why) {
  for (int i = 1; i < map->rank; i++) {
    if (map->stride[i] % MAP_UNIT) return fail(why, "a map's stride is no multiple of 16");
    if (map->stride[i] % map->stride[i - 1] ||
        map->stride[i] / map->stride[i - 1] < map->dim[i - 1])
      return fail(why, "a map's stride does not hold the dimensions before it");
  }
  return true;
}

static bool check_box(const PlanMap *map, const char **why) {
  int64_t wide = map->box[0] * map->stride[0];
  if (wide % MAP_UNIT) return fail(why, "a map's box is no multiple of 16 bytes wide");
  if (map->swizzle && map->swizzle != 32 && map->swizzle != 64 && map->swizzle != 128)
    return fail(why, "a map's swizzle is 32, 64 or 128 bytes");
  if (map->swizzle && wide != map->swizzle)
    return fail(why, "a swizzled map's box is not as wide as its swizzle");
  return true;
}

bool map_check(const Plan *plan, const PlanMap *map, const PlanBuffer *buffer, const char **why) {
  const PlanPlace *place = &plan->places.at[buffer->place];
  if (place->host && place->life == FOR_BATCH) {
    *why = arena_printf(plan->arena, "a map of place %s, whose address changes from step to step",
                        place->name);
    return false;
  }
  if ((buffer->offset + map->offset) % MAP_UNIT)
    return fail(why, "a map's tensor does not begin at a multiple of 16 bytes");
  if (!check_strides(map, why) || !check_box(map, why)) return false;
  int64_t end = map->offset + map->stride[0];
  for (int i = 0; i < map->rank; i++) {
    int64_t reach;
    if (__builtin_mul_overflow(map->dim[i] - 1, map->stride[i], &reach) ||
        __builtin_add_overflow(end, reach, &end))
      return fail(why, "a map's tensor is too large");
  }
  if (end <= type_bytes(&buffer->type)) return true;
  return fail(why, "a map's tensor lies outside of its argument");
}

int64_t map_parameter(const PlanStep *step, int index) {
  int64_t first = (8 * (int64_t)step->arg_count + MAP_ALIGN - 1) / MAP_ALIGN * MAP_ALIGN;
  return step->map_count ? first + index * MAP_BYTES : 8 * (int64_t)step->arg_count;
}
