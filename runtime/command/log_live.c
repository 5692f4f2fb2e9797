/* log_live: see log_live.h. */
#define _GNU_SOURCE /* strcasestr */
#include "runtime/command/log_live.h"
#include "base/text.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* The curve: means of so many steps each; when all are used, two become one. */
enum { CURVE_POINTS = 64, CURVE_COLUMNS = 32, BLOCK_LINES = 3 };

struct LogLive {
  FILE *out;
  bool is_utf8;
  double sum[CURVE_POINTS];
  int64_t count[CURVE_POINTS]; /* finite losses in it */
  int used;                    /* points that are full, the one at hand not among them */
  int64_t width, in_point;     /* steps of a full point, and in the one at hand */
  int lines;                   /* of the block that shows */
  int columns[BLOCK_LINES];    /* that they take */
  Text text;
};

bool log_live_can(FILE *out) {
  const char *term = getenv("TERM"), *plain = getenv("NO_COLOR");
  return isatty(fileno(out)) && term && term[0] && strcmp(term, "dumb") != 0 &&
         !(plain && plain[0]);
}

static bool speaks_utf8(void) {
  static const char *const variables[] = {"LC_ALL", "LC_CTYPE", "LANG"};
  for (int i = 0; i < 3; i++) {
    const char *value = getenv(variables[i]);
    if (value && value[0]) return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
  }
  return false;
}

LogLive *log_live_new(FILE *out) {
  LogLive *live = calloc(1, sizeof *live);
  if (!live) return NULL;
  live->out = out;
  live->is_utf8 = speaks_utf8();
  live->width = 1;
  return live;
}

void log_live_free(LogLive *live) {
  if (live) text_free(&live->text);
  free(live);
}

/* ── the curve ────────────────────────────────────────────────────────────────────────────── */

static void halve_curve(LogLive *live) {
  for (int i = 0; i < CURVE_POINTS / 2; i++) {
    live->sum[i] = live->sum[2 * i] + live->sum[2 * i + 1];
    live->count[i] = live->count[2 * i] + live->count[2 * i + 1];
  }
  live->used = CURVE_POINTS / 2;
  live->width *= 2;
}

void log_live_note(LogLive *live, double loss) {
  if (live->used == CURVE_POINTS) halve_curve(live);
  if (live->in_point == 0) live->sum[live->used] = 0, live->count[live->used] = 0;
  if (isfinite(loss)) {
    live->sum[live->used] += loss;
    live->count[live->used]++;
  }
  if (++live->in_point < live->width) return;
  live->in_point = 0;
  live->used++;
}

/* The mean of points [first, end); NAN: they hold none. */
static double curve_mean(const LogLive *live, int first, int end) {
  double sum = 0;
  int64_t count = 0;
  for (int i = first; i < end; i++) sum += live->sum[i], count += live->count[i];
  return count ? sum / (double)count : NAN;
}

/* Columns that it takes. */
static int append_curve(const LogLive *live, Text *out, int most) {
  static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static const char ascii[] = "_.-~=*#@";
  double value[CURVE_COLUMNS], least = INFINITY, greatest = -INFINITY;
  int points = live->used + (live->in_point > 0);
  if (points > CURVE_POINTS) points = CURVE_POINTS;
  int columns = points < most ? points : most;
  if (columns > CURVE_COLUMNS) columns = CURVE_COLUMNS;
  for (int i = 0; i < columns; i++) {
    value[i] = curve_mean(live, i * points / columns, (i + 1) * points / columns);
    least = fmin(least, value[i]);
    greatest = fmax(greatest, value[i]);
  }
  for (int i = 0; i < columns; i++) {
    double height = greatest > least ? (value[i] - least) / (greatest - least) : 0;
    int level = isfinite(height) ? (int)(height * 7 + 0.5) : 0;
    if (isnan(value[i]))
      text_printf(out, " ");
    else if (live->is_utf8)
      text_printf(out, "%s", blocks[level]);
    else
      text_printf(out, "%c", ascii[level]);
  }
  return columns;
}

/* ── the block ────────────────────────────────────────────────────────────────────────────── */

static void size_of_window(const LogLive *live, int *columns, int *rows) {
  struct winsize window = {0};
  bool is_known = ioctl(fileno(live->out), TIOCGWINSZ, &window) == 0;
  *columns = is_known && window.ws_col > 0 ? window.ws_col : 80;
  *rows = is_known && window.ws_row > 0 ? window.ws_row : 24;
}

/* To where the block begins. A terminal that has become narrower than the block may have broken its
 * lines, in a way of its own: then what shows stays, and the next block goes below. */
static void append_return(LogLive *live) {
  int columns, rows, widest = 0;
  size_of_window(live, &columns, &rows);
  for (int i = 0; i < live->lines; i++)
    if (live->columns[i] > widest) widest = live->columns[i];
  bool is_whole = widest < columns && live->lines < rows;
  if (live->lines && is_whole) text_printf(&live->text, "\033[%dA", live->lines);
  text_printf(&live->text, "\r");
  live->lines = 0;
}

/* By one call: a stream to a terminal is written line by line, and a block half drawn would show. */
static void write_block(LogLive *live) {
  fflush(live->out);
  size_t done = 0;
  while (done < live->text.count) {
    ssize_t count = write(fileno(live->out), live->text.at + done, live->text.count - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += (size_t)count;
  }
  live->text.count = 0;
}

void log_live_clear(LogLive *live) {
  if (!live->lines) return;
  append_return(live);
  text_printf(&live->text, "\033[J");
  write_block(live);
}

/* Text of one byte a column, as much as there is room for. */
static void append_plain(Text *out, const char *text, int *room) {
  size_t count = strlen(text);
  if ((int)count > *room) count = (size_t)*room;
  text_append(out, text, count);
  *room -= (int)count;
}

static void append_bar(const LogLive *live, Text *out, const LogView *view, int columns) {
  double share = view->steps > 0 ? (double)view->step / (double)view->steps : 1;
  int full = (int)(share * columns + 1e-9);
  text_printf(out, "\033[32m");
  for (int i = 0; i < columns; i++)
    text_printf(out, "%s",
                i < full ? (live->is_utf8 ? "━" : "#")
                         : (live->is_utf8 ? (i == full ? "\033[2m━" : "━") : "."));
  text_printf(out, "\033[0m");
}

static void append_time(Text *line, double seconds) {
  int64_t whole = seconds > 0 && seconds < 1e9 ? (int64_t)(seconds + 0.5) : 0;
  if (whole >= 3600) text_printf(line, "%lld:", (long long)(whole / 3600));
  text_printf(line, whole >= 3600 ? "%02lld:%02lld" : "%lld:%02lld", (long long)(whole / 60 % 60),
              (long long)(whole % 60));
}

/* Of this process in RAM, bytes; 0: not known. */
static double resident_bytes(void) {
  long long all, resident = 0;
  FILE *file = fopen("/proc/self/statm", "re");
  if (file && fscanf(file, "%lld %lld", &all, &resident) != 2) resident = 0;
  if (file) fclose(file);
  return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

static void end_line(LogLive *live, int columns, int room) {
  text_printf(&live->text, "\033[K\n");
  live->columns[live->lines++] = columns - room;
}

static void append_progress(LogLive *live, const LogView *view, int columns) {
  char text[160];
  int room = columns - 1, bar = columns / 3;
  snprintf(text, sizeof text, "epoch %lld/%lld  step %lld/%lld  %3.0f%%", (long long)view->epoch,
           (long long)view->epochs, (long long)view->step, (long long)view->steps,
           view->steps > 0 ? floor(100 * (double)view->step / (double)view->steps) : 100);
  append_plain(&live->text, text, &room);
  if (bar > 40) bar = 40;
  if (bar >= 8 && room >= bar + 2) {
    append_plain(&live->text, "  ", &room);
    append_bar(live, &live->text, view, bar);
    room -= bar;
  }
  end_line(live, columns - 1, room);
}

static void append_numbers(LogLive *live, const LogView *view, int columns) {
  int room = columns - 1;
  append_plain(&live->text, view->values, &room);
  if (room >= 10) {
    append_plain(&live->text, "  ", &room);
    text_printf(&live->text, "\033[36m");
    room -= append_curve(live, &live->text, room);
    text_printf(&live->text, "\033[0m");
  }
  end_line(live, columns - 1, room);
}

static void append_rates(LogLive *live, const LogView *view, int columns) {
  Text line = {0};
  int room = columns - 1;
  double share = view->step_time > 0 ? 100 * view->data_wait / view->step_time : 0;
  text_printf(&line, "%.0f samples/s  eta ", view->rate);
  append_time(&line, view->seconds);
  text_printf(&line, "  data wait %.2f ms (%.0f%%)", view->data_wait * 1e3, fmin(share, 100));
  double bytes = resident_bytes();
  if (!view->is_elsewhere)
    text_printf(&line, bytes < 1e9 ? "  memory %.0f MB" : "  memory %.2f GB",
                bytes < 1e9 ? bytes / 1e6 : bytes / 1e9);
  append_plain(&live->text, line.at, &room);
  text_free(&line);
  end_line(live, columns - 1, room);
}

void log_live_draw(LogLive *live, const LogView *view) {
  int columns, rows;
  size_of_window(live, &columns, &rows);
  append_return(live);
  append_progress(live, view, columns);
  if (rows > BLOCK_LINES) append_numbers(live, view, columns);
  if (rows > BLOCK_LINES) append_rates(live, view, columns);
  text_printf(&live->text, "\033[J");
  write_block(live);
}
