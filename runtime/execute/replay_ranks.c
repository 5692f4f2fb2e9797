/* replay_ranks: a number that is not finite, followed over several ranks (replay_private.h). One rank
 * leads: it goes back from kernel to kernel of its own, and tells the others each time that the step is
 * done again, which all of them do, for their collectives join them. Where the number came from other
 * ranks, all look at what they gave, and the lowest that gave one that is not finite leads on. */
#include "runtime/execute/exec_fetch.h"
#include "runtime/execute/replay_private.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum { ORDER_AGAIN, ORDER_ASK, ORDER_LEAD, ORDER_END } OrderKind;

/* What the leader says. ASK: each rank asked looks at element `element` (and, by its number in the
 * group, so many more) of the operand of one step of run `run` before it is done. Stages of a pipeline
 * have different steps, but those of a group do the same ones in the same order: the step is told by its
 * number among them. */
typedef struct {
  OrderKind kind;
  int run, number;
  bool
      is_message; /* number is among the sends of the member that is asked to `to`, of the group; else
                      among what the whole group does */
  int to;
  MeshAxis axis;           /* of the leader's group */
  int member;              /* the one of it that is asked; -1: all */
  int64_t element, stride; /* of the operand */
  int rank;                /* LEAD: who goes on */
  ReplayTrail trail;
} ReplayOrder;

int replay_rank(const Replay *replay) { return comm_rank(replay_comm(replay)); }

bool replay_leads(Replay *replay) {
  return !replay_comm(replay) || *replay_leader(replay) == replay_rank(replay);
}

static Status replay_broadcast(Replay *replay, int from, void *bytes, int64_t count,
                               const char *label) {
  CommWork work = {.kind = COMM_BROADCAST,
                   .peer = from,
                   .dtype = DT_U8,
                   .count = count,
                   .x = bytes,
                   .out = bytes,
                   .label = label};
  return comm_do(replay_comm(replay), &work);
}

/* Two numbers of each rank; *out is to be freed. */
static Status gather_pairs(Replay *replay, const double own[2], double **out) {
  int ranks = comm_ranks(replay_comm(replay));
  *out = malloc(sizeof **out * 2 * (size_t)ranks);
  if (!*out) return status_errno(ENOMEM, "--check=nan");
  CommWork work = {.kind = COMM_ALL_GATHER,
                   .dtype = DT_F64,
                   .count = 2,
                   .x = own,
                   .out = *out,
                   .label = "numbers that are not finite"};
  Status status = comm_do(replay_comm(replay), &work);
  if (status == STATUS_OK) return status;
  free(*out);
  *out = NULL;
  return status;
}

Status replay_agree_on(Replay *replay, ReplaySpot *spot) {
  if (!replay_comm(replay)) return STATUS_OK;
  double own[2] = {spot->what[0] != 0, 0}, *all;
  STATUS_TRY(gather_pairs(replay, own, &all));
  int leader = 0, ranks = comm_ranks(replay_comm(replay));
  while (leader < ranks && all[2 * leader] == 0) leader++;
  free(all);
  if (leader == ranks) return STATUS_OK;
  *replay_leader(replay) = leader;
  return replay_broadcast(replay, leader, spot, sizeof *spot, "a number that is not finite");
}

/* ── orders ───────────────────────────────────────────────────────────────────────────────── */
static Status replay_tell(Replay *replay, ReplayOrder *order) {
  static const CommDoing looking = {.what = "--check=nan", .may_last = true};
  Comm *comm = replay_comm(replay);
  if (!comm) return STATUS_OK;
  if (replay_leads(replay)) comm_doing_nothing(comm);
  Status status = replay_broadcast(replay, *replay_leader(replay), order, sizeof *order,
                                   "the way back from a number that is not finite");
  if (replay_leads(replay)) comm_doing(comm, &looking), comm_goes_on(comm);
  return status;
}

Status replay_tell_again(Replay *replay) {
  return replay_tell(replay, &(ReplayOrder){.kind = ORDER_AGAIN});
}

Status replay_tell_end(Replay *replay) {
  return replay_tell(replay, &(ReplayOrder){.kind = ORDER_END});
}

Status replay_tell_lead(Replay *replay, int rank, const ReplayTrail *trail) {
  STATUS_TRY(
      replay_tell(replay, &(ReplayOrder){.kind = ORDER_LEAD, .rank = rank, .trail = *trail}));
  *replay_leader(replay) = rank;
  return STATUS_OK;
}

/* The whole step once more. */
static Status replay_whole(Replay *replay) {
  int last = replay_last_run(replay);
  STATUS_TRY(replay_to(replay, last, replay_graph(replay, last)->steps.count));
  return exec_sync(replay_exec(replay));
}

/* ── what others gave ─────────────────────────────────────────────────────────────────────── */
static int64_t order_attribute(const PlanStep *step, const char *key) {
  for (int i = 0; i < step->int_count; i++)
    if (!strcmp(step->ints[i].key, key)) return step->ints[i].value;
  return 0;
}

/* This rank's group, as beside_work has it. */
static MeshAxis group_axis(const Replay *replay, const PlanStep *step) {
  MeshAxis axis = (MeshAxis)order_attribute(step, "group");
  return axis == MESH_ALL && exec_stages(replay_exec(replay))->count > 1 ? MESH_STAGE : axis;
}

/* Is it a step with this rank of the group alone (peer), or with all of it (-1)? */
static bool is_with(const Replay *replay, const PlanStep *step, MeshAxis axis, const char *name,
                    int peer) {
  if (step->kind != STEP_BEGIN || group_axis(replay, step) != axis) return false;
  bool is_message = !strcmp(step->name, "send") || !strcmp(step->name, "receive");
  if (peer < 0) return !is_message;
  return !strcmp(step->name, name) && order_attribute(step, "peer") == peer;
}

/* How many such steps there are before step `end`. */
static int count_with(const Replay *replay, const PlanGraph *graph, int end, MeshAxis axis,
                      const char *name, int peer) {
  int count = 0;
  for (int i = 0; i < end; i++) count += is_with(replay, &graph->steps.at[i], axis, name, peer);
  return count;
}

/* This rank's step that the order means; -1: there is none. */
static int find_meant(Replay *replay, const ReplayOrder *order) {
  const PlanGraph *graph = replay_graph(replay, order->run);
  int seen = 0, peer = order->is_message ? order->to : -1;
  for (int i = 0; i < graph->steps.count; i++)
    if (is_with(replay, &graph->steps.at[i], order->axis, "send", peer) && seen++ == order->number)
      return i;
  return -1;
}

static bool is_asked(Replay *replay, const ReplayOrder *order) {
  const Mesh *mesh = comm_mesh(replay_comm(replay));
  int rank = replay_rank(replay), own = mesh_index(mesh, order->axis, rank);
  return mesh_member(mesh, order->axis, *replay_leader(replay), own) == rank &&
         (order->member < 0 || order->member == own) && order->run <= replay_last_run(replay);
}

/* This rank's own, as the step begins: *spot, *value. */
static Status look_at_given(Replay *replay, const ReplayOrder *order, int index, ReplaySpot *spot,
                            double *value) {
  const PlanGraph *graph = replay_graph(replay, order->run);
  const PlanBuffer *buffer = &graph->buffers.at[graph->steps.at[index].args[0]];
  int own = mesh_index(comm_mesh(replay_comm(replay)), order->axis, replay_rank(replay));
  int64_t element = order->element + order->stride * own, size = dtype_bytes(buffer->type.dtype);
  const char *at;
  char *copy;
  STATUS_TRY(replay_to(replay, order->run, index));
  if (element < shape_elements(&buffer->type.shape)) {
    *spot = (ReplaySpot){order->run, index, buffer->place, buffer->offset + element * size, ""};
    STATUS_TRY(replay_bytes(replay, order->run, buffer->place, spot->at, size, &at, &copy));
    if (dtype_is_float(buffer->type.dtype)) *value = body_read_element(buffer->type.dtype, at, 0).f;
    free(copy);
  }
  return replay_rest(replay, order->run, index);
}

/* All ranks: *all is what each gave, with whether it was asked; who leads on is found by all alike. */
static Status replay_answer(Replay *replay, const ReplayOrder *order, ReplayTrail *trail,
                            double **all) {
  double own[2] = {0, 0};
  ReplaySpot spot = {0};
  int index = -1, ranks = comm_ranks(replay_comm(replay)), found = -1;
  if (is_asked(replay, order)) index = find_meant(replay, order);
  if (index >= 0) {
    own[0] = 1;
    STATUS_TRY(look_at_given(replay, order, index, &spot, &own[1]));
  } else {
    STATUS_TRY(replay_whole(replay));
  }
  STATUS_TRY(gather_pairs(replay, own, all));
  for (int r = 0; r < ranks; r++) {
    double value = (*all)[2 * r + 1];
    if (isfinite(value) || (found >= 0 && !isnan(value))) continue;
    if (found < 0 || !isnan((*all)[2 * found + 1])) found = r;
  }
  if (found < 0) return STATUS_OK;
  *trail = order->trail;
  *replay_leader(replay) = found;
  if (found == replay_rank(replay)) trail->spot = spot;
  free(*all);
  *all = NULL;
  return STATUS_OK;
}

/* Who is asked for what: by the relation of a collective's results to what it is given. */
static void set_question(Replay *replay, const PlanGraph *graph, int index, int arg,
                         int64_t element, ReplayOrder *order) {
  const PlanStep *step = &graph->steps.at[index];
  int64_t given = shape_elements(&graph->buffers.at[step->args[0]].type.shape);
  int64_t made = shape_elements(&graph->buffers.at[step->args[arg]].type.shape);
  int ranks = comm_size(replay_comm(replay), order->axis);
  int own = comm_index(replay_comm(replay), order->axis);
  int64_t part = given / ranks;
  order->member = -1, order->element = element;
  order->number = count_with(replay, graph, index, order->axis, "", -1);
  if (!strcmp(step->name, "reduce_scatter")) {
    order->element = element + own * made;
  } else if (!strcmp(step->name, "all_gather")) {
    order->member = (int)(element / given), order->element = element % given;
  } else if (!strcmp(step->name, "all_to_all") && part) {
    order->member = (int)(element / part), order->element = own * part + element % part;
  } else if (!strcmp(step->name, "broadcast")) {
    order->member = (int)order_attribute(step, "peer");
  } else if (!strcmp(step->name, "transfer")) {
    order->member = (int)order_attribute(step, "from");
  } else if (!strcmp(step->name, "receive")) {
    order->member = (int)order_attribute(step, "peer"), order->to = own, order->is_message = true;
    order->number = count_with(replay, graph, index, order->axis, "receive", order->member);
  }
}

Status replay_ask(Replay *replay, int run, int index, int arg, ReplayTrail *trail, double **values,
                  int *count) {
  const PlanGraph *graph = replay_graph(replay, run);
  const PlanStep *step = &graph->steps.at[index];
  const PlanBuffer *buffer = &graph->buffers.at[step->args[arg]];
  ReplayOrder order = {
      .kind = ORDER_ASK, .run = run, .axis = group_axis(replay, step), .trail = *trail};
  int64_t element = (trail->spot.at - buffer->offset) / dtype_bytes(buffer->type.dtype);
  set_question(replay, graph, index, arg, element, &order);
  STATUS_TRY(replay_tell(replay, &order));
  STATUS_TRY(replay_answer(replay, &order, trail, values));
  *count = 0;
  for (int r = 0; *values && r < comm_ranks(replay_comm(replay)); r++)
    if ((*values)[2 * r] != 0) (*values)[(*count)++] = (*values)[2 * r + 1];
  return STATUS_OK;
}

Status replay_follow(Replay *replay, ReplayTrail *trail, bool *is_done) {
  ReplayOrder order = {0};
  double *all = NULL;
  STATUS_TRY(replay_tell(replay, &order));
  switch (order.kind) {
  case ORDER_AGAIN:
    return replay_whole(replay);
  case ORDER_ASK: {
    Status status = replay_answer(replay, &order, trail, &all);
    free(all);
    return status;
  }
  case ORDER_LEAD:
    *trail = order.trail;
    *replay_leader(replay) = order.rank;
    return STATUS_OK;
  case ORDER_END:
    break;
  }
  *is_done = true;
  return STATUS_OK;
}

/* ── the end ──────────────────────────────────────────────────────────────────────────────── */
static Status share_text(Replay *replay, Text *text) {
  int leader = *replay_leader(replay);
  int64_t count = (int64_t)strlen(text_cstr(text)) + 1;
  STATUS_TRY(replay_broadcast(replay, leader, &count, sizeof count, "what --check=nan has found"));
  char *shared = calloc((size_t)count, 1);
  if (!shared) return status_errno(ENOMEM, "--check=nan");
  if (replay_leads(replay)) memcpy(shared, text_cstr(text), (size_t)count);
  Status status = replay_broadcast(replay, leader, shared, count, "what --check=nan has found");
  if (status == STATUS_OK && !replay_leads(replay)) text_printf(text, "%s", shared);
  free(shared);
  return status;
}

Status replay_share(Replay *replay, ReplayCause *cause) {
  if (!replay_comm(replay)) return STATUS_OK;
  comm_doing_nothing(replay_comm(replay));
  STATUS_TRY(share_text(replay, &cause->sentence));
  return share_text(replay, &cause->details);
}
