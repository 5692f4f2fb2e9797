/* spans: what went on from when until when, noted by any thread, up to a fixed number: for
 * --trace. Times are by clock_nanoseconds. */
#ifndef FT_RUNTIME_SPANS_H
#define FT_RUNTIME_SPANS_H
#include "plan/plan.h"
#include "runtime/common/status.h"

#define SPAN_TRACKS(X)                                                                             \
  X(STEP, "steps")                                                                                 \
  X(WAIT, "waiting for data")                                                                      \
  X(COMPUTE, "compute")                                                                            \
  X(COPY, "copies")                                                                                \
  X(COMMUNICATE, "communicate")                                                                    \
  X(LOADER, "loader") X(EVALUATE, "evaluation") X(CHECKPOINT, "checkpoint")
typedef enum {
#define X(ID, text) SPAN_##ID,
  SPAN_TRACKS(X)
#undef X
      SPAN_TRACK_COUNT
} SpanTrack;
const char *span_track_text(SpanTrack track);

enum { SPAN_LANES = 256 };
typedef struct {
  SpanTrack track;
  int lane; /* where several go on at a time: 0 to SPAN_LANES - 1 */
  int64_t start, end;
  int64_t number;       /* of the training step that it is for, from 1 */
  const PlanStep *step; /* that it runs; NULL: none. It outlives the Spans. */
} TraceSpan;

typedef struct Spans Spans;
STATUS_CHECKED Status spans_new(int64_t most, Spans **out);
void spans_free(Spans *spans); /* NULL is fine */
/* While it is open, what belongs to single steps is noted; the rest always is. */
void spans_open(Spans *spans, bool is_open);
bool spans_is_open(const Spans *spans); /* NULL: false */
/* What finds no room or memory is counted and left out. NULL is fine. */
void spans_add(Spans *spans, const TraceSpan *span);
bool spans_is_full(const Spans *spans);
/* A copy of all so far, to be freed; NULL: no memory. Threads may go on adding. */
TraceSpan *spans_copy(Spans *spans, int64_t *count);
#endif
