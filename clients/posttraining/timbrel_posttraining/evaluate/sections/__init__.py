"""The sections of a report: each says which takes it wants, and judges them once they are measured."""
