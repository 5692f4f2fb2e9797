/* ftrun_shrink: see ftrun_shrink.h. ftc knows the graph and ftrun the weights: it tells ftc where they are 0, by a file without
 * a name, and takes out of them what ftc says. */
#define _GNU_SOURCE /* memfd_create */
#include "tools/ftrun_shrink.h"
#include "base/say.h"
#include "runtime/command/shrink.h"
#include "tools/ftrun_compile.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int report_shrink(Status status) {
  if (status != STATUS_OK) say_error("%s", status_message());
  return status;
}

/* The answer of ftc. */
static int ask_compiler(const ShrinkOptions *options, const Text *zeros, Text *answer) {
  int fd = memfd_create("zeros", 0);
  char path[64];
  const char **pass = calloc((size_t)options->pass_count + 4, sizeof *pass);
  if (fd < 0 || !pass || text_write_all(fd, text_cstr(zeros), zeros->count)) {
    free(pass);
    if (fd >= 0) close(fd);
    return say_error("out of memory"), 3;
  }
  snprintf(path, sizeof path, "/dev/fd/%d", fd);
  int count = 0;
  for (; count < options->pass_count; count++) pass[count] = options->pass[count];
  pass[count++] = "--shrink";
  pass[count++] = path;
  int code = compile_and_read(&(Compilation){.source = options->source,
                                             .artifact = options->output,
                                             .places = options->places,
                                             .pass = pass,
                                             .pass_count = count},
                              answer);
  free(pass);
  close(fd);
  return code;
}

static void print_answer(const char *answer, const char *output) {
  char *copy = strdup(answer), *rest = NULL;
  bool has_widths = false;
  for (char *line = copy ? strtok_r(copy, "\n", &rest) : NULL; line; line = strtok_r(NULL, "\n", &rest)) {
    char *words = NULL, *kind = strtok_r(line, " ", &words), *layer = strtok_r(NULL, " ", &words);
    if (!kind || !layer) continue;
    if (strcmp(kind, "width") == 0) {
      char *before = strtok_r(NULL, " ", &words), *after = strtok_r(NULL, " ", &words);
      if (!has_widths) printf("%-40s  %8s  %8s\n", "layer", "outputs", "left");
      has_widths = true;
      printf("%-40s  %8s  %8s\n", layer, before ? before : "", after ? after : "");
    } else if (strcmp(kind, "round") == 0) {
      printf("%-40s  left out\n", layer);
    } else if (strcmp(kind, "prune") == 0) {
      say_note("%s prunes by %s, as much again of what is left: to train it as it is, --set train.prune=none", output, layer);
    } else if (strcmp(kind, "rounded") == 0 && strstr(answer, "flops ")) {
      say_note("layers that are rounded, as '%s', may keep channels that are 0: shrink the network first, then quantise it", layer);
    } else if (strcmp(kind, "held") == 0) {
      say_note("%s keeps channels that are 0: %s", layer, words);
    }
  }
  free(copy);
}

static void print_shrink_sums(const ShrinkOptions *options, const char *answer, const char *weights, ShrinkCount count) {
  long long before = 0, after = 0;
  const char *flops = strstr(answer, "flops ");
  if (flops && sscanf(flops, "flops %lld %lld", &before, &after) == 2 && before)
    printf("operations of a batch, forward: %lld to %lld, %.1f %% less\n", before, after,
           100 * (1 - (double)after / (double)before));
  printf("parameters: %lld to %lld, %.1f %% less\n", (long long)count.before, (long long)count.after,
         100 * (1 - (double)count.after / (double)(count.before ? count.before : 1)));
  printf("%s, %s\n", options->output, weights);
}

static int shrink_with(const ShrinkOptions *options, const WeightFiles *weights, const char *output) {
  Text zeros = {0}, answer = {0};
  for (int i = 0; i < options->stay_count; i++) text_printf(&zeros, "stay %s\n", options->stay[i]);
  Text tensors = {0};
  shrink_zeros(weights, &tensors);
  text_append(&tensors, text_cstr(&zeros), zeros.count); /* --stay is of tensors that are known */
  int code = ask_compiler(options, &tensors, &answer);
  if (code == 0) print_answer(text_cstr(&answer), options->output);
  const char *rounded = strstr(text_cstr(&answer), "rounded ");
  if (code == 0 && rounded && !strstr(text_cstr(&answer), "flops ")) {
    rounded += strlen("rounded ");
    say_error("nothing of %s can go: layers are rounded, as '%.*s', and the scales of their weights could be others without the channels that are 0; "
              "shrink the network first (ftrun shrink), then quantise it (ftrun quantize)",
              options->source, (int)strcspn(rounded, "\n"), rounded);
    code = 1;
  } else if (code == 0 && !strstr(text_cstr(&answer), "flops ")) {
    say_error("nothing of %s can go: it has no channel, hidden unit, head or round of a repeat whose weights are all 0 and that nothing else needs; "
              "train with prune = magnitude(structure=channel), head or layer (docs/language.md, Pruning)",
              options->source);
    code = 1;
  }
  ShrinkCount count;
  if (code == 0) {
    code = report_shrink(shrink_weights(weights, text_cstr(&answer), output, &count));
    if (code) unlink(options->output); /* one does not go without the other */
  }
  if (code == 0) print_shrink_sums(options, text_cstr(&answer), output, count);
  text_free(&zeros);
  text_free(&tensors);
  text_free(&answer);
  return code;
}

int shrink_run(const ShrinkOptions *options) {
  WeightFiles weights;
  Text output = {0};
  int code = report_shrink(weight_files_open(&options->weights, 1, NULL, 0, &weights));
  text_append(&output, options->output, strlen(options->output) - 3);
  text_printf(&output, ".safetensors");
  for (int i = 0; code == 0 && i < weights.all.tensor_count; i++)
    if (text_same_file(text_cstr(&output), weights.path[i])) {
      say_error("%s would be written over: give another -o", weights.path[i]);
      code = 1;
    }
  if (code == 0) code = shrink_with(options, &weights, text_cstr(&output));
  weight_files_close(&weights);
  text_free(&output);
  return code;
}
