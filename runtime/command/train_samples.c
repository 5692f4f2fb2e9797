/* train_samples: samples of the data for TensorBoard, before the first step and after evaluations (declared in
 * train_state.h): those of the training split as the loader's transforms make them in this epoch, those of the validation
 * split with what the model makes of them. Always the same ones, from all over the split. */
#include "plan/source_kind.h"
#include "runtime/command/events.h"
#include "runtime/command/train_state.h"
#include "runtime/common/element.h"
#include "runtime/common/utf8.h"
#include "runtime/data/source_text.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SAMPLES = 64, MOST_VALUES = 512 }; /* values: of a row of tokens */

typedef struct {
  Training *training;
  const Source *source;
  const char *split;
  int64_t step, count; /* of samples */
  void *batch;
  Bpe *bpe;      /* of the split's tokens, */
  bool is_bytes; /* … or they are bytes; else numbers */
  Text table;    /* Markdown */
} Samples;

/* ── texts ────────────────────────────────────────────────────────────────────────────────── */
void train_append_text(Text *out, const char *at, size_t count, TrainTextForm form) {
  bool is_markdown = form == TRAIN_TEXT_CELL || form == TRAIN_TEXT_PARAGRAPH;
  for (size_t i = 0, length; i < count; i += length) {
    unsigned char byte = (unsigned char)at[i];
    length = (size_t)utf8_length(byte);
    bool is_whole = i + length <= count && (length > 1 || byte < 0x80);
    for (size_t k = 1; k < length && is_whole; k++)
      is_whole = utf8_continues(byte, (int)k, (unsigned char)at[i + k]);
    if (!is_whole) length = 1;
    if (form == TRAIN_TEXT_SOUND && (is_whole && byte))
      text_append(out, at + i, length);
    else if (form == TRAIN_TEXT_SOUND)
      text_printf(out, "\xef\xbf\xbd"); /* U+FFFD */
    else if (byte == '\n')
      text_printf(out, form == TRAIN_TEXT_PARAGRAPH ? "  \n" : " ↵ ");
    else if (!is_whole || (byte < ' ' && byte != '\t') || byte == 0x7f)
      text_printf(out, "?");
    else if (byte < 0x80 && ispunct(byte) && is_markdown)
      text_printf(out, "&#%d;", byte);
    else
      text_append(out, at + i, length);
  }
}

/* Without a tokenizer. */
bool train_tokens_are_bytes(const DataSource *data) {
  return !strcmp(data->kind, "bytes") || !strcmp(data->kind, "jsonl");
}

static void append_literally(Text *out, const char *at, size_t count) {
  train_append_text(out, at, count, TRAIN_TEXT_CELL);
}

static void append_tokens(Samples *samples, const int64_t *token, int64_t count) {
  Text plain = {0};
  bool is_cut = count > MOST_VALUES;
  if (is_cut) count = MOST_VALUES;
  for (int64_t i = 0; i < count; i++) {
    size_t bytes = 1;
    char byte = (char)token[i];
    const char *at = samples->is_bytes && token[i] >= 0 && token[i] < 256 ? &byte : NULL;
    if (samples->bpe && token[i] >= 0) at = bpe_bytes(samples->bpe, token[i], &bytes);
    if (at)
      text_append(&plain, at, bytes);
    else
      text_printf(&plain, "%s%lld", i ? " " : "", (long long)token[i]);
  }
  append_literally(&samples->table, text_cstr(&plain), plain.count);
  if (is_cut) text_printf(&samples->table, " …");
  text_free(&plain);
}

/* ── images ───────────────────────────────────────────────────────────────────────────────── */
/* Where an input of this type has its pixels; false: it is no image. */
static bool pixels_of(const Type *type, EventsImage *out, bool *is_planar) {
  const int64_t *dim = type->shape.dim;
  int rank = type->shape.rank;
  int64_t height = dim[1], width = rank > 2 ? dim[2] : 0, channels = 1;
  bool is_number = type->dtype == DT_U8 || type->dtype == DT_F32 || type->dtype == DT_F16 ||
                   type->dtype == DT_BF16;
  *is_planar = rank == 4 && (dim[1] == 1 || dim[1] == 3);
  if (!is_number || rank < 3 || rank > 4 || (rank == 3 && type->dtype != DT_U8)) return false;
  if (*is_planar)
    channels = dim[1], height = dim[2], width = dim[3];
  else if (rank == 4)
    channels = dim[3];
  *out = (EventsImage){(int)height, (int)width, (int)channels, NULL};
  return (channels == 1 || channels == 3) && height > 1 && width > 1 && height <= 4096 &&
         width <= 4096;
}

/* Floats from the least to the greatest. */
static Status write_image(Samples *samples, const char *name, int64_t row, const Type *type,
                          const void *from, EventsImage image, bool is_planar) {
  int64_t pixels = (int64_t)image.height * image.width, count = pixels * image.channels;
  float *value = malloc((size_t)count * sizeof *value), least = INFINITY, most = -INFINITY;
  uint8_t *at = malloc((size_t)count);
  Text tag = {0};
  Status status = value && at ? STATUS_OK : status_errno(ENOMEM, "samples for TensorBoard");
  if (status == STATUS_OK)
    element_convert(from, element_of(type->dtype), false, count, DT_F32, value);
  for (int64_t i = 0; status == STATUS_OK && i < count; i++) {
    least = fminf(least, value[i]);
    most = fmaxf(most, value[i]);
  }
  bool is_u8 = type->dtype == DT_U8;
  float scale = is_u8 ? 1 : most > least ? 255 / (most - least) : 0;
  for (int64_t i = 0; status == STATUS_OK && i < count; i++) {
    int64_t pixel = i / image.channels, channel = i % image.channels;
    float x = value[is_planar ? channel * pixels + pixel : i];
    float shown = is_u8 ? x : (x - least) * scale + 0.5F;
    at[i] = (uint8_t)(shown >= 0 && shown < 256 ? shown : 0); /* NaN: 0 */
  }
  image.at = at;
  text_printf(&tag, "%s/%s/%lld", samples->split, name, (long long)row);
  if (status == STATUS_OK)
    status = events_image(log_events(samples->training->log), samples->step, tag.at, &image);
  text_free(&tag);
  free(value);
  free(at);
  return status;
}

/* ── a table of samples ───────────────────────────────────────────────────────────────────── */
static bool is_integer(DType dtype) { return dtype == DT_I32 || dtype == DT_I64; }

static void append_integer(Samples *samples, const PlanTensor *input, int64_t value) {
  const char *name = input ? source_class(samples->source, input, value) : NULL;
  if (name)
    append_literally(&samples->table, name, strlen(name));
  else
    text_printf(&samples->table, "%lld", (long long)value);
}

/* One row of an input: a number, a class, tokens, or the image's number. */
static Status append_input(Samples *samples, const PlanTensor *input, int64_t row) {
  const Type *type = &input->type;
  int64_t each = shape_elements(&type->shape) / type->shape.dim[0], tokens[MOST_VALUES + 1];
  const uint8_t *from = (const uint8_t *)samples->batch + input->offset;
  EventsImage image;
  bool is_planar;
  double number;
  from += row * each * dtype_bytes(type->dtype);
  text_printf(&samples->table, " | ");
  if (pixels_of(type, &image, &is_planar)) {
    text_printf(&samples->table, "image %lld", (long long)row);
    return write_image(samples, input->name, row, type, from, image, is_planar);
  }
  int64_t count = each > MOST_VALUES ? MOST_VALUES + 1 : each;
  if (is_integer(type->dtype)) {
    element_convert(from, element_of(type->dtype), false, count, DT_I64, tokens);
    if (each == 1)
      append_integer(samples, input, tokens[0]);
    else
      append_tokens(samples, tokens, each);
  } else if (each == 1) {
    element_convert(from, element_of(type->dtype), false, 1, DT_F64, &number);
    text_printf(&samples->table, "%g", number);
  } else {
    text_printf(&samples->table, "%lld numbers", (long long)each);
  }
  return STATUS_OK;
}

static int64_t greatest(const float *score, int64_t count) {
  int64_t best = 0;
  for (int64_t i = 1; i < count; i++)
    if (score[i] > score[best] || (isnan(score[best]) && !isnan(score[i]))) best = i;
  return best;
}

/* The input whose values are numbers of this many classes, which an output's greatest score is one of. */
static const PlanTensor *scored_input(const Plan *plan, int64_t classes) {
  for (int i = 0; i < plan->inputs.count; i++) {
    const PlanTensor *input = &plan->inputs.at[i];
    if (is_integer(input->type.dtype) && input->type.shape.rank == 1 && input->below == classes)
      return input;
  }
  return NULL;
}

/* Of scores the greatest one's class or token, position by position; of one number that. */
static void append_output(Samples *samples, const Type *type, const float *value, int64_t row) {
  const Shape *shape = &type->shape;
  int64_t last = shape->rank > 1 ? shape->dim[shape->rank - 1] : 1, tokens[MOST_VALUES + 1];
  int64_t each = shape_elements(shape) / shape->dim[0];
  text_printf(&samples->table, " | ");
  value += row * each;
  if (each == 1) {
    text_printf(&samples->table, "%g", (double)value[0]);
  } else if (shape->rank == 2) {
    int64_t best = greatest(value, last);
    append_integer(samples, scored_input(samples->training->plan, last), best);
    text_printf(&samples->table, " (%.3g)", (double)value[best]);
  } else {
    int64_t places = each / last, count = places > MOST_VALUES ? MOST_VALUES + 1 : places;
    for (int64_t i = 0; i < count; i++) tokens[i] = greatest(value + i * last, last);
    append_tokens(samples, tokens, places);
  }
}

static bool is_shown(const PlanOutput *output, int64_t batch) {
  const Shape *shape = &output->type.shape;
  return output->kind == OUTPUT_RESULT && shape->rank >= 1 && shape->rank <= 3 &&
         shape->dim[0] == batch;
}

/* The model's outputs for the batch, as floats; NULL for those that are not shown. */
static Status read_outputs(Samples *samples, ExecGraph graph, float **out) {
  Exec *exec = samples->training->exec;
  const PlanGraph *plan = exec_graph_plan(exec, graph);
  STATUS_TRY(exec_run(exec, graph, samples->batch));
  STATUS_TRY(exec_sync(exec)); /* the batch is freed whatever is read */
  for (int i = 0; i < plan->outputs.count; i++) {
    const PlanOutput *output = &plan->outputs.at[i];
    int64_t batch = (int64_t)train_number(samples->training, "train.batch");
    if (!is_shown(output, batch)) continue;
    int64_t count = shape_elements(&output->type.shape), bytes = type_bytes(&output->type);
    void *raw = malloc((size_t)bytes + 1);
    out[i] = malloc((size_t)count * sizeof **out + 1);
    Status status = raw && out[i] ? exec_read_output(exec, graph, i, raw, bytes)
                                  : status_errno(ENOMEM, "samples for TensorBoard");
    if (status == STATUS_OK)
      element_convert(raw, element_of(output->type.dtype), false, count, DT_F32, out[i]);
    free(raw);
    STATUS_TRY(status);
  }
  return STATUS_OK;
}

static void append_heads(Samples *samples, const PlanGraph *graph, float *const *value) {
  const Plan *plan = samples->training->plan;
  Text rule = {0};
  text_printf(&samples->table, "sample");
  text_printf(&rule, "---");
  for (int i = 0; i < plan->inputs.count; i++) {
    text_printf(&samples->table, " | ");
    append_literally(&samples->table, plan->inputs.at[i].name, strlen(plan->inputs.at[i].name));
    text_printf(&rule, " | ---");
  }
  for (int i = 0; graph && i < graph->outputs.count; i++) {
    if (!value[i]) continue;
    text_printf(&samples->table, " | model: ");
    append_literally(&samples->table, graph->outputs.at[i].name, strlen(graph->outputs.at[i].name));
    text_printf(&rule, " | ---");
  }
  text_printf(&samples->table, "\n%s\n", rule.at);
  text_free(&rule);
}

static Status write_table(Samples *samples, const PlanGraph *graph, float *const *value) {
  const Plan *plan = samples->training->plan;
  Events *events = log_events(samples->training->log);
  append_heads(samples, graph, value);
  for (int64_t row = 0; row < samples->count; row++) {
    text_printf(&samples->table, "%lld", (long long)row);
    for (int i = 0; i < plan->inputs.count; i++)
      STATUS_TRY(append_input(samples, &plan->inputs.at[i], row));
    for (int i = 0; graph && i < graph->outputs.count; i++)
      if (value[i]) append_output(samples, &graph->outputs.at[i].type, value[i], row);
    text_printf(&samples->table, "\n");
  }
  Text tag = {0};
  text_printf(&tag, "%s/samples", samples->split);
  Status status = events_text(events, samples->step, tag.at, &samples->table);
  text_free(&tag);
  return status;
}

/* ── the whole ────────────────────────────────────────────────────────────────────────────── */
static Status fill_samples(Samples *samples, uint64_t epoch) {
  Training *training = samples->training;
  int64_t batch = (int64_t)train_number(training, "train.batch");
  int64_t all = source_samples(samples->source), *sample = calloc((size_t)batch, sizeof *sample);
  SourceWorker *worker = NULL;
  if (samples->count > batch) samples->count = batch;
  if (samples->count > all) samples->count = all;
  for (int64_t i = 0; sample && i < batch; i++)
    sample[i] = i % samples->count * (all / samples->count);
  Status status = sample ? source_worker_new(samples->source, training->seed, &worker)
                         : status_errno(ENOMEM, "samples for TensorBoard");
  if (status == STATUS_OK)
    status = source_fill_part(samples->source, worker, epoch, sample, 0, samples->batch);
  source_worker_free(worker);
  free(sample);
  return status;
}

static Status write_samples(Samples *samples, bool has_outputs, uint64_t epoch) {
  Training *training = samples->training;
  const DataSource *data = source_find_split(training->plan, samples->split);
  float *value[PLAN_MOST_METRICS + 64] = {0};
  ExecGraph graph = exec_result_graph(training->exec, PROGRAMME_EVALUATE);
  const PlanGraph *plan = has_outputs ? exec_graph_plan(training->exec, graph) : NULL;
  int most = (int)(sizeof value / sizeof *value);
  if (plan && plan->outputs.count > most) plan = NULL;
  samples->is_bytes = train_tokens_are_bytes(data);
  STATUS_TRY(
      source_text_tokenizer(training->plan, data, &training->options->run.places, &samples->bpe));
  Status status = fill_samples(samples, epoch);
  if (status == STATUS_OK && plan) status = read_outputs(samples, graph, value);
  if (status == STATUS_OK) status = write_table(samples, plan, value);
  for (int i = 0; i < most; i++) free(value[i]);
  return status;
}

static Status show_split(Training *training, const Source *source, const char *split, int64_t step,
                         int64_t count, bool has_outputs) {
  Samples samples = {
      .training = training, .source = source, .split = split, .step = step, .count = count};
  uint64_t epoch = training->steps_per_epoch ? (uint64_t)(step / training->steps_per_epoch) : 0;
  STATUS_TRY(exec_batch_new(training->exec, &samples.batch));
  Status status = write_samples(&samples, has_outputs, has_outputs ? 0 : epoch);
  if (status == STATUS_OK) status = events_flush(log_events(training->log));
  exec_batch_free(training->exec, samples.batch);
  bpe_free(samples.bpe);
  text_free(&samples.table);
  return status;
}

/* On several ranks an evaluation's batch is one of all of them: there only what is trained on. */
Status train_samples(Training *training, int64_t step, bool is_evaluated) {
  int64_t count = (int64_t)train_number(training, "train.log.samples");
  if (!log_events(training->log) || count < 1) return STATUS_OK;
  if (count > MOST_SAMPLES) count = MOST_SAMPLES;
  STATUS_TRY(show_split(training, training->train, "train", step, count, false));
  if (!is_evaluated || !training->valid || training->ranks.place.ranks > 1) return STATUS_OK;
  return show_split(training, training->valid, "valid", step, count, true);
}
