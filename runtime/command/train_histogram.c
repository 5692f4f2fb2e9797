/* train_histogram: histograms for TensorBoard, of the weights after evaluations, of the gradients of
 * steps that are looked at (train_layers.c). Declared in train_state.h. */
#include "runtime/command/events.h"
#include "runtime/command/train_state.h"
#include "runtime/common/element.h"
#include <errno.h>
#include <stdlib.h>

enum { PIECE = 1 << 18 }; /* elements read at a time */

typedef void Take(EventsHistogram *histogram, const float *values, int64_t count);

/* All elements of it, whose order does not matter here. */
static Status take_param(Exec *exec, const PlanTensor *param, void *raw, float *values,
                         EventsHistogram *histogram, Take *take) {
  int64_t count = shape_elements(&param->type.shape), bytes = dtype_bytes(param->type.dtype);
  for (int64_t done = 0, piece; done < count; done += piece) {
    piece = count - done < PIECE ? count - done : PIECE;
    STATUS_TRY(exec_read(exec, param->place, param->offset + done * bytes, piece * bytes, raw));
    element_convert(raw, element_of(param->type.dtype), false, piece, DT_F32, values);
    take(histogram, values, piece);
  }
  return STATUS_OK;
}

static Status write_histogram(Training *training, const PlanTensor *param, int64_t step, void *raw,
                              float *values) {
  EventsHistogram histogram = histogram_new();
  Text tag = {0};
  STATUS_TRY(take_param(training->exec, param, raw, values, &histogram, histogram_range));
  STATUS_TRY(take_param(training->exec, param, raw, values, &histogram, histogram_count));
  text_printf(&tag, "weights/%s", param->name);
  Events *events = log_events(training->log);
  Status status = events_histogram(events, step, text_cstr(&tag), &histogram);
  text_free(&tag);
  return status;
}

static bool is_due(const Training *training, int64_t step) {
  int64_t every = (int64_t)train_number(training, "train.log.histograms");
  int64_t interval = train_interval(training, "train.eval");
  return every > 0 && interval > 0 && step % interval == 0 && step / interval % every == 0;
}

Status train_histograms(Training *training, int64_t step) {
  const Plan *plan = training->plan;
  if (!log_events(training->log) || !is_due(training, step)) return STATUS_OK;
  void *raw = malloc(PIECE * sizeof(double));
  float *values = malloc(PIECE * sizeof *values);
  Status status = raw && values ? STATUS_OK : status_errno(ENOMEM, "histograms");
  for (int i = 0; i < plan->params.count && status == STATUS_OK; i++) {
    const PlanTensor *param = &plan->params.at[i];
    bool is_whole = !param->shared && !param->cut.ranks; /* else others have parts of it */
    if (is_whole) status = write_histogram(training, param, step, raw, values);
  }
  free(raw);
  free(values);
  return status == STATUS_OK ? events_flush(log_events(training->log)) : status;
}

/* ── gradients ────────────────────────────────────────────────────────────────────────────── */
static void gradient_range(void *context, const float *values, int64_t count) {
  histogram_range(context, values, count);
}

static void gradient_count(void *context, const float *values, int64_t count) {
  histogram_count(context, values, count);
}

static Status see_gradient(void *context, Layers *layers, int param) {
  Training *training = context;
  EventsHistogram *histogram = &training->gradients[param];
  STATUS_TRY(layers_read_gradient(layers, param, gradient_range, histogram));
  return layers_read_gradient(layers, param, gradient_count, histogram);
}

static bool writes_gradients(const Training *training) {
  return log_events(training->log) && train_number(training, "train.log.histograms") > 0;
}

Status train_gradients_begin(Training *training) {
  int count = training->plan->params.count;
  if (!writes_gradients(training)) return STATUS_OK;
  training->gradients = calloc((size_t)count + 1, sizeof *training->gradients);
  if (!training->gradients) return status_errno(ENOMEM, "histograms");
  for (int i = 0; i < count; i++) training->gradients[i] = histogram_new();
  layers_see_gradients(training->layers, see_gradient, training);
  return STATUS_OK;
}

/* In memory they lack a factor, which is greater than 0 where any is not. */
static void scale_histogram(EventsHistogram *histogram, double factor) {
  if (!(factor > 0) || (histogram->least == 0 && histogram->most == 0)) return;
  histogram->least *= factor;
  histogram->most *= factor;
  histogram->sum *= factor;
  histogram->sum_of_squares *= factor * factor;
}

Status train_gradients_end(Training *training, int64_t step, Status status) {
  Text tag = {0};
  for (int i = 0; training->gradients && i < training->plan->params.count; i++) {
    EventsHistogram *histogram = &training->gradients[i];
    if (status != STATUS_OK) break;
    tag.count = 0;
    text_printf(&tag, "gradients/%s", training->plan->params.at[i].name);
    scale_histogram(histogram, layers_factor(training->layers));
    status = events_histogram(log_events(training->log), step, text_cstr(&tag), histogram);
  }
  text_free(&tag);
  free(training->gradients);
  training->gradients = NULL;
  return status;
}
