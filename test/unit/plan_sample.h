/* plan_sample: a plan that has one of everything, and what is refused of its text when a piece of
 * it is replaced. */
#include "plan/plan_text.h"
#include "plan/plan_calls.h"
#include "plan/plan_map.h"
#include "plan/plan_order.h"
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static inline Type type_of(DType dtype, int rank, int64_t a, int64_t b) {
  return (Type){dtype, {rank, {a, b}}};
}

static inline PlanStep step_of(Arena *arena, StepKind kind, const char *name, int inputs, int count,
                               const int *args) {
  int *copy = ARENA_ARRAY(arena, int, count);
  memcpy(copy, args, sizeof *args * (size_t)count);
  return (PlanStep){.kind = kind,
                    .name = name,
                    .args = copy,
                    .arg_count = count,
                    .input_count = inputs,
                    .label = "fc1: dot + \"bias\" \\ \xc3\xa9",
                    .layer = "fc1",
                    .phase = PHASE_BACKWARD,
                    .work_kind = WORK_PRODUCT};
}

static inline void add_tensors(Arena *arena, Plan *plan) {
  PlanTensor input = {.name = "image",
                      .type = type_of(DT_U8, 2, 4, 8),
                      .place = PLACE_INPUT,
                      .is_needed_for_predict = true};
  PlanTensor label = {.name = "label",
                      .type = type_of(DT_I32, 1, 4, 0),
                      .place = PLACE_INPUT,
                      .offset = 64,
                      .below = 10,
                      .ignore = -100,
                      .has_ignore = true};
  PlanTensor weight = {.name = "fc1.weight",
                       .type = type_of(DT_F32, 2, 4, 8),
                       .storage = {{3, {4, 4, 2}}, {0, 2, 1}},
                       .init = {"uniform", {-0.1, 0.1}, 2}};
  PlanTensor bias = {.name = "fc1.bias",
                     .type = type_of(DT_F32, 1, 4, 0),
                     .offset = 128,
                     .init = {"zeros", {0}, 0}};
  PlanTensor step = {.name = OWN_STEP,
                     .place = PLACE_STATE,
                     .type = type_of(DT_I64, 0, 0, 0),
                     .init = {"zeros", {0}, 0},
                     .role = ROLE_STEP};
  PlanTensor mean = {.name = "@bn.@running_mean",
                     .place = PLACE_STATE,
                     .type = type_of(DT_F32, 1, 4, 0),
                     .offset = 64,
                     .init = {"const", {-INFINITY}, 1},
                     .role = ROLE_MODEL,
                     .is_saved = true};
  PlanTensor average = {.name = "@ema",
                        .type = type_of(DT_F32, 1, 64, 0),
                        .place = STANDARD_PLACE_COUNT + 1, /* @ema */
                        .init = {"zeros", {0}, 0},
                        .role = ROLE_AVERAGE};
  PlanTensor part = {.name = "@accumulate.part",
                     .type = type_of(DT_I64, 0, 0, 0),
                     .place = PLACE_STATE,
                     .offset = 384,
                     .init = {"zeros", {0}, 0},
                     .role = ROLE_PART};
  PlanTensor total = part, position = part;
  total.name = "@eval.0", total.offset = 448, total.role = ROLE_TOTAL;
  position.name = "@decode.position", position.offset = 512, position.role = ROLE_POSITION;
  PlanTensor rate = {.name = "train.lr", .type = type_of(DT_F64, 0, 0, 0), .place = PLACE_SETTINGS};
  VEC_PUSH(arena, plan->inputs, input);
  VEC_PUSH(arena, plan->inputs, label);
  VEC_PUSH(arena, plan->params, weight);
  VEC_PUSH(arena, plan->params, bias);
  VEC_PUSH(arena, plan->states, step);
  VEC_PUSH(arena, plan->states, mean);
  VEC_PUSH(arena, plan->states, average);
  VEC_PUSH(arena, plan->states, part);
  VEC_PUSH(arena, plan->states, total);
  VEC_PUSH(arena, plan->states, position);
  static const LeafRole told[] = {ROLE_KEEP, ROLE_MISSING, ROLE_MORE, ROLE_PASS};
  for (int i = 0; i < 4; i++) {
    PlanTensor state = part;
    state.name = arena_printf(arena, "@eval.%s", role_text(told[i]));
    state.type = type_of(DT_F64, 0, 0, 0);
    state.offset = 576 + 64 * i, state.role = told[i];
    VEC_PUSH(arena, plan->states, state);
  }
  VEC_PUSH(arena, plan->scalars, rate);
}

/* What is left of a step when its gradients are there: the update of all that `ends` it, or a
 * sum. */
static inline void add_update(Arena *arena, const Plan *plan, PlanGraph *graph, bool ends) {
  PlanBuffer buffers[] = {{PLACE_GRADS, 0, type_of(DT_F32, 1, 64, 0)},
                          {PLACE_PARAMS, 0, type_of(DT_F32, 1, 64, 0)},
                          {PLACE_NARROW, 0, type_of(DT_BF16, 1, 64, 0)},
                          {PLACE_STATE, 128, plan->states.at[2].type},
                          {PLACE_STATE, 384, plan->states.at[3].type}};
  for (int i = 0; i < (ends ? 5 : 1); i++) VEC_PUSH(arena, graph->buffers, buffers[i]);
  PlanStep add = step_of(arena, STEP_LAUNCH, "k_add", 2, 3, (int[]){4, 8, 8});
  add.work = add.grain = 1;
  VEC_PUSH(arena, graph->steps, add);
  if (!ends) return;
  PlanStep update = step_of(arena, STEP_LAUNCH, "k_update", 3, 7, (int[]){9, 8, 11, 9, 10, 11, 12});
  update.work = update.grain = 1;
  VEC_PUSH(arena, graph->steps, update);
  PlanStep clear = step_of(arena, STEP_FILL, "fill", 0, 1, (int[]){8});
  VEC_PUSH(arena, graph->steps, clear);
}

/* counted: the state that goes on with each run. */
static inline void add_graph(Arena *arena, Plan *plan, const char *name, int counted) {
  VEC_PUSH(arena, plan->graphs, (PlanGraph){.name = name});
  PlanGraph *graph = &plan->graphs.at[plan->graphs.count - 1];
  PlanBuffer buffers[] = {
      {PLACE_INPUT, 0, plan->inputs.at[0].type},
      {PLACE_WORK, 0, type_of(DT_F32, 2, 4, 8)},
      {PLACE_PARAMS, 0, plan->params.at[0].type},
      {PLACE_PARAMS, 128, plan->params.at[1].type},
      {PLACE_WORK, 128, type_of(DT_F32, 2, 4, 4)},
      {PLACE_OUTPUT, 0, type_of(DT_F32, 0, 0, 0)},
      {PLACE_STATE, plan->states.at[counted].offset, plan->states.at[counted].type},
      {PLACE_WORK, 256, type_of(DT_F32, 2, 4, 4)}};
  for (int i = 0; i < 8; i++) VEC_PUSH(arena, graph->buffers, buffers[i]);
  PlanStep convert = step_of(arena, STEP_LAUNCH, "k0", 1, 2, (int[]){0, 1});
  convert.work = 32, convert.grain = 8, convert.bytes = 160, convert.line = 12;
  VEC_PUSH(arena, graph->steps, convert);
  PlanStep gemm = step_of(arena, STEP_CALL, "gemm", 3, 4, (int[]){1, 2, 3, 4});
  static const PlanInt ints[] = {{"batch", 1}, {"m", 4},  {"n", 4},    {"k", 8},
                                 {"ta", 0},    {"tb", 1}, {"bias", 1}, {"act", 1}};
  gemm.ints = ints, gemm.int_count = 8, gemm.flops = 256;
  VEC_PUSH(arena, graph->steps, gemm);
  PlanStep zero = step_of(arena, STEP_FILL, "fill", 0, 1, (int[]){5});
  zero.queue = QUEUE_COPY;
  VEC_PUSH(arena, graph->steps, zero);
  PlanStep count = step_of(arena, STEP_LAUNCH, "k_step", 1, 2, (int[]){6, 6});
  count.work = count.grain = 1;
  VEC_PUSH(arena, graph->steps, count);
  PlanStep copy = step_of(arena, STEP_COPY, "copy", 1, 2, (int[]){4, 7});
  copy.queue = QUEUE_COPY, copy.bytes = 128;
  VEC_PUSH(arena, graph->steps, copy);
  PlanStep begin = step_of(arena, STEP_BEGIN, "all_reduce", 1, 2, (int[]){7, 7});
  static const PlanInt group[] = {{"group", 0}, {"op", 0}};
  begin.ints = group, begin.int_count = 2, begin.queue = QUEUE_COMMUNICATE;
  VEC_PUSH(arena, graph->steps, begin);
  PlanStep end = step_of(arena, STEP_END, "end", 0, 0, (int[]){0});
  end.partner = 5, end.queue = QUEUE_COMMUNICATE;
  VEC_PUSH(arena, graph->steps, end);
  if (counted == 0 || counted == 3) add_update(arena, plan, graph, counted == 0);
  PlanInstead instead = {.end = 1, .call_count = 2};
  instead.call[0] = step_of(arena, STEP_CALL, "matmul", 3, 4, (int[]){1, 2, 3, 4});
  static const PlanInt product[] = {{"batch", 1}, {"m", 4},   {"n", 4},       {"k", 8},
                                    {"ta", 0},    {"tb", 1},  {"compute", 0}, {"bias", 1},
                                    {"act", 1},   {"aux", 0}, {"sums", 0},    {"accumulate", 0}};
  instead.call[0].ints = product, instead.call[0].int_count = 12, instead.call[0].flops = 256;
  instead.call[1] = instead.call[0];
  VEC_PUSH(arena, graph->insteads, instead);
  PlanOutput loss = {OUTPUT_LOSS, "loss", type_of(DT_F32, 0, 0, 0), PLACE_OUTPUT, 0};
  VEC_PUSH(arena, graph->outputs, loss);
  assert_null(plan_order_find(arena, graph));
}

/* A plan that has one of everything. */
static inline Plan *sample(Arena *arena) {
  Plan *plan = ARENA_NEW(arena, Plan);
  const char *why;
  plan->arena = arena;
  plan->model = "Mlp";
  plan->source = "examples/my model\n.ft";
  plan->target = "cpu";
  plan->target_cpu = "znver4";
  plan->settings = settings_new(arena);
  assert_true(setting_set(arena, plan->settings, setting_find("train.batch"), "4", &why));
  assert_true(setting_set(arena, plan->settings, setting_find("train.lr"), "0.1", &why));
  assert_true(setting_set(arena, plan->settings, setting_find("train.accumulate"), "4", &why));
  plan->settings[setting_find("train.eps")].number = 1e-7; /* changed, but not given */
  const char *files[] = {"a \"b\".gz", "c.gz"};
  const DataOption options[] = {{.name = "limit", .number = 1e9 + 1},
                                {.name = "dtype", .text = "u32"}};
  DataSource source = {.split = "train", .kind = "tokens", .file_count = 2, .option_count = 2};
  source.part = (DataPart){.of = "whole", .share = 0.125, .label = "label"};
  source.files = ARENA_ARRAY(arena, const char *, 2);
  memcpy(source.files, files, sizeof files);
  source.options = ARENA_ARRAY(arena, DataOption, 2);
  memcpy(source.options, options, sizeof options);
  const Transform of_text[] = {
      {.kind = transform_find_text("pack"), .argument = {{1, {16}}, {1, {1}}, {1, {3}}}},
      {.kind = transform_find_text("mask"),
       .argument = {{1, {50257}}, {1, {50258}}, {1, {0.15}}, {1, {0.75}}, {1, {0.125}}}}};
  source.transforms = memcpy(ARENA_ARRAY(arena, Transform, 2), of_text, sizeof of_text);
  source.transform_count = 2;
  VEC_PUSH(arena, plan->sources, source);
  source = (DataSource){.split = "valid", .kind = "folder", .file_count = 1, .files = source.files};
  Transform chain[] = {
      {.kind = transform_find("resize"), .argument = {{1, {256}}, {1, {2}}}},
      {.kind = transform_find("random_resized_crop"),
       .argument = {{2, {24, 32}}, {2, {0.08, 1}}, {2, {0.75, 4.0 / 3}}, {1, {1}}}},
      {.kind = transform_find("hflip"), .argument = {{1, {0.5}}}},
      {.kind = transform_find("normalize"), .argument = {{3, {0.485, 0.456, 0.406}}, {1, {0.25}}}}};
  source.transform_count = sizeof chain / sizeof *chain;
  Transform *transforms = ARENA_ARRAY(arena, Transform, source.transform_count);
  memcpy(transforms, chain, sizeof chain);
  source.transforms = transforms;
  VEC_PUSH(arena, plan->sources, source);
  const int64_t sizes[STANDARD_PLACE_COUNT] = {256, 128, 256, 832, 64, 128, 64, 4096, 64};
  plan_add_standard_places(plan);
  for (int i = 0; i < STANDARD_PLACE_COUNT; i++) plan->places.at[i].bytes = sizes[i];
  plan_add_place(plan, (PlanPlace){.name = "caches",
                                   .bytes = 64,
                                   .life = FOR_TEXT,
                                   .is_window = true,
                                   .of = PLACE_WORK,
                                   .offset = 1024});
  plan_add_place(plan, (PlanPlace){.name = "@ema",
                                   .bytes = 256,
                                   .elements = ELEMENTS_LIKE,
                                   .dtype = DT_F32,
                                   .of_elements = PLACE_PARAMS,
                                   .saved = SAVED_CHECKPOINT,
                                   .is_window = true,
                                   .of = PLACE_STATE,
                                   .offset = 128});
  add_tensors(arena, plan);
  PlanMemory row = {"parameters", 256};
  VEC_PUSH(arena, plan->memory, row);
  add_graph(arena, plan, "train", 0);
  add_graph(arena, plan, "eval", 4);
  add_graph(arena, plan, "decode", 5);
  add_graph(arena, plan, "micro", 3);
  plan_add_run(plan, PROGRAMME_STEP, (PlanRun){.graph = 3, .times = 3});
  plan_add_run(plan, PROGRAMME_STEP, (PlanRun){.graph = 0});
  plan_add_run(plan, PROGRAMME_EVALUATE, (PlanRun){.graph = 1});
  plan_add_run(
      plan, PROGRAMME_EVALUATE_AVERAGE,
      (PlanRun){.graph = 1, .reads = STANDARD_PLACE_COUNT + 1, .instead_of = PLACE_PARAMS});
  plan_add_run(plan, PROGRAMME_GENERATE, (PlanRun){.graph = 2, .positions = 64});
  plan_add_run(plan, PROGRAMME_GENERATE, (PlanRun){.graph = 2, .positions = 1});
  return plan;
}

/* A plan's text with `from` (its first occurrence) replaced, and the checksum made right. */
static inline char *edited(Arena *arena, const Plan *plan, const char *from, const char *to) {
  Text text = {0}, out = {0};
  plan_print(plan, &text);
  char *at = strstr(text.at, from);
  if (!at) fail_msg("the sample lacks '%s'", from);
  text_append(&out, text.at, (size_t)(at - text.at));
  text_printf(&out, "%s%s", to, at + strlen(from));
  size_t body = (size_t)(strstr(out.at, "checksum ") - out.at);
  char sum[32];
  snprintf(sum, sizeof sum, "checksum %016" PRIx64 "\n", plan_checksum(out.at, body));
  strcpy(out.at + body, sum);
  char *result = arena_strdup(arena, out.at);
  text_free(&text);
  text_free(&out);
  return result;
}

static inline void expect_refusal(Plan *make(Arena *arena), const char *from, const char *to,
                                  const char *message) {
  Arena *arena = arena_new();
  const char *why = NULL;
  char *text = edited(arena, make(arena), from, to);
  Plan *plan = plan_parse(arena, text, strlen(text), &why);
  if (plan || !why) fail_msg("'%s' -> '%s' was accepted", from, to);
  if (!strstr(why, message)) fail_msg("'%s' -> '%s': %s", from, to, why);
  assert_memory_equal(why, "line ", 5);
  assert_null(strchr(why, '\n'));
  arena_free(arena);
}
