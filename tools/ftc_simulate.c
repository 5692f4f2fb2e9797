/* ftc_simulate: see ftc_simulate.h. */
#include "tools/ftc_simulate.h"
#include "simulate/simulate.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { USER = 1, USAGE = 2, FAULT = 3 };

int simulate_read_request(Arena *arena, SimulateRequest *request) {
  const char *why = NULL;
  if (!request->spec) {
    if (!request->times && !request->trace) return 0;
    fprintf(stderr, "ftc: %s is for --simulate\n", request->times ? "--times" : "--trace");
  } else if ((why = cluster_parse(arena, request->spec, &request->cluster))) {
    fprintf(stderr, "ftc: --simulate: %s\n", why);
  } else {
    return 0;
  }
  fprintf(stderr, "`ftc --help` shows what it takes\n");
  return USAGE;
}

int simulate_check_ranks(const SimulateRequest *request, const SettingValue *settings) {
  int64_t group = setting_group(settings), of_model = setting_ranks(settings) * group;
  int64_t ranks = cluster_ranks(&request->cluster), tensor = setting_tensor(settings);
  if (!of_model && ranks % group) {
    const char *what = tensor == 1       ? "distributed.pipeline"
                       : tensor == group ? "distributed.tensor"
                                         : "distributed.pipeline x tensor";
    fprintf(stderr, "ftc: %s=%lld: the cluster's %lld ranks are no multiple of it\n", what,
            (long long)group, (long long)ranks);
    return USER;
  }
  if (!of_model || of_model == ranks) return 0;
  fprintf(stderr,
          "ftc: the model is for %lld rank%s, and the cluster has %lld: ", (long long)of_model,
          of_model == 1 ? "" : "s", (long long)ranks);
  fprintf(stderr, "--set distributed.data=any makes it one for any number of ranks\n");
  return USER;
}

/* ── measured times ─────────────────────────────────────────────────────────────────────────── */
static int fail_times(const char *path, const char *why) {
  fprintf(stderr, "ftc: %s: %s\n", path, why);
  return USER;
}

/* {"graph": "train", "kernels": [{"name": "k0", "us": 12.5}, …]}; us null: no time of its own. */
static const char *read_kernels(Arena *arena, json_t *root, MeasuredTimes *out,
                                const char *const **names) {
  json_t *graph = json_object_get(root, "graph"), *list = json_object_get(root, "kernels");
  if (!json_is_string(graph) || !json_is_array(list))
    return "it is not what 'ftrun bench --json' writes: \"graph\" or \"kernels\" is missing";
  int count = (int)json_array_size(list);
  double *seconds = ARENA_ARRAY(arena, double, count + 1);
  const char **name = ARENA_ARRAY(arena, const char *, count + 1);
  for (int i = 0; i < count; i++) {
    json_t *row = json_array_get(list, (size_t)i), *us = json_object_get(row, "us");
    json_t *its_name = json_object_get(row, "name");
    if (!json_is_string(its_name) || !(json_is_number(us) || json_is_null(us)))
      return arena_printf(arena, "kernel %d has no \"name\" or no \"us\"", i);
    name[i] = arena_strdup(arena, json_string_value(its_name));
    seconds[i] = json_is_null(us) ? -1 : json_number_value(us) * 1e-6;
    if (!(seconds[i] < 1e6)) return arena_printf(arena, "kernel %d: a time of that length", i);
  }
  *out = (MeasuredTimes){arena_strdup(arena, json_string_value(graph)), seconds, count};
  *names = name;
  return NULL;
}

static int read_times(Arena *arena, const char *path, const Plan *plan, MeasuredTimes *out) {
  Text text = {0};
  json_error_t wrong;
  const char *const *names = NULL;
  int error = text_read_file(&text, path);
  if (error) {
    text_free(&text);
    return fail_times(path, text_error(error));
  }
  json_t *root = json_loadb(text_cstr(&text), text.count, JSON_REJECT_DUPLICATES, &wrong);
  text_free(&text);
  if (!root) return fail_times(path, arena_printf(arena, "line %d: %s", wrong.line, wrong.text));
  const char *why = read_kernels(arena, root, out, &names);
  json_decref(root);
  if (!why) why = measured_check(arena, plan, out, names);
  return why ? fail_times(path, why) : 0;
}

/* ── the report ─────────────────────────────────────────────────────────────────────────────── */
static int write_simulated_trace(const Simulation *simulation, const char *path) {
  Text text = {0};
  const char *why = simulate_trace(simulation, &text);
  int error = why ? 0 : text_write_file(path, text_cstr(&text), text.count);
  text_free(&text);
  if (!why && !error) return 0;
  if (why)
    fprintf(stderr, "ftc: --simulate: %s\n", why);
  else
    fprintf(stderr, "ftc: cannot write %s: %s\n", path, text_error(error));
  return why || error == TEXT_IRREGULAR ? USER : FAULT;
}

int simulate_report(const SimulateRequest *request, Arena *arena, const Plan *const *plan,
                    int stages, FILE *out) {
  MeasuredTimes measured;
  Simulation simulation = {
      .arena = arena, .plan = plan, .stages = stages, .cluster = &request->cluster};
  if (stages != setting_pipeline(plan[0]->settings)) {
    fprintf(stderr, "ftc: --simulate runs all stages together: leave out --stage\n");
    return USER;
  }
  if (stages > 1 && request->times) {
    fprintf(stderr, "ftc: --times are of one artifact's kernels, and each stage has its own\n");
    return USER;
  }
  if (request->times) {
    int code = read_times(arena, request->times, plan[0], &measured);
    if (code) return code;
    simulation.measured = &measured;
  }
  const char *why = simulate_print(&simulation, out);
  if (why) {
    fprintf(stderr, "ftc: --simulate: %s\n", why);
    return USER;
  }
  return request->trace ? write_simulated_trace(&simulation, request->trace) : 0;
}
