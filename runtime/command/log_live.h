/* log_live: the block of lines on a terminal that shows how a training stands and is drawn anew
 * as it goes on: place and progress, loss with its curve, rates, memory. It changes no mode of the
 * terminal, and the cursor rests below the block, so that an end at any instant leaves the terminal
 * as it should be. */
#ifndef FT_RUNTIME_LOG_LIVE_H
#define FT_RUNTIME_LOG_LIVE_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct LogLive LogLive;

typedef struct {
  int64_t epoch, epochs, step, steps;
  const char *values;   /* "loss 0.1234  accuracy 0.9" */
  double rate, seconds; /* samples/s; left */
  double data_wait;     /* seconds of a step */
  double step_time;     /* seconds */
  bool is_elsewhere;    /* it is another process that trains: its memory is not known */
} LogView;

/* Is the block shown there? A terminal that can move its cursor, and is asked for no plain text:
 * TERM is not "dumb" and NO_COLOR not set. */
bool log_live_can(FILE *out);
LogLive *log_live_new(FILE *out); /* NULL: no memory */
void log_live_free(LogLive *live);
/* The loss of every step, for the curve. */
void log_live_note(LogLive *live, double loss);
void log_live_draw(LogLive *live, const LogView *view);
/* Takes the block away, for lines that stay. */
void log_live_clear(LogLive *live);
#endif
