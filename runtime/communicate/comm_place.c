/* comm_place: which rank this process is, as its launcher's variables say. */
#include "runtime/communicate/comm.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The variables of one launcher. An inner launcher stands before the ones that may have started it:
 * mpirun within a SLURM job starts its ranks by srun, and srun may start torchrun on each node. */
typedef struct {
  const char *launcher, *step; /* step: must be set too, and be of a step; NULL: none */
  const char *rank, *ranks, *local_rank, *local_ranks;
  bool may_be_others; /* the names are common words: one without the other says nothing */
} Launcher;
static const Launcher launchers[] = {
    {"mpirun", NULL, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", false},
    {"mpirun", NULL, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", false},
    {"torchrun", NULL, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", true},
    {"srun", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, false},
};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers, MOST_RANKS = 1 << 20 };

static const char *variable(const char *name) {
  const char *text = name ? getenv(name) : NULL;
  return text && *text ? text : NULL;
}

/* *out stays as it is where the variable is not set. */
static Status read_number(const char *name, int least, int most, int *out) {
  const char *text = variable(name);
  if (!text) return STATUS_OK;
  char *end;
  errno = 0;
  long value = strtol(text, &end, 10);
  if (end == text || *end || errno || value < least || value > most)
    return status_fail(STATUS_USER, "%s=%s: expected a number from %d to %d", name, text, least,
                       most);
  *out = (int)value;
  return STATUS_OK;
}

/* A batch script and an interactive shell have the highest numbers: these are no steps. */
static bool is_step(const char *text) {
  static const unsigned long first_of_the_jobs = 0xfffffff0ul;
  return text && strtoul(text, NULL, 10) < first_of_the_jobs;
}

/* "2(x3),1": of nodes 0, 1, 2 and 3. 0: not known. */
static int tasks_of_node(const char *text, long node) {
  while (text && *text) {
    char *end;
    long tasks = strtol(text, &end, 10), times = 1;
    if (end == text || tasks < 1 || tasks > MOST_RANKS) return 0;
    if (!strncmp(end, "(x", 2)) {
      times = strtol(end + 2, &end, 10);
      if (*end++ != ')') return 0;
    }
    if (node < times) return (int)tasks;
    node -= times;
    text = *end == ',' ? end + 1 : NULL;
  }
  return 0;
}

static Status read_local(const Launcher *l, CommPlace *place) {
  place->local_rank = place->rank;
  place->local_ranks = 0;
  STATUS_TRY(read_number(l->local_rank, 0, MOST_RANKS, &place->local_rank));
  if (l->local_ranks)
    STATUS_TRY(read_number(l->local_ranks, 1, MOST_RANKS, &place->local_ranks));
  else if (variable("SLURM_NODEID"))
    place->local_ranks = tasks_of_node(variable("SLURM_STEP_TASKS_PER_NODE"),
                                       strtol(variable("SLURM_NODEID"), NULL, 10));
  bool is_told = place->local_ranks > 0;
  if (!is_told) place->local_ranks = place->ranks;
  if (place->local_rank >= place->local_ranks || place->local_ranks > place->ranks)
    return status_fail(STATUS_USER,
                       "%s says that this is rank %d of %d on this machine, and of %d in all",
                       l->launcher, place->local_rank, place->local_ranks, place->ranks);
  return STATUS_OK;
}

/* *out.launcher is NULL where this one's variables are not set. */
static Status read_launcher(const Launcher *l, CommPlace *out) {
  const char *rank = variable(l->rank), *ranks = variable(l->ranks);
  *out = (CommPlace){.ranks = 1, .local_ranks = 1};
  if (l->step && !is_step(variable(l->step))) return STATUS_OK;
  if (!rank && !ranks) return STATUS_OK;
  if (!rank || !ranks) {
    if (l->may_be_others) return STATUS_OK;
    return status_fail(STATUS_USER, "%s is set, and %s is not: %s sets both",
                       rank ? l->rank : l->ranks, rank ? l->ranks : l->rank, l->launcher);
  }
  STATUS_TRY(read_number(l->rank, 0, MOST_RANKS, &out->rank));
  STATUS_TRY(read_number(l->ranks, 1, MOST_RANKS, &out->ranks));
  if (out->rank >= out->ranks)
    return status_fail(STATUS_USER, "%s=%s and %s=%s: ranks are counted from 0", l->rank, rank,
                       l->ranks, ranks);
  out->launcher = l->launcher;
  return read_local(l, out);
}

Status comm_place(CommPlace *out) {
  const Launcher *by = NULL;
  CommPlace found = {.ranks = 1, .local_ranks = 1};
  for (int i = 0; i < LAUNCHERS; i++) {
    CommPlace place;
    STATUS_TRY(read_launcher(&launchers[i], &place));
    if (!place.launcher) continue;
    /* under srun the others are at home; mpirun's and torchrun's ranks are no one's but theirs */
    if (by && !launchers[i].step && (place.rank != found.rank || place.ranks != found.ranks))
      return status_fail(STATUS_USER,
                         "%s=%d and %s=%d say one thing, %s=%d and %s=%d another: unset those that "
                         "are left from something else",
                         by->rank, found.rank, by->ranks, found.ranks, launchers[i].rank,
                         place.rank, launchers[i].ranks, place.ranks);
    if (by) continue;
    by = &launchers[i];
    found = place;
  }
  *out = found;
  return STATUS_OK;
}
