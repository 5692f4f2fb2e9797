/* data_part: see data_part.h. */
#include "plan/data_part.h"
#include "plan/plan_text.h"
#include <string.h>

void data_part_text(const DataPart *part, Text *out) {
  if (part->share > 0)
    text_printf(out, "%.6g", part->share);
  else
    text_printf(out, "fold");
  text_printf(out, " of %s", part->of);
  if (part->label) text_printf(out, " by %s", part->label);
}

static bool data_part_fail(Text *why, const DataSource *data, const char *rest) {
  data_part_text(&data->part, why);
  text_printf(why, ": %s", rest);
  return false;
}

bool data_part_check(const DataSource *sources, int count, int which, Text *why) {
  const DataSource *data = &sources[which], *whole = NULL;
  double shares = 0;
  int folds = 0;
  for (int i = 0; i < count; i++) {
    const DataSource *other = &sources[i];
    if (!strcmp(other->split, data->part.of)) whole = other;
    if (!other->part.of || strcmp(other->part.of, data->part.of) != 0) continue;
    shares += other->part.share;
    folds += other->part.share == 0;
  }
  if (!(data->part.share >= 0 && data->part.share < 1))
    return data_part_fail(why, data, "a share is more than 0 and less than 1");
  if (!whole || whole == data)
    return data_part_fail(why, data, "no other split of this name has files");
  if (whole->part.of)
    return data_part_fail(why, data,
                          "that split is a part itself; take this one of the split "
                          "that names files");
  if (folds > 1)
    return data_part_fail(why, data,
                          "two splits would have the same fold; take one of them as a "
                          "share, 0.1 of ...");
  if (shares >= 1)
    return data_part_fail(why, data, "with its other parts it leaves nothing of that split");
  return true;
}

void data_part_print(const DataPart *part, Text *out) {
  if (!part->of) return;
  text_printf(out, " of \"%s\"", part->of);
  if (part->share > 0) {
    text_printf(out, " share ");
    plan_print_number(out, part->share);
  } else {
    text_printf(out, " fold");
  }
  if (part->label) text_printf(out, " by \"%s\"", part->label);
}

bool data_part_read(Words *words, DataPart *out) {
  *out = (DataPart){0};
  if (!words_take(words, "of")) return true;
  if (!(out->of = words_name(words, "a split"))) return false;
  if (words_take(words, "share")) {
    if (!words_number(words, "the share", &out->share)) return false;
    if (!(out->share > 0 && out->share < 1))
      return words_fail(words, "a share is more than 0 and less than 1");
  } else if (!words_expect(words, "fold")) {
    return false;
  }
  return !words_take(words, "by") || (out->label = words_name(words, "an input")) != NULL;
}
