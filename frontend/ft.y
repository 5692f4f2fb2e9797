/* ft.y: the grammar. Every action builds one Ast node. Words that begin declarations and statements
 * are not reserved (see `name`): the token after them tells. After a syntax error the parser goes
 * on at the end of the statement. */
%code requires {
#include "frontend/parse.h"
#include "frontend/syntax.h"
}
%code {
#include "frontend/ft.lex.h"
#include <string.h>

#define YYLLOC_DEFAULT(current, rhs, n) ((current) = (n) ? YYRHSLOC(rhs, 1) : YYRHSLOC(rhs, 0))
#define YYMAXDEPTH 20000

static void ft_error(FT_LTYPE *loc, void *scanner, Parser *parser, const char *message);

#define NODE(kind, loc, name, ...)                                                                 \
  parse_check(parser, ast_node(parser->arena, AST_##kind, (loc), (name), __VA_ARGS__))
#define LEAF(kind, loc, name) ast_leaf(parser->arena, AST_##kind, (loc), (name))
#define LIST(kind, loc, name, kids)                                                                \
  parse_check(parser, ast_list(parser->arena, AST_##kind, (loc), (name), (kids)))
#define BINARY(loc, operator, a, b) NODE(BINARY, loc, operator, 2, a, b)
#define APPEND(to, kid)                                                                            \
  do {                                                                                             \
    if (!(to)) (to) = ARENA_NEW(parser->arena, AstVec);                                            \
    if (kid) VEC_PUSH(parser->arena, *(to), (kid));                                                \
  } while (0)
}
%define api.pure full
%define api.prefix {ft_}
%define api.token.prefix {TOKEN_}
%define api.location.type {Loc}
%define api.value.type union
%define parse.error custom
%define parse.lac full
%locations
%param {void *scanner}
%parse-param {Parser *parser}

%token END 0 "the end of the file"
%token NEWLINE "the end of the line"
%token IMPORT "import" HYPER "hyper" PRESET "preset" BLOCK "block" FN "fn" MODEL "model"
%token DATA "data" TRAIN "train" DISTRIBUTED "distributed" TUNE "tune"
%token PARAM "param" STATE "state" UPDATE "update" METRIC "metric"
%token OUTPUT "output" CHECK "check" ON "on" PER "per" OF "of" BY "by" EVERY "every" IF "if" ELSE "else" REPEAT "repeat" IN "in"
%token AS "as" RETURN "return" AND "and" OR "or" NOT "not" TRUE "true" FALSE "false" NONE "none"
%token ELLIPSIS "..." RANGE ".." ARROW "->" POWER "**" EQ "==" NE "!=" LE "<=" GE ">="
%token ADD_TO "+="
%token <const char *> IDENTIFIER "a name"
%token <const char *> TEXT "a string"
%token <int64_t> INTEGER "an integer"
%token <double> NUMBER "a number" FACTOR "a factor"
%token <Ast *> DURATION "a duration"

%left '|'
%left OR
%left AND
%precedence NOT
%nonassoc EQ NE '<' LE '>' GE
%left '+' '-'
%left '*' '/' '%' '@'
%precedence NEGATIVE
%right POWER

%type <AstVec *> tune_group tune_entries tune_seq choices
%type <Ast *> tune_entry range
%type <const char *> dotted
%type <AstVec *> declarations declaration_seq statements statement_seq group entries entry_seq
%type <AstVec *> parameters parameter_list dimensions dimension_list types names more_values
%type <AstVec *> arguments argument_list subscripts items
%type <Ast *> declaration statement entry parameter type dimension returns body else_part
%type <Ast *> file_name setting share expr value operation argument subscript optional primary parameter_type default
%type <const char *> name prefix
%%
file: declarations { parser->root = LIST(FILE, @$, NULL, $1); }
    ;
declarations: declaration_seq
    | declaration_seq declaration { $$ = $1; APPEND($$, $2); }
    ;
declaration_seq: %empty { $$ = NULL; APPEND($$, NULL); }
    | declaration_seq separator
    | declaration_seq declaration separator { $$ = $1; APPEND($$, $2); }
    | declaration_seq error separator { yyerrok; $$ = $1; }
    ;
separator: NEWLINE | ';'
    ;
declaration: IMPORT TEXT { $$ = LEAF(IMPORT, @2, $2); }
    | HYPER name parameter_type '=' expr { $$ = NODE(HYPER, @2, $2, 2, $3, $5); }
    | PRESET name group { $$ = LIST(PRESET, @2, $2, $3); }
    | PRESET TEXT group { $$ = LIST(PRESET, @2, $2, $3); }
    | BLOCK name '(' parameters ')' '(' parameters ')' returns body {
        $$ = NODE(BLOCK, @2, $2, 4, LIST(PARAMETERS, @3, NULL, $4), LIST(PARAMETERS, @6, NULL, $7),
                  $9, $10);
      }
    | FN name '(' parameters ')' returns body {
        $$ = NODE(FN, @2, $2, 3, LIST(PARAMETERS, @3, NULL, $4), $6, $7);
      }
    | MODEL name '(' parameters ')' body {
        $$ = NODE(MODEL, @2, $2, 2, LIST(PARAMETERS, @3, NULL, $4), $6);
      }
    | DATA name group { $$ = LIST(DATA, @2, $2, $3); }
    | TRAIN group { $$ = LIST(TRAIN, @1, NULL, $2); }
    | DISTRIBUTED group { $$ = LIST(DISTRIBUTED, @1, NULL, $2); }
    | TUNE tune_group { $$ = LIST(TUNE, @1, NULL, $2); }
    ;

/* ── data, train, preset ── */
group: '{' entries '}' { $$ = $2; }
    | '{' entry_seq error '}' { yyerrok; $$ = $2; }
    ;
entries: entry_seq
    | entry_seq entry { $$ = $1; APPEND($$, $2); }
    ;
entry_seq: %empty { $$ = NULL; APPEND($$, NULL); }
    | entry_seq separator
    | entry_seq entry separator { $$ = $1; APPEND($$, $2); }
    | entry_seq error separator { yyerrok; $$ = $1; }
    ;
entry: name '=' setting { $$ = NODE(ENTRY, @1, $1, 1, $3); }
    | name { $$ = NODE(ENTRY, @1, $1, 1, NULL); }
    | name '(' arguments ')' { /* auto(gpus = 64): the name and the value are one */
        AstVec kids = {0};
        VEC_PUSH(parser->arena, kids, LEAF(NAME, @1, $1));
        for (int i = 0; $3 && i < $3->count; i++) VEC_PUSH(parser->arena, kids, $3->at[i]);
        $$ = NODE(ENTRY, @1, $1, 1, LIST(CALL, @1, NULL, &kids));
      }
    | name EVERY expr {
        AstVec one = {0};
        VEC_PUSH(parser->arena, one, NODE(ENTRY, @2, "every", 1, $3));
        $$ = LIST(SECTION, @1, $1, &one);
      }
    | name group { $$ = LIST(SECTION, @1, $1, $2); }
    ;
/* `lr = 0.1x on "head.*"`, `lr = 0.1 per 256`, `valid = 0.1 of train by label | resize(224)` */
setting: expr
    | expr ON expr { $$ = NODE(ON, @2, NULL, 2, $1, $3); }
    | expr PER expr { $$ = NODE(PER, @2, NULL, 2, $1, $3); }
    | share
    | operation OF INTEGER { $$ = NODE(OF, @2, NULL, 1, $1); $$->integer = $3; }
    ;
share: operation OF name { $$ = NODE(OF, @2, $3, 1, $1); }
    | operation OF name BY name { $$ = NODE(OF, @2, $3, 1, $1); $$->text = $5; }
    | share '|' primary { $$ = BINARY(@2, "|", $1, $3); }
    ;

/* ── tune ── */
tune_group: '{' tune_entries '}' { $$ = $2; }
    | '{' tune_seq error '}' { yyerrok; $$ = $2; }
    ;
tune_entries: tune_seq
    | tune_seq tune_entry { $$ = $1; APPEND($$, $2); }
    ;
tune_seq: %empty { $$ = NULL; APPEND($$, NULL); }
    | tune_seq separator
    | tune_seq tune_entry separator { $$ = $1; APPEND($$, $2); }
    | tune_seq error separator { yyerrok; $$ = $1; }
    ;
tune_entry: dotted '=' range { $$ = NODE(ENTRY, @1, $1, 1, $3); }
    ;
dotted: name
    | dotted '.' name { $$ = arena_printf(parser->arena, "%s.%s", $1, $3); }
    ;
/* `range(0.5, 0.99) if optimizer = sgd|lion` */
range: expr
    | operation IF primary '=' choices { $$ = NODE(ONLY, @2, NULL, 3, $1, $3, LIST(LIST, @5, NULL, $5)); }
    ;
choices: primary { $$ = NULL; APPEND($$, $1); }
    | choices '|' primary { $$ = $1; APPEND($$, $3); }
    ;

/* ── signatures ── */
parameters: %empty { $$ = NULL; }
    | parameter_list
    | parameter_list ','
    ;
parameter_list: parameter { $$ = NULL; APPEND($$, $1); }
    | parameter_list ',' parameter { $$ = $1; APPEND($$, $3); }
    ;
parameter: name parameter_type default { $$ = NODE(PARAMETER, @1, $1, 2, $2, $3); }
    ;
parameter_type: %empty { $$ = NULL; }
    | ':' type { $$ = $2; }
    ;
default: %empty { $$ = NULL; }
    | '=' expr { $$ = $2; }
    ;
type: name { $$ = NODE(TYPE, @1, $1, 1, NULL); }
    | name '[' dimensions ']' { $$ = NODE(TYPE, @1, $1, 1, LIST(SHAPE, @2, NULL, $3)); }
    | '[' dimensions ']' { $$ = NODE(TYPE, @1, NULL, 1, LIST(SHAPE, @1, NULL, $2)); }
    ;
dimensions: %empty { $$ = NULL; }
    | dimension_list
    | dimension_list ','
    ;
dimension_list: dimension { $$ = NULL; APPEND($$, $1); }
    | dimension_list ',' dimension { $$ = $1; APPEND($$, $3); }
    ;
dimension: expr
    | name '=' expr { $$ = NODE(DIMENSION, @1, $1, 1, $3); }
    | ELLIPSIS { $$ = LEAF(ELLIPSIS, @1, NULL); }
    ;
returns: %empty { $$ = NULL; }
    | ARROW types { $$ = LIST(RETURNS, @1, NULL, $2); }
    ;
types: type { $$ = NULL; APPEND($$, $1); }
    | types ',' type { $$ = $1; APPEND($$, $3); }
    ;

/* ── statements ── */
body: '{' statements '}' { $$ = LIST(BODY, @1, NULL, $2); }
    | '{' statement_seq error '}' { yyerrok; $$ = LIST(BODY, @1, NULL, $2); }
    ;
statements: statement_seq
    | statement_seq statement { $$ = $1; APPEND($$, $2); }
    ;
statement_seq: %empty { $$ = NULL; APPEND($$, NULL); }
    | statement_seq separator
    | statement_seq statement separator { $$ = $1; APPEND($$, $2); }
    | statement_seq error separator { yyerrok; $$ = $1; }
    ;
statement: names '=' value {
        AstVec kids = {0};
        VEC_PUSH(parser->arena, kids, $3);
        for (int i = 0; i < $1->count; i++) VEC_PUSH(parser->arena, kids, $1->at[i]);
        $$ = LIST(ASSIGN, @1, NULL, &kids);
      }
    | name ADD_TO expr {
        $$ = NODE(ASSIGN, @1, NULL, 2, BINARY(@2, "+", LEAF(NAME, @1, $1), $3), LEAF(NAME, @1, $1));
      }
    | PARAM name file_name ':' type default { $$ = NODE(PARAM, @2, $2, 3, $5, $6, $3); }
    | STATE name file_name ':' type default { $$ = NODE(STATE, @2, $2, 3, $5, $6, $3); }
    | UPDATE name '=' expr { $$ = NODE(UPDATE, @2, $2, 1, $4); }
    | METRIC name '=' expr { $$ = NODE(METRIC, @2, $2, 1, $4); }
    | OUTPUT name { $$ = NODE(OUTPUT, @2, $2, 1, NULL); }
    | OUTPUT name '=' expr { $$ = NODE(OUTPUT, @2, $2, 1, $4); }
    | IF expr body else_part { $$ = NODE(IF, @1, NULL, 3, $2, $3, $4); }
    | REPEAT name IN expr RANGE expr prefix body {
        $$ = NODE(REPEAT, @2, $2, 3, $4, $6, $8);
        $$->text = $7;
      }
    | RETURN value { $$ = NODE(RETURN, @1, NULL, 1, $2); }
    | CHECK expr ',' expr { $$ = NODE(CHECK, @1, NULL, 2, $2, $4); }
    ;
/* `param w as "weight_ih_l" + str(i)`: how files call it */
file_name: %empty { $$ = NULL; }
    | AS expr { $$ = $2; }
    ;
else_part: %empty { $$ = NULL; }
    | ELSE body { $$ = $2; }
    | ELSE IF expr body else_part {
        AstVec one = {0};
        VEC_PUSH(parser->arena, one, NODE(IF, @2, NULL, 3, $3, $4, $5));
        $$ = LIST(BODY, @2, NULL, &one);
      }
    ;
prefix: %empty { $$ = NULL; }
    | AS name { $$ = $2; }
    ;
names: name { $$ = NULL; APPEND($$, LEAF(NAME, @1, $1)); }
    | names ',' name { $$ = $1; APPEND($$, LEAF(NAME, @3, $3)); }
    ;
value: expr
    | expr ',' more_values {
        AstVec kids = {0};
        VEC_PUSH(parser->arena, kids, $1);
        for (int i = 0; i < $3->count; i++) VEC_PUSH(parser->arena, kids, $3->at[i]);
        $$ = LIST(TUPLE, @1, NULL, &kids);
      }
    ;
more_values: expr { $$ = NULL; APPEND($$, $1); }
    | more_values ',' expr { $$ = $1; APPEND($$, $3); }
    ;

/* ── expressions ── */
expr: operation
    | operation IF operation ELSE expr { $$ = NODE(CONDITIONAL, @2, NULL, 3, $3, $1, $5); }
    ;
operation: primary
    | operation '|' operation { $$ = BINARY(@2, "|", $1, $3); }
    | operation OR operation { $$ = BINARY(@2, "or", $1, $3); }
    | operation AND operation { $$ = BINARY(@2, "and", $1, $3); }
    | NOT operation { $$ = NODE(UNARY, @1, "not", 1, $2); }
    | operation EQ operation { $$ = BINARY(@2, "==", $1, $3); }
    | operation NE operation { $$ = BINARY(@2, "!=", $1, $3); }
    | operation '<' operation { $$ = BINARY(@2, "<", $1, $3); }
    | operation LE operation { $$ = BINARY(@2, "<=", $1, $3); }
    | operation '>' operation { $$ = BINARY(@2, ">", $1, $3); }
    | operation GE operation { $$ = BINARY(@2, ">=", $1, $3); }
    | operation '+' operation { $$ = BINARY(@2, "+", $1, $3); }
    | operation '-' operation { $$ = BINARY(@2, "-", $1, $3); }
    | operation '*' operation { $$ = BINARY(@2, "*", $1, $3); }
    | operation '/' operation { $$ = BINARY(@2, "/", $1, $3); }
    | operation '%' operation { $$ = BINARY(@2, "%", $1, $3); }
    | operation '@' operation { $$ = BINARY(@2, "@", $1, $3); }
    | operation POWER operation { $$ = BINARY(@2, "**", $1, $3); }
    | '-' operation %prec NEGATIVE { $$ = NODE(UNARY, @1, "-", 1, $2); }
    | '+' operation %prec NEGATIVE { $$ = NODE(UNARY, @1, "+", 1, $2); }
    ;
primary: name { $$ = LEAF(NAME, @1, $1); }
    | INTEGER { $$ = LEAF(INT, @1, NULL); $$->integer = $1; }
    | DURATION { $$ = $1; }
    | NUMBER { $$ = LEAF(FLOAT, @1, NULL); $$->number = $1; }
    | FACTOR { $$ = LEAF(FACTOR, @1, NULL); $$->number = $1; }
    | TEXT { $$ = LEAF(STRING, @1, $1); }
    | TRUE { $$ = LEAF(BOOL, @1, NULL); $$->integer = 1; }
    | FALSE { $$ = LEAF(BOOL, @1, NULL); }
    | NONE { $$ = LEAF(NONE, @1, NULL); }
    | '(' expr ')' { $$ = $2; }
    | '(' ')' { $$ = LIST(TUPLE, @1, NULL, NULL); }
    | '(' expr ',' ')' { $$ = NODE(TUPLE, @1, NULL, 1, $2); }
    | '(' expr ',' items optional_comma ')' {
        AstVec kids = {0};
        VEC_PUSH(parser->arena, kids, $2);
        for (int i = 0; i < $4->count; i++) VEC_PUSH(parser->arena, kids, $4->at[i]);
        $$ = LIST(TUPLE, @1, NULL, &kids);
      }
    | '[' ']' { $$ = LIST(LIST, @1, NULL, NULL); }
    | '[' items optional_comma ']' { $$ = LIST(LIST, @1, NULL, $2); }
    | primary '(' arguments ')' {
        AstVec kids = {0};
        VEC_PUSH(parser->arena, kids, $1);
        for (int i = 0; $3 && i < $3->count; i++) VEC_PUSH(parser->arena, kids, $3->at[i]);
        $$ = LIST(CALL, @1, NULL, &kids);
      }
    | primary '[' subscripts optional_comma ']' {
        AstVec kids = {0};
        VEC_PUSH(parser->arena, kids, $1);
        for (int i = 0; i < $3->count; i++) VEC_PUSH(parser->arena, kids, $3->at[i]);
        $$ = LIST(INDEX, @2, NULL, &kids);
      }
    | primary '.' name { $$ = NODE(ATTRIBUTE, @3, $3, 1, $1); }
    ;
optional_comma: %empty | ','
    ;
items: expr { $$ = NULL; APPEND($$, $1); }
    | items ',' expr { $$ = $1; APPEND($$, $3); }
    ;
arguments: %empty { $$ = NULL; }
    | argument_list optional_comma
    ;
argument_list: argument { $$ = NULL; APPEND($$, $1); }
    | argument_list ',' argument { $$ = $1; APPEND($$, $3); }
    ;
argument: expr
    | name '=' setting { $$ = NODE(KEYWORD, @1, $1, 1, $3); }
    ;
subscripts: subscript { $$ = NULL; APPEND($$, $1); }
    | subscripts ',' subscript { $$ = $1; APPEND($$, $3); }
    ;
subscript: expr
    | ELLIPSIS { $$ = LEAF(ELLIPSIS, @1, NULL); }
    | optional ':' optional { $$ = NODE(SLICE, @2, NULL, 3, $1, $3, NULL); }
    | optional ':' optional ':' optional { $$ = NODE(SLICE, @2, NULL, 3, $1, $3, $5); }
    ;
optional: %empty { $$ = NULL; }
    | expr
    ;
name: IDENTIFIER
    | IMPORT { $$ = "import"; } | HYPER { $$ = "hyper"; } | PRESET { $$ = "preset"; }
    | BLOCK { $$ = "block"; } | FN { $$ = "fn"; } | MODEL { $$ = "model"; }
    | DATA { $$ = "data"; } | TRAIN { $$ = "train"; }
    | DISTRIBUTED { $$ = "distributed"; } | TUNE { $$ = "tune"; } | PARAM { $$ = "param"; }
    | STATE { $$ = "state"; } | UPDATE { $$ = "update"; } | METRIC { $$ = "metric"; }
    | OUTPUT { $$ = "output"; } | CHECK { $$ = "check"; } | ON { $$ = "on"; }
    | PER { $$ = "per"; } | OF { $$ = "of"; } | BY { $$ = "by"; } | EVERY { $$ = "every"; }
    ;
%%
static void ft_error(FT_LTYPE *loc, void *scanner, Parser *parser, const char *message) {
  (void)scanner;
  (void)message; /* only "memory exhausted" comes here: more than YYMAXDEPTH open rules */
  diag_error(parser->diag, *loc, "this nests too deep to be read");
}

static bool yy_is_expected(const yysymbol_kind_t *expected, int count, yysymbol_kind_t kind) {
  for (int i = 0; i < count; i++)
    if (expected[i] == kind) return true;
  return false;
}

/* "'='", "a name", "the end of the line" */
static const char *quoted(Parser *parser, yysymbol_kind_t kind) {
  const char *name = yysymbol_name(kind);
  bool words = strchr(name, ' ') != NULL || name[0] == '\'';
  return words ? name : arena_printf(parser->arena, "'%s'", name);
}

/* Tokens that go on with an expression: they may stand after any operand and are no news. */
static bool is_operator(yysymbol_kind_t kind) {
  const char *name = yysymbol_name(kind);
  bool sign = name[0] == '\'' && strchr("+-*/%@<>([.|", name[1]) != NULL;
  bool pair = strpbrk(name, "=*<>") != NULL && name[0] != '\'';
  return sign || (pair && kind != YYSYMBOL_ARROW && kind != YYSYMBOL_ADD_TO) ||
         kind == YYSYMBOL_AND || kind == YYSYMBOL_OR || kind == YYSYMBOL_IF ||
         kind == YYSYMBOL_ON || kind == YYSYMBOL_PER || kind == YYSYMBOL_OF;
}

/* What may stand here, in a person's words: "an expression" for its dozen first tokens. */
static const char *describe_expected(Parser *parser, const yysymbol_kind_t *expected, int count) {
  if (yy_is_expected(expected, count, YYSYMBOL_RETURN)) return "a statement";
  if (yy_is_expected(expected, count, YYSYMBOL_INTEGER)) return "an expression";
  if (yy_is_expected(expected, count, YYSYMBOL_TRAIN) &&
      !yy_is_expected(expected, count, YYSYMBOL_IDENTIFIER))
    return "a declaration (model, block, fn, hyper, data, train ...)";
  bool name = yy_is_expected(expected, count, YYSYMBOL_IDENTIFIER);
  bool operand = yy_is_expected(expected, count, YYSYMBOL_POWER);
  const char *list = name ? "a name" : "";
  int named = name;
  for (int i = 0; i < count; i++) {
    yysymbol_kind_t kind = expected[i];
    if (kind == YYSYMBOL_IDENTIFIER || (name && kind >= YYSYMBOL_IMPORT && kind <= YYSYMBOL_EVERY))
      continue;
    if (operand && is_operator(kind)) continue;
    if (yysymbol_name(kind)[1] == ';') continue; /* the same as the end of the line */
    if (++named > 4) return "";
    list = arena_printf(parser->arena, "%s%s%s", list, *list ? " or " : "", quoted(parser, kind));
  }
  return list;
}

/* The offending token as it stands in the file. */
static const char *describe_found(Parser *parser, yysymbol_kind_t found) {
  size_t length = parser->offset - parser->token_start;
  if (found == YYSYMBOL_YYEOF) return "the end of the file";
  if (found == YYSYMBOL_NEWLINE) return "the end of the line";
  if (found == YYSYMBOL_TEXT || length > 40) return quoted(parser, found);
  return arena_printf(parser->arena, "'%.*s'", (int)length, parser->text + parser->token_start);
}

/* A note for the commonest cause of an unclosed bracket: // meant as a division. */
static void note_comment(Parser *parser, const Bracket *open) {
  const char *line = parser->text + open->offset;
  size_t length = strcspn(line, "\n");
  const char *comment = strstr(line, "//");
  if (!comment || comment >= line + length) return;
  Loc loc = open->loc;
  loc.column = (uint16_t)(loc.column + (comment - line));
  diag_note(parser->diag, loc, "// begins a comment; div(a, b) divides integers");
}

static bool yy_wants(const yysymbol_kind_t *expected, int count, const char *sign) {
  for (int i = 0; i < count; i++)
    if (strcmp(yysymbol_name(expected[i]), sign) == 0) return true;
  return false;
}

static bool yy_is_indented(const Parser *parser) {
  size_t at = parser->token_start;
  while (at > 0 && parser->text[at - 1] != '\n') at--;
  return parser->text[at] == ' ' || parser->text[at] == '\t';
}

static void report(Parser *parser, bool is_end, SyntaxError *error) {
  const Bracket *open = parse_open(parser);
  bool is_open_at_end = is_end && open;
  const char *wanted = is_open_at_end ? "a closing bracket" : error->wanted;
  const char *whole = is_open_at_end ? NULL : syntax_explain(parser, error);
  const char *advice = is_open_at_end ? "" : syntax_advice(parser, error);
  if (whole) diag_error(parser->diag, error->loc, "%s", whole);
  else if (*wanted)
    diag_error(parser->diag, error->loc, "expected %s before %s%s", wanted, error->found, advice);
  else diag_error(parser->diag, error->loc, "unexpected %s%s", error->found, advice);
  if (is_open_at_end) syntax_note_open(parser);
  else if (parser->cut.open) diag_note(parser->diag, parser->cut.loc, "this '%c' is open", parser->cut.open);
  else if (!whole && open && open->open != '{' && open->loc.line != error->loc.line)
    diag_note(parser->diag, open->loc, "this '%c' is open", open->open);
  if (open && open->open != '{') note_comment(parser, open);
}

static int yyreport_syntax_error(const yypcontext_t *context, void *scanner, Parser *parser) {
  (void)scanner;
  enum { MOST = 80 };
  yysymbol_kind_t expected[MOST];
  int count = yypcontext_expected_tokens(context, expected, MOST);
  yysymbol_kind_t found = yypcontext_token(context);
  Loc loc = *yypcontext_location(context);
  bool is_brace = strcmp(yysymbol_name(found), "'{'") == 0;
  if (is_brace && parser->bracket_count) parser->bracket_count--;
  bool is_top = parse_braces(parser) == 0;
  if (is_top && parser->is_lost && yy_is_indented(parser)) { /* the body of what was refused */
    parse_resync(parser);
    return 0;
  }
  parser->is_lost = is_top;
  SyntaxError error = {.loc = loc,
                       .wanted = count > 0 ? describe_expected(parser, expected, count) : "",
                       .found = describe_found(parser, found),
                       .may_end = yy_is_expected(expected, count, YYSYMBOL_NEWLINE)};
  error.wants_brace = yy_wants(expected, count, "'{'");
  error.wants_assignment = yy_wants(expected, count, "'='");
  error.wants_expression = yy_is_expected(expected, count, YYSYMBOL_INTEGER);
  error.wants_declaration = is_top && yy_is_expected(expected, count, YYSYMBOL_TRAIN);
  report(parser, found == YYSYMBOL_YYEOF, &error);
  parse_resync(parser);
  parser->cut = (Bracket){0};
  parser->skips_now = is_brace; /* what stands in braces belongs to it */
  parser->skips_body = !parser->skips_now && found != YYSYMBOL_NEWLINE;
  return 0;
}
