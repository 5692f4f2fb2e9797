/* run_log: the log of JSON lines (log_line.h) of a training, read as it grows: its curves, its last
 * evaluations, how it stands. Reads anyone's bytes: a line that is none of a log is counted and
 * passed over; what is kept is bounded, however long the file. */
#ifndef FT_RUNTIME_RUN_LOG_H
#define FT_RUNTIME_RUN_LOG_H
#include "base/text.h"
#include "runtime/command/run_layers.h"
#include "runtime/command/run_series.h"
#include "runtime/common/json.h"
#include <stdbool.h>

enum { RUN_MOST_SERIES = 256, RUN_MOST_SPLITS = 4, RUN_MOST_MARKS = 256, RUN_MOST_TEXTS = 32, RUN_NAME = 96 };
enum { RUN_MOST_LINE = 8 << 20 }; /* bytes; a longer line is passed over */

typedef enum { RUN_STEP, RUN_MEAN, RUN_EVAL } RunCurveKind;
typedef struct {
  RunCurveKind kind; /* a step's own number, the mean since the line before, an evaluation's */
  char split[RUN_NAME], name[RUN_NAME];
  RunSeries series;
} RunCurve;

typedef struct {
  double step, time;
} RunMark;

/* What the model wrote at an evaluation (train.log.prompt). */
typedef struct {
  double step;
  char *text; /* owned; its first RUN_MOST_TEXT bytes */
} RunWritten;
enum { RUN_MOST_TEXT = 8 << 10 };

typedef enum {
  RUN_LINE_HEADER,
  RUN_LINE_STEP,
  RUN_LINE_EVAL,
  RUN_LINE_CHECKPOINT,
  RUN_LINE_LAYERS, /* statistics by layer (log_layers.h) */
  RUN_LINE_GENERATED,
  RUN_LINE_END,
  RUN_LINE_ERROR
} RunLineKind;

typedef struct {
  const char *path; /* must outlive it */
  json_t *header;   /* the newest; NULL: none yet */
  RunCurve *curve;  /* owned, RUN_MOST_SERIES of them */
  int curve_count;
  json_t *evaluation[RUN_MOST_SPLITS]; /* the newest line of each split */
  int evaluation_count;
  json_t *last; /* the newest line of a training step */
  RunLayers layers;
  RunMark resumed[RUN_MOST_MARKS], checkpoint[RUN_MOST_MARKS];
  int resumed_count, checkpoint_count;
  int64_t checkpoints; /* all, of which the newest are kept */
  RunWritten written[RUN_MOST_TEXTS]; /* the first, the newest, and some between */
  int written_count;
  bool is_over, has_failed;
  char end[512];     /* is_over: the sentence that it ended with */
  double step, time; /* the newest: steps done, and seconds of training up to there */
  double clock;      /* seconds since 1970 at which the time was 0 */
  bool has_clock;
  int64_t lines, unreadable, first_unreadable; /* by line, from 1 */
  bool has_left_out;                           /* there were more curves than are kept */
  Text rest;                                   /* of a line that has no end yet */
  bool is_skipping;                            /* … which is too long */
} RunLog;

STATUS_CHECKED Status run_log_new(const char *path, RunLog **out);
void run_log_free(RunLog *log); /* NULL is fine */
/* Forgets all: the file is another one, or shorter. */
void run_log_restart(RunLog *log);
/* Called for each line that is one of a log, once it is taken in. */
typedef void RunSeen(void *user, const RunLog *log, RunLineKind kind, json_t *line);
/* The bytes behind those so far. seen: may be NULL. */
STATUS_CHECKED Status run_log_feed(RunLog *log, const char *bytes, size_t count, RunSeen *seen,
                                   void *user);
/* A number of the header or of a line; `otherwise` where there is none. */
double run_number(json_t *object, const char *key, double otherwise);
/* A text, or "". */
const char *run_text(json_t *object, const char *key);
const RunCurve *run_log_find(const RunLog *log, RunCurveKind kind, const char *split,
                             const char *name); /* NULL: there is none */
#endif
