/* predict: see predict.h. The last, partial batch is padded with copies of the last sample and
 * only its real rows are written. */
#include "runtime/command/predict.h"
#include "base/say.h"
#include "runtime/checkpoint/ckpt.h"
#include "runtime/checkpoint/given.h"
#include "runtime/common/watchdog.h"
#include "runtime/data/npy.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

typedef struct {
  int output; /* in the eval graph */
  NpyWriter *writer;
  const char *path;
  Type type;   /* of a batch */
  void *bytes; /* of a batch */
} Result;

typedef struct {
  const PredictOptions *options;
  Artifact *artifact;
  Exec *exec;
  Plan *plan;
  int64_t batch;
  Source *source;
  Text paths; /* of its files */
  SourceWorker *worker;
  void *slot;
  int64_t *samples;
  Result result[MOST];
  int result_count;
} Prediction;

static Status list_outputs(const Plan *plan, const char *what) {
  const PlanGraph *graph = plan_result(plan, PROGRAMME_EVALUATE);
  Text names = {0};
  for (int i = 0; i < graph->outputs.count; i++)
    if (graph->outputs.at[i].kind == OUTPUT_RESULT)
      text_printf(&names, "%s%s", names.count ? ", " : "", graph->outputs.at[i].name);
  Status status = status_fail(STATUS_USER, "%s; the model's outputs: %s", what,
                              names.count ? text_cstr(&names) : "none (add `output …` to it)");
  text_free(&names);
  return status;
}

static Status predict_find_output(const Prediction *prediction, const char *argument, Result *out) {
  const PlanGraph *graph = plan_result(prediction->plan, PROGRAMME_EVALUATE);
  const char *equals = strchr(argument, '=');
  char what[256];
  int found = -1, count = 0;
  for (int i = 0; i < graph->outputs.count; i++) {
    const PlanOutput *output = &graph->outputs.at[i];
    if (output->kind != OUTPUT_RESULT) continue;
    count++;
    if (!equals || (strncmp(output->name, argument, (size_t)(equals - argument)) == 0 &&
                    strlen(output->name) == (size_t)(equals - argument)))
      found = i;
  }
  if (!equals && count != 1) {
    snprintf(what, sizeof what, "--output %.100s does not say which output: name=%.100s", argument,
             argument);
    return list_outputs(prediction->plan, what);
  }
  if (found < 0) {
    snprintf(what, sizeof what, "--output %.200s: there is no such output", argument);
    return list_outputs(prediction->plan, what);
  }
  out->output = found;
  out->path = equals ? equals + 1 : argument;
  out->type = graph->outputs.at[found].type;
  if (out->type.shape.rank < 1 || out->type.shape.dim[0] != prediction->batch)
    return status_fail(STATUS_USER, "output %s has no batch dimension and cannot be predicted",
                       graph->outputs.at[found].name);
  return STATUS_OK;
}

static Status open_results(Prediction *prediction) {
  const PredictOptions *options = prediction->options;
  if (options->output_count < 1 || options->output_count > MOST)
    return list_outputs(prediction->plan, "predict needs --output FILE.npy");
  for (int i = 0; i < options->output_count; i++) {
    Result *result = &prediction->result[i];
    STATUS_TRY(predict_find_output(prediction, options->outputs[i], result));
    prediction->result_count++;
    Type whole = result->type;
    whole.shape.dim[0] = source_samples(prediction->source);
    result->bytes = malloc((size_t)type_bytes(&result->type) + 1);
    if (!result->bytes) return status_errno(ENOMEM, "%s", result->path);
    STATUS_TRY(npy_writer_open(result->path, &whole, &result->writer));
  }
  return STATUS_OK;
}

static const PlanTensor *predict_find_input(const Plan *plan, const char *name, size_t length) {
  for (int i = 0; i < plan->inputs.count; i++)
    if (strncmp(plan->inputs.at[i].name, name, length) == 0 && !plan->inputs.at[i].name[length])
      return &plan->inputs.at[i];
  return NULL;
}

static Status open_predicted_split(Prediction *prediction) {
  const PredictOptions *options = prediction->options;
  if (options->input_count)
    return status_fail(STATUS_USER,
                       "--split %s and --input do not go together: one says where the "
                       "samples are",
                       options->split);
  STATUS_TRY(source_check_evaluated(prediction->plan, options->split));
  STATUS_TRY(
      source_open(prediction->plan, options->split, &options->run.places, &prediction->source));
  source_start(prediction->source);
  return STATUS_OK;
}

static Status open_inputs(Prediction *prediction) {
  const PredictOptions *options = prediction->options;
  const Plan *plan = prediction->plan;
  SourceInput inputs[MOST];
  if (options->split) return open_predicted_split(prediction);
  if (options->input_count > MOST) return status_fail(STATUS_USER, "too many --input");
  for (int i = 0; i < options->input_count; i++) {
    const char *argument = options->inputs[i], *equals = strchr(argument, '=');
    if (!equals) return status_fail(STATUS_USER, "--input %s: expected name=FILE.npy", argument);
    inputs[i] =
        (SourceInput){predict_find_input(plan, argument, (size_t)(equals - argument)), equals + 1};
    if (inputs[i].input) continue;
    Text names = {0};
    for (int j = 0; j < plan->inputs.count; j++)
      text_printf(&names, "%s%s", j ? ", " : "", plan->inputs.at[j].name);
    Status status = status_fail(STATUS_USER, "--input %s: the model's inputs are %s", argument,
                                text_cstr(&names));
    text_free(&names);
    return status;
  }
  for (int i = 0; i < plan->inputs.count; i++) {
    bool is_given = false;
    for (int j = 0; j < options->input_count; j++)
      is_given |= inputs[j].input == &plan->inputs.at[i];
    if (!is_given && plan->inputs.at[i].is_needed_for_predict)
      return status_fail(STATUS_USER, "predict needs --input %s=FILE.npy", plan->inputs.at[i].name);
  }
  if (options->input_count < 1)
    return status_fail(STATUS_USER, "predict needs --input NAME=FILE.npy to know how many samples");
  STATUS_TRY(source_open_inputs(plan, inputs, options->input_count, &prediction->source));
  source_start(prediction->source);
  return STATUS_OK;
}

static Status predict_batch(Prediction *prediction, int64_t first, int64_t count) {
  for (int64_t i = 0; i < prediction->batch; i++)
    prediction->samples[i] = first + (i < count ? i : count - 1);
  watchdog_begin("a batch", text_cstr(&prediction->paths), 0);
  Status filled =
      source_fill(prediction->source, prediction->worker, prediction->samples, prediction->slot);
  watchdog_end();
  STATUS_TRY(filled);
  ExecGraph graph = exec_result_graph(prediction->exec, PROGRAMME_EVALUATE);
  STATUS_TRY(exec_run(prediction->exec, graph, prediction->slot));
  for (int i = 0; i < prediction->result_count; i++) {
    Result *result = &prediction->result[i];
    int64_t bytes = type_bytes(&result->type);
    STATUS_TRY(exec_read_output(prediction->exec, graph, result->output, result->bytes, bytes));
    STATUS_TRY(npy_writer_append(result->writer, result->bytes,
                                 (size_t)(bytes / prediction->batch * count)));
  }
  return STATUS_OK;
}

static Status predict_samples(Prediction *prediction) {
  const PredictOptions *options = prediction->options;
  STATUS_TRY(train_open(&options->run, &prediction->artifact));
  prediction->plan = prediction->artifact->plan;
  watchdog_start(setting_number(prediction->plan->settings, "train.timeout"), "train.timeout");
  prediction->batch = (int64_t)setting_number(prediction->plan->settings, "train.batch");
  STATUS_TRY(open_inputs(prediction));
  source_append_paths(prediction->source, &prediction->paths);
  static const char *const only[] = {PROGRAMME_EVALUATE, NULL};
  ExecOptions exec = {options->run.device, options->run.threads, .only = only};
  STATUS_TRY(exec_new(prediction->artifact, &exec, &prediction->exec));
  STATUS_TRY(exec_write_settings(prediction->exec));
  STATUS_TRY(exec_init_states(prediction->exec, 0));
  Text notes = {0};
  Status loaded =
      given_load_all(prediction->exec, &options->run.places, options->weights, &notes);
  if (loaded == STATUS_OK && notes.count) say_note("%s", text_cstr(&notes));
  text_free(&notes);
  STATUS_TRY(loaded);
  STATUS_TRY(open_results(prediction));
  STATUS_TRY(exec_batch_new(prediction->exec, &prediction->slot));
  prediction->samples = calloc((size_t)prediction->batch, sizeof *prediction->samples);
  if (!prediction->samples) return status_errno(ENOMEM, "batch");
  uint64_t seed = (uint64_t)setting_number(prediction->plan->settings, "train.seed");
  STATUS_TRY(source_worker_new(prediction->source, seed, &prediction->worker));
  int64_t samples = source_samples(prediction->source);
  for (int64_t first = 0; first < samples; first += prediction->batch) {
    int64_t left = samples - first;
    STATUS_TRY(
        predict_batch(prediction, first, left < prediction->batch ? left : prediction->batch));
  }
  STATUS_TRY(source_check(prediction->source));
  Text damaged = {0};
  if (source_say_damaged(prediction->source, &damaged)) say_warning("%s", text_cstr(&damaged));
  text_free(&damaged);
  const PlanGraph *eval = plan_result(prediction->plan, PROGRAMME_EVALUATE);
  for (int i = 0; i < prediction->result_count; i++) {
    STATUS_TRY(npy_writer_commit(prediction->result[i].writer));
    printf("%s: %lld samples written to %s\n", eval->outputs.at[prediction->result[i].output].name,
           (long long)samples, prediction->result[i].path);
  }
  return STATUS_OK;
}

Status predict_run(const PredictOptions *options) {
  Prediction prediction = {.options = options};
  Status status = predict_samples(&prediction);
  for (int i = 0; i < prediction.result_count; i++) {
    npy_writer_free(prediction.result[i].writer);
    free(prediction.result[i].bytes);
  }
  free(prediction.samples);
  source_worker_free(prediction.worker);
  source_close(prediction.source);
  if (prediction.exec) exec_batch_free(prediction.exec, prediction.slot);
  exec_free(prediction.exec);
  artifact_close(prediction.artifact);
  watchdog_stop();
  text_free(&prediction.paths);
  return status;
}
