/* codegen: the back end's one path: open the target, lower both graphs, then link, optimise and
 * emit what they became. That is nearly all of a compilation's time, so the kernels are distributed
 * over several modules, which threads take one after the other. Invariant: the number of modules
 * and what is in each depend on the program only, and the artifact has them in order. */
#include "codegen/codegen.h"
#include "base/memory.h"
#include "base/clock.h"
#include "codegen/artifact.h"
#include "codegen/deploy.h"
#include "codegen/join.h"
#include "codegen/lower.h"
#include "codegen/nvptx_private.h"
#include "codegen/target.h"
#include "plan/waits.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static double now(void) { return (double)clock_nanoseconds() * 1e-6; } /* milliseconds */

typedef struct {
  bool wanted;
  double last;
} Clock;

static void tick(Clock *clock, const char *what) {
  double time = now();
  if (clock->wanted) fprintf(stderr, "%8.2f ms  codegen: %s\n", time - clock->last, what);
  clock->last = time;
}

/* One module while it is compiled. */
typedef struct {
  Module module;
  bool is_good;
  Text llvm;                   /* if it is wanted */
  double link, optimise, emit; /* milliseconds */
} Piece;

typedef struct {
  const CodegenOptions *options;
  Code *code;
  Piece piece[CODEGEN_PIECES];
  int count;
  int order[CODEGEN_PIECES]; /* in which they are compiled: the longest first, so that threads end together */
  atomic_int next;
} Work;

/* The number of a module of this stage among those of all stages. */
static int module_number(const Work *work, int index) {
  return work->code->plan->stage * CODEGEN_PIECES + index;
}

/* The PTX of several modules becomes one text. So symbols that are no kernels are renamed in all
 * modules but the first. */
static void rename_own(Module *module, int index) {
  char name[256];
  size_t length;
  for (LLVMValueRef v = LLVMGetFirstGlobal(module->llvm); v; v = LLVMGetNextGlobal(v)) {
    snprintf(name, sizeof name, "%.200s_m%d", LLVMGetValueName2(v, &length), index);
    LLVMSetValueName2(v, name, strlen(name));
  }
  for (LLVMValueRef f = LLVMGetFirstFunction(module->llvm); f; f = LLVMGetNextFunction(f)) {
    if (LLVMIsDeclaration(f) || LLVMGetFunctionCallConv(f) == PTX_CALL_KERNEL) continue;
    snprintf(name, sizeof name, "%.200s_m%d", LLVMGetValueName2(f, &length), index);
    LLVMSetValueName2(f, name, strlen(name));
  }
}

/* The modules' texts one behind the other, with one head, and the variable that bounded waits read
 * (kernels/mbarrier.h). */
static void append_modules(const Work *work, Text *out) {
  static const char end_of_head[] = ".address_size 64\n";
  for (int i = 0; i < work->count; i++) {
    const char *text = text_cstr(&work->code->object[i]), *body = strstr(text, end_of_head);
    size_t end = body ? (size_t)(body - text) + strlen(end_of_head) : 0;
    if (!module_number(work, i)) {
      text_append(out, text, end);
      if (work->options->wait_polls)
        text_printf(out, "\n.visible .global .align 8 .u64 %s;\n", WAITS_VARIABLE);
    }
    text_append(out, text + end, work->code->object[i].count - end);
  }
}

/* All of the artifact's PTX of this stage. */
static bool finish_ptx(Work *work) {
  Module *first = &work->piece[0].module;
  Text modules = {0};
  const char *what = NULL;
  append_modules(work, &modules);
  bool good = join_ptx(first, work->code->plan, text_cstr(&modules), &work->code->assembly, &what);
  text_free(&modules);
  if (!good) module_error(first, "LLVM's PTX has another form than LLVM 19's", what);
  return good;
}

static void print_llvm(Module *module, Text *out) {
  char *text = LLVMPrintModuleToString(module->llvm);
  if (!text) memory_none();
  text_printf(out, "%s", text);
  LLVMDisposeMessage(text);
}

static void compile_piece(Work *work, int index) {
  Piece *piece = &work->piece[index];
  Module *module = &piece->module;
  double start = now();
  piece->is_good = target_verify(module) && module_link(module);
  double linked = now();
  piece->is_good = piece->is_good && target_optimize(module);
  if (module->is_portable) piece->is_good = piece->is_good && deploy_write_c(module, work->code->plan);
  double optimised = now();
  bool is_ptx = module->target == TARGET_PTX, wants_text = work->options->want_text;
  int number = module_number(work, index);
  if (is_ptx && number > 0) rename_own(module, number);
  if (is_ptx && wants_text) print_llvm(module, &piece->llvm);
  /* the object first: LLVM changes the module a little as it emits */
  piece->is_good =
      piece->is_good && (is_ptx || index > 0 || artifact_embed_plan(module, work->code)) &&
      target_emit(module, is_ptx ? LLVMAssemblyFile : LLVMObjectFile, &work->code->object[index]);
  if (!is_ptx && wants_text) {
    print_llvm(module, &piece->llvm);
    piece->is_good = piece->is_good && target_emit(module, LLVMAssemblyFile, &work->code->assembly);
  }
  piece->link = linked - start;
  piece->optimise = optimised - linked;
  piece->emit = now() - optimised;
}

static void *take_pieces(void *argument) {
  Work *work = argument;
  int next;
  while ((next = atomic_fetch_add(&work->next, 1)) < work->count) compile_piece(work, work->order[next]);
  return NULL;
}

static void order_by_load(Work *work) {
  for (int i = 0; i < work->count; i++) {
    int at = i;
    for (; at > 0 && work->piece[work->order[at - 1]].module.load < work->piece[i].module.load; at--)
      work->order[at] = work->order[at - 1];
    work->order[at] = i;
  }
}

/* On as many threads as there are processors, or on fewer if the system refuses some. */
static void compile_all(Work *work) {
  order_by_load(work);
  pthread_t thread[CODEGEN_PIECES];
  int started = 0;
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  while (started + 1 < work->count && started + 1 < processors &&
         pthread_create(&thread[started], NULL, take_pieces, work) == 0)
    started++;
  take_pieces(work);
  for (int i = 0; i < started; i++) pthread_join(thread[i], NULL);
}

static int count_pieces(const Program *program, const CodegenOptions *options) {
  const int few = 8, enough = 60; /* nodes: below, another module costs more than it saves */
  if (options->want_text && options->target == TARGET_CPU) return 1;
  if (codegen_is_portable(options)) return 1; /* one text of C */
  int nodes = program->train->nodes.count;
  if (nodes < enough) return nodes < few ? 1 : 2;
  /* for a GPU many, so that threads end together though some kernels take LLVM very long */
  return options->target == TARGET_PTX ? CODEGEN_PIECES : CODEGEN_PIECES / 2;
}

/* What several modules may use is in the artifact once. */
static void add_library(Work *work) {
  for (const Code *code = work->code->before; code; code = code->before)
    if (code->object[CODEGEN_OBJECTS - 1].count) return;
  for (int i = 0; i < work->count; i++) {
    size_t bytes = 0;
    const char *library = module_library_object(&work->piece[i].module, &bytes);
    if (!library) continue;
    text_append(&work->code->object[CODEGEN_OBJECTS - 1], library, bytes);
    return;
  }
}

static bool open_all(Work *work, Module **module, Arena *arena, Diag *diag) {
  for (int i = 0; i < work->count; i++) {
    module[i] = &work->piece[i].module;
    if (!target_open(module[i], arena, diag, work->options)) return false;
  }
  work->code->plan->target = work->options->target == TARGET_PTX ? "ptx" : "cpu";
  work->code->plan->target_cpu = module[0]->cpu;
  return true;
}

static void codegen_note_waits(const Work *work, Diag *diag) {
  if (work->options->wait_polls && !strstr(text_cstr(&work->code->assembly), "[" WAITS_VARIABLE "]"))
    diag_warning(diag, (Loc){0},
                 "--debug-waits bounds nothing here: only kernels for --gpu sm_90a wait at mbarriers, "
                 "in products and attention of bf16 and f16");
}

static bool codegen_finish(Work *work, Diag *diag) {
  bool good = true;
  for (int i = 0; i < work->count; i++) {
    const Piece *piece = &work->piece[i];
    good = good && piece->is_good;
    text_append(&work->code->llvm, text_cstr(&piece->llvm), piece->llvm.count);
    if (work->options->time_passes)
      fprintf(stderr, "%8.2f ms  codegen: module %d: link %.2f, optimise %.2f, emit %.2f\n",
              piece->link + piece->optimise + piece->emit, i, piece->link, piece->optimise,
              piece->emit);
  }
  if (good && work->options->target == TARGET_PTX) good = finish_ptx(work);
  if (good) codegen_note_waits(work, diag);
  if (good && work->options->target == TARGET_CPU) add_library(work);
  return good;
}

/* Are there values of 8-bit floats, in any graph? */
static bool has_float8(const Program *program) {
  for (int g = 0; g < PROGRAM_GRAPHS; g++) {
    const Graph *graph = program_graph(program, g);
    for (int i = 0; graph && i < graph->nodes.count; i++)
      if (dtype_is_float8(graph->nodes.at[i]->type.dtype)) return true;
  }
  return false;
}

bool codegen_run(Arena *arena, Diag *diag, const Program *program, const CodegenOptions *options,
                 Code *out) {
  Clock clock = {options->time_passes, now()};
  int errors = diag->errors;
  *out = (Code){.before = options->before, .plan = ARENA_NEW(arena, Plan)};
  out->plan->arena = arena;
  out->plan->stage = program->stage;
  CodegenOptions own = *options;
  own.has_float8 = has_float8(program);
  Work work = {.options = &own, .code = out, .count = count_pieces(program, options)};
  Module *module[CODEGEN_PIECES];
  bool good = open_all(&work, module, arena, diag);
  tick(&clock, "target");
  good = good && lower_program(module, work.count, program, out->plan);
  good = good && (!options->is_inference || deploy_add(module, work.count, out->plan, options->onnx));
  tick(&clock, "lower");
  if (good && !options->only_plan) {
    compile_all(&work);
    good = codegen_finish(&work, diag);
    tick(&clock, "modules, side by side");
  }
  for (int i = 0; i < work.count; i++) {
    target_close(&work.piece[i].module);
    text_free(&work.piece[i].llvm);
  }
  return good && diag->errors == errors;
}

void code_free(Code *code) {
  text_free(&code->llvm);
  text_free(&code->assembly);
  for (int i = 0; i < CODEGEN_OBJECTS; i++) text_free(&code->object[i]);
}
