/* target: see target.h. A host is named by its x86-64 level, not by its model, so that the artifact
 * says what a machine needs to run it and the runtime can check that; the model is only tuned for.
 */
#include "codegen/target.h"
#include "base/memory.h"
#include "codegen/ptx_text.h"
#include "passes/pass.h"
#include <llvm-c/Analysis.h>
#include <llvm-c/Support.h>
#include <llvm-c/Target.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const char *name, *processor, *features;
} Gpu;
/* The lowest PTX version that knows the processor, and of sm_80 mma.sp: old drivers load what they can. LLVM 19 knows
 * none behind sm_90a; those run PTX of sm_90 (not of sm_90a), which their driver compiles. */
static const Gpu gpus[] = {
    {"sm_80", "sm_80", "+ptx71"},  {"sm_86", "sm_86", "+ptx71"},  {"sm_87", "sm_87", "+ptx74"},
    {"sm_89", "sm_89", "+ptx78"},  {"sm_90", "sm_90", "+ptx78"},  {"sm_90a", "sm_90a", "+ptx80"},
    {"sm_100", "sm_90", "+ptx78"}, {"sm_103", "sm_90", "+ptx78"}, {"sm_120", "sm_90", "+ptx78"}};
enum { GPU_COUNT = sizeof gpus / sizeof *gpus };

typedef struct {
  const char *name;
  int vector_bytes;
} Cpu;
static const Cpu cpus[] = {{"x86-64", 16}, {"x86-64-v2", 16}, {"x86-64-v3", 32}, {"x86-64-v4", 64}};
enum { CPU_COUNT = sizeof cpus / sizeof *cpus };

/* Code for the first level, which is written as C, too (codegen/csource.h). */
static const char cpu_portable[] = "portable";
static const char cpu_names[] = "portable, x86-64, x86-64-v2, x86-64-v3, x86-64-v4";
static const char gpu_names[] = "sm_80, sm_86, sm_87, sm_89, sm_90 and sm_90a, and for later GPUs "
                                "sm_100, sm_103 and sm_120, which run sm_90's PTX";

static const Gpu *find_gpu(const char *name) {
  for (int i = 0; i < GPU_COUNT; i++)
    if (!strcmp(gpus[i].name, name)) return &gpus[i];
  return NULL;
}

static const Cpu *find_cpu(const char *name) {
  for (int i = 0; i < CPU_COUNT; i++)
    if (!strcmp(cpus[i].name, name)) return &cpus[i];
  return NULL;
}

/* The highest level whose every feature this machine has. */
static const Cpu *native_cpu(void) {
#if defined __x86_64__
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return &cpus[3];
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") &&
      __builtin_cpu_supports("fma"))
    return &cpus[2];
  if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt")) return &cpus[1];
#endif
  return &cpus[0];
}

/* mma.sync of these is of sm_89; sm_90 has only an emulation of it, by products of f16, and sm_90a has wgmma. */
Float8Unit codegen_multiplies_float8(const CodegenOptions *options) {
  if (options->target != TARGET_PTX || !options->gpu) return FLOAT8_NONE;
  bool has_wgmma = !strcmp(options->gpu, "sm_90a") && !text_has_word(options->disable, "wgmma");
  return has_wgmma ? FLOAT8_ALONG_K : !strcmp(options->gpu, "sm_89") ? FLOAT8_ANY_ORDER : FLOAT8_NONE;
}

bool codegen_is_portable(const CodegenOptions *options) {
  return options->target == TARGET_CPU && options->cpu && !strcmp(options->cpu, cpu_portable);
}

const char *codegen_check_options(Arena *arena, const CodegenOptions *options) {
  if (options->gpu && !find_gpu(options->gpu))
    return arena_printf(arena, "unknown GPU '%s': ft knows %s", options->gpu, gpu_names);
  if (codegen_is_portable(options) && !options->is_inference)
    return "--cpu portable makes what ftrun deploy writes as C: it goes with --inference";
  if (options->cpu && !codegen_is_portable(options) && strcmp(options->cpu, "native") && !find_cpu(options->cpu))
    return arena_printf(arena, "unknown processor '%s': ft knows native, %s", options->cpu,
                        cpu_names);
  return NULL;
}

/* Scalar promotion, a part of LLVM's licm, finds next to nothing in kernels for GPUs (the PTX of GPT-2 in bf16 is the same without it), and
 * compares each access of a loop with all others: a tenth of the time that a product takes. LLVM has it as an option of the process
 * only, so in one that has compiled for a GPU loops for the CPU are not promoted either. */
static void initialize_options(void) {
  static const char *const options[] = {"ftc", "-disable-licm-promotion"};
  static bool is_done;
  if (!is_done) LLVMParseCommandLineOptions(2, options, NULL);
  is_done = true;
}

static void initialize(Target target) {
  if (target == TARGET_PTX) {
    initialize_options();
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  } else {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeX86AsmParser(); /* deploy.c writes assembly */
  }
}

static void choose_processor(Module *module, const CodegenOptions *options) {
  if (module->target == TARGET_PTX) {
    const Gpu *gpu = find_gpu(options->gpu ? options->gpu : gpus[0].name);
    module->cpu = gpu->processor;
    module->features = options->has_float8 ? "+ptx84" : gpu->features; /* mma.sync of them */
    return;
  }
  bool is_native = !options->cpu || !strcmp(options->cpu, "native");
  module->is_portable = codegen_is_portable(options);
  const Cpu *cpu = is_native ? native_cpu() : module->is_portable ? &cpus[0] : find_cpu(options->cpu);
  module->cpu = cpu->name;
  module->features = "";
  module->vector_bytes = cpu->vector_bytes;
  if (is_native) {
    char *host = LLVMGetHostCPUName();
    if (!host) memory_none();
    module->tune = arena_strdup(module->arena, host);
    LLVMDisposeMessage(host);
    /* AMD's processors gather more slowly than they load one element after the other: a choice of instructions, no demand */
    if (!strncmp(module->tune, "znver", 5)) module->features = "+prefer-no-gather";
  }
}

static void find_types(Module *module, LLVMContextRef context) {
  module->i1 = LLVMInt1TypeInContext(context);
  module->i8 = LLVMInt8TypeInContext(context);
  module->i16 = LLVMInt16TypeInContext(context);
  module->i32 = LLVMInt32TypeInContext(context);
  module->i64 = LLVMInt64TypeInContext(context);
  module->half = LLVMHalfTypeInContext(context);
  module->f32 = LLVMFloatTypeInContext(context);
  module->f64 = LLVMDoubleTypeInContext(context);
  module->pointer = LLVMPointerTypeInContext(context, 0);
  module->nothing = LLVMVoidTypeInContext(context);
}

bool target_open(Module *module, Arena *arena, Diag *diag, const CodegenOptions *options) {
  *module = (Module){.arena = arena, .diag = diag, .target = options->target, .options = options};
  module->only_tile = options->only_tile;
  module->only_splits = options->only_splits ? options->only_splits : 1;
  const char *wrong = codegen_check_options(arena, options);
  if (wrong) {
    diag_error(diag, (Loc){0}, "%s", wrong);
    return false;
  }
  initialize(module->target);
  choose_processor(module, options);
  const char *triple = module->target == TARGET_PTX ? "nvptx64-nvidia-cuda" : "x86_64-pc-linux-gnu";
  LLVMTargetRef target;
  char *message = NULL;
  if (LLVMGetTargetFromTriple(triple, &target, &message)) {
    diag_error(diag, (Loc){0}, "this LLVM has no back end for %s: %s", triple, message);
    LLVMDisposeMessage(message);
    return false;
  }
  bool is_quick = module->target == TARGET_CPU && options->is_quick;
  /* for PTX the back end takes two thirds of the time so, and writes the same instructions */
  LLVMCodeGenOptLevel best = module->target == TARGET_PTX ? LLVMCodeGenLevelDefault : LLVMCodeGenLevelAggressive;
  LLVMCodeGenOptLevel level = is_quick ? LLVMCodeGenLevelNone : best;
  module->machine = LLVMCreateTargetMachine(target, triple, module->cpu, module->features, level,
                                            LLVMRelocPIC, LLVMCodeModelDefault);
  module->context = LLVMContextCreate();
  LLVMContextSetDiscardValueNames(module->context, module->target == TARGET_PTX); /* PTX has registers */
  find_types(module, module->context);
  module->llvm = LLVMModuleCreateWithNameInContext("ft", module->context);
  LLVMSetTarget(module->llvm, triple);
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(module->machine);
  LLVMSetModuleDataLayout(module->llvm, layout);
  LLVMDisposeTargetData(layout);
  return true;
}

/* For the CPU not LLVM's default<O3>, which fully unrolls short inner loops before it looks for
 * vectors (16 channels then run 10 times slower) and takes several times as long. What a kernel
 * needs: its helpers inlined, its loops rotated and vectorised, and a cleaning before and after. */
static const char host_pipeline[] =
    "globaldce,always-inline,globaldce,"
    "function(sroa<modify-cfg>,early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,"
    "loop-mssa(loop-rotate,licm),simplifycfg,"
    "loop(loop-idiom,loop-deletion,loop-unroll-full),sroa<modify-cfg>,"
    "gvn,instcombine<no-verify-fixpoint>,loop-mssa(licm),"
    "loop-vectorize,instcombine<no-verify-fixpoint>,"
    "simplifycfg<forward-switch-cond;switch-range-to-icmp;switch-to-lookup;no-keep-loops;"
    "hoist-common-insts;sink-common-insts>,"
    "loop-unroll<O3>,instcombine<no-verify-fixpoint>,"
    "loop-mssa(licm),early-cse,loop-sink,simplifycfg),globaldce";

/* What is left where only ft's own work is to be tested: the kernels' helpers are inlined. */
static const char quick_pipeline[] =
    "always-inline,globaldce,function(sroa<modify-cfg>,early-cse<memssa>,simplifycfg,"
    "loop-mssa(licm),instcombine<no-verify-fixpoint>)";

/* For C: loops stay as they are, since the C compiler knows the processor, and addresses are simple. */
static const char portable_pipeline[] =
    "globaldce,always-inline,globaldce,"
    "function(sroa<modify-cfg>,early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,"
    "loop-mssa(loop-rotate,licm),simplifycfg,sroa<modify-cfg>,gvn,instcombine<no-verify-fixpoint>,"
    "loop-mssa(licm),early-cse,loop-sink,simplifycfg),globaldce";

/* For PTX not default<O3> either, which simplifies the helpers of kernels' bodies before it inlines them, and takes
 * twice as long. Here they are inlined first, where most arguments are constants. Integer sums are ordered
 * (reassociate), so that what a loop does not change comes first; known ranges make addresses unsigned
 * (correlated-propagation), which saves registers: without it ptxas spills; loops are unrolled where the source says
 * so; and the back end joins loads to wider ones where infer-alignment has been. What a change costs is told by
 * bench/gpu_model/run and by ptxas -v (test/lit/ptx/assemble.test). */
static const char ptx_pipeline[] =
    "always-inline,globaldce,"
    "function(nvvm-reflect,nvvm-intr-range,sroa<modify-cfg>,early-cse<memssa>,simplifycfg,"
    "instcombine<no-verify-fixpoint>,simplifycfg,reassociate,"
    "loop-mssa(loop-instsimplify,loop-simplifycfg,loop-rotate,licm),simplifycfg,"
    "instcombine<no-verify-fixpoint>,loop(loop-deletion,loop-unroll-full),loop(indvars),sroa<modify-cfg>,"
    "sccp,bdce,correlated-propagation,adce,loop-mssa(licm),"
    "simplifycfg<forward-switch-cond;switch-range-to-icmp;switch-to-lookup;no-keep-loops;"
    "hoist-common-insts;sink-common-insts>,"
    "loop-unroll<O1>,instcombine<no-verify-fixpoint>,infer-alignment,loop-sink,simplifycfg),"
    "globaldce";

static const char *pipeline_of(const Module *module) {
  if (module->target == TARGET_PTX) return ptx_pipeline;
  if (module->is_portable) return portable_pipeline;
  return module->options->is_quick ? quick_pipeline : host_pipeline;
}

bool target_verify(Module *module) {
  char *message = NULL;
  bool is_legal = !LLVMVerifyModule(module->llvm, LLVMReturnStatusAction, &message);
  if (!is_legal) module_error(module, "ft made illegal LLVM IR", message);
  LLVMDisposeMessage(message);
  return is_legal;
}

bool target_optimize(Module *module) {
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMPassBuilderOptionsSetLoopVectorization(options, module->target == TARGET_CPU);
  LLVMPassBuilderOptionsSetLoopInterleaving(options, module->target == TARGET_CPU);
  LLVMPassBuilderOptionsSetSLPVectorization(options, module->target == TARGET_CPU);
  LLVMErrorRef error = LLVMRunPasses(module->llvm, pipeline_of(module), module->machine, options);
  LLVMDisposePassBuilderOptions(options);
  if (!error) return true;
  char *why = LLVMGetErrorMessage(error);
  module_error(module, "LLVM's optimiser failed", why);
  LLVMDisposeErrorMessage(why);
  return false;
}

bool target_emit(Module *module, LLVMCodeGenFileType kind, Text *out) {
  char *message = NULL;
  LLVMMemoryBufferRef buffer;
  if (LLVMTargetMachineEmitToMemoryBuffer(module->machine, module->llvm, kind, &message, &buffer)) {
    module_error(module, "LLVM's back end failed", message);
    LLVMDisposeMessage(message);
    return false;
  }
  bool is_good = ptx_text_append(module, LLVMGetBufferStart(buffer), LLVMGetBufferSize(buffer), out);
  LLVMDisposeMemoryBuffer(buffer);
  if (!is_good)
    module_error(module, "LLVM's PTX has another form than LLVM 19's", "no .maxntid or body");
  return is_good;
}

void target_close(Module *module) {
  if (module->llvm) LLVMDisposeModule(module->llvm);
  if (module->context) LLVMContextDispose(module->context);
  if (module->machine) LLVMDisposeTargetMachine(module->machine);
  *module = (Module){0};
}
