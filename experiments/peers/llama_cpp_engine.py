"""llama.cpp through llama-cpp-python's low-level calls, so that no Python stands between steps but
the choice of the next token. Drafts come from the package's own LlamaPromptLookupDecoding.

    python llama_cpp_engine.py MODEL.gguf THREADS
"""

import sys
import time

import llama_cpp
import numpy as np
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding
from protocol import serve

MOST_SEQUENCES = 8
CONTEXT = 1024  # positions of a sequence
MAX_NGRAM = 3


class Context:
    """A llama_context for so many sequences, and the one batch that is filled again and again."""

    def __init__(self, model, threads, sequences):
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = CONTEXT * sequences
        params.n_batch = CONTEXT * sequences
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(model, params)
        if not self.context:
            raise RuntimeError(f"no context for {sequences} sequences")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.batch = llama_cpp.llama_batch_init(params.n_batch, 0, 1)
        vocabulary = llama_cpp.llama_model_get_vocab(model)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(vocabulary)

    def fill(self, entries):
        """entries: (token, position, sequence, whether its logits are wanted)."""
        batch = self.batch
        batch.n_tokens = len(entries)
        for i, (token, position, sequence, wanted) in enumerate(entries):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = wanted

    def run(self):
        status = llama_cpp.llama_decode(self.context, self.batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        llama_cpp.llama_synchronize(self.context)

    def best(self, index, stop_ids):
        """Most probable token behind the batch's entry `index`; none of stop_ids."""
        pointer = llama_cpp.llama_get_logits_ith(self.context, index)
        logits = np.ctypeslib.as_array(pointer, shape=(self.vocabulary,))
        logits[stop_ids] = -np.inf
        return int(logits.argmax())

    def clear(self):
        llama_cpp.llama_memory_clear(self.memory, True)

    def cut(self, sequence, position):
        """Forgets a sequence from `position` on."""
        llama_cpp.llama_memory_seq_rm(self.memory, sequence, position, -1)


class LlamaCpp:
    def __init__(self, path, threads):
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise RuntimeError("the model cannot be loaded")
        self.one = Context(self.model, threads, 1)
        self.many = Context(self.model, threads, MOST_SEQUENCES)

    def describe(self):
        info = llama_cpp.llama_print_system_info().decode()
        return {"engine": "llama.cpp", "version": llama_cpp.__version__, "settings": info.strip()}

    def decode(self, prompts, new_tokens, draft_length, stop_ids):
        context = self.one if len(prompts) == 1 else self.many
        context.clear()
        entries, last = [], []
        for sequence, prompt in enumerate(prompts):
            for position, token in enumerate(prompt):
                entries.append((token, position, sequence, position == len(prompt) - 1))
            last.append(len(entries) - 1)
        context.fill(entries)
        start = time.perf_counter()
        context.run()
        answers = [[context.best(index, stop_ids)] for index in last]
        first = time.perf_counter()
        if draft_length > 0:
            steps = self.look_up(context, prompts[0], answers[0], new_tokens, draft_length, stop_ids)
        else:
            steps = new_tokens - 1
            for step in range(steps):
                context.fill(
                    [(a[-1], len(p) + step, s, True) for s, (p, a) in enumerate(zip(prompts, answers))]
                )
                context.run()
                for index, answer in enumerate(answers):
                    answer.append(context.best(index, stop_ids))
        end = time.perf_counter()
        return {
            "prefill_s": first - start,
            "decode_s": end - first,
            "ids": [answer[:new_tokens] for answer in answers],
            "steps": steps,
        }

    def look_up(self, context, prompt, answer, new_tokens, draft_length, stop_ids):
        """Decodes with drafts until the answer is long enough; returns the steps it took."""
        drafter = LlamaPromptLookupDecoding(MAX_NGRAM, draft_length)
        tokens = np.empty(len(prompt) + new_tokens + draft_length + 1, dtype=np.intc)
        tokens[: len(prompt)] = prompt
        tokens[len(prompt)] = answer[0]
        count, steps = len(prompt) + 1, 0
        while len(answer) < new_tokens:
            draft = drafter(tokens[:count])[: new_tokens - len(answer) - 1]
            rows = [int(tokens[count - 1]), *map(int, draft)]
            context.fill([(token, count - 1 + i, 0, True) for i, token in enumerate(rows)])
            context.run()
            steps += 1
            for i in range(len(rows)):
                token = context.best(i, stop_ids)
                answer.append(token)
                tokens[count] = token
                count += 1
                if i + 1 == len(rows) or rows[i + 1] != token:
                    break
            context.cut(0, count - 1)
        return steps

    def prefill(self, ids):
        self.one.clear()
        self.one.fill([(token, i, 0, i == len(ids) - 1) for i, token in enumerate(ids)])
        start = time.perf_counter()
        self.one.run()
        self.one.best(len(ids) - 1, [])
        return {"seconds": time.perf_counter() - start}

    def rows(self, context, rows, repeats):
        self.prefill(context)
        seconds = {n: [] for n in rows}
        for repeat in range(repeats + 1):  # the first warms up
            for n in rows:
                self.one.fill([(context[i % len(context)], len(context) + i, 0, True) for i in range(n)])
                start = time.perf_counter()
                self.one.run()
                taken = time.perf_counter() - start
                self.one.cut(0, len(context))
                if repeat > 0:
                    seconds[n].append(taken)
        return {"seconds": {str(n): float(np.median(taken)) for n, taken in seconds.items()}}


if __name__ == "__main__":
    serve(LlamaCpp(sys.argv[1], int(sys.argv[2])))
