/* ftrun: the runtime's command line: one table of flags; a subcommand makes options of one library
 * call of them. Exit codes: 0, 1 the user's error, 2 usage, 3 a fault of the machine, 124 the time
 * was up (train.max_time), 128 + signal after an orderly end by Ctrl-C, SIGTERM, HUP, USR1, PIPE. */
#define _GNU_SOURCE /* strndup */
#include "base/output.h"
#include "base/text.h"
#include "runtime/command/bench.h"
#include "runtime/device/dev.h"
#include "runtime/device/devices.h"
#include "runtime/command/find_lr.h"
#include "runtime/command/generate.h"
#include "runtime/common/guard.h"
#include "runtime/command/predict.h"
#include "runtime/command/ranks.h"
#include "runtime/data/source_early.h"
#include "runtime/command/tokenize.h"
#include "runtime/command/train.h"
#include "tools/ftrun_compile.h"
#include "tools/ftrun_elastic.h"
#include "tools/ftrun_folder.h"
#include "tools/ftrun_number.h"
#include "tools/ftrun_ranks.h"
#include "tools/ftrun_view.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_USAGE = 2, MOST = 256 };
enum {
  TRAIN = 1,
  EVAL = 2,
  PREDICT = 4,
  BENCH = 8,
  INFO = 16,
  DEVICES = 32,
  GENERATE = 64,
  TOKENIZE = 128
};
enum { COMMANDS = 8 };
static const char *const command_names[COMMANDS] = {"train", "eval",    "predict",  "bench",
                                                    "info",  "devices", "generate", "tokenize"};
static const char *const command_usage[COMMANDS] = {
    "ftrun [train] MODEL [flags]      trains; MODEL is a compiled .so or .ptx, or a .ft file",
    "ftrun eval MODEL --weights W     prints loss and metrics over a split",
    "ftrun predict MODEL --weights W --input NAME=X.npy --output Y.npy",
    "ftrun bench MODEL                median, p10 and p90 of a step, and a table of its kernels",
    "ftrun info MODEL                 the plan inside an artifact, readable",
    "ftrun devices                    what this machine can run on",
    "ftrun generate MODEL --weights W --prompt TEXT    goes on with a text",
    "ftrun tokenize TEXT.. --tokenizer T --output X.bin    text files to tokens, for tokens(...)",
};

typedef struct {
  int command;
  TrainOptions train;
  const char *weights, *split, *input[MOST], *output[MOST], *set[MOST], *pass[MOST];
  const char *text[MOST]; /* tokenize */
  int text_count;
  int input_count, output_count, set_count, pass_count;
  bool made_up_data, no_cache, no_header, find_lr, find_batch;
  const char *prompt[MOST], *prompt_tokens[MOST], *tokenizer, *temperature, *top_p, *json,
      *lr_range, *plot;
  int prompt_count, prompt_tokens_count;
  int64_t tokens, samples, top_k, seed, ranks, gpus;
  const char *elastic;
  char **kept; /* the flags that are no compiler's, for ranks that get an artifact */
  int kept_count;
} Line;

typedef enum { FLAG_SWITCH, FLAG_TEXT, FLAG_COUNT, FLAG_LIST } FlagKind;
typedef struct {
  const char *name;
  FlagKind kind;
  int commands;
  const char *value, *help;
} Flag;

/* In the order of --help; take_flag stores them. */
static const Flag ftrun_flags[] = {
    {"--set", FLAG_LIST, TRAIN | EVAL | PREDICT | BENCH | GENERATE, "KEY=VALUE",
     "a setting: train.lr=3e-4, train.checkpoint.dir=runs/a"},
    {"--data", FLAG_TEXT, TRAIN | EVAL | PREDICT | BENCH, "DIR", "folder of the data files"},
    {"--steps", FLAG_COUNT, TRAIN | BENCH, "N", "steps in all, from the start of training"},
    {"--epochs", FLAG_COUNT, TRAIN, "N", "passes over the training data"},
    {"--max-time", FLAG_TEXT, TRAIN, "TIME",
     "end after 90m, 2h or so, with a checkpoint: exit code 124"},
    {"--device", FLAG_TEXT, TRAIN | EVAL | PREDICT | BENCH | GENERATE, "D",
     "auto, cpu, cuda, cuda:N or sim"},
    {"--ranks", FLAG_COUNT, TRAIN | EVAL, "N",
     "run as N processes that share each batch: docs/distributed.md"},
    {"--gpus", FLAG_COUNT, TRAIN | EVAL, "N", "the same on N GPUs of this machine, without MPI"},
    {"--elastic", FLAG_TEXT, TRAIN, "LEAST:MOST",
     "as MOST ranks, or fewer where some are lost: docs/distributed.md"},
    {"--threads", FLAG_COUNT, TRAIN | EVAL | PREDICT | BENCH | GENERATE, "N",
     "threads of the cpu device; with ranks: of each"},
    {"--init", FLAG_TEXT, TRAIN, "W", "start from the weights in a .safetensors file"},
    {"--save", FLAG_TEXT, TRAIN, "W", "write the weights to a .safetensors file at the end"},
    {"--save-ema", FLAG_TEXT, TRAIN, "W", "write the averages of the weights (train.ema) likewise"},
    {"--resume", FLAG_TEXT, TRAIN, "PATH", "go on from a checkpoint, or the newest in a folder"},
    {"--or-start", FLAG_SWITCH, TRAIN, NULL, "with --resume: start if there is no checkpoint yet"},
    {"--log-jsonl", FLAG_TEXT, TRAIN | EVAL, "FILE", "write the log as JSON lines too"},
    {"--tensorboard", FLAG_TEXT, TRAIN, "DIR", "write the log for TensorBoard too"},
    {"--no-shuffle", FLAG_SWITCH, TRAIN, NULL, "samples in the order of the files"},
    {"--overfit-batch", FLAG_SWITCH, TRAIN, NULL, "repeat the first batch: can the model learn?"},
    {"--check", FLAG_TEXT, TRAIN, "nan", "find the first NaN or infinity and its source line"},
    {"--trace", FLAG_TEXT, TRAIN, "FILE", "write a trace: .pftrace for Perfetto, .json for Chrome"},
    {"--trace-steps", FLAG_TEXT, TRAIN, "A:B", "trace the steps from A to B"},
    {"--keep-going", FLAG_SWITCH, TRAIN, NULL, "train on after a loss that is not finite"},
    {"--deterministic", FLAG_SWITCH, TRAIN, NULL, "the same bits in every run (the cpu always is)"},
    {"--dry-run", FLAG_SWITCH, TRAIN, NULL, "check model, data and memory; train nothing"},
    {"--find-lr", FLAG_SWITCH, TRAIN, NULL,
     "try learning rates (100 --steps), suggest one; save nothing"},
    {"--lr-range", FLAG_TEXT, TRAIN, "LOW:HIGH", "--find-lr: from which rate to which (1e-7:10)"},
    {"--plot", FLAG_TEXT, TRAIN, "FILE", "--find-lr: its plot, as .svg"},
    {"--find-batch", FLAG_SWITCH, TRAIN, NULL, "for a .ft file: ftc --find-batch"},
    {"--weights", FLAG_TEXT, EVAL | PREDICT | GENERATE, "W",
     "weights of a training: --save, or a checkpoint"},
    {"--split", FLAG_TEXT, EVAL | PREDICT, "S",
     "train, valid or test: eval's (else valid); predict's, in place of --input"},
    {"--input", FLAG_LIST, PREDICT, "NAME=X", "a .npy or IDX file for a model input"},
    {"--output", FLAG_LIST, PREDICT | TOKENIZE, "[NAME=]Y",
     "the file to write: .npy, or .bin of tokenize (without: numbers are printed)"},
    {"--prompt", FLAG_LIST, GENERATE, "TEXT",
     "what to go on with, for models of bytes, or by --tokenizer; again for more"},
    {"--tokenizer", FLAG_TEXT, GENERATE | TOKENIZE, "PATH",
     "folder with vocab.json and merges.txt, or tokenizer.json, as of GPT-2"},
    {"--no-header", FLAG_SWITCH, TOKENIZE, NULL, "tokens only, without the header of llm.c"},
    {"--prompt-tokens", FLAG_LIST, GENERATE, "N,N,..", "the same as numbers of tokens"},
    {"--tokens", FLAG_COUNT, GENERATE, "N", "how many to generate (200)"},
    {"--samples", FLAG_COUNT, GENERATE, "N", "texts of each prompt, by seeds from --seed on"},
    {"--temperature", FLAG_TEXT, GENERATE, "X",
     "0: the likeliest token; 1 (default): as the model says"},
    {"--top-k", FLAG_COUNT, GENERATE, "K", "draw among the K likeliest tokens (0: all)"},
    {"--top-p", FLAG_TEXT, GENERATE, "P", "among the likeliest that have probability P (1: all)"},
    {"--seed", FLAG_COUNT, GENERATE, "N", "of the draws (0)"},
    {"--no-cache", FLAG_SWITCH, GENERATE, NULL, "evaluate the whole window for every token"},
    {"--made-up-data", FLAG_SWITCH, BENCH, NULL, "random batches in place of the training data"},
    {"--json", FLAG_TEXT, BENCH, "FILE", "write the table of kernels as JSON (ftc --times)"},
    {"--per-kernel", FLAG_SWITCH, BENCH, NULL, "with the table of kernels (it always is)"},
    {"-D", FLAG_LIST, TRAIN | EVAL | PREDICT | BENCH | INFO | GENERATE, "HYPER=VALUE",
     "for a .ft file: ftc -D"},
    {"--allow-paths", FLAG_SWITCH, TRAIN | EVAL | PREDICT | BENCH | INFO | GENERATE, NULL,
     "paths that the model's file names may lead out of the current folder"},
    {"--preset", FLAG_TEXT, TRAIN | EVAL | PREDICT | BENCH | INFO | GENERATE, "P",
     "for a .ft file: ftc --preset"},
};
enum { FLAG_TOTAL = sizeof ftrun_flags / sizeof *ftrun_flags };

static int command_index(int command) {
  int index = 0;
  while (command >> index > 1) index++;
  return index;
}

static int ftrun_usage_error(const char *format, const char *what, const char *more) {
  fputs("error: ", stderr);
  fprintf(stderr, format, what, more);
  fputs("\nftrun --help shows what it takes\n", stderr);
  return EXIT_USAGE;
}

static void print_help(int command) {
  for (int i = 0; i < COMMANDS; i++)
    if (!command || command == 1 << i)
      printf("%s%s\n", i == 0 || command ? "usage: " : "       ", command_usage[i]);
  if (!command) view_print_usage();
  if (!command) command = TRAIN;
  printf("\nflags of %s:\n", command_names[command_index(command)]);
  for (int i = 0; i < FLAG_TOTAL; i++) {
    if (!(ftrun_flags[i].commands & command)) continue;
    char left[64];
    snprintf(left, sizeof left, "%s%s%s", ftrun_flags[i].name, ftrun_flags[i].value ? " " : "",
             ftrun_flags[i].value ? ftrun_flags[i].value : "");
    printf("  %-22s %s\n", left, ftrun_flags[i].help);
  }
  printf("\nOpening a file runs no code and writes nothing. Training a .ft or .ptx file writes "
         "only below\n"
         "the current folder or where the command line says (--allow-paths: where the file says). "
         "A .so\n"
         "is code: train, evaluate or try (--dry-run) only those that you trust. SECURITY.md says "
         "more.\n");
  if (command == TRAIN)
    printf(
        "\nCtrl-C, SIGTERM, SIGHUP (but under nohup), SIGUSR1 and a pipe without a reader end a "
        "training\n"
        "after the step at hand, with its checkpoint and --save written. The same signal again "
        "ends it at\n"
        "once. Where its time is up (train.max_time, or the end of a SLURM job) it ends likewise, "
        "with code 124.\n");
}

/* ── parsing ──────────────────────────────────────────────────────────────────────────────── */

static const Flag *find_flag(const char *name) {
  for (int i = 0; i < FLAG_TOTAL; i++)
    if (strcmp(ftrun_flags[i].name, name) == 0) return &ftrun_flags[i];
  return NULL;
}

static int unknown_flag(const char *name) {
  const char *names[FLAG_TOTAL];
  for (int i = 0; i < FLAG_TOTAL; i++) names[i] = ftrun_flags[i].name;
  const char *nearest = text_nearest(name, names, FLAG_TOTAL);
  return nearest ? ftrun_usage_error("unknown flag %s; did you mean %s?", name, nearest)
                 : ftrun_usage_error("unknown flag %s%s", name, "");
}

static void push_text(const char **list, int *count, const char *value) {
  if (*count < MOST) list[(*count)++] = value;
}

static void take_flag(Line *line, const Flag *flag, const char *value, int64_t count) {
  TrainOptions *train = &line->train;
  const struct {
    const char *name, **text;
  } texts[] = {
      {"--data", &train->run.places.data_dir},
      {"--elastic", &line->elastic},
      {"--device", &train->run.device},
      {"--init", &train->init},
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
      {"--json", &line->json},
      {"--top-p", &line->top_p},
      {"--temperature", &line->temperature},
      {"--lr-range", &line->lr_range},
      {"--plot", &line->plot},
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
      {"--allow-paths", &train->run.places.allow_paths},
      {"--keep-going", &train->keep_going},
      {"--no-cache", &line->no_cache},
      {"--no-header", &line->no_header},
      {"--find-lr", &line->find_lr},
      {"--find-batch", &line->find_batch},
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (strcmp(flag->name, texts[i].name) == 0) *texts[i].text = value;
  for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
    if (strcmp(flag->name, switches[i].name) == 0) *switches[i].at = true;
  if (strcmp(flag->name, "--steps") == 0) train->steps = count;
  if (strcmp(flag->name, "--epochs") == 0) train->epochs = count;
  if (strcmp(flag->name, "--tokens") == 0) line->tokens = count;
  if (strcmp(flag->name, "--samples") == 0) line->samples = count;
  if (strcmp(flag->name, "--top-k") == 0) line->top_k = count;
  if (strcmp(flag->name, "--seed") == 0) line->seed = count;
  if (strcmp(flag->name, "--ranks") == 0) line->ranks = count;
  if (strcmp(flag->name, "--gpus") == 0) line->gpus = count;
  if (strcmp(flag->name, "--threads") == 0) train->run.threads = (int)count;
  if (strcmp(flag->name, "--max-time") == 0) {
    static char text[80]; /* the last one counts */
    snprintf(text, sizeof text, "train.max_time=%s", value);
    push_text(line->set, &line->set_count, text);
  }
  if (strcmp(flag->name, "--set") == 0) push_text(line->set, &line->set_count, value);
  if (strcmp(flag->name, "--input") == 0) push_text(line->input, &line->input_count, value);
  if (strcmp(flag->name, "--output") == 0) push_text(line->output, &line->output_count, value);
  if (strcmp(flag->name, "--prompt") == 0) push_text(line->prompt, &line->prompt_count, value);
  if (strcmp(flag->name, "--prompt-tokens") == 0)
    push_text(line->prompt_tokens, &line->prompt_tokens_count, value);
  if (strcmp(flag->name, "-D") == 0 || strcmp(flag->name, "--preset") == 0) {
    push_text(line->pass, &line->pass_count, flag->name);
    push_text(line->pass, &line->pass_count, value);
  }
}

/* Static settings are the compiler's, the others stay for the run. */
static bool is_static_setting(const char *assignment) {
  char key[128];
  snprintf(key, sizeof key, "%.*s", (int)strcspn(assignment, "="), assignment);
  int index = setting_find(key);
  return index >= 0 && setting_info[index].when == WHEN_STATIC;
}

static void keep_for_ranks(Line *line, const char *name, const char *value, char **from, int count) {
  bool is_compilers = !strcmp(name, "-D") || !strcmp(name, "--preset") ||
                      (!strcmp(name, "--set") && is_static_setting(value));
  for (int i = 0; i < count && !is_compilers && strcmp(name, "--elastic"); i++)
    line->kept[line->kept_count++] = from[i];
}

/* One flag at argv[*at]; 0, or the exit code. Both "--flag value" and "--flag=value" are taken. */
static int ftrun_parse_flag(Line *line, char **argv, int argc, int *at) {
  char name[64];
  int first = *at;
  const char *argument = argv[*at], *value = NULL;
  const char *equals = strchr(argument, '=');
  bool is_joined = strncmp(argument, "-D", 2) == 0 && argument[2]; /* -Dhidden=512 */
  size_t length = is_joined ? 2 : equals ? (size_t)(equals - argument) : strlen(argument);
  if (length >= sizeof name) return unknown_flag(argument);
  memcpy(name, argument, length);
  name[length] = 0;
  const Flag *flag = find_flag(name);
  if (!flag) return unknown_flag(name);
  if (!(flag->commands & line->command))
    return ftrun_usage_error("%s is no flag of ftrun %s", name,
                             command_names[command_index(line->command)]);
  if (is_joined)
    value = argument + 2;
  else if (equals)
    value = equals + 1;
  if (flag->kind == FLAG_SWITCH) {
    if (value) return ftrun_usage_error("%s takes no value%s", name, "");
  } else if (!value) {
    if (*at + 1 >= argc) return ftrun_usage_error("%s needs a value: %s", name, flag->value);
    value = argv[++*at];
  }
  int64_t count = 0;
  if (flag->kind == FLAG_COUNT && !number_parse_count(value, &count))
    return ftrun_usage_error("%s %s: expected a whole number from 0", name, value);
  if (strcmp(name, "--check") == 0 && strcmp(value, "nan") != 0)
    return ftrun_usage_error("%s=%s: expected --check=nan", name, value);
  take_flag(line, flag, value, count);
  keep_for_ranks(line, name, value, argv + first, *at - first + 1);
  return 0;
}

static int parse_line(Line *line, int argc, char **argv) {
  int at = 1;
  line->command = TRAIN;
  line->kept = calloc((size_t)argc + 1, sizeof *line->kept);
  if (!line->kept) return fprintf(stderr, "error: out of memory\n"), 3;
  line->train.steps = line->train.epochs = -1;
  line->tokens = 200;
  line->samples = line->ranks = line->gpus = 1;
  for (int i = 0; argc > 1 && i < COMMANDS; i++) {
    if (strcmp(argv[1], command_names[i]) != 0) continue;
    line->command = 1 << i;
    at = 2;
  }
  for (; at < argc; at++) {
    if (argv[at][0] == '-' && argv[at][1]) {
      int code = ftrun_parse_flag(line, argv, argc, &at);
      if (code) return code;
    } else if (line->command == TOKENIZE) {
      if (line->text_count == MOST) return ftrun_usage_error("at most %s texts%s", "256", "");
      line->text[line->text_count++] = argv[at];
    } else if (line->train.run.artifact) {
      return ftrun_usage_error("one model at a time: %s and %s", line->train.run.artifact,
                               argv[at]);
    } else {
      line->train.run.artifact = argv[at];
    }
  }
  if (line->command == TOKENIZE) {
    if (!line->text_count) return ftrun_usage_error("tokenize needs a text file%s%s", "", "");
    if (!line->tokenizer) return ftrun_usage_error("tokenize needs --tokenizer PATH%s%s", "", "");
    return line->output_count > 1 ? ftrun_usage_error("tokenize writes one file: %s and %s",
                                                      line->output[0], line->output[1])
                                  : 0;
  }
  if (!line->train.run.artifact && line->command != DEVICES)
    return ftrun_usage_error("%s needs a model: a .so, .ptx or .ft file%s",
                             command_names[command_index(line->command)], "");
  if (!line->find_lr && (line->lr_range || line->plot))
    return ftrun_usage_error("%s goes with --find-lr%s", line->plot ? "--plot" : "--lr-range", "");
  if (line->command & (EVAL | PREDICT | GENERATE) && !line->weights)
    return ftrun_usage_error("%s needs --weights W.safetensors%s",
                             command_names[command_index(line->command)], "");
  return 0;
}

/* ── compiling a .ft file ─────────────────────────────────────────────────────────────────── */

static void split_settings(Line *line) {
  int kept = 0;
  for (int i = 0; i < line->set_count; i++) {
    if (is_static_setting(line->set[i])) {
      push_text(line->pass, &line->pass_count, "--set");
      push_text(line->pass, &line->pass_count, line->set[i]);
    } else {
      line->set[kept++] = line->set[i];
    }
  }
  line->set_count = kept;
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
    fprintf(stderr, "error: %s\n", status_message());
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
    return ftrun_usage_error("--prompt and --prompt-tokens do not go together%s%s", "", "");
  if (line->samples < 1 || line->samples > 1000000)
    return ftrun_usage_error("--samples: from 1 to 1000000%s%s", "", "");
  if (line->tokens > 1000000) return ftrun_usage_error("--tokens: at most 1000000%s%s", "", "");
  if (!number_in_range("--temperature", line->temperature, 0, 100, &options.sample.temperature) ||
      !number_in_range("--top-p", line->top_p, 0, 1, &options.sample.top_p))
    return EXIT_USAGE;
  return report(generate_run(&options));
}

static int run_command(Line *line) {
  RunOptions *run = &line->train.run;
  if (!(line->command & (TRAIN | EVAL | INFO | DEVICES)) || line->find_lr) {
    const char *name = command_names[command_index(line->command)];
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
  case BENCH:
    return report(train_bench(run, line->train.steps > 0 ? (int)line->train.steps : 0,
                              line->made_up_data, line->json));
  case GENERATE:
    return run_generate(line);
  case TOKENIZE:
    return report(tokenize_run(&(TokenizeOptions){line->tokenizer, line->text, line->text_count,
                                                  line->output_count ? line->output[0] : NULL,
                                                  line->no_header}));
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

static int run_source(Line *line) {
  const char *source = line->train.run.artifact, *artifact, *gpu;
  bool is_ptx, is_rank, opens_data = line->command == TRAIN && !line->find_batch;
  dev_compile_for(line->train.run.device, &is_ptx, &gpu);
  int code = folder_open(is_ptx, &artifact);
  if (code) return code;
  split_settings(line);
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

static int run_elastic(Line *line) {
  RunOptions *run = &line->train.run;
  const char *gpu, *artifact;
  bool is_ptx;
  CommPlace place;
  if (comm_place(&place) != STATUS_OK) return report(STATUS_USER);
  if (place.launcher)
    return ftrun_usage_error("--elastic: %s has started this process already%s", place.launcher, "");
  if (line->ranks != 1 || line->gpus != 1)
    return ftrun_usage_error("--elastic and --ranks or --gpus do not go together%s%s", "", "");
  bool is_sim = run->device && !strcmp(run->device, "sim");
  dev_compile_for(run->device, &is_ptx, &gpu);
  split_settings(line);
  run->sets = line->set;
  run->set_count = line->set_count;
  int code = folder_open(is_ptx, &artifact);
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
  if (argc > 1 && view_is_command(argv[1])) return view_start(argc, argv);
  line.train.started = elastic_started();
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--help") != 0 && strcmp(argv[i], "-h") != 0) continue;
    int command = 0;
    for (int j = 0; j < COMMANDS; j++)
      if (strcmp(argv[1], command_names[j]) == 0) command = 1 << j;
    print_help(command);
    return 0;
  }
  if (argc < 2) {
    print_help(0);
    return EXIT_USAGE;
  }
  int code = parse_line(&line, argc, argv);
  if (code) return code;
  if ((line.find_lr || line.find_batch) && (line.elastic || line.ranks != 1 || line.gpus != 1))
    return ftrun_usage_error("%s runs as one process%s",
                             line.find_lr ? "--find-lr" : "--find-batch", "");
  if (line.elastic) return run_elastic(&line);
  if (line.ranks != 1 || line.gpus != 1)
    return ranks_start_line(line.train.run.artifact, line.ranks, line.gpus, argc, argv);
  if (line.train.run.artifact && text_ends_with(line.train.run.artifact, ".ft"))
    return run_source(&line);
  if (line.pass_count) {
    fprintf(stderr, "error: %s %s is for .ft files; %s is compiled already\n", line.pass[0],
            line.pass[1], line.train.run.artifact);
    return 1;
  }
  if (line.find_batch) {
    fprintf(stderr,
            "error: --find-batch is for .ft files; %s is compiled already, for its own batch\n",
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
