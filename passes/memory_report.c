/* memory_report: see memory_report.h. Everything is read off the planned graph: places from its
 * attributes, lifetimes from its order. */
#include "passes/memory_report.h"
#include "base/lookup.h"
#include "passes/memplan.h"
#include "passes/recompute.h"
#include "plan/step_form.h"
#include <string.h>

/* A value in the place work, for the picture and for the sums. */
typedef struct {
  const Node *node;
  int first, last;
  int64_t at, bytes;
  bool is_kept; /* made in forward, read in backward */
} Piece;

typedef struct {
  Lifetimes times;
  VEC(Piece) pieces;
  int64_t peak, bound, *live; /* by step: bytes in use */
  int busiest;
} Work;

const char *memory_category_text(MemoryCategory category) {
  static const char *const text[] = {
#define X(ID, text) text,
      MEMORY_CATEGORIES(X)
#undef X
  };
  return text[category];
}

static int64_t report_aligned(int64_t bytes) {
  return (bytes + MEMPLAN_ALIGN - 1) / MEMPLAN_ALIGN * MEMPLAN_ALIGN;
}

static bool is_in(const Node *node, StandardPlace arena) {
  const char *text = node_str(node, ATTR_PLACE);
  return text && strcmp(text, standard_place_text(arena)) == 0;
}

/* ── the place work ─────────────────────────────────────────────────────────────────────────── */
/* A place in the step in which something is written there. */
typedef struct {
  int64_t step, at;
} Birth;

/* Bytes alive, by step. What a result takes over from an operand, in the same place, counts
 * once. */
static int64_t *live_bytes(const Work *work, Arena *arena) {
  int64_t *live = ARENA_ARRAY(arena, int64_t, work->times.count + 2);
  Lookup births = {.arena = arena};
  for (int i = 0; i < work->pieces.count; i++) {
    Birth birth = {work->pieces.at[i].first, work->pieces.at[i].at};
    lookup_add(&births, &birth, sizeof birth, i);
  }
  for (int i = 0; i < work->pieces.count; i++) {
    const Piece *piece = &work->pieces.at[i];
    Birth end = {piece->last, piece->at};
    int next = lookup_find(&births, &end, sizeof end);
    live[piece->first] += piece->bytes;
    live[next >= 0 && next != i ? piece->last : piece->last + 1] -= piece->bytes;
  }
  for (int step = 1; step < work->times.count; step++) live[step] += live[step - 1];
  return live;
}

static Work work_of(const Graph *graph, Arena *arena) {
  Work work = {.times = lifetimes_of(graph, arena)};
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    if (!lifetime_is_value(node) || !is_in(node, PLACE_WORK)) continue;
    int first = work.times.first[i], last = work.times.last[i];
    bool outlives = last < work.times.count && work.times.node[last]->origin.is_backward;
    Piece piece = {node,
                   first,
                   last,
                   node_int(node, ATTR_AT, 0),
                   report_aligned(type_bytes(&node->type)),
                   outlives && !work.times.node[first]->origin.is_backward};
    if (piece.at + piece.bytes > work.peak) work.peak = piece.at + piece.bytes;
    VEC_PUSH(arena, work.pieces, piece);
  }
  work.live = live_bytes(&work, arena);
  for (int step = 0; step < work.times.count; step++) {
    if (work.live[step] <= work.bound) continue;
    work.bound = work.live[step];
    work.busiest = step;
  }
  return work;
}

static const char *step_name(const Node *step) {
  if (step->op == OP_FUSED && *step->body->name) return step->body->name;
  return op_info[step->op].text;
}

/* ── by category ────────────────────────────────────────────────────────────────────────────── */
static void grow_to(int64_t *size, int64_t end) {
  if (end > *size) *size = end;
}

static void add_graph(MemoryReport *report, const Program *program, const Graph *graph,
                      int64_t *optimizer_end, int64_t *state_end) {
  for (int i = 0; graph && i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    int64_t end = node_int(node, ATTR_AT, 0) + report_aligned(type_bytes(&node->type));
    if (is_in(node, PLACE_PARAMS)) grow_to(&report->bytes[MEMORY_PARAMS], end);
    if (is_in(node, PLACE_FROZEN)) grow_to(&report->bytes[MEMORY_FROZEN], end);
    if (is_in(node, PLACE_GIVEN)) grow_to(&report->bytes[MEMORY_GIVEN], end);
    if (is_in(node, PLACE_NARROW) || is_in(node, PLACE_FROZEN_NARROW))
      report->bytes[MEMORY_NARROW] = end; /* some */
    if (is_in(node, PLACE_GRADS)) grow_to(&report->bytes[MEMORY_GRADS], end);
    if (is_in(node, PLACE_INPUT)) grow_to(&report->bytes[MEMORY_INPUT], end);
    if (is_in(node, PLACE_OUTPUT)) grow_to(&report->bytes[MEMORY_OUTPUT], end);
    if (node->op != OP_STATE || !is_in(node, PLACE_STATE)) continue;
    grow_to(state_end, end);
    bool of_update = node->role == ROLE_STEP || role_has(node->role, ROLE_UPDATE);
    if (of_update && graph == program->train)
      *optimizer_end += report_aligned(type_bytes(&node->type));
  }
}

MemoryReport memory_report(const Program *program, Arena *arena) {
  const Graph *graph = program->train ? program->train : program->eval;
  MemoryReport report = {.recompute = recompute_describe(graph, arena)};
  int64_t state = 0;
  for (int i = 0; i < PROGRAM_GRAPHS; i++)
    add_graph(&report, program, program_graph(program, i), &report.bytes[MEMORY_OPTIMIZER], &state);
  report.bytes[MEMORY_STATE] = state - report.bytes[MEMORY_OPTIMIZER];
  if (report.bytes[MEMORY_NARROW]) /* all of them, read or not */
    report.bytes[MEMORY_NARROW] = report_aligned(report.bytes[MEMORY_PARAMS] / 2) +
                                  report_aligned(report.bytes[MEMORY_FROZEN] / 2);
  Work work = work_of(graph, arena);
  int64_t most = work.peak;
  for (int i = 1; i < PROGRAM_GRAPHS; i++) {
    const Graph *other = program_graph(program, i);
    int64_t *peak = &report.eval_peak;
    if (i >= PROGRAM_OWN_GRAPHS) peak = &report.variant_peak[(i - PROGRAM_OWN_GRAPHS) / 2];
    if (other) grow_to(peak, work_of(other, arena).peak);
    grow_to(&most, *peak);
  }
  for (int i = 0; i < program->variant_count; i++) {
    Text name = {0};
    step_form_append(program->settings, program->variants[i].form, &name);
    report.variant_name[i] = arena_strdup(arena, text_cstr(&name));
    text_free(&name);
  }
  report.work_peak = work.peak;
  report.work_bound = work.bound;
  report.busiest = work.busiest;
  for (int i = 0; i < work.times.count; i++) {
    Op op = work.times.node[i]->op;
    report.steps += op != OP_PACK && op != OP_ASSIGN;
  }
  if (work.times.count) {
    report.busiest_name = step_name(work.times.node[work.busiest]);
    report.busiest_line = work.times.node[work.busiest]->origin.loc.line;
  }
  for (int i = 0; i < work.pieces.count; i++) {
    const Piece *piece = &work.pieces.at[i];
    bool is_live = piece->first <= work.busiest && work.busiest <= piece->last;
    bool is_gathered = piece->node->op == OP_ALL_GATHER && node_axis(piece->node) != MESH_TENSOR;
    if (is_live && is_gathered)
      report.bytes[MEMORY_GATHERED] += piece->bytes;
    else if (is_live && piece->is_kept)
      report.bytes[MEMORY_KEPT] += piece->bytes;
  }
  int64_t others = work.bound - report.bytes[MEMORY_GATHERED];
  if (report.bytes[MEMORY_KEPT] > others) report.bytes[MEMORY_KEPT] = others;
  report.bytes[MEMORY_TEMPORARY] = others - report.bytes[MEMORY_KEPT];
  report.bytes[MEMORY_GAPS] = most - work.bound;
  for (int i = 0; i < MEMORY_CATEGORY_COUNT; i++) report.total += report.bytes[i];
  return report;
}

bool memory_is_shown(const MemoryReport *report, MemoryCategory category) {
  bool is_always =
      category != MEMORY_GATHERED && category != MEMORY_FROZEN && category != MEMORY_GIVEN;
  return is_always || report->bytes[category];
}

const char *memory_human(int64_t bytes, char buffer[32]) {
  static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = (double)bytes;
  int power = 0;
  while (value >= 1024 && power < 4) {
    value /= 1024;
    power++;
  }
  snprintf(buffer, 32, power ? "%.2f %s" : "%.0f %s", value, unit[power]);
  return buffer;
}

void memory_report_print(const MemoryReport *report, FILE *out) {
  char text[32], other[32];
  fprintf(out, "%-32s %14s\n", "memory", "bytes");
  for (int i = 0; i < MEMORY_CATEGORY_COUNT; i++)
    if (memory_is_shown(report, (MemoryCategory)i))
      fprintf(out, "%-32s %14lld  %s\n", memory_category_text((MemoryCategory)i),
              (long long)report->bytes[i], memory_human(report->bytes[i], text));
  fprintf(out, "%-32s %14lld  %s\n", "total", (long long)report->total,
          memory_human(report->total, text));
  fprintf(out, "work arena: peak %s, lower bound %s (%.3f times)",
          memory_human(report->work_peak, text), memory_human(report->work_bound, other),
          report->work_bound ? (double)report->work_peak / (double)report->work_bound : 1.0);
  if (report->busiest_name && report->busiest_line)
    fprintf(out, "; fullest at step %d, %s (line %u)", report->busiest, report->busiest_name,
            report->busiest_line);
  else if (report->busiest_name)
    fprintf(out, "; fullest at step %d, %s", report->busiest, report->busiest_name);
  fprintf(out, "\nevaluation needs %s of the same arena; %d launches and calls a step\n",
          memory_human(report->eval_peak, text), report->steps);
  for (int i = 0; i < PLAN_MOST_FORMS - 1 && report->variant_name[i]; i++)
    fprintf(out, "a step with %s needs %s of the same arena\n", report->variant_name[i],
            memory_human(report->variant_peak[i], text));
  if (report->recompute) fprintf(out, "%s\n", report->recompute);
}

/* ── the picture ────────────────────────────────────────────────────────────────────────────── */
enum { LEFT = 80, TOP = 60, WIDTH = 1200, HEIGHT = 640, LABEL_WIDTH = 60, LABEL_HEIGHT = 14 };

static void print_escaped(const char *text, FILE *out) {
  for (; *text; text++) switch (*text) {
    case '<':
      fputs("&lt;", out);
      break;
    case '>':
      fputs("&gt;", out);
      break;
    case '&':
      fputs("&amp;", out);
      break;
    case '"':
      fputs("&quot;", out);
      break;
    default:
      fputc(*text, out);
    }
}

static const char *colour(const Piece *piece) {
  return piece->is_kept ? "#d08a2e" : piece->node->origin.is_backward ? "#7d68b0" : "#3f8f8a";
}

static void print_piece(const Work *work, const Piece *piece, FILE *out) {
  char type[TYPE_TEXT], size[32];
  double column = (double)WIDTH / (double)work->times.count;
  double scale = (double)HEIGHT / (double)(work->peak ? work->peak : 1);
  double x = LEFT + piece->first * column, width = (piece->last - piece->first + 1) * column;
  double height = (double)piece->bytes * scale;
  double y = TOP + HEIGHT - (double)piece->at * scale - height;
  const Node *maker = work->times.node[piece->first];
  fprintf(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"><title>", x,
          y, width, height, colour(piece));
  print_escaped(step_name(maker), out);
  fprintf(out, " %%%d: %s, %s at %lld, steps %d to %d", piece->node->id,
          type_text(&piece->node->type, type), memory_human(piece->bytes, size),
          (long long)piece->at, piece->first, piece->last);
  if (piece->node->origin.layer) {
    fprintf(out, ", ");
    print_escaped(piece->node->origin.layer, out);
  }
  if (piece->node->origin.loc.line)
    fprintf(out, ", %sline %u", piece->node->origin.is_backward ? "gradient of " : "",
            piece->node->origin.loc.line);
  fprintf(out, "</title></rect>\n");
  if (width < LABEL_WIDTH || height < LABEL_HEIGHT) return;
  int room = (int)(width / 7);
  fprintf(out, "<text x=\"%.2f\" y=\"%.2f\" class=\"name\">%.*s</text>\n", x + 4,
          y + height / 2 + 4, room, step_name(maker));
}

static void print_axes(const Work *work, FILE *out) {
  char text[32];
  for (int i = 0; i <= 4; i++) {
    double y = TOP + HEIGHT - i * HEIGHT / 4.0;
    fprintf(out, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>", LEFT,
            LEFT + WIDTH, y, y);
    fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT - 8, y + 4,
            memory_human(work->peak * i / 4, text));
  }
  int every = work->times.count / 12 + 1;
  for (int i = 0; i < work->times.count; i += every)
    fprintf(out, "<text x=\"%.1f\" y=\"%d\">%d</text>\n",
            LEFT + i * (double)WIDTH / work->times.count, TOP + HEIGHT + 18, i);
  fprintf(out, "<text x=\"%d\" y=\"%d\">step</text>\n", LEFT + WIDTH - 30, TOP + HEIGHT + 36);
}

static void print_legend(const Work *work, FILE *out) {
  static const struct {
    const char *colour, *text;
  } legend[] = {{"#d08a2e", "kept from forward to backward"},
                {"#3f8f8a", "temporary, forward"},
                {"#7d68b0", "temporary, backward and update"}};
  char peak[32], bound[32];
  for (int i = 0; i < 3; i++)
    fprintf(out,
            "<rect x=\"%d\" y=\"34\" width=\"14\" height=\"14\" fill=\"%s\"/><text x=\"%d\" "
            "y=\"46\">%s</text>\n",
            LEFT + i * 250, legend[i].colour, LEFT + i * 250 + 20, legend[i].text);
  fprintf(out, "<text x=\"%d\" y=\"46\">black: live bytes</text>\n", LEFT + 780);
  fprintf(out,
          "<text x=\"%d\" y=\"20\" class=\"title\">Work arena of one step: peak %s, lower bound "
          "%s</text>\n",
          LEFT, memory_human(work->peak, peak), memory_human(work->bound, bound));
}

static void print_live(const Work *work, FILE *out) {
  fprintf(out, "<polyline fill=\"none\" stroke=\"black\" stroke-width=\"1.5\" points=\"");
  for (int step = 0; step < work->times.count; step++) {
    double y =
        TOP + HEIGHT - (double)work->live[step] / (double)(work->peak ? work->peak : 1) * HEIGHT;
    double column = (double)WIDTH / work->times.count;
    fprintf(out, "%.1f,%.1f %.1f,%.1f ", LEFT + step * column, y, LEFT + (step + 1) * column, y);
  }
  fprintf(out, "\"/>\n");
}

void memory_report_svg(const Program *program, Arena *arena, FILE *out) {
  Work work = work_of(program->train ? program->train : program->eval, arena);
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d "
          "%d\">\n"
          "<style>text{font:12px sans-serif;fill:#222}.title{font-size:15px;font-weight:bold}"
          ".name{fill:#fff;font-size:11px;pointer-events:none}rect{stroke:#fff;stroke-width:.5}"
          "rect:hover{stroke:#000;stroke-width:2}</style>\n<rect width=\"100%%\" height=\"100%%\" "
          "fill=\"#fff\"/>\n",
          LEFT + WIDTH + 40, TOP + HEIGHT + 50, LEFT + WIDTH + 40, TOP + HEIGHT + 50);
  print_axes(&work, out);
  for (int i = 0; i < work.pieces.count; i++) print_piece(&work, &work.pieces.at[i], out);
  print_live(&work, out);
  print_legend(&work, out);
  fprintf(out, "</svg>\n");
}
