/* codegen_gpu: runs the code made for the GPU on the host, before it becomes PTX: the optimised
 * LLVM IR, its GPU intrinsics replaced by functions here, compiled in memory. Each thread of a
 * block is a fiber, so barriers and shuffles are real, and a divergent one is reported. */
#ifndef FT_TEST_CODEGEN_GPU_H
#define FT_TEST_CODEGEN_GPU_H
#include "base/text.h"
#include "codegen/module.h"
#include <llvm-c/IRReader.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPU_STACK = 1 << 16, GPU_MAX_THREADS = 1024, GPU_MAX_ARGS = 64, GPU_MAX_COPIES = 256 };
enum { GPU_READY, GPU_AT_BARRIER, GPU_AT_EXCHANGE, GPU_DONE };

typedef struct {
  void *stack_pointer;
  int state;
  uint64_t value, lanes[32]; /* offered, and what the warp offered */
  struct {
    char *to;
    const char *from;
    int bytes, filled;    /* read; then zeros up to */
  } copy[GPU_MAX_COPIES]; /* asynchronous copies under way: they happen as late as they may */
  int copies, group_end[8], groups;
} GpuThread;

static struct {
  GpuThread thread[GPU_MAX_THREADS];
  char *stacks;
  void *scheduler;
  int current, count;
  unsigned block[3];
  void *address, **args;
  int arg_count;
} gpu;

/* Saves the callee-saved registers and the stack of the running fiber, goes on with another. */
void gpu_switch(void **save, void *load);
__asm__(".text\n.type gpu_switch,@function\ngpu_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");

static void gpu_wait(int state) {
  GpuThread *self = &gpu.thread[gpu.current];
  self->state = state;
  gpu_switch(&self->stack_pointer, gpu.scheduler);
}

static void gpu_barrier(void) { gpu_wait(GPU_AT_BARRIER); }
static void gpu_bar_sync(int32_t id) {
  (void)id;
  gpu_wait(GPU_AT_BARRIER);
}
static uint64_t *gpu_exchange(uint64_t value) {
  gpu.thread[gpu.current].value = value;
  gpu_wait(GPU_AT_EXCHANGE);
  return gpu.thread[gpu.current].lanes;
}
static int32_t gpu_shuffle_i32(int32_t members, int32_t value, int32_t mask, int32_t clamp) {
  (void)members, (void)clamp;
  int lane = gpu.current % 32;
  return (int32_t)gpu_exchange((uint32_t)value)[lane ^ mask];
}
static float gpu_shuffle_f32(int32_t members, float value, int32_t mask, int32_t clamp) {
  int32_t bits;
  memcpy(&bits, &value, sizeof bits);
  bits = gpu_shuffle_i32(members, bits, mask, clamp);
  memcpy(&value, &bits, sizeof bits);
  return value;
}
static int32_t gpu_ballot(int32_t members, bool vote) {
  (void)members;
  uint64_t *lanes = gpu_exchange(vote);
  uint32_t bits = 0;
  for (int i = 0; i < 32; i++) bits |= (uint32_t)(lanes[i] & 1) << i;
  return (int32_t)bits;
}
static void gpu_warp_sync(int32_t members) {
  (void)members;
  gpu_exchange(0);
}
/* cp.async */
static void gpu_copy(void *to, const void *from, int filled, int bytes) {
  GpuThread *self = &gpu.thread[gpu.current];
  if (self->copies == GPU_MAX_COPIES || (uintptr_t)to % (unsigned)filled ||
      (uintptr_t)from % (unsigned)filled || bytes < 0 || bytes > filled) {
    fprintf(stderr, "codegen_gpu: a bad asynchronous copy\n");
    abort();
  }
  int at = self->copies++;
  self->copy[at].to = to;
  self->copy[at].from = from;
  self->copy[at].bytes = bytes;
  self->copy[at].filled = filled;
}
static void gpu_copy4(void *to, const void *from, int32_t bytes) { gpu_copy(to, from, 4, bytes); }
static void gpu_copy16(void *to, const void *from, int32_t bytes) { gpu_copy(to, from, 16, bytes); }
static void gpu_commit(void) {
  GpuThread *self = &gpu.thread[gpu.current];
  self->group_end[self->groups++] = self->copies;
}
static void gpu_wait_group(int32_t open) {
  GpuThread *self = &gpu.thread[gpu.current];
  int done = self->groups - open;
  if (done <= 0) return;
  int count = self->group_end[done - 1];
  for (int i = 0; i < count; i++) {
    if (self->copy[i].bytes)
      memcpy(self->copy[i].to, self->copy[i].from, (size_t)self->copy[i].bytes);
    memset(self->copy[i].to + self->copy[i].bytes, 0,
           (size_t)(self->copy[i].filled - self->copy[i].bytes));
  }
  self->copies -= count;
  memmove(self->copy, self->copy + count, sizeof *self->copy * (size_t)self->copies);
  self->groups = open;
  for (int i = 0; i < open; i++) self->group_end[i] = self->group_end[i + done] - count;
}
/* ldmatrix .x4: lane i names row i % 8 of matrix i / 8, eight elements of 16 bits. */
static void gpu_matrices(uint32_t *out, char *row, int32_t is_across) {
  uint64_t *rows = gpu_exchange((uintptr_t)row);
  int lane = gpu.current % 32;
  for (int m = 0; m < 4; m++) {
    if (rows[m * 8 + lane % 8] % 16) fprintf(stderr, "codegen_gpu: a bad matrix row\n"), abort();
    if (is_across) {
      uint16_t pair[2];
      for (int h = 0; h < 2; h++)
        memcpy(&pair[h], (char *)(uintptr_t)rows[m * 8 + lane % 4 * 2 + h] + lane / 4 * 2, 2);
      out[m] = pair[0] | (uint32_t)pair[1] << 16;
    } else {
      memcpy(&out[m], (char *)(uintptr_t)rows[m * 8 + lane / 4] + lane % 4 * 4, 4);
    }
  }
}

enum { GPU_F16, GPU_BF16, GPU_TF32 };
static float gpu_operand(int kind, uint32_t word, int half) {
  uint16_t bits = (uint16_t)(word >> 16 * half);
  float value;
  _Float16 narrow;
  if (kind == GPU_F16) return memcpy(&narrow, &bits, 2), (float)narrow;
  if (kind == GPU_BF16) word = (uint32_t)bits << 16;
  if (kind == GPU_TF32 && word & 0x1fff) fprintf(stderr, "codegen_gpu: not tf32\n"), abort();
  return memcpy(&value, &word, 4), value;
}

/* mma.m16n8k16 (tf32: k8): lane 4 g + t has rows g and g + 8, columns 2t and 2t + 1 of the sums. */
static void gpu_mma(float *sum, int32_t kind, const uint32_t *words) {
  uint32_t all[32][6];
  for (int pair = 0; pair < 3; pair++) {
    uint64_t *lanes = gpu_exchange(words[2 * pair] | (uint64_t)words[2 * pair + 1] << 32);
    for (int i = 0; i < 32; i++)
      all[i][2 * pair] = (uint32_t)lanes[i], all[i][2 * pair + 1] = (uint32_t)(lanes[i] >> 32);
  }
  int lane = gpu.current % 32, per = kind == GPU_TF32 ? 1 : 2;
  for (int e = 0; e < 4; e++) {
    int row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
    for (int k = 0; k < 8 * per; k++) {
      int at = k % (4 * per) / per, high = k / (4 * per);
      float a = gpu_operand(kind, all[row % 8 * 4 + at][row / 8 + 2 * high], k % per);
      float b = gpu_operand(kind, all[column * 4 + at][4 + high], k % per);
      sum[e] += a * b;
    }
  }
}
static int32_t gpu_round_tf32(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return (int32_t)(value == value ? (bits + 0x1000) & ~0x1fffu : bits & ~0x1fffu);
}
/* A pair of bf16: LLVM returns it where C does a float, the second operand in the lower half. */
static uint32_t gpu_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return value == value ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fff;
}
static int32_t gpu_permute(int32_t low, int32_t high, int32_t selector) {
  uint64_t bytes = (uint64_t)(uint32_t)high << 32 | (uint32_t)low;
  uint32_t result = 0;
  for (int e = 0; e < 4; e++) result |= (uint32_t)(bytes >> (selector >> (4 * e) & 7) * 8 & 0xff) << (8 * e);
  return (int32_t)result;
}
static float gpu_pair_bf16(float high, float low) {
  uint32_t bits = gpu_bf16(high) << 16 | gpu_bf16(low);
  float pair;
  memcpy(&pair, &bits, 4);
  return pair;
}
/* What LLVM calls on processors without AVX512_BF16; it takes the number from where C returns a float. */
static float gpu_narrow_bf16(float value) {
  uint32_t bits = gpu_bf16(value);
  memcpy(&value, &bits, 4);
  return value;
}
static int32_t gpu_thread_x(void) { return gpu.current; }
static int32_t gpu_block_x(void) { return (int32_t)gpu.block[0]; }
static int32_t gpu_block_y(void) { return (int32_t)gpu.block[1]; }
static int32_t gpu_block_z(void) { return (int32_t)gpu.block[2]; }

static const struct {
  const char *intrinsic, *name;
  void *address;
} gpu_functions[] = {
    {"@llvm.nvvm.read.ptx.sreg.tid.x", "gpu_thread_x", gpu_thread_x},
    {"@llvm.nvvm.read.ptx.sreg.ctaid.x", "gpu_block_x", gpu_block_x},
    {"@llvm.nvvm.read.ptx.sreg.ctaid.y", "gpu_block_y", gpu_block_y},
    {"@llvm.nvvm.read.ptx.sreg.ctaid.z", "gpu_block_z", gpu_block_z},
    {"@llvm.nvvm.shfl.sync.bfly.i32", "gpu_shuffle_i32", gpu_shuffle_i32},
    {"@llvm.nvvm.shfl.sync.bfly.f32", "gpu_shuffle_f32", gpu_shuffle_f32},
    {"@llvm.nvvm.vote.ballot.sync", "gpu_ballot", gpu_ballot},
    {"@llvm.nvvm.barrier0", "gpu_barrier", gpu_barrier},
    {"@llvm.nvvm.bar.sync", "gpu_bar_sync", gpu_bar_sync},
    {"@llvm.nvvm.bar.warp.sync", "gpu_warp_sync", gpu_warp_sync},
    {"@__truncsfbf2", "__truncsfbf2", gpu_narrow_bf16},
    {"@llvm.nvvm.ex2.approx.ftz.f", "exp2f", exp2f},
    {"@llvm.nvvm.lg2.approx.ftz.f", "log2f", log2f},
    {"@llvm.nvvm.f2tf32.rna", "gpu_round_tf32", gpu_round_tf32},
    {"@llvm.nvvm.ff2bf16x2.rn", "gpu_pair_bf16", gpu_pair_bf16},
    {"@llvm.nvvm.prmt", "gpu_permute", gpu_permute},
    {"@gpu_matrices", "gpu_matrices", gpu_matrices},
    {"@gpu_mma", "gpu_mma", gpu_mma},
    {"@llvm.nvvm.cp.async.ca.shared.global.4.s", "gpu_copy4", gpu_copy4},
    {"@llvm.nvvm.cp.async.ca.shared.global.16.s", "gpu_copy16", gpu_copy16},
    {"@llvm.nvvm.cp.async.cg.shared.global.16.s", "gpu_copy16b", gpu_copy16},
    {"@llvm.nvvm.cp.async.commit.group", "gpu_commit", gpu_commit},
    {"@llvm.nvvm.cp.async.wait.group", "gpu_wait_group", gpu_wait_group},
};
/* Those that give several values, which C and LLVM return differently: functions in LLVM's
 * language. */
static const struct {
  const char *intrinsic, *name;
} gpu_wrapped[] = {
    {"@llvm.nvvm.mma.m16n8k16.row.col.f32.f32", "@ir_mma_f16"},
    {"@llvm.nvvm.mma.m16n8k16.row.col.bf16", "@ir_mma_bf16"},
    {"@llvm.nvvm.mma.m16n8k8.row.col.tf32", "@ir_mma_tf32"},
    {"@llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3", "@ir_matrices"},
    {"@llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3", "@ir_matrices_across"},
};
enum { GPU_WRAPPED = sizeof gpu_wrapped / sizeof *gpu_wrapped };

static void gpu_write_wrappers(Text *out) {
  text_printf(
      out, "\ndeclare void @gpu_mma(ptr, i32, ptr)\ndeclare void @gpu_matrices(ptr, ptr, i32)\n");
  for (int kind = GPU_F16; kind <= GPU_TF32; kind++) {
    const char *type = kind == GPU_F16 ? "<2 x half>" : "i32";
    text_printf(out, "define internal { float, float, float, float } %s(", gpu_wrapped[kind].name);
    for (int i = 0; i < 6; i++) text_printf(out, "%s %%w%d, ", type, i);
    text_printf(out, "float %%c0, float %%c1, float %%c2, float %%c3) {\n"
                     "%%s = alloca [4 x float]\n%%w = alloca [6 x i32]\n");
    for (int i = 0; i < 6; i++)
      text_printf(out, "%%pw%d = getelementptr i32, ptr %%w, i32 %d\nstore %s %%w%d, ptr %%pw%d\n",
                  i, i, type, i, i);
    for (int i = 0; i < 4; i++)
      text_printf(out,
                  "%%ps%d = getelementptr float, ptr %%s, i32 %d\nstore float %%c%d, ptr %%ps%d\n",
                  i, i, i, i);
    text_printf(out,
                "call void @gpu_mma(ptr %%s, i32 %d, ptr %%w)\n"
                "%%r = load { float, float, float, float }, ptr %%s\n"
                "ret { float, float, float, float } %%r\n}\n",
                kind);
  }
  for (int across = 0; across < 2; across++)
    text_printf(out,
                "define internal { i32, i32, i32, i32 } %s(ptr %%row) {\n"
                "%%s = alloca [4 x i32]\ncall void @gpu_matrices(ptr %%s, ptr %%row, i32 %d)\n"
                "%%r = load { i32, i32, i32, i32 }, ptr %%s\n"
                "ret { i32, i32, i32, i32 } %%r\n}\n",
                gpu_wrapped[3 + across].name, across);
}

enum { GPU_FUNCTIONS = sizeof gpu_functions / sizeof *gpu_functions };

static void gpu_replace(Text *out, const char *text) {
  static const struct {
    const char *from, *to;
  } plain[] = {
      {"ptr addrspace(3)", "ptr"},
      {"addrspace(3) ", ""},
      {"ptr addrspace(1)", "ptr"},
      {"addrspacecast", "bitcast"},
      {"external dso_local addrspace(3) global [0 x i8]", "internal global [114688 x i8] undef"},
      {"external addrspace(3) global [0 x i8]", "internal global [114688 x i8] undef"},
      {"ptx_kernel ", ""},
      {"\"target-features\"=\"+ptx70\"", ""},
      {"\"target-cpu\"=\"sm_80\"", ""},
  };
  while (*text) {
    size_t same = strcspn(text, "\n@pae\""); /* how each of the texts below begins */
    text_append(out, text, same);
    text += same;
    if (!*text) break;
    if (!strncmp(text, "\ntarget ", 8)) { /* layout and triple: the host's */
      text = strchr(text + 1, '\n');
      continue;
    }
    if (!strncmp(text, "\ndeclare { ", 11)) { /* defined below */
      text = strchr(text + 1, '\n');
      continue;
    }
    bool found = false;
    for (int i = 0; !found && i < GPU_WRAPPED; i++) {
      size_t length = strlen(gpu_wrapped[i].intrinsic);
      if (strncmp(text, gpu_wrapped[i].intrinsic, length)) continue;
      text_append(out, gpu_wrapped[i].name, strlen(gpu_wrapped[i].name));
      text += length;
      found = true;
    }
    for (size_t i = 0; !found && i < sizeof plain / sizeof *plain; i++) {
      size_t length = strlen(plain[i].from);
      if (strncmp(text, plain[i].from, length)) continue;
      text_append(out, plain[i].to, strlen(plain[i].to));
      text += length;
      found = true;
    }
    for (int i = 0; !found && i < GPU_FUNCTIONS; i++) {
      size_t length = strlen(gpu_functions[i].intrinsic);
      if (strncmp(text, gpu_functions[i].intrinsic, length)) continue;
      text_printf(out, "@%s", gpu_functions[i].name);
      text += length;
      found = true;
    }
    if (!found) text_append(out, text++, 1);
  }
  gpu_write_wrappers(out);
}

static void gpu_check(LLVMErrorRef error) {
  if (!error) return;
  fprintf(stderr, "codegen_gpu: %s\n", LLVMGetErrorMessage(error));
  abort();
}

/* This machine's back end, which does little: what is tested is the code before it, and most
 * kernels run once. */
static LLVMOrcJITTargetMachineBuilderRef gpu_machine(void) {
  char *triple = LLVMGetDefaultTargetTriple(), *message = NULL;
  char *cpu = LLVMGetHostCPUName(), *features = LLVMGetHostCPUFeatures();
  LLVMTargetRef target;
  if (LLVMGetTargetFromTriple(triple, &target, &message)) {
    fprintf(stderr, "codegen_gpu: %s\n", message);
    abort();
  }
  LLVMTargetMachineRef machine =
      LLVMCreateTargetMachine(target, triple, cpu, features, LLVMCodeGenLevelNone, LLVMRelocPIC,
                              LLVMCodeModelJITDefault);
  LLVMDisposeMessage(triple), LLVMDisposeMessage(cpu), LLVMDisposeMessage(features);
  return LLVMOrcJITTargetMachineBuilderCreateFromTargetMachine(machine);
}

/* The module, ready to run. Its entries are found with gpu_kernel. */
static inline LLVMOrcLLJITRef gpu_load(LLVMModuleRef module) {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  char *printed = LLVMPrintModuleToString(module);
  Text text = {0};
  gpu_replace(&text, printed);
  LLVMDisposeMessage(printed);
  LLVMOrcThreadSafeContextRef safe = LLVMOrcCreateNewThreadSafeContext();
  LLVMContextRef context = LLVMOrcThreadSafeContextGetContext(safe);
  LLVMMemoryBufferRef buffer =
      LLVMCreateMemoryBufferWithMemoryRangeCopy(text_cstr(&text), text.count, "gpu");
  LLVMModuleRef parsed;
  char *message = NULL;
  if (LLVMParseIRInContext(context, buffer, &parsed, &message)) {
    fprintf(stderr, "codegen_gpu: %s\n", message);
    abort();
  }
  text_free(&text);
  LLVMOrcLLJITRef jit;
  LLVMOrcLLJITBuilderRef builder = LLVMOrcCreateLLJITBuilder();
  LLVMOrcLLJITBuilderSetJITTargetMachineBuilder(builder, gpu_machine());
  gpu_check(LLVMOrcCreateLLJIT(&jit, builder));
  LLVMOrcJITDylibRef library = LLVMOrcLLJITGetMainJITDylib(jit);
  LLVMOrcCSymbolMapPair symbols[GPU_FUNCTIONS + 4];
  for (int i = 0; i < GPU_FUNCTIONS; i++)
    symbols[i] =
        (LLVMOrcCSymbolMapPair){LLVMOrcLLJITMangleAndIntern(jit, gpu_functions[i].name),
                                {(LLVMOrcExecutorAddress)(uintptr_t)gpu_functions[i].address,
                                 {LLVMJITSymbolGenericFlagsExported, 0}}};
  gpu_check(LLVMOrcJITDylibDefine(library, LLVMOrcAbsoluteSymbols(symbols, GPU_FUNCTIONS)));
  LLVMOrcDefinitionGeneratorRef process; /* memcpy, fmaf and the like */
  gpu_check(LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(
      &process, LLVMOrcLLJITGetGlobalPrefix(jit), NULL, NULL));
  LLVMOrcJITDylibAddGenerator(library, process);
  gpu_check(
      LLVMOrcLLJITAddLLVMIRModule(jit, library, LLVMOrcCreateNewThreadSafeModule(parsed, safe)));
  LLVMOrcDisposeThreadSafeContext(safe);
  return jit;
}

static inline void *gpu_kernel(LLVMOrcLLJITRef jit, const char *name) {
  LLVMOrcExecutorAddress address;
  gpu_check(LLVMOrcLLJITLookup(jit, &address, name));
  return (void *)(uintptr_t)address;
}

/* More pointers than the kernel takes do no harm in this calling convention. */
#define GPU_P8 void *, void *, void *, void *, void *, void *, void *, void *
#define GPU_A8(i) a[i], a[i + 1], a[i + 2], a[i + 3], a[i + 4], a[i + 5], a[i + 6], a[i + 7]
static void gpu_fiber(void) {
  void **a = gpu.args;
  typedef void Kernel(GPU_P8, GPU_P8, GPU_P8, GPU_P8, GPU_P8, GPU_P8, GPU_P8, GPU_P8);
  ((Kernel *)gpu.address)(GPU_A8(0), GPU_A8(8), GPU_A8(16), GPU_A8(24), GPU_A8(32), GPU_A8(40),
                          GPU_A8(48), GPU_A8(56));
  gpu_wait(GPU_DONE);
}

static void gpu_start_thread(int i) {
  uintptr_t top = (uintptr_t)gpu.stacks + (uintptr_t)(i + 1) * GPU_STACK;
  void **stack = (void **)(top & ~(uintptr_t)15);
  *--stack = NULL; /* as if called */
  *--stack = (void *)(uintptr_t)gpu_fiber;
  for (int k = 0; k < 6; k++) *--stack = NULL;
  gpu.thread[i].stack_pointer = stack;
  gpu.thread[i].state = GPU_READY;
  gpu.thread[i].copies = gpu.thread[i].groups = 0;
}

static void gpu_run_until_wait(int i) {
  gpu.current = i;
  gpu.thread[i].state = GPU_READY;
  gpu_switch(&gpu.scheduler, gpu.thread[i].stack_pointer);
}

/* NULL, or what went wrong. */
static const char *gpu_settle(void) {
  for (int warp = 0; warp < gpu.count; warp += 32) {
    int exchanging = 0, others = 0;
    for (int i = warp; i < warp + 32; i++)
      gpu.thread[i].state == GPU_AT_EXCHANGE ? exchanging++ : others++;
    if (!exchanging) continue;
    if (others) return "a shuffle that not all lanes of a warp reach";
    uint64_t lanes[32];
    for (int i = 0; i < 32; i++) lanes[i] = gpu.thread[warp + i].value;
    for (int i = warp; i < warp + 32; i++) {
      memcpy(gpu.thread[i].lanes, lanes, sizeof lanes);
      gpu.thread[i].state = GPU_READY;
    }
  }
  int waiting = 0, ready = 0, done = 0;
  for (int i = 0; i < gpu.count; i++) {
    waiting += gpu.thread[i].state == GPU_AT_BARRIER;
    ready += gpu.thread[i].state == GPU_READY;
    done += gpu.thread[i].state == GPU_DONE;
  }
  if (ready || !waiting) return NULL;
  if (done) return "a barrier that not all threads reach";
  for (int i = 0; i < gpu.count; i++) gpu.thread[i].state = GPU_READY;
  return NULL;
}

static inline const char *gpu_launch(void *address, const KernelLaunch *launch, void **args) {
  if (!gpu.stacks) gpu.stacks = malloc((size_t)GPU_STACK * GPU_MAX_THREADS);
  gpu.address = address;
  gpu.args = args;
  gpu.count = (int)launch->block[0];
  for (gpu.block[2] = 0; gpu.block[2] < launch->grid[2]; gpu.block[2]++)
    for (gpu.block[1] = 0; gpu.block[1] < launch->grid[1]; gpu.block[1]++)
      for (gpu.block[0] = 0; gpu.block[0] < launch->grid[0]; gpu.block[0]++) {
        for (int i = 0; i < gpu.count; i++) gpu_start_thread(i);
        for (bool any = true; any;) {
          any = false;
          for (int i = 0; i < gpu.count; i++)
            if (gpu.thread[i].state == GPU_READY) gpu_run_until_wait(i);
          const char *wrong = gpu_settle();
          if (wrong) return wrong;
          for (int i = 0; i < gpu.count; i++) any = any || gpu.thread[i].state == GPU_READY;
        }
      }
  return NULL;
}
#endif
