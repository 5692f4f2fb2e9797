/* ftc_batch: see ftc_batch.h. What a candidate needs is what ftrun would take for it: the plan, and on
 * a CPU, where they are in the same memory, the batches that are prepared ahead. The choice depends
 * on the program, the target and the words only. */
#include "tools/ftc_batch.h"
#include "passes/memory_report.h"
#include "simulate/simulate.h"
#include "tools/ftc_stages.h"
#include <stdlib.h>
#include <string.h>

enum { BATCH_MOST = 65536, BATCH_MOST_SHOWN = 1024 };
static const double batch_spare = 1 << 30; /* of a GPU: its driver's context, libraries' work */

typedef struct {
  int64_t batch;
  double needs, seconds; /* bytes; of a step, reckoned */
  double samples;        /* of a step */
  const char *refused;   /* why it is none */
} BatchRow;

typedef struct {
  const AutoInput *input;
  CodegenOptions codegen;
  Cluster cluster;
  Arena *arena;
  double memory;  /* that may be taken; 0: it is not said */
  const char *of; /* whose memory: for the reader */
  int64_t most;
  VEC(BatchRow) rows; /* in the order they were tried */
} BatchSearch;

static const char *batch_words(const Program *program) {
  return setting_text(program->settings, "train.batch.auto");
}

bool batch_is_asked(const Program *program) { return *batch_words(program) != 0; }

/* ── a candidate ────────────────────────────────────────────────────────────────────────────── */

static FrontendOptions options_with_batch(Arena *arena, const FrontendOptions *of, int64_t batch) {
  FrontendOptions all = *of;
  const char **set = ARENA_ARRAY(arena, const char *, of->set_count + 1);
  for (int i = 0; i < of->set_count; i++) set[i] = of->sets[i];
  set[all.set_count++] = arena_printf(arena, "train.batch=%lld", (long long)batch);
  all.sets = set;
  return all;
}

static const char *reckon_rate(const BatchSearch *search, Arena *arena, Diag *diag, Stages *stages,
                               BatchRow *row) {
  CodegenOptions codegen = search->codegen;
  Simulated step;
  if (!stages_run_codegen(stages, diag, &codegen)) return "";
  const Plan **plan = ARENA_ARRAY(arena, const Plan *, stages->count);
  for (int i = 0; i < stages->count; i++) plan[i] = stages->code[i].plan;
  Simulation simulation = {arena, plan, stages->count, &search->cluster, NULL};
  int64_t group = setting_group(plan[0]->settings), ranks = setting_ranks(plan[0]->settings);
  const char *why = simulate_step(&simulation, (int)(group * (ranks ? ranks : 1)), &step);
  if (why) return NULL; /* no rate is no reason */
  row->seconds = step.seconds;
  row->samples = step.samples;
  return NULL;
}

/* NULL, or why not; "": diag has said it. */
static const char *try_batch(const BatchSearch *search, Arena *arena, Diag *diag, BatchRow *row) {
  Program program = {0};
  FrontendOptions frontend = options_with_batch(arena, search->input->frontend, row->batch);
  PassOptions passes = {.disable = search->input->passes->disable, .multiplies_float8 = search->input->passes->multiplies_float8};
  bool is_gpu = search->codegen.target == TARGET_PTX;
  Stages stages;
  if (!frontend_compile(arena, diag, search->input->path, &frontend, &program) ||
      stages_make(&program, NULL, &stages) || !stages_run_passes(&stages, diag, &passes, is_gpu))
    return "";
  double ahead = 1 + setting_number(program.settings, "data.prefetch");
  if (ahead == 1 + SETTING_AUTO) ahead = 1 + SETTING_MOST_AUTO_PREFETCH;
  for (int i = 0; i < stages.count; i++) {
    MemoryReport report = memory_report(&stages.program[i], arena);
    double needs = (double)report.total;
    if (!is_gpu) needs += ahead * (double)report.bytes[MEMORY_INPUT];
    if (needs > row->needs) row->needs = needs;
  }
  const char *why = reckon_rate(search, arena, diag, &stages, row);
  stages_free(&stages);
  return why;
}

static bool row_fits(const BatchSearch *search, const BatchRow *row) {
  return !row->refused && (search->memory == 0 || row->needs <= search->memory);
}

static BatchRow *add_row(BatchSearch *search, int64_t batch) {
  Arena *arena = arena_new();
  BatchRow row = {.batch = batch};
  Diag diag;
  char *bytes = NULL;
  size_t count = 0;
  FILE *words = open_memstream(&bytes, &count);
  diag_init(&diag, arena, words ? words : stderr);
  const char *why = try_batch(search, arena, &diag, &row);
  if (words) fclose(words);
  const char *error = why && !*why && bytes ? strstr(bytes, "error: ") : NULL;
  if (why && *why) row.refused = arena_strdup(search->arena, why);
  if (why && !*why)
    row.refused = error ? arena_strndup(search->arena, error + 7, strcspn(error + 7, "\n"))
                        : "it does not compile";
  free(bytes);
  arena_free(arena);
  VEC_PUSH(search->arena, search->rows, row);
  return &search->rows.at[search->rows.count - 1];
}

/* ── the search ─────────────────────────────────────────────────────────────────────────────── */

/* Powers of two up to the first that does not fit, then the quarters between. Returns the largest that
 * fits, or 0. What the model cannot be built with is passed over. */
static int64_t search_batch(BatchSearch *search) {
  int64_t best = 0;
  bool is_over = false;
  for (int64_t batch = 1; batch <= search->most && !is_over; batch *= 2) {
    const BatchRow *row = add_row(search, batch);
    if (row_fits(search, row)) best = batch;
    is_over = !row->refused && !row_fits(search, row);
  }
  if (!best || !is_over || search->memory == 0) return best;
  int64_t low = best, step = best / 2;
  for (int i = 0; i < 2 && step >= 1; i++, step /= 2) {
    if (low + step > search->most || !row_fits(search, add_row(search, low + step))) continue;
    low += step;
  }
  return low;
}

static int by_batch(const void *a, const void *b) {
  int64_t x = ((const BatchRow *)a)->batch, y = ((const BatchRow *)b)->batch;
  return x < y ? -1 : x > y;
}

static void batch_print_rows(BatchSearch *search, int64_t chosen, FILE *out) {
  qsort(search->rows.at, (size_t)search->rows.count, sizeof *search->rows.at, by_batch);
  fprintf(out, "%10s %12s %14s %14s\n", "batch", "memory", "ms a step", "samples/s");
  for (int i = 0; i < search->rows.count; i++) {
    const BatchRow *row = &search->rows.at[i];
    char memory[32], step[32] = "-", rate[32] = "-";
    if (row->refused) {
      fprintf(out, "%10lld %s\n", (long long)row->batch, row->refused);
      continue;
    }
    if (row->seconds > 0) {
      snprintf(step, sizeof step, "%.3f", row->seconds * 1e3);
      snprintf(rate, sizeof rate, "%.0f", row->samples / row->seconds);
    }
    fprintf(out, "%10lld %12s %14s %14s%s\n", (long long)row->batch,
            memory_human((int64_t)row->needs, memory), step, rate,
            row->batch == chosen     ? "  largest that fits"
            : !row_fits(search, row) ? "  does not fit"
                                     : "");
  }
}

/* ── what is asked ──────────────────────────────────────────────────────────────────────────── */

/* The GPU of the table that runs this target and has the least memory. */
static const Machine *machine_of(const char *target) {
  const Machine *least = NULL;
  for (int i = 0; i < machine_count; i++) {
    const Machine *machine = &machine_table[i];
    bool runs = strncmp(machine->target, target, 5) == 0 && *machine->target;
    if (runs && (!least || machine->memory < least->memory)) least = machine;
  }
  return least;
}

/* "memory=8GiB gpu=h100 most=512": all but `most` is for cluster_parse. */
static const char *read_most(BatchSearch *search, const char *words, Text *rest) {
  char *copy = arena_strdup(search->arena, words), *at = NULL;
  for (char *word = strtok_r(copy, " ", &at); word; word = strtok_r(NULL, " ", &at)) {
    char *end;
    if (strcmp(word, "auto") == 0) continue;
    if (strncmp(word, "memory=", 7) && strncmp(word, "gpu=", 4) && strncmp(word, "most=", 5))
      return arena_printf(search->arena, "'%s': it takes memory=8GiB, gpu=h100 and most=512", word);
    if (strncmp(word, "most=", 5) != 0) {
      text_printf(rest, " %s", word);
      continue;
    }
    long long most = strtoll(word + 5, &end, 10);
    if (*end || end == word + 5 || most < 1 || most > 1 << 30)
      return arena_printf(search->arena, "%s: expected a batch from 1 to %d", word, 1 << 30);
    search->most = most;
  }
  return NULL;
}

static const char *read_budget(BatchSearch *search, const char *words, bool must_know) {
  Text text = {0};
  const char *why = read_most(search, words, &text);
  bool is_gpu = search->codegen.target == TARGET_PTX, has_memory = strstr(words, "memory=") != NULL;
  const char *target = search->codegen.gpu ? search->codegen.gpu : "sm_80";
  const Machine *machine = is_gpu ? machine_of(target) : machine_find("cpu");
  if (!why && !strstr(text_cstr(&text), "gpu=")) {
    if (!machine && !has_memory && must_know)
      why = arena_printf(search->arena,
                         "how much memory a GPU for %s has is not known here: "
                         "auto(memory = 24 GiB)",
                         target);
    text_printf(&text, " gpu=%s", machine ? machine->name : "a100");
  }
  if (!why) why = cluster_parse(search->arena, text_cstr(&text), &search->cluster);
  text_free(&text);
  if (why) return why;
  if ((*search->cluster.machine->target != 0) != is_gpu)
    return arena_printf(search->arena, "gpu=%s does not run what is compiled here, a %s",
                        search->cluster.machine->name, is_gpu ? ".ptx" : ".so");
  if (!has_memory && !is_gpu)
    return must_know ? "how much memory may it take on a CPU? Say auto(memory = 8 GiB)" : NULL;
  if (!has_memory && !machine && !must_know) return NULL;
  search->memory = search->cluster.memory - (has_memory ? 0 : batch_spare);
  search->of =
      has_memory ? "as is said"
                 : arena_printf(search->arena, "of an %s, less 1 GiB for its driver and libraries",
                                search->cluster.machine->text);
  return NULL;
}

static const char *open_search(BatchSearch *search, const AutoInput *input, const Program *program,
                               bool must_know) {
  *search = (BatchSearch){.input = input, .codegen = *input->codegen, .arena = program->arena};
  search->codegen.only_plan = true;
  search->codegen.time_passes = search->codegen.want_text = false;
  const char *why = read_budget(search, batch_words(program), must_know);
  if (!search->most) search->most = search->memory ? BATCH_MOST : BATCH_MOST_SHOWN;
  return why;
}

static void print_search(BatchSearch *search, int64_t chosen, FILE *out) {
  char memory[32];
  if (search->memory)
    fprintf(out, "train.batch: memory %s, %s; times are estimated for %s, not measured\n",
            memory_human((int64_t)search->memory, memory), search->of,
            search->cluster.machine->text);
  else
    fprintf(out, "train.batch: times are estimated for %s, not measured\n",
            search->cluster.machine->text);
  batch_print_rows(search, chosen, out);
}

static bool batch_fail(const BatchSearch *search, const Program *program, Diag *diag) {
  const BatchRow *first = &search->rows.at[0];
  char needs[32], memory[32];
  if (first->refused)
    diag_error(diag, program->batch_loc,
               "batch = auto: the model is compiled with no batch up to %lld: %s",
               (long long)search->most, first->refused);
  else
    diag_error(
        diag, program->batch_loc,
        "batch = auto: a batch of 1 needs %s, and there are %s: more memory, a smaller model or "
        "recompute = block",
        memory_human((int64_t)first->needs, needs), memory_human((int64_t)search->memory, memory));
  return false;
}

bool batch_apply(const AutoInput *input, Program *program, Diag *diag) {
  BatchSearch search;
  Arena *arena = program->arena;
  const char *why =
      *setting_text(program->settings, "distributed.auto")
          ? "distributed.auto chooses the micro-batch itself: leave one of the two out"
          : open_search(&search, input, program, true);
  if (why) return diag_error(diag, program->batch_loc, "batch = auto: %s", why), false;
  int64_t chosen = search_batch(&search);
  print_search(&search, chosen, input->out);
  if (!chosen) return batch_fail(&search, program, diag);
  fprintf(input->out, "chosen, as by hand: --set train.batch=%lld%s\n\n", (long long)chosen,
          chosen == search.most ? " (the most that is asked for)" : "");
  fflush(input->out);
  const char *words = batch_words(program);
  *input->frontend = options_with_batch(arena, input->frontend, chosen);
  *program = (Program){0};
  diag->is_quiet = true; /* its warnings have been read */
  bool good = frontend_compile(arena, diag, input->path, input->frontend, program);
  diag->is_quiet = false;
  /* how it was chosen stays in the artifact */
  if (good)
    program->settings[setting_find("train.batch.auto")] =
        (SettingValue){.text = words, .is_set = true};
  return good;
}

int batch_print(const AutoInput *input, const Program *program, Diag *diag) {
  BatchSearch search;
  const char *why = open_search(&search, input, program, false);
  if (why) return diag_error(diag, program->batch_loc, "--find-batch: %s", why), 1;
  int64_t chosen = search_batch(&search);
  print_search(&search, search.memory ? chosen : 0, input->out);
  return chosen ? 0 : (batch_fail(&search, program, diag), 1);
}
