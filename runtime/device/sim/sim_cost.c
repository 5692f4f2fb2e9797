/* sim_cost: see sim_cost.h. Rules go by the beginnings of an instruction's text in sim_ops.def; the first that fits
 * counts. Latencies after Luo et al. 2024 (arXiv 2402.13499) and Jia et al. 2018 (arXiv 1804.06826): 4 to 6 cycles for
 * arithmetic, 23 for a shuffle; numbers of instructions from SASS that ptxas makes (CUDA C++ Programming Guide,
 * "Arithmetic instructions", says which are one). */
#include "runtime/device/sim/sim_cost.h"
#include <pthread.h>
#include <string.h>

typedef struct {
  const char *text; /* its beginning */
  const char *end;  /* and its end; NULL: any */
  SimCost cost;
} Rule;

static const Rule rules[] = {
    /* names of values, constants, modifiers: no instructions of their own */
    {"mov.", NULL, {UNIT_NONE, 0, 0, 0}},
    {"ftz.", NULL, {UNIT_NONE, 0, 0, 0}},
    {"sat.", NULL, {UNIT_NONE, 0, 0, 0}},
    /* sequences around one special function */
    {"div.rn.f64", NULL, {UNIT_F32, 24, 1, 120}},
    {"rcp.rn.f64", NULL, {UNIT_F32, 16, 1, 80}},
    {"sqrt.rn.f64", NULL, {UNIT_F32, 20, 1, 100}},
    {"div.rn.f32", NULL, {UNIT_F32, 10, 1, 48}},
    {"rcp.rn.f32", NULL, {UNIT_F32, 8, 1, 40}},
    {"sqrt.rn.f32", NULL, {UNIT_F32, 9, 1, 44}},
    {"div.full.f32", NULL, {UNIT_F32, 6, 1, 32}},
    {"div.approx.f32", NULL, {UNIT_F32, 4, 1, 28}},
    {"sqrt.approx.f32", NULL, {UNIT_F32, 4, 1, 28}},
    {"sin.approx", NULL, {UNIT_F32, 2, 1, 22}},
    {"cos.approx", NULL, {UNIT_F32, 2, 1, 22}},
    {"ex2.", NULL, {UNIT_F32, 1, 1, 18}},
    {"lg2.", NULL, {UNIT_F32, 1, 1, 18}},
    {"rcp.approx", NULL, {UNIT_F32, 1, 1, 18}},
    {"rsqrt.", NULL, {UNIT_F32, 1, 1, 18}},
    {"tanh.", NULL, {UNIT_F32, 1, 1, 18}},
    /* integer division is a routine */
    {"div.", "64", {UNIT_INTEGER, 90, 2, 240}},
    {"rem.", "64", {UNIT_INTEGER, 92, 2, 240}},
    {"div.", NULL, {UNIT_INTEGER, 22, 1, 90}},
    {"rem.", NULL, {UNIT_INTEGER, 24, 1, 96}},
    /* multiplication */
    {"mul.wide", NULL, {UNIT_MULTIPLY, 1, 0, 5}},
    {"mad.wide", NULL, {UNIT_MULTIPLY, 1, 0, 5}},
    {"mul.lo.b64", NULL, {UNIT_MULTIPLY, 3, 0, 14}},
    {"mad.lo.b64", NULL, {UNIT_MULTIPLY, 4, 0, 15}},
    {"mul.hi.", "64", {UNIT_MULTIPLY, 6, 0, 24}},
    {"mad.hi.", "64", {UNIT_MULTIPLY, 8, 0, 28}},
    {"mul.lo.", NULL, {UNIT_MULTIPLY, 1, 0, 5}},
    {"mad.lo.", NULL, {UNIT_MULTIPLY, 1, 0, 5}},
    {"mul.hi.", NULL, {UNIT_MULTIPLY, 1, 0, 5}},
    {"mad.hi.", NULL, {UNIT_MULTIPLY, 2, 0, 9}},
    /* floating point */
    {"add.rn.", "f64", {UNIT_F32, 2, 0, 8}},
    {"sub.rn.", "f64", {UNIT_F32, 2, 0, 8}},
    {"mul.rn.", "f64", {UNIT_F32, 2, 0, 8}},
    {"fma.rn.", "f64", {UNIT_F32, 2, 0, 8}},
    {"add.rn.", NULL, {UNIT_F32, 1, 0, 4}},
    {"sub.rn.", NULL, {UNIT_F32, 1, 0, 4}},
    {"mul.rn.", NULL, {UNIT_F32, 1, 0, 4}},
    {"fma.rn.", NULL, {UNIT_F32, 1, 0, 4}},
    /* conversions: those between integers and floats are the special unit's, but of 32 bits */
    {"cvt.f32.f16", NULL, {UNIT_F32, 1, 0, 4}},
    {"cvt.f64.", NULL, {UNIT_SPECIAL, 1, 0, 18}},
    {"cvt.rn.f64.", NULL, {UNIT_SPECIAL, 1, 0, 18}},
    {"cvt.rn.f32.f64", NULL, {UNIT_SPECIAL, 1, 0, 18}},
    {"cvt.rn.f32.u32", NULL, {UNIT_INTEGER, 1, 0, 6}},
    {"cvt.rn.f32.s32", NULL, {UNIT_INTEGER, 1, 0, 6}},
    {"cvt.rn.f32.u8", NULL, {UNIT_INTEGER, 1, 0, 6}},
    {"cvt.rn.f32.", "64", {UNIT_SPECIAL, 1, 0, 18}},
    {"cvt.rni.", NULL, {UNIT_SPECIAL, 1, 0, 18}},
    {"cvt.rzi.", NULL, {UNIT_SPECIAL, 1, 0, 18}},
    {"cvt.rmi.", NULL, {UNIT_SPECIAL, 1, 0, 18}},
    {"cvt.rpi.", NULL, {UNIT_SPECIAL, 1, 0, 18}},
    {"cvt.", NULL, {UNIT_INTEGER, 1, 0, 6}},
    {"popc.", NULL, {UNIT_SPECIAL, 1, 0, 14}},
    {"clz.", NULL, {UNIT_SPECIAL, 1, 0, 14}},
    {"brev.", NULL, {UNIT_SPECIAL, 1, 0, 14}},
    {"bfind.", NULL, {UNIT_SPECIAL, 1, 0, 14}},
    /* 64 bits are two registers */
    {"", "64", {UNIT_INTEGER, 2, 0, 8}},
    {"", NULL, {UNIT_INTEGER, 1, 0, 5}},
};

static const char *const texts[SIM_OP_COUNT] = {
#define OP(id, text, D, A, B, C, E, expression) [SIM_##id] = text,
#include "runtime/device/sim/sim_ops.def"
};

static const SimCost specials[SIM_OP_COUNT] = {
    [SIM_bra] = {UNIT_NONE, 1, 0, 0},          [SIM_bra_if] = {UNIT_NONE, 1, 0, 0},
    [SIM_end] = {UNIT_NONE, 1, 0, 0},          [SIM_bar] = {UNIT_NONE, 1, 0, 0},
    [SIM_bar_warp] = {UNIT_NONE, 1, 0, 0},     [SIM_bar_arrive] = {UNIT_NONE, 1, 0, 0},
    [SIM_ld] = {UNIT_MEMORY, 1, 0, 0},
    [SIM_st] = {UNIT_MEMORY, 1, 0, 0},         [SIM_ld_local] = {UNIT_MEMORY, 1, 0, 0},
    [SIM_st_local] = {UNIT_MEMORY, 1, 0, 0},   [SIM_ld_generic] = {UNIT_MEMORY, 1, 0, 0},
    [SIM_st_generic] = {UNIT_MEMORY, 1, 0, 0}, [SIM_atom] = {UNIT_MEMORY, 1, 0, 0},
    [SIM_shfl] = {UNIT_MEMORY, 1, 0, 23},      [SIM_vote] = {UNIT_INTEGER, 1, 0, 10},
    [SIM_activemask] = {UNIT_INTEGER, 1, 0, 5}, [SIM_match] = {UNIT_MEMORY, 1, 0, 23},
    [SIM_redux] = {UNIT_MEMORY, 1, 0, 23},     [SIM_split32] = {UNIT_INTEGER, 1, 0, 5},
    [SIM_join32] = {UNIT_INTEGER, 1, 0, 5},    [SIM_cp_async] = {UNIT_MEMORY, 1, 0, 0},
    [SIM_cp_commit] = {UNIT_MEMORY, 1, 0, 0},  [SIM_cp_wait] = {UNIT_NONE, 1, 0, 0},
    [SIM_ldmatrix] = {UNIT_MEMORY, 1, 0, 0},   [SIM_stmatrix] = {UNIT_MEMORY, 1, 0, 0},
    [SIM_proxy] = {UNIT_MEMORY, 1, 0, 0},      [SIM_wgmma_fence] = {UNIT_NONE, 1, 0, 0},
    [SIM_wgmma_commit] = {UNIT_NONE, 1, 0, 0}, [SIM_wgmma_wait] = {UNIT_NONE, 1, 0, 0},
    [SIM_wgmma] = {UNIT_NONE, 1, 0, 0},        [SIM_registers] = {UNIT_NONE, 1, 0, 0},
    [SIM_mbar] = {UNIT_MEMORY, 2, 0, 0},       [SIM_bulk] = {UNIT_MEMORY, 2, 0, 0},
    [SIM_tensor_store] = {UNIT_MEMORY, 2, 0, 0}, [SIM_bulk_store] = {UNIT_MEMORY, 2, 0, 0},
    [SIM_bulk_commit] = {UNIT_NONE, 1, 0, 0}, [SIM_bulk_wait] = {UNIT_NONE, 1, 0, 0},
    [SIM_tensor] = {UNIT_MEMORY, 2, 0, 0},     [SIM_elect] = {UNIT_INTEGER, 2, 0, 8},
    [SIM_mapa] = {UNIT_INTEGER, 1, 0, 5},      [SIM_cluster] = {UNIT_NONE, 1, 0, 0},
    [SIM_grid_wait] = {UNIT_NONE, 1, 0, 0},
    [SIM_mma] = {UNIT_NONE, 1, 0, 0},         [SIM_mma_sparse] = {UNIT_NONE, 1, 0, 0},
};

static SimCost cost_by_text(const char *text) {
  size_t length = strlen(text);
  for (const Rule *rule = rules;; rule++) {
    size_t end = rule->end ? strlen(rule->end) : 0;
    if (strncmp(text, rule->text, strlen(rule->text)) != 0 || length < end) continue;
    if (!end || !strcmp(text + length - end, rule->end)) return rule->cost;
  }
}

static SimCost costs[SIM_OP_COUNT];

static void fill_costs(void) {
  for (int i = 0; i < SIM_OP_COUNT; i++)
    costs[i] = texts[i] ? cost_by_text(texts[i]) : specials[i];
}

const SimCost *sim_cost(int code) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, fill_costs);
  return &costs[code];
}
