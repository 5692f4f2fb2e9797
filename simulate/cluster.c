/* cluster: see cluster.h. */
#include "simulate/cluster.h"
#include "base/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const char *name;
  double factor;
} Unit;
static const Unit rate_units[] = {{"Gb", 1e9 / 8}, {"Mb", 1e6 / 8}, {"Tb", 1e12 / 8}, {"MB", 1e6},
                                  {"GB", 1e9},     {"TB", 1e12},    {NULL, 0}};
static const Unit time_units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {NULL, 0}};
static const Unit size_units[] = {{"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"MB", 1e6},
                                  {"GB", 1e9},     {"TB", 1e12},    {"KiB", 0x1p10},
                                  {"B", 1},        {NULL, 0}};

typedef enum { IS_MACHINE, IS_COUNT, IS_RATE, IS_TIME, IS_SIZE, IS_SHARE } KeyKind;
typedef enum {
  KEY_NODES,
  KEY_GPUS,
  KEY_GPU,
  KEY_NET,
  KEY_NICS,
  KEY_LATENCY,
  KEY_LINK,
  KEY_LINK_LATENCY,
  KEY_MEMORY,
  KEY_MEMORY_RATE,
  KEY_PRODUCTS,
  KEY_COPIES,
  KEY_LAUNCH,
  KEY_CORES,
  KEYS
} Key;
static const struct {
  const char *name;
  KeyKind kind;
} key_info[KEYS] = {
    [KEY_NODES] = {"nodes", IS_COUNT},       [KEY_GPUS] = {"gpus", IS_COUNT},
    [KEY_GPU] = {"gpu", IS_MACHINE},         [KEY_NET] = {"net", IS_RATE},
    [KEY_NICS] = {"nics", IS_COUNT},         [KEY_LATENCY] = {"latency", IS_TIME},
    [KEY_LINK] = {"link", IS_RATE},          [KEY_LINK_LATENCY] = {"link-latency", IS_TIME},
    [KEY_MEMORY] = {"memory", IS_SIZE},      [KEY_MEMORY_RATE] = {"memory-rate", IS_RATE},
    [KEY_PRODUCTS] = {"products", IS_SHARE}, [KEY_COPIES] = {"copies", IS_SHARE},
    [KEY_LAUNCH] = {"launch", IS_TIME},      [KEY_CORES] = {"cores", IS_COUNT},
};
static const char *const kind_text[] = {
    [IS_COUNT] = "a whole number from 1 to 65536",
    [IS_RATE] = "a number of Mb, Gb, Tb (bits) or MB, GB, TB (bytes) a second, such as 400Gb",
    [IS_TIME] = "a number of ns, us or ms, such as 5us",
    [IS_SIZE] = "a number of MiB, GiB, TiB, MB, GB or TB, such as 80GiB",
    [IS_SHARE] = "a share from 0.01 to 1",
};

typedef struct {
  Arena *arena;
  double value[KEYS];
  bool is_set[KEYS];
  const Machine *machine;
} Words;

/* ── values ─────────────────────────────────────────────────────────────────────────────────── */
/* A number as people write it, and where it ends; a sign, hexadecimal and nan are not such. */
static bool read_decimal(const char *text, double *out, const char **end) {
  size_t whole = strspn(text, "0123456789"), fraction = 0;
  const char *at = text + whole;
  if (*at == '.') {
    fraction = strspn(at + 1, "0123456789");
    at += 1 + fraction;
  }
  if (*at == 'e' || *at == 'E') {
    const char *exponent = at + 1 + (at[1] == '-' || at[1] == '+');
    size_t digits = strspn(exponent, "0123456789");
    if (digits) at = exponent + digits;
  }
  *end = at;
  if (!whole && !fraction) return false;
  *out = strtod(text, NULL);
  return isfinite(*out);
}

static bool with_unit(const char *text, const Unit *unit, double *out) {
  const char *end;
  double number;
  if (!read_decimal(text, &number, &end)) return false;
  for (; unit->name; unit++) {
    if (strcmp(unit->name, end)) continue;
    *out = number * unit->factor;
    return *out > 0 && *out < 1e18;
  }
  return false;
}

static bool read_value(KeyKind kind, const char *text, double *out) {
  const char *end;
  switch (kind) {
  case IS_RATE:
    return with_unit(text, rate_units, out);
  case IS_TIME:
    return with_unit(text, time_units, out);
  case IS_SIZE:
    return with_unit(text, size_units, out);
  case IS_SHARE:
    return read_decimal(text, out, &end) && !*end && *out >= 0.01 && *out <= 1;
  default:
    return read_decimal(text, out, &end) && !*end && *out == floor(*out) && *out >= 1 &&
           *out <= CLUSTER_MOST;
  }
}

static const char *unknown_machine(Arena *arena, const char *name) {
  Text known = {0};
  const char *near = machine_nearest(name);
  for (int i = 0; i < machine_count; i++)
    text_printf(&known, "%s%s", i ? ", " : "", machine_table[i].name);
  const char *why = arena_printf(arena, "gpu=%s is not known%s%s%s; known are %s", name,
                                 near ? "; did you mean " : "", near ? near : "", near ? "?" : "",
                                 text_cstr(&known));
  text_free(&known);
  return why;
}

static const char *cluster_unknown_key(Arena *arena, const char *name) {
  const char *names[KEYS];
  Text known = {0};
  for (int i = 0; i < KEYS; i++) {
    names[i] = key_info[i].name;
    text_printf(&known, "%s%s", i ? ", " : "", names[i]);
  }
  const char *near = text_nearest(name, names, KEYS);
  const char *why = arena_printf(arena, "'%s' is no word of a cluster%s%s%s; these are %s", name,
                                 near ? "; did you mean " : "", near ? near : "", near ? "?" : "",
                                 text_cstr(&known));
  text_free(&known);
  return why;
}

/* One word, which it may change. */
static const char *read_cluster_word(Words *words, char *word) {
  char *equal = strchr(word, '=');
  if (!equal)
    return arena_printf(words->arena, "'%s' needs a value: KEY=VALUE, such as nodes=4", word);
  *equal = 0;
  const char *value = equal + 1;
  int key = 0;
  while (key < KEYS && strcmp(key_info[key].name, word)) key++;
  if (key == KEYS) return cluster_unknown_key(words->arena, word);
  if (words->is_set[key]) return arena_printf(words->arena, "%s= is given twice", word);
  words->is_set[key] = true;
  if (key_info[key].kind == IS_MACHINE) {
    words->machine = machine_find(value);
    return words->machine ? NULL : unknown_machine(words->arena, value);
  }
  if (read_value(key_info[key].kind, value, &words->value[key])) return NULL;
  return arena_printf(words->arena, "%s=%s: it takes %s", word, value,
                      kind_text[key_info[key].kind]);
}

/* ── the whole ──────────────────────────────────────────────────────────────────────────────── */
static double otherwise(const Words *words, Key key, double value) {
  return words->is_set[key] ? words->value[key] : value;
}

static void apply(const Words *words, Cluster *out) {
  const Machine *machine = words->machine;
  int nodes = (int)otherwise(words, KEY_NODES, 1), gpus = (int)otherwise(words, KEY_GPUS, 1);
  bool is_cpu = machine->link_kind == LINK_MEMORY;
  *out = (Cluster){.machine = machine,
                   .fabric = fabric_of(machine, nodes, gpus),
                   .memory = otherwise(words, KEY_MEMORY, machine->memory),
                   .memory_rate = otherwise(words, KEY_MEMORY_RATE, machine->memory_rate),
                   /* an H100: cuBLAS 798 of 989 TFLOP/s at 8192³, copies 3.0 of 3.35 TB/s */
                   .products = otherwise(words, KEY_PRODUCTS, 0.8),
                   .copies = otherwise(words, KEY_COPIES, 0.9),
                   .launch = otherwise(words, KEY_LAUNCH, is_cpu ? 1e-6 : 2e-6),
                   .cores = (int)otherwise(words, KEY_CORES, 0)};
  Fabric *fabric = &out->fabric;
  if (words->is_set[KEY_NET]) fabric->network *= words->value[KEY_NET] / machine->network;
  if (words->is_set[KEY_NICS]) fabric->network *= words->value[KEY_NICS] / gpus;
  if (words->is_set[KEY_LINK]) fabric->link *= words->value[KEY_LINK] / machine->link;
  if (words->is_set[KEY_LATENCY]) fabric->network_latency = words->value[KEY_LATENCY];
  if (words->is_set[KEY_LINK_LATENCY]) fabric->link_latency = words->value[KEY_LINK_LATENCY];
}

const char *cluster_parse(Arena *arena, const char *text, Cluster *out) {
  Words words = {.arena = arena};
  char *copy = arena_strdup(arena, text), *rest = NULL;
  for (char *word = strtok_r(copy, " \t\n,", &rest); word; word = strtok_r(NULL, " \t\n,", &rest)) {
    const char *why = read_cluster_word(&words, word);
    if (why) return why;
  }
  if (!words.machine) return "gpu= is missing: say what computes, such as gpu=h100 or gpu=cpu";
  if (words.is_set[KEY_CORES] && words.machine->link_kind != LINK_MEMORY)
    return "cores= is for gpu=cpu, whose ranks share the cores of a node";
  double ranks = otherwise(&words, KEY_NODES, 1) * otherwise(&words, KEY_GPUS, 1);
  if (ranks > 1 << 20)
    return arena_printf(arena, "nodes times gpus is %.0f; at most 1048576 ranks are simulated",
                        ranks);
  apply(&words, out);
  return NULL;
}

int cluster_ranks(const Cluster *cluster) { return cluster->fabric.nodes * cluster->fabric.local; }

double cluster_slowness(const Cluster *cluster) {
  double share = cluster->cores ? (double)cluster->fabric.local / cluster->cores : 1;
  return share > 1 ? share : 1;
}

Fabric cluster_fabric(const Cluster *cluster, int ranks) {
  Fabric fabric = cluster->fabric;
  int local = fabric.local;
  fabric.local = ranks < local ? ranks : local;
  fabric.nodes = ranks <= local ? 1 : (ranks + local - 1) / local;
  return fabric;
}

Fabric cluster_group(const Cluster *cluster, const Mesh *mesh, MeshAxis axis) {
  Fabric fabric = cluster_fabric(cluster, mesh_ranks(mesh));
  int size = mesh_size(mesh, axis), together = fabric.local / mesh_stride(mesh, axis);
  if (axis == MESH_ALL) return fabric;
  if (axis == MESH_STAGE) { /* not evenly spaced: as many as a node has of the first stage */
    together = 0;
    for (int r = 0; r < fabric.local; r++) together += !mesh_index(mesh, MESH_PIPELINE, r);
  }
  if (together < 1) together = 1; /* the next rank of the group is in another node */
  fabric.local = size < together ? size : together;
  fabric.nodes = (size + fabric.local - 1) / fabric.local;
  return fabric;
}
