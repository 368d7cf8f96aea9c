"""Scales of an 8-bit cache: what the notes put into it fits, and not much more."""

from __future__ import annotations

from typing import Any

import onnx
import torch

from timbrel_export.sample_note import HEADROOM, LARGEST, find_cache_scales


def test_the_largest_number_of_each_channel_fits_with_headroom(tiny: Any) -> None:
    layer = tiny.model.decoder.layers[0]
    met: list[torch.Tensor] = []
    handle = layer.self_attention.qkv.register_forward_hook(lambda module, inputs, out: met.append(out))
    scales = find_cache_scales(tiny.model, tiny.notes)
    handle.remove()
    assert len(scales) == tiny.model.config.n_decoder_layers
    n_queries = layer.self_attention.sizes[0]
    largest = torch.cat([each.flatten(0, 1) for each in met])[:, n_queries:].abs().amax(dim=0)
    keys_and_values = torch.cat(list(scales[0]))
    torch.testing.assert_close(keys_and_values * LARGEST, HEADROOM * largest)


def test_the_hooks_are_gone_afterwards(tiny: Any) -> None:
    find_cache_scales(tiny.model, tiny.notes[:1])
    assert not any(layer.self_attention.qkv._forward_hooks for layer in tiny.model.decoder.layers)


def test_the_graph_in_8_bits_keeps_8_bits_in_its_cache(tiny: Any) -> None:
    session = tiny.session("decoder_step_int8.onnx")
    types = {port.name: port.type for port in session.get_inputs()}
    assert {kind for name, kind in types.items() if name.startswith("self_")} == {"tensor(int8)"}
    assert {kind for name, kind in types.items() if name.startswith("cross_")} == {"tensor(float)"}
    graph = onnx.load(tiny.bundle.path / "decoder_step_int8.onnx", load_external_data=False).graph
    assert sum(node.op_type == "MatMulNBits" for node in graph.node) == 4 * len(tiny.model.decoder.layers) + 1
