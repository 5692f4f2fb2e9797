/* ranks: see ranks.h. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "runtime/command/ranks.h"
#include "base/clock.h"
#include "base/say.h"
#include "runtime/common/signals.h"
#include "runtime/communicate/arrivals.h"
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOST = 64 };

/* ── joining ──────────────────────────────────────────────────────────────────────────────── */

/* The model was compiled for some number of ranks. */
static Status check_number(const Plan *plan, const CommPlace *place) {
  int64_t group = setting_group(plan->settings), wanted = setting_ranks(plan->settings) * group;
  char axes[96] = "";
  if (setting_pipeline(plan->settings) > 1) strcat(axes, ", distributed.pipeline");
  if (setting_tensor(plan->settings) > 1) strcat(axes, ", distributed.tensor");
  if (wanted == place->ranks) return STATUS_OK;
  if (wanted == 0 && place->ranks % group == 0) return STATUS_OK;
  if (wanted == 0)
    return status_fail(STATUS_USER,
                       "model %s is compiled for groups of %lld ranks (%s), and "
                       "%d is no multiple of that: start it with ftrun --ranks %lld, or more",
                       plan->model, (long long)group, axes + 2, place->ranks, (long long)group);
  if (place->ranks == 1)
    return status_fail(STATUS_USER,
                       "model %s is compiled for %lld ranks (distributed.data%s): start it with "
                       "ftrun --ranks %lld, or mpirun -n %lld ftrun",
                       plan->model, (long long)wanted, axes, (long long)wanted, (long long)wanted);
  if (wanted > 1)
    return status_fail(STATUS_USER,
                       "%s has started %d ranks, and model %s is compiled for %lld "
                       "(distributed.data%s)",
                       place->launcher, place->ranks, plan->model, (long long)wanted, axes);
  return status_fail(STATUS_USER,
                     "%s has started %d ranks, and model %s is compiled for one: write "
                     "distributed { data = any } in %s, or compile it with ftc --set "
                     "distributed.data=any",
                     place->launcher, place->ranks, plan->model, plan->source);
}

typedef struct {
  char host[HOST];
  cpu_set_t cores;
} Seat;

/* Cores that several ranks of a machine may use are shared out: a launcher may have given each its
 * own, or some, or all of them to all. */
static Status share_cores(Ranks *ranks) {
  Seat mine = {0}, *all = calloc((size_t)ranks->place.ranks, sizeof *all);
  if (!all) return status_errno(ENOMEM, "ranks");
  if (gethostname(mine.host, sizeof mine.host - 1) != 0) mine.host[0] = 0;
  if (sched_getaffinity(0, sizeof mine.cores, &mine.cores) != 0) CPU_SET(0, &mine.cores);
  CommWork work = {.kind = COMM_ALL_GATHER,
                   .dtype = DT_U8,
                   .count = sizeof mine,
                   .x = &mine,
                   .out = all,
                   .label = "cores of the ranks"};
  Status status = comm_do(ranks->comm, &work);
  double share = 0;
  for (int c = 0; c < CPU_SETSIZE && status == STATUS_OK; c++) {
    int users = 0;
    if (!CPU_ISSET(c, &mine.cores)) continue;
    for (int r = 0; r < ranks->place.ranks; r++)
      users += !memcmp(all[r].host, mine.host, HOST) && CPU_ISSET(c, &all[r].cores);
    share += users ? 1.0 / users : 0;
  }
  ranks->cores = share < 1 ? 1 : (int)(share + 1e-6);
  free(all);
  return status;
}

bool ranks_begin(bool trains, void (*leave)(void)) {
  CommPlace place;
  if (comm_place(&place) != STATUS_OK || place.ranks == 1) return false; /* it is told later */
  if (trains) signals_listen();
  if (leave) arrivals_before_end(leave);
  arrivals_begin(&place);
  return true;
}

void ranks_name_self(char *out, size_t size) {
  char host[HOST] = "";
  CommPlace place;
  out[0] = 0;
  if (comm_place(&place) != STATUS_OK || place.ranks == 1) return;
  if (gethostname(host, sizeof host - 1) != 0) host[0] = 0;
  snprintf(out, size, "rank %d (host %s): ", place.rank, host);
}

/* Launchers end all ranks when one has failed: those that have not joined leave the first word to
 * rank 0, which most often fails likewise. */
static bool has_first_word(int rank) {
  if (rank > 0) sleep(2);
  return arrivals_first_word();
}

bool ranks_may_say(void) {
  CommPlace place;
  return comm_place(&place) != STATUS_OK || has_first_word(place.rank);
}

void ranks_have_said(int code) { arrivals_have_said(code); }

static Status ranks_join(const RunOptions *options, Ranks *ranks, Artifact **artifact) {
  STATUS_TRY(comm_place(&ranks->place));
  STATUS_TRY(train_open(options, artifact));
  const Plan *plan = (*artifact)->plan;
  STATUS_TRY(check_number(plan, &ranks->place));
  int pipeline = (int)setting_pipeline(plan->settings),
      tensor = (int)setting_tensor(plan->settings);
  Mesh mesh = {ranks->place.ranks / (pipeline * tensor), pipeline, tensor};
  ranks->shares = mesh.data;
  artifact_choose(*artifact, mesh_index(&mesh, MESH_PIPELINE, ranks->place.rank));
  if (ranks->place.ranks == 1) return STATUS_OK;
  CommOptions comm = {.ranks = ranks->place.ranks,
                      .mesh = mesh,
                      .timeout = setting_number(plan->settings, "distributed.timeout"),
                      .is_apart = !setting_number(plan->settings, "distributed.shared_memory")};
  STATUS_TRY(comm_open(&comm, &ranks->comm));
  return share_cores(ranks);
}

Status ranks_open(const RunOptions *options, Ranks *out, Artifact **artifact) {
  *out = (Ranks){.place = {.ranks = 1, .local_ranks = 1}, .shares = 1, .interval = 1};
  return ranks_join(options, out, artifact);
}

int ranks_threads(const Ranks *ranks, int wanted) {
  static const char *const variables[] = {"FT_THREADS", "OMP_NUM_THREADS"};
  for (int i = 0; i < 2 && wanted <= 0; i++)
    if (getenv(variables[i]) && atoi(getenv(variables[i])) > 0) return 0; /* the device knows */
  return wanted > 0 ? wanted : ranks->cores;
}

/* ── ending ───────────────────────────────────────────────────────────────────────────────── */

/* A failure of what joins the ranks names one, or some, with their machines: communicate/judge.c */
static bool is_of_some_rank(void) { return strstr(status_message(), " (host") != NULL; }

static void ranks_say(const Ranks *ranks) {
  char host[HOST] = "";
  fflush(stdout);
  if (ranks->place.rank == 0 || is_of_some_rank()) {
    say_error("%s", status_message());
  } else {
    if (gethostname(host, sizeof host - 1) != 0) host[0] = 0;
    say_error("rank %d (host %s): %s", ranks->place.rank, host, status_message());
  }
  fflush(stderr);
}

/* Who says it: of what all know to have failed, the one that has; of what the ranks were told while
 * they worked, the one that speaks then. A failure of this rank alone goes to that one. */
static bool speaks(const Ranks *ranks) {
  int64_t failed_at = comm_failed_at(ranks->comm);
  if (is_of_some_rank() && failed_at && signals_came_before(failed_at))
    return false; /* the launcher ends the job: others go */
  return ranks->is_agreed ? ranks->speaker == ranks->place.rank : comm_speaks(ranks->comm);
}

static void part(Ranks *ranks, Status status) {
  comm_leave(ranks->comm, status);
  ranks->left = ranks->comm;
  ranks->comm = NULL;
}

void ranks_free(Ranks *ranks) {
  comm_close(ranks->left, STATUS_OK);
  ranks->left = NULL;
}

Status ranks_leave(Ranks *ranks) {
  if (!ranks->comm) return STATUS_OK;
  STATUS_TRY(comm_barrier(ranks->comm, "end of the run"));
  part(ranks, STATUS_OK);
  ranks->has_left = true;
  return STATUS_OK;
}

static void admit_fault(const Ranks *ranks) {
  const char *to = getenv(RANKS_FAULT);
  int32_t rank = ranks->place.rank;
  bool is_own = ranks->is_agreed ? ranks->speaker == rank : !comm_failed_at(ranks->comm);
  if (!to || !is_own || atoi(to) < 3) return;
  if (write(atoi(to), &rank, sizeof rank) < 0) return; /* nobody is there to hear it */
}

Status ranks_close(Ranks *ranks, Status status) {
  if (status == STATUS_OK) status = ranks_leave(ranks);
  if (status == STATUS_FAULT) admit_fault(ranks);
  if (status == STATUS_OK || ranks->place.ranks == 1 || ranks->has_left) return status;
  if (ranks->comm ? speaks(ranks) && arrivals_first_word() : has_first_word(ranks->place.rank)) {
    ranks_say(ranks);
    arrivals_have_said(status);
  }
  if (ranks->is_agreed) (void)!comm_barrier(ranks->comm, "end of the run"); /* it has been said */
  if (ranks->comm) part(ranks, ranks->is_agreed ? STATUS_OK : status);
  return status_fail(status, "%s", "");
}

Status ranks_refuse(const char *command) {
  Ranks ranks = {0};
  STATUS_TRY(comm_place(&ranks.place));
  if (ranks.place.ranks == 1) return STATUS_OK;
  Status status = status_fail(STATUS_USER,
                              "ftrun %s runs as one process, and %s has started %d: start it alone",
                              command, ranks.place.launcher, ranks.place.ranks);
  return ranks_close(&ranks, status);
}

/* ── agreeing ─────────────────────────────────────────────────────────────────────────────── */

Status ranks_failed_alike(Ranks *ranks, Status status) {
  ranks->is_agreed = status != STATUS_OK && ranks->comm;
  ranks->speaker = 0;
  return status;
}

static Status least_of_all(Ranks *ranks, int64_t mine, const char *label, int64_t *out) {
  CommWork work = {.kind = COMM_ALL_REDUCE,
                   .op = COMM_MIN,
                   .dtype = DT_I64,
                   .count = 1,
                   .x = &mine,
                   .out = out,
                   .label = label};
  return comm_do(ranks->comm, &work);
}

Status ranks_agree(Ranks *ranks, Status status) {
  if (!ranks->comm || ranks->is_agreed) return status;
  /* the lowest rank that has failed, and how */
  int64_t mine = status == STATUS_OK ? INT64_MAX : ranks->place.rank * 8 + (int64_t)status, first;
  Text said = {0};
  text_printf(&said, "%s", status_message());
  Status exchanged = least_of_all(ranks, mine, "how all ranks fare", &first);
  ranks->is_agreed = exchanged == STATUS_OK && first != INT64_MAX;
  if (ranks->is_agreed) ranks->speaker = (int)(first / 8);
  if (status != STATUS_OK)
    status_fail(status, "%s", text_cstr(&said));
  else if (ranks->is_agreed)
    status = status_fail((Status)(first % 8), "rank %d has failed", ranks->speaker);
  else
    status = exchanged;
  text_free(&said);
  return status;
}

Status ranks_all(Ranks *ranks, bool *is) {
  if (!ranks->comm || ranks->has_left) return STATUS_OK;
  int64_t least = 0;
  STATUS_TRY(least_of_all(ranks, *is, "whether it is so on all ranks", &least));
  *is = least != 0;
  return STATUS_OK;
}

Status ranks_share_text(Ranks *ranks, char **text) {
  if (!ranks->comm) return STATUS_OK;
  int64_t count = *text ? (int64_t)strlen(*text) + 1 : 0;
  CommWork work = {.kind = COMM_BROADCAST,
                   .dtype = DT_I64,
                   .count = 1,
                   .x = &count,
                   .out = &count,
                   .label = "what rank 0 has found"};
  STATUS_TRY(comm_do(ranks->comm, &work));
  char *shared = calloc((size_t)count + 1, 1);
  if (!shared) return status_errno(ENOMEM, "ranks");
  if (*text && ranks->place.rank == 0) memcpy(shared, *text, (size_t)count);
  work.dtype = DT_U8;
  work.count = count;
  work.x = work.out = shared;
  Status status = count ? comm_do(ranks->comm, &work) : STATUS_OK;
  free(*text);
  *text = count ? shared : NULL;
  if (!count) free(shared);
  return status;
}

/* ── devices ──────────────────────────────────────────────────────────────────────────────── */

/* Where a rank alone has failed the others wait in the library: they hear of it as the job ends. */
Status ranks_join_devices(Ranks *ranks, Exec *exec) {
  Status status = exec_join(exec);
  return status == STATUS_FAULT ? status : ranks_agree(ranks, status);
}

/* ── signals ──────────────────────────────────────────────────────────────────────────────── */

void ranks_new_pace(Ranks *ranks) {
  ranks->calls = 0;
  ranks->interval = 1;
}

/* A signal, or the time that is up. */
static int asked_to_end(const Ranks *ranks, int64_t now) {
  bool is_late = ranks->deadline && ranks->place.rank == 0 && now >= ranks->deadline;
  return signals_pending() ? signals_pending() : is_late ? RANKS_TIME_IS_UP : 0;
}

Status ranks_signal(Ranks *ranks, int *signal) {
  if (!ranks->comm) ranks->signal = asked_to_end(ranks, clock_nanoseconds());
  *signal = ranks->signal;
  ranks->none_busy = false;
  if (!ranks->comm || ranks->signal || ++ranks->calls < ranks->interval) return STATUS_OK;
  int64_t now = clock_nanoseconds();
  double mine[3] = {asked_to_end(ranks, now), (double)(now - ranks->exchanged), ranks->is_busy},
         most[3];
  CommWork work = {.kind = COMM_ALL_REDUCE,
                   .op = COMM_MAX,
                   .dtype = DT_F64,
                   .count = 3,
                   .x = mine,
                   .out = most,
                   .label = "has one of the ranks got a signal?"};
  STATUS_TRY(comm_do(ranks->comm, &work));
  ranks->exchanged = now;
  ranks->signal = *signal = (int)most[0];
  ranks->none_busy = most[2] == 0;
  /* from the same numbers everywhere: as many calls as last a tenth of a second, at most twice as
   * many as now */
  double calls = 1e8 / fmax(most[1], 1) * (double)ranks->calls;
  ranks->interval = (int64_t)fmax(1, fmin(calls, 2 * (double)ranks->interval));
  ranks->calls = 0;
  return STATUS_OK;
}
