/* log_layers: see log_layers.h. */
#include "runtime/command/log_layers.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ── figures ──────────────────────────────────────────────────────────────────────────────── */
const char *const layer_figure[LAYER_FIGURES] = {
    "weight_norm", "weight_rms", "weight_max",     "grad_norm",   "grad_rms",
    "grad_max",    "grad_zeros", "grad_nonfinite", "update_norm", "update_ratio"};

static double share_in(double part, const LayerSums *sums) {
  return sums->count > 0 ? part / sums->count : NAN;
}

double layer_figure_of(const LayerParam *param, int figure) {
  const LayerSums *weight = &param->weight, *gradient = &param->gradient;
  double size = layer_norm_of(weight), change = layer_norm_of(&param->update);
  if (figure >= LAYER_GRAD_NORM && figure <= LAYER_GRAD_NONFINITE && !param->has_gradient)
    return NAN;
  const double figures[LAYER_FIGURES] = {
      size,
      layer_rms(weight),
      weight->most,
      layer_norm_of(gradient),
      layer_rms(gradient),
      gradient->most,
      share_in(gradient->zeros, gradient),
      share_in(gradient->bad, gradient),
      change,
      size > 0 ? change / size : NAN,
  };
  return figures[figure];
}

const char *const value_figure[VALUE_FIGURES] = {"mean", "std", "rms", "max", "zeros", "nonfinite"};

double value_figure_of(const LayerValue *value, int figure) {
  const LayerSums *sums = &value->sums;
  const double figures[VALUE_FIGURES] = {
      layer_mean(sums), layer_deviation(sums),       layer_rms(sums),
      sums->most,       share_in(sums->zeros, sums), share_in(sums->bad, sums)};
  return figures[figure];
}

/* ── sums by layer ────────────────────────────────────────────────────────────────────────── */
static Status add_to_group(LogLayers *layers, const LayerParam *param, size_t length) {
  LayerGroup *group = NULL;
  for (int i = layers->group_count - 1; i >= 0 && !group; i--) {
    const char *name = layers->group[i].name;
    if (strlen(name) == length && !memcmp(name, param->name, length)) group = &layers->group[i];
  }
  if (!group) {
    LayerGroup *more =
        realloc(layers->group, (size_t)(layers->group_count + 1) * sizeof *layers->group);
    if (!more) return status_errno(ENOMEM, "train.log.layers");
    layers->group = more;
    group = &more[layers->group_count];
    *group = (LayerGroup){.name = strndup(param->name, length)};
    if (!group->name) return status_errno(ENOMEM, "train.log.layers");
    layers->group_count++;
  }
  group->sums.has_gradient |= param->has_gradient;
  layer_sums_join(&group->sums.weight, &param->weight);
  layer_sums_join(&group->sums.gradient, &param->gradient);
  layer_sums_join(&group->sums.update, &param->update);
  return STATUS_OK;
}

Status log_layers_new(int64_t step, const Layers *layers, LogLayers *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  *out = (LogLayers){.step = step, .time = (double)now.tv_sec + (double)now.tv_nsec * 1e-9};
  out->param = layers_params(layers, &out->param_count);
  out->value = layers_values(layers, &out->value_count);
  for (int i = 0; i < out->param_count; i++) {
    const LayerParam *param = &out->param[i];
    STATUS_TRY(add_to_group(out, param, 0));
    for (const char *dot = param->name; (dot = strchr(dot, '.')); dot++)
      if (dot > param->name) STATUS_TRY(add_to_group(out, param, (size_t)(dot - param->name)));
  }
  return STATUS_OK;
}

void log_layers_free(LogLayers *layers) {
  for (int i = 0; i < layers->group_count; i++) free(layers->group[i].name);
  free(layers->group);
  layers->group = NULL;
  layers->group_count = 0;
}

/* ── JSON ─────────────────────────────────────────────────────────────────────────────────── */
static void append_figure(Text *out, const char *name, double value) {
  text_printf(out, ", \"%s\": ", name);
  if (isfinite(value))
    text_printf(out, "%.7g", value);
  else
    text_printf(out, "null");
}

static void append_param(Text *out, const LayerParam *param) {
  text_printf(out, "{\"elements\": %.0f", param->weight.count);
  for (int i = 0; i < LAYER_FIGURES; i++) {
    double value = layer_figure_of(param, i);
    if (!isnan(value)) append_figure(out, layer_figure[i], value);
  }
  text_printf(out, "}");
}

static void append_value(Text *out, const LayerValue *value) {
  text_printf(out, "{\"layer\": ");
  text_append_json(out, value->layer);
  text_printf(out, ", \"value\": ");
  text_append_json(out, value->what);
  text_printf(out, ", \"line\": %u, \"elements\": %.0f", value->line, value->sums.count);
  for (int i = 0; i < VALUE_FIGURES; i++)
    append_figure(out, value_figure[i], value_figure_of(value, i));
  text_printf(out, "}");
}

void log_layers_json(Text *out, const LogLayers *layers) {
  text_printf(out, "{\"step\": %lld, \"parameters\": {", (long long)layers->step);
  for (int i = 0; i < layers->param_count; i++) {
    if (i) text_append(out, ", ", 2);
    text_append_json(out, layers->param[i].name);
    text_append(out, ": ", 2);
    append_param(out, &layers->param[i]);
  }
  text_printf(out, "}, \"layers\": {");
  for (int i = 1; i < layers->group_count; i++) {
    if (i > 1) text_append(out, ", ", 2);
    text_append_json(out, layers->group[i].name);
    text_append(out, ": ", 2);
    append_param(out, &layers->group[i].sums);
  }
  text_printf(out, "}");
  if (layers->group_count) {
    text_printf(out, ", \"total\": ");
    append_param(out, &layers->group[0].sums);
  }
  text_printf(out, ", \"activations\": [");
  for (int i = 0, shown = 0; i < layers->value_count; i++) {
    if (layers->value[i].sums.count == 0) continue;
    if (shown++) text_append(out, ", ", 2);
    append_value(out, &layers->value[i]);
  }
  text_printf(out, "], \"time\": %.3f}\n", layers->time);
}

/* ── the console ──────────────────────────────────────────────────────────────────────────── */
static int table_width(const LogLayers *layers) {
  size_t width = 9;
  for (int i = 0; i < layers->param_count; i++)
    if (strlen(layers->param[i].name) > width) width = strlen(layers->param[i].name);
  for (int i = 0; i < layers->value_count; i++) {
    size_t length = strlen(layers->value[i].layer) + 2 + strlen(layers->value[i].what);
    if (length > width) width = length;
  }
  return width > 48 ? 48 : (int)width;
}

static void table_cell(Text *out, double value, bool is_share) {
  if (isnan(value))
    text_printf(out, "  %9s", "-");
  else if (is_share)
    text_printf(out, "  %7.1f %%", 100 * value);
  else
    text_printf(out, "  %9.3g", value);
}

static void table_row(Text *out, int width, const char *name, const LayerParam *param) {
  static const int shown[] = {LAYER_WEIGHT_NORM,  LAYER_GRAD_NORM,  LAYER_GRAD_MAX,
                              LAYER_UPDATE_RATIO, LAYER_GRAD_ZEROS, LAYER_GRAD_NONFINITE};
  text_printf(out, "\n%-*s", width, name);
  for (int i = 0; i < 6; i++) table_cell(out, layer_figure_of(param, shown[i]), i >= 4);
}

void log_layers_table(Text *out, const LogLayers *layers) {
  int width = table_width(layers);
  text_printf(out, "layers at step %lld\n%-*s  %9s  %9s  %9s  %9s  %9s  %9s",
              (long long)layers->step, width, "parameter", "|weight|", "|grad|", "max grad",
              "update/w", "zero grad", "not fin.");
  for (int i = 0; i < layers->param_count; i++)
    table_row(out, width, layers->param[i].name, &layers->param[i]);
  if (layers->group_count) table_row(out, width, "all", &layers->group[0].sums);
  if (!layers->value_count) return;
  text_printf(out, "\n%-*s  %9s  %9s  %9s  %9s  %9s", width, "value", "mean", "std", "max", "zeros",
              "not fin.");
  for (int i = 0; i < layers->value_count; i++) {
    static const int shown[] = {VALUE_MEAN, VALUE_STD, VALUE_MAX, VALUE_ZEROS, VALUE_NONFINITE};
    const LayerValue *value = &layers->value[i];
    if (value->sums.count == 0) continue;
    int done = (int)(strlen(value->layer) + strlen(value->what)) + 1;
    text_printf(out, "\n%s %s%*s", value->layer[0] ? value->layer : "-", value->what,
                done + !value->layer[0] < width ? width - done - !value->layer[0] : 0, "");
    for (int k = 0; k < 5; k++) table_cell(out, value_figure_of(value, shown[k]), k >= 3);
  }
}
