/* ftrun_tune: see ftrun_tune.h. The command line; the study itself is ftrun_study.c. */
#define _GNU_SOURCE
#include "tools/ftrun_tune.h"
#include "base/say.h"
#include "base/text.h"
#include "plan/plan.h"
#include "runtime/command/ranks.h"
#include "runtime/common/guard.h"
#include "tools/ftrun_compile.h"
#include "tools/ftrun_flags.h"
#include "tools/ftrun_study.h"
#include "tools/ftrun_tune_block.h"
#include "tools/number.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool tune_is_command(const char *name) {
  int command = flags_command(&ftrun_line, name);
  return command >= 0 && 1 << command == TUNE;
}

static int tune_wrong(const TuneOptions *o, const char *why, const char *what) {
  return flags_fail(&ftrun_line, o->command, why, what);
}

static int take_space(TuneOptions *o, const char *value) {
  if (o->space_count == SPACE_MOST)
    return tune_wrong(o, "--space %s: at most 64 dimensions", value);
  o->spaces[o->space_count++] = value;
  return 0;
}

static int take_where(TuneOptions *o, const char *value) {
  if (o->where_count == SPACE_MOST_WHERE)
    return tune_wrong(o, "--where %s: at most 16 conditions", value);
  o->wheres[o->where_count++] = value;
  return 0;
}

static int take_named(TuneOptions *o, const char *flag, const char *value) {
  bool is_sampler = !strcmp(flag, "--sampler");
  int found = is_sampler ? sampler_find(value) : prune_find(value);
  if (found < 0)
    return tune_wrong(o,
                      is_sampler ? "--sampler %s: expected gp, tpe, cma, random, sobol or grid"
                                 : "--prune %s: expected none, median, asha or hyperband",
                      value);
  if (is_sampler)
    o->sampler = (SamplerKind)found;
  else
    o->prune.kind = (PruneKind)found;
  return 0;
}

/* A flag of training, as it was given. */
static int pass_to_trials(TuneOptions *o, const Flag *flag, const char *value, char **from,
                          int count) {
  if (!strcmp(flag->name, "-D") || !strcmp(flag->name, "--preset") ||
      (!strcmp(flag->name, "--set") && study_is_static(value))) {
    o->pass[o->pass_count++] = flag->name;
    o->pass[o->pass_count++] = value;
    return 0;
  }
  o->has_threads |= !strcmp(flag->name, "--threads");
  if (!strcmp(flag->name, "--set") && study_is_compilers_too(value)) {
    o->pass[o->pass_count++] = flag->name;
    o->pass[o->pass_count++] = value;
  }
  if (!strcmp(flag->name, "--device")) o->device = value;
  if (!strcmp(flag->name, "--data")) o->places.data_dir = value;
  if (!strcmp(flag->name, "--allow-paths")) o->places.allow_paths = true;
  if (!strcmp(flag->name, "--allow-commands")) o->places.allow_commands = true;
  for (int i = 0; i < count; i++) o->kept[o->kept_count++] = from[i];
  return 0;
}

static int take_tune_flag(TuneOptions *o, const Flag *flag, const char *value, int64_t count,
                          char **from, int words) {
  const char *name = flag->name;
  double most = 1e15;
  if (!strcmp(name, "--space")) return take_space(o, value);
  if (!strcmp(name, "--where")) return take_where(o, value);
  if (!strcmp(name, "--sampler") || !strcmp(name, "--prune")) return take_named(o, name, value);
  if (!strcmp(name, "--goal")) return o->goal = value, 0;
  if (!strcmp(name, "--study")) return o->study = value, 0;
  if (!strcmp(name, "--trial")) {
    if (count < 0 || count >= JOURNAL_MOST_TRIALS)
      return tune_wrong(o, "--trial %s: expected the number of a trial, from 0 to 99999", value);
    return o->chosen = (int)count, 0;
  }
  if (!strcmp(name, "--apply")) return o->applies = true, 0;
  if (!strcmp(name, "--seed")) return o->seed = (uint64_t)count, 0;
  if (!strcmp(name, "--prune-from"))
    return number_in_range(name, value, 1, most, &o->prune.least) ? 0 : FLAG_EXIT_USAGE;
  if (!strcmp(name, "--prune-factor"))
    return number_in_range(name, value, 1.5, 100, &o->prune.factor) ? 0 : FLAG_EXIT_USAGE;
  if (!strcmp(name, "--trials") || !strcmp(name, "--parallel")) {
    bool is_trials = !strcmp(name, "--trials");
    int largest = is_trials ? JOURNAL_MOST_TRIALS : STUDY_MOST_PARALLEL;
    if (count < 1 || count > largest)
      return tune_wrong(o,
                        is_trials ? "--trials %s: expected a number from 1 to 100000"
                                  : "--parallel %s: expected a number from 1 to 256",
                        value);
    *(is_trials ? &o->trials : &o->parallel) = (int)count;
    return 0;
  }
  return pass_to_trials(o, flag, value, from, words);
}

static int parse_tune_line(TuneOptions *o, int argc, char **argv) {
  o->pass = calloc(2 * (size_t)argc + 2, sizeof *o->pass);
  o->kept = calloc((size_t)argc + 2, sizeof *o->kept);
  if (!o->pass || !o->kept) return say_error("out of memory"), 3;
  for (int i = 2; i < argc; i++) {
    const Flag *flag;
    const char *value;
    int64_t count = 0;
    int code = 0, first = i;
    if (argv[i][0] == '-' && argv[i][1]) {
      code = flags_parse(&ftrun_line, o->command, argc, argv, &i, &flag, &value, &count);
      if (!code) code = take_tune_flag(o, flag, value, count, argv + first, i - first + 1);
    } else if (o->model) {
      code = tune_wrong(o, "%s is one model too many", argv[i]);
    } else {
      o->model = argv[i];
    }
    if (code) return code;
  }
  if (!o->model) return tune_wrong(o, "%s needs a model: a .ft file, a .so or a .ptx", "tune");
  o->is_source = text_ends_with(o->model, ".ft");
  if (o->chosen >= 0 && !o->applies)
    return tune_wrong(o, "%s says what --apply writes: give both", "--trial");
  if (o->applies && !o->is_source)
    return tune_wrong(o, "--apply writes into a .ft file: give it in place of %s", o->model);
  if (o->pass_count && !o->is_source)
    return say_error("%s %s is for .ft files; %s is compiled already", o->pass[0], o->pass[1],
                     o->model),
           1;
  return 0;
}

static bool is_given(int argc, char **argv, const char *flag) {
  size_t length = strlen(flag);
  for (int i = 2; i < argc; i++)
    if (!strncmp(argv[i], flag, length) && (!argv[i][length] || argv[i][length] == '='))
      return true;
  return false;
}

/* What the file's tune block says and the command line does not, and the space of both. */
static int take_block(TuneOptions *o, TuneBlock *block, int argc, char **argv) {
  Status status = STATUS_OK;
  if (o->is_source) {
    if (compile_and_read(&(Compilation){.source = o->model,
                                        .places = &o->places,
                                        .pass = (const char *[]){"--hypers"},
                                        .pass_count = 1},
                         &o->hypers))
      return say_error("%s: its hypers are not known", o->model), 1;
    status = block_read(text_cstr(&o->hypers), block);
  }
  if (!status) status = block_space(block, o->spaces, o->space_count, &o->space);
  if (!status) status = block_where(block, o->wheres, o->where_count, &o->space);
  if (status)
    return say_error("%s", status_message()), status == STATUS_FAULT ? 3 : FLAG_EXIT_USAGE;
  for (int i = 0; i < block->count; i++) {
    char *words[] = {argv[0], argv[1], (char *)(uintptr_t)block->line[i].flag, block->line[i].value,
                     NULL};
    const Flag *flag;
    const char *value;
    int64_t count = 0;
    int at = 2;
    bool is_of_space = !strcmp(words[2], "--space") || !strcmp(words[2], "--where");
    if (is_of_space || is_given(argc, argv, words[2])) continue;
    int code = flags_parse(&ftrun_line, o->command, 4, words, &at, &flag, &value, &count);
    if (!code) code = take_tune_flag(o, flag, value, count, NULL, 0);
    if (code) return code;
  }
  if (o->space.count) return 0;
  return tune_wrong(o, "%s needs what to choose from: --space lr=\"log(1e-5, 1e-1)\"", "tune");
}

int tune_start(int argc, char **argv) {
  TuneOptions options = {.command = flags_command(&ftrun_line, argv[1]),
                         .trials = 20,
                         .parallel = 1,
                         .chosen = -1,
                         .prune = {PRUNE_NONE, 0, 3}};
  int code = parse_tune_line(&options, argc, argv);
  TuneBlock block = {.count = 0};
  if (!code && ranks_refuse("tune") != STATUS_OK) code = STATUS_USER;
  if (!code) code = take_block(&options, &block, argc, argv);
  if (!code) code = study_run(&options);
  space_free(&options.space);
  text_free(&options.hypers);
  block_free(&block);
  free(options.pass);
  free(options.kept);
  return code;
}
