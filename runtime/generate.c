/* generate: see generate.h. Every token costs a forward pass over the whole window: the artifact
 * has no graph for one position that remembers the keys and values of those before. */
#include "runtime/generate.h"
#include "runtime/ckpt.h"
#include "runtime/signals.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const GenerateOptions *options;
  Artifact *artifact;
  Exec *exec;
  const PlanTensor *input;
  const PlanOutput *output;
  int64_t window, vocabulary;
  int64_t *text; /* prompt and what was generated */
  int64_t count;
  void *slot;
  float *score;
  int64_t *order;
} Generation;

/* ── drawing ──────────────────────────────────────────────────────────────────────────────── */
static const float *sorted_by; /* qsort has no context; one thread draws */
static int likelier(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  if (sorted_by[x] != sorted_by[y]) return sorted_by[x] > sorted_by[y] ? -1 : 1;
  return x < y ? -1 : x > y;
}

int64_t generate_draw(const float *score, int64_t count, double temperature, int64_t top_k,
                      double top_p, double random, int64_t *order) {
  int64_t kept = 0;
  for (int64_t i = 0; i < count; i++)
    if (!isnan(score[i])) order[kept++] = i;
  if (!kept) return -1;
  sorted_by = score;
  qsort(order, (size_t)kept, sizeof *order, likelier);
  if (temperature <= 0 || isinf(score[order[0]])) return order[0];
  if (top_k > 0 && top_k < kept) kept = top_k;
  double most = score[order[0]], total = 0, sum = 0;
  for (int64_t i = 0; i < kept; i++) total += exp((score[order[i]] - most) / temperature);
  int64_t among = 0;
  while (among < kept && (among == 0 || sum < top_p * total))
    sum += exp((score[order[among++]] - most) / temperature);
  double left = random * sum;
  for (int64_t i = 0; i < among; i++) {
    left -= exp((score[order[i]] - most) / temperature);
    if (left < 0) return order[i];
  }
  return order[among - 1];
}

/* Uniform in [0, 1): the n-th number of this seed (SplitMix64: Steele, Lea and Flood, 2014). */
static double uniform(uint64_t seed, uint64_t n) {
  uint64_t z = seed * 0xd1342543de82ef95u + (n + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* ── the model ────────────────────────────────────────────────────────────────────────────── */
static Status find_tensors(Generation *g, const Plan *plan) {
  const PlanGraph *graph = &plan->graph[EXEC_EVAL];
  char have[TYPE_TEXT];
  for (int i = 0; i < plan->inputs.count; i++) {
    if (!plan->inputs.at[i].is_needed_for_predict) continue;
    if (g->input)
      return status_fail(STATUS_USER, "generate needs a model of one input, but %s needs %s and %s",
                         plan->model, g->input->name, plan->inputs.at[i].name);
    g->input = &plan->inputs.at[i];
  }
  if (!g->input || g->input->type.shape.rank != 2 ||
      (g->input->type.dtype != DT_I32 && g->input->type.dtype != DT_I64))
    return status_fail(STATUS_USER, "generate needs a model of tokens i32[B,T]%s%s%s%s",
                       g->input ? ", but " : "", g->input ? g->input->name : "",
                       g->input ? " is " : "", g->input ? type_text(&g->input->type, have) : "");
  g->window = g->input->type.shape.dim[1];
  for (int i = 0; i < graph->outputs.count && !g->output; i++) {
    const PlanOutput *output = &graph->outputs.at[i];
    const Shape *shape = &output->type.shape;
    if (strcmp(output->kind, "output") == 0 && output->type.dtype == DT_F32 && shape->rank == 3 &&
        shape->dim[0] == g->input->type.shape.dim[0] && shape->dim[1] == g->window)
      g->output = output;
  }
  if (!g->output)
    return status_fail(STATUS_USER,
                       "generate needs an output of scores f32[B,T,V]: add `output logits` to %s",
                       plan->model);
  g->vocabulary = g->output->type.shape.dim[2];
  return STATUS_OK;
}

/* ── the prompt ───────────────────────────────────────────────────────────────────────────── */
static Status add_token(Generation *g, int64_t token) {
  if (token < 0 || token >= g->vocabulary)
    return status_fail(STATUS_USER, "--prompt-tokens: %lld is no token; the model has %lld",
                       (long long)token, (long long)g->vocabulary);
  g->text[g->count++] = token;
  return STATUS_OK;
}

static Status read_prompt(Generation *g) {
  const GenerateOptions *options = g->options;
  const char *at = options->prompt ? options->prompt : options->prompt_tokens;
  if (!at || !*at)
    return status_fail(STATUS_USER, "generate needs --prompt TEXT to go on with, not empty");
  if (options->prompt && options->prompt_tokens)
    return status_fail(STATUS_USER, "--prompt and --prompt-tokens do not go together");
  if (options->prompt && g->vocabulary != 256)
    return status_fail(STATUS_USER,
                       "--prompt is for models of bytes; this one has %lld tokens: give their "
                       "numbers with --prompt-tokens",
                       (long long)g->vocabulary);
  g->text = calloc(strlen(at) + (size_t)options->tokens + 1, sizeof *g->text);
  if (!g->text) return status_errno(ENOMEM, "--prompt");
  while (*at) {
    if (options->prompt) {
      STATUS_TRY(add_token(g, (uint8_t)*at++));
      continue;
    }
    char *end;
    errno = 0;
    long long token = strtoll(at, &end, 10);
    if (end == at || errno)
      return status_fail(STATUS_USER, "--prompt-tokens %s: expected numbers", at);
    STATUS_TRY(add_token(g, token));
    at = end + strspn(end, " ,\n\t");
  }
  return STATUS_OK;
}

static void show(const Generation *g, int64_t at) {
  if (g->options->prompt)
    putchar((int)g->text[at]);
  else
    printf("%s%lld", at ? " " : "", (long long)g->text[at]);
}

/* ── the loop ─────────────────────────────────────────────────────────────────────────────── */
static Status next_token(Generation *g) {
  int64_t first = g->count > g->window ? g->count - g->window : 0, seen = g->count - first;
  char *tokens = (char *)g->slot + g->input->offset;
  for (int64_t i = 0; i < seen; i++) {
    if (g->input->type.dtype == DT_I32)
      ((int32_t *)(void *)tokens)[i] = (int32_t)g->text[first + i];
    else
      ((int64_t *)(void *)tokens)[i] = g->text[first + i];
  }
  STATUS_TRY(exec_run(g->exec, EXEC_EVAL, g->slot));
  int64_t bytes = g->vocabulary * (int64_t)sizeof(float);
  int64_t at = g->output->offset + (seen - 1) * bytes;
  STATUS_TRY(exec_sync(g->exec));
  STATUS_TRY(exec_read(g->exec, g->output->arena, at, bytes, g->score));
  const GenerateOptions *options = g->options;
  int64_t token =
      generate_draw(g->score, g->vocabulary, options->temperature, options->top_k, options->top_p,
                    uniform(options->seed, (uint64_t)g->count), g->order);
  if (token < 0) return status_fail(STATUS_USER, "all scores of the next token are NaN");
  g->text[g->count++] = token;
  return STATUS_OK;
}

static Status generate(Generation *g) {
  const GenerateOptions *options = g->options;
  STATUS_TRY(train_open(&options->run, &g->artifact));
  STATUS_TRY(find_tensors(g, g->artifact->plan));
  STATUS_TRY(read_prompt(g));
  ExecOptions exec = {options->run.device, options->run.threads};
  STATUS_TRY(exec_new(g->artifact, &exec, &g->exec));
  STATUS_TRY(exec_write_settings(g->exec));
  STATUS_TRY(exec_init(g->exec, 0));
  STATUS_TRY(ckpt_load_weights(g->exec, options->weights, NULL));
  STATUS_TRY(exec_batch_new(g->exec, &g->slot));
  g->score = calloc((size_t)g->vocabulary + 1, sizeof *g->score);
  g->order = calloc((size_t)g->vocabulary + 1, sizeof *g->order);
  if (!g->score || !g->order) return status_errno(ENOMEM, "generate");
  for (int64_t i = 0; i < g->count; i++) show(g, i);
  for (int64_t i = 0; i < options->tokens && !signals_pending(); i++) {
    fflush(stdout);
    STATUS_TRY(next_token(g));
    show(g, g->count - 1);
  }
  putchar('\n');
  return STATUS_OK;
}

Status generate_run(const GenerateOptions *options) {
  Generation g = {.options = options};
  Status status = generate(&g);
  if (g.exec) exec_batch_free(g.exec, g.slot);
  free(g.text);
  free(g.score);
  free(g.order);
  exec_free(g.exec);
  artifact_close(g.artifact);
  return status;
}
