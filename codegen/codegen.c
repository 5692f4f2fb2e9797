/* codegen: the back end's one path: open a target, lower both graphs, link, optimise, emit. */
#include "codegen/codegen.h"
#include "codegen/artifact.h"
#include "codegen/lower.h"
#include "codegen/target.h"
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

typedef struct {
  bool wanted;
  double last;
} Clock;

static void tick(Clock *clock, const char *what) {
  double time = now();
  if (clock->wanted) fprintf(stderr, "%8.2f ms  codegen: %s\n", time - clock->last, what);
  clock->last = time;
}

/* The source path and the like are the user's; a module that remembers only its kernels keeps
 * equal programs equal. */
static bool emit_texts(Module *module, const CodegenOptions *options, Code *out) {
  if (options->want_text) {
    char *text = LLVMPrintModuleToString(module->llvm);
    text_printf(&out->llvm, "%s", text);
    LLVMDisposeMessage(text);
  }
  if (module->target == TARGET_PTX) return target_emit(module, LLVMAssemblyFile, &out->assembly);
  return !options->want_text || target_emit(module, LLVMAssemblyFile, &out->assembly);
}

bool codegen_run(Arena *arena, Diag *diag, const Program *program, const CodegenOptions *options,
                 Code *out) {
  Clock clock = {options->time_passes, now()};
  Module module;
  int errors = diag->errors;
  *out = (Code){.plan = ARENA_NEW(arena, Plan)};
  out->plan->arena = arena;
  if (!target_open(&module, arena, diag, options)) return false;
  out->plan->target = options->target == TARGET_PTX ? "ptx" : "cpu";
  out->plan->target_cpu = module.cpu;
  tick(&clock, "target");
  bool good = lower_program(&module, program, out->plan);
  tick(&clock, "lower");
  good = good && module_link(&module);
  tick(&clock, "link");
  good = good && target_optimize(&module);
  tick(&clock, "optimise");
  /* the object first: LLVM changes the module a little as it emits */
  if (good && options->target == TARGET_CPU)
    good = artifact_embed_plan(&module, out->plan) &&
           target_emit(&module, LLVMObjectFile, &out->object);
  size_t bytes = 0;
  const char *library = module_gemm_object(&module, &bytes);
  if (library) text_append(&out->library, library, bytes);
  good = good && emit_texts(&module, options, out);
  tick(&clock, "emit");
  target_close(&module);
  return good && diag->errors == errors;
}

void code_free(Code *code) {
  text_free(&code->llvm);
  text_free(&code->assembly);
  text_free(&code->object);
  text_free(&code->library);
}
