/* data_part: splits that are made of the samples of another split, as recipes write them (`valid = 0.1
 * of train by label`, `test = fold of train`) and as a plan's text has them. Which samples they get:
 * runtime/data/source_part.h. */
#ifndef FT_PLAN_DATA_PART_H
#define FT_PLAN_DATA_PART_H
#include "plan/plan.h"
#include "plan/plan_words.h"

/* "0.1 of train by label", "fold of train" */
void data_part_text(const DataPart *part, Text *out);
/* Do the parts of the split that sources[which] is a part of go together? If not, *why, to be freed,
 * is the reason. */
bool data_part_check(const DataSource *sources, int count, int which, Text *why);

/* ` of "train" share 0.1 by "label"`, ` of "train" fold`; nothing where it is no part. */
void data_part_print(const DataPart *part, Text *out);
bool data_part_read(Words *words, DataPart *out);
#endif
