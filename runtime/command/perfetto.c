/* perfetto: see perfetto.h. Numbers of fields are those of the .proto files named below. A message
 * within another one has its length in front, so it is written to a text of its own first. */
#include "runtime/command/perfetto.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { /* trace.proto, trace_packet.proto */
       TRACE_PACKET = 1,
       PACKET_TIMESTAMP = 8,
       PACKET_SEQUENCE_ID = 10,
       PACKET_TRACK_EVENT = 11,
       PACKET_INTERNED_DATA = 12,
       PACKET_SEQUENCE_FLAGS = 13,
       PACKET_TRACK_DESCRIPTOR = 60,
       FLAG_STATE_CLEARED = 1,
       FLAG_NEEDS_STATE = 2
};
enum { /* track_event/track_descriptor.proto, process_descriptor.proto */
       DESCRIPTOR_UUID = 1,
       DESCRIPTOR_NAME = 2,
       DESCRIPTOR_PROCESS = 3,
       DESCRIPTOR_PARENT = 5,
       PROCESS_PID = 1,
       PROCESS_NAME = 6
};
enum { /* track_event/track_event.proto, debug_annotation.proto */
       EVENT_CATEGORY_IIDS = 3,
       EVENT_ANNOTATIONS = 4,
       EVENT_TYPE = 9,
       EVENT_NAME_IID = 10,
       EVENT_TRACK = 11,
       EVENT_NAME = 23,
       TYPE_BEGIN = 1,
       TYPE_END = 2,
       ANNOTATION_NAME_IID = 1,
       ANNOTATION_UINT = 3,
       ANNOTATION_STRING = 6
};
enum { /* interned_data/interned_data.proto; its entries have their number and their name */
       INTERNED_CATEGORIES = 1,
       INTERNED_EVENT_NAMES = 2,
       INTERNED_ANNOTATION_NAMES = 3,
       ENTRY_IID = 1,
       ENTRY_NAME = 2
};
enum { WIRE_VARINT = 0, WIRE_BYTES = 2 };

typedef enum { NOTE_STEP, NOTE_LINE, NOTE_FLOPS, NOTE_BYTES, NOTE_LAYER, NOTE_KERNEL, NOTES } Note;
static const char *const note_names[NOTES] = {"step", "line", "flops", "bytes", "layer", "kernel"};

typedef struct {
  Text *out;
  const PerfettoProcess *process;
  TraceSpan *spans;
  int64_t count;
  const char **labels; /* ascending by address: number i + 1 is the name of labels[i] */
  int64_t label_count;
  Text event, packet, part; /* under way */
} Writer;

/* ── the wire format ──────────────────────────────────────────────────────────────────────── */
static void put_varint(Text *out, uint64_t value) {
  char bytes[10];
  size_t count = 0;
  do {
    bytes[count++] = (char)((value & 127) | (value > 127 ? 128 : 0));
    value >>= 7;
  } while (value);
  text_append(out, bytes, count);
}

static void put_number(Text *out, int field, uint64_t value) {
  put_varint(out, (uint64_t)field << 3 | WIRE_VARINT);
  put_varint(out, value);
}

static void put_bytes(Text *out, int field, const char *bytes, size_t count) {
  put_varint(out, (uint64_t)field << 3 | WIRE_BYTES);
  put_varint(out, count);
  text_append(out, bytes, count);
}

static void put_text(Text *out, int field, const char *text) {
  put_bytes(out, field, text, strlen(text));
}

/* The message `part` as a field of `out`; `part` is empty then. */
static void put_message(Text *out, int field, Text *part) {
  put_bytes(out, field, text_cstr(part), part->count);
  part->count = 0;
}

static void end_packet(Writer *w) { put_message(w->out, TRACE_PACKET, &w->packet); }

/* ── tracks ───────────────────────────────────────────────────────────────────────────────── */
static uint64_t process_uuid(const Writer *w) { return (uint64_t)(w->process->rank + 1) << 32; }

static uint64_t track_uuid(const Writer *w, const TraceSpan *span) {
  return process_uuid(w) + (uint64_t)(span->track + 1) * SPAN_LANES + (uint64_t)span->lane;
}

static void put_process(Writer *w) {
  Text inner = {0};
  put_number(&inner, PROCESS_PID, (uint64_t)w->process->rank + 1);
  put_text(&inner, PROCESS_NAME, w->process->process);
  put_number(&w->part, DESCRIPTOR_UUID, process_uuid(w));
  put_message(&w->part, DESCRIPTOR_PROCESS, &inner);
  text_free(&inner);
  put_message(&w->packet, PACKET_TRACK_DESCRIPTOR, &w->part);
  put_number(&w->packet, PACKET_SEQUENCE_ID, (uint64_t)w->process->rank + 1);
  end_packet(w);
}

/* Spans are sorted by track and lane. */
static void put_tracks(Writer *w) {
  for (int64_t i = 0; i < w->count; i++) {
    const TraceSpan *span = &w->spans[i];
    if (i && span->track == span[-1].track && span->lane == span[-1].lane) continue;
    Text name = {0};
    text_printf(&name, "%s", span_track_text(span->track));
    if (span->lane || span->track == SPAN_LOADER) text_printf(&name, " %d", span->lane + 1);
    put_number(&w->part, DESCRIPTOR_UUID, track_uuid(w, span));
    put_number(&w->part, DESCRIPTOR_PARENT, process_uuid(w));
    put_text(&w->part, DESCRIPTOR_NAME, text_cstr(&name));
    text_free(&name);
    put_message(&w->packet, PACKET_TRACK_DESCRIPTOR, &w->part);
    put_number(&w->packet, PACKET_SEQUENCE_ID, (uint64_t)w->process->rank + 1);
    end_packet(w);
  }
}

/* ── interned names ───────────────────────────────────────────────────────────────────────── */
static int compare_addresses(const void *a, const void *b) {
  const char *x = *(const char *const *)a, *y = *(const char *const *)b;
  return (x > y) - (x < y);
}

static Status find_labels(Writer *w) {
  w->labels = calloc((size_t)w->count + 1, sizeof *w->labels);
  if (!w->labels) return status_errno(ENOMEM, "--trace");
  int64_t all = 0;
  for (int64_t i = 0; i < w->count; i++)
    if (w->spans[i].step) w->labels[all++] = w->spans[i].step->label;
  qsort(w->labels, (size_t)all, sizeof *w->labels, compare_addresses);
  for (int64_t i = 0; i < all; i++)
    if (!i || w->labels[i] != w->labels[i - 1]) w->labels[w->label_count++] = w->labels[i];
  return STATUS_OK;
}

static uint64_t label_number(const Writer *w, const char *label) {
  const char **found =
      bsearch(&label, w->labels, (size_t)w->label_count, sizeof label, compare_addresses);
  return (uint64_t)(found - w->labels) + 1;
}

static void put_entry(Writer *w, int field, uint64_t number, const char *name) {
  Text entry = {0};
  put_number(&entry, ENTRY_IID, number);
  put_text(&entry, ENTRY_NAME, name);
  put_message(&w->part, field, &entry);
  text_free(&entry);
}

/* All at the beginning: every event of the sequence reads them. Categories are the kinds of work,
 * and behind these the tracks. */
static void put_names(Writer *w) {
  for (int i = 0; i < WORK_COUNT; i++)
    put_entry(w, INTERNED_CATEGORIES, (uint64_t)i + 1, work_text((WorkKind)i));
  for (int i = 0; i < SPAN_TRACK_COUNT; i++)
    put_entry(w, INTERNED_CATEGORIES, (uint64_t)(WORK_COUNT + i) + 1,
              span_track_text((SpanTrack)i));
  for (int i = 0; i < NOTES; i++)
    put_entry(w, INTERNED_ANNOTATION_NAMES, (uint64_t)i + 1, note_names[i]);
  for (int64_t i = 0; i < w->label_count; i++)
    put_entry(w, INTERNED_EVENT_NAMES, (uint64_t)i + 1, w->labels[i]);
  put_message(&w->packet, PACKET_INTERNED_DATA, &w->part);
  put_number(&w->packet, PACKET_SEQUENCE_ID, (uint64_t)w->process->rank + 1);
  put_number(&w->packet, PACKET_SEQUENCE_FLAGS, FLAG_STATE_CLEARED);
  end_packet(w);
}

/* ── events ───────────────────────────────────────────────────────────────────────────────── */
static void note_number(Writer *w, Note note, int64_t value) {
  if (value <= 0) return;
  put_number(&w->part, ANNOTATION_NAME_IID, (uint64_t)note + 1);
  put_number(&w->part, ANNOTATION_UINT, (uint64_t)value);
  put_message(&w->event, EVENT_ANNOTATIONS, &w->part);
}

static void note_text(Writer *w, Note note, const char *value) {
  if (!value) return;
  put_number(&w->part, ANNOTATION_NAME_IID, (uint64_t)note + 1);
  put_text(&w->part, ANNOTATION_STRING, value);
  put_message(&w->event, EVENT_ANNOTATIONS, &w->part);
}

/* What is no step of the plan is named by its track. */
static void put_plain_name(Writer *w, const TraceSpan *span) {
  static const char *const what[SPAN_TRACK_COUNT] = {[SPAN_STEP] = "step",
                                                     [SPAN_WAIT] = "wait for the batch of step",
                                                     [SPAN_COMPUTE] = "step",
                                                     [SPAN_COPY] = "send the batch of step",
                                                     [SPAN_COMMUNICATE] = "step",
                                                     [SPAN_LOADER] = "batch of step",
                                                     [SPAN_EVALUATE] = "evaluation after step",
                                                     [SPAN_CHECKPOINT] = "checkpoint of step"};
  char name[64];
  snprintf(name, sizeof name, "%s %lld", what[span->track], (long long)span->number);
  put_text(&w->event, EVENT_NAME, name);
}

static void put_begin(Writer *w, const TraceSpan *span) {
  const PlanStep *step = span->step;
  int category = step ? (int)step->work_kind : WORK_COUNT + (int)span->track;
  put_number(&w->event, EVENT_CATEGORY_IIDS, (uint64_t)category + 1);
  put_number(&w->event, EVENT_TYPE, TYPE_BEGIN);
  if (step)
    put_number(&w->event, EVENT_NAME_IID, label_number(w, step->label));
  else
    put_plain_name(w, span);
  note_number(w, NOTE_STEP, span->number);
  if (!step) return;
  note_number(w, NOTE_LINE, step->line);
  note_number(w, NOTE_FLOPS, step->flops);
  note_number(w, NOTE_BYTES, step->bytes);
  note_text(w, NOTE_LAYER, step->layer);
  note_text(w, NOTE_KERNEL, step->name);
}

typedef struct {
  int64_t time;
  const TraceSpan *span;
  bool is_end;
} Moment;

static int earliest_first(const void *a, const void *b) {
  const Moment *x = a, *y = b;
  if (x->time != y->time) return x->time < y->time ? -1 : 1;
  return y->is_end - x->is_end; /* what ends makes room for what begins */
}

static Status put_events(Writer *w) {
  Moment *moment = calloc((size_t)w->count * 2 + 1, sizeof *moment);
  if (!moment) return status_errno(ENOMEM, "--trace");
  for (int64_t i = 0; i < w->count; i++) {
    moment[2 * i] = (Moment){w->spans[i].start, &w->spans[i], false};
    moment[2 * i + 1] = (Moment){w->spans[i].end, &w->spans[i], true};
  }
  qsort(moment, (size_t)w->count * 2, sizeof *moment, earliest_first);
  for (int64_t i = 0; i < w->count * 2; i++) {
    if (moment[i].is_end)
      put_number(&w->event, EVENT_TYPE, TYPE_END);
    else
      put_begin(w, moment[i].span);
    put_number(&w->event, EVENT_TRACK, track_uuid(w, moment[i].span));
    put_number(&w->packet, PACKET_TIMESTAMP, (uint64_t)moment[i].time);
    put_message(&w->packet, PACKET_TRACK_EVENT, &w->event);
    put_number(&w->packet, PACKET_SEQUENCE_ID, (uint64_t)w->process->rank + 1);
    put_number(&w->packet, PACKET_SEQUENCE_FLAGS, FLAG_NEEDS_STATE);
    end_packet(w);
  }
  free(moment);
  return STATUS_OK;
}

static int by_track_and_time(const void *a, const void *b) {
  const TraceSpan *x = a, *y = b;
  if (x->track != y->track) return (int)x->track - (int)y->track;
  if (x->lane != y->lane) return x->lane - y->lane;
  if (x->start != y->start) return x->start < y->start ? -1 : 1;
  return (x->end > y->end) - (x->end < y->end);
}

/* Spans of a track follow each other and last at least a nanosecond, so that each end is of the
 * last beginning. */
static void separate_spans(Writer *w) {
  for (int64_t i = 0; i < w->count; i++) {
    TraceSpan *span = &w->spans[i];
    bool has_before = i && span->track == span[-1].track && span->lane == span[-1].lane;
    if (has_before && span->start < span[-1].end) span->start = span[-1].end;
    if (span->end <= span->start) span->end = span->start + 1;
  }
}

Status perfetto_append(Text *out, const PerfettoProcess *process, TraceSpan *spans, int64_t count) {
  Writer w = {.out = out, .process = process, .spans = spans, .count = count};
  if (count) qsort(spans, (size_t)count, sizeof *spans, by_track_and_time);
  separate_spans(&w);
  Status status = find_labels(&w);
  if (status == STATUS_OK) {
    put_names(&w);
    put_process(&w);
    put_tracks(&w);
    status = put_events(&w);
  }
  free(w.labels);
  text_free(&w.event);
  text_free(&w.packet);
  text_free(&w.part);
  return status;
}
