/* bench_json: the table of kernels as a file, for programs: `ftc --simulate --times` reads it.
 * {"model", "device", "batch", "graph", "step_ms", "kernels": [{"step", "kind", "name", "label",
 * "layer", "phase", "work", "line", "us", "flops", "bytes"} by step]}; us is null where another row's call did the step. */
#include "runtime/command/bench_json.h"
#include "base/text.h"

static void append_kernel(Text *out, const PlanStep *step, int index, int64_t nanoseconds) {
  text_printf(out, "%s\n  {\"step\": %d, \"kind\": \"%s\", \"name\": ", index ? "," : "", index,
              step_kind_text(step->kind));
  text_append_json(out, step->name);
  text_printf(out, ", \"label\": ");
  text_append_json(out, step->label ? step->label : "");
  text_printf(out, ", \"layer\": ");
  if (step->layer)
    text_append_json(out, step->layer);
  else
    text_printf(out, "null");
  text_printf(out, ", \"phase\": \"%s\", \"work\": \"%s\"", phase_text(step->phase),
              work_text(step->work_kind));
  text_printf(out, ", \"line\": %u, \"us\": ", step->line);
  if (nanoseconds < 0)
    text_printf(out, "null");
  else
    text_printf(out, "%.3f", (double)nanoseconds * 1e-3);
  text_printf(out, ", \"flops\": %lld, \"bytes\": %lld}", (long long)step->flops,
              (long long)step->bytes);
}

Status bench_write_json(const char *path, const Exec *exec, const PlanGraph *graph, const BenchTimes *times) {
  const Plan *plan = exec_plan(exec);
  Text text = {0};
  text_printf(&text, "{\"model\": ");
  text_append_json(&text, plan->model);
  text_printf(&text, ", \"device\": ");
  text_append_json(&text, exec_device_text(exec));
  text_printf(&text,
              ", \"batch\": %.0f, \"graph\": ", setting_number(plan->settings, "train.batch"));
  text_append_json(&text, graph->name);
  text_printf(&text, ", \"step_ms\": %.6f, \"kernels\": [", times->step_ms);
  for (int i = 0; i < graph->steps.count; i++)
    append_kernel(&text, &graph->steps.at[i], i, times->nanoseconds[i]);
  text_printf(&text, "\n]}\n");
  int error = text_write_file(path, text_cstr(&text), text.count);
  text_free(&text);
  return error ? status_errno(error, "%s", path) : STATUS_OK;
}
