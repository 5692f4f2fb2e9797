/* plan_print: a Plan as text. One line per thing, indented by the graph it belongs to; every
 * string is quoted, every number prints in the shortest form that reads back to itself, so that
 * print, parse, print is the identity. The last line is a checksum of all before it. */
#include "plan/data_part.h"
#include "plan/plan_body.h"
#include "plan/plan_map.h"
#include "plan/plan_programme.h"
#include "plan/plan_text.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *step_kind_text(StepKind kind) {
  static const char *const names[] = {
#define X(ID, text) text,
      STEP_KINDS(X)
#undef X
  };
  return names[kind];
}

const char *phase_text(StepPhase phase) {
#define X(ID, text) text,
  static const char *const names[] = {PHASES(X)};
#undef X
  return names[phase];
}

const char *work_text(WorkKind work) {
#define X(ID, text) text,
  static const char *const names[] = {WORKS(X)};
#undef X
  return names[work];
}

const char *queue_text(QueueId id) {
  static const char *const names[QUEUE_COUNT] = {
#define X(ID, text) text,
      QUEUES(X)
#undef X
  };
  return names[id];
}

const char *output_kind_text(OutputKind kind) {
  static const char *const names[OUTPUT_KINDS] = {
#define X(ID, text) text,
      OUTPUTS(X)
#undef X
  };
  return names[kind];
}

int plan_find_tensor(const PlanTensor *tensors, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (!strcmp(tensors[i].name, name)) return i;
  return -1;
}

bool plan_reads_setting(const Plan *plan, const char *key) {
  bool trains = false;
  for (int i = 0; i < plan->params.count; i++) trains = trains || !plan->places.at[plan->params.at[i].place].is_frozen;
  return !trains || plan_find_tensor(plan->scalars.at, plan->scalars.count, key) >= 0;
}

int plan_find_role(const Plan *plan, LeafRole role) {
  for (int i = 0; i < plan->states.count; i++)
    if (plan->states.at[i].role == role) return i;
  return -1;
}

uint64_t plan_checksum(const char *text, size_t length) {
  uint64_t hash = 14695981039346656037u; /* FNV-1a, 64 bits */
  for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
  return hash;
}

void plan_print_number(Text *out, double value) {
  char digits[32];
  for (int precision = 15; precision <= 17; precision++) {
    snprintf(digits, sizeof digits, "%.*g", precision, value);
    if (strtod(digits, NULL) == value) break;
  }
  text_printf(out, "%s", digits);
}

void plan_print_value(Text *out, double value) {
  if (isfinite(value))
    plan_print_number(out, value);
  else
    text_printf(out, isnan(value) ? "nan" : value < 0 ? "least" : "most");
}

void plan_print_text(Text *out, const char *text) {
  text_append(out, "\"", 1);
  for (const char *at = text ? text : ""; *at; at++) {
    unsigned char c = (unsigned char)*at;
    if (c == '"' || c == '\\')
      text_printf(out, "\\%c", c);
    else if (c < 0x20 || c > 0x7e)
      text_printf(out, "\\x%02x", c);
    else
      text_append(out, at, 1);
  }
  text_append(out, "\"", 1);
}

static void print_type(Text *out, const Type *type) {
  char buffer[TYPE_TEXT];
  text_printf(out, "%s", type_text(type, buffer));
}

static void print_settings(Text *out, const SettingValue *values) {
  if (!values) return;
  Arena *scratch = arena_new();
  const SettingValue *defaults = settings_new(scratch);
  for (int i = 0; i < setting_count; i++) {
    bool is_text = setting_info[i].kind == SET_STR;
    bool is_default = is_text ? !strcmp(values[i].text, defaults[i].text)
                              : values[i].number == defaults[i].number;
    if (is_default && !values[i].is_set) continue;
    text_printf(out, "setting %s ", setting_info[i].key);
    if (is_text)
      plan_print_text(out, values[i].text);
    else if (setting_info[i].kind == SET_INT && values[i].number == SETTING_AUTO)
      text_printf(out, "auto");
    else
      plan_print_number(out, values[i].number);
    text_printf(out, values[i].is_set ? " given\n" : "\n");
  }
  arena_free(scratch);
}

static void print_sources(Text *out, const Plan *plan) {
  for (int i = 0; i < plan->sources.count; i++) {
    const DataSource *source = &plan->sources.at[i];
    text_printf(out, "data ");
    plan_print_text(out, source->split);
    text_printf(out, " ");
    plan_print_text(out, source->kind);
    for (int j = 0; j < source->file_count; j++) {
      text_printf(out, " file ");
      plan_print_text(out, source->files[j]);
    }
    for (int j = 0; j < source->option_count; j++) {
      const DataOption *option = &source->options[j];
      text_printf(out, " option ");
      plan_print_text(out, option->name);
      text_printf(out, " ");
      if (option->text)
        plan_print_text(out, option->text);
      else
        plan_print_number(out, option->number);
    }
    data_part_print(&source->part, out);
    plan_print_chain(out, source);
    text_printf(out, "\n");
  }
}

static void print_storage(Text *out, const Storage *storage) {
  char view[TYPE_TEXT], perm[TYPE_TEXT];
  if (!storage->view.rank) return;
  Shape order = shape_of(storage->view.rank, storage->perm);
  text_printf(out, " view %s perm %s", shape_text(&storage->view, view), shape_text(&order, perm));
}

bool plan_takes_bound(const PlanTensor *input) {
  return !dtype_is_float(input->type.dtype) && input->type.dtype != DT_BOOL;
}

static void print_cut(Text *out, const PlanCut *cut, const Shape *part) {
  text_printf(out, " cut %d run %" PRId64 " of %" PRId64, cut->dim, cut->run, cut->ranks);
  if (cut->length != part->dim[cut->dim] * cut->ranks)
    text_printf(out, " length %" PRId64, cut->length);
}

static void print_tensor(Text *out, const Plan *plan, const char *word, const PlanTensor *tensor,
                         int index) {
  text_printf(out, "%s ", word);
  plan_print_text(out, tensor->name);
  text_printf(out, " ");
  print_type(out, &tensor->type);
  text_printf(out, " at %s+%" PRId64, plan->places.at[tensor->place].name, tensor->offset);
  if (tensor->init.text) {
    text_printf(out, " init %s(", tensor->init.text);
    for (int i = 0; i < tensor->init.arg_count; i++) {
      text_printf(out, "%s", i ? ", " : "");
      plan_print_value(out, tensor->init.arg[i]);
    }
    text_printf(out, ")");
  }
  print_storage(out, &tensor->storage);
  if (tensor->cut.ranks) print_cut(out, &tensor->cut, &tensor->type.shape);
  if (tensor->shared) text_printf(out, " shared %" PRId64, tensor->shared);
  if (tensor->rests) text_printf(out, " rests %" PRId64, tensor->rests);
  if (tensor->is_output) text_printf(out, " outputs");
  if (tensor->is_needed_for_predict) text_printf(out, " predict");
  if (tensor->below) text_printf(out, " below %" PRId64, tensor->below);
  if (!tensor->below && !strcmp(word, "input") && plan_takes_bound(tensor))
    text_printf(out, " any");
  if (tensor->has_ignore) text_printf(out, " ignore %" PRId64, tensor->ignore);
  for (int i = 0; i < tensor->part_count; i++)
    plan_print_part(out, &tensor->parts[i], tensor->type.shape.rank);
  if (!strcmp(word, "state") && tensor->role != ROLE_MODEL)
    text_printf(out, " role %s", role_text(tensor->role));
  if (tensor->file) {
    text_printf(out, " file ");
    plan_print_text(out, tensor->file);
    text_printf(out, " ");
    plan_print_text(out, tensor->file_name);
  }
  if (tensor->is_saved) text_printf(out, " saved");
  if (tensor->stream != index) text_printf(out, " stream %d", tensor->stream);
  text_printf(out, "\n");
}

static void print_args(Text *out, const PlanStep *step) {
  text_printf(out, " (");
  for (int i = 0; i < step->arg_count; i++) {
    if (i == step->input_count) text_printf(out, ") -> (");
    text_printf(out, "%s%d", i == 0 || i == step->input_count ? "" : " ", step->args[i]);
  }
  if (step->arg_count == step->input_count) text_printf(out, ") -> (");
  text_printf(out, ")");
}

static void print_triple(Text *out, const char *key, const int64_t value[3]) {
  if (value[0] || value[1] || value[2])
    text_printf(out, " %s=%" PRId64 ",%" PRId64 ",%" PRId64, key, value[0], value[1], value[2]);
}

static void print_step_body(Text *out, const PlanStep *step, bool is_instead) {
  bool is_named = step->kind == STEP_LAUNCH || step->kind == STEP_CALL || step->kind == STEP_BEGIN;
  if (is_named) text_printf(out, " ");
  if (is_named) plan_print_text(out, step->name);
  if (step->kind == STEP_END)
    text_printf(out, " %d", step->partner);
  else
    print_args(out, step);
  for (int i = 0; i < step->int_count; i++)
    text_printf(out, " %s=%" PRId64, step->ints[i].key, step->ints[i].value);
  for (int i = 0; i < step->after_count; i++)
    text_printf(out, "%s%d", i ? "," : " after=", step->after[i]);
  if (!is_instead) text_printf(out, " queue=%s", queue_text(step->queue));
  if (step->work && step->kind != STEP_COPY && step->kind != STEP_FILL)
    text_printf(out, " work=%" PRId64, step->work);
  if (step->grain) text_printf(out, " grain=%" PRId64, step->grain);
  print_triple(out, "grid", step->grid);
  print_triple(out, "block", step->block);
  if (step->shared) text_printf(out, " shared=%" PRId64, step->shared);
  if (step->stays) text_printf(out, " stays=%" PRId64, step->stays);
  if (step->cluster) text_printf(out, " cluster=%" PRId64, step->cluster);
  for (int i = 0; i < step->part_count; i++)
    text_printf(out, "%s%" PRId64, i ? "," : " parts=", step->parts[i]);
  if (step->is_early) text_printf(out, " early");
  for (int i = 0; i < step->map_count; i++) map_print(out, &step->maps[i]);
  if (step->flops) text_printf(out, " flops=%" PRId64, step->flops);
  if (step->bytes) text_printf(out, " moves=%" PRId64, step->bytes);
  if (step->line) text_printf(out, " line=%" PRIu32, step->line);
  if (step->layer) text_printf(out, " layer=");
  if (step->layer) plan_print_text(out, step->layer);
  if (step->phase) text_printf(out, " phase=%s", phase_text(step->phase));
  if (step->work_kind) text_printf(out, " kind=%s", work_text(step->work_kind));
  text_printf(out, " ");
  plan_print_text(out, step->label);
  text_printf(out, "\n");
}

static void plan_print_step(Text *out, const PlanStep *step) {
  text_printf(out, "  %s", step_kind_text(step->kind));
  print_step_body(out, step, false);
}

static void print_instead(Text *out, const PlanInstead *instead) {
  text_printf(out, "  instead %d %d", instead->first, instead->end);
  for (int i = 0; i < instead->call_count; i++) {
    if (i) text_printf(out, "  also");
    print_step_body(out, &instead->call[i], true);
  }
}

static void print_graph(Text *out, const Plan *plan, const PlanGraph *graph, int64_t *copied) {
  text_printf(out, "graph ");
  plan_print_text(out, graph->name);
  if (graph->prepare) {
    text_printf(out, " prepare ");
    plan_print_text(out, graph->prepare);
  }
  text_printf(out, "\n");
  for (int i = 0; i < graph->buffers.count; i++) {
    const PlanBuffer *buffer = &graph->buffers.at[i];
    text_printf(out, "  buffer %d %s+%" PRId64 " ", i, plan->places.at[buffer->place].name,
                buffer->offset);
    print_type(out, &buffer->type);
    text_printf(out, "\n");
  }
  for (int i = 0; i < graph->steps.count; i++) plan_print_step(out, &graph->steps.at[i]);
  for (int i = 0; i < graph->insteads.count; i++) print_instead(out, &graph->insteads.at[i]);
  for (int i = 0; i < graph->outputs.count; i++) {
    const PlanOutput *output = &graph->outputs.at[i];
    text_printf(out, "  %s ", output_kind_text(output->kind));
    plan_print_text(out, output->name);
    text_printf(out, " ");
    print_type(out, &output->type);
    text_printf(out, " at %s+%" PRId64 "\n", plan->places.at[output->place].name, output->offset);
  }
  for (int i = 0; i < graph->bodies.count; i++)
    body_print(out, graph, &graph->bodies.at[i], copied);
}

void plan_print(const Plan *plan, Text *out) {
  size_t start = out->count;
  text_printf(out, "ft-plan %d\nmodel ", PLAN_VERSION);
  plan_print_text(out, plan->model);
  text_printf(out, "\nsource ");
  plan_print_text(out, plan->source);
  text_printf(out, "\ntarget %s ", plan->target);
  plan_print_text(out, plan->target_cpu);
  text_printf(out, "\n");
  print_settings(out, plan->settings);
  if (plan->settings && setting_pipeline(plan->settings) > 1)
    text_printf(out, "stage %d of %" PRId64 "\n", plan->stage, setting_pipeline(plan->settings));
  print_sources(out, plan);
  plan_print_places(plan, out);
  for (int i = 0; i < plan->memory.count; i++) {
    text_printf(out, "memory ");
    plan_print_text(out, plan->memory.at[i].category);
    text_printf(out, " %" PRId64 "\n", plan->memory.at[i].bytes);
  }
  for (int i = 0; i < plan->inputs.count; i++)
    print_tensor(out, plan, "input", &plan->inputs.at[i], i);
  for (int i = 0; i < plan->params.count; i++)
    print_tensor(out, plan, "param", &plan->params.at[i], i);
  for (int i = 0; i < plan->states.count; i++)
    print_tensor(out, plan, "state", &plan->states.at[i], i);
  for (int i = 0; i < plan->scalars.count; i++)
    print_tensor(out, plan, "scalar", &plan->scalars.at[i], i);
  if (plan->decode_refused) {
    text_printf(out, "refused ");
    plan_print_text(out, plan->decode_refused);
    text_printf(out, "\n");
  }
  int64_t copied = 0;
  for (int i = 0; i < plan->graphs.count; i++) print_graph(out, plan, &plan->graphs.at[i], &copied);
  plan_print_programmes(plan, out);
  uint64_t checksum = plan_checksum(text_cstr(out) + start, out->count - start);
  text_printf(out, "checksum %016" PRIx64 "\n", checksum);
}
