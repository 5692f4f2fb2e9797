/* codegen: from memory-planned graphs to an artifact. */
#ifndef FT_CODEGEN_CODEGEN_H
#define FT_CODEGEN_CODEGEN_H
#include "frontend/program.h"

typedef enum { TARGET_CPU, TARGET_PTX } Target;
typedef struct {
  Target target;
  const char *gpu;     /* "sm_80"; NULL: the lowest the kernels need */
  bool has_float8;     /* the program has 8-bit floats; codegen_run finds out */
  const char *cpu;     /* NULL: this machine's; or x86-64-v3 and the like; or portable */
  const char *disable; /* choices that are left out: PassOptions.disable */
  int only_tile;       /* PTX, for tests: the tile of products, from 1; 0: the best */
  int only_splits;     /* and into how many parts their sums are split; 0: one */
  bool is_quick;       /* CPU, for tests: LLVM does no more than it must */
  bool only_plan;      /* the plan alone, and no code: to reckon what a step costs */
  bool want_text;      /* fill Code.llvm and, for a CPU, Code.assembly (--emit=llvm, asm) */
  bool check_memory;   /* CPU: every access is checked to be inside of its tensor */
  int wait_polls;      /* PTX: a wait at an mbarrier takes at most so many; 0: as many as it needs */
  bool wants_cubin;    /* PTX: the artifact has machine code as well (codegen/cubin.h) */
  bool is_inference;   /* CPU: for ftrun deploy (codegen/deploy.h) */
  const Text *onnx;    /* … what the section .ft_onnx says (codegen/onnx.h); NULL: there is none */
  bool time_passes;    /* a table on stderr */
  const struct Code *before; /* what was made of the stage before; NULL: this is the first one */
} CodegenOptions;

enum { CODEGEN_PIECES = 8, CODEGEN_OBJECTS = CODEGEN_PIECES + 1 };
/* Of one stage: all of them, the last one first in this list, make one artifact. */
typedef struct Code {
  const struct Code *before; /* NULL: there is none */
  Plan *plan;
  Text llvm, assembly;          /* module text; for PTX `assembly` is the PTX without the head */
  Text object[CODEGEN_OBJECTS]; /* CPU: relocatable ELF objects that make one artifact together */
} Code;

/* The program after all passes -> plan, module, object or PTX. False with errors in diag. */
bool codegen_run(Arena *arena, Diag *diag, const Program *program, const CodegenOptions *options,
                 Code *out);
/* Writes the artifact of this and all stages before it: .ptx as text; .so by linking the objects with the system's ld. */
bool codegen_write(Diag *diag, const Code *code, const CodegenOptions *options, const char *path);
void code_free(Code *code);
/* First in main: LLVM's failures end the program with a sentence and exit code 3. */
void codegen_handle_faults(void);
/* Are --gpu and --cpu names that ft knows? NULL, or what is wrong (in the arena). */
const char *codegen_check_options(Arena *arena, const CodegenOptions *options);
/* Does the GPU have products of 8-bit floats, by instructions that we use? */
Float8Unit codegen_multiplies_float8(const CodegenOptions *options);
/* --cpu portable: the artifact for inference has its code as C, too. */
bool codegen_is_portable(const CodegenOptions *options);
#endif
