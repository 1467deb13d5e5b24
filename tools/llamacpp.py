"""A thin layer over llama.cpp for the checks that compare with it.

The library is the one inside the package xllamacpp, which runs on Debian 12; the declarations are those of the package
llama-cpp-py-sync for the same llama.cpp (its own library wants a newer C library). Their versions go together.
"""

import jinja2
import numpy
import xllamacpp.xllamacpp
from llama_cpp_py_sync import _cffi_bindings


class Model:
    """A GGUF file on the CPU with one sequence of at most num_ctx tokens. Needs no accelerator and prints nothing."""

    def __init__(self, path, num_ctx=2048, threads=2, lora=None):
        self.ffi = _cffi_bindings.get_ffi()
        self.lib = self.ffi.dlopen(xllamacpp.xllamacpp.__file__)
        self.quiet = self.ffi.callback("void(enum ggml_log_level, const char *, void *)", lambda *_: None)
        self.lib.llama_log_set(self.quiet, self.ffi.NULL)
        self.lib.llama_backend_init()
        self.model = self.lib.llama_model_load_from_file(str(path).encode(), self.lib.llama_model_default_params())
        if self.model == self.ffi.NULL:
            raise ValueError(f"{path}: llama.cpp does not load it")
        parameters = self.lib.llama_context_default_params()
        parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = num_ctx
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.type_k = parameters.type_v = 0  # GGML_TYPE_F32
        parameters.flash_attn_type = 0
        self.context = self.lib.llama_init_from_model(self.model, parameters)
        if self.context == self.ffi.NULL:
            raise ValueError(f"{path}: llama.cpp makes no context of {num_ctx} tokens")
        self.vocab = self.lib.llama_model_get_vocab(self.model)
        self.num_vocab = self.lib.llama_vocab_n_tokens(self.vocab)
        self.num_ctx = num_ctx
        if lora is not None:
            self._add_lora(lora)

    def _add_lora(self, path):
        adapter = self.lib.llama_adapter_lora_init(self.model, str(path).encode())
        if adapter == self.ffi.NULL:
            raise ValueError(f"{path}: llama.cpp does not load this adapter")
        adapters = self.ffi.new("struct llama_adapter_lora *[1]", [adapter])
        if self.lib.llama_set_adapters_lora(self.context, adapters, 1, self.ffi.new("float[1]", [1.0])) != 0:
            raise ValueError(f"{path}: llama.cpp does not apply this adapter")

    def tokenize(self, text, add_special=True, parse_special=False):
        data = text.encode("utf-8")
        out = self.ffi.new("llama_token[]", len(data) + 16)
        count = self.lib.llama_tokenize(self.vocab, data, len(data), out, len(data) + 16, add_special, parse_special)
        if count < 0:
            raise ValueError("llama.cpp does not tokenise the text")
        return list(out[0:count])

    def end_token(self):
        return self.lib.llama_vocab_eos(self.vocab)

    def is_end(self, token):
        return bool(self.lib.llama_vocab_is_eog(self.vocab, token))

    def _decode(self, tokens, begin, all_logits):
        """Feeds tokens at positions from begin on; logits [n, V] of all of them or [1, V] of the last."""
        batch = self.lib.llama_batch_init(len(tokens), 0, 1)
        try:
            batch.n_tokens = len(tokens)
            for i, token in enumerate(tokens):
                batch.token[i], batch.pos[i] = token, begin + i
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
                batch.logits[i] = all_logits or i + 1 == len(tokens)
            status = self.lib.llama_decode(self.context, batch)
            if status != 0:
                raise RuntimeError(f"llama_decode answers {status}")
        finally:
            self.lib.llama_batch_free(batch)
        rows = len(tokens) if all_logits else 1
        data = self.ffi.buffer(self.lib.llama_get_logits(self.context), rows * self.num_vocab * 4)
        return numpy.frombuffer(data, dtype=numpy.float32).reshape(rows, self.num_vocab).copy()

    def _clear(self):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)

    def logits(self, tokens):
        """Logits [n, V] of a sequence from its start."""
        self._clear()
        return self._decode(tokens, 0, True)

    def greedy(self, tokens, count):
        """The continuation by the most likely token, up to count or before the first token that ends a reply, and by how
        much the best logit led the second at each step, the ending one included."""
        self._clear()
        out, leads = [], []
        row = self._decode(tokens, 0, False)[0]
        while len(out) < count:
            second, first = numpy.partition(row, -2)[-2:]
            leads.append(float(first - second))
            token = int(row.argmax())
            if self.is_end(token):
                break
            out.append(token)
            row = self._decode([token], len(tokens) + len(out) - 1, False)[0]
        return out, leads

    def detokenize(self, tokens):
        size = 64 * len(tokens) + 64
        out = self.ffi.new("char[]", size)
        count = self.lib.llama_detokenize(self.vocab, tokens, len(tokens), out, size, False, False)
        return bytes(self.ffi.buffer(out, max(count, 0))).decode("utf-8", errors="replace")

    def render_chat(self, question):
        """One user turn and the start of the answer, by the chat template in the file."""
        out = self.ffi.new("char[]", 1 << 16)
        count = self.lib.llama_model_meta_val_str(self.model, b"tokenizer.chat_template", out, 1 << 16)
        if count < 0:
            raise ValueError("the file has no chat template")
        template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(self.ffi.string(out).decode())
        text = template.render(messages=[{"role": "user", "content": question}], add_generation_prompt=True,
                               bos_token="", eos_token="")
        return text


def room_for(text):
    """A context that any tokenizer's tokens of the text fit in, with room for a few more."""
    return len(text.encode("utf-8")) + 64


def loss_of(logits, tokens):
    """Mean negative log-likelihood of tokens[1:] in nats, in double precision."""
    rows = logits[:-1].astype(numpy.float64)
    top = rows.max(axis=1)
    norm = top + numpy.log(numpy.exp(rows - top[:, None]).sum(axis=1))
    return float((norm - rows[numpy.arange(len(rows)), numpy.array(tokens[1:])]).mean())
