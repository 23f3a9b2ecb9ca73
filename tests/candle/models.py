#!/usr/bin/env python3
"""Models that warpsmith-candle is shown on, and what torch says of them.

    models.py make OUT [--layers N]     a Qwen3-MoE with the shapes of Qwen3-30B-A3B, fewer layers and random weights in bf16, two files
    models.py plain DIR OUT             an NVFP4 checkpoint's values in bf16, for those who read no other
    models.py reference DIR --text FILE --prompt TEXT --tokens N [--log FILE] ...

`reference` dequantises a model without experts to f32, gives its perplexity of a text in windows of 512 tokens, and compares the
tokens of each log of the example `generate`: behind its own tokens so far, each is to be torch's likeliest, or to be level with it in
bf16. It fails where one is not.

Needs torch, transformers 5, safetensors and tokenizers.
"""

import argparse
import json
import math
import re
import shutil
import sys
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

WINDOW = 512
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def make(args):
    """By transformers, and saved by it under the names that checkpoints have."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        vocab_size=args.vocabulary, hidden_size=2048, intermediate_size=6144, moe_intermediate_size=768,
        num_hidden_layers=args.layers, num_attention_heads=32, num_key_value_heads=4, head_dim=128, num_experts=args.experts,
        num_experts_per_tok=8, norm_topk_prob=True, decoder_sparse_step=1, rms_norm_eps=1e-6, rope_theta=1e6,
        max_position_embeddings=4096, tie_word_embeddings=False, initializer_range=0.02,
        bos_token_id=None, eos_token_id=None, pad_token_id=None, dtype=torch.bfloat16,
    )
    with torch.device("meta"):
        model = Qwen3MoeForCausalLM(config).to(torch.bfloat16)
    filled = fill(model.state_dict(), config.initializer_range)
    model.load_state_dict(filled, assign=True)
    size = sum(tensor.numel() * tensor.element_size() for tensor in filled.values())
    model.save_pretrained(args.out, max_shard_size=size * 6 // 10)
    files = sorted(path.name for path in args.out.glob("*.safetensors"))
    names = json.loads((args.out / "model.safetensors.index.json").read_text())["weight_map"]
    assert len(files) == 2, files
    assert "model.layers.0.mlp.experts.0.gate_proj.weight" in names, sorted(names)[:8]
    print(f"{size / 1e9:.2f} GB in {files}")


def fill(shapes, deviation):
    """Norms are ones, the rest is random; by many threads."""
    from concurrent.futures import ThreadPoolExecutor

    filled = {name: torch.ones(of.shape, dtype=torch.bfloat16) for name, of in shapes.items()}
    parts = [part for of in filled.values() if of.dim() > 1 for part in of.view(-1).split(1 << 24)]

    def one(seed):
        parts[seed].normal_(0.0, deviation, generator=torch.Generator().manual_seed(seed))

    with ThreadPoolExecutor() as threads:
        list(threads.map(one, range(len(parts))))
    return filled


def tensors_of(folder):
    """All tensors of a folder, by name."""
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                yield name, file.get_tensor(name)


def values(codes, scales, factor):
    """code · (scale · factor) in f32; two codes a byte, the low half first."""
    table = torch.tensor(E2M1 + [-value for value in E2M1])
    codes = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2).long()
    scales = scales.float() * factor
    return (table[codes].unflatten(-1, (-1, 16)) * scales.unsqueeze(-1)).flatten(-2)


def dequantised(folder):
    """All weights of a checkpoint in f32, under the names of the plain model."""
    stored, plain = dict(tensors_of(folder)), {}
    for name, tensor in stored.items():
        base, _, part = name.rpartition(".")
        if part == "weight" and f"{base}.weight_scale_2" in stored:
            plain[name] = values(tensor, stored[f"{base}.weight_scale"], stored[f"{base}.weight_scale_2"])
        elif part == "weight_packed":
            factor = 1.0 / stored[f"{base}.weight_global_scale"]
            plain[f"{base}.weight"] = values(tensor, stored[f"{base}.weight_scale"], factor)
        elif not re.search(r"_scale(_2)?$", part):
            plain[name] = tensor.float()
    return plain


def plain(args):
    args.out.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.bfloat16().contiguous() for name, tensor in dequantised(args.dir).items()}
    save_file(tensors, args.out / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((args.dir / "config.json").read_text())
    config.pop("quantization_config", None)
    (args.out / "config.json").write_text(json.dumps(config, indent=1))
    for name in ["tokenizer.json", "generation_config.json"]:
        if (args.dir / name).exists():
            shutil.copy(args.dir / name, args.out / name)


def reference(args):
    from tokenizers import Tokenizer
    from transformers import AutoConfig, AutoModelForCausalLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = AutoConfig.from_pretrained(args.dir)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    missing, unexpected = model.load_state_dict(dequantised(args.dir), strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    model.to(device)
    tokenizer = Tokenizer.from_file(str(args.dir / "tokenizer.json"))
    ids = tokenizer.encode(args.text.read_text(), add_special_tokens=False).ids
    print(f"torch {torch.__version__} on {device}, {len(ids)} tokens, the logs' prompt: {args.prompt!r}")
    print(f"perplexity, f32: {perplexity(model, ids, device):.6f}")
    prompt = tokenizer.encode(args.prompt, add_special_tokens=True).ids
    print(f"greedy, f32: {greedy(model, prompt, args.tokens, device)}")
    is_right = all([compare(model, prompt, log, args.tokens, device) for log in args.log])
    model.to(torch.bfloat16)
    print(f"perplexity, bf16: {perplexity(model, ids, device):.6f}")
    print(f"greedy, bf16: {greedy(model, prompt, args.tokens, device)}")
    sys.exit(0 if is_right else 1)


@torch.inference_mode()
def logits(model, ids, device):
    return model(torch.tensor([ids], device=device), use_cache=False).logits[0].float()


def perplexity(model, ids, device):
    total, count = 0.0, 0
    for at in range(0, len(ids), WINDOW):
        window = ids[at:at + WINDOW]
        if len(window) > 1:
            targets = torch.tensor(window[1:], device=device)
            of = torch.nn.functional.cross_entropy(logits(model, window, device)[:-1], targets, reduction="sum")
            total, count = total + of.item(), count + len(window) - 1
    return math.exp(total / count)


def greedy(model, prompt, tokens, device):
    ids = list(prompt)
    for _ in range(tokens):
        ids.append(logits(model, ids, device)[-1].argmax().item())
    return ids[len(prompt):]


def compare(model, prompt, log, tokens, device):
    """Whether each token of a log is the likeliest behind those before it, or level with it in bf16."""
    found = re.search(r"^ids: \[([\d, ]*)\]", log.read_text(), re.MULTILINE)
    if found is None or not found[1]:
        print(f"{log.name}: no tokens")
        return False
    made = [int(word) for word in found[1].split(",")][:tokens]
    rows = logits(model, prompt + made, device)[len(prompt) - 1:-1]
    apart = []
    for step, (row, token) in enumerate(zip(rows, made)):
        likeliest = row.argmax().item()
        if likeliest != token:
            of = row[likeliest].item()
            # The distance between neighbours in bf16 at this size: products and sums before it have been rounded to as much.
            place = 2.0 ** (math.floor(math.log2(abs(of))) - 7)
            apart.append((step, likeliest, token, of - row[token].item(), place))
    print(f"{log.name}: {len(made) - len(apart)} of {len(made)} tokens are torch's likeliest behind the tokens before them")
    for step, likeliest, token, gap, place in apart:
        print(f"  token {step}: {token}, torch {likeliest}; logits {gap:.4f} apart, bf16's neighbours there {place:.4f}")
    return all(gap <= place for *_, gap, place in apart)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("make")
    command.add_argument("out", type=Path)
    command.add_argument("--layers", type=int, default=4)
    command.add_argument("--experts", type=int, default=128)
    command.add_argument("--vocabulary", type=int, default=151936)
    command.set_defaults(run=make)
    command = commands.add_parser("plain")
    command.add_argument("dir", type=Path)
    command.add_argument("out", type=Path)
    command.set_defaults(run=plain)
    command = commands.add_parser("reference")
    command.add_argument("dir", type=Path)
    command.add_argument("--text", type=Path, required=True)
    command.add_argument("--prompt", required=True)
    command.add_argument("--tokens", type=int, default=64)
    command.add_argument("--log", type=Path, action="append", default=[])
    command.set_defaults(run=reference)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
