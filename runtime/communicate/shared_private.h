/* shared_private: what lies in the headers, and the parts of a Shared. */
#ifndef FT_RUNTIME_SHARED_PRIVATE_H
#define FT_RUNTIME_SHARED_PRIVATE_H
#include "runtime/communicate/shared.h"
#include <pthread.h>
#include <stdatomic.h>

enum { SHARED_SLOTS = 64, SHARED_SEGMENTS = 64, SHARED_LINE = 64 };

/* Where bytes lie: in the segment of this number, from 1; 0: in none. */
typedef struct {
  uint64_t segment;
  int64_t offset;
} SharedPlace;

/* What a rank has entered with. */
typedef struct {
  int32_t kind, op, dtype, peer;
  int64_t count;
  SharedPlace x, out;
} SharedEntry;

/* The next work of a group that has this slot: number n has slot n % SHARED_SLOTS. It lies in the
 * header of the group's first rank. */
typedef struct {
  _Alignas(SHARED_LINE) _Atomic uint64_t turn;    /* the work that may use it */
  _Alignas(SHARED_LINE) _Atomic uint64_t entered; /* a bit for each rank of the group */
  _Atomic uint32_t left;                          /* ranks */
  /* the low half of the work's number, and the next unit that nobody has taken */
  _Alignas(SHARED_LINE) _Atomic uint64_t claim;
  _Alignas(SHARED_LINE) _Atomic uint64_t done; /* units */
} SharedMeeting;

typedef struct {
  _Atomic uint64_t number; /* 0: none */
  int32_t file;
  int64_t bytes;
  uint64_t address; /* in its own process */
} SharedSegment;

typedef struct {
  uint8_t token[16];
  _Alignas(SHARED_LINE) _Atomic uint32_t bell;
  _Atomic uint32_t sleepers;
  _Alignas(SHARED_LINE) SharedSegment segment[SHARED_SEGMENTS]; /* n at n % SHARED_SEGMENTS */
  SharedMeeting meeting[MESH_AXIS_COUNT][SHARED_SLOTS];
  SharedEntry entry[MESH_AXIS_COUNT][SHARED_SLOTS];
  _Alignas(SHARED_LINE) char stage[MESH_AXIS_COUNT][SHARED_SLOTS][SHARED_STAGE];
} SharedHeader;

typedef struct {
  int count, index, rank[SHARED_RANKS]; /* count 0: its works are not done here */
  uint64_t next;                        /* number of its next work */
} SharedGroup;

typedef struct {
  uint64_t number; /* 0: none */
  char *at;
  int64_t bytes;
} SharedMapping;

/* Of a rank, as this process sees it. */
typedef struct {
  SharedHeader *header; /* NULL: it has not been met */
  int32_t pid;
  bool is_here; /* in this process */
  SharedMapping mapping[SHARED_SEGMENTS];
} SharedPeer;

struct Shared {
  int rank, ranks, header_file;
  bool may_spin;
  SharedGroup group[MESH_AXIS_COUNT];
  SharedPeer *peer;
  SharedPeer *own;
  uint64_t segments;    /* made so far */
  pthread_mutex_t lock; /* of mappings */
};

/* The address of what lies at this place of that rank. False: it cannot be mapped. */
bool shared_find(Shared *shared, int rank, const SharedPlace *place, char **out, char *why);
SharedPlace shared_place(const Shared *shared, const void *at);
void shared_ring_rank(Shared *shared, int rank);
#endif
