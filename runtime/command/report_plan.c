/* report_plan: see report_plan.h. A value begins where a step writes it and ends with the last step
 * that reads bytes of it which no other value has taken. */
#include "runtime/command/report_plan.h"
#include "plan/plan_order.h"
#include "runtime/artifact/artifact.h"
#include "runtime/command/report_data.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 3000, MOST_BOXES = 6000, MOST_EDGES = 16, MOST_PARTS = 32 };

typedef struct {
  int64_t offset, bytes;
  int first, last; /* steps */
} PlanBox;

typedef struct {
  const Plan *plan;
  const PlanGraph *graph;
  int place; /* the largest one of temporary values, -1: none */
  PlanBox *box;
  int box_count;
  bool is_cut; /* there were more */
  bool no_memory;
} PlanPicture;

static const PlanBuffer *plan_argument(const PlanPicture *of, int step, int index) {
  return &of->graph->buffers.at[of->graph->steps.at[step].args[index]];
}

static int64_t buffer_bytes(const PlanBuffer *buffer) { return type_bytes(&buffer->type); }

static bool step_writes(const PlanPicture *of, int step, const PlanBuffer *buffer) {
  const PlanStep *at = &of->graph->steps.at[step];
  for (int i = at->input_count; i < at->arg_count; i++)
    if (plan_buffers_overlap(plan_argument(of, step, i), buffer)) return true;
  return false;
}

/* ── the graph ────────────────────────────────────────────────────────────────────────────── */

/* The steps that wrote what this one reads. */
static int find_makers(const PlanPicture *of, int step, int *makers) {
  const PlanStep *at = &of->graph->steps.at[step];
  int count = 0;
  for (int i = 0; i < at->input_count && count < MOST_EDGES; i++) {
    const PlanBuffer *buffer = plan_argument(of, step, i);
    int maker = step - 1, known = 0;
    while (maker >= 0 && !step_writes(of, maker, buffer)) maker--;
    while (known < count && makers[known] != maker) known++;
    if (maker >= 0 && known == count) makers[count++] = maker;
  }
  return count;
}

static void plan_append_step(Text *out, const PlanPicture *of, int index) {
  const PlanStep *step = &of->graph->steps.at[index];
  int makers[MOST_EDGES], count = find_makers(of, index, makers);
  text_printf(out, "%s{\"label\":", index ? ",\n" : "\n");
  report_string(out, step->label ? step->label : step->name);
  text_printf(out, ",\"layer\":");
  report_string(out, step->layer ? step->layer : "");
  text_printf(out, ",\"phase\":\"%s\",\"work\":\"%s\",\"flops\":%lld,\"bytes\":%lld,\"of\":[",
              phase_text(step->phase), work_text(step->work_kind), (long long)step->flops,
              (long long)step->bytes);
  for (int i = 0; i < count; i++) text_printf(out, "%s%d", i ? "," : "", makers[i]);
  text_printf(out, "]}");
}

/* ── memory ───────────────────────────────────────────────────────────────────────────────── */

static void find_place(PlanPicture *of) {
  int64_t most = 0;
  of->place = -1;
  for (int i = 0; i < of->graph->buffers.count; i++) {
    const PlanBuffer *buffer = &of->graph->buffers.at[i];
    int64_t bytes = plan_place_bytes(of->plan, buffer->place);
    if (!plan_is_temporary(of->plan, buffer) || bytes <= most) continue;
    most = bytes;
    of->place = buffer->place;
  }
}

/* What is left of a value: bytes that no later step has taken. */
typedef struct {
  struct {
    int64_t from, to;
  } part[MOST_PARTS];
  int count;
} PlanRest;

static bool rest_has(const PlanRest *rest, const PlanBuffer *buffer) {
  for (int i = 0; i < rest->count; i++)
    if (buffer->offset < rest->part[i].to &&
        buffer->offset + buffer_bytes(buffer) > rest->part[i].from)
      return true;
  return false;
}

/* A value in more parts than there is room for keeps what it cannot tell apart. */
static void rest_take(PlanRest *rest, const PlanBuffer *buffer) {
  int64_t from = buffer->offset, to = from + buffer_bytes(buffer);
  for (int i = rest->count - 1; i >= 0; i--) {
    int64_t first = rest->part[i].from, end = rest->part[i].to;
    if (from >= end || to <= first) continue;
    bool has_left = first<from, has_right = end> to;
    if (has_left && has_right) {
      if (rest->count == MOST_PARTS) continue;
      rest->part[i].to = from;
      rest->part[rest->count].from = to;
      rest->part[rest->count++].to = end;
    } else if (has_left) {
      rest->part[i].to = from;
    } else if (has_right) {
      rest->part[i].from = to;
    } else {
      rest->part[i] = rest->part[--rest->count];
    }
  }
}

static void add_box(PlanPicture *of, int step, const PlanBuffer *buffer) {
  PlanBox box = {buffer->offset, buffer_bytes(buffer), step, step};
  PlanRest rest = {.part = {{box.offset, box.offset + box.bytes}}, .count = 1};
  if (of->box_count == MOST_BOXES) {
    of->is_cut = true;
    return;
  }
  for (int k = step + 1; k < of->graph->steps.count && rest.count; k++) {
    const PlanStep *at = &of->graph->steps.at[k];
    for (int i = 0; i < at->arg_count; i++) {
      const PlanBuffer *other = plan_argument(of, k, i);
      if (other->place != buffer->place) continue;
      if (i >= at->input_count)
        rest_take(&rest, other);
      else if (rest_has(&rest, other))
        box.last = k;
    }
  }
  of->box[of->box_count++] = box;
}

static int by_offset(const void *a, const void *b) {
  const PlanBox *x = a, *y = b;
  return (x->offset > y->offset) - (x->offset < y->offset);
}

static void find_boxes(PlanPicture *of) {
  of->box = calloc(MOST_BOXES, sizeof *of->box);
  of->no_memory = !of->box;
  for (int i = 0; of->box && i < of->graph->steps.count; i++) {
    const PlanStep *step = &of->graph->steps.at[i];
    for (int k = step->input_count; k < step->arg_count; k++)
      if (plan_argument(of, i, k)->place == of->place) add_box(of, i, plan_argument(of, i, k));
  }
  if (of->box) qsort(of->box, (size_t)of->box_count, sizeof *of->box, by_offset);
}

/* Bytes of the place that hold a value while the step runs; boxes are by offset. */
static int64_t bytes_in_use(const PlanPicture *of, int step) {
  int64_t sum = 0, end = 0;
  for (int i = 0; i < of->box_count; i++) {
    const PlanBox *box = &of->box[i];
    if (step < box->first || step > box->last) continue;
    int64_t from = box->offset > end ? box->offset : end, to = box->offset + box->bytes;
    if (to > from) sum += to - from;
    if (to > end) end = to;
  }
  return sum;
}

static void plan_append_memory(Text *out, PlanPicture *of) {
  const Plan *plan = of->plan;
  text_printf(out, "\"memory\":[");
  for (int i = 0; i < plan->memory.count; i++) {
    text_printf(out, i ? ",[" : "[");
    report_string(out, plan->memory.at[i].category);
    text_printf(out, ",%lld]", (long long)plan->memory.at[i].bytes);
  }
  text_printf(out, "],\"all\":%lld", (long long)plan_memory(plan));
  find_place(of);
  if (of->place < 0) return;
  find_boxes(of);
  text_printf(out, ",\"place\":");
  report_string(out, plan->places.at[of->place].name);
  text_printf(out, ",\"place_bytes\":%lld,\"is_cut\":%s,\"in_use\":[",
              (long long)plan_place_bytes(plan, of->place), of->is_cut ? "true" : "false");
  for (int i = 0; i < of->graph->steps.count; i++)
    text_printf(out, "%s%lld", i ? "," : "", (long long)bytes_in_use(of, i));
  text_printf(out, "],\"boxes\":[");
  for (int i = 0; i < of->box_count; i++) {
    const PlanBox *box = &of->box[i];
    text_printf(out, "%s[%d,%d,%lld,%lld]", i ? "," : "", box->first, box->last,
                (long long)box->offset, (long long)box->bytes);
  }
  text_printf(out, "]");
}

Status report_append_plan(Text *out, const char *path) {
  Artifact *artifact;
  STATUS_TRY(artifact_open(path, &artifact));
  const Plan *plan = artifact->plan;
  PlanPicture picture = {.plan = plan, .graph = plan_result(plan, PROGRAMME_STEP)};
  text_printf(out, "{\"path\":");
  report_string(out, path);
  text_printf(out, ",\"model\":");
  report_string(out, plan->model);
  text_printf(out, ",\"target\":");
  report_string(out, plan->target);
  text_printf(out, ",\"stages\":%d,\"steps\":[", artifact->stages.count);
  int count = picture.graph ? picture.graph->steps.count : 0;
  bool is_shown = count <= MOST_STEPS;
  for (int i = 0; is_shown && i < count; i++) plan_append_step(out, &picture, i);
  text_printf(out, "],\"step_count\":%d,", count);
  if (!is_shown || !picture.graph) picture.graph = &(PlanGraph){0};
  plan_append_memory(out, &picture);
  text_printf(out, "}");
  free(picture.box);
  artifact_close(artifact);
  return picture.no_memory ? status_errno(ENOMEM, "%s", path) : STATUS_OK;
}
