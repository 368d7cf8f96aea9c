"""A trained checkpoint to a bundle of ONNX graphs that provably agrees with it."""

import timbrel_bundle  # noqa: F401  # what it says to onnxruntime comes before the import of it
