/* ft: the embedding interface of ft.h, over exec. Invariant: every argument of the caller is
 * checked here, so that a mistake gives a message and never a crash; and no call ends the process:
 * where memory is short, it fails. The functions of ft.h stand at the end. */
#include "runtime/ft.h"
#include "base/memory.h"
#include "plan/step_form.h"
#include "runtime/checkpoint/ckpt.h"
#include "runtime/checkpoint/given.h"
#include "runtime/command/generator.h"
#include "runtime/common/permute.h"
#include "runtime/data/source.h"
#include "runtime/execute/programme.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct FtModel {
  Artifact *artifact;
  Exec *exec;
  void *batch;
  Programme step;    /* where it stands in a step: the next part */
  StepRule rule;     /* which form a step has */
  bool has_settings; /* what the device holds is what the plan says */
  bool has_states;   /* they were initialised */
  bool has_outputs;  /* the last run was ft_predict's */
  unsigned uses;
  Generator *generator; /* made when it is asked for */
  bool is_disturbed;    /* something else has run since the generator did */
};

const char *ft_error(void) { return status_message(); }

/* ── opening ──────────────────────────────────────────────────────────────────────────────── */
static void programmes_of(const Plan *plan, unsigned uses, const char *only[4]) {
  int count = 0;
  if (uses & FT_TRAIN) only[count++] = PROGRAMME_STEP;
  if (uses & FT_PREDICT) only[count++] = PROGRAMME_EVALUATE;
  if (uses & FT_GENERATE) only[count++] = decoder_programme(plan, false);
  only[count] = NULL;
}

static Status open_model(FtModel *model, const char *path, const FtOptions *options) {
  STATUS_TRY(artifact_open(path, &model->artifact));
  const Plan *plan = model->artifact->plan;
  model->uses = options->uses ? options->uses : FT_TRAIN | FT_PREDICT;
  if (model->uses & FT_GENERATE) STATUS_TRY(decoder_check(plan));
  const char *only[4];
  programmes_of(plan, model->uses, only);
  int64_t ranks = setting_ranks(model->artifact->plan->settings);
  if (model->uses & FT_TRAIN && ranks > 1)
    return status_fail(STATUS_USER,
                       "%s is compiled for training on %lld ranks, and a process that embeds it is "
                       "one: compile it with --set distributed.data=any or 1",
                       path, (long long)ranks);
  ExecOptions exec = {.device = options->device,
                      .threads = options->threads,
                      .is_deterministic = options->deterministic,
                      .only = only};
  STATUS_TRY(exec_new(model->artifact, &exec, &model->exec));
  const SourcePlaces places = {.artifact_path = path};
  STATUS_TRY(given_load(model->exec, &places, false, NULL, NULL));
  STATUS_TRY(programme_start(model->exec, PROGRAMME_STEP, &model->step));
  model->rule = step_rule_of(model->artifact->plan->settings);
  STATUS_TRY(exec_make_all_ready(model->exec));
  return exec_batch_new(model->exec, &model->batch);
}

/* By a thread that has entered the device. */
static void close_model(FtModel *model) {
  generator_free(model->generator);
  if (model->exec) exec_batch_free(model->exec, model->batch);
  exec_free(model->exec);
  artifact_close(model->artifact);
  free(model);
}

static Status open_with(const char *path, const FtOptions *options, FtModel **out) {
  FtModel *model = calloc(1, sizeof *model);
  if (!model) return status_fail(STATUS_FAULT, "out of memory");
  MemoryGuard guard;
  Status status = STATUS_FAULT;
  memory_enter(&guard);
  if (setjmp(guard.place) == 0)
    status = open_model(model, path, options);
  else
    status = status_fail(STATUS_FAULT, "%s: out of memory", path);
  memory_leave(&guard);
  if (status != STATUS_OK) {
    close_model(model);
    return status;
  }
  exec_leave(model->exec);
  *out = model;
  return STATUS_OK;
}

void ft_close(FtModel *model) {
  if (!model) return;
  exec_enter(model->exec);
  close_model(model);
}

/* ── settings ─────────────────────────────────────────────────────────────────────────────── */
/* A setting that nothing here reads would do nothing: what belongs to ftrun's loop around steps, and what the model was compiled without. */
static Status check_is_read(const FtModel *model, int index, const SettingValue *before) {
  const SettingValue *values = model->artifact->plan->settings;
  const char *key = setting_info[index].key, *needs = setting_needs(values, index);
  if (needs) return status_fail(STATUS_USER, "%s belongs to %s or the like, without which the model was compiled", key, needs);
  if (setting_is_of_run(index))
    return status_fail(STATUS_USER, "%s is for ftrun, and changes nothing here: batches, evaluations and files are those of the program%s", key,
                       !strcmp(key, "train.steps") || !strcmp(key, "train.epochs") ? "; ft_set_total says how long the training is" : "");
  if (!setting_is_of_steps(index) || plan_reads_setting(model->artifact->plan, key) || values[index].number == before->number) return STATUS_OK;
  return status_fail(STATUS_USER, "%s is read by no step: the model was compiled without what it belongs to", key);
}

static Status find_setting(const char *key, int *index) {
  const char *nearest = setting_nearest(key);
  *index = setting_find(key);
  if (*index >= 0) return STATUS_OK;
  return nearest ? status_fail(STATUS_USER, "there is no setting %s; did you mean %s?", key, nearest) : status_fail(STATUS_USER, "there is no setting %s", key);
}

static Status model_setting(FtModel *model, const char *key, char *value, size_t bytes) {
  int index, length = 0;
  STATUS_TRY(find_setting(key, &index));
  const SettingValue *found = &model->artifact->plan->settings[index];
  if (setting_info[index].kind == SET_STR) length = snprintf(value, bytes, "%s", found->text);
  if (setting_info[index].kind == SET_BOOL) length = snprintf(value, bytes, "%s", found->number ? "true" : "false");
  bool is_number = setting_info[index].kind == SET_INT || setting_info[index].kind == SET_FLOAT;
  for (int digits = 15; is_number && (digits == 15 || (digits <= 17 && strtod(value, NULL) != found->number)); digits++)
    length = snprintf(value, bytes, "%.*g", digits, found->number);
  return (size_t)length < bytes ? STATUS_OK : status_fail(STATUS_USER, "%s needs %d bytes, not %zu", key, length + 1, bytes);
}

static Status set(FtModel *model, const char *key, const char *value) {
  int index;
  const char *why = "";
  STATUS_TRY(find_setting(key, &index));
  if (setting_info[index].when != WHEN_RUNTIME)
    return status_fail(STATUS_USER, "%s is compiled in and cannot be set", key);
  SettingValue *values = model->artifact->plan->settings, before = values[index];
  if (!setting_set(model->artifact->arena, values, index, setting_off(index, value), &why)) return status_fail(STATUS_USER, "%s: %s", key, why);
  Status status = check_is_read(model, index, &before);
  if (status != STATUS_OK) values[index] = before;
  model->has_settings = false;
  return status;
}

static Status set_total(FtModel *model, int64_t steps_per_epoch, int64_t total_steps) {
  if (steps_per_epoch < 0 || total_steps < 0)
    return status_fail(STATUS_USER, "numbers of steps cannot be negative");
  exec_set_derived(model->exec, "train.steps_per_epoch", (double)steps_per_epoch);
  exec_set_derived(model->exec, "train.total_steps", (double)total_steps);
  model->has_settings = false;
  return STATUS_OK;
}

/* Random numbers of a step, such as dropout's masks, follow the setting. */
static void take_seed(FtModel *model, uint64_t seed) {
  model->artifact->plan->settings[setting_find("train.seed")].number = (double)seed;
  model->has_settings = false;
}

static Status init(FtModel *model, uint64_t seed) {
  if (seed > 1ull << 53) return status_fail(STATUS_USER, "seed %llu is more than 2^53, the largest of train.seed", (unsigned long long)seed);
  programme_again(&model->step);
  take_seed(model, seed);
  model->has_outputs = false;
  model->has_states = model->is_disturbed = true;
  return exec_init(model->exec, seed);
}

/* Where ft_init was not called, states are what a program says, all the same: a running variance is 1. */
static Status need_states(FtModel *model) {
  if (model->has_states) return STATUS_OK;
  model->has_states = true;
  return exec_init_states(model->exec, 0);
}

static Status write_settings(FtModel *model) {
  if (model->has_settings) return STATUS_OK;
  STATUS_TRY(exec_write_settings(model->exec));
  model->has_settings = true;
  return STATUS_OK;
}

/* ── what there is ────────────────────────────────────────────────────────────────────────── */
static void describe_tensor(const char *name, const Type *type, FtTensor *out) {
  *out = (FtTensor){.name = name,
                    .dtype = dtype_text(type->dtype),
                    .rank = type->shape.rank,
                    .bytes = type_bytes(type)};
  memcpy(out->dim, type->shape.dim, sizeof out->dim);
}

static Status input_at(const FtModel *model, int index, FtTensor *out) {
  const Plan *plan = model->artifact->plan;
  if (index < 0 || index >= plan->inputs.count)
    return status_fail(STATUS_USER, "there is no input %d", index);
  describe_tensor(plan->inputs.at[index].name, &plan->inputs.at[index].type, out);
  return STATUS_OK;
}

static Status output_at(const FtModel *model, int index, FtTensor *out) {
  const PlanGraph *graph = plan_result(model->artifact->plan, PROGRAMME_EVALUATE);
  if (index < 0 || index >= graph->outputs.count)
    return status_fail(STATUS_USER, "there is no output %d", index);
  describe_tensor(graph->outputs.at[index].name, &graph->outputs.at[index].type, out);
  return STATUS_OK;
}

static Status param_at(const FtModel *model, int index, FtTensor *out) {
  const Plan *plan = model->artifact->plan;
  if (index < 0 || index >= plan->params.count)
    return status_fail(STATUS_USER, "there is no parameter %d", index);
  describe_tensor(plan->params.at[index].name, &plan->params.at[index].type, out);
  return STATUS_OK;
}

/* Of the model's own states, which files of weights have. */
static Status model_state(const FtModel *model, int index, FtTensor *out) {
  const Plan *plan = model->artifact->plan;
  int count = 0;
  for (int i = 0; i < plan->states.count; i++) {
    const PlanTensor *state = &plan->states.at[i];
    if (!state->is_saved || role_has(state->role, ROLE_SCRATCH) || count++ != index) continue;
    describe_tensor(state->name, &state->type, out);
    return STATUS_OK;
  }
  return status_fail(STATUS_USER, "there is no state %d", index);
}

/* ── running ──────────────────────────────────────────────────────────────────────────────── */
static Status fill_batch(FtModel *model, const void *const *inputs, bool is_training) {
  const Plan *plan = model->artifact->plan;
  for (int i = 0; i < plan->inputs.count; i++) {
    const PlanTensor *input = &plan->inputs.at[i];
    char *to = (char *)model->batch + input->offset;
    size_t bytes = (size_t)type_bytes(&input->type);
    if (!inputs[i] && (is_training || input->is_needed_for_predict))
      return status_fail(STATUS_USER, "input %s is needed", input->name);
    if (!inputs[i]) {
      memset(to, 0, bytes);
      continue;
    }
    char range[SOURCE_RANGE];
    memcpy(to, inputs[i], bytes);
    int64_t at = source_find_outside(input, to, shape_elements(&input->type.shape), range);
    if (at >= 0)
      return status_fail(STATUS_USER, "element %lld of input %s is %s", (long long)at, input->name,
                         range);
  }
  return STATUS_OK;
}

/* A graph that there is no memory for may not run. */
static Status check_use(const FtModel *model, unsigned use, const char *name) {
  if (model->uses & use) return STATUS_OK;
  return status_fail(STATUS_USER, "the model was not opened for this: %s is not among its uses",
                     name);
}

static Status run(FtModel *model, ExecGraph graph, const void *const *inputs, bool is_training) {
  model->is_disturbed = true;
  model->has_outputs = false;
  STATUS_TRY(need_states(model));
  STATUS_TRY(write_settings(model));
  STATUS_TRY(fill_batch(model, inputs, is_training));
  STATUS_TRY(exec_run(model->exec, graph, model->batch));
  return exec_sync(model->exec);
}

/* Where the recipe's steps are not all alike, its number says what a step is. */
static Status choose_step(FtModel *model) {
  const SettingValue *settings = model->artifact->plan->settings;
  int64_t step, until;
  if (step_rule_is_one(&model->rule) || programme_done(&model->step)) return STATUS_OK;
  STATUS_TRY(exec_step(model->exec, &step));
  int64_t total = (int64_t)setting_number(settings, "train.total_steps");
  StepForm form = step_form(&model->rule, settings, total, step, &until);
  return programme_start_form(model->exec, PROGRAMME_STEP, form, &model->step);
}

static Status train_step(FtModel *model, const void *const *inputs, double *loss) {
  STATUS_TRY(check_use(model, FT_TRAIN, "FT_TRAIN"));
  STATUS_TRY(choose_step(model));
  ExecGraph graph = programme_graph(&model->step);
  STATUS_TRY(run(model, graph, inputs, true));
  programme_advance(&model->step, 1);
  if (!loss) return STATUS_OK;
  int index = exec_find_output(model->exec, graph, OUTPUT_LOSS, NULL);
  if (index < 0) return status_fail(STATUS_USER, "the model has no loss");
  return exec_scalar(model->exec, graph, index, loss);
}

static Status predict(FtModel *model, const void *const *inputs) {
  STATUS_TRY(check_use(model, FT_PREDICT, "FT_PREDICT"));
  STATUS_TRY(run(model, exec_result_graph(model->exec, PROGRAMME_EVALUATE), inputs, false));
  model->has_outputs = true;
  return STATUS_OK;
}

static Status model_read_output(FtModel *model, const char *name, void *to, size_t bytes) {
  STATUS_TRY(check_use(model, FT_PREDICT, "FT_PREDICT"));
  ExecGraph graph = exec_result_graph(model->exec, PROGRAMME_EVALUATE);
  int index = exec_find_output(model->exec, graph, OUTPUT_RESULT, name);
  if (index < 0) index = exec_find_output(model->exec, graph, OUTPUT_KINDS, name);
  if (index < 0) return status_fail(STATUS_USER, "there is no output %s", name);
  if (!model->has_outputs)
    return status_fail(STATUS_USER, "output %s is no more there, or not yet: read it after ft_predict, before anything else runs", name);
  return exec_read_output(model->exec, graph, index, to, (int64_t)bytes);
}

/* ── parameters ───────────────────────────────────────────────────────────────────────────── */
static Status find_tensor(FtModel *model, const char *name, size_t bytes, const PlanTensor **out) {
  const Plan *plan = model->artifact->plan;
  STATUS_TRY(need_states(model));
  int param = exec_find_param(model->exec, name), state = exec_find_state(model->exec, name);
  if (param < 0 && state < 0) return status_fail(STATUS_USER, "there is no parameter %s", name);
  *out = param >= 0 ? &plan->params.at[param] : &plan->states.at[state];
  int64_t has = type_bytes(&(*out)->type);
  if ((int64_t)bytes != has)
    return status_fail(STATUS_USER, "%s has %lld bytes, not %lld", name, (long long)has,
                       (long long)bytes);
  return STATUS_OK;
}

static Status model_read_param(FtModel *model, const char *name, void *to, size_t bytes) {
  const PlanTensor *found;
  STATUS_TRY(find_tensor(model, name, bytes, &found));
  STATUS_TRY(exec_read(model->exec, found->place, found->offset, (int64_t)bytes, to));
  return permute_in_place(found, false, to);
}

static Status model_write_param(FtModel *model, const char *name, const void *from, size_t bytes) {
  const PlanTensor *found;
  STATUS_TRY(find_tensor(model, name, bytes, &found));
  model->is_disturbed = true;
  char *copy = found->storage.view.rank ? malloc(bytes + 1) : NULL;
  if (found->storage.view.rank && !copy) return status_fail(STATUS_FAULT, "out of memory");
  if (copy) permute_to_memory(found, from, copy);
  Status status =
      exec_write(model->exec, found->place, found->offset, (int64_t)bytes, copy ? copy : from);
  free(copy);
  return status;
}

/* ── files ────────────────────────────────────────────────────────────────────────────────── */
static Status load_weights(FtModel *model, const char *path) {
  STATUS_TRY(need_states(model));
  model->is_disturbed = true;
  return ckpt_load_weights(model->exec, path, NULL);
}

static Status save(FtModel *model, const char *path) {
  int64_t done = programme_done(&model->step);
  if (done)
    return status_fail(STATUS_USER, "%lld of the %lld parts of a step are done: save behind it",
                       (long long)done, (long long)exec_parts(model->exec));
  STATUS_TRY(need_states(model));
  const SettingValue *settings = model->artifact->plan->settings;
  CkptInfo info = {.seed = (uint64_t)setting_number(settings, "train.seed"), .batch = (int64_t)setting_number(settings, "train.batch")};
  STATUS_TRY(exec_step(model->exec, &info.step));
  return ckpt_save(model->exec, NULL, path, &info);
}

static Status save_model_weights(FtModel *model, const char *path) {
  STATUS_TRY(need_states(model));
  return ckpt_save_weights(model->exec, NULL, path);
}

static Status resume(FtModel *model, const char *path) {
  CkptInfo info = {0};
  char *used = NULL;
  Status status = ckpt_resume(model->exec, path, &info, &used, NULL);
  free(used);
  if (status != STATUS_OK) return status;
  programme_again(&model->step);
  take_seed(model, info.seed);
  model->has_outputs = false;
  model->has_states = model->is_disturbed = true;
  return exec_clear_parts(model->exec);
}

/* ── generation ───────────────────────────────────────────────────────────────────────────── */
/* The generator, which sees the weights and the memory as they are now. */
static Status generation(FtModel *model, bool is_begun) {
  STATUS_TRY(check_use(model, FT_GENERATE, "FT_GENERATE"));
  if (!model->generator) STATUS_TRY(generator_new(model->exec, false, &model->generator));
  if (is_begun && !generator_count(model->generator))
    return status_fail(STATUS_USER, "there is no text to go on with: begin one with ft_prompt");
  STATUS_TRY(need_states(model));
  STATUS_TRY(write_settings(model));
  if (model->is_disturbed) generator_forget(model->generator);
  model->is_disturbed = model->has_outputs = false;
  return STATUS_OK;
}

static Status prompt(FtModel *model, const int64_t *tokens, int64_t count, uint64_t seed) {
  STATUS_TRY(generation(model, false));
  generator_clear(model->generator, true);
  Status status = generator_begin(model->generator, tokens, count, seed);
  if (status != STATUS_OK) generator_clear(model->generator, false);
  return status;
}

static Status next_token(FtModel *model, const FtSampling *sampling, int64_t *token) {
  int64_t drawn, count;
  if (!(sampling->temperature >= 0) || sampling->top_k < 0 || !(sampling->top_p >= 0))
    return status_fail(STATUS_USER, "temperature, top_k and top_p cannot be negative");
  STATUS_TRY(generation(model, true));
  SampleOptions options = {sampling->temperature, sampling->top_k, sampling->top_p, 0};
  STATUS_TRY(generator_next(model->generator, &options, &drawn));
  *token = generator_text(model->generator, 0, &count)[count - 1];
  return STATUS_OK;
}

static Status append(FtModel *model, int64_t token) {
  STATUS_TRY(generation(model, true));
  return generator_append(model->generator, 0, token);
}

static Status model_read_scores(FtModel *model, float *scores, size_t bytes) {
  const float *from;
  STATUS_TRY(generation(model, true));
  size_t has = (size_t)generator_vocabulary(model->generator) * sizeof *from;
  if (bytes != has) return status_fail(STATUS_USER, "scores have %zu bytes, not %zu", has, bytes);
  STATUS_TRY(generator_scores(model->generator, &from));
  memcpy(scores, from, has);
  return STATUS_OK;
}

/* ── the interface ────────────────────────────────────────────────────────────────────────── */
/* Both end the function: with a failure, or with what the call gives. After longjmp nothing is said
 * of what the compiler kept where the call's own variables are, `status` among them. */
#define NEED(pointer)                                                                              \
  if (!(pointer)) return status_fail(STATUS_USER, "%s: %s is NULL", __func__, #pointer)
#define GUARDED(call)                                                                              \
  MemoryGuard guard;                                                                               \
  Status status = STATUS_FAULT;                                                                    \
  exec_enter(model->exec);                                                                         \
  memory_enter(&guard);                                                                            \
  if (setjmp(guard.place) == 0)                                                                    \
    status = (call);                                                                               \
  else                                                                                             \
    status = status_fail(STATUS_FAULT, "%s: out of memory", __func__);                             \
  memory_leave(&guard);                                                                            \
  exec_leave(model->exec);                                                                         \
  return status

int ft_open_with(const char *path, const FtOptions *options, FtModel **out) {
  static const FtOptions plain;
  NEED(path);
  NEED(out);
  *out = NULL;
  return open_with(path, options ? options : &plain, out);
}

int ft_open(const char *path, int threads, FtModel **out) {
  return ft_open_with(path, &(FtOptions){.threads = threads}, out);
}

const char *ft_device(const FtModel *model) { return model ? exec_device_text(model->exec) : ""; }

int64_t ft_steps(FtModel *model) {
  int64_t step = 0;
  if (!model) return 0;
  exec_enter(model->exec);
  Status status = exec_step(model->exec, &step);
  exec_leave(model->exec);
  return status == STATUS_OK ? step : 0;
}

int64_t ft_vocabulary(const FtModel *model) {
  if (!model || decoder_check(model->artifact->plan) != STATUS_OK) return 0;
  return decoder_vocabulary(model->artifact->plan);
}

int ft_save_weights(FtModel *model, const char *path) {
  NEED(model);
  NEED(path);
  GUARDED(save_model_weights(model, path));
}

int ft_set(FtModel *model, const char *key, const char *value) {
  NEED(model);
  NEED(key);
  NEED(value);
  GUARDED(set(model, key, value));
}

int ft_get(FtModel *model, const char *key, char *value, size_t bytes) {
  NEED(model);
  NEED(key);
  NEED(value);
  GUARDED(model_setting(model, key, value, bytes));
}

int ft_set_total(FtModel *model, int64_t steps_per_epoch, int64_t total_steps) {
  NEED(model);
  GUARDED(set_total(model, steps_per_epoch, total_steps));
}

int ft_init(FtModel *model, uint64_t seed) {
  NEED(model);
  GUARDED(init(model, seed));
}

int ft_train_step(FtModel *model, const void *const *inputs, double *loss) {
  NEED(model);
  NEED(inputs);
  GUARDED(train_step(model, inputs, loss));
}

int ft_predict(FtModel *model, const void *const *inputs) {
  NEED(model);
  NEED(inputs);
  GUARDED(predict(model, inputs));
}

int ft_read_output(FtModel *model, const char *name, void *to, size_t bytes) {
  NEED(model);
  NEED(name);
  NEED(to);
  GUARDED(model_read_output(model, name, to, bytes));
}

int ft_read_param(FtModel *model, const char *name, void *to, size_t bytes) {
  NEED(model);
  NEED(name);
  NEED(to);
  GUARDED(model_read_param(model, name, to, bytes));
}

int ft_write_param(FtModel *model, const char *name, const void *from, size_t bytes) {
  NEED(model);
  NEED(name);
  NEED(from);
  GUARDED(model_write_param(model, name, from, bytes));
}

int ft_load_weights(FtModel *model, const char *path) {
  NEED(model);
  NEED(path);
  GUARDED(load_weights(model, path));
}

int ft_save(FtModel *model, const char *path) {
  NEED(model);
  NEED(path);
  GUARDED(save(model, path));
}

int ft_resume(FtModel *model, const char *path) {
  NEED(model);
  NEED(path);
  GUARDED(resume(model, path));
}

int ft_prompt(FtModel *model, const int64_t *tokens, int64_t count, uint64_t seed) {
  NEED(model);
  NEED(tokens);
  GUARDED(prompt(model, tokens, count, seed));
}

int ft_next(FtModel *model, const FtSampling *sampling, int64_t *token) {
  NEED(model);
  NEED(sampling);
  NEED(token);
  GUARDED(next_token(model, sampling, token));
}

int ft_append(FtModel *model, int64_t token) {
  NEED(model);
  GUARDED(append(model, token));
}

int ft_scores(FtModel *model, float *scores, size_t bytes) {
  NEED(model);
  NEED(scores);
  GUARDED(model_read_scores(model, scores, bytes));
}

#define TENSOR_AT(name, at)                                                                        \
  int name(const FtModel *model, int index, FtTensor *out) {                                       \
    NEED(model);                                                                                   \
    NEED(out);                                                                                     \
    GUARDED(at(model, index, out));                                                                \
  }
TENSOR_AT(ft_input, input_at)
TENSOR_AT(ft_output, output_at)
TENSOR_AT(ft_param, param_at)
TENSOR_AT(ft_state, model_state)
