/* sim_parse: PTX text -> kernels. Names are resolved here: registers, variables, parameters,
 * labels; sim_decode.c makes instructions of the statements. The text is hostile: every count is
 * limited, every name looked up, and the first thing that is wrong ends the parse with one line. */
#include "runtime/device/sim/sim_parse.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum {
  MOST_KERNELS = 16384,
  MOST_INSTRUCTIONS = 1 << 21,
  MOST_PARAMS = 1024,
  MOST_SCOPES = 64,
};

/* ── statements ───────────────────────────────────────────────────────────────────────────── */
static Status parse_guard(Parser *p, PtxStatement *s) {
  STATUS_TRY(parse_next(p));
  if (p->token == '!') {
    s->guard_negated = true;
    STATUS_TRY(parse_next(p));
  }
  PtxValue value;
  STATUS_TRY(parse_value(p, &value));
  if (value.kind != VALUE_REGISTER || p->kernel->classes.at[value.index] != CLASS_PRED)
    return parse_fail(p, "'@' needs a predicate register");
  s->guard = value.index;
  return STATUS_OK;
}

static Status parse_instruction(Parser *p, bool *is_label) {
  PtxStatement s = {.line = p->line, .guard = -1};
  char text[TOKEN_TEXT];
  *is_label = false;
  if (p->token == '@') STATUS_TRY(parse_guard(p, &s));
  if (p->token != TOKEN_WORD)
    return parse_fail(p, "expected an instruction, found %s", parse_token_text(p, text));
  char word[MOST_WORD];
  strcpy(word, p->word);
  s.line = p->line;
  STATUS_TRY(parse_next(p));
  if (p->token == ':' && s.guard < 0) {
    decode_block(&p->decoder);
    VEC_PUSH(p->scratch, p->labels,
             ((Label){arena_strdup(p->scratch, word), s.line, p->kernel->code.count - 1,
                      p->labels.count, p->block}));
    *is_label = true;
    return parse_next(p);
  }
  if (strlen(word) >= sizeof s.op) return parse_fail(p, "unsupported instruction %.80s", word);
  strcpy(s.op, word);
  while (p->token != ';') {
    if (s.count == SIM_OPERANDS) return parse_fail(p, "%s has too many operands", s.op);
    if (p->token == TOKEN_STRING || p->token == '(')
      return parse_fail(p, "unsupported instruction %s", s.op);
    Status status = parse_operand(p, &s.operand[s.count++]);
    if (status != STATUS_OK)
      return decode_knows(s.op) ? status : parse_fail(p, "unsupported instruction %s", s.op);
    if (p->token == ',') {
      STATUS_TRY(parse_next(p));
      if (p->token == ';') return parse_fail(p, "expected an operand after ','");
    } else if (p->token != ';') {
      return parse_fail(p, "expected ',' or ';' after an operand, found %s",
                        parse_token_text(p, text));
    }
  }
  if (p->kernel->code.count > MOST_INSTRUCTIONS)
    return parse_fail(p, "more than %d instructions", MOST_INSTRUCTIONS);
  p->kernel->text_instructions++;
  STATUS_TRY(decode_statement(&p->decoder, &s));
  return parse_next(p);
}

/* Skips to the ';' or the end of the line that closes a directive without meaning for us. */
static Status skip_directive(Parser *p) {
  while (p->token && p->token != ';') STATUS_TRY(parse_next(p));
  return p->token ? parse_next(p) : STATUS_OK;
}

static Status skip_line(Parser *p) {
  const char *eol = memchr(p->at, '\n', (size_t)(p->end - p->at));
  p->at = eol ? eol : p->end;
  return parse_next(p);
}

/* .section .debug_info { … }: what debuggers read. */
static Status skip_section(Parser *p) {
  while (p->token && p->token != '{') STATUS_TRY(parse_next(p));
  while (p->token && p->token != '}') STATUS_TRY(parse_next(p));
  return parse_expect(p, '}', "'}' behind a .section");
}

static void open_scope(Parser *p) {
  VEC_PUSH(p->scratch, p->around, p->block);
  p->block = p->around.count - 1;
  p->depth++;
}

static void close_scope(Parser *p) {
  p->block = p->around.at[p->block];
  while (p->names.count > p->module_names && p->names.at[p->names.count - 1].depth == p->depth)
    p->names.count--;
  p->depth--;
}

static Status parse_body(Parser *p) {
  bool is_label;
  int outside = p->depth;
  p->around.count = 0;
  p->block = -1;
  open_scope(p);
  STATUS_TRY(parse_expect(p, '{', "'{'"));
  while (p->depth > outside) {
    if (p->token == '{') {
      if (p->depth > MOST_SCOPES)
        return parse_fail(p, "more than %d blocks in each other", MOST_SCOPES);
      open_scope(p);
      STATUS_TRY(parse_next(p));
    } else if (p->token == '}') {
      close_scope(p);
      STATUS_TRY(parse_next(p));
    } else if (p->token == ';') {
      STATUS_TRY(parse_next(p));
    } else if (parse_is_word(p, ".reg")) {
      STATUS_TRY(parse_registers(p));
    } else if (parse_is_word(p, ".shared") || parse_is_word(p, ".local")) {
      STATUS_TRY(parse_space(p));
    } else if (parse_is_word(p, ".pragma")) {
      STATUS_TRY(skip_directive(p));
    } else if (parse_is_word(p, ".loc")) {
      STATUS_TRY(skip_line(p));
    } else if (p->token == TOKEN_WORD && p->word[0] == '.') {
      return parse_fail(p, "unsupported directive %s in a kernel", p->word);
    } else {
      STATUS_TRY(parse_instruction(p, &is_label));
    }
  }
  return STATUS_OK;
}

/* ── kernels ──────────────────────────────────────────────────────────────────────────────── */
static Status parse_params(Parser *p) {
  if (p->token != '(') return STATUS_OK;
  STATUS_TRY(parse_next(p));
  while (p->token != ')') {
    Variable variable;
    if (!parse_is_word(p, ".param")) return parse_fail(p, "expected .param");
    STATUS_TRY(parse_next(p));
    STATUS_TRY(parse_variable(p, 4096, &variable));
    SimKernel *kernel = p->kernel;
    int64_t at = parse_align_up(kernel->param_bytes, variable.align);
    if (kernel->params.count >= MOST_PARAMS || at + variable.bytes > 32764)
      return parse_fail(p, "too many parameters");
    kernel->param_bytes = at + variable.bytes;
    VEC_PUSH(p->module->arena, kernel->params, ((SimParam){at, variable.bytes}));
    STATUS_TRY(
        parse_add_name(p, (Name){.name = variable.name, .kind = NAME_PARAM, .at = (uint64_t)at}));
    if (p->token == ',') STATUS_TRY(parse_next(p));
  }
  return parse_next(p);
}

/* .maxntid 256, 1, 1 and its kin, until the '{'. */
static Status parse_limits(Parser *p) {
  while (p->token == TOKEN_WORD && p->word[0] == '.') {
    bool is_limit = parse_is_word(p, ".maxntid") || parse_is_word(p, ".reqntid");
    bool is_registers = parse_is_word(p, ".maxnreg");
    bool is_cluster = parse_is_word(p, ".reqnctapercluster");
    int64_t threads = 1;
    STATUS_TRY(parse_next(p));
    while (p->token == TOKEN_NUMBER) {
      int64_t count = 0;
      STATUS_TRY(parse_count(p, 1 << 20, &count));
      if (!count) return parse_fail(p, "a limit of a kernel is at least 1");
      if (is_cluster && count > 1 && (threads > 1 || p->kernel->cluster))
        return parse_fail(p, "a cluster of several dimensions is not supported");
      if (is_cluster && !p->kernel->cluster) p->kernel->cluster = (int)count;
      if (threads < 1 << 20) threads *= count;
      if (p->token == ',') STATUS_TRY(parse_next(p));
    }
    p->kernel->has_thread_limit |= is_limit;
    if (is_limit) p->kernel->max_threads = threads < 1024 ? threads : 1024;
    if (is_registers) p->kernel->max_registers = threads;
  }
  if (!p->kernel->cluster) p->kernel->cluster = 1;
  if (p->kernel->cluster > SIM_CLUSTER)
    return parse_fail(p, "a cluster of %d blocks, and %d are possible", p->kernel->cluster,
                      SIM_CLUSTER);
  return STATUS_OK;
}

static int compare_labels(const void *a, const void *b) {
  const Label *x = a, *y = b;
  int order = strcmp(x->name, y->name);
  if (!order) order = x->block - y->block;
  return order ? order : x->order - y->order;
}

static int compare_label_place(const void *wanted, const void *label) {
  const Label *x = wanted, *y = label;
  int order = strcmp(x->name, y->name);
  return order ? order : x->block - y->block;
}

/* The label that a jump means: of the innermost { … } around it that has one of the name. */
static const Label *find_label(const Parser *p, const Jump *jump) {
  for (int block = jump->block; block >= 0 && p->labels.count; block = p->around.at[block]) {
    Label wanted = {.name = jump->label, .block = block};
    const Label *found = bsearch(&wanted, p->labels.at, (size_t)p->labels.count, sizeof wanted, compare_label_place);
    if (found) return found;
  }
  return NULL;
}

static Status resolve_jumps(Parser *p) {
  int end = p->line;
  if (p->labels.count) qsort(p->labels.at, (size_t)p->labels.count, sizeof(Label), compare_labels);
  for (int i = 1; i < p->labels.count; i++)
    if (!compare_label_place(&p->labels.at[i - 1], &p->labels.at[i])) {
      p->line = p->labels.at[i].line;
      return parse_fail(p, "the label %s stands here for the second time", p->labels.at[i].name);
    }
  for (int i = 0; i < p->jumps.count; i++) {
    const Label *label = find_label(p, &p->jumps.at[i]);
    p->line = p->jumps.at[i].line;
    if (!label) return parse_fail(p, "there is nothing named %s", p->jumps.at[i].label);
    p->jumps.at[i].instruction = label->index;
  }
  p->line = end;
  for (int i = 0; i < p->kernel->code.count; i++) {
    SimInst *inst = &p->kernel->code.at[i];
    bool is_jump = inst->code == SIM_bra || inst->code == SIM_bra_if;
    if (is_jump && inst->imm >= 0) inst->imm = p->jumps.at[inst->imm].instruction;
  }
  return STATUS_OK;
}

static Status parse_entry(Parser *p) {
  STATUS_TRY(parse_next(p));
  if (p->token != TOKEN_WORD) return parse_fail(p, "expected the name of a kernel");
  if (p->module->kernels.count >= MOST_KERNELS)
    return parse_fail(p, "more than %d kernels", MOST_KERNELS);
  SimKernel *kernel = ARENA_NEW(p->module->arena, SimKernel);
  kernel->module = p->module;
  kernel->name = arena_strdup(p->module->arena, p->word);
  kernel->line = p->line;
  kernel->max_threads = 1024;
  for (int i = 0; i < SPECIAL_COUNT; i++) kernel->special[i] = -1;
  if (sim_module_kernel(p->module, kernel->name))
    return parse_fail(p, "a second kernel %s", kernel->name);
  p->kernel = kernel;
  p->module_names = p->names.count;
  p->labels.count = p->jumps.count = 0;
  p->depth = 1;
  decode_kernel(&p->decoder, kernel, p->line);
  STATUS_TRY(parse_next(p));
  STATUS_TRY(parse_params(p));
  STATUS_TRY(parse_limits(p));
  STATUS_TRY(parse_body(p));
  decode_end(&p->decoder);
  STATUS_TRY(resolve_jumps(p));
  VEC_PUSH(p->module->arena, p->module->kernels, kernel);
  p->names.count = p->module_names;
  p->depth = 0;
  p->kernel = NULL;
  return STATUS_OK;
}

/* ── the module ───────────────────────────────────────────────────────────────────────────── */
static Status parse_version(Parser *p) {
  /* 7.0 is two numbers and a point to us */
  parse_skip_space(p);
  if (p->at >= p->end || !isdigit((unsigned char)*p->at))
    return parse_fail(p, ".version needs a number");
  while (p->at < p->end && (isdigit((unsigned char)*p->at) || *p->at == '.')) p->at++;
  return parse_next(p);
}

static Status parse_module(Parser *p) {
  char text[TOKEN_TEXT];
  STATUS_TRY(parse_next(p));
  while (p->token) {
    if (parse_is_word(p, ".version")) {
      STATUS_TRY(parse_version(p));
    } else if (parse_is_word(p, ".target")) {
      STATUS_TRY(skip_line(p));
    } else if (parse_is_word(p, ".address_size")) {
      int64_t bits = 0;
      STATUS_TRY(parse_next(p));
      STATUS_TRY(parse_count(p, 64, &bits));
      if (bits != 64) return parse_fail(p, "addresses of %d bits are not supported", (int)bits);
    } else if (parse_is_word(p, ".visible") || parse_is_word(p, ".extern") ||
               parse_is_word(p, ".weak")) {
      STATUS_TRY(parse_next(p));
    } else if (parse_is_word(p, ".section")) {
      STATUS_TRY(skip_section(p));
    } else if (parse_is_word(p, ".file")) {
      STATUS_TRY(skip_line(p));
    } else if (parse_is_word(p, ".entry")) {
      STATUS_TRY(parse_entry(p));
    } else if (parse_is_word(p, ".shared")) {
      STATUS_TRY(parse_space(p));
    } else if (parse_is_word(p, ".global") || parse_is_word(p, ".const")) {
      STATUS_TRY(parse_global(p));
    } else if (parse_is_word(p, ".func")) {
      return parse_fail(p, "unsupported directive .func: functions are expected to be inlined");
    } else if (p->token == TOKEN_WORD) {
      return parse_fail(p, "unsupported directive %.60s", p->word);
    } else {
      return parse_fail(p, "expected a directive, found %s", parse_token_text(p, text));
    }
  }
  return STATUS_OK;
}

Status sim_parse(SimModule *module, const char *text, size_t length) {
  Parser p = {
      .module = module, .scratch = arena_new(), .at = text, .end = text + length, .line = 1};
  decode_begin(&p.decoder, module, p.scratch);
  Status status = parse_module(&p);
  arena_free(p.scratch);
  return status;
}
