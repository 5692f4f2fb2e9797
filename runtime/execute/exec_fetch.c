/* exec_fetch: scalar results, asked for after a run and handed out later in the same order. A
 * device that runs ahead copies them behind the run; any other has them at once. */
#include "runtime/execute/exec_fetch.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORTH_BRIDGING = 256 }; /* bytes between two scalars that one copy may take along */

bool exec_runs_ahead(const Exec *exec) { return exec->type->fetch != NULL; }

/* ── places ───────────────────────────────────────────────────────────────────────────────── */
static bool is_scalar(const PlanOutput *output) { return shape_elements(&output->type.shape) == 1; }

/* The piece that holds, or may grow to hold, [offset, offset + bytes). */
static DevicePiece *find_piece(ExecScalarPlaces *places, int64_t offset, int64_t bytes) {
  for (int i = 0; i < places->piece_count; i++) {
    DevicePiece *piece = &places->piece[i];
    int64_t end = piece->offset + piece->bytes;
    if (offset < piece->offset || offset > end + WORTH_BRIDGING) continue;
    if (offset + bytes > end) piece->bytes = offset + bytes - piece->offset;
    return piece;
  }
  return NULL;
}

static int exec_fetch_by_offset(const void *a, const void *b) {
  const PlanOutput *const *x = a, *const *y = b;
  return ((*x)->offset > (*y)->offset) - ((*x)->offset < (*y)->offset);
}

static Status find_pieces(const PlanGraph *plan, ExecScalarPlaces *places) {
  const PlanOutput **sorted = calloc((size_t)plan->outputs.count + 1, sizeof(void *));
  int count = 0;
  if (!sorted) return status_fail(STATUS_FAULT, "out of memory");
  for (int i = 0; i < plan->outputs.count; i++)
    if (is_scalar(&plan->outputs.at[i])) sorted[count++] = &plan->outputs.at[i];
  qsort(sorted, (size_t)count, sizeof *sorted, exec_fetch_by_offset);
  for (int i = 0; i < count; i++) {
    int64_t bytes = dtype_bytes(sorted[i]->type.dtype);
    if (!find_piece(places, sorted[i]->offset, bytes))
      places->piece[places->piece_count++] = (DevicePiece){sorted[i]->offset, bytes};
  }
  free(sorted);
  return STATUS_OK;
}

static Status exec_fetch_find_places(Exec *exec, ExecGraph graph) {
  const PlanGraph *plan = exec_graph_plan(exec, graph);
  ExecScalarPlaces *places = &exec->places[graph];
  places->place = calloc((size_t)plan->outputs.count + 1, sizeof *places->place);
  places->piece = calloc((size_t)plan->outputs.count + 1, sizeof *places->piece);
  if (!places->place || !places->piece) return status_fail(STATUS_FAULT, "out of memory");
  STATUS_TRY(find_pieces(plan, places));
  for (int i = 0; i < plan->outputs.count; i++) places->place[i] = -1;
  for (int k = 0; k < places->piece_count; k++) {
    const DevicePiece *piece = &places->piece[k];
    for (int i = 0; i < plan->outputs.count; i++) {
      const PlanOutput *output = &plan->outputs.at[i];
      int64_t within = output->offset - piece->offset;
      if (is_scalar(output) && within >= 0 && within < piece->bytes)
        places->place[i] = places->row + within;
    }
    places->row += piece->bytes;
  }
  return STATUS_OK;
}

static Status make_ready(Exec *exec) {
  if (exec->value) return STATUS_OK;
  int outputs = 0;
  for (ExecGraph g = 0; g < exec->graph_count; g++) {
    if (!exec->graph[g]) continue;
    if (!exec->places[g].place) STATUS_TRY(exec_fetch_find_places(exec, g));
    int64_t bytes = exec->places[g].row * exec_most_steps(exec, g);
    if (bytes > exec->rows_bytes) exec->rows_bytes = bytes;
    int count = exec_graph_plan(exec, g)->outputs.count;
    if (count > outputs) outputs = count;
  }
  for (int i = 0; i < EXEC_FETCHES; i++)
    STATUS_TRY(exec->type->alloc_host(exec->device, exec->rows_bytes, &exec->fetch[i].rows));
  exec->value = calloc((size_t)outputs + 1, sizeof *exec->value);
  return exec->value ? STATUS_OK : status_fail(STATUS_FAULT, "out of memory");
}

void exec_fetch_free(Exec *exec) {
  for (int i = 0; i < EXEC_FETCHES; i++)
    if (exec->fetch[i].rows)
      exec->type->free_host(exec->device, exec->fetch[i].rows, exec->rows_bytes);
  for (int g = 0; exec->places && g < exec->graph_count; g++) {
    free(exec->places[g].place);
    free(exec->places[g].piece);
  }
  free(exec->places);
  free(exec->value);
}

/* ── asking and answering ─────────────────────────────────────────────────────────────────── */
bool exec_fetch_is_full(const Exec *exec) { return exec->asked - exec->answered == EXEC_FETCHES; }

Status exec_fetch(Exec *exec, ExecGraph graph, int64_t tag) {
  STATUS_TRY(make_ready(exec));
  const ExecScalarPlaces *places = &exec->places[graph];
  ExecFetch *fetch = &exec->fetch[exec->asked % EXEC_FETCHES];
  fetch->graph = graph;
  fetch->tag = tag;
  fetch->steps = exec->last_steps;
  fetch->given = 0;
  if (exec->type->fetch) {
    STATUS_TRY(exec->type->fetch(exec->graph[graph], places->piece, places->piece_count,
                                 fetch->rows, &fetch->ticket));
  } else {
    char *to = fetch->rows;
    int place = plan_result_place(exec->plan);
    for (int i = 0; i < places->piece_count; i++) {
      STATUS_TRY(exec_read(exec, place, places->piece[i].offset, places->piece[i].bytes, to));
      to += places->piece[i].bytes;
    }
  }
  exec->asked++;
  return STATUS_OK;
}

Status exec_fetched(Exec *exec, bool wait, ExecScalars *out, bool *is_there) {
  *is_there = exec->answered < exec->asked;
  if (!*is_there) return STATUS_OK;
  ExecFetch *fetch = &exec->fetch[exec->answered % EXEC_FETCHES];
  if (exec->type->fetched && fetch->given == 0)
    STATUS_TRY(exec->type->fetched(exec->device, fetch->ticket, wait, is_there));
  if (!*is_there) return STATUS_OK;
  const PlanGraph *plan = exec_graph_plan(exec, fetch->graph);
  const ExecScalarPlaces *places = &exec->places[fetch->graph];
  const char *row = fetch->rows + fetch->given * places->row;
  for (int i = 0; i < plan->outputs.count; i++) {
    _Alignas(8) char bytes[8] = {0};
    int size = dtype_bytes(plan->outputs.at[i].type.dtype);
    exec->value[i] = NAN;
    if (places->place[i] < 0) continue;
    memcpy(bytes, row + places->place[i], (size_t)size);
    exec->value[i] = exec_scalar_value(plan->outputs.at[i].type.dtype, bytes);
  }
  *out = (ExecScalars){fetch->graph, fetch->tag + fetch->given, exec->value};
  if (++fetch->given == fetch->steps) exec->answered++;
  return STATUS_OK;
}
