/* plan_map: tensor maps, parameters of a launch behind its arguments: what a GPU's copy engine
 * (TMA) must know to bring boxes of a tensor to shared memory. Shared by the reader and printer of
 * plans and by the devices that make them. */
#ifndef FT_PLAN_PLAN_MAP_H
#define FT_PLAN_PLAN_MAP_H
#include "plan/plan_words.h"

enum { MAP_BYTES = 128, MAP_ALIGN = 128 }; /* of the parameter */

/* " map 0+0 bf16 dims=768,1024 strides=1536 box=64,128 swizzle=128" */
void map_print(Text *out, const PlanMap *map);
/* Reads it after the word "map"; checks nothing but the numbers' ranges. */
bool map_read(Words *words, PlanMap *out);
/* True if CUDA takes the map (cuTensorMapEncodeTiled) and the whole tensor lies in `buffer`, whose
 * address never changes; else false and a reason (static or in the plan's arena). */
bool map_check(const Plan *plan, const PlanMap *map, const PlanBuffer *buffer, const char **why);
/* Where the step's map `index` (or, one behind the last, the end) lies among its parameters. */
int64_t map_parameter(const PlanStep *step, int index);
#endif
