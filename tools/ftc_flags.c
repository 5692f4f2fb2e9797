/* ftc_flags: see ftc_flags.h. What each flag does is in the table of actions in ftc.c. */
#include "tools/ftc_flags.h"
#include "passes/pass.h"
#include <stddef.h>

static const Command ftc_commands[] = {
    {NULL, "ftc IN.ft -o OUT.so          compile for this machine's CPU", NULL},
    {NULL, "ftc IN.ft -o OUT.ptx         compile for an NVIDIA GPU", NULL},
    {NULL, "ftc IN.ft --emit=KIND        print a stage of the compilation (-o FILE: into a file)",
     NULL},
};

static const Flag ftc_flags[] = {
    {"-o", FLAG_TEXT, 1, "FILE", FLAG_FILES " .so .ptx .ft",
     "what to write: an artifact, OUT.so or OUT.ptx; OUT.ft, the program itself with what -D, --preset and --set say in it; or what "
     "--emit makes"},
    {"-D", FLAG_TEXT, 1, "HYPER=VALUE", NULL, "set a hyper of the program (may be repeated)"},
    {"--set", FLAG_TEXT, 1, "KEY=VALUE", FLAG_SETTINGS,
     "set a setting, such as train.batch=64 (may be repeated)"},
    {"--preset", FLAG_TEXT, 1, "NAME", NULL, "choose a preset of the program"},
    {"--cpu", FLAG_TEXT, 1, "NAME", "native x86-64 x86-64-v2 x86-64-v3 x86-64-v4 portable",
     "x86-64, x86-64-v2, x86-64-v3, x86-64-v4 or native (default); portable, with --inference: x86-64, and "
     "the same as C, for ftrun deploy -o X.c"},
    {"--gpu", FLAG_TEXT, 1, "NAME", "sm_80 sm_86 sm_87 sm_89 sm_90 sm_90a sm_100 sm_103 sm_120",
     "sm_80 (default), sm_86, sm_87, sm_89, sm_90, sm_90a; sm_100, sm_103 and sm_120 mean sm_90, "
     "whose PTX they run too"},
    {"--emit", FLAG_TEXT, 1, "KIND", "ast ir dot plan llvm asm ptx steps html",
     "ast, ir, dot: what the front end made (or --stop-after=PASS left); plan, llvm, asm, ptx: "
     "what the back end made; steps: "
     "the plan's steps as a Graphviz graph, by queue, with arrows from each to those that wait for "
     "it; html: a page with the "
     "graph after every pass, and the plan's steps"},
    {"--inference", FLAG_SWITCH, 1, NULL, NULL,
     "the evaluation's kernels alone, for ftrun deploy, which adds the weights: a .so with a function for C programs, or a .ptx "
     "(docs/deploy.md)"},
    {"--sparse", FLAG_TEXT, 1, "NAMES", NULL,
     "with --inference -o OUT.ptx: of each four neighbours of a row, these parameters (a list with commas) have at most two that are not "
     "0, and products by them in 16 bits use a GPU's sparse tensor cores; ftrun deploy finds out which (docs/deploy.md), and gives ?NAMES: of these, those that the model has"},
    {"--hypers", FLAG_SWITCH, 1, NULL, NULL,
     "the program's hypers and presets: types, values and what their comments say"},
    {"--apply", FLAG_TEXT, 1, "NAME=VALUE", NULL,
     "write a value of a hyper or setting into the file itself, and nothing else of it (may be "
     "repeated; docs/tune.md)"},
    {"--summary", FLAG_SWITCH, 1, NULL, NULL,
     "layers, shapes, parameters, FLOPs; equal layers that follow each other are one row"},
    {"--memory", FLAG_OPTIONAL, 1, "F.svg", NULL,
     "peak memory by category, for several ranks also by distributed.zero; a picture of offsets "
     "over time (svg: to standard "
     "output)"},
    {"--shrink", FLAG_TEXT, 1, "FILE", FLAG_FILES,
     "for ftrun shrink: where weights are 0; writes -o SMALL.ft with the widths that are left over (train.widths)"},
    {"--taps", FLAG_TEXT, 1, "PATTERN", NULL,
     "for ftrun quantize: what the Linear and Conv2d layers of these paths read and give are outputs of the evaluation, and are listed "
     "(may be repeated)"},
    {"--stage", FLAG_TEXT, 1, "S", NULL,
     "of a model with distributed.pipeline: only what is of this stage, from 0 (--emit=html: which "
     "it shows)"},
    {"--auto", FLAG_TEXT, 1, "WORDS", NULL,
     "chooses data, tensor, zero and micro-batches, and says why: \"gpus=64 memory=80GiB "
     "gpu=h100\" (docs/distributed.md)"},
    {"--find-batch", FLAG_SWITCH, 1, NULL, NULL,
     "memory and estimated rate at powers of two of train.batch, and the largest that fits "
     "(train.batch.auto, "
     "docs/language.md)"},
    {"--simulate", FLAG_TEXT, 1, "CLUSTER", NULL,
     "step time, communication, memory and efficiency on several ranks, estimated: \"nodes=16 "
     "gpus=8 gpu=h100 net=400Gb\" "
     "(docs/distributed.md)"},
    {"--times", FLAG_TEXT, 1, "FILE", FLAG_FILES " .json",
     "with --simulate: kernel times that 'ftrun bench --json FILE' measured"},
    {"--trace", FLAG_TEXT, 1, "FILE", FLAG_FILES " .json",
     "with --simulate: a Chrome/Perfetto trace of the step"},
    {"--dump", FLAG_TEXT, 1, "PASS", FLAG_PASSES " all",
     "write the graph after a pass (all: after each that changed it)"},
    {"--dump-dir", FLAG_TEXT, 1, "DIR", FLAG_FOLDERS, "where dumps go (default: here)"},
    {"--stop-after", FLAG_TEXT, 1, "PASS", FLAG_PASSES, "run the passes up to this one"},
    {"--disable", FLAG_TEXT, 1, "A,B", FLAG_NAMES,
     "leave out passes (fuse, schedule, memplan: do no more than is needed) or kinds of kernels; "
     "the names are listed below "
     "(may be repeated)"},
    {"--exact-math", FLAG_SWITCH, 1, NULL, NULL,
     "no approximate exp, tanh, sigmoid and erf where results or operands have 16 bits "
     "(docs/cuda.md)"},
    {"--check-memory", FLAG_SWITCH, 1, NULL, NULL,
     "CPU: every access of a generated kernel asks whether it is inside of its tensor; if not, the "
     "run ends with exit code 3 "
     "(slow; to find faults)"},
    {"--debug-waits", FLAG_OPTIONAL, 1, "N", NULL,
     "GPU: a wait of a kernel at a barrier in shared memory takes at most N polls (default 4194304); beyond, the run ends and says "
     "which kernel, barrier, stage and block (to find endless waits; docs/debugging.md)"},
    {"--cubin", FLAG_SWITCH, 1, NULL, NULL,
     "GPU: the .ptx has machine code for the GPU of --gpu, too, made by NVIDIA's ptxas, so that the first start there compiles nothing (docs/cuda.md)"},
    {"--allow-paths", FLAG_SWITCH, 1, NULL, NULL,
     "imports may come from outside of the folder that the program is in"},
    {"--time-passes", FLAG_SWITCH, 1, NULL, NULL, "how long each step took, on standard error"},
    {"--lsp", FLAG_SWITCH, 1, NULL, NULL,
     "a language server for editors on standard input and output (docs/editors.md)"},
    {"--list-ops", FLAG_SWITCH, 1, NULL, NULL, "every op of the language's graph, and stop"},
};

static const char *const ftc_paragraphs[] = {
    "Compiling runs nothing of a program and writes only what the command line names; SECURITY.md "
    "says what files from "
    "others may do.",
    NULL};

static const FlagNote ftc_variables[] = {
    {"NO_COLOR", "set: messages on a terminal have no colours; so with TERM=dumb"},
    {"CLICOLOR_FORCE", "1: messages have colours in a file or pipe, too"},
    {NULL, NULL}};

static const FlagNote ftc_codes[] = {{"0", "done"},
                                     {"1", "the program or its settings are wrong"},
                                     {"2", "the command line is wrong"},
                                     {"3", "a fault of the machine: a full disk, no linker"},
                                     {NULL, NULL}};

const CommandLine ftc_line = {
    .program = "ftc",
    .about = "compiles a model with its training recipe into one artifact",
    .commands = ftc_commands,
    .command_count = sizeof ftc_commands / sizeof *ftc_commands,
    .flags = ftc_flags,
    .flag_count = sizeof ftc_flags / sizeof *ftc_flags,
    .files = ".ft",
    .paragraphs = ftc_paragraphs,
    .names_are = "--disable takes",
    .name = pass_optional,
    .variables = ftc_variables,
    .pass = pass_name,
    .codes = ftc_codes,
    .prefix = "ftc: ",
};
