/* auto_words: see auto_words.h. */
#include "simulate/auto_words.h"
#include "base/text.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
  Arena *arena;
  int gpus, node; /* 0: not said */
  bool is_any;
  const char *gpu;  /* its name; NULL: not said */
  const char *rest; /* what cluster_parse reads */
} AutoWords;

/* 1 to CLUSTER_MOST; 0: it is no such number. */
static int count_of(const char *text) {
  size_t digits = strspn(text, "0123456789");
  if (!digits || digits > 6 || text[digits]) return 0;
  long number = strtol(text, NULL, 10);
  return number <= CLUSTER_MOST ? (int)number : 0;
}

static const char *read_auto_word(AutoWords *words, const char *word) {
  bool is_gpus = !strncmp(word, "gpus=", 5), is_node = !strncmp(word, "node=", 5);
  if (!strncmp(word, "nodes=", 6) || !strcmp(word, "nodes"))
    return "gpus counts all of them, as in auto(gpus = 64), and node = 8 says how many a machine "
           "has: there is no nodes";
  if (is_gpus && !strcmp(word + 5, "any") && !words->is_any) {
    words->is_any = true;
    return NULL;
  }
  if (!is_gpus && !is_node) {
    if (!strncmp(word, "gpu=", 4) && word[4]) words->gpu = word + 4;
    words->rest = arena_printf(words->arena, "%s %s", words->rest, word);
    return NULL;
  }
  int *count = is_gpus ? &words->gpus : &words->node;
  if (*count) return arena_printf(words->arena, "%.4s= is given twice", word);
  *count = count_of(word + 5);
  if (*count) return NULL;
  return arena_printf(words->arena, "%s: it takes a whole number from 1 to %d", word, CLUSTER_MOST);
}

/* GPUs of a machine: as said, or eight, or the most that divide them; processes share one. */
static int node_of(const AutoWords *words, const char *gpu, int gpus) {
  if (words->node) return words->node < gpus ? words->node : gpus;
  const Machine *machine = machine_find(gpu);
  if (machine && machine->link_kind == LINK_MEMORY) return gpus;
  int node = gpus < AUTO_NODE ? gpus : AUTO_NODE;
  while (gpus % node) node--;
  return node;
}

const char *auto_words_parse(Arena *arena, const char *text, const char *gpu, const Cluster *given,
                             Cluster *out) {
  AutoWords words = {.arena = arena, .rest = ""};
  char *copy = arena_strdup(arena, text), *rest = NULL;
  for (char *word = strtok_r(copy, " \t\n,", &rest); word; word = strtok_r(NULL, " \t\n,", &rest)) {
    const char *why = read_auto_word(&words, word);
    if (why) return why;
  }
  if (words.is_any && words.gpus) return "gpus= is given twice";
  if (given && !words.gpus && !words.node && !*words.rest) {
    *out = *given;
    return NULL;
  }
  int gpus = words.gpus ? words.gpus : given ? cluster_ranks(given) : AUTO_NODE;
  if (given && !words.gpu) gpu = given->machine->name;
  int node = node_of(&words, words.gpu ? words.gpu : gpu, gpus);
  if (gpus % node)
    return arena_printf(arena, "%d GPUs are no whole machines of %d: say node = N, which divides "
                               "gpus",
                        gpus, node);
  return cluster_parse(arena,
                       arena_printf(arena, "nodes=%d gpus=%d%s%s%s", gpus / node, node, words.rest,
                                    words.gpu ? "" : " gpu=", words.gpu ? "" : gpu),
                       out);
}
