/* spans: see spans.h. A list under a lock, which grows up to its limit. */
#include "runtime/common/spans.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct Spans {
  pthread_mutex_t lock;
  TraceSpan *at;
  int64_t count, room, most;
  atomic_bool is_open, is_full;
};

const char *span_track_text(SpanTrack track) {
#define X(ID, text) text,
  static const char *const names[] = {SPAN_TRACKS(X)};
#undef X
  return names[track];
}

Status spans_new(int64_t most, Spans **out) {
  Spans *spans = calloc(1, sizeof *spans);
  *out = spans;
  if (!spans) return status_errno(ENOMEM, "--trace");
  pthread_mutex_init(&spans->lock, NULL);
  spans->most = most;
  return STATUS_OK;
}

void spans_free(Spans *spans) {
  if (!spans) return;
  pthread_mutex_destroy(&spans->lock);
  free(spans->at);
  free(spans);
}

void spans_open(Spans *spans, bool is_open) { atomic_store(&spans->is_open, is_open); }
bool spans_is_open(const Spans *spans) { return spans && atomic_load(&spans->is_open); }
bool spans_is_full(const Spans *spans) { return atomic_load(&spans->is_full); }

static bool spans_make_room(Spans *spans) {
  if (spans->count < spans->room) return true;
  if (spans->room == spans->most) return false;
  int64_t room = spans->room ? spans->room * 2 : 1024;
  if (room > spans->most) room = spans->most;
  TraceSpan *more = realloc(spans->at, (size_t)room * sizeof *more);
  if (!more) return false;
  spans->at = more;
  spans->room = room;
  return true;
}

void spans_add(Spans *spans, const TraceSpan *span) {
  if (!spans) return;
  pthread_mutex_lock(&spans->lock);
  if (spans_make_room(spans))
    spans->at[spans->count++] = *span;
  else
    atomic_store(&spans->is_full, true);
  pthread_mutex_unlock(&spans->lock);
}

TraceSpan *spans_copy(Spans *spans, int64_t *count) {
  pthread_mutex_lock(&spans->lock);
  *count = spans->count;
  TraceSpan *copy = malloc(((size_t)spans->count + 1) * sizeof *copy);
  if (copy && spans->count) memcpy(copy, spans->at, (size_t)spans->count * sizeof *copy);
  pthread_mutex_unlock(&spans->lock);
  return copy;
}
