"""The bundles that are being served: their engines, and what works beside these."""
