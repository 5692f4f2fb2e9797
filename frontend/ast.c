/* ast: see ast.h. Building nodes keeps their depth up to date; the parser refuses trees deeper
 * than AST_MAX_DEPTH, so everything here and in the evaluator may recurse. */
#include "frontend/ast.h"
#include "base/text.h"
#include <math.h>
#include <string.h>

static const char *const ast_kind_text[AST_COUNT] = {
#define X(ID, text) text,
    AST_KINDS(X)
#undef X
};

Ast *ast_leaf(Arena *arena, AstKind kind, Loc loc, const char *name) {
  Ast *ast = ARENA_NEW(arena, Ast);
  ast->kind = kind;
  ast->loc = loc;
  ast->name = name;
  ast->depth = 1;
  return ast;
}

static void take_kid(Ast *parent, int index, Ast *kid) {
  parent->kid[index] = kid;
  if (kid && kid->depth >= parent->depth) parent->depth = kid->depth + 1;
}

Ast *ast_node(Arena *arena, AstKind kind, Loc loc, const char *name, int count, ...) {
  Ast *ast = ast_leaf(arena, kind, loc, name);
  ast->count = count;
  ast->kid = ARENA_ARRAY(arena, Ast *, count);
  va_list kids;
  va_start(kids, count);
  for (int i = 0; i < count; i++) take_kid(ast, i, va_arg(kids, Ast *));
  va_end(kids);
  return ast;
}

Ast *ast_list(Arena *arena, AstKind kind, Loc loc, const char *name, const AstVec *kids) {
  Ast *ast = ast_leaf(arena, kind, loc, name);
  if (!kids) return ast;
  ast->count = kids->count;
  ast->kid = ARENA_ARRAY(arena, Ast *, kids->count);
  for (int i = 0; i < kids->count; i++) take_kid(ast, i, kids->at[i]);
  return ast;
}

void ast_adopt(Arena *arena, Ast *parent, Ast *kid) {
  Ast **kids = ARENA_ARRAY(arena, Ast *, parent->count + 1);
  if (parent->count) memcpy(kids, parent->kid, sizeof(Ast *) * (size_t)parent->count);
  parent->kid = kids;
  take_kid(parent, parent->count++, kid);
}

/* ── the tree ─────────────────────────────────────────────────────────────────────────────── */
/* As the language has it: what the lexer reads back. */
static void write_string(Text *out, const char *text) {
  text_append(out, "\"", 1);
  for (const char *c = text; *c; c++) {
    if (*c == '"' || *c == '\\') text_append(out, "\\", 1);
    if (*c == '\n')
      text_append(out, "\\n", 2);
    else if (*c == '\t')
      text_append(out, "\\t", 2);
    else
      text_append(out, c, 1);
  }
  text_append(out, "\"", 1);
}

static void print_tree(const Ast *ast, int indent, FILE *out) {
  fprintf(out, "%*s", indent * 2, "");
  if (!ast) {
    fputs("-\n", out);
    return;
  }
  fputs(ast_kind_text[ast->kind], out);
  if (ast->kind == AST_STRING || ast->kind == AST_IMPORT) {
    Text text = {0};
    write_string(&text, ast->name);
    fprintf(out, " %s", text_cstr(&text));
    text_free(&text);
  } else if (ast->name) {
    fprintf(out, " %s", ast->name);
  }
  if (ast->text) fprintf(out, " as %s", ast->text);
  if (ast->kind == AST_INT || ast->kind == AST_DURATION)
    fprintf(out, " %lld", (long long)ast->integer);
  if (ast->kind == AST_BOOL) fputs(ast->integer ? " true" : " false", out);
  if (ast->kind == AST_FLOAT || ast->kind == AST_FACTOR) fprintf(out, " %.17g", ast->number);
  fprintf(out, " @%u:%u\n", ast->loc.line, ast->loc.column);
  for (int i = 0; i < ast->count; i++) print_tree(ast->kid[i], indent + 1, out);
}

void ast_print(const Ast *ast, FILE *out) { print_tree(ast, 0, out); }

/* ── an expression as text ────────────────────────────────────────────────────────────────── */
static void write_text(Text *out, const Ast *ast);

static void write_list(Text *out, const Ast *ast, int from, const char *open, const char *close) {
  text_printf(out, "%s", open);
  for (int i = from; i < ast->count; i++) {
    if (i > from) text_printf(out, ", ");
    write_text(out, ast->kid[i]);
  }
  text_printf(out, "%s", close);
}

/* What holds no other expression. */
static void write_leaf(Text *out, const Ast *ast) {
  switch (ast->kind) {
  case AST_INT:
    text_printf(out, "%lld", (long long)ast->integer);
    break;
  case AST_DURATION:
    text_printf(out, "%lld %ss", (long long)ast->integer, ast->name);
    break;
  case AST_FLOAT:
    text_printf(out, "%.9g", ast->number);
    break;
  case AST_FACTOR:
    text_printf(out, "%.9gx", ast->number);
    break;
  case AST_BOOL:
    text_printf(out, "%s", ast->integer ? "true" : "false");
    break;
  case AST_NONE:
    text_printf(out, "none");
    break;
  case AST_ELLIPSIS:
    text_printf(out, "...");
    break;
  case AST_STRING:
    write_string(out, ast->name);
    break;
  case AST_NAME:
    text_printf(out, "%s", ast->name);
    break;
  default:
    text_printf(out, "%s", ast_kind_text[ast->kind]);
  }
}

static void write_text(Text *out, const Ast *ast) {
  if (!ast) return;
  switch (ast->kind) {
  case AST_ON:
  case AST_PER:
    write_text(out, ast->kid[0]);
    text_printf(out, " %s ", ast_kind_text[ast->kind]);
    write_text(out, ast->kid[1]);
    break;
  case AST_OF:
    write_text(out, ast->kid[0]);
    if (ast->name)
      text_printf(out, " of %s", ast->name);
    else
      text_printf(out, " of %lld", (long long)ast->integer);
    if (ast->text) text_printf(out, " by %s", ast->text);
    break;
  case AST_LIST:
  case AST_SHAPE:
    write_list(out, ast, 0, "[", "]");
    break;
  case AST_TUPLE:
    write_list(out, ast, 0, "(", ")");
    break;
  case AST_TYPE:
    if (ast->name) text_printf(out, "%s", ast->name);
    write_text(out, ast->kid[0]);
    break;
  case AST_CALL:
    write_text(out, ast->kid[0]);
    write_list(out, ast, 1, "(", ")");
    break;
  case AST_INDEX:
    write_text(out, ast->kid[0]);
    write_list(out, ast, 1, "[", "]");
    break;
  case AST_KEYWORD:
  case AST_DIMENSION:
    text_printf(out, "%s=", ast->name);
    write_text(out, ast->kid[0]);
    break;
  case AST_ATTRIBUTE:
    write_text(out, ast->kid[0]);
    text_printf(out, ".%s", ast->name);
    break;
  case AST_SLICE:
    write_text(out, ast->kid[0]);
    text_printf(out, ":");
    write_text(out, ast->kid[1]);
    if (ast->kid[2]) text_printf(out, ":");
    write_text(out, ast->kid[2]);
    break;
  case AST_UNARY:
    text_printf(out, "%s%s", ast->name, ast->name[0] == 'n' ? " " : "");
    write_text(out, ast->kid[0]);
    break;
  case AST_BINARY:
    write_text(out, ast->kid[0]);
    text_printf(out, " %s ", ast->name);
    write_text(out, ast->kid[1]);
    break;
  case AST_CONDITIONAL:
    write_text(out, ast->kid[1]);
    text_printf(out, " if ");
    write_text(out, ast->kid[0]);
    text_printf(out, " else ");
    write_text(out, ast->kid[2]);
    break;
  default:
    write_leaf(out, ast);
  }
}

char *ast_to_text(Arena *arena, const Ast *ast) {
  Text text = {0};
  write_text(&text, ast);
  char *copy = arena_strdup(arena, text_cstr(&text));
  text_free(&text);
  return copy;
}

bool ast_is_call_of(const Ast *ast, const char *name) {
  return ast->kind == AST_CALL && ast->kid[0]->kind == AST_NAME && !strcmp(ast->kid[0]->name, name);
}
