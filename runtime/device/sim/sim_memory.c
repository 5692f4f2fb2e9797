/* sim_memory: the machine and its allocations. Beside each allocation lie three records: a byte for
 * each byte (was it ever written), and for each word which thread wrote and which read it last.
 * They are mapped fresh, so the system gives pages only to what is touched. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "runtime/device/sim/sim_private.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void *map(size_t bytes) {
  void *at =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? NULL : at;
}

typedef struct {
  size_t data, written, touches; /* bytes mapped */
} Sizes;

/* A word more than asked for, so that the records of an odd end have a place. */
static Sizes sizes_of(int64_t bytes) {
  size_t data = ((size_t)bytes + 256 + 4095) & ~(size_t)4095;
  return (Sizes){data, data, data / 4 * sizeof(SimTouch)};
}

static void unmap(const SimAllocation *allocation) {
  Sizes sizes = sizes_of(allocation->bytes);
  if (allocation->at) munmap(allocation->at, sizes.data);
  if (allocation->written) munmap(allocation->written, sizes.written);
  if (allocation->writer) munmap(allocation->writer, sizes.touches);
  if (allocation->reader) munmap(allocation->reader, sizes.touches);
}

Status sim_alloc(SimMachine *machine, int64_t bytes, char **out) {
  if (bytes < 0 || bytes > INT64_C(1) << 46)
    return status_fail(STATUS_FAULT, "out of memory: %lld bytes", (long long)bytes);
  Sizes sizes = sizes_of(bytes);
  SimAllocation made = {.bytes = bytes,
                        .at = map(sizes.data),
                        .written = map(sizes.written),
                        .writer = map(sizes.touches),
                        .reader = map(sizes.touches)};
  if (!made.at || !made.written || !made.writer || !made.reader) {
    unmap(&made);
    return status_fail(STATUS_FAULT, "out of memory: %.1f MiB cannot be had",
                       (double)bytes / (1 << 20));
  }
  VEC_PUSH(machine->arena, machine->allocations, made);
  *out = made.at;
  return STATUS_OK;
}

bool sim_free(SimMachine *machine, char *at) {
  if (!at) return true;
  for (int i = 0; i < machine->allocations.count; i++)
    if (machine->allocations.at[i].at == at) {
      unmap(&machine->allocations.at[i]);
      machine->allocations.at[i] = machine->allocations.at[--machine->allocations.count];
      return true;
    }
  return false;
}

SimAllocation *sim_allocation(const SimMachine *machine, const char *at, int64_t bytes) {
  for (int i = 0; i < machine->allocations.count; i++) {
    SimAllocation *allocation = &machine->allocations.at[i];
    if (at >= allocation->at && at + bytes <= allocation->at + allocation->bytes) return allocation;
  }
  return NULL;
}

void sim_mark(SimMachine *machine, const char *at, int64_t bytes, bool is_written) {
  SimAllocation *allocation = bytes > 0 ? sim_allocation(machine, at, bytes) : NULL;
  if (allocation && !machine->is_unchecked)
    memset(allocation->written + (at - allocation->at), is_written, (size_t)bytes);
}

void sim_machine_unchecked(SimMachine *machine) { machine->is_unchecked = true; }

void sim_machine_seed(SimMachine *machine, uint64_t schedule) {
  machine->schedule_seed = schedule;
  machine->launches = 0;
}

void sim_machine_rounding(SimMachine *machine, uint64_t seed) { machine->rounding_seed = seed; }

static Status read_seed(const char *name, uint64_t *out) {
  const char *text = getenv(name);
  if (!text || !text[0]) return STATUS_OK;
  char *end;
  *out = strtoull(text, &end, 10);
  if (text[0] >= '0' && text[0] <= '9' && !*end) return STATUS_OK;
  return status_fail(STATUS_USER, "%s=%s: expected a whole number", name, text);
}

Status sim_machine_new(int threads, SimMachine **out) {
  SimMachine *machine = calloc(1, sizeof *machine);
  if (!machine) return status_fail(STATUS_FAULT, "out of memory");
  machine->arena = arena_new();
  Status status = read_seed("FT_SIM_SEED", &machine->schedule_seed);
  if (status == STATUS_OK) status = read_seed("FT_SIM_ROUNDING", &machine->rounding_seed);
  if (status == STATUS_OK) status = pool_new(threads, &machine->pool);
  if (status == STATUS_OK) {
    int count = pool_threads(machine->pool);
    machine->cta = ARENA_ARRAY(machine->arena, SimCta *, count);
    for (int i = 0; i < count && status == STATUS_OK; i++) {
      machine->cta[i] = calloc(1, sizeof(SimCta));
      if (!machine->cta[i]) status = status_fail(STATUS_FAULT, "out of memory");
    }
  }
  if (status != STATUS_OK) {
    sim_machine_free(machine);
    return status;
  }
  *out = machine;
  return STATUS_OK;
}

void sim_machine_free(SimMachine *machine) {
  if (!machine) return;
  for (int i = 0; i < machine->allocations.count; i++) unmap(&machine->allocations.at[i]);
  for (int i = 0; machine->cta && i < pool_threads(machine->pool); i++)
    sim_cta_free(machine->cta[i]);
  pool_free(machine->pool);
  arena_free(machine->arena);
  free(machine);
}

int sim_machine_threads(const SimMachine *machine) { return pool_threads(machine->pool); }
