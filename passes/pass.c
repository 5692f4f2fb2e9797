/* pass: see pass.h. The only place that knows about verifying, timing, dumping, reproducers and
 * switching passes off; a pass itself is a function from graph to graph. A pass never changes the
 * graph it was given, so that what came before can be compared, dumped and shown. */
#include "passes/pass.h"
#include "base/clock.h"
#include "base/text.h"
#include "passes/sparse.h"
#include "plan/step_form.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

const PassInfo pass_info[] = {
#define G(GRAPH) PASS_OF_##GRAPH
#define PASS(name, function, before, after, target, graphs, need, contract)                        \
  {#name,  contract,    STAGE_##before, STAGE_##after, PASS_ON_##target,                           \
   graphs, PASS_##need, pass_##function},
#include "passes/passes.def"
#undef PASS
#undef G
};
const int pass_count = (int)(sizeof pass_info / sizeof pass_info[0]);

/* ── names ──────────────────────────────────────────────────────────────────────────────────── */
static int find_pass(const char *name, size_t length) {
  for (int i = 0; i < pass_count; i++)
    if (strlen(pass_info[i].name) == length && strncmp(pass_info[i].name, name, length) == 0)
      return i;
  return -1;
}

/* In order: kernels for Hopper's tensor cores, of products and of attention, and tensor maps in
 * those of products, and two blocks that share panels by them; tiles that are transposed in shared memory; column sums of a product's and a convolution's
 * result by its own kernel, and of rows by the kernel that reads or makes them, an epilogue of the kernel of a convolution's input's gradient; on the CPU,
 * loops of their own for the parts of a concat, poolings in the kernels of convolutions of integers, and
 * processors' instructions for products of 8-bit integers and of bf16 (widened: multiplying bf16 as f32 where the processor is faster at that), convolutions by 3 x 3 weights with fewer multiplications, and by tiles of 4 x 4 results;
 * on the GPU, regions of images that a convolution loads once for all places of its window, numbers of elements in 32 bits where they fit, kernels that are begun before the one before has ended, and
 * launches that need not wait for each other made as one, or that go by the same rows one behind the other; products that read rounded weights in 4 or 8 bits; tiles of places of pooling, and rows of a few elements whole; tiles of attention that a mask hides. */
const char *const pass_choices[] = {
    "wgmma",       "attention_wgmma", "tma",          "transpose_tiles",
    "column_sums", "row_sums", "slope_epilogues", "concat_parts", "vnni", "index32",
    "amx",         "dpbf16",          "widened",      "winograd", "winograd4", "integer_pools", "clusters", "conv_regions", "early_launch", "join_launches",
    "rounded", "window_tiles", "narrow_rows", "row_chains", "attention_tiles", NULL};

const char *pass_optional(int index) {
  for (int i = 0; i < pass_count; i++)
    if (pass_info[i].need != PASS_REQUIRED && index-- == 0) return pass_info[i].name;
  for (int i = 0; pass_choices[i]; i++)
    if (index-- == 0) return pass_choices[i];
  return NULL;
}

const char *pass_name(int index) { return index < pass_count ? pass_info[index].name : NULL; }

/* -1, with an error that suggests one of `names`, if there is none. */
static int require_pass(Arena *arena, Diag *diag, const char *name, size_t length,
                        const char *names(int)) {
  int found = find_pass(name, length);
  if (found >= 0) return found;
  VEC(const char *) list = {0};
  for (int i = 0; names(i); i++) VEC_PUSH(arena, list, names(i));
  const char *nearest = text_nearest(arena_strndup(arena, name, length), list.at, list.count);
  diag_error(diag, (Loc){0}, "there is no pass '%.*s'%s%s%s", (int)length, name,
             nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
  return -1;
}

/* Marks the passes of a comma-separated list; false with an error for a name that is none. */
static bool parse_disabled(Arena *arena, Diag *diag, const char *list, bool *disabled) {
  size_t length;
  for (const char *at = list; at && *at; at += length + (at[length] == ',')) {
    length = strcspn(at, ",");
    if (text_is_one_of(arena_strndup(arena, at, length), pass_choices)) continue;
    int pass = require_pass(arena, diag, at, length, pass_optional);
    if (pass < 0) return false;
    if (pass_info[pass].need == PASS_REQUIRED) {
      diag_error(diag, (Loc){0}, "pass '%s' cannot be switched off", pass_info[pass].name);
      return false;
    }
    disabled[pass] = true;
  }
  return true;
}

bool pass_is_run(PassContext *context, int pass) {
  context->is_plain = context->disabled && context->disabled[pass];
  return !context->is_plain || pass_info[pass].need == PASS_PLAIN;
}

/* ── reproducers and dumps ──────────────────────────────────────────────────────────────────── */
static bool pass_write_file(Diag *diag, const char *path, const char *text) {
  int error = text_write_file(path, text, strlen(text));
  if (text_is_fault(error)) diag->is_fault = true;
  if (error) diag_error(diag, (Loc){0}, "cannot write '%s': %s", path, text_error(error));
  return error == 0;
}

/* The settings a user gave, as ftopt takes them. */
static char *set_flags(const PassContext *context) {
  char *flags = arena_strdup(context->arena, pass_trains(context) ? "" : " --eval");
  if (context->of == PASS_OF_MICRO) flags = arena_printf(context->arena, "%s --micro", flags);
  if (context->for_gpu) flags = arena_printf(context->arena, "%s --gpu", flags);
  for (int i = 0; context->settings && i < setting_count; i++) {
    const SettingInfo *info = &setting_info[i];
    const SettingValue *value = &context->settings[i];
    if (!value->is_set || info->when != WHEN_STATIC) continue;
    if (info->kind == SET_STR)
      flags = arena_printf(context->arena, "%s --set %s=%s", flags, info->key, value->text);
    else
      flags = arena_printf(context->arena, "%s --set %s=%.17g", flags, info->key, value->number);
  }
  return flags;
}

/* A fault of the compiler, not of the user's program: keep what is needed to see it again. */
static void write_reproducer(PassContext *context, const PassInfo *info, const Graph *before,
                             const char *folder) {
  Arena *arena = context->arena;
  char *path = arena_printf(arena, "%s/reproducer-%s.%s.ftir", folder ? folder : ".", info->name,
                            before->name);
  char *command =
      arena_printf(arena, "ftopt %s --passes=%s%s", path, info->name, set_flags(context));
  char *text = arena_printf(arena, "// pass '%s' failed on this graph; to see it again:\n// %s\n%s",
                            info->name, command, graph_to_text(before, arena));
  if (pass_write_file(context->diag, path, text))
    diag_note(context->diag, (Loc){0},
              "this is a fault of ft; please report it with the graph that caused it: %s", command);
}

static bool ensure_folder(Diag *diag, const char *path) {
  if (mkdir(path, 0777) == 0 || errno == EEXIST) return true;
  diag_error(diag, (Loc){0}, "cannot make the folder '%s': %s", path, strerror(errno));
  return false;
}

/* ── running one pass ───────────────────────────────────────────────────────────────────────── */
PassGraphs pass_graph_named(const char *name, PassGraphs otherwise) {
  static const char *const names[] = {"train", "micro", "eval", "decode", "prefill"};
  for (int i = 0; i < PROGRAM_OWN_GRAPHS; i++)
    if (!strcmp(names[i], name)) return (PassGraphs)(1 << i);
  return otherwise;
}

Graph *pass_apply(PassContext *context, const PassInfo *info, Graph *graph) {
  PassTarget target = context->for_gpu ? PASS_ON_GPU : PASS_ON_CPU;
  bool is_for =
      (info->target == PASS_ON_ANY || info->target == target) && (info->graphs & context->of);
  if (!is_for) return graph;
  Arena *outer = context->scratch; /* recompute tries the passes behind it */
  context->scratch = arena_child(context->arena);
  Graph *after = info->run(context, graph);
  arena_free(context->scratch);
  context->scratch = outer;
  return after;
}

/* The pass that runs, for when an assertion in it fails. */
static struct {
  PassContext *context;
  const PassInfo *info;
  const Graph *before;
  const char *folder;
  struct sigaction usual; /* what SIGABRT did before */
} running;

/* abort() calls it on its way out, from within the pass: ordinary code is safe here. */
static void on_abort(int signal) {
  const PassInfo *info = running.info;
  if (!info) return;
  running.info = NULL; /* what fails now fails for good */
  diag_error(running.context->diag, (Loc){0}, "pass '%s' stopped on the %s graph", info->name,
             running.before->name);
  write_reproducer(running.context, info, running.before, running.folder);
  sigaction(SIGABRT, &running.usual, NULL);
  raise(signal);
}

static Graph *run_watched(PassContext *context, const PassInfo *info, Graph *before,
                          const char *folder) {
  struct sigaction watch = {.sa_handler = on_abort, .sa_flags = SA_NODEFER};
  running.context = context;
  running.info = info;
  running.before = before;
  running.folder = folder;
  sigaction(SIGABRT, &watch, &running.usual);
  Graph *after = pass_apply(context, info, before);
  sigaction(SIGABRT, &running.usual, NULL);
  running.info = NULL;
  return after;
}

Graph *passes_run_one(PassContext *context, const PassInfo *info, Graph *before, bool verify,
                      const char *folder) {
  int errors = context->diag->errors;
  if (verify && !graph_verify(before, info->before, context->diag)) {
    diag_note(context->diag, (Loc){0}, "the graph is not fit for pass '%s'", info->name);
    return NULL;
  }
  Graph *after = run_watched(context, info, before, folder);
  if (!after && (context->diag->errors > errors || context->refused))
    return NULL; /* the pass said what is wrong */
  if (!after) {
    diag_error(context->diag, (Loc){0}, "pass '%s' failed on the %s graph", info->name,
               before->name);
    write_reproducer(context, info, before, folder);
    return NULL;
  }
  if (verify && !graph_verify(after, info->after, context->diag)) {
    diag_note(context->diag, (Loc){0}, "after pass '%s' on the %s graph", info->name, before->name);
    write_reproducer(context, info, before, folder);
    return NULL;
  }
  return context->diag->errors > errors ? NULL : after;
}

Graph *passes_run_named(PassContext *context, Graph *graph, const char *names) {
  for (const char *at = names; graph && *at;) {
    size_t length = strcspn(at, ",");
    int pass = require_pass(context->arena, context->diag, at, length, pass_name);
    if (pass < 0) return NULL;
    graph = passes_run_one(context, &pass_info[pass], graph, true, NULL);
    if (!graph && context->refused)
      diag_error(context->diag, (Loc){0}, "no %.*s graph: %s", (int)length, at, context->refused);
    at += length + (at[length] == ',');
  }
  return graph;
}

/* ── the pipeline ───────────────────────────────────────────────────────────────────────────── */
typedef struct {
  Graph **graph;
  PassGraphs of;
  bool is_variant;
  int64_t resting;        /* PassContext.resting */
  SettingValue *settings; /* NULL: the program's */
  Arena *arena; /* the graph's, if a pass of this pipeline made it */
} Slot;

typedef struct {
  PassContext context;
  const PassOptions *options;
  double *seconds; /* per pass, over all graphs */
  int64_t *nodes;  /* what it left, likewise */
} Pipeline;

static bool dump_if_changed(Pipeline *pipeline, int pass, const Graph *before, const Graph *after) {
  const PassOptions *options = pipeline->options;
  const char *name = pass_info[pass].name;
  if (!options->dump || (strcmp(options->dump, "all") != 0 && strcmp(options->dump, name) != 0))
    return true;
  Arena *arena = pipeline->context.arena;
  char *text = graph_to_text(after, arena);
  if (before == after || strcmp(text, graph_to_text(before, arena)) == 0) return true;
  const PassContext *context = &pipeline->context;
  bool is_staged = context->settings && setting_pipeline(context->settings) > 1;
  const char *stage = is_staged ? arena_printf(arena, ".stage%d", context->stage) : "";
  char *path =
      arena_printf(arena, "%s/%02d-%s.%s%s.ftir", options->dump_dir ? options->dump_dir : ".",
                   pass + 1, name, after->name, stage);
  return pass_write_file(pipeline->context.diag, path, text);
}

/* The graph that a pass makes has an arena of its own, so that the graph before can go as a whole;
 * but not from fuse on: the graphs behind it share the bodies of its kernels. */
static void put_graph(Slot *slot, Graph *graph, Arena *arena, const PassInfo *info) {
  if (info->before < STAGE_FUSED) arena_free(slot->arena);
  slot->arena = arena;
  *slot->graph = graph;
}

static bool run_on(Pipeline *pipeline, int pass, Slot *slot) {
  Graph *before = *slot->graph;
  if (!before) return true;
  pipeline->context.of = slot->of;
  pipeline->context.is_variant = slot->is_variant;
  pipeline->context.resting = slot->resting;
  pipeline->context.settings = slot->settings ? slot->settings : pipeline->context.program->settings;
  pipeline->context.refused = NULL;
  int64_t start = clock_nanoseconds();
  const PassInfo *info = &pass_info[pass];
  Graph given = *before;
  given.arena = arena_child(pipeline->context.arena);
  *slot->graph = &given; /* where a pass looks for the program's other graphs */
  Graph *after = passes_run_one(&pipeline->context, info, &given, pipeline->options->verify,
                                pipeline->options->dump_dir);
  *slot->graph = before;
  pipeline->seconds[pass] += (double)(clock_nanoseconds() - start) * 1e-9;
  if (!after && pipeline->context.refused) { /* the program does without */
    put_graph(slot, NULL, NULL, info);
    arena_free(given.arena);
    return true;
  }
  if (!after || !dump_if_changed(pipeline, pass, &given, after)) return false;
  if (after == &given) {
    after = before;
    arena_free(given.arena);
  } else {
    put_graph(slot, after, given.arena, info);
  }
  pipeline->nodes[pass] += after->nodes.count;
  if (pipeline->options->observe)
    pipeline->options->observe(pipeline->options->observe_user, info->name, after);
  return true;
}

static void print_times(const Pipeline *pipeline, const bool *disabled, int last) {
  double total = 0;
  for (int i = 0; i <= last; i++) total += pipeline->seconds[i];
  fprintf(stderr, "%-12s %10s %6s %8s\n", "pass", "ms", "%", "nodes");
  for (int i = 0; i <= last; i++)
    if (disabled[i])
      fprintf(stderr, "%-12s %10s\n", pass_info[i].name,
              pass_info[i].need == PASS_PLAIN ? "plain" : "off");
    else
      fprintf(stderr, "%-12s %10.3f %6.1f %8lld\n", pass_info[i].name, 1e3 * pipeline->seconds[i],
              total > 0 ? 100 * pipeline->seconds[i] / total : 0, (long long)pipeline->nodes[i]);
  fprintf(stderr, "%-12s %10.3f\n", "total", 1e3 * total);
}

static bool pass_prepare(Program *program, Diag *diag, const PassOptions *options, bool *disabled,
                         int *last) {
  *last = pass_count - 1;
  if (options->stop_after) {
    *last = require_pass(program->arena, diag, options->stop_after, strlen(options->stop_after),
                         pass_name);
    if (*last < 0) return false;
  }
  if (options->dump && strcmp(options->dump, "all") != 0 &&
      require_pass(program->arena, diag, options->dump, strlen(options->dump), pass_name) < 0)
    return false;
  if (options->dump && options->dump_dir && !ensure_folder(diag, options->dump_dir)) return false;
  return parse_disabled(program->arena, diag, options->disable, disabled);
}

static Graph *copy_under_name(const Graph *graph, const char *name) {
  Graph *copy = graph_rewrite(graph, NULL, NULL);
  copy->name = name;
  return copy;
}

/* In a variant of fewer samples train.batch is its own, and in a plain one train.sharpness. */
static SettingValue *settings_of_variant(const Program *program, const Variant *variant) {
  bool is_smaller = variant->form.size && grow_of(program->settings).kind == GROW_BATCH;
  if (!is_smaller && !variant->form.is_plain) return NULL;
  SettingValue *own = ARENA_ARRAY(program->arena, SettingValue, setting_count);
  memcpy(own, program->settings, sizeof *own * (size_t)setting_count);
  if (is_smaller) own[setting_find("train.batch")].number = (double)variant->form.size;
  if (variant->form.is_plain) own[setting_find("train.sharpness")].text = "none";
  return own;
}

static const char *name_of_variant(Arena *arena, const char *of, StepForm form) {
  Text name = {0};
  text_printf(&name, "%s", of);
  step_form_append_name(form, &name);
  of = arena_strdup(arena, text_cstr(&name));
  text_free(&name);
  return of;
}

bool passes_run(Program *program, Diag *diag, const PassOptions *options, bool for_gpu) {
  Arena *arena = program->arena;
  bool *disabled = ARENA_ARRAY(arena, bool, pass_count);
  int last;
  const char *sparse = options->sparse;
  bool may_lack = sparse && *sparse == '?';
  if (may_lack) sparse++;
  const char *unknown = sparse && !may_lack ? sparse_unknown(program, sparse, arena) : NULL;
  if (unknown) diag_error(diag, (Loc){0}, "--sparse: the model has no parameter '%s'", unknown);
  if (unknown || !pass_prepare(program, diag, options, disabled, &last)) return false;
  Pipeline pipeline = {.context = {.arena = arena, .diag = diag, .settings = program->settings,
                                   .of = PASS_OF_TRAIN, .for_gpu = for_gpu, .program = program,
                                   .multiplies_float8 = options->multiplies_float8,
                                   .disabled = disabled, .left_out = options->disable, .sparse = sparse,
                                   .stage = program->stage},
                       .options = options,
                       .seconds = ARENA_ARRAY(arena, double, pass_count),
                       .nodes = ARENA_ARRAY(arena, int64_t, pass_count)};
  bool ok = true;
  if (setting_number(program->settings, "train.accumulate") > 1 && !program->micro)
    program->micro = copy_under_name(program->train, "micro");
  if (!disabled[find_pass("decode", strlen("decode"))]) {
    program->decode = copy_under_name(program->eval, "decode");
    program->prefill = copy_under_name(program->eval, "prefill");
  }
  int slot_count = PROGRAM_OWN_GRAPHS + 2 * program->variant_count;
  Slot slots[PROGRAM_GRAPHS] = {{&program->train, PASS_OF_TRAIN},
                                {&program->eval, PASS_OF_EVAL},
                                {&program->micro, PASS_OF_MICRO},
                                {&program->prefill, PASS_OF_PREFILL},
                                {&program->decode, PASS_OF_DECODE}};
  for (int i = 0; i < program->variant_count; i++) {
    Variant *variant = &program->variants[i];
    Slot *slot = &slots[PROGRAM_OWN_GRAPHS + 2 * i];
    if (program->micro)
      variant->micro = copy_under_name(variant->train, name_of_variant(arena, "micro", variant->form));
    SettingValue *settings = settings_of_variant(program, variant);
    slot[0] = (Slot){&variant->train, PASS_OF_TRAIN, true, variant->form.resting, settings, NULL};
    slot[1] = (Slot){&variant->micro, PASS_OF_MICRO, true, variant->form.resting, settings, NULL};
  }
  for (int i = 0; ok && i <= last; i++)
    if (pass_is_run(&pipeline.context, i)) {
      for (int k = 0; ok && k < slot_count; k++) ok = run_on(&pipeline, i, &slots[k]);
      if (!program->decode && !program->decode_refused)
        program->decode_refused = pipeline.context.refused;
    }
  if (options->time_passes) print_times(&pipeline, disabled, last);
  return ok;
}
