/* generator: see generator.h. */
#include "runtime/command/generator.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  int64_t *token;
  int64_t count, room;
  uint64_t seed;
  bool has_ended;
} GeneratorText;

struct Generator {
  Decoder *decoder;
  int64_t vocabulary, most, count; /* most, count: texts */
  GeneratorText *text;
  int64_t same; /* tokens that the next texts share with those before */
  bool is_same;
  const int64_t **token; /* for decoder_scores */
  int64_t scored;        /* the length that `score` belongs to; 0: none */
  float *score;
  int64_t *order;
};

static Status generator_make(Generator *generator, Exec *exec, bool is_windowed) {
  STATUS_TRY(decoder_new(exec, is_windowed, &generator->decoder));
  size_t most = (size_t)decoder_texts(generator->decoder);
  size_t vocabulary = (size_t)decoder_vocabulary(exec_plan(exec));
  generator->most = (int64_t)most;
  generator->vocabulary = (int64_t)vocabulary;
  generator->text = calloc(most, sizeof *generator->text);
  generator->token = calloc(most, sizeof *generator->token);
  generator->score = calloc(most * vocabulary + 1, sizeof *generator->score);
  generator->order = calloc(vocabulary + 1, sizeof *generator->order);
  bool is_made = generator->text && generator->token && generator->score && generator->order;
  return is_made ? STATUS_OK : status_errno(ENOMEM, "generate");
}

Status generator_new(Exec *exec, bool is_windowed, Generator **out) {
  Generator *generator = calloc(1, sizeof *generator);
  if (!generator) return status_errno(ENOMEM, "generate");
  Status status = generator_make(generator, exec, is_windowed);
  if (status != STATUS_OK) {
    generator_free(generator);
    return status;
  }
  *out = generator;
  return STATUS_OK;
}

void generator_free(Generator *generator) {
  if (!generator) return;
  decoder_free(generator->decoder);
  for (int64_t i = 0; generator->text && i < generator->most; i++) free(generator->text[i].token);
  free(generator->text);
  free(generator->token);
  free(generator->score);
  free(generator->order);
  free(generator);
}

int64_t generator_most(const Generator *generator) { return generator->most; }
int64_t generator_count(const Generator *generator) { return generator->count; }
int64_t generator_vocabulary(const Generator *generator) { return generator->vocabulary; }

const int64_t *generator_text(const Generator *generator, int64_t text, int64_t *count) {
  *count = generator->text[text].count;
  return generator->text[text].token;
}

/* ── texts ────────────────────────────────────────────────────────────────────────────────── */
void generator_clear(Generator *generator, bool is_same) {
  generator->is_same = is_same && generator->count;
  generator->count = generator->scored = 0;
  if (!generator->is_same) decoder_restart(generator->decoder, 0);
}

void generator_forget(Generator *generator) {
  generator->scored = 0;
  decoder_restart(generator->decoder, 0);
}

static Status generator_reserve(int64_t **token, int64_t *room, int64_t count) {
  if (count <= *room) return STATUS_OK;
  int64_t more = 2 * count + 64;
  int64_t *grown = realloc(*token, sizeof **token * (size_t)more);
  if (!grown) return status_errno(ENOMEM, "generate");
  *token = grown;
  *room = more;
  return STATUS_OK;
}

static Status generator_add(Generator *generator, GeneratorText *text, int64_t token) {
  if (token < 0 || token >= generator->vocabulary)
    return status_fail(STATUS_USER, "%lld is no token; the model has %lld", (long long)token,
                       (long long)generator->vocabulary);
  STATUS_TRY(generator_reserve(&text->token, &text->room, text->count + 1));
  text->token[text->count++] = token;
  return STATUS_OK;
}

/* How much of a prompt is where a text of before had the same. */
static int64_t shared(const GeneratorText *before, const int64_t *prompt, int64_t count) {
  int64_t same = 0;
  while (same < count && same < before->count && before->token[same] == prompt[same]) same++;
  return same;
}

Status generator_begin(Generator *generator, const int64_t *prompt, int64_t count, uint64_t seed) {
  if (generator->count == generator->most)
    return status_fail(STATUS_USER,
                       "no more than %lld texts at once: compile with --set generate.batch=%lld",
                       (long long)generator->most, (long long)generator->most + 1);
  if (count < 1) return status_fail(STATUS_USER, "there is nothing to go on with");
  GeneratorText *text = &generator->text[generator->count];
  int64_t same = generator->is_same ? shared(text, prompt, count) : 0;
  if (!generator->count || same < generator->same) generator->same = same;
  generator->scored = 0;
  text->count = 0;
  text->seed = seed;
  text->has_ended = false;
  for (int64_t i = 0; i < count; i++) STATUS_TRY(generator_add(generator, text, prompt[i]));
  generator->count++;
  if (generator->is_same) decoder_restart(generator->decoder, generator->same);
  return STATUS_OK;
}

Status generator_append(Generator *generator, int64_t text, int64_t token) {
  return generator_add(generator, &generator->text[text], token);
}

void generator_end(Generator *generator, int64_t text) { generator->text[text].has_ended = true; }

/* ── the loop ─────────────────────────────────────────────────────────────────────────────── */
/* The length of the shortest text that goes on; 0: none does. */
static int64_t shortest(const Generator *generator) {
  int64_t least = 0;
  for (int64_t i = 0; i < generator->count; i++) {
    const GeneratorText *text = &generator->text[i];
    if (!text->has_ended && (!least || text->count < least)) least = text->count;
  }
  return least;
}

/* A text that has ended goes on with zeros, which are never shown. */
static Status generator_pad(GeneratorText *text, int64_t length) {
  STATUS_TRY(generator_reserve(&text->token, &text->room, length));
  memset(text->token + text->count, 0, sizeof *text->token * (size_t)(length - text->count));
  return STATUS_OK;
}

static Status score_at(Generator *generator, int64_t length) {
  if (generator->scored == length) return STATUS_OK;
  for (int64_t i = 0; i < generator->count; i++) {
    GeneratorText *text = &generator->text[i];
    if (text->count < length) STATUS_TRY(generator_pad(text, length));
    generator->token[i] = text->token;
  }
  generator->scored = 0;
  STATUS_TRY(decoder_scores(generator->decoder, generator->token, generator->count, length,
                            generator->score));
  generator->scored = length;
  return STATUS_OK;
}

Status generator_scores(Generator *generator, const float **score) {
  int64_t length = shortest(generator);
  if (!length) return status_fail(STATUS_USER, "there is no text to go on with");
  STATUS_TRY(score_at(generator, length));
  int64_t which = 0;
  while (generator->text[which].has_ended || generator->text[which].count != length) which++;
  *score = generator->score + which * generator->vocabulary;
  return STATUS_OK;
}

Status generator_next(Generator *generator, const SampleOptions *sample, int64_t *drawn) {
  int64_t length = shortest(generator);
  *drawn = 0;
  if (!length) return STATUS_OK;
  STATUS_TRY(score_at(generator, length));
  for (int64_t i = 0; i < generator->count; i++) {
    GeneratorText *text = &generator->text[i];
    if (text->has_ended || text->count != length) continue;
    int64_t token =
        sample_draw(sample, generator->score + i * generator->vocabulary, generator->vocabulary,
                    sample_uniform(text->seed, (uint64_t)length), generator->order);
    if (token < 0) return status_fail(STATUS_USER, "all scores of the next token are NaN");
    STATUS_TRY(generator_add(generator, text, token));
    ++*drawn;
  }
  return STATUS_OK;
}
