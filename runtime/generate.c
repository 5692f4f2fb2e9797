/* generate: see generate.h. */
#include "runtime/generate.h"
#include "base/clock.h"
#include "runtime/bpe.h"
#include "runtime/ckpt.h"
#include "runtime/decoder.h"
#include "runtime/signals.h"
#include "runtime/utf8_out.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const GenerateOptions *options;
  Artifact *artifact;
  Exec *exec;
  Decoder *decoder;
  Bpe *bpe; /* NULL: tokens are bytes, or numbers */
  int64_t vocabulary;
  int64_t *text; /* prompt and what was generated */
  int64_t count;
  float *score;
  int64_t *order;
  Utf8Out out;
} Generation;

/* ── the prompt ───────────────────────────────────────────────────────────────────────────── */
static Status check_prompt(const Generation *g) {
  const GenerateOptions *options = g->options;
  bool may_be_empty = options->prompt && g->bpe && bpe_end_of_text(g->bpe) >= 0;
  if (options->prompt && options->prompt_tokens)
    return status_fail(STATUS_USER, "--prompt and --prompt-tokens do not go together");
  const char *given = options->prompt ? options->prompt : options->prompt_tokens;
  if (!may_be_empty && (!given || !*given))
    return status_fail(STATUS_USER, "generate needs --prompt TEXT to go on with, not empty");
  if (options->prompt && !g->bpe && g->vocabulary != 256)
    return status_fail(STATUS_USER,
                       "--prompt is text, and this model has %lld tokens: name its vocabulary with "
                       "--tokenizer FOLDER, or give the tokens' numbers with --prompt-tokens",
                       (long long)g->vocabulary);
  if (g->bpe && bpe_count(g->bpe) > g->vocabulary)
    return status_fail(STATUS_USER, "%s has %lld tokens, more than the model, which has %lld",
                       options->tokenizer, (long long)bpe_count(g->bpe), (long long)g->vocabulary);
  return STATUS_OK;
}

static Status add_token(Generation *g, long long token) {
  if (token < 0 || token >= g->vocabulary)
    return status_fail(STATUS_USER, "--prompt-tokens: %lld is no token; the model has %lld", token,
                       (long long)g->vocabulary);
  g->text[g->count++] = token;
  return STATUS_OK;
}

static Status read_numbers(Generation *g) {
  for (const char *at = g->options->prompt_tokens; *at;) {
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

/* An empty text is the beginning of one. */
static Status read_text(Generation *g) {
  BpeTokens tokens = {0};
  const char *prompt = g->options->prompt;
  Status status = bpe_encode(g->bpe, prompt, strlen(prompt), &tokens);
  for (size_t i = 0; i < tokens.count; i++) g->text[g->count++] = tokens.at[i];
  if (!g->count) g->text[g->count++] = bpe_end_of_text(g->bpe);
  free(tokens.at);
  return status;
}

static Status read_prompt(Generation *g) {
  const GenerateOptions *options = g->options;
  if (options->tokenizer) STATUS_TRY(bpe_open(options->tokenizer, &g->bpe));
  STATUS_TRY(check_prompt(g));
  size_t most = strlen(options->prompt ? options->prompt : options->prompt_tokens);
  g->text = calloc(most + (size_t)options->tokens + 2, sizeof *g->text);
  if (!g->text) return status_errno(ENOMEM, "--prompt");
  if (!options->prompt) return read_numbers(g);
  if (g->bpe) return read_text(g);
  for (const char *at = options->prompt; *at; at++) g->text[g->count++] = (uint8_t)*at;
  return STATUS_OK;
}

static bool is_end(const Generation *g, int64_t at) {
  return g->bpe && g->text[at] == bpe_end_of_text(g->bpe);
}

static void show(Generation *g, int64_t at) {
  char byte = (char)g->text[at];
  size_t count = 1;
  const char *bytes = g->bpe ? bpe_bytes(g->bpe, g->text[at], &count) : &byte;
  if (!g->bpe && !g->options->prompt)
    printf("%s%lld", at ? " " : "", (long long)g->text[at]);
  else if (!is_end(g, at))
    utf8_out_write(&g->out, bytes, count);
}

/* ── the loop ─────────────────────────────────────────────────────────────────────────────── */
static Status next_token(Generation *g) {
  const SampleOptions *sample = &g->options->sample;
  STATUS_TRY(decoder_scores(g->decoder, g->text, g->count, g->score));
  int64_t token = sample_draw(sample, g->score, g->vocabulary,
                              sample_uniform(sample->seed, (uint64_t)g->count), g->order);
  if (token < 0) return status_fail(STATUS_USER, "all scores of the next token are NaN");
  g->text[g->count++] = token;
  return STATUS_OK;
}

static Status start(Generation *g) {
  const GenerateOptions *options = g->options;
  STATUS_TRY(train_open(&options->run, &g->artifact));
  const Plan *plan = g->artifact->plan;
  STATUS_TRY(decoder_check(plan));
  g->vocabulary = decoder_vocabulary(plan);
  STATUS_TRY(read_prompt(g));
  if (plan->decode_refused && !options->no_cache)
    fprintf(stderr, "note: no key/value cache, so each token takes a whole window: %s\n",
            plan->decode_refused);
  ExecOptions exec = {options->run.device, options->run.threads,
                      .only = decoder_graphs(plan, options->no_cache)};
  STATUS_TRY(exec_new(g->artifact, &exec, &g->exec));
  STATUS_TRY(exec_write_settings(g->exec));
  STATUS_TRY(exec_init_states(g->exec, 0));
  Text notes = {0};
  Status loaded = ckpt_load_weights(g->exec, options->weights, &notes);
  if (loaded == STATUS_OK && notes.count) fprintf(stderr, "note: %s\n", text_cstr(&notes));
  text_free(&notes);
  STATUS_TRY(loaded);
  STATUS_TRY(decoder_new(g->exec, options->no_cache, &g->decoder));
  g->score = calloc((size_t)g->vocabulary + 1, sizeof *g->score);
  g->order = calloc((size_t)g->vocabulary + 1, sizeof *g->order);
  return g->score && g->order ? STATUS_OK : status_errno(ENOMEM, "generate");
}

static void tell_speed(const Generation *g, int64_t given, double before, double after) {
  int64_t made = g->count - given;
  if (made < 2) return;
  fprintf(stderr, "%lld tokens of prompt: %.3g s; then %.4g tokens/s\n", (long long)given, before,
          (double)(made - 1) / after);
}

static Status generate(Generation *g) {
  STATUS_TRY(start(g));
  for (int64_t i = 0; i < g->count; i++) show(g, i);
  int64_t given = g->count, begin = clock_nanoseconds(), first = begin;
  for (int64_t i = 0; i < g->options->tokens && !signals_pending(); i++) {
    fflush(stdout);
    STATUS_TRY(next_token(g));
    if (i == 0) first = clock_nanoseconds();
    show(g, g->count - 1);
    if (is_end(g, g->count - 1)) break;
  }
  utf8_out_end(&g->out);
  putchar('\n');
  fflush(stdout);
  tell_speed(g, given, 1e-9 * (double)(first - begin),
             1e-9 * (double)(clock_nanoseconds() - first));
  return STATUS_OK;
}

Status generate_run(const GenerateOptions *options) {
  Generation g = {.options = options, .out = {.to = stdout}};
  Status status = generate(&g);
  decoder_free(g.decoder);
  bpe_free(g.bpe);
  free(g.text);
  free(g.score);
  free(g.order);
  exec_free(g.exec);
  artifact_close(g.artifact);
  return status;
}
