/* ftrun_ranks: `ftrun --ranks N` and `--gpus N`: the same command line, run as N processes of this
 * machine, by mpirun or by ftrun itself. */
#ifndef FT_TOOLS_FTRUN_RANKS_H
#define FT_TOOLS_FTRUN_RANKS_H
#include <stdint.h>

/* Called ten times a second while they run: not 0 asks the ranks to end after their step. */
typedef int RanksWatch(void *context);
/* Has mpirun run this program with `arguments` (NULL behind the last) as so many ranks; returns
 * the exit code. Ctrl-C and the like end the ranks after their step, as they end ftrun alone.
 * watch: or NULL. */
int ranks_start(int64_t ranks, char *const *arguments, RanksWatch *watch, void *context);
/* `ftrun --ranks N` (gpus: 1) or `--gpus N`: the same arguments without that flag, as so many ranks. */
int ranks_start_line(const char *artifact, int64_t ranks, int64_t gpus, int argc, char **argv);
int ranks_signalled(void); /* Ctrl-C or the like has come, in this run or one before */
/* `ftrun --gpus N`: the same without mpirun, by torchrun's variables. When one has failed the
 * others have ten seconds to end by themselves. */
typedef struct {
  int64_t count;
  char *const *arguments;
  const char *visible; /* CUDA_VISIBLE_DEVICES of the ranks; NULL: as it is here */
  RanksWatch *watch;   /* or NULL */
  void *context;
  int lost; /* on return: the rank that died, hung or says that it has failed; -1: none is known */
} GpusRun;
int gpus_start(GpusRun *run);
int gpus_signalled(void); /* as ranks_signalled */
#endif
