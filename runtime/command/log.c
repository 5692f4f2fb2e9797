/* log: see log.h. */
#include "runtime/command/log.h"
#include "base/clock.h"
#include "base/text.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

struct Log {
  LogOptions options;
  FILE *out, *jsonl;
  bool has_failed;             /* to write to jsonl */
  bool is_terminal, has_line;  /* has_line: a progress line without newline is showing */
  double line_time, show_time; /* when the last line, the last update of the terminal was made */
  double json_time;            /* samples/s in the file is measured between its own lines */
  int64_t line_step, json_step;
  double loss_sum, metric_sum[LOG_MOST_METRICS];
  int64_t sum_count;
  double rate; /* smoothed samples/s, for the ETA */
  Text line;
};

double log_now(void) { return (double)clock_nanoseconds() * 1e-9; }

Status log_open(const LogOptions *options, Log **out) {
  *out = NULL;
  Log *log = calloc(1, sizeof *log);
  if (!log) return status_errno(ENOMEM, "log");
  log->options = *options;
  log->out = options->out ? options->out : stdout;
  const char *term = getenv("TERM");
  log->is_terminal =
      !options->is_plain && isatty(fileno(log->out)) && !(term && strcmp(term, "dumb") == 0);
  if (options->jsonl && options->jsonl[0]) {
    log->jsonl = fopen(options->jsonl, options->append ? "ae" : "we");
    if (!log->jsonl) {
      Status status = status_errno(errno, "cannot write the log %s", options->jsonl);
      free(log);
      return status;
    }
  }
  *out = log;
  return STATUS_OK;
}

/* Told once: what is done about it has messages of its own. */
static Status log_failed(Log *log, int error) {
  log->has_failed = true;
  return status_errno(error ? error : EIO, "cannot write the log %s", log->options.jsonl);
}

Status log_flush(Log *log) {
  errno = 0;
  if (!log->jsonl || log->has_failed || fflush(log->jsonl) == 0) return STATUS_OK;
  return log_failed(log, errno);
}

/* Up to where the lines are whole and of steps up to `step`, in bytes. */
static size_t bytes_to_keep(const Text *text, int64_t step) {
  static const char head[] = "{\"step\": ";
  size_t kept = 0;
  while (kept < text->count) {
    const char *line = text->at + kept, *end = memchr(line, '\n', text->count - kept);
    if (!end) break;
    bool has_step = strncmp(line, head, sizeof head - 1) == 0;
    if (has_step && strtoll(line + sizeof head - 1, NULL, 10) > step) break;
    kept = (size_t)(end + 1 - text->at);
  }
  return kept;
}

Status log_cut(Log *log, int64_t step) {
  struct stat info;
  Text text = {0};
  /* a pipe or a device keeps what it got */
  if (!log->jsonl || fstat(fileno(log->jsonl), &info) != 0 || !S_ISREG(info.st_mode))
    return STATUS_OK;
  int error = text_read_file(&text, log->options.jsonl);
  if (!error && ftruncate(fileno(log->jsonl), (off_t)bytes_to_keep(&text, step)) != 0)
    error = errno;
  text_free(&text);
  return error ? status_errno(error, "the log %s", log->options.jsonl) : STATUS_OK;
}

/* ── lines on the console ─────────────────────────────────────────────────────────────────── */

static void clear_line(Log *log) {
  if (log->has_line) fputs("\r\033[K", log->out);
  log->has_line = false;
}

void log_say(Log *log, const char *format, ...) {
  if (!log->options.console) return;
  Text text = {0};
  va_list args;
  va_start(args, format);
  text_vprintf(&text, format, args);
  va_end(args);
  text_append(&text, "\n", 1);
  text_make_printable(text.at); /* paths and names of someone else's */
  clear_line(log);
  fputs(text.at, log->out);
  fflush(log->out);
  text_free(&text);
}

void log_warn(Log *log, const char *format, ...) {
  if (log->options.is_silent) return;
  clear_line(log);
  fflush(log->out);
  va_list args;
  va_start(args, format);
  fputs("warning: ", stderr);
  vfprintf(stderr, format, args);
  va_end(args);
  fputc('\n', stderr);
}

void log_start_clock(Log *log, int64_t step) {
  log->line_time = log->json_time = log_now();
  log->line_step = log->json_step = step;
}

void log_skip_time(Log *log, double seconds) {
  log->line_time += seconds;
  log->json_time += seconds;
}

static void append_duration(Text *line, double seconds) {
  int64_t whole = (int64_t)(seconds + 0.5);
  if (whole >= 3600)
    text_printf(line, "%lld:%02lld:%02lld", (long long)(whole / 3600), (long long)(whole / 60 % 60),
                (long long)(whole % 60));
  else
    text_printf(line, "%lld:%02lld", (long long)(whole / 60), (long long)(whole % 60));
}

/* Four decimals where they say something. */
static void append_value(Text *line, const char *name, double value) {
  double size = fabs(value);
  text_printf(line, size != 0 && (size < 1e-2 || size >= 1e5) ? "%s %.4g" : "%s %.4f", name, value);
}

static void append_values(Text *line, double loss, const LogMetric *metrics, const double *values,
                          int count) {
  append_value(line, "loss", loss);
  for (int i = 0; i < count; i++) {
    text_append(line, "  ", 2);
    if (metrics[i].kind != OUTPUT_METRIC)
      text_printf(line, "%s %.9g", metrics[i].name, metrics[i].value);
    else
      append_value(line, metrics[i].name, values ? values[i] : metrics[i].value);
  }
}

static int64_t epoch_of(const Log *log, int64_t step) {
  int64_t per_epoch = log->options.steps_per_epoch;
  return per_epoch > 0 ? (step - 1) / per_epoch + 1 : 1;
}

static void append_place(const Log *log, Text *line, int64_t step) {
  int64_t per_epoch = log->options.steps_per_epoch, total = log->options.total_steps;
  if (step == 0) return; /* an evaluation outside of a training */
  int64_t epochs = per_epoch > 0 ? (total + per_epoch - 1) / per_epoch : 1;
  text_printf(line, "epoch %lld/%lld  step %lld/%lld", (long long)epoch_of(log, step),
              (long long)epochs, (long long)step, (long long)total);
  text_append(line, "  ", 2);
}

static void log_show(Log *log, const LogStep *step, double now, bool is_line) {
  Text *line = &log->line;
  line->count = 0;
  double mean[LOG_MOST_METRICS], count = (double)log->sum_count;
  for (int i = 0; i < step->metric_count; i++)
    mean[i] =
        step->metric[i].kind != OUTPUT_METRIC ? step->metric[i].value : log->metric_sum[i] / count;
  append_place(log, line, step->step);
  append_values(line, log->loss_sum / count, step->metric, mean, step->metric_count);
  if (step->has_lr) text_printf(line, "  lr %.3g", step->lr);
  double rate = (double)(step->step - log->line_step) * (double)log->options.batch /
                fmax(now - log->line_time, 1e-9);
  if (is_line) log->rate = log->rate > 0 ? 0.5 * (log->rate + rate) : rate;
  text_printf(line, "  %.0f samples/s  eta ", rate);
  append_duration(line, (double)((log->options.total_steps - step->step) * log->options.batch) /
                            (log->rate > 0 ? log->rate : rate));
  if (!log->is_terminal) {
    fprintf(log->out, "%s\n", text_cstr(line));
    fflush(log->out);
    return;
  }
  struct winsize window = {0};
  size_t columns = ioctl(fileno(log->out), TIOCGWINSZ, &window) == 0 ? window.ws_col : 80;
  if (columns > 1 && line->count > columns - 1) line->at[columns - 1] = 0;
  fprintf(log->out, "\r%s\033[K", text_cstr(line));
  fflush(log->out);
  log->has_line = true;
}

static void restart_sums(Log *log, int64_t step, double now) {
  log->line_time = now;
  log->line_step = step;
  log->loss_sum = 0;
  log->sum_count = 0;
  memset(log->metric_sum, 0, sizeof log->metric_sum);
}

/* ── JSON lines ───────────────────────────────────────────────────────────────────────────── */

/* JSON has no NaN and no infinity: null, and the line says so once. */
static void append_number(Text *line, const char *name, double value, bool *is_finite) {
  text_append(line, ", ", 2);
  text_append_json(line, name);
  text_append(line, ": ", 2);
  if (isfinite(value))
    text_printf(line, "%.9g", value);
  else {
    text_printf(line, "null");
    *is_finite = false;
  }
}

static Status write_json(Log *log, const LogStep *step, bool is_eval, double samples_per_s) {
  Text *line = &log->line;
  bool is_finite = true;
  line->count = 0;
  text_printf(line, "{\"step\": %lld", (long long)step->step);
  if (is_eval)
    text_printf(line, ", \"eval\": true");
  else
    text_printf(line, ", \"epoch\": %lld", (long long)epoch_of(log, step->step));
  append_number(line, "loss", step->loss, &is_finite);
  if (step->has_lr) append_number(line, "lr", step->lr, &is_finite);
  if (!is_eval) append_number(line, "samples_per_s", samples_per_s, &is_finite);
  for (int i = 0; i < step->metric_count; i++)
    append_number(line, step->metric[i].name, step->metric[i].value, &is_finite);
  if (!is_finite) text_printf(line, ", \"nonfinite\": true");
  text_printf(line, "}\n");
  errno = 0;
  if (log->has_failed || (fwrite(line->at, 1, line->count, log->jsonl) == line->count &&
                          !ferror(log->jsonl)))
    return STATUS_OK;
  return log_failed(log, errno);
}

void log_error(Log *log, int64_t step, const char *sentence) {
  Text *line = &log->line;
  if (!log->jsonl || log->has_failed) return;
  line->count = 0;
  text_printf(line, "{\"step\": %lld, \"error\": ", (long long)step);
  text_append_json(line, sentence);
  text_printf(line, "}\n");
  fwrite(line->at, 1, line->count, log->jsonl); /* that it fails log_close says */
  fflush(log->jsonl);
}

/* ── events ───────────────────────────────────────────────────────────────────────────────── */

bool log_wants(const Log *log, int64_t first, int64_t last) {
  int64_t every = log->options.every;
  if (last == log->options.total_steps) return true;
  if (every > 0 && last / every > (first - 1) / every) return true;
  return log->options.console && log->is_terminal && log_now() - log->show_time >= 0.1;
}

Status log_step(Log *log, const LogStep *step, bool is_last) {
  log->loss_sum += step->loss;
  for (int i = 0; i < step->metric_count; i++) log->metric_sum[i] += step->metric[i].value;
  log->sum_count++;
  int64_t every = log->options.every;
  bool is_due = every > 0 && step->step % every == 0;
  Status status = STATUS_OK;
  if (log->jsonl && is_due) {
    double now = log_now();
    double steps = (double)(step->step - log->json_step);
    status = write_json(log, step, false,
                        steps * (double)log->options.batch / fmax(now - log->json_time, 1e-9));
    log->json_time = now;
    log->json_step = step->step;
  }
  if (!log->options.console) return status;
  bool is_line = is_due || (is_last && every > 0);
  if (!is_line && !log->is_terminal) return status;
  double now = log_now();
  if (!is_line && now - log->show_time < 0.1) return status;
  log_show(log, step, now, is_line);
  log->show_time = now;
  if (is_line) restart_sums(log, step->step, now);
  return status;
}

Status log_eval(Log *log, const char *split, const LogStep *result, int64_t samples,
                double seconds) {
  Status status = log->jsonl ? write_json(log, result, true, 0) : STATUS_OK;
  if (status == STATUS_OK) status = log_flush(log);
  Text *line = &log->line;
  line->count = 0;
  append_place(log, line, result->step);
  text_printf(line, "%s: ", split);
  append_values(line, result->loss, result->metric, NULL, result->metric_count);
  log_say(log, "%s  (%lld samples in %.2f s)", text_cstr(line), (long long)samples, seconds);
  return status;
}

Status log_close(Log *log) {
  if (!log) return STATUS_OK;
  Status status = STATUS_OK;
  if (log->has_line) fputc('\n', log->out);
  fflush(log->out);
  if (log->jsonl) {
    status = log_flush(log);
    errno = 0;
    if (fclose(log->jsonl) != 0 && !log->has_failed) status = log_failed(log, errno);
  }
  text_free(&log->line);
  free(log);
  return status;
}
