/* builder: what the files of the front end share while the graphs are built. The language runs as
 * a program at compile time: statements are executed, tensors are graph nodes. It is run once for
 * the train graph and once for the eval graph.
 *
 * Invariant: each failure has been reported when a function returns the error value, NULL or false.
 * Everything a hostile source can make large is bounded by the LIMIT_ constants. */
#ifndef FT_FRONTEND_BUILDER_H
#define FT_FRONTEND_BUILDER_H
#include "base/foreign.h"
#include "base/text.h"
#include "frontend/program.h"
#include "frontend/value.h"
#include "ir/region.h"
#include "plan/quant_form.h"

enum {
  LIMIT_DEPTH = 900,           /* nested evaluations */
  LIMIT_CALLS = 100,           /* nested calls of functions and blocks */
  LIMIT_EVALUATIONS = 4000000, /* in all */
  LIMIT_NODES = 400000,        /* of one graph */
  LIMIT_REPEAT = 10000,
  LIMIT_ITEMS = 10000, /* of a list */
  LIMIT_STRING = 10000,
  LIMIT_FILES = 200,
  LIMIT_METRICS = 200,
  RECIPE_RULES = 4 /* settings that name a number of an evaluation: recipe_rule.c */
};
#define LIMIT_ELEMENTS ((int64_t)1 << 40) /* of one tensor */

typedef struct {
  const char *name;
  Value value;
  Loc loc;           /* where it was bound */
  bool is_dimension; /* bound by a shape: may not be assigned */
  Node *state;       /* where it is what a `state` reads: the state, which `update` changes */
  bool is_updated;   /* … and has changed, in this application */
} Variable;

/* Names of a file's top level. Users' files share one scope; the standard library has its own. */
typedef struct Scope {
  const struct Scope *up;
  VEC(Variable) names;
} Scope;

/* One running function, block or model. */
typedef struct Frame {
  struct Frame *up;
  const Ast *definition; /* NULL: the top level */
  const Scope *scope;
  Loc call, site;          /* the call; the place in the user's file that nodes made here get */
  bool is_std, is_binding; /* binding: arguments are still being checked */
  VEC(Variable) variables;
  Instance *instance; /* whose parameters `param` declares; NULL in a function */
  const char *prefix; /* "h.3": inside `repeat ... as h`; "" outside */
  Value result;
  bool has_returned;
  Loc returned_at;
  int64_t flops;
} Frame;

typedef struct {
  const char *name; /* local to the instance, with the repeat prefix */
  Node *node;
} Owned;

typedef struct {
  const Ast *call;
  Instance *instance;
} Child;

/* A block with its configuration: made by Linear(10), applied to tensors, owner of parameters. */
struct Instance {
  const Ast *block;
  const Scope *scope;
  Instance *parent;
  const char *prefix;     /* of the parent's repeat at the time of making */
  const char *component;  /* NULL: unnamed, adds nothing to the path */
  const char *precision;  /* of its contractions: f32, tf32, bf16, fp16, fp8; NULL: the setting's */
  RegionPolicy recompute; /* what its backward recomputes */
  Loc loc;
  VEC(Variable) config;
  VEC(Owned) owned;
  VEC(Child) children;
  bool has_more; /* arguments by place than it needs: in another tool's order? */
  int cursor;    /* in a second application: the next child to hand out again */
  int applications;
  bool declared; /* some parameter in or below it has been declared */
};

typedef struct {
  const char *name;
  Node *node;
  Loc loc;
} Declared;

/* What running_average gave in a training of statistics: old, and the sum of what `count` applications saw. */
typedef struct {
  const Node *made;
  Node *old;
  Value sum;
  int count;
} Running;

/* A state that begins as a copy of a parameter, and what is read of it (average.c). */
typedef struct {
  Node *state, *param, *value;
  bool is_average;
  double decay;
} Copied;

/* An application of frozen(layer, file): frozen.c. */
typedef struct {
  const char *file; /* NULL: none is at work */
  const Instance *layer;
  bool is_bf16;
} Frozen;

/* `lr = 0.1x on "head.*"`: see recipe_groups.c. */
typedef struct {
  const char *key;
  bool is_factor; /* of the setting; else the value itself */
  double value;
  const Ast *condition;
  Loc loc;
  int uses; /* parameters it applied to */
  int rest; /* of freeze = after(...): the number of its group, from 1; else 0 */
} GroupRule;

/* `widths = "conv1=16"`: see widths.c. */
typedef struct {
  const char *layer; /* its path */
  int64_t out;
  bool is_used;
} Width;

/* `quantize = "fc*=w8a8"`: see quantize.c. */
typedef struct {
  const char *layer; /* its path, or a pattern */
  QuantForm form;
  bool is_used;
} QuantRule;

/* A parameter of two dimensions that a rule or a tap means: see quantize_matrix.c. */
typedef struct {
  Node *param, *rounded; /* the parameter itself: a tap means it, and no rule */
  int axis;              /* which products sum over */
  int products;          /* that are tapped, so far */
} QuantMatrix;

struct InitValue {
  const char *kind; /* as written: kaiming_uniform, normal ... */
  double a, b;      /* arguments, by kind: see init.c */
  const char *mode, *nonlinearity;
};

/* A function of the language, or an operator; NULL: none. */
typedef struct {
  const char *name;
  bool is_operator;
} Written;

typedef struct Builder {
  Arena *arena;
  Diag *diag;
  Program *program;
  Graph *graph;
  bool training;
  Scope user, std;
  Frame *frame;
  uint16_t std_first, std_last; /* the files of the standard library */
  int depth, calls;
  int64_t evaluations;
  int64_t parameters;    /* elements of all params so far, each rounded up to 64 */
  bool is_again;         /* with another batch: see sizes.c */
  struct {               /* … or with another size of a dimension: variant.c */
    const char *name;    /* of the dimension; NULL: as it is written */
    int64_t size, whole; /* its size here, and in the inputs as they lie in memory */
    bool is_resized;     /* images of that size are made; else it is the front that is taken, … */
    bool is_cut;         /* … of rows that may be longer */
  } variant;
  bool exhausted;        /* a limit was hit and reported: unwind */
  int streams;           /* random draws so far */
  Region region;         /* where nodes belong that are made now */
  const char *function;  /* the one that they are a part of, for people; NULL: none */
  bool is_std_function;  /* … and it is of the standard library */
  Written written;       /* what the user called */
  const char *std_block; /* the standard block at work; NULL: none */
  const char *result;    /* the loss or metric that is computed; NULL: none */
  struct {               /* the last path that block_layer made, and of what */
    const Instance *instance;
    const char *prefix, *path;
    int renamed;
  } here;
  bool is_in_attention; /* attention is being written in products */
  int stops; /* applications at work of stop_gradient(layer) */
  struct {
    bool is_on;
    double decay;
  } average;          /* the application at work of average(layer) */
  Frozen frozen;      /* the application at work of frozen(layer, file) */
  VEC(Copied) copies; /* of this graph */
  uint32_t regions;   /* so far */
  int instances;      /* for the numbers of renamed ones */
  Node *seed, *step;
  VEC(Running) running;
  struct {
    const char *by;          /* mixup, cutmix …; NULL: nothing is mixed */
    Node *share;             /* f32[]: a sample's own share of what it is mixed to */
    int64_t batch;           /* samples */
    VEC(Node *) labels;      /* inputs of classes, which are not mixed themselves */
    VEC(const Node *) mixed; /* what takes a label's partner into account */
  } mix;                     /* of this graph: mix.c */
  VEC(Node *) weights;       /* by node: see weight.c */
  Lookup product_places;     /* of this graph: an index to product_uses, by the key that applications share */
  VEC(int) product_uses;     /* how many products of that key there are so far */
  VEC(Declared) declared;    /* params and states of this graph, in order */
  Loc number_loss;           /* where loss is a number so far, or nowhere */
  VEC(GroupRule) group_rules;
  int rest_count;              /* groups of freeze = after(...) */
  const char *rest_rate;       /* and the rate that the first of them names, as it is written */
  double rest_factor[2];       /* of lr and weight_decay where no rule applies */
  bool prune_has_rule;         /* `prune = ... on` says which parameters */
  const Node *prune_before;    /* the last param of rank >= 2 of prune_graph, if it is pruned; NULL */
  const Graph *prune_graph;
  const Ast *matrix_condition; /* of an optimiser of matrices: which; NULL: all */
  VEC(const Ast *) evaluated;  /* metrics of the train graph that only evaluations have */
  Loc rule_loc[RECIPE_RULES];  /* of `best = max(...)` and the like (recipe_rule.c); or nowhere */
  VEC(Loc) source_locs;        /* of program->sources: where the last transform stands */
  Locs reported;               /* one error for each place: unrolling repeats statements */
  VEC(Width) widths;
  VEC(QuantRule) quantized;
  bool quantize_begins, quantize_observes; /* something is rounded from a step on, or observed until one */
  VEC(QuantMatrix) matrices; /* of this graph */
  const char *const *taps; /* FrontendOptions.taps */
  int tap_count;
  const Node *about[2];        /* operands of the error that comes next */
  bool is_about_shapes;
  Locs warned;         /* … and one warning (warn.c) */
  struct Watch *watch; /* an editor's (watch.h); NULL: nobody's */
} Builder;

/* Does what is made now learn: is it the training step, and no frozen layer in it? */
static inline bool builder_trains(const Builder *b) { return b->training && !b->frozen.file; }

/* ── errors (builder.c) ── */
/* At `loc`, or, inside the standard library, at the user's line that called it; notes tell the way
 * there. Returns false, so that checks can be `return builder_fail(...)`. */
bool builder_fail(Builder *b, Loc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void builder_note(Builder *b, Loc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Before a builder_fail about shapes or types: the operands, or NULL. Its notes then say which layer
 * is at work and how the operands came to be what they are. */
void builder_about(Builder *b, const Node *x, const Node *y);
/* What the user calls begins, unless it is a part of something that he called. At its end b->written is the
 * result again, what it was before. */
Written builder_write(Builder *b, const char *name, bool is_operator);
Loc builder_site(const Builder *b, Loc loc);          /* the place for nodes caused at loc */
Variable *builder_find(Builder *b, const char *name); /* variable or top-level name */
/* the same for a dimension in a signature: a top-level function, block, model or data block is no
 * size, so that `data D` leaves D free as the name of a dimension */
Variable *builder_find_size(Builder *b, const char *name);
Variable *builder_local(Frame *frame, const char *name);
void builder_bind(Builder *b, const char *name, Value value, Loc loc, bool is_dimension);

/* ── warnings, once a program is known to be right (unused.c, warn.c) ── */
/* Names and values of the users' files, the main one last, that nothing reads. */
void unused_warn(Builder *b, const Ast *const *files, int count);
/* Parameters that the loss of the train graph does not train. */
void warn_untrained(Builder *b, const Graph *graph);
/* The first argument of the standard function `function` is probabilities where it takes scores. */
void warn_scores(Builder *b, const char *function, const Value *scores, Loc loc);

/* ── suggestions (hint.c): "; did you mean 'x'?", what foreign.def says of the word, or "" ── */
const char *builder_hint(Builder *b, const char *word, const char *const *names, int count);
const char *builder_hint_as(Builder *b, ForeignKind kind, const char *word,
                            const char *const *names, int count);
const char *builder_hint_name(Builder *b, const char *word); /* among all that is visible */
/* "; there are a, b and c", where nothing is near. */
const char *hint_list(Builder *b, const char *what, const char *const *names, int count);
const char *builder_hint_type(Builder *b, const char *word); /* an element type */
/* torch.cat, nn.Linear: reports it and returns true; false: its base is no such module. */
bool hint_module(Builder *b, const Ast *attribute);
/* An attribute that a value does not have: reports it. */
void hint_method(Builder *b, const Ast *attribute, const Value *base);
const char *hint_called(Builder *b, const Ast *callee, const Value *value); /* no function */
const char *hint_call(Builder *b, const char *callee); /* on the arguments of "Linear" */

/* ── the graphs (frontend.c, sizes.c) ── */
Graph *build_graph(Builder *b, const Ast *model, bool training); /* NULL after an error */
/* A copy that builds again, for itself but for what is built: errors go to `diag`. */
Builder *builder_again(const Builder *b, Diag *diag);
/* What a variant takes of an input: the front along the axes of this mask, or a smaller image. NULL after an error. */
Node *variant_input(Builder *b, Node *input, int index, unsigned axes, Loc loc);
/* The same again with the other sizes that the recipe asks for. False after an error. */
bool variants_build(Builder *b, const Ast *model, const Declared *train, int train_count);
/* Notes in the graph what follows from the number of samples. */
void sizes_note(Builder *b, const Ast *model, Graph *graph, bool training);

/* ── expressions (eval.c) ── */
Value eval(Builder *b, const Ast *ast);
bool eval_int(Builder *b, const Ast *ast, const char *what, int64_t *out);
bool eval_condition(Builder *b, const Ast *ast, bool *out);

/* ── operators (arith.c) ── */
Value arith_binary(Builder *b, const char *operator, Value left, Value right, Loc loc);
Value arith_unary(Builder *b, const char *operator, Value operand, Loc loc);

/* ── calls (call.c) ── */
typedef struct {
  const char *name;
  bool is_optional, is_rest; /* rest: takes all further positional arguments, as a tuple */
} Parameter;
typedef struct {
  Value value;
  Loc loc;
  const char *name; /* keyword or NULL */
} Argument;
typedef VEC(Argument) Arguments;
/* Puts arguments into the places of the parameters; ABSENT where none was given. */
bool call_match(Builder *b, const char *callee, Loc loc, const Parameter *parameters, int count,
                const Arguments *arguments, Value *out, Loc *locs);
/* `bound_to`: the variable that a new layer gets its name from, or NULL. */
Value call_eval(Builder *b, const Ast *call, const char *bound_to);
/* A function or block of the standard library; NULL: it has none of that name. */
const Ast *call_definition(const Builder *b, const char *name);
/* Calls a function that it has. */
Value call_standard(Builder *b, const char *name, const Arguments *arguments, Loc loc);
/* The parts of a call that functions, blocks and models share. */
const Parameter *call_parameters(Builder *b, const Ast *list);
bool call_check_argument(Builder *b, const Ast *parameter, Value *v, Loc loc);
bool call_enter(Builder *b, Frame *frame, const Ast *definition, const Scope *scope, Loc loc);
void call_leave(Builder *b);
bool call_bind(Builder *b, const Ast *list, Value *values, const Loc *locs);
bool call_check_returns(Builder *b, const Ast *returns, const Value *result);

/* ── blocks, models, statements (build.c, block.c) ── */
/* Opens a region, unless one is open and `policy` is nothing new; returns the one before. */
Region builder_open_region(Builder *b, RegionPolicy policy);
void build_body(Builder *b, const Ast *body);
bool build_model(Builder *b, const Ast *model);
Value block_instance(Builder *b, const Ast *block, const Scope *scope, const Ast *call,
                     const Arguments *arguments, const char *bound_to);
Value block_apply(Builder *b, Instance *instance, Loc loc, const Arguments *arguments);
const char *block_path(Builder *b, const Instance *instance);
/* ── widths of layers that the recipe says (widths.c) ── */
bool widths_read(Builder *b); /* false after an error, as widths_check */
void widths_apply(Builder *b, Instance *instance);
/* The round of a `repeat` that begins: is it left out? */
bool widths_leave_out(Builder *b);
/* Of a size that is given by name in this layer: what the recipe says, or the same. */
int64_t widths_size(Builder *b, const char *name, int64_t size);
bool widths_check(Builder *b);
/* The argument of that name, a whole number; NULL: the layer has none. */
Value *block_width(Instance *instance, const char *name);
/* ── layers that the recipe quantises (quantize.c) ── */
bool quantize_read(Builder *b); /* false after an error, as the other two */
/* Of a layer that is being made: the block and the arguments that it has instead. */
bool quantize_apply(Builder *b, const Instance *instance, const Ast **block, Arguments *arguments);
bool quantize_check(Builder *b);
bool quantize_check_switches(Builder *b); /* after the graphs; quantize_switch.c */
/* False: why a parameter that is meant cannot be rounded by its name. */
bool quantize_refuse_parameter(Builder *b, const Declared *of);
/* Is it a standard block that can be quantised; one that is? */
bool quantize_may(const Builder *b, const Ast *block);
bool quantize_is_done(const Builder *b, const Ast *block);
/* ── matrices outside of layers that the recipe quantises (quantize_matrix.c) ── */
/* x @ y, and a table that rows are looked up in, with rounded matrices in place of those that are meant; NULL after an error. */
Node *quantize_product(Builder *b, Node *x, Node *y, Loc loc);
Node *quantize_table(Builder *b, Node *table, Loc loc);
/* Are these the scales of a rounded matrix, which training or evaluation alone reads? Then an error says so. */
bool quantize_refuse_scales(Builder *b, const Declared *scales);
void quantize_list_matrices(Builder *b); /* after the evaluation graph: those that are tapped */
/* ── what layers read and give, as outputs (taps.c) ── */
void tap_layer(Builder *b, const Instance *instance, const Value *input, const Value *result);
void folds_find(Builder *b); /* … of the layers that have them (folds.c) */
bool taps_check(Builder *b); /* after the evaluation graph: does each pattern mean one? */
/* The layer at work, and the round of a repeat in it: "h.3.attn"; "": the model itself. */
const char *block_layer(Builder *b);
void block_param(Builder *b, const Ast *ast); /* statements param and state */
/* A state of zeros that no statement declares, by its whole name; NULL after an error. */
Node *block_state(Builder *b, const char *path, const Type *type, Loc loc);
/* ── states that begin as copies of parameters (average.c) ── */
/* False after an error. */
bool copy_declare(Builder *b, Node *state, Node *from, Loc loc);
/* What is read of a state: of others the node itself. */
Node *copy_value(const Builder *b, Node *state);
/* At the end of a graph: copies that no `update` changes stay as they are. */
void copies_end(Builder *b);
/* While average(layer) is applied: the average in place of a parameter, or NULL after an error; the
 * name of its own state in place of the layer's. */
Node *average_of(Builder *b, Node *param, Loc loc);
const char *average_local(Builder *b, const char *local);
/* ── a training of nothing but running statistics (statistics.c) ── */
bool statistics_only(const Builder *b);
void statistics_settle(Builder *b); /* once the recipe and the command line are read */
bool statistics_check(Builder *b);  /* of the train graph; false after an error */
/* Does this training make an update of a state to that value? */
bool statistics_takes(const Builder *b, const Value *value);
/* ── layers with the weights of a file (frozen.c) ── */
/* The leaf of a parameter or state of that path in the frozen layer at work; what is read of it. NULL
 * after an error. */
Node *frozen_leaf(Builder *b, const char *path, Type type, Loc loc);
Node *frozen_value(Builder *b, Node *leaf, Loc loc);

/* Checks a tensor against a written type, binding dimensions that are new in the frame. */
bool block_check_type(Builder *b, const Ast *type, Node *node, Loc loc, const char *what);
/* Evaluates the dimensions of a written shape; all must be known. */
bool block_shape(Builder *b, const Ast *shape, Shape *out);

/* ── the model's inputs, which the data's transforms make (input.c) ── */
/* Checks them against the declaration of input `index`; *held: what the artifact's input holds, u8 in front of a
 * normalize, a class in front of a one_hot. */
bool input_check(Builder *b, const Ast *input, int index, const Type *declared, Type *held);
/* What the model sees of it; NULL after an error. */
Node *input_value(Builder *b, Node *input, int index, const Type *declared, Loc loc);

/* ── samples mixed with each other, and noise, in the train graph (mix.c) ── */
bool mix_check(Builder *b, const Transform *mixing, const Ast *input, const Type *declared);
/* Draws how the batch is mixed; the value of the first input, mixed. NULL after an error. */
Node *mix_images(Builder *b, Node *x, const Transform *mixing, Loc loc);
/* The value of another input: numbers mixed, classes as they are. */
Node *mix_label(Builder *b, Node *label, Loc loc);
Node *mix_noise(Builder *b, Node *x, const Transform *noise, double scale, Loc loc);
/* Does what is trained on look at a label by itself, where it is mixed? False after an error. */
bool mix_check_loss(Builder *b);

/* ── tensors (tensor.c): nodes with the user's messages; NULL after an error ── */
/* What the user called and this op is a part of: "max()", "'-'"; the op's own text where he called nothing. */
const char *tensor_written(const Builder *b, Op op);
Node *tensor_node(Builder *b, Op op, Node *const *inputs, int count, const Attr *attrs,
                  int attr_count, const Type *given, Loc loc);
Node *tensor_unary(Builder *b, Op op, Node *x, Loc loc);
Node *tensor_const(Builder *b, DType dtype, double value, Loc loc); /* a scalar */
Node *tensor_fill(Builder *b, DType dtype, Shape shape, double value, Loc loc);
Node *tensor_cast(Builder *b, Node *x, DType dtype, Loc loc);
/* The rows of `table` that `index`, of any integer type, names. */
Node *tensor_gather(Builder *b, Node *table, Node *index, Loc loc);
/* what lies at the integers `index` along axis, whose dimensions stand in its place */
Node *tensor_take(Builder *b, Node *x, Node *index, int axis, Loc loc);
Node *tensor_flip(Builder *b, Node *x, int axis, Loc loc);
Node *tensor_reshape(Builder *b, Node *x, Shape shape, Loc loc);
Node *tensor_broadcast(Builder *b, Node *x, Shape shape, Loc loc);
Node *tensor_transpose(Builder *b, Node *x, const int64_t *perm, Loc loc);
Node *tensor_binary(Builder *b, Op op, const char *name, Node *x, Node *y, Loc loc);
Node *tensor_select(Builder *b, Node *cond, Node *x, Node *y, Loc loc);
Node *tensor_reduce(Builder *b, Op op, Node *x, const int64_t *axes, int count, bool keep, Loc loc);
Node *tensor_matmul(Builder *b, Node *x, Node *y, Loc loc);
Node *tensor_uniform(Builder *b, Shape shape, Loc loc);
Node *tensor_step(Builder *b, Loc loc); /* i64[]: training steps done */
bool tensor_shape_fits(Builder *b, const Shape *shape, Loc loc); /* not absurdly large */
/* A number as a scalar tensor of `dtype`, a tensor as itself. */
Node *tensor_of(Builder *b, const Value *v, DType dtype, Loc loc);
/* The number v as an element of dtype; an error, where it is none. */
bool tensor_number(Builder *b, const Value *v, DType dtype, Loc loc, double *out);
/* x, whose values count `below` things (or are *ignore, if given): noted at the elements of inputs
 * that it is a view of (bound.c). False: that and the way x is computed do not say all; the caller
 * asks at run time, with the second, a bool tensor of x's shape. */
bool tensor_within(Builder *b, Node *x, int64_t below, const int64_t *ignore);
Node *tensor_is_within(Builder *b, Node *x, int64_t below, const int64_t *ignore, Loc loc);
int64_t tensor_flops(const Node *node);

/* ── what counts in a mean (weight.c) ── */
/* The weight of a tensor, of its shape, bool or float; NULL: every element counts once. */
Node *weight_of(const Builder *b, const Node *node);
/* x whose elements count as `weight` (which broadcasts to x) says, times what they counted before;
 * x whose elements all count. NULL after an error. */
Node *weight_add(Builder *b, Node *x, Node *weight, Loc loc);
Node *weight_drop(Builder *b, Node *x, Loc loc);
/* What a reduction by `op` takes in place of x: without a weight, neutral where nothing counts. */
Node *weight_reduced(Builder *b, Op op, Node *x, Loc loc);
/* The sum of the weight of x, which has one. */
Node *weight_count(Builder *b, const Node *x, DType dtype, const int64_t *axes, int count,
                   bool keep, Loc loc);
/* Gives a new node its weight by its inputs'. False after an error. */
bool weight_follow(Builder *b, Node *node, Loc loc);

/* ── built-in functions (builtin*.c) ── */
typedef struct {
  Builder *b;
  const Builtin *builtin;
  Loc loc;
  Value *arg;
  Loc *at;
  int count;
} Call;
typedef Value BuiltinRun(Call *call);
struct Builtin {
  const char *name, *parameters; /* "x axis= *rest": = optional, * the rest */
  BuiltinRun *run;
  int which; /* the op, where one function serves many */
};
enum { BUILTIN_MAX_PARAMETERS = 12 };
extern const Builtin builtin_ops[OP_COUNT]; /* functions of one tensor: see ir/ops.def */
extern const Builtin builtin_math[], builtin_shape[], builtin_window[], builtin_other[],
    builtin_attention[], builtin_move[], builtin_init[], builtin_mix[];
const Builtin *builtin_find(const char *name);
void builtin_names(Builder *b, const char ***names, int *count);
Value builtin_call(Builder *b, const Builtin *builtin, Loc loc, const Arguments *arguments);
/* Argument access for built-in functions; false or NULL after reporting. */
Node *builtin_tensor(Call *call, int index);
Node *builtin_float_tensor(Call *call, int index);
bool builtin_int(Call *call, int index, int64_t otherwise, int64_t *out);
bool builtin_dtype(Call *call, int index, DType otherwise, DType *out);
Value average_layer(Call *call); /* average(layer, decay), see average.c */
Value frozen_layer(Call *call);  /* frozen(layer, file), see frozen.c */
Value statistics_average(Call *call); /* running_average(old, x, momentum, scale=), see statistics.c */
/* when_rounding(rounded, x), when_observing(now, before), see quantize_switch.c */
Value quantize_switched(Call *call);
Value quantize_observed(Call *call);
bool builtin_number(Call *call, int index, double otherwise, double *out);
bool builtin_bool(Call *call, int index, bool otherwise, bool *out);
/* What an element of a tensor may be: a number that there is in dtype, or true or false; else 0. */
bool builtin_element(Call *call, int index, DType dtype, double *out);
bool builtin_axis(Call *call, int index, const Node *x, int64_t otherwise, int *out);
bool builtin_axes(Call *call, int index, const Node *x, int64_t axes[MAX_RANK], int *count);
bool builtin_shape_arg(Call *call, int index, Shape *out);

/* ── initialisers (init.c) ── */
bool init_reduce(Builder *b, const Value *v, const Shape *shape, Loc loc, const char **kind,
                 double arg[2], int *count);
Value init_named(Builder *b, const char *name); /* `zeros` without brackets */

/* ── data and train (recipe.c) ── */
bool recipe_read(Builder *b, const Ast *const *files, int count, const FrontendOptions *options,
                 const Ast **model);
/* Writes the attributes lr_factor, decay_factor and muon of the rules that apply. */
void recipe_apply_groups(Builder *b, Node *param);
/* Once the model is built: a pattern that names nothing is a mistake. */
bool recipe_check_groups(Builder *b);
/* Where channels are pruned, those of the last layers are the outputs of the model. They are not pruned, which is told,
 * but where `on` names them. */
bool recipe_prune_outputs(Builder *b, Graph *graph);
/* Notes those layers of the training graph in the program, for whoever prunes channels of what is compiled. */
void recipe_note_outputs(Builder *b, const Graph *graph);
/* structure=head and layer: which elements are units, and of which parameters (recipe_prune_parts.c). */
bool recipe_prune_parts(Builder *b, Graph *graph);
/* With both graphs: do train.checkpoint.best and a plateau's metric name what evaluations give?
 * (recipe_rule.c) */
bool recipe_check_rules(Builder *b);
#endif
