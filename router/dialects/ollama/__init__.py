"""Ollama's own API: ``/api/chat`` and ``/api/generate``, in front and behind."""
