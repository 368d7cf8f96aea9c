"""The Open Inference Protocol v2: bundles as models, notes as tensors."""
