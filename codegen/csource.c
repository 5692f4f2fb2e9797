/* csource: see csource.h. A function's values are variables: those that only their own block reads are declared in
 * it, others at the function's head. Blocks are labels, and what a phi takes is assigned on the edge that leads to
 * it, in between the jump's condition and the jump: so a value is overwritten only where its block begins anew. Phis
 * that read each other go through temporaries. */
#include "codegen/csource_private.h"
#include <string.h>

CSource *csource_new(Module *module) {
  Arena *arena = arena_new();
  CSource *c = ARENA_NEW(arena, CSource);
  *c = (CSource){.module = module, .arena = arena, .layout = LLVMGetModuleDataLayout(module->llvm), .where = "this model"};
  return c;
}

void csource_free(CSource *c) {
  if (!c) return;
  text_free(&c->types);
  text_free(&c->helpers);
  text_free(&c->body);
  arena_free(c->arena);
}

const char *csource_refuse(CSource *c, const char *what, const char *name) {
  if (!c->has_failed)
    diag_error(c->module->diag, (Loc){0}, "this model cannot be written as C: %s: LLVM's code has %s %s, which has no form in C here",
               c->where, what, name);
  c->has_failed = true;
  return "?";
}

/* ── edges ──────────────────────────────────────────────────────────────────────────────────── */
static LLVMValueRef incoming_from(LLVMValueRef phi, LLVMBasicBlockRef from) {
  unsigned i = 0;
  while (LLVMGetIncomingBlock(phi, i) != from) i++;
  return LLVMGetIncomingValue(phi, i);
}

static LLVMValueRef first_phi(LLVMBasicBlockRef block) {
  LLVMValueRef first = LLVMGetFirstInstruction(block);
  return first && LLVMIsAPHINode(first) ? first : NULL;
}
static LLVMValueRef next_phi(LLVMValueRef phi) {
  LLVMValueRef next = LLVMGetNextInstruction(phi);
  return next && LLVMIsAPHINode(next) ? next : NULL;
}

/* Does some phi of the block take another one's value? */
static bool phis_meet(LLVMBasicBlockRef from, LLVMBasicBlockRef to) {
  for (LLVMValueRef phi = first_phi(to); phi; phi = next_phi(phi)) {
    LLVMValueRef value = incoming_from(phi, from);
    if (value != phi && LLVMIsAPHINode(value) && LLVMGetInstructionParent(value) == to) return true;
  }
  return false;
}

static const char *block_name(LLVMBasicBlockRef block) { return LLVMGetBasicBlockName(block); }

static void csource_edge(CSource *c, LLVMBasicBlockRef from, LLVMBasicBlockRef to, const char *indent) {
  bool meet = phis_meet(from, to);
  if (meet) text_printf(c->code, "%s{\n", indent);
  for (int round = meet ? 0 : 1; round < 2; round++)
    for (LLVMValueRef phi = first_phi(to); phi; phi = next_phi(phi)) {
      const char *name = csource_name(phi), *type = csource_type(c, LLVMTypeOf(phi));
      LLVMValueRef value = incoming_from(phi, from);
      if (value == phi || !LLVMGetFirstUse(phi)) continue;
      if (round == 0)
        text_printf(c->code, "%s  %s%snext_%s = %s;\n", indent, type, type[strlen(type) - 1] == '*' ? "" : " ", name, csource_text(c, value, false));
      else if (meet)
        text_printf(c->code, "%s  %s = next_%s;\n", indent, name, name);
      else
        text_printf(c->code, "%s%s = %s;\n", indent, name, csource_text(c, value, false));
    }
  if (meet) text_printf(c->code, "%s}\n", indent);
  text_printf(c->code, "%sgoto %s;\n", indent, block_name(to));
}

static void csource_switch(CSource *c, LLVMValueRef end, LLVMBasicBlockRef block) {
  text_printf(c->code, "    switch (%s) {\n", csource_text(c, LLVMGetOperand(end, 0), false));
  for (unsigned i = 2; i + 1 < (unsigned)LLVMGetNumOperands(end); i += 2) {
    text_printf(c->code, "    case %s:\n", csource_text(c, LLVMGetOperand(end, i), false));
    csource_edge(c, block, LLVMValueAsBasicBlock(LLVMGetOperand(end, i + 1)), "      ");
  }
  text_printf(c->code, "    default:\n");
  csource_edge(c, block, LLVMGetSwitchDefaultDest(end), "      ");
  text_printf(c->code, "    }\n");
}

static void csource_end(CSource *c, LLVMValueRef end, LLVMBasicBlockRef block, LLVMTypeRef returned) {
  switch (LLVMGetInstructionOpcode(end)) {
  case LLVMBr:
    if (!LLVMIsConditional(end)) {
      csource_edge(c, block, LLVMGetSuccessor(end, 0), "    ");
      break;
    }
    text_printf(c->code, "    if (%s) {\n", csource_text(c, LLVMGetCondition(end), false));
    csource_edge(c, block, LLVMGetSuccessor(end, 0), "      ");
    text_printf(c->code, "    }\n");
    csource_edge(c, block, LLVMGetSuccessor(end, 1), "    ");
    break;
  case LLVMSwitch:
    csource_switch(c, end, block);
    break;
  case LLVMRet:
    if (LLVMGetNumOperands(end))
      text_printf(c->code, "    return %s;\n", csource_text(c, LLVMGetOperand(end, 0), false));
    else
      text_printf(c->code, "    return;\n");
    break;
  case LLVMUnreachable: /* nothing comes here */
    if (LLVMGetTypeKind(returned) == LLVMVoidTypeKind)
      text_printf(c->code, "    return;\n");
    else
      text_printf(c->code, "    return %s;\n", csource_text(c, LLVMGetUndef(returned), false));
    break;
  default:
    csource_refuse(c, "a jump of", "this kind");
  }
}

/* ── functions ──────────────────────────────────────────────────────────────────────────────── */
static void name_value(LLVMValueRef value, const char *prefix, int number) {
  char name[32];
  snprintf(name, sizeof name, "%s%d", prefix, number);
  LLVMSetValueName2(value, name, strlen(name));
}

static void name_values(LLVMValueRef function) {
  int values = 0, blocks = 0;
  for (unsigned i = 0; i < LLVMCountParams(function); i++) name_value(LLVMGetParam(function, i), "a", (int)i);
  for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(function); b; b = LLVMGetNextBasicBlock(b)) {
    name_value(LLVMBasicBlockAsValue(b), "b", blocks++);
    for (LLVMValueRef v = LLVMGetFirstInstruction(b); v; v = LLVMGetNextInstruction(v))
      if (LLVMGetTypeKind(LLVMTypeOf(v)) != LLVMVoidTypeKind) name_value(v, "v", values++);
  }
}

/* "static float name(char *a0, uint64_t a1)" */
static void csource_head_of(CSource *c, LLVMValueRef function, const char *name, Text *out) {
  LLVMTypeRef returned = LLVMGetReturnType(LLVMGlobalGetValueType(function));
  const char *type = csource_type(c, returned);
  text_printf(out, "static %s%s%s(", type, type[strlen(type) - 1] == '*' ? "" : " ", name);
  unsigned count = LLVMCountParams(function);
  for (unsigned i = 0; i < count; i++) {
    const char *of = csource_type(c, LLVMTypeOf(LLVMGetParam(function, i)));
    text_printf(out, "%s%s%s%s", i ? ", " : "", of, of[strlen(of) - 1] == '*' ? "" : " ", csource_name(LLVMGetParam(function, i)));
  }
  text_printf(out, "%s) {\n", count ? "" : "void");
}

static void csource_block(CSource *c, LLVMBasicBlockRef block, bool is_first, LLVMTypeRef returned) {
  LLVMValueRef end = LLVMGetBasicBlockTerminator(block);
  text_printf(c->code, is_first ? "  {\n" : "%s: {\n", block_name(block));
  for (LLVMValueRef v = LLVMGetFirstInstruction(block); v && v != end && !c->has_failed; v = LLVMGetNextInstruction(v)) {
    if (!LLVMIsAPHINode(v)) {
      csource_statement(c, v);
      continue;
    }
    const char *type = csource_type(c, LLVMTypeOf(v));
    if (LLVMGetFirstUse(v)) text_printf(c->declared, "  %s%s%s;\n", type, type[strlen(type) - 1] == '*' ? "" : " ", csource_name(v));
  }
  csource_end(c, end, block, returned);
  text_printf(c->code, "  }\n");
}

static void write_function(CSource *c, LLVMValueRef function, const char *name) {
  Text declared = {0}, code = {0}, head = {0}, *before[2] = {c->declared, c->code};
  LLVMTypeRef returned = LLVMGetReturnType(LLVMGlobalGetValueType(function));
  c->declared = &declared, c->code = &code;
  name_values(function);
  csource_head_of(c, function, name, &head);
  LLVMBasicBlockRef first = LLVMGetFirstBasicBlock(function);
  for (LLVMBasicBlockRef b = first; b && !c->has_failed; b = LLVMGetNextBasicBlock(b)) csource_block(c, b, b == first, returned);
  text_append(&c->body, text_cstr(&head), head.count);
  text_append(&c->body, text_cstr(&declared), declared.count);
  for (unsigned i = 0; i < LLVMCountParams(function); i++)
    if (!LLVMGetFirstUse(LLVMGetParam(function, i))) text_printf(&c->body, "  (void)%s;\n", csource_name(LLVMGetParam(function, i)));
  text_append(&c->body, text_cstr(&code), code.count);
  text_printf(&c->body, "}\n\n");
  c->declared = before[0], c->code = before[1];
  text_free(&declared);
  text_free(&code);
  text_free(&head);
}

const char *csource_symbol(CSource *c, LLVMValueRef function) {
  for (int i = 0; i < c->symbols.count; i++)
    if (c->symbols.at[i].value == function) return c->symbols.at[i].name;
  if (!LLVMGetFirstBasicBlock(function)) return csource_refuse(c, "a call of", csource_name(function));
  char *name = arena_printf(c->arena, "ft%d_%s", c->symbols.count, csource_name(function));
  for (char *at = name; *at; at++)
    if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", *at)) *at = '_';
  VEC_PUSH(c->arena, c->symbols, ((CSourceSymbol){function, name}));
  write_function(c, function, name);
  return name;
}

const char *csource_function(CSource *c, const char *name, const char *where) {
  LLVMValueRef function = LLVMGetNamedFunction(c->module->llvm, name);
  c->where = where;
  return function ? csource_symbol(c, function) : csource_refuse(c, "no function", name);
}

bool csource_finish(CSource *c, Text *out) {
  text_append(out, csource_head, strlen(csource_head));
  text_append(out, text_cstr(&c->types), c->types.count);
  text_printf(out, "\n");
  text_append(out, text_cstr(&c->helpers), c->helpers.count);
  text_printf(out, "\n");
  text_append(out, text_cstr(&c->body), c->body.count);
  return !c->has_failed;
}
