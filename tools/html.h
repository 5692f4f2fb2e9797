/* html: `ftc --emit=html`: one self-contained page (no network) that shows the graph after each
 * pass, and the plan's steps: grouped by phase and layer, with costs, a search that moves to what it
 * finds, and every node linked to its source line. */
#ifndef FT_TOOLS_HTML_H
#define FT_TOOLS_HTML_H
#include "base/text.h"
#include "ir/graph.h"
#include "plan/plan.h"

typedef struct HtmlPage HtmlPage;
HtmlPage *html_new(Arena *arena, const Diag *diag, const char *model);
/* PassOptions.observe: keeps the graph if the pass changed it. user is the HtmlPage. */
void html_observe(void *user, const char *pass, const Graph *graph);
/* The steps of all graphs of the plan: a node for each, its queue in place of a type, and an edge from
 * each that it waits for; and what memory is for. */
void html_add_plan(HtmlPage *page, const Plan *plan);
/* Appends the finished page to *out. */
void html_write(const HtmlPage *page, Text *out);
#endif
