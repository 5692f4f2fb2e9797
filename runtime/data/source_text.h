/* source_text: a text's windows. The tokens of all its files are one row, in the order of the files, and
 * nothing stands between them; so a window may begin in one file and end in another. */
#ifndef FT_RUNTIME_SOURCE_TEXT_H
#define FT_RUNTIME_SOURCE_TEXT_H
#include "runtime/data/source_state.h"

/* Are its samples windows as below? Else they are a set (text_set.h), which also says what is wrong with
 * transforms and options. */
bool source_text_moves(const Plan *plan, const DataSource *data);
/* The lengths of rows that batches have one of; NULL: they have one length. */
const TransformArgument *source_text_buckets(const Plan *plan, const DataSource *data);
/* The tokenizer that the data's options name; NULL: none. */
STATUS_CHECKED Status source_text_tokenizer(const Plan *plan, const DataSource *data,
                                            const SourcePlaces *places, Bpe **out);
/* For --dry-run: tokens, documents, and what they take. */
void source_text_describe(const Source *source, Text *out);
/* The first column has the files; says which windows there are, and what each input gets of them. */
STATUS_CHECKED Status source_text_bind(Source *source, const Plan *plan);
/* Windows sample[0], …, sample[batch-1] of one input. */
STATUS_CHECKED Status source_text_fill(const Source *source, const Column *column,
                                       const int64_t *sample, uint8_t *to);
void source_text_prefetch(const Source *source, const Column *column, int64_t sample);
/* Appends where element `element` of a window comes from: "sample 5 of a.txt", or, of several files,
 * "token 300 of b.txt". */
void source_text_append(const Source *source, const Column *column, int64_t sample, int64_t element,
                        bool has_path, Text *out);
#endif
