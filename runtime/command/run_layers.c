/* run_layers: see run_layers.h. */
#include "runtime/command/run_layers.h"
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const param_figures[RUN_LAYER_FIGURES] = {
    "weight_norm", "grad_norm", "update_ratio", "grad_zeros", "grad_nonfinite"};
static const char *const value_figures[RUN_LAYER_FIGURES] = {"mean", "std", "max", "zeros",
                                                             "nonfinite"};

void run_layers_free(RunLayers *layers) {
  free(layers->row);
  *layers = (RunLayers){0};
}

/* ── columns ──────────────────────────────────────────────────────────────────────────────── */
static void move_column(RunLayers *layers, int to, int from) {
  layers->step[to] = layers->step[from];
  for (int i = 0; i < layers->row_count; i++)
    for (int k = 0; k < RUN_LAYER_FIGURES; k++)
      layers->row[i].figure[k][to] = layers->row[i].figure[k][from];
}

static void keep_every_second(RunLayers *layers) {
  int kept = 0;
  for (int i = 0; i < layers->step_count; i += 2) move_column(layers, kept++, i);
  layers->step_count = kept;
  layers->every *= 2;
}

/* A resumed training repeats steps. */
static void forget_from(RunLayers *layers, double step) {
  while (layers->step_count && layers->step[layers->step_count - 1] >= step) {
    layers->step_count--;
    layers->is_newest_extra = false;
  }
}

static int new_column(RunLayers *layers, double step) {
  if (!layers->every) layers->every = 1;
  forget_from(layers, step);
  if (layers->is_newest_extra) layers->step_count--;
  if (layers->step_count == RUN_LAYER_STEPS) keep_every_second(layers);
  layers->is_newest_extra = layers->seen++ % layers->every != 0;
  int column = layers->step_count++;
  layers->step[column] = step;
  for (int i = 0; i < layers->row_count; i++)
    for (int k = 0; k < RUN_LAYER_FIGURES; k++) layers->row[i].figure[k][column] = NAN;
  return column;
}

/* ── rows ─────────────────────────────────────────────────────────────────────────────────── */
/* Where the last one was found the next one follows, most often. *out NULL: there is no room. */
static Status find_layer_row(RunLayers *layers, const char *name, bool is_value, int *next,
                             RunLayerRow **out) {
  *out = NULL;
  for (int k = 0; k < layers->row_count; k++) {
    int i = (*next + k) % layers->row_count;
    RunLayerRow *row = &layers->row[i];
    if (row->is_value != is_value || strcmp(row->name, name) != 0) continue;
    *next = i + 1;
    *out = row;
    return STATUS_OK;
  }
  if (layers->row_count == RUN_LAYER_ROWS) {
    layers->has_left_out = true;
    return STATUS_OK;
  }
  if (layers->row_count == layers->row_room) {
    int room = layers->row_room ? 2 * layers->row_room : 32;
    RunLayerRow *more = realloc(layers->row, (size_t)room * sizeof *more);
    if (!more) return status_errno(ENOMEM, "layers");
    layers->row = more;
    layers->row_room = room;
  }
  RunLayerRow *row = &layers->row[layers->row_count++];
  snprintf(row->name, sizeof row->name, "%s", name);
  row->is_value = is_value;
  for (int k = 0; k < RUN_LAYER_FIGURES; k++)
    for (int i = 0; i < RUN_LAYER_STEPS; i++) row->figure[k][i] = NAN;
  *next = layers->row_count;
  *out = row;
  return STATUS_OK;
}

static Status take_layer_row(RunLayers *layers, const char *long_name, bool is_value,
                             json_t *figures, int column, int *next) {
  char name[RUN_LAYER_NAME];
  RunLayerRow *row;
  const char *const *names = is_value ? value_figures : param_figures;
  snprintf(name, sizeof name, "%s", long_name);
  STATUS_TRY(find_layer_row(layers, name, is_value, next, &row));
  for (int k = 0; row && k < RUN_LAYER_FIGURES; k++) {
    json_t *value = json_object_get(figures, names[k]);
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    if (fabs(number) <= (double)FLT_MAX) row->figure[k][column] = (float)number;
  }
  return STATUS_OK;
}

Status run_layers_take(RunLayers *layers, double step, json_t *line) {
  int column = new_column(layers, step), next = 0;
  const char *name;
  json_t *figures, *values = json_object_get(line, "activations");
  json_object_foreach(json_object_get(line, "parameters"), name, figures) {
    STATUS_TRY(take_layer_row(layers, name, false, figures, column, &next));
  }
  for (size_t i = 0; i < json_array_size(values); i++) {
    figures = json_array_get(values, i);
    const char *layer = json_string_value(json_object_get(figures, "layer"));
    const char *what = json_string_value(json_object_get(figures, "value"));
    char both[2 * RUN_LAYER_NAME];
    if (!what) continue;
    snprintf(both, sizeof both, "%s%s%s", layer ? layer : "", layer && layer[0] ? " " : "", what);
    STATUS_TRY(take_layer_row(layers, both, true, figures, column, &next));
  }
  return STATUS_OK;
}

/* ── the page ─────────────────────────────────────────────────────────────────────────────── */
static void layer_rows_json(Text *out, const RunLayers *layers, bool is_value,
                            void (*string)(Text *, const char *)) {
  bool is_first = true;
  text_printf(out, "[");
  for (int i = 0; i < layers->row_count; i++) {
    const RunLayerRow *row = &layers->row[i];
    if (row->is_value != is_value) continue;
    text_printf(out, "%s[", is_first ? "\n" : ",\n");
    is_first = false;
    string(out, row->name);
    for (int k = 0; k < RUN_LAYER_FIGURES; k++) {
      text_printf(out, ",[");
      for (int c = 0; c < layers->step_count; c++)
        text_printf(out, isfinite(row->figure[k][c]) ? "%s%.4g" : "%snull", c ? "," : "",
                    (double)row->figure[k][c]);
      text_printf(out, "]");
    }
    text_printf(out, "]");
  }
  text_printf(out, "]");
}

void run_layers_append_json(Text *out, const RunLayers *layers,
                            void (*string)(Text *out, const char *text)) {
  if (!layers->step_count) {
    text_printf(out, "null");
    return;
  }
  text_printf(out, "{\"left_out\":%s,\"steps\":[", layers->has_left_out ? "true" : "false");
  for (int i = 0; i < layers->step_count; i++)
    text_printf(out, "%s%.0f", i ? "," : "", layers->step[i]);
  text_printf(out, "],\"parameters\":");
  layer_rows_json(out, layers, false, string);
  text_printf(out, ",\"values\":");
  layer_rows_json(out, layers, true, string);
  text_printf(out, "}");
}
