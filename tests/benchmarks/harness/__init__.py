"""The parts that the benchmarks share."""
