/* ftrun_study_build: see ftrun_study_private.h. */
#define _GNU_SOURCE
#include "base/say.h"
#include "base/text.h"
#include "plan/plan.h"
#include "plan/tuned.h"
#include "runtime/artifact/artifact.h"
#include "runtime/common/fnv.h"
#include "runtime/device/dev.h"
#include "tools/ftrun_compile.h"
#include "tools/ftrun_study_private.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int assigned_setting(const char *assignment) {
  char key[128];
  snprintf(key, sizeof key, "%.*s", (int)strcspn(assignment, "="), assignment);
  return setting_find(key);
}

bool study_is_static(const char *assignment) {
  int index = assigned_setting(assignment);
  return index >= 0 && setting_info[index].when == WHEN_STATIC;
}

/* Is the setting one without which, or with which at 0, ftc leaves out what it is for? */
static bool is_of_compiler(const char *key) {
  char list[64], *rest = NULL;
  if (!strcmp(key, "train.ema") || !strncmp(key, "train.quantize.", 15)) return true;
  for (int i = 0; i < optimizer_count; i++) {
    snprintf(list, sizeof list, "%s", optimizer_info[i].buffers);
    for (char *word = strtok_r(list, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
      if (!strncmp(key, "train.", 6) && !strcmp(key + 6, word)) return true;
  }
  return false;
}

bool study_is_compilers_too(const char *assignment) {
  int index = assigned_setting(assignment);
  if (index < 0 || setting_info[index].when == WHEN_STATIC) return false;
  const char *key = setting_info[index].key;
  return !strcmp(key, "train.log.layers") || is_of_compiler(key);
}

/* In what `ftc --hypers` prints: a title, the heads of columns, and a line for each hyper, up to an empty one. NULL: there is none
 * of this name; else its type, as the compiler calls it. */
static const char *printed_type_of(const char *printed, const char *name) {
  static const char *const types[] = {"int", "float", "bool", "str"};
  size_t length = strlen(name);
  for (int line = 0; *printed && *printed != '\n'; line++) {
    const char *column = printed + 2 + length;
    bool is_it = line > 1 && !strncmp(printed, "  ", 2) && !strncmp(printed + 2, name, length) && *column == ' ';
    column += is_it ? strspn(column, " ") : 0;
    for (size_t i = 0; is_it && i < sizeof types / sizeof *types; i++)
      if (strcspn(column, " \n") == strlen(types[i]) && !strncmp(column, types[i], strlen(types[i]))) return types[i];
    printed += strcspn(printed, "\n");
    printed += *printed == '\n';
  }
  return NULL;
}

/* Has the hyper or setting a place for all that the dimension gives? A tune block's has: ftc has looked. */
static Status check_dim(const Dim *dim, const Tuned *tuned) {
  char why[TUNED_WHY];
  Text value = {0};
  Arena *arena = arena_new();
  SettingValue *trial = settings_new(arena);
  bool is_choice = dim->kind == DIM_CHOICE;
  TunedRange range = {dim->is_log, dim->kind == DIM_INT, dim->low, dim->high, dim->step};
  bool fine = is_choice || tuned_takes_range(tuned, &range, why);
  for (int i = 0; fine && i < (is_choice ? dim->choice_count : 2); i++) {
    value.count = 0;
    dim_print(dim, is_choice ? i : i ? dim->high : dim->low, &value);
    fine = tuned_takes(tuned, arena, trial, text_cstr(&value), why);
  }
  arena_free(arena);
  text_free(&value);
  return fine ? STATUS_OK : status_fail(STATUS_USER, "--space %s: %s", dim->name, why);
}

/* A hyper of the model's file goes before a setting of its name. */
static Status resolve_dim(StudyBuild *b, int index, const Text *hypers) {
  const Dim *dim = &b->o->space.dim[index];
  const char *name = dim->name, *type = b->o->is_source ? printed_type_of(text_cstr(hypers), name) : NULL;
  if (type) {
    b->how[index] = SETS_HYPER;
    snprintf(b->key[index], sizeof b->key[index], "%s", name);
    return check_dim(dim, &(Tuned){name, type, -1});
  }
  int setting = setting_find_short(name, b->key[index], sizeof b->key[index]);
  if (setting < 0) {
    char hint[256];
    setting_hint(name, hint, sizeof hint);
    return status_fail(STATUS_USER, "--space %s: there is no such %s%s", name,
                       b->o->is_source ? "hyper in the file, and no setting" : "setting", hint);
  }
  b->how[index] = setting_info[setting].when == WHEN_STATIC ? SETS_STATIC : SETS_RUN;
  if (b->how[index] == SETS_STATIC && !b->o->is_source)
    return status_fail(STATUS_USER,
                       "--space %s: %s is compiled in; give the .ft file in place of %s", name,
                       b->key[index], b->o->model);
  return check_dim(dim, &(Tuned){b->key[index], tuned_type(setting_info[setting].kind), setting});
}

static Status make_study_folder(const char *path) {
  struct stat about;
  if (mkdir(path, 0777) == 0) return STATUS_OK;
  if (errno != EEXIST) return status_errno(errno, "%s", path);
  if (stat(path, &about) == 0 && S_ISDIR(about.st_mode)) return STATUS_OK;
  return status_fail(STATUS_USER, "%s is no folder; choose another one with --study", path);
}

/* model.ft: model.study beside nothing: in the current folder. */
static char *default_study(const char *model) {
  const char *slash = strrchr(model, '/'), *name = slash ? slash + 1 : model;
  const char *dot = strrchr(name, '.');
  Text path = {0};
  text_printf(&path, "%.*s.study", (int)(dot ? (size_t)(dot - name) : strlen(name)), name);
  return path.at;
}

static void append_assignment(const StudyBuild *b, int dim, const double *point, Text *out) {
  text_printf(out, "%s=", b->key[dim]);
  dim_print(&b->o->space.dim[dim], point[dim], out);
}

/* The compiler's arguments: those of the command line, and what the point says (point NULL: nothing). */
static char **compile_arguments(const StudyBuild *b, const double *point, int *count) {
  int room = b->o->pass_count + 2 * b->o->space.count;
  char **list = calloc((size_t)room + 1, sizeof *list);
  *count = 0;
  if (!list) return NULL;
  for (int i = 0; i < b->o->pass_count; i++) list[(*count)++] = strdup(b->o->pass[i]);
  for (int d = 0; point && d < b->o->space.count; d++) {
    Text text = {0};
    if (b->how[d] == SETS_RUN || isnan(point[d])) continue;
    append_assignment(b, d, point, &text);
    list[(*count)++] = strdup(b->how[d] == SETS_HYPER ? "-D" : "--set");
    list[(*count)++] = text.at;
  }
  return list;
}

static void free_arguments(char **list, int count) {
  for (int i = 0; list && i < count; i++) free(list[i]);
  free(list);
}

/* By what it was compiled from: the file as it is now, and all arguments. */
static Status name_artifact(const StudyBuild *b, char *const *arguments, int count,
                            char path[4096]) {
  Text all = {0};
  int error = text_read_file(&all, b->o->model);
  if (error) {
    text_free(&all);
    return status_errno(error, "%s", b->o->model);
  }
  for (int i = 0; i < count; i++) text_append(&all, arguments[i], strlen(arguments[i]) + 1);
  text_printf(&all, "%s %d", b->gpu ? b->gpu : "cpu", b->is_ptx);
  uint64_t sum = fnv_add(FNV_START, all.at, all.count);
  text_free(&all);
  snprintf(path, 4096, "%s/model-%016llx.%s", b->o->study, (unsigned long long)sum,
           b->is_ptx ? "ptx" : "so");
  return STATUS_OK;
}

int build_artifact(const StudyBuild *b, const double *point, char path[4096], char why[200]) {
  if (!b->o->is_source) {
    snprintf(path, 4096, "%s", b->o->model);
    return 0;
  }
  int count;
  char **arguments = compile_arguments(b, point, &count);
  Status status = arguments ? name_artifact(b, arguments, count, path)
                            : status_fail(STATUS_FAULT, "out of memory");
  int code = (int)status;
  if (status) snprintf(why, 200, "%s", status_message());
  if (!status && access(path, R_OK) < 0) {
    code = compile_source(&(Compilation){.source = b->o->model,
                                         .artifact = path,
                                         .gpu = b->gpu,
                                         .places = &b->o->places,
                                         .pass = (const char *const *)arguments,
                                         .pass_count = count});
    if (code) snprintf(why, 200, "it does not compile");
  }
  free_arguments(arguments, count);
  return code;
}

static Status build_first(StudyBuild *b) {
  char why[200];
  int code = build_artifact(b, NULL, b->first, why);
  return code ? status_fail(code == 3 ? STATUS_FAULT : STATUS_USER, "%s: %s", b->o->model, why)
              : STATUS_OK;
}

static bool is_in_graph(const Plan *plan, const char *key) {
  for (int i = 0; i < plan->scalars.count; i++)
    if (!strcmp(plan->scalars.at[i].name, key)) return true;
  return false;
}

/* A momentum that the recipe does not have is compiled in, so that each value of it has its artifact. */
static Status compile_in_buffers(StudyBuild *b) {
  Artifact *artifact;
  Status status = artifact_open(b->first, &artifact);
  if (status) return status;
  for (int d = 0; !status && d < b->o->space.count; d++) {
    bool is_fine = b->how[d] != SETS_RUN || !is_of_compiler(b->key[d]) ||
                   is_in_graph(artifact->plan, b->key[d]);
    if (is_fine) continue;
    b->how[d] = SETS_STATIC;
    if (!b->o->is_source)
      status = status_fail(STATUS_USER,
                           "--space %s: the model was compiled with 0 and has no memory for it; "
                           "give the .ft file in place of %s",
                           b->o->space.dim[d].name, b->o->model);
  }
  artifact_close(artifact);
  return status;
}

Status build_begin(StudyBuild *b, TuneOptions *o) {
  *b = (StudyBuild){.o = o};
  if (o->is_source) dev_compile_for(o->device, &b->is_ptx, &b->gpu);
  Status status = STATUS_OK;
  for (int d = 0; !status && d < o->space.count; d++) status = resolve_dim(b, d, &o->hypers);
  if (status) return status;
  if (!o->study) o->study = default_study(o->model);
  STATUS_TRY(make_study_folder(o->study));
  STATUS_TRY(build_first(b));
  return compile_in_buffers(b);
}

/* An artifact that hardly another trial needs: a number was compiled in that a range gave. */
void build_drop(const StudyBuild *b, const double *point, const char *path) {
  bool is_single = false;
  for (int d = 0; d < b->o->space.count; d++)
    is_single |= b->how[d] != SETS_RUN && !isnan(point[d]) && !dim_values(&b->o->space.dim[d]);
  if (is_single && b->o->is_source) unlink(path);
}

Status build_goal(const StudyBuild *b, char *out, size_t capacity) {
  Artifact *artifact;
  if (b->o->goal) return snprintf(out, capacity, "%s", b->o->goal), STATUS_OK;
  STATUS_TRY(artifact_open(b->first, &artifact));
  const Plan *plan = artifact->plan;
  const char *best = setting_text(plan->settings, "train.checkpoint.best");
  bool has_valid = false;
  for (int i = 0; i < plan->sources.count; i++)
    has_valid |= !strcmp(plan->sources.at[i].split, "valid");
  snprintf(out, capacity, "%s", *best ? best : has_valid ? "min(valid.loss)" : "min(train.loss)");
  artifact_close(artifact);
  return STATUS_OK;
}

static void append_goal_name(Text *names, const char *prefix, const char *name) {
  text_printf(names, "%s%s%s", names->count ? ", " : "", prefix, name);
}

/* The numbers that a training's log has of a split, which are the outputs of the graph; a table is none. */
static void append_logged(const PlanGraph *graph, const char *prefix, Text *names) {
  append_goal_name(names, prefix, "loss");
  for (int i = 0; i < graph->outputs.count; i++) {
    const PlanOutput *output = &graph->outputs.at[i];
    bool is_number = output->kind == OUTPUT_AUC || (output->kind == OUTPUT_METRIC && !output->type.shape.rank);
    if (is_number) append_goal_name(names, prefix, output->name);
    if (output->kind == OUTPUT_GRAD_NORM) append_goal_name(names, prefix, "grad_norm");
    if (output->kind == OUTPUT_LOSS_SCALE) append_goal_name(names, prefix, "loss_scale");
    if (output->kind == OUTPUT_SKIPPED) append_goal_name(names, prefix, "skipped_steps");
  }
}

static const PlanGraph *graph_of_log(const Plan *plan, const char *name) {
  const PlanProgramme *programme = plan_find_programme(plan, name);
  return programme ? &plan->graphs.at[programme->runs.at[programme->runs.count - 1].graph] : NULL;
}

/* Do trials choose one of these settings? */
static bool chooses(const StudyBuild *b, const char *keys) {
  for (int d = 0; d < b->o->space.count; d++)
    if (b->how[d] != SETS_HYPER && text_has_word(keys, b->key[d])) return true;
  return false;
}

/* What the log has beside, with or without the setting in the first artifact. */
static void append_chosen(const StudyBuild *b, Text *names) {
  if (chooses(b, "train.clip train.log.grad_norm")) append_goal_name(names, "", "grad_norm");
  if (chooses(b, "train.precision")) text_printf(names, ", loss_scale, skipped_steps");
}

/* Not with eval = none, in the file or behind --set, unless trials choose it. */
static bool evaluates(const StudyBuild *b, const Plan *plan) {
  static const char key[] = "train.eval.every";
  double every = setting_number(plan->settings, key);
  if (chooses(b, key)) return true;
  for (int i = 0; i < b->o->kept_count; i++) {
    const char *set = strstr(b->o->kept[i], key);
    if (set && set[sizeof key - 1] == '=') every = strtod(set + sizeof key, NULL);
  }
  return every > 0;
}

static Status check_goal(const StudyBuild *b, const Plan *plan, const char *text, const MetricRule *rule, Text *names) {
  bool is_train = !strcmp(rule->split, "train"), has_valid = false;
  for (int i = 0; i < plan->sources.count; i++) has_valid |= !strcmp(plan->sources.at[i].split, "valid");
  if (!is_train && (strcmp(rule->split, "valid") != 0 || !has_valid))
    return status_fail(STATUS_USER, "--goal %s: a training has numbers of train%s, not of '%s'", text,
                       has_valid ? " and valid" : ", and there is no valid data", rule->split);
  if (!is_train && !evaluates(b, plan))
    return status_fail(STATUS_USER, "--goal %s: eval = none switches the evaluations off that it follows", text);
  const PlanGraph *graph = graph_of_log(plan, is_train ? PROGRAMME_STEP : PROGRAMME_EVALUATE);
  if (!graph) return STATUS_OK; /* the training says what is amiss */
  append_logged(graph, "", names);
  bool has_average = plan_find_programme(plan, PROGRAMME_EVALUATE_AVERAGE) || chooses(b, "train.ema train.average");
  if (is_train) text_printf(names, ", epoch, lr, samples_per_s, data_wait, time");
  if (is_train) append_chosen(b, names);
  if (!is_train && has_average) append_logged(graph, "ema_", names);
  if (text_has_word(text_cstr(names), rule->name)) return STATUS_OK;
  for (int i = 0; i < graph->outputs.count; i++)
    if (graph->outputs.at[i].kind == OUTPUT_METRIC && !strcmp(graph->outputs.at[i].name, rule->name))
      return status_fail(STATUS_USER, "--goal %s: metric '%s' is more than one number; name one that is, such as its mean(...)", text,
                         rule->name);
  return status_fail(STATUS_USER, "--goal %s: the log of %s has no '%s'; it has %s", text, rule->split, rule->name, text_cstr(names));
}

Status build_check_goals(const StudyBuild *b, const Goals *goals, const char *text) {
  Artifact *artifact;
  STATUS_TRY(artifact_open(b->first, &artifact));
  Status status = STATUS_OK;
  for (int g = 0; !status && g < goals->count; g++) {
    Text names = {0};
    if (goals->goal[g].kind == GOAL_OF_LOG) status = check_goal(b, artifact->plan, text, &goals->goal[g].rule, &names);
    text_free(&names);
  }
  artifact_close(artifact);
  return status;
}

Status build_measure(const char *path, const Goals *goals, double *values) {
  Artifact *artifact;
  bool any = false;
  for (int g = 0; g < goals->count; g++) any |= goals->goal[g].kind >= GOAL_PARAMETERS;
  if (!any) return STATUS_OK;
  STATUS_TRY(artifact_open(path, &artifact));
  const Plan *plan = artifact->plan;
  double elements = 0, bytes = 0;
  for (int i = 0; i < plan->params.count; i++) {
    Type whole = plan_whole(&plan->params.at[i]);
    elements += (double)shape_elements(&whole.shape);
    bytes += (double)type_bytes(&whole);
  }
  for (int g = 0; g < goals->count; g++) {
    GoalKind kind = goals->goal[g].kind;
    if (kind == GOAL_PARAMETERS) values[g] = elements;
    if (kind == GOAL_BYTES) values[g] = bytes;
    if (kind == GOAL_MEMORY) values[g] = (double)plan_memory(plan);
  }
  artifact_close(artifact);
  return STATUS_OK;
}

char **build_runtime_sets(const StudyBuild *b, const double *point) {
  char **list = calloc((size_t)b->o->space.count + 1, sizeof *list);
  for (int d = 0, at = 0; list && d < b->o->space.count; d++) {
    Text text = {0};
    if (b->how[d] != SETS_RUN || isnan(point[d])) continue;
    append_assignment(b, d, point, &text);
    list[at++] = text.at;
  }
  return list;
}

void build_source(const StudyBuild *b, char out[20]) {
  Text all = {0};
  *out = 0;
  if (b->o->is_source && !text_read_file(&all, b->o->model))
    snprintf(out, 20, "%016llx", (unsigned long long)fnv_add(FNV_START, all.at, all.count));
  text_free(&all);
}

int build_apply(const StudyBuild *b, const double *point) {
  int fixed = b->o->pass_count, count = fixed;
  char **list = calloc((size_t)fixed + 2 * (size_t)b->o->space.count + 1, sizeof *list);
  if (!list) return say_error("out of memory"), 3;
  for (int i = 0; i < fixed; i++) list[i] = (char *)(uintptr_t)b->o->pass[i];
  for (int d = 0; d < b->o->space.count; d++) {
    Text text = {0};
    if (isnan(point[d])) continue;
    append_assignment(b, d, point, &text);
    list[count++] = (char *)(uintptr_t)"--apply";
    list[count++] = text.at;
  }
  fflush(stdout);
  int code = compile_source(&(Compilation){.source = b->o->model,
                                           .places = &b->o->places,
                                           .pass = (const char *const *)list,
                                           .pass_count = count});
  for (int i = fixed + 1; i < count; i += 2) free(list[i]);
  free(list);
  return code;
}

static void append_shell_word(const char *word, Text *out) {
  text_printf(out, " ");
  text_append_shell(out, word);
}

void build_command(const StudyBuild *b, const double *point, Text *out) {
  text_printf(out, "ftrun ");
  text_append_shell(out, b->o->model);
  for (int i = 0; i < b->o->pass_count; i++) append_shell_word(b->o->pass[i], out);
  for (int i = 0; i < b->o->kept_count; i++) append_shell_word(b->o->kept[i], out);
  for (int d = 0; d < b->o->space.count; d++) {
    Text assignment = {0};
    if (isnan(point[d])) continue;
    text_printf(out, b->how[d] == SETS_HYPER ? " -D" : " --set");
    append_assignment(b, d, point, &assignment);
    append_shell_word(text_cstr(&assignment), out);
    text_free(&assignment);
  }
}
