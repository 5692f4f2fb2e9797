/* runtime_sim_check: each finding of the simulator's checker, provoked by one planted defect in a
 * small kernel, with its exact words; and for each the same kernel without the defect, which must
 * pass. And what a damaged or foreign text is refused with. */
#include "runtime_sim.h"

/* The kernel k(in, out): in is 64 words that hold their index, out 64 words. %rd1 and %rd2 are the
 * two addresses, %r1 is the thread, %rd3 4 times it. */
#define BEGIN                                                                                      \
  SIM_HEAD ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n"                               \
           ".reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .f32 %f<8>;\n"             \
           ".shared .align 16 .b8 s[1024]; .local .align 8 .b8 l[32]; .reg .b16 %h<4>;\n"          \
           "ld.param.u64 %rd1, [in];\nld.param.u64 %rd2, [out];\nmov.u32 %r1, %tid.x;\n"           \
           "mul.wide.u32 %rd3, %r1, 4;\nadd.s64 %rd4, %rd1, %rd3;\nadd.s64 %rd5, %rd2, %rd3;\n"    \
           "cvt.u32.u64 %r2, %rd3;\nmov.u32 %r3, s;\nadd.s32 %r2, %r2, %r3;\n"
#define END "\nret;\n}\n"
/* The body begins at line 17. */

typedef struct {
  const char *name, *bad, *good; /* bodies */
  const char *message;           /* of the bad one, after "t.ft:7: \"label\": kernel k, t.ptx:" */
  int threads, blocks;           /* 0: 64 and 1; -64: the input may be written too */
} Case;

static const Case cases[] = {
    {"out of bounds load", "ld.global.u32 %r4, [%rd4+4];", "ld.global.u32 %r4, [%rd4];",
     "17: out of bounds: a load of 4 bytes at 0 bytes after the end of input, by thread (63,0,0) "
     "of "
     "block (0,0,0)",
     0, 0},
    {"before the beginning", "ld.global.v2.u32 {%r4, %r5}, [%rd1+-8];",
     "ld.global.v2.u32 {%r4, %r5}, [%rd1+8];",
     "17: out of bounds: a load of 8 bytes at 8 bytes before input, by thread (0,0,0) of block "
     "(0,0,0)",
     0, 0},
    {"far away", "mov.u64 %rd6, 64; st.global.u32 [%rd6], %r1;", "st.global.u32 [%rd5], %r1;",
     "17: out of bounds: a store of 4 bytes at address 0x40, far from every buffer of the launch, "
     "by "
     "thread (0,0,0) of block (0,0,0)",
     0, 0},
    {"write to an input", "st.global.u32 [%rd4], %r1;", "st.global.u32 [%rd5], %r1;",
     "17: write to an input: a store of 4 bytes at byte 0 of input, by thread (0,0,0) of block "
     "(0,0,0)",
     0, 0},
    {"misaligned", "ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd1+8];",
     "ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd1+16];",
     "17: misaligned: a load of 16 bytes at byte 8 of input, by thread (0,0,0) of block (0,0,0)", 0,
     0},
    {"nobody wrote it", "ld.global.u32 %r4, [%rd5];",
     "st.global.u32 [%rd5], %r1;\nld.global.u32 %r4, [%rd5];",
     "17: read of memory that nobody wrote: a load of 4 bytes at byte 0 of output, by thread "
     "(0,0,0) "
     "of block (0,0,0)",
     0, 0},
    {"shared out of bounds", "st.shared.u32 [%r2+800], %r1;", "st.shared.u32 [%r2+768], %r1;",
     "17: out of bounds: a store of 4 bytes at byte 1024 of shared memory (1024 bytes), by thread "
     "(56,0,0) of block (0,0,0)",
     0, 0},
    {"shared misaligned", "st.shared.u32 [%r2+2], %r1;", "st.shared.u32 [%r2], %r1;",
     "17: misaligned: a store of 4 bytes at byte 2 of shared memory, by thread (0,0,0) of block "
     "(0,0,0)",
     0, 0},
    {"shared that nobody wrote", "ld.shared.u32 %r4, [%r2];",
     "st.shared.u32 [%r2], %r1;\nld.shared.u32 %r4, [%r2];",
     "17: read of shared memory that nobody wrote: a load at byte 0 of shared memory, by thread "
     "(0,0,0) of block (0,0,0)",
     0, 0},
    {"half of a word written", "st.shared.u16 [%r2], 1;\nld.shared.u32 %r4, [%r2];",
     "st.shared.u16 [%r2], 1;\nst.shared.u16 [%r2+2], 1;\nld.shared.u32 %r4, [%r2];",
     "18: read of shared memory that nobody wrote: a load at byte 0 of shared memory, by thread "
     "(0,0,0) of block (0,0,0)",
     0, 0},
    {"race: write then read, no barrier",
     "st.shared.u32 [%r2], %r1;\nxor.b32 %r4, %r2, 4;\nld.shared.u32 %r5, [%r4];",
     "st.shared.u32 [%r2], %r1;\nbar.sync 0;\nxor.b32 %r4, %r2, 4;\nld.shared.u32 %r5, [%r4];",
     "19: race: byte 4 of shared memory is read by thread (0,0,0) of block (0,0,0) and written by "
     "thread (1,0,0) of the same block, and nothing orders the two",
     0, 0},
    {"race: read then write, no barrier",
     "st.shared.u32 [%r2], %r1;\nbar.sync 0;\nxor.b32 %r4, %r2, 128;\nld.shared.u32 %r5, [%r4];\n"
     "st.shared.u32 [%r2], %r5;",
     "st.shared.u32 [%r2], %r1;\nbar.sync 0;\nxor.b32 %r4, %r2, 128;\nld.shared.u32 %r5, [%r4];\n"
     "bar.sync 0;\nst.shared.u32 [%r2], %r5;",
     "20: race: byte 0 of shared memory is read by thread (32,0,0) of block (0,0,0) and written by "
     "thread (0,0,0) of the same block, and nothing orders the two",
     0, 0},
    {"race: barriers of half the block's threads",
     "st.shared.u32 [%r2], %r1;\nshr.u32 %r6, %r1, 6;\nand.b32 %r4, %r2, -129;\n"
     "ld.shared.u32 %r5, [%r4];",
     "st.shared.u32 [%r2], %r1;\nshr.u32 %r6, %r1, 6;\nadd.u32 %r6, %r6, 1;\n"
     "bar.sync %r6, 64;\nand.b32 %r4, %r2, -129;\nld.shared.u32 %r5, [%r4];",
     "20: race: byte 0 of shared memory is read by thread (32,0,0) of block (0,0,0) and written by "
     "thread (0,0,0) of the same block, and nothing orders the two",
     128, 0},
    {"race: each half of the block has met, and not the other",
     "st.shared.u32 [%r2], %r1;\nshr.u32 %r6, %r1, 6;\nadd.u32 %r6, %r6, 1;\nbar.sync %r6, 64;\n"
     "xor.b32 %r4, %r2, 256;\nld.shared.u32 %r5, [%r4];",
     "st.shared.u32 [%r2], %r1;\nbar.sync 1, 128;\nxor.b32 %r4, %r2, 256;\n"
     "ld.shared.u32 %r5, [%r4];",
     "22: race: byte 256 of shared memory is read by thread (0,0,0) of block (0,0,0) and written by "
     "thread (64,0,0) of the same block, and nothing orders the two",
     128, 0},
    {"race: a writer that did not wait for the readers' barrier",
     "st.shared.u32 [%r2], %r1;\nbar.sync 0;\nld.shared.u32 %r5, [%r3];\n"
     "shr.u32 %r6, %r1, 6;\nadd.u32 %r6, %r6, 1;\nbar.sync %r6, 64;\nsetp.ne.u32 %p2, %r1, 96;\n"
     "@%p2 bra $L2;\nst.shared.u32 [%r3], %r1;\n$L2:",
     "st.shared.u32 [%r2], %r1;\nbar.sync 0;\nld.shared.u32 %r5, [%r3];\nbar.sync 1, 128;\n"
     "setp.ne.u32 %p2, %r1, 96;\n@%p2 bra $L2;\nst.shared.u32 [%r3], %r1;\n$L2:",
     "25: race: byte 0 of shared memory is written by thread (96,0,0) of block (0,0,0) and read by "
     "thread (0,0,0) of the same block, and nothing orders the two",
     128, 0},
    {"race: two writers", "and.b32 %r4, %r2, 124;\nst.shared.u32 [%r4], %r1;",
     "st.shared.u32 [%r2], %r1;",
     "18: race: byte 0 of shared memory is written by thread (32,0,0) of block (0,0,0) and written "
     "by thread (0,0,0) of the same block, and nothing orders the two",
     0, 0},
    {"race: lanes of a warp in one store", "st.shared.u32 [%r3], %r1;",
     "setp.ne.s32 %p1, %r1, 0;\n@%p1 bra $L1;\nst.shared.u32 [%r3], %r1;\n$L1:",
     "17: race: byte 0 of shared memory is written by thread (1,0,0) of block (0,0,0) and written "
     "by "
     "thread (0,0,0) of the same block, and nothing orders the two",
     0, 0},
    {"race within a warp",
     "st.shared.u32 [%r2], %r1;\nxor.b32 %r4, %r2, 4;\nld.shared.u32 %r5, [%r4];",
     "st.shared.u32 [%r2], %r1;\nbar.warp.sync -1;\nxor.b32 %r4, %r2, 4;\nld.shared.u32 %r5, "
     "[%r4];",
     "19: race: byte 4 of shared memory is read by thread (0,0,0) of block (0,0,0) and written by "
     "thread (1,0,0) of the same block, and nothing orders the two",
     32, 0},
    {"race in global memory, one block",
     "st.global.u32 [%rd5], %r1;\nxor.b64 %rd6, %rd5, 128;\nst.global.u32 [%rd6], %r1;",
     "st.global.u32 [%rd5], %r1;\nbar.sync 0;\nxor.b64 %rd6, %rd5, 128;\nst.global.u32 [%rd6], "
     "%r1;",
     "17: race: byte 128 of output is written by thread (32,0,0) of block (0,0,0) and written by "
     "thread (0,0,0) of the same block, and nothing orders the two",
     0, 0},
    {"race between blocks", "st.global.u32 [%rd5], %r1;",
     "mov.u32 %r4, %ctaid.x;\nmul.wide.u32 %rd6, %r4, 128;\nadd.s64 %rd5, %rd5, %rd6;\n"
     "st.global.u32 [%rd5], %r1;",
     "17: race: byte 0 of output is written by thread (0,0,0) of block (1,0,0) and written by "
     "thread "
     "(0,0,0) of block (0,0,0), and nothing orders the two",
     32, 2},
    {"divergent barrier", "setp.lt.u32 %p1, %r1, 16;\n@%p1 bra $L1;\nbar.sync 0;\n$L1:",
     "setp.lt.u32 %p1, %r1, 32;\n@%p1 bra $L1;\nbra.uni $L1;\n$L1:\nbar.sync 0;",
     "19: divergent barrier: lanes ffff0000 of the warp's ffffffff come here; it is .aligned, so all "
     "must come together",
     0, 0},
    {"an aligned barrier that the halves of a warp reach one after the other",
     "and.b32 %r4, %r1, 1;\nsetp.eq.u32 %p1, %r4, 0;\n@%p1 bra $L1;\nbarrier.sync.aligned 0;\n"
     "bra.uni $L2;\n$L1:\nbarrier.sync.aligned 0;\n$L2:",
     "and.b32 %r4, %r1, 1;\nsetp.eq.u32 %p1, %r4, 0;\n@%p1 bra $L1;\nadd.u32 %r4, %r4, 1;\n"
     "bra.uni $L2;\n$L1:\nadd.u32 %r4, %r4, 2;\n$L2:\nbarrier.sync.aligned 0;",
     "23: divergent barrier: lanes 55555555 of the warp's ffffffff come here; it is .aligned, so all "
     "must come together",
     0, 0},
    {"a guarded aligned barrier", "and.b32 %r4, %r1, 1;\nsetp.eq.u32 %p1, %r4, 0;\n@%p1 bar.sync 0;",
     "setp.lt.u32 %p1, %r1, 64;\n@%p1 bar.sync 0;",
     "19: divergent barrier: lanes 55555555 of the warp's ffffffff come here; it is .aligned, so all "
     "must come together",
     0, 0},
    {"a matrix load by half a warp",
     "st.shared.u32 [%r2], %r1;\nbar.sync 0;\nsetp.lt.u32 %p1, %r1, 16;\n@!%p1 bra $L1;\n"
     "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3];\n$L1:",
     "st.shared.u32 [%r2], %r1;\nbar.sync 0;\nsetp.lt.u32 %p1, %r1, 32;\n@!%p1 bra $L1;\n"
     "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3];\n$L1:",
     "21: divergent ldmatrix: lanes 0000ffff of the warp's ffffffff come here; it is .aligned, so all "
     "must come together",
     0, 0},
    {"ld.global.nc of what this thread wrote",
     "st.global.u32 [%rd5], %r1;\nld.global.nc.u32 %r4, [%rd5];",
     "st.global.u32 [%rd5], %r1;\nld.global.u32 %r4, [%rd5];",
     "18: not constant: byte 0 of output is read by ld.global.nc by thread (0,0,0) of block (0,0,0) "
     "and written by thread (0,0,0) of the same block in one launch; what ld.global.nc reads may not "
     "be written in it",
     0, 0},
    {"ld.global.nc after a barrier",
     "st.global.u32 [%rd5], %r1;\nbar.sync 0;\nld.global.nc.u32 %r4, [%rd2+128];",
     "st.global.u32 [%rd5], %r1;\nbar.sync 0;\nld.global.u32 %r4, [%rd2+128];",
     "19: not constant: byte 128 of output is read by ld.global.nc by thread (0,0,0) of block (0,0,0) "
     "and written by thread (32,0,0) of the same block in one launch; what ld.global.nc reads may "
     "not be written in it",
     0, 0},
    {"a write to what ld.global.nc has read",
     "ld.global.nc.u32 %r4, [%rd4];\nst.global.u32 [%rd4], %r4;",
     "ld.global.u32 %r4, [%rd4];\nst.global.u32 [%rd4], %r4;",
     "18: not constant: byte 0 of an allocation is written by thread (0,0,0) of block (0,0,0) and "
     "read by ld.global.nc by thread (0,0,0) of the same block in one launch; what ld.global.nc "
     "reads may not be written in it",
     -64, 0},
    {"a write after barriers to what ld.global.nc has read",
     "ld.global.nc.u32 %r4, [%rd4];\nbar.sync 0;\nld.global.u32 %r5, [%rd4];\nbar.sync 0;\n"
     "setp.eq.u32 %p1, %r1, 40;\n@%p1 st.global.u32 [%rd1+12], %r4;",
     "ld.global.nc.u32 %r4, [%rd4];\nbar.sync 0;\nld.global.u32 %r5, [%rd4];\nbar.sync 0;\n"
     "setp.eq.u32 %p1, %r1, 40;\n@%p1 st.global.u32 [%rd2+12], %r4;",
     "22: not constant: byte 12 of an allocation is written by thread (40,0,0) of block (0,0,0) and "
     "read by ld.global.nc by thread (3,0,0) of the same block in one launch; what ld.global.nc "
     "reads may not be written in it",
     -64, 0},
    {"barriers at different places",
     "setp.lt.u32 %p1, %r1, 32;\n@%p1 bra $L1;\nbar.sync 0;\nbra.uni $L2;\n$L1:\nbar.sync 0;\n$L2:",
     "bar.sync 0;", "22: divergent barrier: warp 0 waits here, warp 1 at line 19", 0, 0},
    {"shuffle without its lanes",
     "setp.lt.u32 %p1, %r1, 8;\n@!%p1 bra $L1;\nshfl.sync.bfly.b32 %r4, %r1, 1, 31, -1;\n$L1:",
     "shfl.sync.bfly.b32 %r4, %r1, 1, 31, -1;",
     "19: divergent shfl.sync: lanes 000000ff wait here, and the others have ended", 32, 0},
    {"unfinished copy",
     "cp.async.ca.shared.global [%r2], [%rd4], 4;\ncp.async.commit_group;\nld.shared.u32 %r4, "
     "[%r2];",
     "cp.async.ca.shared.global [%r2], [%rd4], 4;\ncp.async.commit_group;\ncp.async.wait_group 0;\n"
     "ld.shared.u32 %r4, [%r2];",
     "19: unfinished copy: a load at byte 0 of shared memory, which a cp.async still fills, by "
     "thread "
     "(0,0,0) of block (0,0,0)",
     0, 0},
    {"a wait for fewer groups",
     "cp.async.ca.shared.global [%r2], [%rd4], 4;\ncp.async.commit_group;\ncp.async.wait_group 1;\n"
     "ld.shared.u32 %r4, [%r2];",
     "cp.async.ca.shared.global [%r2], [%rd4], 4;\ncp.async.commit_group;\n"
     "cp.async.ca.shared.global [%r2+256], [%rd4], 4;\ncp.async.commit_group;\n"
     "cp.async.wait_group 1;\nld.shared.u32 %r4, [%r2];",
     "20: unfinished copy: a load at byte 0 of shared memory, which a cp.async still fills, by "
     "thread "
     "(0,0,0) of block (0,0,0)",
     0, 0},
    {"local memory out of bounds", "mov.u64 %rd6, l;\nst.local.u32 [%rd6+32], %r1;",
     "mov.u64 %rd6, l;\nst.local.u32 [%rd6+28], %r1;",
     "18: out of bounds: a store of 4 bytes at byte 32 of local memory (32 bytes), by thread "
     "(0,0,0) of block (0,0,0)",
     0, 0},
    {"local memory out of bounds, one thread",
     "mov.u64 %rd6, l;\nshl.b64 %rd7, %rd3, 1;\nand.b64 %rd7, %rd7, 56;\n"
     "add.s64 %rd6, %rd6, %rd7;\nst.local.u64 [%rd6], %rd3;",
     "mov.u64 %rd6, l;\nand.b64 %rd7, %rd3, 24;\nadd.s64 %rd6, %rd6, %rd7;\n"
     "st.local.u64 [%rd6], %rd3;",
     "21: out of bounds: a store of 8 bytes at byte 32 of local memory (32 bytes), by thread "
     "(4,0,0) of block (0,0,0)",
     0, 0},
    {"local memory misaligned", "mov.u64 %rd6, l;\nst.local.u64 [%rd6+4], %rd3;",
     "mov.u64 %rd6, l;\nst.local.u64 [%rd6+8], %rd3;",
     "18: misaligned: a store of 8 bytes at byte 4 of local memory, by thread (0,0,0) of block "
     "(0,0,0)",
     0, 0},
    {"local memory that nobody wrote",
     "mov.u64 %rd6, l;\nst.local.u32 [%rd6], %r1;\nld.local.u64 %rd7, [%rd6];",
     "mov.u64 %rd6, l;\nst.local.u32 [%rd6], %r1;\nst.local.u32 [%rd6+4], %r1;\n"
     "ld.local.u64 %rd7, [%rd6];",
     "19: read of local memory that nobody wrote: a load of 8 bytes at byte 0 of local memory, by "
     "thread (0,0,0) of block (0,0,0)",
     0, 0},
    {"local memory of the block before",
     "mov.u64 %rd6, l;\nmov.u32 %r4, %ctaid.x;\nsetp.ne.s32 %p1, %r4, 0;\n@%p1 bra $L1;\n"
     "st.local.u32 [%rd6], %r1;\n$L1:\nld.local.u32 %r5, [%rd6];",
     "mov.u64 %rd6, l;\nst.local.u32 [%rd6], %r1;\nld.local.u32 %r5, [%rd6];",
     "23: read of local memory that nobody wrote: a load of 4 bytes at byte 0 of local memory, by "
     "thread (0,0,0) of block (1,0,0)",
     32, 2},
    {"endless loop", "$L1:\nadd.s32 %r4, %r1, 1;\nsetp.ne.s32 %p1, %r4, 0;\n@%p1 bra $L1;",
     "mov.u32 %r4, 0;\n$L1:\nadd.s32 %r4, %r4, 1;\nsetp.ne.s32 %p1, %r4, 300;\n@%p1 bra $L1;",
     "18: endless loop: a warp has executed 1002 instructions", 0, 0},
    {"race of bytes", "st.global.u8 [%rd2+3], %h1;",
     "cvt.u64.u32 %rd6, %r1;\nadd.s64 %rd6, %rd6, %rd2;\nst.global.u8 [%rd6], %h1;",
     "17: race: byte 3 of output is written by thread (1,0,0) of block (0,0,0) and written by "
     "thread (0,0,0) of the same block, and nothing orders the two",
     0, 0},
    {"race of a byte and a word",
     "cvt.u64.u32 %rd6, %r1;\nadd.s64 %rd6, %rd6, %rd2;\nsetp.eq.s32 %p1, %r1, 32;\n"
     "@%p1 st.global.u8 [%rd2+5], %h1;\nsetp.eq.s32 %p2, %r1, 0;\n@%p2 st.global.u32 [%rd2+4], "
     "%r1;",
     "setp.eq.s32 %p1, %r1, 32;\n@%p1 st.global.u8 [%rd2+5], %h1;\nsetp.eq.s32 %p2, %r1, 0;\n"
     "@%p2 st.global.u32 [%rd2], %r1;",
     "20: race: byte 5 of output is written by thread (32,0,0) of block (0,0,0) and written by "
     "thread (0,0,0) of the same block, and nothing orders the two",
     0, 0},
    {"race of halves of blocks", "st.global.u16 [%rd5], %h1;",
     "mov.u32 %r4, %ctaid.x;\nmul.wide.u32 %rd6, %r4, 2;\nadd.s64 %rd5, %rd5, %rd6;\n"
     "st.global.u16 [%rd5], %h1;",
     "17: race: byte 0 of output is written by thread (0,0,0) of block (1,0,0) and written by "
     "thread (0,0,0) of block (0,0,0), and nothing orders the two",
     32, 2},
    {"an atomic and a load",
     "st.shared.u32 [%r2], %r1;\nbar.sync 0;\nsetp.lt.s32 %p1, %r1, 32;\n"
     "@%p1 red.shared.add.u32 [%r3], 1;\nld.shared.u32 %r4, [%r3];",
     "st.shared.u32 [%r2], %r1;\nbar.sync 0;\nsetp.lt.s32 %p1, %r1, 32;\n"
     "@%p1 red.shared.add.u32 [%r3], 1;\nbar.sync 0;\nld.shared.u32 %r4, [%r3];",
     "21: race: byte 0 of shared memory is read by thread (32,0,0) of block (0,0,0) and written by "
     "an atomic instruction of warp 0 of the same block, and nothing orders the two",
     0, 0},
    {"atomics of several warps and a store",
     "st.shared.u32 [%r2], %r1;\nbar.sync 0;\nred.shared.add.u32 [%r3], 1;\n"
     "setp.eq.s32 %p1, %r1, 40;\n@%p1 st.shared.u32 [%r3], %r1;",
     "st.shared.u32 [%r2], %r1;\nbar.sync 0;\nred.shared.add.u32 [%r3], 1;\nbar.sync 0;\n"
     "setp.eq.s32 %p1, %r1, 40;\n@%p1 st.shared.u32 [%r3], %r1;",
     "21: race: byte 0 of shared memory is written by thread (40,0,0) of block (0,0,0) and written "
     "by an atomic instruction of the same block, and nothing orders the two",
     0, 0},
    {"trap", "trap;", "", "17: trap: the kernel gave up", 0, 0},
};

static Status run(SimMachine *machine, const char *body, int wanted, int blocks) {
  int threads = wanted < 0 ? -wanted : wanted;
  Text ptx = {0};
  SimModule *module;
  char *in, *out;
  text_printf(&ptx, "%s%s%s", BEGIN, body, END);
  Status status = sim_module_load("t.ptx", text_cstr(&ptx), ptx.count, &module);
  text_free(&ptx);
  if (status != STATUS_OK) return status;
  assert_int_equal(sim_alloc(machine, 256, &in), STATUS_OK);
  assert_int_equal(sim_alloc(machine, 256, &out), STATUS_OK);
  for (int i = 0; i < 64; i++) memcpy(in + 4 * i, &i, 4);
  sim_mark(machine, in, 256, true);
  SimRegion regions[] = {{"input", in, 256, false}, {"output", out, 256, true}};
  uint64_t params[] = {(uint64_t)(uintptr_t)in, (uint64_t)(uintptr_t)out};
  SimLaunch launch = {.grid = {blocks, 1, 1},
                      .block = {threads, 1, 1},
                      .params = params,
                      .param_bytes = sizeof params,
                      .regions = wanted < 0 ? NULL : regions,
                      .region_count = 2,
                      .source = "t.ft",
                      .label = "label",
                      .line = 7,
                      .step_limit = 1000};
  status = sim_launch(machine, sim_module_kernel(module, "k"), &launch);
  sim_free(machine, in);
  sim_free(machine, out);
  sim_module_free(module);
  return status;
}

static void findings(void **state) {
  (void)state;
  SimMachine *machine; /* one thread: a race between blocks is then always seen */
  assert_int_equal(sim_machine_new(1, &machine), STATUS_OK);
  int failures = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const Case *one = &cases[i];
    int threads = one->threads ? one->threads : 64, blocks = one->blocks ? one->blocks : 1;
    char want[512];
    snprintf(want, sizeof want, "t.ft:7: \"label\": kernel k, t.ptx:%s", one->message);
    if (run(machine, one->good, threads, blocks) != STATUS_OK) {
      print_error("%s: the kernel without the defect: %s\n", one->name, status_message());
      failures++;
    }
    Status status = run(machine, one->bad, threads, blocks);
    if (status != STATUS_USER || strcmp(status_message(), want) != 0) {
      print_error("%s: status %d\n  have %s\n  want %s\n", one->name, status, status_message(),
                  want);
      failures++;
    }
  }
  sim_machine_free(machine);
  assert_int_equal(failures, 0);
}

/* ── texts that are refused ───────────────────────────────────────────────────────────────── */
static const struct {
  const char *body, *message;
} refused[] = {
    {"tex.2d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1, %r2}];",
     "t.ptx:17: unsupported instruction tex.2d.v4.f32.s32"},
    {"tcgen05.fence::before_thread_sync;",
     "t.ptx:17: unsupported instruction tcgen05.fence::before_thread_sync"},
    {"add.rz.f32 %f1, %f2, %f3;", "t.ptx:17: unsupported instruction add.rz.f32"},
    {"atom.global.add.noftz.f16x2 %r1, [%rd1], %r2;",
     "t.ptx:17: unsupported instruction atom.global.add.noftz.f16x2"},
    {"add.s32 %r1, %r2, %rd1;", "t.ptx:17: a 64-bit register where a 32-bit one belongs"},
    {"add.s32 %r1, %r2;", "t.ptx:17: add.s32 takes 3 operands"},
    {"add.s32 %r16, %r2, %r1;", "t.ptx:17: there is no register %r16"},
    {"add.s32 5, %r2, %r1;", "t.ptx:17: the result needs a register"},
    {"bra $nowhere;", "t.ptx:17: there is nothing named $nowhere"},
    {"$L1:\n$L1:", "t.ptx:18: the label $L1 stands here for the second time"},
    {"ld.global.u32 %r1, [%r2];", "t.ptx:17: an address needs a 64-bit register"},
    {"ld.param.u64 %rd1, [in+12];", "t.ptx:17: ld.param.u64 reads outside of the parameters"},
    {"mov.f32 %f1, 0f3F8;", "t.ptx:17: a number has too few digits"},
    {"add.s32 %r1, %r2, 99999999999999999999;", "t.ptx:17: a number is too large"},
    {"call (%r1), f, (%r2);", "t.ptx:17: unsupported instruction call"},
    {".reg .b32 %big<99999999>;", "t.ptx:17: expected a whole number from 0 to 32768"},
    {".shared .b8 big[1048576];", "t.ptx:17: big does not fit"},
    {"@%r1 bra $L1;", "t.ptx:17: '@' needs a predicate register"},
    {"{", "t.ptx:20: expected an instruction, found the end of the file"},
    {"ret;\n}\n.visible .entry l()\n.maxntid 0, 1, 1\n{",
     "t.ptx:20: a limit of a kernel is at least 1"},
};

static void refusals(void **state) {
  int failures = 0;
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    Status status = run(*state, refused[i].body, 32, 1);
    if (status == STATUS_USER && !strcmp(status_message(), refused[i].message)) continue;
    print_error("%s\n  have %s\n  want %s\n", refused[i].body, status_message(),
                refused[i].message);
    failures++;
  }
  assert_int_equal(failures, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(findings), cmocka_unit_test(refusals)};
  return SIM_TEST_LANES(tests);
}
