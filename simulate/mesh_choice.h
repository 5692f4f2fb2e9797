/* mesh_choice: which mesh of so many ranks trains fastest of those whose memory suffices, and why
 * none of the others. Every mesh that divides the ranks is considered, with each level of
 * distributed.zero; for each of them the fewest micro-batches that fit, blocks recomputed only
 * where that lets fewer of them do. Layers are cut into stages only where nothing fits without, and
 * then into as few as do, unless the model says how many. What a candidate costs is the caller's to
 * reckon. The samples of an update stay as they are, whatever is chosen. The same question has the
 * same answer. */
#ifndef FT_SIMULATE_MESH_CHOICE_H
#define FT_SIMULATE_MESH_CHOICE_H
#include "base/arena.h"
#include "base/mesh.h"
#include <stdint.h>
#include <stdio.h>

enum {
  MESH_MOST_PARTS = 1 << 20, /* train.accumulate */
  MESH_MOST_STAGES = 16      /* of a pipeline, where nothing says how many */
};

typedef struct {
  Mesh mesh;
  int zero;
  int64_t batch, accumulate; /* samples of a group's micro-batch, micro-batches of an update */
  bool recomputes;           /* train.recompute = block, in place of what the model says */
  /* What it costs: */
  const char *refused; /* a sentence: it cannot be; NULL: it can */
  double memory;       /* bytes of a rank */
  double seconds, compute, exposed, bubble; /* of a step; 0 where the memory does not suffice */
} MeshCandidate;

typedef struct MeshQuestion {
  Arena *arena;
  int ranks, local;        /* in all; of a machine */
  double memory;           /* bytes of a rank */
  int64_t samples;         /* of an update */
  Mesh fixed;              /* what the model says; 0: open */
  int zero;                /* likewise; less than 0: open */
  int64_t accumulate;      /* likewise; 0: open */
  bool may_recompute;
  /* Fills the lower part; the times only where the memory suffices. */
  void (*reckon)(void *user, MeshCandidate *candidate);
  void *user;
} MeshQuestion;

typedef struct {
  VEC(MeshCandidate) candidates; /* one of each mesh and level, in order of simplicity */
  int chosen;                    /* -1: none fits */
  int reckoned;                  /* how many have been looked at */
} MeshAnswer;

void mesh_choose(const MeshQuestion *question, MeshAnswer *out);
/* A table, the fastest first, with a sentence for each that was not chosen. */
void mesh_print(const MeshQuestion *question, const MeshAnswer *answer, FILE *out);
/* The candidate that needs least memory: NULL where none can be at all. */
const MeshCandidate *mesh_nearest(const MeshAnswer *answer);
const char *mesh_bytes(Arena *arena, double bytes); /* "79.20 GiB" */
/* "data=8, tensor=2, zero=1": what is not 1 or 0, or "one rank". */
const char *mesh_name(Arena *arena, const MeshCandidate *candidate);
#endif
