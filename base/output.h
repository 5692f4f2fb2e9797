/* output: a tool's standard output, which may be a full disk. */
#ifndef FT_BASE_OUTPUT_H
#define FT_BASE_OUTPUT_H

/* First in main: descriptors 0 to 2 that the caller has closed lead to /dev/null, or the first file
 * that is opened would get what is printed. */
void output_start(void);
/* Last in main: is all that was printed where it should be? Returns the exit code: `code`, or 3 and
 * a sentence if it would have been 0. */
int output_end(const char *tool, int code);
/* From now on output_end ends the process without what is else done at exit: something that will
 * never end may be waited for there. From any thread. */
void output_leave_at_once(void);
#endif
