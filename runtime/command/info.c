/* info: a plan for people: what the model is, what it needs, what runs in a step. */
#include "plan/source_kind.h"
#include "runtime/command/bench.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* "1.5 MiB"; one static buffer a call would be shared, so the caller gives it. */
static const char *bytes_text(int64_t bytes, char buffer[32]) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = (double)bytes;
  int unit = 0;
  while (value >= 1024 && unit < 4) value /= 1024, unit++;
  snprintf(buffer, 32, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
  return buffer;
}

static void print_head(const Plan *plan, FILE *out) {
  fprintf(out, "model    %s, from %s\n", plan->model, plan->source);
  fprintf(out, "target   %s, %s\n", plan->target, plan->target_cpu);
  if (setting_pipeline(plan->settings) > 1)
    fprintf(out, "stage    %d of %" PRId64 "\n", plan->stage, setting_pipeline(plan->settings));
  for (int i = 0; i < plan->sources.count; i++) {
    const DataSource *source = &plan->sources.at[i];
    fprintf(out, "%s %s = %s(", i ? "        " : "data    ", source->split, source->kind);
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
          bytes_text(bytes, size));
  for (int i = 0; i < count; i++) {
    const Init *init = &list[i].init;
    fprintf(out, "  %-32s %-20s", list[i].name, type_text(&list[i].type, type));
    if (is_learned && init->text) fprintf(out, " %s", init->text);
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

static void info_settings(const Plan *plan, FILE *out) {
  static const char *const when[] = {"compiled in", "ftrun --set", "derived"};
  fprintf(out, "\nsettings\n");
  for (int i = 0; i < setting_count; i++) {
    const SettingInfo *info = &setting_info[i];
    const SettingValue *value = &plan->settings[i];
    if (info->when == WHEN_DERIVED) continue;
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
}

static void print_memory(const Plan *plan, FILE *out) {
  char size[32];
  fprintf(out, "\nmemory\n");
  for (int i = 0; i < plan->places.count; i++) {
    const PlanPlace *place = &plan->places.at[i];
    fprintf(out, "  %-12s %12s", place->name, bytes_text(place->bytes, size));
    if (place->is_window) fprintf(out, "  of %s", plan->places.at[place->of].name);
    if (i == plan_batch_place(plan))
      fprintf(out, "  each batch that is loaded ahead takes as much again");
    fprintf(out, "\n");
  }
  fprintf(out, "  %-12s %12s\n", "all", bytes_text(plan_memory(plan), size));
  for (int i = 0; i < plan->memory.count; i++)
    fprintf(out, "  %-32s %12s\n", plan->memory.at[i].category,
            bytes_text(plan->memory.at[i].bytes, size));
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
    fprintf(out, "  %-16s ", programme->name);
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
  print_head(plan, out);
  print_tensors("inputs", plan->inputs.at, plan->inputs.count, false, out);
  print_tensors("parameters", plan->params.at, plan->params.count, true, out);
  print_tensors("states", plan->states.at, plan->states.count, true, out);
  info_settings(plan, out);
  print_memory(plan, out);
  print_programmes(plan, out);
  for (int i = 0; i < plan->graphs.count; i++) info_graph(plan, &plan->graphs.at[i], out);
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
