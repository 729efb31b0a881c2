"""One engine, one process, one line at a time: a request is a JSON object, so is the reply.

    serve(LlamaCpp(model, threads))                    # a worker's last line
    worker = Worker("llama.cpp", command)              # whoever measures
    reply = worker.ask(measure="prefill", ids=[1, 2])  # {"seconds": 0.3}, or Unanswered is raised

An engine has the methods describe(), decode(prompts, new_tokens, draft_length, stop_ids),
prefill(ids) and rows(context, rows, repeats); experiments/worker.h says what they return. One that
an engine's interface does not allow raises Unanswered.
"""

import json
import os
import subprocess
import sys


class Unanswered(Exception):
    """Why an engine did not measure what it was asked to."""


def serve(engine):
    """Answers requests until standard input ends. Whatever else prints goes to standard error."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        measure = getattr(engine, request.pop("measure"))
        try:
            reply = measure(**request)
        except Unanswered as why:
            reply = {"error": str(why)}
        except Exception as error:  # the other engines go on
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)


class Worker:
    """An engine's process, started with `command`; its messages go to the file `log`."""

    def __init__(self, name, command, log, environment=None):
        self.name = name
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **(environment or {})},
        )

    def ask(self, **request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Unanswered(f"its process ended with status {self.process.wait()}")
        reply = json.loads(line)
        if "error" in reply:
            raise Unanswered(reply["error"].splitlines()[0])
        return reply

    def cpu_seconds(self):
        """Processor time that the process has used so far."""
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self):
        self.process.stdin.close()
        self.process.wait()
