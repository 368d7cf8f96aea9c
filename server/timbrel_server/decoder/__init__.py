"""The decode graphs, run by onnxruntime, and the memory that they work in."""
