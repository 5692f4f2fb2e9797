/* shared: see shared.h. Headers, segments, and the bell; the works are in shared_work.c. */
#define _GNU_SOURCE /* memfd_create, MAP_ANONYMOUS, MADV_HUGEPAGE */
#include "runtime/communicate/shared_private.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, HUGE = 2 << 20 };

/* ── mappings ─────────────────────────────────────────────────────────────────────────────── */
static int64_t whole_pages(int64_t bytes) {
  int64_t unit = bytes >= HUGE ? HUGE : PAGE;
  return (bytes + unit) & ~(unit - 1); /* at least one page more than nothing */
}

/* So many bytes of the file, of whole pages; large ones aligned to huge pages and advised to use
 * them. NULL: they cannot be had. */
static char *map_shared(int file, int64_t bytes) {
  size_t size = (size_t)bytes, slack = bytes >= HUGE ? HUGE : 0;
  char *at =
      mmap(NULL, size + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return NULL;
  size_t low = slack ? (HUGE - (uintptr_t)at % HUGE) % HUGE : 0;
  if (low) munmap(at, low);
  if (slack - low) munmap(at + low + size, slack - low);
  at += low;
  if (mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    munmap(at, size);
    return NULL;
  }
  if (slack) madvise(at, size, MADV_HUGEPAGE);
  return at;
}

/* -1: there is none. */
static int make_shared_file(int64_t bytes) {
  int file = (int)syscall(SYS_memfd_create, "ft", 1u /* MFD_CLOEXEC */);
  if (file >= 0 && ftruncate(file, bytes) == 0) return file;
  if (file >= 0) close(file);
  return -1;
}

/* A file that another process has open, mapped. NULL: it may not be looked at, or is gone. */
static char *map_shared_of(int32_t pid, int32_t file, int64_t bytes) {
  char path[64];
  struct stat is;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, (int)file);
  int opened = open(path, O_RDWR | O_CLOEXEC);
  if (opened < 0) return NULL;
  bool is_right = fstat(opened, &is) == 0 && S_ISREG(is.st_mode) && is.st_size == bytes;
  char *at = is_right ? map_shared(opened, bytes) : NULL;
  close(opened);
  return at;
}

/* ── headers ──────────────────────────────────────────────────────────────────────────────── */
static int64_t header_bytes(void) { return whole_pages(sizeof(SharedHeader)); }

/* Slots begin with the works of their numbers. */
static void begin_meetings(SharedHeader *header) {
  for (int axis = 0; axis < MESH_AXIS_COUNT; axis++)
    for (uint64_t i = 0; i < SHARED_SLOTS; i++) {
      atomic_store(&header->meeting[axis][i].turn, i);
      atomic_store(&header->meeting[axis][i].claim, i << 32);
    }
}

Shared *shared_new(int rank, int ranks, SharedCard *card) {
  *card = (SharedCard){.file = -1};
  Shared *shared = calloc(1, sizeof *shared);
  if (shared) shared->peer = calloc((size_t)ranks, sizeof *shared->peer);
  int file = shared && shared->peer ? make_shared_file(header_bytes()) : -1;
  SharedHeader *header = file < 0 ? NULL : (SharedHeader *)(void *)map_shared(file, header_bytes());
  if (!header ||
      getrandom(header->token, sizeof header->token, 0) != (ssize_t)sizeof header->token) {
    if (header) munmap(header, (size_t)header_bytes());
    if (file >= 0) close(file);
    if (shared) free(shared->peer);
    free(shared);
    return NULL;
  }
  begin_meetings(header);
  pthread_mutex_init(&shared->lock, NULL);
  shared->rank = rank;
  shared->ranks = ranks;
  shared->header_file = file;
  shared->own = &shared->peer[rank];
  *shared->own = (SharedPeer){.header = header, .pid = getpid(), .is_here = true};
  *card = (SharedCard){.pid = getpid(), .file = file, .address = (uint64_t)(uintptr_t)header};
  memcpy(card->token, header->token, sizeof card->token);
  return shared;
}

/* A rank that is a thread of this process has its header where it said; who is not of this machine
 * has a number of a process that is somebody else here, or nobody. */
bool shared_meet(Shared *shared, int rank, const SharedCard *card) {
  SharedPeer *peer = &shared->peer[rank];
  if (peer->header) return true;
  if (card->file < 0) return false;
  SharedHeader *header =
      (SharedHeader *)(void *)map_shared_of(card->pid, card->file, header_bytes());
  if (!header) return false;
  bool is_it = !memcmp(header->token, card->token, sizeof card->token);
  bool is_here = is_it && card->pid == getpid();
  if (!is_it || is_here) munmap(header, (size_t)header_bytes());
  if (!is_it) return false;
  if (is_here) header = (SharedHeader *)(uintptr_t)card->address;
  *peer = (SharedPeer){.header = header, .pid = card->pid, .is_here = is_here};
  return true;
}

void shared_admit(Shared *shared, MeshAxis axis, const int *rank, int count, int index) {
  SharedGroup *group = &shared->group[axis];
  *group = (SharedGroup){.count = count, .index = index};
  memcpy(group->rank, rank, (size_t)count * sizeof *rank);
  if (axis == MESH_ALL) shared->may_spin = sysconf(_SC_NPROCESSORS_ONLN) >= count;
}

bool shared_serves(const Shared *shared, MeshAxis axis) {
  return shared && shared->group[axis].count > 0;
}

static void forget_mapping(SharedMapping *mapping) {
  if (mapping->at) munmap(mapping->at, (size_t)mapping->bytes);
  *mapping = (SharedMapping){0};
}

void shared_free(Shared *shared) {
  if (!shared) return;
  for (int r = 0; r < shared->ranks; r++) {
    SharedPeer *peer = &shared->peer[r];
    for (int i = 0; i < SHARED_SEGMENTS && peer->header && !peer->is_here; i++)
      forget_mapping(&peer->mapping[i]);
    if (peer->header && !peer->is_here) munmap(peer->header, (size_t)header_bytes());
  }
  munmap(shared->own->header, (size_t)header_bytes());
  close(shared->header_file);
  pthread_mutex_destroy(&shared->lock);
  free(shared->peer);
  free(shared);
}

/* ── the bell ─────────────────────────────────────────────────────────────────────────────── */
static long bell_futex(_Atomic uint32_t *word, int operation, uint32_t value,
                       const struct timespec *time) {
  return syscall(SYS_futex, word, operation, value, time, NULL, 0);
}

uint32_t shared_bell(const Shared *shared) { return atomic_load(&shared->own->header->bell); }

void shared_ring_rank(Shared *shared, int rank) {
  SharedHeader *header = shared->peer[rank].header;
  atomic_fetch_add(&header->bell, 1);
  if (atomic_load(&header->sleepers)) bell_futex(&header->bell, FUTEX_WAKE, INT32_MAX, NULL);
}

void shared_ring(Shared *shared) { shared_ring_rank(shared, shared->rank); }

void shared_wait(Shared *shared, uint32_t bell, int64_t nanoseconds, bool may_spin) {
  enum { SPINS = 400 }; /* some 15 us */
  SharedHeader *own = shared->own->header;
  for (int i = 0; i < SPINS && may_spin && shared->may_spin; i++) {
    if (atomic_load_explicit(&own->bell, memory_order_acquire) != bell) return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  struct timespec time = {nanoseconds / 1000000000, nanoseconds % 1000000000};
  atomic_fetch_add(&own->sleepers, 1);
  if (atomic_load(&own->bell) == bell) bell_futex(&own->bell, FUTEX_WAIT, bell, &time);
  atomic_fetch_sub(&own->sleepers, 1);
}

/* ── segments ─────────────────────────────────────────────────────────────────────────────── */
char *shared_memory_new(Shared *shared, int64_t bytes) {
  SharedHeader *own = shared->own->header;
  int64_t size = whole_pages(bytes);
  uint64_t number = shared->segments + 1;
  for (int i = 0; i < SHARED_SEGMENTS; i++, number++) { /* the next slot that is free */
    SharedSegment *segment = &own->segment[number % SHARED_SEGMENTS];
    if (atomic_load(&segment->number)) continue;
    int file = make_shared_file(size);
    char *at = file < 0 ? NULL : map_shared(file, size);
    if (!at) {
      if (file >= 0) close(file);
      return NULL;
    }
    segment->file = file;
    segment->bytes = size;
    segment->address = (uint64_t)(uintptr_t)at;
    shared->segments = number;
    shared->own->mapping[number % SHARED_SEGMENTS] = (SharedMapping){number, at, size};
    atomic_store(&segment->number, number);
    return at;
  }
  return NULL;
}

bool shared_memory_free(Shared *shared, char *memory) {
  for (int i = 0; i < SHARED_SEGMENTS; i++) {
    SharedMapping *mapping = &shared->own->mapping[i];
    SharedSegment *segment = &shared->own->header->segment[i];
    if (!mapping->number || mapping->at != memory) continue;
    atomic_store(&segment->number, 0);
    close(segment->file);
    forget_mapping(mapping);
    return true;
  }
  return false;
}

SharedPlace shared_place(const Shared *shared, const void *at) {
  for (int i = 0; i < SHARED_SEGMENTS; i++) {
    const SharedMapping *mapping = &shared->own->mapping[i];
    int64_t offset = (const char *)at - mapping->at;
    if (mapping->number && offset >= 0 && offset < mapping->bytes)
      return (SharedPlace){mapping->number, offset};
  }
  return (SharedPlace){0};
}

bool shared_holds(const Shared *shared, const void *at, int64_t bytes) {
  SharedPlace place = shared ? shared_place(shared, at) : (SharedPlace){0};
  const SharedMapping *mapping =
      shared ? &shared->own->mapping[place.segment % SHARED_SEGMENTS] : NULL;
  return place.segment && place.offset + bytes <= mapping->bytes;
}

/* What a rank has given back is unmapped when something new of its is mapped. */
static void forget_old(SharedPeer *peer) {
  for (int i = 0; i < SHARED_SEGMENTS; i++)
    if (atomic_load(&peer->header->segment[i].number) != peer->mapping[i].number)
      forget_mapping(&peer->mapping[i]);
}

/* With the lock held. */
static SharedMapping *map_segment(SharedPeer *peer, uint64_t number) {
  SharedMapping *mapping = &peer->mapping[number % SHARED_SEGMENTS];
  const SharedSegment *segment = &peer->header->segment[number % SHARED_SEGMENTS];
  if (mapping->number == number) return mapping;
  forget_old(peer);
  if (atomic_load(&segment->number) != number) return NULL;
  char *at = map_shared_of(peer->pid, segment->file, segment->bytes);
  if (!at) return NULL;
  *mapping = (SharedMapping){number, at, segment->bytes};
  return mapping;
}

bool shared_find(Shared *shared, int rank, const SharedPlace *place, char **out, char *why) {
  SharedPeer *peer = &shared->peer[rank];
  if (peer->is_here) {
    const SharedSegment *segment = &peer->header->segment[place->segment % SHARED_SEGMENTS];
    *out = (char *)(uintptr_t)segment->address + place->offset;
    return true;
  }
  pthread_mutex_lock(&shared->lock);
  const SharedMapping *mapping = map_segment(peer, place->segment);
  *out = mapping ? mapping->at + place->offset : NULL;
  pthread_mutex_unlock(&shared->lock);
  if (*out) return true;
  snprintf(why, ENGINE_WHY,
           "the memory of rank %d cannot be mapped (is the address space limited, or /proc hidden? "
           "--set distributed.shared_memory=false goes without)",
           rank);
  return false;
}
