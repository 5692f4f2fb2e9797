/* pipe_program: a chain of transforms by standard input, for test/num/vision.py. Each line is
 *   SEED EPOCH SAMPLE HEIGHT WIDTH CHANNELS then NAME PARAMETER VALUE … then …
 * with every parameter, as a plan has it (plan/plan_chain.c), and the pixels follow it. The answer is "HEIGHT WIDTH
 * CHANNELS" and the pixels behind the chain, or "failed" with the sentence. */
#include "plan/plan_words.h"
#include "runtime/data/pipe.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void answer(const char *line, PipeWorker *worker) {
  PipeDraw draw;
  ImageLayout layout = {0};
  int length = 0;
  int got =
      sscanf(line, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %n",
             &draw.seed, &draw.epoch, &draw.sample, &layout.height, &layout.width, &layout.channels,
             &length);
  if (got != 6) exit(2);
  size_t count = (size_t)(layout.height * layout.width * layout.channels);
  uint8_t *pixels = malloc(count ? count : 1);
  if (!pixels || fread(pixels, 1, count, stdin) != count) exit(2);
  Arena *arena = arena_new();
  Words words = {.arena = arena, .at = line + length, .line = 1};
  DataSource source = {.split = "train"};
  if (!plan_read_chain(&words, &source) || !words_at_end(&words)) {
    printf("failed %s\n", words.why ? words.why : "words behind the chain");
  } else {
    Pipe pipe = pipe_of(&source, &layout);
    Status status = pipe_load(worker, &layout, pixels);
    if (status == STATUS_OK) status = pipe_run(&pipe, 0, pipe.count, worker, draw);
    layout.height = worker->now->height, layout.width = worker->now->width;
    pipe.layout = layout;
    size_t made = (size_t)(layout.height * layout.width * layout.channels);
    uint8_t *out = malloc(made ? made : 1);
    if (!out) exit(2);
    if (status == STATUS_OK) status = pipe_write(&pipe, worker, out);
    if (status == STATUS_OK) {
      printf("%" PRId64 " %" PRId64 " %" PRId64 "\n", layout.height, layout.width, layout.channels);
      fwrite(out, 1, made, stdout);
    } else {
      printf("failed %s\n", status_message());
    }
    free(out);
  }
  fflush(stdout);
  free(pixels);
  arena_free(arena);
}

int main(void) {
  static char line[1 << 13];
  PipeWorker worker;
  if (pipe_worker_new(&worker) != STATUS_OK) return 1;
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    answer(line, &worker);
  }
  pipe_worker_free(&worker);
  return 0;
}
