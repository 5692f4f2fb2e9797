/* run_layers: what a log says of layers over its steps (log_layers.h), thinned, so that it is bounded however long
 * the log is. Reads anyone's lines. */
#ifndef FT_RUNTIME_RUN_LAYERS_H
#define FT_RUNTIME_RUN_LAYERS_H
#include "base/text.h"
#include "runtime/common/json.h"
#include "runtime/common/status.h"
#include <stdbool.h>

enum { RUN_LAYER_STEPS = 48, RUN_LAYER_ROWS = 1000, RUN_LAYER_FIGURES = 5, RUN_LAYER_NAME = 120 };

/* A parameter, or a value that a layer gives. NAN: the line of that step has no such number. */
typedef struct {
  char name[RUN_LAYER_NAME];
  bool is_value;
  float figure[RUN_LAYER_FIGURES][RUN_LAYER_STEPS];
} RunLayerRow;

typedef struct {
  RunLayerRow *row; /* owned */
  int row_count, row_room, step_count;
  double step[RUN_LAYER_STEPS];
  int64_t every, seen;  /* of the lines one in so many is kept, and the newest */
  bool is_newest_extra; /* the last column is that one */
  bool has_left_out;    /* there were more rows */
} RunLayers;

void run_layers_free(RunLayers *layers);
STATUS_CHECKED Status run_layers_take(RunLayers *layers, double step, json_t *line);
/* {"steps": […], "parameters": [[name, [weight_norm …], [grad_norm …] …] …], "values": […]}, or null. */
void run_layers_append_json(Text *out, const RunLayers *layers,
                            void (*string)(Text *out, const char *text));
#endif
