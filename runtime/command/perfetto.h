/* perfetto: spans as a trace of Perfetto, for ui.perfetto.dev and its trace_processor: a Trace of
 * TracePackets in protobuf's wire format (github.com/google/perfetto, protos/perfetto/trace). Each
 * rank is a process with tracks of its own, and traces of several ranks, one behind the other, are
 * the trace of all: packet sequences and tracks are numbered by rank. */
#ifndef FT_RUNTIME_PERFETTO_H
#define FT_RUNTIME_PERFETTO_H
#include "base/text.h"
#include "runtime/common/spans.h"

typedef struct {
  int rank;
  const char *process; /* its name */
} PerfettoProcess;

/* Sorts the spans, and moves those of one track and lane apart by nanoseconds where they touch. */
STATUS_CHECKED Status perfetto_append(Text *out, const PerfettoProcess *process, TraceSpan *spans,
                                      int64_t count);
#endif
