/* sim_text: PTX statements between the parser (sim_parse.c), which knows names and places, and the
 * decoder (sim_decode*.c), which knows instructions. */
#ifndef FT_RUNTIME_SIM_TEXT_H
#define FT_RUNTIME_SIM_TEXT_H
#include "runtime/device/sim/sim_private.h"
#include <stdarg.h>
#include <string.h>

typedef enum {
  VALUE_REGISTER,      /* index */
  VALUE_INT,           /* bits */
  VALUE_F32,           /* 0f3F800000 */
  VALUE_F64,           /* 0d3FF0000000000000 */
  VALUE_SHARED,        /* a name: bits is its offset in shared memory, */
  VALUE_LOCAL,         /* in local memory, */
  VALUE_PARAM,         /* in the parameters, */
  VALUE_GLOBAL,        /* its address */
  VALUE_DYNAMIC,       /* where dynamic shared memory begins: index of a register */
  VALUE_MODULE_SHARED, /* only inside the parser */
  VALUE_LABEL,         /* index of the jump */
  VALUE_SINK,          /* _ */
} PtxValueKind;

typedef struct {
  PtxValueKind kind;
  int index;
  uint64_t bits;
} PtxValue;

typedef enum { OPERAND_PLAIN, OPERAND_VECTOR, OPERAND_ADDRESS } PtxOperandKind;
typedef struct {
  PtxOperandKind kind;
  bool is_negated;         /* !%p1 */
  PtxValue at[SIM_VECTOR]; /* ADDRESS: [at[0] + offset] */
  PtxValue *many;          /* VECTOR of more than SIM_VECTOR: all of them, and at[] is not used */
  int count;
  int64_t offset;
  int coordinates; /* ADDRESS: [at[0] + offset, {many[0], …}] has so many */
  bool has_second; /* %p1|%p2 */
  PtxValue second;
} PtxOperand;

typedef struct {
  char op[128]; /* "ld.global.nc.f32" */
  int line;
  int guard; /* register, -1: none */
  bool guard_negated;
  PtxOperand operand[SIM_OPERANDS];
  int count;
} PtxStatement;

enum { DECODE_TABLE = 4096 };
typedef struct {
  SimModule *module;
  SimKernel *kernel;
  Arena *scratch;
  int16_t table[DECODE_TABLE]; /* texts of sim_ops.def: code, or -1 */
  int sink[CLASS_COUNT];       /* registers that no instruction reads, -1: none yet */
  VEC(int) constant_table;     /* hash of kernel->constants */
  int line;
} Decoder;

void decode_begin(Decoder *decoder, SimModule *module, Arena *scratch);
void decode_kernel(Decoder *decoder, SimKernel *kernel, int line);
/* Is there any instruction whose first word is that of `op`? */
bool decode_knows(const char *op);
/* Appends the statement's instructions to the kernel. */
STATUS_CHECKED Status decode_statement(Decoder *decoder, const PtxStatement *statement);
/* A label stands here: code may be entered. */
void decode_block(Decoder *decoder);
void decode_end(Decoder *decoder);
/* "model.ptx:12: " before the rest. */
Status sim_fail_at(const SimModule *module, int line, const char *format, va_list args);
Status decode_fail(const Decoder *decoder, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ── among the decoder's files ── */
int decode_register(Decoder *decoder, SimClass class);              /* a new one */
int decode_constant(Decoder *decoder, uint64_t bits, bool is_wide); /* as an arg */
static inline bool decode_begins(const char *text, const char *with) {
  return !strncmp(text, with, strlen(with));
}
SimInst *decode_push(Decoder *decoder, SimCode code);
/* The operand as an arg of that type. */
STATUS_CHECKED Status decode_value(Decoder *decoder, const PtxValue *value, SimType type,
                                   int32_t *arg);
/* Where a result of that class goes. */
STATUS_CHECKED Status decode_result(Decoder *decoder, const PtxValue *value, SimClass class,
                                    int32_t *arg);
/* Pushes to = code(from). */
SimInst *decode_unary(Decoder *decoder, SimCode code, int32_t to, int32_t from);
SimInst *decode_binary(Decoder *decoder, SimCode code, int32_t to, int32_t a, int32_t b);
/* The table of pointwise instructions; is there one whose first word is that of `op`? */
void decode_point_begin(Decoder *decoder);
bool decode_point_knows(const char *op, size_t length);
/* An address: its register or constant, whether that is of 32 bits, and the offset. */
STATUS_CHECKED Status decode_address(Decoder *decoder, const PtxOperand *operand, SimSpace space,
                                     int32_t *arg, bool *is_narrow, int64_t *offset);
/* Each sets *is_known if the statement is of its kind. */
STATUS_CHECKED Status decode_pointwise(Decoder *decoder, const PtxStatement *statement,
                                       bool *is_known);
STATUS_CHECKED Status decode_setp(Decoder *decoder, const PtxStatement *statement, bool *is_known);
STATUS_CHECKED Status decode_memory(Decoder *decoder, const PtxStatement *statement,
                                    bool *is_known);
STATUS_CHECKED Status decode_async(Decoder *decoder, const PtxStatement *statement, bool *is_known);
STATUS_CHECKED Status decode_hopper(Decoder *decoder, const PtxStatement *statement,
                                    bool *is_known);
STATUS_CHECKED Status decode_warp(Decoder *decoder, const PtxStatement *statement, bool *is_known);
/* Words of "ld.global.nc.f32" between the dots, one after the other; false at the end. */
bool decode_word(const char **at, char word[24]);
SimClass decode_class(SimType type);
#endif
