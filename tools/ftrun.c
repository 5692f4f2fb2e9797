/* ftrun: the runtime's command line: one table of flags; a subcommand makes options of one library
 * call of them. Exit codes: 0, 1 the user's error, 2 usage, 3 a fault of the machine, 124 the time
 * was up (train.max_time), 128 + signal after an orderly end by Ctrl-C, SIGTERM, HUP, USR1, PIPE. */
#define _GNU_SOURCE /* strndup */
#include "base/output.h"
#include "base/say.h"
#include "base/text.h"
#include "runtime/command/bench.h"
#include "runtime/command/deploy.h"
#include "runtime/command/deploy_sparse.h"
#include "runtime/device/dev.h"
#include "runtime/device/devices.h"
#include "runtime/command/find_lr.h"
#include "runtime/command/generate.h"
#include "runtime/common/guard.h"
#include "runtime/command/predict.h"
#include "runtime/command/sensitivity.h"
#include "runtime/command/ranks.h"
#include "runtime/data/source_early.h"
#include "runtime/command/tokenize.h"
#include "runtime/command/train.h"
#include "tools/ftrun_compile.h"
#include "tools/ftrun_elastic.h"
#include "tools/ftrun_flags.h"
#include "tools/ftrun_folder.h"
#include "tools/ftrun_lottery.h"
#include "tools/number.h"
#include "tools/ftrun_quantize.h"
#include "tools/ftrun_ranks.h"
#include "tools/ftrun_shrink.h"
#include "tools/ftrun_study.h"
#include "tools/ftrun_tune.h"
#include "tools/ftrun_view.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_USAGE = FLAG_EXIT_USAGE, MOST = 256 };
typedef struct {
  int command, command_index; /* its bit, and which it is */
  TrainOptions train;
  const char *gpu_target; /* --gpu */
  const char *weights, *split, *input[MOST], *output[MOST], *set[MOST], *pass[MOST];
  const char *text[MOST]; /* tokenize */
  const char *init[MOST], *rename[MOST], *stay[MOST], *on[MOST];
  int text_count, stay_count, on_count;
  const char *structure, *sparsity, *budget; /* sensitivity */
  int input_count, output_count, set_count, pass_count;
  bool made_up_data, is_eval, no_cache, no_header, find_lr, find_batch;
  const char *prompt[MOST], *prompt_tokens[MOST], *tokenizer, *member, *temperature, *top_p, *json,
      *lr_range, *plot;
  int prompt_count, prompt_tokens_count;
  int64_t tokens, samples, top_k, seed, ranks, gpus, blocks;
  const char *elastic, *gpu_model;
  const Gpu *gpu; /* of that name */
  bool is_full; /* more of a flag than there is room for */
  char **kept;  /* the flags that are no compiler's, for ranks that get an artifact */
  int kept_count;
} Line;

/* A list that is full is told by who has asked for it. */
static void push_text(Line *line, const char **list, int *count, const char *value) {
  if (*count < MOST)
    list[(*count)++] = value;
  else
    line->is_full = true;
}

static int too_often(const Line *line, const char *name) {
  return flags_fail(&ftrun_line, line->command_index, "%s is given too often", name);
}

/* For the compiler: a flag and its value. */
static void push_pass(Line *line, const char *flag, const char *value) {
  push_text(line, line->pass, &line->pass_count, flag);
  push_text(line, line->pass, &line->pass_count, value);
}

static void take_as_setting(Line *line, const char *name, const char *value) {
  static char time[80], layers[80]; /* the last one counts */
  if (strcmp(name, "--max-time") == 0) {
    snprintf(time, sizeof time, "train.max_time=%s", value);
    push_text(line, line->set, &line->set_count, time);
  }
  if (strcmp(name, "--layers") == 0) {
    snprintf(layers, sizeof layers, "train.log.layers=%s", value);
    push_text(line, line->set, &line->set_count, layers);
    push_text(line, line->set, &line->set_count, "train.log.layer_table=true");
  }
}

/* What may be given again. */
static void take_more(Line *line, const char *name, const char *value) {
  if (strcmp(name, "--set") == 0) push_text(line, line->set, &line->set_count, value);
  if (strcmp(name, "--stay") == 0) push_text(line, line->stay, &line->stay_count, value);
  if (strcmp(name, "--on") == 0) push_text(line, line->on, &line->on_count, value);
  if (strcmp(name, "--input") == 0) push_text(line, line->input, &line->input_count, value);
  if (strcmp(name, "--output") == 0 || strcmp(name, "-o") == 0)
    push_text(line, line->output, &line->output_count, value);
  if (strcmp(name, "--prompt") == 0)
    push_text(line, line->prompt, &line->prompt_count, value);
  if (strcmp(name, "--prompt-tokens") == 0)
    push_text(line, line->prompt_tokens, &line->prompt_tokens_count, value);
}

static void take_flag(Line *line, const Flag *flag, const char *value, int64_t count) {
  TrainOptions *train = &line->train;
  const struct {
    const char *name, **text;
  } texts[] = {
      {"--data", &train->run.places.data_dir},
      {"--elastic", &line->elastic},
      {"--device", &train->run.device},
      {"--save", &train->save},
      {"--resume", &train->resume},
      {"--log-jsonl", &train->log_jsonl},
      {"--tensorboard", &train->tensorboard},
      {"--trace", &train->trace},
      {"--trace-steps", &train->trace_steps},
      {"--weights", &line->weights},
      {"--split", &line->split},
      {"--save-ema", &train->save_ema},
      {"--tokenizer", &line->tokenizer},
      {"--member", &line->member},
      {"--json", &line->json},
      {"--gpu-model", &line->gpu_model},
      {"--gpu", &line->gpu_target},
      {"--top-p", &line->top_p},
      {"--temperature", &line->temperature},
      {"--lr-range", &line->lr_range},
      {"--plot", &line->plot},
      {"--structure", &line->structure},
      {"--sparsity", &line->sparsity},
      {"--budget", &line->budget},
  };
  const struct {
    const char *name;
    bool *at;
  } switches[] = {
      {"--no-shuffle", &train->no_shuffle},
      {"--overfit-batch", &train->overfit_batch},
      {"--dry-run", &train->dry_run},
      {"--or-start", &train->or_start},
      {"--deterministic", &train->deterministic},
      {"--check", &train->check_nan},
      {"--made-up-data", &line->made_up_data},
      {"--eval", &line->is_eval},
      {"--allow-paths", &train->run.places.allow_paths},
      {"--allow-commands", &train->run.places.allow_commands},
      {"--keep-going", &train->keep_going},
      {"--no-cache", &line->no_cache},
      {"--no-header", &line->no_header},
      {"--find-lr", &line->find_lr},
      {"--find-batch", &line->find_batch},
  };
  const struct {
    const char *name;
    int64_t *at;
  } counts[] = {{"--steps", &train->steps},   {"--epochs", &train->epochs}, {"--stop-at", &train->stop_at}, {"--tokens", &line->tokens},
                {"--samples", &line->samples}, {"--top-k", &line->top_k},    {"--seed", &line->seed},         {"--ranks", &line->ranks},
                {"--gpus", &line->gpus},       {"--blocks", &line->blocks}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (strcmp(flag->name, texts[i].name) == 0) *texts[i].text = value;
  for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
    if (strcmp(flag->name, switches[i].name) == 0) *switches[i].at = true;
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
    if (strcmp(flag->name, counts[i].name) == 0) *counts[i].at = count;
  if (strcmp(flag->name, "--stop-at") == 0) train->stops = true;
  if (strcmp(flag->name, "--threads") == 0) train->run.threads = (int)count;
  take_as_setting(line, flag->name, value);
  if (strcmp(flag->name, "--init") == 0)
    push_text(line, line->init, &train->init.path_count, value);
  if (strcmp(flag->name, "--init-rename") == 0)
    push_text(line, line->rename, &train->init.rename_count, value);
  if (strcmp(flag->name, "--init-missing") == 0) train->init.keeps_missing = *value == 'k';
  if (strcmp(flag->name, "--init-mismatch") == 0) train->init.keeps_mismatch = *value == 'k';
  take_more(line, flag->name, value);
  if (strcmp(flag->name, "-D") == 0 || strcmp(flag->name, "--preset") == 0)
    push_pass(line, flag->name, value);
}

static void keep_for_ranks(Line *line, const char *name, const char *value, char **from,
                           int count) {
  bool is_compilers = !strcmp(name, "-D") || !strcmp(name, "--preset") ||
                      (!strcmp(name, "--set") && study_is_static(value));
  for (int i = 0; i < count && !is_compilers && strcmp(name, "--elastic"); i++)
    line->kept[line->kept_count++] = from[i];
}

/* One flag at argv[*at]; 0, or the exit code. */
static int ftrun_parse_flag(Line *line, char **argv, int argc, int *at) {
  const Flag *flag;
  const char *value;
  int64_t count = 0;
  int first = *at;
  int code = flags_parse(&ftrun_line, line->command_index, argc, argv, at, &flag, &value, &count);
  if (code) return code;
  bool is_check = strcmp(flag->name, "--check") == 0;
  if (is_check && strcmp(value, "nan") != 0 && strcmp(value, "overflow") != 0)
    return flags_fail(&ftrun_line, line->command_index,
                      "--check=%s: expected --check=nan or --check=overflow", value);
  if (is_check) line->train.check_overflow = strcmp(value, "overflow") == 0;
  bool is_choice = !strcmp(flag->name, "--init-missing") || !strcmp(flag->name, "--init-mismatch");
  if (is_choice && strcmp(value, "keep") != 0 && strcmp(value, "error") != 0)
    return flags_fail(&ftrun_line, line->command_index, "%s %s: expected keep or error", flag->name,
                      value);
  take_flag(line, flag, value, count);
  if (line->is_full) return too_often(line, flag->name);
  keep_for_ranks(line, flag->name, value, argv + first, *at - first + 1);
  return 0;
}

/* Two names where one model is wanted: a misspelled command, weights, or two models. */
static int too_many_names(const Line *line, const char *first, const char *second) {
  const char *names[32];
  int count = 0;
  for (int i = 0; i < ftrun_line.command_count && count < 32; i++)
    if (ftrun_line.commands[i].name) names[count++] = ftrun_line.commands[i].name;
  bool is_word = !strpbrk(first, "./") && access(first, F_OK) != 0;
  const char *nearest = text_nearest(first, names, count);
  if (is_word)
    return flags_fail(&ftrun_line, -1, "there is no command '%s'%s%s%s", first,
                      nearest ? "; did you mean '" : "", nearest ? nearest : "",
                      nearest ? "'?" : "");
  if (text_ends_with(second, ".safetensors"))
    return flags_fail(&ftrun_line, line->command_index, "weights have a flag: %s %s",
                      line->command == TRAIN ? "--init" : "--weights", second);
  return flags_fail(&ftrun_line, line->command_index, "one model at a time: %s and %s", first,
                    second);
}

static int no_such_gpu(const Line *line) {
  const char *nearest = gpu_nearest(line->gpu_model);
  return flags_fail(&ftrun_line, line->command_index,
                    "--gpu-model %s: no such GPU in the table (plan/gpus.def)%s%s%s",
                    line->gpu_model, nearest ? "; did you mean " : "", nearest ? nearest : "",
                    nearest ? "?" : "");
}

static int parse_line(Line *line, int argc, char **argv) {
  int at = 1;
  int named = argc > 1 ? flags_command(&ftrun_line, argv[1]) : -1;
  line->command_index = named < 0 ? COMMAND_TRAIN : named;
  line->command = 1 << line->command_index;
  if (named >= 0) at = 2;
  line->kept = calloc((size_t)argc + 1, sizeof *line->kept);
  if (!line->kept) return say_error("out of memory"), 3;
  line->train.steps = line->train.epochs = -1;
  line->train.init = (CkptInit){.paths = line->init, .renames = line->rename, .has_flags = true};
  line->tokens = 200;
  line->samples = line->ranks = line->gpus = 1;
  for (; at < argc; at++) {
    if (argv[at][0] == '-' && argv[at][1]) {
      int code = ftrun_parse_flag(line, argv, argc, &at);
      if (code) return code;
    } else if (line->command == TOKENIZE) {
      if (line->text_count == MOST)
        return flags_fail(&ftrun_line, line->command_index, "at most %d texts", MOST);
      line->text[line->text_count++] = argv[at];
    } else if (line->train.run.artifact) {
      return too_many_names(line, line->train.run.artifact, argv[at]);
    } else {
      line->train.run.artifact = argv[at];
    }
  }
  if (line->command == TOKENIZE) {
    if (!line->text_count)
      return flags_fail(&ftrun_line, line->command_index, "tokenize needs a text file");
    if (!line->tokenizer)
      return flags_fail(&ftrun_line, line->command_index, "tokenize needs --tokenizer PATH");
    return line->output_count > 1
               ? flags_fail(&ftrun_line, line->command_index, "tokenize writes one file: %s and %s",
                            line->output[0], line->output[1])
               : 0;
  }
  if (!line->train.run.artifact && line->command != DEVICES)
    return flags_fail(&ftrun_line, line->command_index, "%s needs a model: a .so, .ptx or .ft file",
                      ftrun_line.commands[line->command_index].name);
  const CkptInit *init = &line->train.init;
  if (!init->path_count && (init->rename_count || init->keeps_missing || init->keeps_mismatch))
    return flags_fail(&ftrun_line, line->command_index, "%s goes with --init",
                      init->rename_count    ? "--init-rename"
                      : init->keeps_missing ? "--init-missing"
                                            : "--init-mismatch");
  if (line->gpu_model && !(line->gpu = gpu_find(line->gpu_model))) return no_such_gpu(line);
  if (line->blocks && !line->gpu)
    return flags_fail(&ftrun_line, line->command_index, "--blocks goes with --gpu-model");
  if (!line->find_lr && (line->lr_range || line->plot))
    return flags_fail(&ftrun_line, line->command_index, "%s goes with --find-lr",
                      line->plot ? "--plot" : "--lr-range");
  if (line->command == DEPLOY && line->output_count != 1)
    return flags_fail(&ftrun_line, line->command_index, "deploy writes one file: -o MODEL.so, MODEL.ptx, MODEL.c or MODEL.onnx");
  bool is_compiled_for_gpu = line->output_count == 1 && text_ends_with(line->output[0], ".ptx") && text_ends_with(line->train.run.artifact, ".ft");
  if (line->gpu_target && !is_compiled_for_gpu)
    return flags_fail(&ftrun_line, line->command_index, "--gpu %s is for a .ft file that becomes a .ptx: -o MODEL.ptx", line->gpu_target);
  bool is_small = line->output_count == 1 && text_ends_with(line->output[0], ".ft");
  if (line->command == SHRINK && !(is_small && text_ends_with(line->train.run.artifact, ".ft")))
    return flags_fail(&ftrun_line, line->command_index,
                      "shrink makes a smaller .ft file of a .ft file: ftrun shrink MODEL.ft --weights W -o SMALL.ft");
  if (line->command & (EVAL | PREDICT | GENERATE | DEPLOY | SHRINK | SENSITIVITY) && !line->weights)
    return flags_fail(&ftrun_line, line->command_index, "%s needs --weights W.safetensors",
                      ftrun_line.commands[line->command_index].name);
  return 0;
}

/* ── compiling a .ft file ─────────────────────────────────────────────────────────────────── */

static int split_settings(Line *line) {
  int kept = 0;
  for (int i = 0; i < line->set_count; i++) {
    bool is_static = study_is_static(line->set[i]);
    if (is_static || study_is_compilers_too(line->set[i])) push_pass(line, "--set", line->set[i]);
    if (!is_static) line->set[kept++] = line->set[i];
  }
  line->set_count = kept;
  return line->is_full ? too_often(line, "--set") : 0;
}

static bool begin_as_rank(const Line *line, void (*leave)(void)) {
  return line->command & (TRAIN | EVAL) && !line->find_lr && !line->find_batch &&
         ranks_begin(line->command == TRAIN, leave);
}

/* ── commands ─────────────────────────────────────────────────────────────────────────────── */

/* An empty message: it has been told (runtime/command/ranks.h). */
static int report(Status status) {
  if (status != STATUS_OK && status_message()[0]) {
    fflush(stdout);
    say_error("%s", status_message());
  }
  return status;
}

static int run_train(const TrainOptions *options) {
  int code = 0;
  Status status = train_run(options, &code);
  return status == STATUS_OK ? code : report(status);
}

static int run_info(const char *path) {
  Artifact *artifact;
  Status status = artifact_open(path, &artifact);
  if (status != STATUS_OK) return report(status);
  status = info_print(artifact, stdout);
  artifact_close(artifact);
  return report(status);
}

static int run_generate(Line *line) {
  bool by_number = line->prompt_tokens_count > 0;
  GenerateOptions options = {.run = line->train.run,
                             .weights = line->weights,
                             .prompt = by_number ? line->prompt_tokens : line->prompt,
                             .prompt_count =
                                 by_number ? line->prompt_tokens_count : line->prompt_count,
                             .prompts_are_numbers = by_number,
                             .samples = line->samples,
                             .tokenizer = line->tokenizer,
                             .tokens = line->tokens,
                             .sample = {1, line->top_k, 1, (uint64_t)line->seed},
                             .no_cache = line->no_cache};
  if (by_number && line->prompt_count)
    return flags_fail(&ftrun_line, line->command_index,
                      "--prompt and --prompt-tokens do not go together");
  if (line->samples < 1 || line->samples > 1000000)
    return flags_fail(&ftrun_line, line->command_index, "--samples: from 1 to 1000000");
  if (line->tokens > 1000000)
    return flags_fail(&ftrun_line, line->command_index, "--tokens: at most 1000000");
  if (!number_in_range("--temperature", line->temperature, 0, 100, &options.sample.temperature) ||
      !number_in_range("--top-p", line->top_p, 0, 1, &options.sample.top_p))
    return EXIT_USAGE;
  return report(generate_run(&options));
}

static int run_sensitivity(Line *line) {
  SensitivityOptions options = {.run = line->train.run,
                                .weights = line->weights,
                                .split = line->split,
                                .structure = line->structure,
                                .shares = line->sparsity,
                                .budget = 0.5,
                                .on = line->on,
                                .on_count = line->on_count,
                                .output = line->output_count ? line->output[0] : NULL,
                                .log_jsonl = line->train.log_jsonl,
                                .save = line->train.save};
  if (!number_in_range("--budget", line->budget, 0, 1, &options.budget)) return EXIT_USAGE;
  return report(sensitivity_run(&options));
}

static int run_command(Line *line) {
  RunOptions *run = &line->train.run;
  if (!(line->command & (TRAIN | EVAL | INFO | DEVICES)) || line->find_lr) {
    const char *name = ftrun_line.commands[line->command_index].name;
    Status status = ranks_refuse(line->find_lr ? "--find-lr" : name);
    if (status != STATUS_OK) return report(status);
  }
  begin_as_rank(line, NULL);
  run->sets = line->set;
  run->set_count = line->set_count;
  switch (line->command) {
  case EVAL:
    return report(
        train_eval(&(EvalOptions){*run, line->weights, line->split, line->train.log_jsonl}));
  case PREDICT:
    return report(predict_run(&(PredictOptions){*run, line->weights, line->input, line->input_count,
                                                line->output, line->output_count, line->split}));
  case DEPLOY:
    return report(deploy_run(&(DeployOptions){*run, line->weights,
                                              line->output_count ? line->output[0] : NULL,
                                              line->train.dry_run}));
  case BENCH:
    return report(train_bench(run, line->is_eval ? PROGRAMME_EVALUATE : PROGRAMME_STEP, line->train.steps > 0 ? (int)line->train.steps : 0,
                              line->made_up_data, line->json,
                              &(DeviceCounting){line->gpu, line->blocks}));
  case GENERATE:
    return run_generate(line);
  case SENSITIVITY:
    return run_sensitivity(line);
  case TOKENIZE:
    return report(tokenize_run(
        &(TokenizeOptions){line->tokenizer, line->text, line->text_count, line->member,
                           line->output_count ? line->output[0] : NULL, line->no_header}));
  case INFO:
    return run_info(run->artifact);
  case DEVICES:
    devices_print(stdout);
    return 0;
  default:
    if (line->find_lr)
      return report(find_lr_run(&(FindLrOptions){&line->train, line->lr_range, line->plot}));
    return run_train(&line->train);
  }
}

/* The order in memory of pruned parameters is what masks are chosen in, not what is fastest to read. */
static void leave_out_pruning(Line *line) {
  bool is_asked = !(line->command & (EVAL | PREDICT | GENERATE | DEPLOY));
  for (int i = 0; i < line->pass_count; i++) is_asked |= !strncmp(line->pass[i], "train.prune", 11);
  for (int i = 0; i < line->set_count; i++) is_asked |= !strncmp(line->set[i], "train.prune", 11);
  if (!is_asked) push_pass(line, "--set", "train.prune=none");
}

/* Which weights a GPU's sparse tensor cores can multiply by; where the weights cannot be read, deploy says so. */
static void name_sparse(Line *line) {
  static Text names;
  if (line->command != DEPLOY || !text_ends_with(line->output[0], ".ptx")) return;
  if (deploy_sparse_names(line->weights, &names) == STATUS_OK && names.count) push_pass(line, "--sparse", text_cstr(&names));
}

/* What is deployed goes by its name, whatever this machine has. */
static void compile_for(const Line *line, bool *is_ptx, const char **gpu) {
  dev_compile_for(line->command == DEPLOY ? "cpu" : line->train.run.device, is_ptx, gpu);
  if (line->command != DEPLOY) return;
  *is_ptx = text_ends_with(line->output[0], ".ptx");
  *gpu = line->gpu_target;
}

static int run_source(Line *line) {
  const char *source = line->train.run.artifact, *artifact, *gpu;
  bool is_ptx, is_rank, opens_data = line->command == TRAIN && !line->find_batch;
  compile_for(line, &is_ptx, &gpu);
  int code = split_settings(line);
  leave_out_pruning(line);
  name_sparse(line);
  if (line->command == DEPLOY) push_text(line, line->pass, &line->pass_count, "--inference");
  if (line->command == DEPLOY && text_ends_with(line->output[0], ".c")) push_pass(line, "--cpu", "portable");
  if (!code) code = folder_open(is_ptx, &artifact);
  if (code) return code;
  is_rank = begin_as_rank(line, folder_leave);
  code = compile_source(&(Compilation){source, artifact, gpu, &line->train.run.places, opens_data,
                                       line->pass, line->pass_count, line->find_batch, is_rank});
  if (code == 0 && !line->find_batch) {
    line->train.run.artifact = artifact;
    code = run_command(line);
  }
  source_early_end();
  folder_close();
  return code;
}

static int run_shrink(Line *line) {
  for (int i = 0; i < line->set_count; i++) push_pass(line, "--set", line->set[i]);
  if (line->is_full) return too_often(line, "--set");
  return shrink_run(&(ShrinkOptions){line->train.run.artifact, line->weights, line->output[0], &line->train.run.places, line->pass,
                                     line->pass_count, line->stay, line->stay_count});
}

static int run_elastic(Line *line) {
  RunOptions *run = &line->train.run;
  const char *gpu, *artifact;
  bool is_ptx;
  CommPlace place;
  if (comm_place(&place) != STATUS_OK) return report(STATUS_USER);
  if (place.launcher)
    return flags_fail(&ftrun_line, line->command_index,
                      "--elastic: %s has started this process already", place.launcher);
  if (line->ranks != 1 || line->gpus != 1)
    return flags_fail(&ftrun_line, line->command_index,
                      "--elastic and --ranks or --gpus do not go together");
  bool is_sim = run->device && !strcmp(run->device, "sim");
  dev_compile_for(run->device, &is_ptx, &gpu);
  int code = split_settings(line);
  if (code) return code;
  run->sets = line->set;
  run->set_count = line->set_count;
  code = folder_open(is_ptx, &artifact);
  if (code) return code;
  code = elastic_run(&(Elastic){.range = line->elastic,
                                .compilation = {run->artifact, artifact, gpu, &run->places, false,
                                                line->pass, line->pass_count},
                                .run = run,
                                .arguments = line->kept,
                                .gpus = is_ptx && !is_sim ? dev_gpus() : 0});
  folder_close();
  return code;
}

static int ftrun_start(int argc, char **argv) {
  guard_install();
  signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error with a message */
  static Line line;
  int code;
  if (flags_help_asked(&ftrun_line, argc, argv, &code)) return code;
  if (argc > 1 && view_is_command(argv[1])) return view_start(argc, argv);
  if (argc > 1 && tune_is_command(argv[1])) return tune_start(argc, argv);
  if (argc > 1 && quantize_is_command(argv[1])) return quantize_start(argc, argv);
  if (argc > 1 && lottery_is_command(argv[1])) return lottery_start(argc, argv);
  line.train.started = elastic_started();
  if (argc < 2) {
    flags_print_help(&ftrun_line, -1, stdout);
    return EXIT_USAGE;
  }
  code = parse_line(&line, argc, argv);
  if (code) return code;
  if ((line.find_lr || line.find_batch) && (line.elastic || line.ranks != 1 || line.gpus != 1))
    return flags_fail(&ftrun_line, line.command_index, "%s runs as one process",
                      line.find_lr ? "--find-lr" : "--find-batch");
  if (line.command == SHRINK) return run_shrink(&line);
  if (line.elastic) return run_elastic(&line);
  if (line.ranks != 1 || line.gpus != 1)
    return ranks_start_line(line.train.run.artifact, line.ranks, line.gpus, argc, argv);
  if (line.train.run.artifact && text_ends_with(line.train.run.artifact, ".ft"))
    return run_source(&line);
  if (line.pass_count) {
    say_error("%s %s is for .ft files; %s is compiled already", line.pass[0], line.pass[1],
              line.train.run.artifact);
    return 1;
  }
  if (line.find_batch) {
    say_error("--find-batch is for .ft files; %s is compiled already, for its own batch",
              line.train.run.artifact);
    return 1;
  }
  line.train.run.places.artifact_path = line.train.run.artifact;
  return run_command(&line);
}

int main(int argc, char **argv) {
  output_start();
  return output_end("ftrun", ftrun_start(argc, argv));
}
