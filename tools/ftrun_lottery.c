/* ftrun_lottery: see ftrun_lottery.h. */
#define _GNU_SOURCE
#include "tools/ftrun_lottery.h"
#include "base/say.h"
#include "base/text.h"
#include "runtime/command/lottery.h"
#include "runtime/command/ranks.h"
#include "runtime/device/dev.h"
#include "tools/ftrun_compile.h"
#include "tools/ftrun_flags.h"
#include "tools/ftrun_study.h"
#include "tools/number.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_PATTERNS = 64, MOST_ROUNDS = 100, PATH = 4200 };

typedef struct {
  int command;
  const char *share, *model, *folder, *device;
  SourcePlaces places;
  int64_t rounds, rewind;
  LotteryRule rule;
  const char *on[MOST_PATTERNS];
  const char **pass; /* for the compiler */
  char **kept;       /* for each training */
  int pass_count, kept_count;
  char self[PATH], artifact[PATH], early[PATH];
  FILE *results;
} Rounds;

/* ── the command line ───────────────────────────────────────────────────────────────────────── */
bool lottery_is_command(const char *name) {
  int command = flags_command(&ftrun_line, name);
  return command >= 0 && 1 << command == LOTTERY;
}

static int rounds_wrong(const Rounds *r, const char *why, const char *what) {
  return flags_fail(&ftrun_line, r->command, why, what);
}

/* A flag of training, as it was given. */
static int keep_for_trainings(Rounds *r, const Flag *flag, const char *value, char **from, int count) {
  const char *name = flag->name;
  if (!strcmp(name, "-D") || !strcmp(name, "--preset") || (!strcmp(name, "--set") && study_is_static(value))) {
    r->pass[r->pass_count++] = name;
    r->pass[r->pass_count++] = value;
    return 0;
  }
  if (!strcmp(name, "--set") && !strncmp(value, "train.checkpoint.", 17))
    return rounds_wrong(r, "--set %s: the trainings of a lottery keep the checkpoints that it needs, and no others", value);
  if (!strcmp(name, "--set") && study_is_compilers_too(value)) {
    r->pass[r->pass_count++] = name;
    r->pass[r->pass_count++] = value;
  }
  if (!strcmp(name, "--device")) r->device = value;
  if (!strcmp(name, "--data")) r->places.data_dir = value;
  if (!strcmp(name, "--allow-paths")) r->places.allow_paths = true;
  if (!strcmp(name, "--allow-commands")) r->places.allow_commands = true;
  for (int i = 0; i < count; i++) r->kept[r->kept_count++] = from[i];
  return 0;
}

static int take_lottery_flag(Rounds *r, const Flag *flag, const char *value, int64_t count, char **from, int words) {
  const char *name = flag->name;
  if (!strcmp(name, "-o")) return r->folder = value, 0;
  if (!strcmp(name, "--rewind")) return r->rewind = count, 0;
  if (!strcmp(name, "--random")) return r->rule.is_random = true, 0;
  if (!strcmp(name, "--seed")) return r->rule.seed = (uint64_t)count, 0;
  if (!strcmp(name, "--share")) return number_in_range(name, r->share = value, 0, 1, &r->rule.share) ? 0 : FLAG_EXIT_USAGE;
  if (!strcmp(name, "--scope")) {
    r->rule.is_by_layer = !strcmp(value, "layer");
    return r->rule.is_by_layer || !strcmp(value, "global") ? 0 : rounds_wrong(r, "--scope %s: expected global or layer", value);
  }
  if (!strcmp(name, "--on")) {
    if (r->rule.on_count == MOST_PATTERNS) return rounds_wrong(r, "--on %s: at most 64 patterns", value);
    return r->on[r->rule.on_count++] = value, 0;
  }
  if (!strcmp(name, "--rounds")) {
    if (count < 1 || count > MOST_ROUNDS) return rounds_wrong(r, "--rounds %s: expected a number from 1 to 100", value);
    return r->rounds = count, 0;
  }
  return keep_for_trainings(r, flag, value, from, words);
}

static int parse_lottery_line(Rounds *r, int argc, char **argv) {
  r->pass = calloc(2 * (size_t)argc + 4, sizeof *r->pass);
  r->kept = calloc((size_t)argc + 2, sizeof *r->kept);
  if (!r->pass || !r->kept) return say_error("out of memory"), 3;
  for (int i = 2; i < argc; i++) {
    const Flag *flag;
    const char *value;
    int64_t count = 0;
    int code = 0, first = i;
    if (argv[i][0] == '-' && argv[i][1]) {
      code = flags_parse(&ftrun_line, r->command, argc, argv, &i, &flag, &value, &count);
      if (!code) code = take_lottery_flag(r, flag, value, count, argv + first, i - first + 1);
    } else if (r->model) {
      code = rounds_wrong(r, "%s is one model too many", argv[i]);
    } else {
      r->model = argv[i];
    }
    if (code) return code;
  }
  if (!r->model || !text_ends_with(r->model, ".ft")) return rounds_wrong(r, "%s needs a model: a .ft file", "lottery");
  if (!r->folder) return rounds_wrong(r, "%s needs a folder for what it writes: -o DIR", "lottery");
  if (strlen(r->folder) > 4000) return rounds_wrong(r, "-o %s: the name is too long", r->folder);
  if (r->rule.share == 0 || r->rule.share == 1) return rounds_wrong(r, "--share %s: a round prunes some of the weights, and leaves some", r->share);
  r->rule.on = r->on;
  return 0;
}

/* ── trainings ──────────────────────────────────────────────────────────────────────────────── */
static Status lottery_wait(pid_t process, const char *said) {
  int how;
  while (waitpid(process, &how, 0) < 0)
    if (errno != EINTR) return status_errno(errno, "a training");
  if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return STATUS_OK;
  Text text = {0};
  const char *error = NULL;
  if (text_read_file(&text, said) == 0) error = strstr(text_cstr(&text), "error: ");
  Status status = status_fail(WIFEXITED(how) && WEXITSTATUS(how) == 3 ? STATUS_FAULT : STATUS_USER, "a training ended early (%s)%s%.*s", said,
                              error ? ": " : "", error ? (int)strcspn(error + 7, "\n") : 0, error ? error + 7 : "");
  text_free(&text);
  return status;
}

/* ftrun train ARTIFACT, with what every training has and `more`, which ends in NULL; what it says goes into a file. */
static Status run_training(const Rounds *r, const char *said, const char *const *more) {
  char **list = calloc((size_t)r->kept_count + 32, sizeof *list);
  int at = 0, count = 0;
  if (!list) return status_errno(ENOMEM, "a training");
  list[at++] = (char *)(uintptr_t)r->self;
  list[at++] = "train";
  list[at++] = (char *)(uintptr_t)r->artifact;
  for (int i = 0; i < r->kept_count; i++) list[at++] = r->kept[i];
  while (more[count]) list[at++] = (char *)(uintptr_t)more[count++];
  pid_t parent = getpid(), process = fork();
  if (process == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int out = open(said, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (getppid() != parent || out < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(out, STDERR_FILENO) < 0) _exit(127);
    execv(list[0], list);
    _exit(127);
  }
  int error = errno;
  free(list);
  return process < 0 ? status_errno(error, "a training cannot be started") : lottery_wait(process, said);
}

/* The numbers of the last evaluation in a log, as the text of JSON without braces. */
static Status last_evaluation(const char *path, double *loss, Text *numbers) {
  Text log = {0};
  int error = text_read_file(&log, path);
  *loss = NAN;
  if (error) return text_free(&log), status_fail(STATUS_FAULT, "%s: %s", path, text_error(error));
  char *rest = NULL;
  for (char *line = strtok_r(log.at, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    json_t *json = json_loads(line, 0, NULL);
    const char *key;
    json_t *value;
    bool is_evaluation = json_is_true(json_object_get(json, "eval")) && json_is_number(json_object_get(json, "loss"));
    if (is_evaluation) numbers->count = 0;
    json_object_foreach(json, key, value) {
      if (!is_evaluation || !json_is_real(value) || !strcmp(key, "seconds") || !strcmp(key, "samples_per_s") || !strcmp(key, "time")) continue;
      if (!strcmp(key, "loss")) *loss = json_real_value(value);
      text_printf(numbers, "%s%s %.4f", numbers->count ? ", " : "", key, json_real_value(value));
    }
    json_decref(json);
  }
  text_free(&log);
  if (numbers->count) return STATUS_OK;
  return status_fail(STATUS_USER, "the trainings are not evaluated, so there is nothing to compare: let the recipe say eval every 1 epoch, "
                                  "and have a valid split");
}

static Status tell_round(Rounds *r, int64_t round, bool is_random, LotteryCount count, const char *log) {
  Text numbers = {0};
  double loss;
  Status status = last_evaluation(log, &loss, &numbers);
  if (status == STATUS_OK) {
    double left = count.weights ? (double)count.left / (double)count.weights : 1;
    printf("%5lld  %7.2f %%  %-9s %s\n", (long long)round, 100 * left, !round ? "dense" : is_random ? "random" : "ticket", text_cstr(&numbers));
    fflush(stdout);
    fprintf(r->results, "{\"round\":%lld,\"random\":%s,\"weights\":%lld,\"left\":%lld,\"loss\":%.9g,\"log\":\"%s\"}\n", (long long)round,
            is_random ? "true" : "false", (long long)count.weights, (long long)count.left, loss, strrchr(log, '/') + 1);
    fflush(r->results);
  }
  text_free(&numbers);
  return status;
}

/* ── rounds ─────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  char ticket[PATH], weights[PATH], log[PATH], said[PATH];
} RoundFiles;

static RoundFiles files_of(const Rounds *r, int64_t round, bool is_random) {
  RoundFiles f;
  const char *kind = is_random ? "random" : "round";
  snprintf(f.ticket, sizeof f.ticket, "%s/%s-%lld.ticket.safetensors", r->folder, kind, (long long)round);
  snprintf(f.weights, sizeof f.weights, "%s/%s-%lld.safetensors", r->folder, kind, (long long)round);
  snprintf(f.log, sizeof f.log, "%s/%s-%lld.jsonl", r->folder, kind, (long long)round);
  snprintf(f.said, sizeof f.said, "%s/%s-%lld.txt", r->folder, kind, (long long)round);
  return f;
}

/* The first training: up to the step that weights are put back to, and on to its end. */
static Status train_dense(Rounds *r) {
  RoundFiles f = files_of(r, 0, false);
  char stop[24], folder[PATH + 40];
  snprintf(stop, sizeof stop, "%lld", (long long)r->rewind);
  snprintf(folder, sizeof folder, "train.checkpoint.dir=%s/early", r->folder);
  STATUS_TRY(run_training(r, f.said,
                          (const char *[]){"--stop-at", stop, "--set", folder, "--set", "train.checkpoint.every=1000000000", "--set",
                                           "train.checkpoint.unit=step", NULL}));
  snprintf(r->early, sizeof r->early, "%s/early/step-%08lld.safetensors", r->folder, (long long)r->rewind);
  if (access(r->early, R_OK) != 0)
    return status_fail(STATUS_USER, "--rewind %lld: the training has fewer steps (%s)", (long long)r->rewind, f.said);
  STATUS_TRY(lottery_can_draw(r->early, &r->rule)); /* before hours of training */
  STATUS_TRY(run_training(r, f.said, (const char *[]){"--resume", r->early, "--save", f.weights, "--log-jsonl", f.log, NULL}));
  return tell_round(r, 0, false, (LotteryCount){0}, f.log);
}

static Status train_ticket(Rounds *r, int64_t round, bool is_random) {
  RoundFiles before = files_of(r, round - 1, false), f = files_of(r, round, is_random);
  LotteryRule rule = r->rule;
  LotteryCount count;
  rule.is_random = is_random;
  rule.seed += (uint64_t)round;
  STATUS_TRY(lottery_ticket(r->early, before.weights, &rule, f.ticket, &count));
  STATUS_TRY(run_training(r, f.said, (const char *[]){"--resume", f.ticket, "--save", f.weights, "--log-jsonl", f.log, NULL}));
  return tell_round(r, round, is_random, count, f.log);
}

static Status run_rounds(Rounds *r) {
  char name[PATH];
  ssize_t length = readlink("/proc/self/exe", r->self, sizeof r->self - 1);
  if (length <= 0) return status_errno(errno, "/proc/self/exe");
  r->self[length] = 0;
  snprintf(name, sizeof name, "%s/lottery.jsonl", r->folder);
  r->results = fopen(name, "w");
  if (!r->results) return status_errno(errno, "cannot write %s", name);
  printf("round  weights left\n");
  STATUS_TRY(train_dense(r));
  for (int64_t round = 1; round <= r->rounds; round++) {
    STATUS_TRY(train_ticket(r, round, false));
    if (r->rule.is_random) STATUS_TRY(train_ticket(r, round, true));
  }
  printf("%s has the weights of each round, their logs for ftrun report, and lottery.jsonl\n", r->folder);
  return STATUS_OK;
}

static int build_lottery(Rounds *r) {
  bool is_ptx;
  const char *gpu;
  if (mkdir(r->folder, 0777) < 0)
    return say_error(errno == EEXIST ? "-o %s: it is there already; a lottery begins in a folder of its own" : "cannot make %s", r->folder), 1;
  dev_compile_for(r->device, &is_ptx, &gpu);
  snprintf(r->artifact, sizeof r->artifact, "%s/ticket.%s", r->folder, is_ptx ? "ptx" : "so");
  r->pass[r->pass_count++] = "--set";
  r->pass[r->pass_count++] = "train.prune=zeros";
  return compile_source(&(Compilation){
      .source = r->model, .artifact = r->artifact, .gpu = gpu, .places = &r->places, .pass = r->pass, .pass_count = r->pass_count});
}

int lottery_start(int argc, char **argv) {
  Rounds *r = calloc(1, sizeof *r);
  if (!r) return say_error("out of memory"), 3;
  r->command = flags_command(&ftrun_line, argv[1]);
  r->rounds = 5;
  r->rule.share = 0.2;
  int code = parse_lottery_line(r, argc, argv);
  if (!code && ranks_refuse("lottery") != STATUS_OK) code = STATUS_USER;
  if (!code) code = build_lottery(r);
  if (!code) {
    Status status = run_rounds(r);
    if (status != STATUS_OK) say_error("%s", status_message());
    code = status;
  }
  if (r->results) fclose(r->results);
  free(r->pass);
  free(r->kept);
  free(r);
  return code;
}
