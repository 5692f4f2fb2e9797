/* layers: what a training step does, parameter by parameter and layer by layer: weights, gradients,
 * updates, and what layers give. The step is the ordinary one, kernel for kernel, but it stops where
 * such a number has just been written, and the host looks at it there: so a step that nobody asks
 * about is what it would be without this file, and one that is looked at gives the same bits. What
 * fusion never writes to memory is not seen.
 *
 *   layers_begin(layers);
 *   layers_run(layers, graph, batch);       // each run of a step, in place of exec_run
 *   layers_end(layers);                     // all ranks call it: theirs are joined
 */
#ifndef FT_RUNTIME_LAYERS_H
#define FT_RUNTIME_LAYERS_H
#include "runtime/execute/exec.h"

/* Of numbers; sums and `most` are those of the finite ones. */
typedef struct {
  double count, zeros, bad;  /* bad: NaN and infinities */
  double sum, squares, most; /* most: the largest absolute value */
} LayerSums;
void layer_sums_add(LayerSums *sums, const float *values, int64_t count);
void layer_sums_join(LayerSums *sums, const LayerSums *more);
void layer_sums_scale(LayerSums *sums, double factor);
double layer_norm_of(const LayerSums *sums);
double layer_rms(const LayerSums *sums);
double layer_mean(const LayerSums *sums);
double layer_deviation(const LayerSums *sums); /* of all elements, divided by their number */

typedef struct {
  const char *name;   /* "h.3.mlp.fc.weight" */
  bool has_gradient;  /* false: it is frozen */
  LayerSums weight;   /* before the update */
  LayerSums gradient; /* of the whole batch, before clipping, without the loss scale */
  LayerSums update;   /* weight after the step less that before */
} LayerParam;

/* What a layer gives, over all samples of the step. */
typedef struct {
  const char *layer; /* "h.3.mlp.fc"; "": of none that has a name */
  const char *what;  /* "output", or what was made of it before it was written: "relu" */
  uint32_t line;     /* of the source */
  LayerSums sums;
} LayerValue;

typedef struct Layers Layers;
/* STATUS_USER where the artifact does not tell by what its gradients are multiplied. */
STATUS_CHECKED Status layers_new(Exec *exec, Layers **out);
void layers_free(Layers *layers); /* NULL is fine */
void layers_begin(Layers *layers);
STATUS_CHECKED Status layers_run(Layers *layers, ExecGraph graph, const void *batch);
STATUS_CHECKED Status layers_end(Layers *layers);
/* Called for each gradient that this rank has whole, when it is there: layers_read_gradient goes
 * through it, as often as one likes. What is read there is to be multiplied with layers_factor, which
 * is known after layers_end. NULL: nobody. param: of this rank's plan. */
typedef Status LayersSee(void *context, Layers *layers, int param);
void layers_see_gradients(Layers *layers, LayersSee *see, void *context);
typedef void LayersTake(void *context, const float *values, int64_t count);
STATUS_CHECKED Status layers_read_gradient(Layers *layers, int param, LayersTake *take,
                                           void *context);
double layers_factor(const Layers *layers);
/* As of the last layers_end, of all ranks. */
const LayerParam *layers_params(const Layers *layers, int *count);
const LayerValue *layers_values(const Layers *layers, int *count);

/* ── between layers.c and layer_values.c ── */
/* Where a value that a layer gives has just been written. */
typedef struct {
  int graph, end; /* of the plan: behind so many of its steps */
  int place;
  int64_t offset;
  Type type;
  int value; /* of the list */
} LayerPoint;
typedef struct {
  LayerValue *value;
  LayerPoint *point; /* by graph, then by end */
  int value_count, point_count;
} LayerPoints;
/* Those that a stage of a pipeline writes in a step are added; points are kept only with `is_own`. */
STATUS_CHECKED Status layer_points_find(const Plan *plan, bool is_own, LayerPoints *points);
#endif
