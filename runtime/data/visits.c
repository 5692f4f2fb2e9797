/* visits: see visits.h. */
#include "runtime/data/visits.h"
#include "runtime/common/order.h"
#include "runtime/common/philox.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LABELS = 1 << 20, STREAM = 0x20000000 };
static const uint64_t of_batches = 0x9e3779b97f4a7c15; /* their order is another one than the samples' */

struct Visits {
  OrderRule rule;
  int64_t samples, count;
  uint32_t *sample; /* by class and then by number; or from the easiest */
  int64_t *start;   /* by class: where it begins in `sample`; one more for the end */
  int64_t classes, largest;
  double *upto; /* weights of the samples up to this one, with it */
  TransformArgument buckets; /* by class, then these are the classes; count 0: none */
};

/* ── tables ───────────────────────────────────────────────────────────────────────────────── */
static int64_t row_of_visit(const VisitData *data, int64_t sample) {
  return data->rows ? data->rows[sample] : sample;
}

static Status visit_class(const VisitData *data, const char *input, int64_t sample, int64_t *out) {
  STATUS_TRY(data->class_of(data->context, input, row_of_visit(data, sample), out));
  if (*out >= 0 && *out < MOST_LABELS) return STATUS_OK;
  return status_fail(STATUS_USER,
                     "%s: data.order by %s: sample %lld has label %lld, but classes are whole "
                     "numbers from 0 to %d",
                     data->label, input, (long long)row_of_visit(data, sample), (long long)*out,
                     MOST_LABELS - 1);
}

/* Samples by class, in order of the labels; classes without samples are none. */
static Status visit_sort_classes(Visits *visits, const VisitData *data, int64_t *next) {
  const char *input = visits->rule.what;
  int64_t label;
  for (int64_t i = 0; i < data->samples; i++) {
    STATUS_TRY(visit_class(data, input, i, &label));
    next[label]++;
  }
  for (int64_t i = 0; i < MOST_LABELS; i++) visits->classes += next[i] > 0;
  visits->start = calloc((size_t)visits->classes + 1, sizeof *visits->start);
  if (!visits->start) return status_errno(ENOMEM, "data.order");
  int64_t class = 0, place = 0;
  for (int64_t i = 0; i < MOST_LABELS; i++) {
    int64_t count = next[i];
    if (!count) continue;
    if (count > visits->largest) visits->largest = count;
    visits->start[class ++] = next[i] = place;
    place += count;
  }
  visits->start[class] = place;
  for (int64_t i = 0; i < data->samples; i++) {
    STATUS_TRY(visit_class(data, input, i, &label));
    visits->sample[next[label]++] = (uint32_t)i;
  }
  if (visits->rule.kind != ORDER_OVERSAMPLED) return STATUS_OK;
  if (visits->classes > (INT64_C(1) << 53) / visits->largest)
    return status_fail(STATUS_USER, "%s: data.order: an epoch would be too long", data->label);
  visits->count = visits->classes * visits->largest;
  return STATUS_OK;
}

static Status check_numbers(const DataArray *array, const VisitData *data) {
  const ArrayHeader *header = &array->header;
  char text[TYPE_TEXT];
  if (header->shape.rank == 1 && header->shape.dim[0] == data->total &&
      element_converts(header->element, DT_F64))
    return STATUS_OK;
  return status_fail(
      STATUS_USER,
      "%s: data.order: %s holds %s, but a number for each of %lld samples is needed, "
      "those of other splits too",
      data->label, source_bytes_path(array->bytes), array_header_text(header, text),
      (long long)data->total);
}

/* A number for each sample of the split, from a file with one for each of its files. */
static Status visit_numbers(const Plan *plan, const SourcePlaces *places, const VisitData *data,
                            const char *file, bool is_weight, double *out) {
  char *path;
  DataArray *array = NULL;
  const DataSource npy = {.split = data->label, .kind = "npy"};
  STATUS_TRY(status_prefix(source_find_file(plan, places, file, &path), "data.order"));
  Status status = status_prefix(array_open(&npy, path, &array), "data.order");
  if (status == STATUS_OK) status = check_numbers(array, data);
  if (status == STATUS_OK) status = source_bytes_check(array->bytes);
  for (int64_t i = 0; i < data->samples && status == STATUS_OK; i++) {
    const ArrayHeader *header = &array->header;
    int64_t row = row_of_visit(data, i);
    size_t each = (size_t)element_bytes(header->element);
    element_convert(array_at(array) + (size_t)row * each, header->element, header->is_big_endian, 1,
                    DT_F64, &out[i]);
    if (!isfinite(out[i]) || (is_weight && out[i] < 0))
      status =
          status_fail(STATUS_USER, "%s: data.order: %s: number %lld is %g: %s", data->label, path,
                      (long long)row, out[i],
                      is_weight ? "a weight is finite and not negative" : "a difficulty is finite");
  }
  if (status == STATUS_OK) status = source_bytes_intact(array->bytes);
  array_close(array);
  free(path);
  return status;
}

static Status sum_weights(Visits *visits, const VisitData *data) {
  double total = 0;
  for (int64_t i = 0; i < data->samples; i++) visits->upto[i] = total += visits->upto[i];
  if (total > 0 && isfinite(total)) return STATUS_OK;
  return status_fail(STATUS_USER, "%s: data.order: the weights of %s add up to %g", data->label,
                     visits->rule.what, total);
}

typedef struct {
  double difficulty;
  int64_t sample;
} Ranked;

static int by_difficulty(const void *a, const void *b) {
  const Ranked *left = a, *right = b;
  if (left->difficulty != right->difficulty) return left->difficulty < right->difficulty ? -1 : 1;
  return left->sample < right->sample ? -1 : left->sample > right->sample;
}

static Status sort_difficulties(Visits *visits, const double *difficulty) {
  Ranked *ranked = calloc((size_t)visits->samples + 1, sizeof *ranked);
  if (!ranked) return status_errno(ENOMEM, "data.order");
  for (int64_t i = 0; i < visits->samples; i++) ranked[i] = (Ranked){difficulty[i], i};
  qsort(ranked, (size_t)visits->samples, sizeof *ranked, by_difficulty);
  for (int64_t i = 0; i < visits->samples; i++) visits->sample[i] = (uint32_t)ranked[i].sample;
  free(ranked);
  return STATUS_OK;
}

static Status make_tables(Visits *visits, const Plan *plan, const SourcePlaces *places,
                          const VisitData *data) {
  bool is_weight = visits->rule.kind == ORDER_WEIGHTED;
  bool has_classes = visits->rule.kind == ORDER_BALANCED || visits->rule.kind == ORDER_OVERSAMPLED;
  size_t room = (size_t)data->samples + 1;
  if (!is_weight && !(visits->sample = calloc(room, sizeof *visits->sample)))
    return status_errno(ENOMEM, "data.order");
  if (has_classes) {
    int64_t *next = calloc(MOST_LABELS, sizeof *next);
    Status status =
        next ? visit_sort_classes(visits, data, next) : status_errno(ENOMEM, "data.order");
    free(next);
    return status;
  }
  double *numbers = calloc(room, sizeof *numbers);
  if (!numbers) return status_errno(ENOMEM, "data.order");
  Status status = visit_numbers(plan, places, data, visits->rule.what, is_weight, numbers);
  if (is_weight) {
    visits->upto = numbers;
    return status == STATUS_OK ? sum_weights(visits, data) : status;
  }
  if (status == STATUS_OK) status = sort_difficulties(visits, numbers);
  free(numbers);
  return status;
}

/* ── buckets ──────────────────────────────────────────────────────────────────────────────── */
static int visit_bucket(const Visits *visits, const VisitData *data, int64_t sample) {
  double length = (double)data->length_of(data->context, row_of_visit(data, sample));
  int bucket = 0;
  while (bucket + 1 < visits->buckets.count && length > visits->buckets.number[bucket]) bucket++;
  return bucket;
}

static Status sort_buckets(Visits *visits, const VisitData *data) {
  visits->buckets = *data->buckets;
  visits->classes = data->buckets->count;
  visits->sample = calloc((size_t)data->samples + 1, sizeof *visits->sample);
  visits->start = calloc((size_t)visits->classes + 1, sizeof *visits->start);
  if (!visits->sample || !visits->start) return status_errno(ENOMEM, "buckets");
  int64_t next[TRANSFORM_NUMBERS];
  for (int64_t i = 0; i < data->samples; i++) visits->start[visit_bucket(visits, data, i) + 1]++;
  for (int64_t c = 0; c < visits->classes; c++) {
    next[c] = visits->start[c];
    visits->start[c + 1] += visits->start[c];
  }
  for (int64_t i = 0; i < data->samples; i++)
    visits->sample[next[visit_bucket(visits, data, i)]++] = (uint32_t)i;
  return STATUS_OK;
}

static Status check_buckets(const Plan *plan, const VisitData *data) {
  if (!*setting_text(plan->settings, "data.order")) return STATUS_OK;
  return status_fail(STATUS_USER, "%s: buckets are an order of their own, and data.order says another one",
                     data->label);
}

Status visits_new(const Plan *plan, const SourcePlaces *places, const VisitData *data,
                  Visits **out) {
  OrderRule rule;
  Text why = {0};
  Status status = STATUS_OK;
  *out = NULL;
  if (!order_rule_read(setting_text(plan->settings, "data.order"), &rule, &why))
    status = status_fail(STATUS_USER, "data.order: %s", text_cstr(&why));
  text_free(&why);
  if (status == STATUS_OK && data->buckets) status = check_buckets(plan, data);
  if (status != STATUS_OK || (rule.kind == ORDER_PLAIN && !data->buckets)) return status;
  if (data->samples < 1 || data->samples > UINT32_MAX)
    return status_fail(STATUS_USER, "%s: %s for 1 to %u samples, not %lld", data->label,
                       data->buckets ? "buckets are" : "data.order is", UINT32_MAX, (long long)data->samples);
  Visits *visits = calloc(1, sizeof *visits);
  if (!visits) return status_errno(ENOMEM, "data.order");
  visits->rule = rule;
  visits->samples = visits->count = data->samples;
  status = data->buckets ? sort_buckets(visits, data) : make_tables(visits, plan, places, data);
  if (status == STATUS_OK)
    *out = visits;
  else
    visits_free(visits);
  return status;
}

void visits_free(Visits *visits) {
  if (!visits) return;
  free(visits->sample);
  free(visits->start);
  free(visits->upto);
  free(visits);
}

int64_t visits_count(const Visits *visits) { return visits->count; }

int64_t visits_memory(const Visits *visits) {
  return visits->samples * (visits->upto ? (int64_t)sizeof(double) : (int64_t)sizeof(uint32_t)) +
         visits->classes * (int64_t)sizeof *visits->start;
}

void visits_append_buckets(const Visits *visits, Text *out) {
  if (visits->buckets.count && out->count) text_printf(out, ", ");
  for (int i = 0; i < visits->buckets.count; i++)
    text_printf(out, "%s%.0f", i ? ", " : "rows of ", visits->buckets.number[i]);
}

uint64_t visits_sum(const Visits *visits) {
  uint64_t sum = 14695981039346656037u; /* FNV-1a, by words */
  for (int64_t i = 0; i < visits->samples; i++) {
    uint64_t word;
    if (visits->upto)
      memcpy(&word, &visits->upto[i], sizeof word);
    else
      word = visits->sample[i];
    sum = (sum ^ word) * 1099511628211u;
  }
  for (int64_t i = 0; i < visits->classes; i++)
    sum = (sum ^ (uint64_t)visits->start[i]) * 1099511628211u;
  return sum;
}

/* ── an epoch ─────────────────────────────────────────────────────────────────────────────── */
/* Two 64-bit words of a visit. */
static void draw_visit(uint64_t seed, uint64_t epoch, int64_t position, uint64_t out[2]) {
  const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  const uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), (uint32_t)epoch,
                               STREAM};
  uint32_t words[4];
  philox(key, counter, words);
  out[0] = (uint64_t)words[0] << 32 | words[1];
  out[1] = (uint64_t)words[2] << 32 | words[3];
}

/* A whole number below n, from 64 random bits. */
static int64_t visit_below(uint64_t word, int64_t n) {
  return (int64_t)((unsigned __int128)word * (uint64_t)n >> 64);
}

static int64_t balanced_visit(const Visits *visits, const uint64_t word[2]) {
  int64_t class = visit_below(word[0], visits->classes), start = visits->start[class];
  return visits->sample[start + visit_below(word[1], visits->start[class + 1] - start)];
}

/* The first sample whose sum is above a uniform number; one of weight 0 never is. */
static int64_t weighted_visit(const Visits *visits, const uint64_t word[2]) {
  int64_t low = 0, high = visits->samples - 1;
  double total = visits->upto[high], u = (double)(word[0] >> 11) * 0x1p-53 * total;
  if (u >= total) u = nextafter(total, 0);
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (visits->upto[middle] > u)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* Every class has `largest` places. What it has beyond whole rounds of its samples are the first of
 * an order of its own, another one in each epoch. */
static int64_t oversampled_visit(const Visits *visits, uint64_t seed, uint64_t epoch,
                                 int64_t position) {
  Order all = order_new(visits->count, true, seed, epoch);
  int64_t place = order_sample(&all, position);
  int64_t class = place / visits->largest, start = visits->start[class];
  int64_t size = visits->start[class + 1] - start;
  Order own = order_new(size, true, seed ^ ((uint64_t)class + 1) << 32, epoch);
  return visits->sample[start + order_sample(&own, place % visits->largest % size)];
}

static int64_t curriculum_visit(const Visits *visits, uint64_t seed, uint64_t epoch,
                                int64_t position) {
  double share = 1;
  if (epoch < (uint64_t)visits->rule.epochs)
    share =
        visits->rule.from + (1 - visits->rule.from) * ((double)epoch / (double)visits->rule.epochs);
  int64_t easy = (int64_t)ceil(share * (double)visits->samples);
  if (easy < 1) easy = 1;
  if (easy > visits->samples) easy = visits->samples;
  uint64_t round = (uint64_t)(position / easy);
  Order order = order_new(easy, true, seed, epoch ^ round << 32);
  return visits->sample[order_sample(&order, position % easy)];
}

/* A place in the line for a position of the epoch, see visits.h. */
static int64_t line_place(const Visits *visits, int64_t whole, uint64_t seed, uint64_t epoch,
                          int64_t position) {
  int64_t batches = visits->samples / whole, left = visits->samples - batches * whole;
  uint64_t word[2];
  Order order = order_new(batches, true, seed ^ of_batches, epoch);
  int64_t place = order_sample(&order, position / whole) * whole + position % whole;
  draw_visit(seed, epoch, 0, word);
  int64_t from = visit_below(word[0], visits->samples), over = from + left - visits->samples;
  if (over > 0) return place + over;
  return place >= from ? place + left : place;
}

static int64_t visit_class_at(const Visits *visits, int64_t place) {
  int64_t class = 0;
  while (place >= visits->start[class + 1]) class ++;
  return class;
}

static int64_t bucketed_visit(const Visits *visits, int64_t whole, uint64_t seed, uint64_t epoch,
                              int64_t position) {
  int64_t place = line_place(visits, whole, seed, epoch, position);
  int64_t class = visit_class_at(visits, place), start = visits->start[class];
  Order own = order_new(visits->start[class + 1] - start, true, seed ^ ((uint64_t)class + 1) << 32, epoch);
  return visits->sample[start + order_sample(&own, place - start)];
}

/* The last sample of a batch stands last in the line. */
int64_t visits_size(const Visits *visits, int64_t whole, uint64_t seed, uint64_t epoch, int64_t step) {
  if (!visits || !visits->buckets.count) return 0;
  int64_t class = visit_class_at(visits, line_place(visits, whole, seed, epoch, (step + 1) * whole - 1));
  return class + 1 < visits->classes ? (int64_t)visits->buckets.number[class] : 0;
}

int64_t visits_sample(const Visits *visits, int64_t whole, uint64_t seed, uint64_t epoch,
                      int64_t position) {
  uint64_t word[2];
  if (visits->buckets.count) return bucketed_visit(visits, whole, seed, epoch, position);
  switch (visits->rule.kind) {
  case ORDER_BALANCED:
    draw_visit(seed, epoch, position, word);
    return balanced_visit(visits, word);
  case ORDER_WEIGHTED:
    draw_visit(seed, epoch, position, word);
    return weighted_visit(visits, word);
  case ORDER_OVERSAMPLED:
    return oversampled_visit(visits, seed, epoch, position);
  case ORDER_CURRICULUM:
    return curriculum_visit(visits, seed, epoch, position);
  case ORDER_SORTED:
    if (epoch < (uint64_t)visits->rule.epochs) return visits->sample[position];
    break;
  case ORDER_PLAIN:
    break;
  }
  Order order = order_new(visits->samples, true, seed, epoch);
  return order_sample(&order, position);
}
