/* codegen_help: runs a compiled plan without the runtime: arenas from malloc, kernels from a .so,
 * library calls as naive loops in double. Work is split at odd places on purpose. */
#ifndef FT_TEST_CODEGEN_HELP_H
#define FT_TEST_CODEGEN_HELP_H
#include "codegen/codegen.h"
#include "elements_help.h"
#include "passes_help.h"
#include "plan/plan_calls.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

enum { HELP_PLACES = 64 };
typedef void HelpKernel(void *const *args, int64_t begin, int64_t end);
typedef struct {
  Code code;
  void *library;
  char *memory[HELP_PLACES]; /* by place, windows too */
  uint64_t order; /* steps run in a random order that the plan allows, this one; 0: as they stand */
  char *cleared;  /* what the last step of kind FILL has cleared; NULL: nobody asks */
} HelpRun;

/* A random order of a graph's steps in which each comes after those that it waits for. */
static inline int *help_order(Arena *arena, const PlanGraph *graph, uint64_t seed) {
  int count = graph->steps.count, ready_count = 0, placed = 0;
  int *order = ARENA_ARRAY(arena, int, count + 1), *ready = ARENA_ARRAY(arena, int, count + 1);
  int *waits = ARENA_ARRAY(arena, int, count + 1);
  for (int i = 0; i < count; i++) {
    waits[i] = graph->steps.at[i].after_count;
    if (!waits[i]) ready[ready_count++] = i;
  }
  while (ready_count) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    int at = (int)((seed >> 33) % (uint64_t)ready_count), step = ready[at];
    if (!(seed & 1 << 20)) at = ready_count - 1, step = ready[at]; /* often deep into one branch */
    ready[at] = ready[--ready_count];
    order[placed++] = step;
    for (int i = step + 1; i < count; i++)
      for (int k = 0; k < graph->steps.at[i].after_count; k++)
        if (graph->steps.at[i].after[k] == step && --waits[i] == 0) ready[ready_count++] = i;
  }
  assert_int_equal(placed, count);
  return order;
}

static inline float help_at(const float *x, int64_t i) { return x[i]; }

static inline void help_gemm(const PlanStep *step, void **args) {
  GemmShape s;
  call_gemm_shape(step, &s);
  const float *a = args[0], *b = args[1], *bias = s.has_bias ? args[2] : NULL;
  float *c = args[step->arg_count - 1];
  for (int64_t g = 0; g < s.batch; g++)
    for (int64_t i = 0; i < s.m; i++)
      for (int64_t j = 0; j < s.n; j++) {
        double sum = bias ? bias[j] : 0;
        for (int64_t l = 0; l < s.k; l++)
          sum += (double)a[g * s.m * s.k + (s.ta ? l * s.m + i : i * s.k + l)] *
                 b[g * s.k * s.n + (s.tb ? j * s.k + l : l * s.n + j)];
        c[(g * s.m + i) * s.n + j] = (float)(s.has_relu && sum <= 0 ? 0 : sum);
      }
}

/* All three directions in one walk over (n, o, y, x, c, i, j). */
static inline void help_conv(const PlanStep *step, void **args) {
  ConvShape s;
  call_conv_shape(step, &s);
  bool to_input = !strcmp(step->name, "conv_grad_input");
  bool to_weight = !strcmp(step->name, "conv_grad_weight");
  int64_t cg = s.c / s.groups, og = s.o / s.groups, count[3];
  count[0] = s.n * s.c * s.h * s.w;
  count[1] = s.o * cg * s.kh * s.kw;
  count[2] = s.n * s.o * s.ho * s.wo;
  int target = to_input ? 0 : to_weight ? 1 : 2;
  double *sum = calloc((size_t)count[target] + 1, sizeof *sum);
  float *out = args[step->arg_count - 1];
  const float *first = args[0], *second = args[1];
  for (int64_t n = 0; n < s.n; n++)
    for (int64_t o = 0; o < s.o; o++)
      for (int64_t y = 0; y < s.ho; y++)
        for (int64_t x = 0; x < s.wo; x++) {
          int64_t out_at = s.is_nhwc ? ((n * s.ho + y) * s.wo + x) * s.o + o
                                     : ((n * s.o + o) * s.ho + y) * s.wo + x;
          for (int64_t k = 0; k < cg; k++)
            for (int64_t i = 0; i < s.kh; i++)
              for (int64_t j = 0; j < s.kw; j++) {
                int64_t h = y * s.sh + i * s.dh - s.pt, w = x * s.sw + j * s.dw - s.pl;
                if (h < 0 || w < 0 || h >= s.h || w >= s.w) continue;
                int64_t c = o / og * cg + k;
                int64_t in_at = s.is_nhwc ? ((n * s.h + h) * s.w + w) * s.c + c
                                          : ((n * s.c + c) * s.h + h) * s.w + w;
                int64_t w_at = s.is_nhwc ? ((o * s.kh + i) * s.kw + j) * cg + k
                                         : ((o * cg + k) * s.kh + i) * s.kw + j;
                if (to_input)
                  sum[in_at] += (double)first[out_at] * second[w_at];
                else if (to_weight)
                  sum[w_at] += (double)first[out_at] * second[in_at];
                else
                  sum[out_at] += (double)first[in_at] * second[w_at];
              }
          if (target == 2 && s.has_bias) sum[out_at] += ((float *)args[2])[o];
          if (target == 2 && s.has_relu && sum[out_at] <= 0) sum[out_at] = 0;
        }
  for (int64_t i = 0; i < count[target]; i++) out[i] = (float)sum[i];
  free(sum);
}

static inline void help_step(HelpRun *run, const PlanGraph *graph, const PlanStep *step,
                             int pieces) {
  void *args[128];
  for (int i = 0; i < step->arg_count; i++) {
    const PlanBuffer *buffer = &graph->buffers.at[step->args[i]];
    assert_true(buffer->offset + type_bytes(&buffer->type) <=
                run->code.plan->places.at[buffer->place].bytes);
    args[i] = run->memory[buffer->place] + buffer->offset;
  }
  if (step->kind == STEP_LAUNCH) {
    HelpKernel *kernel = (HelpKernel *)dlsym(run->library, step->name);
    assert_non_null(kernel);
    for (int64_t p = pieces - 1; p >= 0; p--)
      kernel(args, step->work * p / pieces, step->work * (p + 1) / pieces);
    return;
  }
  if (step->kind == STEP_COPY) {
    memcpy(args[1], args[0], (size_t)step->work);
    return;
  }
  if (step->kind == STEP_FILL) {
    if (run->cleared) memcpy(run->cleared, args[0], (size_t)step->work);
    memset(args[0], 0, (size_t)step->work);
    return;
  }
  const char *why = NULL;
  if (!call_check(run->code.plan->arena, step, graph->buffers.at, &why)) fail_msg("%s", why);
  if (!strcmp(step->name, "gemm"))
    help_gemm(step, args);
  else if (!strncmp(step->name, "conv", 4))
    help_conv(step, args);
  else
    fail_msg("no call %s", step->name);
}

/* Windows lie in the places that have memory. */
static inline void help_place_windows(HelpRun *run) {
  const Plan *plan = run->code.plan;
  assert_in_range(plan->places.count, STANDARD_PLACE_COUNT, HELP_PLACES);
  for (int a = STANDARD_PLACE_COUNT; a < plan->places.count; a++)
    run->memory[a] = run->memory[plan->places.at[a].of] + plan->places.at[a].offset;
}

static inline void help_compile(HelpRun *run, Arena *arena, Diag *diag, Program *program,
                                const CodegenOptions *options) {
  char path[64];
  snprintf(path, sizeof path, "/tmp/ft-unit-%ld.so", (long)getpid());
  if (!codegen_run(arena, diag, program, options, &run->code)) fail_msg("codegen failed");
  if (!codegen_write(diag, &run->code, options, path)) fail_msg("no .so");
  run->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!run->library) fail_msg("%s", dlerror());
  unlink(path);
  for (int a = 0; a < STANDARD_PLACE_COUNT; a++) {
    size_t bytes = (size_t)run->code.plan->places.at[a].bytes + 64;
    run->memory[a] = aligned_alloc(64, (bytes + 63) / 64 * 64);
  }
  help_place_windows(run);
}

static inline void help_free(HelpRun *run) {
  for (int a = 0; a < STANDARD_PLACE_COUNT; a++) free(run->memory[a]);
  dlclose(run->library);
  code_free(&run->code);
}

/* Garbage in work and outputs, zeros in grads (as the runtime promises), leaves where they belong.
 */
static inline void help_fill(HelpRun *run, const Graph *graph, Probe *probe) {
  for (int a = 0; a < STANDARD_PLACE_COUNT; a++)
    memset(run->memory[a], a == PLACE_GRADS ? 0 : 0x7f, (size_t)run->code.plan->places.at[a].bytes);
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *leaf = graph->nodes.at[i];
    StandardPlace place;
    if (leaf->op != OP_INPUT && leaf->op != OP_PARAM && leaf->op != OP_STATE &&
        leaf->op != OP_SETTING)
      continue;
    assert_true(standard_place_parse(node_str(leaf, ATTR_PLACE), &place));
    const Tensor *value = probe_leaf(leaf, probe);
    assert_non_null(value);
    char *to = run->memory[place] + node_int(leaf, ATTR_AT, 0);
    for (int64_t k = 0; k < shape_elements(&leaf->type.shape); k++)
      help_store(to, leaf->type.dtype, k, value);
  }
}

/* Where the value of a root lies when the step has run. */
static inline const char *help_root_place(const HelpRun *run, int which, const Root *root) {
  const Plan *plan = run->code.plan;
  const PlanGraph *graph = &plan->graphs.at[which];
  for (int i = 0; i < graph->outputs.count && root->kind != ROOT_ASSIGN; i++)
    if (!strcmp(graph->outputs.at[i].name, root->name))
      return run->memory[graph->outputs.at[i].place] + graph->outputs.at[i].offset;
  if (root->kind == ROOT_ASSIGN && !strcmp(root->name, OWN_PARAMS))
    return run->memory[PLACE_PARAMS];
  for (int i = 0; i < plan->states.count; i++)
    if (!strcmp(plan->states.at[i].name, root->name))
      return run->memory[plan->states.at[i].place] + plan->states.at[i].offset;
  return NULL;
}

static inline void help_execute(HelpRun *run, int which, int pieces) {
  const PlanGraph *graph = &run->code.plan->graphs.at[which];
  Arena *arena = arena_new();
  int *order = run->order ? help_order(arena, graph, run->order) : NULL;
  for (int i = 0; i < graph->steps.count; i++)
    help_step(run, graph, &graph->steps.at[order ? order[i] : i], pieces);
  arena_free(arena);
}
#endif
