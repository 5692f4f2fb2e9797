/* machine: machines.def as a table: peaks in SI units (bytes, bytes and operations a second). Read by
 * ftc --simulate, by the choice of buckets, and by whatever else asks what a machine could do. */
#ifndef FT_PLAN_MACHINE_H
#define FT_PLAN_MACHINE_H

/* What joins the ranks of one node; LINK_NETWORK joins nodes. MEMORY: processes that share it. */
typedef enum { LINK_NVLINK, LINK_PCIE, LINK_MEMORY, LINK_NETWORK, LINK_KINDS } LinkKind;

typedef struct {
  const char *name, *text;
  const char *target;         /* ftc --gpu; "": the CPU */
  double memory, memory_rate; /* bytes; bytes/s */
  double f32, tf32, half;     /* operations/s, dense; half: bf16 and f16; 0: it has none */
  int multiprocessors;
  double clock; /* Hz */
  LinkKind link_kind;
  double link, link_reached; /* bytes/s of one GPU in one direction: stated; of a collective */
  double network;            /* bytes/s of one GPU's share */
} Machine;

extern const Machine machine_table[];
extern const int machine_count;
const Machine *machine_find(const char *name); /* NULL: there is none */
const char *machine_nearest(const char *name); /* for "did you mean", or NULL */
const char *link_kind_text(LinkKind kind);     /* "NVLink" */
#endif
