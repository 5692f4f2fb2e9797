/* summary: --summary, the table of layers. Layers that are equal, with all that is in them, and follow each
 * other by number (h.0, h.1, ...), are one row with the sums of all; below it, set in, stands what
 * is in one. */
#include "frontend/program.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *count_text(char *buffer, size_t size, int64_t n) {
  if (n >= 1000000000000)
    snprintf(buffer, size, "%.2f T", (double)n / 1e12);
  else if (n >= 1000000000)
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

enum { NAME_MOST = 48, BLOCK_MOST = 24 };

typedef struct {
  const Program *program;
  FILE *out; /* NULL: only how wide the columns are */
  int name_width, block_width;
  bool has_folded;
} Table;

/* Layers next to each other whose paths begin alike, up to a number: all of "h.3". */
typedef struct {
  const char *path;    /* of one of them */
  size_t stem, length; /* of "h." and of "h.3" */
  int number, from, end;
} Numbered;

/* ── equal layers ─────────────────────────────────────────────────────────────────────────── */

/* The number behind the first `skip` characters and a name, if there is one: the outermost. */
static bool find_number(const char *path, size_t skip, Numbered *out) {
  for (const char *at = path + skip; *at; at += strcspn(at, "."), at += *at == '.') {
    size_t digits = strspn(at, "0123456789");
    if (!digits || digits > 9 || (at[digits] && at[digits] != '.')) continue;
    *out = (Numbered){.path = path,
                      .stem = (size_t)(at - path),
                      .length = (size_t)(at - path) + digits,
                      .number = atoi(at)};
    return true;
  }
  return false;
}

static bool is_of(const Layer *layer, const Numbered *group) {
  return !strncmp(layer->path, group->path, group->length) &&
         (!layer->path[group->length] || layer->path[group->length] == '.');
}

/* Those that begin with `index`. */
static bool numbered_at(const Program *program, int index, size_t skip, Numbered *out) {
  if (index >= program->layers.count || strlen(program->layers.at[index].path) < skip ||
      !find_number(program->layers.at[index].path, skip, out))
    return false;
  out->from = out->end = index;
  while (out->end < program->layers.count && is_of(&program->layers.at[out->end], out)) out->end++;
  return true;
}

static bool groups_are_equal(const Program *program, const Numbered *a, const Numbered *b) {
  if (a->end - a->from != b->end - b->from) return false;
  for (int i = 0; i < a->end - a->from; i++) {
    const Layer *x = &program->layers.at[a->from + i], *y = &program->layers.at[b->from + i];
    if (strcmp(x->block, y->block) != 0 || strcmp(x->path + a->length, y->path + b->length) != 0 ||
        !type_equal(&x->output, &y->output) || x->parameters != y->parameters ||
        x->flops != y->flops)
      return false;
  }
  return true;
}

/* How many groups from `index` on are equal and have the next numbers; their first and last one. */
static int count_equal(const Program *program, int index, size_t skip, Numbered *first,
                       Numbered *last) {
  Numbered next;
  int count = 1;
  if (!numbered_at(program, index, skip, first)) return 1;
  *last = *first;
  while (numbered_at(program, last->end, skip, &next) && next.stem == first->stem &&
         !strncmp(next.path, first->path, first->stem) && next.number == first->number + count &&
         groups_are_equal(program, first, &next)) {
    *last = next;
    count++;
  }
  return count;
}

/* ── rows ─────────────────────────────────────────────────────────────────────────────────── */

static void put_row(Table *table, int indent, const char *name, const char *block,
                    const Type *output, int64_t parameters, int64_t flops) {
  char type[TYPE_TEXT], first[48], second[48];
  int length = indent + (int)strlen(name), block_length = (int)strlen(block);
  if (length > table->name_width) table->name_width = length < NAME_MOST ? length : NAME_MOST;
  if (block_length > table->block_width)
    table->block_width = block_length < BLOCK_MOST ? block_length : BLOCK_MOST;
  if (!table->out) return;
  fprintf(table->out, "  %*s%-*s  %-*s %-20s %12s %10s\n", indent, "", table->name_width - indent,
          name, table->block_width, block, output ? type_text(output, type) : "",
          exact_text(first, sizeof first, parameters), count_text(second, sizeof second, flops));
}

static void put_equal(Table *table, int indent, size_t skip, int count, const Numbered *first,
                      const Numbered *last) {
  const Program *program = table->program;
  const Layer *layer = &program->layers.at[first->from];
  bool is_block = !layer->path[first->length]; /* or a `repeat` over several */
  int64_t parameters = 0, flops = 0;
  for (int i = first->from; i < last->end; i++) {
    parameters += program->layers.at[i].parameters;
    flops += program->layers.at[i].flops;
  }
  const char *name =
      arena_printf(program->arena, "%.*s ... %.*s", (int)(first->length - skip), first->path + skip,
                   (int)(last->length - skip), last->path + skip);
  const char *block =
      arena_printf(program->arena, "%s x %d", is_block ? layer->block : "repeat", count);
  put_row(table, indent, name, block, is_block ? &layer->output : NULL, parameters, flops);
  table->has_folded = true;
  if (is_block && first->end > first->from + 1 && (layer->parameters || layer->flops))
    put_row(table, indent + 2, "(itself)", layer->block, NULL, layer->parameters, layer->flops);
}

/* The layers from..end; names leave out the first `skip` characters of their paths. */
static void put_layers(Table *table, int from, int end, int indent, size_t skip) {
  const Program *program = table->program;
  for (int i = from; i < end; i++) {
    const Layer *layer = &program->layers.at[i];
    Numbered first, last;
    int count = count_equal(program, i, skip, &first, &last);
    if (count > 1) {
      put_equal(table, indent, skip, count, &first, &last);
      put_layers(table, first.from + !layer->path[first.length], first.end, indent + 2,
                 first.length + 1);
      i = last.end - 1;
      continue;
    }
    const char *path = layer->path + (strlen(layer->path) >= skip ? skip : 0);
    const char *name = *path ? path : i ? "(unnamed)" : "(model)";
    bool has_output = layer->output.shape.rank || *path || i;
    put_row(table, indent, name, layer->block, has_output ? &layer->output : NULL,
            layer->parameters, layer->flops);
  }
}

void frontend_print_summary(const Program *program, FILE *out) {
  Table table = {.program = program, .name_width = 10, .block_width = 14};
  int64_t parameters = 0, flops = 0;
  char first[48], second[48];
  for (int i = 0; i < program->layers.count; i++) {
    parameters += program->layers.at[i].parameters;
    flops += program->layers.at[i].flops;
  }
  put_layers(&table, 0, program->layers.count, 0, 0);
  table.out = out;
  fprintf(out, "model %s (batch %.0f)\n\n", program->model_name,
          setting_number(program->settings, "train.batch"));
  fprintf(out, "  %-*s  %-*s %-20s %12s %10s\n", table.name_width, "layer", table.block_width,
          "block", "output", "parameters", "FLOPs");
  put_layers(&table, 0, program->layers.count, 0, 0);
  fprintf(out, "\n  total: %s parameters (%.2f MB as f32), %s FLOPs forward for one batch\n",
          exact_text(first, sizeof first, parameters), (double)parameters * 4e-6,
          count_text(second, sizeof second, flops));
  fprintf(out, "  each row counts its own work, not that of layers inside it\n");
  if (table.has_folded)
    fprintf(out,
            "  a row with x N has N equal layers and all inside them; below it, set in, stands "
            "one of them\n");
}
