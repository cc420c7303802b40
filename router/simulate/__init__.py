"""Simulated LLM backends, for trying out a fleet without an account, a GPU or a bill.

A backend speaks one of three dialects over real sockets: ``responses`` (OpenAI's Responses API),
``chat`` (Chat Completions) or ``ollama``. Behind all of them sits the same small mind, which
answers at once and always the same.

    dialogue, fields      a question, a plan; reading JSON with errors that name the field
    brain, calls, sample  PURE: from the question to the plan
    request, events       the Responses dialect: its input, its event sequence
    vectors               PURE: the vector of a text
    memory                which models an Ollama has loaded
    responses, chat, ollama, plain, server    the dialects on the web

It shares no translation code with the router, so that each checks the other.
"""

from router.simulate.backend import Dialect
from router.simulate.server import DEFAULT_MODELS, DEFAULT_PACE, create_backend, listening, run

__all__ = ["DEFAULT_MODELS", "DEFAULT_PACE", "Dialect", "create_backend", "listening", "run"]
