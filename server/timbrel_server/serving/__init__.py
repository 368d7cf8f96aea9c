"""The bundles being served, each with its engine, and how they are changed while serving."""
