/* exec_fetch: what exec.c, exec_fetch.c, exec_round.c, exec_prepare.c and exec_parts.c share: the Exec itself,
 * and results on their way. */
#ifndef FT_RUNTIME_EXEC_FETCH_H
#define FT_RUNTIME_EXEC_FETCH_H
#include "plan/plan_prepare.h"
#include "runtime/execute/exec.h"

enum { EXEC_FETCHES = 16 };

/* The scalar outputs of a graph, as parts of the place that the host reads. */
typedef struct {
  DevicePiece *piece;
  int piece_count;
  int64_t row;    /* bytes of all pieces */
  int64_t *place; /* by output: in a row; -1: no scalar */
} ExecScalarPlaces;

typedef struct {
  ExecGraph graph;
  int64_t tag, ticket;
  int steps, given; /* steps asked for, and handed out */
  char *rows;       /* host memory of the device */
} ExecFetch;

/* Of an ExecGraph whose plan names a graph that prepares weights for it. */
typedef struct {
  DeviceGraph *graph;  /* that one, bound as this one is; NULL: none */
  PlanSources sources; /* what it reads */
  bool *is_changed_by; /* by ExecGraph: does that one write any of these? */
  bool is_done;        /* the places hold what it makes of what its sources hold */
} ExecPrepare;

struct Exec {
  Artifact *artifact;
  Plan *plan;
  const DeviceType *type;
  Device *device;
  Comm *comm;     /* NULL: this process is alone */
  char **base;    /* by place; that of a batch: NULL, its address changes from run to run */
  int64_t *bytes; /* by place: that there are, at most the plan's */
  int64_t *reach; /* by place that is no window: up to where graphs that run here read or write it */
  int *rounded;   /* by place of ELEMENTS_ROUNDED: the place that it was rounded from; -1: none */
  DeviceGraph **graph; /* by ExecGraph; NULL: not there */
  ExecPrepare *prepare; /* by ExecGraph */
  Arena *arena;         /* of what is found when it is made */
  int graph_count;
  int last_steps; /* of the last run */
  /* exec_fetch.c; made at the first fetch */
  ExecScalarPlaces *places; /* by ExecGraph */
  ExecFetch fetch[EXEC_FETCHES];
  int64_t asked, answered; /* fetches so far; their difference is under way */
  int64_t rows_bytes;      /* of each fetch's rows */
  double *value;
};

void exec_fetch_free(Exec *exec);
/* exec_round.c: before a graph runs, so that rounded elements are those of the place that it reads,
 * the parameters' or their average's; and where a place is written from outside. *has_rounded is set if
 * it has written any. */
Status exec_round_ready(Exec *exec, ExecGraph graph, bool *has_rounded);
void exec_round_written(Exec *exec, int place);
/* exec_prepare.c: before any step of a graph runs, whoever runs it: rounded elements are there, and so are
 * prepared weights. */
Status exec_ready(Exec *exec, ExecGraph graph);
/* Where bytes of a place are written from outside. */
void exec_written(Exec *exec, int place, int64_t offset, int64_t bytes);
/* When `graph` is bound, and before it runs. */
Status exec_prepare_bind(Exec *exec, ExecGraph graph, char *const *base);
/* exec_parts.c: are there as many ranks as the parameters are shared out over? */
Status exec_check_parts(const Exec *exec);
#endif
