"""OpenVINO GenAI: the continuous batching pipeline on the GGUF file itself, stepped by hand so that
the first token's time is known. Its interface has no pass over n rows of our choice.

    python openvino_engine.py MODEL.gguf THREADS
"""

import sys
import time

import numpy as np
import openvino as ov
import openvino_genai as genai
from protocol import Unanswered, serve

MOST_TOKENS = 8192  # in one step: whole prompts of a batch
MAX_NGRAM = 3


class OpenVino:
    def __init__(self, path, threads):
        self.path = path
        self.properties = {"INFERENCE_NUM_THREADS": threads}
        self.plain = self.pipeline()
        self.lookup = None  # a second copy of the model, made when asked for
        self.requests = 0

    def pipeline(self, **properties):
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = 1  # GB
        scheduler.max_num_batched_tokens = MOST_TOKENS
        scheduler.enable_prefix_caching = False  # or a prompt would be computed once only
        return genai.ContinuousBatchingPipeline(
            self.path, scheduler, "CPU", {**self.properties, **properties}
        )

    def describe(self):
        settings = ", ".join(f"{key} {value}" for key, value in self.properties.items())
        return {"engine": "OpenVINO GenAI", "version": genai.__version__, "settings": settings}

    def decode(self, prompts, new_tokens, draft_length, stop_ids):
        config = genai.GenerationConfig()
        config.max_new_tokens = new_tokens
        config.do_sample = False
        if stop_ids:
            config.min_new_tokens = new_tokens
            config.eos_token_id = stop_ids[0]
            config.stop_token_ids = set(stop_ids)
        pipeline = self.plain
        if draft_length > 0:
            if self.lookup is None:
                self.lookup = self.pipeline(prompt_lookup=True)
            pipeline = self.lookup
            config.max_ngram_size = MAX_NGRAM
            config.num_assistant_tokens = draft_length
        handles = []
        for prompt in prompts:
            ids = ov.Tensor(np.array([prompt], dtype=np.int64))
            handles.append(pipeline.add_request(self.requests, ids, config))
            self.requests += 1
        start = time.perf_counter()
        pipeline.step()
        first = end = time.perf_counter()
        steps = 0
        while pipeline.has_non_finished_requests():
            pipeline.step()
            steps += 1
            end = time.perf_counter()
        answers = [list(handle.read_all()[0].generated_ids) for handle in handles]
        return {"prefill_s": first - start, "decode_s": end - first, "ids": answers, "steps": steps}

    def prefill(self, ids):
        return {"seconds": self.decode([ids], 1, 0, [])["prefill_s"]}

    def rows(self, context, rows, repeats):
        raise Unanswered("its interface has no pass over n rows")


if __name__ == "__main__":
    serve(OpenVino(sys.argv[1], int(sys.argv[2])))
