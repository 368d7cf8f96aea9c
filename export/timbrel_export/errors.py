"""The reasons why a bundle is not written.

ExportError (ValueError)
├── InterfaceError   a graph has other inputs, outputs or weights than the bundle format says
└── ParityError      a graph computes something else than PyTorch does
"""

from __future__ import annotations


class ExportError(ValueError):
    """Base of the errors raised by export."""


class InterfaceError(ExportError):
    """A graph's inputs, outputs or weights differ in name, type or shape from what the bundle format says."""


class ParityError(ExportError):
    """A graph's results differ from those of the PyTorch modules it was made from."""
