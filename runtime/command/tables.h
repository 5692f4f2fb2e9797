/* tables: what an evaluation shows beside single numbers: metrics that are rows or tables, and AUCs,
 * whose rows are collected from every batch. */
#ifndef FT_RUNTIME_TABLES_H
#define FT_RUNTIME_TABLES_H
#include "runtime/command/log.h"
#include "runtime/command/ranks.h"
#include "runtime/execute/exec.h"

typedef struct Tables Tables;

/* samples: of the split. exec and ranks must outlive it. */
STATUS_CHECKED Status tables_new(Exec *exec, Ranks *ranks, int64_t samples, Tables **out);
void tables_free(Tables *tables); /* NULL is fine */
/* Before the samples are gone through, each time; `is_average`: of averaged weights. */
void tables_begin(Tables *tables, bool is_average);
/* Must tables_batch be called after each batch? */
bool tables_collect(const Tables *tables);
STATUS_CHECKED Status tables_batch(Tables *tables);
/* After the last batch, on all ranks: fills these metrics of *out, which evaluate_take has listed.
 * Their numbers are there until the next evaluation of the same weights. */
STATUS_CHECKED Status tables_take(Tables *tables, LogStep *out);
#endif
