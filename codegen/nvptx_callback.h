/* nvptx_callback: what a kernel body in C (kernels/x_ptx.c) and its generated parts say to each
 * other. A body is specialised under a suffix; the constants and functions it declares are defined
 * here, always inlined. Its functions take the array of the entry's pointers first. */
#ifndef FT_CODEGEN_NVPTX_CALLBACK_H
#define FT_CODEGEN_NVPTX_CALLBACK_H
#include "codegen/nvptx_private.h"


/* Opens `result name<suffix>(ptr args, parameters[1..]...)`; body NULL: no nodes to pull. The
 * emitter's pointer[] are operands, results, workspace, and the job's maps. */
void callback_open(Job *job, Emitter *emitter, const char *suffix, const char *name,
                   LLVMTypeRef result, LLVMTypeRef *parameters, int count, const Graph *body);
/* The same without the array of pointers. */
void callback_open_plain(Job *job, Emitter *emitter, const char *suffix, const char *name,
                         LLVMTypeRef result, LLVMTypeRef *parameters, int count);
/* Defines name<suffix>(ptr args), which gives the address so many bytes behind an argument's. */
void callback_pointer(Job *job, const char *suffix, const char *name, int argument, int64_t offset);
void callback_close(Emitter *emitter, LLVMValueRef value); /* NULL: void */
/* In an entry: calls name<suffix>(args, extra...); integers are passed as i32. */
void callback_call(Entry *entry, const char *suffix, const char *name, LLVMValueRef *extra,
                   int count);
/* The same of the block's panels, its place in the grid, and the thread. */
void callback_call_block(Entry *entry, const char *suffix, const char *name, LLVMValueRef panels);
/* False, with an error, where element numbers do not fit 32 bits. */
bool callback_fits(Job *job);
#endif
