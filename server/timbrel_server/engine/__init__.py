"""Writes many notes at once, a step at a time: queue, slots, steps. It knows neither gRPC nor ONNX."""
