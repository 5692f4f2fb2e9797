/* plan: the contract between compiler and runtime, and the text that an artifact carries.
 * The compiler fills a Plan and prints it; the runtime parses it; `ftrun info` shows it. The same
 * text stands as //@ft lines at the head of a .ptx and as the string symbol ft_plan in a .so,
 * in the section .ft_plan.
 * plan_parse treats its input as hostile: every size, offset and index is checked against the
 * places (plan_place.h), and a wrong checksum, version or line is refused with one sentence.
 */
#ifndef FT_PLAN_PLAN_H
#define FT_PLAN_PLAN_H
#include "base/arena.h"
#include "base/diag.h"
#include "base/own.h"
#include "base/role.h"
#include "base/text.h"
#include "ir/op.h"
#include "plan/plan_place.h"
#include "plan/transform.h"

/* The version grows whenever an older plan would mean something else now, or could not be read. */
enum { PLAN_VERSION = 8, PLAN_ALIGN = 64 };
enum { PLAN_MOST_GRAPHS = 64, PLAN_MOST_PROGRAMMES = 32, PROGRAMME_RUNS = 64 };
enum { PLAN_MOST_SIZES = 8 }; /* lengths of rows that a plan has a step for */
enum { PLAN_MOST_RESTS = 6, PLAN_MOST_FORMS = 24 }; /* groups that come to rest; forms of a step */
enum { PLAN_MOST_METRICS = 250 }; /* of a graph, with the compiler's own */

/* ── settings ─────────────────────────────────────────────────────────────────────────────── */
typedef enum { SET_INT, SET_FLOAT, SET_BOOL, SET_STR } SettingKind;
typedef enum { WHEN_STATIC, WHEN_RUNTIME, WHEN_DERIVED } SettingWhen;
typedef struct {
  const char *key;
  SettingKind kind;
  SettingWhen when;
  const char *otherwise, *doc;
} SettingInfo;
extern const SettingInfo setting_info[];
extern const int setting_count;
typedef struct {
  double number;    /* INT, FLOAT, BOOL (integers are exact to 2^53) */
  const char *text; /* STR */
  bool is_set;      /* by the file or the command line, not the default */
  bool is_users;    /* by the command line of the run: the file has no say in it */
  Loc loc;          /* where the file sets it; nowhere: it does not, or --set has the last word */
} SettingValue;
/* A number's value where the text is `auto`; only data.workers and data.prefetch may be that. */
enum { SETTING_AUTO = -1, SETTING_MOST_AUTO_PREFETCH = 32 /* batches, whatever is measured */ };
/* An array of setting_count values, all at their defaults. */
SettingValue *settings_new(Arena *arena);
int setting_find(const char *key); /* index, or -1 */
/* NAME, train.NAME or data.NAME, whose whole name is put into key; index, or -1. */
int setting_find_short(const char *name, char *key, size_t capacity);
const char *setting_nearest(const char *key); /* for "did you mean", or NULL */
/* What to write in place of a key behind --set that there is not, "; did you mean 'train.lr'?", or
 * "". */
void setting_hint(const char *key, char *out, size_t size);
/* The setting belongs to another that is off, and does nothing: an example that switches that one on,
 * "train.prune=magnitude"; else NULL. */
const char *setting_needs(const SettingValue *values, int index);
/* The setting is for what ftrun does around steps: no step reads it, nor anything else in a program that embeds a model. */
bool setting_is_of_run(int index);
/* It does nothing unless a graph reads it. */
bool setting_is_of_steps(int index);
/* A value behind --set, where `none` switches off what the setting is for, as in a file: then the value that does so, "" or "0". */
const char *setting_off(int index, const char *value);
/* Parses `value` for setting `index`; false and *why if it does not fit the kind. */
bool setting_set(Arena *arena, SettingValue *values, int index, const char *value,
                 const char **why);
Loc setting_loc(const SettingValue *values, const char *key);
double setting_number(const SettingValue *values, const char *key); /* key must exist */
const char *setting_text(const SettingValue *values, const char *key);
/* distributed.data: the ranks that share a batch; 0: as many as the run starts with. */
enum { SETTING_MOST_RANKS = 1 << 20, SETTING_MOST_STAGES = 64 };
int64_t setting_ranks(const SettingValue *values);
/* distributed.tensor: the ranks that share each layer's work. */
int64_t setting_tensor(const SettingValue *values);
/* distributed.pipeline: the ranks that have a part of the layers each, a stage. */
int64_t setting_pipeline(const SettingValue *values);
/* The ranks that have a batch together: pipeline x tensor. */
int64_t setting_group(const SettingValue *values);
/* distributed.zero: the ranks that parameters, and what the optimizer keeps of them, are shared out
 * over; 1: every rank has all. */
int64_t setting_parts(const SettingValue *values);
/* Is an average of the weights kept: train.average = swa, or a decay train.ema? */
bool setting_averages(const SettingValue *values);

/* A row of optimizers.def. */
typedef struct {
  const char *name, *arguments, *defaults, *buffers, *rest;
} OptimizerInfo;
extern const OptimizerInfo optimizer_info[];
extern const int optimizer_count;
const OptimizerInfo *optimizer_find(const char *name); /* NULL: there is none */
/* Is this one of the optimiser's arguments? */
bool optimizer_takes(const char *optimizer, const char *argument);

/* ── the plan ─────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  const char *text; /* zeros, const, uniform, normal, trunc_normal, orthogonal, identity */
  double arg[2];
  int arg_count;
} Init;

/* What ranks have of a tensor that share each layer's work: in dimension `dim` groups of ranks x run
 * elements lie one behind the other, and the r-th of them has [r run, (r + 1) run) of each group.
 * length: of the dimension in the whole. Where that is no multiple of the ranks there is one group, and
 * the last rank has zeros behind its end. ranks 0: all of it. */
typedef struct {
  int dim;
  int64_t run, ranks, length;
} PlanCut;

/* A named argument of a data source, limit=1000 or dtype=u16: a number, or else a text. */
typedef struct {
  const char *name, *text; /* text NULL: a number */
  double number;
} DataOption;

/* Some samples of another split's files, which that split has no more: `valid = 0.1 of train by
 * label`. Kind, files and options are that split's. See data_part.h. */
typedef struct {
  const char *of;    /* that split; NULL: a split has all samples of its files */
  double share;      /* 0: the fold data.fold of data.folds */
  const char *label; /* the input whose classes all parts have alike; NULL: none */
} DataPart;

/* Where data comes from: `train = idx("images", "labels")`. files in the order of the model's
 * inputs. `kind` is the constructor's name; options are as plan/source_options.def has them. */
typedef struct {
  const char *split; /* "train", "valid", "test" */
  const char *kind;  /* plan/sources.def */
  const char **files;
  int file_count;
  DataOption *options;
  int option_count;
  DataPart part;
  const Transform *transforms; /* of the first input, one behind the other */
  int transform_count;
} DataSource;

/* A box of an input's elements that are looked up somewhere: what they may be. */
typedef struct {
  int64_t start[MAX_RANK], step[MAX_RANK], count[MAX_RANK]; /* by dimension, the batch too */
  int64_t below, ignore;
  bool has_ignore;
} PlanPart;

typedef struct {
  const char *name;
  Type type;
  int place; /* param: one saved with weights; state: one kept for ever; scalar, input: one that
                      the host fills, for ever or for each batch */
  int64_t offset;  /* bytes in it */
  Storage storage; /* params: how the elements lie there; type and files know nothing of it */
  int64_t shared;  /* params: so many ranks have a part of it each (part_elements), of the elements
                      in the order of memory; 0: all of it lies there */
  int64_t rests;   /* params: the least StepForm.resting in which it does not train; 0: it always does */
  bool is_output;  /* params: a matrix whose channels are, through no other one, outputs of the model: its classes, pixels or words */
  PlanCut cut;     /* params: type is that of a rank's part of it, which is cut out of the whole */
  Init init;       /* params and states */
  bool is_needed_for_predict; /* inputs: some output depends on it */
  int64_t below, ignore; /* inputs of integers: values are 0 .. below - 1, or `ignore`, if any; */
  bool has_ignore;       /* … below = 0: anything, and then the line says so, by "any" */
  PlanPart *parts;       /* … and of boxes of it, besides */
  int part_count;
  LeafRole role; /* states: what for; PARAMS of params, NONE of all others */
  const char *file, *file_name; /* states of role given: which file has it, under what name */
  bool is_saved; /* states of the model: the evaluation reads it (running statistics), so it goes
                    with the weights */
  int stream;    /* of the initial values' random numbers: where it stands in the program, which its
                 offset need not follow */
} PlanTensor;

/* Of all of a tensor, as files have it. */
static inline Type plan_whole(const PlanTensor *tensor) {
  Type whole = tensor->type;
  if (tensor->cut.ranks) whole.shape.dim[tensor->cut.dim] = tensor->cut.length;
  return whole;
}

/* What of the tensor lies in this process' memory. */
static inline Type plan_held(const PlanTensor *tensor) {
  if (!tensor->shared) return tensor->type;
  int64_t part = part_elements(shape_elements(&tensor->type.shape), tensor->shared);
  return (Type){tensor->type.dtype, shape_of(1, &part)};
}

typedef struct {
  int place;      /* no window: what the text says of one is kept as bytes of the place it is of */
  int64_t offset; /* bytes */
  Type type;
} PlanBuffer;

#define STEP_KINDS(X)                                                                              \
  X(LAUNCH, "launch")                                                                              \
  X(CALL, "call") X(COPY, "copy") X(FILL, "fill") X(BEGIN, "begin") X(END, "end")
typedef enum {
#define X(ID, text) STEP_##ID,
  STEP_KINDS(X)
#undef X
} StepKind;
const char *step_kind_text(StepKind kind);

/* What a step is put in line for. Steps of one queue and of several wait for one another by their
 * lists only, so a device with fewer queues, or with one, may put them together. */
#define QUEUES(X)                                                                                  \
  X(COMPUTE, "compute") X(COPY, "copy") X(COMMUNICATE, "communicate") X(HOST, "host")
typedef enum {
#define X(ID, text) QUEUE_##ID,
  QUEUES(X)
#undef X
      QUEUE_COUNT
} QueueId;
const char *queue_text(QueueId id);
typedef struct {
  const char *key;
  int64_t value;
} PlanInt;
/* A tensor as a launch's parameter of its own, behind the arguments: 128 bytes by value, which the
 * device makes (CUDA: cuTensorMapEncodeTiled) when it knows the argument's address. Dimensions
 * begin with the fastest. Boxes go to shared memory as they are or in one of Hopper's swizzles;
 * what they have outside of the tensor is zero there. */
enum { MAP_RANK = 5, STEP_MAPS = 8, STEP_PARTS = 8 };
typedef struct {
  int arg; /* position among the step's args; in no place that is the host's for each batch */
  int64_t offset; /* bytes */
  DType dtype;
  int rank;
  int64_t dim[MAP_RANK], stride[MAP_RANK]; /* elements; bytes, [0] that of an element */
  int64_t box[MAP_RANK];                   /* elements */
  int swizzle;                             /* bytes: 0 (none), 32, 64, 128 */
} PlanMap;

/* Steps may run in any order, or side by side, that their lists `after` allow; a run of a graph
 * begins when the run before it is done.
 * LAUNCH: a kernel of the artifact. Host: void name(void *const *args, int64_t begin, int64_t end),
 *   which does work items [begin, end) of `work`; any split over threads gives the same bits;
 *   `grain` is the fewest items worth a thread. PTX: .entry name(.param .u64 × args, .param .align
 * 128 .b8[128] × maps), grid, block, dynamic shared bytes.
 * CALL: a library routine by name with integer attributes, see plan/calls.def.
 * COPY: the bytes of one buffer to another as large, which does not lie on it.
 * FILL: zeros to a buffer.
 * BEGIN: something that goes on beside the compute queue, by name with integer attributes, see
 *   plan/beside.def. The bytes that it reads are not written, and those that it writes not touched,
 *   until its END: a step behind it in the list that needs them waits for that one.
 * END: waits until what one BEGIN began is done. */
/* For people: which part of a training a step is, and what kind of work. */
#define PHASES(X)                                                                                  \
  X(NONE, "none")                                                                                  \
  X(FORWARD, "forward")                                                                            \
  X(BACKWARD, "backward") X(RECOMPUTED, "recomputed") X(BOTH, "both") X(UPDATE, "update")
typedef enum {
#define X(ID, text) PHASE_##ID,
  PHASES(X)
#undef X
      PHASE_COUNT
} StepPhase;
const char *phase_text(StepPhase phase);
#define WORKS(X)                                                                                   \
  X(OTHER, "other")                                                                                \
  X(PRODUCT, "product")                                                                            \
  X(CONVOLUTION, "convolution")                                                                    \
  X(ATTENTION, "attention")                                                                        \
  X(REDUCTION, "reduction")                                                                        \
  X(POINTWISE, "pointwise") X(MOVE, "move") X(COMMUNICATION, "communication")
typedef enum {
#define X(ID, text) WORK_##ID,
  WORKS(X)
#undef X
      WORK_COUNT
} WorkKind;
const char *work_text(WorkKind work);

typedef struct {
  StepKind kind;
  const char *name; /* COPY, FILL, END: the kind's */
  const int *args;  /* indices in the graph's buffers: inputs first, then outputs; END: none */
  int arg_count, input_count;
  int partner; /* END: the BEGIN that it ends; BEGIN: its END */
  QueueId queue;
  const int *after; /* steps of the same run that must be done before, ascending: plan_order.h */
  int after_count;
  int64_t work, grain; /* COPY, FILL: work is the bytes */
  int64_t grid[3], block[3], shared;
  int64_t stays; /* LAUNCH for ptx, not 0: so many blocks fit a multiprocessor, and where fewer
                    than grid[0] fit the GPU, a launch of these does the same */
  int64_t cluster; /* LAUNCH for ptx, not 0: blocks of a cluster, which divide grid[0] */
  const int64_t *parts; /* LAUNCH for ptx: the blocks of each of the kernels that it joins, one behind the
                           other along grid[0]; none touches what another one writes */
  int part_count;
  bool is_early; /* LAUNCH for ptx: its threads wait for what comes before it, so that it may be
                    begun before that has ended: plan_begins_early (plan_order.h) */
  const PlanMap *maps; /* LAUNCH for ptx */
  int map_count;
  const PlanInt *ints; /* CALL, BEGIN */
  int int_count;
  int64_t flops, bytes; /* what the step must do and move at least: for bench */
  uint32_t line;        /* in the .ft source; 0: none */
  const char *label;    /* what a person should read: "fc1: dot + bias + relu" */
  const char *layer;    /* of its main operation: "fc1"; NULL: of none */
  StepPhase phase;
  WorkKind work_kind;
} PlanStep;

/* Library calls, one behind the other, that a device may make in place of steps [first, end), which
 * are launches and do the same by themselves: a device without the library runs them. All of them
 * or none. Buffers that only those steps use (workspaces) are not written by the calls. A buffer of
 * u8 (relu's bits) only calls write: one that reads it may be made only where the one that writes
 * it is. */
enum { INSTEAD_CALLS = 2 };
typedef struct {
  int first, end;
  PlanStep call[INSTEAD_CALLS];
  int call_count;
} PlanInstead;

/* What kernels compute, op by op (plan_body.h). `ints` are by op: the axes of a reduction, the order
 * of a transpose, starts and steps of a slice, what a pad puts before, the axis of a concat or iota,
 * the stream of random, of a dot whether its operands are transposed. */
typedef struct {
  Op op;
  Type type;
  const int *inputs; /* values: the operands of the body first, then its ops */
  int input_count, int_count;
  const int64_t *ints;
  double value; /* of a const; with which a pad fills */
  uint32_t line;
  const char *layer, *function; /* NULL: of none */
  const char *file;             /* that the line is in; NULL: the main one, plan->source */
  StepPhase phase;
} PlanOp;
typedef struct {
  int first, end;            /* the steps that do it together */
  const int *args, *results; /* buffers: operands, then results; which value each is */
  int arg_count, input_count;
  VEC(PlanOp) ops;
} PlanBody;

/* What a graph gives out: one number each but RESULT, which the program's word `output` makes, AUC,
 * the rows that one is made of (type_is_auc), and a METRIC that is a row or table of numbers. Of
 * the compiler's own there is at most one each: PASSES, how often an evaluation goes through its
 * samples, if not once; RATE, the learning rate of the step; fp16's LOSS_SCALE, and how many steps
 * were SKIPPED so far; GRAD_NORM, of all gradients before they are clipped by it; GRAD_FACTOR, what
 * gradients in memory are multiplied with before anything else is done with them (none: nothing). */
#define OUTPUTS(X)                                                                                 \
  X(LOSS, "loss")                                                                                  \
  X(METRIC, "metric")                                                                              \
  X(RESULT, "output")                                                                              \
  X(AUC, "auc")                                                                                    \
  X(PASSES, "passes")                                                                              \
  X(RATE, "rate") X(LOSS_SCALE, "loss_scale") X(SKIPPED, "skipped") X(GRAD_NORM, "grad_norm")      \
      X(GRAD_FACTOR, "grad_factor")
typedef enum {
#define X(ID, text) OUTPUT_##ID,
  OUTPUTS(X)
#undef X
      OUTPUT_KINDS
} OutputKind;
const char *output_kind_text(OutputKind kind);
typedef struct {
  OutputKind kind;
  const char *name;
  Type type;
  int place; /* a scalar: the one that the host reads after each run; a tensor: another one of a
                batch, so it must be read before the next run */
  int64_t offset;
} PlanOutput;

typedef struct {
  const char *name;    /* each another one */
  const char *prepare; /* the graph that makes what this one reads of places FOR_WEIGHTS; NULL: it
                          reads none (plan_prepare.h) */
  VEC(PlanBuffer) buffers;
  VEC(PlanStep) steps;
  VEC(PlanInstead) insteads; /* by first step; one may lie within another, which comes before it */
  VEC(PlanOutput) outputs;
  VEC(PlanBody) bodies; /* by first step; of steps that have one */
} PlanGraph;

/* A graph of the plan, `times` times in a row, each on a batch of its own. */
typedef struct {
  int graph;
  int64_t times;
  int64_t positions;     /* GENERATE: tokens of each text that a run takes; else 0 */
  int reads, instead_of; /* it reads place `reads`, which may be a window, where its buffers say
                            `instead_of`; equal: it reads what its buffers say */
} PlanRun;

/* Which graphs run in which order. The results are those of the last run. Its kind is a row of
 * plan/programmes.def.
 * STEP: the training of one step, its batch in as many parts as there are runs. Of several, one of size
 *   0 takes rows as the inputs have them, and the others are of so many positions at the front of each;
 *   those in which params rest do not write these (step_form.h).
 * EVALUATE: of one batch, also for prediction.
 * EVALUATE_AVERAGE: the same with averages of the parameters in place of these.
 * GENERATE: tokens of texts, whose position is the state of that role: as long as more than
 *   `positions` of its first run are left, this one, and so on; the last token is the last run's,
 *   of one position, which gives the scores. They keep what they remember in places FOR_TEXT, which
 *   are zeros at position 0, as long as no other programme runs. */
#define PROGRAMME(ID, ...) extern const char PROGRAMME_##ID[];
#include "plan/programmes.def"
#undef PROGRAMME
typedef struct {
  int64_t size, resting;
  bool is_plain;
} StepForm; /* step_form.h */
typedef struct {
  const char *name;
  StepForm form; /* of a step */
  VEC(PlanRun) runs;
} PlanProgramme;

/* One row of the memory table: what the bytes of the peak are for. */
typedef struct {
  const char *category;
  int64_t bytes;
} PlanMemory;

typedef struct {
  Arena *arena;
  int stage; /* of distributed.pipeline ones, from 0: this plan is that of its ranks */
  const char *model, *source; /* model's name, path of the .ft file */
  const char *target;         /* "cpu" or "ptx" */
  const char *target_cpu;     /* cpu name or sm_80; ftrun checks that this machine can run it */
  SettingValue *settings;
  VEC(DataSource) sources;
  VEC(PlanPlace) places;
  VEC(PlanTensor) params;
  VEC(PlanTensor) states;
  VEC(PlanTensor) scalars; /* f64[] named by setting key */
  VEC(PlanTensor) inputs;  /* in the order of the model's arguments */
  VEC(PlanMemory) memory;
  VEC(PlanGraph) graphs;
  VEC(PlanProgramme) programmes;
  const char *decode_refused; /* NULL: nothing to say */
} Plan;

/* ── places ───────────────────────────────────────────────────────────────────────────────── */
int plan_find_place(const Plan *plan, const char *name); /* -1: there is none */
/* The place that has the memory: this one, or for a window the one that it is of; then *offset
 * becomes the offset there. */
int plan_whole_place(const Plan *plan, int place, int64_t *offset);
/* The place that the host fills, or reads, for each batch; -1: there is none. */
int plan_batch_place(const Plan *plan);
int plan_result_place(const Plan *plan);
/* Is what the buffer holds gone when the run of its graph is done? */
bool plan_is_temporary(const Plan *plan, const PlanBuffer *buffer);
int64_t plan_place_bytes(const Plan *plan, int place); /* -1: 0 */
int64_t plan_memory(const Plan *plan);                 /* bytes of all places */
const char *place_life_text(PlaceLife life);
int plan_add_place(Plan *plan, PlanPlace place); /* its index */
void plan_add_standard_places(Plan *plan);
/* Makes a window of the place state for a state of role SLICED: it has the state's name, and its
 * elements have the order of the parameters'. */
void plan_add_slice(Plan *plan, PlanTensor *state);
static inline int64_t plan_aligned(int64_t bytes) {
  return (bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
}

/* ── graphs and programmes ────────────────────────────────────────────────────────────────── */
int plan_find_graph(const Plan *plan, const char *name); /* -1: there is none */
/* Of the buffers that the step may write, its workspace among them. */
double plan_result_bytes(const PlanGraph *graph, const PlanStep *step);
/* NULL: there is none. */
const PlanProgramme *plan_find_programme(const Plan *plan, const char *name);
const PlanProgramme *plan_find_form(const Plan *plan, const char *name, StepForm form);
/* The graph whose results are those of the programme; NULL: there is no such programme. */
const PlanGraph *plan_result(const Plan *plan, const char *programme);
/* Is it run by a programme "step" of some form? */
bool plan_is_step(const Plan *plan, const PlanGraph *graph);
/* The runs of all programmes, one behind the other; NULL: there are not so many, or index < 0. */
const PlanRun *plan_run_at(const Plan *plan, int index);
int plan_run_count(const Plan *plan);
int64_t plan_batches(const PlanProgramme *programme); /* that one go through it takes */
/* The parts of a batch (train.accumulate) whose rows the step's graph takes at once, one part behind
 * the other in each input: all of them in a stage of a pipeline, which has no run for each; else 1.
 * An evaluation takes the rows of one, those in front. */
int64_t plan_parts_at_once(const Plan *plan);
/* One more run at the programme's end, and the programme, if there is none yet. times 0: once. */
void plan_add_run(Plan *plan, const char *programme, PlanRun run);
void plan_add_formed_run(Plan *plan, const char *programme, StepForm form, PlanRun run);

/* The states of roles keep, missing, more and pass, f64[], are those with which the runtime makes
 * batches the evaluation of a split: its loss and metrics are those of all samples since `keep` was
 * 0. Zeros: of this batch alone. */

/* The ranks that parameters are shared out over; 0: each rank has all of them. */
int64_t plan_shared(const Plan *plan);
/* Have ranks parts of parameters that others lack? */
bool plan_has_parts(const Plan *plan);
/* … or parameters: is there no rank that alone could write a file? */
bool plan_is_apart(const Plan *plan);
/* The index of the tensor of this name among plan->params, states, scalars or inputs; -1: none. */
int plan_find_tensor(const PlanTensor *tensors, int count, const char *name);
/* Does a graph read this setting? True, too, where nothing is trained. */
bool plan_reads_setting(const Plan *plan, const char *key);
/* The index of the state that has this role; -1: none has. */
int plan_find_role(const Plan *plan, LeafRole role);

/* Appends the text form: lines without any prefix, the last one a checksum. */
void plan_print(const Plan *plan, Text *out);
/* Its steps as Graphviz text: by queue, with arrows to those that wait. */
void plan_print_dot(const Plan *plan, Text *out);
/* Parses it. NULL and *why (in arena, one line, says which line) if refused. */
Plan *plan_parse(Arena *arena, const char *text, size_t length, const char **why);
/* Finds the plan in the bytes of a .ptx file (//@ft lines) as plain text; NULL if there is none. */
char *plan_from_ptx(Arena *arena, const char *bytes, size_t length);
/* A line of its own, with which the file says that it has the kernels of evaluations only (ftc --inference). */
extern const char plan_ptx_inference[];
/* Writes the //@ft lines that plan_from_ptx reads back. */
void plan_to_ptx(const Plan *plan, Text *out);
#endif
