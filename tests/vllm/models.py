# SPDX-License-Identifier: Apache-2.0
"""Models made here, from a seed: no download. Their weights are random, and large enough that the
output really depends on the KV: with vLLM's own dummy weights a corrupted cache would pass."""

import os

SIZES = {
    # the tests: 3 layers, blocks of 16 KiB a layer in float32
    "tiny": dict(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        initializer_range=0.15,
    ),
    # the demo and the figures: about 100 M parameters
    "small": dict(
        vocab_size=4096,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_key_value_heads=4,
        head_dim=64,
        max_position_embeddings=16384,
        initializer_range=0.05,
    ),
}

# One more for the tests, whose KV has another layout.
SIZES["flat"] = dict(SIZES["tiny"], num_hidden_layers=2)


def make_model(folder, size="tiny", seed=7):
    """@folder, with a Llama of @size in it."""
    if not os.path.exists(os.path.join(folder, "config.json")):
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(seed)
        config = LlamaConfig(
            bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=False, **SIZES[size]
        )
        LlamaForCausalLM(config).save_pretrained(folder, safe_serialization=True)
    return folder
