/* plan_part: the boxes of an input's elements that are looked up somewhere, as text:
 * `part [0,1] step [1,1] count [32,1] below 7 ignore -1`. */
#include "plan/plan_text.h"
#include "plan/plan_words.h"
#include <inttypes.h>
#include <string.h>

enum { MOST_PARTS = 4096 };

static void print_places(Text *out, const char *word, const int64_t *at, int rank) {
  text_printf(out, " %s [", word);
  for (int i = 0; i < rank; i++) text_printf(out, "%s%" PRId64, i ? "," : "", at[i]);
  text_printf(out, "]");
}

void plan_print_part(Text *out, const PlanPart *part, int rank) {
  print_places(out, "part", part->start, rank);
  print_places(out, "step", part->step, rank);
  print_places(out, "count", part->count, rank);
  text_printf(out, " below %" PRId64, part->below);
  if (part->has_ignore) text_printf(out, " ignore %" PRId64, part->ignore);
}

/* A box of an input's elements, and what they are below. */
bool plan_read_part(Words *words, PlanTensor *out) {
  Shape start, step, count;
  PlanPart part = {0};
  if (!words_shape(words, &start) || !words_expect(words, "step") || !words_shape(words, &step) ||
      !words_expect(words, "count") || !words_shape(words, &count) ||
      !words_expect(words, "below") ||
      !words_integer(words, "the bound", 1, INT64_MAX, &part.below))
    return false;
  part.has_ignore = words_take(words, "ignore");
  if (part.has_ignore &&
      !words_integer(words, "the value to ignore", INT64_MIN, INT64_MAX, &part.ignore))
    return false;
  int rank = out->type.shape.rank;
  bool fine = start.rank == rank && step.rank == rank && count.rank == rank &&
              plan_takes_bound(out) && out->part_count < MOST_PARTS;
  for (int i = 0; fine && i < rank; i++) {
    fine = shape_has_steps(out->type.shape.dim[i], start.dim[i], step.dim[i], count.dim[i]);
    part.start[i] = start.dim[i], part.step[i] = step.dim[i], part.count[i] = count.dim[i];
  }
  if (!fine) return words_fail(words, "the part is no box of integers of the tensor");
  PlanPart *all = ARENA_ARRAY(words->arena, PlanPart, out->part_count + 1);
  if (out->part_count) memcpy(all, out->parts, sizeof *all * (size_t)out->part_count);
  all[out->part_count++] = part;
  out->parts = all;
  return true;
}
