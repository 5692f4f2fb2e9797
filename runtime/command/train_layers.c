/* train_layers: statistics by layer, every train.log.layers steps (declared in train_state.h). A step
 * that is looked at runs by runtime/execute/layers.h; all others know nothing of it. */
#include "runtime/command/log_layers.h"
#include "runtime/command/train_state.h"
#include "runtime/execute/programme.h"

static int64_t layers_every(const Training *training) {
  return (int64_t)train_number(training, "train.log.layers");
}

Status train_layers_start(Training *training) {
  const TrainOptions *options = training->options;
  if (layers_every(training) <= 0 || options->dry_run) return STATUS_OK;
  if (options->trace || options->check_nan) {
    log_say(training->log, "no statistics of layers in a run with %s",
            options->trace            ? "--trace"
            : options->check_overflow ? "--check=overflow"
                                      : "--check=nan");
    return STATUS_OK;
  }
  return layers_new(training->exec, &training->layers);
}

bool train_layers_are_due(const Training *training, int64_t step) {
  return training->layers && step % layers_every(training) == 0;
}

int64_t train_layers_until(const Training *training, int64_t step) {
  if (!training->layers) return INT64_MAX;
  int64_t every = layers_every(training), left = every - 1 - step % every;
  return left ? left : 1; /* up to the step before; or this one, alone */
}

static Status run_looking(Training *training) {
  Programme programme;
  const void *batch;
  STATUS_TRY(feed_programme(training->feed, &programme));
  layers_begin(training->layers);
  do {
    STATUS_TRY(feed_next(training->feed, &batch));
    STATUS_TRY(layers_run(training->layers, programme_graph(&programme), batch));
  } while (!programme_advance(&programme, 1));
  return layers_end(training->layers);
}

static Status look_at_step(Training *training, int64_t step) {
  Status status = feed_open_step(training->feed);
  if (status == STATUS_OK)
    status = status_prefix(run_looking(training), "step %lld", (long long)step);
  feed_close_step(training->feed);
  return status;
}

Status train_layers_step(Training *training, int64_t step) {
  LogLayers layers;
  STATUS_TRY(train_gradients_begin(training));
  STATUS_TRY(train_gradients_end(training, step, look_at_step(training, step)));
  if (!training->writes) return STATUS_OK;
  Status status = log_layers_new(step, training->layers, &layers);
  if (status == STATUS_OK) status = train_logged(training, log_layers(training->log, &layers));
  log_layers_free(&layers);
  return status;
}
