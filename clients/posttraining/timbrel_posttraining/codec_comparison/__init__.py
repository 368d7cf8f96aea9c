"""Codec designs side by side: trained for the same time on the same notes, and judged by the same figures.

A codec is worth its sound, and what its codes cost the model that has to write them. So each design is
trained for some minutes on one thread, then the same small note transformer for some minutes on its codes.
"""
