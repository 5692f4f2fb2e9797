/* mesh_print: what people read of a choice of mesh. */
#include "base/text.h"
#include "simulate/mesh_choice.h"
#include <stdlib.h>

const char *mesh_name(Arena *arena, const MeshCandidate *c) {
  const char *name = arena_printf(arena, "data=%d", c->mesh.data);
  if (c->mesh.pipeline > 1) name = arena_printf(arena, "%s, pipeline=%d", name, c->mesh.pipeline);
  if (c->mesh.tensor > 1) name = arena_printf(arena, "%s, tensor=%d", name, c->mesh.tensor);
  return c->zero > 0 ? arena_printf(arena, "%s, zero=%d", name, c->zero) : name;
}

const char *mesh_bytes(Arena *arena, double bytes) {
  static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int u = 0;
  for (; bytes >= 1024 && u < 4; u++) bytes /= 1024;
  return arena_printf(arena, u ? "%.2f %s" : "%.0f %s", bytes, unit[u]);
}

/* Differences of times may be less than nothing by rounding. */
static double percent_of(double seconds, const MeshCandidate *c) {
  return seconds > 0 ? 100 * seconds / c->seconds : 0;
}

/* ── sentences ──────────────────────────────────────────────────────────────────────────────── */
static const char *why_full(Arena *arena, const MeshCandidate *c, double memory) {
  const char *with = c->batch == 1 ? ", with one sample at a time" : "";
  return arena_printf(arena, "does not fit: needs %s of %s%s%s", mesh_bytes(arena, c->memory),
                      mesh_bytes(arena, memory), with,
                      c->recomputes ? ", and blocks recomputed" : "");
}

/* What makes it slower than the chosen one: the largest of the three parts of its step. */
static const char *why_slower(Arena *arena, const MeshCandidate *c, const MeshCandidate *chosen) {
  double waits = c->exposed - chosen->exposed, idles = c->bubble - chosen->bubble;
  double computes = c->compute - chosen->compute;
  double percent = 100 * (c->seconds / chosen->seconds - 1);
  if (percent < 1)
    return percent < 0 ? "as fast, within 1 %; the chosen one is simpler"
                       : "as fast, within 1 %, and no simpler";
  const char *head = arena_printf(arena, "%.0f %% slower", percent);
  if (waits >= idles && waits >= computes)
    return arena_printf(arena, "%s: %.1f %% of its step is exposed communication", head,
                        percent_of(c->exposed, c));
  if (idles >= computes)
    return arena_printf(arena, "%s: %.1f %% of its step is the pipeline's bubble", head,
                        percent_of(c->bubble, c));
  head = arena_printf(arena, "%s: kernels take %.3f ms more", head, computes * 1e3);
  if (c->recomputes && !chosen->recomputes)
    return arena_printf(arena, "%s, as blocks are recomputed to fit", head);
  if (c->accumulate > chosen->accumulate)
    return arena_printf(arena, "%s, in %lld micro-batches", head, (long long)c->accumulate);
  if (c->mesh.tensor > chosen->mesh.tensor)
    return arena_printf(arena, "%s: not all of a layer is shared out", head);
  if (c->zero < chosen->zero)
    return arena_printf(arena, "%s: each rank makes the whole update", head);
  return head;
}

/* ── the table ──────────────────────────────────────────────────────────────────────────────── */
static int mesh_order_of(const MeshCandidate *c, double memory) {
  return c->refused ? 2 : c->memory > memory ? 1 : 0;
}

typedef struct {
  const MeshCandidate *candidate;
  int index;
  double memory;
} Row;

/* Those that fit by time, then those that do not by memory, then those that cannot be. */
static int compare_rows(const void *a, const void *b) {
  const Row *x = a, *y = b;
  int kind = mesh_order_of(x->candidate, x->memory), other = mesh_order_of(y->candidate, y->memory);
  if (kind != other) return kind - other;
  double of_x = kind == 0 ? x->candidate->seconds : kind == 1 ? x->candidate->memory : 0;
  double of_y = kind == 0 ? y->candidate->seconds : kind == 1 ? y->candidate->memory : 0;
  if (of_x != of_y) return of_x < of_y ? -1 : 1;
  return x->index - y->index;
}

static void print_candidate(const MeshQuestion *q, const MeshAnswer *answer, const Row *row, FILE *out) {
  const MeshCandidate *c = row->candidate;
  if (c->refused) {
    fprintf(out, "%-34s not possible: %s\n", mesh_name(q->arena, c), c->refused);
    return;
  }
  const char *cut = arena_printf(q->arena, "%lld x %lld%s", (long long)c->accumulate,
                                 (long long)c->batch, c->recomputes ? " recompute" : "");
  fprintf(out, "%-34s %-18s %13s ", mesh_name(q->arena, c), cut, mesh_bytes(q->arena, c->memory));
  if (c->memory > q->memory) {
    fprintf(out, "%15s %8s %8s  %s\n", "", "", "", why_full(q->arena, c, q->memory));
    return;
  }
  const char *why = row->index == answer->chosen
                        ? "chosen: the fastest that fits"
                        : why_slower(q->arena, c, &answer->candidates.at[answer->chosen]);
  fprintf(out, "%12.3f ms %6.1f %% %6.1f %%  %s\n", c->seconds * 1e3, percent_of(c->exposed, c),
          percent_of(c->bubble, c), why);
}

void mesh_print(const MeshQuestion *q, const MeshAnswer *answer, FILE *out) {
  int count = answer->candidates.count;
  Row *row = ARENA_ARRAY(q->arena, Row, count + 1);
  for (int i = 0; i < count; i++) row[i] = (Row){&answer->candidates.at[i], i, q->memory};
  qsort(row, (size_t)count, sizeof *row, compare_rows);
  fprintf(out, "%-34s %-18s %13s %15s %8s %8s\n", "mesh", "parts x samples", "memory", "step",
          "exposed", "bubble");
  for (int i = 0; i < count; i++) print_candidate(q, answer, &row[i], out);
}
