/* tokenize: see tokenize.h. */
#include "runtime/command/tokenize.h"
#include "base/text.h"
#include "runtime/text/bpe.h"
#include "runtime/data/jsonl.h"
#include "runtime/data/tokens.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  const TokenizeOptions *options;
  Bpe *bpe;
  int bytes; /* of a token */
  Text part; /* the file beside the one wanted, until it is whole */
  int file;  /* -1: not open */
  int64_t written;
} Tokenize;

static Status add_text(Tokenize *t, const char *path, BpeTokens *out) {
  Text text = {0};
  int64_t start = bpe_end_of_text(t->bpe);
  if (t->options->output && start >= 0) STATUS_TRY(bpe_encode(t->bpe, "<|endoftext|>", 13, out));
  int error = text_read_file(&text, path);
  Status status = error ? status_errno(error, "%s", path)
                        : bpe_encode(t->bpe, text_cstr(&text), text.count, out);
  text_free(&text);
  return status;
}

/* As jsonl(...) reads them. */
static Status add_jsonl(Tokenize *t, const char *path, BpeTokens *out) {
  DataOption option = {.name = "text", .text = t->options->member};
  DataSource data = {.kind = "jsonl", .options = &option, .option_count = 1};
  JsonlForm form;
  JsonlTexts texts = {0};
  STATUS_TRY(jsonl_form(&data, NULL, &form));
  form.tokenizer = t->bpe;
  form.end = t->options->output ? bpe_end_of_text(t->bpe) : -1;
  form.element = ELEMENT_U32;
  Status status = jsonl_add_file(&form, path, &texts);
  if (status == STATUS_OK) out->at = calloc(texts.count + 1, sizeof *out->at);
  if (status == STATUS_OK && !out->at) status = status_errno(ENOMEM, "%s", path);
  out->count = status == STATUS_OK ? texts.count : 0;
  for (size_t i = 0; i < out->count; i++) out->at[i] = ((uint32_t *)texts.tokens)[i];
  jsonl_free(&texts);
  return status;
}

static Status write_bytes(Tokenize *t, const void *bytes, size_t count) {
  int error = text_write_all(t->file, bytes, count);
  return error ? status_errno(error, "%s", text_cstr(&t->part)) : STATUS_OK;
}

static Status write_tokens(Tokenize *t, const BpeTokens *tokens) {
  uint8_t buffer[1 << 14];
  size_t filled = 0;
  for (size_t i = 0; i < tokens->count; i++) {
    for (int k = 0; k < t->bytes; k++) buffer[filled++] = (uint8_t)(tokens->at[i] >> 8 * k);
    if (filled == sizeof buffer || i + 1 == tokens->count) {
      STATUS_TRY(write_bytes(t, buffer, filled));
      filled = 0;
    }
  }
  t->written += (int64_t)tokens->count;
  return STATUS_OK;
}

static Status open_output(Tokenize *t) {
  uint8_t head[TOKENS_HEADER] = {0};
  int error = text_open_beside(t->options->output, &t->part, &t->file);
  if (error) return status_errno(error, "cannot write %s", t->options->output);
  return t->options->no_header ? STATUS_OK : write_bytes(t, head, sizeof head);
}

static Status close_output(Tokenize *t) {
  uint8_t head[TOKENS_HEADER] = {0};
  if (!t->options->no_header && t->written > INT32_MAX)
    return status_fail(STATUS_USER, "%lld tokens are more than a header can tell: use --no-header",
                       (long long)t->written);
  tokens_header(t->bytes, (uint32_t)t->written, head);
  if (!t->options->no_header && lseek(t->file, 0, SEEK_SET) == 0)
    STATUS_TRY(write_bytes(t, head, sizeof head));
  int file = t->file;
  t->file = -1;
  int error = close(file) ? errno : 0;
  if (!error && rename(text_cstr(&t->part), t->options->output)) error = errno;
  if (error) unlink(text_cstr(&t->part));
  return error ? status_errno(error, "%s", t->options->output) : STATUS_OK;
}

static void print_tokens(const BpeTokens *tokens) {
  for (size_t i = 0; i < tokens->count; i++)
    printf("%s%lld", i ? " " : "", (long long)tokens->at[i]);
  putchar('\n');
}

static Status tokenize(Tokenize *t) {
  const TokenizeOptions *options = t->options;
  STATUS_TRY(bpe_open(options->tokenizer, &t->bpe));
  t->bytes = bpe_count(t->bpe) <= 1 << 16 ? 2 : 4;
  if (options->output) STATUS_TRY(open_output(t));
  for (int i = 0; i < options->text_count; i++) {
    BpeTokens tokens = {0};
    Status status = options->member ? add_jsonl(t, options->texts[i], &tokens)
                                    : add_text(t, options->texts[i], &tokens);
    if (status == STATUS_OK && options->output) status = write_tokens(t, &tokens);
    if (status == STATUS_OK && !options->output) print_tokens(&tokens);
    free(tokens.at);
    STATUS_TRY(status);
  }
  if (!options->output) return STATUS_OK;
  STATUS_TRY(close_output(t));
  printf("%lld tokens (%s) written to %s\n", (long long)t->written, t->bytes == 2 ? "u16" : "u32",
         options->output);
  return STATUS_OK;
}

Status tokenize_run(const TokenizeOptions *options) {
  Tokenize t = {.options = options, .file = -1};
  Status status = tokenize(&t);
  if (t.file >= 0) {
    close(t.file);
    unlink(text_cstr(&t.part));
  }
  text_free(&t.part);
  bpe_free(t.bpe);
  return status;
}
