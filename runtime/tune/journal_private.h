/* journal_private: what journal.c and journal_read.c share. */
#ifndef FT_RUNTIME_TUNE_JOURNAL_PRIVATE_H
#define FT_RUNTIME_TUNE_JOURNAL_PRIVATE_H
#include "runtime/tune/journal.h"

/* One line; what is none of a journal is counted and passed over. Fails for lack of memory only. */
Status journal_take_line(Journal *journal, const char *line, size_t count);
/* Is the study that is there the one that is meant? */
Status journal_compare(const Journal *journal, const JournalHeader *header);
const char *journal_state_name(TrialState state);
#endif
