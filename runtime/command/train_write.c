/* train_write: train.log.prompt, a text that the model goes on with at evaluations (declared in train_state.h): on the
 * console, in the file of JSON lines as {"step": …, "generated": "…"}, and in TensorBoard's texts. The same draws every time, so
 * that what changes is the model. The training itself is the same to the bit. */
#include "runtime/command/events.h"
#include "runtime/command/generator.h"
#include "runtime/command/train_state.h"
#include "runtime/data/source_text.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct TrainWriter {
  Generator *generator;
  Bpe *bpe; /* NULL: tokens are bytes */
  BpeTokens prompt;
  int64_t most; /* tokens to draw */
} TrainWriter;

/* Ranks share an evaluation's batch, and some hold parts of the weights only. */
static bool writes_text(const Training *training) {
  return train_text(training, "train.log.prompt")[0] && training->ranks.place.ranks == 1 &&
         !training->options->dry_run;
}

Status train_write_programmes(const Training *training, const char ***only) {
  *only = NULL;
  if (!writes_text(training)) return STATUS_OK;
  const Plan *plan = training->plan;
  STATUS_TRY(status_prefix(decoder_check(plan), "train.log.prompt"));
  if (strcmp(decoder_programme(plan, false), PROGRAMME_GENERATE) != 0) return STATUS_OK;
  const char **names = calloc((size_t)plan->programmes.count + 1, sizeof *names);
  if (!names) return status_errno(ENOMEM, "train.log.prompt");
  for (int i = 0; i < plan->programmes.count; i++) names[i] = plan->programmes.at[i].name;
  *only = names;
  return STATUS_OK;
}

/* ── the prompt ───────────────────────────────────────────────────────────────────────────── */
static Status open_tokenizer(const Training *training, TrainWriter *writer) {
  const char *path = train_text(training, "train.log.tokenizer");
  const DataSource *data = source_find_split(training->plan, "train");
  const SourcePlaces *places = &training->options->run.places;
  int64_t vocabulary = generator_vocabulary(writer->generator);
  if (path[0]) {
    char *found;
    STATUS_TRY(status_prefix(source_find_file(training->plan, places, path, &found),
                             "train.log.tokenizer"));
    Status status = status_prefix(bpe_open(found, &writer->bpe), "train.log.tokenizer");
    free(found);
    STATUS_TRY(status);
  } else {
    STATUS_TRY(source_text_tokenizer(training->plan, data, places, &writer->bpe));
  }
  if (writer->bpe && bpe_count(writer->bpe) > vocabulary)
    return status_fail(STATUS_USER,
                       "train.log.prompt: its tokenizer has %lld tokens, more than the model, "
                       "which has %lld",
                       (long long)bpe_count(writer->bpe), (long long)vocabulary);
  if (!writer->bpe && !train_tokens_are_bytes(data) && vocabulary != 256)
    return status_fail(STATUS_USER,
                       "train.log.prompt is text, and this model has %lld tokens: name its "
                       "vocabulary with tokenizer = \"FOLDER\" beside it",
                       (long long)vocabulary);
  return STATUS_OK;
}

static Status read_log_prompt(const Training *training, TrainWriter *writer) {
  const char *text = train_text(training, "train.log.prompt");
  int64_t vocabulary = generator_vocabulary(writer->generator);
  writer->most = (int64_t)train_number(training, "train.log.prompt_tokens");
  if (writer->bpe)
    STATUS_TRY(status_prefix(bpe_encode(writer->bpe, text, strlen(text), &writer->prompt),
                             "train.log.prompt"));
  for (const char *at = text; !writer->bpe && *at; at++)
    STATUS_TRY(bpe_tokens_add(&writer->prompt, (uint8_t)*at));
  for (size_t i = 0; i < writer->prompt.count; i++)
    if (writer->prompt.at[i] >= vocabulary)
      return status_fail(STATUS_USER, "train.log.prompt: %lld is no token; the model has %lld",
                         (long long)writer->prompt.at[i], (long long)vocabulary);
  return STATUS_OK;
}

Status train_write_start(Training *training) {
  if (train_text(training, "train.log.prompt")[0] && training->ranks.place.ranks > 1 &&
      training->writes)
    log_warn(training->log, "train.log.prompt: on several ranks no text is generated");
  if (!writes_text(training)) return STATUS_OK;
  TrainWriter *writer = calloc(1, sizeof *writer);
  if (!writer) return status_errno(ENOMEM, "train.log.prompt");
  training->text = writer;
  STATUS_TRY(generator_new(training->exec, false, &writer->generator));
  STATUS_TRY(open_tokenizer(training, writer));
  STATUS_TRY(read_log_prompt(training, writer));
  if (training->plan->decode_refused)
    log_say(training->log,
            "prompt: no key/value cache, so each token takes an evaluation of a whole window: %s",
            training->plan->decode_refused);
  return STATUS_OK;
}

void train_write_free(TrainWriter *writer) {
  if (!writer) return;
  generator_free(writer->generator);
  bpe_free(writer->bpe);
  free(writer->prompt.at);
  free(writer);
}

/* ── going on with it ─────────────────────────────────────────────────────────────────────── */
static Status draw_tokens(Training *training, int64_t *count) {
  TrainWriter *writer = training->text;
  SampleOptions sample = {.temperature = train_number(training, "train.log.temperature"), .top_p = 1};
  int64_t end = writer->bpe ? bpe_end_of_text(writer->bpe) : -1, drawn = 1;
  generator_clear(writer->generator, false);
  generator_forget(writer->generator);
  STATUS_TRY(generator_begin(writer->generator, writer->prompt.at, (int64_t)writer->prompt.count,
                             training->seed));
  for (int64_t made = 0; made < writer->most && drawn; made++) {
    STATUS_TRY(generator_next(writer->generator, &sample, &drawn));
    const int64_t *text = generator_text(writer->generator, 0, count);
    if (text[*count - 1] == end) break;
  }
  return exec_sync(training->exec);
}

static void append_written(const TrainWriter *writer, const int64_t *token, int64_t count, Text *out) {
  for (int64_t i = 0; i < count; i++) {
    size_t bytes = 1;
    char byte = (char)token[i];
    const char *at = writer->bpe ? bpe_bytes(writer->bpe, token[i], &bytes) : &byte;
    if (at) text_append(out, at, bytes);
  }
}

static Status tell_text(Training *training, int64_t step, const Text *plain) {
  Text line = {0}, sound = {0}, paragraph = {0};
  Events *events = log_events(training->log);
  train_append_text(&line, plain->at, plain->count, TRAIN_TEXT_LINE);
  train_append_text(&sound, plain->at, plain->count, TRAIN_TEXT_SOUND);
  train_append_text(&paragraph, plain->at, plain->count, TRAIN_TEXT_PARAGRAPH);
  log_say(training->log, "step %lld writes: %s", (long long)step, text_cstr(&line));
  log_event(training->log, step, "generated", text_cstr(&sound));
  Status status = events ? events_text(events, step, "generated", &paragraph) : STATUS_OK;
  if (status == STATUS_OK && events) status = events_flush(events);
  text_free(&line);
  text_free(&sound);
  text_free(&paragraph);
  return status;
}

Status train_write(Training *training, int64_t step) {
  int64_t count = 0;
  Text plain = {0};
  if (!training->text) return STATUS_OK;
  Status drawn = status_prefix(draw_tokens(training, &count), "train.log.prompt");
  if (drawn == STATUS_USER) log_warn(training->log, "%s", status_message()); /* NaN, with --keep-going */
  if (drawn != STATUS_OK) return drawn == STATUS_USER ? STATUS_OK : drawn;
  append_written(training->text, generator_text(training->text->generator, 0, &count), count, &plain);
  Status status = tell_text(training, step, &plain);
  text_free(&plain);
  return status;
}
