/* csource_private: what the files of csource share. Texts that these functions return are in the arena. */
#ifndef FT_CODEGEN_CSOURCE_PRIVATE_H
#define FT_CODEGEN_CSOURCE_PRIVATE_H
#include "codegen/csource.h"
#include <llvm-c/Target.h>

typedef struct {
  LLVMValueRef value; /* a function or a constant of the module */
  const char *name;   /* in C */
} CSourceSymbol;

struct CSource {
  Module *module;
  Arena *arena;
  LLVMTargetDataRef layout; /* the module's */
  Text types, helpers, body;
  VEC(CSourceSymbol) symbols;
  VEC(const char *) made; /* the names of types and helpers that are there */
  const char *where;
  bool has_failed;
  Text *declared, *code; /* of the function that is being written */
};

/* An error, once; returns a text that C does not take. */
const char *csource_refuse(CSource *c, const char *what, const char *name);

/* ── types (csource_value.c) ── */
bool csource_is_vector(LLVMTypeRef type);
LLVMTypeRef csource_element(LLVMTypeRef type); /* of a vector, or the type itself */
unsigned csource_lanes(LLVMTypeRef type);      /* 1: no vector */
unsigned csource_width(LLVMTypeRef type);      /* bits of an integer; 0: it is none */
const char *csource_type(CSource *c, LLVMTypeRef type);
const char *csource_signed(CSource *c, LLVMTypeRef type);   /* int32_t for an i32 */
const char *csource_computed(CSource *c, LLVMTypeRef type); /* the unsigned type to compute in: at least 32 bits */
const char *csource_short(CSource *c, LLVMTypeRef type);    /* "f32", "u8": in names of helpers */
/* A value as an expression; by_lane: element [i] of a vector. */
const char *csource_text(CSource *c, LLVMValueRef value, bool by_lane);
const char *csource_name(LLVMValueRef value); /* of a parameter or an instruction */
/* base + offset of a GEP, an instruction or a constant. */
const char *csource_address(CSource *c, LLVMValueRef gep);
/* The constant lies in the text, before what is being written. */
const char *csource_constant(CSource *c, LLVMValueRef global);
const char *csource_symbol(CSource *c, LLVMValueRef function);

/* ── statements (csource_instruction.c, csource_call.c) ── */
void csource_statement(CSource *c, LLVMValueRef instruction);
void csource_call(CSource *c, LLVMValueRef call);
/* "  float v3 = " or "  v3 = "; without_value: "  ft_f32x16 v3;" or nothing. */
void csource_target(CSource *c, LLVMValueRef instruction, bool without_value);
/* The instruction's value is this expression, for each lane if it is a vector. */
void csource_set(CSource *c, LLVMValueRef instruction, const char *expression);
bool csource_is_local(LLVMValueRef instruction); /* all uses are in its own block */

/* ── helpers (csource_helper.c) ── */
extern const char csource_head[];
/* The helper's name, whose text is now there. */
const char *csource_helper(CSource *c, const char *name);
bool csource_make(CSource *c, const char *name); /* true the first time */
#endif
