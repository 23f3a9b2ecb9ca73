#!/usr/bin/env python3
"""Reads a checkpoint that `warpsmith quantize` has made by the code of compressed-tensors or of ModelOpt, and compares.

    cargo run --release -p warpsmith-checkpoint --example digests OUT > digests.json
    python crates/warpsmith-checkpoint/tests/read_back.py OUT digests.json [--load]

Every NVFP4 weight is dequantised to f32 and compared, by its SHA-256, with what this workspace's reader makes of it (-0 counts as
0). With --load, transformers loads the model besides (compressed-tensors only), and the values that it has in bf16 are compared.

Needs torch, safetensors and, by the layout, compressed-tensors or nvidia-modelopt; --load needs transformers.
"""

import argparse
import hashlib
import json
from pathlib import Path

import torch
from safetensors import safe_open


def of_compressed_tensors(config):
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization import QuantizationConfig
    from compressed_tensors.quantization.lifecycle.forward import dequantize

    args = QuantizationConfig.model_validate(config).config_groups["group_0"].weights

    def read(get, name):
        packed = get(f"{name}.weight_packed")
        rows, half = packed.shape
        codes = unpack_fp4_from_uint8(packed, rows, 2 * half, dtype=torch.float32)
        scale = get(f"{name}.weight_scale").float()
        factor = get(f"{name}.weight_global_scale")
        return dequantize(x_q=codes, scale=scale, args=args, global_scale=factor, dtype=torch.float32)

    return "weight_packed", read


def of_modelopt(_):
    from modelopt.torch.quantization.qtensor import NVFP4QTensor

    def read(get, name):
        codes = get(f"{name}.weight")
        shape = torch.Size([codes.shape[0], 2 * codes.shape[1]])
        scales = {"scale": get(f"{name}.weight_scale"), "double_scale": get(f"{name}.weight_scale_2")}
        return NVFP4QTensor(shape, torch.float32, codes).dequantize(torch.float32, block_sizes={-1: 16}, **scales)

    return "weight", read


def digest(values):
    return hashlib.sha256((values.contiguous() + 0.0).numpy().astype("<f4").tobytes()).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("digests", type=Path)
    parser.add_argument("--load", action="store_true", help="by transformers, too")
    args = parser.parse_args()
    config = json.loads((args.out / "config.json").read_text())["quantization_config"]
    method = config["quant_method"]
    last, read = {"compressed-tensors": of_compressed_tensors, "modelopt": of_modelopt}[method](config)
    known = json.loads(args.digests.read_text())["weights"]

    place = {}
    for path in sorted(args.out.glob("*.safetensors")):
        file = safe_open(path, "pt")
        place.update({name: file for name in file.keys()})
    index = args.out / "model.safetensors.index.json"
    if index.exists():
        index = json.loads(index.read_text())
        assert set(index["weight_map"]) == set(place), "the index names other tensors"
        size = sum(t.numel() * t.element_size() for t in (place[name].get_tensor(name) for name in place))
        assert index["metadata"]["total_size"] == size, "the index has another total_size"

    def get(name):
        return place[name].get_tensor(name)

    names = [name.removesuffix(f".{last}") for name in place if name.endswith(f".{last}")]
    names = [name for name in names if get(f"{name}.{last}").dtype == torch.uint8]
    assert set(names) == set(known), set(names) ^ set(known)
    wrong = []
    for name in names:
        values = read(get, name)
        if list(values.shape) != known[name]["shape"] or digest(values) != known[name]["sha256_plus_zero"]:
            wrong.append(name)
    print(f"{method}: {len(names)} weights read, {len(wrong)} differ {wrong[:4]}")

    if args.load:
        from transformers import AutoModelForCausalLM, CompressedTensorsConfig
        from transformers.utils import logging

        logging.disable_progress_bar()
        how = CompressedTensorsConfig(run_compressed=False)
        model = AutoModelForCausalLM.from_pretrained(args.out, dtype=torch.bfloat16, quantization_config=how)
        loaded = model.state_dict()
        for name in names:
            if not torch.equal(loaded[f"{name}.weight"].cpu(), read(get, name).bfloat16()):
                wrong.append(f"{name}, loaded")
        print(f"transformers: {len(names)} weights loaded, {sum(name.endswith('loaded') for name in wrong)} differ")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
