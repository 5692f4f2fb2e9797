/* source_part: see source_part.h. Samples are taken one part after the other, first the shares, then
 * a fold of what they leave: so a fold never has a sample of the held-out share. For a part, what is
 * left is thought of in order of its classes, by first appearance, and at random within a class. A
 * fold of K takes every K-th place of that, as scikit-learn's StratifiedKFold does, a share of m
 * among n takes place p where (p + 1) m / n is another whole number than p m / n. So sizes are exact,
 * and each class has its share but for less than one sample. */
#include "runtime/data/source_part.h"
#include "plan/data_part.h"
#include "runtime/common/order.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LABELS = 1 << 20, OWNER_NONE = 0, OWNER_OTHER, OWNER_WANTED };

typedef struct {
  const Plan *plan;
  const DataSource *part; /* the one that takes */
  int64_t samples, left;
  uint8_t *owner;  /* by sample */
  uint32_t *kind;  /* by sample that is left: its class, counted by first appearance */
  int64_t *number; /* by class: its label */
  int64_t *count;  /* by class: how many are left; then the next place among all of them */
  int64_t classes;
} Deal;

static const char *part_whole(const DataSource *data) {
  return data->part.of ? data->part.of : data->split;
}

static bool part_belongs(const DataSource *data, const char *whole) {
  return data->part.of && strcmp(data->part.of, whole) == 0;
}

bool source_has_parts(const Plan *plan, const DataSource *data) {
  for (int i = 0; i < plan->sources.count; i++)
    if (part_belongs(&plan->sources.at[i], part_whole(data))) return true;
  return false;
}

/* "valid: 0.1 of train: why" */
static Status part_fail(const DataSource *part, const char *why) {
  Text text = {0};
  data_part_text(&part->part, &text);
  Status status = status_fail(STATUS_USER, "%s: %s: %s", part->split, text_cstr(&text), why);
  text_free(&text);
  return status;
}

static Status part_check_all(const Plan *plan, const char *whole) {
  Text why = {0};
  Status status = STATUS_OK;
  for (int i = 0; i < plan->sources.count && status == STATUS_OK; i++)
    if (part_belongs(&plan->sources.at[i], whole) &&
        !data_part_check(plan->sources.at, plan->sources.count, i, &why))
      status = status_fail(STATUS_USER, "%s: %s", plan->sources.at[i].split, text_cstr(&why));
  text_free(&why);
  return status;
}

/* Of `samples`; 0 or all of them is no share. */
static Status share_size(const DataSource *part, int64_t samples, int64_t left, int64_t *out) {
  char why[160];
  *out = (int64_t)(part->part.share * (double)samples + 0.5);
  if (*out >= 1 && *out < left) return STATUS_OK;
  if (*out < 1)
    snprintf(why, sizeof why, "that is not one of %lld samples; take a larger share",
             (long long)samples);
  else
    snprintf(why, sizeof why, "that leaves none of the %lld samples to the others; take less",
             (long long)samples);
  return part_fail(part, why);
}

/* ── classes ──────────────────────────────────────────────────────────────────────────────── */
/* Without an input to split by, all samples are of one class. */
static Status count_classes(Deal *deal, SampleLabel *label, const void *context, uint32_t *seen) {
  const char *input = deal->part->part.label;
  char why[200];
  deal->classes = deal->left = 0;
  memset(seen, 0, MOST_LABELS * sizeof *seen);
  for (int64_t i = 0; i < deal->samples; i++) {
    int64_t value = 0;
    if (deal->owner[i]) continue;
    if (input) STATUS_TRY(label(context, input, i, &value));
    if (value < 0 || value >= MOST_LABELS) {
      snprintf(why, sizeof why,
               "sample %lld has label %lld, but classes are whole numbers from 0 to %d",
               (long long)i, (long long)value, MOST_LABELS - 1);
      return part_fail(deal->part, why);
    }
    if (!seen[value]) {
      deal->number[deal->classes] = value;
      deal->count[deal->classes] = 0;
      seen[value] = (uint32_t)++deal->classes;
    }
    deal->kind[i] = seen[value] - 1;
    deal->count[deal->kind[i]]++;
    deal->left++;
  }
  return STATUS_OK;
}

static Status check_classes(const Deal *deal, int64_t folds) {
  char why[240];
  const char *input = deal->part->part.label;
  for (int64_t i = 0; input && i < deal->classes; i++) {
    if (deal->count[i] >= folds) continue;
    snprintf(why, sizeof why,
             "class %lld has %lld sample%s, so that it cannot be in each of %lld; give it more, or "
             "leave `by %s` out",
             (long long)deal->number[i], (long long)deal->count[i], deal->count[i] == 1 ? "" : "s",
             (long long)folds, input);
    return part_fail(deal->part, why);
  }
  return STATUS_OK;
}

static int64_t folds_of(const Plan *plan) {
  return (int64_t)setting_number(plan->settings, "data.folds");
}

static int64_t fold_of(const Plan *plan) {
  return (int64_t)setting_number(plan->settings, "data.fold");
}

static Status check_fold(const Deal *deal) {
  char why[160];
  int64_t folds = folds_of(deal->plan), fold = fold_of(deal->plan);
  if (fold <= folds && folds <= deal->left) return STATUS_OK;
  if (fold > folds)
    snprintf(why, sizeof why, "data.fold=%lld, but data.folds=%lld", (long long)fold,
             (long long)folds);
  else
    snprintf(why, sizeof why, "%lld samples are fewer than %lld folds", (long long)deal->left,
             (long long)folds);
  return part_fail(deal->part, why);
}

/* ── the deal ─────────────────────────────────────────────────────────────────────────────── */
static Status part_deal(Deal *deal, SampleLabel *label, const void *context, uint32_t *seen,
                        int owner) {
  int64_t folds = folds_of(deal->plan), fold = fold_of(deal->plan), size = 0;
  bool is_share = deal->part->part.share > 0;
  STATUS_TRY(count_classes(deal, label, context, seen));
  if (is_share)
    STATUS_TRY(share_size(deal->part, deal->samples, deal->left, &size));
  else
    STATUS_TRY(check_fold(deal));
  STATUS_TRY(check_classes(deal, is_share ? 2 : folds));
  int64_t place = 0;
  for (int64_t i = 0; i < deal->classes; i++) {
    int64_t count = deal->count[i];
    deal->count[i] = place;
    place += count;
  }
  uint64_t seed = (uint64_t)setting_number(deal->plan->settings, "data.split_seed");
  Order order = order_new(deal->samples, true, seed, UINT64_MAX);
  for (int64_t i = 0; i < deal->samples; i++) {
    int64_t sample = order_sample(&order, i);
    if (deal->owner[sample]) continue;
    uint64_t at = (uint64_t)deal->count[deal->kind[sample]]++;
    uint64_t m = (uint64_t)size, n = (uint64_t)deal->left;
    bool is_taken =
        is_share ? (at + 1) * m / n != at * m / n : at % (uint64_t)folds == (uint64_t)(fold - 1);
    if (is_taken) deal->owner[sample] = (uint8_t)owner;
  }
  return STATUS_OK;
}

static Status list_owned(const Deal *deal, int owner, SourcePart *out) {
  for (int64_t i = 0; i < deal->samples; i++) out->count += deal->owner[i] == owner;
  out->sample = malloc((size_t)out->count * sizeof *out->sample + 1);
  if (!out->sample) return status_errno(ENOMEM, "the list of a split's samples");
  int64_t count = 0;
  for (int64_t i = 0; i < deal->samples; i++)
    if (deal->owner[i] == owner) out->sample[count++] = (uint32_t)i;
  return STATUS_OK;
}

Status source_part_choose(const Plan *plan, const DataSource *data, int64_t samples,
                          SampleLabel *label, const void *context, SourcePart *out) {
  *out = (SourcePart){0};
  const char *whole = part_whole(data);
  STATUS_TRY(part_check_all(plan, whole));
  if (samples > UINT32_MAX)
    return status_fail(STATUS_USER, "%s: of %lld samples no part can be taken: at most %u",
                       data->split, (long long)samples, UINT32_MAX);
  size_t room = (size_t)samples + 1, labels = room < MOST_LABELS ? room : MOST_LABELS;
  Deal deal = {.plan = plan, .samples = samples};
  deal.owner = calloc(room, sizeof *deal.owner);
  deal.kind = calloc(room, sizeof *deal.kind);
  deal.number = calloc(labels, sizeof *deal.number);
  deal.count = calloc(labels, sizeof *deal.count);
  uint32_t *seen = calloc(MOST_LABELS, sizeof *seen);
  Status status = STATUS_OK;
  if (!deal.owner || !deal.kind || !deal.number || !deal.count || !seen)
    status = status_errno(ENOMEM, "%s", data->split);
  for (int is_fold = 0; is_fold < 2; is_fold++)
    for (int i = 0; i < plan->sources.count && status == STATUS_OK; i++) {
      deal.part = &plan->sources.at[i];
      if (!part_belongs(deal.part, whole) || (deal.part->part.share == 0) != is_fold) continue;
      bool is_wanted = strcmp(deal.part->split, data->split) == 0;
      status = part_deal(&deal, label, context, seen, is_wanted ? OWNER_WANTED : OWNER_OTHER);
    }
  if (status == STATUS_OK)
    status = list_owned(&deal, data->part.of ? OWNER_WANTED : OWNER_NONE, out);
  free(deal.owner);
  free(deal.kind);
  free(deal.number);
  free(deal.count);
  free(seen);
  return status;
}

Status source_part_windows(const Plan *plan, const DataSource *data, int64_t windows,
                           int64_t *first, int64_t *count) {
  const char *whole = part_whole(data);
  int64_t left = windows;
  STATUS_TRY(part_check_all(plan, whole));
  for (int i = plan->sources.count; i-- > 0;) {
    const DataSource *part = &plan->sources.at[i];
    int64_t size;
    if (!part_belongs(part, whole)) continue;
    if (!(part->part.share > 0) || part->part.label)
      return part_fail(part, "a text is cut where it ends: folds and `by` are for samples");
    STATUS_TRY(share_size(part, windows, left, &size));
    left -= size;
    *first = left;
    *count = size;
    if (strcmp(part->split, data->split) == 0) return STATUS_OK;
  }
  *first = 0;
  *count = left;
  return STATUS_OK;
}

void source_part_free(SourcePart *part) {
  free(part->sample);
  *part = (SourcePart){0};
}

void source_part_describe(const Plan *plan, const DataSource *data, Text *out) {
  bool has_parts = false;
  for (int i = 0; i < plan->sources.count; i++) {
    const DataSource *part = &plan->sources.at[i];
    if (!part_belongs(part, part_whole(data))) continue;
    text_printf(out, "%s%s = ", has_parts ? ", " : "", part->split);
    data_part_text(&part->part, out);
    if (!(part->part.share > 0))
      text_printf(out, " (%lld of %lld)", (long long)fold_of(plan), (long long)folds_of(plan));
    has_parts = true;
  }
  if (has_parts)
    text_printf(out, ", data.split_seed = %lld",
                (long long)setting_number(plan->settings, "data.split_seed"));
}
