/* ftopt: runs passes over graphs in text form and prints the result: how passes are tested, and how
 * a reproducer that a failing pass left is looked into. Flags here, work in passes/. */
#include "base/output.h"
#include "base/text.h"
#include "passes/pass.h"
#include "passes/probe.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_USER = 1, EXIT_USAGE = 2, EXIT_MACHINE = 3, MAX_GRAPHS = 16 };

static const char ftopt_usage[] =
    "usage: ftopt IN.ftir [--passes=a,b,...] [options]     (IN.ftir may be -, standard input)\n"
    "  --passes=LIST     run these passes, in this order, verifying before and after each\n"
    "  --interp          evaluate the result on made-up leaf values and print the roots\n"
    "  --all-values      with --interp: leaves as well, every value, all digits\n"
    "  --steps=N         with --interp: N steps, one after the other; states go on (default 1)\n"
    "  --seed=N          of those values (default 0)\n"
    "  --eval            treat the graphs as evaluation graphs (those named 'eval' are anyway)\n"
    "  --micro           treat them as those of a part of a batch (train.accumulate)\n"
    "  --gpu             compile for PTX instead of the CPU\n"
    "  --set KEY=VALUE   a setting that passes read, such as train.optimizer=adamw\n"
    "  --dot             print the result as a Graphviz graph\n"
    "  --list-passes     print the pipeline, one pass a line, and stop\n";

typedef struct {
  const char *path, *passes;
  bool interp, all_values, eval, micro, gpu, dot;
  uint64_t seed, steps;
} Flags;

static int ftopt_usage_error(const char *format, const char *what) {
  fprintf(stderr, "ftopt: ");
  fprintf(stderr, format, what);
  fprintf(stderr, "\n%s", ftopt_usage);
  return EXIT_USAGE;
}

static int list_passes(void) {
  for (int i = 0; i < pass_count; i++)
    printf("%-10s %-9s -> %-9s  %s\n", pass_info[i].name, stage_text[pass_info[i].before],
           stage_text[pass_info[i].after], pass_info[i].contract);
  return EXIT_SUCCESS;
}

static int apply_setting(Arena *arena, SettingValue *settings, const char *flag) {
  const char *equal = strchr(flag, '=');
  if (!equal) return ftopt_usage_error("--set needs KEY=VALUE, not '%s'", flag);
  char *key = arena_strndup(arena, flag, (size_t)(equal - flag));
  int index = setting_find(key);
  if (index < 0) {
    const char *nearest = setting_nearest(key);
    fprintf(stderr, "ftopt: there is no setting '%s'", key);
    fprintf(stderr, nearest ? "; did you mean '%s'?\n" : "\n", nearest);
    return EXIT_USER;
  }
  const char *why = NULL;
  if (setting_set(arena, settings, index, equal + 1, &why)) return EXIT_SUCCESS;
  fprintf(stderr, "ftopt: %s: %s\n", key, why);
  return EXIT_USER;
}

static const char *flag_value(const char *argument, const char *flag) {
  size_t length = strlen(flag);
  return strncmp(argument, flag, length) == 0 ? argument + length : NULL;
}

static bool parse_number(const char *text, uint64_t *out) {
  char *end;
  errno = 0;
  *out = strtoull(text, &end, 10);
  return *text >= '0' && *text <= '9' && !*end && !errno;
}

static int parse_flags(Arena *arena, int count, char **arguments, Flags *flags,
                       SettingValue *settings) {
  for (int i = 1; i < count; i++) {
    const char *argument = arguments[i], *value;
    if ((value = flag_value(argument, "--passes="))) {
      flags->passes = value;
    } else if ((value = flag_value(argument, "--seed="))) {
      if (!parse_number(value, &flags->seed))
        return ftopt_usage_error("--seed: '%s' is no number", value);
    } else if ((value = flag_value(argument, "--steps="))) {
      if (!parse_number(value, &flags->steps))
        return ftopt_usage_error("--steps: '%s' is no number", value);
    } else if (strcmp(argument, "--all-values") == 0) {
      flags->all_values = true;
    } else if ((value = flag_value(argument, "--set="))) {
      int error = apply_setting(arena, settings, value);
      if (error) return error;
    } else if (strcmp(argument, "--set") == 0) {
      if (++i == count) return ftopt_usage_error("%s needs KEY=VALUE", argument);
      int error = apply_setting(arena, settings, arguments[i]);
      if (error) return error;
    } else if (strcmp(argument, "--interp") == 0) {
      flags->interp = true;
    } else if (strcmp(argument, "--eval") == 0) {
      flags->eval = true;
    } else if (strcmp(argument, "--micro") == 0) {
      flags->micro = true;
    } else if (strcmp(argument, "--gpu") == 0) {
      flags->gpu = true;
    } else if (strcmp(argument, "--dot") == 0) {
      flags->dot = true;
    } else if (strcmp(argument, "--verify-each") == 0) { /* always so */
    } else if (argument[0] == '-' && argument[1]) {
      return ftopt_usage_error("unknown flag '%s'", argument);
    } else if (flags->path) {
      return ftopt_usage_error("one input only; '%s' is a second", argument);
    } else {
      flags->path = argument;
    }
  }
  return flags->path ? EXIT_SUCCESS : ftopt_usage_error("no input%s", "");
}

static int ftopt_read_input(const char *path, Text *out) {
  if (strcmp(path, "-") != 0) return text_read_file(out, path);
  char buffer[65536];
  size_t got;
  while ((got = fread(buffer, 1, sizeof buffer, stdin)) > 0) text_append(out, buffer, got);
  return ferror(stdin) ? EIO : 0;
}

static bool interpret(const Flags *flags, PassContext *context, Graph *graph) {
  Probe probe = {context->arena, graph, context->settings, flags->seed, NULL};
  for (uint64_t i = 0; i < flags->steps; i++) {
    Tensor **values = probe_run(&probe, context->diag);
    if (!values) return false;
    if (flags->all_values)
      probe_print_all(&probe, values, stdout);
    else
      probe_print(graph, values, stdout);
    probe.values = values;
  }
  return true;
}

static bool process(const Flags *flags, PassContext *context, Graph *graph) {
  context->of = pass_graph_named(graph->name, flags->eval ? PASS_OF_EVAL : PASS_OF_TRAIN);
  if (flags->micro) context->of = PASS_OF_MICRO;
  if (flags->eval && pass_trains(context)) context->of = PASS_OF_EVAL;
  if (flags->passes) graph = passes_run_named(context, graph, flags->passes);
  if (!graph) return false;
  if (flags->dot) {
    graph_print_dot(graph, stdout);
    return true;
  }
  if (!flags->interp) {
    graph_print(graph, stdout);
    return true;
  }
  return interpret(flags, context, graph);
}

static int ftopt_run(Arena *arena, const Flags *flags, SettingValue *settings) {
  Diag diag;
  Text input = {0};
  diag_init(&diag, arena, stderr);
  int error = ftopt_read_input(flags->path, &input);
  if (error) {
    fprintf(stderr, "ftopt: cannot read '%s': %s\n", flags->path, text_error(error));
    text_free(&input);
    return text_is_fault(error) ? EXIT_MACHINE : EXIT_USER;
  }
  char *text = arena_strndup(arena, text_cstr(&input), input.count);
  text_free(&input);
  Graph *graphs[MAX_GRAPHS];
  int count = graph_parse(arena, &diag, flags->path, text, graphs, MAX_GRAPHS);
  PassContext context = {arena, &diag, settings, true, flags->gpu};
  bool ok = count >= 0;
  for (int i = 0; ok && i < count; i++) ok = process(flags, &context, graphs[i]);
  if (diag.is_fault) return EXIT_MACHINE;
  return ok && diag.errors == 0 ? EXIT_SUCCESS : EXIT_USER;
}

static int ftopt_start(int count, char **arguments) {
  for (int i = 1; i < count; i++) {
    if (strcmp(arguments[i], "--list-passes") == 0) return list_passes();
    if (strcmp(arguments[i], "--help") == 0) {
      fputs(ftopt_usage, stdout);
      return EXIT_SUCCESS;
    }
  }
  Arena *arena = arena_new();
  SettingValue *settings = settings_new(arena);
  Flags flags = {.steps = 1};
  int result = parse_flags(arena, count, arguments, &flags, settings);
  if (result == EXIT_SUCCESS) result = ftopt_run(arena, &flags, settings);
  arena_free(arena);
  return result;
}

int main(int count, char **arguments) {
  output_start();
  return output_end("ftopt", ftopt_start(count, arguments));
}
