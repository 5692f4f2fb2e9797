/* exec_check: numbers that are not finite, found where they lie (declared in exec.h). */
#include "runtime/execute/exec.h"
#include "runtime/common/float8.h"
#include "runtime/execute/exec_fetch.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The first element that is no finite number; -1 if all are, or the type has no others. */
static int64_t first_bad(DType dtype, const void *values, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    bool is_good = true;
    if (dtype == DT_F32) is_good = isfinite(((const float *)values)[i]);
    if (dtype == DT_F64) is_good = isfinite(((const double *)values)[i]);
    if (dtype == DT_F16) is_good = (((const uint16_t *)values)[i] & 0x7c00) != 0x7c00;
    if (dtype_is_float8(dtype)) is_good = isfinite(float8_value(((const uint8_t *)values)[i], dtype == DT_E5M2));
    if (dtype == DT_BF16) is_good = (((const uint16_t *)values)[i] & 0x7f80) != 0x7f80;
    if (!is_good) return i;
  }
  return -1;
}

/* What lies in a place, or with `at` there: *bad is the first element that is no finite number.
 * Where the host cannot look itself, piece by piece. */
static Status find_bad(Exec *exec, int place, int64_t offset, const Type *type, const void *at,
                       int64_t *bad) {
  enum { PIECE = 1 << 20 }; /* elements */
  int64_t count = shape_elements(&type->shape), bytes = dtype_bytes(type->dtype);
  *bad = -1;
  if (!dtype_is_float(type->dtype)) return STATUS_OK;
  if (!at && exec->type->is_host_memory) at = exec->base[place] + offset;
  char *copy = at ? NULL : malloc((size_t)((count < PIECE ? count : PIECE) * bytes) + 1);
  if (!at && !copy) return status_fail(STATUS_FAULT, "out of memory");
  if (at) *bad = first_bad(type->dtype, at, count);
  Status status = STATUS_OK;
  for (int64_t i = 0; !at && i < count && *bad < 0 && status == STATUS_OK; i += PIECE) {
    int64_t part = count - i < PIECE ? count - i : PIECE;
    status = exec_read(exec, place, offset + i * bytes, part * bytes, copy);
    if (status == STATUS_OK) *bad = first_bad(type->dtype, copy, part);
    if (*bad >= 0) *bad += i;
  }
  free(copy);
  return status;
}

/* The same of a value whose rows may have a pitch: row by row, then. */
static Status find_bad_value(Exec *exec, const PlanBuffer *buffer, int64_t *bad) {
  const Type *type = &buffer->type;
  int64_t count = shape_elements(&type->shape), length = count;
  if (type->pitch) length = shape_last(&type->shape);
  const Type row = type->pitch ? (Type){type->dtype, shape_of(1, &length), 0} : *type;
  *bad = -1;
  for (int64_t done = 0; done < count && *bad < 0; done += length) {
    int64_t offset = buffer->offset + type_place(type, done) * dtype_bytes(type->dtype);
    STATUS_TRY(find_bad(exec, buffer->place, offset, &row, NULL, bad));
    if (*bad >= 0) *bad += done;
  }
  return STATUS_OK;
}

/* What the step begins with: its batch and the parameters. */
static Status check_given(Exec *exec, const char *batch) {
  const Plan *plan = exec->plan;
  char type[TYPE_TEXT];
  for (int i = 0; i < plan->inputs.count + plan->params.count; i++) {
    bool is_input = i < plan->inputs.count;
    const PlanTensor *t = is_input ? &plan->inputs.at[i] : &plan->params.at[i - plan->inputs.count];
    Type held = is_input ? t->type : exec_held(exec, t);
    int64_t bad;
    STATUS_TRY(
        find_bad(exec, t->place, t->offset, &held, is_input ? batch + t->offset : NULL, &bad));
    if (bad >= 0)
      return status_fail(STATUS_USER,
                         "%s %s is not finite before anything is computed (element "
                         "%lld of %s)",
                         is_input ? "the data: input" : "parameter", t->name,
                         (long long)exec_element_of(exec, t, bad), type_text(&t->type, type));
  }
  return STATUS_OK;
}

static Status exec_check_step(Exec *exec, const PlanGraph *graph, int index) {
  const PlanStep *step = &graph->steps.at[index];
  for (int i = step->input_count; i < step->arg_count; i++) {
    const PlanBuffer *buffer = &graph->buffers.at[step->args[i]];
    int64_t bad;
    char type[TYPE_TEXT];
    STATUS_TRY(find_bad_value(exec, buffer, &bad));
    if (bad >= 0)
      return status_fail(
          STATUS_USER,
          "%s:%u: the first value that is not finite comes from kernel %d, %s (element %lld of %s)",
          exec->plan->source, step->line, index, step->label, (long long)bad,
          type_text(&(Type){buffer->type.dtype, buffer->type.shape, 0}, type));
  }
  return STATUS_OK;
}

Status exec_run_checked(Exec *exec, ExecGraph graph, const void *batch) {
  const PlanGraph *plan = exec_graph_plan(exec, graph);
  exec->last_steps = 1;
  STATUS_TRY(check_given(exec, batch));
  STATUS_TRY(exec_ready(exec, graph));
  for (int i = 0; i < plan->steps.count; i++) {
    int64_t time = 0;
    STATUS_TRY(exec->type->run_part(exec->graph[graph], batch, i, i + 1, &time));
    STATUS_TRY(exec_check_step(exec, plan, i));
  }
  return STATUS_OK;
}

Status exec_check_params(Exec *exec) {
  const Plan *plan = exec->plan;
  char type[TYPE_TEXT];
  for (int i = 0; i < plan->params.count; i++) {
    const PlanTensor *param = &plan->params.at[i];
    Type held = exec_held(exec, param);
    int64_t bad;
    STATUS_TRY(find_bad(exec, param->place, param->offset, &held, NULL, &bad));
    if (bad >= 0)
      return status_fail(STATUS_USER, "parameter %s is not finite (element %lld of %s)",
                         param->name, (long long)exec_element_of(exec, param, bad),
                         type_text(&param->type, type));
  }
  return STATUS_OK;
}
