/* cuda_pieces: see cuda_pieces.h. */
#define _GNU_SOURCE /* memmem */
#include "runtime/device/cuda/cuda_pieces.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const char *at;
  size_t count; /* with the line's end */
} PtxLine;

static PtxLine first_line(const char *at) {
  const char *end = strchr(at, '\n');
  return (PtxLine){at, end ? (size_t)(end - at) + 1 : strlen(at)};
}

static bool line_begins(PtxLine line, const char *word) {
  size_t length = strlen(word);
  return line.count >= length && !memcmp(line.at, word, length);
}

static bool line_has(PtxLine line, const char *word) {
  return memmem(line.at, line.count, word, strlen(word)) != NULL;
}

static bool is_entry(PtxLine line) {
  return line_begins(line, ".visible .entry") || line_begins(line, ".weak .entry") || line_begins(line, ".entry");
}

/* By how many braces that open more than close in the line, before a comment. */
static int line_braces(PtxLine line) {
  const char *comment = memmem(line.at, line.count, "//", 2), *end = comment ? comment : line.at + line.count;
  int braces = 0;
  for (const char *at = line.at; at < end; at++) braces += (*at == '{') - (*at == '}');
  return braces;
}

/* A stretch of the text: a kernel, or what stands between two. */
typedef struct {
  const char *at;
  size_t count;
  bool is_kernel;
  int piece; /* of a kernel */
} Stretch;

typedef VEC(Stretch) Stretches;

static void add_stretch(Arena *arena, Stretches *all, Stretch stretch) {
  if (stretch.count) VEC_PUSH(arena, *all, stretch);
}

/* The stretches of the text, without lines that are comments. False: it cannot be cut. */
static bool split_text(Arena *arena, const char *ptx, Stretches *all) {
  Stretch now = {.at = ptx};
  int depth = 0;
  for (PtxLine line = first_line(ptx); line.count; line = first_line(line.at + line.count)) {
    bool is_comment = !now.is_kernel && line_begins(line, "//");
    if (!now.is_kernel && !is_comment && (line_has(line, ".global") || line_has(line, ".func"))) return false;
    if (is_comment || (!now.is_kernel && is_entry(line))) {
      add_stretch(arena, all, now);
      now = (Stretch){.at = line.at, .is_kernel = !is_comment};
    }
    if (is_comment) {
      now.at = line.at + line.count;
      continue;
    }
    now.count += line.count;
    int before = depth;
    depth += now.is_kernel ? line_braces(line) : 0;
    if (before > 0 && depth <= 0) {
      depth = 0;
      add_stretch(arena, all, now);
      now = (Stretch){.at = line.at + line.count};
    }
  }
  add_stretch(arena, all, now);
  return !now.is_kernel;
}

static int larger_first(const void *a, const void *b) {
  const Stretch *x = *(Stretch *const *)a, *y = *(Stretch *const *)b;
  if (x->count != y->count) return x->count < y->count ? 1 : -1;
  return x->at < y->at ? -1 : x->at > y->at;
}

/* Gives each kernel, the largest first, to the piece that has the least. */
static void share_kernels(Arena *arena, const Stretches *all, int pieces) {
  size_t size[CUDA_PIECES] = {0}, count = 0;
  Stretch **kernel = ARENA_ARRAY(arena, Stretch *, all->count);
  for (int i = 0; i < all->count; i++)
    if (all->at[i].is_kernel) kernel[count++] = &all->at[i];
  qsort(kernel, count, sizeof *kernel, larger_first);
  for (size_t i = 0; i < count; i++) {
    int least = 0;
    for (int p = 1; p < pieces; p++)
      if (size[p] < size[least]) least = p;
    kernel[i]->piece = least;
    size[least] += kernel[i]->count;
  }
}

static char *piece_text(Arena *arena, const Stretches *all, int piece, size_t room) {
  char *text = arena_alloc(arena, room + 1), *to = text;
  for (int i = 0; i < all->count; i++) {
    const Stretch *s = &all->at[i];
    if (s->is_kernel && s->piece != piece) continue;
    memcpy(to, s->at, s->count);
    to += s->count;
  }
  *to = 0;
  return text;
}

int cuda_pieces_cut(Arena *arena, const char *ptx, size_t least, int most, char *piece[CUDA_PIECES]) {
  Stretches all = {0};
  size_t bytes = 0, kernels = 0;
  if (!split_text(arena, ptx, &all)) return 0;
  for (int i = 0; i < all.count; i++)
    if (all.at[i].is_kernel) bytes += all.at[i].count, kernels++;
  size_t pieces = bytes / least;
  if (pieces > kernels) pieces = kernels;
  if (pieces > (size_t)most) pieces = (size_t)most;
  if (pieces < 2) return 0;
  share_kernels(arena, &all, (int)pieces);
  for (int i = 0; i < (int)pieces; i++) piece[i] = piece_text(arena, &all, i, strlen(ptx));
  return (int)pieces;
}
