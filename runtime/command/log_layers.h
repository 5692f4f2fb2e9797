/* log_layers: statistics by layer (runtime/execute/layers.h) as the log has them: a line of JSON of its own, a
 * table on the console. Parameters are summed by layer too: "h.0" is all whose name begins with "h.0.". */
#ifndef FT_RUNTIME_LOG_LAYERS_H
#define FT_RUNTIME_LOG_LAYERS_H
#include "base/text.h"
#include "runtime/execute/layers.h"

typedef struct {
  char *name; /* "h.0"; "" is all parameters */
  LayerParam sums;
} LayerGroup;

typedef struct {
  int64_t step;
  double time; /* seconds since 1970 */
  const LayerParam *param;
  const LayerValue *value;
  int param_count, value_count;
  LayerGroup *group; /* the first is that of all */
  int group_count;
} LogLayers;

STATUS_CHECKED Status log_layers_new(int64_t step, const Layers *layers, LogLayers *out);
void log_layers_free(LogLayers *layers);
/* With the newline. */
void log_layers_json(Text *out, const LogLayers *layers);
void log_layers_table(Text *out, const LogLayers *layers);

/* What is told of a parameter or a sum of them, by name; NAN: nothing (no gradient, weights of 0). */
typedef enum {
  LAYER_WEIGHT_NORM,
  LAYER_WEIGHT_RMS,
  LAYER_WEIGHT_MAX,
  LAYER_GRAD_NORM,
  LAYER_GRAD_RMS,
  LAYER_GRAD_MAX,
  LAYER_GRAD_ZEROS,
  LAYER_GRAD_NONFINITE,
  LAYER_UPDATE_NORM,
  LAYER_UPDATE_RATIO,
  LAYER_FIGURES
} LayerFigure;
extern const char *const layer_figure[LAYER_FIGURES];
double layer_figure_of(const LayerParam *param, int figure);
typedef enum {
  VALUE_MEAN,
  VALUE_STD,
  VALUE_RMS,
  VALUE_MAX,
  VALUE_ZEROS,
  VALUE_NONFINITE,
  VALUE_FIGURES
} ValueFigure;
extern const char *const value_figure[VALUE_FIGURES];
double value_figure_of(const LayerValue *value, int figure);
#endif
