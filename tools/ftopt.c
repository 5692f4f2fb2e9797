/* ftopt: runs passes over graphs in text form and prints the result: how passes are tested, and how
 * a reproducer that a failing pass left is looked into. Flags here, work in passes/. */
#include "base/output.h"
#include "base/text.h"
#include "passes/pass.h"
#include "passes/probe.h"
#include "tools/ftopt_flags.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_USER = 1, EXIT_MACHINE = 3, MAX_GRAPHS = 16 };

typedef struct {
  const char *path, *passes, *sparse;
  bool interp, all_values, eval, micro, gpu, along_k, dot;
  uint64_t seed, steps;
} Options;

static int list_passes(void) {
  for (int i = 0; i < pass_count; i++)
    printf("%-10s %-9s -> %-9s  %s\n", pass_info[i].name, stage_text[pass_info[i].before],
           stage_text[pass_info[i].after], pass_info[i].contract);
  return EXIT_SUCCESS;
}

static int apply_setting(Arena *arena, SettingValue *settings, const char *flag) {
  const char *equal = strchr(flag, '=');
  if (!equal) return flags_fail(&ftopt_line, -1, "--set needs KEY=VALUE, not '%s'", flag);
  char *key = arena_strndup(arena, flag, (size_t)(equal - flag));
  int index = setting_find(key);
  if (index < 0) {
    char hint[200];
    setting_hint(key, hint, sizeof hint);
    fprintf(stderr, "ftopt: there is no setting '%s'%s\n", key, hint);
    return EXIT_USER;
  }
  const char *why = NULL;
  if (setting_set(arena, settings, index, equal + 1, &why)) return EXIT_SUCCESS;
  fprintf(stderr, "ftopt: %s: %s\n", key, why);
  return EXIT_USER;
}

static bool parse_number(const char *text, uint64_t *out) {
  char *end;
  errno = 0;
  *out = strtoull(text, &end, 10);
  return *text >= '0' && *text <= '9' && !*end && !errno;
}

static int option_number(const char *name, const char *value, uint64_t *out) {
  return parse_number(value, out)
             ? EXIT_SUCCESS
             : flags_fail(&ftopt_line, -1, "%s: '%s' is no number", name, value);
}

static int take_option(Arena *arena, Options *options, SettingValue *settings, const char *name,
                       const char *value) {
  const struct {
    const char *name;
    bool *at;
  } switches[] = {{"--all-values", &options->all_values},
                  {"--interp", &options->interp},
                  {"--eval", &options->eval},
                  {"--micro", &options->micro},
                  {"--gpu", &options->gpu},
                  {"--along-k", &options->along_k},
                  {"--dot", &options->dot}};
  for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
    if (!strcmp(switches[i].name, name)) *switches[i].at = true;
  if (!strcmp(name, "--passes")) options->passes = value;
  if (!strcmp(name, "--sparse")) options->sparse = value;
  if (!strcmp(name, "--seed")) return option_number(name, value, &options->seed);
  if (!strcmp(name, "--steps")) return option_number(name, value, &options->steps);
  if (!strcmp(name, "--set")) return apply_setting(arena, settings, value);
  return EXIT_SUCCESS;
}

static int parse_options(Arena *arena, int count, char **arguments, Options *options,
                         SettingValue *settings) {
  for (int i = 1; i < count; i++) {
    const Flag *flag;
    const char *value;
    int64_t number;
    if (arguments[i][0] == '-' && arguments[i][1]) {
      int error = flags_parse(&ftopt_line, 0, count, arguments, &i, &flag, &value, &number);
      if (!error) error = take_option(arena, options, settings, flag->name, value);
      if (error) return error;
    } else if (options->path) {
      return flags_fail(&ftopt_line, -1, "one input only; '%s' is a second", arguments[i]);
    } else {
      options->path = arguments[i];
    }
  }
  return options->path ? EXIT_SUCCESS : flags_fail(&ftopt_line, -1, "no input");
}

static int ftopt_read_input(const char *path, Text *out) {
  if (strcmp(path, "-") != 0) return text_read_file(out, path);
  char buffer[65536];
  size_t got;
  while ((got = fread(buffer, 1, sizeof buffer, stdin)) > 0) text_append(out, buffer, got);
  return ferror(stdin) ? EIO : 0;
}

static bool interpret(const Options *options, PassContext *context, Graph *graph) {
  Probe probe = {context->arena, graph, context->settings, options->seed, NULL};
  for (uint64_t i = 0; i < options->steps; i++) {
    Tensor **values = probe_run(&probe, context->diag);
    if (!values) return false;
    if (options->all_values)
      probe_print_all(&probe, values, stdout);
    else
      probe_print(graph, values, stdout);
    probe.values = values;
  }
  return true;
}

static bool process(const Options *options, PassContext *context, Graph *graph) {
  context->of = pass_graph_named(graph->name, options->eval ? PASS_OF_EVAL : PASS_OF_TRAIN);
  if (options->micro) context->of = PASS_OF_MICRO;
  if (options->eval && pass_trains(context)) context->of = PASS_OF_EVAL;
  if (options->passes) graph = passes_run_named(context, graph, options->passes);
  if (!graph) return false;
  if (options->dot) {
    graph_print_dot(graph, stdout);
    return true;
  }
  if (!options->interp) {
    graph_print(graph, stdout);
    return true;
  }
  return interpret(options, context, graph);
}

static int ftopt_run(Arena *arena, const Options *options, SettingValue *settings) {
  Diag diag;
  Text input = {0};
  diag_init(&diag, arena, stderr);
  if (text_ends_with(options->path, ".ft")) {
    fprintf(stderr,
            "ftopt: %s is a program; ftopt reads graphs, and `ftc %s --emit=ir` prints a "
            "program's\n",
            options->path, options->path);
    return EXIT_USER;
  }
  int error = ftopt_read_input(options->path, &input);
  if (error) {
    fprintf(stderr, "ftopt: cannot read '%s': %s\n", options->path, text_error(error));
    text_free(&input);
    return text_is_fault(error) ? EXIT_MACHINE : EXIT_USER;
  }
  char *text = arena_strndup(arena, text_cstr(&input), input.count);
  text_free(&input);
  Graph *graphs[MAX_GRAPHS];
  int count = graph_parse(arena, &diag, options->path, text, graphs, MAX_GRAPHS);
  Float8Unit unit = !options->gpu ? FLOAT8_NONE : options->along_k ? FLOAT8_ALONG_K : FLOAT8_ANY_ORDER;
  PassContext context = {.arena = arena, .diag = &diag, .settings = settings, .of = PASS_OF_TRAIN,
                         .for_gpu = options->gpu, .multiplies_float8 = unit, .sparse = options->sparse};
  bool ok = count >= 0;
  for (int i = 0; ok && i < count; i++) ok = process(options, &context, graphs[i]);
  if (diag.is_fault) return EXIT_MACHINE;
  return ok && diag.errors == 0 ? EXIT_SUCCESS : EXIT_USER;
}

static int ftopt_start(int count, char **arguments) {
  int code;
  if (flags_help_asked(&ftopt_line, count, arguments, &code)) return code;
  for (int i = 1; i < count; i++)
    if (!strcmp(arguments[i], "--list-passes")) return list_passes();
  Arena *arena = arena_new();
  SettingValue *settings = settings_new(arena);
  Options options = {.steps = 1};
  int result = parse_options(arena, count, arguments, &options, settings);
  if (result == EXIT_SUCCESS) result = ftopt_run(arena, &options, settings);
  arena_free(arena);
  return result;
}

int main(int count, char **arguments) {
  output_start();
  return output_end("ftopt", ftopt_start(count, arguments));
}
