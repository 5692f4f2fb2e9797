/* program: what the front end hands to the rest of the compiler, and what passes turn into a step.
 * Invariant: both graphs hold the same params and (but for the optimiser's) the same states, in the
 * same order with the same types. */
#ifndef FT_FRONTEND_PROGRAM_H
#define FT_FRONTEND_PROGRAM_H
#include "ir/graph.h"
#include "plan/plan.h"

/* One application of a block, for --summary and for the path shown beside a node. */
typedef struct {
  const char *path;  /* "h.0.attn.c_attn"; "" for the model itself */
  const char *block; /* "Linear" */
  Type output;
  int64_t parameters; /* own ones, not those of inner blocks */
  int64_t flops;      /* forward, of one batch */
  int64_t width;      /* what its block's parameter `out` is; 0: it has none */
  int64_t heads;      /* what `heads` is, of a block that has a parameter `head_size`, too; else 0 */
  Loc loc;
  int depth;
} Layer;

/* A round of a `repeat` with names: nodes [begin, end) of the graph, by id. */
typedef struct {
  const char *path; /* "h.3" */
  const Graph *graph;
  int begin, end;
} RepeatRound;

/* `rearrange(x, "b t (h d) -> b h t d", h=12)`: a size that the program says. */
typedef struct {
  const char *path, *name; /* the layer, "h" */
  const Node *node;        /* has it as dimension `dim` */
  int dim;
  int64_t size, rest; /* rest: of its dimension of x, the others' */
} GivenSize;

typedef struct {
  const char *name; /* of the hyper */
  const char *value, *type, *doc;
  const char *from; /* "default", with the formula where it is one; "preset NAME"; "-D" */
  Loc loc;          /* of the value that the file gives: of its line, or of the chosen preset */
} Hyper;

typedef struct {
  const char *name, *values, *doc; /* "D = 768; L = 12", as written */
} Preset;

typedef struct {
  const char *flag, *value; /* "--space", "lr=log(1e-05, 0.1)": as `ftrun tune` takes it */
} TuneLine;

/* The step once more, in another form (variant.c, plan/step_form.h). Parameters and states are those of the
 * program; inputs too, of which the graph takes the front of each row where it has another size. */
typedef struct {
  StepForm form;
  Graph *train, *micro; /* as the program's */
} Variant;

/* An application of a layer whose input and result are outputs of the evaluation (taps.c). */
typedef struct {
  const char *path, *block;
  int number;
  int64_t stride[2], padding[2], dilation[2], groups[2]; /* of a convolution; groups twice; -1: no whole number */
} LayerTap;

/* Of a layer with a tap: which weights can take in a factor above 0 for each of its input features, and which layers read the same
 * features, so that their weights have to undo it (folds.c). */
typedef struct {
  const char *name;
  int axis; /* the dimension that is multiplied */
} TapFoldWeight;
typedef struct {
  const char *path;
  VEC(const char *) readers; /* the names of their weights [out, in, ...], the layer's own among them */
  VEC(TapFoldWeight) weights;
  const char *why; /* no weights can; NULL: these can */
} TapFold;

/* A matrix outside of layers that ftc --taps means: a parameter's name, which of its dimensions products sum over, and how many have their
 * input and result as outputs. */
typedef struct {
  const char *path;
  int axis, products;
} MatrixTap;

typedef struct Program {
  Arena *arena;
  const char *model_name, *path;
  VEC(const char *) files; /* by Loc.file - 1: what was read */
  Graph *train, *eval;     /* STAGE_FORWARD from the front end */
  Graph *micro; /* train without its update: for all parts of a batch but the last. Made by the
                   passes where train.accumulate is more than 1; else NULL */
  Graph *decode,
      *prefill; /* for generation, made by the passes from eval; NULL where there is none,
                   and then, if the model is one of text, decode_refused says why */
  const char *decode_refused;
  Variant variants[PLAN_MOST_FORMS - 1]; /* the shortest first */
  int variant_count;
  int stage; /* of distributed.pipeline ones, from 0: what this compilation is of */
  SettingValue *settings;
  Loc batch_loc;                            /* of batch = auto(...), or nowhere */
  Loc auto_loc;                             /* of distributed { auto(...) }, or nowhere */
  Loc train_loc, data_loc, distributed_loc; /* of the blocks that were read, or nowhere */
  VEC(DataSource) sources;
  VEC(Layer) layers;
  VEC(const char *) params; /* of a stage: the names of those of the whole program, in its order */
  VEC(const char *) outputs; /* params: matrices whose channels are, through no other one, outputs of the model */
  VEC(Hyper) hypers;
  VEC(Preset) presets;
  VEC(TuneLine) tune; /* what the tune block says */
  VEC(LayerTap) taps;
  VEC(MatrixTap) matrix_taps;
  VEC(TapFold) folds; /* of the layers with taps */
  Lookup *products; /* of fp8 with delayed scaling: their numbers, by layer and place in the text (tensor.c) */
  VEC(RepeatRound) rounds;
  VEC(GivenSize) sizes;
} Program;

/* The compiler's graphs, in the order of the plan's; NULL where there is none. */
enum { PROGRAM_OWN_GRAPHS = 5, PROGRAM_GRAPHS = PROGRAM_OWN_GRAPHS + 2 * (PLAN_MOST_FORMS - 1) };
static inline Graph *program_graph(const Program *program, int index) {
  Graph *const graphs[PROGRAM_OWN_GRAPHS] = {program->train, program->eval, program->micro,
                                             program->decode, program->prefill};
  if (index < PROGRAM_OWN_GRAPHS) return graphs[index];
  const Variant *variant = &program->variants[(index - PROGRAM_OWN_GRAPHS) / 2];
  return (index - PROGRAM_OWN_GRAPHS) % 2 ? variant->micro : variant->train;
}

typedef struct {
  const char *const *defines; /* "hidden=512": -D */
  int define_count;
  const char *const *sets; /* "train.batch=64": --set */
  int set_count;
  const char *const *taps; /* patterns of layers' paths: what they read and give are outputs of the evaluation */
  int tap_count;
  const char *preset;  /* NULL: none */
  bool allow_paths;    /* imports may come from outside of the main file's folder */
  bool parse_only;     /* stop after parsing (for --emit=ast) */
  bool hypers_only;    /* stop before the recipe and the graphs (for --hypers) */
  struct Watch *watch; /* an editor's: frontend/watch.h; NULL: nobody's */
} FrontendOptions;

/* Reads, parses, checks and builds. All errors are in diag; false if there was one. */
bool frontend_compile(Arena *arena, Diag *diag, const char *path, const FrontendOptions *options,
                      Program *out);
/* The same from text in memory (tests, fuzzing). Imports are looked up beside `path`. */
bool frontend_compile_text(Arena *arena, Diag *diag, const char *path, const char *text,
                           const FrontendOptions *options, Program *out);
/* The same for any bytes, NUL included. */
bool frontend_compile_bytes(Arena *arena, Diag *diag, const char *path, const char *text,
                            size_t length, const FrontendOptions *options, Program *out);
/* The files of the standard library, in order: false behind the last one. Texts end with a NUL. */
bool frontend_std(int index, const char **name, const char **text);
/* The same program for another stage, as the front end left it: with graphs of its own, which the
 * passes may turn into that stage's. */
Program frontend_stage(const Program *program, int stage);
/* --emit=ast: the parsed file, as an indented tree. */
bool frontend_print_ast(Arena *arena, Diag *diag, const char *path, FILE *out);
/* --hypers: each with its type, its value, where that is from, and its comment; presets. */
void frontend_print_hypers(const Program *program, FILE *out);
/* --summary: layers, output shapes, parameters, FLOPs, totals. */
void frontend_print_summary(const Program *program, FILE *out);
#endif
