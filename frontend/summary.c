/* summary: --summary, the table of layers. */
#include "frontend/program.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *count_text(char *buffer, size_t size, int64_t n) {
  if (n >= 1000000000)
    snprintf(buffer, size, "%.2f G", (double)n / 1e9);
  else if (n >= 1000000)
    snprintf(buffer, size, "%.2f M", (double)n / 1e6);
  else if (n >= 10000)
    snprintf(buffer, size, "%.1f k", (double)n / 1e3);
  else
    snprintf(buffer, size, "%" PRId64, n);
  return buffer;
}

/* 12,345,678 */
static const char *exact_text(char *buffer, size_t size, int64_t n) {
  char digits[32];
  int length = snprintf(digits, sizeof digits, "%" PRId64, n);
  size_t used = 0;
  for (int i = 0; i < length && used + 2 < size; i++) {
    if (i && (length - i) % 3 == 0) buffer[used++] = ',';
    buffer[used++] = digits[i];
  }
  buffer[used] = 0;
  return buffer;
}

static int summary_width(const Program *program) {
  int width = 10;
  for (int i = 0; i < program->layers.count; i++) {
    int length = (int)strlen(program->layers.at[i].path);
    if (length > width) width = length;
  }
  return width > 48 ? 48 : width;
}

void frontend_print_summary(const Program *program, FILE *out) {
  int width = summary_width(program);
  int64_t parameters = 0, flops = 0;
  char type[TYPE_TEXT], first[48], second[48];
  fprintf(out, "model %s (batch %.0f)\n\n", program->model_name,
          setting_number(program->settings, "train.batch"));
  fprintf(out, "  %-*s  %-14s %-20s %12s %10s\n", width, "layer", "block", "output", "parameters",
          "FLOPs");
  for (int i = 0; i < program->layers.count; i++) {
    const Layer *layer = &program->layers.at[i];
    parameters += layer->parameters;
    flops += layer->flops;
    const char *path = *layer->path ? layer->path : i ? "(unnamed)" : "(model)";
    bool has_output = layer->output.shape.rank || *layer->path || i;
    fprintf(out, "  %-*s  %-14s %-20s %12s %10s\n", width, path, layer->block,
            has_output ? type_text(&layer->output, type) : "",
            exact_text(first, sizeof first, layer->parameters),
            count_text(second, sizeof second, layer->flops));
  }
  fprintf(out, "\n  total: %s parameters (%.2f MB as f32), %s FLOPs forward for one batch\n",
          exact_text(first, sizeof first, parameters), (double)parameters * 4e-6,
          count_text(second, sizeof second, flops));
  fprintf(out, "  each row counts its own work, not that of layers inside it\n");
}
