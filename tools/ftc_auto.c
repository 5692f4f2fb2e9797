/* ftc_auto: see ftc_auto.h. */
#include "tools/ftc_auto.h"
#include "base/clock.h"
#include "passes/memory_report.h"
#include "simulate/auto_words.h"
#include "simulate/mesh_choice.h"
#include "simulate/simulate.h"
#include "tools/ftc_stages.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_CHOICES = 8 };

/* "distributed.data=8": what --set would say. */
typedef struct {
  const char *set[MOST_CHOICES];
  int count;
} AutoOutcome;

typedef struct {
  const AutoInput *input;
  CodegenOptions codegen;
  Cluster cluster;
  MeshQuestion question;
  Arena *arena;
} Auto;

bool auto_is_asked(const Program *program) {
  return *setting_text(program->settings, "distributed.auto") != 0;
}

static bool is_said(const SettingValue *settings, const char *key) {
  return settings[setting_find(key)].is_set;
}

/* ── a candidate ────────────────────────────────────────────────────────────────────────────── */
static void add_choice(Arena *arena, AutoOutcome *out, const char *key, int64_t value) {
  out->set[out->count++] = arena_printf(arena, "%s=%lld", key, (long long)value);
}

/* All that the choice is about, so that a candidate does not depend on what the file says of it. */
static void sets_of(Arena *arena, const MeshCandidate *c, AutoOutcome *out) {
  *out = (AutoOutcome){0};
  add_choice(arena, out, "distributed.data", c->mesh.data);
  if (c->mesh.pipeline > 1) add_choice(arena, out, "distributed.pipeline", c->mesh.pipeline);
  if (c->mesh.tensor > 1) add_choice(arena, out, "distributed.tensor", c->mesh.tensor);
  if (c->zero > 0) add_choice(arena, out, "distributed.zero", c->zero);
  add_choice(arena, out, "train.batch", c->batch);
  add_choice(arena, out, "train.accumulate", c->accumulate);
  if (c->recomputes) out->set[out->count++] = "train.recompute=block";
}

static FrontendOptions with_sets(Arena *arena, const FrontendOptions *of, const AutoOutcome *sets) {
  FrontendOptions all = *of;
  const char **set = ARENA_ARRAY(arena, const char *, of->set_count + MOST_CHOICES);
  for (int i = 0; i < of->set_count; i++) set[i] = of->sets[i];
  for (int i = 0; i < sets->count; i++) set[all.set_count++] = sets->set[i];
  all.sets = set;
  return all;
}

/* Ranks that share layers, with nothing of the layers shared out, only do the same often. */
static bool shares_layers(const Graph *graph) {
  for (int i = 0; i < graph->nodes.count; i++)
    if (graph->nodes.at[i]->op == OP_PARAM && node_attr(graph->nodes.at[i], ATTR_CUT)) return true;
  return false;
}

static const char *reckon_step(const Auto *a, Arena *arena, Diag *diag, Stages *stages,
                               MeshCandidate *c) {
  CodegenOptions codegen = a->codegen;
  if (!stages_run_codegen(stages, diag, &codegen)) return "";
  const Plan **plan = ARENA_ARRAY(arena, const Plan *, stages->count);
  c->memory = 0;
  for (int i = 0; i < stages->count; i++) {
    plan[i] = stages->code[i].plan;
    if (simulate_memory(plan[i]) > c->memory) c->memory = simulate_memory(plan[i]);
  }
  Simulation simulation = {arena, plan, stages->count, &a->cluster, NULL};
  Simulated step;
  const char *why = simulate_step(&simulation, a->question.ranks, &step);
  if (why) return why;
  c->seconds = step.seconds;
  c->compute = step.parts.compute;
  c->exposed = step.parts.exposed;
  c->bubble = step.parts.bubble;
  return NULL;
}

static const char *compile_plan(const Auto *a, Arena *arena, Diag *diag, MeshCandidate *c) {
  Program program = {0};
  AutoOutcome sets;
  sets_of(arena, c, &sets);
  FrontendOptions frontend = with_sets(arena, a->input->frontend, &sets);
  PassOptions passes = {.disable = a->input->passes->disable, .multiplies_float8 = a->input->passes->multiplies_float8};
  Stages stages;
  if (!frontend_compile(arena, diag, a->input->path, &frontend, &program) ||
      stages_make(&program, NULL, &stages) ||
      !stages_run_passes(&stages, diag, &passes, a->codegen.target == TARGET_PTX))
    return "";
  bool shares = c->mesh.tensor == 1;
  for (int i = 0; i < stages.count; i++) {
    double its = (double)memory_report(&stages.program[i], arena).total;
    shares = shares || shares_layers(stages.program[i].train);
    if (its > c->memory) c->memory = its;
  }
  if (!shares)
    return arena_printf(a->arena, "%d ranks share no work out: neither heads nor the features "
                                  "between two layers are a multiple of that",
                        c->mesh.tensor);
  if (c->memory > a->question.memory) return NULL;
  const char *why = reckon_step(a, arena, diag, &stages, c);
  stages_free(&stages);
  return why;
}

/* The first error's sentence, without its place. */
static const char *first_error(Arena *arena, const char *text) {
  const char *error = text ? strstr(text, "error: ") : NULL;
  if (!error) return "it does not compile";
  return arena_strndup(arena, error + 7, strcspn(error + 7, "\n"));
}

static void reckon_candidate(void *user, MeshCandidate *c) {
  const Auto *a = user;
  Arena *arena = arena_new();
  Diag diag;
  char *bytes = NULL;
  size_t count = 0;
  FILE *words = open_memstream(&bytes, &count);
  diag_init(&diag, arena, words ? words : stderr);
  const char *why = compile_plan(a, arena, &diag, c);
  if (words) fclose(words);
  if (why) c->refused = *why ? arena_strdup(a->arena, why) : first_error(a->arena, bytes);
  free(bytes);
  arena_free(arena);
}

/* ── the question ───────────────────────────────────────────────────────────────────────────── */
static bool read_words(Auto *a, const Program *program, Diag *diag) {
  bool is_ptx = a->input->codegen->target == TARGET_PTX;
  const char *gpu = is_ptx || !a->input->has_target ? "h100" : "cpu";
  const char *why = auto_words_parse(a->arena, setting_text(program->settings, "distributed.auto"),
                                     gpu, a->input->given, &a->cluster);
  if (!why && a->input->has_target && (*a->cluster.machine->target != 0) != is_ptx)
    why = arena_printf(a->arena, "gpu=%s does not run what is compiled here, a %s",
                       a->cluster.machine->name, is_ptx ? ".ptx" : ".so");
  if (why) diag_error(diag, program->auto_loc, "distributed.auto: %s", why);
  return !why;
}

static void pose_question(Auto *a, const Program *program) {
  const SettingValue *settings = program->settings;
  int64_t accumulate = (int64_t)setting_number(settings, "train.accumulate");
  a->question = (MeshQuestion){
      .arena = a->arena,
      .ranks = cluster_ranks(&a->cluster),
      .local = a->cluster.fabric.local,
      .memory = a->cluster.memory,
      .samples = (int64_t)setting_number(settings, "train.batch") * accumulate,
      .zero = is_said(settings, "distributed.zero")
                  ? (int)setting_number(settings, "distributed.zero")
                  : -1,
      .accumulate = is_said(settings, "train.accumulate") ? accumulate : 0,
      .may_recompute = !is_said(settings, "train.recompute"),
      .reckon = reckon_candidate,
      .user = a};
  if (is_said(settings, "distributed.data")) /* any: 0, open */
    a->question.fixed.data = (int)setting_ranks(settings);
  if (is_said(settings, "distributed.tensor"))
    a->question.fixed.tensor = (int)setting_tensor(settings);
  if (is_said(settings, "distributed.pipeline"))
    a->question.fixed.pipeline = (int)setting_pipeline(settings);
}

/* ── the answer ─────────────────────────────────────────────────────────────────────────────── */
static void print_question(const Auto *a, const MeshAnswer *answer, double seconds) {
  const Fabric *fabric = &a->cluster.fabric;
  fprintf(a->input->out,
          "distributed.auto: %d ranks, %d machine%s of %d, %s, %s each; %lld samples an "
          "update\n%d candidates estimated, not measured, in %.1f s\n\n",
          a->question.ranks, fabric->nodes, fabric->nodes == 1 ? "" : "s", fabric->local,
          a->cluster.machine->text, mesh_bytes(a->arena, a->question.memory),
          (long long)a->question.samples, answer->reckoned, seconds);
}

static void print_chosen(const Auto *a, const AutoOutcome *chosen, const MeshCandidate *c) {
  fprintf(a->input->out, "\nchosen, as by hand:");
  for (int i = 0; i < chosen->count; i++) fprintf(a->input->out, " --set %s", chosen->set[i]);
  fprintf(a->input->out,
          "\nan update takes %lld samples as before: %d group%s of ranks, each %lld micro-batch%s "
          "of %lld\n\n",
          (long long)a->question.samples, c->mesh.data, c->mesh.data == 1 ? "" : "s",
          (long long)c->accumulate, c->accumulate == 1 ? "" : "es", (long long)c->batch);
}

static void fail_choice(const Auto *a, const Program *program, Diag *diag,
                        const MeshAnswer *answer) {
  const MeshCandidate *nearest = mesh_nearest(answer);
  if (nearest)
    diag_error(diag, program->auto_loc,
               "distributed.auto: no mesh of %d ranks fits %s; the nearest, %s, needs %s: more "
               "ranks or more memory, or a smaller model",
               a->question.ranks, mesh_bytes(a->arena, a->question.memory),
               mesh_name(a->arena, nearest), mesh_bytes(a->arena, nearest->memory));
  else if (answer->candidates.count)
    diag_error(diag, program->auto_loc,
               "distributed.auto: no mesh of %d ranks is possible: %s. The samples of an update, "
               "train.batch x train.accumulate = %lld, are shared by all ranks",
               a->question.ranks, answer->candidates.at[0].refused,
               (long long)a->question.samples);
  else
    diag_error(diag, program->auto_loc,
               "distributed.auto: %d ranks are no multiple of what distributed.data, "
               "pipeline and tensor say",
               a->question.ranks);
}

static bool auto_choose(Auto *a, const Program *program, Diag *diag, AutoOutcome *out) {
  MeshAnswer answer;
  int64_t start = clock_nanoseconds();
  if (!read_words(a, program, diag)) return false;
  bool is_gpu = *a->cluster.machine->target != 0;
  a->codegen.target = is_gpu ? TARGET_PTX : TARGET_CPU;
  if (is_gpu && !a->codegen.gpu) a->codegen.gpu = a->cluster.machine->target;
  a->codegen.only_plan = true;
  a->codegen.time_passes = a->codegen.want_text = false;
  pose_question(a, program);
  mesh_choose(&a->question, &answer);
  print_question(a, &answer, (double)(clock_nanoseconds() - start) * 1e-9);
  mesh_print(&a->question, &answer, a->input->out);
  if (answer.chosen < 0) {
    fflush(a->input->out);
    fail_choice(a, program, diag, &answer);
    return false;
  }
  sets_of(program->arena, &answer.candidates.at[answer.chosen], out);
  print_chosen(a, out, &answer.candidates.at[answer.chosen]);
  return true;
}

bool auto_apply(const AutoInput *input, Program *program, Diag *diag) {
  Arena *arena = program->arena;
  Auto a = {.input = input, .codegen = *input->codegen, .arena = arena};
  AutoOutcome chosen;
  if (!auto_choose(&a, program, diag, &chosen)) return false;
  if (!input->has_target) {
    input->codegen->target = a.codegen.target;
    input->codegen->gpu = a.codegen.gpu;
  }
  *input->frontend = with_sets(arena, input->frontend, &chosen);
  *program = (Program){0};
  diag->is_quiet = true; /* its warnings have been read */
  bool good = frontend_compile(arena, diag, input->path, input->frontend, program);
  diag->is_quiet = false;
  if (!good) return false;
  program->settings[setting_find("distributed.auto")] = (SettingValue){.text = ""};
  return true;
}
