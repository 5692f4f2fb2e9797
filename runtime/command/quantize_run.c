/* quantize_run: see quantize_run.h. */
#include "runtime/command/quantize_run.h"
#include "base/say.h"
#include "runtime/checkpoint/given.h"
#include "runtime/command/evaluate.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static Status open_calibration(TapModel *model, const RunOptions *run, const char *split, int64_t samples) {
  const Plan *plan = model->artifact->plan;
  if (!source_find_split(plan, split)) {
    return status_fail(STATUS_USER, "the data has no split '%s', which calibration takes its samples from: --split valid, or declare it",
                       split);
  }
  STATUS_TRY(source_check_evaluated(plan, split));
  STATUS_TRY(source_open(plan, split, &run->places, &model->source));
  source_start(model->source);
  uint64_t seed = (uint64_t)setting_number(plan->settings, "train.seed");
  STATUS_TRY(source_worker_new(model->source, seed, &model->worker));
  int64_t there = source_samples(model->source), most = samples < there ? samples : there;
  if (there < 1) return status_fail(STATUS_USER, "the split '%s' has no sample to calibrate with", split);
  model->batches = most / model->batch > 0 ? most / model->batch : 1;
  return STATUS_OK;
}

static Status load_tapped(TapModel *model, const RunOptions *run, const char *weights) {
  static const char *const only[] = {PROGRAMME_EVALUATE, NULL};
  Text notes = {0};
  STATUS_TRY(exec_new(model->artifact, &(ExecOptions){run->device, run->threads, .only = only}, &model->exec));
  STATUS_TRY(exec_write_settings(model->exec));
  STATUS_TRY(exec_init_states(model->exec, 0));
  Status status = given_load_all(model->exec, &run->places, weights, &notes);
  if (status == STATUS_OK && notes.count) say_note("%s", text_cstr(&notes));
  text_free(&notes);
  return status;
}

Status tap_open(const RunOptions *run, const char *weights, const char *split, int64_t samples, TapModel *out) {
  *out = (TapModel){0};
  STATUS_TRY(train_open(run, &out->artifact));
  out->batch = (int64_t)setting_number(out->artifact->plan->settings, "train.batch");
  STATUS_TRY(open_calibration(out, run, split, samples));
  STATUS_TRY(load_tapped(out, run, weights));
  out->graph = exec_result_graph(out->exec, PROGRAMME_EVALUATE);
  STATUS_TRY(exec_batch_new(out->exec, &out->slot));
  out->sample = calloc((size_t)out->batch, sizeof *out->sample);
  return out->sample ? STATUS_OK : status_errno(ENOMEM, "batch");
}

void tap_close(TapModel *model) {
  free(model->sample);
  free(model->values);
  source_worker_free(model->worker);
  source_close(model->source);
  if (model->exec) exec_batch_free(model->exec, model->slot);
  exec_free(model->exec);
  artifact_close(model->artifact);
  *model = (TapModel){0};
}

/* As far from each other as they can be, so that samples sorted by class are of all; a split that is shorter than a batch repeats. */
Status tap_run(TapModel *model, int64_t batch) {
  int64_t there = source_samples(model->source), all = model->batches * model->batch;
  for (int64_t i = 0; i < model->batch; i++) {
    int64_t k = batch * model->batch + i;
    model->sample[i] = there >= all ? (int64_t)((double)there / (double)all * (double)k) : k % there;
  }
  STATUS_TRY(source_fill(model->source, model->worker, model->sample, model->slot));
  STATUS_TRY(exec_run(model->exec, model->graph, model->slot));
  return exec_sync(model->exec);
}

Status tap_read(TapModel *model, const char *path, int number, const char *what, const float **values, const Type **type) {
  Text name = {0};
  text_printf(&name, "%s.%d.%s", what, number, path);
  int output = exec_find_output(model->exec, model->graph, OUTPUT_RESULT, text_cstr(&name));
  text_free(&name);
  if (output < 0) return status_fail(STATUS_USER, "%s has no tap of layer '%s'", model->artifact->path, path);
  *type = &exec_graph_plan(model->exec, model->graph)->outputs.at[output].type;
  int64_t bytes = type_bytes(*type);
  if ((*type)->dtype != DT_F32)
    return status_fail(STATUS_USER, "layer '%s' reads or gives %s: quantisation is of f32 values", path, dtype_text((*type)->dtype));
  if (bytes > model->room) {
    free(model->values);
    model->room = 0;
    model->values = malloc((size_t)bytes);
    if (!model->values) return status_errno(ENOMEM, "activations of %s", path);
    model->room = bytes;
  }
  *values = model->values;
  return bytes ? exec_read_output(model->exec, model->graph, output, model->values, bytes) : STATUS_OK;
}

Status tap_evaluate(TapModel *model, const RunOptions *run, const char *split, LogStep *out) {
  Ranks ranks = {.place = {.ranks = 1, .local_ranks = 1}, .shares = 1, .interval = 1};
  Source *source = NULL;
  Evaluator *evaluator = NULL;
  bool is_whole = true;
  Status status = source_check_evaluated(model->artifact->plan, split);
  if (status == STATUS_OK) status = source_open(model->artifact->plan, split, &run->places, &source);
  if (status == STATUS_OK) source_start(source);
  if (status == STATUS_OK) status = evaluate_new(model->exec, source, &ranks, &evaluator);
  if (status == STATUS_OK) status = evaluate_run(evaluator, PROGRAMME_EVALUATE, out, &is_whole);
  evaluate_free(evaluator);
  source_close(source);
  return status;
}
