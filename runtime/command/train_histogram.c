/* train_histogram: histograms of the weights for TensorBoard, after evaluations. Declared in
 * train_state.h. */
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
