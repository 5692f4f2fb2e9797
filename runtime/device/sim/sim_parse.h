/* sim_parse: what the files of the PTX parser share. Each function takes the parser at the first
 * token of what it parses and leaves it behind the last; what is wrong ends the parse with one
 * line. */
#ifndef FT_RUNTIME_SIM_PARSE_H
#define FT_RUNTIME_SIM_PARSE_H
#include "runtime/device/sim/sim_text.h"

enum { MOST_WORD = 8192 /* what templates are called */, TOKEN_TEXT = 80 };
enum { TOKEN_WORD = 256, TOKEN_NUMBER, TOKEN_STRING };

typedef enum {
  NAME_REGISTER,
  NAME_SHARED,
  NAME_LOCAL,
  NAME_PARAM,
  NAME_GLOBAL,
  NAME_MODULE_SHARED, /* at: its bytes, count: its alignment */
  NAME_DYNAMIC,       /* .extern .shared name[] */
} NameKind;
typedef struct {
  const char *name;
  NameKind kind;
  bool is_range; /* %r<11>: %r0 … %r10 */
  int count, depth;
  uint64_t at; /* first register, offset or address */
} Name;

typedef struct {
  const char *name;
  int line, index; /* of the instruction, -1: not seen */
  int order, block; /* the { … } that it stands in: see Parser.block */
} Label;

typedef struct {
  int instruction;
  const char *label;
  int line, block;
} Jump;

typedef struct {
  SimModule *module;
  Arena *scratch;
  const char *at, *end;
  int line;
  char word[MOST_WORD]; /* the token, if it is a word */
  int token;            /* a character, TOKEN_WORD, TOKEN_NUMBER, 0 at the end */
  PtxValue number;
  VEC(Name) names;
  VEC(Label) labels;
  VEC(Jump) jumps;
  VEC(int) around; /* of each { … } of the kernel, the one around it; a label is known in its own */
  int block;       /* the innermost now */
  int module_names; /* how many of names belong to the module */
  int depth;
  SimKernel *kernel;
  Decoder decoder;
} Parser;

/* ── tokens ───────────────────────────────────────────────────────────────────────────────── */
Status parse_fail(const Parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
void parse_skip_space(Parser *p);
Status parse_next(Parser *p);
bool parse_is_word(const Parser *p, const char *word);
/* For a message: 'word', a number, the end of the file. */
const char *parse_token_text(const Parser *p, char out[TOKEN_TEXT]);
/* The token must be this one; `what` it is, for the message. */
Status parse_expect(Parser *p, int token, const char *what);
/* A whole number from 0 to `most`. */
Status parse_count(Parser *p, int64_t most, int64_t *out);

/* ── declarations ─────────────────────────────────────────────────────────────────────────── */
typedef struct {
  const char *name;
  int64_t align, element, bytes;
  bool is_open; /* name[] */
} Variable;

Status parse_add_name(Parser *p, Name name);
bool parse_find_name(const Parser *p, const char *word, PtxValue *out);
bool parse_find_special(Parser *p, const char *word, PtxValue *out);
/* The first use of a shared variable of the module in this kernel gives it a place. */
Status parse_use_module_shared(Parser *p, const char *name, PtxValue *value);
/* .reg .b32 %r<11>, %x; */
Status parse_registers(Parser *p);
int64_t parse_align_up(int64_t value, int64_t align);
/* .align 16 .b8 name[8448], from the word after the space; at most `most` bytes. */
Status parse_variable(Parser *p, int64_t most, Variable *out);
/* .shared or .local. Shared memory of the module takes place in the kernels that name it. */
Status parse_space(Parser *p);
/* .global or .const of the module. */
Status parse_global(Parser *p);

/* ── operands ─────────────────────────────────────────────────────────────────────────────── */
Status parse_value(Parser *p, PtxValue *out);
Status parse_operand(Parser *p, PtxOperand *out);

#endif
