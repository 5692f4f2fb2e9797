/* plan_inference: see plan_inference.h. A step is needed if it writes bytes that a needed step behind it
 * reads, or that an output has. Bytes that are written over meanwhile count as well: that keeps a step too
 * many at most. What a kernel has in the workspace may come from its launch before: a product that its epilogue
 * reads. */
#include "plan/plan_inference.h"
#include "plan/plan_text.h"
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

typedef VEC(const PlanBuffer *) Buffers;

/* Prepared weights as well: ftrun deploy prepares them. */
static bool is_kept_place(const Plan *plan, int place) {
  PlaceLife life = plan->places.at[place].life;
  return life == FOR_EVER || life == FOR_WEIGHTS;
}

static bool buffers_overlap(const PlanBuffer *a, const PlanBuffer *b) {
  return a->place == b->place && a->offset < b->offset + type_bytes(&b->type) &&
         b->offset < a->offset + type_bytes(&a->type);
}

static bool overlaps_any(const Buffers *needed, const PlanBuffer *buffer) {
  for (int i = 0; i < needed->count; i++)
    if (buffers_overlap(buffer, needed->at[i])) return true;
  return false;
}

static bool writes_any(const PlanGraph *graph, const PlanStep *step, const Buffers *needed) {
  for (int i = step->input_count; i < step->arg_count; i++)
    if (overlaps_any(needed, &graph->buffers.at[step->args[i]])) return true;
  return false;
}

/* NULL, or what of a needed step the deployed model cannot do. */
static const char *refuse_step(Arena *arena, const PlanStep *step) {
  if (step->kind == STEP_BEGIN || step->kind == STEP_END)
    return arena_printf(arena,
                        "step \"%s\" is of several ranks; compile for one (distributed) to deploy",
                        step->label ? step->label : step->name);
  if (step->kind == STEP_CALL && strcmp(step->name, "gemm") && strcmp(step->name, "conv"))
    return arena_printf(arena,
                        "\"%s\" (line %u) is a call of the library oneDNN (%s), which a deployed model "
                        "has not beside it; such models run with `ftrun predict` or ft.h",
                        step->label ? step->label : step->name, step->line, step->name);
  return NULL;
}

/* Of a place that is kept, what is touched, in ranges that do not meet; of others, all up to the last byte. */
static void touch(Arena *arena, const Plan *plan, Inference *out, const PlanBuffer *buffer,
                  bool writes) {
  bool is_kept = is_kept_place(plan, buffer->place);
  int64_t from = is_kept ? buffer->offset / PLAN_ALIGN * PLAN_ALIGN : 0;
  int64_t end = buffer->offset + type_bytes(&buffer->type);
  int others = 0;
  for (int i = 0; i < out->ranges.count; i++) {
    InferenceRange *range = &out->ranges.at[i];
    int64_t last = range->from + range->bytes;
    if (range->place != buffer->place || range->from >= end || from >= last) {
      out->ranges.at[others++] = *range;
      continue;
    }
    if (range->from < from) from = range->from;
    if (last > end) end = last;
    writes |= range->is_written;
  }
  out->ranges.count = others;
  InferenceRange range = {buffer->place, is_kept, writes, from, end - from, 0, 0};
  VEC_PUSH(arena, out->ranges, range);
}

static bool range_is_copied(const InferenceRange *range) { return range->is_kept && range->is_written; }

const InferenceRange *inference_next_copy(const Inference *inference, const InferenceRange *last) {
  for (int i = last ? (int)(last - inference->ranges.at) + 1 : 0; i < inference->ranges.count; i++)
    if (range_is_copied(&inference->ranges.at[i])) return &inference->ranges.at[i];
  return NULL;
}

static void lay_out(Inference *out) {
  for (int i = 0; i < out->ranges.count; i++) {
    InferenceRange *range = &out->ranges.at[i];
    int64_t *size = range->is_kept ? &out->weights : &out->workspace;
    range->at = *size;
    *size += plan_aligned(range->bytes);
    if (!range_is_copied(range)) continue;
    range->copy = out->workspace;
    out->workspace += plan_aligned(range->bytes);
  }
}

static uint64_t layout_sum(const Inference *inference) {
  Text text = {0};
  for (int i = 0; i < inference->ranges.count; i++) {
    const InferenceRange *range = &inference->ranges.at[i];
    text_printf(&text, "%d %d %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", range->place, range->is_written, range->from, range->bytes, range->at, range->copy);
  }
  uint64_t sum = plan_checksum(text_cstr(&text), text.count);
  text_free(&text);
  return sum;
}

static const char *take_outputs(Arena *arena, const Plan *plan, Inference *out, Buffers *needed) {
  int64_t batch = (int64_t)setting_number(plan->settings, "train.batch");
  int count = 0;
  for (int i = 0; i < out->graph->outputs.count; i++) {
    const PlanOutput *output = &out->graph->outputs.at[i];
    if (output->kind != OUTPUT_RESULT) continue;
    if (output->type.shape.rank < 1 || output->type.shape.dim[0] != batch)
      return arena_printf(arena, "output \"%s\" has no batch dimension and cannot be predicted",
                          output->name);
    PlanBuffer *buffer = ARENA_NEW(arena, PlanBuffer);
    *buffer = (PlanBuffer){output->place, output->offset, output->type};
    VEC_PUSH(arena, *needed, buffer);
    touch(arena, plan, out, buffer, false);
    count++;
  }
  return count ? NULL : "the model has no output (add `output ...` to it)";
}

static const char *inference_check_inputs(Arena *arena, const Plan *plan) {
  int64_t batch = (int64_t)setting_number(plan->settings, "train.batch");
  for (int i = 0; i < plan->inputs.count; i++) {
    const PlanTensor *input = &plan->inputs.at[i];
    if (!input->is_needed_for_predict) continue;
    if (input->part_count)
      return arena_printf(arena,
                          "input \"%s\" has parts with bounds of their own, which a deployed model does "
                          "not check; it runs with `ftrun predict` or ft.h",
                          input->name);
    if (input->type.shape.rank < 1 || input->type.shape.dim[0] != batch)
      return arena_printf(arena, "input \"%s\" has no batch dimension", input->name);
  }
  return NULL;
}

static char *make_prefix(Arena *arena, const char *model) {
  char *prefix = arena_strdup(arena, model);
  for (char *at = prefix; *at; at++)
    *at = isalnum((unsigned char)*at) ? (char)tolower((unsigned char)*at) : '_';
  return prefix;
}

const char *inference_find(Arena *arena, const Plan *plan, Inference *out) {
  *out = (Inference){.graph = plan_result(plan, PROGRAMME_EVALUATE)};
  out->prefix = make_prefix(arena, plan->model);
  if (plan_is_apart(plan) || setting_pipeline(plan->settings) > 1)
    return "ranks have parts of the parameters (distributed); compile for one rank to deploy";
  Buffers needed = {0};
  const char *why = take_outputs(arena, plan, out, &needed);
  if (!why) why = inference_check_inputs(arena, plan);
  const PlanGraph *graph = out->graph;
  for (int s = graph->steps.count - 1; s >= 0 && !why; s--) {
    const PlanStep *step = &graph->steps.at[s];
    if (step->kind == STEP_END || !writes_any(graph, step, &needed)) continue;
    why = refuse_step(arena, step);
    VEC_PUSH(arena, out->steps, s);
    for (int i = 0; i < step->arg_count; i++) {
      const PlanBuffer *buffer = &graph->buffers.at[step->args[i]];
      if (i < step->input_count || buffer->place == PLACE_WORKSPACE) VEC_PUSH(arena, needed, buffer);
      touch(arena, plan, out, buffer, i >= step->input_count);
    }
  }
  for (int i = 0, k = out->steps.count - 1; i < k; i++, k--) {
    int other = out->steps.at[i];
    out->steps.at[i] = out->steps.at[k];
    out->steps.at[k] = other;
  }
  for (int i = 0; i < plan->inputs.count && !why; i++) {
    const PlanTensor *input = &plan->inputs.at[i];
    PlanBuffer buffer = {input->place, input->offset, input->type};
    if (input->is_needed_for_predict || overlaps_any(&needed, &buffer))
      touch(arena, plan, out, &buffer, false);
  }
  lay_out(out);
  out->layout = layout_sum(out);
  return why;
}

int64_t inference_at(const Inference *inference, int place, int64_t offset, bool *is_kept) {
  for (int i = 0; i < inference->ranges.count; i++) {
    const InferenceRange *range = &inference->ranges.at[i];
    if (range->place != place || offset < range->from || offset >= range->from + range->bytes) continue;
    *is_kept = range->is_kept && !range->is_written;
    return (range_is_copied(range) ? range->copy : range->at) + offset - range->from;
  }
  *is_kept = false;
  return -1;
}

static InferencePort inference_port(const Inference *inference, const PlanTensor *input, int place, int64_t offset,
                            const Type *type) {
  bool is_kept, is_signed = type->dtype == DT_I32 || type->dtype == DT_I64;
  int64_t at = inference_at(inference, place, offset, &is_kept);
  int64_t element = dtype_bytes(type->dtype);
  int64_t samples = type->shape.rank && type->shape.dim[0] ? type->shape.dim[0] : 1;
  return (InferencePort){{at, type_bytes(type) / samples, is_signed ? -element : element, input ? input->below : 0,
                       input && input->has_ignore ? input->ignore : 0, input && input->has_ignore,
                       !input || input->is_needed_for_predict, type_bytes(type)}};
}

void inference_inputs(const Plan *plan, const Inference *inference, InferencePort *out) {
  for (int i = 0; i < plan->inputs.count; i++) {
    const PlanTensor *input = &plan->inputs.at[i];
    out[i] = inference_port(inference, input, input->place, input->offset, &input->type);
  }
}

int inference_outputs(const Inference *inference, InferencePort *out) {
  int count = 0;
  for (int i = 0; i < inference->graph->outputs.count; i++) {
    const PlanOutput *output = &inference->graph->outputs.at[i];
    if (output->kind == OUTPUT_RESULT)
      out[count++] = inference_port(inference, NULL, output->place, output->offset, &output->type);
  }
  return count;
}
