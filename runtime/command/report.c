/* report: see report.h. Nothing in the page comes from elsewhere, and the browser is told so: it runs
 * one script and applies one style, each named by its hash, and asks for nothing. */
#include "runtime/command/report.h"
#include "runtime/command/report_data.h"
#include "runtime/command/report_plan.h"
#include "runtime/command/report_study.h"
#include "runtime/command/report_times.h"
#include "runtime/command/run_file.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

extern const char embed_report_css[], embed_report_css_end[];
extern const char embed_report_js[], embed_report_js_end[];
extern const char embed_report_study_js[], embed_report_study_js_end[];
extern const char embed_report_sensitivity_js[], embed_report_sensitivity_js_end[];

#define PAGE_HEAD                                                                                  \
  "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"                        \
  "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"                     \
  "<meta name=\"color-scheme\" content=\"light dark\">\n<title>ftrun</title>\n"
#define PAGE_MAIN                                                                                  \
  "<body>\n<main id=\"main\"><noscript>This page draws its curves with a script of its own; "      \
  "scripts are switched off here.</noscript></main>\n"

#define PAGE_MAY(scripts)                                                                          \
  "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "          \
  "'sha256-" FT_REPORT_CSS_HASH "'; script-src " scripts                                           \
  "; base-uri 'none'; form-action 'none'\">\n"

static const char security[] = PAGE_MAY("'sha256-" FT_REPORT_JS_HASH "'");
/* what it draws with is report.js, which begins and asks for the other where the data are a study's, or a scan's */
static const char study_security[] =
    PAGE_MAY("'sha256-" FT_REPORT_JS_HASH "' 'sha256-" FT_REPORT_STUDY_JS_HASH "'");
static const char sensitivity_security[] =
    PAGE_MAY("'sha256-" FT_REPORT_JS_HASH "' 'sha256-" FT_REPORT_SENSITIVITY_JS_HASH "'");

static void page_append(Text *out, const char *from, const char *to) {
  text_append(out, from, (size_t)(to - from));
}

static void append_script(Text *out, const char *from, const char *to) {
  text_printf(out, "<script>");
  page_append(out, from, to);
  text_printf(out, "</script>\n");
}

/* script: a second one, or NULL. */
static void append_page(Text *out, const Text *data, const char *may, const char *script, const char *script_end) {
  text_printf(out, "%s%s<style>", PAGE_HEAD, may);
  page_append(out, embed_report_css, embed_report_css_end);
  text_printf(out, "</style>\n</head>\n%s<script type=\"application/json\" id=\"data\">",
              PAGE_MAIN);
  text_append(out, data->at, data->count);
  text_printf(out, "</script>\n");
  if (script) append_script(out, script, script_end);
  append_script(out, embed_report_js, embed_report_js_end);
  text_printf(out, "</body>\n</html>\n");
}

void report_page(Text *out, const Text *data) { append_page(out, data, security, NULL, NULL); }

void report_study_page(Text *out, const Text *data) {
  append_page(out, data, study_security, embed_report_study_js, embed_report_study_js_end);
}

void report_sensitivity_page(Text *out, const Text *data) {
  append_page(out, data, sensitivity_security, embed_report_sensitivity_js, embed_report_sensitivity_js_end);
}

const ReportFile *report_file(int index) {
  static const char page[] =
      PAGE_HEAD "<link rel=\"stylesheet\" href=\"report.css\">\n</head>\n" PAGE_MAIN
                "<script src=\"report.js\"></script>\n</body>\n</html>\n";
  static ReportFile files[] = {
      {"/", "text/html; charset=utf-8", page, sizeof page - 1},
      {"/report.css", "text/css; charset=utf-8", embed_report_css, 0},
      {"/report.js", "text/javascript; charset=utf-8", embed_report_js, 0},
  };
  files[1].count = (size_t)(embed_report_css_end - embed_report_css);
  files[2].count = (size_t)(embed_report_js_end - embed_report_js);
  return index < 3 ? &files[index] : NULL;
}

Status report_append_parts(Text *out, const ReportParts *parts, bool is_live) {
  text_printf(out, "{\"live\":%s,\"plans\":[", is_live ? "true" : "false");
  for (int i = 0; i < parts->model_count; i++) {
    if (i) text_append(out, ",", 1);
    STATUS_TRY(report_append_plan(out, parts->model[i]));
  }
  text_printf(out, "],\"times\":[");
  for (int i = 0; i < parts->times_count; i++) {
    if (i) text_append(out, ",", 1);
    STATUS_TRY(report_append_times(out, parts->times[i]));
  }
  text_printf(out, "],\"runs\":");
  return STATUS_OK;
}

/* ── ftrun report ─────────────────────────────────────────────────────────────────────────── */

static Status read_log(const char *path, RunFile **out) {
  bool more = true, has_changed;
  STATUS_TRY(run_file_new(path, out));
  while (more) STATUS_TRY(run_file_read(*out, NULL, NULL, &more, &has_changed));
  const RunLog *log = run_file_log(*out);
  if (!run_file_is_there(*out)) return status_errno(ENOENT, "%s", run_file_path(*out));
  if (log->header || log->curve_count || log->layers.step_count || log->is_over) return STATUS_OK;
  return status_fail(STATUS_USER,
                     "%s holds no line of a log: ftrun writes one with --log-jsonl FILE, or log { "
                     "jsonl } in the model's file",
                     run_file_path(*out));
}

static Status write_report(const ReportOptions *options, RunFile **files) {
  const char *path = options->output ? options->output : "report.html";
  RunLog *logs[REPORT_MOST_RUNS];
  Text data = {0}, page = {0};
  for (int i = 0; i < options->run_count; i++) logs[i] = run_file_log(files[i]);
  Status status = report_append_parts(&data, &options->parts, false);
  if (status == STATUS_OK) {
    report_append_runs(&data, logs, options->run_count);
    text_append(&data, "}", 1);
    report_page(&page, &data);
    int error = text_write_file(path, page.at, page.count);
    if (error) status = status_errno(error, "cannot write %s", path);
  }
  if (status == STATUS_OK)
    printf("%s: %d run%s, %.1f MB\n", path, options->run_count, options->run_count == 1 ? "" : "s",
           (double)page.count * 1e-6);
  text_free(&data);
  text_free(&page);
  return status;
}

Status report_run(const ReportOptions *options) {
  RunFile *files[REPORT_MOST_RUNS] = {0};
  Status status = STATUS_OK;
  bool has_parts = options->parts.model_count || options->parts.times_count;
  for (int i = 0; i < options->run_count; i++) {
    if (!report_is_study(options->run[i])) continue;
    if (options->run_count == 1 && !has_parts)
      return report_study_run(options->run[i], options->output);
    return status_fail(STATUS_USER,
                       "%s is a study of ftrun tune, which has a page of its own: give it alone, "
                       "without --model and --times",
                       options->run[i]);
  }
  for (int i = 0; i < options->run_count && status == STATUS_OK; i++)
    status = read_log(options->run[i], &files[i]);
  if (status == STATUS_OK) status = write_report(options, files);
  for (int i = 0; i < options->run_count; i++) run_file_free(files[i]);
  return status;
}
