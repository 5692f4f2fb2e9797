/* events: a training's event files for TensorBoard, in one folder that it shows as one run. Scalars
 * are in a file of their own, which stays small; histograms, hyperparameters, the graph and samples in
 * others; where a resumed one goes on, in .ft-again. Their names end in .ft-scalars, .ft-histograms, .ft-hparams, .ft-layers, .ft-graph and .ft-samples: files of other
 * programs in the folder are left alone. */
#ifndef FT_RUNTIME_EVENTS_H
#define FT_RUNTIME_EVENTS_H
#include "plan/plan.h"
#include "runtime/command/log_line.h"

typedef struct Events Events; /* log_events */ /* log_events */ /* log_events */

/* As numpy.histogram(values, bins=EVENTS_BINS) counts them, of finite values only. */
enum { EVENTS_BINS = 30 };
typedef struct EventsHistogram {
  double least, most, sum, sum_of_squares;
  int64_t count, other; /* other: NaN and infinities */
  int64_t in[EVENTS_BINS];
} EventsHistogram;
/* Twice over all values: first histogram_range, then histogram_count. */
EventsHistogram histogram_new(void);
void histogram_range(EventsHistogram *histogram, const float *values, int64_t count);
void histogram_count(EventsHistogram *histogram, const float *values, int64_t count);

/* What earlier trainings have left in the folder of steps after `step` is taken out of our files,
 * and a last record that a kill cut short; step 0: the files are removed. No folder is fine. */
STATUS_CHECKED Status events_cut(const char *folder, int64_t step);
/* Makes the folder; new files, for steps after `first_step`. The folder's name must outlive it. */
STATUS_CHECKED Status events_open(const char *folder, int64_t first_step, Events **out);
STATUS_CHECKED Status events_line(Events *events, const LogLine *line);
/* Statistics by layer, as scalars in a file of their own. */
STATUS_CHECKED Status events_layers(Events *events, const LogLayers *layers);
/* The settings, as hyperparameters. */
STATUS_CHECKED Status events_hparams(Events *events, const SettingValue *settings);
STATUS_CHECKED Status events_graph(Events *events, const Plan *plan, const PlanGraph *graph);
STATUS_CHECKED Status events_histogram(Events *events, int64_t step, const char *tag,
                                       const EventsHistogram *histogram);
/* Pixels, row by row, of 1 or 3 channels. */
typedef struct {
  int height, width, channels;
  const uint8_t *at;
} EventsImage;
STATUS_CHECKED Status events_image(Events *events, int64_t step, const char *tag,
                                   const EventsImage *image);
STATUS_CHECKED Status events_text(Events *events, int64_t step, const char *tag,
                                  const Text *markdown);
/* A Summary.Value of a sample, for its file. */
STATUS_CHECKED Status events_sample(Events *events, int64_t step, const Text *value);
STATUS_CHECKED Status events_flush(Events *events);
STATUS_CHECKED Status events_close(Events *events); /* NULL is fine */

/* A GraphDef of the graph's kernels and what flows between them, named by their labels, so that
 * those of a layer are one box. */
void events_append_graph(Text *out, const Plan *plan, const PlanGraph *graph);
#endif
