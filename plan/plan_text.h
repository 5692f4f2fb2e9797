/* plan_text: what the printer and the parser of plans share. */
#ifndef FT_PLAN_PLAN_TEXT_H
#define FT_PLAN_PLAN_TEXT_H
#include "plan/plan.h"

uint64_t plan_checksum(const char *text, size_t length);
/* Must the line of this input say what its values are below, or that they may be any? */
bool plan_takes_bound(const PlanTensor *input);
/* Quoted; what is not printable ASCII becomes \xNN, so that a PTX comment may hold it. */
void plan_print_text(Text *out, const char *text);
void plan_print_places(const Plan *plan, Text *out);
void plan_print_part(Text *out, const PlanPart *part, int rank);
/* ` then resize size 256 filter bilinear`, for each of the chain. */
void plan_print_chain(Text *out, const DataSource *source);
/* The shortest decimal that reads back to the same double. */
void plan_print_number(Text *out, double value);
void plan_print_value(Text *out, double value); /* also nan, most (inf) and least (-inf) */
#endif
