"""Which texts are never matched by meaning."""

from __future__ import annotations

import pytest

from cache.guard import gate

GATED = {
    "too_short": ["", "Hi", "yes", "go on please", "Thank you", "What is it?", "?!"],
    "too_long": ["Tell me about the sea. " * 20, "word " * 61],
    "time": [
        "What is the weather today?", "Who is the current pope?", "What's the latest news on Mars?",
        "What did I miss last night?", "Events in Ghent this weekend", "What time is it in Rome?",
        "Is the shop open on Sunday?", "What happened two days ago?", "Is it raining right now?",
    ],
    "code": [
        "What does `ls -la` do?", "Why does print(x) fail?", "Fix x = {1: 2}",
        "Explain https://example.org to me", "What is my_variable in this?",
        "Why is a == b false here?", "def f(x):\n    return x",
    ],
    "references": [
        "Summarize this article in one sentence", "Fix the attached file", "Translate the above",
        "Translate this text from French to German", "Rewrite the following paragraph",
    ],
    "script": [
        "Who is \u0412\u043b\u0430\u0434?", "What does \u4f60\u597d mean?",
        "How do I p\u0430y my rent?",
        "How do I\u200b pay my rent?", "Is 👍 rude?", "caf\u0065\u0301 prices in Paris", "a\x00b c",
        "How do I pay \u202emy rent?", "\uff28ow do I pay my rent?",
    ],
    "language": [
        "Wie kann ich mein Passwort zur\u00fccksetzen?", "Quelle est la capitale de la France ?",
        "Como puedo cambiar mi contrase\u00f1a?", "Passwort zur\u00fccksetzen",
        "Hoe kan ik mijn wachtwoord wijzigen?", "Jak mogu zmenit heslo",
    ],
}  # fmt: skip

FREE = [
    "How do I reset my password?", "What is 15% of 200?", "Define photosynthesis",
    "USD to EUR exchange rate", "HTTP vs HTTPS", "How do I write a for loop in JavaScript?",
    "Write hello world in C++", "How do I undo the last git commit?", "Is Pluto a planet?",
    'How do you say "guten Morgen" in English?', "What is a caf\u00e9 au lait?",
    "I can\u2019t log in to my account", "My app crashes every time I open it",
    "Who wrote The Da Vinci Code?", "How long does shipping take?", "Solve x + 2 = 8",
]  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "text"), [(reason, text) for reason, texts in GATED.items() for text in texts]
)
def test_it_holds_back(reason: str, text: str) -> None:
    assert gate(text) == reason


@pytest.mark.parametrize("text", FREE)
def test_it_lets_pass(text: str) -> None:
    assert gate(text) is None
