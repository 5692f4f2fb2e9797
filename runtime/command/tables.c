/* tables: see tables.h. */
#include "runtime/command/tables.h"
#include "base/own.h"
#include "runtime/command/ranking.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  int output;
  Ranking *ranking;  /* of an AUC; else: */
  LogTable table[2]; /* of the weights as they are, of their average */
  double *values[2];
} Entry;

struct Tables {
  Exec *exec;
  Ranks *ranks;
  const PlanGraph *plan;
  ExecGraph graph;
  bool is_average, has_rankings;
  void *bytes; /* of the largest output */
  Entry *entries;
  int count;
};

static bool is_table(const PlanOutput *output) {
  return output->kind == OUTPUT_METRIC && output->type.shape.rank > 0;
}

static Status tables_add(Tables *tables, int output, int64_t samples) {
  const PlanOutput *found = &tables->plan->outputs.at[output];
  const Shape *shape = &found->type.shape;
  Entry *entry = &tables->entries[tables->count++];
  entry->output = output;
  if (found->kind == OUTPUT_AUC) {
    double batch = setting_number(exec_plan(tables->exec)->settings, "train.batch");
    double rows = (double)samples * ((double)shape->dim[0] / (batch > 0 ? batch : 1));
    tables->has_rankings = true;
    return ranking_new(found->name, shape->dim[1], rows < 0x1p62 ? (int64_t)rows : INT64_MAX,
                       &entry->ranking);
  }
  for (int i = 0; i < 2; i++) {
    entry->values[i] = calloc((size_t)shape_elements(shape) + 1, sizeof(double));
    if (!entry->values[i]) return status_errno(ENOMEM, "metric '%s'", found->name);
    entry->table[i] = (LogTable){*shape, entry->values[i]};
  }
  return STATUS_OK;
}

static Status tables_fill(Tables *tables, int64_t samples) {
  int64_t most = 0;
  tables->entries = calloc((size_t)tables->plan->outputs.count + 1, sizeof *tables->entries);
  if (!tables->entries) return status_errno(ENOMEM, "evaluation");
  for (int i = 0; i < tables->plan->outputs.count; i++) {
    const PlanOutput *output = &tables->plan->outputs.at[i];
    if (!is_table(output) && output->kind != OUTPUT_AUC) continue;
    if (type_bytes(&output->type) > most) most = type_bytes(&output->type);
    STATUS_TRY(tables_add(tables, i, samples));
  }
  tables->bytes = malloc((size_t)most + 8);
  return tables->bytes ? STATUS_OK : status_errno(ENOMEM, "evaluation");
}

Status tables_new(Exec *exec, Ranks *ranks, int64_t samples, Tables **out) {
  *out = NULL;
  Tables *tables = calloc(1, sizeof *tables);
  if (!tables) return status_errno(ENOMEM, "evaluation");
  ExecGraph graph = exec_result_graph(exec, PROGRAMME_EVALUATE);
  *tables =
      (Tables){.exec = exec, .ranks = ranks, .graph = graph, .plan = exec_graph_plan(exec, graph)};
  Status status = tables_fill(tables, samples);
  if (status == STATUS_OK)
    *out = tables;
  else
    tables_free(tables);
  return status;
}

void tables_free(Tables *tables) {
  if (!tables) return;
  for (int i = 0; i < tables->count; i++) {
    ranking_free(tables->entries[i].ranking);
    free(tables->entries[i].values[0]);
    free(tables->entries[i].values[1]);
  }
  free(tables->entries);
  free(tables->bytes);
  free(tables);
}

void tables_begin(Tables *tables, bool is_average) {
  tables->is_average = is_average;
  for (int i = 0; i < tables->count; i++)
    if (tables->entries[i].ranking) ranking_clear(tables->entries[i].ranking);
}

bool tables_collect(const Tables *tables) { return tables->has_rankings; }

static Status tables_read(Tables *tables, const Entry *entry) {
  const PlanOutput *output = &tables->plan->outputs.at[entry->output];
  return exec_read_output(tables->exec, tables->graph, entry->output, tables->bytes,
                          type_bytes(&output->type));
}

Status tables_batch(Tables *tables) {
  for (int i = 0; i < tables->count; i++) {
    Entry *entry = &tables->entries[i];
    if (!entry->ranking) continue;
    STATUS_TRY(tables_read(tables, entry));
    STATUS_TRY(ranking_add(entry->ranking, tables->bytes,
                           tables->plan->outputs.at[entry->output].type.shape.dim[0]));
  }
  return STATUS_OK;
}

static Status take_entry(Tables *tables, Entry *entry, LogMetric *metric) {
  const Type *type = &tables->plan->outputs.at[entry->output].type;
  if (entry->ranking) return ranking_auc(entry->ranking, tables->ranks, &metric->value);
  STATUS_TRY(tables_read(tables, entry));
  const char *bytes = tables->bytes;
  for (int64_t i = 0; i < shape_elements(&type->shape); i++)
    entry->values[tables->is_average][i] =
        exec_scalar_value(type->dtype, bytes + i * dtype_bytes(type->dtype));
  metric->table = &entry->table[tables->is_average];
  return STATUS_OK;
}

Status tables_take(Tables *tables, LogStep *out) {
  for (int i = 0; i < tables->count; i++) {
    const char *name = tables->plan->outputs.at[tables->entries[i].output].name;
    for (int k = 0; k < out->metric_count; k++)
      if (strcmp(out->metric[k].name, own_shown(name)) == 0)
        STATUS_TRY(take_entry(tables, &tables->entries[i], &out->metric[k]));
  }
  return STATUS_OK;
}
