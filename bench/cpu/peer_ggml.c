/* One peer, one model: ggml (ggml-org/ggml, from the source that PyPI's
 * llama-cpp-python carries) on its CPU backend, through its own training interface ggml-opt. Prints
 * a JSON line like peers.py. Fairness: the images are f32 already (ggml has no u8 tensors), batches
 * are copied by ggml_opt_dataset_get_batch, graphs are allocated once, AdamW without decay is Adam.
 */
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml-opt.h>
#include <ggml.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { BATCH = 64, SAMPLES = 4096, ROUNDS = 3, MAX_PARAMETERS = 16 };

typedef struct {
  struct ggml_context *fixed, *compute;
  struct ggml_tensor *images, *logits;
  struct ggml_tensor *parameter[MAX_PARAMETERS];
  int fan_in[MAX_PARAMETERS];
  int parameters;
} Model;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static struct ggml_tensor *add_parameter(Model *model, struct ggml_tensor *tensor, int fan_in) {
  ggml_set_param(tensor);
  model->fan_in[model->parameters] = fan_in;
  return model->parameter[model->parameters++] = tensor;
}

static struct ggml_tensor *linear(Model *model, struct ggml_tensor *x, int inputs, int outputs) {
  struct ggml_context *fixed = model->fixed, *compute = model->compute;
  struct ggml_tensor *weight =
      add_parameter(model, ggml_new_tensor_2d(fixed, GGML_TYPE_F32, inputs, outputs), inputs);
  struct ggml_tensor *bias =
      add_parameter(model, ggml_new_tensor_1d(fixed, GGML_TYPE_F32, outputs), inputs);
  return ggml_add(compute, ggml_mul_mat(compute, weight, x), bias);
}

static struct ggml_tensor *convolution(Model *model, struct ggml_tensor *x, int inputs,
                                       int outputs) {
  struct ggml_context *fixed = model->fixed, *compute = model->compute;
  struct ggml_tensor *weight = add_parameter(
      model, ggml_new_tensor_4d(fixed, GGML_TYPE_F32, 3, 3, inputs, outputs), 9 * inputs);
  struct ggml_tensor *bias =
      add_parameter(model, ggml_new_tensor_3d(fixed, GGML_TYPE_F32, 1, 1, outputs), 9 * inputs);
  x = ggml_conv_2d(compute, weight, x, 1, 1, 1, 1, 1, 1);
  x = ggml_relu(compute, ggml_add(compute, x, bias));
  return ggml_pool_2d(compute, x, GGML_OP_POOL_MAX, 2, 2, 2, 2, 0, 0);
}

static void build(Model *model, int is_cnn) {
  struct ggml_init_params parameters = {.mem_size = 64 * ggml_tensor_overhead(), .no_alloc = true};
  model->fixed = ggml_init(parameters);
  parameters.mem_size =
      GGML_DEFAULT_GRAPH_SIZE * ggml_tensor_overhead() + 3 * ggml_graph_overhead();
  model->compute = ggml_init(parameters);
  model->images = ggml_new_tensor_2d(model->fixed, GGML_TYPE_F32, 784, BATCH);
  ggml_set_input(model->images);
  struct ggml_context *compute = model->compute;
  struct ggml_tensor *x = model->images;
  if (is_cnn) {
    x = ggml_reshape_4d(compute, x, 28, 28, 1, BATCH);
    x = convolution(model, x, 1, 32);
    x = convolution(model, x, 32, 64);
    x = ggml_reshape_2d(compute, ggml_cont(compute, x), 3136, BATCH);
    x = linear(model, ggml_relu(compute, linear(model, x, 3136, 128)), 128, 10);
  } else {
    x = ggml_relu(compute, linear(model, x, 784, 128));
    x = ggml_relu(compute, linear(model, x, 128, 64));
    x = linear(model, x, 64, 10);
  }
  ggml_set_output(x);
  model->logits = x;
}

static float uniform(void) { return (float)rand() / (float)RAND_MAX; }

static void initialise(Model *model) {
  for (int i = 0; i < model->parameters; i++) {
    struct ggml_tensor *tensor = model->parameter[i];
    float bound = 1 / sqrtf((float)model->fan_in[i]);
    float *data = malloc(ggml_nbytes(tensor));
    for (int64_t k = 0; k < ggml_nelements(tensor); k++) data[k] = (2 * uniform() - 1) * bound;
    ggml_backend_tensor_set(tensor, data, 0, ggml_nbytes(tensor));
    free(data);
  }
}

static ggml_opt_dataset_t make_data(void) {
  ggml_opt_dataset_t dataset =
      ggml_opt_dataset_init(GGML_TYPE_F32, GGML_TYPE_F32, 784, 10, SAMPLES, 1);
  float *images = ggml_get_data_f32(ggml_opt_dataset_data(dataset));
  float *labels = ggml_get_data_f32(ggml_opt_dataset_labels(dataset));
  for (int i = 0; i < SAMPLES * 784; i++) images[i] = (uniform() - 0.1307f) / 0.3081f;
  memset(labels, 0, SAMPLES * 10 * sizeof *labels);
  for (int i = 0; i < SAMPLES; i++) labels[i * 10 + rand() % 10] = 1;
  return dataset;
}

static struct ggml_opt_optimizer_params adam(void *user) {
  (void)user;
  struct ggml_opt_optimizer_params parameters = {
      .adamw = {.alpha = 1e-3f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .wd = 0}};
  return parameters;
}

static ggml_opt_dataset_t dataset;
static ggml_opt_context_t optimizer;
static ggml_opt_result_t result;

static void step(int64_t number) {
  int64_t batch = number % (SAMPLES / BATCH);
  if (batch == 0) ggml_opt_dataset_shuffle(optimizer, dataset, -1);
  ggml_opt_alloc(optimizer, true);
  ggml_opt_dataset_get_batch(dataset, ggml_opt_inputs(optimizer), ggml_opt_labels(optimizer),
                             batch);
  ggml_opt_eval(optimizer, result);
}

static int compare(const void *a, const void *b) {
  return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

int main(int count, char **arguments) {
  if (count != 3) {
    fprintf(stderr, "usage: peer_ggml {mlp,cnn} THREADS\n");
    return 2;
  }
  double start = now();
  int is_cnn = !strcmp(arguments[1], "cnn");
  ggml_backend_t backend = ggml_backend_cpu_init();
  ggml_backend_cpu_set_n_threads(backend, atoi(arguments[2]));
  Model model = {0};
  build(&model, is_cnn);
  ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(model.fixed, backend);
  initialise(&model);
  dataset = make_data();
  ggml_backend_sched_t schedule = ggml_backend_sched_new(&backend, NULL, 1, 16384, false, true);
  struct ggml_opt_params parameters =
      ggml_opt_default_params(schedule, GGML_OPT_LOSS_TYPE_CROSS_ENTROPY);
  parameters.ctx_compute = model.compute;
  parameters.inputs = model.images;
  parameters.outputs = model.logits;
  parameters.get_opt_pars = adam;
  optimizer = ggml_opt_init(parameters);
  result = ggml_opt_result_init();
  int64_t number = 0;
  step(number++);
  double first_step = now() - start;
  for (int i = 0; i < 10; i++) step(number++);
  double begin = now();
  for (int i = 0; i < 10; i++) step(number++);
  int steps = (int)(10 / (now() - begin));
  if (steps < 20) steps = 20;
  double round[ROUNDS];
  ggml_opt_result_reset(result);
  for (int r = 0; r < ROUNDS; r++) {
    begin = now();
    for (int i = 0; i < steps; i++) step(number++);
    round[r] = 1e3 * (now() - begin) / steps;
  }
  qsort(round, ROUNDS, sizeof *round, compare);
  double loss;
  ggml_opt_result_loss(result, &loss, NULL);
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  printf("{\"peer\": \"ggml\", \"model\": \"%s\", \"median_ms\": %.6f, \"first_step_s\": %.4f, "
         "\"peak_mib\": %.1f, \"loss\": %.4f}\n",
         arguments[1], round[ROUNDS / 2], first_step, (double)usage.ru_maxrss / 1024, loss);
  ggml_backend_buffer_free(buffer);
  return 0;
}
