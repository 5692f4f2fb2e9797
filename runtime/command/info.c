/* info: a plan for people: first what matters most, then all that there is. */
#include "plan/step_form.h"
#include "plan/source_kind.h"
#include "runtime/command/bench.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ── what matters most ────────────────────────────────────────────────────────────────────── */

static void print_data(const Plan *plan, FILE *out) {
  for (int i = 0; i < plan->sources.count; i++) {
    const DataSource *source = &plan->sources.at[i];
    fprintf(out, "%-11s %s = %s(", i ? "" : "data", source->split, source->kind);
    for (int j = 0; j < source->file_count; j++)
      fprintf(out, "%s\"%s\"", j ? ", " : "", source->files[j]);
    for (int j = 0; j < source->option_count; j++) {
      Text option = {0};
      source_option_print(source_kind_find(source->kind), &source->options[j], &option);
      fprintf(out, ", %s", text_cstr(&option));
      text_free(&option);
    }
    Text chain = {0};
    transform_print(source->transforms, source->transform_count, &chain);
    fprintf(out, ")%s\n", text_cstr(&chain));
    text_free(&chain);
  }
}

/* "109,386" */
static void print_count(int64_t count, FILE *out) {
  char digits[32];
  int length = snprintf(digits, sizeof digits, "%" PRId64, count);
  for (int i = 0; i < length; i++)
    fprintf(out, "%s%c", i && (length - i) % 3 == 0 ? "," : "", digits[i]);
}

static void print_parameters(const Plan *plan, FILE *out) {
  char size[32];
  int64_t elements = 0, bytes = 0;
  for (int i = 0; i < plan->params.count; i++) {
    Type whole = plan_whole(&plan->params.at[i]);
    elements += shape_elements(&whole.shape);
    bytes += type_bytes(&whole);
  }
  fprintf(out, "parameters  ");
  print_count(elements, out);
  fprintf(out, " in %d tensors, %s\n", plan->params.count, text_bytes(bytes, size));
}

/* ", clip 1", where the setting is not at its default. */
static void print_changed(const Plan *plan, const SettingValue *defaults, const char *key,
                          const char *text, FILE *out) {
  int i = setting_find(key);
  if (setting_info[i].kind == SET_STR && strcmp(plan->settings[i].text, defaults[i].text) != 0)
    fprintf(out, ", %s%s", text, plan->settings[i].text);
  else if (setting_info[i].kind != SET_STR && plan->settings[i].number != defaults[i].number)
    fprintf(out, ", %s%.10g", text, plan->settings[i].number);
}

static void print_recipe(const Plan *plan, const SettingValue *defaults, FILE *out) {
  static const char *const words[][2] = {{"train.schedule", "schedule "},
                                         {"train.schedule.warmup", "warmup "},
                                         {"train.weight_decay", "weight_decay "},
                                         {"train.momentum", "momentum "},
                                         {"train.clip", "clip "},
                                         {"train.ema", "ema "},
                                         {"train.average", "average "},
                                         {"train.precision", "precision "},
                                         {"train.parameters", "parameters "},
                                         {"train.recompute", "recompute "},
                                         {"distributed.data", "ranks "},
                                         {"distributed.tensor", "tensor "},
                                         {"distributed.pipeline", "pipeline "},
                                         {"distributed.zero", "zero "}};
  const SettingValue *settings = plan->settings;
  double accumulate = setting_number(settings, "train.accumulate");
  double steps = setting_number(settings, "train.steps");
  fprintf(out, "recipe      %s, lr %.10g", setting_text(settings, "train.optimizer"),
          setting_number(settings, "train.lr"));
  fprintf(out, ", batch %.10g", setting_number(settings, "train.batch"));
  if (accumulate > 1) fprintf(out, " x %.10g parts", accumulate);
  double length = steps > 0 ? steps : setting_number(settings, "train.epochs");
  fprintf(out, ", %.10g %s%s", length, steps > 0 ? "step" : "epoch", length == 1 ? "" : "s");
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    print_changed(plan, defaults, words[i][0], words[i][1], out);
  fprintf(out, "\n");
}

/* What an evaluation gives out. */
static void print_results(const Plan *plan, bool is_metric, FILE *out) {
  const PlanGraph *graph = plan_result(plan, PROGRAMME_EVALUATE);
  int count = 0;
  for (int i = 0; graph && i < graph->outputs.count; i++) {
    const PlanOutput *output = &graph->outputs.at[i];
    char type[TYPE_TEXT];
    bool is_one = is_metric ? output->kind == OUTPUT_METRIC || output->kind == OUTPUT_AUC
                            : output->kind == OUTPUT_RESULT;
    if (!is_one) continue;
    fprintf(out, "%s%s",
            count++     ? ", "
            : is_metric ? "metrics     "
                        : "outputs     ",
            output->name);
    if (!is_metric) fprintf(out, " %s", type_text(&output->type, type));
  }
  if (count) fprintf(out, "\n");
}

/* "11.2 G" */
static const char *amount_text(double amount, char buffer[32]) {
  static const char *const units[] = {"", "k", "M", "G", "T", "P"};
  int unit = 0;
  while (amount >= 1000 && unit < 5) amount /= 1000, unit++;
  snprintf(buffer, 32, "%.3g %s", amount, units[unit]);
  return buffer;
}

/* Of all graphs of a step, each as often as it runs. */
static void print_cost(const Plan *plan, FILE *out) {
  const PlanProgramme *step = plan_find_programme(plan, PROGRAMME_STEP);
  double flops = 0, bytes = 0;
  int64_t kernels = 0;
  for (int i = 0; step && i < step->runs.count; i++) {
    const PlanGraph *graph = &plan->graphs.at[step->runs.at[i].graph];
    double times = (double)step->runs.at[i].times;
    for (int k = 0; k < graph->steps.count; k++) {
      flops += times * (double)graph->steps.at[k].flops;
      bytes += times * (double)graph->steps.at[k].bytes;
      StepKind kind = graph->steps.at[k].kind;
      if (kind == STEP_LAUNCH || kind == STEP_CALL) kernels += step->runs.at[i].times;
    }
  }
  char work[32], moved[32];
  fprintf(out, "a step      %" PRId64 " kernels, %sFLOP, %sB moved at least\n", kernels,
          amount_text(flops, work), amount_text(bytes, moved));
}

static void print_head(const Plan *plan, const SettingValue *defaults, FILE *out) {
  char size[32], type[TYPE_TEXT];
  fprintf(out, "model       %s, from %s\n", plan->model, plan->source);
  fprintf(out, "target      %s, %s\n", plan->target, plan->target_cpu);
  if (setting_pipeline(plan->settings) > 1)
    fprintf(out, "stage       %d of %" PRId64 "\n", plan->stage, setting_pipeline(plan->settings));
  print_parameters(plan, out);
  int64_t batch = plan_place_bytes(plan, plan_batch_place(plan));
  fprintf(out, "memory      %s to train", text_bytes(plan_memory(plan), size));
  fprintf(out, ", and %s for each batch that is loaded ahead\n", text_bytes(batch, size));
  print_data(plan, out);
  for (int i = 0; i < plan->inputs.count; i++)
    fprintf(out, "%s%s %s%s", i ? ", " : "inputs      ", plan->inputs.at[i].name,
            type_text(&plan->inputs.at[i].type, type), i + 1 == plan->inputs.count ? "\n" : "");
  print_results(plan, false, out);
  print_results(plan, true, out);
  print_recipe(plan, defaults, out);
  print_cost(plan, out);
}

/* ── all of it ────────────────────────────────────────────────────────────────────────────── */

static void print_tensors(const char *title, const PlanTensor *list, int count, bool is_learned,
                          FILE *out) {
  char type[TYPE_TEXT], size[32];
  int64_t elements = 0, bytes = 0;
  if (!count) return;
  for (int i = 0; i < count; i++) {
    elements += shape_elements(&list[i].type.shape);
    bytes += type_bytes(&list[i].type);
  }
  fprintf(out, "\n%s: %d, %" PRId64 " elements, %s\n", title, count, elements,
          text_bytes(bytes, size));
  for (int i = 0; i < count; i++) {
    const Init *init = &list[i].init;
    fprintf(out, "  %-32s %-20s", list[i].name, type_text(&list[i].type, type));
    if (is_learned && init->text && !list[i].file) fprintf(out, " %s", init->text);
    if (list[i].file) fprintf(out, " %s of %s", list[i].file_name, list[i].file);
    for (int j = 0; is_learned && j < init->arg_count; j++)
      fprintf(out, "%s%g%s", j ? ", " : "(", init->arg[j], j + 1 == init->arg_count ? ")" : "");
    if (list[i].storage.view.rank) {
      Type memory = {list[i].type.dtype, storage_shape(&list[i].storage)};
      fprintf(out, "  in memory %s", type_text(&memory, type));
    }
    if (list[i].cut.ranks) {
      Type whole = plan_whole(&list[i]);
      fprintf(out, "  a rank's part of %s", type_text(&whole, type));
    }
    if (list[i].shared) fprintf(out, "  shared out over %" PRId64 " ranks", list[i].shared);
    fprintf(out, "%s%s\n", list[i].is_saved ? "  saved with the model" : "",
            list[i].is_needed_for_predict ? "  needed to predict" : "");
  }
}

static void print_setting(const Plan *plan, int index, FILE *out) {
  static const char *const when[] = {"compiled in", "ftrun --set", "derived"};
  const SettingInfo *info = &setting_info[index];
  const SettingValue *value = &plan->settings[index];
  char text[64];
  if (info->kind == SET_BOOL)
    snprintf(text, sizeof text, "%s", value->number != 0 ? "true" : "false");
  else if (info->kind == SET_INT && value->number == SETTING_AUTO)
    snprintf(text, sizeof text, "auto");
  else
    snprintf(text, sizeof text, "%.10g", value->number);
  fprintf(out, "  %-26s %-14s %-12s %s\n", info->key, info->kind == SET_STR ? value->text : text,
          when[info->when], info->doc);
}

/* First those that the model changes. */
static void info_settings(const Plan *plan, const SettingValue *defaults, FILE *out) {
  for (int changed = 1; changed >= 0; changed--) {
    fprintf(out, "\nsettings %s\n", changed ? "that the model changes" : "at their defaults");
    for (int i = 0; i < setting_count; i++) {
      const SettingValue *value = &plan->settings[i];
      bool is_same = setting_info[i].kind == SET_STR ? !strcmp(value->text, defaults[i].text)
                                                     : value->number == defaults[i].number;
      if (setting_info[i].when != WHEN_DERIVED && is_same == !changed) print_setting(plan, i, out);
    }
  }
}

static void print_memory(const Plan *plan, FILE *out) {
  char size[32];
  fprintf(out, "\nmemory: %s, by what it is for\n", text_bytes(plan_memory(plan), size));
  for (int i = 0; i < plan->memory.count; i++)
    if (plan->memory.at[i].bytes)
      fprintf(out, "  %-32s %12s\n", plan->memory.at[i].category,
              text_bytes(plan->memory.at[i].bytes, size));
  fprintf(out, "\nmemory, by place\n");
  for (int i = 0; i < plan->places.count; i++) {
    const PlanPlace *place = &plan->places.at[i];
    if (!place->bytes) continue;
    fprintf(out, "  %-32s %12s", place->name, text_bytes(place->bytes, size));
    if (place->is_window) fprintf(out, "  of %s", plan->places.at[place->of].name);
    if (i == plan_batch_place(plan))
      fprintf(out, "  each batch that is loaded ahead takes as much again");
    fprintf(out, "\n");
  }
}

static void print_buffer(const Plan *plan, const PlanBuffer *buffer, FILE *out) {
  char type[TYPE_TEXT];
  fprintf(out, "%s %s+%" PRId64, type_text(&buffer->type, type),
          plan->places.at[buffer->place].name, buffer->offset);
}

static void info_step(const Plan *plan, const PlanGraph *graph, int index, FILE *out) {
  const PlanStep *step = &graph->steps.at[index];
  fprintf(out, "  %3d %-6s %-18s %s", index, step_kind_text(step->kind), step->name, step->label);
  if (step->line) fprintf(out, "  (line %u)", step->line);
  if (step->queue != QUEUE_COMPUTE) fprintf(out, "  in queue %s", queue_text(step->queue));
  if (step->kind == STEP_END) fprintf(out, "  ends %d", step->partner);
  for (int i = 0; i < step->after_count; i++)
    fprintf(out, "%s %d", i ? "," : "  after", step->after[i]);
  if (step->arg_count) fprintf(out, "\n      ");
  for (int i = 0; i < step->arg_count; i++) {
    fprintf(out, "%s", i == step->input_count ? (i ? " -> " : "-> ") : i ? ", " : "");
    print_buffer(plan, &graph->buffers.at[step->args[i]], out);
  }
  fprintf(out, "\n");
}

static void info_graph(const Plan *plan, const PlanGraph *graph, FILE *out) {
  double flops = 0, bytes = 0;
  int count[STEP_END + 1] = {0};
  for (int i = 0; i < graph->steps.count; i++) {
    flops += (double)graph->steps.at[i].flops;
    bytes += (double)graph->steps.at[i].bytes;
    count[graph->steps.at[i].kind]++;
  }
  fprintf(out, "\n%s: %d launches, %d library calls, %d copies and fills", graph->name,
          count[STEP_LAUNCH], count[STEP_CALL], count[STEP_COPY] + count[STEP_FILL]);
  if (count[STEP_BEGIN]) fprintf(out, ", %d begun beside", count[STEP_BEGIN]);
  fprintf(out, ", %.3f MFLOP, %.3f MB moved\n", flops * 1e-6, bytes * 1e-6);
  for (int i = 0; i < graph->steps.count; i++) info_step(plan, graph, i, out);
  if (graph->insteads.count) {
    fprintf(out, "      where cuBLASLt is found and faster, it takes the place of steps");
    for (int i = 0; i < graph->insteads.count; i++) {
      const PlanInstead *instead = &graph->insteads.at[i];
      fprintf(out, "%s %d", i ? "," : "", instead->first);
      if (instead->end > instead->first + 1) fprintf(out, "-%d", instead->end - 1);
    }
    fprintf(out, "\n");
  }
  for (int i = 0; i < graph->outputs.count; i++) {
    char type[TYPE_TEXT];
    const PlanOutput *output = &graph->outputs.at[i];
    fprintf(out, "      %-6s %-18s %s\n", output_kind_text(output->kind), output->name,
            type_text(&output->type, type));
  }
}

/* "step      micro x 3, train" */
static void print_programmes(const Plan *plan, FILE *out) {
  fprintf(out, "\nprogrammes\n");
  for (int i = 0; i < plan->programmes.count; i++) {
    const PlanProgramme *programme = &plan->programmes.at[i];
    Text name = {0};
    bool is_whole = step_form_equal(programme->form, (StepForm){0});
    text_printf(&name, is_whole ? "%s" : "%s, ", programme->name);
    step_form_append(plan->settings, programme->form, &name);
    fprintf(out, "  %-16s ", text_cstr(&name));
    text_free(&name);
    for (int k = 0; k < programme->runs.count; k++) {
      const PlanRun *run = &programme->runs.at[k];
      fprintf(out, "%s%s", k ? ", " : "", plan->graphs.at[run->graph].name);
      if (run->times > 1) fprintf(out, " x %" PRId64, run->times);
      if (run->positions > 1) fprintf(out, " for every %" PRId64 " tokens", run->positions);
      if (run->reads != run->instead_of)
        fprintf(out, " with %s in place of %s", plan->places.at[run->reads].name,
                plan->places.at[run->instead_of].name);
    }
    fprintf(out, "\n");
  }
}

static void print_all(const Plan *plan, FILE *out) {
  Arena *arena = arena_new();
  const SettingValue *defaults = settings_new(arena);
  print_head(plan, defaults, out);
  print_tensors("parameters", plan->params.at, plan->params.count, true, out);
  print_memory(plan, out);
  print_tensors("inputs", plan->inputs.at, plan->inputs.count, false, out);
  print_tensors("states", plan->states.at, plan->states.count, true, out);
  info_settings(plan, defaults, out);
  print_programmes(plan, out);
  for (int i = 0; i < plan->graphs.count; i++) info_graph(plan, &plan->graphs.at[i], out);
  arena_free(arena);
}

static void print_stages(const Artifact *artifact, FILE *out) {
  int count = artifact->stages.count;
  for (int i = 0; i < count; i++) {
    if (i) fprintf(out, "\n\n");
    print_all(artifact->stages.at[i], out);
  }
}

/* Paths and labels may be anyone's. */
Status info_print(const Artifact *artifact, FILE *out) {
  char *text = NULL;
  size_t count = 0;
  FILE *memory = open_memstream(&text, &count);
  if (memory) print_stages(artifact, memory);
  bool is_whole = memory && !ferror(memory);
  is_whole = memory && fclose(memory) == 0 && is_whole && text;
  if (is_whole) {
    text_make_printable(text);
    fputs(text, out);
  }
  free(text);
  return is_whole ? STATUS_OK : status_errno(ENOMEM, "%s", artifact->path);
}
