"""Make a tiny random model with a tokenizer of bytes, for an interpreter that has transformers.

Its answers are noise, and always the same: the weights come from a fixed seed.
"""

from __future__ import annotations

import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CONTEXT = 4096
TEMPLATE = (
    "{% for message in messages %}<s>{{ message['role'] }}\n{{ message['content'] }}</s>"
    "{% endfor %}{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)


def main() -> None:
    """Write it to the directory that is named."""
    directory = sys.argv[1]
    tokens = ["<pad>", "<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    fast.chat_template = TEMPLATE
    torch.manual_seed(0)
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokens),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=CONTEXT,
            **ids,
        )
    )
    model.generation_config = GenerationConfig(do_sample=False, max_new_tokens=32, **ids)
    model.save_pretrained(directory)
    fast.save_pretrained(directory)


if __name__ == "__main__":
    main()
