"""The engine writes many notes at once, a step at a time. It knows neither gRPC nor ONNX."""
