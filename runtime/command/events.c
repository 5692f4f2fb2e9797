/* events: see events.h. */
#define _GNU_SOURCE /* gethostname */
#include "runtime/command/events.h"
#include "runtime/checkpoint/ckpt.h"
#include "runtime/command/event_file.h"
#include "runtime/command/log_file.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* In the order in which TensorBoard reads files of a run that begin alike: it goes on to the next
 * when it has seen the end of one, and stays at the last, where new scalars come. */
enum {
  AGAIN_FILE,
  GRAPH_FILE,
  HISTOGRAM_FILE,
  HPARAM_FILE,
  LAYER_FILE,
  SAMPLE_FILE,
  SCALAR_FILE,
  FILE_KINDS
};
static const char *const endings[] = {"ft-again",  "ft-graph",   "ft-histograms", "ft-hparams",
                                      "ft-layers", "ft-samples", "ft-scalars"};

struct Events {
  const char *folder;
  char stem[160]; /* events.out.tfevents.TIME.HOST.PROCESS */
  int64_t first_step;
  bool had[FILE_KINDS]; /* files of before are there */
  LogFile file[FILE_KINDS];
  char *path[FILE_KINDS];
  Text event, summary, value, record;
};

static double wall_time(void) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* ── files of before ──────────────────────────────────────────────────────────────────────── */

/* Of a file of ours; -1: it is none. */
static int kind_of_file(const char *name) {
  if (strncmp(name, "events.out.tfevents.", 20) != 0) return -1;
  int kind = FILE_KINDS - 1;
  while (kind >= 0 && !text_ends_with(name, endings[kind])) kind--;
  return kind;
}

static Status cut_file(const char *path, int64_t step) {
  Text text = {0};
  if (step <= 0)
    return unlink(path) == 0 || errno == ENOENT ? STATUS_OK : status_errno(errno, "%s", path);
  int error = text_read_file(&text, path);
  size_t kept = error ? 0 : event_bytes_to_keep(text_cstr(&text), text.count, step);
  bool is_cut = !error && kept < text.count;
  if (is_cut && truncate(path, (off_t)kept) != 0) error = errno;
  text_free(&text);
  if (!error || error == ENOENT || error == TEXT_IRREGULAR) return STATUS_OK;
  return status_errno(error, "train.log.tensorboard: %s", path);
}

Status events_cut(const char *folder, int64_t step) {
  DIR *dir = opendir(folder);
  if (!dir)
    return errno == ENOENT ? STATUS_OK : status_errno(errno, "train.log.tensorboard: %s", folder);
  Status status = STATUS_OK;
  Text path = {0};
  for (struct dirent *entry; status == STATUS_OK && (entry = readdir(dir));) {
    if (kind_of_file(entry->d_name) < 0) continue;
    path.count = 0;
    text_printf(&path, "%s/%s", folder, entry->d_name);
    status = cut_file(path.at, step);
  }
  text_free(&path);
  closedir(dir);
  return status;
}

/* ── opening and writing ──────────────────────────────────────────────────────────────────── */

static void start_event(Events *events, int64_t step) {
  events->event.count = 0;
  wire_double(&events->event, 1, wall_time());
  if (step) wire_int(&events->event, 2, step);
}

static Status end_event(Events *events, int kind) {
  events->record.count = 0;
  event_append_record(&events->record, &events->event);
  return log_file_write(&events->file[kind], &events->record);
}

/* The file, with the format's version at its head. */
static Status open_kind(Events *events, int kind) {
  enum { VERSION = 3 };
  if (events->file[kind].file || events->file[kind].has_failed) return STATUS_OK;
  Text path = {0};
  text_printf(&path, "%s/%s.%s", events->folder, events->stem, endings[kind]);
  free(events->path[kind]);
  events->path[kind] = path.at;
  STATUS_TRY(log_file_open(&events->file[kind], path.at, false));
  start_event(events, 0);
  wire_string(&events->event, VERSION, "brain.Event:2");
  return end_event(events, kind);
}

/* Where a resumed run goes on: a TensorBoard that has read later steps of before forgets them. In a
 * file that it reads before the new ones, for it forgets what it has read of them, too. */
static Status tell_resumed(Events *events) {
  enum { SESSION_LOG = 7, STATUS = 1, START = 1 };
  STATUS_TRY(open_kind(events, AGAIN_FILE));
  start_event(events, events->first_step + 1);
  events->value.count = 0;
  wire_int(&events->value, STATUS, START);
  wire_message(&events->event, SESSION_LOG, &events->value);
  STATUS_TRY(end_event(events, AGAIN_FILE));
  return log_file_flush(&events->file[AGAIN_FILE]);
}

static void look_into(Events *events) {
  DIR *dir = opendir(events->folder);
  for (struct dirent *entry; dir && (entry = readdir(dir));) {
    int kind = kind_of_file(entry->d_name);
    if (kind >= 0) events->had[kind] = true;
  }
  if (dir) closedir(dir);
}

Status events_open(const char *folder, int64_t first_step, Events **out) {
  char host[64] = "";
  *out = NULL;
  STATUS_TRY(ckpt_make_folder(folder));
  Events *events = calloc(1, sizeof *events);
  if (!events) return status_errno(ENOMEM, "events");
  if (gethostname(host, sizeof host - 1) != 0 || !host[0]) strcpy(host, "localhost");
  snprintf(events->stem, sizeof events->stem, "events.out.tfevents.%010lld.%s.%d",
           (long long)time(NULL), host, (int)getpid());
  events->folder = folder;
  events->first_step = first_step;
  look_into(events);
  *out = events;
  return first_step > 0 ? tell_resumed(events) : STATUS_OK;
}

enum { SUMMARY = 5, SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SCALAR = 2, VALUE_HISTOGRAM = 5 };
enum { VALUE_TENSOR = 8, VALUE_METADATA = 9 };

static void append_scalar(Events *events, const char *name, const char *split, double value) {
  Text tag = {0};
  text_printf(&tag, split ? "%s/%s" : "%s", name, split);
  events->value.count = 0;
  wire_string(&events->value, VALUE_TAG, tag.at);
  wire_float(&events->value, VALUE_SCALAR, (float)value);
  wire_message(&events->summary, SUMMARY_VALUE, &events->value);
  text_free(&tag);
}

Status events_line(Events *events, const LogLine *line) {
  const LogStep *step = line->step;
  STATUS_TRY(open_kind(events, SCALAR_FILE));
  events->summary.count = 0;
  append_scalar(events, "loss", line->split, step->loss);
  for (int i = 0; i < step->metric_count; i++)
    append_scalar(events, step->metric[i].name, line->split, step->metric[i].value);
  if (step->has_lr) append_scalar(events, "lr", NULL, step->lr);
  if (step->has_grad_norm) append_scalar(events, "grad_norm", NULL, step->grad_norm);
  if (!log_line_is_eval(line)) {
    append_scalar(events, "samples_per_s", NULL, line->samples_per_s);
    append_scalar(events, "data_wait", NULL, line->data_wait);
    append_scalar(events, "epoch", NULL, (double)line->epoch);
  }
  start_event(events, step->step);
  wire_message(&events->event, SUMMARY, &events->summary);
  return end_event(events, SCALAR_FILE);
}

/* Those by which layers are compared; the log of JSON lines has all. */
Status events_layers(Events *events, const LogLayers *layers) {
  static const int shown[] = {LAYER_WEIGHT_NORM, LAYER_GRAD_NORM, LAYER_GRAD_MAX, LAYER_GRAD_ZEROS,
                              LAYER_UPDATE_RATIO};
  static const int given[] = {VALUE_MEAN, VALUE_STD, VALUE_MAX, VALUE_ZEROS};
  char name[64];
  Text of = {0};
  STATUS_TRY(open_kind(events, LAYER_FILE));
  events->summary.count = 0;
  for (int i = 0; i < layers->param_count * 5; i++) {
    const LayerParam *param = &layers->param[i / 5];
    double value = layer_figure_of(param, shown[i % 5]);
    snprintf(name, sizeof name, "layers_%s", layer_figure[shown[i % 5]]);
    if (isfinite(value)) append_scalar(events, name, param->name, value);
  }
  for (int i = 0; i < layers->value_count * 4; i++) {
    const LayerValue *value = &layers->value[i / 4];
    if (value->sums.count == 0) continue;
    of.count = 0;
    text_printf(&of, "%s%s%s", value->layer, value->layer[0] ? "." : "", value->what);
    snprintf(name, sizeof name, "layers_output_%s", value_figure[given[i % 4]]);
    append_scalar(events, name, text_cstr(&of), value_figure_of(value, given[i % 4]));
  }
  text_free(&of);
  start_event(events, layers->step);
  wire_message(&events->event, SUMMARY, &events->summary);
  return end_event(events, LAYER_FILE);
}

Status events_flush(Events *events) {
  Status status = STATUS_OK;
  for (int i = 0; i < FILE_KINDS; i++) {
    Status flushed = log_file_flush(&events->file[i]);
    if (status == STATUS_OK) status = flushed;
  }
  return status;
}

Status events_close(Events *events) {
  Status status = STATUS_OK;
  if (!events) return status;
  for (int i = 0; i < FILE_KINDS; i++) {
    Status closed = log_file_close(&events->file[i]);
    if (status == STATUS_OK) status = closed;
    free(events->path[i]);
  }
  text_free(&events->event);
  text_free(&events->summary);
  text_free(&events->value);
  text_free(&events->record);
  free(events);
  return status;
}

/* ── histograms ───────────────────────────────────────────────────────────────────────────── */

EventsHistogram histogram_new(void) {
  return (EventsHistogram){.least = INFINITY, .most = -INFINITY};
}

void histogram_range(EventsHistogram *histogram, const float *values, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    double value = values[i];
    if (!isfinite(value)) {
      histogram->other++;
      continue;
    }
    histogram->count++;
    if (value < histogram->least) histogram->least = value;
    if (value > histogram->most) histogram->most = value;
    histogram->sum += value;
    histogram->sum_of_squares += value * value;
  }
}

/* The lower edge of bin `index`; of bin EVENTS_BINS: the upper edge of all. */
static double edge_of(const EventsHistogram *histogram, int index) {
  double width = (histogram->most - histogram->least) / EVENTS_BINS;
  return index == EVENTS_BINS ? histogram->most : index * width + histogram->least;
}

void histogram_count(EventsHistogram *histogram, const float *values, int64_t count) {
  double edge[EVENTS_BINS + 1], range = histogram->most - histogram->least;
  double scale = range > 0 ? EVENTS_BINS / range : 0;
  for (int i = 0; i <= EVENTS_BINS; i++) edge[i] = edge_of(histogram, i);
  for (int64_t i = 0; i < count; i++) {
    double value = values[i];
    if (!isfinite(value)) continue;
    int bin = (int)((value - histogram->least) * scale);
    if (bin >= EVENTS_BINS) bin = EVENTS_BINS - 1;
    while (bin > 0 && value < edge[bin]) bin--; /* the product was rounded */
    while (bin < EVENTS_BINS - 1 && range > 0 && value >= edge[bin + 1]) bin++;
    histogram->in[bin]++;
  }
}

Status events_histogram(Events *events, int64_t step, const char *tag,
                        const EventsHistogram *histogram) {
  enum { LEAST = 1, MOST, COUNT, SUM, SQUARES, LIMITS, COUNTS };
  double limit[EVENTS_BINS], in[EVENTS_BINS];
  int bins = histogram->most > histogram->least ? EVENTS_BINS : 1;
  if (!histogram->count) return STATUS_OK;
  STATUS_TRY(open_kind(events, HISTOGRAM_FILE));
  for (int i = 0; i < bins; i++) {
    limit[i] = bins == 1 ? histogram->most : edge_of(histogram, i + 1);
    in[i] = (double)histogram->in[i];
  }
  Text proto = {0};
  wire_double(&proto, LEAST, histogram->least);
  wire_double(&proto, MOST, histogram->most);
  wire_double(&proto, COUNT, (double)histogram->count);
  wire_double(&proto, SUM, histogram->sum);
  wire_double(&proto, SQUARES, histogram->sum_of_squares);
  wire_doubles(&proto, LIMITS, limit, bins);
  wire_doubles(&proto, COUNTS, in, bins);
  events->value.count = events->summary.count = 0;
  wire_string(&events->value, VALUE_TAG, tag);
  wire_message(&events->value, VALUE_HISTOGRAM, &proto);
  wire_message(&events->summary, SUMMARY_VALUE, &events->value);
  text_free(&proto);
  start_event(events, step);
  wire_message(&events->event, SUMMARY, &events->summary);
  return end_event(events, HISTOGRAM_FILE);
}

Status events_sample(Events *events, int64_t step, const Text *value) {
  STATUS_TRY(open_kind(events, SAMPLE_FILE));
  events->summary.count = 0;
  wire_message(&events->summary, SUMMARY_VALUE, value);
  start_event(events, step);
  wire_message(&events->event, SUMMARY, &events->summary);
  return end_event(events, SAMPLE_FILE);
}

/* ── hyperparameters ──────────────────────────────────────────────────────────────────────── */

/* An entry of map<string, google.protobuf.Value>. */
static void append_hparam(Text *out, const SettingInfo *info, const SettingValue *setting) {
  enum { MAP = 1, KEY = 1, VALUE = 2, NUMBER = 2, STRING = 3, BOOL = 4 };
  Text entry = {0}, value = {0};
  if (info->kind == SET_STR)
    wire_string(&value, STRING, setting->text ? setting->text : "");
  else if (info->kind == SET_BOOL)
    wire_int(&value, BOOL, setting->number != 0);
  else
    wire_double(&value, NUMBER, setting->number);
  wire_string(&entry, KEY, info->key);
  wire_message(&entry, VALUE, &value);
  wire_message(out, MAP, &entry);
  text_free(&entry);
  text_free(&value);
}

/* What a run is told apart by; not where its files are. */
static bool is_hparam(const SettingInfo *info) {
  static const char *const not[] = {"train.log.", "train.checkpoint.", "train.eval."};
  for (size_t i = 0; i < sizeof not/ sizeof *not; i++)
    if (strncmp(info->key, not[i], strlen(not[i])) == 0) return false;
  return info->when != WHEN_DERIVED;
}

/* The plugin's message stands in the metadata of a value whose tensor means nothing. */
Status events_hparams(Events *events, const SettingValue *settings) {
  enum { SESSION_START = 3, START_TIME = 5, PLUGIN = 1, PLUGIN_NAME = 1, PLUGIN_CONTENT = 2 };
  enum { DTYPE = 1, SHAPE = 2, DIM = 2, SIZE = 1, FLOATS = 5, DT_FLOAT = 1 };
  Text start = {0}, data = {0}, plugin = {0}, metadata = {0}, tensor = {0}, dim = {0}, shape = {0};
  if (events->had[HPARAM_FILE]) return STATUS_OK; /* TensorBoard takes the first */
  STATUS_TRY(open_kind(events, HPARAM_FILE));
  for (int i = 0; i < setting_count; i++)
    if (is_hparam(&setting_info[i])) append_hparam(&start, &setting_info[i], &settings[i]);
  wire_double(&start, START_TIME, wall_time());
  wire_message(&data, SESSION_START, &start);
  wire_string(&plugin, PLUGIN_NAME, "hparams");
  wire_message(&plugin, PLUGIN_CONTENT, &data);
  wire_message(&metadata, PLUGIN, &plugin);
  wire_int(&dim, SIZE, 1);
  wire_message(&shape, DIM, &dim);
  wire_int(&tensor, DTYPE, DT_FLOAT);
  wire_message(&tensor, SHAPE, &shape);
  wire_bytes(&tensor, FLOATS, "\0\0\0\0", 4); /* packed: one 0 */
  events->value.count = events->summary.count = 0;
  wire_string(&events->value, VALUE_TAG, "_hparams_/session_start_info");
  wire_message(&events->value, VALUE_TENSOR, &tensor);
  wire_message(&events->value, VALUE_METADATA, &metadata);
  wire_message(&events->summary, SUMMARY_VALUE, &events->value);
  start_event(events, 0);
  wire_message(&events->event, SUMMARY, &events->summary);
  Text *all[] = {&start, &data, &plugin, &metadata, &tensor, &dim, &shape};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) text_free(all[i]);
  STATUS_TRY(end_event(events, HPARAM_FILE));
  return log_file_flush(&events->file[HPARAM_FILE]);
}

Status events_graph(Events *events, const Plan *plan, const PlanGraph *graph) {
  enum { GRAPH_DEF = 4 };
  Text definition = {0};
  if (events->had[GRAPH_FILE]) return STATUS_OK;
  STATUS_TRY(open_kind(events, GRAPH_FILE));
  events_append_graph(&definition, plan, graph);
  start_event(events, 0);
  wire_message(&events->event, GRAPH_DEF, &definition);
  text_free(&definition);
  STATUS_TRY(end_event(events, GRAPH_FILE));
  return log_file_flush(&events->file[GRAPH_FILE]);
}
