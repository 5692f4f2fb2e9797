/* lr_curve: see lr_curve.h. */
#include "runtime/command/lr_curve.h"
#include <math.h>
#include <string.h>

enum { SKIP_FIRST = 10, SKIP_LAST = 1 };
static const double beta = 0.98, most_rise = 3; /* above the lowest, in sizes of it */

double lr_curve_rate(double low, double high, int64_t i, int64_t count) {
  return count > 1 ? low * pow(high / low, (double)i / (double)(count - 1)) : low;
}

void lr_curve_add(LrCurve *curve, double lr, double loss) {
  curve->has_diverged = !isfinite(loss);
  if (curve->has_diverged) return;
  int64_t i = curve->count++;
  curve->sum = beta * curve->sum + (1 - beta) * loss;
  double smoothed = curve->sum / (1 - pow(beta, (double)curve->count));
  curve->at[i] = (LrPoint){lr, loss, smoothed};
  double lowest = curve->at[curve->lowest].smoothed;
  curve->has_diverged = i > 0 && smoothed > lowest + most_rise * fabs(lowest);
  if (smoothed < lowest) curve->lowest = i;
}

/* As numpy.gradient: one-sided at both ends of what is looked at. */
static double slope_at(const LrCurve *curve, int64_t i, int64_t first, int64_t last) {
  int64_t from = i > first ? i - 1 : i, to = i < last ? i + 1 : i;
  return (curve->at[to].smoothed - curve->at[from].smoothed) / (double)(to - from);
}

int64_t lr_curve_suggest(const LrCurve *curve) {
  int64_t first = SKIP_FIRST, last = curve->count - SKIP_LAST - 1, best = -1;
  if (last > curve->lowest) last = curve->lowest; /* behind it the model may fall back from a peak */
  double least = 0;
  for (int64_t i = first; i <= last && last > first; i++) {
    double slope = slope_at(curve, i, first, last);
    if (slope < least) {
      least = slope;
      best = i;
    }
  }
  return best;
}

/* ── pictures ─────────────────────────────────────────────────────────────────────────────── */

typedef struct {
  double left, right, low, high; /* log10 of rates; smoothed losses */
} Frame;

/* As high as the way down to the lowest loss, and a quarter more: where it diverges, it would leave
 * no height to that. */
static Frame frame_of(const LrCurve *curve) {
  Frame frame = {log10(curve->at[0].lr), log10(curve->at[curve->count - 1].lr),
                 curve->at[curve->lowest].smoothed, -INFINITY};
  int64_t end = curve->lowest ? curve->lowest : curve->count;
  for (int64_t i = 0; i < end; i++) frame.high = fmax(frame.high, curve->at[i].smoothed);
  if (curve->lowest) frame.high += (frame.high - frame.low) / 4;
  if (!(frame.right > frame.left)) frame.right = frame.left + 1;
  if (!(frame.high > frame.low)) frame.high = frame.low + fmax(fabs(frame.low), 1);
  return frame;
}

/* 0 to 1, from the left, and from below; what is outside lies on the border. */
static double across(const Frame *frame, double lr) {
  return (log10(lr) - frame->left) / (frame->right - frame->left);
}
static double upward(const Frame *frame, double loss) {
  return fmin(fmax((loss - frame->low) / (frame->high - frame->low), 0), 1);
}

void lr_curve_print(const LrCurve *curve, FILE *out) {
  enum { WIDTH = 64, HEIGHT = 16 };
  char cell[HEIGHT][WIDTH + 1];
  if (!curve->count) return;
  Frame frame = frame_of(curve);
  int64_t suggested = lr_curve_suggest(curve);
  memset(cell, ' ', sizeof cell);
  for (int y = 0; y < HEIGHT; y++) {
    cell[y][WIDTH] = 0;
    if (suggested >= 0)
      cell[y][(int)(across(&frame, curve->at[suggested].lr) * (WIDTH - 1) + 0.5)] = ':';
  }
  for (int64_t i = 0; i < curve->count; i++) {
    int x = (int)(across(&frame, curve->at[i].lr) * (WIDTH - 1) + 0.5);
    int y = (int)(upward(&frame, curve->at[i].smoothed) * (HEIGHT - 1) + 0.5);
    cell[HEIGHT - 1 - y][x] = '*';
  }
  for (int y = 0; y < HEIGHT; y++) {
    char label[16] = "";
    if (y == 0 || y == HEIGHT - 1)
      snprintf(label, sizeof label, "%.4g", y ? frame.low : frame.high);
    fprintf(out, "%10s |%s\n", label, cell[y]);
  }
  fprintf(out, "%10s +", "");
  for (int x = 0; x < WIDTH; x++) fputc('-', out);
  fprintf(out, "\n%10s  train.lr from %.3g to %.3g, by powers; up: the smoothed loss\n", "",
          pow(10, frame.left), pow(10, frame.right));
}

enum { SVG_LEFT = 70, SVG_TOP = 40, SVG_WIDTH = 560, SVG_HEIGHT = 320 };

static void svg_line(const LrCurve *curve, const Frame *frame, bool is_smoothed, FILE *out) {
  fprintf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" points=\"",
          is_smoothed ? "#0b57a4" : "#b5cbe3", is_smoothed ? "2" : "1");
  for (int64_t i = 0; i < curve->count; i++)
    fprintf(out, "%.1f,%.1f ", SVG_LEFT + across(frame, curve->at[i].lr) * SVG_WIDTH,
            SVG_TOP + (1 - upward(frame, is_smoothed ? curve->at[i].smoothed : curve->at[i].loss)) *
                          SVG_HEIGHT);
  fprintf(out, "\"/>\n");
}

static void svg_axes(const Frame *frame, FILE *out) {
  int bottom = SVG_TOP + SVG_HEIGHT;
  for (int power = (int)ceil(frame->left - 1e-9); power <= frame->right + 1e-9; power++) {
    double x = SVG_LEFT + (power - frame->left) / (frame->right - frame->left) * SVG_WIDTH;
    fprintf(
        out,
        "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#dddddd\"/>\n<text x=\"%.1f\" "
        "y=\"%d\" text-anchor=\"middle\">1e%d</text>\n",
        x, SVG_TOP, x, bottom, x, bottom + 18, power);
  }
  for (int i = 0; i <= 4; i++) {
    double y = bottom - SVG_HEIGHT * i / 4.0;
    fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n", SVG_LEFT - 8, y + 4,
            frame->low + (frame->high - frame->low) * i / 4.0);
  }
  fprintf(out,
          "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#888888\"/>\n",
          SVG_LEFT, SVG_TOP, SVG_WIDTH, SVG_HEIGHT);
}

void lr_curve_svg(const LrCurve *curve, FILE *out) {
  int64_t suggested = lr_curve_suggest(curve);
  Frame frame = frame_of(curve);
  fprintf(
      out,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"660\" height=\"420\" viewBox=\"0 0 660 "
      "420\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"660\" height=\"420\" "
      "fill=\"#ffffff\"/>\n<text x=\"%d\" y=\"24\" font-size=\"15\">Learning-rate range test: loss "
      "and smoothed loss over train.lr</text>\n",
      SVG_LEFT);
  svg_axes(&frame, out);
  svg_line(curve, &frame, false, out);
  svg_line(curve, &frame, true, out);
  if (suggested >= 0) {
    double x = SVG_LEFT + across(&frame, curve->at[suggested].lr) * SVG_WIDTH;
    fprintf(out,
            "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#b3261e\" "
            "stroke-dasharray=\"5 4\"/>\n<text x=\"%.1f\" y=\"%d\" fill=\"#b3261e\" "
            "text-anchor=\"%s\">suggested: %.3g</text>\n",
            x, SVG_TOP, x, SVG_TOP + SVG_HEIGHT, x + (x > 400 ? -6 : 6), SVG_TOP + 16,
            x > 400 ? "end" : "start", curve->at[suggested].lr);
  }
  fprintf(out, "</svg>\n");
}
