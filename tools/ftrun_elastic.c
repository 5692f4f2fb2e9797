/* ftrun_elastic: see ftrun_elastic.h. */
#include "tools/ftrun_elastic.h"
#include "base/clock.h"
#include "base/say.h"
#include "base/text.h"
#include "tools/ftrun_ranks.h"
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So many failures in a row without a checkpoint between them end it. Ranks that were taken in and
 * fail before their first checkpoint are tried again after twice as many. */
enum { MOST_FAILURES = 3, MOST_PATIENCE = 64 };

typedef struct {
  const Elastic *of;
  int64_t least, most, parts; /* parts: of the batch of all, each as large as a rank's */
  int64_t group;              /* ranks that have a batch together */
  char folder[4096];          /* of checkpoints */
  int64_t ranks;
  int64_t seen; /* the newest checkpoint's step; -1: none */
  int made;     /* checkpoints of this run */
  int patience; /* … after which new ranks are taken in */
  bool is_asked;
  char *gpus;          /* of text, cut at its commas */
  const char **gpu;    /* the names of all, as CUDA_VISIBLE_DEVICES has them; those that have failed
                        * stand last */
  int gpu_count, lost; /* lost: the rank whose fault the last run's end was; -1 */
} Run;

/* ── what is to be run ────────────────────────────────────────────────────────────────────── */
static int parse_range(Run *run) {
  const char *text = run->of->range;
  char *colon, *end;
  run->least = strtoll(text, &colon, 10);
  run->most = *colon == ':' ? strtoll(colon + 1, &end, 10) : 0;
  if (colon != text && *colon == ':' && end != colon + 1 && !*end && run->least >= 1 &&
      run->most >= run->least)
    return 0;
  say_error("--elastic %s: expected LEAST:MOST ranks, as 2:8", text);
  return 2;
}

static int elastic_fail(Status status) {
  if (status != STATUS_OK) say_error("%s", status_message());
  return status;
}

/* run->ranks ranks that accumulate so many parts; 0: as the model says. */
static int compile_parts(const Run *run, int64_t parts) {
  enum { MORE = 4 };
  Compilation compilation = run->of->compilation;
  int count = compilation.pass_count;
  char accumulate[64], data[64];
  const char **pass = calloc((size_t)count + MORE, sizeof *pass);
  if (!pass) return say_error("out of memory"), 3;
  for (int i = 0; i < count; i++) pass[i] = compilation.pass[i];
  snprintf(accumulate, sizeof accumulate, "train.accumulate=%lld", (long long)parts);
  if (parts) {
    snprintf(data, sizeof data, "distributed.data=%lld", (long long)(run->ranks / run->group));
    pass[count++] = "--set";
    pass[count++] = data;
    pass[count++] = "--set";
    pass[count++] = accumulate;
  }
  compilation.pass = pass;
  compilation.pass_count = count;
  int code = compile_source(&compilation);
  free(pass);
  return code;
}

/* Of the model, compiled once for that. */
static Status read_settings(Run *run) {
  Artifact *artifact;
  RunOptions options = *run->of->run;
  options.artifact = run->of->compilation.artifact;
  STATUS_TRY(train_open(&options, &artifact));
  const SettingValue *settings = artifact->plan->settings;
  run->parts = run->most * (int64_t)setting_number(settings, "train.accumulate");
  run->group = setting_group(settings);
  snprintf(run->folder, sizeof run->folder, "%s", setting_text(settings, "train.checkpoint.dir"));
  bool has_checkpoints = run->folder[0] && setting_number(settings, "train.checkpoint.every") > 0;
  artifact_close(artifact);
  if (run->most % run->group)
    return status_fail(STATUS_USER,
                       "--elastic %s: %lld ranks have a batch together (distributed.tensor, "
                       "distributed.pipeline), and %lld is no multiple of that",
                       run->of->range, (long long)run->group, (long long)run->most);
  if (has_checkpoints) return STATUS_OK;
  return status_fail(STATUS_USER, "--elastic goes on from checkpoints: set train.checkpoint.dir, "
                                  "and how often, as checkpoint { every = 100 steps }");
}

/* ── runs ─────────────────────────────────────────────────────────────────────────────────── */
/* step-00001234.safetensors */
static int64_t newest_step(const char *folder) {
  int64_t newest = -1;
  DIR *opened = opendir(folder);
  for (struct dirent *entry; opened && (entry = readdir(opened)) != NULL;) {
    long long step;
    int length = 0;
    if (sscanf(entry->d_name, "step-%lld.safetensors%n", &step, &length) == 1 && length > 0 &&
        !entry->d_name[length] && step > newest)
      newest = step;
  }
  if (opened) closedir(opened);
  return newest;
}

/* For ranks_start: after enough checkpoints a run of fewer ranks ends, for one of all. */
static int look_for_checkpoint(void *context) {
  Run *run = context;
  int64_t newest = newest_step(run->folder);
  if (newest > run->seen) {
    run->seen = newest;
    run->made++;
  }
  if (run->ranks == run->most || run->made < run->patience) return 0;
  run->is_asked = true;
  return 1;
}

/* ── GPUs ─────────────────────────────────────────────────────────────────────────────────── */
/* Rank r takes number r of those that it sees. */
static Status list_gpus(Run *run) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  Text text = {0};
  char *rest = NULL;
  for (int i = 0; i < run->of->gpus && !(visible && *visible); i++)
    text_printf(&text, "%s%d", i ? "," : "", i);
  if (visible && *visible) text_printf(&text, "%s", visible);
  run->gpus = text.at;
  run->gpu = text.at ? calloc(text.count + 1, sizeof *run->gpu) : NULL;
  if (!run->gpu) return run->of->gpus ? status_fail(STATUS_FAULT, "out of memory") : STATUS_OK;
  for (char *at = strtok_r(run->gpus, ",", &rest); at; at = strtok_r(NULL, ",", &rest))
    run->gpu[run->gpu_count++] = at;
  return STATUS_OK;
}

/* It may be the GPU's fault: fewer ranks do without it, and all take one that is free first. */
static void put_gpu_last(Run *run, int which) {
  if (which < 0 || which >= run->gpu_count) return;
  const char *lost = run->gpu[which];
  for (int i = which; i + 1 < run->gpu_count; i++) run->gpu[i] = run->gpu[i + 1];
  run->gpu[run->gpu_count - 1] = lost;
  fprintf(stderr, "elastic: GPU %s, which the lost rank had, is taken last now\n", lost);
}

static int start_on_gpus(Run *run, char **arguments) {
  Text visible = {0};
  for (int i = 0; i < run->gpu_count; i++) text_printf(&visible, "%s%s", i ? "," : "", run->gpu[i]);
  GpusRun gpus = {.count = run->ranks,
                  .arguments = arguments,
                  .visible = visible.at,
                  .watch = look_for_checkpoint,
                  .context = run};
  int code = gpus_start(&gpus);
  run->lost = gpus.lost;
  text_free(&visible);
  return code;
}

static int elastic_signalled(const Run *run) {
  return run->of->gpus ? gpus_signalled() : ranks_signalled();
}

/* ── one after the other ───────────────────────────────────────────────────────────────────── */
/* The next smaller number of ranks, whole groups, that divides the parts, or the same. */
static int64_t fewer(const Run *run) {
  for (int64_t r = run->ranks - 1; r >= run->least; r--)
    if (run->parts % r == 0 && r % run->group == 0) return r;
  return run->ranks;
}

static bool resumes_at_first(const Elastic *elastic) {
  for (int i = 0; elastic->arguments[i]; i++)
    if (!strncmp(elastic->arguments[i], "--resume", 8)) return true;
  return false;
}

/* "--resume" or "--init…" and its value: with the value as a word of its own, or joined by "=". */
static bool begins_values(const char *argument) {
  return !strncmp(argument, "--resume", 8) || !strncmp(argument, "--init", 6);
}

/* "--resume DIR" in the place of another one, and of --init and what goes with it. */
static char **arguments_of(const Run *run, bool resumes) {
  const Elastic *elastic = run->of;
  int count = 0, at = 0;
  while (elastic->arguments[count]) count++;
  char **all = calloc((size_t)count + 4, sizeof *all);
  if (!all) return NULL;
  all[at++] = (char *)(uintptr_t)elastic->compilation.artifact;
  for (int i = 0; i < count; i++) {
    char *argument = elastic->arguments[i];
    bool is_left_out = resumes && begins_values(argument);
    if (is_left_out && !strchr(argument, '=')) i++;
    if (!is_left_out) all[at++] = argument;
  }
  if (resumes) all[at++] = (char *)(uintptr_t)"--resume";
  if (resumes) all[at++] = (char *)(uintptr_t)run->folder;
  return all;
}

static int run_once(Run *run, bool resumes) {
  int code = compile_parts(run, run->parts / run->ranks);
  if (!code && elastic_signalled(run)) code = 128 + elastic_signalled(run);
  if (code) return code;
  char **arguments = arguments_of(run, resumes);
  if (!arguments) return say_error("out of memory"), 3;
  run->seen = newest_step(run->folder);
  run->made = 0;
  run->is_asked = false;
  run->lost = -1;
  code = run->of->gpus ? start_on_gpus(run, arguments)
                       : ranks_start(run->ranks, arguments, look_for_checkpoint, run);
  look_for_checkpoint(run); /* what it has written since */
  free(arguments);
  return code;
}

static void elastic_say(const Run *run, int code, int64_t next) {
  fflush(stdout);
  if (run->is_asked)
    fprintf(stderr, "elastic: from step %lld on with %lld ranks again\n", (long long)run->seen,
            (long long)next);
  else if (run->seen >= 0)
    fprintf(stderr,
            "elastic: the %lld ranks have ended with code %d; the training goes on from the "
            "checkpoint of step %lld with %lld\n",
            (long long)run->ranks, code, (long long)run->seen, (long long)next);
  else
    fprintf(stderr,
            "elastic: the %lld ranks have ended with code %d before the first checkpoint; the "
            "training begins again with %lld\n",
            (long long)run->ranks, code, (long long)next);
}

/* Runs after the first count their time from this one's beginning. */
#define STARTED "FT_STARTED"

static void note_start(void) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)clock_nanoseconds());
  setenv(STARTED, text, 1);
}

int64_t elastic_started(void) {
  int64_t now = clock_nanoseconds();
  long long told = getenv(STARTED) ? strtoll(getenv(STARTED), NULL, 10) : 0;
  return told > 0 && told < now ? told : now;
}

static int run_all(Run *run) {
  bool resumes = false, was_grown = false;
  for (int failures = 0;;) {
    int code = run_once(run, resumes);
    bool has_grown = run->is_asked && code == 128 + SIGUSR1;
    /* 1 and 2 are the user's errors, which the next run would meet too, unless there are no more as
     * many GPUs as there were */
    bool is_grown_only = code == 1 && was_grown && !run->made;
    if ((code <= 2 && !is_grown_only) || code == TRAIN_TIME_IS_UP || elastic_signalled(run))
      return code;
    if (!has_grown) run->is_asked = false;
    failures = has_grown || run->made ? 0 : failures + 1;
    if (failures > MOST_FAILURES) {
      say_error("--elastic: %d runs in a row have failed without a new checkpoint", failures);
      return code;
    }
    if (!has_grown && was_grown && !run->made && run->patience < MOST_PATIENCE) run->patience *= 2;
    if (run->made && was_grown) run->patience = 1;
    int64_t next = has_grown ? run->most : fewer(run);
    elastic_say(run, code, next);
    if (!has_grown) put_gpu_last(run, run->lost);
    resumes = run->seen >= 0;
    was_grown = has_grown;
    run->ranks = next;
  }
}

/* What an earlier training has left in the folder is not to be taken for this one's. */
static int refuse_old_checkpoints(const Run *run) {
  int64_t newest = newest_step(run->folder);
  if (newest < 0 || resumes_at_first(run->of)) return 0;
  return elastic_fail(
      status_fail(STATUS_USER,
                  "%s holds a checkpoint of step %lld of a training before: --resume %s "
                  "goes on from it, or name an empty folder",
                  run->folder, (long long)newest, run->folder));
}

int elastic_run(const Elastic *elastic) {
  const char *source = elastic->compilation.source;
  size_t length = strlen(source);
  Run run = {.of = elastic, .patience = 1};
  int code = parse_range(&run);
  if (code) return code;
  if (length < 3 || strcmp(source + length - 3, ".ft") != 0)
    return elastic_fail(
        status_fail(STATUS_USER,
                    "--elastic compiles the model for each number of ranks: give it the "
                    ".ft file, not %s",
                    source));
  run.ranks = run.most;
  note_start();
  code = compile_parts(&run, 0);
  if (!code) code = elastic_fail(read_settings(&run));
  if (!code) code = refuse_old_checkpoints(&run);
  if (!code) code = elastic_fail(list_gpus(&run));
  if (!code) code = run_all(&run);
  free(run.gpus);
  free(run.gpu);
  return code;
}
