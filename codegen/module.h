/* module: one LLVM module under construction and what every kernel of it shares.
 * Invariant: kernels have external linkage and nothing else has after module_link. */
#ifndef FT_CODEGEN_MODULE_H
#define FT_CODEGEN_MODULE_H
#include "codegen/codegen.h"
#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>

/* An `int name(void)` of a kernel body in C, which always returns the same. */
typedef struct {
  const char *name;
  int64_t value;
} Constant;
/* A use of kernels/<name>.c, whose names that begin with `prefix` get `suffix` appended. */
typedef struct {
  const char *name, *prefix, *suffix;
  VEC(Constant) constants;
} ModuleBody;

typedef struct {
  Arena *arena;
  Diag *diag;
  Target target;
  const CodegenOptions *options;
  LLVMContextRef context;
  LLVMTypeRef i1, i8, i16, i32, i64, half, f32, f64, pointer, nothing; /* the context's */
  LLVMModuleRef llvm;
  LLVMTargetMachineRef machine;
  const char *cpu, *features; /* of every function: sm_80 and +ptx70, or a host's */
  const char *tune;           /* host: the processor to schedule for; NULL: cpu */
  bool needs_math;            /* some function of kernels/math.c is called */
  bool needs_library;         /* something of a kernels/..._x86.c is used */
  bool allows_tf32;           /* PTX: products of f32 may round their operands to tf32 */
  int only_tile, only_splits; /* PTX, for tests: the products' tile, from 1; 0: the best */
  int vector_bytes;           /* host: width of a vector register */
  bool is_portable;           /* host: written as C, too, so that code of kernels/..._x86.c is in the module */
  int64_t load;               /* what LLVM has to do for it, in any unit */
  VEC(ModuleBody) bodies;     /* what module_link takes from kernels/ */
  VEC(const char *) kernels;  /* names of the entry points, */
  VEC(const char *) paired;   /* PTX: and of those whose blocks form clusters of two, */
  VEC(const char *) ordinary; /* … and of those that are never begun early (codegen/ptx_text.h); */
  VEC(struct Join *) joins;   /* in the program's first module: its joined kernels (codegen/join.h), */
  VEC(struct ChainLaunch *) chained; /* … and launches that go by rows (codegen/chain.h) */
} Module;

enum { PTX_CALL_KERNEL = 71 }; /* LLVM's calling convention of entry points */

enum { MAX_LAUNCHES = 4 };
/* What the kernel of one node runs as: one or more launches (or library calls) in order. Each takes
 * the node's operands, its results, and the workspace if there is one, or those that it names. */
typedef struct {
  const char *name;
  bool is_call;                      /* a row of plan/calls.def */
  int64_t work, grain;               /* host launch */
  int64_t grid[3], block[3], shared; /* PTX launch, */
  int64_t stays, cluster;            /* see plan.h, */
  bool is_ordinary;                  /* never begun early, */
  bool goes_by_rows;                 /* see codegen/chain.h, */
  const PlanMap *maps;               /* and its tensor maps */
  int map_count;
  PlanInt *ints; /* call */
  int int_count;
  int *args; /* positions among operands, results, and behind these the workspace and the packed operands; NULL: all but those */
  int arg_count, input_count;
  bool packs;     /* it takes the second operand and makes the packed one, for the launches behind it, */
  bool is_before; /* … or the first one: in every run */
} KernelLaunch;
typedef struct {
  KernelLaunch launch[MAX_LAUNCHES];
  int launch_count;
  int64_t workspace; /* bytes of scratch, from the place work, the last argument of each launch */
  int64_t packed[2]; /* … and of a product's operands as launches pack them: of the second once where it is a weight */
  KernelLaunch library; /* PTX: a call that may stand in for all launches; no name: none */
} Kernel;

/* A function `symbol` of the kernels folder with this type; its bitcode is linked in by
 * module_link. */
LLVMValueRef module_function(Module *module, const char *symbol, LLVMTypeRef type);
/* A function of a kernels/..._x86.c, of this type (NULL: only its address is wanted). */
LLVMValueRef module_library(Module *module, const char *symbol, LLVMTypeRef type);
/* The object that has them: machine code for module->cpu; NULL if the module uses none of them. */
const char *module_library_object(const Module *module, size_t *bytes);
/* Makes an entry point: a function of this type and name that stays visible, with the target's
 * attributes. */
LLVMValueRef module_kernel(Module *module, const char *name, LLVMTypeRef type);
/* A builder at the end of the function's first block, which it makes. The caller disposes of it. */
LLVMBuilderRef module_begin(Module *module, LLVMValueRef function);
/* Loads the first `count` of an array of pointers. */
void module_load_pointers(Module *module, LLVMBuilderRef builder, LLVMValueRef array, int count,
                          LLVMValueRef *out);
/* The address of constant data of these fields. */
LLVMValueRef module_constant(Module *module, const char *name, LLVMValueRef *field, int count);
/* A function (epilogues and other callbacks of a kernel body in C) that is always inlined, and internal after
 * module_link. */
LLVMValueRef module_helper(Module *module, const char *name, LLVMTypeRef type);

/* Whether registers, or a C compiler in their place, are for the tiles of kernels/conv_x86.c. */
bool module_has_tiles(const Module *module);
/* Whether --disable names this choice (passes/pass.h, PassOptions.disable). */
bool module_leaves_out(const Module *module, const char *choice);

/* An enum attribute ("noalias", "align") of a parameter, counted from 0. */
void module_parameter(Module *module, LLVMValueRef function, int parameter, const char *name,
                      uint64_t value);

/* Asks for the bitcode of kernels/<name>.c, specialised: its functions and globals whose names begin
 * with `prefix` get `suffix` appended, so that one body may be specialised several times. */
void module_specialise(Module *module, const char *name, const char *prefix, const char *suffix);
/* What these functions of the body that was specialised last under this suffix return. */
void module_define_constants(Module *module, const char *suffix, const Constant *constants, int count);
/* diag_error without a place, from any of the threads that compile modules. */
void module_error(Module *module, const char *what, const char *detail);

/* Links what module_function and module_specialise asked for and makes all but the kernels internal. Once, at
 * the end, on any thread. Returns false, with a diagnostic, if something is not embedded. */
bool module_link(Module *module);
#endif
