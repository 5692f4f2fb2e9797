/* sim_cost: what an instruction of PTX costs in a GPU's own: how many it becomes, which unit does them, and after how
 * many cycles another can use the result. An estimate for sm_80 to sm_90: ptxas decides. */
#ifndef FT_RUNTIME_SIM_COST_H
#define FT_RUNTIME_SIM_COST_H
#include "runtime/device/sim/sim_private.h"

typedef enum { UNIT_NONE, UNIT_F32, UNIT_MULTIPLY, UNIT_INTEGER, UNIT_SPECIAL, UNIT_MEMORY } SimUnit;
typedef struct {
  uint8_t unit, issued, special; /* instructions; of them for the special functions, beside the unit's */
  uint8_t cycles;
} SimCost;
const SimCost *sim_cost(int code);
#endif
