/* arrivals: watches the ranks of this machine until all have joined. MPI says nothing of a rank that
 * has not come, has died or was stopped on its way: it waits, and mpirun ends the others with words
 * that name no rank. So each rank has a socket whose name says that it is there and which vanishes
 * with its process, and a thread that looks for the sockets of the others. Once all have joined, the
 * watch (watch.c) takes over. In a process that has not called arrivals_begin the other functions do
 * nothing. */
#ifndef FT_RUNTIME_ARRIVALS_H
#define FT_RUNTIME_ARRIVALS_H
#include "runtime/communicate/comm.h"

/* As early as can be; the second call does nothing. From then on, until arrivals_end: where another
 * rank of this machine dies, or a signal comes (signals.h), this process says so, if none of the
 * others has, and ends. */
void arrivals_begin(const CommPlace *place);
/* `leave` is called where this process is ended here, by another thread than main's. */
void arrivals_before_end(void (*leave)(void));
/* It is where ranks join: a rank that never comes so far keeps the others waiting. */
void arrivals_join(void);
/* All have joined. */
void arrivals_end(void);

/* Who of this machine keeps the others waiting for so many seconds: not there, stopped, or about
 * something else. False: nobody that is known here. */
bool arrivals_find_missing(double seconds, char *sentence, size_t size);
/* Of a job on several machines of which all ranks of this one have come: those that have not joined
 * these. False: it is not known which they are. */
bool arrivals_say_elsewhere(double seconds, char *sentence, size_t size);
/* This rank fails, or ends before it has joined. True: it is this one that says why, at once, and
 * then calls arrivals_have_said. False: another one has said it. True everywhere else. */
bool arrivals_first_word(void);
/* With this exit code: the others of this machine are told, and end too; where they have not all
 * come it waits a second or two, so that they hear it. */
void arrivals_have_said(int code);
#endif
