/* sensitivity: see sensitivity.h. The weights as files have them are kept as f32; each try sets those of one parameter, and of the vectors
 * that go with its channels, and sets them back. */
#include "runtime/command/sensitivity.h"
#include "runtime/checkpoint/ckpt_places.h"
#include "runtime/checkpoint/given.h"
#include "runtime/command/evaluate.h"
#include "runtime/command/prune_weights.h"
#include "runtime/command/report_sensitivity.h"
#include "runtime/common/element.h"
#include "base/say.h"
#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const PlanTensor *tensor;
  int64_t elements;
  float *value, *pruned; /* row-major */
} Weight;

/* A parameter that is scanned, and the vectors behind it of as many elements as it has rows: the bias, a batch norm's. */
typedef struct {
  Weight own;
  VEC(Weight) with;
  bool *keep; /* of its own elements */
} Scanned;

typedef struct {
  const SensitivityOptions *options;
  Arena *arena;
  Artifact *artifact;
  Source *source;
  Exec *exec;
  Ranks ranks;
  Evaluator *evaluator;
  CkptPlaces places;
  PruneStructure structure;
  VEC(Scanned) scanned;
  Sensitivity all;
  FILE *lines;
} Scan;

/* ── the command line ───────────────────────────────────────────────────────────────────────── */
static Status read_shares(Scan *scan) {
  const char *text = scan->options->shares ? scan->options->shares : "0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,0.95";
  Sensitivity *all = &scan->all;
  if (scan->structure.kind == PRUNE_N_OF_M) {
    if (scan->options->shares)
      return status_fail(STATUS_USER, "--structure %s says how much is kept; leave out --sparsity", scan->options->structure);
    all->share[all->share_count++] = 1 - (double)scan->structure.first / (double)scan->structure.second;
    return STATUS_OK;
  }
  for (const char *at = text; *at;) {
    char *end;
    double share = strtod(at, &end), before = all->share_count ? all->share[all->share_count - 1] : 0;
    bool is_number = end != at && (!*end || (*end == ',' && end[1]));
    if (!is_number || !(share > before) || !(share <= 1) || all->share_count == SENSITIVITY_MOST_SHARES)
      return status_fail(STATUS_USER, "--sparsity %s: expected up to %d shares between 0 and 1 that rise, as 0.5,0.7,0.9", text,
                         SENSITIVITY_MOST_SHARES);
    all->share[all->share_count++] = share;
    at = *end ? end + 1 : end;
  }
  return all->share_count ? STATUS_OK : status_fail(STATUS_USER, "--sparsity: expected shares, as 0.5,0.7,0.9");
}

static Status read_scan_options(Scan *scan) {
  const SensitivityOptions *options = scan->options;
  const char *structure = options->structure ? options->structure : "element";
  if (!prune_structure_read(structure, &scan->structure))
    return status_fail(STATUS_USER, "--structure %s: expected %s", structure, prune_structure_usage);
  if (scan->structure.kind == PRUNE_HEAD || scan->structure.kind == PRUNE_LAYER)
    return status_fail(STATUS_USER, "--structure %s: what a %s is, weights alone do not say; a block such as \"128x32\" may be one", structure, structure);
  STATUS_TRY(read_shares(scan));
  scan->all.structure = structure;
  scan->all.has_suggestion = scan->structure.kind != PRUNE_N_OF_M;
  scan->all.budget = options->budget;
  double most = scan->all.share[scan->all.share_count - 1];
  if (scan->all.has_suggestion && !(options->budget > 0 && options->budget <= most))
    return status_fail(STATUS_USER, "--budget %g: expected a share of all weights from 0 to %g, the largest that is tried", options->budget,
                       most);
  if (!scan->all.has_suggestion && options->save)
    return status_fail(STATUS_USER, "--save writes what is suggested, and --structure %s leaves nothing to choose", structure);
  return STATUS_OK;
}

/* ── what is scanned ────────────────────────────────────────────────────────────────────────── */
static int by_place_in_program(const void *a, const void *b) {
  const PlanTensor *x = *(const PlanTensor *const *)a, *y = *(const PlanTensor *const *)b;
  return (x->stream > y->stream) - (x->stream < y->stream);
}

/* The channels of the last layer are what the model says, and stay, unless --on names them. */
static bool is_meant(const Scan *scan, const PlanTensor *param) {
  const SensitivityOptions *options = scan->options;
  for (int i = 0; i < options->on_count; i++)
    if (fnmatch(options->on[i], param->name, 0) == 0) return true;
  return !options->on_count && !(param->is_output && scan->structure.kind == PRUNE_CHANNEL);
}

static Status check_scanned(const Scan *scan) {
  const Plan *plan = exec_plan(scan->exec);
  bool is_all = scan->options->on_count || scan->structure.kind != PRUNE_CHANNEL;
  Text outputs = {0};
  for (int i = 0; i < plan->params.count && !is_all; i++)
    if (plan->params.at[i].is_output) text_printf(&outputs, "%s%s", outputs.count ? ", " : "", plan->params.at[i].name);
  Status status = STATUS_OK;
  if (!scan->scanned.count && outputs.count)
    status = status_fail(STATUS_USER, "--structure channel: there are no channels but those of %s, which are the outputs of the model", text_cstr(&outputs));
  else if (!scan->scanned.count)
    status = status_fail(STATUS_USER, "the model has no parameter of two dimensions or more");
  else if (outputs.count)
    say_note("the channels of %s are the outputs of the model and stay; --on says which parameters are meant", text_cstr(&outputs));
  text_free(&outputs);
  return status;
}

/* As the model's file has it, in f32. */
static Status take_weight(Scan *scan, const PlanTensor *tensor, Weight *out) {
  const Plan *plan = exec_plan(scan->exec);
  int64_t offset = tensor->offset, count = shape_elements(&tensor->type.shape);
  const uint8_t *memory = scan->places.at[plan_whole_place(plan, tensor->place, &offset)];
  *out = (Weight){tensor, count, ARENA_ARRAY(scan->arena, float, count), ARENA_ARRAY(scan->arena, float, count)};
  if (!memory || tensor->shared || tensor->cut.ranks)
    return status_fail(STATUS_USER, "%s was compiled for ranks that have a part of each parameter; compile it without", scan->options->run.artifact);
  float *held = malloc((size_t)count * sizeof *held + 1);
  if (!held) return status_errno(ENOMEM, "weights");
  element_convert(memory + offset, element_of(tensor->type.dtype), false, count, DT_F32, held);
  for (int64_t i = 0; i < count; i++) out->value[exec_element_of(scan->exec, tensor, i)] = held[i];
  free(held);
  return STATUS_OK;
}

static Status list_scanned(Scan *scan) {
  const Plan *plan = exec_plan(scan->exec);
  const PlanTensor **order = ARENA_ARRAY(scan->arena, const PlanTensor *, plan->params.count);
  Scanned *last = NULL;
  for (int i = 0; i < plan->params.count; i++) order[i] = &plan->params.at[i];
  if (plan->params.count) qsort(order, (size_t)plan->params.count, sizeof *order, by_place_in_program);
  for (int i = 0; i < plan->params.count; i++) {
    const Shape *shape = &order[i]->type.shape;
    bool is_with = last && shape->rank == 1 && scan->structure.kind == PRUNE_CHANNEL && shape->dim[0] == last->own.tensor->type.shape.dim[0];
    Weight weight;
    if (is_with) {
      STATUS_TRY(take_weight(scan, order[i], &weight));
      VEC_PUSH(scan->arena, last->with, weight);
    }
    if (shape->rank < 2 || !shape_elements(shape)) continue;
    last = NULL;
    if (!is_meant(scan, order[i])) continue;
    STATUS_TRY(take_weight(scan, order[i], &weight));
    Scanned one = {.own = weight, .keep = ARENA_ARRAY(scan->arena, bool, weight.elements)};
    VEC_PUSH(scan->arena, scan->scanned, one);
    last = &scan->scanned.at[scan->scanned.count - 1];
  }
  for (int i = 0; i < scan->options->on_count; i++) {
    bool is_used = false;
    for (int k = 0; k < scan->scanned.count; k++) is_used |= fnmatch(scan->options->on[i], scan->scanned.at[k].own.tensor->name, 0) == 0;
    if (!is_used)
      return status_fail(STATUS_USER, "--on %s: no parameter of two dimensions or more has such a name; ftrun info shows them",
                         scan->options->on[i]);
  }
  return check_scanned(scan);
}

static Status scan_open(Scan *scan) {
  static const char *const only[] = {PROGRAMME_EVALUATE, NULL};
  const SensitivityOptions *options = scan->options;
  const char *split = options->split ? options->split : "valid";
  STATUS_TRY(read_scan_options(scan));
  STATUS_TRY(ranks_open(&options->run, &scan->ranks, &scan->artifact));
  STATUS_TRY(source_check_evaluated(scan->artifact->plan, split));
  STATUS_TRY(source_open(scan->artifact->plan, split, &options->run.places, &scan->source));
  source_start(scan->source);
  ExecOptions exec = {options->run.device, options->run.threads, .only = only};
  STATUS_TRY(exec_new(scan->artifact, &exec, &scan->exec));
  STATUS_TRY(exec_write_settings(scan->exec));
  STATUS_TRY(exec_init_states(scan->exec, 0));
  Text notes = {0};
  Status status = given_load_all(scan->exec, &options->run.places, options->weights, &notes);
  if (status == STATUS_OK && notes.count) say_note("%s", text_cstr(&notes));
  text_free(&notes);
  STATUS_TRY(status);
  STATUS_TRY(ckpt_places_read(scan->exec, &scan->places));
  STATUS_TRY(list_scanned(scan));
  if (options->log_jsonl && !(scan->lines = fopen(options->log_jsonl, "w")))
    return status_errno(errno, "--log-jsonl: cannot write %s", options->log_jsonl);
  scan->all.model = options->run.artifact;
  scan->all.weights = options->weights;
  scan->all.split = split;
  return evaluate_new(scan->exec, scan->source, &scan->ranks, &scan->evaluator);
}

/* ── trying ─────────────────────────────────────────────────────────────────────────────────── */
static Status set_scanned_weight(Scan *scan, const Weight *weight, const float *value) {
  SafeTensor tensor = {weight->tensor->name, ELEMENT_F32, weight->tensor->type.shape, (const uint8_t *)value,
                       (size_t)weight->elements * sizeof *value};
  Safetensors file = {.tensor = &tensor, .tensor_count = 1};
  return ckpt_places_set(&scan->places, weight->tensor, &file, scan->options->weights);
}

/* The parameter with this share of 0; 0: as it was. *zeros: its elements that are 0 by that. */
static Status set_share(Scan *scan, Scanned *one, double share, int64_t *zeros) {
  const Shape *shape = &one->own.tensor->type.shape;
  *zeros = 0;
  if (share > 0) {
    STATUS_TRY(prune_weights_choose(one->own.value, shape, scan->structure, share, one->keep));
  } else {
    for (int64_t i = 0; i < one->own.elements; i++) one->keep[i] = true;
  }
  for (int64_t i = 0; i < one->own.elements; i++) {
    one->own.pruned[i] = one->keep[i] ? one->own.value[i] : 0;
    *zeros += !one->keep[i];
  }
  STATUS_TRY(set_scanned_weight(scan, &one->own, one->own.pruned));
  int64_t columns = one->own.elements / shape->dim[0];
  for (int k = 0; k < one->with.count; k++) {
    Weight *with = &one->with.at[k];
    for (int64_t i = 0; i < with->elements; i++) with->pruned[i] = one->keep[i * columns] ? with->value[i] : 0;
    STATUS_TRY(set_scanned_weight(scan, with, with->pruned));
  }
  return STATUS_OK;
}

static Status evaluate_now(Scan *scan, LogStep *out) {
  bool is_whole;
  STATUS_TRY(ckpt_places_write(&scan->places));
  return evaluate_run(scan->evaluator, PROGRAMME_EVALUATE, out, &is_whole);
}

static void write_line(Scan *scan, const char *kind, const char *name, double share, int64_t zeros, int64_t elements, const LogStep *result) {
  Text line = {0};
  if (!scan->lines) return;
  text_printf(&line, "{\"%s\":", kind);
  report_sensitivity_string(&line, name);
  text_printf(&line, ",\"sparsity\":%.9g,\"zeros\":%lld,\"elements\":%lld", share, (long long)zeros, (long long)elements);
  report_sensitivity_numbers(&line, result);
  fprintf(scan->lines, "%s}\n", text_cstr(&line));
  fflush(scan->lines);
  text_free(&line);
}

static Status scan_one(Scan *scan, Scanned *one, SensitivityCurve *curve) {
  curve->name = one->own.tensor->name;
  curve->elements = one->own.elements;
  curve->point = ARENA_ARRAY(scan->arena, SensitivityPoint, scan->all.share_count);
  for (int i = 0; i < scan->all.share_count; i++) {
    SensitivityPoint *point = &curve->point[i];
    point->share = scan->all.share[i];
    STATUS_TRY(set_share(scan, one, point->share, &point->zeros));
    STATUS_TRY(evaluate_now(scan, &point->result));
    write_line(scan, "parameter", curve->name, point->share, point->zeros, curve->elements, &point->result);
  }
  int64_t none;
  return set_share(scan, one, 0, &none);
}

/* All parameters at once: as suggested, or the same share of each. */
static Status evaluate_together(Scan *scan, bool is_uniform, SensitivityPoint *out) {
  int64_t elements = 0, zeros;
  *out = (SensitivityPoint){.share = scan->all.budget};
  for (int i = 0; i < scan->scanned.count; i++) {
    SensitivityCurve *curve = &scan->all.curves.at[i];
    STATUS_TRY(set_share(scan, &scan->scanned.at[i], is_uniform ? scan->all.budget : curve->suggested, &zeros));
    out->zeros += zeros;
    elements += curve->elements;
  }
  STATUS_TRY(evaluate_now(scan, &out->result));
  write_line(scan, "together", is_uniform ? "uniform" : "suggested", out->share, out->zeros, elements, &out->result);
  return STATUS_OK;
}

static Status scan_all(Scan *scan) {
  STATUS_TRY(evaluate_now(scan, &scan->all.base));
  write_line(scan, "parameter", NULL, 0, 0, 0, &scan->all.base);
  report_sensitivity_head(&scan->all, scan->scanned.count, stdout);
  for (int i = 0; i < scan->scanned.count; i++) {
    VEC_PUSH(scan->arena, scan->all.curves, (SensitivityCurve){0});
    STATUS_TRY(scan_one(scan, &scan->scanned.at[i], &scan->all.curves.at[i]));
    report_sensitivity_row(&scan->all, &scan->all.curves.at[i], stdout);
  }
  if (!scan->all.has_suggestion) return STATUS_OK;
  sensitivity_suggest(scan->arena, &scan->all);
  STATUS_TRY(evaluate_together(scan, true, &scan->all.uniform));
  STATUS_TRY(evaluate_together(scan, false, &scan->all.suggested));
  report_sensitivity_end(&scan->all, stdout);
  if (!scan->options->save) return STATUS_OK;
  STATUS_TRY(ckpt_save_weights(scan->exec, NULL, scan->options->save));
  printf("%s: the weights as suggested; a training with prune = zeros and --init %s keeps what is 0\n", scan->options->save,
         scan->options->save);
  return STATUS_OK;
}

Status sensitivity_run(const SensitivityOptions *options) {
  Scan scan = {.options = options, .arena = arena_new()};
  Status status = scan_open(&scan);
  if (status == STATUS_OK) status = scan_all(&scan);
  if (status == STATUS_OK) status = source_check(scan.source);
  if (scan.lines && fclose(scan.lines) != 0 && status == STATUS_OK) status = status_errno(errno, "cannot write %s", options->log_jsonl);
  if (status == STATUS_OK && options->output) status = report_sensitivity_write(&scan.all, options->output);
  ckpt_places_free(&scan.places);
  evaluate_free(scan.evaluator);
  exec_free(scan.exec);
  source_close(scan.source);
  ranks_free(&scan.ranks);
  artifact_close(scan.artifact);
  arena_free(scan.arena);
  return status;
}
