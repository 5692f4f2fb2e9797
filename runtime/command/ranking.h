/* ranking: the rows of scores of a whole split, collected batch by batch, and the area under the ROC
 * curve that they have: the share of pairs of a positive and a negative in which the positive has
 * the higher score, equal ones counted half (scikit-learn's roc_auc_score). Counted in integers, so
 * the order of samples, batches and ranks changes nothing. */
#ifndef FT_RUNTIME_RANKING_H
#define FT_RUNTIME_RANKING_H
#include "runtime/command/ranks.h"

typedef struct Ranking Ranking;

/* columns: of a row, its class and its scores. most: rows that may come; STATUS_USER if their
 * memory is more than half of what is free. name: for messages; it is not copied. */
STATUS_CHECKED Status ranking_new(const char *name, int64_t columns, int64_t most, Ranking **out);
void ranking_free(Ranking *ranking); /* NULL is fine */
void ranking_clear(Ranking *ranking);
/* Rows of a class less than 0 do not count. */
STATUS_CHECKED Status ranking_add(Ranking *ranking, const float *rows, int64_t count);
/* Of the rows of all ranks that share the batch, each of which calls it. With one score the
 * positives are class 1; with more it is the mean over the classes, each against the rest. NaN where
 * a class has no positives or no negatives, or a score is NaN. */
STATUS_CHECKED Status ranking_auc(Ranking *ranking, Ranks *ranks, double *out);
#endif
