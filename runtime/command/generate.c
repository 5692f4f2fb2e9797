/* generate: see generate.h. */
#include "runtime/command/generate.h"
#include "base/clock.h"
#include "base/say.h"
#include "runtime/text/bpe.h"
#include "runtime/checkpoint/ckpt.h"
#include "runtime/checkpoint/given.h"
#include "runtime/command/generator.h"
#include "runtime/common/utf8_out.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const GenerateOptions *options;
  Artifact *artifact;
  Exec *exec;
  Generator *generator;
  Bpe *bpe;              /* NULL: tokens are bytes, or numbers */
  BpeTokens prompt;      /* the one at hand */
  bool is_single;        /* one text: shown token by token */
  int64_t given, made;   /* tokens, of all texts */
  int64_t before, after; /* nanoseconds: to the first token of a text, for all others */
  int64_t late;          /* of `made`: not the first of its text */
} Generation;

/* ── prompts ──────────────────────────────────────────────────────────────────────────────── */
static Status generate_check_options(const Generation *g) {
  const GenerateOptions *options = g->options;
  int64_t vocabulary = generator_vocabulary(g->generator);
  bool may_be_empty = !options->prompts_are_numbers && g->bpe && bpe_end_of_text(g->bpe) >= 0;
  for (int i = 0; i < options->prompt_count || !i; i++)
    if (!options->prompt_count || (!may_be_empty && !*options->prompt[i]))
      return status_fail(STATUS_USER, "generate needs --prompt TEXT to go on with, not empty");
  if (!options->prompts_are_numbers && !g->bpe && vocabulary != 256)
    return status_fail(STATUS_USER,
                       "--prompt is text, and this model has %lld tokens: name its vocabulary with "
                       "--tokenizer FOLDER, or give the tokens' numbers with --prompt-tokens",
                       (long long)vocabulary);
  if (g->bpe && bpe_count(g->bpe) > vocabulary)
    return status_fail(STATUS_USER, "%s has %lld tokens, more than the model, which has %lld",
                       options->tokenizer, (long long)bpe_count(g->bpe), (long long)vocabulary);
  return STATUS_OK;
}

static Status read_numbers(Generation *g, const char *text) {
  int64_t vocabulary = generator_vocabulary(g->generator);
  for (const char *at = text; *at;) {
    char *end;
    errno = 0;
    long long token = strtoll(at, &end, 10);
    if (end == at || errno)
      return status_fail(STATUS_USER, "--prompt-tokens %s: expected numbers", at);
    if (token < 0 || token >= vocabulary)
      return status_fail(STATUS_USER, "--prompt-tokens: %lld is no token; the model has %lld",
                         token, (long long)vocabulary);
    STATUS_TRY(bpe_tokens_add(&g->prompt, token));
    at = end + strspn(end, " ,\n\t");
  }
  return STATUS_OK;
}

/* An empty text is the beginning of one. */
static Status read_prompt(Generation *g, const char *text) {
  g->prompt.count = 0;
  if (g->options->prompts_are_numbers) return read_numbers(g, text);
  for (const char *at = text; !g->bpe && *at; at++) STATUS_TRY(bpe_tokens_add(&g->prompt, (uint8_t)*at));
  if (!g->bpe) return STATUS_OK;
  STATUS_TRY(bpe_encode(g->bpe, text, strlen(text), &g->prompt));
  return g->prompt.count ? STATUS_OK : bpe_tokens_add(&g->prompt, bpe_end_of_text(g->bpe));
}

/* ── showing ──────────────────────────────────────────────────────────────────────────────── */
static bool is_end(const Generation *g, int64_t token) {
  return g->bpe && token == bpe_end_of_text(g->bpe);
}

static void show_token(Generation *g, Utf8Out *out, int64_t token, bool is_first) {
  char byte = (char)token;
  size_t count = 1;
  const char *bytes = g->bpe ? bpe_bytes(g->bpe, token, &count) : &byte;
  if (!g->bpe && g->options->prompts_are_numbers)
    printf("%s%lld", is_first ? "" : " ", (long long)token);
  else if (!is_end(g, token))
    utf8_out_write(out, bytes, count);
}

static void show_text(Generation *g, Utf8Out *out, int64_t text, int64_t from) {
  int64_t count;
  const int64_t *token = generator_text(g->generator, text, &count);
  for (int64_t i = from; i < count; i++) show_token(g, out, token[i], i == 0);
  fflush(stdout);
}

static void show_heading(const Generation *g, int64_t number) {
  const GenerateOptions *options = g->options;
  if (g->is_single || (!g->bpe && options->prompts_are_numbers)) return;
  printf("%s==> prompt %lld, seed %llu <==\n", number ? "\n" : "",
         (long long)(number / options->samples) + 1,
         (unsigned long long)(options->sample.seed + (uint64_t)(number % options->samples)));
}

static void tell_speed(const Generation *g) {
  if (!g->late) return;
  fprintf(stderr, "%lld tokens of prompt: %.3g s; then %.4g tokens/s\n", (long long)g->given,
          1e-9 * (double)g->before, (double)g->late / (1e-9 * (double)g->after));
}

/* ── the loop ─────────────────────────────────────────────────────────────────────────────── */
static Status generate_start(Generation *g) {
  const GenerateOptions *options = g->options;
  STATUS_TRY(train_open(&options->run, &g->artifact));
  const Plan *plan = g->artifact->plan;
  STATUS_TRY(decoder_check(plan));
  if (options->tokenizer) STATUS_TRY(bpe_open(options->tokenizer, &g->bpe));
  if (plan->decode_refused && !options->no_cache)
    say_note("no key/value cache, so each token takes a whole window: %s", plan->decode_refused);
  const char *const only[] = {decoder_programme(plan, options->no_cache), NULL};
  ExecOptions exec = {options->run.device, options->run.threads, .only = only};
  STATUS_TRY(exec_new(g->artifact, &exec, &g->exec));
  STATUS_TRY(generator_new(g->exec, options->no_cache, &g->generator));
  STATUS_TRY(generate_check_options(g));
  STATUS_TRY(exec_write_settings(g->exec));
  STATUS_TRY(exec_init_states(g->exec, 0));
  Text notes = {0};
  Status loaded = given_load_all(g->exec, &options->run.places, options->weights, &notes);
  if (loaded == STATUS_OK && notes.count) say_note("%s", text_cstr(&notes));
  text_free(&notes);
  return loaded;
}

/* Ends the texts that have all their tokens. */
static void end_texts(Generation *g, const int64_t *given) {
  for (int64_t i = 0; i < generator_count(g->generator); i++) {
    int64_t count;
    const int64_t *token = generator_text(g->generator, i, &count);
    bool is_long = count - given[i] >= g->options->tokens;
    if (is_long || (count > given[i] && is_end(g, token[count - 1])))
      generator_end(g->generator, i);
  }
}

/* Texts `first` and following, as many as go on at once. */
static Status generate_some(Generation *g, int64_t first, int64_t count, int64_t *given) {
  const GenerateOptions *options = g->options;
  Utf8Out out = {.to = stdout};
  generator_clear(g->generator, first > 0);
  for (int64_t i = 0; i < count; i++) {
    int64_t number = first + i;
    STATUS_TRY(read_prompt(g, options->prompt[number / options->samples]));
    given[i] = (int64_t)g->prompt.count;
    g->given += given[i];
    STATUS_TRY(generator_begin(g->generator, g->prompt.at, given[i],
                               options->sample.seed + (uint64_t)(number % options->samples)));
  }
  if (g->is_single) show_text(g, &out, 0, 0);
  int64_t begin = clock_nanoseconds(), drawn = 1;
  for (bool is_first = true; !ferror(stdout); is_first = false) { /* a full disk ends it */
    end_texts(g, given);
    STATUS_TRY(generator_next(g->generator, &options->sample, &drawn));
    if (!drawn) break;
    int64_t now = clock_nanoseconds(), *spent = is_first ? &g->before : &g->after;
    *spent += now - begin;
    begin = now;
    g->made += drawn;
    if (!is_first) g->late += drawn;
    if (g->is_single) show_text(g, &out, 0, given[0] + g->made - 1);
  }
  for (int64_t i = 0; i < count && !g->is_single; i++) {
    show_heading(g, first + i);
    show_text(g, &out, i, 0);
    utf8_out_end(&out);
    putchar('\n');
  }
  if (g->is_single) utf8_out_end(&out), putchar('\n');
  fflush(stdout);
  return STATUS_OK;
}

static Status generate(Generation *g) {
  STATUS_TRY(generate_start(g));
  int64_t all = g->options->prompt_count * g->options->samples;
  int64_t most = generator_most(g->generator);
  int64_t *given = calloc((size_t)most, sizeof *given);
  if (!given) return status_errno(ENOMEM, "generate");
  g->is_single = all == 1;
  Status status = STATUS_OK;
  for (int64_t first = 0; first < all && status == STATUS_OK && !ferror(stdout); first += most)
    status = generate_some(g, first, all - first < most ? all - first : most, given);
  free(given);
  if (status == STATUS_OK) tell_speed(g);
  return status;
}

Status generate_run(const GenerateOptions *options) {
  Generation g = {.options = options};
  Status status = generate(&g);
  generator_free(g.generator);
  bpe_free(g.bpe);
  free(g.prompt.at);
  exec_free(g.exec);
  artifact_close(g.artifact);
  return status;
}
