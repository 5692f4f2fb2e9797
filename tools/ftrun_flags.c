/* ftrun_flags: see ftrun_flags.h. What each flag does to a run is take_flag of ftrun.c, and view_flag of ftrun_view.c. */
#include "tools/ftrun_flags.h"
#include <stddef.h>

/* In the order of the bits of ftrun_flags.h. */
static const Command ftrun_commands[] = {
    {"train",
     "ftrun [train] MODEL [flags]      trains; MODEL is a compiled .so or .ptx, or a .ft file",
     "Trains a model, and evaluates it as its recipe says."},
    {"eval", "ftrun eval MODEL --weights W     prints loss and metrics over a split",
     "Prints loss and metrics over a split of the data."},
    {"predict", "ftrun predict MODEL --weights W --input NAME=X.npy --output Y.npy",
     "Writes what the model makes of inputs, or of a split of its data."},
    {"bench",
     "ftrun bench MODEL                median, p10 and p90 of a step, and a table of its kernels",
     "Times steps, and prints where their time goes: by kernel, layer and kind of work."},
    {"info", "ftrun info MODEL                 the plan inside an artifact, readable",
     "Prints what is inside an artifact; runs nothing of it."},
    {"devices", "ftrun devices                    what this machine can run on",
     "Lists what this machine can run on."},
    {"generate", "ftrun generate MODEL --weights W --prompt TEXT    goes on with a text",
     "Goes on with a text, by a language model."},
    {"tokenize",
     "ftrun tokenize TEXT.. --tokenizer T --output X.bin    text files to tokens, for tokens(...)",
     "Makes tokens of text files."},
    {"report", "ftrun report RUN.jsonl.. [-o FILE]    a page of HTML: curves, settings, times",
     "Writes a page of HTML of one or several runs. RUN.jsonl is a log of JSON lines (ftrun "
     "--log-jsonl FILE, "
     "log { jsonl }), or a folder with a log.jsonl; or the folder of a study of ftrun tune, "
     "alone."},
    {"watch", "ftrun watch RUN.jsonl [--http [PORT]]  follows a training from another terminal",
     "Follows a training by its log of JSON lines, or a folder with a log.jsonl. Waits for a log "
     "that is not there yet, "
     "and ends with the training: exit code 0, or 1 if it failed."},
    {"tune",
     "ftrun tune MODEL --space NAME=RANGE..  finds good settings: many trainings, chosen one by "
     "one",
     "Trains a model many times, with settings and hypers that a sampler chooses by what came of "
     "the trials before. "
     "A range is log(1e-5, 1e-1), range(0, 0.5), int(1, 8), log_int(16, 1024) or [64, 128, 256]. A "
     "study that was "
     "stopped goes on by the same command; others may join it from other terminals and machines. "
     "docs/tune.md."},
    {"deploy", "ftrun deploy MODEL --weights W -o X.so   a library that predicts, with a C header",
     "Writes a shared library that predicts, with the weights in it, and its C header beside it. It needs "
     "neither ft nor Python. MODEL is a .ft file, or a .so of ftc --inference. docs/deploy.md."},
    {"shrink", "ftrun shrink MODEL.ft --weights W -o SMALL.ft   without the channels that are 0",
     "Writes a smaller network that computes the same: MODEL.ft with the widths that are left over where the weights of whole "
     "channels, hidden units or heads are 0 (prune = magnitude(structure=channel)), and beside it SMALL.safetensors, their weights. "
     "docs/language.md, Pruning."},
};

/* In the order of --help. */
static const Flag ftrun_flags[] = {
    {"--set", FLAG_TEXT, TRAIN | EVAL | PREDICT | BENCH | GENERATE | TUNE | DEPLOY | SHRINK, "KEY=VALUE",
     FLAG_SETTINGS, "a setting: train.lr=3e-4, train.checkpoint.dir=runs/a"},
    {"--data", FLAG_TEXT, TRAIN | EVAL | PREDICT | BENCH | TUNE, "DIR", FLAG_FOLDERS,
     "folder of the data files"},
    {"--steps", FLAG_COUNT, TRAIN | BENCH | TUNE, "N", NULL,
     "steps in all, from the start of training"},
    {"--epochs", FLAG_COUNT, TRAIN | TUNE, "N", NULL, "passes over the training data"},
    {"--max-time", FLAG_TEXT, TRAIN, "TIME", NULL,
     "end after 90m, 2h or so, with a checkpoint: exit code 124"},
    {"--device", FLAG_TEXT, TRAIN | EVAL | PREDICT | BENCH | GENERATE | TUNE, "D",
     "auto cpu cuda cuda:0 sim", "auto, cpu, cuda, cuda:N or sim"},
    {"--ranks", FLAG_COUNT, TRAIN | EVAL, "N", NULL,
     "run as N processes that share each batch: docs/distributed.md"},
    {"--gpus", FLAG_COUNT, TRAIN | EVAL, "N", NULL,
     "the same on N GPUs of this machine, without MPI"},
    {"--elastic", FLAG_TEXT, TRAIN, "LEAST:MOST", NULL,
     "as MOST ranks, or fewer where some are lost: docs/distributed.md"},
    {"--threads", FLAG_COUNT, TRAIN | EVAL | PREDICT | BENCH | GENERATE | TUNE, "N", NULL,
     "threads of the cpu device; with ranks: of each"},
    {"--init", FLAG_TEXT, TRAIN | TUNE, "W", FLAG_FILES " .safetensors .json",
     "start from the weights in a .safetensors file, an .index.json of several, or a folder with "
     "either; again for more files"},
    {"--init-missing", FLAG_TEXT, TRAIN | TUNE, "keep|error", "keep error",
     "parameters that are in no file of --init: begin as without it, or fail (error)"},
    {"--init-mismatch", FLAG_TEXT, TRAIN | TUNE, "keep|error", "keep error",
     "the same of parameters that are there in another shape (error)"},
    {"--init-rename", FLAG_TEXT, TRAIN | TUNE, "OLD=NEW", NULL,
     "other names for the tensors of --init: \"encoder.*=backbone.*\"; again for more"},
    {"--save", FLAG_TEXT, TRAIN, "W", FLAG_FILES " .safetensors",
     "write the weights to a .safetensors file at the end"},
    {"--save-ema", FLAG_TEXT, TRAIN, "W", FLAG_FILES " .safetensors",
     "write the averages of the weights (train.ema) likewise"},
    {"--resume", FLAG_TEXT, TRAIN, "PATH", FLAG_FILES " .safetensors",
     "go on from a checkpoint, or the newest in a folder"},
    {"--or-start", FLAG_SWITCH, TRAIN, NULL, NULL,
     "with --resume: start if there is no checkpoint yet"},
    {"--log-jsonl", FLAG_TEXT, TRAIN | EVAL, "FILE", FLAG_FILES " .jsonl",
     "write the log as JSON lines too"},
    {"--tensorboard", FLAG_TEXT, TRAIN, "DIR", FLAG_FOLDERS, "write the log for TensorBoard too"},
    {"--layers", FLAG_COUNT, TRAIN, "N", NULL,
     "every N steps a table of gradients, updates and activations by layer"},
    {"--no-shuffle", FLAG_SWITCH, TRAIN | TUNE, NULL, NULL, "samples in the order of the files"},
    {"--overfit-batch", FLAG_SWITCH, TRAIN, NULL, NULL,
     "repeat the first batch: can the model learn?"},
    {"--check", FLAG_TEXT, TRAIN, "nan|overflow", "nan overflow",
     "the operation and line of the first NaN or infinity; overflow: also of fp16's skipped steps"},
    {"--trace", FLAG_TEXT, TRAIN, "FILE", FLAG_FILES " .pftrace .json",
     "write a trace: .pftrace for Perfetto, .json for Chrome"},
    {"--trace-steps", FLAG_TEXT, TRAIN, "A:B", NULL, "trace the steps from A to B"},
    {"--keep-going", FLAG_SWITCH, TRAIN | TUNE, NULL, NULL,
     "train on after a loss that is not finite"},
    {"--deterministic", FLAG_SWITCH, TRAIN | TUNE, NULL, NULL,
     "the same bits in every run (the cpu always is)"},
    {"--dry-run", FLAG_SWITCH, TRAIN | DEPLOY, NULL, NULL,
     "check model, data and memory; train or write nothing"},
    {"--find-lr", FLAG_SWITCH, TRAIN, NULL, NULL,
     "try learning rates (100 --steps), suggest one; save nothing"},
    {"--lr-range", FLAG_TEXT, TRAIN, "LOW:HIGH", NULL,
     "--find-lr: from which rate to which (1e-7:10)"},
    {"--plot", FLAG_TEXT, TRAIN, "FILE", FLAG_FILES " .svg", "--find-lr: its plot, as .svg"},
    {"--find-batch", FLAG_SWITCH, TRAIN, NULL, NULL, "for a .ft file: ftc --find-batch"},
    {"--weights", FLAG_TEXT, EVAL | PREDICT | GENERATE | DEPLOY | SHRINK, "W", FLAG_FILES " .safetensors",
     "weights of a training: --save, or a checkpoint"},
    {"--split", FLAG_TEXT, EVAL | PREDICT, "S", "train valid test",
     "train, valid or test: eval's (else valid); predict's, in place of --input"},
    {"--input", FLAG_TEXT, PREDICT, "NAME=X", FLAG_FILES, "a .npy or IDX file for a model input"},
    {"--output", FLAG_TEXT, PREDICT | TOKENIZE, "[NAME=]Y", FLAG_FILES,
     "the file to write: .npy of predict, .bin of tokenize (which prints numbers without it)"},
    {"--prompt", FLAG_TEXT, GENERATE, "TEXT", NULL,
     "what to go on with, for models of bytes, or by --tokenizer; again for more"},
    {"--tokenizer", FLAG_TEXT, GENERATE | TOKENIZE, "PATH", FLAG_FILES " .json",
     "folder with vocab.json and merges.txt, or tokenizer.json, as of GPT-2"},
    {"--member", FLAG_TEXT, TOKENIZE, "NAME", NULL,
     "the files are JSON lines, and this member of each has the text"},
    {"--no-header", FLAG_SWITCH, TOKENIZE, NULL, NULL, "tokens only, without the header of llm.c"},
    {"--prompt-tokens", FLAG_TEXT, GENERATE, "N,N,..", NULL, "the same as numbers of tokens"},
    {"--tokens", FLAG_COUNT, GENERATE, "N", NULL, "how many to generate (200)"},
    {"--samples", FLAG_COUNT, GENERATE, "N", NULL, "texts of each prompt, by seeds from --seed on"},
    {"--temperature", FLAG_TEXT, GENERATE, "X", NULL,
     "0: the likeliest token; 1 (default): as the model says"},
    {"--top-k", FLAG_COUNT, GENERATE, "K", NULL, "draw among the K likeliest tokens (0: all)"},
    {"--top-p", FLAG_TEXT, GENERATE, "P", NULL,
     "among the likeliest that have probability P (1: all)"},
    {"--seed", FLAG_COUNT, GENERATE | TUNE, "N", NULL, "of the draws (0), of generate and tune"},
    {"--no-cache", FLAG_SWITCH, GENERATE, NULL, NULL, "evaluate the whole window for every token"},
    {"--made-up-data", FLAG_SWITCH, BENCH, NULL, NULL,
     "random batches in place of the training data"},
    {"--json", FLAG_TEXT, BENCH, "FILE", FLAG_FILES " .json",
     "write the table of kernels as JSON (ftc --times)"},
    {"--per-kernel", FLAG_SWITCH, BENCH, NULL, NULL, "with the table of kernels (it always is)"},
    {"-D", FLAG_TEXT, TRAIN | EVAL | PREDICT | BENCH | INFO | GENERATE | TUNE | DEPLOY | SHRINK, "HYPER=VALUE", NULL,
     "for a .ft file: ftc -D"},
    {"--allow-paths", FLAG_SWITCH, TRAIN | EVAL | PREDICT | BENCH | INFO | GENERATE | TUNE | DEPLOY | SHRINK, NULL,
     NULL, "paths that the model's file names may lead out of the current folder"},
    {"--allow-commands", FLAG_SWITCH, TRAIN | EVAL | PREDICT | BENCH | TUNE, NULL, NULL,
     "run commands that the model names as data, \"| curl ...\""},
    {"--preset", FLAG_TEXT, TRAIN | EVAL | PREDICT | BENCH | INFO | GENERATE | TUNE | DEPLOY | SHRINK, "P", NULL,
     "for a .ft file: ftc --preset"},
    {"--space", FLAG_TEXT, TUNE, "NAME=RANGE", NULL,
     "a hyper or setting to choose: lr=\"log(1e-5, 1e-1)\"; again for more"},
    {"--where", FLAG_TEXT, TUNE, "CONDITION", NULL,
     "only points that keep it: \"hidden * layers <= 1024\"; again for more"},
    {"--trials", FLAG_COUNT, TUNE, "N", NULL, "how many trainings the study has in all (20)"},
    {"--goal", FLAG_TEXT, TUNE, "GOAL", NULL,
     "what is best: min(valid.loss), max(valid.accuracy) (else what train.checkpoint.best says, or "
     "the loss); several with commas, also of run.seconds, model.parameters: docs/tune.md"},
    {"--sampler", FLAG_TEXT, TUNE, "S", "gp tpe cma random sobol grid",
     "who chooses: gp (default), tpe, cma, random, sobol or grid"},
    {"--prune", FLAG_TEXT, TUNE, "P", "none median asha hyperband",
     "end trials early that are worse than others by then: median, asha, hyperband (none)"},
    {"--prune-from", FLAG_TEXT, TUNE, "STEPS", NULL,
     "--prune: no trial has fewer steps (its first evaluation)"},
    {"--prune-factor", FLAG_TEXT, TUNE, "FACTOR", NULL,
     "--prune asha, hyperband: one of N goes on at each rung (3)"},
    {"--parallel", FLAG_COUNT, TUNE, "N", NULL, "trials side by side, which share the cores (1)"},
    {"--study", FLAG_TEXT, TUNE, "DIR", FLAG_FOLDERS,
     "the study's folder: its journal, logs, artifacts (MODEL.study)"},
    {"--apply", FLAG_SWITCH, TUNE, NULL, NULL,
     "at the end, write the best trial's choices into the .ft file: docs/tune.md"},
    {"--trial", FLAG_COUNT, TUNE, "N", NULL,
     "--apply: of this trial; it has to be said where there are several goals"},
    {"-o", FLAG_TEXT, DEPLOY, "FILE", FLAG_FILES " .so", "the library; X.h beside X.so is its header"},
    {"-o", FLAG_TEXT, SHRINK, "FILE", FLAG_FILES " .ft", "the smaller network, SMALL.ft; its weights lie beside it, SMALL.safetensors"},
    {"--stay", FLAG_TEXT, SHRINK, "LAYER", NULL, "this layer, and those in it, keep their widths; again for more"},
    {"-o", FLAG_TEXT, REPORT, "FILE", FLAG_FILES " .html", "where to write it (report.html)"},
    {"--output", FLAG_TEXT, REPORT, "FILE", FLAG_FILES " .html", "the same"},
    {"--http", FLAG_OPTIONAL_COUNT, WATCH, "PORT", NULL,
     "as a page in a browser instead, of several runs too, until Ctrl-C"},
    {"--address", FLAG_TEXT, WATCH, "ADDRESS", NULL,
     "--http: for other machines, who may all read it (127.0.0.1)"},
    {"--model", FLAG_TEXT, REPORT | WATCH, "ARTIFACT", FLAG_FILES " .so .ptx",
     "with memory and graph of a step of a .so or .ptx"},
    {"--times", FLAG_TEXT, REPORT | WATCH, "FILE", FLAG_FILES " .json",
     "with time by kernel and layer: ftrun bench --json FILE, or ftrun --trace FILE.json"},
};

static const char *const ftrun_paragraphs[] = {
    "Opening a file runs no code and writes nothing. Training a .ft or .ptx file writes only below "
    "the current folder or "
    "where the command line says (--allow-paths: where the file says). A .so is code: train, "
    "evaluate or try (--dry-run) "
    "only those that you trust. SECURITY.md says more.",
    "Ctrl-C, SIGTERM, SIGHUP (but under nohup), SIGUSR1 and a pipe without a reader end a training "
    "after the step at hand, "
    "with its checkpoint and --save written. The same signal again ends it at once. Where its time "
    "is up (train.max_time, or "
    "the end of a SLURM job) it ends likewise, with code 124.",
    "Data files are looked for in --data DIR if it is given; else beside the model's file, in the "
    "current folder, and in "
    "the folders of Debian's datasets (/usr/share/datasets/*).",
    NULL};

static const FlagNote ftrun_variables[] = {
    {"NO_COLOR", "set: a terminal gets plain lines without colours"},
    {"TERM", "dumb: plain lines, too"},
    {"CLICOLOR_FORCE", "1: messages have colours in a file or pipe, too"},
    {"TMPDIR",
     "where a .ft file is compiled to and compressed shards are unpacked (/tmp, /var/tmp)"},
    {"CUDA_VISIBLE_DEVICES", "the GPUs that there are"},
    {"RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT",
     "set by torchrun and the like: this process is a rank (docs/distributed.md)"},
    {"FT_CUDA_LIBRARY", "the file of NVIDIA's driver, in place of libcuda.so.1"},
    {"FT_CUBLASLT_LIBRARY",
     "the file of cuBLASLt, in place of the loader's or the active environment's"},
    {"FT_CUBLASLT",
     "own: ft's matrix products only; library: cuBLASLt's first proposal, without timing"},
    {"FT_NCCL_LIBRARY", "the file of NCCL or RCCL"},
    {"FT_CUDA_NO_GRAPH", "1: kernels are launched one by one, for debuggers"},
    {"FT_KEEP_DATA", "0: batches are sent one by one; 1: the data is kept on the GPU if it fits"},
    {"FT_GEMM", "openblas: matrix products on the CPU by OpenBLAS, not oneDNN"},
    {NULL, NULL}};

static const FlagNote ftrun_codes[] = {
    {"0", "done"},
    {"1", "the user's error: model, data, settings, a loss that is not finite"},
    {"2", "the command line is wrong"},
    {"3", "a fault of the machine: a full disk, a lost device or rank"},
    {"124", "the time was up (train.max_time, --max-time, SLURM)"},
    {"128 + N", "an orderly end by signal N"},
    {NULL, NULL}};

const CommandLine ftrun_line = {
    .program = "ftrun",
    .about = "trains, evaluates and uses what ftc has compiled",
    .commands = ftrun_commands,
    .command_count = sizeof ftrun_commands / sizeof *ftrun_commands,
    .flags = ftrun_flags,
    .flag_count = sizeof ftrun_flags / sizeof *ftrun_flags,
    .files = ".ft .so .ptx .jsonl .txt",
    .paragraphs = ftrun_paragraphs,
    .variables = ftrun_variables,
    .codes = ftrun_codes,
    .prefix = "error: ",
};
