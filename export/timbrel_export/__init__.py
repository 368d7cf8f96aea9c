"""A trained checkpoint to a bundle of ONNX graphs that provably agrees with it."""
