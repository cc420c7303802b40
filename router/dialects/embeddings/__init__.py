"""Embeddings and rerankings: one answer in one piece, passed on."""
