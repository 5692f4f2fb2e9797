/* sim_ptxas: what ptxas -v says about registers, where there is a ptxas. */
#ifndef FT_RUNTIME_SIM_PTXAS_H
#define FT_RUNTIME_SIM_PTXAS_H
#include "base/text.h"

typedef struct {
  bool has_run;
  Text text;
} SimPtxas;

/* Once; arch: sm_80. */
void sim_ptxas_run(SimPtxas *report, const char *path, const char *arch);
/* Of a kernel; 0: not known. */
int sim_ptxas_registers(const SimPtxas *report, const char *kernel);
void sim_ptxas_free(SimPtxas *report);
#endif
