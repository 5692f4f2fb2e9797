/* simulate_published: the model against published runs, which ftc could not compile (Llama-3.1-8B: more
 * than 2^30 elements in the logits) or has no data for: their layers, operations and bytes, by hand,
 * through the same cost of collectives and the same timeline as `ftc --simulate`. What the model says
 * stands in docs/simulate.md with its error; a change of the model shows here.
 *
 * - torchtitan, Llama-3.1-8B, FSDP2, H100 96 GB at 500 W, 400 Gb/s each, 2 sequences of 8192 a GPU,
 *   selective recomputation, torch.compile: 6,667 tokens/s a GPU on 8, 6,514 on 128
 *   (pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md).
 * - ResNet-50 v1.5, 256 images a GPU, A100: 2,470 images/s on one and 16,621 on 8 in mixed precision,
 *   938 and 7,248 in TF32 (NVIDIA/DeepLearningExamples, PyTorch/Classification/ConvNets). */
#include "plan/comm_cost.h"
#include "simulate/timeline.h"
#include <math.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 512, LAYERS = 32 };
typedef struct {
  Arena *arena;
  TimelineTask task[MOST];
  int count;
} List;

/* Returns the task's number; `after` less than 0: it waits for nothing. */
static int add(List *list, TimelineQueue queue, double seconds, int after, int also) {
  int *waits = ARENA_ARRAY(list->arena, int, 2), count = 0;
  if (after >= 0) waits[count++] = after;
  if (also >= 0) waits[count++] = also;
  assert_in_range(list->count, 0, MOST - 1);
  list->task[list->count] = (TimelineTask){queue, seconds, waits, count, -1};
  return list->count++;
}

static double total_seconds(List *list) {
  TimelineRank rank = {list->task, list->count};
  Timeline timeline;
  assert_true(timeline_run(list->arena, &rank, 1, &timeline));
  return timeline.seconds;
}

static void says(const char *what, double got, double documented, double published) {
  printf("%-44s %8.0f, published %6.0f: %+.1f %%\n", what, got, published,
         100 * (got / published - 1));
  if (fabs(got / documented - 1) > 0.005)
    fail_msg("%s: %.1f, and docs/simulate.md says %.1f", what, got, documented);
}

/* ── Llama-3.1-8B ───────────────────────────────────────────────────────────────────────────── */
static const double d_model = 4096, d_key = 1024, d_hidden = 14336, vocabulary = 128256;
static const double length = 8192, tokens = 2 * 8192;

typedef struct {
  double parameters, forward, backward; /* seconds */
} Block;

static double layer_parameters(void) {
  return 2 * d_model * d_model + 2 * d_model * d_key + 3 * d_model * d_hidden + 2 * d_model;
}

/* The roofline's seconds, times `slower`: products and attention at 0.8 of the peak, what lies between them
 * at 0.9 of the memory's rate. Half of the products are computed again in backward. */
static Block layer_of(const Machine *machine, double slower) {
  double product = 2 * (layer_parameters() - 2 * d_model) * tokens;
  double attention = 4 * length * d_model * tokens / 2;
  double between =
      2 * tokens * (12.5 * d_model + 3 * d_hidden); /* bytes: norms, sums, rope, silu */
  double rate = machine->half * 0.8 / slower, memory = machine->memory_rate * 0.9 / slower;
  return (Block){layer_parameters(), (product + attention) / rate + between / memory,
                 (2.5 * product + 2 * attention) / rate + 2 * between / memory};
}

static Block head_of(const Machine *machine, double slower) {
  double product = 2 * d_model * vocabulary * tokens, loss = 20 * tokens * vocabulary;
  double rate = machine->half * 0.8 / slower, memory = machine->memory_rate * 0.9 / slower;
  return (Block){2 * d_model * vocabulary, product / rate + loss / memory / 2,
                 2 * product / rate + loss / memory / 2};
}

/* FSDP2: parameters of a layer are gathered in bf16 one layer ahead, again in backward, and their
 * gradients shared out in f32. */
static double llama_seconds(int nodes, double slower) {
  const Machine *machine = machine_find("h100-96");
  Fabric fabric = fabric_of(machine, nodes, 8);
  List *list = &(List){.arena = arena_new()};
  Block layer = layer_of(machine, slower), head = head_of(machine, slower);
  double gather = comm_cost(&fabric, COST_ALL_GATHER, (int64_t)(2 * layer.parameters)).seconds;
  double share = comm_cost(&fabric, COST_REDUCE_SCATTER, (int64_t)(4 * layer.parameters)).seconds;
  double head_gather = comm_cost(&fabric, COST_ALL_GATHER, (int64_t)(2 * head.parameters)).seconds;
  double head_share =
      comm_cost(&fabric, COST_REDUCE_SCATTER, (int64_t)(4 * head.parameters)).seconds;
  int ready = add(list, TIMELINE_COMMUNICATE, head_gather, -1, -1), done = -1, before = -1;
  for (int i = 0; i < LAYERS; i++) {
    ready = add(list, TIMELINE_COMMUNICATE, gather, before, -1);
    before = done;
    done = add(list, TIMELINE_COMPUTE, layer.forward, done, ready);
  }
  done = add(list, TIMELINE_COMPUTE, head.forward + head.backward, done, -1);
  before = done;
  for (int i = 0; i < LAYERS; i++) {
    ready = add(list, TIMELINE_COMMUNICATE, gather, before, -1);
    int last = done;
    done = add(list, TIMELINE_COMPUTE, layer.backward, done, ready);
    if (i > 0) add(list, TIMELINE_COMMUNICATE, share, last, -1);
    before = last;
  }
  add(list, TIMELINE_COMMUNICATE, share, done, -1);
  int shared = add(list, TIMELINE_COMMUNICATE, head_share, done, -1);
  double all = LAYERS * layer.parameters + head.parameters;
  add(list, TIMELINE_COMPUTE, 28 * all / (8 * nodes) / (machine->memory_rate * 0.9), shared, -1);
  double seconds = total_seconds(list);
  arena_free(list->arena);
  return seconds;
}

static void test_llama(void **state) {
  (void)state;
  assert_true(fabs(LAYERS * layer_parameters() + 2 * d_model * vocabulary - 8.03e9) < 1e7);
  says("Llama 8B, 8 GPUs, by peaks alone", tokens / llama_seconds(1, 1), 11713, 6667);
  double low = 1, high = 4; /* how much slower than the roofline the published run on 8 is */
  while (high - low > 1e-6) {
    double middle = (low + high) / 2;
    if (tokens / llama_seconds(1, middle) > 6667)
      low = middle;
    else
      high = middle;
  }
  says("Llama 8B, 128 GPUs, kernels of the run on 8", tokens / llama_seconds(16, low), 6687, 6514);
}

/* ── ResNet-50 ──────────────────────────────────────────────────────────────────────────────── */
/* Millions of parameters and share of backward by group of layers, last first; gradients in f32, a
 * bucket a group. Forward is a third of a step on one GPU. */
static double resnet_images(double alone) {
  static const double million[] = {2.05, 14.96, 7.1, 1.22, 0.23};
  static const double share[] = {0.02, 0.23, 0.28, 0.25, 0.22};
  Fabric fabric = fabric_of(machine_find("a100"), 1, 8);
  List *list = &(List){.arena = arena_new()};
  double step = 256 / alone;
  int done = add(list, TIMELINE_COMPUTE, step / 3, -1, -1);
  for (int i = 0; i < 5; i++) {
    int64_t bytes = (int64_t)(4e6 * million[i]);
    done = add(list, TIMELINE_COMPUTE, step * 2 / 3 * share[i], done, -1);
    add(list, TIMELINE_COMMUNICATE, comm_cost(&fabric, COST_ALL_REDUCE, bytes).seconds, done, -1);
  }
  double seconds = total_seconds(list);
  arena_free(list->arena);
  return 8 * 256 / seconds;
}

static void test_resnet(void **state) {
  (void)state;
  says("ResNet-50, 8 GPUs, mixed precision", resnet_images(2470), 19754, 16621);
  says("ResNet-50, 8 GPUs, TF32", resnet_images(938), 7503, 7248);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_llama),
      cmocka_unit_test(test_resnet),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
