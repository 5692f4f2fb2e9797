"""llama.cpp for bench/llama/run, by llama-cpp-python's functions of its C API:

    write W.safetensors OUT.gguf HEADS                      weights of examples/gpt2.ft as a GGUF file of the architecture gpt2
    quantise IN.gguf OUT.gguf TYPE                          bf16, q8_0 or q4_0; the table of tokens in 8 bits, where others have 8 or 4
    run MODEL.gguf TOKENS THREADS LENGTH READS PROMPT…      prints what own.py does
"""
import json
import statistics
import struct
import sys
import time

import numpy

NAMES = {"attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_1": "attn_norm", "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}


def read_safetensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    return {name: numpy.frombuffer(data[of["data_offsets"][0]:of["data_offsets"][1]], "f4").reshape(of["shape"]) for name, of in header.items() if name != "__metadata__"}


def write(weights, path, heads):
    import gguf

    tensors = read_safetensors(weights)
    vocabulary, width = tensors["wte.weight"].shape
    layers = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("h."))
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_block_count(layers)
    writer.add_context_length(len(tensors["wpe.weight"]))
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(4 * width)
    writer.add_head_count(int(heads))
    writer.add_layer_norm_eps(1e-5)
    writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("none")
    top = {"wte.weight": "token_embd.weight", "wpe.weight": "position_embd.weight", "ln_f.weight": "output_norm.weight", "ln_f.bias": "output_norm.bias"}
    for name, value in tensors.items():
        to = top.get(name)
        if name.startswith("h."):
            _, layer, rest = name.split(".", 2)
            part, end = rest.rsplit(".", 1)
            to = f"blk.{layer}.{NAMES[part]}.{end}"
            value = value.T if value.ndim == 2 else value  # [in, out] here, [out, in] there
        writer.add_tensor(to, numpy.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def library():
    """llama.cpp, which says nothing; its function for messages must outlive it."""
    import llama_cpp

    llama_cpp.silent = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(llama_cpp.silent, None)
    return llama_cpp


def quantise(source, path, name):
    llama_cpp = library()
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = {"bf16": llama_cpp.LLAMA_FTYPE_MOSTLY_BF16, "q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0, "q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0}[name]
    if name == "q4_0":
        params.token_embedding_type = params.output_tensor_type = 8  # GGML_TYPE_Q8_0
    if llama_cpp.llama_model_quantize(source.encode(), path.encode(), params):
        sys.exit(f"llama.cpp cannot make {name}")


def run(path, tokens, threads, length, reads, *prompt):
    llama_cpp = library()
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
    params = llama_cpp.llama_context_default_params()  # which read up to 512 tokens at once
    params.n_ctx, params.n_batch, params.n_threads, params.n_threads_batch = 1024, 1024, threads, threads
    context = llama_cpp.llama_init_from_model(model, params)
    count = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))

    def take(given):
        room = (llama_cpp.llama_token * len(given))(*given)  # a batch does not keep it
        if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(room, len(given))):
            sys.exit("llama_decode failed")
        return int(numpy.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, -1), (count,)).argmax())

    def begin_text():
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        return time.perf_counter()

    spent = []
    for i in range(1 + reads):
        text = numpy.random.default_rng(i).integers(0, count, length).tolist()
        begin = begin_text()
        take(text)
        spent.append(time.perf_counter() - begin)
    begin_text()
    out = [take(prompt)]
    begin = time.perf_counter()
    for _ in range(tokens - 1):
        out.append(take(out[-1:]))
    print(length / statistics.median(spent[1:]), (tokens - 1) / (time.perf_counter() - begin), *out)


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    if verb == "write":
        write(*words)
    elif verb == "quantise":
        quantise(*words)
    else:
        run(words[0], *map(int, words[1:]))
