/* launcher: the process of mpirun on this machine that started this rank. If a job fails because its
 * machines are cut off from each other, these processes wait for one another for ever, and the job
 * would never end. So a rank that leaves a failed job makes its launcher end too. SLURM's does so by
 * itself. */
#ifndef FT_RUNTIME_LAUNCHER_H
#define FT_RUNTIME_LAUNCHER_H

/* A descriptor of it; -1 if this process has none, or it is not one that is known here. */
int launcher_find(void);
/* Its process id; -1: not known. */
int launcher_process(int launcher);
/* Leaves a process behind that waits some seconds for the launcher, asks it to end, and ends it;
 * one for all ranks of a machine. It holds none of this one's files. -1: nothing. */
void launcher_see_off(int launcher);
#endif
