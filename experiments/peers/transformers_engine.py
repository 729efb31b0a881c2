"""transformers on torch, which turns the GGUF file's weights into float32 when it loads them.

    python transformers_engine.py MODEL.gguf THREADS
"""

import os
import statistics
import sys
import time

import torch
import transformers
from protocol import serve

MAX_NGRAM = 3


class Clock:
    """A logits processor that only notes when the first token's logits were there."""

    def __init__(self):
        self.first = None

    def __call__(self, input_ids, scores):
        if self.first is None:
            self.first = time.perf_counter()
        return scores


class Transformers:
    def __init__(self, path, threads):
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            os.path.dirname(path), gguf_file=os.path.basename(path), dtype=torch.float32
        ).eval()

    def describe(self):
        settings = f"torch {torch.__version__}, float32, {torch.get_num_threads()} threads"
        return {"engine": "transformers", "version": transformers.__version__, "settings": settings}

    def decode(self, prompts, new_tokens, draft_length, stop_ids):
        longest = max(map(len, prompts))
        padding = [longest - len(prompt) for prompt in prompts]
        clock = Clock()
        options = {}
        if draft_length > 0:
            options = {"prompt_lookup_num_tokens": draft_length, "max_matching_ngram_size": MAX_NGRAM}
        start = time.perf_counter()
        ids = self.model.generate(
            input_ids=torch.tensor([[0] * n + prompt for n, prompt in zip(padding, prompts)]),
            attention_mask=torch.tensor([[0] * n + [1] * (longest - n) for n in padding]),
            do_sample=False,
            max_new_tokens=new_tokens,
            min_new_tokens=new_tokens,
            eos_token_id=stop_ids or None,
            pad_token_id=0,
            logits_processor=transformers.LogitsProcessorList([clock]),
            **options,
        )
        end = time.perf_counter()
        answers = [row[longest:].tolist() for row in ids]
        return {"prefill_s": clock.first - start, "decode_s": end - clock.first, "ids": answers}

    def prefill(self, ids):
        start = time.perf_counter()
        self.model(torch.tensor([ids]), logits_to_keep=1)
        return {"seconds": time.perf_counter() - start}

    def rows(self, context, rows, repeats):
        cache = self.model(torch.tensor([context]), use_cache=True).past_key_values
        seconds = {n: [] for n in rows}
        for repeat in range(repeats + 1):  # the first warms up
            for n in rows:
                ids = torch.tensor([[context[i % len(context)] for i in range(n)]])
                start = time.perf_counter()
                self.model(ids, past_key_values=cache, use_cache=True)
                taken = time.perf_counter() - start
                cache.crop(-n)
                if repeat > 0:
                    seconds[n].append(taken)
        return {"seconds": {str(n): statistics.median(taken) for n, taken in seconds.items()}}


if __name__ == "__main__":
    serve(Transformers(sys.argv[1], int(sys.argv[2])))
