/* html: `ftc --emit=html`: one self-contained page (no network) that shows the graph after each
 * pass, and the plan's steps: fusion groups as boxes, a search field, every node linked to its
 * source line. */
#ifndef FT_TOOLS_HTML_H
#define FT_TOOLS_HTML_H
#include "base/text.h"
#include "ir/graph.h"
#include "plan/plan.h"

typedef struct HtmlPage HtmlPage;
HtmlPage *html_new(Arena *arena, const Diag *diag, const char *model);
/* PassOptions.observe: keeps the graph if the pass changed it. user is the HtmlPage. */
void html_observe(void *user, const char *pass, const Graph *graph);
/* The steps of a graph of the plan: a node for each, its queue in place of a type, and an edge from
 * each that it waits for. */
void html_add_steps(HtmlPage *page, const PlanGraph *graph);
/* Appends the finished page to *out. */
void html_write(const HtmlPage *page, Text *out);
#endif
