/* bench_model: `ftrun bench --device sim --gpu-model GPU`: how long each kernel of a step would take on that GPU. */
#ifndef FT_RUNTIME_BENCH_MODEL_H
#define FT_RUNTIME_BENCH_MODEL_H
#include "plan/gpu_model.h"
#include "runtime/execute/exec.h"
#include <stdio.h>

/* 8 or 16, if two of the step's operands are floats of so many bits, which tensor cores multiply; else 0. */
int bench_operand_bits(const PlanGraph *graph, const PlanStep *step);

/* work: of each step of the graph that the programme ends with, blocks 0 where it is no kernel; its is_half and is_tf32 are set. */
STATUS_CHECKED Status bench_model(Exec *exec, const char *programme, const Gpu *gpu, GpuWork *work, FILE *out);
#endif
