/* module: making functions with the target's attributes, and linking the bitcode of kernels/ in.
 * Invariant: after module_link every function but the kernels is internal and carries the same CPU
 * attributes, so that LLVM may inline across the border between C and generated code. */
#include "codegen/module.h"
#include "codegen/target.h"
#include "passes/pass.h"
#include <llvm-c/BitReader.h>
#include <llvm-c/Linker.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* From the build: every kernels/<name>.c as bitcode <name>_host and <name>_ptx, kernels/..._x86.c
 * together as objects x86_v1, x86_v3 and x86_v4 and as bitcode x86_portable; the last row is empty. */
extern const struct EmbeddedFile {
  const char *name, *start, *end;
} embed_kernels[];

static const struct EmbeddedFile *find_embedded(const char *name) {
  const struct EmbeddedFile *file = embed_kernels;
  while (file->name && strcmp(file->name, name)) file++;
  return file->name ? file : NULL;
}

static void add_attribute(Module *module, LLVMValueRef function, const char *name,
                          const char *value) {
  LLVMAttributeRef attribute = LLVMCreateStringAttribute(
      module->context, name, (unsigned)strlen(name), value, (unsigned)strlen(value));
  LLVMAddAttributeAtIndex(function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, attribute);
}

static void add_enum_attribute(Module *module, LLVMValueRef function, unsigned index,
                               const char *name, uint64_t value) {
  unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
  LLVMAddAttributeAtIndex(function, index, LLVMCreateEnumAttribute(module->context, kind, value));
}

bool module_leaves_out(const Module *module, const char *choice) {
  return text_has_word(module->options->disable, choice);
}

bool module_has_tiles(const Module *module) { return module->vector_bytes >= 32 || module->is_portable; }

void module_parameter(Module *module, LLVMValueRef function, int parameter, const char *name,
                      uint64_t value) {
  add_enum_attribute(module, function, (unsigned)parameter + 1, name, value);
}

/* The same for all functions of the module, generated or from kernels/. */
static void set_target_attributes(Module *module, LLVMValueRef function) {
  static const char *const foreign[] = {"target-cpu",
                                        "target-features",
                                        "tune-cpu",
                                        "no-builtins",
                                        "stack-protector-buffer-size",
                                        "min-legal-vector-width",
                                        "frame-pointer"};
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
    LLVMRemoveStringAttributeAtIndex(function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                                     foreign[i], (unsigned)strlen(foreign[i]));
  add_attribute(module, function, "target-cpu", module->cpu);
  if (module->features && *module->features)
    add_attribute(module, function, "target-features", module->features);
  if (module->target != TARGET_CPU) return;
  if (module->tune) add_attribute(module, function, "tune-cpu", module->tune);
  char width[16];
  snprintf(width, sizeof width, "%d", module->vector_bytes * 8);
  add_attribute(module, function, "prefer-vector-width", width);
}

LLVMValueRef module_function(Module *module, const char *symbol, LLVMTypeRef type) {
  LLVMValueRef function = LLVMGetNamedFunction(module->llvm, symbol);
  if (function) return function;
  module->needs_math = true;
  return LLVMAddFunction(module->llvm, symbol, type);
}

LLVMValueRef module_library(Module *module, const char *symbol, LLVMTypeRef type) {
  LLVMValueRef function = LLVMGetNamedFunction(module->llvm, symbol);
  if (function) return function;
  module->needs_library = true;
  if (!type) type = LLVMFunctionType(module->nothing, NULL, 0, false);
  function = LLVMAddFunction(module->llvm, symbol, type);
  LLVMSetVisibility(function, LLVMHiddenVisibility);
  return function;
}

const char *module_library_object(const Module *module, size_t *bytes) {
  const char *wanted = module->vector_bytes >= 64   ? "x86_v4"
                       : module->vector_bytes >= 32 ? "x86_v3"
                                                    : "x86_v1";
  bool is_apart = module->needs_library && !module->is_portable;
  const struct EmbeddedFile *file = is_apart ? find_embedded(wanted) : NULL;
  if (!file) return NULL;
  *bytes = (size_t)(file->end - file->start);
  return file->start;
}

LLVMValueRef module_kernel(Module *module, const char *name, LLVMTypeRef type) {
  LLVMValueRef function = LLVMAddFunction(module->llvm, name, type);
  add_enum_attribute(module, function, (unsigned)LLVMAttributeFunctionIndex, "nounwind", 0);
  VEC_PUSH(module->arena, module->kernels, arena_strdup(module->arena, name));
  return function;
}

LLVMValueRef module_helper(Module *module, const char *name, LLVMTypeRef type) {
  LLVMValueRef function = LLVMGetNamedFunction(module->llvm, name);
  if (!function) function = LLVMAddFunction(module->llvm, name, type);
  add_enum_attribute(module, function, (unsigned)LLVMAttributeFunctionIndex, "alwaysinline", 0);
  add_enum_attribute(module, function, (unsigned)LLVMAttributeFunctionIndex, "nounwind", 0);
  return function;
}

LLVMBuilderRef module_begin(Module *module, LLVMValueRef function) {
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(module->context);
  LLVMPositionBuilderAtEnd(builder,
                           LLVMAppendBasicBlockInContext(module->context, function, "entry"));
  return builder;
}

void module_load_pointers(Module *module, LLVMBuilderRef builder, LLVMValueRef array, int count,
                          LLVMValueRef *out) {
  for (int i = 0; i < count; i++) {
    LLVMValueRef at = LLVMConstInt(module->i64, (unsigned)i, false);
    LLVMValueRef slot = LLVMBuildInBoundsGEP2(builder, module->pointer, array, &at, 1, "");
    out[i] = LLVMBuildLoad2(builder, module->pointer, slot, "");
  }
}

LLVMValueRef module_constant(Module *module, const char *name, LLVMValueRef *field, int count) {
  LLVMValueRef value = LLVMConstStructInContext(module->context, field, (unsigned)count, false);
  LLVMValueRef constant = LLVMAddGlobal(module->llvm, LLVMTypeOf(value), name);
  LLVMSetInitializer(constant, value);
  LLVMSetGlobalConstant(constant, true);
  LLVMSetLinkage(constant, LLVMInternalLinkage);
  return constant;
}

void module_error(Module *module, const char *what, const char *detail) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* all modules share one Diag */
  pthread_mutex_lock(&lock);
  diag_error(module->diag, (Loc){0}, "internal error: %s: %s", what, detail);
  pthread_mutex_unlock(&lock);
}

static LLVMModuleRef parse_embedded(Module *module, const char *name, const char *form) {
  char full[128];
  snprintf(full, sizeof full, "%s_%s", name, form);
  const struct EmbeddedFile *file = find_embedded(full);
  LLVMModuleRef parsed = NULL;
  if (file) {
    LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRange(
        file->start, (size_t)(file->end - file->start), full, false);
    bool failed = LLVMParseBitcodeInContext2(module->context, buffer, &parsed);
    LLVMDisposeMemoryBuffer(buffer);
    if (!failed) return parsed;
  }
  module_error(module, "this bitcode of a kernel is missing or damaged", full);
  return NULL;
}

static const char *bitcode_form(const Module *module) { return module->target == TARGET_PTX ? "ptx" : "host"; }

static void rename_with_prefix(LLVMValueRef value, const char *prefix, const char *suffix) {
  size_t length;
  const char *name = LLVMGetValueName2(value, &length);
  char fresh[256];
  if (strncmp(name, prefix, strlen(prefix))) return;
  snprintf(fresh, sizeof fresh, "%s%s", name, suffix);
  LLVMSetValueName2(value, fresh, strlen(fresh));
}

void module_specialise(Module *module, const char *name, const char *prefix, const char *suffix) {
  ModuleBody body = {name, prefix, arena_strdup(module->arena, suffix), {0}};
  VEC_PUSH(module->arena, module->bodies, body);
}

void module_define_constants(Module *module, const char *suffix, const Constant *constants, int count) {
  int last = module->bodies.count - 1;
  while (strcmp(module->bodies.at[last].suffix, suffix)) last--;
  for (int i = 0; i < count; i++) {
    Constant constant = {arena_strdup(module->arena, constants[i].name), constants[i].value};
    VEC_PUSH(module->arena, module->bodies.at[last].constants, constant);
  }
}

/* Calls of a body's constants become numbers before anything is inlined: they are half of all its calls. */
static void put_constants(const ModuleBody *body, LLVMModuleRef parsed) {
  for (int i = 0; i < body->constants.count; i++) {
    LLVMValueRef function = LLVMGetNamedFunction(parsed, body->constants.at[i].name);
    for (LLVMUseRef use; function && (use = LLVMGetFirstUse(function));) {
      LLVMValueRef call = LLVMGetUser(use);
      uint64_t value = (uint64_t)body->constants.at[i].value;
      LLVMReplaceAllUsesWith(call, LLVMConstInt(LLVMTypeOf(call), value, true));
      LLVMInstructionEraseFromParent(call);
    }
    if (function) LLVMDeleteFunction(function);
  }
}

static bool link_body(Module *module, const ModuleBody *body) {
  LLVMModuleRef parsed = parse_embedded(module, body->name, bitcode_form(module));
  if (!parsed) return false;
  put_constants(body, parsed);
  for (LLVMValueRef f = LLVMGetFirstFunction(parsed); f; f = LLVMGetNextFunction(f))
    rename_with_prefix(f, body->prefix, body->suffix);
  for (LLVMValueRef g = LLVMGetFirstGlobal(parsed); g; g = LLVMGetNextGlobal(g))
    rename_with_prefix(g, body->prefix, body->suffix);
  /* math functions that the body calls come with the math bitcode */
  for (LLVMValueRef f = LLVMGetFirstFunction(parsed); f; f = LLVMGetNextFunction(f)) {
    size_t length;
    if (LLVMIsDeclaration(f) && !strncmp(LLVMGetValueName2(f, &length), "ft_", 3))
      module->needs_math = true;
  }
  return !LLVMLinkModules2(module->llvm, parsed);
}

static bool is_kernel(const Module *module, const char *name) {
  for (int i = 0; i < module->kernels.count; i++)
    if (!strcmp(module->kernels.at[i], name)) return true;
  return false;
}

static bool link_embedded(Module *module, const char *name, const char *form) {
  LLVMModuleRef parsed = parse_embedded(module, name, form);
  return parsed && !LLVMLinkModules2(module->llvm, parsed);
}

bool module_link(Module *module) {
  for (int i = 0; i < module->bodies.count; i++)
    if (!link_body(module, &module->bodies.at[i])) return false;
  if (module->needs_math && !link_embedded(module, "math", bitcode_form(module))) return false;
  if (module->is_portable && module->needs_library && !link_embedded(module, "x86", "portable")) return false;
  for (LLVMValueRef f = LLVMGetFirstFunction(module->llvm); f; f = LLVMGetNextFunction(f)) {
    size_t length;
    if (LLVMIsDeclaration(f)) continue;
    set_target_attributes(module, f);
    bool is_entry = is_kernel(module, LLVMGetValueName2(f, &length));
    if (!is_entry) LLVMSetLinkage(f, LLVMInternalLinkage);
    if (is_entry && module->target == TARGET_PTX) LLVMSetFunctionCallConv(f, PTX_CALL_KERNEL);
  }
  return true;
}
